//! What ended a graph: which stage, at which event, why.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::Fault;
use crate::base::name::{Name, PRODUCER};

/// Why a stage (or the producer) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The handler, or the producer's closure, returned this error.
    Error(Fault),
    /// It panicked, with this message.
    Panic(String),
    /// Its handle was dropped before the stream ended, so the events behind it can never be
    /// released.
    Dropped,
    /// It waited past the deadline that the graph was given.
    Deadline(Duration),
    /// Its thread could not be started.
    Thread(std::io::Error),
}

/// What ended a graph before its time: the first failure of any stage.
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

    /// The stage that failed; [`PRODUCER`] for the producer.
    pub fn stage(&self) -> &Name {
        &self.0.stage
    }

    /// The position of the event it failed at, where one event was at fault.
    pub fn seq(&self) -> Option<u64> {
        self.0.seq
    }

    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The user's own error, if it is a `T`.
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        match &self.0.cause {
            Cause::Error(fault) => fault.downcast_ref(),
            _ => None,
        }
    }

    /// What lies behind the cause. The cause itself is part of the message, so a chain of messages
    /// says everything once.
    pub(super) fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.cause {
            Cause::Error(fault) => fault.as_error().source(),
            Cause::Thread(error) => error.source(),
            _ => None,
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
                f.write_str(" before the stream ended; keep its handle until a call says `Closed`")
            }
            Cause::Deadline(after) => {
                f.write_str(" was still waiting")?;
                at(f)?;
                write!(f, " when the graph's deadline of {after:?} passed")
            }
            Cause::Thread(error) => write!(f, " got no thread: {error}"),
        }
    }
}
