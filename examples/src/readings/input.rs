//! The input file, read as a whole and sorted by time: the source of the producer's records.
//!
//! A file lists one station after another, so the last row must be read before the first can enter
//! the ring. Sorting parses only the time and the station of each row. The workers then parse all
//! fields, including the time once more.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;

use super::schema::{Options, Schema};
use super::split::{Range, Records};
use super::{escape, file, format};

/// Time between two repetitions if all rows have the same time, in seconds.
const HOUR: i64 = 3600;

/// Number of records between updates of the progress bar, large enough not to slow the run down.
const TICK: u64 = 1 << 13;

/// Byte order mark that some programs write at the beginning of UTF-8 text.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The rows of a file, sorted by time, then by the station's name, then by their order in the file.
#[derive(Debug)]
pub struct Input {
    text: Vec<u8>,
    schema: Schema,
    rows: Vec<Range>,
    /// Time of the first row, in seconds since 1970.
    first: i64,
    /// Time of the last row, in seconds since 1970.
    last: i64,
    /// Shortest time between two different times, in seconds.
    step: i64,
}

/// The record of a row, on its way into an event.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Bytes of the record, with one byte of its line end: `\n`, `\r`, or the `\r` of `\r\n`. The
    /// last record of a file may have no line end.
    pub bytes: &'a [u8],
    /// Number of the line on which the record begins; the file's first line is line 1.
    pub line: u64,
    /// Seconds to add to the row's time; 0 in the first repetition.
    pub shift: i64,
    /// Time at which the producer took the record.
    pub entered: Instant,
}

impl Input {
    /// Reads a file. The first bytes show whether it is packed with gzip; its name does not matter.
    pub fn read(path: &Path, options: &Options) -> Result<Self> {
        let text = file::read(path)?;
        Self::new(text, options).with_context(|| format!("cannot use {}", escape::path(path)))
    }

    /// Parses the text of a file with the default options.
    pub fn from_text(text: impl Into<Vec<u8>>) -> Result<Self> {
        Self::new(text.into(), &Options::default())
    }

    /// Parses the text of a file: a header, then rows. Blank lines, and rows whose fields are all
    /// empty, are no rows.
    pub fn new(text: Vec<u8>, options: &Options) -> Result<Self> {
        let start = if text.starts_with(MARK) { MARK.len() } else { 0 };
        let blank = text[start..].iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        ensure!(text.len() > start + blank, "the file is empty; it needs a header at least");
        let schema = Schema::from_header(&text[start + blank..], options)?;

        let mut records = Records::new(&text, start, schema.delimiter());
        let Some(_header) = records.next_record()? else { bail!("the file is empty") };
        // A row without a valid time or station stays behind its predecessor in the file; at the
        // beginning of the file it comes first.
        let mut key = (i64::MIN, 0);
        let mut stations = Stations::default();
        let mut rows = Vec::new();
        while let Some(range) = records.next_record()? {
            let field = |index| records.splitter().field(index).filter(|_| range.closed);
            if let (Some(time), Some(station)) =
                (field(schema.columns().time()), field(schema.columns().station()))
                && let Ok(time) = schema.time(time)
            {
                key = (time, stations.index(station));
            }
            rows.push((key, range));
        }
        let ranks = stations.ranks();
        rows.sort_by_key(|&((time, station), _)| (time, ranks.get(station)));

        let mut times: Vec<i64> =
            rows.iter().map(|((time, _), _)| *time).filter(|&time| time > i64::MIN).collect();
        times.dedup();
        let step = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(HOUR);
        let (first, last) =
            (times.first().copied().unwrap_or(0), times.last().copied().unwrap_or(0));
        let rows = rows.into_iter().map(|(_, range)| range).collect();
        Ok(Self { text, schema, rows, first, last, step })
    }

    /// Returns the rules by which the file's text is read.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the number of rows in the file.
    pub fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the time between the starts of two consecutive repetitions, in seconds: the time
    /// from the first row to the last, plus the shortest step between two times in the file.
    pub fn span(&self) -> i64 {
        self.last - self.first + self.step
    }

    /// Returns the number of repetitions that fit before the end of the year 9999.
    pub fn max_repeats(&self) -> u64 {
        ((format::last_second() - self.last) / self.span()) as u64 + 1
    }

    /// Returns the number of rows of `repeat` repetitions. Fails if these end after the year 9999,
    /// or if their number exceeds 64 bits.
    pub fn total(&self, repeat: u64) -> Result<u64> {
        let max = self.max_repeats();
        ensure!(
            repeat <= max,
            "the data fits {max} times before the year 9999 ends, not {repeat} times"
        );
        let total = self.rows().checked_mul(repeat);
        total.with_context(|| format!("{} rows times {repeat} exceed 64 bits", self.rows()))
    }

