//! The tables of a record.

use std::fmt::Write as _;

use anyhow::Result;
use slipring_machine::CorePair;
use slipring_support::numbers::{median, significant};
use slipring_support::tables::markdown;

use super::figures::{Figures, maximum, minimum};
use super::measured::{ArrivalResult, Measured, Series};
use super::picture;
use super::record::Record;
use crate::lab::files::Results;
use crate::lab::record;

/// Average number of cores used by other processes above which a run counts as disturbed.
const DISTURBED: f64 = 0.1;

impl Results for Record {
    fn tables(&self, width: Option<usize>) -> String {
        let tables = self.measured.arrivals.iter().map(|result| result.table(width));
        std::iter::once(self.heading()).chain(tables).chain([self.closing()]).collect()
    }

    fn picture(&self) -> Result<String> {
        picture::draw(self)
    }
}

impl Record {
    /// Returns the lines before the tables: machine, pinning, and the price of waking a thread.
    pub fn heading(&self) -> String {
        let record::Record { slipring, date, size, machine, .. } = &self.head;
        let Measured { pinned, wake, .. } = &self.measured;
        let mut text = format!("slipring {slipring}, wait strategies, {size}, {date}\n");
        let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
        let kernel = machine.kernel.as_deref().unwrap_or("unknown system");
        let _ = writeln!(text, "{} of {cpu}; {kernel}", plural(machine.cores, "core"));
        let _ = match pinned {
            Some(CorePair { producer, waiter }) => {
                writeln!(text, "producer on core {producer}, waiter on core {waiter}")
            }
            None if machine.cores == 1 => {
                writeln!(text, "not pinned: producer and waiter share the only core")
            }
            None => writeln!(text, "not pinned: this system does not offer pinning"),
        };
        if machine.cores < 2 {
            text.push_str("oversubscribed: a thread that spins keeps the other one from working\n");
        }
        let _ = writeln!(
            text,
            "waking a thread: {} µs until it runs, {} µs in the waking call (medians of {})\n\
             reading the clock: {} ns",
            significant(wake.one_way_ns / 1e3),
            significant(wake.call_ns / 1e3),
            wake.times,
            significant(machine.clock_ns),
        );
        if size == "smoke" {
            text.push_str("smoke run: it checks that everything works; its figures mean nothing\n");
        }
        text.push('\n');
        text
    }

    /// Returns the lines after the tables: how to read them, and a warning if the machine was busy.
    pub fn closing(&self) -> String {
        let others = || {
            self.measured
                .arrivals
                .iter()
                .flat_map(|result| &result.strategies)
                .flat_map(|series| &series.runs)
                .filter_map(|run| run.figures.others_cores)
        };
        let disturbed = others().filter(|&others| others > DISTURBED).count();
        let mut text = String::from(
            "Figures are medians of the rounds, with minimum and maximum in brackets.\n\
             Latency starts when an event is due; in bursts, when it is published.\n",
        );
        if disturbed != 0 {
            let _ = writeln!(
                text,
                "In {disturbed} of {} other processes used more than {DISTURBED} cores, at most \
                 {}.\nMeasure again when they have ended.",
                plural(others().count(), "run"),
                significant(maximum(others().collect())),
            );
        }
        if let Some(stopped) = &self.head.stopped {
            let _ = writeln!(text, "stopped early: {stopped}");
        }
        text
    }
}

impl ArrivalResult {
    /// Returns the table, sorted by median latency, or by the bystander's loss if there is one.
    ///
    /// A terminal of `width` characters gets several narrow tables where one would be too wide.
    pub fn table(&self, width: Option<usize>) -> String {
        let mut series: Vec<&Series> = self.strategies.iter().collect();
        let key = |series: &Series| series.median.bystander_loss.unwrap_or(series.median.p50_ns);
        series.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let columns: Vec<&Column> = COLUMNS
            .iter()
            .filter(|column| series.iter().any(|series| column.of(&series.median).is_some()))
            .collect();

        let header: Vec<String> = std::iter::once("strategy")
            .chain(columns.iter().map(|column| column.heading))
            .map(str::to_owned)
            .collect();
        let rows: Vec<Vec<String>> = series
            .iter()
            .map(|series| {
                let cells = columns.iter().map(|column| column.cell(series));
                std::iter::once(series.strategy.clone()).chain(cells).collect()
            })
            .collect();
        let rounds = self.strategies.iter().map(|series| series.runs.len()).max().unwrap_or(0);
        let mut text = format!("{}: {}\n{}", self.arrival, self.about, plural(rounds, "round"));
        if self.seconds != 0.0 {
            let _ = write!(text, " of {} s", significant(self.seconds));
        }
        text.push('\n');
        if let Some(alone) = &self.bystander_alone {
            let [middle, low, high] =
                [median, minimum, maximum].map(|pick| significant(pick(alone.clone())));
            let _ = writeln!(
                text,
                "the bystander alone did {middle} ({low}..{high}) units of work per second\n\
                 every loss includes the processor time of the producer, which sleeps between events"
            );
        }
        let _ = writeln!(text, "\n{}\n", markdown(&header, &rows, width));
        text
    }
}

