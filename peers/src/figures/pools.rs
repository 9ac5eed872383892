//! Pools: two workers that share tasks, against one thread that does all tasks. A small task costs
//! less than its hand-over.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use slipring::{Graph, PoolReader, Wait};

use super::busy::RINGS;
use super::busy::full::WORK;
use super::oversubscribed::timing::TwoCores;
use crate::contenders::foreign::{Producers, Programs, Work};
use crate::contenders::queues::{Array, Blocking, Crossbeam, CrossfireShared, Flume, Kanal, Queue};
use crate::measure::{Contender, Figure, Kind, Size, per_event};
use crate::work::{self, amount, steps_for};

/// The parameters of a pool.
#[derive(Clone, Copy)]
struct Spec {
    /// Capacity of the ring or the queue, in events.
    ring: usize,
    /// The work on each event.
    task: Task,
    /// Number of events.
    events: u64,
}

/// The work on an event, which is a number.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// No work.
    Empty,
    /// Sorts 100 integers that are in order already, which is much faster than [`Task::Sort`].
    Sorted,
    /// Sorts 100 integers in random order, made from the number.
    Sort,
    /// Does so many steps of work.
    Steps(u32),
    /// Does so many steps, and a hundred times as many for every hundredth event.
    Skewed(u32),
}

impl Task {
    /// Does the work. Returns a value that depends on all of it.
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
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as u32
                });
                integers.sort_unstable();
                u64::from(black_box(&integers)[50])
            }
            Task::Steps(steps) => steps_of(number, steps),
            Task::Skewed(steps) => {
                steps_of(number, if number.is_multiple_of(100) { steps * 100 } else { steps })
            }
        }
    }
}

impl Task {
    /// Returns name and steps of a task that programs in other languages do, too. A sort is none:
    /// each language has a sort of its own.
    fn portable(self) -> Option<(&'static str, u32)> {
        match self {
            Task::Empty => Some(("empty", 0)),
            Task::Sorted | Task::Sort => None,
            Task::Steps(steps) => Some(("steps", steps)),
            Task::Skewed(steps) => Some(("skewed", steps)),
        }
    }
}

#[inline(always)]
fn steps_of(number: u64, steps: u32) -> u64 {
    let mut state = number;
    work::steps(steps, &mut state);
    state
}

/// The number of finished tasks, and the sum of their results.
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

/// Does all tasks on one thread, without a hand-over.
fn alone(Spec { task, events, .. }: Spec) -> (f64, Tally) {
    let mut tally = Tally::default();
    let begin = Instant::now();
    for number in 1..=events {
        tally.add(task, black_box(number));
    }
    (per_event(begin, events), tally)
}

/// Returns a figure for each kind of task.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let amount = |full: u64| size.pick(1_000.min(full), full / 3, full);
    let tasks = [
        ("empty work", Task::Empty, amount(600_000)),
        ("a sort of 100 integers, in order", Task::Sorted, amount(300_000)),
        ("a sort of 100 integers, in no order", Task::Sort, amount(30_000)),
        ("1 µs", Task::Steps(steps_for(1000)), amount(10_000)),
        ("skewed: 100 ns, one in a hundred 10 µs", Task::Skewed(steps_for(100)), amount(50_000)),
    ];
    let pools = tasks.map(|(column, task, events)| {
        let ring = 1024;
        let mut contenders = contenders(Spec { ring, task, events });
        if let Some((task, steps)) = task.portable() {
            let work = |_| Work::Pool { ring, events, task, steps };
            contenders.extend(programs.contenders(Producers::One, false, work));
        }
        Figure {
            table: format!("pools, two cores, ring {ring}"),
            column: column.to_owned(),
            baseline: None,
            contenders,
        }
    });
    pools.into_iter().chain(busy(size)).collect()
}

/// Returns the figures of a busy pool of two behind a full ring: the overhead above half of the work
/// on an event, because two cores share the work.
fn busy(size: Size) -> impl Iterator<Item = Figure> {
    let figure = move |ring, nanos| {
        let full = 100_000_000 / u64::from(nanos + 40);
        let events = size.pick(500, full / 5, full);
        let spec = Spec { ring, task: Task::Steps(steps_for(nanos)), events };
        Figure {
            table: format!("busy pool of 2 on two cores, full ring of {ring}, overhead"),
            column: amount(nanos),
            baseline: Some(Box::new(move || alone(spec).0 / 2.0)),
            contenders: contenders(spec),
        }
    };
    RINGS.into_iter().flat_map(move |ring| WORK.map(|nanos| figure(ring, nanos)))
}

fn contenders(spec: Spec) -> Vec<Contender> {
    let right = alone(spec).1;
    let contender = |kind, name: &str, run: fn(Spec) -> (f64, Tally)| {
        Contender::new(kind, name, move || {
            let _cores = TwoCores::take();
            let (took, tally) = run(spec);
            assert_eq!(tally, right, "tasks lost, doubled or damaged");
            took
        })
    };
    use Kind::{Alone, Ours, Peer};
    vec![
        contender(Alone, "one thread doing it all", alone),
        contender(Ours, "slipring, producer's thread working too", ours_with_producer),
        contender(Ours, "slipring, 3 threads, default wait", |spec| ours(spec, Wait::default())),
        contender(Ours, "slipring, 3 threads, yielding", |spec| ours(spec, Wait::YIELDING)),
        contender(Ours, "slipring, 3 threads, sleeping", |spec| ours(spec, Wait::SLEEPING)),
        contender(Ours, "slipring, 3 threads, blocking", |spec| ours(spec, Wait::Blocking)),
        contender(
            Peer,
            "crossbeam-channel, producer's thread working too",
            with_producer::<Crossbeam>,
        ),
        contender(
            Peer,
            "crossbeam ArrayQueue, producer's thread working too",
            with_producer::<Array>,
        ),
        contender(Peer, "kanal, producer's thread working too", with_producer::<Kanal>),
        contender(
            Peer,
            "crossfire, producer's thread working too",
            with_producer::<CrossfireShared>,
        ),
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
    ]
}

