//! The event: one row of the file. It keeps its memory, so that the slot's next row allocates
//! nothing.

use std::time::Instant;

use super::columns::{Column, DIMENSIONS};
use super::escape;
use super::format::TimeFault;
use super::input::Record;
use super::schema::{Parser, Reading};
use super::split::line_ends;

/// Number of bytes of a faulty field that a row keeps for its description.
const EXCERPT: usize = 256;

/// The reason why a row as a whole has no readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A quote is never closed.
    Quote,
    /// The row has more or fewer columns than the header.
    Columns {
        /// Number of columns of the row.
        found: usize,
        /// Number of columns of the header.
        expected: usize,
    },
    /// The time is invalid.
    Time,
    /// The time has no zone, and the arguments name none.
    NoZone,
    /// The station has no name.
    NoStation,
    /// The station's name is not UTF-8.
    NotUtf8,
}

/// A row and the results of the stages so far.
#[derive(Clone, Debug)]
pub struct Row {
    // Filled by the producer.
    record: Vec<u8>,
    line: u64,
    shift: i64,
    entered: Instant,
    // Parsed by a worker.
    fault: Option<Malformed>,
    time: i64,
    station: String,
    values: [f64; DIMENSIONS.len()],
    /// Dimensions that have a value, one bit each.
    present: u16,
    /// Dimensions whose field is neither a number nor missing, one bit each.
    bad: u16,
    /// Beginning of the faulty field, or of the first bad reading's field.
    excerpt: Vec<u8>,
    // Marked by the detector.
    /// Dimensions whose value is marked, one bit each.
    alarms: u16,
    station_index: usize,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            record: Vec::new(),
            line: 0,
            shift: 0,
            entered: Instant::now(),
            fault: None,
            time: 0,
            station: String::new(),
            values: [0.0; DIMENSIONS.len()],
            present: 0,
            bad: 0,
            excerpt: Vec::new(),
            alarms: 0,
            station_index: 0,
        }
    }
}

impl Row {
    /// Copies a record into the row. It allocates only if the record is longer than every previous
    /// record.
    pub fn fill(&mut self, record: &Record<'_>) {
        self.record.clear();
        self.record.extend_from_slice(record.bytes);
        self.line = record.line;
        self.shift = record.shift;
        self.entered = record.entered;
    }

    /// Parses the record into readings, or stores the reason why it has none. This is the largest
    /// part of the work, which the pool of workers shares.
    ///
    /// A field that is neither a number nor missing makes only its own reading bad.
    pub fn parse(&mut self, parser: &mut Parser<'_>) {
        self.present = 0;
        self.bad = 0;
        self.alarms = 0;
        self.excerpt.clear();
        self.fault = self.read_fields(parser).err();
        if self.fault.is_some() {
            self.present = 0;
            self.bad = 0;
        }
    }

    fn read_fields(&mut self, parser: &mut Parser<'_>) -> Result<(), Malformed> {
        let Parser { schema, splitter, scratch } = parser;
        if !splitter.split(&self.record).closed {
            return Err(Malformed::Quote);
        }
        // A wrong number of columns shifts the fields, so it explains every other fault.
        let (found, expected) = (splitter.len(), schema.columns().all().len());
        if found != expected {
            return Err(Malformed::Columns { found, expected });
        }
        for (column, field) in schema.columns().all().iter().zip(splitter.fields()) {
            match *column {
                Column::Dimension(dimension) => match schema.reading(field, scratch) {
                    Reading::Value(value) => {
                        self.values[dimension] = value;
                        self.present |= 1 << dimension;
                    }
                    Reading::Missing => {}
                    Reading::Bad => {
                        // The description of a fault names the first bad dimension, so the excerpt
                        // shows the field of that dimension, too.
                        if self.bad.trailing_zeros() as usize > dimension {
                            self.keep(field);
                        }
                        self.bad |= 1 << dimension;
                    }
                },
                Column::Time => {
                    let time = schema.time(field).map_err(|fault| {
                        self.keep(field);
                        match fault {
                            TimeFault::Invalid => Malformed::Time,
                            TimeFault::NoZone => Malformed::NoZone,
                        }
                    })?;
                    self.time = time + self.shift;
                }
                Column::Station => {
                    self.station.clear();
                    match str::from_utf8(field) {
                        Ok(name) if name.trim_ascii().is_empty() => {
                            return Err(Malformed::NoStation);
                        }
                        Ok(name) => self.station.push_str(name),
                        Err(_) => {
                            self.keep(field);
                            return Err(Malformed::NotUtf8);
                        }
                    }
                }
                Column::Other => {}
            }
        }
        Ok(())
    }

    /// Keeps the beginning of a field for the description of a fault.
    fn keep(&mut self, field: &[u8]) {
        self.excerpt.clear();
        self.excerpt.extend_from_slice(&field[..field.len().min(EXCERPT)]);
    }

    /// Returns the number of the line on which the row begins; the file's first line is line 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the time at which the producer took the row's record.
    pub fn entered(&self) -> Instant {
        self.entered
    }

    /// Returns the reason why the row has no readings, if it is malformed.
    pub fn fault(&self) -> Option<Malformed> {
        self.fault
    }

    /// Returns the number of fields that are neither a number nor missing, in a row that is not
    /// malformed as a whole.
    pub fn bad_readings(&self) -> u32 {
        self.bad.count_ones()
    }

    /// Returns the row's time in seconds since 1970, with the shift of its repetition.
    pub fn time(&self) -> i64 {
        self.time
    }

    /// Returns the station's name, as the file has it: it may hold any character.
    pub fn station(&self) -> &str {
        &self.station
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

    /// Returns whether the reading of a dimension is marked as an alarm.
    pub fn is_alarm(&self, dimension: usize) -> bool {
        self.alarms & (1 << dimension) != 0
    }

    /// Describes the row's fault or, if it has none, its bad readings, in text that is safe to
    /// print.
    pub fn describe(&self) -> String {
        let field = escape::quoted(&self.excerpt);
        match self.fault {
            Some(Malformed::Quote) => "a quote is never closed".to_owned(),
            Some(Malformed::Columns { found, expected }) => {
                let lines = line_ends(self.record.trim_ascii()) + 1;
                let over = if lines > 1 { format!(", over {lines} lines") } else { String::new() };
                format!("{found} columns instead of {expected}{over}")
            }
            Some(Malformed::Time) => format!("not a time: {field}"),
            Some(Malformed::NoZone) => {
                format!("the time {field} has no zone; say one with --zone")
            }
            Some(Malformed::NoStation) => "the station has no name".to_owned(),
            Some(Malformed::NotUtf8) => format!("the station's name is not UTF-8: {field}"),
            None => {
                let name = DIMENSIONS.get(self.bad.trailing_zeros() as usize).unwrap_or(&"");
                let more = match self.bad_readings() {
                    0 | 1 => String::new(),
                    n => format!(", and {} more of the row", n - 1),
                };
                format!("{name} is not a number: {field}{more}")
            }
        }
    }
}
