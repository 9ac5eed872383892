//! This module holds the reasons why a mirror, a conflator or the parser of wait strategies refused
//! a value or returned none.

use std::error::Error as StdError;
use std::fmt;

use super::wait::WaitError;
use crate::base::fault::debug_is_message;

/// The reason why an [`Observer`](crate::handles::Observer) returned no value.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObserveError {
    /// The mirror holds no new value yet.
    Unavailable,
    /// The observer tried several times to copy the value, and each time the writer overwrote the
    /// value during the copy. Another call may succeed at once. A mirror with more slots makes this
    /// error rarer.
    Overrun,
    /// The deadline passed before a new value came.
    TimedOut,
    /// The mirror is closed, and this observer has returned or missed each of its values. All later
    /// calls return `Closed`, too.
    Closed,
}

impl fmt::Display for ObserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObserveError::Unavailable => "the mirror holds no new value yet",
            ObserveError::Overrun => "the mirror's writer is faster than its observer can copy: give the mirror more slots, or try again",
            ObserveError::TimedOut => "the mirror got no new value until the deadline",
            ObserveError::Closed => "the mirror is closed",
        })
    }
}

debug_is_message!(ObserveError);

impl StdError for ObserveError {}

/// The reason why a [`Conflator`](crate::Conflator) did not take a value.
#[non_exhaustive]
pub enum ConflateError<T> {
    /// The ring is full, and the conflator has no room for another key. The error carries the value
    /// that the conflator did not take.
    Full {
        /// Number of keys that the conflator has room for.
        room: usize,
        /// The refused value.
        value: T,
    },
    /// The graph has ended, so the ring takes no more events; or a process has died, and the call
    /// reports it with [`WaitError::PeerDead`].
    Wait(WaitError),
}

/// Shows no refused value, so that the error of any value can be unwrapped and boxed.
impl<T> fmt::Debug for ConflateError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConflateError::Full { room, .. } => {
                f.debug_struct("Full").field("room", room).finish_non_exhaustive()
            }
            ConflateError::Wait(error) => f.debug_tuple("Wait").field(error).finish(),
        }
    }
}

impl<T> fmt::Display for ConflateError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConflateError::Full { room, .. } => {
                write!(
                    f,
                    "the ring is full, and the conflator already keeps values of {room} other keys; give it room for more keys, or drop this value"
                )
            }
            ConflateError::Wait(error) => error.fmt(f),
        }
    }
}

impl<T> StdError for ConflateError<T> {}

impl<T> From<WaitError> for ConflateError<T> {
    fn from(error: WaitError) -> Self {
        ConflateError::Wait(error)
    }
}

/// The error of parsing a [`Wait`](crate::Wait): an unknown name, or wrong parameters.
///
/// Example: [`Wait`](crate::Wait).
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownWait {
    pub(crate) given: String,
    /// The alias form of a strategy, if `given` begins with that strategy's name.
    pub(crate) form: Option<&'static str>,
}

/// Name and form of each alias.
pub(crate) const FORMS: [(&str, &str); 11] = [
    ("busy-spin", "busy-spin"),
    ("yielding", "yielding:SPINS"),
    ("sleeping", "sleeping:SPINS,YIELDS,PAUSE"),
    ("blocking", "blocking"),
    ("phased-backoff", "phased-backoff:SPIN,YIELD,STRATEGY"),
    ("alternating-yield-block", "alternating-yield-block:YIELD,BLOCK"),
    ("alternating-spin-block", "alternating-spin-block:SPIN,BLOCK"),
    ("alternating-yield-sleep", "alternating-yield-sleep:YIELD,SLEEP"),
    ("alternating-spin-sleep", "alternating-spin-sleep:SPIN,SLEEP"),
    ("adaptive", "adaptive:PERCENT% (1 to 100)"),
    ("timeout", "timeout:AFTER,STRATEGY"),
];

impl fmt::Display for UnknownWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given = &self.given;
        if let Some(form) = self.form {
            return write!(
                f,
                "`{given}` is not a wait strategy: write `{form}`, with times like 50us (ns, us, ms or s)"
            );
        }
        write!(f, "`{given}` is not a wait strategy: choose one of ")?;
        for (i, (name, _)) in FORMS.iter().enumerate() {
            write!(f, "{}{name}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

debug_is_message!(UnknownWait);

impl StdError for UnknownWait {}
