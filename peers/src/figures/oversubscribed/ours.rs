//! The shapes in slipring, as chains.

use std::sync::Arc;
use std::thread;

use slipring::{Tap, Wait, handles::StartAt, placement::Threads};

use super::timing::{NAMES, RING, Timing, TwoCores};

pub use StageThreads::{One, Own, Shared};

/// The threads of a run's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageThreads {
    /// Each stage has a thread of its own.
    Own,
    /// All stages take turns on one thread.
    One,
    /// All stages share as many threads as there are cores. The producer's thread is one of these.
    Shared,
}

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Wait strategy of stages and producers.
    pub wait: Wait,
    pub threads: StageThreads,
}

impl Config {
    /// Returns the contender's name.
    pub fn name(&self) -> String {
        let threads = match self.threads {
            Own => "",
            One => ", stages on one thread",
            Shared => ", shared threads",
        };
        format!("slipring, {}{threads}", self.wait)
    }

    /// Returns a chain without stages.
    fn chain<'env>(&self) -> slipring::Chain<'env, u64> {
        let chain = slipring::ring(RING, || 0u64).wait(self.wait.clone());
        if self.threads == Shared { chain.threads(Threads::Auto) } else { chain }
    }
}

/// If the configuration says so, moves the latest stage to the stages' common thread.
macro_rules! place {
    ($chain:expr, $config:expr) => {
        if $config.threads == One { $chain.on("stages") } else { $chain }
    };
}

/// Runs the chain with the calling thread as its producer. `$prepare` runs before the first event.
macro_rules! run {
    ($chain:expr, $timing:expr, $steps:expr) => {
        run!($chain, $timing, $steps, ())
    };
    ($chain:expr, $timing:expr, $steps:expr, $prepare:expr) => {{
        let timing = &$timing;
        let done = $chain.run(|tx| {
            $prepare;
            timing.produce($steps, |event| {
                tx.publish(|slot| *slot = event).expect("the ring is open");
            });
            Ok(())
        });
        done.expect("the stream ended with a failure");
    }};
}

/// Runs one producer and `stages` stages in a row.
pub fn pipeline(config: &Config, stages: usize, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(stages, events);
    row(config, stages, &timing, steps);
    timing.result()
}

/// Runs one producer and `stages` stages in a row. Other rows may share the clock of `timing`.
pub fn row(config: &Config, stages: usize, timing: &Arc<Timing>, steps: u32) {
    let mut chain = config.chain();
    for name in &NAMES[..stages] {
        let mut stage = timing.stage::<1>();
        chain = place!(chain.read(name, move |event, _| stage.see(event)), config);
    }
    run!(chain, timing, steps);
}

/// Runs one producer and `stages` parallel stages.
pub fn multicast(config: &Config, stages: usize, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(stages, events);
    let chain = config.chain().fan_out(|mut beside| {
        for name in &NAMES[..stages] {
            let mut stage = timing.stage::<1>();
            beside = place!(beside.read(name, move |event, _| stage.see(event)), config);
        }
        beside
    });
    run!(chain, timing, 0);
    timing.result()
}

/// Runs one producer, a tap with `members` members, and a stage beside the tap. The producer waits
/// for the stage and for every member.
pub fn tap(config: &Config, members: usize, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(1 + members, events);
    let tap = Tap::new();
    let mut stage = timing.stage::<1>();
    // The members' threads outlive the stream, so their scope encloses it.
    thread::scope(|scope| {
        let chain = config.chain().tap(&tap).read(NAMES[0], move |event, _| stage.see(event));
        run!(chain, timing, 0, {
            for _ in 0..members {
                let (mut member, mut stage) = (tap.subscribe(StartAt::Now)?, timing.stage::<1>());
                scope.spawn(move || {
                    member
                        .for_each(|event, _| stage.see(event))
                        .expect("the stream ended with a failure");
                });
            }
        });
    });
    timing.result()
}

/// Runs one producer, two parallel stages, and a stage behind both.
pub fn diamond(config: &Config, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(3, events);
    let chain = config.chain().fan_out(|mut beside| {
        for name in &NAMES[..2] {
            let mut stage = timing.stage::<1>();
            beside = place!(beside.read(name, move |event, _| stage.see(event)), config);
        }
        beside
    });
    let mut last = timing.stage::<1>();
    let chain = place!(chain.read(NAMES[2], move |event, _| last.see(event)), config);
    run!(chain, timing, 0);
    timing.result()
}

/// Runs several producers, each with `steps` of work between two events, and one stage.
pub fn many_to_one<const PRODUCERS: usize>(config: &Config, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    let mut stage = timing.stage::<PRODUCERS>();
    let done = config.chain().read(NAMES[0], move |event, _| stage.see(event)).run_shared(|tx| {
        let produce = |producer, mut tx: slipring::SharedProducer<u64>| {
            timing.produce_as(producer, steps, |event| {
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
    done.expect("the stream ended with a failure");
    timing.result()
}
