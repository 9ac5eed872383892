//! What was measured: as a record for programs, and as tables for people.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::figures::{Figures, greatest, least, median};
use super::wake::Wake;
use crate::machine::{Machine, Pair};

/// Where other programs use more of the cores than this, a figure is theirs as well as the
/// strategy's.
const DISTURBED: f64 = 0.1;

/// Everything, as it is written down.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The version of this crate, which is the library's.
    pub slipring: &'static str,
    /// When it began.
    pub date: String,
    /// How much was measured.
    pub size: String,
    /// What schedules and orders were drawn from.
    pub seed: u64,
    /// Where.
    pub machine: Machine,
    /// The cores that the threads were bound to, if they were.
    pub pinned: Option<Pair>,
    /// Whether a producer and a reader are more threads than there are cores.
    pub oversubscribed: bool,
    /// What waking a thread takes there.
    pub wake: Wake,
    /// Why the measurement ended before its time, if it did: the record then holds the patterns
    /// that were complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// What was measured, by arrival pattern.
    pub arrivals: Vec<Scene>,
}

/// All strategies under one arrival pattern.
#[derive(Clone, Debug, Serialize)]
pub struct Scene {
    /// Its name.
    pub arrival: String,
    /// In words.
    pub about: String,
    /// For how long events came in each run; a burst takes as long as it takes.
    pub seconds: f64,
    /// What the bystander did without any ring beside it, units of work per second, in each round:
    /// the best of its turns.
    pub bystander_alone: Option<Vec<f64>>,
    /// The strategies.
    pub strategies: Vec<Series>,
}

/// One strategy under one arrival pattern.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name.
    pub strategy: String,
    /// Figure by figure, the middle of the rounds.
    pub median: Figures,
    /// The least.
    pub min: Figures,
    /// The greatest.
    pub max: Figures,
    /// Every round.
    pub runs: Vec<Run>,
}

/// A strategy's turn in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which one, from 0.
    pub round: u32,
    /// How many events were handed over.
    pub events: u64,
    /// What came of it.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Series {
    /// Works medians and ends out.
    pub fn new(strategy: String, runs: Vec<Run>) -> Self {
        let figures: Vec<&Figures> = runs.iter().map(|run| &run.figures).collect();
        let [median, min, max] =
            [median, least, greatest].map(|pick| Figures::over(&figures, pick));
        Self { strategy, median, min, max, runs }
    }
}

impl Record {
    /// What is to be known before any table.
    pub fn heading(&self) -> String {
        let Self { slipring, date, size, machine, pinned, oversubscribed, wake, .. } = self;
        let mut text = format!("slipring {slipring}, wait strategies, {size}, {date}\n");
        let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
        let kernel = machine.kernel.as_deref().unwrap_or("unknown system");
        let _ = writeln!(text, "{} of {cpu}; {kernel}", plural(machine.cores, "core"));
        let _ = match pinned {
            Some(Pair { producer, waiter }) => {
                writeln!(text, "the producer on core {producer}, the waiter on core {waiter}")
            }
            None if machine.cores == 1 => writeln!(
                text,
                "one core: the producer and the waiter share it, and nothing is pinned"
            ),
            None => writeln!(text, "nothing is pinned: this system does not say how"),
        };
        if *oversubscribed {
            text.push_str("oversubscribed: a thread that spins keeps the other one from working\n");
        }
        let _ = writeln!(
            text,
            "waking a sleeping thread takes {} µs until it runs, and {} µs of whoever wakes it (medians of {}); reading the clock {} ns",
            digits(wake.one_way_ns / 1e3),
            digits(wake.call_ns / 1e3),
            wake.times,
            digits(machine.clock_ns),
        );
        if size == "smoke" {
            text.push_str(
                "a smoke run: it shows that everything works, and these are no figures\n",
            );
        }
        text.push('\n');
        text
    }

    /// All that is printed: the heading, each table, and the closing lines.
    pub fn tables(&self) -> String {
        let tables = self.arrivals.iter().map(Scene::table);
        std::iter::once(self.heading()).chain(tables).chain([self.closing()]).collect()
    }

    /// What is to be known after all of them.
    pub fn closing(&self) -> String {
        let others = || {
            self.arrivals
                .iter()
                .flat_map(|scene| &scene.strategies)
                .flat_map(|series| &series.runs)
                .filter_map(|run| run.figures.others_cores)
        };
        let disturbed = others().filter(|&others| others > DISTURBED).count();
        let mut text = String::from(
            "medians of the rounds, and in brackets the least and the greatest; latency counts from the moment when an event was due \
             (burst: published)\n",
        );
        if disturbed != 0 {
            let _ = writeln!(
                text,
                "in {disturbed} of {} other programs used more than {DISTURBED} of a core, up to {}: measure again when they have ended",
                plural(others().count(), "run"),
                digits(greatest(others().collect())),
            );
        }
        text
    }
}

