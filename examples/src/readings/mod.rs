//! Weather stations: the main job of a ring, on real rows, beside two other ways of doing it.
//!
//! An event is a row of one station and hour. Rows enter in order of time. Workers parse them into
//! readings, side by side; a stage marks readings that are out of the ordinary; a journal and a
//! summary are then written at the same time.
//!
//! - [`input`]: the file, in order · [`columns`]: what its columns mean · [`mod@format`]: times and
//!   numbers
//! - [`row`]: the event · [`detect`], [`journal`], [`summary`]: the stages behind the parse,
//!   together in [`work`]
//! - [`sequential`], [`executor`], [`ring`]: the three modes
//! - [`measure`]: one run · [`compare`]: all modes in rounds · [`table`]: what came of it ·
//!   [`args`]: the command line

use std::io::{self, Write};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

pub mod args;
pub mod columns;
pub mod compare;
pub mod detect;
pub mod executor;
pub mod format;
pub mod input;
pub mod journal;
pub mod measure;
pub mod ring;
pub mod row;
pub mod sequential;
pub mod summary;
pub mod table;
pub mod work;

pub use args::Args;
use input::Input;
use measure::{CAPACITY, Job, Mode, Outcome};
use summary::Summary;

/// Runs the program: results go to `out`, remarks to `err`; a progress bar is shown if wanted.
pub fn run(args: &Args, out: &mut dyn Write, err: &mut dyn Write, bar: bool) -> Result<()> {
    let input = Input::read(&args.file)?;
    if let Some(output) = &args.output {
        let shown = output.display();
        ensure!(
            !same_file(output, &args.file),
            "the journal would overwrite what it is made of, {shown}"
        );
        // Pipes and devices take both, one behind the other.
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
        parcel: args.parcel.into(),
        wait: args.wait.clone(),
        output: args.output.clone(),
    };
    let total = input.total(job.repeat)?;
    let bar = if bar { progress(total) } else { ProgressBar::hidden() };
    match args.mode.mode() {
        Some(mode) => one(mode, &input, &job, &bar, out, err),
        None => all(&input, &job, args, &bar, out, err),
    }
}

/// Whether two paths name one file, by whatever spelling, link or second name.
fn same_file(one: &Path, other: &Path) -> bool {
    #[cfg(unix)]
    let identity = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
    };
    #[cfg(not(unix))]
    let identity = |path: &Path| path.canonicalize().ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn one(
    mode: Mode,
    input: &Input,
    job: &Job,
    bar: &ProgressBar,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<()> {
    let outcome = measure::once(mode, input, job, bar)?;
    bar.finish_and_clear();
    // The journal is written by now, and the remarks are made whatever becomes of the summary.
    let printed = print(out, &outcome.text).context("cannot write the summary");
    malformed(&outcome.summary, err);
    if let Some(report) = &outcome.report {
        let _ = writeln!(err, "{}", report.trim_end());
    }
    let _ = writeln!(err, "{}", remark(mode, &outcome));
    printed
}

fn all(
    input: &Input,
    job: &Job,
    args: &Args,
    bar: &ProgressBar,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<()> {
    if input.rows() == 0 {
        return print(out, "no rows: nothing to compare\n").context("cannot write the table");
    }
    let runs = compare::all(input, job, args.repeat.is_some(), args.smoke, bar)?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let printed =
        print(out, &table::render(&runs, input.rows(), cores)).context("cannot write the table");
    malformed(&runs.modes[0].outcomes[0].summary, err);
    runs.agree()?;
    printed
}

/// Writes a result. If whoever reads it has seen enough (`| head`), that is no fault of ours.
fn print(out: &mut dyn Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Remarks are for a person who may not be there: nothing fails if they cannot be written.
fn malformed(summary: &Summary, err: &mut dyn Write) {
    for row in summary.told() {
        let _ = writeln!(err, "malformed row, {row}");
    }
    if summary.malformed() > 0 {
        let _ = writeln!(err, "{} malformed rows in all", summary.malformed());
    }
}

fn remark(mode: Mode, outcome: &Outcome) -> String {
    let quantile = |q| format::duration(outcome.latency.value_at_quantile(q));
    format!(
        "{mode}: {} rows in {:.3} s, {} rows/s, p50 {}, p99.9 {}, {:.3} CPU-seconds, journal {:08x}, summary {:08x}",
        format::thousands(outcome.summary.rows()),
        outcome.elapsed.as_secs_f64(),
        format::thousands(outcome.rate() as u64),
        quantile(0.5),
        quantile(0.999),
        outcome.cpu.as_secs_f64(),
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
