//! The summary: count, mean, minimum, maximum and alarms of each dimension of each station, and the
//! rows and readings that could not be used.

use std::cmp::Reverse;
use std::mem::{Discriminant, discriminant};

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanCount;

use super::columns::DIMENSIONS;
use super::escape::escaped;
use super::format::push_number;
use super::row::{Malformed, Row};

/// Maximum number of malformed rows, and of rows with bad readings, that are described one by one.
const DESCRIBED: u64 = 5;

/// Maximum length of a station's name in the table, in characters. Longer names are cut there, and
/// the journal has them in full.
const NAME_LENGTH: usize = 60;

/// Counts and sums over all rows.
#[derive(Debug, Default)]
#[repr(align(128))] // on cache lines of its own: see `Stages`
pub struct Summary {
    stations: Vec<(String, [Tally; DIMENSIONS.len()])>,
    rows: u64,
    readings: u64,
    malformed: u64,
    bad_readings: u64,
    /// Malformed rows by their kind of fault.
    faults: Vec<(Discriminant<Malformed>, Fault)>,
    /// The row with bad readings that comes first in the file.
    first_bad: Option<(u64, String)>,
    described: Vec<String>,
    bad_described: usize,
}

/// Rows with the same kind of fault.
#[derive(Debug)]
struct Fault {
    rows: u64,
    /// Line number of the first row in the file that has this fault.
    line: u64,
    /// Description of that row.
    description: String,
}

/// Counts and sums over one dimension of one station.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: u64,
    sum: f64,
    minimum: f64,
    maximum: f64,
    alarms: u64,
}

impl Tally {
    fn add(&mut self, value: f64, alarm: bool) {
        if self.count == 0 {
            (self.minimum, self.maximum) = (value, value);
        }
        self.count += 1;
        self.sum += value;
        self.minimum = self.minimum.min(value);
        self.maximum = self.maximum.max(value);
        self.alarms += u64::from(alarm);
    }
}

impl Summary {
    /// Adds a row to the summary.
    pub fn add(&mut self, row: &Row) {
        self.rows += 1;
        if let Some(fault) = row.fault() {
            self.add_malformed(row, fault);
            return;
        }
        if row.bad_readings() > 0 {
            self.add_bad_readings(row);
        }
        // Stations are numbered in the order of their first rows, and this stage sees every row. So
        // an index is either known or the next one.
        if row.station_index() == self.stations.len() {
            self.stations.push((row.station().to_owned(), Default::default()));
        }
        let (_, tallies) = &mut self.stations[row.station_index()];
        for (dimension, value) in row.readings() {
            tallies[dimension].add(value, row.is_alarm(dimension));
            self.readings += 1;
        }
    }

    #[cold]
    fn add_malformed(&mut self, row: &Row, fault: Malformed) {
        if self.malformed < DESCRIBED {
            self.described.push(format!("malformed row, line {}: {}", row.line(), row.describe()));
        }
        self.malformed += 1;
        let (kind, line) = (discriminant(&fault), row.line());
        match self.faults.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, fault)) => {
                fault.rows += 1;
                if line < fault.line {
                    (fault.line, fault.description) = (line, row.describe());
                }
            }
            None => {
                self.faults.push((kind, Fault { rows: 1, line, description: row.describe() }));
            }
        }
    }

    #[cold]
    fn add_bad_readings(&mut self, row: &Row) {
        if self.bad_described < DESCRIBED as usize {
            self.bad_described += 1;
            self.described.push(format!("bad reading, line {}: {}", row.line(), row.describe()));
        }
        self.bad_readings += u64::from(row.bad_readings());
        if self.first_bad.as_ref().is_none_or(|(line, _)| row.line() < *line) {
            self.first_bad = Some((row.line(), row.describe()));
        }
    }

    /// Returns the number of rows, malformed ones included.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of stations.
    pub fn stations(&self) -> usize {
        self.stations.len()
    }

    /// Returns the number of malformed rows, which have no readings.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the number of fields that are neither a number nor missing, in rows that are not
    /// malformed.
    pub fn bad_readings(&self) -> u64 {
        self.bad_readings
    }

    /// Describes the first malformed rows and the first rows with bad readings, in the order in
    /// which they entered. Each description has the line number and the reason.
    pub fn described(&self) -> &[String] {
        &self.described
    }

    /// Fails if the file is probably not the one that the user meant: more than half of its rows
    /// are malformed, or more than half of its readings are bad. The error names the commonest
    /// fault, and the line where it comes first.
    pub fn verdict(&self) -> Result<()> {
        if self.malformed > self.rows / 2 {
            // If several faults are equally common, the one that comes first in the file counts.
            let commonest = self.faults.iter().map(|(_, fault)| fault);
            let fault = commonest
                .max_by_key(|fault| (fault.rows, Reverse(fault.line)))
                .expect("every malformed row has a fault");
            bail!(
                "{} of {} rows are malformed; the commonest fault, in {} of them, is first in line \
                 {}: {}",
                HumanCount(self.malformed),
                HumanCount(self.rows),
                HumanCount(fault.rows),
                fault.line,
                fault.description
            );
        }
        if let Some((line, description)) = &self.first_bad
            && self.bad_readings > self.readings
        {
            bail!(
                "{} of {} readings are not numbers; the first is in line {line}: {description}",
                HumanCount(self.bad_readings),
                HumanCount(self.readings + self.bad_readings)
            );
        }
        Ok(())
    }

    /// Returns the summary as text: stations by name, dimensions in their order.
    pub fn render(&self) -> String {
        let mut stations: Vec<_> = self.stations.iter().collect();
        stations.sort_by_key(|(name, _)| name);

        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["station", "dimension", "count", "mean", "minimum", "maximum", "alarms"]);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut alarms = 0;
        for (name, tallies) in stations {
            let name = escaped(name.as_bytes(), NAME_LENGTH);
            for (dimension, tally) in DIMENSIONS.iter().zip(tallies) {
                alarms += tally.alarms;
                let (mean, minimum, maximum) = match tally.count {
                    0 => ["-", "-", "-"].map(str::to_owned).into(),
                    n => (
                        format!("{:.4}", tally.sum / n as f64),
                        number(tally.minimum),
                        number(tally.maximum),
                    ),
                };
                let [count, alarms] = [tally.count, tally.alarms].map(|count| count.to_string());
                let cells = [name.as_str(), dimension, &count, &mean, &minimum, &maximum, &alarms];
                table.add_row(cells);
            }
        }
        let [rows, readings, alarms, malformed, bad] =
            [self.rows, self.readings, alarms, self.malformed, self.bad_readings].map(HumanCount);
        let bad = match self.bad_readings {
            0 => String::new(),
            _ => format!(", {bad} bad readings"),
        };
        format!(
            "{}\n{rows} rows, {readings} readings, {alarms} alarms, {malformed} malformed rows{bad}\n",
            table.trim_fmt()
        )
    }
}

fn number(value: f64) -> String {
    let mut text = Vec::new();
    push_number(&mut text, value);
    String::from_utf8(text).expect("digits are UTF-8")
}
