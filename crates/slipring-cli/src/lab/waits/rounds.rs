//! The rounds of one arrival pattern: each round runs every strategy once, in random order.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use indicatif::ProgressBar;
use slipring::Wait;
use slipring_machine::CorePair;

use super::arrivals::{Arrival, Pattern};
use super::bystander::Bystander;
use super::measured::{ArrivalResult, Series, StrategyRun};
use super::one_run::{self, Pace, Setup};
use crate::lab::interrupt;
use crate::lab::size::Size;

/// Seed of all schedules and orders, the same in every measurement.
pub const SEED: u64 = 2013;

/// Estimates how long a round of a pattern takes with this number of strategies.
pub fn expected(arrival: Arrival, size: Size, strategies: usize) -> Duration {
    let alone = if arrival.has_bystander() { ALONE_TURNS } else { 0 };
    Duration::from_millis((strategies + alone) as u64 * expected_ms(arrival, size))
}

/// Estimates the length of a run, in milliseconds.
fn expected_ms(arrival: Arrival, size: Size) -> u64 {
    let time = match arrival.pattern(size) {
        // This is the mean over all strategies. A few of them spin; the others, which are many,
        // take a hundredth of the time that a spinning strategy takes.
        _ if arrival == Arrival::Oversubscribed => Duration::from_millis(size.pick(20, 500, 500)),
        Pattern::AtOnce { events } => Duration::from_nanos(30 * events),
        _ => arrival.length(size),
    };
    time.as_millis() as u64 + 5
}

/// Number of runs in a round in which the bystander works alone. The fastest run counts, because a
/// disturbance can only make a run slower.
const ALONE_TURNS: usize = 2;

/// The measurement of one arrival pattern.
pub struct Rounds<'a> {
    pub arrival: Arrival,
    pub size: Size,
    /// Number of runs of each strategy.
    pub rounds: u32,
    /// Cores of producer and waiter, if they are pinned.
    pub pinned: Option<CorePair>,
    /// Number of cores of the machine.
    pub cores: usize,
    /// Progress, in milliseconds.
    pub bar: &'a ProgressBar,
}

/// One run in a round.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// A run of the strategy with this index.
    Strategy(usize),
    /// A run of the bystander without a ring.
    BystanderAlone,
}

impl Rounds<'_> {
    /// Runs all rounds of all strategies. Returns `None` if the user has ended the measurement.
    pub fn measure(&self, waits: &[Wait]) -> Result<Option<ArrivalResult>> {
        match self.measure_all(waits) {
            // Ctrl-C in a terminal also ends the bystander's process. That is no failure.
            Err(_) if interrupt::requested() => Ok(None),
            measured => measured,
        }
    }

    fn measure_all(&self, waits: &[Wait]) -> Result<Option<ArrivalResult>> {
        let Self { arrival, size, .. } = *self;
        let mut runs = vec![Vec::new(); waits.len()];
        let mut alone = Vec::new();
        let mut random = Rng::with_seed(SEED);
        for round in 0..self.rounds {
            let mut turns: Vec<Turn> = (0..waits.len()).map(Turn::Strategy).collect();
            if arrival.has_bystander() {
                turns.extend([Turn::BystanderAlone; ALONE_TURNS]);
            }
            random.shuffle(&mut turns);
            let (mut work_beside, mut best) = (Vec::new(), 0f64);
            for turn in turns {
                if interrupt::requested() {
                    return Ok(None);
                }
                match turn {
                    Turn::BystanderAlone => {
                        self.show_progress("bystander alone", round);
                        best = best.max(self.bystander_alone()?);
                    }
                    Turn::Strategy(which) => {
                        let wait = &waits[which];
                        self.show_progress(wait, round);
                        let at = || format!("{wait} under {}", arrival.name());
                        let (run, work) = self.run_once(wait, round).with_context(at)?;
                        runs[which].push(run);
                        work_beside.extend(work.map(|work| (which, work)));
                    }
                }
                self.bar.inc(expected_ms(arrival, size));
            }
            // The loss compares with the best run in which the bystander worked alone. That run may
            // be the last one of the round.
            for (which, work) in work_beside {
                if let Some(run) = runs[which].last_mut() {
                    run.figures.bystander_loss = Some(1.0 - work / best);
                }
            }
            alone.extend(arrival.has_bystander().then_some(best));
        }
        Ok(Some(ArrivalResult {
            arrival: arrival.name(),
            about: self.about(),
            threads: arrival.stages(self.cores) + 1,
            pinned: self.pair(),
            seconds: arrival.length(size).as_secs_f64(),
            bystander_alone: arrival.has_bystander().then_some(alone),
            strategies: waits
                .iter()
                .zip(runs)
                .map(|(wait, runs)| Series::new(wait.to_string(), runs))
                .collect(),
        }))
    }

    /// Runs one strategy once. Returns the run and, if there is a bystander, the bystander's
    /// units of work per second.
    fn run_once(&self, wait: &Wait, round: u32) -> Result<(StrategyRun, Option<f64>)> {
        let Self { arrival, size, .. } = *self;
        let pair = self.pair();
        let pace = if arrival.has_bystander() { Pace::Sleep } else { Pace::Spin };
        let seed = SEED + u64::from(round);
        let setup = Setup {
            wait: wait.clone(),
            pattern: arrival.pattern(size),
            seed,
            length: arrival.length(size),
            pace,
            stages: arrival.stages(self.cores),
            pair,
        };
        let bystander = arrival.has_bystander().then(|| Bystander::start(pair)).transpose()?;
        let mut run = one_run::run_once(&setup)?;
        let work = bystander.map(Bystander::finish).transpose()?;
        if work.is_some() {
            run.figures.others_cores = None;
        }
        Ok((run, work))
    }

    /// Returns the cores of producer and waiter. Where threads outnumber cores, the system places
    /// them.
    fn pair(&self) -> Option<CorePair> {
        self.pinned.filter(|_| self.arrival != Arrival::Oversubscribed)
    }

    fn bystander_alone(&self) -> Result<f64> {
        let bystander = Bystander::start(self.pinned)?;
        std::thread::sleep(self.arrival.length(self.size));
        bystander.finish()
    }

    fn about(&self) -> String {
        let pattern = self.arrival.pattern(self.size);
        if self.arrival.has_bystander() {
            return format!("{pattern}, beside a second process");
        }
        match self.arrival.stages(self.cores) {
            1 => pattern.to_string(),
            stages => format!("{pattern}, through {stages} stages on {} cores", self.cores),
        }
    }

    fn show_progress(&self, turn: impl fmt::Display, round: u32) {
        let arrival = self.arrival.name();
        self.bar.set_message(format!("waits, {arrival}, round {}: {turn}", round + 1));
    }
}
