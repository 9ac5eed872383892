//! The same work through slipring, through what else one would pick, and through hand-made limits
//! that protect nothing.
//!
//! Contenders of a figure run one after another within each repetition, in rotating order; each
//! checks order and sum of what it handed over before its time counts. Figures are medians; the raw
//! values go to a file. Only ratios within one run mean anything.

// Both panic where the stream refuses a write.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod contenders;
mod figures;
mod limits;
mod machine;
mod measure;
mod report;
mod work;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use clap::Parser;
use measure::{Size, measure};

/// Measures slipring beside its peers and beside hand-made limits.
#[derive(Parser)]
struct Args {
    /// The figures wanted, by part of their names; all of them without any.
    figures: Vec<String>,
    /// Only contenders whose name contains one of these (comma-separated).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Small amounts, once: checks that everything works, and says nothing about speed.
    #[arg(long, conflicts_with = "full")]
    smoke: bool,
    /// What records are made with.
    #[arg(long)]
    full: bool,
    /// Repetitions [default: 1 with --smoke, 9, 30 with --full].
    #[arg(long)]
    reps: Option<usize>,
    /// Writes every value there, one JSON line a series.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Lists the figures and their contenders, and measures nothing.
    #[arg(long)]
    list: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let size = if args.smoke {
        Size::Smoke
    } else if args.full {
        Size::Full
    } else {
        Size::Quick
    };
    let reps = args.reps.unwrap_or(size.pick(1, 9, 30)).max(1);
    let mut figures = figures::all(size);
    figures.retain(|figure| args.figures.is_empty() || args.figures.iter().any(|part| figure.table.contains(part.as_str())));
    for figure in &mut figures {
        figure.contenders.retain(|contender| args.only.is_empty() || args.only.iter().any(|part| contender.name.contains(part.as_str())));
    }
    figures.retain(|figure| !figure.contenders.is_empty());
    if figures.is_empty() {
        return Err("no figure and contender of these names; `--list` names them all".into());
    }
    if args.list {
        let line = |figure: &measure::Figure| {
            let names: Vec<_> = figure.contenders.iter().map(|contender| contender.name.as_str()).collect();
            format!("{}, {}: {}\n", figure.table, figure.column, names.join("; "))
        };
        return Ok(print(&figures.iter().map(line).collect::<String>())?);
    }
    // Before anything is measured, so that a bad name costs nobody an hour.
    let open = |path: &PathBuf| OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let json = args.json.as_ref().map(open).transpose().map_err(|error| format!("--json: {error}"))?;
    for stream in ["/dev/stdout", "/dev/stderr"] {
        if args.json.as_deref().is_some_and(|path| path.is_file() && same_file(path, Path::new(stream))) {
            return Err(
                format!("--json: the values and what goes to {stream} would overwrite each other: give them a file of their own").into()
            );
        }
    }
    let talks = io::stderr().is_terminal();
    let series = measure(&figures, reps, |rep, figure, contender| {
        if talks {
            let _ = write!(io::stderr(), "\r\x1b[K{}/{reps}: {}, {}: {}", rep + 1, figure.table, figure.column, contender.name);
        }
    });
    if talks {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    // Saved first, and printed whatever became of that: with the values themselves where they are
    // nowhere else.
    let saved = json.map_or(Ok(()), |json| save(json, &report::json(&series)?));
    let smoke = if args.smoke { ", smoke run: these are no figures" } else { "" };
    let mut text = format!("{} cores, {reps} repetitions{smoke}\n\n{}", machine::cores(), report::tables(&series));
    if saved.is_err() {
        text += &report::json(&series)?;
    }
    let printed = print(&text);
    saved.map_err(|error| format!("--json: {error}; the values are printed to standard output instead"))?;
    Ok(printed?)
}

/// Whether two paths name one file. Unknown where files have no inodes.
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

/// Replaces what a file holds; a pipe or device holds nothing.
fn save(mut file: File, text: &str) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

/// Prints to standard output. A reader that has seen enough (`| head`) is no error.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
