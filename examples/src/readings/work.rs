//! What follows the parse: the same objects in every mode, so that no mode does less than another.

use std::path::Path;

use anyhow::Result;

use super::detect::Detector;
use super::journal::Journal;
use super::summary::Summary;

/// The state of the three stages behind the parse, each by itself, since a ring has a thread for
/// each.
#[derive(Debug)]
pub struct Work {
    /// Marks readings.
    pub detector: Detector,
    /// Writes them down.
    pub journal: Journal,
    /// Sums them up.
    pub summary: Summary,
}

impl Work {
    /// Starts anew, with a journal in a file or in none.
    pub fn start(output: Option<&Path>) -> Result<Self> {
        Ok(Self {
            detector: Detector::default(),
            journal: Journal::create(output)?,
            summary: Summary::default(),
        })
    }
}
