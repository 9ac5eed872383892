//! Placements of the measured threads.

use anyhow::{Result, anyhow};
use slipring::Chain;
use slipring_machine::{Machine, Placement};

use super::candidate::{StagePlacement, Threads};

/// Returns the names of the placements that this machine allows for a generator and the threads of
/// this number of stages. The placement of all threads on one CPU is left out, because the
/// generator spins.
pub fn allowed(machine: &Machine, threads: Threads, stages: usize) -> Vec<String> {
    let own: Vec<String> = match threads {
        Threads::Own => (1..=stages).map(|stage| format!("stage-{stage}")).collect(),
        Threads::Shared(count) => (0..count).map(|number| format!("stages-{number}")).collect(),
    };
    let threads: Vec<String> =
        std::iter::once(slipring::stages::PRODUCER.to_owned()).chain(own).collect();
    let named =
        [Placement::Siblings, Placement::SharedCache, Placement::SameNode, Placement::Spread];
    let possible =
        named.into_iter().filter(|placement| machine.assign(placement, &threads).is_ok());
    possible.map(|placement| placement.to_string()).collect()
}

/// Gives a chain its placement.
pub fn apply<E: Send + 'static, L: slipring::markers::Layout>(
    chain: Chain<'static, E, L>,
    place: &StagePlacement,
) -> Result<Chain<'static, E, L>> {
    match place {
        StagePlacement::System => Ok(chain),
        StagePlacement::Named(name) => {
            let placement: Placement = name.parse().map_err(|error| anyhow!("{error}"))?;
            Ok(chain.placement(Machine::this()?.at(placement)))
        }
    }
}
