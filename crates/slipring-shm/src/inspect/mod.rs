//! Inspecting segments without attaching: nothing is mapped, locked or changed.
//!
//! The module `copies` copies the words, `summary` has the types that users get, `assemble` makes a
//! summary from the copies, and `waits` finds which party waits for which.
//!
//! Invariants
//! - I1: all bytes are copied by `pread`, which returns fewer bytes if the file was shortened.
//! - I2: a copied word is checked before it is used as an offset or a count.
//! - I3: positions are copied after the stamps, because the walk over the stamps may take long. The
//!   published position of a summary is the latest of all these positions and of the end that the
//!   stamps show. So no stage is ahead of the published position, and a lag is at most a little too
//!   large or too small.
//! - I4: [`Summary::free`] compares the end that the stamps showed with positions that were copied
//!   later. So it misses no free slot, and 0 proves that the ring was full at one moment. There is
//!   one exception: a pool's position may be too old, because a worker that loses a race for a
//!   chunk shows an old bound for a moment.

mod assemble;
mod copies;
mod summary;
#[cfg(test)]
mod tests;
mod waits;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::errors::{Problem, SegmentError};
use crate::file::location::{Location, name_of};
use crate::system::limits::FOLDER;

pub use summary::{FailureSummary, ParticipantSummary, Party, SeatSummary, StageSummary, Summary};

/// Inspects the segment `name`. The call maps nothing, and holds up no other process.
///
/// # Cost
/// The call takes a few system calls, and one more for each participant's place. It also reads the
/// stamps between the furthest stage and the producer. One read copies up to 64 KiB. If stamps lie
/// further apart than that, each stamp takes a read.
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
///
/// // SAFETY: no other program opens the segment.
/// let attached = unsafe { segment.attach()? };
/// let mut tx = attached.producer()?;
/// tx.publish(|block| block.0 = 7)?;
/// let summary = slipring_shm::inspect(&name)?;
/// assert_eq!((summary.published, summary.stages[0].lag), (1, 1));
/// let producer = summary.producer_seats[0].participant;
/// assert_eq!(summary.participant(producer.unwrap()).unwrap().pid, std::process::id());
/// assert_eq!(summary.stages[0].seats[0].participant, None);
///
/// drop((tx, attached));
/// assert!(slipring_shm::inspect(&name)?.stale);
/// slipring_shm::remove(&name)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// - [`Problem::Name`]: the name is not allowed.
/// - [`Problem::Missing`]: there is no such segment.
/// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
/// - [`Problem::System`]: a system call failed.
pub fn inspect(name: impl AsRef<OsStr>) -> Result<Summary, SegmentError> {
    inspect_location(&Location::named(name)?)
}

/// Inspects the segment at `path`.
///
/// Example: [`inspect`].
///
/// # Errors
/// - [`Problem::Missing`]: there is no such segment.
/// - [`Problem::File`], [`Problem::Header`]: the file is refused, or its header.
/// - [`Problem::System`]: a system call failed.
pub fn inspect_at(path: impl Into<PathBuf>) -> Result<Summary, SegmentError> {
    inspect_location(&Location::Path(path.into()))
}

/// Inspects all segments in `/dev/shm`, in the order of their paths. A segment that cannot be read
/// is listed with its error, and a segment that is removed during the call is left out.
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
/// Fails if the folder cannot be read.
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

fn inspect_location(location: &Location) -> Result<Summary, SegmentError> {
    let path = location.path().unwrap_or(Path::new(""));
    assemble::summary(path).map_err(|problem| SegmentError::at(location, problem))
}
