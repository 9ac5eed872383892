//! Events that are published one by one, by a producer that works between them. A consumer that
//! keeps up then competes with the producer for each cache line.

use slipring::markers::{Contiguous, Interleaved};

use crate::contenders::foreign::{Producers, Programs};
use crate::contenders::gil::Gil;
use crate::contenders::queues::{
    Array, Crossbeam, Crossfire, Flume, Kanal, Omango, Ringbuf, Rtrb, Std, Yring,
};
use crate::contenders::{StreamSpec, ours, queues, rejected, rings};
use crate::limits;
use crate::measure::{Contender, ContenderKind, Figure, Size};
use crate::work::{Event, Words, amount, baseline, steps_for};

/// A function that measures a stream and returns the nanoseconds per event.
pub type StreamFn = fn(StreamSpec) -> f64;

/// Returns the kind, the name and the stream function of every contender.
pub fn streams<E: Event>() -> Vec<(ContenderKind, &'static str, StreamFn)> {
    use ContenderKind::{Limit, Ours, Peer, Rejected};
    vec![
        (Ours, "slipring", ours::stream::<E, Interleaved>),
        (Ours, "slipring contiguous", ours::stream::<E, Contiguous>),
        (Limit, "limit stamps inside", limits::stream::<E, limits::Interleaved<E>, false>),
        (Limit, "limit stamps inside, spaced", limits::stream::<E, limits::Interleaved<E>, true>),
        (Limit, "limit stamps beside", limits::stream::<E, limits::Beside<E>, false>),
        (Limit, "limit stamps beside, spaced", limits::stream::<E, limits::Beside<E>, true>),
        (Limit, "limit cursor", limits::stream::<E, limits::Cursor<E>, false>),
        (Limit, "limit cursor, spaced", limits::stream::<E, limits::Cursor<E>, true>),
        (
            Rejected,
            "alternative: stamps beside, spaced",
            rejected::stream::<E, alternatives::Beside<E>>,
        ),
        (Rejected, "alternative: blocks, spaced", rejected::stream::<E, alternatives::Blocks<E>>),
        (
            Rejected,
            "alternative: prefetching ahead, spaced",
            rejected::stream::<E, alternatives::Prefetch<E>>,
        ),
        (Peer, "disruptor", rings::stream::<E>),
        (Peer, "rtrb", queues::stream::<E, Rtrb>),
        (Peer, "yring", queues::stream::<E, Yring>),
        (Peer, "gil", queues::stream::<E, Gil>),
        (Peer, "omango", queues::stream::<E, Omango>),
        (Peer, "ringbuf", queues::stream::<E, Ringbuf>),
        (Peer, "crossbeam-channel", queues::stream::<E, Crossbeam>),
        (Peer, "crossbeam ArrayQueue", queues::stream::<E, Array>),
        (Peer, "kanal", queues::stream::<E, Kanal>),
        (Peer, "crossfire", queues::stream::<E, Crossfire>),
        (Peer, "flume", queues::stream::<E, Flume>),
        (Peer, "std sync_channel", queues::stream::<E, Std>),
    ]
}

/// Returns figures for small and large events, for a large ring, and for a ring that fits the
/// first-level cache.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ring in [65_536, 1024] {
        figures.extend(table::<u64>(size, 8, ring, Some(programs)));
    }
    for ring in [65_536, 1024] {
        figures.extend(table::<Words<8>>(size, 64, ring, None));
    }
    figures
}

/// Returns the number of timed events for a producer that works `nanos` nanoseconds on each. In a
/// full run, a contender that adds 10 ns per event takes 6 ms.
pub fn events(size: Size, nanos: u32) -> u64 {
    size.pick(3_000, 100_000, 6_000_000 / u64::from(nanos + 10))
}

/// Makes a contender of each of these functions, all for the same stream.
pub fn measured(
    streams: impl IntoIterator<Item = (ContenderKind, &'static str, StreamFn)>,
    spec: StreamSpec,
) -> Vec<Contender> {
    let contender = |(kind, name, stream): (ContenderKind, &'static str, StreamFn)| {
        Contender::new(kind, name, move || stream(spec))
    };
    streams.into_iter().map(contender).collect()
}

/// Returns the figures of one table. If `programs` are given, contenders in other languages take
/// part, too. All of these have events of eight bytes.
fn table<E: Event>(
    size: Size,
    bytes: usize,
    ring: usize,
    programs: Option<&Programs>,
) -> Vec<Figure> {
    let figure = |nanos| {
        let spec =
            StreamSpec { ring, events: events(size, nanos), batch: 1, steps: steps_for(nanos) };
        let mut contenders = measured(streams::<E>(), spec);
        contenders.extend(programs.into_iter().flat_map(|all| all.streams(Producers::One, spec)));
        Figure {
            table: format!("one by one, {bytes} bytes, ring {ring}"),
            column: amount(nanos),
            baseline: baseline(nanos, spec.events),
            contenders,
        }
    };
    [0, 2, 10, 20, 40].map(figure).into()
}
