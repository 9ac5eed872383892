//! One thread that does everything: the baseline.

use anyhow::Result;
use slipring_machine::Clock;

use super::readings::{Reading, Readings, Retriever};

/// Builds and retrieves one reading after the other.
pub fn run(input: &Readings, clock: Clock, retriever: &mut Retriever) -> Result<()> {
    for line in input.lines() {
        let claimed = clock.ns();
        let reading = Reading::parse(line)?;
        retriever.retrieve(&reading, claimed)?;
    }
    Ok(())
}
