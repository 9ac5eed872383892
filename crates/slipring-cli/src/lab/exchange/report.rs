//! The tables of a record.

use std::fmt::Write as _;

use anyhow::Result;
use indicatif::BinaryBytes;
use slipring_support::numbers::significant;
use slipring_support::tables::markdown;

use super::about::{PAPER_BLOCK, WORD};
use super::measured::Series;
use super::record::Record;
use super::{picture, placement};
use crate::lab::files::Results;
use crate::lab::interval::Interval;
use crate::lab::record;

impl Results for Record {
    fn tables(&self, width: Option<usize>) -> String {
        [self.heading(), self.of_cores(width), self.of_sizes(width), self.closing()].concat()
    }

    fn picture(&self) -> Result<String> {
        picture::draw(self)
    }
}

/// A column of a table: its heading, and a function that selects its series.
type Column<'a> = (String, Box<dyn Fn(&Series) -> bool + 'a>);

impl Record {
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
