//! Values that waiters learn, in nanoseconds.

use std::time::{Duration, Instant};

/// Learned values move by this fraction of the difference at each sample.
pub(super) const PACE: f64 = 1.0 / 8.0;

/// What is less than this is usual whatever was learned, so that a value that was forgotten is soon
/// learned again.
const LEAST_USUAL: f64 = 1_000.0;

/// A value that is tracked, and how far samples lie from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingAverage {
    pub(super) mean: f64,
    pub(super) deviation: f64,
    pub(super) samples: u32,
}

impl MovingAverage {
    pub(super) fn new(mean: f64) -> MovingAverage {
        MovingAverage { mean, deviation: mean, samples: 0 }
    }
    pub(super) fn learn(&mut self, sample: f64) {
        // The first samples count in full, so that nothing is left of the guess.
        // Added as a float: the count stays at its maximum.
        let pace = PACE.max(1.0 / (f64::from(self.samples) + 1.0));
        let off = (sample - self.mean).abs();
        self.deviation =
            if self.samples == 0 { sample } else { self.deviation + pace * (off - self.deviation) };
        self.mean += pace * (sample - self.mean);
        self.samples = self.samples.saturating_add(1);
    }
    /// As [`MovingAverage::learn`], but what is far beyond everything known counts as twice that: it says
    /// more about the moment than about the machine.
    pub(super) fn learn_usual(&mut self, sample: f64) {
        let most = if self.samples < 8 { f64::INFINITY } else { 2.0 * self.mean.max(LEAST_USUAL) };
        self.learn(sample.min(most));
    }
    /// Makes it a little less, for want of samples.
    pub(super) fn forget(&mut self) {
        self.mean *= 0.99;
        self.deviation *= 0.99;
    }
    /// Samples hardly differ.
    pub(super) fn is_steady(&self) -> bool {
        self.samples >= 8 && self.deviation < self.mean / 10.0
    }
}

pub(super) fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

pub(super) fn duration(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.clamp(0.0, 1e18) as u64)
}

pub(super) fn after(time: Instant, nanos: f64) -> Instant {
    time.checked_add(duration(nanos)).unwrap_or(time)
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// At 10^6 samples a second the count is at its maximum after an hour and a half.
    #[test]
    fn samples_beyond_the_count_are_learned_like_others() {
        let mut track = MovingAverage { mean: 100.0, deviation: 10.0, samples: u32::MAX };
        for _ in 0..200 {
            track.learn(300.0);
        }
        assert!((track.mean - 300.0).abs() < 1.0 && track.deviation < 1.0, "{track:?}");
        assert!(track.is_steady());
    }

    /// A waiter forgets how late timers are while events come too fast for a timer.
    #[test]
    fn what_was_forgotten_for_long_is_soon_learned_again() {
        let mut track = MovingAverage { mean: 7_000.0, deviation: 100.0, samples: 1_000 };
        for _ in 0..1_000_000 {
            track.forget();
        }
        for _ in 0..50 {
            track.learn_usual(7_000.0);
        }
        assert!(track.mean > 6_000.0, "{track:?}");
    }
}
