//! This module describes the failure that ended a graph: the failed stage, the event and the cause.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::Fault;
use crate::base::name::{Name, PRODUCER};

/// The reason why a stage or a producer failed.
///
/// ```
/// use slipring::errors::Cause;
///
/// let error = slipring::ring(8, || 0u64)
///     .read("check", |v, _| assert_ne!(*v, 3, "three is not allowed"))
///     .feed(0..10, |slot, i| *slot = i)
///     .unwrap_err();
/// match error.failure().unwrap().cause() {
///     Cause::Panic(message) => assert!(message.contains("three is not allowed")),
///     other => panic!("the handler panicked: {other:?}"),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The handler, or the producer's closure, returned this error.
    Error(Fault),
    /// The handler, or the producer's closure, panicked with this message.
    Panic(String),
    /// The stage's handle was dropped before the stream ended, so no handle would ever release the
    /// later events.
    Dropped,
    /// The stage or the producer was waiting when the graph's deadline passed. The field is the
    /// graph's deadline, as a time since the build.
    Deadline(Duration),
    /// The process that ran the stage or producer has died. Only rings between processes have this
    /// cause.
    Died {
        /// The dead process's id, or 0 if the id is not known.
        pid: u32,
    },
    /// Another process recorded the failure, with this text. Only rings between processes have this
    /// cause.
    Elsewhere(String),
    /// The stage's thread could not be started.
    Thread(std::io::Error),
}

/// The first failure of any stage or producer, which ended the graph. All clones of a failure share
/// one allocation.
///
/// Example: [`Error`](crate::Error).
#[derive(Clone)]
pub struct Failure(Arc<FailureParts>);

struct FailureParts {
    stage: Name,
    seq: Option<u64>,
    cause: Cause,
}

impl Failure {
    pub(crate) fn new(stage: Name, seq: Option<u64>, cause: Cause) -> Failure {
        Failure(Arc::new(FailureParts { stage, seq, cause }))
    }

    /// Returns the name of the stage that failed; [`PRODUCER`] if a producer failed.
    ///
    /// Example: [`Error`](crate::Error).
    pub fn stage(&self) -> &Name {
        &self.0.stage
    }

    /// Returns the position of the event at which the stage failed, if one event was at fault.
    ///
    /// Example: [`Error`](crate::Error).
    pub fn seq(&self) -> Option<u64> {
        self.0.seq
    }

    /// Returns the cause.
    ///
    /// Example: [`Cause`].
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Returns the user's own error, if that error's type is `T`.
    ///
    /// Example: [`Error`](crate::Error).
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        match &self.0.cause {
            Cause::Error(fault) => fault.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the `source()` of the failure's cause. Does not return the cause itself, because the
    /// failure's message already contains the cause's message.
    pub(super) fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.cause {
            Cause::Error(fault) => fault.as_error().source(),
            Cause::Thread(error) => error.source(),
            _ => None,
        }
    }
}

impl Failure {
    /// Returns the cause in words, for the record that other processes read.
    pub(crate) fn cause_text(&self) -> String {
        match &self.0.cause {
            Cause::Error(fault) => fault.to_string(),
            Cause::Panic(message) => format!("panicked: {message}"),
            Cause::Elsewhere(text) => text.clone(),
            Cause::Dropped => "its handle was dropped".into(),
            Cause::Deadline(after) => format!("the deadline of {after:?} passed"),
            Cause::Died { pid } => format!("process {pid} died"),
            Cause::Thread(error) => format!("its thread could not be started: {error}"),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("stage", &self.0.stage)
            .field("seq", &self.0.seq)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0.stage {
            PRODUCER => write!(f, "the producer")?,
            stage => write!(f, "stage `{stage}`")?,
        }
        let at = |f: &mut fmt::Formatter<'_>| match self.0.seq {
            Some(seq) => write!(f, " at event {seq}"),
            None => Ok(()),
        };
        match &self.0.cause {
            Cause::Error(fault) => {
                f.write_str(" failed")?;
                at(f)?;
                write!(f, ": {fault}")
            }
            Cause::Panic(message) => {
                f.write_str(" panicked")?;
                at(f)?;
                write!(f, ": {message}")
            }
            Cause::Dropped => {
                f.write_str(" was dropped")?;
                at(f)?;
                f.write_str(
                    " before the stream ended: keep its handle until a call returns `Closed`",
                )
            }
            Cause::Deadline(after) => {
                f.write_str(" was still waiting")?;
                at(f)?;
                write!(
                    f,
                    " when the graph's deadline of {after:?} passed: close the producers if no event will come, find in the report the stage that it waited for, or allow more time"
                )
            }
            Cause::Died { pid } => {
                f.write_str(" died")?;
                at(f)?;
                write!(f, " with its process {pid}")
            }
            Cause::Elsewhere(text) => {
                f.write_str(" failed in another process")?;
                at(f)?;
                write!(f, ": {text}")
            }
            Cause::Thread(error) => write!(f, " could not start its thread: {error}"),
        }
    }
}
