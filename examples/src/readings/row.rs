//! The event: one row of the file. It is filled, parsed, marked and read where it lies, and keeps
//! its buffer for the next row.

use std::ops::Range;
use std::time::Instant;

use super::columns::{Column, Columns, DIMENSIONS};
use super::format;
use super::input::Line;

/// How the file marks a missing value.
pub const MISSING: &str = "NA";

/// Why a row gave no readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It has another number of columns than the header.
    Columns {
        /// Columns of the row.
        found: usize,
        /// Columns of the header.
        expected: usize,
    },
    /// The value of a dimension is neither a number nor missing.
    Number {
        /// The dimension, by its place in [`DIMENSIONS`].
        dimension: usize,
        /// Where the value stands in the line.
        field: Range<usize>,
    },
    /// The time cannot be read.
    Time {
        /// Where the time stands in the line.
        field: Range<usize>,
    },
    /// The station has no name, or one that is not UTF-8.
    Station,
}

/// A row on its way through the stages.
#[derive(Clone, Debug)]
pub struct Row {
    // Filled by the producer.
    line: String,
    number: u64,
    shift: i64,
    entered: Instant,
    // Parsed by a worker.
    fault: Option<Malformed>,
    time: i64,
    station: Range<usize>,
    values: [f64; DIMENSIONS.len()],
    present: u16,
    // Marked by the detector.
    alarms: u16,
    place: usize,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            line: String::new(),
            number: 0,
            shift: 0,
            entered: Instant::now(),
            fault: None,
            time: 0,
            station: 0..0,
            values: [0.0; DIMENSIONS.len()],
            present: 0,
            alarms: 0,
            place: 0,
        }
    }
}

impl Row {
    /// Takes over a line. The row's buffer is used again: once it has seen the longest line,
    /// nothing is allocated.
    pub fn fill(&mut self, line: &Line<'_>) {
        self.line.clear();
        self.line.push_str(line.text);
        self.number = line.number;
        self.shift = line.shift;
        self.entered = line.entered;
    }

    /// Turns the line into readings, or notes why it has none. This is the work worth sharing among
    /// threads.
    pub fn parse(&mut self, columns: &Columns) {
        self.present = 0;
        self.alarms = 0;
        self.fault = self.read_fields(columns).err();
        if self.fault.is_some() {
            self.present = 0;
            // A wrong number of columns moves the fields: what is wrong with one of them is then
            // beside the point.
            let (found, expected) = (self.line.split(',').count(), columns.all().len());
            if found != expected {
                self.fault = Some(Malformed::Columns { found, expected });
            }
        }
    }

    fn read_fields(&mut self, columns: &Columns) -> Result<(), Malformed> {
        let mut columns = columns.all().iter();
        let mut start = 0;
        let line = self.line.as_str();
        for end in memchr::memchr_iter(b',', line.as_bytes()).chain([line.len()]) {
            let field = start..end;
            let text = &line[field.clone()];
            start = end + 1;
            match columns.next() {
                Some(&Column::Dimension(dimension)) => {
                    if text != MISSING {
                        let number = format::parse_number(text)
                            .ok_or(Malformed::Number { dimension, field })?;
                        self.values[dimension] = number;
                        self.present |= 1 << dimension;
                    }
                }
                Some(Column::Time) => {
                    self.time =
                        format::parse_time(text).ok_or(Malformed::Time { field })? + self.shift;
                }
                Some(Column::Station) => {
                    // The replacement character stands where the file was not UTF-8: two names
                    // might have become one.
                    if text.is_empty() || text.contains('\u{fffd}') {
                        return Err(Malformed::Station);
                    }
                    self.station = field;
                }
                Some(Column::Other) => {}
                None => return Err(Malformed::Columns { found: 0, expected: 0 }),
            }
        }
        match columns.next() {
            None => Ok(()),
            Some(_) => Err(Malformed::Columns { found: 0, expected: 0 }),
        }
    }

    /// The number of the row's line in the file; the header is line 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When the producer took the row's line.
    pub fn entered(&self) -> Instant {
        self.entered
    }

    /// Why the row has no readings, if it is malformed.
    pub fn fault(&self) -> Option<&Malformed> {
        self.fault.as_ref()
    }

    /// The row's time in seconds since 1970, shifted if the data is a repetition.
    pub fn time(&self) -> i64 {
        self.time
    }

    /// The station's name.
    pub fn station(&self) -> &str {
        &self.line[self.station.clone()]
    }

    /// The readings: dimension and value.
    pub fn readings(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let dimension = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some((dimension, self.values[dimension]))
        })
    }

    /// Notes what the detector found: where it keeps this row's station, and the dimensions to
    /// mark, a bit each.
    pub fn mark(&mut self, place: usize, alarms: u16) {
        self.place = place;
        self.alarms = alarms;
    }

    /// Where the detector keeps this row's station: stations are counted in the order in which they
    /// were first seen.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Whether the reading of a dimension is marked.
    pub fn is_alarm(&self, dimension: usize) -> bool {
        self.alarms & (1 << dimension) != 0
    }

    /// What is wrong with a malformed row, for a person.
    pub fn describe(&self, fault: &Malformed) -> String {
        match fault {
            Malformed::Columns { found, expected } => {
                format!("{found} columns instead of {expected}")
            }
            Malformed::Number { dimension, field } => {
                format!(
                    "{} is not a number: '{}'",
                    DIMENSIONS[*dimension],
                    &self.line[field.clone()]
                )
            }
            Malformed::Time { field } => format!("not a time: '{}'", &self.line[field.clone()]),
            Malformed::Station => "the station has no name, or one that is not UTF-8".to_owned(),
        }
    }
}
