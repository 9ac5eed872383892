//! The shapes built from queues, with one queue for each edge of the graph.

use std::marker::PhantomData;
use std::sync::Arc;
use std::thread;

use super::timing::{RING, Timing, TwoCores};
use crate::contenders::queues::{self, Blocking};

/// A bounded queue together with a way to wait.
pub trait Queue: 'static {
    type Tx: Send;
    type Rx: Send;
    /// Makes a queue for [`RING`] events.
    fn pair() -> (Self::Tx, Self::Rx);
    /// Sends an event, and waits while the queue is full.
    fn push(tx: &mut Self::Tx, event: u64);
    /// Receives an event, and waits while the queue is empty.
    fn pop(rx: &mut Self::Rx) -> u64;
}

/// A queue through its non-blocking calls; both ends yield the core between two tries.
pub struct ByYielding<Q>(PhantomData<Q>);

impl<Q: queues::Queue<u64> + 'static> Queue for ByYielding<Q> {
    type Tx = Q::Tx;
    type Rx = Q::Rx;
    fn pair() -> (Self::Tx, Self::Rx) {
        Q::new(RING)
    }
    #[inline]
    fn push(tx: &mut Self::Tx, event: u64) {
        while !Q::try_send(tx, event) {
            thread::yield_now();
        }
    }
    #[inline]
    fn pop(rx: &mut Self::Rx) -> u64 {
        loop {
            if let Some(event) = Q::try_receive(rx) {
                return event;
            }
            thread::yield_now();
        }
    }
}

/// A queue through its own blocking calls.
pub struct ByBlocking<Q>(PhantomData<Q>);

impl<Q: Blocking + 'static> Queue for ByBlocking<Q> {
    type Tx = Q::Tx;
    type Rx = Q::Rx;
    fn pair() -> (Self::Tx, Self::Rx) {
        Q::new(RING)
    }
    #[inline]
    fn push(tx: &mut Self::Tx, event: u64) {
        Q::send(tx, event);
    }
    #[inline]
    fn pop(rx: &mut Self::Rx) -> u64 {
        Q::receive(rx).expect("the sender is open")
    }
}

/// Runs one producer and `stages` stages in a row.
pub fn pipeline<Q: Queue>(stages: usize, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(stages, events);
    row::<Q>(stages, &timing, steps);
    timing.result()
}

/// Runs one producer and `stages` stages in a row. Other rows may share the clock of `timing`.
pub fn row<Q: Queue>(stages: usize, timing: &Arc<Timing>, steps: u32) {
    let events = timing.events();
    thread::scope(|scope| {
        let (mut tx, mut rx) = Q::pair();
        for _ in 1..stages {
            let (mut stage, mut from) = (timing.stage::<1>(), rx);
            let (mut to, next) = Q::pair();
            rx = next;
            scope.spawn(move || {
                for _ in 0..events {
                    let event = Q::pop(&mut from);
                    stage.see(&event);
                    Q::push(&mut to, event);
                }
            });
        }
        let mut stage = timing.stage::<1>();
        scope.spawn(move || (0..events).for_each(|_| stage.see(&Q::pop(&mut rx))));
        timing.produce(steps, |event| Q::push(&mut tx, event));
    });
}

/// Runs one producer and `stages` parallel stages, each with a queue of its own.
pub fn multicast<Q: Queue>(stages: usize, events: u64) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(stages, events);
    thread::scope(|scope| {
        let mut queues: Vec<Q::Tx> = Vec::new();
        for _ in 0..stages {
            let (tx, mut rx) = Q::pair();
            queues.push(tx);
            let mut stage = timing.stage::<1>();
            scope.spawn(move || (0..events).for_each(|_| stage.see(&Q::pop(&mut rx))));
        }
        timing.produce(0, |event| queues.iter_mut().for_each(|tx| Q::push(tx, event)));
    });
    timing.result()
}

/// Runs one producer, two parallel stages, and a stage that receives each event from both.
pub fn diamond<Q: Queue>(events: u64) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::new(3, events);
    thread::scope(|scope| {
        let (mut queues, mut behind): (Vec<Q::Tx>, Vec<Q::Rx>) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (tx, mut from) = Q::pair();
            let (mut to, rx) = Q::pair();
            queues.push(tx);
            behind.push(rx);
            let mut stage = timing.stage::<1>();
            scope.spawn(move || {
                for _ in 0..events {
                    let event = Q::pop(&mut from);
                    stage.see(&event);
                    Q::push(&mut to, event);
                }
            });
        }
        let mut last = timing.stage::<1>();
        scope.spawn(move || {
            for _ in 0..events {
                let event = Q::pop(&mut behind[0]);
                // If the two stages send different events, that counts as a wrong number.
                last.see(if Q::pop(&mut behind[1]) == event { &event } else { &u64::MAX });
            }
        });
        timing.produce(0, |event| queues.iter_mut().for_each(|tx| Q::push(tx, event)));
    });
    timing.result()
}

/// Runs several producers, each with `steps` of work between two events, and one stage.
pub fn many_to_one<const PRODUCERS: usize, Q: Queue<Tx: Clone>>(events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let timing = Timing::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    thread::scope(|scope| {
        let (mut tx, mut rx) = Q::pair();
        let mut stage = timing.stage::<PRODUCERS>();
        scope.spawn(move || {
            (0..events / PRODUCERS as u64 * PRODUCERS as u64)
                .for_each(|_| stage.see(&Q::pop(&mut rx)))
        });
        for producer in 1..PRODUCERS as u64 {
            let (timing, mut tx) = (&timing, tx.clone());
            scope
                .spawn(move || timing.produce_as(producer, steps, |event| Q::push(&mut tx, event)));
        }
        timing.produce_as(0, steps, |event| Q::push(&mut tx, event));
    });
    timing.result()
}
