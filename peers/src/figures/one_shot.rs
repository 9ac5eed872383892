//! One-shot hand-overs: a new pair of ends for each value.

use crate::contenders::Rounds;
use crate::contenders::one_shot::{
    Crossbeam, Crossfire, Flume, OneshotCrate, Promise, Std, Tokio, Word, pipeline, round_trip,
};
use crate::measure::{Contender, ContenderKind, Figure, Size};

/// A contender: its kind, its name, and three functions that run it. The first runs round trips of
/// a thread that spins; the second, round trips of a thread that waits in the contender's own way;
/// the third, a pipeline.
type OneShot = (ContenderKind, &'static str, RoundTrip, RoundTrip, fn(usize) -> f64);
/// A function that runs round trips and returns the nanoseconds of each.
type RoundTrip = fn(Rounds) -> Vec<u64>;

/// Lists a contender.
macro_rules! one_shot {
    ($kind:ident, $name:literal, $type:ty) => {
        (
            ContenderKind::$kind,
            $name,
            round_trip::<$type, true>,
            round_trip::<$type, false>,
            pipeline::<$type>,
        )
    };
}

/// All contenders.
const ALL: [OneShot; 8] = [
    one_shot!(Ours, "slipring promise", Promise),
    one_shot!(Limit, "limit one word in a box", Word),
    one_shot!(Peer, "oneshot", OneshotCrate),
    one_shot!(Peer, "tokio oneshot", Tokio),
    one_shot!(Peer, "crossfire oneshot", Crossfire),
    one_shot!(Peer, "crossbeam-channel bounded(1)", Crossbeam),
    one_shot!(Peer, "flume bounded(1)", Flume),
    one_shot!(Peer, "std sync_channel(1)", Std),
];

/// Returns the figures: percentiles of round trips whose answer is a one-shot hand-over, and the
/// mean time of hand-overs if several are under way at once. Each figure includes making the pair,
/// sending one of its ends to the other thread, the hand-over, and dropping the pair.
pub fn figures(size: Size) -> Vec<Figure> {
    let rounds = size.pick(500, 10_000, 30_000);
    let trips = |table: &str, pick: fn(&OneShot) -> RoundTrip| {
        let contenders = ALL.iter().map(|one| {
            let run = pick(one);
            Contender::with_metrics(one.0, one.1, move || {
                let mut times = run(Rounds { count: rounds, each: true });
                times.sort_unstable();
                let value = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64;
                vec![("p50", value(0.5)), ("p99", value(0.99))]
            })
        });
        figure(table, contenders.collect())
    };
    let pipelines = ALL
        .iter()
        .map(|&(kind, name, .., run)| Contender::new(kind, name, move || run(10 * rounds)));
    vec![
        trips("one-shot hand-over, answer to a request, spinning", |one| one.2),
        trips("one-shot hand-over, answer to a request, own wait", |one| one.3),
        figure("one-shot hand-over, 32 under way", pipelines.collect()),
    ]
}

fn figure(table: &str, contenders: Vec<Contender>) -> Figure {
    Figure { table: table.to_owned(), column: "ns".to_owned(), baseline: None, contenders }
}
