//! The results of a measurement: a record for programs, and tables for people.

use std::fmt::Write as _;

use anyhow::Result;
use indicatif::BinaryBytes;
use serde::Serialize;
use slipring_support::numbers::significant;
use slipring_support::tables::markdown;

use super::figures::Interval;
use super::measure::{Execution, Setup};
use super::picture;
use super::placement::Placement;
use super::{PAPER_BLOCK, WORD};
use crate::lab::files::Results;
use crate::lab::machine::MeasuredMachine;

/// All results, as they are saved.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Version of this crate, which is the library's version.
    pub slipring: &'static str,
    /// Start of the measurement, in UTC.
    pub date: String,
    /// Amount of measurement: `smoke`, `quick` or `full`.
    pub size: String,
    /// Seed of the orders.
    pub seed: u64,
    /// Machine that was measured.
    pub machine: MeasuredMachine,
    /// Relations of two cores that this machine does not have.
    pub missing: Vec<&'static str>,
    /// Size of the memory that each end works through to make its caches cold, in bytes.
    pub cold_bytes: usize,
    /// Error that ended the measurement early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Results by setup.
    pub series: Vec<Series>,
}

/// The executions of one setup.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Name of the way.
    pub way: String,
    /// Cores of the two ends.
    #[serde(flatten)]
    pub placement: Placement,
    /// Size of a block, in bytes.
    pub bytes: usize,
    /// Whether both ends made their caches cold between two blocks.
    pub cold: bool,
    /// Time that the reading of a block takes: mean and 95 % interval over the executions.
    pub read: Option<Interval>,
    /// Time from the end of the writing to the beginning of the reading, in the same way.
    pub latency: Option<Interval>,
    /// All executions.
    pub executions: Vec<Execution>,
}

impl Series {
    pub fn new(setup: &Setup) -> Series {
        Series {
            way: setup.way.to_string(),
            placement: setup.placement,
            bytes: setup.words * WORD,
            cold: setup.cold.is_some(),
            read: None,
            latency: None,
            executions: Vec::new(),
        }
    }

    /// Computes the intervals over the executions.
    pub fn summarise(&mut self) {
        if self.executions.is_empty() {
            return;
        }
        let means = |mean: fn(&Execution) -> f64| -> Vec<f64> {
            self.executions.iter().map(mean).collect()
        };
        self.read = Some(Interval::of(&means(|execution| execution.read.mean_ns)));
        self.latency = Some(Interval::of(&means(|execution| execution.latency.mean_ns)));
    }
}

impl Results for Record {
    fn tables(&self, width: Option<usize>) -> String {
        [self.heading(), self.of_cores(width), self.of_sizes(width), self.closing()].concat()
    }

    fn picture(&self) -> Result<String> {
        picture::draw(self)
    }
}

/// A column of a table: its heading, and its series of each way.
type Column<'a> = (String, Box<dyn Fn(&Series) -> bool + 'a>);

impl Record {
    /// Returns the distinct names of the ways, in the order of the record.
    pub fn ways(&self) -> Vec<&str> {
        let mut ways: Vec<&str> = self.series.iter().map(|series| &*series.way).collect();
        ways.dedup();
        ways
    }

    /// Returns the series of the paper's block.
    pub fn paper(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| series.bytes == PAPER_BLOCK * WORD)
    }

    /// Returns the placement at which blocks of all sizes are measured: the last one.
    pub fn apart(&self) -> Option<Placement> {
        self.series.iter().map(|series| series.placement).max_by_key(|place| place.reader)
    }

    fn heading(&self) -> String {
        let Self { slipring, date, size, machine, .. } = self;
        let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
        let kernel = machine.kernel.as_deref().unwrap_or("unknown system");
        let mut text = format!("slipring {slipring}, exchange of a block, {size}, {date}\n");
        let _ = writeln!(text, "{} cores of {cpu}; {kernel}", machine.cores);
        if size == "smoke" {
            text.push_str("smoke run: it checks that everything works; its figures mean nothing\n");
        }
        text.push('\n');
        text
    }

    /// Returns the tables of the paper's block, with the reader on each core.
    fn of_cores(&self, width: Option<usize>) -> String {
        let mut columns: Vec<Column> = Vec::new();
        let mut known = Vec::new();
        for series in self.paper() {
            let (reader, cold) = (series.placement.reader, series.cold);
            if known.contains(&(reader, cold)) {
                continue;
            }
            known.push((reader, cold));
            let core = reader.map_or("not pinned".into(), |core| format!("core {core}"));
            let caches = if cold { "cold" } else { "warm" };
            let heading = format!("{core}, {}, {caches}", series.placement.relation.name());
            let suits =
                move |series: &Series| (series.placement.reader, series.cold) == (reader, cold);
            columns.push((heading, Box::new(suits)));
        }
        let of_paper = |series: &Series| series.bytes == PAPER_BLOCK * WORD;
        self.pair("1 MiB, by the reader's core and caches", &of_paper, &columns, width)
    }

    /// Returns the tables of blocks of all sizes, with warm caches and the reader on another core.
    fn of_sizes(&self, width: Option<usize>) -> String {
        let mut sizes: Vec<usize> = self.series.iter().map(|series| series.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let column = |bytes: usize| -> Column {
            let suits = move |series: &Series| series.bytes == bytes;
            (BinaryBytes(bytes as u64).to_string(), Box::new(suits))
        };
        let columns: Vec<Column> = sizes.into_iter().map(column).collect();
        let apart = self.apart();
        let suits = |series: &Series| {
            let at = apart.is_some_and(|place| place.reader == series.placement.reader);
            !series.cold && (at || series.way == "one-thread")
        };
        self.pair("warm caches, by the size of the block", &suits, &columns, width)
    }

    /// Returns the tables of reading times and of latencies.
    fn pair(
        &self,
        about: &str,
        suits: &dyn Fn(&Series) -> bool,
        columns: &[Column],
        width: Option<usize>,
    ) -> String {
        let table = |what: &str, interval: fn(&Series) -> Option<Interval>| {
            let header = ["way".to_owned()].into_iter();
            let header = header.chain(columns.iter().map(|(heading, _)| heading.clone()));
            let rows = self.ways().into_iter().map(|way| {
                let cell = |(_, column): &Column| {
                    let found = self
                        .series
                        .iter()
                        .find(|series| series.way == way && suits(series) && column(series));
                    found.and_then(interval).map_or("–".to_owned(), cell)
                };
                [way.to_owned()].into_iter().chain(columns.iter().map(cell)).collect()
            });
            let header: Vec<String> = header.collect();
            let rows: Vec<Vec<String>> = rows.collect();
            format!("{what}, in µs; {about}\n\n{}\n\n", markdown(&header, &rows, width))
        };
        let read = table("Time to read a block", |series| series.read);
        read + &table("From written to begun", |series| series.latency)
    }

    fn closing(&self) -> String {
        let mut text = String::from(
            "Figures are means of the executions' means, with 95 % intervals by Student's t.\n\
             The file is in memory (/dev/shm), so no disk is part of it.\n",
        );
        if !self.missing.is_empty() {
            let missing = self.missing.join(", ");
            let _ =
                writeln!(text, "Not measured, because this machine has no such cores: {missing}.");
        }
        text
    }
}

/// Returns a mean with half the width of its interval, in microseconds.
fn cell(interval: Interval) -> String {
    let mean = significant(interval.mean_ns / 1e3);
    match interval.half_width_ns {
        Some(half) => format!("{mean} ±{}", significant(half / 1e3)),
        None => mean,
    }
}
