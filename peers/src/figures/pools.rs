//! Compares pools of two workers that share tasks with one thread that does all tasks. A small task
//! costs less than its hand-over.

use std::cell::OnceCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use slipring::{Graph, Producer, Wait, handles::PoolReader};
use slipring_machine::pin;

use super::busy::RINGS;
use super::busy::full::WORK;
use super::oversubscribed::timing::TwoCores;
use crate::contenders::foreign::{Producers, Programs, Work};
use crate::contenders::gil::GilShared;
use crate::contenders::queues::{Array, Blocking, Crossbeam, CrossfireShared, Flume, Kanal, Queue};
use crate::measure::{Contender, ContenderKind, Figure, Size};
use crate::work::{self, amount, per_event, steps_for};

/// The parameters of a pool, or of shards.
#[derive(Clone, Copy)]
pub struct Spec {
    /// Capacity of the ring or the queue, in events.
    pub ring: usize,
    /// Number of workers.
    pub workers: usize,
    /// The work on each event.
    pub task: Task,
    /// Number of events.
    pub events: u64,
}

/// The work on an event. An event is a number.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// No work.
    Empty,
    /// A sort of 100 integers that are in order already, which is much faster than [`Task::Sort`].
    Sorted,
    /// A sort of 100 integers in random order, which are made from the event's number.
    Sort,
    /// Does this number of steps of work.
    Steps(u32),
    /// Does this number of steps, and a hundred times as many for every hundredth event.
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
    /// Returns the name and the steps of a task that programs in other languages do, too; `None`
    /// for a sort, because each language has its own.
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
pub struct Tally {
    count: u64,
    sum: u64,
}

