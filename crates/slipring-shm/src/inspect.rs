//! Looking at segments without attaching: nothing is mapped, locked or changed.
//!
//! Invariants
//! - I1: all bytes are copied by `pread`, which comes back short where a file was shortened.
//! - I2: what the copies say is checked before it is used as an offset or count.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::errors::{Problem, SegmentError};
use crate::file::{Access, File};
use crate::layout::records::{Participant, Record, text};
use crate::layout::{Checked, KIND_MESSAGES, MAX_PARTICIPANTS};
use crate::limits::FOLDER;
use crate::lock;
use crate::machine::Process;
use crate::open::read_head;
use crate::place::{Place, name_of};

pub use crate::participant::Liveness;

/// Summary of a segment's head, and of its participants.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// Name, if the file is in `/dev/shm`.
    pub name: Option<String>,
    /// Path of the file.
    pub path: PathBuf,
    /// Name of the events' type.
    pub type_name: String,
    /// Version of the events' type.
    pub type_version: u32,
    /// Size of an event, in bytes.
    pub event_size: u64,
    /// Whether the slots hold messages of many sizes.
    pub messages: bool,
    /// Number of slots.
    pub capacity: u64,
    /// Length of the file, in bytes.
    pub length: u64,
    /// Time of making, since 1970.
    pub created: Duration,
    /// Number of producers' seats; 1: a single producer.
    pub producers: u32,
    /// Longest time between two checks of a waiting participant for deaths.
    pub notice: Duration,
    /// The stages, in the order of the table.
    pub stages: Vec<StageSummary>,
    /// Number of places of participants.
    pub places: u32,
    /// The participants that are attached, or died and are not recovered yet.
    pub participants: Vec<ParticipantSummary>,
    /// Whether no process is attached, attaching or removing: the segment may be removed.
    pub stale: bool,
}

/// A stage, as the stage table declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageSummary {
    /// Name.
    pub name: String,
    /// Whether it may write to events.
    pub writes: bool,
    /// Delivery of events: `each`, `pool`, `shards` or `tap`.
    pub delivery: &'static str,
    /// Number of handles that it has room for.
    pub room: u32,
}

/// A participant: its record, and the result of probing its byte.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParticipantSummary {
    /// Number of the place, from 1.
    pub number: u32,
    /// Process number in its own pid namespace.
    pub pid: u32,
    /// User that it acts for.
    pub uid: u32,
    /// Name that it gave itself.
    pub name: String,
    /// Time of attaching, since 1970.
    pub joined: Duration,
    /// Whether it is alive.
    pub liveness: Liveness,
}

/// Looks at the segment `name`. Safe: nothing is mapped, and nothing waits for the caller.
///
/// ```
/// # use slipring_shm::{Event, Segment};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
/// # #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// # #[repr(C)]
/// # struct Block(u64);
/// # impl Event for Block {
/// #     const NAME: &'static str = "field/Block";
/// #     const VERSION: u32 = 1;
/// # }
/// let name = format!("looked-at-{}", std::process::id());
/// let segment = Segment::<Block>::create(&name).capacity(8).reader("all").build()?;
/// let summary = slipring_shm::inspect(&name)?;
/// assert_eq!((summary.capacity, summary.participants.len()), (8, 0));
/// assert!(!summary.stale); // its maker will attach
/// drop(segment);
/// assert!(slipring_shm::inspect(&name)?.stale);
/// slipring_shm::remove(&name)?;
/// # Ok::<(), slipring_shm::SegmentError>(())
/// ```
///
/// # Errors
/// A [`Problem`] of the name, the file or the header.
pub fn inspect(name: impl AsRef<OsStr>) -> Result<Summary, SegmentError> {
    let given = name.as_ref();
    let place =
        Place::named(given).map_err(|error| SegmentError::new(format!("{given:?}"), error))?;
    inspect_place(&place)
}

