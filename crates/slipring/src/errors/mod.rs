//! Errors and reports: what calls come back with.

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
