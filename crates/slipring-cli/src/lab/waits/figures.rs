//! The figures of one run, and medians and extremes over several runs.

/// The figures of a run, or the median, minimum or maximum of each over several runs. A figure is
/// absent where the system does not provide it or the run is too short for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Events handled per second, from the start to the waiter's end.
    pub events_per_s: f64,
    /// Median latency, in nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile of latency, in nanoseconds.
    pub p99_ns: f64,
    /// 99.9th percentile of latency, in nanoseconds.
    pub p999_ns: f64,
    /// Longest latency, in nanoseconds.
    pub max_ns: f64,
    /// Share of a core that the waiter used, 0 to 1.
    pub waiter_share: Option<f64>,
    /// Share of a core that the waiter used in its busiest second, 0 to 1.
    pub share_max_1s: Option<f64>,
    /// Share of the time for which the waiter was runnable but had no core, 0 to 1.
    pub waiter_kept_waiting: Option<f64>,
    /// Average number of cores that other processes used. Absent while the bystander runs.
    pub others_cores: Option<f64>,
    /// Mean time of a publishing call, including one reading of the clock, in nanoseconds.
    pub publish_ns: f64,
    /// Median delay of the publishing call after an event was due, in nanoseconds. Every latency
    /// contains its event's delay. Absent for bursts.
    pub producer_late_p50_ns: Option<f64>,
    /// Processor time of the waiter and of publishing, in seconds per million events.
    pub cpu_s_per_million: Option<f64>,
    /// Share of its work that the bystander lost, 0 to 1; below 0 where noise exceeds the loss.
    pub bystander_loss: Option<f64>,
}

impl Figures {
    /// For each figure, calls `pick` to combine the values of all runs. A figure that a run lacks
    /// is absent from the result.
    pub fn over(runs: &[&Self], pick: fn(Vec<f64>) -> f64) -> Self {
        let of = |figure: fn(&Self) -> f64| pick(runs.iter().map(|run| figure(run)).collect());
        let maybe = |figure: fn(&Self) -> Option<f64>| {
            runs.iter().map(|run| figure(run)).collect::<Option<Vec<f64>>>().map(pick)
        };
        Self {
            events_per_s: of(|run| run.events_per_s),
            p50_ns: of(|run| run.p50_ns),
            p99_ns: of(|run| run.p99_ns),
            p999_ns: of(|run| run.p999_ns),
            max_ns: of(|run| run.max_ns),
            waiter_share: maybe(|run| run.waiter_share),
            share_max_1s: maybe(|run| run.share_max_1s),
            waiter_kept_waiting: maybe(|run| run.waiter_kept_waiting),
            others_cores: maybe(|run| run.others_cores),
            publish_ns: of(|run| run.publish_ns),
            producer_late_p50_ns: maybe(|run| run.producer_late_p50_ns),
            cpu_s_per_million: maybe(|run| run.cpu_s_per_million),
            bystander_loss: maybe(|run| run.bystander_loss),
        }
    }
}

/// Returns the smallest value.
pub fn minimum(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// Returns the largest value.
pub fn maximum(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// Samples of a thread's processor time, taken by another thread.
#[derive(Clone, Debug, Default)]
pub struct CpuSamples(Vec<CpuSample>);

/// The processor time `on_core` that the thread had used at the time `at`, both in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct CpuSample {
    at: u64,
    on_core: u64,
}

impl CpuSamples {
    /// Adds a sample: the processor time `on_core` used until `at`, both in nanoseconds.
    pub fn add(&mut self, at: u64, on_core: u64) {
        self.0.push(CpuSample { at, on_core });
    }

    /// Returns the largest share of a core that was used in any window. A window ends at a sample,
    /// and begins at the latest sample that is at least `window` nanoseconds earlier.
    pub fn largest_share(&self, window: u64) -> Option<f64> {
        let ends = self.0.iter().enumerate().filter_map(|(i, end)| {
            let begin = self.0[..i].iter().rev().find(|begin| end.at - begin.at >= window)?;
            // The counter of a running thread moves in steps, so a share can exceed a core.
            Some(((end.on_core - begin.on_core) as f64 / (end.at - begin.at) as f64).min(1.0))
        });
        ends.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use slipring_support::numbers::median;

    use super::*;

    #[test]
    fn minimum_and_maximum_of_values() {
        assert_eq!((minimum(vec![2.0, -1.0, 7.0]), maximum(vec![2.0, -1.0, 7.0])), (-1.0, 7.0));
    }

    #[test]
    fn a_figure_that_one_run_lacks_is_absent_from_the_median() {
        let run = |p50_ns, share_max_1s| Figures {
            p50_ns,
            waiter_share: Some(p50_ns / 10.0),
            share_max_1s,
            ..Figures::default()
        };
        let runs = [run(1.0, Some(0.5)), run(5.0, None), run(2.0, Some(0.7))];
        let combined = Figures::over(&runs.iter().collect::<Vec<_>>(), median);
        assert_eq!(
            (combined.p50_ns, combined.waiter_share, combined.share_max_1s),
            (2.0, Some(0.2), None)
        );
    }

    #[test]
    fn the_busiest_window_may_begin_at_any_sample() {
        let mut samples = CpuSamples::default();
        let mut on_core = 0;
        // The test takes ten samples a second for three seconds. The thread is busy from 0.7 s
        // until 1.4 s.
        for tenth in 0..=30u64 {
            samples.add(tenth * 100, on_core);
            on_core += if (7..14).contains(&tenth) { 100 } else { 10 };
        }
        assert_eq!(samples.largest_share(1_000), Some(0.73));
        assert_eq!(samples.largest_share(700), Some(1.0));
        assert_eq!(samples.largest_share(4_000), None, "no window is that long");
        assert_eq!(CpuSamples::default().largest_share(1), None);
    }

    #[test]
    fn late_samples_make_windows_longer_not_shorter() {
        let mut samples = CpuSamples::default();
        for (at, on_core) in [(0, 0), (900, 900), (1_500, 900), (2_500, 2_000)] {
            samples.add(at, on_core);
        }
        // From 1,500 to 2,500 the counter grows by 1,100, which counts as a full core.
        assert_eq!(samples.largest_share(1_000), Some(1.0));
        assert_eq!(samples.largest_share(1_200), Some(1_100.0 / 1_600.0));
    }
}
