//! The error from building or running a graph, into which all other errors convert.

use std::error::Error as StdError;
use std::fmt;

use super::build::BuildError;
use super::calls::{BatchError, BindError, ClaimError, NotHeld};
use super::failure::Failure;
use super::pass::PassError;
use super::promise::{Abandoned, AwaitError};
use super::report::Report;
use super::values::{ConflateError, ObserveError, UnknownWait};
use super::wait::{SubscribeError, WaitError};
use crate::base::available_memory::MemoryShortage;
use crate::base::fault::{Fault, debug_is_message};
use crate::base::name::Name;

/// The error from building or running a graph, or from any call of the library. The error of a run
/// carries the first failure: the stage, the event, and the user's own error.
///
/// The error of each call of the library, and of the crates beside it, converts into this one by
/// `?`. What such errors carry does not ([`Failure`], [`NameLost`](crate::errors::NameLost)), nor
/// does a [`Fault`](crate::faults::Fault) or an error of another library: a function that meets a
/// fault or such an error returns `Box<dyn std::error::Error + Send + Sync>`.
///
/// ```
/// use slipring::{Mirror, Wait, errors::WaitError};
///
/// fn main() -> Result<(), slipring::Error> {
///     let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
///     tx.publish(|slot| *slot = 7)?;
///     rx.try_batch(8)?.release();
///     let _last = Mirror::<u64>::new(1)?;
///     let _wait: Wait = "adaptive:25%".parse()?;
///     tx.close();
///     let ended: slipring::Error = rx.batch(8).err().unwrap().into();
///     assert!(matches!(ended.downcast_ref(), Some(WaitError::Closed)));
///     Ok(())
/// }
/// ```
///
/// An error of a run:
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
    /// A call failed, without a failure of the graph. [`Error::downcast_ref`] returns the error of
    /// the call.
    Call(Fault),
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

    /// Makes an error of an error that a call returned. Crates beside this one convert their errors
    /// by it.
    #[doc(hidden)]
    pub fn call(error: impl StdError + Send + Sync + 'static) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Call(error.into()), report: None }))
    }

    /// Makes an error of the failure that a call returned.
    fn ended(failure: Failure) -> Error {
        Error(Box::new(ErrorParts { kind: ErrorKind::Failed(failure), report: None }))
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
    /// let chain = slipring::ring(3, || 0).read("print", |_, _| ());
    /// let error = chain.feed(0..9, |slot, i| *slot = i).unwrap_err();
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

    /// Returns the user's own error, or the error of a call ([`ErrorKind::Call`]), if that error's
    /// type is `T`.
    ///
    /// Example: [`Error`].
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        match &self.0.kind {
            ErrorKind::Failed(failure) => failure.downcast_ref(),
            ErrorKind::Call(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the counts of each stage, if this is the error of a run.
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

impl From<MemoryShortage> for Error {
    fn from(shortage: MemoryShortage) -> Error {
        BuildError::from(shortage).into()
    }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Error {
        match error {
            WaitError::Failed(failure) => Error::ended(failure),
            error => Error::call(error),
        }
    }
}

/// Implements the conversion of errors of calls: of those that may carry the failure of the graph,
/// in the variant that is named, and of the others.
macro_rules! from_calls {
    ($($error:ident::$failed:ident),* ; $($other:ident),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                match error {
                    $error::$failed(WaitError::Failed(failure)) => Error::ended(failure),
                    error => Error::call(error),
                }
            }
        })*
        $(impl From<$other> for Error {
            fn from(error: $other) -> Error {
                Error::call(error)
            }
        })*
    };
}

from_calls!(
    AwaitError::Wait, BatchError::Wait, ClaimError::Wait, PassError::Wait, SubscribeError::Ended;
    BindError, NotHeld, ObserveError, UnknownWait
);

impl From<JoinError> for Error {
    fn from(error: JoinError) -> Error {
        match error {
            JoinError::Failed(error) => error,
            error => Error::call(error),
        }
    }
}

impl<T: Send + Sync + 'static> From<ConflateError<T>> for Error {
    fn from(error: ConflateError<T>) -> Error {
        match error {
            ConflateError::Wait(reason) => reason.into(),
            error => Error::call(error),
        }
    }
}

impl<T: Send + Sync + 'static> From<Abandoned<T>> for Error {
    fn from(error: Abandoned<T>) -> Error {
        Error::call(error)
    }
}

debug_is_message!(Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Build(error) => error.fmt(f),
            ErrorKind::Failed(failure) => failure.fmt(f),
            ErrorKind::Call(error) => fmt::Display::fmt(error.as_error(), f),
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
            ErrorKind::Call(error) => error.as_error().source(),
            _ => None,
        }
    }
}

/// The reason why a pipeline could not be joined.
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
    /// The time to drain has passed, so [`Pipeline::drain`](crate::Pipeline::drain) has halted the
    /// pipeline. All stages have ended.
    Halted {
        /// A stage that had not ended.
        stage: Name,
        /// Number of events that the stage had not released, counted as in
        /// [`JoinError::StillRunning`].
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
                "stage `{stage}` is still running, with {left} event{} left: close the producers, \
                 or halt the pipeline; if that is done, its handler has not returned",
                plural(*left)
            ),
            JoinError::Halted { stage, left } => write!(
                f,
                "the pipeline was halted before stage `{stage}` had ended, with {left} event{} \
                 left; close the producers earlier, or allow more time to drain",
                plural(*left)
            ),
            JoinError::Failed(error) => error.fmt(f),
        }
    }
}

debug_is_message!(JoinError);

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl StdError for JoinError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            JoinError::Failed(error) => error.source(),
            JoinError::StillRunning { .. } | JoinError::Halted { .. } => None,
        }
    }
}
