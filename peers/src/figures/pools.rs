//! Pools: tasks that two cores share, against one thread that does them all. For small tasks
//! handing over costs more than the task.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use slipring::{Graph, PoolReader, Wait};

use super::oversubscribed::line::TwoCores;
use crate::contenders::queues::{Array, Blocking, Crossbeam, CrossfireShared, Flume, Kanal, Queue};
use crate::measure::{Contender, Figure, Kind, Size, per_event};
use crate::work::{self, steps_for};

/// Slots of the ring, and places of the queues.
const RING: usize = 1024;

/// What is to be done for each event; the event is its number.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Nothing but the hand-over.
    Empty,
    /// Sorts 100 integers that are in order already: what a sort takes that is done again and again
    /// on the same ones.
    Sorted,
    /// Sorts 100 integers made from the number, in no order.
    Sort,
    /// So many steps of work.
    Steps(u32),
    /// So many steps, and for one in a hundred a hundred times as many.
    Skewed(u32),
}

impl Task {
    /// Does it; comes back with something that depends on all of it.
    #[inline(always)]
    fn run(self, number: u64) -> u64 {
        match self {
            Task::Empty => number,
            Task::Sorted => {
                let mut integers: [u32; 100] = std::array::from_fn(|i| number as u32 + i as u32);
                black_box(&mut integers).sort_unstable();
                u64::from(black_box(&integers)[50])
            }
            Task::Sort => {
                let mut state = number;
                let mut integers: [u32; 100] = std::array::from_fn(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as u32
                });
                integers.sort_unstable();
                u64::from(black_box(&integers)[50])
            }
            Task::Steps(steps) => steps_of(number, steps),
            Task::Skewed(steps) => steps_of(number, if number.is_multiple_of(100) { steps * 100 } else { steps }),
        }
    }
}

#[inline(always)]
fn steps_of(number: u64, steps: u32) -> u64 {
    let mut state = number;
    work::steps(steps, &mut state);
    state
}

