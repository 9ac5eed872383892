//! The shapes through queues of one receiver: a queue for each edge of the graph, as one would wire
//! them by hand.

use std::marker::PhantomData;
use std::thread;

use super::RING;
use super::line::{Line, TwoCores};
use crate::contenders::queues::{self, Blocking};

/// A bounded queue, and how its ends wait.
pub trait Queue: 'static {
    type Tx: Send;
    type Rx: Send;
    /// A queue of [`RING`] places.
    fn pair() -> (Self::Tx, Self::Rx);
    /// Waits for room.
    fn push(tx: &mut Self::Tx, event: u64);
    /// Waits for an event.
    fn pop(rx: &mut Self::Rx) -> u64;
}

/// Any queue by its non-blocking calls, its ends yielding the core between two tries.
pub struct Yielding<Q>(PhantomData<Q>);

impl<Q: queues::Queue<u64> + 'static> Queue for Yielding<Q> {
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

/// A queue by its own calls that wait.
pub struct Blocks<Q>(PhantomData<Q>);

impl<Q: Blocking + 'static> Queue for Blocks<Q> {
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
        Q::receive(rx).expect("a sender is there")
    }
}

/// One producer, and `stages` stages one after the other.
pub fn pipeline<Q: Queue>(stages: usize, events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(stages, events);
    thread::scope(|scope| {
        let (mut tx, mut rx) = Q::pair();
        for _ in 1..stages {
            let (mut stage, mut from) = (line.stage::<1>(), rx);
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
        let mut stage = line.stage::<1>();
        scope.spawn(move || (0..events).for_each(|_| stage.see(&Q::pop(&mut rx))));
        line.produce(steps, |event| Q::push(&mut tx, event));
    });
    line.result()
}

/// One producer, and three stages side by side, each with a queue of its own.
pub fn multicast<Q: Queue>(events: u64) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(3, events);
    thread::scope(|scope| {
        let mut queues: Vec<Q::Tx> = Vec::new();
        for _ in 0..3 {
            let (tx, mut rx) = Q::pair();
            queues.push(tx);
            let mut stage = line.stage::<1>();
            scope.spawn(move || (0..events).for_each(|_| stage.see(&Q::pop(&mut rx))));
        }
        line.produce(0, |event| queues.iter_mut().for_each(|tx| Q::push(tx, event)));
    });
    line.result()
}

/// One producer, two stages side by side, and one that takes each event from both.
pub fn diamond<Q: Queue>(events: u64) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::new(3, events);
    thread::scope(|scope| {
        let (mut queues, mut behind): (Vec<Q::Tx>, Vec<Q::Rx>) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let (tx, mut from) = Q::pair();
            let (mut to, rx) = Q::pair();
            queues.push(tx);
            behind.push(rx);
            let mut stage = line.stage::<1>();
            scope.spawn(move || {
                for _ in 0..events {
                    let event = Q::pop(&mut from);
                    stage.see(&event);
                    Q::push(&mut to, event);
                }
            });
        }
        let mut last = line.stage::<1>();
        scope.spawn(move || {
            for _ in 0..events {
                let event = Q::pop(&mut behind[0]);
                // Where the two do not agree, no number is right.
                last.see(if Q::pop(&mut behind[1]) == event { &event } else { &u64::MAX });
            }
        });
        line.produce(0, |event| queues.iter_mut().for_each(|tx| Q::push(tx, event)));
    });
    line.result()
}

/// Several producers with `steps` of work between two events each, and one stage.
pub fn many_to_one<const PRODUCERS: usize, Q: Queue<Tx: Clone>>(events: u64, steps: u32) -> f64 {
    let _cores = TwoCores::take();
    let line = Line::with_producers(PRODUCERS, 1, events / PRODUCERS as u64);
    thread::scope(|scope| {
        let (mut tx, mut rx) = Q::pair();
        let mut stage = line.stage::<PRODUCERS>();
        scope.spawn(move || (0..events / PRODUCERS as u64 * PRODUCERS as u64).for_each(|_| stage.see(&Q::pop(&mut rx))));
        for producer in 1..PRODUCERS as u64 {
            let (line, mut tx) = (&line, tx.clone());
            scope.spawn(move || line.produce_as(producer, steps, |event| Q::push(&mut tx, event)));
        }
        line.produce_as(0, steps, |event| Q::push(&mut tx, event));
    });
    line.result()
}
