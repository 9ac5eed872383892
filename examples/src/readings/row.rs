//! The event: one row of the file. It keeps its buffer, so that the slot's next row allocates
//! nothing.

use std::ops::Range;
use std::time::Instant;

use super::columns::{Column, Columns, DIMENSIONS};
use super::format;
use super::input::Line;

/// Text of a missing value in the file.
pub const MISSING: &str = "NA";

/// The reason why a row has no readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The row has another number of columns than the header.
    Columns {
        /// Number of columns of the row.
        found: usize,
        /// Number of columns of the header.
        expected: usize,
    },
    /// A value is neither a number nor missing.
    Number {
        /// Index of the value's dimension in [`DIMENSIONS`].
        dimension: usize,
        /// Bytes of the value in the line.
        field: Range<usize>,
    },
    /// The time is invalid.
    Time {
        /// Bytes of the time in the line.
        field: Range<usize>,
    },
    /// The station's name is empty or not UTF-8.
    Station,
}

/// A row and the results of the stages so far.
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
    /// Bytes of the station's name in the line.
    station: Range<usize>,
    values: [f64; DIMENSIONS.len()],
    /// Dimensions that have a value, one bit each.
    present: u16,
    // Marked by the detector.
    /// Dimensions whose value is marked, one bit each.
    alarms: u16,
    station_index: usize,
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
            station_index: 0,
        }
    }
}

impl Row {
    /// Copies a line into the row. It allocates only if the line is longer than every line before.
    pub fn fill(&mut self, line: &Line<'_>) {
        self.line.clear();
        self.line.push_str(line.text);
        self.number = line.number;
        self.shift = line.shift;
        self.entered = line.entered;
    }

    /// Parses the line into readings, or stores the reason why it has none. This is the largest
    /// part of the work, which the pool of workers shares.
    pub fn parse(&mut self, columns: &Columns) {
        self.present = 0;
        self.alarms = 0;
        self.fault = self.read_fields(columns).err();
        if self.fault.is_some() {
            self.present = 0;
            // A wrong number of columns shifts the fields, so it explains every other error.
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
                    // The replacement character stands for invalid UTF-8. Two different names with
                    // it could look the same.
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

    /// Returns the number of the row's line in the file; the header is line 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the time at which the producer took the row's line.
    pub fn entered(&self) -> Instant {
        self.entered
    }

    /// Returns the reason why the row has no readings, if it is malformed.
    pub fn fault(&self) -> Option<&Malformed> {
        self.fault.as_ref()
    }

    /// Returns the row's time in seconds since 1970, with the shift of its repetition.
    pub fn time(&self) -> i64 {
        self.time
    }

    /// Returns the station's name.
    pub fn station(&self) -> &str {
        &self.line[self.station.clone()]
    }

    /// Returns dimension and value of each reading.
    pub fn readings(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let dimension = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some((dimension, self.values[dimension]))
        })
    }

    /// Stores the detector's results: the index of the row's station, and the dimensions to mark,
    /// one bit each.
    pub fn mark(&mut self, station_index: usize, alarms: u16) {
        self.station_index = station_index;
        self.alarms = alarms;
    }

    /// Returns the index of the row's station. The detector numbers stations in the order of their
    /// first rows.
    pub fn station_index(&self) -> usize {
        self.station_index
    }

    /// Whether the reading of a dimension is marked.
    pub fn is_alarm(&self, dimension: usize) -> bool {
        self.alarms & (1 << dimension) != 0
    }

    /// Describes why a row is malformed.
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
