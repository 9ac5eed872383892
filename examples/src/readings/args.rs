//! The command line arguments.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::measure::Mode;
use super::ring::Wait;

/// The data file of the project.
const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/weather-2013.csv.gz");

/// Finds weather readings that are out of the ordinary
///
/// Reads hourly rows, sorts them by time and passes them through a graph of
/// stages. A pool of workers parses each row into up to nine readings. One
/// stage marks readings more than 4 standard deviations from the mean of the
/// preceding 14 days. Then a journal and a summary are written in parallel.
/// All modes write the same bytes.
#[derive(Clone, Debug, Parser)]
#[command(name = "readings", verbatim_doc_comment)]
pub struct Args {
    /// Rows of weather stations, as .csv or .csv.gz [default: the project's data]
    #[arg(default_value = BUNDLED, hide_default_value = true)]
    pub file: PathBuf,

    /// Way to run the stages
    #[arg(long, value_enum, default_value_t = Modes::All)]
    pub mode: Modes,

    /// Number of threads that parse rows (not for `sequential`)
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,

    /// Process the data N times, each time shifted by its time span
    ///
    /// The default is once, and with `all` as often as takes about a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: Option<u64>,

    /// Number of rows that the executor sends through a queue at once
    ///
    /// Larger batches make the queues cheaper and delay rows.
    #[arg(long, value_name = "ROWS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub batch: u16,

    /// Wait strategy of the ring's threads, such as `yielding` or `blocking`
    #[arg(long, value_name = "NAME", default_value_t = Wait::default())]
    pub wait: Wait,

    /// Write the journal to FILE; without it, compute only its checksum
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// With `all`: one short round, to check that everything works
    #[arg(long)]
    pub smoke: bool,
}

/// The mode to run, or all modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Modes {
    /// All modes in turn for a few seconds, and a table that compares them
    All,
    /// A ring, with a thread for each stage and worker
    Slipring,
    /// A ring, whose stages share as many threads as there are cores
    SlipringShared,
    /// The same, built as a graph
    SlipringGraph,
    /// One thread
    Sequential,
    /// A queue per worker and a thread that merges
    Executor,
}

impl Modes {
    /// Returns the mode, unless all modes are meant.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::All => None,
            Self::Slipring => Some(Mode::Slipring),
            Self::SlipringShared => Some(Mode::SlipringShared),
            Self::SlipringGraph => Some(Mode::SlipringGraph),
            Self::Sequential => Some(Mode::Sequential),
            Self::Executor => Some(Mode::Executor),
        }
    }
}
