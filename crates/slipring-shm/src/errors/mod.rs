//! Errors of segments. Each message says what was wrong, where, and what to do next.

mod evict;
mod file;
mod promise;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::ops::Range;

use slipring::segment::Bytes;
use slipring::{BuildError, MemoryShortage, SubscribeError};

use crate::system::limits::{HEAD, MAX_LENGTH, MAX_PARTICIPANTS, SLOTS_ALIGN, STAGE_NAME};

/// Error number of Linux: the process has no descriptor left.
const EMFILE: i32 = 24;
/// Error number of Linux: the system has no open file left.
const ENFILE: i32 = 23;

pub use evict::EvictProblem;
pub use file::{FileProblem, HeaderProblem, NameProblem};
pub use promise::PromiseError;

/// Why a segment could not be made, opened, attached to, inspected or removed, or a participant of
/// it not evicted, and which segment.
///
/// ```
/// use slipring_shm::{NameProblem, Problem};
///
/// let error = slipring_shm::remove("a/b").unwrap_err();
/// assert!(matches!(error.problem(), Problem::Name(NameProblem::Slash)));
/// assert_eq!(
///     error.to_string(),
///     "segment \"a/b\": the name has a slash: leave it out, or give a whole path (`create_at`, `open_at`)"
/// );
/// ```
#[derive(Debug)]
pub struct SegmentError {
    place: String,
    problem: Box<Problem>,
}

impl SegmentError {
    /// `place` as messages begin with it.
    pub(crate) fn new(place: impl Into<String>, problem: impl Into<Problem>) -> SegmentError {
        SegmentError { place: place.into(), problem: Box::new(problem.into()) }
    }

    pub(crate) fn at(place: &impl fmt::Display, problem: impl Into<Problem>) -> SegmentError {
        SegmentError::new(place.to_string(), problem)
    }

    /// Returns what was wrong.
    ///
    /// Example: [`SegmentError`].
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the segment's path, its label, or the name as it was given.
    ///
    /// ```
    /// assert_eq!(slipring_shm::remove("a/b").unwrap_err().place(), "\"a/b\"");
    /// ```
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}: {}", self.place, self.problem)
    }
}

impl StdError for SegmentError {
    /// The message has the system's error and a graph's, so the source is what is behind them.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.problem {
            Problem::System { error, .. } => error.source(),
            Problem::Graph(error) => error.source(),
            _ => None,
        }
    }
}

