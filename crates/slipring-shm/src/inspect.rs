//! Looking at segments without attaching: nothing is mapped, locked or changed.
//!
//! Invariants
//! - I1: all bytes are copied by `pread`, which comes back short where a file was shortened.
//! - I2: what the copies say is checked before it is used as an offset or count.
//! - I3: positions of stages are copied before the seats, and both before the stamps. Each of these
//!   words only grows, and none is ahead of what is copied later. So a running segment's summary is
//!   old, but not contradictory.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use slipring::segment::{
    Ending, OnDeath, PRODUCER_LINES, PoolPositions, Seat, bound_at, pool_positions, run_of,
};

use crate::errors::{Problem, SegmentError};
use crate::file::{Access, File};
use crate::graph;
use crate::layout::records::{Participant, Record, text};
use crate::layout::{Area, Checked, KIND_MESSAGES, LINE, MAX_PARTICIPANTS, StageRecord};
use crate::limits::FOLDER;
use crate::lock;
use crate::machine::Process;
use crate::open::read_head;
use crate::place::{Place, name_of};

pub use crate::participant::Liveness;

/// Number of the delivery to pools, in the stage table.
const POOL: u8 = 1;

/// Number of stamps that one look reads at most, to find the last published event.
const WALK: u64 = 1 << 16;

/// Summary of a segment's head, of its stages, and of its participants.
///
/// The words of a running segment are copied one after the other, while processes change them. So
/// positions, lags and seats may be of different moments, and are old when the caller sees them.
/// They are for people; nothing may rest on them.
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
    /// Position before which all events are published, as far as stamps and positions tell. At
    /// least so many are, if more than 65,536 publications lie behind the furthest stage.
    pub published: u64,
    /// The producers' places; none: the segment has no ring.
    pub producer_seats: Vec<SeatSummary>,
    /// Effect of the producer's death on the stages that wait for it.
    pub producer_on_death: OnDeath,
    /// The stages, in the order of the table.
    pub stages: Vec<StageSummary>,
    /// Number of places of participants.
    pub places: u32,
    /// The participants that are attached, or died and are not recovered yet.
    pub participants: Vec<ParticipantSummary>,
    /// Whether no process is attached, attaching or removing: the segment may be removed.
    pub stale: bool,
    /// Whether the ring runs, or how it ended.
    pub ending: Ending,
}

/// A stage, as the stage table declares it, and how far it is.
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
    /// Names of the stages that it follows; none: it follows the producer.
    pub after: Vec<String>,
    /// Effect of its process's death on those that wait for it.
    pub on_death: OnDeath,
    /// Position before which it has released all events.
    pub position: u64,
    /// Position before which it was lent all events; of a pool, before which workers have taken all
    /// events; of shards, that of the furthest one. The events from `position` to here come again
    /// if its process dies.
    pub held: u64,
    /// Number of published events that it has not released.
    pub lag: u64,
    /// Its places, one for each handle that it has room for.
    pub seats: Vec<SeatSummary>,
}

/// The place of a stage or of the producer, and the process that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeatSummary {
    /// Number of the participant that has the place; `None`: the place is free. The participant may
    /// be dead.
    pub participant: Option<u32>,
    /// Number of participants that died here and were followed by another one, or removed.
    pub deaths: u32,
    /// Of a tap's reader, and of a shard: the position of its first event that it has not released.
    /// `None`: the place is of another kind, or of a tap and free.
    pub position: Option<u64>,
    /// Of a tap: number of events that the last reader here had not read when it was found dead. A
    /// reader that takes the place resets the number. A reader that dies at once may leave the number
    /// of the one before.
    pub unread: u64,
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
    /// Whether its process is stopped, by SIGSTOP or a debugger, as far as this process can see.
    pub stopped: bool,
}

impl Summary {
    /// Returns the participant with this number, if it is attached or dead.
    ///
    /// Example: [`inspect`].
    pub fn participant(&self, number: u32) -> Option<&ParticipantSummary> {
        self.participants.iter().find(|participant| participant.number == number)
    }
}

