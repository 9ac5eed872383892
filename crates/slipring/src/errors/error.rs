//! The error from building or running a graph.

use std::error::Error as StdError;
use std::fmt;

use super::build::BuildError;
use super::failure::Failure;
use super::report::Report;
use crate::base::name::Name;

/// The error from building or running a graph. The error of a run carries the first failure: the
/// stage, the event, and the user's own error.
///
/// ```
/// use slipring::errors::ErrorKind;
/// use std::num::ParseIntError;
///
/// let error = slipring::ring(8, String::new)
///     .read("parse", |text: &String, _| text.parse::<u64>().map(|_| ()))
///     .feed(["1", "2", "x"], |slot, text| *slot = text.into())
///     .unwrap_err();
///
/// assert!(matches!(error.kind(), ErrorKind::Failed(_)));
/// assert_eq!((error.stage(), error.seq()), (Some("parse"), Some(2)));
/// assert!(error.downcast_ref::<ParseIntError>().is_some());
/// assert_eq!(error.failure().unwrap().stage().as_str(), "parse");
/// assert_eq!(error.report().unwrap().producer().events, 3);
/// ```
pub struct Error(Box<ErrorParts>);

struct ErrorParts {
    kind: ErrorKind,
    report: Option<Report>,
}

/// The kinds of an [`Error`].
///
/// Example: [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The graph could not be built.
    Build(BuildError),
    /// A stage or a producer failed while the graph ran.
    Failed(Failure),
    /// After the graph had ended without a failure, the drop of an event panicked with this
    /// message.
    EventDrop(String),
}

impl Error {
    pub(crate) fn failed(failure: Failure, report: Report) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Failed(failure), report: Some(report) }))
    }

    pub(crate) fn event_drop(panic: String, report: Report) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::EventDrop(panic), report: Some(report) }))
    }

    /// Returns the kind of error.
    ///
    /// Example: [`Error`].
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns whether the build of the graph failed, so that no stage has run.
    ///
    /// ```
    /// let error = slipring::ring(3, || 0).feed(0..9, |slot, i| *slot = i).unwrap_err();
    /// assert!(error.is_build()); // 3 is no power of two
    /// ```
    pub fn is_build(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Build(_))
    }

    /// Returns the name of the stage that failed, if the graph ran. The name is
    /// [`PRODUCER`](crate::stages::PRODUCER) if a producer failed.
    ///
    /// Example: [`Error`].
    pub fn stage(&self) -> Option<&str> {
        self.failure().map(|failure| failure.stage().as_str())
    }

    /// Returns the position of the event at which the stage failed, if one event was at fault.
    ///
    /// Example: [`Error`].
    pub fn seq(&self) -> Option<u64> {
        self.failure().and_then(Failure::seq)
    }

    /// Returns the first failure, if a stage or a producer failed while the graph ran.
    ///
    /// Example: [`Error`].
    pub fn failure(&self) -> Option<&Failure> {
        match &self.0.kind {
            ErrorKind::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Returns the user's own error, if that error's type is `T`.
    ///
    /// Example: [`Error`].
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        self.failure().and_then(Failure::downcast_ref)
    }

    /// Returns the counts of each stage, if the graph ran.
    ///
    /// Example: [`Error`].
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

/// The reason why a pipeline could not be joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// A stage has not ended yet: a producer is open, events are left, or the stage's handler has
    /// not returned.
    StillRunning {
        /// A stage that has not ended.
        stage: Name,
        /// Number of events that the stage has not released. The number includes events that a
        /// producer has claimed but not yet published.
        left: u64,
    },
    /// The pipeline has ended with a failure.
    Failed(Error),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::StillRunning { stage, left } => write!(
                f,
                "stage `{stage}` is still running, with {left} event{} left; close the producers, \
                 or halt the pipeline",
                if *left == 1 { "" } else { "s" }
            ),
            JoinError::Failed(error) => error.fmt(f),
        }
    }
}

impl StdError for JoinError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            JoinError::Failed(error) => error.source(),
            JoinError::StillRunning { .. } => None,
        }
    }
}
