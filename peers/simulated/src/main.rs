//! Counts what slipring, other queues and rings, and contenders after published algorithms cost on
//! virtual cores: transfers of cache lines, read-modify-writes and fences an event.
//!
//! All runs are simulated, and checked: each consumer compares number, order and sum of its events.
//! Unchanged contenders take part in a build that `cargo xtask simulated` instruments; this needs a
//! nightly compiler. The others run in every build. Virtual times are no result.

// The print macros panic if the stream refuses a write, so these lints forbid them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod order;
mod real;
mod simulated;
mod tables;
mod tsan;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum as _};
use peers_unchanged::{Build, INSTRUMENTED};
use slipring_coherence::{Lines, Placement, Topology};
use slipring_support::streams::{print, stdout_width};
use slipring_support::tables::markdown;
use tables::Table;

#[global_allocator]
static LINES: Lines = Lines;

/// Counts transfers of cache lines on virtual cores, for slipring and its peers
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    /// Run the contenders whose names contain one of these [default: all]
    #[arg(long, global = true, value_name = "PART,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Check with small amounts that everything works; the counts mean nothing
    #[arg(long, global = true)]
    smoke: bool,
}

#[derive(Subcommand)]
enum Task {
    /// Print the tables of counts, which is the default
    Tables {
        /// The tables [default: all]
        tables: Vec<Table>,
        /// Sockets and cores of each socket, such as 2x6 [default: 1x12,2x6,4x16; 1x4 with --smoke]
        #[arg(long, value_delimiter = ',')]
        topology: Vec<Topology>,
        /// Threads alternate between the sockets, instead of filling one after another
        #[arg(long)]
        spread: bool,
        /// Number of seeds of which a cell is the median
        #[arg(long, default_value_t = 3)]
        seeds: u64,
        /// Number of measured events
        #[arg(long, default_value_t = 10_000)]
        events: u64,
    },
    /// Measure one producer and one reader on two real cores, for `order`
    Real {
        /// Number of repetitions
        #[arg(long, default_value_t = 21)]
        reps: usize,
    },
    /// Compare the simulator's order of contenders with that of two real cores
    Order {
        /// The file with what `real` printed
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers-simulated: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the contenders whose names contain one of `only`: those that are simulated, or those
/// that are real.
fn contenders(only: &[String], real: bool) -> Vec<(&'static str, Build)> {
    let mut all: Vec<(&str, Build)> = Vec::new();
    if real {
        all.extend(
            peers_unchanged::CONTENDERS
                .map(|(name, build)| (name.strip_suffix(", instrumented").unwrap_or(name), build)),
        );
        all.extend(real::hand::CONTENDERS);
    } else {
        all.push(("slipring", simulated::slipring));
        all.extend(peers_unchanged::CONTENDERS.iter().filter(|_| INSTRUMENTED));
        all.extend(simulated::hand::CONTENDERS);
    }
    all.retain(|(name, _)| only.is_empty() || only.iter().any(|part| name.contains(&**part)));
    all
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let task = args.task.unwrap_or(Task::Tables {
        tables: Vec::new(),
        topology: Vec::new(),
        spread: false,
        seeds: 3,
        events: 10_000,
    });
    let is_real = matches!(task, Task::Real { .. });
    let chosen = contenders(&args.only, is_real);
    if chosen.is_empty() {
        return Err("no contender in this build has such a name".into());
    }
    let small = |amount: u64| if args.smoke { amount.min(500) } else { amount };
    let text = match task {
        Task::Real { .. } if INSTRUMENTED => {
            return Err("this build is instrumented, so its times mean nothing".into());
        }
        Task::Real { reps } => {
            let reps = if args.smoke { 1 } else { reps };
            real::measure(&chosen, &tables::unicast(small(1_000_000)), reps)?
        }
        Task::Order { file } => {
            let real = fs::read_to_string(&file)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            about() + &order::compare(&chosen, &real, small(50_000))?
        }
        Task::Tables { tables, topology, spread, seeds, events } => {
            let tables = if tables.is_empty() { Table::value_variants() } else { &tables };
            let default = if args.smoke { &["1x4"][..] } else { &["1x12", "2x6", "4x16"] };
            let default = default.iter().map(|text| text.parse().expect("a topology"));
            let topology = if topology.is_empty() { default.collect() } else { topology };
            let placement = if spread { Placement::Spread } else { Placement::Packed };
            let seeds = if args.smoke { 1 } else { seeds.max(1) };
            let text = draw(tables, &topology, placement, &chosen, small(events), seeds);
            print(&mut io::stdout().lock(), &text)?;
            if text.contains("failed: ") {
                return Err("a run has failed".into());
            }
            return Ok(());
        }
    };
    Ok(print(&mut io::stdout().lock(), &text)?)
}

/// Says what the figures are, and which contenders are left out.
fn about() -> String {
    let mut text = "*Simulated*: counts of a model of cache coherence.\n".to_owned();
    if !INSTRUMENTED {
        text += "Without the unchanged contenders: this build is not instrumented. `cargo xtask \
                 simulated` builds it with a nightly compiler.\n";
    }
    text
}

/// Returns all tables on all machines.
fn draw(
    tables: &[Table],
    topologies: &[Topology],
    placement: Placement,
    contenders: &[(&str, Build)],
    events: u64,
    seeds: u64,
) -> String {
    let mut text = about();
    // A check that prints nothing for minutes counts as hanging.
    let tell = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    for topology in topologies {
        for table in tables {
            let (header, rows) =
                tables::fill(*table, *topology, placement, contenders, events, seeds, tell);
            text += &format!("\n## {topology}, {placement:?}: {}\n\n", table.heading());
            text += &markdown(&header, &rows, stdout_width());
            text.push('\n');
        }
    }
    text
}
