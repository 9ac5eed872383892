//! Four threads on two cores with several wait strategies. Other contenders run all stages on one
//! thread, or let the stages share threads.
//!
//! No thread is pinned to a core of its own: the system schedules them, as in most programs.

pub mod lanes;
pub mod ours;
pub mod queues;
pub mod rings;
pub mod timing;

use std::time::Duration;

use disruptor::wait_strategies::WaitStrategy;
use disruptor::{BusySpin, BusySpinWithSpinLoopHint, Sleep};
use slipring::Wait;

use crate::contenders::foreign::{Form, Producers, Programs, Work};
use crate::contenders::gil::{Gil, GilMany};
use crate::contenders::queues::{Crossbeam, Std, Yring};
use crate::measure::{Contender, ContenderKind, Figure, Size};
use queues::{ByBlocking, ByYielding, Queue};
pub use timing::{NAMES, RING};

/// A graph, with a thread for each party.
#[derive(Clone, Copy)]
pub enum Shape {
    /// This number of stages in a row.
    Pipeline(usize),
    /// This number of stages side by side.
    Multicast(usize),
    /// Two stages side by side, and a stage behind both.
    Diamond,
    /// This number of producers, at most eight, and one stage.
    ManyToOne(usize),
}

/// Turns a number from 1 to 8 into a constant, and evaluates an expression that uses the constant.
macro_rules! with_constant {
    ($number:expr, $CONSTANT:ident => $value:expr) => {
        with_constant!($number, $CONSTANT => $value; 1 2 3 4 5 6 7 8)
    };
    ($number:expr, $CONSTANT:ident => $value:expr; $($literal:literal)*) => {
        match $number {
            $($literal => {
                const $CONSTANT: usize = $literal;
                $value
            })*
            other => panic!("1 to 8 are possible, not {other}"),
        }
    };
}

impl Shape {
    const ALL: [(Shape, &'static str); 4] = [
        (Shape::Pipeline(3), "pipeline of 3"),
        (Shape::Multicast(3), "multicast to 3"),
        (Shape::Diamond, "diamond"),
        (Shape::ManyToOne(3), "3 to 1"),
    ];

    /// Returns the shape as programs in other languages know it. For them, a multicast always has
    /// three stages.
    fn form(self) -> Form {
        match self {
            Shape::Pipeline(stages) => Form::Pipeline(stages),
            Shape::Multicast(_) => Form::Multicast,
            Shape::Diamond => Form::Diamond,
            Shape::ManyToOne(producers) => Form::FanIn(producers),
        }
    }

    /// Runs the shape in slipring.
    pub fn ours(self, config: &ours::Config, events: u64) -> f64 {
        match self {
            Shape::Pipeline(stages) => ours::pipeline(config, stages, events, 0),
            Shape::Multicast(stages) => ours::multicast(config, stages, events),
            Shape::Diamond => ours::diamond(config, events),
            Shape::ManyToOne(producers) => with_constant!(producers, PRODUCERS => {
                ours::many_to_one::<PRODUCERS>(config, events, 0)
            }),
        }
    }

    /// Runs the shape in the `disruptor` crate.
    pub fn rings<W: WaitStrategy + 'static>(self, config: rings::Config<W>, events: u64) -> f64 {
        match self {
            Shape::Pipeline(stages) => rings::pipeline(config, stages, events, 0),
            Shape::Multicast(stages) => rings::multicast(config, stages, events),
            Shape::Diamond => rings::diamond(config, events),
            Shape::ManyToOne(producers) => with_constant!(producers, PRODUCERS => {
                rings::many_to_one::<PRODUCERS, W>(config, events, 0)
            }),
        }
    }

    /// Runs the shape through queues.
    pub fn queues<Q: Queue<Tx: Clone>>(self, events: u64) -> f64 {
        match self {
            Shape::ManyToOne(producers) => with_constant!(producers, PRODUCERS => {
                queues::many_to_one::<PRODUCERS, Q>(events, 0)
            }),
            of_one_producer => of_one_producer.single_queues::<Q>(events),
        }
    }

    /// Runs a shape of one producer through queues that have one producer each.
    pub fn single_queues<Q: Queue>(self, events: u64) -> f64 {
        match self {
            Shape::Pipeline(stages) => queues::pipeline::<Q>(stages, events, 0),
            Shape::Multicast(stages) => queues::multicast::<Q>(stages, events),
            Shape::Diamond => queues::diamond::<Q>(events),
            Shape::ManyToOne(_) => panic!("a queue of one producer cannot serve several"),
        }
    }

    /// Runs the shape through the queues of the `gil` crate, which has one for several producers.
    pub fn gil(self, events: u64) -> f64 {
        match self {
            Shape::ManyToOne(_) => self.queues::<ByYielding<GilMany>>(events),
            _ => self.single_queues::<ByYielding<Gil>>(events),
        }
    }
}

/// Returns a figure for each shape.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let figures = Shape::ALL.map(|(shape, name)| Figure {
        table: format!("four threads on two cores: {name}"),
        column: format!("ring {RING}"),
        baseline: None,
        contenders: contenders(shape, size, programs),
    });
    figures.into()
}