/// How many tasks were done, and the sum of what came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Tally {
    count: u64,
    sum: u64,
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, task: Task, number: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(task.run(number));
    }
    fn and(self, other: Tally) -> Tally {
        Tally { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// One thread does it all, without a hand-over.
fn alone(task: Task, events: u64) -> (f64, Tally) {
    let mut tally = Tally::default();
    let begin = Instant::now();
    for number in 1..=events {
        tally.add(task, black_box(number));
    }
    (per_event(begin, events), tally)
}

/// A column: a kind of task.
pub fn figures(size: Size) -> Vec<Figure> {
    let amount = |full: u64| size.pick(1_000.min(full), full / 3, full);
    let tasks = [
        ("empty work", Task::Empty, amount(600_000)),
        ("a sort of 100 integers, in order", Task::Sorted, amount(300_000)),
        ("a sort of 100 integers, in no order", Task::Sort, amount(30_000)),
        ("1 µs", Task::Steps(steps_for(1000)), amount(10_000)),
        ("skewed: 100 ns, one in a hundred 10 µs", Task::Skewed(steps_for(100)), amount(50_000)),
    ];
    tasks.map(|(column, task, events)| figure(column, task, events)).into()
}

fn figure(column: &str, task: Task, events: u64) -> Figure {
    let right = alone(task, events).1;
    let contender = |kind, name: &str, run: fn(Task, u64) -> (f64, Tally)| {
        Contender::new(kind, name, move || {
            let _cores = TwoCores::take();
            let (took, tally) = run(task, events);
            assert_eq!(tally, right, "tasks lost, doubled or damaged");
            took
        })
    };
    use Kind::{Alone, Ours, Peer};
    let contenders = vec![
        contender(Alone, "one thread doing it all", alone),
        contender(Ours, "slipring, producer's thread working too", ours_with_producer),
        contender(Ours, "slipring, 3 threads, yielding", |task, events| ours(task, events, Wait::YIELDING)),
        contender(Ours, "slipring, 3 threads, sleeping", |task, events| ours(task, events, Wait::SLEEPING)),
        contender(Ours, "slipring, 3 threads, blocking", |task, events| ours(task, events, Wait::Blocking)),
        contender(Peer, "crossbeam-channel, producer's thread working too", with_producer::<Crossbeam>),
        contender(Peer, "crossbeam ArrayQueue, producer's thread working too", with_producer::<Array>),
        contender(Peer, "kanal, producer's thread working too", with_producer::<Kanal>),
        contender(Peer, "crossfire, producer's thread working too", with_producer::<CrossfireShared>),
        contender(Peer, "flume, producer's thread working too", with_producer::<Flume>),
        contender(Peer, "crossbeam-channel, 3 threads, yielding", queue::<Crossbeam>),
        contender(Peer, "crossbeam-channel, 3 threads, blocking", blocking::<Crossbeam>),
        contender(Peer, "crossbeam ArrayQueue, 3 threads, yielding", queue::<Array>),
        contender(Peer, "kanal, 3 threads, yielding", queue::<Kanal>),
        contender(Peer, "kanal, 3 threads, blocking", blocking::<Kanal>),
        contender(Peer, "crossfire, 3 threads, yielding", queue::<CrossfireShared>),
        contender(Peer, "crossfire, 3 threads, blocking", blocking::<CrossfireShared>),
        contender(Peer, "flume, 3 threads, yielding", queue::<Flume>),
        contender(Peer, "flume, 3 threads, blocking", blocking::<Flume>),
    ];
    Figure { table: format!("pools, two cores, ring {RING}"), column: column.to_owned(), alone: None, contenders }
}

/// The workers of a pool of two.
fn pool(wait: Wait) -> (slipring::Producer<u64>, PoolReader<u64>, PoolReader<u64>) {
    let graph = Graph::new(RING, || 0u64).wait(wait);
    let key = graph.pool_reader("pool", 2);
    let ring = graph.build().expect("the graph is sound");
    let mut workers = ring.pool_readers(key).into_iter();
    let (Some(one), Some(two)) = (workers.next(), workers.next()) else { panic!("two workers were asked for") };
    (ring.producer(), one, two)
}

/// A producer and two workers.
fn ours(task: Task, events: u64, wait: Wait) -> (f64, Tally) {
    let (mut tx, one, two) = pool(wait);
    let ready = AtomicU64::new(0);
    let work = |mut rx: PoolReader<u64>| {
        ready.fetch_add(1, Ordering::Release);
        let mut tally = Tally::default();
        rx.for_each(|number, _| tally.add(task, *number)).expect("the stream ends well");
        tally
    };
    thread::scope(|scope| {
        let workers = [scope.spawn(|| work(one)), scope.spawn(|| work(two))];
        started(&ready, 2);
        let begin = Instant::now();
        tx.publish_all(1..=events, |slot, number| *slot = number).expect("the ring is open");
        tx.close();
        let tallies = workers.map(|worker| worker.join().expect("the worker ends well"));
        (per_event(begin, events), tallies[0].and(tallies[1]))
    })
}

/// Two threads in all: the producer's publishes until the ring is full, then works through an
/// eighth of it, and so on.
fn ours_with_producer(task: Task, events: u64) -> (f64, Tally) {
    let (mut tx, mut mine, mut theirs) = pool(Wait::YIELDING);
    let ready = AtomicU64::new(0);
    thread::scope(|scope| {
        let ready = &ready;
        // Each thread has its handle on a stack of its own.
        let worker = scope.spawn(move || {
            ready.fetch_add(1, Ordering::Release);
            let mut tally = Tally::default();
            theirs.for_each(|number, _| tally.add(task, *number)).expect("the stream ends well");
            tally
        });
        started(ready, 1);
        let (mut tally, mut next) = (Tally::default(), 1);
        let begin = Instant::now();
        while next <= events {
            // In batches, because the worker sees none of them before it would have come to them
            // anyway.
            let len = 64.min(events - next + 1);
            match tx.try_claim_n(len as usize) {
                Ok(mut slots) => {
                    slots.iter_mut().zip(next..).for_each(|(slot, number)| *slot = number);
                    slots.publish();
                    next += len;
                }
                Err(_) => {
                    mine.poll(RING / 8, |number, _| tally.add(task, *number)).expect("the ring is open");
                }
            }
        }
        tx.close();
        mine.for_each(|number, _| tally.add(task, *number)).expect("the stream ends well");
        let theirs = worker.join().expect("the worker ends well");
        (per_event(begin, events), tally.and(theirs))
    })
}

/// A queue of many senders and receivers, with a producer and two workers that yield while there is
/// nothing.
fn queue<Q: Queue<u64, Rx: Clone>>(task: Task, events: u64) -> (f64, Tally) {
    let (mut tx, rx) = Q::new(RING);
    let (ready, closed) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |mut rx: Q::Rx| {
        ready.fetch_add(1, Ordering::Release);
        drain::<Q>(&mut rx, &closed, task)
    };
    thread::scope(|scope| {
        let second = rx.clone();
        let workers = [scope.spawn(|| work(rx)), scope.spawn(|| work(second))];
        started(&ready, 2);
        let begin = Instant::now();
        for number in 1..=events {
            while !Q::try_send(&mut tx, number) {
                thread::yield_now();
            }
        }
        closed.store(true, Ordering::Release);
        let tallies = workers.map(|worker| worker.join().expect("the worker ends well"));
        (per_event(begin, events), tallies[0].and(tallies[1]))
    })
}

/// Two threads in all, as for the library: the producer's sends until the queue is full, then works
/// through an eighth of it.
fn with_producer<Q: Queue<u64, Rx: Clone>>(task: Task, events: u64) -> (f64, Tally) {
    let (mut tx, mut mine) = Q::new(RING);
    let mut theirs = mine.clone();
    let (ready, closed) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (ready, closed) = (&ready, &closed);
        let worker = scope.spawn(move || {
            ready.fetch_add(1, Ordering::Release);
            drain::<Q>(&mut theirs, closed, task)
        });
        started(ready, 1);
        let (mut tally, mut next) = (Tally::default(), 1);
        let begin = Instant::now();
        while next <= events {
            if Q::try_send(&mut tx, next) {
                next += 1;
                continue;
            }
            for _ in 0..RING / 8 {
                match Q::try_receive(&mut mine) {
                    Some(number) => tally.add(task, number),
                    None => break,
                }
            }
        }
        closed.store(true, Ordering::Release);
        let rest = drain::<Q>(&mut mine, closed, task);
        let theirs = worker.join().expect("the worker ends well");
        (per_event(begin, events), tally.and(rest).and(theirs))
    })
}

