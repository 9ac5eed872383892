//! The command: its arguments, and the measurement of this experiment alone.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use slipring_exchange::Way;

use super::plan::{Amount, Plan, SEED};
use super::record::Record;
use crate::base::exit;
use crate::lab::files::{self, ABOUT_FILES, Files};
use crate::lab::machine::MeasuredMachine;
use crate::lab::record::Record as CommonRecord;
use crate::lab::size::Sizes;
use crate::lab::{interrupt, noise, progress};

/// Measures on this machine what exchanging a block costs
///
/// A writer fills a block with ones, and a reader sums it: the experiment of
/// Dokulil and Benkner. The block is handed over in their ways (one thread; a
/// file; two threads or two processes by atomics; two threads by promises; two
/// processes by named semaphores), by slipring's promises, and by rings of one
/// slot that spin, block, or adapt.
///
/// Prints how long reading takes and how long after writing it begins: for 1 MiB
/// with the reader on each core, with warm and with cold caches, and for blocks
/// of 4 KiB to 64 MiB.
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

/// Runs the measurement and reports its results.
pub fn run(args: &Args) -> Result<()> {
    let size = args.size.size();
    let amount = Amount::alone(size);
    let ways = if args.only.is_empty() { Way::all() } else { args.only.clone() };
    // The files are opened before the measurement, so that a wrong path does not waste a
    // measurement.
    let files = Files::open(args.json.as_deref(), args.picture.as_deref())?;
    slipring::waiting::on_warning(|_| ());
    interrupt::watch()?;
    let plan = Plan { ways, amount };
    let expected = plan.expected() + noise::expected(size) / 2;
    let bar = progress::bar(expected.as_millis() as u64);
    bar.set_message("noise floor");
    let noise = noise::measure(size)?;
    bar.inc(noise::expected(size).as_millis() as u64 / 2);
    let head = CommonRecord::begin(size, SEED, MeasuredMachine::this(), noise);
    let mut record = Record { head, measured: plan.begin() };
    let measured = plan.run(&mut record.measured, &bar);
    bar.finish_and_clear();
    record.head.stopped = match &measured {
        Ok(true) => None,
        Ok(false) => Some("interrupted during `exchange`".to_owned()),
        Err(error) => Some(format!("{error:#}")),
    };
    let measured = measured.and_then(|is_complete| {
        if is_complete { Ok(()) } else { Err(exit::interrupted("interrupted during `exchange`")) }
    });
    if record.measured.series.iter().all(|series| series.executions.is_empty()) {
        measured?;
        return Err(exit::interrupted("interrupted: nothing was saved"));
    }
    files::all_errors([files.save_and_print(&record), measured])
}