/// Looks at the segment at `path`.
///
/// Example: [`inspect`].
///
/// # Errors
/// As [`inspect`].
pub fn inspect_at(path: impl Into<PathBuf>) -> Result<Summary, SegmentError> {
    inspect_place(&Place::Path(path.into()))
}

/// Looks at all segments in `/dev/shm`, ordered by path. A segment that cannot be read is an error
/// of its own. A segment that is removed during the call is left out.
///
/// ```
/// for segment in slipring_shm::list()? {
///     match segment {
///         Ok(summary) => println!("{} {}", summary.path.display(), summary.type_name),
///         Err(error) => println!("{error}"),
///     }
/// }
/// # Ok::<(), slipring_shm::SegmentError>(())
/// ```
///
/// # Errors
/// The folder cannot be read.
pub fn list() -> Result<Vec<Result<Summary, SegmentError>>, SegmentError> {
    let failed = |error| SegmentError::new(FOLDER, Problem::system("reading the folder", error));
    let mut paths = Vec::new();
    for entry in fs::read_dir(FOLDER).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if name_of(&entry.file_name()).is_some() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let looked = paths.into_iter().map(inspect_at);
    let gone = |error: &SegmentError| matches!(error.problem(), Problem::Missing);
    Ok(looked.filter(|result| !result.as_ref().is_err_and(gone)).collect())
}

fn inspect_place(place: &Place) -> Result<Summary, SegmentError> {
    let path = place.path().unwrap_or(Path::new(""));
    summary(path).map_err(|problem| SegmentError::at(place, problem))
}

fn summary(path: &Path) -> Result<Summary, Problem> {
    let file = File::open(path, Access::Read)?;
    let checked = read_head(&file, None)?;
    let header = &checked.header;
    let held = lock::probe(file.as_fd(), 0..MAX_PARTICIPANTS + 1)
        .map_err(|error| Problem::system("probing the bytes of the file", error))?;
    let stage = |stage: &crate::layout::StageRecord| StageSummary {
        name: stage.name(),
        writes: stage.access != 0,
        delivery: ["each", "pool", "shards", "tap"][usize::from(stage.delivery & 3)],
        room: stage.room,
    };
    let in_folder = path.parent() == Some(Path::new(FOLDER));
    Ok(Summary {
        name: path.file_name().filter(|_| in_folder).and_then(name_of).map(str::to_owned),
        path: path.to_owned(),
        type_name: checked.type_name(),
        type_version: header.type_version,
        event_size: header.event_size,
        messages: header.kind == KIND_MESSAGES,
        capacity: header.capacity,
        length: header.length,
        created: Duration::from_nanos(header.created),
        producers: header.producers,
        notice: Duration::from_millis(header.notice_ms.into()),
        stages: checked.stages.iter().map(stage).collect(),
        places: header.participants,
        participants: participants(&file, &checked)?,
        stale: held.is_none(),
    })
}

fn participants(file: &File, checked: &Checked) -> Result<Vec<ParticipantSummary>, Problem> {
    let area = checked.areas.participants;
    let bytes = file.read(area.at, area.length().unwrap_or(0) as usize)?;
    let mut found = Vec::new();
    for (number, record) in (1..).zip(bytes.chunks_exact(Participant::STRIDE as usize)) {
        let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| record[at + i]));
        let u64_at =
            |at: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| record[at + i]));
        let process = Process { pid: u32_at(8), start_time: u64_at(16), namespace: u64_at(24) };
        let held = lock::probe(file.as_fd(), lock::byte(number))
            .map_err(|error| Problem::system("probing a byte of the file", error))?;
        let liveness = Liveness::of(held, u64_at(0), &process);
        if liveness != Liveness::Free {
            found.push(ParticipantSummary {
                number,
                pid: process.pid,
                uid: u32_at(12),
                name: text(&record[48..112]),
                joined: Duration::from_nanos(u64_at(32)),
                liveness,
            });
        }
    }
    Ok(found)
}
