//! Events published ten and a hundred at a time; queues without a call for that send them one by
//! one.

use slipring::{Contiguous, Interleaved};

use super::one_by_one::{Stream, measured, streams};
use crate::contenders::{Pair, ours};
use crate::measure::{Figure, Kind, Size};

/// A large ring and one that fits the first cache.
pub fn figures(size: Size) -> Vec<Figure> {
    let events = size.pick(20_000, 500_000, 1_000_000);
    let mut figures = Vec::new();
    for ring in [65_536, 1024] {
        for batch in [10, 100] {
            let pair = Pair { ring, events, batch, steps: 0 };
            figures.push(Figure {
                table: format!("batches, 8 bytes, ring {ring}"),
                column: format!("batches of {batch}"),
                alone: None,
                contenders: measured(contenders(), pair),
            });
        }
    }
    figures
}

/// Everybody, and the library as those use it who take batches themselves.
fn contenders() -> Vec<(Kind, &'static str, Stream)> {
    let mut all = streams::<u64>();
    all.push((Kind::Ours, "slipring, consumer polls batches", ours::batches::<Interleaved>));
    all.push((Kind::Ours, "slipring contiguous, consumer polls batches", ours::batches::<Contiguous>));
    all
}
