//! This module holds the reasons why one call on a handle failed. A later call on the handle may
//! succeed.

use std::error::Error as StdError;
use std::fmt;

use super::wait::WaitError;
use crate::base::fault::debug_is_message;
use crate::base::name::Name;

/// The reason why a call did not claim slots.
///
/// ```
/// use slipring::{Graph, errors::ClaimError};
///
/// let graph = Graph::new(2, || 0u64);
/// let key = graph.reader("log");
/// let ring = graph.build()?;
/// let (mut tx, _log) = (ring.producer(), ring.reader(key));
/// for i in 0..2 {
///     tx.publish(|slot| *slot = i).unwrap();
/// }
/// match tx.try_publish(|slot| *slot = 2) {
///     Err(ClaimError::Gated { stage, lag }) => assert_eq!((stage.as_str(), lag), ("log", 2)),
///     other => panic!("the ring is full: {other:?}"),
/// }
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum ClaimError {
    /// The ring is full. A later call may succeed, once `stage` has released events.
    Gated {
        /// Name of the stage that is furthest behind.
        stage: Name,
        /// Number of published or claimed events that the stage has not released.
        lag: u64,
    },
    /// Another producer claimed at the same moment. The producer's next call may succeed at once.
    Contended,
    /// The ring stayed full until the deadline of the call, or the timeout of the waiting strategy.
    /// The field names the stage that is furthest behind; a tap is behind if one of its readers is,
    /// or a stage before it. The name is [`PRODUCER`](crate::stages::PRODUCER) if other producers
    /// took each free slot.
    TimedOut(Name),
    /// A claim of this length never succeeds on this ring, because a claim has 1 to `capacity`
    /// slots.
    Length {
        /// Number of slots that the call asked for.
        asked: usize,
        /// Number of slots of the ring.
        capacity: usize,
    },
    /// A [`RawProducer`](crate::raw::RawProducer) still holds a claim that is not published, so a
    /// wait for another claim might never end.
    Held {
        /// The first position that the handle has claimed and not published.
        first: u64,
        /// Number of positions that the handle has claimed and not published.
        len: usize,
    },
    /// The call failed for the reason in this field, for instance because the graph was halted.
    Wait(WaitError),
}

impl ClaimError {
    /// Converts the error of a claim that waited for slots into a [`WaitError`]. The claim had no
    /// deadline and a valid number of slots, so it fails only if the graph ends, if the strategy's
    /// timeout passes, or if the thread would wait for itself.
    pub(crate) fn without_deadline(self) -> WaitError {
        match self {
            ClaimError::Wait(reason) => reason,
            ClaimError::TimedOut(stage) => WaitError::TimedOut(stage),
            other => unreachable!("a wait without a deadline ended with: {other}"),
        }
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Gated { stage, lag } => {
                write!(
                    f,
                    "the ring is full, because stage `{stage}` is {lag} events behind: try again when it has released some"
                )
            }
            ClaimError::Contended => {
                f.write_str("another producer claimed at the same moment: try again")
            }
            ClaimError::TimedOut(stage) => {
                write!(
                    f,
                    "the ring stayed full until the deadline, because of stage `{stage}`: try again, or allow more time"
                )
            }
            ClaimError::Length { asked, capacity } => {
                write!(
                    f,
                    "cannot claim {asked} slots at once: claim 1 to {capacity} slots on this ring"
                )
            }
            ClaimError::Held { first, len } => {
                write!(
                    f,
                    "this handle holds {len} claimed slots from position {first} on: publish them with `done` or give them up, then claim again"
                )
            }
            ClaimError::Wait(reason) => reason.fmt(f),
        }
    }
}

debug_is_message!(ClaimError);

impl StdError for ClaimError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            ClaimError::Wait(reason) => reason.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for ClaimError {
    fn from(reason: WaitError) -> ClaimError {
        ClaimError::Wait(reason)
    }
}

/// The error of a call on a position that a raw handle does not hold. A producer holds the
/// positions that it has claimed and not published. A consumer holds the positions that a call lent
/// it and that it has not released.
///
/// Example: [`RawConsumer`](crate::raw::RawConsumer).
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotHeld {
    /// The position that the call named.
    pub seq: u64,
    /// The first position that the handle holds; meaningless if `len` is 0.
    pub first: u64,
    /// Number of positions that the handle holds.
    pub len: usize,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NotHeld { seq, first, len } = self;
        match len {
            0 => write!(f, "this handle holds no position, so not {seq}: call `next` first"),
            _ => write!(
                f,
                "this handle does not hold position {seq}: it holds {len} positions from {first} on"
            ),
        }
    }
}

debug_is_message!(NotHeld);

impl StdError for NotHeld {}

/// The reason why a call did not return a batch.
///
/// ```
/// use slipring::{Graph, errors::BatchError};
///
/// let graph = Graph::new(8, || 0u64);
/// let key = graph.reader("log");
/// let ring = graph.build()?;
/// let (_tx, mut log) = (ring.producer(), ring.reader(key));
/// assert!(matches!(log.try_batch(8), Err(BatchError::Unavailable)));
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum BatchError {
    /// No event is available: the next event is not published, or the stages before this stage have
    /// not released it.
    Unavailable,
    /// The next event is published, but a stage before this stage has not released it. Only
    /// [`RawConsumer`](crate::raw::RawConsumer) distinguishes `Gated` from `Unavailable`.
    Gated {
        /// The stage that is furthest behind among those before this stage.
        stage: Name,
        /// Number of events that `stage` could handle, and that it has not released yet.
        lag: u64,
    },
    /// Other workers of the pool took all available events. The worker's next call may succeed.
    Contended,
    /// No event came until the deadline of the call, or the timeout of the waiting strategy. The
    /// field names the stage or producer for which the call waited.
    TimedOut(Name),
    /// The call failed for the reason in this field, for instance because the graph was halted.
    Wait(WaitError),
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchError::Unavailable => f.write_str("no event is available yet: try again later"),
            BatchError::Gated { stage, lag } => write!(
                f,
                "stage `{stage}` has not released the next event and is {lag} events behind: try again later"
            ),
            BatchError::Contended => {
                f.write_str("other workers of the pool took all events: try again")
            }
            BatchError::TimedOut(awaited) => write!(
                f,
                "no event came from `{awaited}` until the deadline: try again, or allow more time"
            ),
            BatchError::Wait(reason) => reason.fmt(f),
        }
    }
}

debug_is_message!(BatchError);

impl StdError for BatchError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            BatchError::Wait(reason) => reason.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for BatchError {
    fn from(reason: WaitError) -> BatchError {
        BatchError::Wait(reason)
    }
}

/// The reason why a thread was not bound to its place.
///
/// Example: [`Ring::bind_thread`](crate::Ring::bind_thread).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BindError {
    /// Name of the thread whose place the caller asked for.
    pub thread: String,
    /// The placement's own message.
    pub problem: String,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BindError { thread, problem } = self;
        write!(f, "the place of thread `{thread}` cannot be taken: {problem}")
    }
}

debug_is_message!(BindError);

impl StdError for BindError {}
