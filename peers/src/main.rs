//! Compares slipring with other queues and rings on the same work. Hand-written code that has no
//! protection and no wait strategy shows the lower bounds. Rings and queues in Java and C++ take
//! part if their tools are installed. A figure between processes starts this program again, once
//! for each role.
//!
//! A repetition runs the contenders of a figure one after another, in rotating order. Each
//! contender checks the order and sum of its events before its time counts. Tables show medians;
//! `--json` saves all values, and `--picture` draws the tables whose columns are numbers. Only
//! ratios within one run mean anything.

// The print macros panic if the stream refuses a write, so these lints forbid them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod contenders;
mod figures;
mod limits;
mod measure;
mod output;
mod picture;
mod report;
mod work;

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use contenders::foreign::{Prepared, Programs};
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Figure, Size, measure};
use output::Output;
use slipring_machine::usable_cores;
use slipring_support::streams::{print, stdout_width};

/// Name of the environment variable by which `cargo xtask` asks for a line on standard error at the
/// beginning of each measurement. It needs these lines because a check that prints nothing for ten
/// minutes counts as hanging.
const PROGRESS: &str = "SLIPRING_PROGRESS";

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
    /// Run the contenders in Java on these JDKs [default: JAVA_HOME, else the newest JDK beside the
    /// `java` on the PATH]
    #[arg(long, value_name = "HOME,...", value_delimiter = ',')]
    java: Vec<PathBuf>,
    /// Number of repetitions [default: 9; 1 with --smoke, 30 with --full]
    #[arg(long, value_name = "N")]
    reps: Option<usize>,
    /// Write every value to FILE, with one JSON line for each series
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the tables whose columns are numbers, such as `scaling`, to FILE, as SVG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Draw the values that --json wrote to FILE instead of measuring
    #[arg(long, value_name = "FILE", requires = "picture")]
    #[arg(conflicts_with_all = ["smoke", "full", "java", "reps", "json", "list"])]
    draw: Option<PathBuf>,
    /// List the figures and their contenders without measuring
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    if let Some(code) = figures::processes::play_role() {
        return code;
    }
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
    if let (Some(values), Some(picture)) = (&args.draw, &args.picture) {
        return Ok(draw(&args, values, picture)?);
    }
    let size = if args.smoke {
        Size::Smoke
    } else if args.full {
        Size::Full
    } else {
        Size::Quick
    };
    let reps = args.reps.unwrap_or(size.pick(1, 9, 30)).max(1);
    let programs = Programs::find(&args.java, size);
    let mut figures = chosen(&args, size, &programs);
    if figures.is_empty() {
        return Err("no figure and contender have these names; --list shows all names".into());
    }
    let mut out = io::stdout().lock();
    if args.list {
        return Ok(print(&mut out, &figures.iter().map(list).collect::<String>())?);
    }
    if args.picture.is_some() && drawable(&figures).is_empty() {
        let all = figures::all(size, &Programs::find(&args.java, size));
        return Err(nothing_to_draw(&drawable(&all)).into());
    }
    let open = |option, path: &Option<PathBuf>| {
        path.as_deref().map(|path| Output::open(option, path)).transpose()
    };
    let (json, picture) = (open("--json", &args.json)?, open("--picture", &args.picture)?);
    if let (Some(json), Some(picture)) = (&json, &args.picture) {
        json.differs_from("--picture", picture)?;
    }

    let Prepared { skipped, versions } = programs.prepare(&mut figures);
    for line in skipped {
        let _ = writeln!(io::stderr(), "peers: {line}");
    }
    if figures.is_empty() {
        return Err("no contender of these names can run here".into());
    }

    let bar = progress(&figures, reps);
    let prints = bar.is_hidden() && env::var_os(PROGRESS).is_some();
    let series = measure(&figures, reps, |rep, figure, contender| {
        let Figure { table, column, .. } = figure;
        let about = format!("{}/{reps}: {table}, {column}: {}", rep + 1, contender.name);
        if prints {
            let _ = writeln!(io::stderr(), "{about}");
        }
        bar.set_message(about);
        bar.inc(1);
    })?;
    bar.finish_and_clear();

    // The values are saved before the tables are printed. Values that cannot be saved are printed.
    let values = report::json(&series)?;
    let saved = json.map_or(Ok(()), |json| json.save(&values));
    let smoke = if args.smoke { "; smoke run: the figures mean nothing" } else { "" };
    let about = format!("cores: {}; repetitions: {reps}{smoke}", usable_cores());
    let drawn = picture.map_or(Ok(()), |picture| picture.save(&picture::draw(&series, &about)?));
    let tables = report::tables(&series, stdout_width());
    let versions: String = versions.iter().map(|version| format!("{version}\n")).collect();
    let mut text = format!("{about}\n{versions}\n{tables}");
    if saved.is_err() {
        text += &values;
    }
    let printed = print(&mut out, &text);
    saved.map_err(|error| format!("{error}; the values are printed to standard output instead"))?;
    drawn?;
    Ok(printed?)
}

