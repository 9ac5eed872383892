//! Tests of the workers of a pool. In most of them, a pool passes more than 2^47 positions while
//! one of its workers is idle.

use std::time::Instant;

use crate::base::panics::Contained;
use crate::base::sync::Relaxed;
use crate::consumer::handle::{Consumer, PoolUpdater, Reader};
use crate::consumer::position::Availability;
use crate::errors::{BatchError, SubscribeError, WaitError};
use crate::live::pool::Pool;
use crate::markers::Updating;
use crate::producer::Producer;
use crate::ring::build::build;
use crate::ring::cores::PLAYED_MACHINE;
use crate::ring::owner::Owner;
use crate::ring::settings::Settings;
use crate::ring::slots::{Contiguous, Interleaved, Layout};
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::ring::words::PoolWord;
use crate::wait::{HandleLearner, Wait};

type Ring<L> = Owner<u64, L>;

/// Builds a ring of `capacity` slots with a pool of two workers, behind the producer or behind
/// another pool.
fn ring<L: Layout>(capacity: usize, behind_a_pool: bool) -> Ring<L> {
    let settings = Settings { wait: Contained::new(Wait::BusySpin), ..Settings::new(capacity) };
    let mut stages = vec![StageSpec::new("first", Access::Write, Delivery::pool(2), &[])];
    if behind_a_pool {
        stages.push(StageSpec::new("second", Access::Write, Delivery::pool(2), &[0]));
    }
    build(settings, stages, Vec::new(), &mut || 0).unwrap()
}

/// Sets the claim word of the pool `stage` to `seq`. Sets the pool's landmark, the full position
/// that idle workers load, to the last multiple of 2^32 that `seq` has reached.
fn move_pool_to<L: Layout>(ring: &Ring<L>, stage: usize, seq: u64) {
    let line = ring.control.plan.stages[stage].line;
    ring.control.positions.line(line).store(PoolWord::new(seq, 0).0, Relaxed);
    ring.control
        .positions
        .line(ring.control.plan.stages[stage].landmark_line())
        .store(seq - (seq & u64::from(u32::MAX)), Relaxed);
}

/// Positions of the claim word in these tests: the first lies just above 2^47, the other two lie
/// above 2^48.
const FAR: [u64; 3] = [(1 << 47) + (1 << 40) + 3, (1 << 48) + 7, (5 << 48) + (1 << 47) + 1];

fn takes_the_next_event<L: Layout>(ring: &Ring<L>, stage: usize, at: u64) {
    let mut worker: PoolUpdater<u64, L> =
        Consumer::worker(ring.clone(), stage, 1, HandleLearner::default());
    assert!(worker.position().has_available(), "`has_available` sees no event at {at}");
    let batch = worker.try_batch(1).unwrap_or_else(|error| panic!("no event at {at}: {error}"));
    assert_eq!(batch.first_seq(), at);
    batch.release();
    ring.control.halt(); // so that the drop of the last worker is no failure
}

#[test]
fn a_worker_may_be_idle_for_any_distance_behind_a_cursor() {
    for at in FAR {
        let ring: Ring<Contiguous> = ring(4, false);
        move_pool_to(&ring, 0, at);
        ring.control.positions.move_cursor(at + 2);
        takes_the_next_event(&ring, 0, at);
    }
}

#[test]
fn a_worker_may_be_idle_for_any_distance_behind_stamps() {
    for at in FAR {
        let ring: Ring<Interleaved> = ring(4, false);
        move_pool_to(&ring, 0, at);
        ring.publish(at, 1);
        takes_the_next_event(&ring, 0, at);
    }
}

#[test]
fn a_worker_may_be_idle_for_any_distance_behind_another_pool() {
    for at in FAR {
        let ring: Ring<Contiguous> = ring(4, true);
        move_pool_to(&ring, 0, at + 2);
        move_pool_to(&ring, 1, at);
        takes_the_next_event(&ring, 1, at);
    }
}

/// The second worker stores the bound of a chunk late, when the first worker has already taken that
/// chunk and found the end. The pool's frontier then seems to go back. The first worker still finds
/// the end.
#[test]
fn an_end_that_a_worker_was_told_is_final() {
    let ring: Ring<Interleaved> = ring(4, false);
    let worker = |number| -> PoolUpdater<u64> {
        Consumer::worker(ring.clone(), 0, number, HandleLearner::default())
    };
    let (mut first, second) = (worker(0), worker(1));
    ring.publish(0, 1);
    ring.control.close(1);
    assert_eq!(first.for_each(|_, _| ()).unwrap(), 1);
    let late_bound = ring.control.positions.line(ring.control.plan.stages[0].bound_line(1));
    late_bound.store(0, Relaxed);
    assert!(matches!(first.poll(1, |_, _| ()), Err(WaitError::Closed)));
    assert!(matches!(first.try_batch(1), Err(BatchError::Wait(WaitError::Closed))));
    late_bound.store(crate::ring::words::IDLE, Relaxed);
    drop((first, second));
    assert!(ring.control.status.failure().is_none());
}

#[test]
fn an_idle_worker_sees_the_end_at_any_distance() {
    for at in FAR {
        let ring: Ring<Interleaved> = ring(4, false);
        let mut worker: PoolUpdater<u64> =
            Consumer::worker(ring.clone(), 0, 1, HandleLearner::default());
        move_pool_to(&ring, 0, at);
        ring.control.close(at);
        assert!(
            matches!(worker.try_batch(1), Err(BatchError::Wait(WaitError::Closed))),
            "the worker does not see the end at {at}"
        );
        // Dropping a worker that never polled does not fail the graph.
        drop(Consumer::<u64, crate::markers::Updating, crate::markers::Pooled>::worker(
            ring.clone(),
            0,
            0,
            HandleLearner::default(),
        ));
        assert!(ring.control.status.failure().is_none(), "{:?}", ring.control.status.failure());
    }
}