/// Looks at the segment `name`. Safe: nothing is mapped, and nothing waits for the caller.
///
/// # Cost
/// A few system calls, one for each place of a participant, and one for each publication between
/// the furthest stage and the producer.
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
    let checked = read_head(&file)?;
    let header = &checked.header;
    let held = lock::probe(file.as_fd(), 0..MAX_PARTICIPANTS + 1)
        .map_err(|error| Problem::system("probing the bytes of the file", error))?;
    // I3.
    let lines = words(&file, &checked.areas.lines)?;
    let seats = seats(&file, &checked.areas.seats)?;
    // The lines of a tap hold no position of the stage. The producer's cursor and the sentinel lie at
    // the ends of runs.
    let line = |line: usize| lines.get(line)?.first().copied();
    let ends = checked.stages.iter().filter_map(|stage| match pool(stage, &lines) {
        Some(pool) => Some(pool.boundary),
        None if stage.delivery == TAP => None,
        None => line(stage.line as usize),
    });
    let ends = ends.chain(PRODUCER_LINES.into_iter().filter_map(line));
    let ends = ends.chain(seats.iter().map(|seat| seat.boundary));
    let published = published(&file, &checked, ends.fold(header.first, later))?;
    let producers = checked.stages.iter().map(|stage| stage.seats).sum();
    let stages = checked.stages.iter();
    let of_stage = |stage| stage_summary(stage, &checked, &lines, &seats, published);
    let mut stages: Vec<_> = stages.map(of_stage).collect();
    follow_members(&mut stages, published);
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
        published,
        producer_seats: summaries(&seats, producers, checked.shape.producers),
        producer_on_death: on_death(header.producer_on_death),
        stages,
        places: header.participants,
        participants: participants(&file, &checked)?,
        stale: held.is_none(),
        ending: ending(&file, &checked)?,
    })
}

/// Number of the delivery of shards.
const SHARDS: u8 = 2;
/// Number of the delivery of a tap.
const TAP: u8 = 3;

/// A copied seat.
struct CopiedSeat {
    summary: SeatSummary,
    held: u64,
    boundary: u64,
}

/// Copies the first word of the status. A file that was shortened has none, and its ring runs for
/// all that is known.
fn ending(file: &File, checked: &Checked) -> Result<Ending, Problem> {
    let word = <[u8; 4]>::try_from(file.read(checked.areas.status.at, 4)?);
    Ok(Ending::copied(word.map_or(0, u32::from_ne_bytes)))
}

/// Copies the lines of an area as words. A file that was shortened gives fewer lines.
fn words(file: &File, area: &Area) -> Result<Vec<Vec<u64>>, Problem> {
    let bytes = file.read(area.at, area.length().unwrap_or(0) as usize)?;
    let word = |bytes: &[u8]| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[i]));
    let line = |line: &[u8]| line.chunks_exact(8).map(word).collect();
    Ok(bytes.chunks_exact(LINE as usize).map(line).collect())
}

fn seats(file: &File, area: &Area) -> Result<Vec<CopiedSeat>, Problem> {
    let seat = |line: Vec<u64>| {
        let words = <[u64; Seat::WORDS]>::try_from(&line[..Seat::WORDS]).ok()?;
        let seat = Seat::copied(words);
        let (participant, deaths, unread) = (seat.owner(), seat.deaths(), seat.unread());
        let summary = SeatSummary { participant, deaths, position: None, unread };
        Some(CopiedSeat { summary, held: seat.held(), boundary: seat.boundary() })
    };
    Ok(words(file, area)?.into_iter().filter_map(seat).collect())
}

/// Returns the summaries of `count` seats from `first` on.
fn summaries(seats: &[CopiedSeat], first: u32, count: u32) -> Vec<SeatSummary> {
    let seats = seats.iter().skip(first as usize).take(count as usize);
    seats.map(|seat| seat.summary.clone()).collect()
}

/// Returns the later one of two positions that are at most half of all positions apart.
fn later(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { other } else { one }
}

/// Returns the earlier one of two positions that are at most half of all positions apart.
fn earlier(one: u64, other: u64) -> u64 {
    if ahead(other, one) > 0 { one } else { other }
}

/// Returns how far `seq` is ahead of `of`.
fn ahead(seq: u64, of: u64) -> i64 {
    seq.wrapping_sub(of) as i64
}

fn on_death(number: impl Into<u32>) -> OnDeath {
    u8::try_from(number.into()).ok().and_then(graph::on_death).unwrap_or_default()
}

/// Returns what the lines of a pool say. `None`: the stage is no pool, or lines are missing.
fn pool(stage: &StageRecord, lines: &[Vec<u64>]) -> Option<PoolPositions> {
    let first = stage.line as usize;
    let of_pool = lines.get(first..)?.get(..stage.room as usize + 2)?;
    let words: Option<Vec<u64>> = of_pool.iter().map(|line| line.first().copied()).collect();
    if stage.delivery == POOL { pool_positions(&words?) } else { None }
}