/// Draws saved values of the figures and contenders that the arguments choose.
fn draw(args: &Args, values: &Path, picture: &Path) -> Result<(), String> {
    let path = values.display();
    let text = fs::read_to_string(values).map_err(|error| format!("--draw: {path}: {error}"))?;
    let mut series = report::parse(&text).map_err(|error| format!("--draw: {path}: {error}"))?;
    series.retain(|series| {
        matches(&full_name(&series.table, &series.column), &args.figures)
            && matches(&series.contender, &args.only)
    });
    let columns = series.iter().map(|series| (&*series.table, &*series.column));
    if picture::drawable(columns).is_empty() {
        return Err(format!("--draw: {path}: no chosen table has numbers as columns"));
    }
    let picture = Output::open("--picture", picture)?;
    picture.differs_from("--draw", values)?;
    let name = values.file_name().unwrap_or_default().to_string_lossy();
    picture.save(&picture::draw(&series, &name)?)
}

/// Returns the names of the tables that `--picture` can draw.
fn drawable(figures: &[Figure]) -> Vec<&str> {
    picture::drawable(figures.iter().map(|figure| (&*figure.table, &*figure.column)))
}

/// Returns the error for a picture without a panel. The error lists parts of names with which the
/// user can choose tables that can be drawn.
fn nothing_to_draw(drawable: &[&str]) -> String {
    let mut parts: Vec<&str> =
        drawable.iter().filter_map(|table| table.split([':', ',']).next()).collect();
    parts.dedup();
    let parts: Vec<String> = parts.iter().map(|part| format!("`{part}`")).collect();
    format!("--picture: no chosen figure has numbers as columns; these have: {}", parts.join(", "))
}

/// Returns the name of a figure, which is one column of a table.
fn full_name(table: &str, column: &str) -> String {
    format!("{table}, {column}")
}

/// Returns whether a name contains one of these parts. An empty list of parts matches every name.
fn matches(name: &str, parts: &[String]) -> bool {
    parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
}

/// Returns the figures and contenders that the arguments choose.
fn chosen(args: &Args, size: Size, programs: &Programs) -> Vec<Figure> {
    let mut figures = figures::all(size, programs);
    figures.retain(|figure| matches(&full_name(&figure.table, &figure.column), &args.figures));
    for figure in &mut figures {
        figure.contenders.retain(|contender| matches(&contender.name, &args.only));
    }
    figures.retain(|figure| !figure.contenders.is_empty());
    figures
}

/// Returns a figure's entry in the list of figures and contenders.
fn list(figure: &Figure) -> String {
    let names = figure.contenders.iter().map(|contender| format!("    {}\n", contender.name));
    format!("{}\n{}", full_name(&figure.table, &figure.column), names.collect::<String>())
}

/// Makes a progress bar, which is visible on a terminal only. It moves between runs: a bar that
/// ticks on its own thread would disturb the measurement.
fn progress(figures: &[Figure], reps: usize) -> ProgressBar {
    let runs: usize = figures.iter().map(|figure| figure.contenders.len()).sum();
    let style = ProgressStyle::with_template("{bar:24} {percent:>3} %, {eta} left: {wide_msg}");
    ProgressBar::new((reps * runs) as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
