//! Events published one by one, the producer working between two: where a consumer that keeps up
//! and the producer fight over a line.

use slipring::{Contiguous, Interleaved};

use crate::contenders::queues::{Array, Crossbeam, Crossfire, Flume, Kanal, Ringbuf, Rtrb, Std};
use crate::contenders::{Pair, ours, queues, rejected, rings};
use crate::limits;
use crate::measure::{Contender, Figure, Kind, Size};
use crate::work::{Event, Words, alone, amount, steps_for};

/// A way to stream.
pub type Stream = fn(Pair) -> f64;

/// Who streams, by name: the library, the limits, the peers.
pub fn streams<E: Event>() -> Vec<(Kind, &'static str, Stream)> {
    use Kind::{Limit, Ours, Peer, Rejected};
    vec![
        (Ours, "slipring", ours::stream::<E, Interleaved>),
        (Ours, "slipring contiguous", ours::stream::<E, Contiguous>),
        (Limit, "limit stamps inside", limits::stream::<E, limits::Interleaved<E>, false>),
        (Limit, "limit stamps inside, spaced", limits::stream::<E, limits::Interleaved<E>, true>),
        (Limit, "limit stamps beside", limits::stream::<E, limits::Beside<E>, false>),
        (Limit, "limit stamps beside, spaced", limits::stream::<E, limits::Beside<E>, true>),
        (Limit, "limit cursor", limits::stream::<E, limits::Cursor<E>, false>),
        (Limit, "limit cursor, spaced", limits::stream::<E, limits::Cursor<E>, true>),
        (Rejected, "alternative: stamps beside, spaced", rejected::stream::<E, alternatives::Beside<E>>),
        (Rejected, "alternative: blocks, spaced", rejected::stream::<E, alternatives::Blocks<E>>),
        (Rejected, "alternative: prefetching ahead, spaced", rejected::stream::<E, alternatives::Prefetch<E>>),
        (Peer, "disruptor", rings::stream::<E>),
        (Peer, "rtrb", queues::stream::<E, Rtrb>),
        (Peer, "ringbuf", queues::stream::<E, Ringbuf>),
        (Peer, "crossbeam-channel", queues::stream::<E, Crossbeam>),
        (Peer, "crossbeam ArrayQueue", queues::stream::<E, Array>),
        (Peer, "kanal", queues::stream::<E, Kanal>),
        (Peer, "crossfire", queues::stream::<E, Crossfire>),
        (Peer, "flume", queues::stream::<E, Flume>),
        (Peer, "std sync_channel", queues::stream::<E, Std>),
    ]
}

/// Small and large events, a large ring and one that fits the first cache.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ring in [65_536, 1024] {
        figures.extend(table::<u64>(size, 8, ring));
    }
    for ring in [65_536, 1024] {
        figures.extend(table::<Words<8>>(size, 64, ring));
    }
    figures
}

/// How many events are timed: about ten milliseconds for whoever is quick.
pub fn events(size: Size, nanos: u32) -> u64 {
    size.pick(3_000, 100_000, 6_000_000 / u64::from(nanos + 10))
}

/// All of them on the same stream.
pub fn measured(streams: impl IntoIterator<Item = (Kind, &'static str, Stream)>, pair: Pair) -> Vec<Contender> {
    streams.into_iter().map(|(kind, name, stream)| Contender::new(kind, name, move || stream(pair))).collect()
}

fn table<E: Event>(size: Size, bytes: usize, ring: usize) -> impl Iterator<Item = Figure> {
    [0, 2, 10, 20, 40].into_iter().map(move |nanos| {
        let pair = Pair { ring, events: events(size, nanos), batch: 1, steps: steps_for(nanos) };
        Figure {
            table: format!("one by one, {bytes} bytes, ring {ring}"),
            column: amount(nanos),
            alone: alone(nanos, pair.events),
            contenders: measured(streams::<E>(), pair),
        }
    })
}
