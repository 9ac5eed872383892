//! This module holds the reasons why a blocking call ends without an event or slot, and why a
//! reader or a worker cannot join.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::failure::Failure;
use crate::base::fault::debug_is_message;
use crate::base::name::{Name, PRODUCER};
use crate::base::name_lost::NameLost;

/// The reason why a blocking call returned without an event or a slot.
///
/// After [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`] and
/// [`WaitError::Left`], each later call on the same handle returns an error, too. After
/// [`WaitError::WaitsForItself`] and [`WaitError::TimedOut`] the graph continues, and a later call
/// may succeed. After [`WaitError::Refused`] the reader has no handle.
///
/// ```
/// use slipring::{Graph, errors::WaitError};
///
/// let graph = Graph::new(8, || 0u64);
/// let key = graph.reader("log");
/// let ring = graph.build()?;
/// let (tx, mut log) = (ring.producer(), ring.reader(key));
/// tx.close();
/// assert!(matches!(log.batch(8), Err(WaitError::Closed)));
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum WaitError {
    /// The producers closed the ring. A reader's handle has returned every event; a producer's
    /// handle cannot publish any more.
    Closed,
    /// A call halted the graph before the end of the stream. Published events may stay unhandled.
    Halted,
    /// A stage or a producer failed, which ended the graph.
    Failed(Failure),
    /// The call would wait for ever, because it needs a release that only the calling thread itself
    /// can make. The field names the stage that would have to release. It is
    /// [`PRODUCER`](crate::stages::PRODUCER) if the call needs slots behind a claim that the
    /// calling thread fills by a [`Publisher`](crate::Publisher). The call has published and lent
    /// no event.
    // A `Name` takes one word, which keeps `WaitError` at two words. Every call returns a result
    // that can hold a `WaitError`, and with a larger `WaitError` a batch of ten events took a fifth
    // more time.
    WaitsForItself(Name),
    /// The timeout of the waiting strategy passed ([`Wait::Timeout`](crate::Wait::Timeout)). The
    /// field names the stage or producer for which the call waited. The call has published and lent
    /// no event.
    TimedOut(Name),
    /// A call asked this reader to leave its tap
    /// ([`LeaveHandle::leave`](crate::handles::LeaveHandle::leave)). The graph continues without
    /// it.
    Left,
    /// The process of the stage or producer for which the call waited has died. The graph
    /// continues: a later call waits again, and succeeds if another process has taken the dead
    /// process's place. Only rings between processes return this error, and only if the segment's
    /// declaration asks for it.
    PeerDead(Box<PeerDead>),
    /// The words of a segment contradict each other, so a foreign program has changed the segment's
    /// memory. Each later call on the handle returns an error, too.
    Damaged,
    /// The segment's name no longer refers to the file that this process is attached to. A program
    /// gets this error only if it asks for it by `require_name` of `slipring-shm`. The attached
    /// processes can continue to use the ring, and a later call waits again. Only rings between
    /// processes return this error.
    NameLost(Box<NameLost>),
    /// The reader could not join a tap, or the worker a pool. `?` converts a [`SubscribeError`]
    /// into this variant.
    Refused(Arc<SubscribeError>),
}

impl WaitError {
    /// Returns the graph's failure, or `None` if the wait ended for another reason.
    ///
    /// Example: [`Error`](crate::Error).
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
            WaitError::Closed => {
                f.write_str("the ring is closed: it takes no event any more, and has none left for this handle; drop it")
            }
            WaitError::Halted => {
                f.write_str("the graph was halted and has nothing left for this handle: drop it")
            }
            WaitError::Failed(failure) => write!(f, "the graph has ended: {failure}"),
            WaitError::WaitsForItself(name) if **name == *PRODUCER => f.write_str(
                "this call would wait for ever: the ring is full up to a slot that the calling thread fills; publish after the closure that fills it, or use a larger ring",
            ),
            WaitError::WaitsForItself(stage) => write!(
                f,
                "this call would wait for ever: it needs a release by stage `{stage}`, which only the calling thread can make; release events there first"
            ),
            WaitError::TimedOut(stage) => write!(
                f,
                "the wait for `{stage}` exceeded the strategy's timeout: call again, or choose a longer timeout"
            ),
            WaitError::Left => f.write_str("this reader was asked to leave its tap: drop it"),
            WaitError::PeerDead(dead) => dead.fmt(f),
            WaitError::Damaged => f.write_str(
                "the segment is damaged: its positions contradict each other, so a program that does not follow the protocol has written to it; remove the segment and make it anew",
            ),
            WaitError::NameLost(lost) => lost.fmt(f),
            WaitError::Refused(reason) => reason.fmt(f),
        }
    }
}

