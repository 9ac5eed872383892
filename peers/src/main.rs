//! Compares slipring with other queues and rings, and with hand-made limits that protect nothing,
//! on the same work. Rings and queues of Java and C++ join where the tools for them are installed.
//!
//! A repetition runs the contenders of a figure one after another, in rotating order. Each
//! contender checks the order and sum of its events before its time counts. Tables show medians;
//! `--json` saves all values. Only ratios within one run mean anything.

// Both macros panic where the stream refuses a write.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod contenders;
mod figures;
mod limits;
mod measure;
mod report;
mod work;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use contenders::foreign::{self, Prepared, Programs};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Figure, Size, measure};
use slipring_support::machine::cores;
use slipring_support::streams::{print, same_file, stdout_width};

/// Compares slipring with its peers and with hand-made limits
#[derive(Parser)]
struct Args {
    /// Measure the figures whose names contain one of these [default: all]
    figures: Vec<String>,
    /// Measure the contenders whose names contain one of these [default: all]
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Check with small amounts that everything works; the figures mean nothing
    #[arg(long, conflicts_with = "full")]
    smoke: bool,
    /// Measure longer, as for published records
    #[arg(long)]
    full: bool,
    /// Run the contenders in Java on these JDKs [default: JAVA_HOME, else `java` on the PATH]
    #[arg(long, value_name = "HOME,...", value_delimiter = ',')]
    java: Vec<PathBuf>,
    /// Number of repetitions [default: 9; 1 with --smoke, 30 with --full]
    #[arg(long, value_name = "N")]
    reps: Option<usize>,
    /// Write every value to FILE, one JSON line a series
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// List the figures and their contenders without measuring
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let size = if args.smoke {
        Size::Smoke
    } else if args.full {
        Size::Full
    } else {
        Size::Quick
    };
    let reps = args.reps.unwrap_or(size.pick(1, 9, 30)).max(1);
    let mut figures = chosen(&args, size, &Programs::find(&args.java, size));
    if figures.is_empty() {
        return Err("no figure and contender have these names; --list shows all names".into());
    }
    let mut out = io::stdout().lock();
    if args.list {
        return Ok(print(&mut out, &figures.iter().map(list).collect::<String>())?);
    }
    // Opened before the measurement, so that a wrong path costs no measurement.
    let json = args.json.as_deref().map(open).transpose()?;

    let Prepared { skipped, versions } = foreign::prepare(&mut figures);
    for line in skipped {
        let _ = writeln!(io::stderr(), "peers: {line}");
    }
    if figures.is_empty() {
        return Err("no contender of these names can run here".into());
    }

    let bar = progress(&figures, reps);
    let series = measure(&figures, reps, |rep, figure, contender| {
        let Figure { table, column, .. } = figure;
        bar.set_message(format!("{}/{reps}: {table}, {column}: {}", rep + 1, contender.name));
        bar.inc(1);
    })?;
    bar.finish_and_clear();

    // Saved before the tables are printed. Values that cannot be saved are printed.
    let saved = json.map_or(Ok(()), |json| save(json, &report::json(&series)?));
    let smoke = if args.smoke { "; smoke run: the figures mean nothing" } else { "" };
    let tables = report::tables(&series, stdout_width());
    let versions: String = versions.iter().map(|version| format!("{version}\n")).collect();
    let cores = cores();
    let mut text = format!("cores: {cores}; repetitions: {reps}{smoke}\n{versions}\n{tables}");
    if saved.is_err() {
        text += &report::json(&series)?;
    }
    let printed = print(&mut out, &text);
    saved.map_err(|error| {
        format!("--json: {error}; the values are printed to standard output instead")
    })?;
    Ok(printed?)
}

/// Returns the figures and contenders that the arguments choose.
fn chosen(args: &Args, size: Size, programs: &Programs) -> Vec<Figure> {
    let matches = |name: &str, parts: &[String]| {
        parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
    };
    let mut figures = figures::all(size, programs);
    figures.retain(|figure| matches(&figure.table, &args.figures));
    for figure in &mut figures {
        figure.contenders.retain(|contender| matches(&contender.name, &args.only));
    }
    figures.retain(|figure| !figure.contenders.is_empty());
    figures
}

/// Returns a figure's entry in the list of figures and contenders.
fn list(figure: &Figure) -> String {
    let names = figure.contenders.iter().map(|contender| format!("    {}\n", contender.name));
    format!("{}, {}\n{}", figure.table, figure.column, names.collect::<String>())
}

/// Makes a progress bar, which is visible on a terminal only. It moves between runs: a bar that
/// ticks on its own thread would disturb the measurement.
fn progress(figures: &[Figure], reps: usize) -> ProgressBar {
    let runs: usize = figures.iter().map(|figure| figure.contenders.len()).sum();
    let style = ProgressStyle::with_template("{bar:24} {percent:>3} %, {eta} left: {wide_msg}");
    ProgressBar::new((reps * runs) as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Opens the file for the values. Fails if it is standard output or standard error.
fn open(path: &Path) -> Result<File, String> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| format!("--json: cannot write {}: {error}", path.display()))?;
    for stream in ["/dev/stdout", "/dev/stderr"] {
        if path.is_file() && same_file(path, Path::new(stream)) {
            return Err(format!(
                "--json: the values and the text on {stream} would overwrite each other: give the \
                 values a file of their own"
            ));
        }
    }
    Ok(file)
}

/// Replaces the content of a file, or writes to a pipe or device.
fn save(mut file: File, text: &str) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}
