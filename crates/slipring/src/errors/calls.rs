//! Why one call on a handle did not succeed this time.

use std::error::Error as StdError;
use std::fmt;

use super::wait::WaitError;
use crate::base::name::Name;

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
