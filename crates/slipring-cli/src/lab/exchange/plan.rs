//! The plan of a measurement: all setups, in rounds of random order.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use indicatif::ProgressBar;
use slipring_exchange::Way;

use super::about::{PAPER_BLOCK, WORD};
use super::measure::Setup;
use super::measured::{Measured, Series};
use super::placement::Placement;

use crate::lab::interrupt;
use crate::lab::size::Size;

/// Seed of the orders.
pub const SEED: u64 = 2025;

/// The ways that are measured, and how much is measured.
pub struct Plan {
    pub ways: Vec<Way>,
    pub amount: Amount,
}

/// How much the experiment measures.
#[derive(Clone, Debug)]
pub struct Amount {
    /// Number of executions of each setup.
    pub executions: u32,
    /// Number of blocks of an execution.
    pub blocks: usize,
    /// Sizes of blocks that are compared, in words.
    pub sizes: Vec<usize>,
    /// Size of the memory that each end works through to make its caches cold, in bytes.
    pub cold: usize,
    /// Whether the reader runs on each core in turn. If not, it runs once for each relation between
    /// two cores.
    pub each_core: bool,
}

impl Amount {
    /// Returns how much to measure in a run that consists of this experiment alone.
    pub fn alone(size: Size) -> Amount {
        let all = [512, 2_048, 8_192, 32_768, 131_072, 524_288, 2_097_152, 8_388_608];
        Amount {
            executions: size.pick(2, 5, 5),
            blocks: size.pick(3, 30, 100),
            sizes: all.into_iter().step_by(size.pick(4, 2, 1)).collect(),
            cold: size.pick(1 << 20, 64 << 20, 64 << 20),
            each_core: true,
        }
    }

    /// Returns how much to measure in a run of all experiments.
    pub fn in_all(size: Size) -> Amount {
        let Amount { sizes, cold, .. } = Amount::alone(size);
        let (executions, blocks) = (size.pick(1, 3, 5), size.pick(3, 8, 100));
        Amount { executions, blocks, sizes, cold, each_core: false }
    }

    /// Returns the number of blocks of an execution: fewer if blocks are large, so that an
    /// execution moves 4 GiB at most.
    fn blocks(&self, words: usize) -> usize {
        self.blocks.min((4 << 30) / (words * WORD)).max(1)
    }
}

impl Plan {
    /// Returns all setups: the paper's block with the reader on each core, and blocks of all sizes.
    pub fn setups(&self, placements: &[Placement]) -> Vec<Setup> {
        let mut setups = Vec::new();
        for way in &self.ways {
            for placement in placements.iter().filter(|placement| placement.suits(way)) {
                for cold in [None, Some(self.amount.cold)] {
                    setups.push(Setup::new(way, *placement, PAPER_BLOCK, cold));
                }
            }
            let apart = placements.iter().rfind(|placement| placement.suits(way));
            let sizes = self.amount.sizes.iter().filter(|words| **words != PAPER_BLOCK);
            setups.extend(apart.into_iter().flat_map(|placement| {
                sizes.clone().map(|words| Setup::new(way, *placement, *words, None))
            }));
        }
        setups
    }

    /// Begins a measurement now. Each setup gets a series, which has no executions yet.
    pub fn begin(&self) -> Measured {
        let placements = self.placements();
        let series = self.setups(&placements).iter().map(Series::new).collect();
        Measured { placements, cold_bytes: self.amount.cold, began: Instant::now(), series }
    }

    /// Returns the cores of writer and reader.
    pub fn placements(&self) -> Vec<Placement> {
        let all = Placement::all();
        if self.amount.each_core { all } else { Placement::by_relation(all) }
    }

    /// Estimates the time that the measurement takes.
    pub fn expected(&self) -> Duration {
        let setups = self.setups(&self.placements());
        setups.iter().map(|setup| self.expected_of(setup)).sum::<Duration>()
            * self.amount.executions
    }

    /// Estimates the time of an execution: 1 ns to write and read a word, 0.5 ns for each byte of
    /// memory that makes caches cold, and 20 ms to start a second process.
    fn expected_of(&self, setup: &Setup) -> Duration {
        let block = setup.words + setup.cold.unwrap_or(0) / 2;
        let all = Duration::from_nanos((self.amount.blocks(setup.words) * block) as u64);
        let start = if setup.way.has_two_processes() { 20 } else { 1 };
        all + Duration::from_millis(start)
    }

    /// Measures all setups, in rounds of random order. Returns `false` if the user has ended the
    /// measurement; then only the executions of complete rounds are kept.
    pub fn run(&self, measured: &mut Measured, bar: &ProgressBar) -> Result<bool> {
        let setups = self.setups(&measured.placements);
        let mut random = Rng::with_seed(SEED);
        for round in 0..self.amount.executions {
            let mut order: Vec<usize> = (0..setups.len()).collect();
            random.shuffle(&mut order);
            for which in order {
                let setup = &setups[which];
                bar.set_message(format!("exchange, round {}: {setup}", round + 1));
                let execution = setup.execute(self.amount.blocks(setup.words));
                // Ctrl-C in a terminal also ends the reader's process. That is no failure.
                if interrupt::requested() {
                    measured.keep_rounds(round as usize);
                    return Ok(false);
                }
                let execution = execution.with_context(|| setup.to_string())?;
                measured.series[which].executions.push(execution);
                bar.inc(self.expected_of(setup).as_millis() as u64);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_all_experiments_has_setups_of_the_experiment_alone_in_fewer_executions() {
        for size in [Size::Smoke, Size::Quick, Size::Full] {
            let plan = |amount| Plan { ways: Way::all(), amount };
            let (alone, in_all) = (plan(Amount::alone(size)), plan(Amount::in_all(size)));
            let names = |plan: &Plan| -> Vec<String> {
                plan.setups(&plan.placements()).iter().map(Setup::to_string).collect()
            };
            let all = names(&alone);
            assert!(names(&in_all).iter().all(|name| all.contains(name)));
            assert!(in_all.expected() <= alone.expected(), "{size}");
        }
    }
}