/// Builds a producer and a pool of two workers.
fn pool(ring: usize, wait: Wait) -> (slipring::Producer<u64>, PoolReader<u64>, PoolReader<u64>) {
    let graph = Graph::new(ring, || 0u64).wait(wait);
    let key = graph.pool_reader("pool", 2);
    let ring = graph.build().expect("the graph is sound");
    let mut workers = ring.pool_readers(key).into_iter();
    let (Some(one), Some(two)) = (workers.next(), workers.next()) else {
        panic!("two workers were asked for")
    };
    (ring.producer(), one, two)
}

/// Runs a producer and two workers on three threads.
fn ours(Spec { ring, task, events }: Spec, wait: Wait) -> (f64, Tally) {
    let (mut tx, one, two) = pool(ring, wait);
    let ready = AtomicU64::new(0);
    let work = |mut rx: PoolReader<u64>| {
        ready.fetch_add(1, Ordering::Release);
        let mut tally = Tally::default();
        rx.for_each(|number, _| tally.add(task, *number)).expect("the stream ended with a failure");
        tally
    };
    thread::scope(|scope| {
        let workers = [scope.spawn(|| work(one)), scope.spawn(|| work(two))];
        started(&ready, 2);
        let begin = Instant::now();
        tx.publish_all(1..=events, |slot, number| *slot = number).expect("the ring is open");
        tx.close();
        let tallies = workers.map(|worker| worker.join().expect("the worker panicked"));
        (per_event(begin, events), tallies[0].and(tallies[1]))
    })
}

/// Runs a producer and two workers on two threads. The producer's thread publishes until the ring
/// is full, then does the tasks of an eighth of the ring, and so on.
fn ours_with_producer(Spec { ring, task, events }: Spec) -> (f64, Tally) {
    let (mut tx, mut mine, mut theirs) = pool(ring, Wait::YIELDING);
    let ready = AtomicU64::new(0);
    thread::scope(|scope| {
        let ready = &ready;
        // Moved into the thread, so that the handles lie on different stacks and share no cache
        // line.
        let worker = scope.spawn(move || {
            ready.fetch_add(1, Ordering::Release);
            let mut tally = Tally::default();
            theirs
                .for_each(|number, _| tally.add(task, *number))
                .expect("the stream ended with a failure");
            tally
        });
        started(ready, 1);
        let (mut tally, mut next) = (Tally::default(), 1);
        let begin = Instant::now();
        while next <= events {
            // In batches: the worker has older tasks to do meanwhile, so a batch delays none.
            let len = 64.min(events - next + 1);
            match tx.try_claim_n(len as usize) {
                Ok(mut slots) => {
                    slots.iter_mut().zip(next..).for_each(|(slot, number)| *slot = number);
                    slots.publish();
                    next += len;
                }
                Err(_) => {
                    mine.poll(ring / 8, |number, _| tally.add(task, *number))
                        .expect("the ring is open");
                }
            }
        }
        tx.close();
        mine.for_each(|number, _| tally.add(task, *number))
            .expect("the stream ended with a failure");
        let theirs = worker.join().expect("the worker panicked");
        (per_event(begin, events), tally.and(theirs))
    })
}

/// Runs a queue of several receivers, with a producer and two workers that yield while they wait.
fn queue<Q: Queue<u64, Rx: Clone>>(Spec { ring, task, events }: Spec) -> (f64, Tally) {
    let (mut tx, rx) = Q::new(ring);
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
        let tallies = workers.map(|worker| worker.join().expect("the worker panicked"));
        (per_event(begin, events), tallies[0].and(tallies[1]))
    })
}

/// Runs a queue on two threads, as [`ours_with_producer`]: the producer's thread sends until the
/// queue is full, then does the tasks of an eighth of the queue.
fn with_producer<Q: Queue<u64, Rx: Clone>>(Spec { ring, task, events }: Spec) -> (f64, Tally) {
    let (mut tx, mut mine) = Q::new(ring);
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
            for _ in 0..ring / 8 {
                match Q::try_receive(&mut mine) {
                    Some(number) => tally.add(task, number),
                    None => break,
                }
            }
        }
        closed.store(true, Ordering::Release);
        let rest = drain::<Q>(&mut mine, closed, task);
        let theirs = worker.join().expect("the worker panicked");
        (per_event(begin, events), tally.and(rest).and(theirs))
    })
}

/// Does tasks until the queue is closed and empty.
fn drain<Q: Queue<u64>>(rx: &mut Q::Rx, closed: &AtomicBool, task: Task) -> Tally {
    let mut tally = Tally::default();
    loop {
        // Loaded before the queue is emptied, because the producer sets it after its last event.
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

/// Runs a channel through its own blocking calls.
fn blocking<Q: Blocking + Queue<u64, Rx: Clone>>(
    Spec { ring, task, events }: Spec,
) -> (f64, Tally) {
    let (tx, rx) = Q::new(ring);
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
        // The workers end when the last sender is dropped.
        drop(tx);
        let tallies = workers.map(|worker| worker.join().expect("the worker panicked"));
        (per_event(begin, events), tallies[0].and(tallies[1]))
    })
}

/// Waits until so many threads have started.
fn started(ready: &AtomicU64, threads: u64) {
    while ready.load(Ordering::Acquire) < threads {
        thread::yield_now();
    }
}