debug_is_message!(WaitError);

impl StdError for WaitError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.failure().and_then(Failure::source)
    }
}

/// Describes a dead process for which a call waited. See [`WaitError::PeerDead`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerDead {
    /// Name of the stage that the process ran; [`PRODUCER`](crate::stages::PRODUCER) if it was the
    /// producer.
    pub stage: Name,
    /// Number of the shard that the process ran, counted from 0; `None` if the stage has no shards.
    pub shard: Option<usize>,
    /// The dead process's id in its own pid namespace, or 0 if the id is not known. Another process
    /// may have the same id by now.
    pub pid: u32,
    /// The position before which the dead process has released all events. If the dead process was
    /// a producer, the position at which the caller waits.
    pub seq: u64,
}

impl fmt::Display for PeerDead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeerDead { stage, shard, pid, seq } = self;
        write!(f, "process {pid}, which ran ")?;
        if let Some(shard) = shard {
            write!(f, "shard {shard} of ")?;
        }
        write!(f, "`{stage}`, has died at event {seq}: start it again, it goes on from there")
    }
}

const _: () = assert!(size_of::<WaitError>() <= 2 * size_of::<usize>());

/// The reason why a reader could not join a tap, or a worker a pool.
///
/// Example: [`Tap`](crate::Tap).
#[derive(Clone)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The event at the position may be gone: a producer may have overwritten it, or a later stage
    /// may have changed it.
    Overwritten {
        /// The position at which the reader asked to begin.
        asked: u64,
        /// The oldest position that the ring still holds.
        oldest: u64,
    },
    /// The stages before the tap have not released the position yet.
    NotYet {
        /// The position at which the reader asked to begin.
        asked: u64,
        /// The newest position at which a reader may begin: the position of the next event.
        newest: u64,
    },
    /// Readers have taken all seats of the tap, or workers all seats of the pool.
    Full {
        /// Number of seats that the tap has for readers, or the pool for workers.
        room: usize,
    },
    /// No graph with this tap or pool is running. Its graph has not started yet, or it has ended
    /// and was dropped.
    NotRunning,
    /// The graph has ended.
    Ended(WaitError),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubscribeError::Overwritten { asked, oldest } => write!(
                f,
                "position {asked} is overwritten: begin at {oldest}, the oldest that the ring holds, or later"
            ),
            SubscribeError::NotYet { asked, newest } => {
                write!(f, "position {asked} is not published yet: begin at {newest} at the latest")
            }
            SubscribeError::Full { room } => write!(
                f,
                "all {room} seats are taken: wait until a reader of the tap or a worker of the pool leaves, or declare the tap or the pool with more room (`Tap::room`, `Key::room`, `Pool::reading(n)`, `Pool::updating(n)`)"
            ),
            SubscribeError::NotRunning => f.write_str(
                "no graph with this tap or pool is running: join between the graph's start and its end",
            ),
            SubscribeError::Ended(reason) => reason.fmt(f),
        }
    }
}

debug_is_message!(SubscribeError);

impl StdError for SubscribeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            SubscribeError::Ended(reason) => reason.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for SubscribeError {
    fn from(reason: WaitError) -> Self {
        SubscribeError::Ended(reason)
    }
}

impl From<SubscribeError> for WaitError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Ended(reason) => reason,
            refused => WaitError::Refused(Arc::new(refused)),
        }
    }
}
