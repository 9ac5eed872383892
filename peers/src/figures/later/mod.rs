//! Later hand-overs: a stage behind a stage learns of events through what the stage before it lets
//! go, not through stamps.
//!
//! Between two threads that is one line that the one writes and the other reads; in a pipeline each
//! further stage adds one more such line and one more thread, and on few cores the thread is what
//! costs.

mod behind;
mod limit;

use disruptor::{BusySpin, BusySpinWithSpinLoopHint, Sleep};
use slipring::{Contiguous, Interleaved, Wait};

use super::oversubscribed::queues::{self, Blocks, Yielding};
use super::oversubscribed::{self, RING, Strategy, about, disruptors, ours, rings};
use crate::contenders::queues::{Crossbeam, Rtrb};
use crate::measure::{Contender, Figure, Kind, Size};
use crate::work::{alone, amount, steps_for};

/// Both tables.
pub fn figures(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ring in [65_536, 1024] {
        figures.extend([0, 10, 40].map(|nanos| hand_over(size, ring, nanos)));
    }
    for nanos in [0, 10] {
        figures.extend([1, 2, 3].map(|stages| pipeline(size, stages, nanos)));
    }
    figures
}

/// The second hand-over by itself, between two threads with a core each.
fn hand_over(size: Size, ring: usize, nanos: u32) -> Figure {
    let events = size.pick(3_000, 400_000, 1_000_000);
    let mut contenders = Vec::new();
    let mut add = |kind, name: String, run: fn(usize, u64, u64, u32) -> f64, every| {
        contenders.push(Contender::new(kind, name, move || run(ring, events, every, steps_for(nanos))));
    };
    for every in [1, 16] {
        let stage = if every == 1 { "first stage polled after each" } else { "first stage polled after every 16" };
        add(Kind::Ours, format!("slipring, {stage}"), behind::second::<Interleaved>, every);
        add(Kind::Ours, format!("slipring contiguous, {stage}"), behind::second::<Contiguous>, every);
    }
    add(Kind::Ours, "slipring, first hand-over".into(), |ring, events, _, steps| behind::first::<Interleaved>(ring, events, steps), 1);
    add(
        Kind::Ours,
        "slipring contiguous, first hand-over".into(),
        |ring, events, _, steps| behind::first::<Contiguous>(ring, events, steps),
        1,
    );
    for every in [1, 16] {
        let stage = if every == 1 { "frontier after each" } else { "frontier after every 16" };
        add(Kind::Limit, format!("limit, {stage}"), limit::stream::<false>, every);
        add(Kind::Limit, format!("limit, {stage}, spaced"), limit::stream::<true>, every);
    }
    Figure {
        table: format!("hand-over behind a stage, two threads, ring {ring}"),
        column: amount(nanos),
        alone: alone(nanos, events),
        contenders,
    }
}

/// A pipeline with a thread for each stage, on two cores.
fn pipeline(size: Size, stages: usize, nanos: u32) -> Figure {
    let mut contenders = Vec::new();
    let many = oversubscribed::events(size, about::SHARING);
    let mut add = |wait, together| {
        let way = ours::Way { wait, together };
        contenders.push(Contender::new(Kind::Ours, way.name(), move || ours::pipeline(&way, stages, many, steps_for(nanos))));
    };
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        add(wait, false);
    }
    add(Wait::YIELDING, true);
    contenders.extend(disruptors(size, move |strategy, events| {
        // With a core for each thread nobody waits for one, and the short runs that the others need
        // would say little.
        let (events, steps) = (if stages == 1 { many } else { events }, steps_for(nanos));
        match strategy {
            Strategy::Yielding => rings::pipeline(rings::Way { wait: rings::Yielding, yields: true }, stages, events, steps),
            Strategy::Sleep(time) => rings::pipeline(rings::Way { wait: Sleep::new(time), yields: false }, stages, events, steps),
            Strategy::BusySpin => rings::pipeline(rings::Way { wait: BusySpin, yields: false }, stages, events, steps),
            Strategy::SpinHint => rings::pipeline(rings::Way { wait: BusySpinWithSpinLoopHint, yields: false }, stages, events, steps),
        }
    }));
    contenders.push(Contender::new(Kind::Peer, "rtrb, queues in a row, yielding", move || {
        queues::pipeline::<Yielding<Rtrb>>(stages, many, steps_for(nanos))
    }));
    contenders.push(Contender::new(Kind::Peer, "crossbeam-channel, queues in a row, blocking", move || {
        queues::pipeline::<Blocks<Crossbeam>>(stages, many, steps_for(nanos))
    }));
    Figure {
        table: format!("pipeline, n stages, two cores, ring {RING}, {}", amount(nanos)),
        column: match stages {
            1 => "1 stage".to_owned(),
            _ => format!("{stages} stages ({} threads)", stages + 1),
        },
        alone: alone(nanos, many),
        contenders,
    }
}
