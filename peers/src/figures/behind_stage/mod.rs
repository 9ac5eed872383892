//! Stages that follow another stage. They learn of events from the previous stage's frontier, not
//! from stamps.
//!
//! Between two threads the frontier is one cache line that one thread writes and the other reads.
//! In a pipeline each further stage adds such a line and a thread; on few cores the threads
//! dominate the cost.

mod limit;
mod ours;

use disruptor::{BusySpin, BusySpinWithSpinLoopHint, Sleep};
use slipring::{
    Wait,
    markers::{Contiguous, Interleaved},
};

use super::oversubscribed::queues::{self, ByBlocking, ByYielding};
use super::oversubscribed::{self, RING, Strategy, cost_ns, disruptors, rings};
use crate::contenders::gil::Gil;
use crate::contenders::queues::{Crossbeam, Rtrb, Yring};
use crate::measure::{Contender, ContenderKind, Figure, Size};
use crate::work::{amount, baseline, steps_for};

/// Returns the figures of single hand-overs and of pipelines.
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

/// Returns a figure of the hand-over to the second stage, between two threads that have a core
/// each.
fn hand_over(size: Size, ring: usize, nanos: u32) -> Figure {
    let events = size.pick(3_000, 400_000, 1_000_000);
    let mut contenders = Vec::new();
    let mut add = |kind, name: String, run: fn(usize, u64, u64, u32) -> f64, every| {
        contenders
            .push(Contender::new(kind, name, move || run(ring, events, every, steps_for(nanos))));
    };
    for every in [1, 16] {
        let stage = if every == 1 {
            "first stage polled after each"
        } else {
            "first stage polled after every 16"
        };
        add(ContenderKind::Ours, format!("slipring, {stage}"), ours::second::<Interleaved>, every);
        add(
            ContenderKind::Ours,
            format!("slipring contiguous, {stage}"),
            ours::second::<Contiguous>,
            every,
        );
    }
    add(
        ContenderKind::Ours,
        "slipring, first hand-over".into(),
        |ring, events, _, steps| ours::first::<Interleaved>(ring, events, steps),
        1,
    );
    add(
        ContenderKind::Ours,
        "slipring contiguous, first hand-over".into(),
        |ring, events, _, steps| ours::first::<Contiguous>(ring, events, steps),
        1,
    );
    for every in [1, 16] {
        let stage = if every == 1 { "frontier after each" } else { "frontier after every 16" };
        add(ContenderKind::Limit, format!("limit, {stage}"), limit::stream::<false>, every);
        add(ContenderKind::Limit, format!("limit, {stage}, spaced"), limit::stream::<true>, every);
    }
    Figure {
        table: format!("hand-over behind a stage, two threads, ring {ring}"),
        column: amount(nanos),
        baseline: baseline(nanos, events),
        contenders,
    }
}

/// A function that runs queues in a row, given the numbers of stages, of events, and of steps of
/// the producer's work between two events.
type Row = fn(usize, u64, u32) -> f64;

/// Returns a figure of a pipeline with a thread for each stage, on two cores.
fn pipeline(size: Size, stages: usize, nanos: u32) -> Figure {
    use oversubscribed::ours::{One, Own, Shared};
    let mut contenders = Vec::new();
    let many = oversubscribed::events(size, cost_ns::YIELDING);
    let mut add = |wait, threads| {
        let config = oversubscribed::ours::Config { wait, threads };
        contenders.push(Contender::new(ContenderKind::Ours, config.name(), move || {
            oversubscribed::ours::pipeline(&config, stages, many, steps_for(nanos))
        }));
    };
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        add(wait, Own);
    }
    add(Wait::YIELDING, One);
    add(Wait::YIELDING, Shared);
    contenders.extend(disruptors(size, move |strategy, events| {
        // If there is one stage, each thread has a core, so even spinning is fast and the run gets
        // all events.
        let (events, steps) = (if stages == 1 { many } else { events }, steps_for(nanos));
        match strategy {
            Strategy::Yielding => {
                let config = rings::Config { wait: rings::Yielding, yields: true };
                rings::pipeline(config, stages, events, steps)
            }
            Strategy::Sleep(time) => {
                rings::pipeline(rings::Config::new(Sleep::new(time)), stages, events, steps)
            }
            Strategy::BusySpin => {
                rings::pipeline(rings::Config::new(BusySpin), stages, events, steps)
            }
            Strategy::SpinHint => {
                rings::pipeline(rings::Config::new(BusySpinWithSpinLoopHint), stages, events, steps)
            }
        }
    }));
    let rows: [(&str, Row); 3] = [
        ("rtrb", queues::pipeline::<ByYielding<Rtrb>>),
        ("yring", queues::pipeline::<ByYielding<Yring>>),
        ("gil", queues::pipeline::<ByYielding<Gil>>),
    ];
    contenders.extend(rows.map(|(name, row)| {
        let name = format!("{name}, queues in a row, yielding");
        Contender::new(ContenderKind::Peer, name, move || row(stages, many, steps_for(nanos)))
    }));
    contenders.push(Contender::new(
        ContenderKind::Peer,
        "crossbeam-channel, queues in a row, blocking",
        move || queues::pipeline::<ByBlocking<Crossbeam>>(stages, many, steps_for(nanos)),
    ));
    Figure {
        table: format!("pipeline, n stages, two cores, ring {RING}, {}", amount(nanos)),
        column: match stages {
            1 => "1 stage".to_owned(),
            _ => format!("{stages} stages ({} threads)", stages + 1),
        },
        baseline: baseline(nanos, many),
        contenders,
    }
}
