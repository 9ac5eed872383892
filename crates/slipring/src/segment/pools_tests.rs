//! Tests of pools between processes. Workers die or leave at any step of a chunk, and other workers
//! join, leave and adopt chunks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::copied::{PoolPositions, pool_positions};
use super::for_tests::{Segment, stage};
use super::handles_for_tests::{SegmentPoolWriter, SegmentReader};
use super::zeroed::Memory;
use super::*;
use crate::errors::{BatchError, ClaimError, WaitError};
use crate::{errors::Cause, stages::PRODUCER};

type Worker = SegmentPoolWriter<u64>;

fn pool(name: &str, workers: usize, after: &[usize], on_death: OnDeath) -> StageDeclaration {
    let delivery = StageDelivery::Pool(workers);
    StageDeclaration { delivery, writes: true, ..stage(name, after, on_death) }
}

impl Segment {
    /// Attaches a worker of a pool on a free seat, or, if no seat is free, on a seat whose worker
    /// left its chunk.
    pub(super) fn worker(&self, number: u32, pool: usize) -> Worker {
        let ring = self.attach(number);
        let seats = || ring.seats_of(pool);
        let free = seats().find(|&seat| ring.seat(seat).take(number).is_ok());
        let seat = free.or_else(|| seats().find(|&seat| ring.seat(seat).adopt_chunk(number)));
        // SAFETY: the seat was taken.
        unsafe { ring.pool_updater(pool, seat.expect("a free seat, or an orphan")) }
    }

    fn owners(&self, pool: usize) -> Vec<Option<u32>> {
        let ring = self.attach(61);
        ring.seats_of(pool).map(|seat| ring.seat(seat).owner()).collect()
    }

    /// Loads a word of an area.
    fn word(&self, area: std::ptr::NonNull<u8>, line: usize, index: usize) -> &AtomicU64 {
        // SAFETY: the area has the line, whose words are atomic.
        unsafe { area.cast::<AtomicU64>().add(line * 16 + index).as_ref() }
    }
}

fn publish(tx: &mut SegmentProducer<u64>, count: u64) {
    for _ in 0..count {
        let seq = tx.next_seq();
        tx.publish(|slot| *slot = seq).unwrap();
    }
}

/// Handles all available events, and returns their positions.
fn work(worker: &mut Worker) -> Vec<u64> {
    let mut seen = Vec::new();
    worker
        .poll(usize::MAX, |event, at| {
            assert_eq!(*event, at.seq);
            seen.push(at.seq);
        })
        .unwrap();
    seen
}

fn read(reader: &mut SegmentReader<u64>) -> Vec<u64> {
    let mut seen = Vec::new();
    reader.poll(usize::MAX, |_, at| seen.push(at.seq)).unwrap();
    seen
}

