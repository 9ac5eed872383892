//! Round trips: one event at a time through two rings.

use slipring::{Contiguous, Interleaved, Wait};

use crate::contenders::foreign::{Producers, Programs, Work};
use crate::contenders::queues::{Array, Crossbeam, Crossfire, Flume, Kanal, Ringbuf, Rtrb, Std};
use crate::contenders::{ours, queues, rings};
use crate::limits;
use crate::measure::{Contender, Figure, Kind, Size};

/// Runs so many round trips and returns the nanoseconds of each.
type RoundTrip = fn(usize) -> Vec<u64>;

/// Returns the figures: percentiles of a run's round trips.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let rounds = size.pick(500, 10_000, 30_000);
    vec![polling(rounds, programs), waiting(rounds)]
}

/// Returns the figure of threads that poll.
fn polling(rounds: usize, programs: &Programs) -> Figure {
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
    let measured = all.into_iter().map(|(kind, name, round_trip)| {
        contender(kind, name, &[("p50", 0.5), ("p99", 0.99)], move || round_trip(rounds))
    });
    let mut contenders: Vec<Contender> = measured.collect();
    let work = |_| Work::RoundTrip { rounds };
    contenders.extend(programs.contenders(Producers::One, false, work));
    figure("round trip, 8 bytes, ring 1024", contenders)
}

/// Returns the figure of threads that wait by `batch`, with the wait strategies that spin first.
fn waiting(rounds: usize) -> Figure {
    let quantiles = &[("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
    let waits = [
        ("busy spin", Wait::BusySpin),
        ("default wait", Wait::default()),
        ("blocking", Wait::Blocking),
        ("yielding", Wait::YIELDING),
    ];
    let ours = waits.map(|(name, wait)| {
        contender(Kind::Ours, &format!("slipring, {name}"), quantiles, move || {
            ours::round_trip_by_batches(rounds, wait.clone())
        })
    });
    let limit = contender(Kind::Limit, "raw atomics on two lines", quantiles, move || {
        limits::raw_round_trip(rounds)
    });
    figure("round trip by batches of one, ring 1024", ours.into_iter().chain([limit]).collect())
}

/// Returns a contender whose metrics are the given quantiles of its round trips.
fn contender(
    kind: Kind,
    name: &str,
    quantiles: &'static [(&'static str, f64)],
    round_trips: impl Fn() -> Vec<u64> + 'static,
) -> Contender {
    Contender::with_metrics(kind, name, move || {
        let mut times = round_trips();
        times.sort_unstable();
        let value = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64;
        quantiles.iter().map(|&(metric, share)| (metric, value(share))).collect()
    })
}

fn figure(table: &str, contenders: Vec<Contender>) -> Figure {
    Figure { table: table.to_owned(), column: "ns".to_owned(), baseline: None, contenders }
}
