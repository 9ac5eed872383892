//! Errors and reports: the reasons why calls fail, and the counts of a graph.
//!
//! - [`BuildError`]: why a graph could not be built.
//! - [`WaitError`]: why a blocking call returned without an event or a slot.
//! - [`ClaimError`], [`BatchError`]: why a call that does not block, or has a deadline, failed.
//! - [`Failure`]: the failure that ended a graph: its stage, its event and its cause.
//! - [`Error`]: the error of building or running a graph.
//! - [`Report`]: counts of each stage, and how long stages waited for each other.

mod build;
mod calls;
mod error;
mod failure;
mod report;
mod wait;

pub use build::{BuildError, MAX_STAGE_HANDLES};
pub use calls::{BatchError, ClaimError, NotHeld};
pub use error::{Error, ErrorKind};
pub use failure::{Cause, Failure};
pub use report::{Latency, Report, StageReport};
pub use wait::{SubscribeError, WaitError};
