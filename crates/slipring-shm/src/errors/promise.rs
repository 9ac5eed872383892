//! Reasons why a promise between processes brings no value.
//!
//! Invariants
//! - I1: an error says that a promise is broken only if its ring is closed without a value. A
//!   reader finds a published value before it finds that the ring is closed.

use slipring::Error;
use slipring::errors::{BatchError, PeerDead, WaitError};

use super::texts;

/// Reason why a call of [`Awaited`](crate::promises::Awaited) returned no value.
///
/// After [`PromiseError::TimedOut`], [`PromiseError::PeerDead`] and [`PromiseError::Request`] a
/// later call may succeed. After any other error, each later call returns an error as well.
///
/// ```
/// use slipring_shm::{errors::PromiseError, promises::PromiseSegment};
/// let segment = PromiseSegment::<u64>::create_memfd("broken").build()?;
/// // SAFETY: no other process has the memfd.
/// let (promise, mut answer) = unsafe { (segment.promise()?, segment.awaited()?) };
/// drop(promise);
/// assert!(matches!(answer.wait(), Err(PromiseError::Broken)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromiseError {
    /// The owner of the promise dropped it before it was fulfilled.
    #[error(
        "the promise was dropped before it was fulfilled: see how its owner ended, and make a new promise"
    )]
    Broken,
    /// The deadline of the call, or the timeout of the waiting strategy, has passed.
    #[error("the promise was not fulfilled in time: call again, or wait for longer")]
    TimedOut,
    /// This handle or an earlier one has released the value.
    #[error(
        "the value of the promise was taken and released already, by this process or by one before it: make a new promise"
    )]
    Taken,
    /// The process that owned the promise has died, and the promise was declared to report deaths
    /// ([`OnDeath::Tell`](crate::OnDeath::Tell)). Another process may still fulfil it.
    #[error(fmt = texts::owner_dead)]
    PeerDead(Box<PeerDead>),
    /// The ring of the promise has ended in another way: it failed
    /// ([`OnDeath::Fail`](crate::OnDeath::Fail)), or its words are damaged.
    #[error(transparent)]
    Ended(WaitError),
    /// The wait ended because of the ring that carried the request
    /// ([`Awaited::of_request`](crate::promises::Awaited::of_request)). There are three cases: that
    /// ring has failed or was halted; it is closed, and every stage has passed the request; or a
    /// process that holds up the request has died.
    ///
    /// A later call may still succeed: a stage that has opened the promise may fulfil it later, and
    /// another process may take the place of the dead one.
    #[error(fmt = texts::request)]
    Request(WaitError),
}

impl From<WaitError> for PromiseError {
    fn from(reason: WaitError) -> PromiseError {
        match reason {
            WaitError::Closed => PromiseError::Broken,
            WaitError::TimedOut(_) => PromiseError::TimedOut,
            WaitError::PeerDead(dead) => PromiseError::PeerDead(dead),
            other => PromiseError::Ended(other),
        }
    }
}

impl From<BatchError> for PromiseError {
    fn from(reason: BatchError) -> PromiseError {
        match reason {
            BatchError::Wait(reason) => reason.into(),
            _ => PromiseError::TimedOut,
        }
    }
}

impl From<PromiseError> for Error {
    fn from(error: PromiseError) -> Error {
        match error {
            PromiseError::Ended(reason @ WaitError::Failed(_)) => reason.into(),
            error => Error::call(error),
        }
    }
}
