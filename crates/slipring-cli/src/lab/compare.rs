//! `slipring lab compare`: finds the values of two records that differ beyond the noise.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use slipring_support::streams::stdout_width;
use slipring_support::tables::markdown;

use super::files::all_errors;
use super::metric::Better;
use super::reading::Loaded;
use super::record::{Record, Results, Series, Values};
use super::statistics::{Spread, Verdict, compare_runs};
use super::wording::{is_debug, number, others, percent, wrapped};
use crate::base::{console, exit};

/// With fewer repetitions than this, no difference exceeds the noise (see `statistics.rs`).
const REPETITIONS_AT_LEAST: usize = 5;

/// Compares two records: which values differ beyond the noise
///
/// Prints a table of the changes that exceed the noise of both measurements, and
/// how many values are within it. A change counts if the ratio of the medians
/// exceeds the noise floor of both machines, and a rank test at 1 % tells the
/// repetitions apart. Two runs of one program may still differ, for example by the
/// placement of threads: measure again before you act on a change.
#[derive(Debug, Parser)]
#[command(after_long_help = EXIT_CODES, verbatim_doc_comment)]
pub struct Args {
    /// Record of the older measurement
    old: PathBuf,
    /// Record of the newer measurement
    new: PathBuf,
    /// Fail (exit code 1) if any value is worse beyond the noise
    #[arg(long)]
    fail_on_worse: bool,
}

const EXIT_CODES: &str = "\
Exit code:
  0  compared, with or without changes
  1  something failed, or --fail-on-worse found a worse value
  2  wrong arguments: a file that cannot be read, or is no record; with
     --fail-on-worse also two records that have no value in common";

/// Compares the two files.
pub fn run(args: &Args) -> Result<()> {
    let (old, new) = (Loaded::read(&args.old)?, Loaded::read(&args.new)?);
    let comparison = Comparison::of(&old.record, &new.record);
    let printed = console::print(&comparison.text(stdout_width()));
    let worse = comparison.count(Direction::Worse);
    let judged = if !args.fail_on_worse {
        Ok(())
    } else if comparison.compared == 0 {
        Err(exit::usage(
            "--fail-on-worse: the records have no value in common: nothing was compared",
        ))
    } else if worse > 0 {
        Err(anyhow::anyhow!(
            "{} beyond the noise",
            counted(worse, "value is worse", "values are worse")
        ))
    } else {
        Ok(())
    };
    all_errors([printed, judged])
}

/// The differences of two records.
#[derive(Debug, Default)]
struct Comparison {
    /// Differences between the records, other than that of the program, that could explain changes:
    /// one sentence for each.
    warnings: Vec<String>,
    changes: Vec<Change>,
    /// Number of values that both records have in the same unit.
    compared: usize,
    /// Number of series that have values in both records, in the same unit.
    series: usize,
    /// Values whose units differ, or that have no ratio. Each entry also says how both records
    /// state the value.
    incomparable: Vec<String>,
    only_old: Vec<String>,
    only_new: Vec<String>,
    /// Noise floor of the noisier machine.
    floor: f64,
}

/// A difference beyond the noise.
#[derive(Debug)]
struct Change {
    /// Experiment, contender and point.
    series: String,
    /// Metric and unit.
    metric: String,
    old: Spread,
    new: Spread,
    /// Ratio of the new median to the old one.
    ratio: f64,
    direction: Direction,
}

/// Whether a change makes the metric better or worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Better,
    Worse,
    Neither,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Neither => "changed",
        }
    }
}

impl Comparison {
    fn of(old: &Record, new: &Record) -> Self {
        let mut comparison = Self {
            warnings: warnings(old, new),
            floor: old.noise.floor().max(new.noise.floor()),
            ..Self::default()
        };
        let (older, newer) = (Row::all(old), Row::all(new));
        for row in &older {
            match newer.iter().find(|other| other.is_same(row)) {
                Some(found) => comparison.add(&row.name(), row.series, found.series),
                None => comparison.only_old.push(row.name()),
            }
        }
        let added = newer.iter().filter(|row| !older.iter().any(|other| other.is_same(row)));
        comparison.only_new = added.map(Row::name).collect();
        comparison
    }

