//! The command `slipring lab scaling`: measures on the machine's cores, or simulates virtual ones.

use anyhow::Result;
use slipring_coherence::{Topology, TopologyError};

use super::super::runner;
use super::{Scaling, simulated};

/// The arguments of the experiment.
#[derive(Debug, clap::Args)]
// The flattened arguments have a group of this name already.
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    common: runner::Args,

    /// Simulate virtual cores: counts of cache-line transfers, no speeds
    ///
    /// For example 2x6: two sockets with six cores each, and 64 cores in
    /// all at most. The programs run on a model of cache coherence, within
    /// a minute and with the same result each time. For each statement of
    /// the study, the output says whether its shape appears; `lab report`
    /// draws the record.
    #[arg(
        long,
        value_name = "SOCKETSxCORES",
        value_parser = topology,
        help_heading = "Simulation",
        verbatim_doc_comment
    )]
    simulate: Option<Topology>,

    /// Simulate up to N consumers [default: 11, or as many as have a core]
    #[arg(
        long,
        value_name = "N",
        requires = "simulate",
        help_heading = "Simulation",
        value_parser = clap::value_parser!(u8).range(1..)
    )]
    consumers: Option<u8>,
}

/// Parses a topology. The error says what to write instead.
fn topology(text: &str) -> Result<Topology, String> {
    text.parse().map_err(|error| match error {
        TopologyError::NotATopology(_) => format!("{error}"),
        error => format!("{error}: write sockets x cores of each socket, such as 2x6"),
    })
}

/// Measures the experiment, or simulates it.
pub fn run(args: &Args) -> Result<()> {
    match args.simulate {
        Some(topology) => {
            let (experiment, model) = simulated::plan(topology, args.consumers.map(usize::from))?;
            // The library warns of strategies that do not suit the machine, which is virtual here.
            slipring_simulated::waiting::on_warning(|_| ());
            runner::simulate(&experiment, model, &args.common)
        }
        None => runner::run(&[&Scaling], &args.common),
    }
}
