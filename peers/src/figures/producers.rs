//! Several producers: what sharing costs a single one, and what two cost.

use std::time::Duration;

use disruptor::{BusySpinWithSpinLoopHint, Sleep};
use slipring::{Interleaved, Wait};

use super::one_by_one::{self, Stream, measured};
use super::oversubscribed::queues::{Blocks, Yielding, many_to_one};
use super::oversubscribed::{RING, about, events, ours, rings};
use crate::contenders::queues::{Array, Crossbeam, CrossfireMany, Flume, Kanal, Std, stream};
use crate::contenders::{self, Pair};
use crate::measure::{Contender, Figure, Kind, Size};
use crate::work::{alone, amount, steps_for};

/// One table for one producer's thread, one for two.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures: Vec<Figure> = [0, 10, 40].map(|nanos| one(size, nanos)).into();
    figures.extend([0, 10].map(|nanos| two(size, nanos)));
    figures
}

/// One thread publishes, through a handle that others could share; two cores, one each.
fn one(size: Size, nanos: u32) -> Figure {
    use Kind::{Ours, Peer};
    let all: [(Kind, &str, Stream); 10] = [
        (Ours, "slipring, shared producer", contenders::ours::shared_stream),
        (Ours, "slipring, single producer", contenders::ours::stream::<u64, Interleaved>),
        (Peer, "disruptor, multi producer", contenders::rings::shared_stream::<u64>),
        (Peer, "disruptor, single producer", contenders::rings::stream::<u64>),
        (Peer, "crossbeam-channel", stream::<u64, Crossbeam>),
        (Peer, "crossbeam ArrayQueue", stream::<u64, Array>),
        (Peer, "kanal", stream::<u64, Kanal>),
        (Peer, "crossfire", stream::<u64, CrossfireMany>),
        (Peer, "flume", stream::<u64, Flume>),
        (Peer, "std sync_channel", stream::<u64, Std>),
    ];
    let pair = Pair { ring: 65_536, events: one_by_one::events(size, nanos), batch: 1, steps: steps_for(nanos) };
    Figure {
        table: "one thread publishing through a handle of many, ring 65536".to_owned(),
        column: amount(nanos),
        alone: alone(nanos, pair.events),
        contenders: measured(all, pair),
    }
}

/// Two producers and a consumer: three threads on two cores, none bound.
fn two(size: Size, nanos: u32) -> Figure {
    let steps = steps_for(nanos);
    let (many, some, few) = (events(size, about::SHARING), events(size, about::SLEEPING), events(size, 2 * about::SHARING));
    let mut all = Vec::new();
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        let way = ours::Way { wait, together: false };
        all.push(Contender::new(Kind::Ours, way.name(), move || ours::many_to_one::<2>(&way, many, steps)));
    }
    let mut peer = |name: &str, run: Box<dyn Fn() -> f64>| all.push(Contender::new(Kind::Peer, name, run));
    peer(
        "disruptor, own strategy and producer that yield",
        Box::new(move || rings::many_to_one::<2, _>(rings::Way { wait: rings::Yielding, yields: true }, few, steps)),
    );
    peer(
        "disruptor, Sleep(1 µs)",
        Box::new(move || rings::many_to_one::<2, _>(rings::Way { wait: Sleep::new(Duration::from_micros(1)), yields: false }, some, steps)),
    );
    peer(
        "disruptor, BusySpinWithSpinLoopHint",
        Box::new(move || {
            let way = rings::Way { wait: BusySpinWithSpinLoopHint, yields: false };
            rings::many_to_one::<2, _>(way, events(size, about::SPINNING), steps)
        }),
    );
    peer("crossbeam-channel, yielding", Box::new(move || many_to_one::<2, Yielding<Crossbeam>>(few, steps)));
    peer("crossbeam-channel, blocking", Box::new(move || many_to_one::<2, Blocks<Crossbeam>>(some, steps)));
    peer("crossbeam ArrayQueue, yielding", Box::new(move || many_to_one::<2, Yielding<Array>>(few, steps)));
    peer("kanal, yielding", Box::new(move || many_to_one::<2, Yielding<Kanal>>(few, steps)));
    peer("kanal, blocking", Box::new(move || many_to_one::<2, Blocks<Kanal>>(some, steps)));
    peer("crossfire, yielding", Box::new(move || many_to_one::<2, Yielding<CrossfireMany>>(few, steps)));
    peer("crossfire, blocking", Box::new(move || many_to_one::<2, Blocks<CrossfireMany>>(some, steps)));
    peer("flume, yielding", Box::new(move || many_to_one::<2, Yielding<Flume>>(some, steps)));
    peer("flume, blocking", Box::new(move || many_to_one::<2, Blocks<Flume>>(some, steps)));
    peer("std sync_channel, yielding", Box::new(move || many_to_one::<2, Yielding<Std>>(few, steps)));
    peer("std sync_channel, blocking", Box::new(move || many_to_one::<2, Blocks<Std>>(some, steps)));
    Figure { table: format!("two producers, three threads on two cores, ring {RING}"), column: amount(nanos), alone: None, contenders: all }
}
