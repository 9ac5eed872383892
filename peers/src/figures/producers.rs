//! Shared producers: their cost for a single producing thread, and two producers at once.

use std::time::Duration;

use disruptor::{BusySpinWithSpinLoopHint, Sleep};
use slipring::{Wait, markers::Interleaved};

use super::one_by_one::{self, StreamFn, measured};
use super::oversubscribed::queues::{ByBlocking, ByYielding, many_to_one};
use super::oversubscribed::{RING, cost_ns, events, lanes, ours, rings};
use crate::contenders::foreign::{Form, Producers, Programs, Work};
use crate::contenders::gil::{GilMany, GilParking, GilSharded};
use crate::contenders::queues::{
    Array, Crossbeam, CrossfireMany, Flume, Kanal, OmangoMany, Std, stream,
};
use crate::contenders::{self, StreamSpec};
use crate::measure::{Contender, ContenderKind, Figure, Size};
use crate::work::{amount, baseline, steps_for};

/// Returns figures for one and for two producing threads.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let mut figures: Vec<Figure> = [0, 10, 40].map(|nanos| one(size, nanos, programs)).into();
    figures.extend([0, 10].map(|nanos| two(size, nanos, programs)));
    figures
}

/// Returns a figure of one thread that publishes through a handle for several producers. Each
/// thread has a core of its own.
fn one(size: Size, nanos: u32, programs: &Programs) -> Figure {
    use ContenderKind::{Ours, Peer};
    let all: [(ContenderKind, &str, StreamFn); 13] = [
        (Ours, "slipring, shared producer", contenders::ours::shared_stream),
        (Ours, "slipring, single producer", contenders::ours::stream::<u64, Interleaved>),
        (Peer, "disruptor, multi producer", contenders::rings::shared_stream::<u64>),
        (Peer, "disruptor, single producer", contenders::rings::stream::<u64>),
        (Peer, "crossbeam-channel", stream::<u64, Crossbeam>),
        (Peer, "crossbeam ArrayQueue", stream::<u64, Array>),
        (Peer, "kanal", stream::<u64, Kanal>),
        (Peer, "crossfire", stream::<u64, CrossfireMany>),
        (Peer, "omango", stream::<u64, OmangoMany>),
        (Peer, "gil", stream::<u64, GilMany>),
        (Peer, "gil sharded", stream::<u64, GilSharded>),
        (Peer, "flume", stream::<u64, Flume>),
        (Peer, "std sync_channel", stream::<u64, Std>),
    ];
    let events = one_by_one::events(size, nanos);
    let spec = StreamSpec { ring: 65_536, events, batch: 1, steps: steps_for(nanos) };
    let mut contenders = measured(all, spec);
    contenders.extend(programs.streams(Producers::Several, spec));
    Figure {
        table: "one thread publishing through a handle of many, ring 65536".to_owned(),
        column: amount(nanos),
        baseline: baseline(nanos, events),
        contenders,
    }
}

/// Returns a figure of two producers and a consumer: three threads on two cores, not pinned.
fn two(size: Size, nanos: u32, programs: &Programs) -> Figure {
    let steps = steps_for(nanos);
    let many = events(size, cost_ns::YIELDING);
    let (some, few) = (events(size, cost_ns::SLEEPING), events(size, 2 * cost_ns::YIELDING));
    let mut all = Vec::new();
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        let config = ours::Config { wait, threads: ours::Own };
        all.push(Contender::new(ContenderKind::Ours, config.name(), move || {
            ours::many_to_one::<2>(&config, many, steps)
        }));
    }
    all.push(Contender::new(
        ContenderKind::Ours,
        "slipring, one producer alone, yielding",
        move || {
            let config = ours::Config { wait: Wait::YIELDING, threads: ours::Own };
            ours::pipeline(&config, 1, many, steps)
        },
    ));
    for (name, ring_behind) in [("", false), (", a stage behind", true)] {
        let name = format!("alternative: a ring for each producer{name}, yielding");
        all.push(Contender::new(ContenderKind::Rejected, name, move || {
            lanes::many_to_one::<2>(ring_behind, many, steps)
        }));
    }
    let mut peer = |name: &str, run: Box<dyn Fn() -> f64>| {
        all.push(Contender::new(ContenderKind::Peer, name, run));
    };
    peer(
        "disruptor, own strategy and producer that yield",
        Box::new(move || {
            let config = rings::Config { wait: rings::Yielding, yields: true };
            rings::many_to_one::<2, _>(config, few, steps)
        }),
    );
    peer(
        "disruptor, Sleep(1 µs)",
        Box::new(move || {
            let config = rings::Config::new(Sleep::new(Duration::from_micros(1)));
            rings::many_to_one::<2, _>(config, some, steps)
        }),
    );
    peer(
        "disruptor, BusySpinWithSpinLoopHint",
        Box::new(move || {
            let config = rings::Config::new(BusySpinWithSpinLoopHint);
            rings::many_to_one::<2, _>(config, events(size, cost_ns::SPINNING), steps)
        }),
    );
    peer(
        "crossbeam-channel, yielding",
        Box::new(move || many_to_one::<2, ByYielding<Crossbeam>>(few, steps)),
    );
    peer(
        "crossbeam-channel, blocking",
        Box::new(move || many_to_one::<2, ByBlocking<Crossbeam>>(some, steps)),
    );
    peer(
        "crossbeam ArrayQueue, yielding",
        Box::new(move || many_to_one::<2, ByYielding<Array>>(few, steps)),
    );
    peer("kanal, yielding", Box::new(move || many_to_one::<2, ByYielding<Kanal>>(few, steps)));
    peer("kanal, blocking", Box::new(move || many_to_one::<2, ByBlocking<Kanal>>(some, steps)));
    peer(
        "crossfire, yielding",
        Box::new(move || many_to_one::<2, ByYielding<CrossfireMany>>(few, steps)),
    );
    peer(
        "crossfire, blocking",
        Box::new(move || many_to_one::<2, ByBlocking<CrossfireMany>>(some, steps)),
    );
    peer("gil, yielding", Box::new(move || many_to_one::<2, ByYielding<GilMany>>(few, steps)));
    peer(
        "gil sharded, yielding",
        Box::new(move || many_to_one::<2, ByYielding<GilSharded>>(few, steps)),
    );
    peer(
        "gil sharded, blocking",
        Box::new(move || many_to_one::<2, ByBlocking<GilParking>>(some, steps)),
    );
    peer("flume, yielding", Box::new(move || many_to_one::<2, ByYielding<Flume>>(some, steps)));
    peer("flume, blocking", Box::new(move || many_to_one::<2, ByBlocking<Flume>>(some, steps)));
    peer(
        "std sync_channel, yielding",
        Box::new(move || many_to_one::<2, ByYielding<Std>>(few, steps)),
    );
    peer(
        "std sync_channel, blocking",
        Box::new(move || many_to_one::<2, ByBlocking<Std>>(some, steps)),
    );
    let work = |slow| Work::Shape {
        form: Form::FanIn(2),
        ring: RING,
        events: if slow { some } else { few },
        steps,
        handler_steps: 0,
    };
    all.extend(programs.contenders(Producers::Several, false, work));
    Figure {
        table: format!("two producers, three threads on two cores, ring {RING}"),
        column: amount(nanos),
        baseline: None,
        contenders: all,
    }
}
