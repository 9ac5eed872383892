//! The file, read whole and put in order: what the producer takes its lines from.
//!
//! The rows of a file stand station after station, so it must be known to its end before the first
//! row can enter. Beforehand, though, only the two fields are looked at that put a row in its
//! place, time and station; everything else is left to the workers, and the time is read by them
//! once more with all the rest.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;

use super::columns::Columns;
use super::format;

/// Assumed between the last row and the first one of a repetition, if all rows have the same time.
const HOUR: i64 = 3600;

/// Lines between two movements of the progress bar: rare enough not to be felt.
const TICK: u64 = 1 << 13;

/// A file's rows in order of time, ties by the station's name, further ties as in the file.
#[derive(Debug)]
pub struct Input {
    text: String,
    columns: Columns,
    rows: Vec<Place>,
    first: i64,
    last: i64,
    step: i64,
}

/// Where a row's line lies in the text.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    end: usize,
    number: u64,
}

/// A row's line as the producer takes it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The line, without its end.
    pub text: &'a str,
    /// Its number in the file; the header is line 1.
    pub number: u64,
    /// Seconds to add to the row's time: not zero in repetitions.
    pub shift: i64,
    /// When it was taken.
    pub entered: Instant,
}

impl Input {
    /// Reads a file, packed with gzip or not: told by its first bytes, whatever its name is.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let mut bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            let mut unpack = MultiGzDecoder::new(bytes.as_slice());
            unpack.read_to_end(&mut unpacked).with_context(|| format!("cannot unpack {name}"))?;
            bytes = unpacked;
        }
        // A line that is not UTF-8 shall be one malformed row, not the end of everything.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Self::from_text(text).with_context(|| format!("cannot use {name}"))
    }

    /// Takes a file's text: a header, then a row per line. Empty lines are no rows.
    pub fn from_text(text: String) -> Result<Self> {
        let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        ensure!(text.len() > start, "the file is empty, not even a header is in it");

        let mut lines = lines(&text, start);
        let Some(header) = lines.next() else { bail!("the file is empty") };
        let columns = Columns::from_header(&text[header.start..header.end])?;

        // A row whose place cannot be told stays behind the row it follows in the file; before the
        // first such row all is early.
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
        let rows = rows.into_iter().map(|(_, place)| place).collect();
        Ok(Self { text, columns, rows, first, last, step })
    }

    /// What the columns mean.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    /// By how much a repetition is shifted: from the first time to the last one, and one step
    /// further, so that it begins after the data before it ended. The step is the shortest time
    /// between two different times of the file.
    pub fn span(&self) -> i64 {
        self.last - self.first + self.step
    }

    /// How often the data fits one behind the other before the calendar ends.
    pub fn most_repeats(&self) -> u64 {
        ((format::last_second() - self.last) / self.span()) as u64 + 1
    }

    /// Rows of `repeat` repetitions. An error where these reach beyond the calendar, or beyond what
    /// can be counted.
    pub fn total(&self, repeat: u64) -> Result<u64> {
        let most = self.most_repeats();
        ensure!(
            repeat <= most,
            "the data fits {most} times before the year 9999 ends, not {repeat} times"
        );
        let total = self.rows().checked_mul(repeat);
        total.with_context(|| {
            format!("{} rows times {repeat} are more than can be counted", self.rows())
        })
    }

    /// The lines in order, `repeat` times over, telling a progress bar now and then.
    pub fn feed<'a>(&'a self, repeat: u64, bar: &'a ProgressBar) -> Result<Feed<'a>> {
        self.total(repeat)?;
        Ok(Feed { input: self, bar, next: self.rows.iter(), left: repeat, shift: 0, taken: 0 })
    }
}

/// The places of all lines from `start` on, without their ends (`\n` or `\r\n`).
fn lines(text: &str, mut start: usize) -> impl Iterator<Item = Place> + '_ {
    text[start..].split_inclusive('\n').zip(1..).map(move |(line, number)| {
        let end = start + line.trim_end_matches(['\n', '\r']).len();
        let place = Place { start, end, number };
        start += line.len();
        place
    })
}

/// The producer's side: line after line.
#[derive(Debug)]
pub struct Feed<'a> {
    input: &'a Input,
    bar: &'a ProgressBar,
    next: std::slice::Iter<'a, Place>,
    left: u64,
    shift: i64,
    taken: u64,
}

impl<'a> Iterator for Feed<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.left == 0 {
            return None;
        }
        let place = match self.next.next() {
            Some(place) => place,
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
        let text = &self.input.text[place.start..place.end];
        Some(Line { text, number: place.number, shift: self.shift, entered: Instant::now() })
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
    fn rows_come_by_time_then_station_then_as_in_the_file() {
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
    fn a_row_without_a_place_follows_its_neighbour() {
        let rows = "?\nB,1,,,,,,,,,2013-01-01T07:00:00Z\nB,2,,,,,,,,,never\nA,3,,,,,,,,,2013-01-01T06:00:00Z\nx,y\n";
        assert_eq!(numbers(&input(rows), 1), [2, 5, 6, 3, 4]);
        assert_eq!(numbers(&input(rows), 2), [2, 5, 6, 3, 4, 2, 5, 6, 3, 4]);
    }

    #[test]
    fn repetitions_end_with_the_calendar() {
        let input = input("A,1,,,,,,,,,2013-01-01T07:00:00Z\n");
        assert_eq!(input.span(), HOUR);
        let most = input.most_repeats();
        assert!(input.feed(most, &ProgressBar::hidden()).is_ok());
        let error = input.feed(most + 1, &ProgressBar::hidden()).unwrap_err();
        assert!(error.to_string().starts_with("the data fits 70"), "{error}");
        assert_eq!(input.total(most).unwrap(), most);
        assert!(input.total(u64::MAX).is_err());
        assert!(
            format::last_second() - (input.last + (most as i64 - 1) * input.span()) < input.span()
        );
    }

    #[test]
    fn no_rows_are_no_lines() {
        assert_eq!(numbers(&input(""), 3), [0; 0]);
        assert!(Input::from_text(String::new()).unwrap_err().to_string().contains("empty"));
        assert!(Input::from_text("\n".into()).unwrap_err().to_string().contains("no column"));
    }
}
