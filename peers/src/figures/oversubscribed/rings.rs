//! The shapes in the `disruptor` crate.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;

use disruptor::wait_strategies::WaitStrategy;
use disruptor::{Producer, Sequence, build_multi_producer, build_single_producer};

use super::timing::{RING, Stage, Timing, TwoCores};

/// A strategy that yields the core. The crate itself has no such strategy.
#[derive(Clone, Copy)]
pub struct Yielding;

impl WaitStrategy for Yielding {
    #[inline]
    fn wait_for(&self, _: Sequence) {
        thread::yield_now();
    }
}

/// The configuration of a run.
#[derive(Clone, Copy)]
pub struct Config<W> {
    /// Wait strategy of the stages.
    pub wait: W,
    /// Whether producers yield while the ring is full. The crate's own `publish` spins.
    pub yields: bool,
}

impl<W> Config<W> {
    /// Returns a configuration with the crate's own producers, which spin while the ring is full.
    pub fn new(wait: W) -> Self {
        Config { wait, yields: false }
    }
}

fn send(tx: &mut impl Producer<u64>, event: u64, yields: bool) {
    if !yields {
        return tx.publish(|slot| *slot = event);
    }
    while tx.try_publish(|slot| *slot = event).is_err() {
        thread::yield_now();
    }
}

/// Produces on the calling thread. At the end, the drop of the producer waits for the stages.
fn run(mut tx: impl Producer<u64>, timing: &Timing, steps: u32, yields: bool) {
    timing.produce(steps, |event| send(&mut tx, event, yields));
}

fn handler(mut stage: Stage) -> impl FnMut(&u64, Sequence, bool) + Send + 'static {
    move |event, at, _| {
        // Keeps the compiler from removing the sequence, because the other contenders compute it,
        // too.
        black_box(at);
        stage.see(event);
    }
}

/// Runs one producer and `stages` stages in a row.
pub fn pipeline<W: WaitStrategy + 'static>(
    config: Config<W>,
    stages: usize,
    events: u64,
    steps: u32,
) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(stages, events);
    row(config, stages, &timing, steps);
    timing.result()
}

/// Runs one producer and `stages` stages in a row. Other rows may share the clock of `timing`.
pub fn row<W: WaitStrategy + 'static>(
    config: Config<W>,
    stages: usize,
    timing: &Arc<Timing>,
    steps: u32,
) {
    let one = build_single_producer(RING, || 0u64, config.wait)
        .handle_events_with(handler(timing.stage()));
    if stages == 1 {
        return run(one.build(), timing, steps, config.yields);
    }
    // From the second stage on, every builder has the same type.
    let mut last = one.and_then().handle_events_with(handler(timing.stage()));
    for _ in 2..stages {
        last = last.and_then().handle_events_with(handler(timing.stage()));
    }
    run(last.build(), timing, steps, config.yields)
}

/// Runs one producer and `stages` parallel stages.
pub fn multicast<W: WaitStrategy + 'static>(config: Config<W>, stages: usize, events: u64) -> f64 {
    if stages == 1 {
        // The crate has a faster barrier for a single stage.
        return pipeline(config, 1, events, 0);
    }
    let _cores = TwoCores::take();
    let timing = Timing::new(stages, events);
    let mut all = build_single_producer(RING, || 0u64, config.wait).with_multi_consumer();
    for _ in 0..stages {
        all = all.handle_events_with(handler(timing.stage()));
    }
    run(all.build(), &timing, 0, config.yields);
    timing.result()
}

/// Runs one producer, two parallel stages, and a stage behind both.
pub fn diamond<W: WaitStrategy + 'static>(config: Config<W>, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(3, events);
    let tx = build_single_producer(RING, || 0u64, config.wait)
        .handle_events_with(handler(timing.stage()))
        .handle_events_with(handler(timing.stage()))
        .and_then()
        .handle_events_with(handler(timing.stage()))
        .build();
    run(tx, &timing, 0, config.yields);
    timing.result()
}

/// Runs several producers, each with `steps` of work between two events, and one stage.
pub fn many_to_one<const PRODUCERS: usize, W: WaitStrategy + 'static>(
    config: Config<W>,
    events: u64,
    steps: u32,
) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    let mut stage = timing.stage::<PRODUCERS>();
    let tx = build_multi_producer(RING, || 0u64, config.wait)
        .handle_events_with(move |event, _, _| stage.see(event))
        .build();
    thread::scope(|scope| {
        for producer in 1..PRODUCERS as u64 {
            let (timing, mut tx) = (&timing, tx.clone());
            scope.spawn(move || {
                timing.produce_as(producer, steps, |event| send(&mut tx, event, config.yields))
            });
        }
        let mut tx = tx;
        timing.produce_as(0, steps, |event| send(&mut tx, event, config.yields));
    });
    timing.result()
}
