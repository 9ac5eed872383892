//! The summary: count, mean, minimum, maximum and alarms of each dimension of each station, and the
//! malformed rows.

use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanCount;

use super::columns::DIMENSIONS;
use super::format::push_number;
use super::row::Row;

/// Maximum number of malformed rows that are described one by one.
const DESCRIBED: usize = 5;

/// Maximum length of a station's name in the table, in characters. Longer names are cut there, and
/// the journal has them in full.
const NAME_LENGTH: usize = 60;

/// Counts and sums over all rows.
#[derive(Debug, Default)]
#[repr(align(128))] // on cache lines of its own: see `Stages`
pub struct Summary {
    stations: Vec<(String, [Tally; DIMENSIONS.len()])>,
    rows: u64,
    malformed: u64,
    first_malformed: Vec<String>,
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
            self.malformed += 1;
            if self.first_malformed.len() < DESCRIBED {
                let description = format!("line {}: {}", row.number(), row.describe(fault));
                self.first_malformed.push(description);
            }
            return;
        }
        // Stations are numbered in the order of their first rows, and this stage sees every row. So
        // an index is known or the next one.
        if row.station_index() == self.stations.len() {
            self.stations.push((row.station().to_owned(), Default::default()));
        }
        let (_, tallies) = &mut self.stations[row.station_index()];
        for (dimension, value) in row.readings() {
            tallies[dimension].add(value, row.is_alarm(dimension));
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

    /// Returns descriptions of the first malformed rows, each with its line number and reason.
    pub fn first_malformed(&self) -> &[String] {
        &self.first_malformed
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
        let (mut readings, mut alarms) = (0, 0);
        for (name, tallies) in stations {
            let name = shortened(name);
            for (dimension, tally) in DIMENSIONS.iter().zip(tallies) {
                readings += tally.count;
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
        let [rows, readings, alarms, malformed] =
            [self.rows, readings, alarms, self.malformed].map(HumanCount);
        format!(
            "{}\n{rows} rows, {readings} readings, {alarms} alarms, {malformed} malformed rows\n",
            table.trim_fmt()
        )
    }
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_LENGTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn number(value: f64) -> String {
    let mut text = Vec::new();
    push_number(&mut text, value);
    String::from_utf8(text).expect("digits are UTF-8")
}
