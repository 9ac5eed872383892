//! `slipring machine`: the cores, caches and memory nodes of a machine, and where placements put
//! threads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result};
use clap::Parser;
use slipring_machine::{Machine, Snapshot};
use slipring_support::streams::stdout_width;

use crate::base::destination::Destination;
use crate::base::{console, exit};

mod report;

/// Width of the text if standard output is not a terminal, in characters.
const USUAL_WIDTH: usize = 80;

/// The help's paragraphs on the text.
const ABOUT: &str = "\
The drawing:
  [0 16]          a core with two CPUs (hardware threads), by the system's numbers
  [0 (16)]        CPU 16 is outside of this process's affinity mask
  0-7 with 16-23  8 cores of two CPUs: 0 and 16, 1 and 17, ...
  0-11 in twos    6 cores of two CPUs: 0 and 1, 2 and 3, ...
  A line stands for all lines that are indented below it. A cache is drawn if
  several cores share it.

Placements:
  same-core     all threads on one CPU
  siblings      each on a CPU of its own, all of one core
  shared-cache  each on a core of its own, all of one last-level cache
  same-node     each on a core of its own, all of one memory node
  spread        each on a core of its own, as far apart as possible
  shared-cache and same-node use second CPUs of cores where there are more
  threads than cores. The first CPU is the producer's.

Exit code:
  0  shown, or saved
  1  this machine cannot be described
  2  wrong arguments, there is no machine at --root, or output cannot be written";

/// Shows the cores, caches and memory nodes of this machine, and where placements
/// put the threads of a graph
///
/// Reads what the system says of the machine, and changes nothing.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT, verbatim_doc_comment)]
pub struct Args {
    /// Print the description as JSON
    #[arg(long)]
    json: bool,
    /// Show the machine whose `sys` and `proc` are in this folder, or that was saved to this file
    #[arg(long, value_name = "PATH")]
    root: Option<PathBuf>,
    /// Save the system files that describe the machine to this file; `--root` reads it
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Show the placements of this many threads, too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let destination = args.save.as_deref().map(|path| Destination::open("--save", path));
    let destination = destination.transpose()?;
    let (machine, snapshot) = match (read(args.root.as_deref()), &args.root) {
        (Err(error), Some(_)) => return Err(wrong(&error)),
        (read, _) => read.context("cannot describe this machine")?,
    };
    let mut shown = true;
    if let Some(destination) = destination {
        shown = !destination.is_stdout();
        if args.json && !shown {
            return Err(exit::usage("--save and --json cannot both write to standard output"));
        }
        let snapshot = snapshot.context("--save: this system has no files to save")?;
        destination.save(&saved(&machine, &snapshot))?;
    }
    if args.json {
        let mut json = serde_json::to_string_pretty(&machine)?;
        json.push('\n');
        console::print(&json)?;
    } else if shown {
        let width = stdout_width().unwrap_or(USUAL_WIDTH);
        let threads = args.threads.and_then(|threads| usize::try_from(threads).ok());
        console::print(&report::text(&machine, threads, width))?;
    }
    Ok(())
}

/// Creates the error for a wrong argument. The message is one line.
fn wrong(error: &Error) -> Error {
    exit::usage(format!("{error:#}").replace('\n', " "))
}

/// Describes a machine. Also returns the files of the description, if there are any.
fn read(root: Option<&Path>) -> Result<(Machine, Option<Snapshot>)> {
    match root {
        Some(file) if file.is_file() => {
            let what = || format!("--root: {}", file.display());
            let text = fs::read_to_string(file).with_context(what)?;
            let snapshot: Snapshot = text.parse().with_context(what)?;
            Ok((Machine::from_snapshot(&snapshot).with_context(what)?, Some(snapshot)))
        }
        Some(root) => {
            let (machine, snapshot) = Machine::below_with_snapshot(root).context("--root")?;
            Ok((machine, Some(snapshot)))
        }
        None if cfg!(target_os = "linux") => {
            let (machine, snapshot) = Machine::below_with_snapshot(Path::new("/"))?;
            Ok((machine, Some(snapshot)))
        }
        None => Ok((Machine::this()?, None)),
    }
}

/// Returns the content of a file that `--root` reads.
fn saved(machine: &Machine, snapshot: &Snapshot) -> String {
    let line = |text: &str| text.replace(|letter: char| letter.is_control(), " ");
    format!(
        "# The files of a machine, saved by `slipring machine --save`: {}, {}\n\n{snapshot}",
        line(machine.model().unwrap_or("unknown processor")),
        line(machine.kernel().unwrap_or("unknown system")),
    )
}
