//! The stages behind the parse. All modes use the same stages, so that no mode does less than
//! another.

use std::path::Path;

use anyhow::Result;

use super::detect::Detector;
use super::journal::Journal;
use super::summary::Summary;

/// The state of the three stages behind the parse. Each is a field of its own, because the ring's
/// stages run at the same time.
///
/// The fields share no cache line, because stages run at the same time: two threads that change
/// values of one line take it from each other at each change. In runs where the fields happened to
/// meet in one line, the ring lost a seventh of its rate.
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
