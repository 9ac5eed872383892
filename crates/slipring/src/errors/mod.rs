//! This module defines the library's errors and reports. An error says why a call or a graph
//! failed; a report holds the counts of a graph.
//!
//! - [`BuildError`] says why a graph could not be built.
//! - [`WaitError`] says why a blocking call returned without an event or a slot.
//! - [`ClaimError`] and [`BatchError`] say why a call without waiting, or a call with a deadline,
//!   failed.
//! - [`Failure`] is the failure that ended a graph, with the failed stage, the event and the cause.
//! - [`Error`] is the error of building or running a graph.
//! - [`AwaitError`] says why a wait for a promise returned no value. [`Abandoned`] gives back a
//!   value that no thread waits for any more.
//! - [`Report`] holds the counts of each stage, and how long the stages waited for each other.

mod build;
mod calls;
mod error;
mod failure;
mod promise;
mod report;
mod wait;

pub use crate::base::name_lost::NameLost;
pub use build::{BuildError, MAX_STAGE_HANDLES};
pub use calls::{BatchError, BindError, ClaimError, NotHeld};
pub use error::{Error, ErrorKind};
pub use failure::{Cause, Failure};
pub use promise::{Abandoned, AwaitError};
pub use report::{Latency, Report, StageReport, Turns};
pub use wait::{PeerDead, SubscribeError, WaitError};
