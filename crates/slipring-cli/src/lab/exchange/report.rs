//! The results of a measurement: a record for programs, and tables for people.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Result;
use indicatif::BinaryBytes;
use serde::{Serialize, Serializer};
use slipring_support::numbers::significant;
use slipring_support::tables::markdown;

use super::measure::{Execution, Setup};
use super::placement::{self, Placement};
use super::plan::Plan;
use super::{PAPER_BLOCK, WORD, convert, picture};
use crate::lab::files::Results;
use crate::lab::interval::Interval;
use crate::lab::record;

/// All results of `slipring lab exchange`.
#[derive(Clone, Debug)]
pub struct Record {
    /// Versions, machine, noise floor: what the records of all experiments have.
    pub head: record::Record,
    pub measured: Measured,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Cores of writer and reader.
    pub placements: Vec<Placement>,
    /// Size of the memory that each end works through to make its caches cold, in bytes.
    pub cold_bytes: usize,
    /// Start of the measurement.
    pub began: Instant,
    /// Results by setup.
    pub series: Vec<Series>,
}

impl Measured {
    /// Makes a series without executions for each setup.
    pub fn begin(plan: &Plan) -> Measured {
        let placements = plan.placements();
        let series = plan.setups(&placements).iter().map(Series::new).collect();
        Measured { placements, cold_bytes: plan.amount.cold, began: Instant::now(), series }
    }

    /// Drops all executions after the first rounds, so that all series have equally many.
    pub fn keep_rounds(&mut self, rounds: usize) {
        self.series.iter_mut().for_each(|series| series.executions.truncate(rounds));
    }
}

/// A record is saved in the form that all experiments have in common.
impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let experiments = vec![convert::results(&self.measured)];
        record::Record { experiments, ..self.head.clone() }.serialize(serializer)
    }
}

/// The executions of one setup.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the way.
    pub way: String,
    /// Cores of the two ends.
    pub placement: Placement,
    /// Size of a block, in bytes.
    pub bytes: usize,
    /// Whether both ends made their caches cold between two blocks.
    pub cold: bool,
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
            executions: Vec::new(),
        }
    }

    /// Returns the time that the reading of a block takes, in nanoseconds: the mean of the
    /// executions' means, and its 95 % interval.
    pub fn read(&self) -> Option<Interval> {
        self.interval(|execution| execution.read.mean_ns)
    }

    /// Returns the time from the end of the writing to the beginning of the reading, in the same
    /// way.
    pub fn latency(&self) -> Option<Interval> {
        self.interval(|execution| execution.latency.mean_ns)
    }

    fn interval(&self, mean: fn(&Execution) -> f64) -> Option<Interval> {
        Interval::of(&self.executions.iter().map(mean).collect::<Vec<f64>>())
    }

    /// Returns the placement and the caches in words.
    pub fn setting(&self) -> String {
        let core = self.placement.reader.map_or("not pinned".into(), |core| format!("core {core}"));
        let caches = if self.cold { "cold" } else { "warm" };
        format!("{core}, {}, {caches}", self.placement.relation.name())
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
        let mut ways: Vec<&str> = self.measured.series.iter().map(|series| &*series.way).collect();
        ways.dedup();
        ways
    }

    /// Returns the series of the paper's block.
    pub fn paper(&self) -> impl Iterator<Item = &Series> {
        self.measured.series.iter().filter(|series| series.bytes == PAPER_BLOCK * WORD)
    }

    /// Returns the placement at which blocks of all sizes are measured: the last one.
    pub fn apart(&self) -> Option<Placement> {
        self.measured.series.iter().map(|series| series.placement).max_by_key(|place| place.reader)
    }

    fn heading(&self) -> String {
        let record::Record { slipring, date, size, machine, .. } = &self.head;
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
            let heading = series.setting();
            let suits =
                move |series: &Series| (series.placement.reader, series.cold) == (reader, cold);
            columns.push((heading, Box::new(suits)));
        }
        let of_paper = |series: &Series| series.bytes == PAPER_BLOCK * WORD;
        self.pair("1 MiB, by the reader's core and caches", &of_paper, &columns, width)
    }

    /// Returns the tables of blocks of all sizes, with warm caches and the reader on another core.
    fn of_sizes(&self, width: Option<usize>) -> String {
        let mut sizes: Vec<usize> =
            self.measured.series.iter().map(|series| series.bytes).collect();
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
                        .measured
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
        let read = table("Time to read a block", Series::read);
        read + &table("From written to begun", Series::latency)
    }

    fn closing(&self) -> String {
        let mut text = String::from(
            "Figures are means of the executions' means, with 95 % intervals by Student's t.\n\
             The file is in memory (/dev/shm), so no disk is part of it.\n",
        );
        let missing = placement::missing(&self.measured.placements);
        if !missing.is_empty() {
            let missing = missing.join(", ");
            let _ =
                writeln!(text, "Not measured, because this machine has no such cores: {missing}.");
        }
        if let Some(stopped) = &self.head.stopped {
            let _ = writeln!(text, "stopped early: {stopped}");
        }
        text
    }
}

/// Returns a mean with half the width of its interval, in microseconds.
fn cell(interval: Interval) -> String {
    let mean = significant(interval.mean / 1e3);
    match interval.half_width {
        Some(half) => format!("{mean} ±{}", significant(half / 1e3)),
        None => mean,
    }
}
