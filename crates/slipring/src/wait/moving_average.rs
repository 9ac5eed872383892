//! Moving averages of the durations that waiters learn, in nanoseconds.

use std::time::{Duration, Instant};

/// Weight of a new sample in an average, from 0 to 1.
pub(super) const WEIGHT: f64 = 1.0 / 8.0;

/// Value by which [`MovingAverage::learn_clamped`] replaces a smaller mean, in nanoseconds. A
/// sample is limited to twice the mean, so a mean of zero would limit every sample to zero and
/// never grow again.
const LEAST_CLAMP: f64 = 1_000.0;

/// An exponential moving average of samples, and the average distance of samples from that average.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingAverage {
    pub(super) mean: f64,
    /// Average distance of the samples from the mean.
    pub(super) deviation: f64,
    /// Number of samples; the number saturates at 2^32 - 1.
    pub(super) samples: u32,
}

impl MovingAverage {
    /// Returns an average without samples. The given mean is a guess, which the first sample
    /// replaces.
    pub(super) fn new(mean: f64) -> MovingAverage {
        MovingAverage { mean, deviation: mean, samples: 0 }
    }
    pub(super) fn learn(&mut self, sample: f64) {
        // The first eight samples weigh as in an arithmetic mean. The sum is a float, because the
        // sample count may be at its integer type's maximum.
        let weight = WEIGHT.max(1.0 / (f64::from(self.samples) + 1.0));
        let distance = (sample - self.mean).abs();
        self.deviation = if self.samples == 0 {
            sample
        } else {
            self.deviation + weight * (distance - self.deviation)
        };
        self.mean += weight * (sample - self.mean);
        self.samples = self.samples.saturating_add(1);
    }
    /// Learns a sample. From the ninth sample on, each sample is limited to twice the mean, because
    /// an outlier describes one moment and not the machine.
    pub(super) fn learn_clamped(&mut self, sample: f64) {
        let most = if self.samples < 8 { f64::INFINITY } else { 2.0 * self.mean.max(LEAST_CLAMP) };
        self.learn(sample.min(most));
    }
    /// Lowers the average by a share between 0 and 1, in place of learning a sample.
    pub(super) fn decay(&mut self, share: f64) {
        self.mean *= 1.0 - share;
        self.deviation *= 1.0 - share;
    }
    /// Returns whether there are eight samples or more, and the deviation is below a tenth of the
    /// mean.
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

/// Returns `time` plus `nanos` nanoseconds, or `time` if the clock cannot represent the sum.
pub(super) fn after(time: Instant, nanos: f64) -> Instant {
    time.checked_add(duration(nanos)).unwrap_or(time)
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// At 10^6 samples a second the sample count reaches its maximum after an hour and a half.
    #[test]
    fn an_average_learns_after_its_sample_count_is_at_its_maximum() {
        let mut average = MovingAverage { mean: 100.0, deviation: 10.0, samples: u32::MAX };
        for _ in 0..200 {
            average.learn(300.0);
        }
        assert!((average.mean - 300.0).abs() < 1.0 && average.deviation < 1.0, "{average:?}");
        assert!(average.is_steady());
    }

    /// While events come too fast for a nap, a waiter's average of the timer lateness decays.
    #[test]
    fn an_average_that_decayed_for_long_learns_again_within_fifty_samples() {
        let mut average = MovingAverage { mean: 7_000.0, deviation: 100.0, samples: 1_000 };
        for _ in 0..1_000_000 {
            average.decay(0.01);
        }
        for _ in 0..50 {
            average.learn_clamped(7_000.0);
        }
        assert!(average.mean > 6_000.0, "{average:?}");
    }
}
