//! More threads than cores: what four threads on two cores cost, and what it helps to wait
//! otherwise or to share a thread.
//!
//! Nothing is bound to a core of its own: who runs when is the system's choice, as it is in a
//! program that did not choose.

pub mod line;
pub mod ours;
pub mod queues;
pub mod rings;

use std::time::Duration;

use disruptor::wait_strategies::WaitStrategy;
use disruptor::{BusySpin, BusySpinWithSpinLoopHint, Sleep};
use slipring::Wait;

use crate::contenders::queues::{Crossbeam, Std};
use crate::measure::{Contender, Figure, Kind, Size};
use queues::{Blocks, Queue};

/// Slots of each ring, and places of each queue.
pub const RING: usize = 1024;
/// What the stages are called, where they have names.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// Four threads, one table a shape.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Pipeline,
    Multicast,
    Diamond,
    ThreeToOne,
}

impl Shape {
    const ALL: [(Shape, &'static str); 4] = [
        (Shape::Pipeline, "pipeline of 3"),
        (Shape::Multicast, "multicast to 3"),
        (Shape::Diamond, "diamond"),
        (Shape::ThreeToOne, "3 to 1"),
    ];

    fn ours(self, way: &ours::Way, events: u64) -> f64 {
        match self {
            Shape::Pipeline => ours::pipeline(way, 3, events, 0),
            Shape::Multicast => ours::multicast(way, events),
            Shape::Diamond => ours::diamond(way, events),
            Shape::ThreeToOne => ours::many_to_one::<3>(way, events, 0),
        }
    }

    fn rings<W: WaitStrategy + 'static>(self, way: rings::Way<W>, events: u64) -> f64 {
        match self {
            Shape::Pipeline => rings::pipeline(way, 3, events, 0),
            Shape::Multicast => rings::multicast(way, events),
            Shape::Diamond => rings::diamond(way, events),
            Shape::ThreeToOne => rings::many_to_one::<3, W>(way, events, 0),
        }
    }

    fn queues<Q: Queue<Tx: Clone>>(self, events: u64) -> f64 {
        match self {
            Shape::Pipeline => queues::pipeline::<Q>(3, events, 0),
            Shape::Multicast => queues::multicast::<Q>(events),
            Shape::Diamond => queues::diamond::<Q>(events),
            Shape::ThreeToOne => queues::many_to_one::<3, Q>(events, 0),
        }
    }
}

/// One table a shape.
pub fn figures(size: Size) -> Vec<Figure> {
    let figures = Shape::ALL.map(|(shape, name)| Figure {
        table: format!("four threads on two cores: {name}"),
        column: format!("ring {RING}"),
        alone: None,
        contenders: contenders(shape, size),
    });
    figures.into()
}

/// How many events a run takes that costs about `nanos` an event: so many that it lasts for many
/// turns of the system's scheduler, which are milliseconds, and no longer than a tenth of a second.
pub fn events(size: Size, nanos: u64) -> u64 {
    match size {
        Size::Smoke => 3_000.min(20_000_000 / nanos),
        Size::Quick => 30_000_000 / nanos,
        Size::Full => 100_000_000 / nanos,
    }
}

/// About what an event costs, so that runs are neither too short nor too long.
pub mod about {
    /// Where waiting gives the core away.
    pub const SHARING: u64 = 100;
    /// Where each hand-over goes through the system, or sleeps.
    pub const SLEEPING: u64 = 300;
    /// Where waiters keep the core that the others need.
    pub const SPINNING: u64 = 10_000;
}

fn contenders(shape: Shape, size: Size) -> Vec<Contender> {
    let mut contenders = Vec::new();
    let mut ours = |wait: Wait, together, nanos| {
        let (way, events) = (ours::Way { wait, together }, events(size, nanos));
        contenders.push(Contender::new(Kind::Ours, way.name(), move || shape.ours(&way, events)));
    };
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        ours(wait, false, about::SHARING);
    }
    if shape != Shape::ThreeToOne {
        ours(Wait::YIELDING, true, about::SHARING);
        ours(Wait::Blocking, true, about::SHARING);
    }
    if size == Size::Full {
        // What the documentation advises against; a reader should see why.
        ours(Wait::BusySpin, false, about::SPINNING);
    }
    contenders.extend(disruptors(size, move |strategy, events| match strategy {
        Strategy::Yielding => shape.rings(rings::Way { wait: rings::Yielding, yields: true }, events),
        Strategy::Sleep(time) => shape.rings(rings::Way { wait: Sleep::new(time), yields: false }, events),
        Strategy::BusySpin => shape.rings(rings::Way { wait: BusySpin, yields: false }, events),
        Strategy::SpinHint => shape.rings(rings::Way { wait: BusySpinWithSpinLoopHint, yields: false }, events),
    }));
    let many = events(size, about::SLEEPING);
    contenders.push(Contender::new(Kind::Peer, "crossbeam-channel, blocking", move || shape.queues::<Blocks<Crossbeam>>(many)));
    contenders.push(Contender::new(Kind::Peer, "std sync_channel, blocking", move || shape.queues::<Blocks<Std>>(many)));
    contenders
}

/// A wait strategy of the `disruptor` crate.
#[derive(Clone, Copy)]
pub enum Strategy {
    /// One's own, with a producer that yields as well.
    Yielding,
    /// The crate's three.
    Sleep(Duration),
    BusySpin,
    SpinHint,
}

/// The `disruptor` crate with each strategy. Its producers spin while the ring is full, so that
/// runs of more threads than cores are slow.
pub fn disruptors(size: Size, run: impl Fn(Strategy, u64) -> f64 + Copy + 'static) -> Vec<Contender> {
    // A sleep of no time does not go to the system at all: it is one more way to spin.
    let ways = [
        ("Sleep(0)", Strategy::Sleep(Duration::ZERO), about::SPINNING),
        ("Sleep(1 µs)", Strategy::Sleep(Duration::from_micros(1)), about::SLEEPING),
        ("Sleep(50 µs)", Strategy::Sleep(Duration::from_micros(50)), about::SLEEPING),
        ("BusySpin", Strategy::BusySpin, about::SPINNING),
        ("BusySpinWithSpinLoopHint", Strategy::SpinHint, about::SPINNING),
        ("own strategy and producer that yield", Strategy::Yielding, about::SHARING),
    ];
    let contenders = ways.map(|(name, strategy, nanos)| {
        let events = events(size, nanos);
        Contender::new(Kind::Peer, format!("disruptor, {name}"), move || run(strategy, events))
    });
    contenders.into()
}
