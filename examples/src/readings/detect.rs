//! Which readings are out of the ordinary: more than four standard deviations from the mean of the
//! preceding 14 days.
//!
//! A window moves over the readings of one dimension of one station: a reading enters at one end,
//! those older than 14 days leave at the other. The usual way, to add what enters to sums and to
//! take what leaves off again, loses digits with each step: after a while the rest of what was
//! taken away is larger than the deviation itself, and a constant value, which has none, would
//! raise alarms. Here **nothing is ever taken off**. A window is two halves, newer and older
//! readings, and each keeps what it needs as a [`Spread`] (count, mean, squared deviations), which
//! can be joined to another one:
//!
//! ```text
//!   oldest                                   newest
//!   [ older: each with the spread of itself  ][ newer: one spread of all of them,  ]
//!   [ and of all behind it in this half      ][ a reading that enters is joined in ]
//! ```
//!
//! A reading that leaves is the first one of the older half: the next one's spread is known
//! already. When the older half is used up, the newer half becomes the older one and its spreads
//! are built once, from its end to its beginning. So a reading is joined twice in its life and
//! looked up once, whatever the window's length: O(1) on average. Mean and deviation of a window
//! depend on nothing but the readings inside and where the halves meet. As one stage does this, in
//! order, that is the same in every mode.

use std::collections::HashMap;

use super::columns::{DIMENSIONS, WIND_DIRECTION};
use super::row::Row;

/// The window's length in seconds: 14 days. A reading that is exactly as old as that is still
/// inside.
pub const WINDOW: i64 = 14 * 24 * 3600;

/// With fewer readings than that in its window, a reading is not judged.
pub const LEAST: u32 = 100;

/// A reading that is further from the mean than so many standard deviations is an alarm.
pub const DEVIATIONS: f64 = 4.0;

/// Count, mean and sum of squared deviations from the mean of some readings.
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

    /// The spread of two groups together (Chan, Golub and LeVeque's formula, Welford's for a group
    /// of one). Equal means give squares that are exactly the sum of both: readings without
    /// deviation have a spread without deviation.
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

    /// How many readings there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their variance (of a sample: divided by one less than the count).
    pub fn variance(&self) -> f64 {
        if self.count < 2 { 0.0 } else { self.squares / f64::from(self.count - 1) }
    }

    /// Whether a value is out of the ordinary beside these readings. Both sides squared: the same
    /// answer without a root.
    pub fn is_alarm(&self, value: f64) -> bool {
        let (apart, variance) = (value - self.mean, self.variance());
        self.count >= LEAST && variance > 0.0 && apart * apart > DEVIATIONS * DEVIATIONS * variance
    }
}

/// The readings of the last 14 days of one dimension of one station.
#[derive(Debug, Default)]
pub struct Window {
    /// The older half, the oldest last, each with the spread of itself and all newer ones of this
    /// half.
    older: Vec<(i64, Spread)>,
    /// The newer half, in order.
    newer: Vec<(i64, f64)>,
    spread: Spread,
}

impl Window {
    /// Lets go of what is too old at a time, and tells the spread of what is left. Times must not
    /// go back.
    pub fn spread_before(&mut self, time: i64) -> Spread {
        let oldest = time - WINDOW;
        loop {
            if self.older.is_empty() && self.newer.first().is_some_and(|&(t, _)| t < oldest) {
                self.turn_over();
            }
            match self.older.last() {
                Some(&(t, _)) if t < oldest => self.older.pop(),
                Some(&(_, older)) => return self.spread.join(older),
                None => return self.spread,
            };
        }
    }

    /// Takes in a reading.
    pub fn push(&mut self, time: i64, value: f64) {
        self.newer.push((time, value));
        self.spread = self.spread.join(Spread::of(value));
    }

    /// Makes the newer half the older one. Both keep their memory.
    fn turn_over(&mut self) {
        let mut spread = Spread::default();
        for (time, value) in self.newer.drain(..).rev() {
            spread = spread.join(Spread::of(value));
            self.older.push((time, spread));
        }
        self.spread = Spread::default();
    }
}

/// All windows: the stage's state.
#[derive(Debug, Default)]
pub struct Detector {
    places: HashMap<Box<str>, usize>,
    stations: Vec<[Window; DIMENSIONS.len()]>,
}

impl Detector {
    /// Marks the row's readings that are out of the ordinary, and takes them into their windows.
    pub fn mark(&mut self, row: &mut Row) {
        if row.fault().is_some() {
            return;
        }
        let place = match self.places.get(row.station()) {
            Some(&place) => place,
            None => self.add_station(row.station()),
        };
        let (time, windows) = (row.time(), &mut self.stations[place]);
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
        row.mark(place, alarms);
    }

    fn add_station(&mut self, name: &str) -> usize {
        let place = self.stations.len();
        self.stations.push(Default::default());
        self.places.insert(name.into(), place);
        place
    }
}