impl Scene {
    /// Its table: by rising median latency, or, where there was a bystander, by what that one lost.
    pub fn table(&self) -> String {
        let mut series: Vec<&Series> = self.strategies.iter().collect();
        let key = |series: &Series| series.median.bystander_loss.unwrap_or(series.median.p50_ns);
        series.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let columns: Vec<&Column> = COLUMNS
            .iter()
            .filter(|column| series.iter().any(|series| column.of(&series.median).is_some()))
            .collect();

        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.set_header(
            [Cell::new("strategy")]
                .into_iter()
                .chain(columns.iter().map(|column| right(column.heading.to_owned()))),
        );
        for series in series {
            let cells = columns.iter().map(|column| right(column.cell(series)));
            table.add_row([Cell::new(&series.strategy)].into_iter().chain(cells));
        }
        let rounds = self.strategies.iter().map(|series| series.runs.len()).max().unwrap_or(0);
        let mut text = format!("{}: {}", self.arrival, self.about);
        if self.seconds != 0.0 {
            let _ = write!(text, ", for {} s", digits(self.seconds));
        }
        let _ = writeln!(text, "; {}", plural(rounds, "round"));
        if let Some(alone) = &self.bystander_alone {
            let [middle, low, high] =
                [median, least, greatest].map(|pick| digits(pick(alone.clone())));
            let _ = writeln!(
                text,
                "the bystander alone did {middle} ({low}..{high}) units of work per second; what the producer takes is part of every loss"
            );
        }
        let _ = writeln!(text, "\n{table}\n");
        text
    }
}

/// A column of a table.
struct Column {
    heading: &'static str,
    figure: fn(&Figures) -> Option<f64>,
    /// What the figure is multiplied by to be in the unit of the heading.
    scale: f64,
    spread: bool,
}

const COLUMNS: [Column; 12] = [
    Column {
        heading: "bystander loses %",
        figure: |of| of.bystander_loss,
        scale: 100.0,
        spread: true,
    },
    Column { heading: "p50 µs", figure: |of| Some(of.p50_ns), scale: 1e-3, spread: true },
    Column { heading: "p99 µs", figure: |of| Some(of.p99_ns), scale: 1e-3, spread: true },
    Column { heading: "p99.9 µs", figure: |of| Some(of.p999_ns), scale: 1e-3, spread: false },
    Column { heading: "max µs", figure: |of| Some(of.max_ns), scale: 1e-3, spread: false },
    // Where the producer holds its core it is a reading of the clock late, and that goes without
    // saying.
    Column {
        heading: "of it the producer's, p50 µs",
        figure: |of| of.bystander_loss.and(of.producer_late_p50_ns),
        scale: 1e-3,
        spread: false,
    },
    Column { heading: "of a core %", figure: |of| of.waiter_share, scale: 100.0, spread: true },
    Column { heading: "worst second %", figure: |of| of.share_max_1s, scale: 100.0, spread: false },
    Column {
        heading: "kept waiting %",
        figure: |of| of.waiter_kept_waiting,
        scale: 100.0,
        spread: false,
    },
    Column {
        heading: "CPU s per million",
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
                format!("{} ({}..{})", digits(middle), digits(low), digits(high))
            }
            _ => digits(middle),
        }
    }
}

/// Three digits, as far as they mean anything, and no more places than that takes.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size < 0.005 => 0,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.places$}");
    if text == "-0" { "0".to_owned() } else { thousands(&text) }
}

/// Commas between groups of three digits before the point.
fn thousands(text: &str) -> String {
    let whole = text.find('.').unwrap_or(text.len());
    let mut out = String::new();
    for (i, c) in text.char_indices() {
        if i < whole && i > 0 && (whole - i).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (-0.0001, "0"),
            (0.25, "0.25"),
            (-4.567, "-4.57"),
            (12.345, "12.3"),
            (99.97, "100"),
            (123.4, "123"),
            (-123.4, "-123"),
            (9_876_543.2, "9,876,543"),
        ];
        for (value, text) in cases {
            assert_eq!(digits(value), text);
        }
    }

    fn series(strategy: &str, p50: &[f64], loss: Option<f64>) -> Series {
        let run = |(round, &p50_ns): (usize, &f64)| Run {
            round: round as u32,
            events: 1,
            figures: Figures { p50_ns, bystander_loss: loss, ..Figures::default() },
        };
        Series::new(strategy.to_owned(), p50.iter().enumerate().map(run).collect())
    }

    fn scene(strategies: Vec<Series>, bystander_alone: Option<Vec<f64>>) -> Scene {
        Scene { arrival: "x".into(), about: "y".into(), seconds: 1.0, bystander_alone, strategies }
    }

    #[test]
    fn a_table_has_the_quickest_on_top_and_no_column_without_a_figure() {
        let text = scene(
            vec![series("slow", &[5e3, 9e3, 7e3], None), series("quick", &[1e3], None)],
            None,
        )
        .table();
        assert!(text.find("quick") < text.find("slow"), "{text}");
        assert!(text.contains("7.00 (5.00..9.00)") && text.contains("3 rounds"), "{text}");
        assert!(!text.contains("bystander") && !text.contains("of a core"), "{text}");
    }

    #[test]
    fn beside_a_bystander_the_most_considerate_is_on_top() {
        let strategies =
            vec![series("rude", &[1e3], Some(0.4)), series("polite", &[2e3], Some(0.01))];
        let text = scene(strategies, Some(vec![100.0, 102.0])).table();
        assert!(text.find("polite") < text.find("rude"), "{text}");
        assert!(text.contains("alone did 101 (100..102)"), "{text}");
    }
}
