//! What one run comes to, and the middle and the ends of several.

use serde::Serialize;

/// The figures of a run, or their medians, or their least or greatest values. What the system does
/// not tell, or a run is too short for, is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Handled per second, from the start to the waiter's end.
    pub events_per_s: f64,
    /// Latency that half of the events keep below.
    pub p50_ns: f64,
    /// Latency that 99 of 100 events keep below.
    pub p99_ns: f64,
    /// Latency that 999 of 1,000 events keep below.
    pub p999_ns: f64,
    /// The longest latency.
    pub max_ns: f64,
    /// What the waiter used of a core, 0 to 1.
    pub waiter_share: Option<f64>,
    /// What it used in the second in which it used most.
    pub share_max_1s: Option<f64>,
    /// For how much of the time the waiter could have run and did not: its core was others', or on
    /// its way to it.
    pub waiter_kept_waiting: Option<f64>,
    /// What other programs used meanwhile, in cores. Unknown where one of them is ours.
    pub others_cores: Option<f64>,
    /// Mean time in a call that publishes, one reading of the clock included.
    pub publish_ns: f64,
    /// How late half of the events were before they were published: the producer's lateness, which
    /// is part of theirs. Not for bursts.
    pub producer_late_p50_ns: Option<f64>,
    /// Processor time of the waiter and of publishing, for a million events.
    pub cpu_s_per_million: Option<f64>,
    /// What a second process on the same cores lost by it, 0 to 1; below 0 where noise was larger.
    pub bystander_loss: Option<f64>,
}

impl Figures {
    /// Each figure as `pick` makes it of that figure of all runs; absent unless all have it.
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

/// The middle one, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match values.as_slice() {
        [] => 0.0,
        values => (values[low] + values[high]) / 2.0,
    }
}

/// The least one.
pub fn least(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// The greatest one.
pub fn greatest(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// The processor time of a thread, looked at from outside now and then.
#[derive(Clone, Debug, Default)]
pub struct Looks(Vec<Look>);

#[derive(Clone, Copy, Debug)]
struct Look {
    at: u64,
    on_core: u64,
}

impl Looks {
    /// Notes that at a moment the thread had run for so long; nanoseconds both.
    pub fn note(&mut self, at: u64, on_core: u64) {
        self.0.push(Look { at, on_core });
    }

    /// The greatest share of a core over any stretch between two looks that is as long as `window`,
    /// or as little longer as the looks allow.
    pub fn greatest_share(&self, window: u64) -> Option<f64> {
        let ends = self.0.iter().enumerate().filter_map(|(i, end)| {
            let begin = self.0[..i].iter().rev().find(|begin| end.at - begin.at >= window)?;
            // The counter of a running thread moves in steps, so a full core may seem to be more.
            Some(((end.on_core - begin.on_core) as f64 / (end.at - begin.at) as f64).min(1.0))
        });
        ends.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends_are_found() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0]), 3.0);
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), 3.0);
        assert_eq!((least(vec![2.0, -1.0, 7.0]), greatest(vec![2.0, -1.0, 7.0])), (-1.0, 7.0));
    }

    #[test]
    fn figures_are_combined_one_by_one_and_only_where_all_runs_have_them() {
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
    fn the_busiest_second_is_found_wherever_it_begins() {
        let mut looks = Looks::default();
        let mut on_core = 0;
        // Ten looks a second for three seconds; busy from 0.7 s until 1.4 s.
        for tenth in 0..=30u64 {
            looks.note(tenth * 100, on_core);
            on_core += if (7..14).contains(&tenth) { 100 } else { 10 };
        }
        assert_eq!(looks.greatest_share(1_000), Some(0.73));
        assert_eq!(looks.greatest_share(700), Some(1.0));
        assert_eq!(looks.greatest_share(4_000), None, "there is no window of that length");
        assert_eq!(Looks::default().greatest_share(1), None);
    }

    #[test]
    fn late_looks_make_windows_longer_not_shorter() {
        let mut looks = Looks::default();
        for (at, on_core) in [(0, 0), (900, 900), (1_500, 900), (2_500, 2_000)] {
            looks.note(at, on_core);
        }
        // 0 to 1,500, 900 to 2,500 is longer than 1,500 to 2,500, where the counter ran ahead: no
        // more than a core is used.
        assert_eq!(looks.greatest_share(1_000), Some(1.0));
        assert_eq!(looks.greatest_share(1_200), Some(1_100.0 / 1_600.0));
    }
}