fn stage_summary(
    stage: &StageRecord,
    checked: &Checked,
    lines: &[Vec<u64>],
    seats: &[CopiedSeat],
    published: u64,
) -> StageSummary {
    // The position of a tap is set once those of the stages before it are known.
    let pool = pool(stage, lines);
    let word = |line: u32| lines.get(line as usize).and_then(|line| line.first()).copied();
    let shards = match stage.delivery {
        SHARDS => stage.line..stage.line.saturating_add(stage.room),
        _ => stage.line..stage.line.saturating_add(1),
    };
    let position = shards.clone().filter_map(word).reduce(earlier);
    let position = pool.map(|pool| pool.released).or(position).unwrap_or(checked.header.first);
    let after = checked.stages.iter().enumerate().filter(|(bit, _)| stage.after >> bit & 1 != 0);
    let own_seats = seats.iter().skip(stage.first_seat as usize).take(stage.seats as usize);
    let held = own_seats.map(|seat| seat.held).reduce(later);
    let held = pool.map(|pool| pool.taken).or(held);
    let mut seat_summaries = summaries(seats, stage.first_seat, stage.seats);
    if stage.delivery == SHARDS {
        for (line, seat) in shards.zip(&mut seat_summaries) {
            seat.position = word(line);
        }
    }
    if stage.delivery == TAP {
        for (number, seat) in seat_summaries.iter_mut().enumerate() {
            let bound = lines.get(stage.line as usize + 1 + number).and_then(|line| line.first());
            seat.position = bound.and_then(|&bound| bound_at(bound, published));
        }
    }
    StageSummary {
        name: stage.name(),
        writes: stage.access != 0,
        delivery: graph::DELIVERIES[usize::from(stage.delivery & 3)],
        room: stage.room,
        after: after.map(|(_, stage)| stage.name()).collect(),
        on_death: on_death(stage.on_death),
        position,
        held: held.map_or(position, |held| later(position, held)),
        lag: ahead(published, position).max(0) as u64,
        seats: seat_summaries,
    }
}

/// Sets the positions of taps, which their members and the stages before them decide.
fn follow_members(stages: &mut [StageSummary], published: u64) {
    for number in 0..stages.len() {
        let tap = &stages[number];
        if tap.delivery != graph::DELIVERIES[usize::from(TAP)] {
            continue;
        }
        // No tap follows a tap, so the positions of the stages before are known.
        let before = stages.iter().filter(|stage| tap.after.contains(&stage.name));
        let before = before.map(|stage| stage.position);
        let members = tap.seats.iter().filter_map(|seat| seat.position);
        let position = before.chain(members).reduce(earlier);
        let tap = &mut stages[number];
        tap.position = position.unwrap_or(published);
        tap.held = tap.position;
        tap.lag = ahead(published, tap.position).max(0) as u64;
    }
}

