//! The command line arguments.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use jiff::tz::TimeZone;

use super::format::parse_zone;
use super::measure::Mode;
use super::ring::Wait;
use super::schema::Options;

/// The data file of the project.
const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/weather-2013.csv.gz");

/// Finds weather readings that are out of the ordinary
///
/// Reads hourly rows, sorts them by time and passes them through a graph of
/// stages. A pool of workers parses each row into up to nine readings. One
/// stage marks readings more than 4 standard deviations from the mean of the
/// preceding 14 days. Then a journal and a summary are written in parallel.
/// All modes write the same bytes.
///
/// The file is CSV in UTF-8, as R, pandas and spreadsheets write it. Its header
/// has the columns origin, time_hour, temp, dewp, humid, wind_dir, wind_speed,
/// wind_gust, precip, pressure and visib in any order and case. Other columns
/// are ignored. A field that is neither a number nor missing is a bad reading.
/// A row without a station or a valid time, or with another number of columns
/// than the header, is malformed as a whole. Bad readings and malformed rows
/// are counted and reported. If more than half of the rows are malformed, or
/// more than half of the readings bad, the program says why and ends with code 1.
#[derive(Clone, Debug, Parser)]
#[command(name = "readings", verbatim_doc_comment)]
pub struct Args {
    /// CSV file of weather readings, plain or packed by gzip [default: the project's data]
    #[arg(default_value = BUNDLED, hide_default_value = true)]
    pub file: PathBuf,

    /// Character between fields: `,`, `;`, `tab`, or another ASCII character
    ///
    /// The default is the first of comma, semicolon and tab with which the header
    /// has all needed columns. With any delimiter but a comma, 3,5 is read as 3.5.
    #[arg(long, value_name = "CHAR", value_parser = delimiter, allow_hyphen_values = true)]
    pub delimiter: Option<u8>,

    /// Texts of a missing reading, such as `-999,none`, separated by commas
    ///
    /// These texts are added to the usual ones: an empty field, NA, N/A, NaN and null.
    /// Case does not matter, and a number stands for every reading of the same value.
    #[arg(long, value_name = "TEXT", value_delimiter = ',', allow_hyphen_values = true)]
    pub missing: Vec<String>,

    /// Zone of times that name none, such as `Europe/Berlin`, `UTC` or `+02:00`
    ///
    /// If no zone is given, each time must name its own; otherwise its row is malformed. A date
    /// alone means its midnight. A time that the zone skips moves forward by the gap. Where the
    /// zone repeats a time, the first occurrence counts.
    #[arg(long, value_name = "ZONE", value_parser = zone, allow_hyphen_values = true)]
    pub zone: Option<TimeZone>,

    /// Way to run the stages
    #[arg(long, value_enum, default_value_t = Modes::All)]
    pub mode: Modes,

    /// Number of threads that parse rows (not for `sequential`)
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,

    /// Process the data N times, each time shifted by its time span
    ///
    /// The default is 1; with `all`, it is the number that takes about a second.
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

    /// Run one short round with `all`, to check that everything works
    #[arg(long)]
    pub smoke: bool,
}

impl Args {
    /// Returns the arguments that concern reading the file.
    pub fn options(&self) -> Options {
        Options {
            delimiter: self.delimiter,
            missing: self.missing.clone(),
            zone: self.zone.clone(),
        }
    }
}

/// Parses a delimiter. A quote or a line end cannot be the delimiter, because it already has
/// another meaning.
fn delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        (_, [b'"']) => Err("a quote surrounds fields, so it cannot separate them".to_owned()),
        (_, [b'\n' | b'\r']) => {
            Err("a line end ends a row, so it cannot separate fields".to_owned())
        }
        (_, [byte]) if byte.is_ascii() => Ok(*byte),
        _ => Err("a delimiter is one ASCII character, such as ',' or ';', or `tab`".to_owned()),
    }
}

/// Parses the name or the offset of a time zone.
fn zone(text: &str) -> Result<TimeZone, String> {
    parse_zone(text).ok_or_else(|| {
        "a zone is a name such as Europe/Berlin or UTC, or an offset such as +02:00".to_owned()
    })
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
    /// The ring of `slipring-shared`, built as a graph
    SlipringGraph,
    /// One thread
    Sequential,
    /// An executor: a queue for each worker, and a thread that merges the queues
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
