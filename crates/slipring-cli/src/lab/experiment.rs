//! The form of an experiment: its description for readers, its cases, and its conclusion.
//!
//! An experiment compares *contenders* at *points*. A point is a value for each of the experiment's
//! parameters, such as the number of workers. A [`Case`] is one contender at one point; the runner
//! (`runner.rs`) repeats each case, in an order that is random for each round.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;

use super::figure::Figure;
use super::machine::MeasuredMachine;
use super::metric::{Fixed, Metric, Value};
use super::record::Results;
use super::size::Size;
use super::statistics::Noise;

/// An experiment of the lab.
pub trait Experiment: Sync {
    /// Returns the description for readers.
    fn about(&self) -> &'static About;

    /// Returns all cases, in the order of tables and plots. An error says which choice the machine
    /// or the options do not allow. On the error [`Unsuitable`], `lab all` leaves the experiment
    /// out and continues. An experiment without cases has a measurement of its own.
    fn cases(&self, size: Size, machine: &MeasuredMachine) -> Result<Vec<Case>> {
        let _ = (size, machine);
        Ok(Vec::new())
    }

    /// Returns the number of rounds: how often each case is repeated.
    fn rounds(&self, size: Size) -> u32 {
        let _ = size;
        1
    }

    /// Returns the measurement of an experiment that does not use the runner's loop. The size suits
    /// a run of all experiments.
    fn measurement(&self, size: Size) -> Result<Option<Box<dyn Measurement>>> {
        let _ = size;
        Ok(None)
    }

    /// Returns the conditions of the source that cannot be reproduced on this machine or at this
    /// size, one sentence for each.
    fn missing(&self, size: Size, machine: &MeasuredMachine) -> Vec<String>;

    /// Returns the conclusion in one sentence that begins with "On this machine", or with
    /// "Simulated". It names no winner where the difference is within the noise.
    fn headline(&self, results: &Results, noise: &Noise) -> String;

    /// Returns the statements of the publication that are checked against the results, each with
    /// its verdict.
    fn findings(&self, results: &Results) -> Vec<Finding> {
        let _ = results;
        Vec::new()
    }
}

/// A statement of a publication, and whether the results agree with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The statement.
    pub says: String,
    pub appears: Appears,
    /// The figures behind the verdict.
    pub numbers: String,
}

/// Whether the shape of a published curve appears in the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appears {
    Yes,
    No,
    /// The results do not decide.
    CannotBeSaid,
}

impl fmt::Display for Appears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Appears::Yes => "yes",
            Appears::No => "no",
            Appears::CannotBeSaid => "cannot be said by this model",
        })
    }
}

/// The error of an experiment that is pointless on a machine such as this one.
#[derive(Debug)]
pub struct Unsuitable(pub String);

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsuitable {}

/// A measurement with a loop of its own, such as one whose runs depend on each other.
pub trait Measurement {
    /// Returns the names of all contenders.
    fn contenders(&self) -> Vec<String>;

    /// Keeps the named contenders alone.
    fn keep(&mut self, only: &[String]);

    /// Sets the number of repetitions of each run.
    fn repeat(&mut self, rounds: u32);

    /// Estimates the time that the measurement takes.
    fn expected(&self) -> Duration;

    /// Measures all contenders. After each run, advances the bar by the milliseconds that the run
    /// was expected to take. The result is `false` if the user has ended the measurement; then only
    /// complete results are returned.
    fn measure(&mut self, bar: &ProgressBar) -> Result<(Results, bool)>;
}

/// The description of an experiment for readers.
#[derive(Debug)]
pub struct About {
    /// Name on the command line and in records.
    pub name: &'static str,
    pub title: &'static str,
    /// A paragraph: what is measured, and which question it answers.
    pub paragraph: &'static str,
    /// Drawing of the experiment's graph, in lines of 72 characters at most.
    pub drawing: &'static str,
    pub source: Source,
    /// The plots, each with a table behind it.
    pub figures: &'static [Figure],
}

/// The publication that an experiment reproduces.
#[derive(Debug)]
pub struct Source {
    /// Authors, title, place and year.
    pub citation: &'static str,
    pub address: Option<&'static str>,
    /// The machine of the publication.
    pub machine: &'static str,
    /// The finding of the publication, in a sentence or two.
    pub finding: &'static str,
    /// Figures of the publication, where it states any.
    pub figures: &'static [Reference],
}

/// A figure of the publication: values by contender.
#[derive(Debug)]
pub struct Reference {
    pub title: &'static str,
    /// Name of the parameter on the horizontal axis.
    pub x: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// Name of the metric in this lab that has the same unit and meaning; `None` if only the shape
    /// can be compared.
    pub metric: Option<&'static str>,
    /// Values at which the other parameters are fixed for this figure.
    pub at: &'static [(&'static str, Fixed)],
    pub lines: &'static [Line],
}

/// One contender's values in a publication.
#[derive(Debug)]
pub struct Line {
    /// Name in the publication.
    pub contender: &'static str,
    /// Name of the contender in this lab that plays the same part, if one does.
    pub ours: Option<&'static str>,
    pub values: &'static [(Fixed, f64)],
}

/// One contender at one point.
pub struct Case {
    pub contender: String,
    /// Values of the experiment's parameters, in the order of [`Point`].
    pub point: Point,
    /// Number of threads that work at the same time.
    pub threads: usize,
    /// CPUs that the threads are bound to, in the order of threads; empty if the system places
    /// them.
    pub cpus: Vec<usize>,
    /// Estimated time of one repetition, for the progress bar.
    pub expected: Duration,
    /// Runs the case once. A wrong result (an event lost, a wrong sum) is an error, and ends the
    /// experiment.
    pub run: Box<dyn FnMut(Repetition) -> Result<CaseResult>>,
}

/// Values of parameters, in the experiment's order.
pub type Point = Vec<(&'static str, Value)>;

/// One repetition.
#[derive(Clone, Copy, Debug)]
pub struct Repetition {
    /// Seed of this round, the same for all cases, so that all contenders get the same work.
    pub seed: u64,
}

/// The values that one repetition measured.
#[derive(Clone, Debug, Default)]
pub struct CaseResult {
    pub values: Vec<(&'static Metric, f64)>,
    pub curves: Vec<(&'static Metric, Vec<(f64, f64)>)>,
}

impl CaseResult {
    /// Adds a measured value.
    pub fn value(mut self, metric: &'static Metric, value: f64) -> Self {
        self.values.push((metric, value));
        self
    }

    /// Returns whether all values are finite.
    pub fn is_finite(&self) -> bool {
        let curves = self.curves.iter().flat_map(|(_, points)| points);
        self.values.iter().all(|(_, value)| value.is_finite())
            && curves.into_iter().all(|(at, value)| at.is_finite() && value.is_finite())
    }

    /// Adds a percentile curve: pairs of a quantile from 0 to 1, and a value.
    pub fn curve(mut self, metric: &'static Metric, points: Vec<(f64, f64)>) -> Self {
        self.curves.push((metric, points));
        self
    }
}
