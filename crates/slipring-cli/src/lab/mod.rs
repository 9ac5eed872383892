//! Experiments. Each is a module with its own arguments, measurements, and report.

use anyhow::Result;
use clap::Subcommand;

pub mod waits;

/// An experiment.
#[derive(Debug, Subcommand)]
pub enum Lab {
    Waits(waits::Args),
    Bystander(waits::bystander::Args),
}

impl Lab {
    /// Runs the experiment.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Waits(args) => waits::run(&args),
            Self::Bystander(args) => waits::bystander::work(&args),
        }
    }
}
