//! The measured data: the runs of each strategy under each arrival pattern.

use std::time::Instant;

use anyhow::Result;
use slipring_machine::CorePair;
use slipring_support::numbers::median;

use super::figures::{Figures, maximum, minimum};
use super::wake::Wake;
use crate::lab::size::Size;

/// The measured data.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Cores that the threads were pinned to, if they were.
    pub pinned: Option<CorePair>,
    /// Time that waking a thread takes on this machine.
    pub wake: Wake,
    /// Start of the measurement.
    pub began: Instant,
    /// Results by arrival pattern.
    pub arrivals: Vec<ArrivalResult>,
}

impl Measured {
    /// Chooses the cores, and measures the price of waking a thread.
    pub fn begin(size: Size) -> Result<Measured> {
        let (began, pinned) = (Instant::now(), CorePair::choose());
        let wake = Wake::measure(size.pick(20, 400, 400), pinned)?;
        Ok(Measured { pinned, wake, began, arrivals: Vec::new() })
    }
}

/// The results of all strategies under one arrival pattern.
#[derive(Clone, Debug)]
pub struct ArrivalResult {
    /// Name of the arrival pattern.
    pub arrival: String,
    /// Description of the arrival pattern.
    pub about: String,
    /// Number of threads that publish and handle events.
    pub threads: usize,
    /// Cores of producer and waiter, if they were pinned.
    pub pinned: Option<CorePair>,
    /// Length of the schedule of each run, in seconds; 0 for bursts.
    pub seconds: f64,
    /// The bystander's best speed without a ring in each round, in units of work per second.
    pub bystander_alone: Option<Vec<f64>>,
    /// Results by strategy.
    pub strategies: Vec<Series>,
}

/// The runs of one strategy under one arrival pattern.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the strategy.
    pub strategy: String,
    /// Median of each figure over all runs.
    pub median: Figures,
    /// Minimum of each figure over all runs.
    pub min: Figures,
    /// Maximum of each figure over all runs.
    pub max: Figures,
    /// All runs, one a round.
    pub runs: Vec<StrategyRun>,
}

/// One run of a strategy.
#[derive(Clone, Debug)]
pub struct StrategyRun {
    /// Number of events; all of them arrived unchanged and in order.
    pub events: u64,
    /// Figures of the run.
    pub figures: Figures,
    /// Latencies in nanoseconds by quantile from 0 to 1.
    pub curve: Vec<(f64, f64)>,
}

impl Series {
    /// Computes median, minimum and maximum of the runs' figures.
    pub fn new(strategy: String, runs: Vec<StrategyRun>) -> Self {
        let figures: Vec<&Figures> = runs.iter().map(|run| &run.figures).collect();
        let [median, min, max] =
            [median, minimum, maximum].map(|pick| Figures::over(&figures, pick));
        Self { strategy, median, min, max, runs }
    }
}
