//! Workers of a pool, and shards: one to eight of each, on two cores, with an empty task and with a
//! task that is worth a hand-over.

use std::sync::atomic::{AtomicBool, Ordering};

use slipring::{Graph, Wait, handles::ShardReader};

use crate::contenders::gil::{Gil, GilShared};
use crate::contenders::queues::{Array, Crossfire, CrossfireShared, Queue, Rtrb, Yring};
use crate::figures::oversubscribed::RING;
use crate::figures::pools::{self, PoolRun, Spec, Tally, Task, blocking, checked, queue};
use crate::measure::{ContenderKind, Figure, Size, numbered_column};
use crate::work::{amount, steps_for};

/// Number of keys. An event's key determines its shard.
const KEYS: u64 = 1024;

/// Returns the figures of pools and of shards.
pub fn figures(size: Size) -> Vec<Figure> {
    let tables: [(&str, &str, &[PoolRun]); 2] =
        [("workers of a pool", "worker", &POOLS), ("shards", "shard", &SHARDS)];
    let mut figures = Vec::new();
    for (table, unit, runs) in tables {
        for nanos in [0, 500] {
            let task = if nanos == 0 { Task::Empty } else { Task::Steps(steps_for(nanos)) };
            let full = 60_000_000 / (u64::from(nanos) + 100);
            let events = size.pick(1_000, full / 3, full);
            figures.extend((1..=8).map(|workers| Figure {
                table: format!("scaling: {table}, {}", amount(nanos)),
                column: numbered_column(workers, unit),
                baseline: None,
                contenders: checked(Spec { ring: RING, workers, task, events }, runs.to_vec()),
            }));
        }
    }
    figures
}

const POOLS: [PoolRun; 7] = [
    (ContenderKind::Alone, "one thread doing it all", pools::alone),
    (ContenderKind::Ours, "slipring, adaptive", |spec| pools::ours(spec, Wait::default())),
    (ContenderKind::Ours, "slipring, yielding", |spec| pools::ours(spec, Wait::YIELDING)),
    (ContenderKind::Peer, "crossbeam ArrayQueue, yielding", queue::<Array>),
    (ContenderKind::Peer, "crossfire, yielding", queue::<CrossfireShared>),
    (ContenderKind::Peer, "crossfire, blocking", blocking::<CrossfireShared>),
    (ContenderKind::Peer, "gil, yielding", queue::<GilShared>),
];

const SHARDS: [PoolRun; 8] = [
    (ContenderKind::Alone, "one thread doing it all", pools::alone),
    (ContenderKind::Ours, "slipring, adaptive", |spec| shards(spec, Wait::default())),
    (ContenderKind::Ours, "slipring, yielding", |spec| shards(spec, Wait::YIELDING)),
    (ContenderKind::Peer, "rtrb for each shard, yielding", queues::<Rtrb>),
    (ContenderKind::Peer, "yring for each shard, yielding", queues::<Yring>),
    (ContenderKind::Peer, "gil for each shard, yielding", queues::<Gil>),
    (ContenderKind::Peer, "crossfire for each shard, yielding", queues::<Crossfire>),
    (ContenderKind::Peer, "crossbeam ArrayQueue for each shard, yielding", queues::<Array>),
];

/// A shard's finished tasks, and the number of the last one.
#[derive(Default)]
struct Share {
    tally: Tally,
    last: u64,
    disordered: bool,
}

impl Share {
    #[inline(always)]
    fn add(&mut self, task: Task, number: u64) {
        self.disordered |= number <= self.last;
        self.last = number;
        self.tally.add(task, number);
    }

    /// Returns the tally. Panics unless the shard's events came in order.
    fn finish(self) -> Tally {
        assert!(!self.disordered, "events of a shard out of order");
        self.tally
    }
}

/// Runs a producer and sharded stages, each on a thread of its own.
fn shards(spec: Spec, wait: Wait) -> (f64, Tally) {
    let graph = Graph::new(spec.ring, || 0u64).wait(wait);
    let key = graph.shard_reader("shards", spec.workers, |number| number % KEYS);
    let ring = graph.build().expect("the graph is sound");
    let (tx, shards) = (ring.producer(), ring.shard_readers(key));
    drop(ring);
    pools::publish_to(spec, tx, shards, |mut rx: ShardReader<u64>| {
        let mut share = Share::default();
        rx.for_each(|number, _| share.add(spec.task, *number))
            .expect("the stream ended with a failure");
        share.finish()
    })
}

/// Runs a producer that sends each event to the queue of its shard. Each shard has a thread of its
/// own, and all threads yield while they wait.
fn queues<Q: Queue<u64>>(spec: Spec) -> (f64, Tally) {
    let (mut senders, receivers): (Vec<Q::Tx>, Vec<Q::Rx>) =
        (0..spec.workers).map(|_| Q::new(spec.ring)).unzip();
    let closed = AtomicBool::new(false);
    pools::on_threads(
        spec,
        receivers,
        |mut rx| {
            let mut share = Share::default();
            pools::receive_all::<Q>(&mut rx, &closed, |number| share.add(spec.task, number));
            share.finish()
        },
        || {
            for number in 1..=spec.events {
                pools::send::<Q>(&mut senders[shard_of(number % KEYS, spec.workers)], number);
            }
            closed.store(true, Ordering::Release);
        },
    )
}

/// Returns the shard of a key, by a hash of the key.
#[inline(always)]
fn shard_of(key: u64, shards: usize) -> usize {
    let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((hash * shards as u64) >> 32) as usize
}
