//! The shapes through the `disruptor` crate.

use std::hint::black_box;
use std::thread;

use disruptor::wait_strategies::WaitStrategy;
use disruptor::{Producer, Sequence, build_multi_producer, build_single_producer};

use super::RING;
use super::line::{Line, Stage, TwoCores};

/// A strategy that the crate does not have, and that one would write where threads share cores.
#[derive(Clone, Copy)]
pub struct Yielding;

impl WaitStrategy for Yielding {
    #[inline]
    fn wait_for(&self, _: Sequence) {
        thread::yield_now();
    }
}

/// How the crate runs a shape.
#[derive(Clone, Copy)]
pub struct Way<W> {
    /// How stages wait for events.
    pub wait: W,
    /// Whether producers yield while the ring is full; the crate's own `publish` spins without a
    /// pause.
    pub yields: bool,
}

fn send(tx: &mut impl Producer<u64>, event: u64, yields: bool) {
    if !yields {
        return tx.publish(|slot| *slot = event);
    }
    while tx.try_publish(|slot| *slot = event).is_err() {
        thread::yield_now();
    }
}

/// Lets the calling thread produce, and waits for the stages: the producer's end joins them.
fn run(mut tx: impl Producer<u64>, line: &Line, steps: u32, yields: bool) -> f64 {
    line.produce(steps, |event| send(&mut tx, event, yields));
    drop(tx);
    line.result()
}

fn handler(mut stage: Stage) -> impl FnMut(&u64, Sequence, bool) + Send + 'static {
    move |event, at, _| {
        // What a handler is told costs the other contenders too.
        black_box(at);
        stage.see(event);
    }
}

/// One producer, and `stages` stages one after the other, at most three.
pub fn pipeline<W: WaitStrategy + 'static>(way: Way<W>, stages: usize, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(stages, events);
    let one = build_single_producer(RING, || 0u64, way.wait).handle_events_with(handler(line.stage()));
    if stages == 1 {
        return run(one.build(), &line, steps, way.yields);
    }
    let two = one.and_then().handle_events_with(handler(line.stage()));
    if stages == 2 {
        return run(two.build(), &line, steps, way.yields);
    }
    assert_eq!(stages, 3);
    let three = two.and_then().handle_events_with(handler(line.stage()));
    run(three.build(), &line, steps, way.yields)
}

/// One producer, and three stages side by side.
pub fn multicast<W: WaitStrategy + 'static>(way: Way<W>, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(3, events);
    let tx = build_single_producer(RING, || 0u64, way.wait)
        .handle_events_with(handler(line.stage()))
        .handle_events_with(handler(line.stage()))
        .handle_events_with(handler(line.stage()))
        .build();
    run(tx, &line, 0, way.yields)
}

/// One producer, two stages side by side, and one behind both.
pub fn diamond<W: WaitStrategy + 'static>(way: Way<W>, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(3, events);
    let tx = build_single_producer(RING, || 0u64, way.wait)
        .handle_events_with(handler(line.stage()))
        .handle_events_with(handler(line.stage()))
        .and_then()
        .handle_events_with(handler(line.stage()))
        .build();
    run(tx, &line, 0, way.yields)
}

/// Several producers with `steps` of work between two events each, and one stage.
pub fn many_to_one<const PRODUCERS: usize, W: WaitStrategy + 'static>(way: Way<W>, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    let mut stage = line.stage::<PRODUCERS>();
    let tx = build_multi_producer(RING, || 0u64, way.wait).handle_events_with(move |event, _, _| stage.see(event)).build();
    thread::scope(|scope| {
        for producer in 1..PRODUCERS as u64 {
            let (line, mut tx) = (&line, tx.clone());
            scope.spawn(move || line.produce_as(producer, steps, |event| send(&mut tx, event, way.yields)));
        }
        let mut tx = tx;
        line.produce_as(0, steps, |event| send(&mut tx, event, way.yields));
    });
    line.result()
}