/// Reason of a [`SegmentError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The name cannot name a segment.
    Name(NameProblem),
    /// The capacity is zero or not a power of two.
    Capacity {
        /// Number of slots that the user asked for.
        asked: u64,
    },
    /// The capacity times the size of a slot is more than a segment holds.
    TooLarge {
        /// Number of slots that the user asked for.
        capacity: u64,
        /// Size of one slot, in bytes.
        slot: u64,
    },
    /// The number of participants is zero or too large.
    Participants {
        /// Number that the user asked for.
        asked: u32,
    },
    /// The notice is shorter than a millisecond, or longer than a second.
    Notice {
        /// Time that the user asked for, in milliseconds.
        asked_ms: u128,
    },
    /// Another count or size of the declaration is out of its range.
    Declaration {
        /// Name of the count.
        what: &'static str,
        /// Value that was asked for.
        asked: u64,
        /// Largest value that it may have.
        most: u64,
    },
    /// An event or block cannot have this size and alignment.
    EventSize {
        /// Size, in bytes.
        size: u64,
        /// Alignment, in bytes.
        align: u64,
    },
    /// The stages cannot be made into a ring.
    Graph(BuildError),
    /// A stage's name is empty, too long, or has control characters.
    StageName {
        /// The name.
        given: String,
    },
    /// A stage follows a stage that is not declared before it.
    Follows {
        /// Name of the stage.
        stage: String,
        /// Name that no earlier stage has.
        unknown: String,
    },
    /// A call of the builder applies to the stage declared last, and there is none.
    Misplaced {
        /// Name of the call.
        call: &'static str,
    },
    /// The segment has no stage of that name.
    NoStage {
        /// Name that was asked for.
        asked: String,
        /// Names of the segment's stages.
        known: Vec<String>,
    },
    /// The stage was declared as one that writes and is asked for as one that reads, or the other
    /// way round.
    Access {
        /// Name of the stage.
        stage: String,
        /// Whether it was declared as one that writes.
        writes: bool,
    },
    /// The stage divides its events otherwise than the call asks.
    Delivery {
        /// Name of the stage.
        stage: String,
        /// How the stage divides its events: `each`, `pool`, `shards` or `tap`.
        delivery: &'static str,
    },
    /// The key of a stage with shards is no part of the event.
    Key {
        /// Name of the stage.
        stage: String,
    },
    /// The key of a stage with shards is an empty range of bytes, or does not lie in a block.
    KeyRange {
        /// Name of the stage.
        stage: String,
        /// The range that was given, in bytes from the block's begin.
        key: Range<usize>,
        /// Size of a block, in bytes.
        size: u64,
    },
    /// The stage has no shard of that number.
    NoShard {
        /// Name of the stage.
        stage: String,
        /// Number that was asked for.
        asked: usize,
        /// Number of its shards.
        shards: usize,
    },
    /// The effect of a death was stated for a tap. No party waits for a dead member of a tap, so no
    /// party is told.
    TapDeath {
        /// Name of the tap.
        tap: String,
    },
    /// The death of a stage was declared to close the ring. Only producers can close it.
    StageDeath {
        /// Name of the stage.
        stage: String,
    },
    /// No reader can join the tap as the call asks.
    Subscribe {
        /// Name of the tap.
        tap: String,
        /// The reason.
        reason: SubscribeError,
    },
    /// Another handle has the place of the stage or producer, and its process lives.
    Taken {
        /// Name of the stage; `producer` for the producer.
        stage: String,
        /// Number of the process in its own pid namespace (0: unknown).
        pid: u32,
    },
    /// Living processes have all places of the producers, or of a stage.
    AllTaken {
        /// Name of the stage; `producer` for the producers.
        stage: String,
        /// Number of places.
        places: u32,
        /// Numbers of the processes, each in its own pid namespace (0: unknown).
        pids: Vec<u32>,
    },
    /// The ring was declared for another number of producers than the call serves.
    Producers {
        /// Number of producers that the ring has room for.
        declared: u32,
    },
    /// The ring was closed or halted, or has failed, so it takes no producer.
    Over,
    /// The segment holds a ring that is no promise.
    NotPromise {
        /// What a promise has, and the ring has not.
        expected: &'static str,
    },
    /// The promise is fulfilled already.
    Fulfilled,
    /// The promise was broken: its owner gave it up, so it cannot be fulfilled any more.
    Broken,
    /// A segment of this name exists already.
    Exists,
    /// There is no segment of this name.
    Missing,
    /// The file system has no room for the segment.
    NoSpace {
        /// Size of the segment, in bytes.
        bytes: u64,
        /// Room of the file system, in bytes; `None`: unknown.
        room: Option<u64>,
    },
    /// The segment lies in memory, and takes more than is available. Nothing was allocated.
    MemoryShortage(MemoryShortage),
    /// The process may not make files of this size (`RLIMIT_FSIZE`).
    FileSizeLimit {
        /// Size of the segment, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The file is none that may hold a segment.
    File(FileProblem),
    /// The file's header is not that of a segment that this version can use.
    Header(HeaderProblem),
    /// The name of the type of blocks or messages is empty, too long, or has control characters.
    TypeName {
        /// The name as given.
        given: String,
    },
    /// The segment holds events of another type.
    EventType {
        /// Which property differs: `kind`, `name`, `version`, `size` or `alignment`.
        property: &'static str,
        /// The property in the segment.
        segment: String,
        /// The property in this program.
        program: String,
    },
    /// Other processes held the guard byte of the segment for too long: they make, attach to or
    /// remove it.
    Busy,
    /// All places of participants are taken.
    Full {
        /// Number of places.
        participants: u32,
        /// Number of places whose participants are dead, and which could not be recovered.
        dead: u32,
    },
    /// The file system frees a lock while the mapping lives, so deaths could not be told from
    /// lives.
    LocksLost,
    /// The segment cannot be removed because a participant is attached.
    InUse {
        /// Number of the first one.
        participant: u32,
    },
    /// A participant cannot be evicted.
    Evict(EvictProblem),
    /// The system's pages are larger than a segment's first part.
    PageSize {
        /// Size of a page, in bytes.
        bytes: u64,
    },
    /// The name meant another file at each of 64 attempts.
    Replaced,
    /// A system call failed.
    System {
        /// The step that failed, as a phrase.
        step: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl Problem {
    pub(crate) fn system(step: &'static str, error: impl Into<io::Error>) -> Problem {
        Problem::System { step, error: error.into() }
    }
}

impl From<NameProblem> for Problem {
    fn from(problem: NameProblem) -> Problem {
        Problem::Name(problem)
    }
}

impl From<FileProblem> for Problem {
    fn from(problem: FileProblem) -> Problem {
        Problem::File(problem)
    }
}

impl From<EvictProblem> for Problem {
    fn from(problem: EvictProblem) -> Problem {
        Problem::Evict(problem)
    }
}

impl From<HeaderProblem> for Problem {
    fn from(problem: HeaderProblem) -> Problem {
        Problem::Header(problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Name(problem) => problem.fmt(f),
            Problem::Capacity { asked: 0 } => {
                f.write_str("the capacity is 0: take a power of two, at least 1")
            }
            Problem::Capacity { asked } => {
                write!(f, "the capacity {asked} is not a power of two: ")?;
                match asked.checked_next_power_of_two() {
                    Some(next) => write!(f, "take {} or {next}", next / 2),
                    None => f.write_str("take a smaller one"),
                }
            }
            Problem::TooLarge { capacity, slot } => write!(
                f,
                "{capacity} slots of {slot} bytes are more than the {MAX_LENGTH} bytes that a segment may have: take a smaller capacity or smaller events"
            ),
            Problem::Participants { asked } => write!(
                f,
                "a segment cannot have {asked} participants: take 1 to {MAX_PARTICIPANTS}"
            ),
            Problem::Notice { asked_ms } => write!(
                f,
                "the notice cannot be {asked_ms} ms: take 1 ms to 1 s (20 ms unless stated)"
            ),
            Problem::Declaration { what, asked: 0, most } => {
                write!(f, "the declaration asks for no {what}: take 1 to {most}")
            }
            Problem::Declaration { what, asked, most } => {
                write!(f, "the declaration asks for {asked} {what}: take at most {most}")
            }
            Problem::EventSize { size: 0, .. } => f.write_str(
                "an event has no bytes: give its type a field, or state the size of a block (`block`)",
            ),
            Problem::EventSize { align, .. }
                if !align.is_power_of_two() || *align > SLOTS_ALIGN =>
            {
                write!(
                    f,
                    "the alignment of an event or block cannot be {align}: take a power of two, 1 to {SLOTS_ALIGN}"
                )
            }
            Problem::EventSize { size, align } => write!(
                f,
                "the size of an event or block, {size} bytes, is no multiple of its alignment, {align}: take {}, or the alignment 1",
                size.saturating_add(align - size % align)
            ),
            Problem::Graph(problem) => problem.fmt(f),
            Problem::StageName { given } => write!(
                f,
                "a stage cannot have the name {given:?}: take 1 to {STAGE_NAME} bytes without control characters"
            ),
            Problem::Follows { stage, unknown } => write!(
                f,
                "stage `{stage}` follows `{unknown}`, which is not declared before it: declare `{unknown}` first, and compare the names"
            ),
            Problem::Misplaced { call } => write!(
                f,
                "`{call}` applies to the stage declared last, and there is none: call `reader` or `writer` first"
            ),
            Problem::NoStage { asked, known } => write!(
                f,
                "it has no stage `{asked}`; its stages are: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ),
            Problem::Access { stage, writes: true } => write!(
                f,
                "stage `{stage}` was declared as a writer: ask for it by `writer` (a pool: `pool_writer`; shards: `shard_writer`)"
            ),
            Problem::Access { stage, writes: false } => write!(
                f,
                "stage `{stage}` was declared as a reader: ask for it by `reader` (a pool: `pool_reader`; shards: `shard_reader`)"
            ),
            Problem::Delivery { stage, delivery: "each" } => write!(
                f,
                "stage `{stage}` was declared so that one handle sees each event: ask for it by `reader` or `writer`"
            ),
            Problem::Delivery { stage, delivery: "pool" } => write!(
                f,
                "stage `{stage}` was declared as a pool: ask for it by `pool_reader` or `pool_writer`"
            ),
            Problem::Delivery { stage, delivery: "shards" } => write!(
                f,
                "stage `{stage}` was declared with shards: ask for one by `shard_reader` or `shard_writer`, with its number"
            ),
            Problem::Delivery { stage, delivery: "tap" } => {
                write!(f, "`{stage}` was declared as a tap: join it by `subscribe`")
            }
            Problem::Delivery { stage, delivery } => write!(
                f,
                "stage `{stage}` was declared with the delivery `{delivery}`, which this call does not serve"
            ),
            Problem::Key { stage } => write!(
                f,
                "the key of stage `{stage}` is no part of the event, or is empty: return a reference to a field, as in `|event| &event.account`"
            ),
            Problem::KeyRange { stage, key, size } if key.is_empty() => write!(
                f,
                "the key of stage `{stage}`, the bytes {key:?} of a block of {size} bytes, is empty: give a range of at least one byte, as in `8..16`"
            ),
            Problem::KeyRange { stage, key, size } if key.end as u64 > *size => write!(
                f,
                "the key of stage `{stage}`, the bytes {key:?}, does not lie in a block of {size} bytes: give a range that ends within the block, or a larger block"
            ),
            Problem::KeyRange { stage, key, size } => write!(
                f,
                "the key of stage `{stage}`, the bytes {key:?} of a block of {size} bytes, begins behind the first 4 GiB, or is longer: put the key at the block's begin"
            ),
            Problem::NoShard { stage, asked, shards } => write!(
                f,
                "stage `{stage}` has no shard {asked}: its {shards} shards are numbered from 0 on"
            ),
            Problem::TapDeath { tap } => write!(
                f,
                "`{tap}` is a tap, whose dead members hold up no party: leave its `on_death` out"
            ),
            Problem::StageDeath { stage } => write!(
                f,
                "the death of `{stage}` cannot close the ring, because producers may still publish: choose `OnDeath::Fail` for the stage, or `producer_on_death(OnDeath::Close)`"
            ),
            Problem::Subscribe { tap, reason } => write!(f, "tap `{tap}`: {reason}"),
            Problem::Taken { stage, pid } => write!(
                f,
                "process {pid} runs `{stage}` and is alive: end it first, or wait until it leaves (`slipring ls`)"
            ),
            Problem::AllTaken { stage, places, pids } => write!(
                f,
                "all {places} places of `{stage}` are taken by living processes ({}): end one of them, or declare more places",
                pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            ),
            Problem::Producers { declared: 1 } => f.write_str(
                "its ring has room for a single producer: call `producer`, or make the segment with `producers(n)`",
            ),
            Problem::Producers { declared } => write!(
                f,
                "its ring has room for {declared} producers: call `shared_producer`"
            ),
            Problem::Over => f.write_str(
                "its ring was closed, halted or has failed, so it takes no producer: remove it and make it anew",
            ),
            Problem::NotPromise { expected } => write!(
                f,
                "it holds a ring, and no promise, which has {expected}: open it as a `Segment`, or compare the names (`slipring ls`)"
            ),
            Problem::Fulfilled => f.write_str(
                "its promise is fulfilled already, and a promise has a single value: take that value, or make a new promise under another name",
            ),
            Problem::Broken => f.write_str(
                "its promise was broken by the process that owned it, and the waiter is told so: make a new promise under another name",
            ),
            Problem::Exists => f.write_str(
                "it exists already: open it instead, or remove it if no process uses it (`slipring rm`)",
            ),
            Problem::Missing => f.write_str(
                "there is none: start the program that makes it first, and compare the names (`slipring ls`)",
            ),
            Problem::NoSpace { bytes, room } => {
                write!(f, "there is no room for its {}", Bytes(*bytes))?;
                if let Some(room) = room {
                    write!(f, ": its file system has {} left", Bytes(*room))?;
                }
                f.write_str(
                    "; remove stale segments (`slipring ls`, `slipring rm`), mount the file system with a larger size, or take a smaller capacity",
                )
            }
            Problem::MemoryShortage(shortage) => shortage.fmt(f),
            Problem::FileSizeLimit { bytes, limit } => write!(
                f,
                "this process may not make files of more than {limit} bytes, and the segment has {bytes}: raise the limit (`ulimit -f`), or take a smaller capacity"
            ),
            Problem::File(problem) => problem.fmt(f),
            Problem::Header(problem) => problem.fmt(f),
            Problem::TypeName { given } => write!(
                f,
                "the type of its events cannot have the name {given:?}: take 1 to 64 bytes without control characters"
            ),
            Problem::EventType { property: "kind", segment, program } => write!(
                f,
                "it holds {segment}, and this program asks for {program}: open it as `Segment<Blocks>`, `Segment<Messages>`, or with the type of its events"
            ),
            Problem::EventType { property, segment, program } => write!(
                f,
                "the {property} of its events is {segment}, and this program's is {program}: build both programs with one definition of the event, or take another name"
            ),
            Problem::Busy => f.write_str(
                "another process is making, attaching to or removing it, and does not end: try again, and see who it is (`slipring ls`, /proc/locks)",
            ),
            Problem::Full { participants, dead } => {
                write!(f, "all {participants} places of participants are taken")?;
                if *dead > 0 {
                    write!(f, ", {dead} of them by dead ones that no process has recovered")?;
                }
                f.write_str(
                    ": end a participant, or make the segment anew with more (`participants`)",
                )
            }
            Problem::LocksLost => f.write_str(
                "its file system frees a lock although the file is mapped, as overlayfs does, so a living participant would look dead: put the segment on tmpfs or ext4",
            ),
            Problem::InUse { participant } => write!(
                f,
                "participant {participant} is attached, so it cannot be removed: end that process first (`slipring ls` names it)"
            ),
            Problem::Evict(problem) => problem.fmt(f),
            Problem::PageSize { bytes } => write!(
                f,
                "this system has pages of {bytes} bytes, and a segment's first part has {HEAD}: boot a kernel with pages of at most {HEAD} bytes"
            ),
            Problem::Replaced => f.write_str(
                "it was removed and made anew each time this call looked at it: find the program that does so, and try again",
            ),
            Problem::System { step, error } => {
                write!(f, "the system refused {step}: {error}")?;
                match error.raw_os_error() {
                    Some(EMFILE) => f.write_str(
                        "; this process has no file descriptor left: close some, or raise its limit (`ulimit -n`)",
                    ),
                    Some(ENFILE) => f.write_str(
                        "; the system has no open file left: end programs, or raise `fs.file-max`",
                    ),
                    _ => Ok(()),
                }
            }
        }
    }
}
