//! What can go wrong, in the words of the one who has to mend it.
//!
//! - [`WaitError`]: why a blocking call will never succeed again.
//! - [`ClaimError`], [`BatchError`]: why a non-blocking or a bounded call did not succeed this
//!   time.
//! - [`Failure`]: what ended a graph: which stage, at which event, why.
//! - [`Error`]: what building or running a graph comes back with.

use std::error::Error as StdError;
use std::fmt;

use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::Fault;
use crate::base::name::{Name, PRODUCER};
use crate::errors::report::Report;
use crate::live::tap::SubscribeError;
use crate::ring::plan::MAX_STAGE_HANDLES;

/// Why a stage (or the producer) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The handler, or the producer's closure, returned this error.
    Error(Fault),
    /// It panicked, with this message.
    Panic(String),
    /// Its handle was dropped before the stream ended, so the events behind it can never be
    /// released.
    Dropped,
    /// It waited past the deadline that the graph was given.
    Deadline(Duration),
    /// Its thread could not be started.
    Thread(std::io::Error),
}

/// What ended a graph before its time: the first failure of any stage.
#[derive(Clone)]
pub struct Failure(Arc<FailureParts>);

struct FailureParts {
    stage: Name,
    seq: Option<u64>,
    cause: Cause,
}

impl Failure {
    pub(crate) fn new(stage: Name, seq: Option<u64>, cause: Cause) -> Failure {
        Failure(Arc::new(FailureParts { stage, seq, cause }))
    }

    /// The stage that failed; [`PRODUCER`] for the producer.
    pub fn stage(&self) -> &Name {
        &self.0.stage
    }

    /// The position of the event it failed at, where one event was at fault.
    pub fn seq(&self) -> Option<u64> {
        self.0.seq
    }

    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The user's own error, if it is a `T`.
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        match &self.0.cause {
            Cause::Error(fault) => fault.downcast_ref(),
            _ => None,
        }
    }

    /// What lies behind the cause. The cause itself is part of the message, so a chain of messages
    /// says everything once.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.cause {
            Cause::Error(fault) => fault.as_error().source(),
            Cause::Thread(error) => error.source(),
            _ => None,
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("stage", &self.0.stage)
            .field("seq", &self.0.seq)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0.stage {
            PRODUCER => write!(f, "the producer")?,
            stage => write!(f, "stage `{stage}`")?,
        }
        let at = |f: &mut fmt::Formatter<'_>| match self.0.seq {
            Some(seq) => write!(f, " at event {seq}"),
            None => Ok(()),
        };
        match &self.0.cause {
            Cause::Error(fault) => {
                f.write_str(" failed")?;
                at(f)?;
                write!(f, ": {fault}")
            }
            Cause::Panic(message) => {
                f.write_str(" panicked")?;
                at(f)?;
                write!(f, ": {message}")
            }
            Cause::Dropped => {
                f.write_str(" was dropped")?;
                at(f)?;
                f.write_str(" before the stream ended; keep its handle until a call says `Closed`")
            }
            Cause::Deadline(after) => {
                f.write_str(" was still waiting")?;
                at(f)?;
                write!(f, " when the graph's deadline of {after:?} passed")
            }
            Cause::Thread(error) => write!(f, " got no thread: {error}"),
        }
    }
}

/// Why a blocking call will never succeed again.
///
/// All later calls on the same handle say the same, but for [`WaitError::WaitsForItself`], which ends
/// as soon as something is let go.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// The producers closed the ring. A reader gets this when it has seen every event; a producer,
    /// when another one closed for all.
    Closed,
    /// Somebody halted the graph: what was published and not yet seen stays unseen.
    Halted,
    /// A stage or a producer failed; the graph has ended.
    Failed(Failure),
    /// The call would wait for its own caller for ever: this stage holds what it waits for, and
    /// only the caller could move it on. Nothing was published or lent; the graph goes on, and so
    /// may later calls.
    // Boxed: every call comes back with a result that may be a `Closed`, and a wider one cost a
    // fifth of the time in batches of ten.
    WaitsForItself(Box<Name>),
    /// A wait lasted longer than the strategy's own timeout
    /// ([`Wait::Timeout`](crate::Wait::Timeout)), for want of this stage's progress, or the
    /// producer's. Nothing was published or lent; the graph goes on, and so may later calls.
    TimedOut(Box<Name>),
    /// This reader was asked to leave its tap ([`Leaver::leave`](crate::Leaver::leave)); the graph
    /// goes on.
    Left,
    /// This reader could not join: a [`SubscribeError`] that was turned into a `Closed` by `?`.
    Refused(Arc<SubscribeError>),
}

