//! Events published in batches of ten and a hundred. Queues that have no call for batches send the
//! events one by one.

use slipring::markers::{Contiguous, Interleaved};

use super::one_by_one::{StreamFn, measured, streams};
use crate::contenders::foreign::{Producers, Programs};
use crate::contenders::{StreamSpec, ours};
use crate::measure::{ContenderKind, Figure, Size};

/// Returns figures for a large ring, and for a ring that fits the first-level cache.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let events = size.pick(20_000, 500_000, 1_000_000);
    let mut figures = Vec::new();
    for ring in [65_536, 1024] {
        for batch in [10, 100] {
            let spec = StreamSpec { ring, events, batch, steps: 0 };
            let mut all = measured(contenders(), spec);
            all.extend(programs.streams(Producers::One, spec));
            figures.push(Figure {
                table: format!("batches, 8 bytes, ring {ring}"),
                column: format!("batches of {batch}"),
                baseline: None,
                contenders: all,
            });
        }
    }
    figures
}

/// Returns all contenders, including slipring with a consumer that takes batches instead of a
/// callback.
fn contenders() -> Vec<(ContenderKind, &'static str, StreamFn)> {
    let mut all = streams::<u64>();
    all.push((
        ContenderKind::Ours,
        "slipring, consumer polls batches",
        ours::batches::<Interleaved>,
    ));
    all.push((
        ContenderKind::Ours,
        "slipring contiguous, consumer polls batches",
        ours::batches::<Contiguous>,
    ));
    all
}
