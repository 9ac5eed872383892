//! Detects readings that are out of the ordinary: more than four standard deviations from the mean
//! of the preceding 14 days.
//!
//! A window slides over the readings of one dimension of one station. The usual algorithm adds each
//! new reading to running sums and subtracts each old one. Every subtraction loses digits, until
//! the error exceeds the deviation itself; then a constant value would raise alarms. This window
//! **never subtracts**. It has two halves, of newer and of older readings. Each half keeps its
//! statistics as a [`Spread`] (count, mean, squared deviations), and two spreads can be joined:
//!
//! ```text
//!   oldest                                                       newest
//!   [ older: each reading with the spread of   ][ newer: one spread of all, ]
//!   [ itself and of all newer ones in its half ][ joined with each new one  ]
//! ```
//!
//! 1. A new reading joins the spread of the newer half.
//! 2. A reading that becomes too old is removed from the older half; the spread of the rest is
//!    stored with the next reading.
//! 3. When the older half is empty, the newer half becomes the older one, and its spreads are
//!    computed from its newest reading to its oldest.
//!
//! So the window joins each reading twice, whatever the window's length: O(1) on average (this is
//! the two-stack queue). The result depends only on the readings in the window and the border
//! between the halves. One stage handles all readings in order, so every mode gets the same result.

use std::collections::HashMap;

use super::columns::{DIMENSIONS, WIND_DIRECTION};
use super::row::Row;

/// Length of the window: 14 days, in seconds. A reading of exactly this age is still in the window.
pub const WINDOW: i64 = 14 * 24 * 3600;

/// Number of readings that a window needs before a reading can raise an alarm.
pub const MIN_READINGS: u32 = 100;

/// Distance from the mean beyond which a reading raises an alarm, in standard deviations.
pub const DEVIATIONS: f64 = 4.0;

/// Count, mean, and sum of squared deviations from the mean of a set of readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    count: u32,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn of(value: f64) -> Self {
        Self { count: 1, mean: value, squares: 0.0 }
    }

    /// Returns the spread of two sets together, by the formula of Chan, Golub and LeVeque. For
    /// equal means the squares are exactly the sum of both, so equal readings have no deviation.
    fn join(self, other: Self) -> Self {
        if self.count == 0 {
            return other;
        }
        let count = self.count + other.count;
        let share = f64::from(other.count) / f64::from(count);
        let apart = other.mean - self.mean;
        Self {
            count,
            mean: self.mean + apart * share,
            squares: self.squares + other.squares + apart * apart * share * f64::from(self.count),
        }
    }

    /// Returns the number of readings.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the mean of the readings.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the sample variance of the readings (divided by one less than the count).
    pub fn variance(&self) -> f64 {
        if self.count < 2 { 0.0 } else { self.squares / f64::from(self.count - 1) }
    }

    /// Returns whether a value is out of the ordinary among these readings. It compares squares, so
    /// it computes no square root.
    pub fn is_alarm(&self, value: f64) -> bool {
        let (distance, variance) = (value - self.mean, self.variance());
        self.count >= MIN_READINGS
            && variance > 0.0
            && distance * distance > DEVIATIONS * DEVIATIONS * variance
    }
}

/// One station's readings in one dimension, over the last 14 days.
#[derive(Debug, Default)]
pub struct Window {
    /// Times of the older half, the oldest last. Each time comes with the spread of its reading and
    /// all newer readings of this half.
    older: Vec<(i64, Spread)>,
    /// Times and readings of the newer half, in order.
    newer: Vec<(i64, f64)>,
    /// Spread of the newer half.
    spread: Spread,
}

impl Window {
    /// Removes readings that are too old at `time`, and returns the spread of the rest. Times must
    /// not decrease.
    pub fn spread_before(&mut self, time: i64) -> Spread {
        let oldest = time - WINDOW;
        loop {
            if self.older.is_empty() && self.newer.first().is_some_and(|&(t, _)| t < oldest) {
                self.move_newer_to_older();
            }
            match self.older.last() {
                Some(&(t, _)) if t < oldest => self.older.pop(),
                Some(&(_, older)) => return self.spread.join(older),
                None => return self.spread,
            };
        }
    }

    /// Adds a reading.
    pub fn push(&mut self, time: i64, value: f64) {
        self.newer.push((time, value));
        self.spread = self.spread.join(Spread::of(value));
    }

    /// Moves all values of the newer half into the older half. Both halves keep their memory.
    fn move_newer_to_older(&mut self) {
        let mut spread = Spread::default();
        for (time, value) in self.newer.drain(..).rev() {
            spread = spread.join(Spread::of(value));
            self.older.push((time, spread));
        }
        self.spread = Spread::default();
    }
}

/// The windows of all dimensions of all stations: the state of the stage.
#[derive(Debug, Default)]
#[repr(align(128))] // on cache lines of its own: see `Stages`
pub struct Detector {
    /// Index of each station, by its name.
    indices: HashMap<Box<str>, usize>,
    stations: Vec<[Window; DIMENSIONS.len()]>,
}

impl Detector {
    /// Marks the row's readings that are out of the ordinary, and adds all readings to their
    /// windows.
    pub fn mark(&mut self, row: &mut Row) {
        if row.fault().is_some() {
            return;
        }
        let station = match self.indices.get(row.station()) {
            Some(&index) => index,
            None => self.add_station(row.station()),
        };
        let (time, windows) = (row.time(), &mut self.stations[station]);
        let mut alarms = 0;
        for (dimension, value) in
            row.readings().filter(|&(dimension, _)| dimension != WIND_DIRECTION)
        {
            let window = &mut windows[dimension];
            if window.spread_before(time).is_alarm(value) {
                alarms |= 1 << dimension;
            }
            window.push(time, value);
        }
        row.mark(station, alarms);
    }

    fn add_station(&mut self, name: &str) -> usize {
        let index = self.stations.len();
        self.stations.push(Default::default());
        self.indices.insert(name.into(), index);
        index
    }
}
