//! Experiments. Each is a module with its own arguments, measurements, and report.

use anyhow::Result;
use clap::Subcommand;

mod catalogue;
mod compare;
mod contenders;
mod cores;
mod exchange;
mod experiment;
mod figure;
mod files;
mod graph;
mod interrupt;
mod interval;
pub mod machine;
mod metric;
pub mod noise;
mod ordered;
mod panels;
mod placements;
pub mod progress;
mod reading;
pub mod record;
mod report;
mod runner;
mod scaling;
mod shapes;
pub mod size;
mod standing;
pub mod statistics;
mod table;
pub mod waits;
mod wording;

/// An experiment.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Runs all experiments
    All(runner::Args),
    /// Compares the ring with queues in the shapes of pipelines and fan-outs
    Shapes(runner::Args),
    /// Sorts integers with one to eleven consumers, as a study of the Disruptor did
    Scaling(scaling::command::Args),
    /// Builds sensor readings in parallel and releases them in order of time
    Ordered(runner::Args),
    /// Computes pi by one producer, several workers and a reducer, in three shapes
    Graph(runner::Args),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Exchange(exchange::Args),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    ExchangeReader(exchange::reader::Args),
    Waits(waits::Args),
    Bystander(waits::bystander::Args),
    /// Measures the round trip between every two CPUs
    Cores(runner::Args),
    /// Measures the cost of where threads run and where a ring's memory lies
    Placements(runner::Args),
    Report(report::Args),
    Compare(compare::Args),
}

impl Lab {
    /// Runs the experiment.
    pub fn run(self) -> Result<()> {
        let one = |name: &str, args| {
            let found: Vec<_> = catalogue::find(name).into_iter().collect();
            runner::run(&found, args)
        };
        match self {
            Self::All(args) => runner::run(&catalogue::all(), &args),
            Self::Shapes(args) => one("shapes", &args),
            Self::Cores(args) => one("cores", &args),
            Self::Placements(args) => one("placements", &args),
            Self::Graph(args) => one("graph", &args),
            Self::Scaling(args) => scaling::command::run(&args),
            Self::Ordered(args) => one("ordered", &args),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::Exchange(args) => exchange::run(&args),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::ExchangeReader(args) => exchange::reader::work(&args),
            Self::Waits(args) => waits::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Compare(args) => compare::run(&args),
            Self::Bystander(args) => waits::bystander::work(&args),
        }
    }
}