impl WaitError {
    /// The failure, if it was one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            WaitError::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitError::Closed => f.write_str("the ring is closed"),
            WaitError::Halted => f.write_str("the graph was halted"),
            WaitError::Failed(failure) => write!(f, "the graph has ended: {failure}"),
            WaitError::WaitsForItself(stage) => {
                write!(
                    f,
                    "this would wait for ever: stage `{stage}` holds what is waited for, and only the caller can move it on"
                )
            }
            WaitError::TimedOut(stage) => {
                write!(f, "the wait for `{stage}` took longer than the strategy's timeout allows")
            }
            WaitError::Left => f.write_str("the reader was asked to leave its tap"),
            WaitError::Refused(why) => why.fmt(f),
        }
    }
}

impl StdError for WaitError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.failure().and_then(Failure::source)
    }
}

const _: () = assert!(size_of::<WaitError>() <= 2 * size_of::<usize>());

/// Why slots could not be claimed this time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClaimError {
    /// The ring is full: `stage`, the furthest behind, still holds the slots, `lag` events behind
    /// the claim.
    Gated {
        /// The stage that is furthest behind.
        stage: Name,
        /// How many published or claimed events it has not released.
        lag: u64,
    },
    /// Another producer claimed at the same moment; trying again may succeed at once.
    Contended,
    /// The deadline passed while `stage` still held the slots.
    TimedOut {
        /// The stage that is furthest behind.
        stage: Name,
    },
    /// So many slots can never be claimed: a claim takes 1 to `capacity`.
    Length {
        /// What was asked for.
        asked: usize,
        /// What the ring has.
        capacity: usize,
    },
    /// A [`RawProducer`](crate::RawProducer) holds a claim that is not done: waiting for another
    /// one while holding one could wait for ever.
    Held {
        /// The first position that is claimed and not done.
        first: u64,
        /// How many there are.
        len: usize,
    },
    /// It will never succeed again.
    Wait(WaitError),
}

impl ClaimError {
    /// What ended a wait of a possible length that had no deadline: only an end of the graph can,
    /// or the strategy's timeout.
    pub(crate) fn without_deadline(self) -> WaitError {
        match self {
            ClaimError::Wait(closed) => closed,
            ClaimError::TimedOut { stage } => WaitError::TimedOut(Box::new(stage)),
            other => unreachable!("a wait without a deadline ended with: {other}"),
        }
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Gated { stage, lag } => {
                write!(f, "the ring is full: stage `{stage}` is {lag} events behind")
            }
            ClaimError::Contended => f.write_str("another producer claimed at the same moment"),
            ClaimError::TimedOut { stage } => {
                write!(f, "the ring stayed full until the deadline: stage `{stage}` holds it")
            }
            ClaimError::Length { asked, capacity } => {
                write!(
                    f,
                    "cannot claim {asked} slots at once: a claim on this ring takes 1 to {capacity}"
                )
            }
            ClaimError::Held { first, len } => {
                write!(
                    f,
                    "{len} slots from position {first} on are claimed already: publish them with `done`, or give them up"
                )
            }
            ClaimError::Wait(closed) => closed.fmt(f),
        }
    }
}

impl StdError for ClaimError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            ClaimError::Wait(closed) => closed.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for ClaimError {
    fn from(closed: WaitError) -> ClaimError {
        ClaimError::Wait(closed)
    }
}

