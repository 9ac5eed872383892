//! The error of calls on segments.
//!
//! Invariants
//! - I1: the message of an error contains the message of its cause, and the error's source is the
//!   cause's own source.

use std::error::Error as StdError;
use std::fmt;

use super::Problem;

/// The reason why a segment could not be made, opened, attached to, inspected or removed, or why
/// one of its participants was not evicted. The error also names the segment.
///
/// ```
/// use slipring_shm::errors::{NameProblem, Problem};
///
/// let error = slipring_shm::remove("a/b").unwrap_err();
/// assert!(matches!(error.problem(), Problem::Name(NameProblem::Slash)));
/// assert_eq!(
///     error.to_string(),
///     "segment \"a/b\": the name has a slash: leave it out, or give a whole path (`create_at`, `open_at`)"
/// );
/// ```
pub struct SegmentError {
    location: String,
    problem: Box<Problem>,
}

impl SegmentError {
    /// Makes an error whose message begins with `location`.
    pub(crate) fn new(location: impl Into<String>, problem: impl Into<Problem>) -> SegmentError {
        SegmentError { location: location.into(), problem: Box::new(problem.into()) }
    }

    pub(crate) fn at(location: &impl fmt::Display, problem: impl Into<Problem>) -> SegmentError {
        SegmentError::new(location.to_string(), problem)
    }

    /// Returns the reason of the error.
    ///
    /// Example: [`SegmentError`].
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the segment's path, the label of its memfd, or the name as it was given.
    ///
    /// ```
    /// assert_eq!(slipring_shm::remove("a/b").unwrap_err().location(), "\"a/b\"");
    /// ```
    pub fn location(&self) -> &str {
        &self.location
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}: {}", self.location, self.problem)
    }
}

// `unwrap`, and a `main` that returns an error, print it by `Debug`.
impl fmt::Debug for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for SegmentError {
    /// Returns the source of the system's error, or of the graph's error (I1).
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.problem {
            Problem::System { error, .. } => error.source(),
            problem => problem.source(),
        }
    }
}

impl From<SegmentError> for slipring::Error {
    fn from(error: SegmentError) -> slipring::Error {
        slipring::Error::call(error)
    }
}
