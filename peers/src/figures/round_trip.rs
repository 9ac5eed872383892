//! Round trips: one event at a time through two rings.

use slipring::{Contiguous, Interleaved};

use crate::contenders::foreign::{Producers, Programs, Work};
use crate::contenders::queues::{Array, Crossbeam, Crossfire, Flume, Kanal, Ringbuf, Rtrb, Std};
use crate::contenders::{ours, queues, rings};
use crate::limits;
use crate::measure::{Contender, Figure, Kind, Size};

/// Runs so many round trips and returns the nanoseconds of each.
type RoundTrip = fn(usize) -> Vec<u64>;

/// Returns one figure: median and 99th percentile of a run's round trips.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    use Kind::{Limit, Ours, Peer};
    let all: [(Kind, &str, RoundTrip); 13] = [
        (Ours, "slipring", ours::round_trip::<Interleaved>),
        (Ours, "slipring contiguous", ours::round_trip::<Contiguous>),
        (Limit, "raw atomics on two lines", limits::raw_round_trip),
        (Limit, "limit stamps inside, spaced", limits::round_trip),
        (Peer, "disruptor", rings::round_trip),
        (Peer, "rtrb", queues::round_trip::<Rtrb>),
        (Peer, "ringbuf", queues::round_trip::<Ringbuf>),
        (Peer, "crossbeam-channel", queues::round_trip::<Crossbeam>),
        (Peer, "crossbeam ArrayQueue", queues::round_trip::<Array>),
        (Peer, "kanal", queues::round_trip::<Kanal>),
        (Peer, "crossfire", queues::round_trip::<Crossfire>),
        (Peer, "flume", queues::round_trip::<Flume>),
        (Peer, "std sync_channel", queues::round_trip::<Std>),
    ];
    let rounds = size.pick(500, 10_000, 30_000);
    let contender = |(kind, name, round_trip): (Kind, &str, RoundTrip)| {
        Contender::with_metrics(kind, name, move || {
            let mut times = round_trip(rounds);
            times.sort_unstable();
            let percentile = |share: usize| times[(times.len() - 1) * share / 100] as f64;
            vec![("p50", percentile(50)), ("p99", percentile(99))]
        })
    };
    let mut contenders: Vec<Contender> = all.into_iter().map(contender).collect();
    let work = |_| Work::RoundTrip { rounds };
    contenders.extend(programs.contenders(Producers::One, false, work));
    vec![Figure {
        table: "round trip, 8 bytes, ring 1024".to_owned(),
        column: "ns".to_owned(),
        baseline: None,
        contenders,
    }]
}