    /// Returns the records in order, `repeat` times, and moves the progress bar.
    pub fn feed<'a>(&'a self, repeat: u64, bar: &'a ProgressBar) -> Result<Feed<'a>> {
        self.total(repeat)?;
        Ok(Feed { input: self, bar, next: self.rows.iter(), left: repeat, shift: 0, taken: 0 })
    }
}

/// The names of stations, numbered in the order in which the file mentions them.
#[derive(Debug, Default)]
struct Stations {
    indices: HashMap<Box<[u8]>, usize>,
}

impl Stations {
    fn index(&mut self, name: &[u8]) -> usize {
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        let index = self.indices.len();
        self.indices.insert(name.into(), index);
        index
    }

    /// Returns the place of each station in the order of names.
    fn ranks(self) -> Vec<usize> {
        let mut names: Vec<(Box<[u8]>, usize)> = self.indices.into_iter().collect();
        names.sort();
        let mut ranks = vec![0; names.len()];
        for (rank, (_, index)) in names.iter().enumerate() {
            ranks[*index] = rank;
        }
        ranks
    }
}

/// An iterator over the records of all repetitions.
#[derive(Debug)]
pub struct Feed<'a> {
    input: &'a Input,
    bar: &'a ProgressBar,
    next: std::slice::Iter<'a, Range>,
    /// Number of repetitions that have not ended.
    left: u64,
    /// Shift of the current repetition, in seconds.
    shift: i64,
    /// Number of records returned so far.
    taken: u64,
}

impl<'a> Iterator for Feed<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        if self.left == 0 {
            return None;
        }
        let range = match self.next.next() {
            Some(range) => range,
            None => {
                self.left -= 1;
                if self.left == 0 {
                    return None;
                }
                self.shift += self.input.span();
                self.next = self.input.rows.iter();
                self.next.next()?
            }
        };
        self.taken += 1;
        if self.taken.is_multiple_of(TICK) {
            self.bar.inc(TICK);
        }
        let bytes = &self.input.text[range.start..range.end];
        Some(Record { bytes, line: range.line, shift: self.shift, entered: Instant::now() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "origin,temp,dewp,humid,wind_dir,wind_speed,wind_gust,precip,pressure,visib,time_hour\n";

    fn input(rows: &str) -> Input {
        Input::from_text(format!("{HEADER}{rows}")).unwrap()
    }

    fn lines(input: &Input, repeat: u64) -> Vec<u64> {
        input.feed(repeat, &ProgressBar::hidden()).unwrap().map(|record| record.line).collect()
    }

    #[test]
    fn rows_are_sorted_by_time_then_station_then_line() {
        let rows = "B,1,,,,,,,,,2013-01-01T07:00:00Z\nB,2,,,,,,,,,2013-01-01T06:00:00Z\n\
                    A,3,,,,,,,,,2013-01-01T07:00:00Z\r\n\nB,4,,,,,,,,,2013-01-01T06:00:00Z";
        let input = input(rows);
        assert_eq!(lines(&input, 1), [3, 6, 4, 2]);
        assert_eq!(
            input.feed(1, &ProgressBar::hidden()).unwrap().nth(2).unwrap().bytes,
            b"A,3,,,,,,,,,2013-01-01T07:00:00Z\r"
        );
        assert_eq!(input.span(), 2 * HOUR);
    }

    #[test]
    fn a_row_without_a_time_follows_its_predecessor_in_the_file() {
        let rows = "?\nB,1,,,,,,,,,2013-01-01T07:00:00Z\nB,2,,,,,,,,,never\nA,3,,,,,,,,,2013-01-01T06:00:00Z\nx,y\n";
        assert_eq!(lines(&input(rows), 1), [2, 5, 6, 3, 4]);
        assert_eq!(lines(&input(rows), 2), [2, 5, 6, 3, 4, 2, 5, 6, 3, 4]);
    }

    #[test]
    fn repetitions_after_the_year_9999_are_refused() {
        let input = input("A,1,,,,,,,,,2013-01-01T07:00:00Z\n");
        assert_eq!(input.span(), HOUR);
        let max = input.max_repeats();
        assert!(input.feed(max, &ProgressBar::hidden()).is_ok());
        let error = input.feed(max + 1, &ProgressBar::hidden()).unwrap_err();
        assert!(error.to_string().starts_with("the data fits 70"), "{error}");
        assert_eq!(input.total(max).unwrap(), max);
        assert!(input.total(u64::MAX).is_err());
        assert!(
            format::last_second() - (input.last + (max as i64 - 1) * input.span()) < input.span()
        );
    }

    #[test]
    fn a_file_without_rows_has_no_lines_and_needs_a_header() {
        assert_eq!(lines(&input(""), 3), [0; 0]);
        assert!(Input::from_text("").unwrap_err().to_string().contains("empty"));
        assert!(Input::from_text("\n").unwrap_err().to_string().contains("empty"));
    }
}
