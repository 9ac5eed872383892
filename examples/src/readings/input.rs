//! The input file, read as a whole and sorted by time: the source of the producer's lines.
//!
//! A file lists one station after another, so the last row must be read before the first can enter
//! the ring. Sorting parses only time and station of each row. The workers parse all fields, the
//! time again among them.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;

use super::columns::Columns;
use super::{escape, file, format};

/// Time between two repetitions if all rows have the same time, in seconds.
const HOUR: i64 = 3600;

/// Number of lines between updates of the progress bar, large enough not to slow the run down.
const TICK: u64 = 1 << 13;

/// The rows of a file, sorted by time, then by the station's name, then by their order in the file.
#[derive(Debug)]
pub struct Input {
    text: String,
    columns: Columns,
    rows: Vec<LineRange>,
    /// Time of the first row, in seconds since 1970.
    first: i64,
    /// Time of the last row, in seconds since 1970.
    last: i64,
    /// Shortest time between two different times, in seconds.
    step: i64,
}

/// The bytes of a row's line in the text, and the line's number.
#[derive(Clone, Copy, Debug)]
struct LineRange {
    start: usize,
    end: usize,
    number: u64,
}

/// The line of a row, on its way into an event.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Text without the line's end.
    pub text: &'a str,
    /// Number in the file; the header is line 1.
    pub number: u64,
    /// Seconds to add to the row's time; 0 in the first repetition.
    pub shift: i64,
    /// Time at which the producer took the line.
    pub entered: Instant,
}

impl Input {
    /// Reads a file. The first bytes show whether it is packed with gzip; its name does not matter.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = file::read(path)?;
        let kind = file::kind(&bytes);
        // Invalid UTF-8 makes its row malformed; it must not refuse the whole file.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        // Only a file without a header of ours can be of another kind.
        Self::from_text(text)
            .map_err(|error| kind.map_or(error, anyhow::Error::msg))
            .with_context(|| format!("cannot use {}", escape::path(path)))
    }

    /// Parses the text of a file: a header, then a row per line. Empty lines are no rows.
    pub fn from_text(text: String) -> Result<Self> {
        let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        ensure!(text.len() > start, "the file is empty; it needs a header at least");

        let mut lines = lines(&text, start);
        let Some(header) = lines.next() else { bail!("the file is empty") };
        let columns = Columns::from_header(&text[header.start..header.end])?;

        // A row without a valid time or station keeps the place behind its predecessor in the file;
        // at the beginning of the file it comes first.
        let mut key = (i64::MIN, "");
        let mut rows = Vec::new();
        for line in lines.filter(|line| line.start < line.end) {
            if let (Some(time), Some(station)) = columns.key_fields(&text[line.start..line.end])
                && let Some(time) = format::parse_time(time)
            {
                key = (time, station);
            }
            rows.push((key, line));
        }
        rows.sort_by_key(|&(key, _)| key);

        let mut times: Vec<i64> =
            rows.iter().map(|((time, _), _)| *time).filter(|&time| time > i64::MIN).collect();
        times.dedup();
        let step = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(HOUR);
        let (first, last) =
            (times.first().copied().unwrap_or(0), times.last().copied().unwrap_or(0));
        let rows = rows.into_iter().map(|(_, line)| line).collect();
        Ok(Self { text, columns, rows, first, last, step })
    }

    /// Returns the columns of the file.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Returns the number of rows in the file.
    pub fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the shift of a repetition against the one before, in seconds: the time from the
    /// first to the last row plus the shortest step between two times of the file.
    pub fn span(&self) -> i64 {
        self.last - self.first + self.step
    }

    /// Returns how many repetitions end before the year 9999 does.
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

    /// Returns the lines in order, `repeat` times, and moves the progress bar.
    pub fn feed<'a>(&'a self, repeat: u64, bar: &'a ProgressBar) -> Result<Feed<'a>> {
        self.total(repeat)?;
        Ok(Feed { input: self, bar, next: self.rows.iter(), left: repeat, shift: 0, taken: 0 })
    }
}

/// Returns all lines from `start` on, without their ends (`\n` or `\r\n`).
fn lines(text: &str, mut start: usize) -> impl Iterator<Item = LineRange> + '_ {
    text[start..].split_inclusive('\n').zip(1..).map(move |(line, number)| {
        let end = start + line.trim_end_matches(['\n', '\r']).len();
        let range = LineRange { start, end, number };
        start += line.len();
        range
    })
}

/// An iterator over the lines of all repetitions.
#[derive(Debug)]
pub struct Feed<'a> {
    input: &'a Input,
    bar: &'a ProgressBar,
    next: std::slice::Iter<'a, LineRange>,
    /// Number of repetitions that have not ended.
    left: u64,
    /// Shift of the current repetition, in seconds.
    shift: i64,
    /// Number of lines returned so far.
    taken: u64,
}

impl<'a> Iterator for Feed<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.left == 0 {
            return None;
        }
        let line = match self.next.next() {
            Some(line) => line,
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
        let text = &self.input.text[line.start..line.end];
        Some(Line { text, number: line.number, shift: self.shift, entered: Instant::now() })
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

    fn numbers(input: &Input, repeat: u64) -> Vec<u64> {
        input.feed(repeat, &ProgressBar::hidden()).unwrap().map(|line| line.number).collect()
    }

    #[test]
    fn rows_are_sorted_by_time_then_station_then_line() {
        let rows = "B,1,,,,,,,,,2013-01-01T07:00:00Z\nB,2,,,,,,,,,2013-01-01T06:00:00Z\n\
                    A,3,,,,,,,,,2013-01-01T07:00:00Z\r\n\nB,4,,,,,,,,,2013-01-01T06:00:00Z";
        let input = input(rows);
        assert_eq!(numbers(&input, 1), [3, 6, 4, 2]);
        assert_eq!(
            input.feed(1, &ProgressBar::hidden()).unwrap().nth(2).unwrap().text,
            "A,3,,,,,,,,,2013-01-01T07:00:00Z"
        );
        assert_eq!(input.span(), 2 * HOUR);
    }

    #[test]
    fn a_row_without_a_time_follows_its_predecessor_in_the_file() {
        let rows = "?\nB,1,,,,,,,,,2013-01-01T07:00:00Z\nB,2,,,,,,,,,never\nA,3,,,,,,,,,2013-01-01T06:00:00Z\nx,y\n";
        assert_eq!(numbers(&input(rows), 1), [2, 5, 6, 3, 4]);
        assert_eq!(numbers(&input(rows), 2), [2, 5, 6, 3, 4, 2, 5, 6, 3, 4]);
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
        assert_eq!(numbers(&input(""), 3), [0; 0]);
        assert!(Input::from_text(String::new()).unwrap_err().to_string().contains("empty"));
        assert!(Input::from_text("\n".into()).unwrap_err().to_string().contains("no column"));
    }
}
