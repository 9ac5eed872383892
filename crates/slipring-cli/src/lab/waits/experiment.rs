//! The description of the experiment for a reader, and its part in a run of all experiments.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use slipring::Wait;

use super::arrivals::Arrival;
use super::convert::{self, ARRIVAL, BESIDE, CPU, LATENCY, LOSS, P50};
use super::default_waits;
use super::measured::Measured;
use super::plan::Plan;
use crate::lab::experiment::{About, Experiment, Measurement, Source};
use crate::lab::figure::{Figure, PlotKind};
use crate::lab::machine::MeasuredMachine;
use crate::lab::record::{Results, Series};
use crate::lab::size::Size;
use crate::lab::statistics::{Noise, Spread, Verdict, compare};

static ABOUT: About = About {
    name: "waits",
    title: "Ways to wait",
    paragraph: "\
A thread that waits for an event can spin, yield, sleep, or block until it is woken. Each way \
trades latency for processor time. A producer publishes events at fixed times, in several \
patterns, and a waiter handles them by each strategy in turn. An event's latency starts when the \
event is due, so a late event delays all events behind it and every one counts. The waiter's \
processor time is its share of a core. Beside that, a second process works on the same cores, and \
measures how much of its work the strategy costs it. All strategies meet the same schedule.",
    drawing: "\
schedule ──> producer ──> ring ──> waiter        on a core each
             due times             latency, CPU

             second process                      on both cores, in one
             lost work                           of the patterns",
    source: Source {
        citation: "Kaser: the alternating wait strategies for the LMAX Disruptor, which wait in \
                   turns of yielding or spinning, and of blocking or sleeping",
        address: None,
        machine: "machines with few cores",
        finding: "Waiters that spin starve other processes where cores are few. Waiters that spin \
                  for a part of the time, and leave the core for the rest of it, do not.",
        figures: &[],
    },
    figures: &[
        Figure {
            title: "Median latency against processor time",
            panels: Some(ARRIVAL),
            kind: PlotKind::Scatter { x: CPU.name, y: P50.name },
        },
        Figure {
            title: "Latency",
            panels: Some(ARRIVAL),
            kind: PlotKind::Percentiles { metric: LATENCY.name },
        },
        Figure {
            title: "Median latency against the work that a second process loses",
            panels: Some(BESIDE),
            kind: PlotKind::Scatter { x: LOSS.name, y: P50.name },
        },
    ],
};

/// The experiment.
pub struct Waits;

impl Experiment for Waits {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn measurement(&self, size: Size) -> Result<Option<Box<dyn Measurement>>> {
        let arrivals = Arrival::in_all(size).collect();
        Ok(Some(Box::new(Plan { waits: default_waits(), arrivals, size, rounds: None })))
    }

    fn missing(&self, _: Size, machine: &MeasuredMachine) -> Vec<String> {
        let mut missing =
            vec!["The source states no figures that could be set beside these.".to_owned()];
        if machine.cores < 2 {
            missing.push("Producer and waiter share the only core.".to_owned());
        }
        missing
    }

    fn headline(&self, results: &Results, noise: &Noise) -> String {
        comparison(results, noise).unwrap_or_else(|| {
            "On this machine, too few strategies were measured for a comparison.".to_owned()
        })
    }
}

impl Measurement for Plan {
    fn contenders(&self) -> Vec<String> {
        self.waits.iter().map(Wait::to_string).collect()
    }

    fn keep(&mut self, only: &[String]) {
        self.waits.retain(|wait| only.contains(&wait.to_string()));
    }

    fn repeat(&mut self, rounds: u32) {
        self.rounds = Some(rounds);
    }

    fn expected(&self) -> Duration {
        Plan::expected(self)
    }

