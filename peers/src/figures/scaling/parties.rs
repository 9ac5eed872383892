//! Figures for one to eight stages in a row, one to eight stages side by side, one to eight
//! producers, and up to eight members of a tap. All run on two cores.

use slipring::Wait;

use crate::contenders::queues::{Array, Crossbeam, CrossfireMany, Yring};
use crate::figures::oversubscribed::queues::{ByBlocking, ByYielding};
use crate::figures::oversubscribed::{Shape, cost_ns, events, ours, rings};
use crate::measure::{Contender, ContenderKind, Figure, Size, numbered_column};

/// A function that makes a shape with this number of stages or producers.
type ShapeOf = fn(usize) -> Shape;

/// Returns the figures of stages, producers and members.
pub fn figures(size: Size) -> Vec<Figure> {
    let tables: [(&str, &str, ShapeOf); 3] = [
        ("stages in a row", "stage", Shape::Pipeline),
        ("stages side by side", "stage", Shape::Multicast),
        ("producers", "producer", Shape::ManyToOne),
    ];
    let shapes = tables.into_iter().flat_map(|(table, unit, shape)| {
        (1..=8).map(move |count| Figure {
            table: format!("scaling: {table}"),
            column: numbered_column(count, unit),
            baseline: None,
            contenders: contenders(size, shape(count), count),
        })
    });
    let members = (0..=8).map(|count| Figure {
        table: "scaling: members of a tap".to_owned(),
        column: numbered_column(count, "member"),
        baseline: None,
        contenders: members(size, count),
    });
    shapes.chain(members).collect()
}

/// Returns the number of events for `parties` parties, each of which takes its share of the cores.
fn events_for(size: Size, nanos: u64, parties: usize) -> u64 {
    events(size, nanos * (1 + parties as u64) / 3)
}

/// Returns the contenders of a shape with `count` stages or producers.
fn contenders(size: Size, shape: Shape, count: usize) -> Vec<Contender> {
    use ours::{One, Own, Shared};
    let many = events_for(size, cost_ns::YIELDING, count);
    let few = events_for(size, cost_ns::SLEEPING, count);
    let mut all = Vec::new();
    let mut ours = |wait: Wait, threads| {
        let config = ours::Config { wait, threads };
        all.push(Contender::new(ContenderKind::Ours, config.name(), move || {
            shape.ours(&config, many)
        }));
    };
    ours(Wait::default(), Own);
    ours(Wait::YIELDING, Own);
    if !matches!(shape, Shape::ManyToOne(_)) {
        ours(Wait::YIELDING, One);
        ours(Wait::YIELDING, Shared);
    }
    let mut peer = |name: &str, run: Box<dyn Fn() -> f64>| {
        all.push(Contender::new(ContenderKind::Peer, name, run));
    };
    peer(
        "disruptor, own strategy and producer that yield",
        Box::new(move || shape.rings(rings::Config { wait: rings::Yielding, yields: true }, many)),
    );
    peer("crossfire, yielding", Box::new(move || shape.queues::<ByYielding<CrossfireMany>>(many)));
    if !matches!(shape, Shape::ManyToOne(_)) {
        peer("yring, yielding", Box::new(move || shape.single_queues::<ByYielding<Yring>>(many)));
    }
    peer("gil, yielding", Box::new(move || shape.gil(many)));
    peer(
        "crossbeam ArrayQueue, yielding",
        Box::new(move || shape.queues::<ByYielding<Array>>(many)),
    );
    peer(
        "crossbeam-channel, blocking",
        Box::new(move || shape.queues::<ByBlocking<Crossbeam>>(few)),
    );
    all
}

/// Returns contenders with `count` members that join a tap beside a stage. For comparison, other
/// contenders have `count` additional stages instead, which are there from the beginning.
fn members(size: Size, count: usize) -> Vec<Contender> {
    let events = events_for(size, cost_ns::YIELDING, 1 + count);
    let mut all = Vec::new();
    for wait in [Wait::default(), Wait::YIELDING] {
        let config = ours::Config { wait, threads: ours::Own };
        let stages = config.clone();
        all.push(Contender::new(
            ContenderKind::Ours,
            format!("{}, members", config.name()),
            move || ours::tap(&config, count, events),
        ));
        all.push(Contender::new(
            ContenderKind::Ours,
            format!("{}, stages", stages.name()),
            move || ours::multicast(&stages, 1 + count, events),
        ));
    }
    all
}
