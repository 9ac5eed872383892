//! This module holds the reasons why a promise brings no value, and why it could not be fulfilled.

use std::error::Error as StdError;
use std::fmt;

/// Why a call of [`Awaited`](crate::Awaited) returned no value.
///
/// After [`AwaitError::Broken`] and [`AwaitError::Taken`] each later call returns the same error.
/// After [`AwaitError::TimedOut`] a later call may succeed.
///
/// ```
/// use slipring::AwaitError;
///
/// let (promise, mut answer) = slipring::promise::<u64>();
/// drop(promise);
/// assert_eq!(answer.wait(), Err(AwaitError::Broken));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AwaitError {
    /// The promise was dropped before it was fulfilled: its owner ended early, or panicked.
    Broken,
    /// The deadline of the call passed, or the timeout of the waiting strategy
    /// ([`Wait::Timeout`](crate::Wait::Timeout)).
    TimedOut,
    /// An earlier call has returned the value.
    Taken,
}

impl fmt::Display for AwaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
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

impl StdError for AwaitError {}

/// The value of a promise whose [`Awaited`](crate::Awaited) was dropped: no thread waits for the
/// value any more. [`Promise::fulfil`](crate::Promise::fulfil) returns it.
///
/// ```
/// let (promise, answer) = slipring::promise::<String>();
/// drop(answer);
/// let slipring::Abandoned(value) = promise.fulfil("late".into()).unwrap_err();
/// assert_eq!(value, "late");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Abandoned<T>(
    /// The value, as it was given.
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
