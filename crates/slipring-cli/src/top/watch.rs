//! Repeated looks at one segment, independent of how they are shown.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use slipring_shm::SegmentError;

use super::history::{History, Moment};
use super::view::Look;
use crate::segments::words;

/// Looks at one segment again and again.
pub struct Watch<'a> {
    /// The segment: a name, or a path with a slash.
    segment: &'a OsStr,
    /// Time between two looks.
    pub interval: Duration,
    /// Number of looks that are left.
    pub left: u64,
    /// Name of the segment, or its path, as the last look has found it.
    name: String,
    history: History,
}

impl<'a> Watch<'a> {
    /// Makes a watch that looks at most `left` times.
    pub fn new(segment: &'a OsStr, interval: Duration, left: u64) -> Watch<'a> {
        Watch { segment, interval, left, name: String::new(), history: History::default() }
    }

    /// Looks at the segment. If the first look fails, its error ends the command (I2 of `top`).
    pub fn look(&mut self) -> Result<Look, SegmentError> {
        let result = words::inspect(self.segment);
        self.left -= 1;
        let result = match result {
            Err(error) if self.history.is_new() => return Err(error),
            Ok(summary) => {
                self.name = words::name(&summary);
                Ok(summary)
            }
            Err(error) => Err(self.history.explain(&error)),
        };
        Ok(self.history.look(&self.name, Moment::now(), result))
    }
}

/// Returns the time of the next look, if the last look was due at `due`. Missed looks are not made
/// up for.
pub fn next(due: Instant, interval: Duration) -> Instant {
    (due + interval).max(Instant::now())
}
