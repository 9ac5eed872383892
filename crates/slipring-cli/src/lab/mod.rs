//! Experiments. Each is a module with its own arguments, its own measurements, and its own report.

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
    /// Does it.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Waits(args) => waits::run(&args),
            Self::Bystander(args) => waits::bystander::work(&args),
        }
    }
}
