//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::measure::Mode;
use super::ring::Wait;

/// The data that comes with the project.
const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/weather-2013.csv.gz");

/// Finds readings of weather stations that are out of the ordinary.
///
/// Reads hourly rows, puts them in order of time and takes them through a graph of stages: a pool
/// of workers parses a row into up to nine readings, one stage marks readings more than 4 standard
/// deviations from the mean of the preceding 14 days, then a journal and a summary are written side
/// by side. Three ways of doing it give the same bytes.
#[derive(Clone, Debug, Parser)]
#[command(name = "readings")]
pub struct Args {
    /// Rows of weather stations, as .csv or .csv.gz; by default the data that comes with the
    /// project.
    #[arg(default_value = BUNDLED, hide_default_value = true)]
    pub file: PathBuf,

    /// How to do it; `all` runs each way for a few seconds on repeated data and compares them.
    #[arg(long, value_enum, default_value_t = Which::All)]
    pub mode: Which,

    /// Threads that parse rows (not for `sequential`).
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,

    /// Take the data N times, each time shifted by its span [default: once; with `all` what takes
    /// about a second].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: Option<u64>,

    /// Rows the executor sends through its queues at once: more make the queues cheaper and hold
    /// rows back.
    #[arg(long, value_name = "ROWS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parcel: u16,

    /// How the ring's threads wait: `busy-spin`, `yielding`, `sleeping` or `blocking`.
    // Rows come without a pause and threads may outnumber cores, so nobody sleeps for long and
    // waking them up would not pay.
    #[arg(long, value_name = "NAME", default_value_t = Wait::SLEEPING)]
    pub wait: Wait,

    /// Write the journal to FILE; without it, only its checksum is made.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// With `all`: one short round, to see that it works; the figures mean nothing.
    #[arg(long)]
    pub smoke: bool,
}

/// One mode, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Each of them, and a table.
    All,
    /// The ring.
    Slipring,
    /// One thread.
    Sequential,
    /// A queue per worker and a thread that merges.
    Executor,
}

impl Which {
    /// The mode, if it is one.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::All => None,
            Self::Slipring => Some(Mode::Slipring),
            Self::Sequential => Some(Mode::Sequential),
            Self::Executor => Some(Mode::Executor),
        }
    }
}