    /// Compares the metrics of a series that both records have.
    fn add(&mut self, name: &str, old: &Series, new: &Series) {
        let before = self.compared;
        for (metric, values) in &old.metrics {
            let value = format!("{name}: {metric}");
            match new.metrics.get(metric) {
                None => self.only_old.push(value),
                Some(other) if (&other.unit, other.better) != (&values.unit, values.better) => {
                    self.incomparable.push(format!("{value}: {} and {}", values.unit, other.unit));
                }
                Some(other) => self.add_values(name, metric, values, other),
            }
        }
        let added = new.metrics.keys().filter(|metric| !old.metrics.contains_key(*metric));
        self.only_new.extend(added.map(|metric| format!("{name}: {metric}")));
        self.series += usize::from(self.compared > before);
    }

    fn add_values(&mut self, name: &str, metric: &str, old: &Values, new: &Values) {
        let spreads = Spread::of(&old.values).zip(Spread::of(&new.values));
        let verdict = compare_runs(&new.values, &old.values, self.floor);
        let (Some((before, after)), Some(verdict)) = (spreads, verdict) else {
            let shown = |of: &Values| {
                Spread::of(&of.values).map_or("none".to_owned(), |of| number(of.median))
            };
            let shown = format!("{name}: {metric}: {} and {}", shown(old), shown(new));
            return self.incomparable.push(shown);
        };
        self.compared += 1;
        let Verdict::Differs(ratio) = verdict else { return };
        let direction = match (old.better, after.median > before.median) {
            (Better::Neither, _) => Direction::Neither,
            (Better::Less, true) | (Better::More, false) => Direction::Worse,
            (Better::Less, false) | (Better::More, true) => Direction::Better,
        };
        let metric =
            if old.unit.is_empty() { metric.to_owned() } else { format!("{metric}, {}", old.unit) };
        let series = name.to_owned();
        self.changes.push(Change { series, metric, old: before, new: after, ratio, direction });
    }

    fn count(&self, direction: Direction) -> usize {
        self.changes.iter().filter(|change| change.direction == direction).count()
    }

    /// Returns the report for a terminal of this width, or for a pipe or file.
    fn text(&self, width: Option<usize>) -> String {
        let mut text = String::new();
        let line = |text: &mut String, more: &str| {
            let _ = writeln!(text, "{}", wrapped(more, width));
        };
        for warning in &self.warnings {
            line(&mut text, &format!("! {warning}"));
        }
        if !self.warnings.is_empty() {
            line(&mut text, "! Changes may come from that.\n");
        }
        if !self.changes.is_empty() {
            let _ = writeln!(text, "{}\n", changes(&self.changes, width));
        }
        let directions = [Direction::Better, Direction::Worse, Direction::Neither];
        let counts = directions.map(|of| (self.count(of), of.name()));
        let mut shown: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        shown.push(format!("{} within the noise", self.compared - self.changes.len()));
        line(
            &mut text,
            &format!(
                "Compared {} of {}: {}.",
                counted(self.compared, "value", "values"),
                counted(self.series, "series", "series"),
                shown.join(", ")
            ),
        );
        line(
            &mut text,
            &format!(
                "Noise floor: {}. Up to 1 in 100 equal values exceeds the noise by chance, and runs \
                 differ in more than their repetitions do: measure again before you act on a change.",
                percent(self.floor)
            ),
        );
        let lists = [
            ("Not compared", &self.incomparable),
            ("Only in the old record", &self.only_old),
            ("Only in the new record", &self.only_new),
        ];
        for (title, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
            line(&mut text, &format!("\n{title}:"));
            items.iter().for_each(|item| line(&mut text, &format!("- {item}")));
        }
        text
    }
}

