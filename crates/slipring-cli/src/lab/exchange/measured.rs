//! The measured data: the executions of each setup.

use std::time::Instant;

use super::about::WORD;
use super::measure::{Execution, Setup};
use super::placement::Placement;
use crate::lab::interval::Interval;

/// The measured data.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Cores of writer and reader.
    pub placements: Vec<Placement>,
    /// Size of the memory that each end works through to make its caches cold, in bytes.
    pub cold_bytes: usize,
    /// Start of the measurement.
    pub began: Instant,
    /// Results by setup.
    pub series: Vec<Series>,
}

impl Measured {
    /// Keeps only the executions of the first `rounds` rounds, so that all series have the same
    /// number.
    pub fn keep_rounds(&mut self, rounds: usize) {
        self.series.iter_mut().for_each(|series| series.executions.truncate(rounds));
    }
}

/// The executions of one setup.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the way.
    pub way: String,
    /// Cores of the two ends.
    pub placement: Placement,
    /// Size of a block, in bytes.
    pub bytes: usize,
    /// Whether both ends made their caches cold between two blocks.
    pub cold: bool,
    /// All executions.
    pub executions: Vec<Execution>,
}

impl Series {
    pub fn new(setup: &Setup) -> Series {
        Series {
            way: setup.way.to_string(),
            placement: setup.placement,
            bytes: setup.words * WORD,
            cold: setup.cold.is_some(),
            executions: Vec::new(),
        }
    }

    /// Returns the time that reading a block takes, in nanoseconds: the mean of the executions'
    /// means, and its 95 % interval.
    pub fn read(&self) -> Option<Interval> {
        self.interval(|execution| execution.read.mean_ns)
    }

    /// Returns the time from the end of writing to the start of reading, in nanoseconds: the mean
    /// of the executions' means, and its 95 % interval.
    pub fn latency(&self) -> Option<Interval> {
        self.interval(|execution| execution.latency.mean_ns)
    }

    fn interval(&self, mean: fn(&Execution) -> f64) -> Option<Interval> {
        Interval::of(&self.executions.iter().map(mean).collect::<Vec<f64>>())
    }

    /// Returns the placement and the state of the caches in words.
    pub fn setting(&self) -> String {
        let core = self.placement.reader.map_or("not pinned".into(), |core| format!("core {core}"));
        let caches = if self.cold { "cold" } else { "warm" };
        format!("{core}, {}, {caches}", self.placement.relation.name())
    }
}