/// A position that a raw handle does not hold: it has not claimed it, or was not lent it, or is
/// done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotHeld {
    /// The position.
    pub seq: u64,
    /// The first position that it holds, if it holds any.
    pub first: u64,
    /// How many it holds.
    pub len: usize,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotHeld { seq, first, len } = self;
        match len {
            0 => write!(
                f,
                "position {seq} is not held by this handle, nor any other: call `next` first"
            ),
            _ => write!(
                f,
                "position {seq} is not held by this handle: it holds {len} from {first} on"
            ),
        }
    }
}

impl StdError for NotHeld {}

/// Why no batch could be had this time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BatchError {
    /// Nothing new: the stages before this one have released nothing yet.
    Unavailable,
    /// Published, but `stage`, the furthest behind of those before this one, has not let it go; it
    /// has `lag` events left to release. Only [`RawConsumer`](crate::RawConsumer) tells this from
    /// `Unavailable`.
    Gated {
        /// The stage that is furthest behind.
        stage: Name,
        /// How many events it could handle and has not released.
        lag: u64,
    },
    /// Another worker of the pool took the events, and left none that this one could take; more may
    /// come at any time.
    Contended,
    /// The deadline passed and nothing came.
    TimedOut,
    /// Nothing will come any more.
    Wait(WaitError),
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchError::Unavailable => f.write_str("no event is available yet"),
            BatchError::Gated { stage, lag } => write!(
                f,
                "stage `{stage}` has not released the next event; it is {lag} events behind"
            ),
            BatchError::Contended => f.write_str("another worker took the events"),
            BatchError::TimedOut => f.write_str("no event came until the deadline"),
            BatchError::Wait(closed) => closed.fmt(f),
        }
    }
}

impl StdError for BatchError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            BatchError::Wait(closed) => closed.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for BatchError {
    fn from(closed: WaitError) -> BatchError {
        BatchError::Wait(closed)
    }
}

/// Why a graph could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The capacity is zero or not a power of two.
    Capacity {
        /// What was asked for.
        asked: usize,
    },
    /// So many slots do not fit into this machine's memory; or so many lines of 128 bytes, of which
    /// each worker, shard, reader and stage takes a few.
    Memory {
        /// Slots asked for.
        capacity: usize,
        /// Bytes a slot takes.
        bytes_per_slot: usize,
    },
    /// The factory panicked while making this event.
    Factory {
        /// Index of the event, from 0.
        index: usize,
        /// The panic's message.
        panic: String,
    },
    /// A worker's factory panicked.
    WorkerFactory {
        /// The pool.
        stage: String,
        /// Index of the worker, from 0.
        worker: usize,
        /// The panic's message.
        panic: String,
    },
    /// A waiting strategy panicked when the build asked it how it waits.
    Strategy {
        /// The panic's message.
        panic: String,
    },
    /// A stage (or a thread) needs a name that is not empty, has no zero byte, and is not
    /// [`PRODUCER`].
    Name {
        /// What was given.
        given: String,
    },
    /// Two stages have the same name.
    Twice {
        /// That name.
        stage: String,
    },
    /// A pool (or a stage of shards) needs at least one worker, and no more than the ring has
    /// slots, nor than [`MAX_STAGE_HANDLES`](crate::MAX_STAGE_HANDLES).
    Workers {
        /// The pool.
        stage: String,
        /// What was asked for.
        asked: usize,
        /// What the ring has.
        capacity: usize,
    },
    /// The soundness rule: a stage that may write must come before or after every other stage, and
    /// these two stand side by side.
    SideBySide {
        /// The stage that may write.
        writer: String,
        /// The other one.
        other: String,
    },
    /// These stages wait for each other.
    Cycle {
        /// One stage of the cycle.
        stage: String,
    },
    /// A stage was put after a stage of another graph.
    Foreign {
        /// The stage that follows.
        stage: String,
        /// What it was to follow.
        after: String,
    },
    /// A key was dropped before the graph was built, so nobody could ever attach to this stage.
    Abandoned {
        /// That stage.
        stage: String,
    },
    /// A setting that must come before the first stage (or applies to the last stage) stood where
    /// it has no meaning.
    Misplaced {
        /// The setting and what to do.
        what: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Capacity { asked: 0 } => {
                f.write_str("a ring needs at least one slot: capacity 0 was asked for")
            }
            BuildError::Capacity { asked } => {
                write!(f, "the capacity must be a power of two, and {asked} is not; ")?;
                match asked.checked_next_power_of_two() {
                    Some(next) => write!(f, "the next ones are {} and {next}", next / 2),
                    None => f.write_str("it is larger than any that this machine can count"),
                }
            }
            BuildError::Memory { capacity, bytes_per_slot } => {
                write!(
                    f,
                    "no memory for {capacity} slots of {bytes_per_slot} bytes; ask for a smaller capacity or for smaller events"
                )
            }
            BuildError::Factory { index, panic } => {
                write!(f, "the factory of events panicked at event {index}: {panic}")
            }
            BuildError::Strategy { panic } => {
                write!(f, "a waiting strategy panicked when it was asked how it waits: {panic}")
            }
            BuildError::WorkerFactory { stage, worker, panic } => {
                write!(f, "the factory of pool `{stage}` panicked at worker {worker}: {panic}")
            }
            BuildError::Name { given } => {
                write!(
                    f,
                    "{given:?} cannot name a stage or a thread: no empty name, no zero byte, and `{PRODUCER}` is taken"
                )
            }
            BuildError::Twice { stage } => {
                write!(f, "two stages are named `{stage}`; a report could not tell them apart")
            }
            BuildError::Workers { stage, asked, capacity } => {
                write!(
                    f,
                    "pool `{stage}` cannot have {asked} workers: a ring of {capacity} slots serves 1 to {}",
                    MAX_STAGE_HANDLES.min(*capacity)
                )
            }
            BuildError::SideBySide { writer, other } => write!(
                f,
                "stage `{writer}` may write and stands beside `{other}`: let one follow the other (`after`), or let `{writer}` only read"
            ),
            BuildError::Cycle { stage } => {
                write!(f, "stage `{stage}` waits for itself, through the stages it comes after")
            }
            BuildError::Foreign { stage, after } => {
                write!(
                    f,
                    "stage `{stage}` cannot come after `{after}`, which belongs to another graph"
                )
            }
            BuildError::Abandoned { stage } => write!(
                f,
                "the key of stage `{stage}` was dropped, so nobody can attach to it and the ring would fill up and stay full; keep the key"
            ),
            BuildError::Misplaced { what } => f.write_str(what),
        }
    }
}