/// Returns the changes as a table, or as a list where the terminal is too narrow for the table.
fn changes(changes: &[Change], width: Option<usize>) -> String {
    let header = ["series", "metric", "old", "new", "new/old", ""].map(str::to_owned);
    let rows: Vec<Vec<String>> = changes
        .iter()
        .map(|change| {
            let Change { series, metric, old, new, ratio, direction } = change;
            let direction = direction.name().to_owned();
            vec![series.clone(), metric.clone(), shown(old), shown(new), number(*ratio), direction]
        })
        .collect();
    let table = markdown(&header, &rows, None);
    let fits = |width| table.lines().all(|line| line.chars().count() <= width);
    if width.is_none_or(fits) {
        return table;
    }
    let entry = |row: &Vec<String>| {
        let [series, metric, old, new, ratio, direction] = row.as_slice() else {
            return String::new();
        };
        let text =
            format!("{direction}: {series}\n  {metric}\n  {old} to {new}, {ratio} of the old");
        wrapped(&text, width)
    };
    rows.iter().map(entry).collect::<Vec<_>>().join("\n")
}

fn shown(spread: &Spread) -> String {
    match spread.high - spread.low {
        width if width > 0.0 => format!("{} ±{}", number(spread.median), number(width / 2.0)),
        _ => number(spread.median),
    }
}

/// A series of a record.
struct Row<'r> {
    experiment: &'r str,
    series: &'r Series,
}

impl<'r> Row<'r> {
    fn all(record: &'r Record) -> Vec<Row<'r>> {
        let of = |results: &'r Results| {
            results.series.iter().map(|series| Row { experiment: &results.experiment, series })
        };
        record.experiments.iter().flat_map(of).collect()
    }

    /// Returns whether both rows measure the same contender at the same point.
    fn is_same(&self, other: &Row<'_>) -> bool {
        self.experiment == other.experiment
            && self.series.contender == other.series.contender
            && self.series.point == other.series.point
    }

    fn name(&self) -> String {
        let Series { contender, point, .. } = self.series;
        let point: String = point.iter().map(|(name, value)| format!(", {name} {value}")).collect();
        format!("{}: {contender}{point}", self.experiment)
    }
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Returns the differences between the records that could explain changes. A difference between the
/// programs is not among them.
fn warnings(old: &Record, new: &Record) -> Vec<String> {
    let mut warnings = Vec::new();
    let unknown = "unknown processor";
    let machine = |record: &Record| {
        let machine = &record.machine;
        let kernel = machine.kernel.as_deref().unwrap_or("unknown system");
        format!(
            "{} of {}, {kernel}",
            counted(machine.cores, "core", "cores"),
            machine.cpu.as_deref().unwrap_or(unknown)
        )
    };
    let mut differ = |what: &str, old: String, new: String| {
        if old != new {
            warnings.push(format!("The {what} differ: {old}; {new}."));
        }
    };
    differ("machines", machine(old), machine(new));
    differ("amounts of measurement", old.size.clone(), new.size.clone());
    differ("builds", old.build.clone(), new.build.clone());
    differ("seeds", old.seed.to_string(), new.seed.to_string());
    let pinned = |record: &Record| {
        let cpus: Vec<_> = Row::all(record).iter().map(|row| row.series.cpus.clone()).collect();
        cpus.concat().is_empty()
    };
    if pinned(old) != pinned(new) {
        warnings.push("Only one of the measurements bound its threads to CPUs.".to_owned());
    }
    if is_debug(old) && is_debug(new) {
        warnings.push(
            "Both programs were built without optimisation: the figures mean little.".to_owned(),
        );
    }
    if old.size == "smoke" || new.size == "smoke" {
        warnings.push("The figures of a smoke run mean nothing.".to_owned());
    }
    let few = |record: &Record| {
        let mut metrics = Row::all(record).into_iter().flat_map(|row| row.series.metrics.values());
        metrics.any(|values| values.values.len() < REPETITIONS_AT_LEAST)
    };
    if few(old) || few(new) {
        warnings.push(format!(
            "Some series have fewer than {REPETITIONS_AT_LEAST} repetitions: of these, only changes by more than twice count."
        ));
    }
    for (which, record) in [("old", old), ("new", new)] {
        let others = others(record).map(|others| format!("In the {which} record: {others}"));
        warnings.extend(others);
    }
    if old.stopped.is_some() || new.stopped.is_some() {
        warnings.push("A measurement ended early.".to_owned());
    }
    warnings
}
