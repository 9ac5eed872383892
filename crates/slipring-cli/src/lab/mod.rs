//! Experiments. Each is a module with its own arguments, measurements, and report.

use anyhow::Result;
use clap::Subcommand;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod exchange;
mod files;
pub mod machine;
mod size;
pub mod waits;

/// An experiment.
#[derive(Debug, Subcommand)]
pub enum Lab {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Exchange(exchange::Args),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ExchangeReader(exchange::reader::Args),
    Waits(waits::Args),
    Bystander(waits::bystander::Args),
}

impl Lab {
    /// Runs the experiment.
    pub fn run(self) -> Result<()> {
        match self {
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::Exchange(args) => exchange::run(&args),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::ExchangeReader(args) => exchange::reader::work(&args),
            Self::Waits(args) => waits::run(&args),
            Self::Bystander(args) => waits::bystander::work(&args),
        }
    }
}