    fn measure(&mut self, bar: &ProgressBar) -> Result<(Results, bool)> {
        let mut measured = Measured::begin(self.size)?;
        let is_complete = Plan::run(self, &mut measured, bar, |_| Ok(()))?;
        let mut results = convert::results(&measured);
        // If no pattern is complete, only the wake-ups were measured, and these alone do not count
        // as a result.
        if measured.arrivals.is_empty() {
            results.rounds = 0;
        }
        let left_out: Vec<String> = Arrival::defaults(self.size)
            .filter(|arrival| !self.arrivals.contains(arrival))
            .map(Arrival::name)
            .collect();
        if !left_out.is_empty() {
            let left_out = left_out.join(", ");
            results.notes.push(format!("`slipring lab waits` also measures {left_out}."));
        }
        Ok((results, is_complete))
    }
}

/// The pattern of the headline, if it was measured; otherwise the first one.
const HEADLINE: Arrival = Arrival::Poisson10k;

/// Compares the strategy with the least latency with the strategy that uses the least CPU.
fn comparison(results: &Results, noise: &Noise) -> Option<String> {
    let arrivals = results.values_of(ARRIVAL);
    let wanted = HEADLINE.name().as_str().into();
    let arrival = *arrivals.iter().find(|value| ***value == wanted).or(arrivals.first())?;
    let median = |series: &Series, metric: &str| Some(Spread::of(series.values(metric))?.median);
    let least = |metric: &str| {
        let all = results.series.iter().filter(|series| series.at(ARRIVAL) == Some(arrival));
        let all = all.filter_map(|series| Some((series, median(series, metric)?)));
        all.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(series, _)| series)
    };
    let (fast, cheap) = (least(P50.name)?, least(CPU.name)?);
    let at = |series: &Series| -> Option<String> {
        let (us, cores) = (median(series, P50.name)? / 1e3, median(series, CPU.name)?);
        Some(format!("{us:.1} µs at {:.0} % of a core", cores * 100.0))
    };
    let (name, other) = (&fast.contender, &cheap.contender);
    if name == other {
        let at = at(fast)?;
        return Some(format!(
            "On this machine, under {arrival}, {name} has both the least median latency and the \
             least CPU: {at}."
        ));
    }
    let verdict = compare(cheap.values(P50.name), fast.values(P50.name), noise.floor())?;
    Some(match verdict {
        Verdict::Differs(ratio) => format!(
            "On this machine, under {arrival}, {name} answers {ratio:.1} times as fast as {other}: \
             {} against {}.",
            at(fast)?,
            at(cheap)?
        ),
        Verdict::WithinNoise => format!(
            "On this machine, under {arrival}, no strategy's latency differs from that of {other} \
             beyond the noise; {other} uses the least CPU: {}.",
            at(cheap)?
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_fits() {
        assert!(ABOUT.drawing.lines().all(|line| line.chars().count() <= 72));
    }

    #[test]
    fn the_headline_compares_the_fastest_with_the_cheapest() {
        let series = |name: &str, p50: f64, cpu: f64| {
            let mut series = Series::new(name, &[(ARRIVAL, "poisson-10k".into())]);
            series.add(&P50, vec![p50 * 0.99, p50, p50 * 1.01]);
            series.add(&CPU, vec![cpu]);
            series
        };
        let noise = Noise { computing: 0.01, handover: 0.1, repetitions: 5 };
        let headline = |series: Vec<Series>| {
            let (experiment, notes) = ("waits".to_owned(), Vec::new());
            let results = Results { experiment, rounds: 3, seconds: 1.0, notes, series };
            Waits.headline(&results, &noise)
        };
        let text = headline(vec![
            series("spin", 400.0, 0.98),
            series("adaptive", 800.0, 0.2),
            series("blocking", 30_000.0, 0.05),
        ]);
        assert!(text.contains("spin answers 75.0 times as fast as blocking"), "{text}");
        assert!(text.contains("0.4 µs at 98 % of a core against 30.0 µs at 5 %"), "{text}");
        let text = headline(vec![series("spin", 400.0, 0.98), series("blocking", 410.0, 0.05)]);
        assert!(text.contains("beyond the noise"), "{text}");
        let text = headline(vec![series("spin", 400.0, 0.98)]);
        assert!(text.contains("spin has both"), "{text}");
        assert!(headline(Vec::new()).contains("too few"));
    }
}