/// Returns the end of the runs that follow `from`, the end of a run, by the stamps in the file.
fn published(file: &File, checked: &Checked, from: u64) -> Result<u64, Problem> {
    let (stamps, capacity) = (checked.areas.stamps, checked.shape.capacity);
    let mut seq = from;
    for _ in 0..WALK.min(capacity) {
        let Some(at) = stamps.item(seq & (capacity - 1)) else { break };
        let Ok(word) = <[u8; 8]>::try_from(file.read(at, 8)?) else { break };
        match run_of(u64::from_ne_bytes(word), seq, capacity) {
            Some(length) if seq.wrapping_add(length).wrapping_sub(from) <= capacity => {
                seq = seq.wrapping_add(length);
            }
            _ => break,
        }
    }
    Ok(seq)
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
                stopped: liveness == Liveness::Alive && process.is_stopped(),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attached, Segment};
    use slipring::StartAt;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    struct Name(String);

    impl Name {
        fn new(test: &str) -> Name {
            Name(format!("inspect-{test}-{}", std::process::id()))
        }

        fn attach(&self, first: u64) -> Attached<u64> {
            let segment = Segment::create(&self.0).capacity(4).first_seq(first);
            let segment = segment.reader("one").reader("two").after(["one"]);
            let segment = segment.tap("tap", 2).build().unwrap();
            // SAFETY: only this test opens the segment.
            unsafe { segment.attach().unwrap() }
        }

        fn look(&self) -> Summary {
            inspect(&self.0).unwrap()
        }
    }

    impl Drop for Name {
        fn drop(&mut self) {
            // Also if a handle was leaked.
            let _ = fs::remove_file(Path::new(FOLDER).join(format!("{}.slipring", self.0)));
        }
    }

    #[test]
    fn positions_and_places_are_those_of_the_ring() {
        // Positions wrap on the way.
        let first = u64::MAX - 20;
        let name = Name::new("positions");
        let attached = name.attach(first);
        let at = |count: u64| first.wrapping_add(count);
        let new = name.look();
        assert_eq!((new.published, new.stages[0].position, new.stages[0].lag), (first, first, 0));
        assert_eq!(
            (&new.stages[1].after[..], new.producer_seats[0].participant),
            (&["one".into()][..], None)
        );

        let mut tx = attached.producer().unwrap();
        let (mut one, mut two) = (attached.reader("one").unwrap(), attached.reader("two").unwrap());
        for round in 0..10 {
            // No stage has found these events, so only their stamps tell.
            (0..3).for_each(|_| _ = tx.publish(|slot| *slot = round).unwrap());
            let summary = name.look();
            let stages = [&summary.stages[0], &summary.stages[1]];
            assert_eq!(summary.published, at(3 * round + 3));
            assert_eq!(stages.map(|stage| stage.position), [at(3 * round); 2]);
            assert_eq!(stages.map(|stage| stage.lag), [3; 2]);
            assert_eq!(stages.map(|stage| stage.seats[0].participant), [Some(1); 2]);

            assert_eq!(one.batch(2).unwrap().len(), 2); // lent, not released
            let stage = &name.look().stages[0];
            assert_eq!((stage.position, stage.held), (at(3 * round), at(3 * round + 2)));
            one.poll(4, |_, _| ()).unwrap();
            let summary = name.look();
            assert_eq!((summary.stages[0].lag, summary.stages[1].lag), (0, 3));
            two.poll(4, |_, _| ()).unwrap();
        }
        // A run of several slots, and one that was given up.
        tx.claim_n(2).unwrap().publish();
        drop(tx.claim().unwrap());
        assert_eq!(name.look().published, at(32));
    }

    /// A tap's position is that of its last reader, or of the stages before it. A dead reader's
    /// unread events are told.
    #[test]
    fn a_tap_shows_its_readers() {
        for first in [0, u64::MAX - 2, (1 << 63) - 2] {
            let at = |count: u64| first.wrapping_add(count);
            let name = Name::new("tap");
            let segment = Segment::<u64>::create(&name.0).capacity(4).first_seq(first);
            let segment = segment.tap("now", 2).reader("all").tap("done", 3).after(["all"]);
            let segment = segment.build().unwrap();
            // SAFETY: only this test opens the segment.
            let attached = unsafe { segment.attach().unwrap() };
            let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
            let publish = |tx: &mut slipring::Producer<u64>, count| {
                (0..count).for_each(|_| _ = tx.publish(|slot| *slot = 1).unwrap());
            };
            publish(&mut tx, 3);
            all.poll(2, |_, _| ()).unwrap();
            let empty = name.look().stages;
            let positions = [0, 1, 2].map(|stage: usize| (empty[stage].position, empty[stage].lag));
            assert_eq!(positions, [(at(3), 0), (at(2), 1), (at(2), 1)]);
            let mut reader = attached.subscribe("now", StartAt::Oldest).unwrap();
            let late = attached.subscribe("now", StartAt::Now).unwrap();
            let done = attached.subscribe("done", StartAt::Now).unwrap();
            assert_eq!(reader.poll(1, |_, _| ()).unwrap(), 1);
            let summary = name.look();
            assert_eq!((summary.published, summary.stages[0].lag), (at(3), 2));
            let seats = |stage: usize| -> Vec<_> {
                let seats = &summary.stages[stage].seats;
                seats.iter().map(|seat| (seat.participant, seat.position)).collect()
            };
            assert_eq!(seats(0), [(Some(1), Some(at(1))), (Some(1), Some(at(3)))]);
            assert_eq!(seats(1), [(Some(1), None)]);
            assert_eq!(seats(2), [(Some(1), Some(at(2))), (None, None), (None, None)]);
            drop((reader, late, done));
            all.poll(1, |_, _| ()).unwrap();
            publish(&mut tx, 4);
            assert_eq!(name.look().published, at(7));
        }
    }

    #[test]
    fn whatever_the_words_say_there_is_a_summary() {
        let name = Name::new("words");
        let attached = name.attach(0);
        let checked = attached.participation().checked().clone();
        let mut tx = attached.producer().unwrap();
        tx.publish(|slot| *slot = 1).unwrap();
        std::mem::forget(tx); // its drop would close a ring that is damaged by then
        let path = Place::named(&name.0).unwrap();
        let file = OpenOptions::new().write(true).open(path.path().unwrap()).unwrap();
        let areas = [
            checked.areas.lines,
            checked.areas.seats,
            checked.areas.participants,
            checked.areas.stamps,
        ];
        for area in areas {
            for byte in [0xFF, 0x80, 0x01, 0x55] {
                let bytes = vec![byte; area.length().unwrap() as usize];
                file.write_all_at(&bytes, area.at).unwrap();
                let summary = name.look();
                assert_eq!((summary.stages.len(), summary.capacity), (3, 4));
            }
        }
    }
}
