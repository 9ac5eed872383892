//! Compares stamps inside the slots with stamps beside the events, for several sizes of events.

use slipring::markers::{Contiguous, Interleaved};

use super::one_by_one::{StreamFn, measured};
use crate::contenders::{StreamSpec, ours};
use crate::limits;
use crate::measure::{ContenderKind, Figure, Size};
use crate::work::{Event, Words, baseline, steps_for};

const RING: usize = 4096;

/// Returns figures for events of 8 to 512 bytes that are published one by one and in batches.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (nanos, batch) in [(10, 1), (0, 10)] {
        figures.push(column::<u64>(size, nanos, batch));
        figures.push(column::<Words<2>>(size, nanos, batch));
        figures.push(column::<Words<4>>(size, nanos, batch));
        figures.push(column::<Words<8>>(size, nanos, batch));
        figures.push(column::<Words<16>>(size, nanos, batch));
        figures.push(column::<Words<32>>(size, nanos, batch));
        figures.push(column::<Words<64>>(size, nanos, batch));
    }
    figures
}

fn column<E: Event>(size: Size, nanos: u32, batch: u64) -> Figure {
    let events = size.pick(3_000, 100_000, 300_000);
    let spec = StreamSpec { ring: RING, events, batch, steps: steps_for(nanos) };
    let all: [(ContenderKind, &str, StreamFn); 4] = [
        (ContenderKind::Ours, "slipring", ours::stream::<E, Interleaved>),
        (ContenderKind::Ours, "slipring contiguous", ours::stream::<E, Contiguous>),
        (
            ContenderKind::Limit,
            "limit stamps inside, spaced",
            limits::stream::<E, limits::Interleaved<E>, true>,
        ),
        (
            ContenderKind::Limit,
            "limit stamps beside, spaced",
            limits::stream::<E, limits::Beside<E>, true>,
        ),
    ];
    let publishing = if batch == 1 {
        format!("one by one, work {nanos} ns")
    } else {
        format!("batches of {batch}")
    };
    Figure {
        table: format!("layouts, {publishing}, ring {RING}"),
        column: format!("{} bytes", size_of::<E>()),
        baseline: baseline(nanos, events),
        contenders: measured(all, spec),
    }
}
