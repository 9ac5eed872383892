//! This module holds the errors of promises: why a wait returned no value, and why a value could
//! not be delivered.

use std::error::Error as StdError;
use std::fmt;
use std::mem::discriminant;

use super::wait::WaitError;
use crate::base::fault::debug_is_message;

/// The reason why a call of [`Awaited`](crate::Awaited) returned no value.
///
/// [`AwaitError::Broken`] and [`AwaitError::Taken`] are final: each later call returns the same
/// error. After any other error, a later call may succeed.
///
/// [`AwaitError::Wait`] and [`AwaitError::Skipped`] occur only if the promise is the answer to a
/// request ([`Producer::ask`](crate::Producer::ask)). Even then the value may still come, because a
/// stage may have taken the promise out of its event and fulfil it later.
///
/// Two errors are equal if they are of the same kind. If that kind says that the graph has failed,
/// they must also name the same stage and the same position.
///
/// ```
/// use slipring::errors::AwaitError;
///
/// let (promise, mut answer) = slipring::promise::<u64>();
/// drop(promise);
/// assert_eq!(answer.wait(), Err(AwaitError::Broken));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum AwaitError {
    /// The promise was dropped before it was fulfilled: its owner ended early, or panicked.
    Broken,
    /// The deadline of the call passed, or the timeout of the waiting strategy
    /// ([`Wait::Timeout`](crate::Wait::Timeout)).
    TimedOut,
    /// An earlier call has returned the value.
    Taken,
    /// The graph of the request has ended without an answer, or the wait would never end:
    /// - [`WaitError::Failed`] and [`WaitError::Halted`]: the graph has failed or was halted.
    /// - [`WaitError::Closed`]: the ring was closed, and every stage has passed the request.
    /// - [`WaitError::WaitsForItself`]: the only stage that could answer waits for the calling
    ///   thread's own handler. The graph continues.
    Wait(WaitError),
    /// A stage has failed at the request and, by its policy, skipped it
    /// ([`OnFault::skip`](crate::OnFault::skip)). Every other stage has passed the request. The
    /// graph continues.
    Skipped,
}

impl PartialEq for AwaitError {
    fn eq(&self, other: &AwaitError) -> bool {
        let place = |reason: &WaitError| {
            reason.failure().map(|failure| (failure.stage().clone(), failure.seq()))
        };
        match (self, other) {
            (AwaitError::Wait(one), AwaitError::Wait(other)) => {
                discriminant(one) == discriminant(other) && place(one) == place(other)
            }
            _ => discriminant(self) == discriminant(other),
        }
    }
}

impl Eq for AwaitError {}

impl fmt::Display for AwaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AwaitError::Wait(WaitError::Closed) => {
                "the ring was closed, and every stage has passed the request without an answer: see whether a stage takes the promise out of its event"
            }
            AwaitError::Wait(WaitError::Halted) => {
                "the graph was halted before a stage answered the request"
            }
            AwaitError::Wait(WaitError::WaitsForItself(stage)) => {
                return write!(
                    f,
                    "this call would wait for ever: the stages that could answer wait for stage `{stage}`, which the calling thread runs; wait outside of the handler"
                );
            }
            AwaitError::Wait(reason) => return reason.fmt(f),
            AwaitError::Skipped => {
                "a stage failed at the request and skipped it, so no stage answers: see the report, and ask again"
            }
            AwaitError::Broken => {
                "the promise was dropped before it was fulfilled: see how its owner ended, and ask again by a new promise"
            }
            AwaitError::TimedOut => {
                "the promise was not fulfilled in time: call again, or wait for longer"
            }
            AwaitError::Taken => {
                "the value was taken by an earlier call, and a promise has a single value: keep it, or make a new promise"
            }
        })
    }
}

debug_is_message!(AwaitError);

impl StdError for AwaitError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            AwaitError::Wait(reason) => reason.source(),
            _ => None,
        }
    }
}

/// The value of a promise whose [`Awaited`](crate::Awaited) was dropped: no thread waits for the
/// value any more. [`Promise::fulfil`](crate::Promise::fulfil) returns it.
///
/// ```
/// let (promise, answer) = slipring::promise::<String>();
/// drop(answer);
/// let slipring::errors::Abandoned(value) = promise.fulfil("late".into()).unwrap_err();
/// assert_eq!(value, "late");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Abandoned<T>(
    /// The value that was passed to [`Promise::fulfil`](crate::Promise::fulfil).
    pub T,
);

impl<T> fmt::Debug for Abandoned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Abandoned(..)")
    }
}

impl<T> fmt::Display for Abandoned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the other side of the promise was dropped, so no thread waits for the value: use the value here, or drop it",
        )
    }
}

impl<T> StdError for Abandoned<T> {}
