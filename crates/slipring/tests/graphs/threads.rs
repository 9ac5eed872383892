//! Random graphs on threads. Every stage checks each event's trail: the writers before the stage
//! have written to it, once each and in order, and no other stage has.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Wait,
    errors::{BatchError, ClaimError, WaitError},
    markers::{Contiguous, Interleaved},
};

use crate::handles::{AnyHandle, AnyRing, Ask, Finish, KEYS, TestLayout, Tx, with_tx};
use crate::shape::{Dice, Ev, Shape, after_write, mix};

/// Sums over published or seen events that do not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    events: u64,
    ids: u64,
    /// Sum of a hash of each event, which covers the event's identity and position. A producer that
    /// does not know the position cannot compute this sum.
    places: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.events += other.events;
        self.ids = self.ids.wrapping_add(other.ids);
        self.places = self.places.wrapping_add(other.places);
    }
    fn event(id: u64, seq: u64) -> Sum {
        Sum { events: 1, ids: mix(id), places: mix(id ^ mix(seq)) }
    }
}

/// The parameters of one random run.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    shape: Shape,
    capacity: usize,
    start: u64,
    producers: usize,
    many: bool,
    wait: Wait,
    contiguous: bool,
    /// Number of events per producer.
    events: u64,
}

impl Plan {
    fn new(seed: u64, events: u64, shape: Option<&Shape>) -> Plan {
        let mut dice = Dice::new(seed);
        let capacity = [1, 2, 4, 8, 64][dice.below(5) as usize];
        let shape = shape
            .cloned()
            .unwrap_or_else(|| Shape::random(&mut dice, 6).with_shards(&mut dice))
            .fitting(capacity);
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_cached_key(|_| dice.next());
        let shape = shape.reordered(&order);
        let laps = (1u64 << 46).wrapping_mul(capacity as u64);
        let starts = [0, 0, u64::MAX - 30, laps.wrapping_sub(20), (1 << 48) - 20, (1 << 63) - 20];
        let start = starts[dice.below(6) as usize];
        let many = dice.one_in(2);
        let producers = if many { 1 + dice.below(3) as usize } else { 1 };
        let threads = producers
            + shape.0.iter().map(|stage| stage.kind.handles(stage.workers)).sum::<usize>();
        let waits = &Wait::all()[if threads > 2 { 1 } else { 0 }..];
        let wait = waits[dice.below(waits.len() as u64) as usize].clone();
        let events = events / producers as u64 + 1;
        Plan {
            seed,
            shape,
            capacity,
            start,
            producers,
            many,
            wait,
            contiguous: dice.one_in(2),
            events,
        }
    }
}

/// Runs one random graph.
pub fn run(seed: u64, events: u64) {
    run_plan(&Plan::new(seed, events, None));
}

/// Runs a graph of this shape with random parameters.
pub fn run_shape(shape: &Shape, seed: u64, events: u64) {
    run_plan(&Plan::new(seed, events, Some(shape)));
}

fn run_plan(plan: &Plan) {
    if plan.contiguous { run_on::<Contiguous>(plan) } else { run_on::<Interleaved>(plan) }
}