/// Workers in three processes share the events, and a stage behind them sees all in order.
#[test]
fn workers_of_several_processes_share_the_events() {
    let _watched = crate::watchdog::watched();
    for start in [0, u64::MAX - 40] {
        let stages = vec![pool("work", 3, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
        let segment = Segment::new(16, start, stages);
        let events = if cfg!(miri) { 60 } else { 5_000 };
        let mut tx = segment.producer(1);
        let workers = [2, 3, 4].map(|number| segment.worker(number, 0));
        let mut reader = segment.reader(5, 1);
        std::thread::scope(|scope| {
            let handled = workers.map(|mut worker| {
                scope.spawn(move || worker.for_each(|event, _| *event += 1).unwrap())
            });
            scope.spawn(move || {
                (0..events).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
            });
            let mut next = 0;
            let seen = reader.for_each(|event, at| {
                assert_eq!((*event, at.seq), (next + 1, start.wrapping_add(next)));
                next += 1;
            });
            assert_eq!(seen.unwrap(), events);
            let handled = handled.map(|handled| handled.join().unwrap());
            assert_eq!(handled.iter().sum::<u64>(), events);
        });
        let report = segment.attach(6).report();
        assert_eq!(report.stages()[0].seq, start.wrapping_add(events));
    }
}

/// If a worker dies with a chunk, a colleague finishes the chunk, and knows that the dead worker
/// may have touched the events. The stage behind sees all events, in order.
#[test]
fn a_colleague_finishes_the_chunk_of_a_dead_worker() {
    let _watched = crate::watchdog::watched();
    let stages = vec![pool("work", 2, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
    let segment = Segment::new(16, 0, stages);
    let (mut tx, mut reader) = (segment.producer(1), segment.reader(9, 1));
    let (mut one, mut other) = (segment.worker(2, 0), segment.worker(3, 0));
    publish(&mut tx, 8);
    // The lengths of chunks adapt, so the loop waits for a chunk of several events. It releases
    // only the first event of that chunk.
    let chunk = loop {
        let mut batch = one.batch(4).unwrap();
        if batch.len() > 1 {
            assert!(batch.redelivered().is_empty());
            batch.release_front(1);
            break batch.first_seq()..batch.first_seq() + batch.len() as u64;
        }
        let seq = batch.first_seq();
        batch.release();
        assert_eq!(read(&mut reader), [seq]);
        publish(&mut tx, 1);
    };
    assert_eq!(one.next_seq(), chunk.start);
    let mut seen = work(&mut other);
    assert!(!seen.contains(&chunk.start), "the chunk of a living worker");
    assert_eq!(read(&mut reader).last(), Some(&(chunk.start - 1)));
    segment.kill(2, one);
    segment.bury(2);
    assert_eq!(segment.owners(0), [None, Some(3)]);
    let batch = other.batch(usize::MAX).unwrap();
    let of_batch = batch.first_seq()..batch.first_seq() + batch.len() as u64;
    assert_eq!((batch.redelivered(), of_batch), (chunk.clone().into(), chunk.clone()));
    assert_eq!(segment.owners(0), [Some(3), Some(3)]);
    batch.release();
    assert_eq!(other.redelivered(), chunk.clone().into());
    seen.extend(work(&mut other));
    assert_eq!(segment.owners(0), [None, Some(3)]);
    assert_eq!(read(&mut reader).first(), Some(&chunk.start));
    let ring = segment.attach(7);
    assert_eq!((ring.seat(0).deaths(), ring.seat(1).deaths()), (1, 0));
    publish(&mut tx, 1);
    assert_eq!(work(&mut other).len(), 1);
    assert!(other.redelivered().is_empty());
}

/// If the only worker of a pool leaves in the middle of a chunk, the pool waits for another worker.
/// That worker takes a free seat, and adopts the chunk.
#[test]
fn a_pool_without_workers_waits_for_the_next_one() {
    let _watched = crate::watchdog::watched();
    for dies in [false, true] {
        for workers in [1, 2] {
            let segment = Segment::new(4, 0, vec![pool("work", workers, &[], OnDeath::Wait)]);
            let (mut tx, mut one) = (segment.producer(1), segment.worker(2, 0));
            publish(&mut tx, 4);
            let len = one.batch(4).unwrap().len();
            if dies {
                segment.kill(2, one);
                segment.bury(2);
            } else {
                drop(one);
            }
            assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
            let mut next = segment.worker(3, 0);
            let mut seen = Vec::new();
            while let Ok(batch) = next.try_batch(usize::MAX) {
                let again = batch.redelivered();
                let is_again = batch.first_seq() < len as u64;
                assert_eq!(again.len(), if is_again { len } else { 0 });
                seen.extend(batch.first_seq()..batch.first_seq() + batch.len() as u64);
                batch.release();
            }
            seen.sort();
            assert_eq!(seen, [0, 1, 2, 3]);
            drop(next);
            drop(tx);
            let mut last = segment.worker(4, 0);
            assert!(matches!(last.poll(1, |_, _| ()), Err(WaitError::Closed)));
        }
    }
}

/// A worker that always finds another chunk still checks for chunks that other workers left.
#[test]
fn a_busy_worker_adopts_within_a_notice() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(1024, 0, vec![pool("work", 2, &[], OnDeath::Wait)]);
    let (mut tx, mut one) = (segment.producer(1), segment.worker(2, 0));
    publish(&mut tx, 1000);
    assert_eq!(one.batch(1).unwrap().first_seq(), 0);
    drop(one);
    let mut other = segment.worker(3, 0);
    let adopted = (0..500).any(|_| {
        let batch = other.batch(1).unwrap();
        let adopted = !batch.redelivered().is_empty();
        batch.release();
        std::thread::sleep(Duration::from_millis(1));
        adopted
    });
    assert!(adopted, "the chunk is left until no other chunk is available");
}

/// A process that has adopted a chunk, and so holds two seats, dies, too.
#[test]
fn an_adopter_dies_too() {
    let _watched = crate::watchdog::watched();
    let stages = vec![pool("work", 3, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
    let segment = Segment::new(8, 0, stages);
    let (mut tx, mut reader) = (segment.producer(1), segment.reader(9, 1));
    publish(&mut tx, 2);
    let mut one = segment.worker(2, 0);
    assert_eq!(one.batch(1).unwrap().first_seq(), 0);
    segment.kill(2, one);
    segment.bury(2);
    let mut two = segment.worker(3, 0);
    // The free seat is the adopter's own seat; the orphan is its second seat.
    let first = two.batch(1).unwrap();
    assert!(first.first_seq() == 1 && first.redelivered().is_empty());
    first.release();
    assert_eq!(two.batch(1).unwrap().redelivered(), (0..1).into());
    assert_eq!(segment.owners(0), [Some(3), Some(3), None]);
    segment.kill(3, two);
    segment.bury(3);
    assert_eq!(segment.owners(0), [None; 3]);
    assert!(read(&mut reader).is_empty());
    let mut three = segment.worker(4, 0);
    assert_eq!((work(&mut three), read(&mut reader)), (vec![0], vec![0, 1]));
    let ring = segment.attach(7);
    assert_eq!((0..3).map(|seat| ring.seat(seat).deaths()).sum::<u32>(), 3);
}

/// A worker, a later stage or a producer that waits recovers a dead worker itself.
#[test]
fn whoever_waits_recovers_a_dead_worker() {
    let _watched = crate::watchdog::watched();
    for waiting in ["colleague", "stage", "producer"] {
        let stages = vec![pool("work", 2, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
        let segment = Segment::new(2, 0, stages);
        let (mut tx, mut one) = (segment.producer(1), segment.worker(2, 0));
        let (mut other, mut reader) = (segment.worker(3, 0), segment.reader(4, 1));
        publish(&mut tx, 1);
        assert_eq!(one.batch(1).unwrap().len(), 1);
        publish(&mut tx, 1);
        assert_eq!(work(&mut other), [1]);
        segment.kill(2, one);
        std::thread::scope(|scope| match waiting {
            "colleague" => assert_eq!(other.batch(1).unwrap().redelivered(), (0..1).into()),
            "stage" => {
                let adopts = scope.spawn(|| {
                    while segment.owners(0)[0].is_some() {
                        std::thread::yield_now();
                    }
                    assert_eq!(work(&mut other), [0]);
                });
                assert_eq!(reader.batch(2).unwrap().len(), 2);
                adopts.join().unwrap();
            }
            _ => {
                let soon = Instant::now() + Duration::from_millis(50);
                let refused = tx.publish_by(soon, |_| ());
                assert!(matches!(refused, Err(ClaimError::TimedOut(_))));
                assert_eq!((segment.owners(0)[0], work(&mut other)), (None, vec![0]));
            }
        });
        let ring = segment.attach(7);
        assert_eq!(ring.seat(0).deaths(), 1);
    }
}

/// Once no worker of the pool lives, a call returns an error, or the death fails the graph.
#[test]
fn a_pool_is_dead_when_its_last_worker_is() {
    let _watched = crate::watchdog::watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let segment = Segment::new(2, 0, vec![pool("work", 2, &[], on_death)]);
        let mut tx = segment.producer(1);
        let (mut one, other) = (segment.worker(2, 0), segment.worker(3, 0));
        publish(&mut tx, 2);
        assert_eq!(one.batch(1).unwrap().len(), 1);
        segment.kill(2, one);
        let soon = Instant::now() + Duration::from_millis(30);
        let waits = tx.publish_by(soon, |_| ());
        assert!(matches!(waits, Err(ClaimError::TimedOut(_))), "a worker lives: {waits:?}");
        segment.kill(3, other);
        let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
        match (on_death, &error) {
            (OnDeath::Tell, WaitError::PeerDead(dead)) => {
                assert_eq!((dead.stage.as_str(), dead.pid), ("work", 1003));
                // Both dead workers have been recovered, and no worker has taken their places.
                let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
                assert!(matches!(&error, WaitError::PeerDead(dead) if dead.pid == 1003), "{error}");
                // The pool continues with another worker.
                let mut seen = work(&mut segment.worker(4, 0));
                seen.sort();
                assert_eq!(seen, [0, 1]);
                assert_eq!(tx.publish(|slot| *slot = 2).unwrap(), 2);
            }
            (OnDeath::Fail, WaitError::Failed(failure)) => {
                assert!(matches!(failure.cause(), Cause::Died { pid: 1003 }), "{failure}");
            }
            _ => panic!("{on_death:?}: {error}"),
        }
    }
}

/// A call returns a death even if the dead worker left a chunk that no worker has adopted.
#[test]
fn an_orphan_of_a_dead_worker_is_told() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(1, 0, vec![pool("work", 1, &[], OnDeath::Tell)]);
    let (mut tx, mut one) = (segment.producer(1), segment.worker(2, 0));
    publish(&mut tx, 1);
    assert_eq!(one.batch(1).unwrap().len(), 1);
    segment.kill(2, one);
    segment.bury(2);
    let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
    assert!(matches!(&error, WaitError::PeerDead(dead) if dead.pid == 1002), "{error}");
    assert_eq!(work(&mut segment.worker(3, 0)), [0]);
    assert_eq!(tx.publish(|slot| *slot = 1).unwrap(), 1);
}

/// A worker has died after it swapped a cell, and before it moved the claim word. Its adopter's
/// releases take effect at once.
#[test]
fn an_adopter_moves_the_claim_word_first() {
    let _watched = crate::watchdog::watched();
    let stages = vec![pool("work", 1, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
    let segment = Segment::new(4, 0, stages);
    let (mut tx, mut reader) = (segment.producer(1), segment.reader(4, 1));
    publish(&mut tx, 2);
    let ring = segment.attach(2);
    ring.seat(0).take(2).unwrap();
    ring.seat(0).intend_chunk(&(0..2), 0);
    segment.word(segment.areas.lines, ring.pool_line(0) + 1, 0).store(0, Ordering::Relaxed);
    let taken = crate::ring::words::ChunkCell::taken(0, 2, 0);
    segment.word(segment.areas.cells, 0, 0).store(taken.0, Ordering::Relaxed);
    segment.kill(2, ());
    segment.bury(2);
    let mut worker = segment.worker(3, 0);
    let batch = worker.batch(8).unwrap();
    assert_eq!((batch.len(), batch.redelivered()), (2, (0..2).into()));
    batch.release();
    assert_eq!(read(&mut reader), [0, 1]);
}

/// An adopter passes over a tombstone that the dead worker had taken, and handles no event.
#[test]
fn a_dead_workers_tombstone_is_passed_over() {
    let _watched = crate::watchdog::watched();
    let stages = vec![pool("work", 2, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
    let segment = Segment::shared(4, 0, stages, 2, OnDeath::Wait);
    let ring = segment.attach(1);
    let seat = ring.seats_of(ring.producer_party()).start;
    ring.seat(seat).take(1).unwrap();
    // SAFETY: the seat was taken.
    let mut tx = unsafe { ring.shared_producer(seat) };
    drop(tx.claim_n(2).unwrap()); // a tombstone
    // The worker on seat 0 died between the swap of the cell and the move of the claim word.
    let number = ring.seats_of(0).start;
    ring.seat(number).take(2).unwrap();
    ring.seat(number).intend_chunk(&(0..2), 0);
    segment.word(segment.areas.lines, ring.pool_line(0) + 1, 0).store(0, Ordering::Relaxed);
    let taken = crate::ring::words::ChunkCell::taken(0, 2, 0);
    segment.word(segment.areas.cells, 0, 0).store(taken.0, Ordering::Relaxed);
    segment.kill(2, ());
    segment.bury(2);
    let (mut worker, mut reader) = (segment.worker(3, 0), segment.reader(4, 1));
    tx.publish(|slot| *slot = 2).unwrap();
    let mut seen = work(&mut worker);
    seen.extend(work(&mut worker));
    assert_eq!((seen, read(&mut reader)), (vec![2], vec![2]));
}

/// Tests a pool behind several producers, as the first stage of a ring whose producers die.
#[test]
fn a_pool_follows_several_producers() {
    let _watched = crate::watchdog::watched();
    let stages = vec![pool("work", 2, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
    let segment = Segment::shared(8, 0, stages, 2, OnDeath::Wait);
    let events = if cfg!(miri) { 20 } else { 1_000 };
    let producers = [1, 2].map(|number| {
        let ring = segment.attach(number);
        let mut seats = ring.seats_of(ring.producer_party());
        let seat = seats.find(|&seat| ring.seat(seat).take(number).is_ok()).unwrap();
        // SAFETY: the seat was taken.
        unsafe { ring.shared_producer(seat) }
    });
    let workers = [3, 4].map(|number| segment.worker(number, 0));
    let mut reader = segment.reader(5, 1);
    std::thread::scope(|scope| {
        for mut tx in producers {
            scope.spawn(move || {
                for i in 0..events {
                    if i % 10 == 3 {
                        drop(tx.claim_n(2).unwrap()); // a tombstone
                    }
                    tx.publish(|slot| *slot = i).unwrap();
                }
            });
        }
        let handled = workers.map(|mut worker| {
            scope.spawn(move || worker.for_each(|event, _| *event += 1).unwrap())
        });
        assert_eq!(reader.for_each(|_, _| ()).unwrap(), 2 * events);
        let handled = handled.map(|handled| handled.join().unwrap());
        assert_eq!(handled.iter().sum::<u64>(), 2 * events);
    });
}

/// In a ring whose first stage is a pool, another producer follows a producer that dies.
#[test]
fn a_producer_before_a_pool_goes_on_where_the_one_before_died() {
    let _watched = crate::watchdog::watched();
    let stages = vec![pool("work", 2, &[], OnDeath::Wait)];
    let segment = Segment::shared(8, 0, stages, 1, OnDeath::Wait);
    let mut worker = segment.worker(2, 0);
    let mut sent = 0;
    for round in 0..20u64 {
        let number = 3 + (round % 2) as u32;
        let mut tx = segment.producer(number);
        assert_eq!(tx.next_seq(), sent, "round {round}");
        let len = round % 4;
        if len != 0 {
            let mut claim = tx.claim_n(len as usize).unwrap();
            (0..len).for_each(|i| claim[i as usize] = sent + i);
            claim.publish();
            sent += len;
        }
        segment.kill(number, tx);
        segment.bury(number);
        // In some rounds, the workers stop in the middle of a run.
        if round % 3 != 1 {
            work(&mut worker);
        }
        if len > 1 && round % 3 == 1 {
            let _one = worker.poll(1, |_, _| ()).unwrap();
        }
    }
    assert!(matches!(worker.try_batch(1), Ok(_) | Err(BatchError::Unavailable)));
    drop(segment.producer(9));
    worker.for_each(|event, at| assert_eq!(*event, at.seq)).unwrap();
    assert_eq!(segment.attach(7).position(0), sent);
}

/// If the producer has died, the error of an idle worker names the producer, and not the pool.
#[test]
fn an_idle_worker_is_told_of_a_dead_producer() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![pool("work", 2, &[], OnDeath::Wait)]);
    let (tx, mut worker) = (segment.producer(1), segment.worker(2, 0));
    segment.kill(1, tx);
    let WaitError::PeerDead(dead) = worker.batch(1).map(|_| ()).unwrap_err() else { panic!() };
    assert_eq!((dead.stage.as_str(), dead.pid), (PRODUCER, 1001));
}

/// A report reads these positions from a pool's lines.
#[test]
fn the_lines_of_a_pool_tell_its_positions() {
    let _watched = crate::watchdog::watched();
    for start in [0, u64::MAX - 2] {
        let segment = Segment::new(8, start, vec![pool("work", 2, &[], OnDeath::Wait)]);
        let ring = segment.attach(9);
        let line = ring.pool_line(0);
        let look = || {
            let word = |line| segment.word(segment.areas.lines, line, 0).load(Ordering::Relaxed);
            pool_positions(&(line..line + 4).map(word).collect::<Vec<_>>()).unwrap()
        };
        let at = |count: u64| start.wrapping_add(count);
        assert_eq!(look(), PoolPositions { released: start, taken: start, boundary: start });
        let (mut tx, mut one) = (segment.producer(1), segment.worker(2, 0));
        let mut other = segment.worker(3, 0);
        tx.claim_n(5).unwrap().publish();
        assert_eq!(one.batch(1).unwrap().len(), 1);
        let second = other.batch(1).unwrap();
        assert_eq!((second.first_seq(), second.len()), (at(1), 1));
        second.release();
        let positions = PoolPositions { released: start, taken: at(2), boundary: at(5) };
        assert_eq!((look(), ring.position(0)), (positions, start));
        one.poll(1, |_, _| ()).unwrap();
        let now = look();
        assert_eq!((now.released, ring.position(0)), (at(2), at(2)));
    }
    assert_eq!(pool_positions(&[5]), None);
}

/// If the pool cannot reach the last position of a closed ring, the ring counts as damaged.
#[test]
fn a_last_position_that_no_worker_can_reach_is_damage() {
    let _watched = crate::watchdog::watched();
    for last in [0, 2, 4, 12, u64::MAX] {
        let stages =
            vec![pool("first", 2, &[], OnDeath::Wait), pool("second", 2, &[0], OnDeath::Wait)];
        let segment = Segment::new(8, 0, stages);
        let mut tx = segment.producer(1);
        let (mut first, mut second) = (segment.worker(2, 0), segment.worker(3, 1));
        publish(&mut tx, 3);
        drop(tx);
        let word = segment.word(segment.areas.status, 0, 1);
        assert_eq!(word.swap(last, Ordering::Relaxed), 3);
        assert!(matches!(first.for_each(|_, _| ()), Err(WaitError::Damaged)), "{last}");
        if last != 4 {
            assert!(matches!(second.for_each(|_, _| ()), Err(WaitError::Damaged)), "{last}");
        }
    }
}

/// Whatever the words of a segment hold, each call of a worker and each recovery ends, does not
/// panic, and stays within its bounds.
#[test]
fn random_words_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 400 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let stages = vec![
            pool("first", 3, &[], OnDeath::Tell),
            pool("second", 2, &[0], OnDeath::Fail),
            stage("third", &[1], OnDeath::Wait),
        ];
        let producers = 1 + seed as usize % 2;
        let segment = Segment::shared(4, 0, stages, producers, OnDeath::Tell);
        let ring = segment.attach(1);
        let seat = ring.seats_of(ring.producer_party()).start;
        ring.seat(seat).take(2).unwrap();
        let (mut single, mut shared) = match producers {
            // SAFETY: the seat was taken.
            1 => (Some(unsafe { ring.producer() }), None),
            // SAFETY: as above.
            _ => (None, Some(unsafe { ring.shared_producer(seat) })),
        };
        let mut publish = || {
            if let Some(tx) = &mut single {
                let _ = tx.try_publish(|slot| *slot = 1);
            }
            if let Some(tx) = &mut shared {
                let _ = tx.try_publish(|slot| *slot = 1);
            }
        };
        (0..3).for_each(|_| publish());
        let mut workers =
            [(3, 0), (4, 0), (5, 1)].map(|(number, pool)| segment.worker(number, pool));
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let words = memory.bytes.size() / 8;
        for round in 0..20 {
            for _ in 0..random.usize(1..words) {
                let value = match random.u32(..3) {
                    // A small number, shifted by a few bits, is close to a word that a ring would
                    // store.
                    0 => random.u64(..12) << random.u32(..17),
                    _ => random.u64(..) >> random.u32(..64),
                };
                // SAFETY: the word lies in the memory.
                let at = unsafe { memory.first.cast::<AtomicU64>().add(random.usize(..words)) };
                // SAFETY: all threads access the word atomically and in this size (the status bits
                // have 32 bits), or no thread has a reference to the event that contains it.
                unsafe {
                    if at.cast() == segment.areas.status {
                        at.cast::<AtomicU32>().as_ref().store(value as u32, Ordering::Relaxed);
                    } else {
                        at.as_ref().store(value, Ordering::Relaxed);
                    }
                }
            }
            publish();
            for worker in &mut workers {
                let _ = worker.try_batch(9).map(|batch| {
                    let sum = batch.iter().sum::<u64>();
                    (sum, batch.redelivered(), (batch.len() <= 4).then_some(()).unwrap())
                });
                let _ = worker.poll(3, |event, _| *event = 3);
                let _ = worker.batch_by(1, Instant::now()).map(|batch| batch.release());
                let _ = worker.redelivered();
            }
            let _ = (ring.report(), ring.position(0), ring.position(1));
            let number = 6 + random.u32(..40);
            for pool in 0..2 {
                let ring = segment.attach(number);
                for seat in ring.seats_of(pool) {
                    if ring.seat(seat).take(number).is_ok() || ring.seat(seat).adopt_chunk(number) {
                        // SAFETY: the seat was taken.
                        let mut another = unsafe { ring.pool_updater(pool, seat) };
                        let _ = another.poll(2, |_, _| ());
                    }
                }
            }
            (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, random.u32(..8)));
            if round % 5 == 4 {
                let number = 50 + round;
                for worker in &mut workers {
                    let ring = segment.attach(number);
                    let seat = ring.seats_of(0).start;
                    // SAFETY: the seat's other handle makes no call meanwhile.
                    drop(std::mem::replace(worker, unsafe { ring.pool_updater(0, seat) }));
                }
            }
        }
    }
}

/// All handles of a ring share the count of its owners, so a call that repeats adds no owner, also
/// when it adopts the chunk of a worker that left.
#[test]
fn a_worker_of_a_segment_polls_and_waits_without_a_new_owner() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(16, 0, vec![pool("work", 2, &[], OnDeath::Wait)]);
    let mut tx = segment.producer(1);
    let mut worker = segment.worker(2, 0);
    let owners = |worker: &Worker| worker.state().core.owners.added();
    let added = owners(&worker);
    for round in 0..5 {
        publish(&mut tx, 3);
        let mut leaver = segment.worker(3, 0);
        let first = leaver.try_batch(1).unwrap().first_seq();
        assert_eq!(first, 3 * round);
        drop(leaver);
        let mut seen: Vec<u64> = (0..3).flat_map(|_| work(&mut worker)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [first, first + 1, first + 2]);
        assert!(matches!(worker.try_batch(8), Err(BatchError::Unavailable)));
        let waited = worker.batch_by(8, Instant::now());
        assert!(matches!(waited, Err(BatchError::TimedOut(_))));
    }
    assert_eq!(owners(&worker), added);
}
