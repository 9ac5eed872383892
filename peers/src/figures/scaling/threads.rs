//! One to four threads per core: pairs of a producer and a stage, each pair with a ring of its own.
//! No thread is pinned.

use std::sync::Arc;
use std::thread;

use disruptor::BusySpin;
use slipring::Wait;
use slipring_machine::usable_cores;

use crate::contenders::gil::Gil;
use crate::contenders::queues::{Crossbeam, CrossfireMany, Yring};
use crate::figures::oversubscribed::queues::{self, ByBlocking, ByYielding};
use crate::figures::oversubscribed::timing::Timing;
use crate::figures::oversubscribed::{cost_ns, events, ours, rings};
use crate::measure::{Contender, ContenderKind, Figure, Size, numbered_column};

/// A function that runs a producer and a stage on two threads.
type Row = Box<dyn Fn(&Arc<Timing>) + Sync>;

/// Returns a figure for each number of threads per core.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut counts: Vec<usize> =
        (1..=4).map(|factor| (factor * usable_cores()).div_ceil(2)).collect();
    counts.dedup();
    let figures = counts.into_iter().map(|pairs| Figure {
        table: "scaling: threads per core".to_owned(),
        column: numbered_column(2 * pairs, "thread"),
        baseline: None,
        contenders: contenders(size, pairs),
    });
    figures.collect()
}

fn contenders(size: Size, pairs: usize) -> Vec<Contender> {
    // `many` and `spinning` are numbers of events for each pair. Threads that spin and outnumber
    // the cores take the cores from each other, so their pairs get fewer events. That smaller
    // number is not divided among the pairs: a pair must fill its ring several times for its
    // threads to wait at all.
    let each = |nanos| events(size, nanos) / pairs as u64;
    let many = each(cost_ns::YIELDING);
    let spinning = if 2 * pairs > usable_cores() { events(size, cost_ns::SPINNING) } else { many };
    let mut all = Vec::new();
    let mut add = |kind, name: String, events, row: Row| {
        all.push(Contender::new(kind, name, move || run(pairs, events, &row)));
    };
    let waits = [Wait::default(), Wait::YIELDING, Wait::SLEEPING, Wait::Blocking, Wait::BusySpin];
    for wait in waits {
        let events = if matches!(wait, Wait::BusySpin) { spinning } else { many };
        let config = ours::Config { wait, threads: ours::Own };
        let name = config.name();
        let row = move |timing: &Arc<Timing>| ours::row(&config, 1, timing, 0);
        add(ContenderKind::Ours, name, events, Box::new(row));
    }
    add(
        ContenderKind::Peer,
        "disruptor, own strategy and producer that yield".to_owned(),
        many,
        Box::new(|timing| {
            rings::row(rings::Config { wait: rings::Yielding, yields: true }, 1, timing, 0);
        }),
    );
    add(
        ContenderKind::Peer,
        "disruptor, BusySpin".to_owned(),
        spinning,
        Box::new(|timing| rings::row(rings::Config::new(BusySpin), 1, timing, 0)),
    );
    add(
        ContenderKind::Peer,
        "crossfire, yielding".to_owned(),
        many,
        Box::new(|timing| queues::row::<ByYielding<CrossfireMany>>(1, timing, 0)),
    );
    add(
        ContenderKind::Peer,
        "yring, yielding".to_owned(),
        many,
        Box::new(|timing| queues::row::<ByYielding<Yring>>(1, timing, 0)),
    );
    add(
        ContenderKind::Peer,
        "gil, yielding".to_owned(),
        many,
        Box::new(|timing| queues::row::<ByYielding<Gil>>(1, timing, 0)),
    );
    add(
        ContenderKind::Peer,
        "crossbeam-channel, blocking".to_owned(),
        each(cost_ns::SLEEPING),
        Box::new(|timing| queues::row::<ByBlocking<Crossbeam>>(1, timing, 0)),
    );
    all
}

/// Runs `row` on `pairs` pairs of threads at the same time. Returns the nanoseconds per event, over
/// the events of all pairs.
fn run(pairs: usize, events: u64, row: &Row) -> f64 {
    let timing = Timing::of_pairs(pairs, events);
    thread::scope(|scope| {
        for _ in 0..pairs {
            let timing = &timing;
            scope.spawn(move || row(timing));
        }
    });
    timing.result()
}
