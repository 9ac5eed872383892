//! Weather stations: a typical job for a ring, on real rows, compared with two other ways to do it.
//!
//! An event is a row of one station and hour. Rows enter in order of time. Workers parse rows into
//! readings in parallel. A stage marks readings that are out of the ordinary. Then two stages write
//! a journal and a summary in parallel.
//!
//! - [`mod@file`]: the file's bytes · [`split`]: its records and fields · [`columns`]: its columns
//! - [`schema`]: the rules by which its text is read · [`mod@format`]: times and numbers
//! - [`input`]: the sorted rows · [`escape`]: text that is safe to print
//! - [`row`]: the event · [`detect`], [`journal`], [`summary`]: the stages behind the parse,
//!   together in [`stages`]
//! - [`sequential`], [`executor`], [`ring`]: the modes
//! - [`measure`]: one run · [`compare`]: all modes in rounds · [`table`]: the comparison as text ·
//!   [`args`]: the command line

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use slipring_machine::usable_cores;
use slipring_support::numbers::duration;
use slipring_support::streams::{print, same_file};

pub mod args;
pub mod columns;
pub mod compare;
pub mod detect;
pub mod escape;
pub mod executor;
pub mod file;
pub mod format;
pub mod input;
pub mod journal;
pub mod measure;
pub mod ring;
pub mod row;
pub mod schema;
pub mod sequential;
pub mod split;
pub mod stages;
pub mod summary;
pub mod table;

pub use args::Args;
use input::Input;
use measure::{CAPACITY, Job, JobResult, Mode};
use summary::Summary;

/// Runs the program. Results go to `out`, remarks to `err`. If `bar` is set, the program shows a
/// progress bar. If `out` is a terminal, `width` is its width.
pub fn run(
    args: &Args,
    out: &mut dyn Write,
    err: &mut dyn Write,
    bar: bool,
    width: Option<usize>,
) -> Result<()> {
    let input = Input::read(&args.file, &args.options())?;
    if let Some(output) = &args.output {
        let shown = escape::path(output);
        ensure!(
            !same_file(output, &args.file),
            "the journal would overwrite the input file {shown}"
        );
        // Only a regular file is refused here, because a pipe or a device can take both texts.
        let shared = |stream| output.is_file() && same_file(output, Path::new(stream));
        ensure!(
            !shared("/dev/stdout"),
            "the journal and the summary would overwrite each other in {shown}"
        );
        ensure!(
            !shared("/dev/stderr"),
            "the journal and the remarks would overwrite each other in {shown}"
        );
    }
    let job = Job {
        repeat: args.repeat.unwrap_or(1),
        workers: args.workers.into(),
        capacity: CAPACITY,
        batch: args.batch.into(),
        wait: args.wait.clone(),
        output: args.output.clone(),
    };
    let total = input.total(job.repeat)?;
    let bar = if bar { progress(total) } else { ProgressBar::hidden() };
    match args.mode.mode() {
        Some(mode) => one(mode, &input, &job, args, &bar, out, err),
        None => all(&input, &job, args, &bar, width, out, err),
    }
}

/// Runs one mode once.
fn one(
    mode: Mode,
    input: &Input,
    job: &Job,
    args: &Args,
    bar: &ProgressBar,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<()> {
    let outcome = measure::once(mode, input, job, bar)?;
    bar.finish_and_clear();
    // The remarks are written even if the summary cannot be.
    let printed = print(out, &outcome.text).context("cannot write the summary");
    report_faults(&outcome.summary, err);
    if let Some(report) = &outcome.report {
        let _ = writeln!(err, "{}", report.trim_end());
    }
    let _ = writeln!(err, "{}", remark(mode, &outcome));
    printed?;
    outcome.summary.verdict().with_context(|| unusable(args))
}

/// Runs all modes in rounds and compares them.
fn all(
    input: &Input,
    job: &Job,
    args: &Args,
    bar: &ProgressBar,
    width: Option<usize>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<()> {
    if input.rows() == 0 {
        return print(out, "no rows: nothing to compare\n").context("cannot write the table");
    }
    let runs = compare::all(input, job, args.repeat.is_some(), args.smoke, bar)?;
    let text = table::render(&runs, input.rows(), usable_cores(), width);
    let printed = print(out, &text).context("cannot write the table");
    report_faults(&runs.modes[0].outcomes[0].summary, err);
    runs.agree()?;
    printed?;
    runs.modes[0].outcomes[0].summary.verdict().with_context(|| unusable(args))
}

fn unusable(args: &Args) -> String {
    format!("cannot use {}", escape::path(&args.file))
}

/// Describes the first malformed rows and bad readings, and their numbers. A remark that cannot be
/// written is dropped, because remarks are not results.
fn report_faults(summary: &Summary, err: &mut dyn Write) {
    for fault in summary.described() {
        let _ = writeln!(err, "{fault}");
    }
    if summary.malformed() > 0 {
        let _ = writeln!(err, "{} malformed rows in total", HumanCount(summary.malformed()));
    }
    if summary.bad_readings() > 0 {
        let _ = writeln!(err, "{} bad readings in total", HumanCount(summary.bad_readings()));
    }
}

/// Returns one run's figures as text.
fn remark(mode: Mode, outcome: &JobResult) -> String {
    let quantile = |q| duration(Duration::from_nanos(outcome.latency.value_at_quantile(q)));
    format!(
        "{mode}: {} rows in {}, {} rows/s\n\
         latency p50 {}, p99.9 {}; CPU time {}\n\
         CRC-32 of the journal {:08x}, of the summary {:08x}",
        HumanCount(outcome.summary.rows()),
        duration(outcome.elapsed),
        HumanCount(outcome.rate() as u64),
        quantile(0.5),
        quantile(0.999),
        duration(outcome.cpu),
        outcome.journal,
        outcome.checksum,
    )
}

fn progress(rows: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{msg:10} {bar:40} {percent:>3} % {per_sec}, {eta} left")
            .expect("the template is well formed");
    ProgressBar::new(rows).with_style(style)
}