fn run_on<L: TestLayout>(plan: &Plan) {
    let graph =
        Graph::new(plan.capacity, Ev::default).first_seq(plan.start).wait(plan.wait.clone());
    let (ring, tx, handles) =
        AnyRing::<L>::build(&plan.shape, plan.many, graph).expect("a sound shape");
    let mut producers = vec![tx];
    while producers.len() < plan.producers {
        let Tx::Many(first) = &producers[0] else { unreachable!() };
        let clone = Tx::Many(first.clone());
        producers.push(clone);
    }
    let threads = producers.len() + handles.iter().flatten().count();
    let (sender, results) = channel::<(usize, Sum)>();
    let begin = Arc::new(Barrier::new(threads));
    let stages = plan.shape.len();
    for (p, tx) in producers.into_iter().enumerate() {
        let (plan, sender, begin) = (plan.clone(), sender.clone(), begin.clone());
        thread::spawn(move || {
            begin.wait();
            let sum = produce(tx, p, &plan);
            sender.send((stages, sum)).ok();
        });
    }
    for (stage, workers) in handles.into_iter().enumerate() {
        let writers = plan.shape.writers_before(stage);
        let owners = Arc::new(Owners::default());
        for (worker, handle) in workers.into_iter().enumerate() {
            let (plan, sender, begin, writers, owners) =
                (plan.clone(), sender.clone(), begin.clone(), writers.clone(), owners.clone());
            thread::spawn(move || {
                begin.wait();
                let sum = consume(handle, stage, worker, &writers, &owners, &plan);
                sender.send((stage, sum)).ok();
            });
        }
    }
    drop(sender);
    let sums = gather(results, threads, plan, &ring);
    let published = sums[stages];
    assert_eq!(published.events, plan.events * plan.producers as u64, "{plan:?}");
    for (stage, sum) in sums[..stages].iter().enumerate() {
        assert_eq!(
            (sum.events, sum.ids),
            (published.events, published.ids),
            "s{stage} of {plan:?}"
        );
        assert_eq!(sum.places, sums[0].places, "s{stage} of {plan:?}");
    }
    let report = ring.report();
    for (stage, sum) in report.stages().iter().zip(&sums) {
        assert_eq!(stage.events, sum.events, "{plan:?}\n{report}");
        assert_eq!(stage.tombstones, report.producer().tombstones, "{plan:?}\n{report}");
    }
}

/// Collects the sums of all threads: one for each stage, and the producers' sum last. Panics with
/// the plan if a thread hangs or fails.
fn gather<L: TestLayout>(
    results: Receiver<(usize, Sum)>,
    threads: usize,
    plan: &Plan,
    ring: &AnyRing<L>,
) -> Vec<Sum> {
    let mut sums = vec![Sum::default(); plan.shape.len() + 1];
    let deadline = Instant::now() + Duration::from_secs(60);
    for done in 0..threads {
        match results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((stage, sum)) => sums[stage].add(sum),
            Err(RecvTimeoutError::Timeout) => {
                let report = ring.report();
                ring.halt(); // ends the waiting threads
                panic!("{} of {threads} threads hang: {plan:?}\n{report}", threads - done);
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("a thread failed: {plan:?}\n{}", ring.report())
            }
        }
    }
    sums
}

fn produce<L: TestLayout>(mut tx: Tx<L>, p: usize, plan: &Plan) -> Sum {
    let mut dice = Dice::new(mix(plan.seed) ^ p as u64);
    let mut sum = Sum::default();
    let id = |k: u64| ((p as u64 + 1) << 32) | k;
    let mut k = 0;
    while k < plan.events {
        let left = (plan.events - k).min(plan.capacity as u64);
        let some = 1 + dice.below(left.min(5));
        let way = dice.below(8);
        let from = k;
        let mut published = |first: u64, len: u64| {
            (0..len).for_each(|i| sum.add(Sum::event(id(from + i), first.wrapping_add(i))));
            k += len;
        };
        with_tx!(&mut tx, tx => match way {
            0 | 1 => {
                let seq = tx.publish(|event| event.fill(id(from))).unwrap();
                published(seq, 1);
            }
            2 => match tx.try_publish(|event| event.fill(id(from))) {
                Ok(seq) => published(seq, 1),
                Err(ClaimError::Gated { .. } | ClaimError::Contended) => thread::yield_now(),
                Err(other) => panic!("{other}"),
            },
            3 => {
                let mut slots = tx.claim_n(some as usize).unwrap();
                for (i, event) in slots.iter_mut().enumerate() {
                    event.fill(id(from + i as u64));
                }
                let seq = slots.publish();
                published(seq, some);
            }
            4 => {
                let mut slots = tx.claim_n(some as usize).unwrap();
                slots.iter_mut().for_each(|event| event.fill(u64::MAX));
                if dice.one_in(2) { drop(slots) } else { std::mem::forget(slots) }
            }
            5 => {
                let items = 1 + dice.below(plan.events - from);
                let count = tx.publish_batches(some as usize, from..from + items, |event, k| event.fill(id(k))).unwrap();
                assert_eq!(count, items);
                // The producer does not know the positions.
                (0..items).for_each(|i| sum.add(Sum { places: 0, ..Sum::event(id(from + i), 0) }));
                k += items;
            }
            6 => match tx.publish_by(Instant::now() + Duration::from_micros(50), |event| event.fill(id(from))) {
                Ok(seq) => published(seq, 1),
                Err(ClaimError::TimedOut(_)) => {}
                Err(other) => panic!("{other}"),
            },
            _ => {
                let items = 1 + dice.below((plan.events - from).min(20));
                assert_eq!(tx.publish_all(from..from + items, |event, k| event.fill(id(k))).unwrap(), items);
                (0..items).for_each(|i| sum.add(Sum { places: 0, ..Sum::event(id(from + i), 0) }));
                k += items;
            }
        });
    }
    sum
}

