//! The file of results: `--json` writes it, and `lab report` and `lab compare` read it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::machine::{MeasuredMachine, Model};
use super::metric::{Better, Metric, Value};
use super::size::Size;
use super::statistics::Noise;

/// Mark by which this program recognises its own files.
pub const FORMAT: &str = "slipring-lab";
/// Version of the format. It is raised whenever older programs could no longer read the file.
pub const VERSION: u32 = 1;

/// All results of one call of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Version of the library and the program.
    pub slipring: String,
    /// Version of the compiler, and whether the program was optimised.
    pub build: String,
    /// Arguments of the program, beginning with its name.
    pub command: Vec<String>,
    /// Start of the measurement, in UTC.
    pub date: String,
    /// How much was measured: `smoke`, `quick` or `full`.
    pub size: String,
    /// Seed of orders and of generated work.
    pub seed: u64,
    pub machine: MeasuredMachine,
    /// Noise floor: how much equal measurements differ on this machine.
    pub noise: Noise,
    /// Average number of CPUs that other processes used during the measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub others: Option<f64>,
    /// The model behind the results, if they are simulated and not measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub simulated: Option<Model>,
    /// Reason why the measurement ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stopped: Option<String>,
    /// The finished experiments.
    pub experiments: Vec<Results>,
}

/// The results of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Name of the experiment.
    pub experiment: String,
    /// Number of complete rounds.
    pub rounds: u32,
    /// Time that the experiment took, in seconds.
    pub seconds: f64,
    /// The source's conditions that were not reproduced, and other remarks. Each is one sentence.
    pub notes: Vec<String>,
    pub series: Vec<Series>,
}

/// The repetitions of one contender at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub contender: String,
    /// Values of parameters, in the experiment's order.
    pub point: Vec<(String, Value)>,
    /// Number of threads that work at the same time.
    pub threads: usize,
    /// CPUs that the threads were bound to; empty if the system placed them.
    pub cpus: Vec<usize>,
    /// Whether there were more threads than CPUs that this process may use.
    pub oversubscribed: bool,
    /// Measured values by metric.
    pub metrics: BTreeMap<String, Values>,
    /// Percentile curves by metric.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub curves: BTreeMap<String, Curves>,
}

/// The values of one metric, one for each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Values {
    pub unit: String,
    pub better: Better,
    pub values: Vec<f64>,
}

/// The percentile curves of one metric, one for each round: pairs of a quantile from 0 to 1 and a
/// value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    pub unit: String,
    pub rounds: Vec<Vec<(f64, f64)>>,
}

impl Record {
    /// Creates the record of a measurement that begins now. The record has no experiments yet.
    pub fn begin(size: Size, seed: u64, machine: MeasuredMachine, noise: Noise) -> Record {
        Record {
            format: FORMAT.to_owned(),
            version: VERSION,
            slipring: env!("CARGO_PKG_VERSION").to_owned(),
            build: build(),
            command: std::env::args_os().map(|arg| printable(&arg.to_string_lossy())).collect(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            size: size.to_string(),
            seed,
            machine,
            noise,
            others: None,
            simulated: None,
            stopped: None,
            experiments: Vec::new(),
        }
    }
}

/// Returns a text without control characters, which readers of records refuse.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Returns the compiler and the profile that this program was built with.
pub fn build() -> String {
    let profile = if cfg!(debug_assertions) { "not optimised" } else { "optimised" };
    format!("{}, {profile}", env!("SLIPRING_RUSTC"))
}

/// Returns whether the threads outnumber their CPUs: the CPUs that they are bound to, or the CPUs
/// that this process may use.
pub fn is_oversubscribed(threads: usize, cpus: &[usize], usable: usize) -> bool {
    let bound = distinct(cpus.iter()).len();
    threads > usable || (bound != 0 && threads > bound)
}

impl Results {
    /// Returns the series of a contender whose point has these values.
    pub fn find<'a>(&'a self, contender: &str, at: &[(&str, Value)]) -> Option<&'a Series> {
        self.series.iter().find(|series| {
            series.contender == contender
                && at.iter().all(|(name, value)| series.at(name) == Some(value))
        })
    }

    /// Returns whether all values are finite; a record cannot hold infinities or NaN.
    pub fn is_finite(&self) -> bool {
        self.series.iter().all(|series| {
            let curves = series.curves.values().flat_map(|curves| curves.rounds.iter().flatten());
            series.metrics.values().flat_map(|of| &of.values).all(|value| value.is_finite())
                && curves.into_iter().all(|(at, value)| at.is_finite() && value.is_finite())
        })
    }

    /// Returns the distinct contenders, in order.
    pub fn contenders(&self) -> Vec<&str> {
        distinct(self.series.iter().map(|series| series.contender.as_str()))
    }

    /// Returns the distinct values of a parameter, in order.
    pub fn values_of(&self, parameter: &str) -> Vec<&Value> {
        distinct(self.series.iter().filter_map(|series| series.at(parameter)))
    }
}

impl Series {
    /// Makes a series without values.
    pub fn new(contender: &str, point: &[(&str, Value)]) -> Series {
        let named = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
        Series {
            contender: contender.to_owned(),
            point: point.iter().map(named).collect(),
            threads: 1,
            cpus: Vec::new(),
            oversubscribed: false,
            metrics: BTreeMap::new(),
            curves: BTreeMap::new(),
        }
    }

    /// Adds the repeated values of a metric.
    pub fn add(&mut self, metric: &Metric, values: Vec<f64>) {
        let (unit, better) = (metric.unit.to_owned(), metric.better);
        self.metrics.insert(metric.name.to_owned(), Values { unit, better, values });
    }

    /// Returns the value of a parameter.
    pub fn at(&self, parameter: &str) -> Option<&Value> {
        self.point.iter().find(|(name, _)| name == parameter).map(|(_, value)| value)
    }

    /// Returns the repeated values of a metric, or an empty slice if there are none.
    pub fn values(&self, metric: &str) -> &[f64] {
        self.metrics.get(metric).map_or(&[], |values| &values.values)
    }
}

/// Returns each item once, in the order of first occurrences.
pub fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in all {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}
