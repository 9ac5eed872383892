//! What can go wrong, in the words of the one who has to mend it.
//!
//! - [`WaitError`]: why a blocking call will never succeed again.
//! - [`ClaimError`], [`BatchError`]: why a non-blocking or a bounded call did not succeed this
//!   time.
//! - [`Failure`]: what ended a graph: which stage, at which event, why.
//! - [`Error`]: what building or running a graph comes back with.

use std::error::Error as StdError;
use std::fmt;

use super::build::BuildError;
use super::failure::Failure;
use super::report::Report;

/// What building or running a graph comes back with when it did not go well: the first failure, the
/// stage, the event, and the user's own error whole.
pub struct Error(Box<ErrorParts>);

struct ErrorParts {
    kind: ErrorKind,
    report: Option<Report>,
}

/// What an [`Error`] is about.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The graph could not be built.
    Build(BuildError),
    /// A stage or the producer failed while it ran.
    Failed(Failure),
    /// Dropping the ring's events panicked, after everything else had ended well.
    EventDrop(String),
}

impl Error {
    pub(crate) fn failed(failure: Failure, report: Report) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Failed(failure), report: Some(report) }))
    }

    pub(crate) fn event_drop(panic: String, report: Report) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::EventDrop(panic), report: Some(report) }))
    }

    /// What it is about.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The stage that failed, if one did; [`PRODUCER`] for the producer.
    pub fn stage(&self) -> Option<&str> {
        self.failure().map(|failure| failure.stage().as_str())
    }

    /// The position of the event at which it failed, where one event was at fault.
    pub fn seq(&self) -> Option<u64> {
        self.failure().and_then(Failure::seq)
    }

    /// The failure, if it happened while the graph ran.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.0.kind {
            ErrorKind::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The user's own error, if it is a `T`.
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        self.failure().and_then(Failure::downcast_ref)
    }

    /// How far each stage came, if the graph ran at all.
    pub fn report(&self) -> Option<&Report> {
        self.0.report.as_ref()
    }
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Build(error), report: None }))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Error").field(&self.0.kind).finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Build(error) => error.fmt(f),
            ErrorKind::Failed(failure) => failure.fmt(f),
            ErrorKind::EventDrop(panic) => {
                write!(f, "dropping the ring's events panicked: {panic}")
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.0.kind {
            ErrorKind::Failed(failure) => failure.source(),
            _ => None,
        }
    }
}
