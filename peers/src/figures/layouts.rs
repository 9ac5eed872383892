//! From which event size on it does not matter whether stamps lie inside the slots or beside the
//! events.

use slipring::{Contiguous, Interleaved};

use super::one_by_one::{Stream, measured};
use crate::contenders::{Pair, ours};
use crate::limits;
use crate::measure::{Figure, Kind, Size};
use crate::work::{Event, Words, alone, steps_for};

const RING: usize = 4096;

/// One by one and in batches, for events of 8 to 512 bytes.
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
    let pair = Pair { ring: RING, events, batch, steps: steps_for(nanos) };
    let all: [(Kind, &str, Stream); 4] = [
        (Kind::Ours, "slipring", ours::stream::<E, Interleaved>),
        (Kind::Ours, "slipring contiguous", ours::stream::<E, Contiguous>),
        (Kind::Limit, "limit stamps inside, spaced", limits::stream::<E, limits::Interleaved<E>, true>),
        (Kind::Limit, "limit stamps beside, spaced", limits::stream::<E, limits::Beside<E>, true>),
    ];
    let way = if batch == 1 { format!("one by one, work {nanos} ns") } else { format!("batches of {batch}") };
    Figure {
        table: format!("layouts, {way}, ring {RING}"),
        column: format!("{} bytes", size_of::<E>()),
        alone: alone(nanos, events),
        contenders: measured(all, pair),
    }
}