impl Tally {
    #[inline(always)]
    pub fn add(&mut self, task: Task, number: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(task.run(number));
    }
    fn and(self, other: Tally) -> Tally {
        Tally { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// Does all tasks on one thread, without a hand-over.
pub fn alone(Spec { task, events, .. }: Spec) -> (f64, Tally) {
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
        let spec = Spec { ring, workers: 2, task, events };
        Figure {
            table: format!("pools, two cores, ring {ring}"),
            column: column.to_owned(),
            baseline: None,
            contenders: contenders(spec, false, programs),
        }
    });
    pools.into_iter().chain(busy(size, programs)).collect()
}

/// Returns the figures of a busy pool of two workers behind a full ring. A figure is the overhead
/// above half of the work on an event, because two cores share the work.
fn busy(size: Size, programs: &Programs) -> impl Iterator<Item = Figure> {
    let figure = move |ring, nanos| {
        let full = 100_000_000 / u64::from(nanos + 40);
        let events = size.pick(500, full / 5, full);
        let spec = Spec { ring, workers: 2, task: Task::Steps(steps_for(nanos)), events };
        Figure {
            table: format!("busy pool of 2 on two cores, full ring of {ring}, overhead"),
            column: amount(nanos),
            baseline: Some(Box::new(move || alone(spec).0 / 2.0)),
            contenders: contenders(spec, true, programs),
        }
    };
    RINGS.into_iter().flat_map(move |ring| WORK.map(|nanos| figure(ring, nanos)))
}

/// A contender's kind and name, and a function that does all tasks on two cores.
pub type PoolRun = (ContenderKind, &'static str, fn(Spec) -> (f64, Tally));

/// Makes a contender of each function in `runs`. All get the same tasks, and each run checks its
/// tally.
pub fn checked(spec: Spec, runs: impl IntoIterator<Item = PoolRun>) -> Vec<Contender> {
    // The right tally is computed in the first run, and not here: `--list` and other figures call
    // this function, too, but do not need the tally.
    let right = Rc::new(OnceCell::new());
    let contender = |(kind, name, run): PoolRun| {
        let right = right.clone();
        Contender::new(kind, name, move || {
            let right = right.get_or_init(|| alone(spec).1);
            let _cores = TwoCores::take();
            let (took, tally) = run(spec);
            assert_eq!(tally, *right, "tasks lost, doubled or damaged");
            took
        })
    };
    runs.into_iter().map(contender).collect()
}

/// Returns the contenders of a pool of two. With `overhead`, the contenders in other languages
/// report the time beyond half of the work.
fn contenders(spec: Spec, overhead: bool, programs: &Programs) -> Vec<Contender> {
    use ContenderKind::{Alone, Ours, Peer};
    let runs: [PoolRun; 22] = [
        (Alone, "one thread doing it all", alone),
        (Ours, "slipring, producer's thread working too", ours_with_producer),
        (Ours, "slipring, 3 threads, default wait", |spec| ours(spec, Wait::default())),
        (Ours, "slipring, 3 threads, yielding", |spec| ours(spec, Wait::YIELDING)),
        (Ours, "slipring, 3 threads, sleeping", |spec| ours(spec, Wait::SLEEPING)),
        (Ours, "slipring, 3 threads, blocking", |spec| ours(spec, Wait::Blocking)),
        (Peer, "crossbeam-channel, producer's thread working too", with_producer::<Crossbeam>),
        (Peer, "crossbeam ArrayQueue, producer's thread working too", with_producer::<Array>),
        (Peer, "kanal, producer's thread working too", with_producer::<Kanal>),
        (Peer, "crossfire, producer's thread working too", with_producer::<CrossfireShared>),
        (Peer, "gil, producer's thread working too", with_producer::<GilShared>),
        (Peer, "flume, producer's thread working too", with_producer::<Flume>),
        (Peer, "crossbeam-channel, 3 threads, yielding", queue::<Crossbeam>),
        (Peer, "crossbeam-channel, 3 threads, blocking", blocking::<Crossbeam>),
        (Peer, "crossbeam ArrayQueue, 3 threads, yielding", queue::<Array>),
        (Peer, "kanal, 3 threads, yielding", queue::<Kanal>),
        (Peer, "kanal, 3 threads, blocking", blocking::<Kanal>),
        (Peer, "crossfire, 3 threads, yielding", queue::<CrossfireShared>),
        (Peer, "crossfire, 3 threads, blocking", blocking::<CrossfireShared>),
        (Peer, "gil, 3 threads, yielding", queue::<GilShared>),
        (Peer, "flume, 3 threads, yielding", queue::<Flume>),
        (Peer, "flume, 3 threads, blocking", blocking::<Flume>),
    ];
    let mut contenders = checked(spec, runs);
    if let Some((task, steps)) = spec.task.portable() {
        let Spec { ring, events, .. } = spec;
        let work = |_| Work::Pool { ring, events, task, steps };
        contenders.extend(programs.contenders(Producers::One, overhead, work));
    }
    contenders
}

/// Builds a producer and a pool.
fn pool(Spec { ring, workers, .. }: Spec, wait: Wait) -> (Producer<u64>, Vec<PoolReader<u64>>) {
    let graph = Graph::new(ring, || 0u64).wait(wait);
    let key = graph.pool_reader("pool", workers);
    let ring = graph.build().expect("the graph is sound");
    (ring.producer(), ring.pool_readers(key))
}

/// Runs a producer and a pool, each worker on a thread of its own.
pub fn ours(spec: Spec, wait: Wait) -> (f64, Tally) {
    let (tx, workers) = pool(spec, wait);
    publish_to(spec, tx, workers, |mut rx| {
        let mut tally = Tally::default();
        rx.for_each(|number, _| tally.add(spec.task, *number))
            .expect("the stream ended with a failure");
        tally
    })
}

/// Publishes all events to `readers`, each of which calls `work` on a thread of its own.
pub fn publish_to<R: Send>(
    spec: Spec,
    mut tx: Producer<u64>,
    readers: Vec<R>,
    work: impl Fn(R) -> Tally + Sync,
) -> (f64, Tally) {
    on_threads(spec, readers, work, move || {
        tx.publish_all(1..=spec.events, |slot, number| *slot = number).expect("the ring is open");
        tx.close();
    })
}

/// Calls `work` with each of `readers`, each time on a new thread, and `produce` on the calling
/// thread. The clock starts when all threads have started, and stops when all have ended.
pub fn on_threads<R: Send>(
    spec: Spec,
    readers: Vec<R>,
    work: impl Fn(R) -> Tally + Sync,
    produce: impl FnOnce(),
) -> (f64, Tally) {
    let ready = AtomicU64::new(0);
    let threads = readers.len() as u64;
    let run = |reader| {
        ready.fetch_add(1, Ordering::Release);
        work(reader)
    };
    thread::scope(|scope| {
        let run = &run;
        let workers = readers.into_iter().map(|reader| scope.spawn(move || run(reader)));
        let workers: Vec<_> = workers.collect();
        started(&ready, threads);
        let begin = Instant::now();
        produce();
        let tally = workers.into_iter().fold(Tally::default(), |tally, worker| {
            tally.and(worker.join().expect("the worker panicked"))
        });
        (per_event(begin, spec.events), tally)
    })
}

/// Runs two threads, each pinned to its own core. One thread is only a worker. The other one is the
/// producer and a worker: it publishes until the ring is full, does up to an eighth of the ring's
/// tasks, and then publishes again.
fn ours_with_producer(spec: Spec) -> (f64, Tally) {
    let Spec { ring, task, events, .. } = spec;
    let (mut tx, workers) = pool(spec, Wait::YIELDING);
    let Ok([mut mine, mut theirs]) = <[_; 2]>::try_from(workers) else {
        panic!("two workers were asked for")
    };
    let ready = AtomicU64::new(0);
    thread::scope(|scope| {
        let ready = &ready;
        // The worker's handle is moved into the thread, so that the handles lie on different stacks
        // and share no cache line.
        let worker = scope.spawn(move || {
            pin(1);
            ready.fetch_add(1, Ordering::Release);
            let mut tally = Tally::default();
            theirs
                .for_each(|number, _| tally.add(task, *number))
                .expect("the stream ended with a failure");
            tally
        });
        pin(0);
        started(ready, 1);
        let (mut tally, mut next) = (Tally::default(), 1);
        let begin = Instant::now();
        while next <= events {
            // The producer publishes in batches: the worker has older tasks to do meanwhile, so a
            // batch delays no task.
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

/// Runs a queue of several receivers, with a producer and workers that yield while they wait.
pub fn queue<Q: Queue<u64, Rx: Clone>>(spec: Spec) -> (f64, Tally) {
    let (mut tx, rx) = Q::new(spec.ring);
    let closed = AtomicBool::new(false);
    let workers = vec![rx; spec.workers];
    on_threads(
        spec,
        workers,
        |mut rx| drain::<Q>(&mut rx, &closed, spec.task),
        || {
            (1..=spec.events).for_each(|number| send::<Q>(&mut tx, number));
            closed.store(true, Ordering::Release);
        },
    )
}

/// Sends an event, and yields while the queue is full.
#[inline(always)]
pub fn send<Q: Queue<u64>>(tx: &mut Q::Tx, number: u64) {
    while !Q::try_send(tx, number) {
        thread::yield_now();
    }
}

/// Runs a queue on two threads, as [`ours_with_producer`] does: the producer's thread sends until
/// the queue is full, and then does as many of the tasks as fit in an eighth of the queue.
fn with_producer<Q: Queue<u64, Rx: Clone>>(spec: Spec) -> (f64, Tally) {
    let Spec { ring, task, events, .. } = spec;
    let (mut tx, mut mine) = Q::new(ring);
    let mut theirs = mine.clone();
    let (ready, closed) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (ready, closed) = (&ready, &closed);
        let worker = scope.spawn(move || {
            pin(1);
            ready.fetch_add(1, Ordering::Release);
            drain::<Q>(&mut theirs, closed, task)
        });
        pin(0);
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
    receive_all::<Q>(rx, closed, |number| tally.add(task, number));
    tally
}

/// Receives until the queue is closed and empty, and yields while it is empty.
#[inline(always)]
pub fn receive_all<Q: Queue<u64>>(rx: &mut Q::Rx, closed: &AtomicBool, mut f: impl FnMut(u64)) {
    loop {
        // `closed` is loaded before the queue is emptied, because the producer sets it after its
        // last event.
        let last = closed.load(Ordering::Acquire);
        while let Some(number) = Q::try_receive(rx) {
            f(number);
        }
        if last {
            return;
        }
        thread::yield_now();
    }
}

/// Runs a channel through its own blocking calls.
pub fn blocking<Q: Blocking + Queue<u64, Rx: Clone>>(spec: Spec) -> (f64, Tally) {
    let (mut tx, rx) = Q::new(spec.ring);
    let workers = vec![rx; spec.workers];
    let work = |mut rx| {
        let mut tally = Tally::default();
        while let Some(number) = Q::receive(&mut rx) {
            tally.add(spec.task, number);
        }
        tally
    };
    on_threads(spec, workers, work, move || {
        // This closure owns the last sender and drops it at its end, so the workers end then.
        (1..=spec.events).for_each(|number| Q::send(&mut tx, number));
    })
}

/// Waits until this number of threads has started.
fn started(ready: &AtomicU64, threads: u64) {
    while ready.load(Ordering::Acquire) < threads {
        thread::yield_now();
    }
}