/// A column of a table.
struct Column {
    heading: &'static str,
    figure: fn(&Figures) -> Option<f64>,
    /// Factor from the figure's unit to the heading's unit.
    scale: f64,
    /// Whether the column also shows the minimum and the maximum, behind the median.
    spread: bool,
}

const COLUMNS: [Column; 12] = [
    Column {
        heading: "bystander loss %",
        figure: |of| of.bystander_loss,
        scale: 100.0,
        spread: true,
    },
    Column { heading: "p50 µs", figure: |of| Some(of.p50_ns), scale: 1e-3, spread: true },
    Column { heading: "p99 µs", figure: |of| Some(of.p99_ns), scale: 1e-3, spread: true },
    Column { heading: "p99.9 µs", figure: |of| Some(of.p999_ns), scale: 1e-3, spread: false },
    Column { heading: "max µs", figure: |of| Some(of.max_ns), scale: 1e-3, spread: false },
    // This column is shown only if there was a bystander. Otherwise the producer spins, and is late
    // by just one reading of the clock.
    Column {
        heading: "producer late p50 µs",
        figure: |of| of.bystander_loss.and(of.producer_late_p50_ns),
        scale: 1e-3,
        spread: false,
    },
    Column { heading: "waiter CPU %", figure: |of| of.waiter_share, scale: 100.0, spread: true },
    Column {
        heading: "busiest second %",
        figure: |of| of.share_max_1s,
        scale: 100.0,
        spread: false,
    },
    Column {
        heading: "waiting for core %",
        figure: |of| of.waiter_kept_waiting,
        scale: 100.0,
        spread: false,
    },
    Column {
        heading: "CPU s/million",
        figure: |of| of.cpu_s_per_million,
        scale: 1.0,
        spread: false,
    },
    Column { heading: "publish ns", figure: |of| Some(of.publish_ns), scale: 1.0, spread: false },
    Column { heading: "events/s", figure: |of| Some(of.events_per_s), scale: 1.0, spread: false },
];

impl Column {
    fn of(&self, figures: &Figures) -> Option<f64> {
        (self.figure)(figures).map(|figure| figure * self.scale)
    }

    fn cell(&self, series: &Series) -> String {
        let Some(middle) = self.of(&series.median) else { return "–".to_owned() };
        match (self.of(&series.min), self.of(&series.max)) {
            (Some(low), Some(high)) if self.spread && series.runs.len() > 1 => {
                format!("{} ({}..{})", significant(middle), significant(low), significant(high))
            }
            _ => significant(middle),
        }
    }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::waits::measured::StrategyRun;

    fn series(strategy: &str, p50: &[f64], loss: Option<f64>) -> Series {
        let run = |&p50_ns: &f64| StrategyRun {
            events: 1,
            figures: Figures { p50_ns, bystander_loss: loss, ..Figures::default() },
            curve: Vec::new(),
        };
        Series::new(strategy.to_owned(), p50.iter().map(run).collect())
    }

    fn result(strategies: Vec<Series>, bystander_alone: Option<Vec<f64>>) -> ArrivalResult {
        let (arrival, about) = ("x".into(), "y".into());
        let (threads, pinned, seconds) = (2, None, 1.0);
        ArrivalResult { arrival, about, threads, pinned, seconds, bystander_alone, strategies }
    }

    fn slow_and_fast() -> ArrivalResult {
        result(vec![series("slow", &[5e3, 9e3, 7e3], None), series("fast", &[1e3], None)], None)
    }

    #[test]
    fn the_fastest_strategy_comes_first_and_columns_without_figures_are_left_out() {
        let text = slow_and_fast().table(None);
        assert!(text.find("fast") < text.find("slow"), "{text}");
        assert!(text.contains("7 (5..9)") && text.contains("3 rounds"), "{text}");
        assert!(!text.contains("bystander") && !text.contains("waiter CPU"), "{text}");
    }

    #[test]
    fn beside_a_bystander_the_strategy_with_the_least_loss_comes_first() {
        let strategies =
            vec![series("greedy", &[1e3], Some(0.4)), series("modest", &[2e3], Some(0.01))];
        let text = result(strategies, Some(vec![100.0, 102.0])).table(None);
        assert!(text.find("modest") < text.find("greedy"), "{text}");
        assert!(text.contains("alone did 101 (100..102)"), "{text}");
    }
}
