//! Why calls that wait come back without what they waited for, and why readers cannot join.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::failure::Failure;
use crate::base::name::Name;

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

/// Why a reader could not join.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The position asked for may be overwritten, or changed by a later stage, already.
    Overwritten {
        /// What was asked for.
        asked: u64,
        /// The oldest that is still held.
        oldest: u64,
    },
    /// The stages before the tap have not come so far.
    NotYet {
        /// What was asked for.
        asked: u64,
        /// The newest position to begin at: that of the next event.
        newest: u64,
    },
    /// So many readers are there already: all that the tap has room for.
    Full {
        /// Its room.
        room: usize,
    },
    /// No graph with this tap is running: none was started yet, or it has ended and is gone.
    NotRunning,
    /// The graph has ended.
    Ended(WaitError),
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubscribeError::Overwritten { asked, oldest } => {
                write!(
                    f,
                    "position {asked} is overwritten; the oldest that is still held is {oldest}"
                )
            }
            SubscribeError::NotYet { asked, newest } => {
                write!(f, "position {asked} is not there yet; the next event is {newest}")
            }
            SubscribeError::Full { room } => {
                write!(
                    f,
                    "the tap has room for {room} readers, and so many are there; wait for one to leave, or give it more room"
                )
            }
            SubscribeError::NotRunning => {
                f.write_str("no graph with this tap is running: start it first, or it has ended")
            }
            SubscribeError::Ended(closed) => closed.fmt(f),
        }
    }
}

impl StdError for SubscribeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            SubscribeError::Ended(closed) => closed.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for SubscribeError {
    fn from(closed: WaitError) -> Self {
        SubscribeError::Ended(closed)
    }
}

impl From<SubscribeError> for WaitError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Ended(closed) => closed,
            refused => WaitError::Refused(Arc::new(refused)),
        }
    }
}
