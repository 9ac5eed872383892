//! Round trips: one event at a time through two rings.

use slipring::{
    Wait,
    markers::{Contiguous, Interleaved},
};

use crate::contenders::foreign::{Producers, Programs, Work};
use crate::contenders::gil::Gil;
use crate::contenders::queues::{
    Array, Crossbeam, Crossfire, Flume, Kanal, Omango, Ringbuf, Rtrb, Std, Yring,
};
use crate::contenders::{Rounds, ours, queues, rings};
use crate::limits;
use crate::measure::{Contender, ContenderKind, Figure, Size};

/// A function that runs round trips and returns the nanoseconds of each, or the mean of all.
type RoundTrip = fn(Rounds) -> Vec<u64>;

/// Returns the figures: percentiles of round trips that are timed one by one, and the mean of round
/// trips without readings of the clock between them. A reading takes 25 to 50 ns, and the thread
/// does not poll during that time.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let rounds = size.pick(500, 10_000, 30_000);
    vec![polling(rounds, programs), waiting(rounds), back_to_back(10 * rounds)]
}

/// The contenders whose threads poll.
const POLLING: [(ContenderKind, &str, RoundTrip); 18] = {
    use ContenderKind::{Limit, Ours, Peer};
    [
        (Ours, "slipring", ours::round_trip::<Interleaved>),
        (Ours, "slipring contiguous", ours::round_trip::<Contiguous>),
        (Limit, "raw atomics on two lines", limits::raw_round_trip::<false>),
        (Limit, "raw atomics, spin hints", limits::raw_round_trip::<true>),
        (Limit, "raw atomics, spin hints, on many lines", limits::raw_round_trip_over_lines),
        (Limit, "limit stamps inside", limits::round_trip),
        (Peer, "disruptor", rings::round_trip),
        (Peer, "rtrb", queues::round_trip::<Rtrb>),
        (Peer, "yring", queues::round_trip::<Yring>),
        (Peer, "gil", queues::round_trip::<Gil>),
        (Peer, "omango", queues::round_trip::<Omango>),
        (Peer, "ringbuf", queues::round_trip::<Ringbuf>),
        (Peer, "crossbeam-channel", queues::round_trip::<Crossbeam>),
        (Peer, "crossbeam ArrayQueue", queues::round_trip::<Array>),
        (Peer, "kanal", queues::round_trip::<Kanal>),
        (Peer, "crossfire", queues::round_trip::<Crossfire>),
        (Peer, "flume", queues::round_trip::<Flume>),
        (Peer, "std sync_channel", queues::round_trip::<Std>),
    ]
};

/// Returns the wait strategies for threads that wait in the call `batch`. Each strategy spins
/// first.
fn waits() -> [(&'static str, Wait); 4] {
    [
        ("slipring, busy spin", Wait::BusySpin),
        ("slipring, default wait", Wait::default()),
        ("slipring, blocking", Wait::Blocking),
        ("slipring, yielding", Wait::YIELDING),
    ]
}

/// Returns the figure of threads that poll.
fn polling(rounds: usize, programs: &Programs) -> Figure {
    let measured = POLLING.into_iter().map(|(kind, name, round_trip)| {
        contender(kind, name, rounds, &[("p50", 0.5), ("p99", 0.99)], round_trip)
    });
    let mut contenders: Vec<Contender> = measured.collect();
    let work = |_| Work::RoundTrip { rounds };
    contenders.extend(programs.contenders(Producers::One, false, work));
    figure("round trip, 8 bytes, ring 1024", contenders)
}

/// Returns the figure of threads that wait in `batch`.
fn waiting(rounds: usize) -> Figure {
    let quantiles = &[("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
    let ours = waits().map(|(name, wait)| {
        let round_trip = move |rounds| ours::round_trip_by_batches(rounds, wait.clone());
        contender(ContenderKind::Ours, name, rounds, quantiles, round_trip)
    });
    let raw = POLLING.into_iter().filter(|(_, name, _)| name.starts_with("raw"));
    let raw = raw.map(|(kind, name, run)| contender(kind, name, rounds, quantiles, run));
    figure("round trip by batches of one, ring 1024", ours.into_iter().chain(raw).collect())
}

/// Returns the figure of round trips that follow each other immediately.
fn back_to_back(count: usize) -> Figure {
    let rounds = Rounds { count, each: false };
    let mean = |times: Vec<u64>| times[0] as f64;
    let polling = POLLING.into_iter().map(|(kind, name, round_trip)| {
        Contender::new(kind, name, move || mean(round_trip(rounds)))
    });
    let by_batches = waits().map(|(name, wait)| {
        let name = format!("{name}, by batches of one");
        Contender::new(ContenderKind::Ours, name, move || {
            mean(ours::round_trip_by_batches(rounds, wait.clone()))
        })
    });
    let all = polling.chain(by_batches).collect();
    figure("round trips back to back, 8 bytes, ring 1024, mean", all)
}

/// Returns a contender whose metrics are the given quantiles of its round trips.
fn contender(
    kind: ContenderKind,
    name: &str,
    count: usize,
    quantiles: &'static [(&'static str, f64)],
    round_trips: impl Fn(Rounds) -> Vec<u64> + 'static,
) -> Contender {
    Contender::with_metrics(kind, name, move || {
        let mut times = round_trips(Rounds { count, each: true });
        times.sort_unstable();
        let value = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64;
        quantiles.iter().map(|&(metric, share)| (metric, value(share))).collect()
    })
}

fn figure(table: &str, contenders: Vec<Contender>) -> Figure {
    Figure { table: table.to_owned(), column: "ns".to_owned(), baseline: None, contenders }
}
