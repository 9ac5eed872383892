//! Pools whose idle workers take positions before their events are published: each event is handled
//! once, the stage behind the pool sees all events in order, and nothing hangs, while workers leave
//! with unfinished chunks, others join, claims are given up, and the ring closes.
//!
//! On a machine with fewer cores than threads, workers draw no tickets. On virtual cores they do.
//! A program is random, and its seed also delays its accesses.

use std::cell::Cell;
use std::time::Duration;

use slipring_coherence::sync::{now, scope};
use slipring_coherence::{Lines, Machine, Simulation, work};
use slipring_simulated::{
    BatchError, Graph, Pool, PoolWriter, SharedProducer, SubscribeError, Wait, WaitError,
};

#[global_allocator]
static LINES: Lines = Lines;

/// Number of programs for each strategy.
const SEEDS: u64 = 400;

/// Random numbers (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn work(&mut self) {
        // Mostly short, sometimes longer than any wait of the other threads.
        let nanos = if self.below(8) == 0 { 20_000 } else { 400 };
        work(Duration::from_nanos(self.below(nanos)));
    }
}

/// An event: its producer, its number there, and how often it was handled.
type Event = (u64, u64, u32);

type Worker = PoolWriter<Event>;

/// The next step of a worker's loop.
enum Next {
    GoesOn,
    Ended,
}

/// Handles some events in one of the ways that a handle has.
fn step(worker: &mut Worker, draw: &mut Draw) -> Next {
    let max = 1 + draw.below(3) as usize;
    let batch = match draw.below(6) {
        0 => worker.try_batch(max),
        1 => worker.batch_by(max, now() + Duration::from_nanos(draw.below(3_000))),
        2 => match worker.poll(max, |event, _| event.2 += 1) {
            Ok(_) => return Next::GoesOn,
            Err(ended) => Err(ended.into()),
        },
        _ => worker.batch(max).map_err(BatchError::from),
    };
    match batch {
        Ok(mut batch) => {
            batch.iter_mut().for_each(|event| event.2 += 1);
            draw.work();
            batch.release();
            Next::GoesOn
        }
        Err(BatchError::Wait(WaitError::Closed)) => Next::Ended,
        Err(BatchError::Unavailable | BatchError::Contended | BatchError::TimedOut(_)) => {
            Next::GoesOn
        }
        Err(other) => panic!("{other}"),
    }
}

/// Works until the ring has ended. The worker leaves now and then, most often in the middle of a
/// chunk, and joins again. Returns the last handle: its drop would wake workers that wait for the
/// pool's end.
fn come_and_go(
    mut worker: Worker,
    pool: &Pool<Event, slipring_simulated::Writing>,
    mut draw: Draw,
) -> Option<Worker> {
    loop {
        let until = draw.below(30);
        for _ in 0..until {
            if let Next::Ended = step(&mut worker, &mut draw) {
                return Some(worker);
            }
        }
        // Another worker gets the events that are not released.
        if let Err(BatchError::Wait(WaitError::Closed)) = worker.try_batch(3) {
            return Some(worker);
        }
        drop(worker);
        draw.work();
        worker = loop {
            match pool.join() {
                Ok(worker) => break worker,
                // The seat of a worker that left belongs to its chunk for a while.
                Err(SubscribeError::Full { .. }) => draw.work(),
                Err(SubscribeError::Ended(_) | SubscribeError::NotRunning) => return None,
                Err(other) => panic!("{other}"),
            }
        };
    }
}

/// Publishes `count` events, alone or several at a time. Gives claims up between them.
fn publish(tx: &mut SharedProducer<Event>, by: u64, count: u64, draw: &mut Draw) {
    let mut number = 0;
    while number < count {
        match draw.below(6) {
            0 => drop(tx.claim().unwrap()),
            1 | 2 => {
                let len = (1 + draw.below(4)).min(count - number).min(tx.capacity() as u64);
                let mut slots = tx.claim_n(len as usize).unwrap();
                for (offset, slot) in (0..).zip(slots.iter_mut()) {
                    *slot = (by, number + offset, 0);
                }
                if draw.below(2) == 0 {
                    draw.work(); // Meanwhile other producers publish later events.
                }
                slots.publish();
                number += len;
            }
            _ => {
                tx.publish(|slot| *slot = (by, number, 0)).unwrap();
                number += 1;
            }
        }
        if draw.below(3) != 0 {
            draw.work();
        }
    }
}

/// Runs the program of a seed.
fn run(seed: u64, wait: &Wait) {
    let machine = Machine { seed, jitter: 20, ..Machine::server("2x16".parse().unwrap()) };
    let done = Cell::new(false);
    let body = || {
        let mut draw = Draw(seed);
        let capacity = 1 << draw.below(6);
        let workers = (1 + draw.below(6) as usize).min(capacity);
        let room = (workers + draw.below(3) as usize).min(capacity);
        let (producers, count) = (1 + draw.below(3), 20 + draw.below(100));
        let graph = Graph::new(capacity, || (0, 0, 0)).shared().wait(wait.clone());
        let key = graph.pool_writer("work", workers).room(room);
        let end = graph.reader("end").after(&key);
        let ring = graph.build().unwrap();
        let mut rx = ring.reader(end);
        let pool = ring.pool(&key);
        let handles: Vec<_> = (0..producers).map(|_| ring.producer()).collect();
        let mut all = ring.pool_writers(key);
        drop(ring);
        let mut lasting = all.pop().expect("a worker");
        let mut next = vec![0; producers as usize];
        scope(|scope| {
            let mut kept = vec![scope.spawn(move || {
                lasting.for_each(|event, _| event.2 += 1).unwrap();
                Some(lasting)
            })];
            for worker in all {
                let (pool, draw) = (pool.clone(), Draw(draw.below(u64::MAX)));
                kept.push(scope.spawn(move || come_and_go(worker, &pool, draw)));
            }
            for (by, mut tx) in (0..).zip(handles) {
                let mut draw = Draw(draw.below(u64::MAX));
                scope.spawn(move || publish(&mut tx, by, count, &mut draw));
            }
            rx.for_each(|&(by, number, handled), _| {
                let next = &mut next[by as usize];
                assert_eq!(number, *next, "seed {seed}: lost, or out of order");
                assert_eq!(handled, 1, "seed {seed}: handled not once");
                *next += 1;
            })
            .unwrap();
            let kept: Vec<_> = kept.into_iter().map(|thread| thread.join().unwrap()).collect();
            drop(kept);
        });
        assert!(next.iter().all(|&next| next == count), "seed {seed}: {next:?} of {count}");
        done.set(true);
    };
    let report = Simulation::new(&machine).thread("main", body).run();
    report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(done.get());
}

#[test]
fn workers_that_spin_lose_no_event() {
    (1..=SEEDS).for_each(|seed| run(seed, &Wait::BusySpin));
}

#[test]
fn workers_that_yield_lose_no_event() {
    (1..=SEEDS).for_each(|seed| run(seed, &Wait::YIELDING));
}

#[test]
fn workers_that_sleep_lose_no_event() {
    (1..=SEEDS).for_each(|seed| run(seed, &Wait::Blocking));
}

#[test]
fn workers_that_adapt_lose_no_event() {
    (1..=SEEDS).for_each(|seed| run(seed, &Wait::ADAPTIVE));
}