/// All handles of a ring share the count of its owners, so a call that repeats adds no owner.
#[test]
fn a_worker_polls_and_waits_without_a_new_owner() {
    let _watched = crate::watchdog::watched();
    for behind_a_pool in [false, true] {
        let ring: Ring<Interleaved> = ring(8, behind_a_pool);
        let worker = |stage, number| -> PoolUpdater<u64> {
            Consumer::worker(ring.clone(), stage, number, HandleLearner::default())
        };
        let stages = 0..ring.control.plan.stages.len();
        let mut workers: Vec<_> = stages.flat_map(|it| [worker(it, 0), worker(it, 1)]).collect();
        let mut tx = Producer::<u64>::new(ring.clone(), Default::default());
        let added = ring.owners.added();
        for _ in 0..10 {
            (0..3).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
            for worker in &mut workers {
                while worker.poll(1, |_, _| ()).unwrap() != 0 {}
                assert!(matches!(worker.try_batch(8), Err(BatchError::Unavailable)));
                let waited = worker.batch_by(8, Instant::now());
                assert!(matches!(waited, Err(BatchError::TimedOut(_))));
            }
        }
        assert_eq!(ring.owners.added(), added);
        ring.control.halt(); // so that the drop of the last worker is no failure
    }
}

/// Idle workers draw tickets, although this machine may have fewer cores than threads: the ring is
/// told of more. Meanwhile workers leave with unfinished chunks, and others join.
#[test]
fn workers_with_tickets_come_and_go() {
    const EVENTS: u64 = 30_000;
    let _watched = crate::watchdog::watched();
    PLAYED_MACHINE.set(Some(64));
    let settings = Settings { wait: Contained::new(Wait::YIELDING), ..Settings::new(16) };
    let stages = vec![
        StageSpec::new("pool", Access::Write, Delivery::Pool { workers: 4, room: 5 }, &[]),
        StageSpec::new("end", Access::Read, Delivery::Each, &[0]),
    ];
    let ring: Ring<Interleaved> = build(settings, stages, Vec::new(), &mut || 0).unwrap();
    let pool = Pool::<u64, Updating>::of(&ring, 0);
    let mut workers: Vec<PoolUpdater<u64>> = (0..4)
        .map(|seat| Consumer::worker(ring.clone(), 0, seat, HandleLearner::default()))
        .collect();
    let mut lasting = workers.pop().unwrap();
    let mut tx = Producer::<u64>::new(ring.clone(), Default::default());
    let mut rx: Reader<u64> = Consumer::every(ring.clone(), 1, HandleLearner::default());
    std::thread::scope(|scope| {
        scope.spawn(move || lasting.for_each(|event, _| *event += 1).map(drop).unwrap());
        for mut worker in workers {
            scope.spawn(|| {
                loop {
                    for _ in 0..50 {
                        let Ok(mut batch) = worker.batch(2) else { return };
                        batch.iter_mut().for_each(|event| *event += 1);
                        batch.release();
                    }
                    drop(worker.try_batch(4)); // and leaves the chunk to another worker
                    drop(worker);
                    worker = loop {
                        match pool.join() {
                            Ok(worker) => break worker,
                            Err(SubscribeError::Full { .. }) => std::thread::yield_now(),
                            Err(_) => return,
                        }
                    };
                }
            });
        }
        scope.spawn(move || {
            for first in (0..EVENTS).step_by(3) {
                if first % 2 == 0 {
                    let mut slots = tx.claim_n(3).unwrap();
                    slots.iter_mut().zip(first..).for_each(|(event, i)| *event = i * 4);
                    slots.publish();
                } else {
                    (first..first + 3)
                        .for_each(|i| _ = tx.publish(|event| *event = i * 4).unwrap());
                }
            }
        });
        let mut next = 0;
        rx.for_each(|&event, _| {
            assert_eq!(event, next * 4 + 1, "lost, out of order, or handled not once");
            next += 1;
        })
        .unwrap();
        assert_eq!(next, EVENTS);
    });
}

/// A wait with a deadline draws no ticket, because its handle may not come back.
#[test]
fn a_wait_that_times_out_leaves_the_next_event_to_others() {
    let _watched = crate::watchdog::watched();
    PLAYED_MACHINE.set(Some(64));
    let settings = Settings { wait: Contained::new(Wait::BusySpin), ..Settings::new(8) };
    let stages = vec![StageSpec::new("pool", Access::Write, Delivery::pool(2), &[])];
    let ring: Ring<Interleaved> = build(settings, stages, Vec::new(), &mut || 0).unwrap();
    let [mut one, mut two] = [0, 1].map(|number| -> PoolUpdater<u64> {
        Consumer::worker(ring.clone(), 0, number, HandleLearner::default())
    });
    assert!(matches!(one.batch_by(1, Instant::now()), Err(BatchError::TimedOut(_))));
    assert!(matches!(one.try_batch(1), Err(BatchError::Unavailable)));
    ring.publish(0, 1);
    two.batch(1).unwrap().release();
    ring.control.halt(); // so that the drop of the last worker is no failure
}