/// Returns the number of events of a run that takes about `nanos` nanoseconds per event. With
/// --full a run lasts about a tenth of a second, which is many time slices of the system's
/// scheduler.
pub fn events(size: Size, nanos: u64) -> u64 {
    match size {
        Size::Smoke => 3_000.min(20_000_000 / nanos),
        Size::Quick => 30_000_000 / nanos,
        Size::Full => 100_000_000 / nanos,
    }
}

/// Rough costs of an event, in nanoseconds. They determine how many events a run has.
pub mod cost_ns {
    /// Cost if waiting threads yield the core.
    pub const YIELDING: u64 = 100;
    /// Cost if waiting threads sleep, or if each hand-over makes a system call.
    pub const SLEEPING: u64 = 300;
    /// Cost if waiting threads keep a core that other threads need.
    pub const SPINNING: u64 = 10_000;
}

fn contenders(shape: Shape, size: Size, programs: &Programs) -> Vec<Contender> {
    use ours::{One, Own, Shared};
    let mut contenders = Vec::new();
    let mut ours = |wait: Wait, threads, nanos| {
        let (config, events) = (ours::Config { wait, threads }, events(size, nanos));
        contenders.push(Contender::new(ContenderKind::Ours, config.name(), move || {
            shape.ours(&config, events)
        }));
    };
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        ours(wait, Own, cost_ns::YIELDING);
    }
    if !matches!(shape, Shape::ManyToOne(_)) {
        ours(Wait::YIELDING, One, cost_ns::YIELDING);
        ours(Wait::Blocking, One, cost_ns::YIELDING);
        ours(Wait::YIELDING, Shared, cost_ns::YIELDING);
        ours(Wait::default(), Shared, cost_ns::YIELDING);
    }
    if size == Size::Full {
        // The documentation advises against a busy spin with more threads than cores; this
        // contender shows why.
        ours(Wait::BusySpin, Own, cost_ns::SPINNING);
    }
    contenders.extend(disruptors(size, move |strategy, events| match strategy {
        Strategy::Yielding => {
            shape.rings(rings::Config { wait: rings::Yielding, yields: true }, events)
        }
        Strategy::Sleep(time) => shape.rings(rings::Config::new(Sleep::new(time)), events),
        Strategy::BusySpin => shape.rings(rings::Config::new(BusySpin), events),
        Strategy::SpinHint => shape.rings(rings::Config::new(BusySpinWithSpinLoopHint), events),
    }));
    let many = events(size, cost_ns::SLEEPING);
    let mut peer = |name: &str, run: Box<dyn Fn() -> f64>| {
        contenders.push(Contender::new(ContenderKind::Peer, name, run));
    };
    peer(
        "crossbeam-channel, blocking",
        Box::new(move || shape.queues::<ByBlocking<Crossbeam>>(many)),
    );
    peer("std sync_channel, blocking", Box::new(move || shape.queues::<ByBlocking<Std>>(many)));
    let many = events(size, cost_ns::YIELDING);
    if !matches!(shape, Shape::ManyToOne(_)) {
        peer("yring, yielding", Box::new(move || shape.single_queues::<ByYielding<Yring>>(many)));
    }
    peer("gil, yielding", Box::new(move || shape.gil(many)));
    let work = |slow| {
        let nanos = if slow { cost_ns::SLEEPING } else { cost_ns::YIELDING };
        let events = events(size, nanos);
        Work::Shape { form: shape.form(), ring: RING, events, steps: 0, handler_steps: 0 }
    };
    contenders.extend(programs.contenders(Producers::Several, false, work));
    contenders
}

/// A wait strategy for the `disruptor` crate.
#[derive(Clone, Copy)]
pub enum Strategy {
    /// A strategy of ours that yields the core, because the crate has none. The producer yields,
    /// too.
    Yielding,
    /// The crate's sleeping strategy.
    Sleep(Duration),
    /// The crate's spinning strategy.
    BusySpin,
    /// The crate's spinning strategy with a spin hint.
    SpinHint,
}

/// Makes a contender of the `disruptor` crate for each strategy. The crate's producers spin while
/// the ring is full, so runs of more threads than cores are slow.
pub fn disruptors(
    size: Size,
    run: impl Fn(Strategy, u64) -> f64 + Copy + 'static,
) -> Vec<Contender> {
    // A sleep of zero length makes no system call, so it spins.
    let strategies = [
        ("Sleep(0)", Strategy::Sleep(Duration::ZERO), cost_ns::SPINNING),
        ("Sleep(1 µs)", Strategy::Sleep(Duration::from_micros(1)), cost_ns::SLEEPING),
        ("Sleep(50 µs)", Strategy::Sleep(Duration::from_micros(50)), cost_ns::SLEEPING),
        ("BusySpin", Strategy::BusySpin, cost_ns::SPINNING),
        ("BusySpinWithSpinLoopHint", Strategy::SpinHint, cost_ns::SPINNING),
        ("own strategy and producer that yield", Strategy::Yielding, cost_ns::YIELDING),
    ];
    let contenders = strategies.map(|(name, strategy, nanos)| {
        let events = events(size, nanos);
        Contender::new(ContenderKind::Peer, format!("disruptor, {name}"), move || {
            run(strategy, events)
        })
    });
    contenders.into()
}
