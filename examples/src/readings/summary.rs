//! The summary: count, mean, minimum, maximum and alarms of each dimension of each station, and
//! what was malformed.

use std::fmt::Write as _;

use super::columns::DIMENSIONS;
use super::format::{push_number, thousands};
use super::row::Row;

/// So many malformed rows are told one by one, the others are only counted.
const TOLD: usize = 5;
/// Widest column of stations in the table, in characters.
const WIDEST: usize = 60;

/// What all rows come to.
#[derive(Debug, Default)]
pub struct Summary {
    stations: Vec<(String, [Tally; DIMENSIONS.len()])>,
    rows: u64,
    malformed: u64,
    told: Vec<String>,
}

/// One dimension of one station.
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
    /// Counts a row in.
    pub fn add(&mut self, row: &Row) {
        self.rows += 1;
        if let Some(fault) = row.fault() {
            self.malformed += 1;
            if self.told.len() < TOLD {
                self.told.push(format!("line {}: {}", row.number(), row.describe(fault)));
            }
            return;
        }
        // Places are given in the order in which stations are first seen, and all rows come by
        // here, so the next is new.
        if row.place() == self.stations.len() {
            self.stations.push((row.station().to_owned(), Default::default()));
        }
        let (_, tallies) = &mut self.stations[row.place()];
        for (dimension, value) in row.readings() {
            tallies[dimension].add(value, row.is_alarm(dimension));
        }
    }

    /// Rows, the malformed ones among them.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Stations.
    pub fn stations(&self) -> usize {
        self.stations.len()
    }

    /// Rows that gave no readings because something is wrong with them.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// The first malformed rows, each with its line and what is wrong with it.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// The summary as text: stations by name, dimensions in their order.
    pub fn render(&self) -> String {
        let mut stations: Vec<_> = self.stations.iter().collect();
        stations.sort_by_key(|(name, _)| name);
        let longest = stations.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        // Names come from the input, and `format!` panics at a width beyond 2^16 - 1.
        let widest = longest.clamp("station".len(), WIDEST);

        let mut text = String::new();
        let mut line = |name: &str, dimension: &str, cells: [String; 5]| {
            let _ = write!(text, "{name:widest$}  {dimension:<10}");
            for cell in cells {
                let _ = write!(text, "  {cell:>18}");
            }
            text.push('\n');
        };
        line(
            "station",
            "dimension",
            ["count", "mean", "minimum", "maximum", "alarms"].map(str::to_owned),
        );
        let (mut readings, mut alarms) = (0, 0);
        for (name, tallies) in stations {
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
                line(
                    name,
                    dimension,
                    [tally.count.to_string(), mean, minimum, maximum, tally.alarms.to_string()],
                );
            }
        }
        let [rows, readings, alarms, malformed] =
            [self.rows, readings, alarms, self.malformed].map(thousands);
        let _ = writeln!(
            text,
            "{rows} rows, {readings} readings, {alarms} alarms, {malformed} malformed rows"
        );
        text
    }
}

fn number(value: f64) -> String {
    let mut text = Vec::new();
    push_number(&mut text, value);
    String::from_utf8(text).expect("digits are UTF-8")
}
