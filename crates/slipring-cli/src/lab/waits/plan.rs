//! The plan of a measurement: one arrival pattern after the other.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use slipring::Wait;
use slipring_machine::usable_cores;

use super::arrivals::Arrival;
use super::measured::{ArrivalResult, Measured};
use super::rounds::{self, Rounds};
use crate::lab::size::Size;

/// The strategies and patterns of a measurement.
pub struct Plan {
    pub waits: Vec<Wait>,
    pub arrivals: Vec<Arrival>,
    pub size: Size,
    /// Number of runs of each strategy under each pattern; `None` if the size determines it.
    pub rounds: Option<u32>,
}

impl Plan {
    /// Estimates the time that the measurement takes.
    pub fn expected(&self) -> Duration {
        let of = |arrival: &Arrival| {
            let round = rounds::expected(*arrival, self.size, self.waits.len());
            round * self.rounds_of(*arrival)
        };
        self.arrivals.iter().map(of).sum()
    }

    fn rounds_of(&self, arrival: Arrival) -> u32 {
        self.rounds.unwrap_or_else(|| arrival.rounds(self.size))
    }

    /// Measures one arrival pattern after the other, and calls `each` with each pattern's results.
    /// Returns `false` if the user has ended the measurement; then the incomplete pattern is left
    /// out.
    pub fn run(
        &self,
        measured: &mut Measured,
        bar: &ProgressBar,
        each: impl Fn(&ArrivalResult) -> Result<()>,
    ) -> Result<bool> {
        for &arrival in &self.arrivals {
            let (size, pinned) = (self.size, measured.pinned);
            let (rounds, cores) = (self.rounds_of(arrival), usable_cores());
            let rounds = Rounds { arrival, size, rounds, pinned, cores, bar };
            let Some(result) = rounds.measure(&self.waits)? else { return Ok(false) };
            each(&result)?;
            measured.arrivals.push(result);
        }
        Ok(true)
    }
}