impl StdError for BuildError {}

/// What building or running a graph comes back with when it did not go well: the first failure, the
/// stage, the event, and the user's own error whole.
pub struct Error(Box<ErrorParts>);

struct ErrorParts {
    kind: ErrorKind,
    report: Option<Report>,
}

/// What an [`Error`] is about.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The graph could not be built.
    Build(BuildError),
    /// A stage or the producer failed while it ran.
    Failed(Failure),
    /// Dropping the ring's events panicked, after everything else had ended well.
    EventDrop(String),
}

impl Error {
    pub(crate) fn failed(failure: Failure, report: Report) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Failed(failure), report: Some(report) }))
    }

    pub(crate) fn event_drop(panic: String, report: Report) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::EventDrop(panic), report: Some(report) }))
    }

    /// What it is about.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The stage that failed, if one did; [`PRODUCER`] for the producer.
    pub fn stage(&self) -> Option<&str> {
        self.failure().map(|failure| failure.stage().as_str())
    }

    /// The position of the event at which it failed, where one event was at fault.
    pub fn seq(&self) -> Option<u64> {
        self.failure().and_then(Failure::seq)
    }

    /// The failure, if it happened while the graph ran.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.0.kind {
            ErrorKind::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The user's own error, if it is a `T`.
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        self.failure().and_then(Failure::downcast_ref)
    }

    /// How far each stage came, if the graph ran at all.
    pub fn report(&self) -> Option<&Report> {
        self.0.report.as_ref()
    }
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Build(error), report: None }))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Error").field(&self.0.kind).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Build(error) => error.fmt(f),
            ErrorKind::Failed(failure) => failure.fmt(f),
            ErrorKind::EventDrop(panic) => {
                write!(f, "dropping the ring's events panicked: {panic}")
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.kind {
            ErrorKind::Failed(failure) => failure.source(),
            _ => None,
        }
    }
}
