//! The stages behind the parse. All modes use the same ones, so that no mode does less than
//! another.

use std::path::Path;

use anyhow::Result;

use super::detect::Detector;
use super::journal::Journal;
use super::summary::Summary;

/// The state of the three stages behind the parse. Each is a field of its own, because the ring
/// runs each on its own thread.
#[derive(Debug)]
pub struct Stages {
    /// Marks readings that are out of the ordinary.
    pub detector: Detector,
    /// Writes readings to the journal.
    pub journal: Journal,
    /// Counts and sums readings.
    pub summary: Summary,
}

impl Stages {
    /// Makes stages without any rows yet, with a journal in a file or in none.
    pub fn start(output: Option<&Path>) -> Result<Self> {
        Ok(Self {
            detector: Detector::default(),
            journal: Journal::create(output)?,
            summary: Summary::default(),
        })
    }
}
