//! This experiment's part in a run of all experiments.

use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use slipring_exchange::Way;

use super::convert;
use super::placement::{self, Placement};
use super::plan::{Amount, Plan};
use crate::lab::experiment::Measurement;
use crate::lab::record::Results;
use crate::lab::size::Size;

/// Returns the measurement, sized for a run of all experiments.
pub fn in_all(size: Size) -> Result<Box<dyn Measurement>> {
    Ok(Box::new(Plan { ways: Way::all(), amount: Amount::in_all(size) }))
}

/// Returns the relations between two cores that are not found on this machine.
pub fn missing_relations() -> Vec<&'static str> {
    placement::missing(&Placement::all())
}

impl Measurement for Plan {
    fn contenders(&self) -> Vec<String> {
        self.ways.iter().map(Way::to_string).collect()
    }

    fn keep(&mut self, only: &[String]) {
        self.ways.retain(|way| only.contains(&way.to_string()));
    }

    fn repeat(&mut self, rounds: u32) {
        self.amount.executions = rounds;
    }

    fn expected(&self) -> Duration {
        Plan::expected(self)
    }

    fn measure(&mut self, bar: &ProgressBar) -> Result<(Results, bool)> {
        let mut measured = self.begin();
        let is_complete = Plan::run(self, &mut measured, bar)?;
        Ok((convert::results(&measured), is_complete))
    }
}
