//! `slipring lab exchange`: what handing a block of numbers to another thread or process costs.
//!
//! The experiment is that of Dokulil and Benkner: a writer fills a block with ones, a reader sums
//! it, and one of several ways tells the reader that the block is written. Two times are measured:
//! how long the reading takes, and how long after the writing it begins. All combinations of an
//! execution run in random order, and then all run again, so a disturbance of the machine hits all
//! of them alike.

mod figures;
mod measure;
mod picture;
mod placement;
pub mod reader;
mod report;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use fastrand::Rng;
use indicatif::{ProgressBar, ProgressStyle};
use slipring_exchange::Way;

use super::files::{self, ABOUT_FILES, Files};
use super::machine::MeasuredMachine;
use super::size::{Size, Sizes};
use crate::console;
use measure::Setup;
use placement::Placement;
use report::{Record, Series};

/// Seed of the orders.
const SEED: u64 = 2025;
/// Size of a word, in bytes.
const WORD: usize = 8;
/// The block of the paper, in words: 1 MiB.
const PAPER_BLOCK: usize = (1 << 20) / WORD;

/// Measures on this machine what exchanging a block costs
///
/// A writer fills a block with ones, and a reader sums it: the experiment of
/// Dokulil and Benkner. The ways are theirs (one thread; a file; two threads or
/// two processes by atomics; two threads by promises; two processes by named
/// semaphores), promises of slipring, and rings of one slot that spin, block, or
/// adapt.
///
/// Prints how long the reading takes and how long after the writing it begins:
/// for 1 MiB with the reader on each core, with warm and with cold caches, and
/// for blocks of 4 KiB to 64 MiB.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_FILES, verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    size: Sizes,

    /// Write the figures of every execution to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw the figures to FILE (SVG)
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    /// Measure these ways [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<Way>,
}

/// The amount of measurement.
struct Plan {
    /// Number of executions of each setup.
    executions: u32,
    /// Number of blocks of an execution.
    blocks: usize,
    /// Sizes of blocks that are compared, in words.
    sizes: Vec<usize>,
    /// Size of the memory that each end works through to make its caches cold, in bytes.
    cold: usize,
}

impl Plan {
    fn new(size: Size) -> Plan {
        let all = [512, 2_048, 8_192, 32_768, 131_072, 524_288, 2_097_152, 8_388_608];
        Plan {
            executions: size.pick(2, 5, 5),
            blocks: size.pick(3, 30, 100),
            sizes: all.into_iter().step_by(size.pick(4, 2, 1)).collect(),
            cold: size.pick(1 << 20, 64 << 20, 64 << 20),
        }
    }

    /// Returns the number of blocks of an execution. Large blocks are fewer, so that an execution
    /// moves 4 GiB at most.
    fn blocks(&self, words: usize) -> usize {
        self.blocks.min((4 << 30) / (words * WORD)).max(1)
    }
}

/// Runs the measurement and reports its results.
pub fn run(args: &Args) -> Result<()> {
    let size = args.size.size();
    let plan = Plan::new(size);
    let ways = if args.only.is_empty() { Way::all() } else { args.only.clone() };
    // Opened before the measurement, so that a wrong path costs no measurement.
    let files = Files::open(args.json.as_deref(), args.picture.as_deref())?;
    slipring::on_warning(|_| ());
    let placements = Placement::all();
    let mut record = Record {
        slipring: env!("CARGO_PKG_VERSION"),
        date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        size: size.to_string(),
        seed: SEED,
        machine: MeasuredMachine::this(),
        missing: placement::missing(&placements),
        cold_bytes: plan.cold,
        stopped: None,
        series: Vec::new(),
    };
    let setups = setups(&plan, &ways, &placements);
    let measured = measure_all(&mut record, &plan, setups);
    record.series.iter_mut().for_each(Series::summarise);
    record.stopped = measured.as_ref().err().map(|error| format!("{error:#}"));
    if record.series.iter().all(|series| series.executions.is_empty()) {
        return measured;
    }
    files::all_errors([files.save_and_print(&record), measured])
}

/// Returns all setups: the paper's block with the reader on each core, and blocks of all sizes.
fn setups(plan: &Plan, ways: &[Way], placements: &[Placement]) -> Vec<Setup> {
    let mut setups = Vec::new();
    for way in ways {
        for placement in placements.iter().filter(|placement| placement.suits(way)) {
            for cold in [None, Some(plan.cold)] {
                setups.push(Setup::new(way, *placement, PAPER_BLOCK, cold));
            }
        }
        let apart = placements.iter().rfind(|placement| placement.suits(way));
        let sizes = plan.sizes.iter().filter(|words| **words != PAPER_BLOCK);
        setups.extend(apart.into_iter().flat_map(|placement| {
            sizes.clone().map(|words| Setup::new(way, *placement, *words, None))
        }));
    }
    setups
}

/// Measures all setups, in rounds of random order.
fn measure_all(record: &mut Record, plan: &Plan, setups: Vec<Setup>) -> Result<()> {
    let style = ProgressStyle::with_template("{bar:24} {percent:>3} %, {eta} left: {wide_msg}");
    let bar = ProgressBar::new(u64::from(plan.executions) * setups.len() as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    record.series = setups.iter().map(Series::new).collect();
    let mut random = Rng::with_seed(SEED);
    for _ in 0..plan.executions {
        let mut order: Vec<usize> = (0..setups.len()).collect();
        random.shuffle(&mut order);
        for which in order {
            let setup = &setups[which];
            bar.set_message(setup.to_string());
            let execution = setup.execute(plan.blocks(setup.words));
            let execution = execution.with_context(|| setup.to_string())?;
            record.series[which].executions.push(execution);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Reports an error of this program's second process, or its result, in one line.
fn print_line(line: &str) -> Result<()> {
    console::print(&format!("{line}\n"))
}
