//! The errors of the library. An error says why a call or a graph failed, and what to do next.
//!
//! A program that only reports errors needs [`Error`] alone: the error of each call converts into
//! it by `?`. A program that goes on after an error names the error of the call:
//! - [`BuildError`] says why a graph, a mirror or a conflator could not be built.
//! - [`WaitError`] says why a blocking call returned without an event or a slot.
//! - [`ClaimError`] and [`BatchError`] say why a call without waiting, or a call with a deadline,
//!   failed.
//! - [`Failure`] is the failure that ended a graph, with the failed stage, the event and the cause.
//! - [`AwaitError`] says why a wait for a promise returned no value. [`Abandoned`] gives back a
//!   value that no thread waits for any more.
//! - [`PassError`] says why a wait for a stage ended before the stage had passed.

pub(crate) mod build;
mod calls;
pub(crate) mod error;
mod failure;
mod pass;
mod promise;
pub(crate) mod report;
mod values;
mod wait;

pub use crate::base::available_memory::{MemoryLimit, MemoryShortage};
pub use crate::base::name_lost::NameLost;
pub use build::BuildError;
pub(crate) use build::MAX_STAGE_HANDLES;
pub use calls::{BatchError, BindError, ClaimError, NotHeld};
pub(crate) use error::Error;
pub use error::{ErrorKind, JoinError};
pub use failure::{Cause, Failure};
pub use pass::PassError;
pub use promise::{Abandoned, AwaitError};
pub(crate) use report::{Latency, Report, StageReport, Turns};
pub(crate) use values::FORMS;
pub use values::{ConflateError, ObserveError, UnknownWait};
pub use wait::{PeerDead, SubscribeError, WaitError};
