//! The errors of segments. An error says what was wrong, where, and what to do next.
//!
//! A program that only reports errors needs [`SegmentError`] alone. A program that goes on after an
//! error matches the [`Problem`] in it, or the error of the promise or message that it uses. Calls
//! of handles return the errors of [`slipring::errors`]. All of them convert into
//! [`slipring::Error`], so one `?` serves every call:
//!
//! ```
//! # #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
//! fn main() -> Result<(), slipring::Error> {
//!     use slipring_shm::{Segment, messages::Messages};
//!     let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
//!     let segment = segment.type_name("log/line", 1).reader("print").build()?;
//!     // SAFETY: no other process has the memfd.
//!     let attached = unsafe { segment.attach()? };
//!     let (mut tx, mut print) = (attached.producer()?, attached.reader("print")?);
//!     tx.publish(1, b"a line")?;
//!     print.try_batch()?.release();
//!     tx.flush()?;
//!     Ok(())
//! }
//! # #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
//! # fn main() {}
//! ```
//!
//! Invariants
//! - I1: each message says what was wrong, where, and what to do next.
//! - I2: the message of an error contains the message of its cause, and the error's source is the
//!   cause's own source. So a report that prints all sources says nothing twice.

mod evict;
mod file;
mod promise;
pub(crate) mod segment;
mod texts;

use std::io;
use std::ops::Range;

use slipring::errors::{BuildError, MemoryShortage, SubscribeError};

use crate::system::limits::{HEAD, MAX_LENGTH, MAX_PARTICIPANTS, STAGE_NAME};

pub use evict::EvictProblem;
pub use file::{FileProblem, HeaderProblem, NameProblem};
pub use promise::PromiseError;
pub(crate) use segment::SegmentError;
pub use slipring::segment::MessageError;

