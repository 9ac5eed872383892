//! The shapes through the library, as chains.

use std::thread;

use slipring::Wait;

use super::line::{Line, TwoCores};
use super::{NAMES, RING};

/// How the library runs a shape.
#[derive(Clone, Debug)]
pub struct Way {
    /// How stages wait for events, and producers for room.
    pub wait: Wait,
    /// All stages take turns on one thread.
    pub together: bool,
}

impl Way {
    /// What the tables call it.
    pub fn name(&self) -> String {
        format!("slipring, {}{}", self.wait, if self.together { ", stages on one thread" } else { "" })
    }
}

/// Puts the stage declared last on the thread that all stages share, where they do.
macro_rules! place {
    ($chain:expr, $way:expr) => {
        if $way.together { $chain.on("stages") } else { $chain }
    };
}

/// Starts the chain with the calling thread as its producer.
macro_rules! run {
    ($chain:expr, $line:expr, $steps:expr) => {{
        let line = &$line;
        let done = $chain.run(|tx| {
            line.produce($steps, |event| {
                tx.publish(|slot| *slot = event).expect("the ring is open");
            });
            Ok(())
        });
        done.expect("the stream ends well");
        line.result()
    }};
}

/// One producer, and `stages` stages one after the other.
pub fn pipeline(way: &Way, stages: usize, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(stages, events);
    let mut chain = slipring::ring(RING, || 0u64).wait(way.wait.clone());
    for name in &NAMES[..stages] {
        let mut stage = line.stage::<1>();
        chain = place!(chain.read(name, move |event, _| stage.see(event)), way);
    }
    run!(chain, line, steps)
}

/// One producer, and three stages side by side.
pub fn multicast(way: &Way, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(3, events);
    let chain = slipring::ring(RING, || 0u64).wait(way.wait.clone()).fan_out(|mut beside| {
        for name in NAMES {
            let mut stage = line.stage::<1>();
            beside = place!(beside.read(name, move |event, _| stage.see(event)), way);
        }
        beside
    });
    run!(chain, line, 0)
}

/// One producer, two stages side by side, and one behind both.
pub fn diamond(way: &Way, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(3, events);
    let chain = slipring::ring(RING, || 0u64).wait(way.wait.clone()).fan_out(|mut beside| {
        for name in &NAMES[..2] {
            let mut stage = line.stage::<1>();
            beside = place!(beside.read(name, move |event, _| stage.see(event)), way);
        }
        beside
    });
    let mut last = line.stage::<1>();
    let chain = place!(chain.read(NAMES[2], move |event, _| last.see(event)), way);
    run!(chain, line, 0)
}

/// Several producers with `steps` of work between two events each, and one stage.
pub fn many_to_one<const PRODUCERS: usize>(way: &Way, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    let mut stage = line.stage::<PRODUCERS>();
    let done = slipring::ring(RING, || 0u64).wait(way.wait.clone()).read(NAMES[0], move |event, _| stage.see(event)).run_shared(|tx| {
        let produce = |producer, mut tx: slipring::SharedProducer<u64>| {
            line.produce_as(producer, steps, |event| {
                tx.publish(|slot| *slot = event).expect("the ring is open");
            });
        };
        thread::scope(|scope| {
            for producer in 1..PRODUCERS as u64 {
                let (produce, tx) = (&produce, tx.clone());
                scope.spawn(move || produce(producer, tx));
            }
            produce(0, tx.clone());
        });
        Ok(())
    });
    done.expect("the stream ends well");
    line.result()
}
