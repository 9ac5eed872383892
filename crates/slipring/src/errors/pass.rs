//! This module holds the reasons why a wait for a stage ended before the stage had passed.

use std::error::Error as StdError;
use std::fmt;

use super::wait::WaitError;
use crate::base::fault::debug_is_message;
use crate::base::name::{Name, PRODUCER};

/// The reason why a wait for a stage ended before the stage had passed the position
/// ([`Producer::wait_for`](crate::Producer::wait_for), [`Producer::flush`](crate::Producer::flush),
/// and the same calls of a [`Monitor`](crate::Monitor)).
///
/// The call found at its last look that the stage had not passed. After
/// [`PassError::TimedOut`], and after [`WaitError::WaitsForItself`], the graph continues, and a
/// later call may succeed.
///
/// ```
/// use slipring::errors::PassError;
/// slipring::ring(8, || 0u64)
///     .read("journal", |_, _| ())
///     .run(|tx| {
///         let seq = tx.publish(|slot| *slot = 1)?;
///         match tx.wait_for("jornal", seq) {
///             Err(PassError::UnknownStage { stages, .. }) => assert_eq!(&*stages[0], "journal"),
///             other => panic!("{other:?}"),
///         }
///         Ok(())
///     })?;
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum PassError {
    /// The graph has no stage of this name.
    UnknownStage {
        /// The name that the call gave.
        asked: String,
        /// The names of the graph's stages, in the order of their declaration.
        stages: Vec<Name>,
    },
    /// No event is ever published at the position, because the ring was closed before it, or
    /// because it lies before the ring's first position. Positions wrap, so a position that is 2^63
    /// or more ahead of the first one lies before it.
    NotPublished {
        /// The position that the call gave.
        seq: u64,
        /// The position behind the ring's last event; if `seq` lies before the ring's first
        /// position, that first position.
        end: u64,
    },
    /// The deadline of the call passed, or the timeout of the waiting strategy. The field names the
    /// stage that had not passed; for a tap, one of its readers or a stage before it had not.
    TimedOut(Name),
    /// The monitor's graph has not started, or has ended and is gone.
    NotRunning,
    /// The graph was halted or has failed, the stage's process has died, or the call would wait for
    /// itself.
    Wait(WaitError),
}

debug_is_message!(PassError);

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassError::UnknownStage { asked, stages } => {
                write!(f, "the graph has no stage `{asked}`; its stages are ")?;
                for (i, stage) in stages.iter().enumerate() {
                    write!(f, "{}`{stage}`", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(if stages.is_empty() { "none" } else { ": name one of these" })
            }
            PassError::NotPublished { seq, end } if (seq.wrapping_sub(*end) as i64) < 0 => write!(
                f,
                "position {seq} is never published: positions wrap, and it lies before the ring's first position, {end}; wait for a position that a producer's call returned"
            ),
            PassError::NotPublished { seq, end } => write!(
                f,
                "position {seq} is never published, because the ring was closed and its events end before {end}: wait for an earlier position"
            ),
            PassError::TimedOut(stage) => write!(
                f,
                "stage `{stage}` had not passed the position at the deadline: call again, or allow more time"
            ),
            PassError::NotRunning => f.write_str(
                "no graph of this monitor is running: call between the graph's start and its end",
            ),
            PassError::Wait(WaitError::WaitsForItself(name)) if name.as_str() == PRODUCER => f
                .write_str(
                    "this call would wait for ever: the caller itself has not published the position yet, or an earlier one; publish it first",
                ),
            PassError::Wait(WaitError::WaitsForItself(stage)) => write!(
                f,
                "this call would wait for ever: the awaited release needs stage `{stage}`, whose handler the calling thread runs; return from the handler first"
            ),
            PassError::Wait(reason) => reason.fmt(f),
        }
    }
}

impl StdError for PassError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            PassError::Wait(reason) => reason.source(),
            _ => None,
        }
    }
}

impl From<WaitError> for PassError {
    fn from(reason: WaitError) -> PassError {
        PassError::Wait(reason)
    }
}