/// Returns the key of an event for a stage behind these writers.
fn key(id: u64, writers: &[usize]) -> u64 {
    writers.iter().fold(mix(id), |trail, &writer| after_write(trail, writer)) % KEYS
}

/// The shard that saw each key first.
type Owners = [OnceLock<usize>; KEYS as usize];

fn consume<L: TestLayout>(
    mut handle: AnyHandle<L>,
    stage: usize,
    worker: usize,
    writers: &[usize],
    owners: &Owners,
    plan: &Plan,
) -> Sum {
    let mut dice = Dice::new(mix(plan.seed ^ (stage as u64) << 8) ^ (worker as u64) << 16);
    let kind = plan.shape.0[stage].kind;
    let mut sum = Sum::default();
    let mut newest = vec![0; plan.producers + 1];
    let mut latest = None;
    let check = |seq: u64, event: &Ev| {
        let trail = writers.iter().fold(mix(event.id), |trail, &writer| after_write(trail, writer));
        assert_eq!(
            event.trail, trail,
            "s{stage} was lent event {:x} at {seq} with a wrong trail: {plan:?}",
            event.id
        );
    };
    let mut take = |seq: u64, event: &Ev| {
        check(seq, event);
        sum.add(Sum::event(event.id, seq));
        if !kind.is_pool() {
            let at = seq.wrapping_sub(plan.start);
            assert!(
                latest.replace(at).is_none_or(|latest| latest < at),
                "s{stage} went back to {at}: {plan:?}"
            );
            let (p, k) = ((event.id >> 32) as usize, event.id & 0xffff_ffff);
            if kind.is_sharded() {
                assert!(newest[p] <= k, "s{stage} saw producer {p} out of order: {plan:?}");
                let owner = owners[(key(event.id, writers)) as usize].get_or_init(|| worker);
                assert_eq!(*owner, worker, "a key of s{stage} has two shards: {plan:?}");
            } else {
                assert_eq!(newest[p], k, "s{stage} saw producer {p} out of order: {plan:?}");
            }
            newest[p] = k + 1;
        }
    };
    // The first worker of a pool stays. The others may leave early, in the middle of a chunk.
    let mut stay = if kind.is_pool() && worker > 0 && dice.one_in(2) {
        dice.below(plan.events)
    } else {
        u64::MAX
    };
    let way = dice.below(5);
    if way == 0 && stay == u64::MAX {
        handle.for_each(stage, &mut take).unwrap();
        return sum;
    }
    while stay > 0 {
        stay -= 1;
        let max = 1 + dice.below(9) as usize;
        let ended = match way {
            0 | 1 => match handle.poll(max, stage, &mut take) {
                Ok(0) => {
                    thread::yield_now();
                    false
                }
                Ok(_) => false,
                Err(WaitError::Closed) => true,
                Err(other) => panic!("s{stage}: {other}"),
            },
            _ => {
                let finish = [Finish::Release, Finish::Release, Finish::Drop, Finish::Forget]
                    [dice.below(4) as usize];
                let ask = if way == 2 { Ask::Try } else { Ask::Wait };
                let mut see = |seq: u64, event: &Ev| {
                    if finish == Finish::Release { take(seq, event) } else { check(seq, event) }
                };
                match handle.batch(ask, max, finish, stage, &mut see) {
                    Ok(_) => false,
                    Err(BatchError::Unavailable | BatchError::Contended) => {
                        thread::yield_now();
                        false
                    }
                    Err(BatchError::Wait(WaitError::Closed)) => true,
                    Err(other) => panic!("s{stage}: {other}"),
                }
            }
        };
        if ended {
            break;
        }
    }
    sum
}
