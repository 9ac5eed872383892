//! Work of a stage that takes a stated time on this machine.
//!
//! The work is a number of computing steps, not a time on the clock. So a stage whose thread has to
//! give up its core takes longer, as with real work.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of one calibration.
const STEPS: u64 = 200_000;
/// Number of calibrations. The fastest one counts, because a disturbance can only make a
/// calibration slower.
const TRIES: usize = 15;

/// An amount of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    steps: u64,
}

impl Work {
    /// Returns the work that takes this time on an undisturbed core.
    pub fn of(time: Duration) -> Work {
        let fastest = (0..TRIES).map(|_| {
            let began = Instant::now();
            Work { steps: STEPS }.perform();
            began.elapsed()
        });
        let fastest = fastest.min().unwrap_or_default().max(Duration::from_nanos(1));
        let steps = time.as_secs_f64() / fastest.as_secs_f64() * STEPS as f64;
        Work { steps: steps.round() as u64 }
    }

    /// Performs the work.
    pub fn perform(self) {
        let mut state = black_box(1_u64);
        for _ in 0..self.steps {
            // Each step waits for the previous one, so the steps cannot be done at once or left
            // out.
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_no_work_and_more_time_is_more_work() {
        assert_eq!(Work::of(Duration::ZERO), Work { steps: 0 });
        let [less, more] = [Duration::from_millis(1), Duration::from_secs(1)].map(Work::of);
        assert!(0 < less.steps && less.steps < more.steps, "{less:?} {more:?}");
    }
}