/// Reason of a [`SegmentError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A segment cannot have this name.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// The capacity is zero or not a power of two.
    #[error(fmt = texts::capacity)]
    Capacity {
        /// Number of slots that the user asked for.
        asked: u64,
    },
    /// The capacity times the size of a slot is more than a segment can hold.
    #[error(
        "{capacity} slots of {slot} bytes are more than the {MAX_LENGTH} bytes that a segment may have: take a smaller capacity or smaller events"
    )]
    TooLarge {
        /// Number of slots that the user asked for.
        capacity: u64,
        /// Size of one slot, in bytes.
        slot: u64,
    },
    /// The number of participants is zero or too large.
    #[error("a segment cannot have {asked} participants: take 1 to {MAX_PARTICIPANTS}")]
    Participants {
        /// Number that the user asked for.
        asked: u32,
    },
    /// The notice is shorter than a millisecond, or longer than a second.
    #[error("the notice cannot be {asked_ms} ms: take 1 ms to 1 s (20 ms unless stated)")]
    Notice {
        /// Time that the user asked for, in milliseconds.
        asked_ms: u128,
    },
    /// A count of the declaration, such as its number of stages, is out of range.
    #[error(fmt = texts::declaration)]
    Declaration {
        /// Name of the count.
        what: &'static str,
        /// Value that was asked for.
        asked: u64,
        /// Largest value that the count may have.
        most: u64,
    },
    /// An event or block cannot have this size and alignment.
    #[error(fmt = texts::event_size)]
    EventSize {
        /// Size, in bytes.
        size: u64,
        /// Alignment, in bytes.
        align: u64,
    },
    /// The stages cannot be made into a ring.
    #[error(transparent)]
    Graph(BuildError),
    /// A stage's name is empty, too long, or has control characters.
    #[error(
        "a stage cannot have the name {given:?}: take 1 to {STAGE_NAME} bytes without control characters"
    )]
    StageName {
        /// The name.
        given: String,
    },
    /// A stage was declared to follow another one, which was not declared before it.
    #[error(
        "stage `{stage}` follows `{unknown}`, which is not declared before it: declare `{unknown}` first, and compare the names"
    )]
    Follows {
        /// Name of the stage.
        stage: String,
        /// Name of the stage to follow, which no earlier stage has.
        unknown: String,
    },
    /// A call of the builder applies to the stage declared last, but no stage was declared before
    /// it.
    #[error(
        "`{call}` applies to the stage declared last, and there is none: call `reader` or `updater` first"
    )]
    Misplaced {
        /// Name of the call.
        call: &'static str,
    },
    /// The segment has no stage of that name.
    #[error("it has no stage `{asked}`; its stages are: {}", texts::names(.known))]
    NoStage {
        /// Name that was asked for.
        asked: String,
        /// Names of the segment's stages.
        known: Vec<String>,
    },
    /// The stage was declared as a writer and the call asks for a reader, or the other way round.
    #[error(fmt = texts::access)]
    Access {
        /// Name of the stage.
        stage: String,
        /// Whether the stage was declared as a writer.
        writes: bool,
    },
    /// The stage delivers its events in another way than the call expects.
    #[error(fmt = texts::delivery)]
    Delivery {
        /// Name of the stage.
        stage: String,
        /// How the stage delivers events: `each`, `pool`, `shards` or `tap`.
        delivery: &'static str,
    },
    /// The key of a stage with shards is not part of the event.
    #[error(
        "the key of stage `{stage}` is no part of the event, or is empty: return a reference to a field, as in `|event| &event.account`"
    )]
    Key {
        /// Name of the stage.
        stage: String,
    },
    /// The key of a stage with shards is an empty range of bytes, or does not lie in a block.
    #[error(fmt = texts::key_range)]
    KeyRange {
        /// Name of the stage.
        stage: String,
        /// Range that was given, in bytes from the beginning of a block.
        key: Range<usize>,
        /// Size of a block, in bytes.
        size: u64,
    },
    /// The stage has no shard of that number.
    #[error("stage `{stage}` has no shard {asked}: its {shards} shards are numbered from 0 on")]
    NoShard {
        /// Name of the stage.
        stage: String,
        /// Number that was asked for.
        asked: usize,
        /// Number of the stage's shards.
        shards: usize,
    },
    /// The effect of a death was stated for a tap. No party waits for a dead member of a tap, so
    /// the death has no effect.
    #[error("`{tap}` is a tap, whose dead members hold up no party: leave its `on_death` out")]
    TapDeath {
        /// Name of the tap.
        tap: String,
    },
    /// The creator declared that a stage's death closes the ring, but only a producer's death can
    /// do that.
    #[error(
        "the death of `{stage}` cannot close the ring, because producers may still publish: choose `OnDeath::Fail` for the stage, or `producer_on_death(OnDeath::Close)`"
    )]
    StageDeath {
        /// Name of the stage.
        stage: String,
    },
    /// No reader can join the tap as the call asks.
    #[error("tap `{tap}`: {reason}")]
    Subscribe {
        /// Name of the tap.
        tap: String,
        /// The reason.
        reason: SubscribeError,
    },
    /// A living process has the place of the stage or producer.
    #[error(
        "process {pid} runs `{stage}` and is alive: end it first, or wait until it leaves (`slipring ls`)"
    )]
    Taken {
        /// Name of the stage, or `producer` for the producer.
        stage: String,
        /// Pid of the process, in its own pid namespace (0: unknown).
        pid: u32,
    },
    /// No place is left: living processes have all places of the producers, or of the stage.
    #[error(
        "all {places} places of `{stage}` are taken by living processes ({}): end one of them, or declare more places",
        texts::numbers(.pids)
    )]
    AllTaken {
        /// Name of the stage, or `producer` for the producers.
        stage: String,
        /// Number of places.
        places: u32,
        /// Pids of the processes, each in its own pid namespace (0: unknown).
        pids: Vec<u32>,
    },
    /// The call is for a ring with a single producer and the ring has room for several, or the
    /// other way round.
    #[error(fmt = texts::producers)]
    Producers {
        /// Number of producers that the ring has room for.
        declared: u32,
    },
    /// The ring was closed or halted, or has failed, so it takes no producer.
    #[error(
        "its ring was closed, halted or has failed, so it takes no producer: remove it and make it anew"
    )]
    Over,
    /// The segment holds a ring that is not a promise.
    #[error(
        "it holds a ring, and no promise, which has {expected}: open it as a `Segment`, or compare the names (`slipring ls`)"
    )]
    NotPromise {
        /// Property of a promise that the ring lacks.
        expected: &'static str,
    },
    /// The promise is fulfilled already.
    #[error(
        "its promise is fulfilled already, and a promise has a single value: take that value, or make a new promise under another name"
    )]
    Fulfilled,
    /// The promise was broken: its owner gave it up, so it cannot be fulfilled any more.
    #[error(
        "its promise was broken by the process that owned it, and the waiter is told so: make a new promise under another name"
    )]
    Broken,
    /// A segment of this name exists already.
    #[error(
        "it exists already: open it instead, or remove it if no process uses it (`slipring rm`)"
    )]
    Exists,
    /// There is no segment of this name.
    #[error(
        "there is none: start the program that makes it first, and compare the names (`slipring ls`)"
    )]
    Missing,
    /// The file system has no room for the segment.
    #[error(fmt = texts::no_space)]
    NoSpace {
        /// Size of the segment, in bytes.
        bytes: u64,
        /// Free room on the file system, in bytes, or `None` if unknown.
        room: Option<u64>,
    },
    /// The segment lies in memory and takes more than is available. Nothing was allocated.
    #[error(transparent)]
    MemoryShortage(MemoryShortage),
    /// The process may not make files of this size (`RLIMIT_FSIZE`).
    #[error(
        "this process may not make files of more than {limit} bytes, and the segment has {bytes}: raise the limit (`ulimit -f`), or take a smaller capacity"
    )]
    FileSizeLimit {
        /// Size of the segment, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The file cannot hold a segment.
    #[error(transparent)]
    File(#[from] FileProblem),
    /// The file's header is not that of a segment that this version can use.
    #[error(transparent)]
    Header(#[from] HeaderProblem),
    /// The type name given for blocks or messages is empty, too long, or has control characters.
    #[error(
        "the type of its events cannot have the name {given:?}: take 1 to 64 bytes without control characters"
    )]
    TypeName {
        /// The name as given.
        given: String,
    },
    /// The segment holds events of another type.
    #[error(fmt = texts::event_type)]
    EventType {
        /// Property that differs: `kind`, `name`, `version`, `size` or `alignment`.
        property: &'static str,
        /// The property in the segment.
        segment: String,
        /// The property in this program.
        program: String,
    },
    /// Other processes held the segment's guard byte for too long, while they made, attached to or
    /// removed the segment.
    #[error(
        "another process is making, attaching to or removing it, and does not end: try again, and see who it is (`slipring ls`, /proc/locks)"
    )]
    Busy,
    /// All places of participants are taken.
    #[error(fmt = texts::full)]
    Full {
        /// Number of places.
        participants: u32,
        /// Number of places whose participants are dead and could not be recovered.
        dead: u32,
    },
    /// The file system frees a lock while the mapping lives, so a living participant would look
    /// dead.
    #[error(
        "its file system frees a lock although the file is mapped, as overlayfs does, so a living participant would look dead: put the segment on tmpfs or ext4"
    )]
    LocksLost,
    /// The segment cannot be removed, because a participant is attached.
    #[error(
        "participant {participant} is attached, so it cannot be removed: end that process first (`slipring ls` names it)"
    )]
    InUse {
        /// Number of the first attached participant.
        participant: u32,
    },
    /// A participant cannot be evicted.
    #[error(transparent)]
    Evict(#[from] EvictProblem),
    /// The system's pages are larger than a segment's head (65,536 bytes).
    #[error(
        "this system has pages of {bytes} bytes, and a segment's first part has {HEAD}: boot a kernel with pages of at most {HEAD} bytes"
    )]
    PageSize {
        /// Size of a page, in bytes.
        bytes: u64,
    },
    /// The segment was removed and made anew while this call used it. Attaching gives up after 64
    /// attempts.
    #[error(
        "it was removed and made anew each time this call looked at it: find the program that does so, and try again"
    )]
    Replaced,
    /// A system call failed.
    #[error(fmt = texts::system)]
    System {
        /// Step that failed, worded as a phrase.
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