/// Works until the queue is closed and empty.
fn drain<Q: Queue<u64>>(rx: &mut Q::Rx, closed: &AtomicBool, task: Task) -> Tally {
    let mut tally = Tally::default();
    loop {
        // Closed before empty: nothing is sent after the mark is set.
        let last = closed.load(Ordering::Acquire);
        while let Some(number) = Q::try_receive(rx) {
            tally.add(task, number);
        }
        if last {
            return tally;
        }
        thread::yield_now();
    }
}

/// A channel by its own calls that wait.
fn blocking<Q: Blocking + Queue<u64, Rx: Clone>>(task: Task, events: u64) -> (f64, Tally) {
    let (tx, rx) = Q::new(RING);
    let ready = AtomicU64::new(0);
    let work = |rx: Q::Rx| {
        ready.fetch_add(1, Ordering::Release);
        let mut tally = Tally::default();
        while let Some(number) = Q::receive(&rx) {
            tally.add(task, number);
        }
        tally
    };
    thread::scope(|scope| {
        let second = rx.clone();
        let workers = [scope.spawn(|| work(rx)), scope.spawn(|| work(second))];
        started(&ready, 2);
        let begin = Instant::now();
        (1..=events).for_each(|number| Q::send(&tx, number));
        // The workers see the end when the last sender goes.
        drop(tx);
        let tallies = workers.map(|worker| worker.join().expect("the worker ends well"));
        (per_event(begin, events), tallies[0].and(tallies[1]))
    })
}

/// Waits until so many threads run.
fn started(ready: &AtomicU64, threads: u64) {
    while ready.load(Ordering::Acquire) < threads {
        thread::yield_now();
    }
}
