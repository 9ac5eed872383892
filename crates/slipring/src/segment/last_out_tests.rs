//! Tests of what the last handle of a party leaves behind, by dying or by leaving: a closed ring, a
//! death that later calls return, or neither.

use std::time::{Duration, Instant};

use super::for_tests::{Segment, stage};
use super::handles_for_tests::{SegmentReader, SegmentSubscription};
use super::*;
use crate::errors::{BatchError, WaitError};
use crate::live::tap::StartAt;

fn only() -> Vec<StageDeclaration> {
    vec![stage("only", &[], OnDeath::Wait)]
}

fn pool(on_death: OnDeath) -> StageDeclaration {
    let delivery = StageDelivery::Pool(2);
    StageDeclaration { delivery, writes: true, ..stage("pool", &[], on_death) }
}

fn tap() -> StageDeclaration {
    StageDeclaration { delivery: StageDelivery::Tap(2), ..stage("tap", &[], OnDeath::Wait) }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(50)
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

impl Segment {
    /// Recovers the dead participant `dead`, as a waiting process does. Calls `midway` while it
    /// holds the proof of the death, before it settles the seat with the index `at`.
    fn recover_with(&self, dead: u32, at: usize, midway: impl FnOnce()) {
        let ring = self.attach(61);
        let mut midway = Some(midway);
        let settle = &mut || {
            for seat in 0..=ring.seats() {
                if seat == at {
                    midway.take().expect("called once")();
                }
                if seat < ring.seats() {
                    ring.settle_seat(seat, dead);
                }
            }
        };
        ring.find_dead(dead, &*self.dead);
        assert!(self.dead.recover(dead, settle), "no other process recovers it");
    }
}

/// The last living producer leaves while another process is in the middle of recovering a dead
/// producer.
#[test]
fn the_last_producer_closes_while_a_dead_one_is_recovered() {
    let _watched = crate::watchdog::watched();
    for at in 0..4 {
        for claims in [false, true] {
            let segment = Segment::shared(4, 0, only(), 2, OnDeath::Wait);
            let (mut dying, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
            let mut reader = segment.reader(3, 0);
            if claims {
                std::mem::forget(dying.claim().unwrap());
            }
            other.publish(|slot| *slot = 7).unwrap();
            segment.kill(1, dying);
            segment.recover_with(1, at, || drop(other));
            assert_eq!(reader.batch(1).unwrap()[0], 7);
            reader.poll(1, |_, _| ()).unwrap();
            let end = reader.batch_by(1, late()).map(drop);
            assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{at}: {end:?}");
        }
    }
}

/// The last living producer dies while it leaves, and while another producer is recovered.
#[test]
fn a_recovered_leaver_closes_while_a_dead_one_is_recovered() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::shared(4, 0, only(), 2, OnDeath::Wait);
    let (dying, leaving) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    segment.kill(1, dying);
    let ring = segment.attach(9);
    ring.seat(ring.seats_of(ring.producer_party()).start + 1).leave();
    segment.kill(2, leaving);
    segment.recover_with(1, 0, || segment.bury(2));
    let end = reader.batch_by(1, late()).map(drop);
    assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{end:?}");
}

/// A living producer keeps the ring open for its successor, even if it dies after another producer
/// has left.
#[test]
fn a_producer_that_dies_after_others_left_keeps_the_ring_open() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::shared(4, 0, only(), 2, OnDeath::Wait);
    let (dying, other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    drop(other);
    segment.kill(1, dying);
    let waits = reader.batch_by(1, soon()).map(drop);
    assert!(matches!(waits, Err(BatchError::TimedOut(_))), "{waits:?}");
    segment.shared_producer(4).publish(|slot| *slot = 5).unwrap();
    assert_eq!(reader.batch(1).unwrap()[0], 5);
}

/// In a ring that the death of its last producer closes, a first stage of each kind handles all
/// published events, and then ends.
#[test]
fn a_death_closes_as_declared() {
    let _watched = crate::watchdog::watched();
    for producers in [1, 2] {
        for (kind, first) in
            [stage("only", &[], OnDeath::Wait), pool(OnDeath::Wait), tap()].into_iter().enumerate()
        {
            for (published, claims) in [(0, false), (3, false), (3, true), (0, true)] {
                let stages = vec![first.clone()];
                let segment = Segment::shared(8, 0, stages, producers, OnDeath::Close);
                let mut reader = (kind == 0).then(|| segment.reader(3, 0));
                let mut worker = (kind == 1).then(|| segment.worker(3, 0));
                let mut member: Option<SegmentSubscription<u64>> =
                    (kind == 2).then(|| segment.attach(3).subscribe(0, StartAt::Now).unwrap());
                macro_rules! dies {
                    ($tx:expr) => {{
                        let mut tx = $tx;
                        (0..published).for_each(|at| _ = tx.publish(|slot| *slot = at).unwrap());
                        if claims {
                            std::mem::forget(tx.claim_n(2).unwrap());
                        }
                        segment.kill(1, tx);
                    }};
                }
                match producers {
                    1 => dies!(segment.producer(1)),
                    _ => dies!(segment.shared_producer(1)),
                }
                macro_rules! ends {
                    ($reader:ident) => {
                        if let Some($reader) = &mut $reader {
                            let mut seen = 0;
                            let end = loop {
                                match $reader.batch_by(8, late()) {
                                    Ok(batch) => {
                                        seen += batch.len() as u64;
                                        batch.release();
                                    }
                                    Err(end) => break end,
                                }
                            };
                            assert_eq!(seen, published, "{producers}, {kind}");
                            let closed = matches!(end, BatchError::Wait(WaitError::Closed));
                            assert!(closed, "{producers}, {kind}: {end:?}");
                        }
                    };
                }
                ends!(reader);
                ends!(worker);
                ends!(member);
                assert!(segment.attach(9).is_over());
            }
        }
    }
}

/// If a process dies while it recovers a dead producer, the next process that recovers the producer
/// closes the ring.
#[test]
fn a_death_closes_also_if_its_recovery_is_repeated() {
    let _watched = crate::watchdog::watched();
    for producers in [1, 2] {
        let segment = Segment::shared(8, 0, only(), producers, OnDeath::Close);
        let mut reader = segment.reader(3, 0);
        match producers {
            1 => segment.kill(1, segment.producer(1)),
            _ => segment.kill(1, segment.shared_producer(1)),
        }
        let ring = segment.attach(61);
        let seat = ring.seat(ring.seats_of(ring.producer_party()).start);
        // The recoverer has closed the ring, and has not freed the seat yet.
        ring.settle_seat(ring.seats_of(ring.producer_party()).start, 1);
        assert_eq!((seat.owner(), seat.deaths()), (None, 1));
        let end = reader.batch_by(1, late()).map(drop);
        assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{end:?}");
        segment.bury(1);
        assert_eq!(seat.deaths(), 1);
    }
}

/// While another producer lives, a death does not close the ring. When the last producer leaves,
/// the ring closes.
#[test]
fn a_death_closes_only_if_no_other_producer_lives() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::shared(8, 0, only(), 2, OnDeath::Close);
    let (dying, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    segment.kill(1, dying);
    let waits = reader.batch_by(1, soon()).map(drop);
    assert!(matches!(waits, Err(BatchError::TimedOut(_))), "{waits:?}");
    assert_eq!(segment.attach(9).seat(1).owner(), None, "the dead one is recovered");
    other.publish(|slot| *slot = 7).unwrap();
    assert_eq!(reader.batch(1).unwrap()[0], 7);
    reader.poll(1, |_, _| ()).unwrap();
    drop(other);
    let end = reader.batch_by(1, late()).map(drop);
    assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{end:?}");
}

/// Lets a stage behind the pool wait for the pool. Returns the process id in the error that the
/// stage gets, or `None` if the wait times out.
fn told(reader: &mut SegmentReader<u64>) -> Option<u32> {
    match reader.batch_by(1, soon()).map(drop) {
        Err(BatchError::TimedOut(_)) => None,
        Err(BatchError::Wait(WaitError::PeerDead(dead))) => Some(dead.pid),
        other => panic!("{other:?}"),
    }
}

/// Whether a pool counts as dead depends on its last worker alone. If that worker left, the pool is
/// not dead, even if another worker died before. If it died, the pool is dead, and the error names
/// that worker, even after its recovery.
#[test]
fn the_last_worker_decides_whether_a_pool_is_dead() {
    let _watched = crate::watchdog::watched();
    let segment =
        Segment::new(8, 0, vec![pool(OnDeath::Tell), stage("behind", &[0], OnDeath::Wait)]);
    let mut tx = segment.producer(20);
    let mut reader = segment.reader(21, 1);
    tx.publish(|slot| *slot = 7).unwrap();
    let (one, other) = (segment.worker(1, 0), segment.worker(2, 0));
    assert_eq!(told(&mut reader), None, "two live");
    segment.kill(1, one);
    assert_eq!(told(&mut reader), None, "one lives");
    assert_eq!(segment.attach(9).seat(0).deaths(), 1, "and the other one is recovered");
    drop(other);
    assert_eq!(told(&mut reader), None, "the last one has left");
    let (one, other) = (segment.worker(3, 0), segment.worker(4, 0));
    segment.kill(3, one);
    assert_eq!(told(&mut reader), None);
    segment.kill(4, other);
    assert_eq!(told(&mut reader), Some(1004), "the last one has died");
    assert_eq!(told(&mut reader), Some(1004), "and is recovered");
    // This worker takes a seat other than the dead worker's.
    drop(segment.worker(5, 0));
    assert_eq!(told(&mut reader), None, "another one has left since");
    segment.kill(6, segment.worker(6, 0));
    segment.bury(6);
    assert_eq!(told(&mut reader), Some(1006), "another process has recovered it");
}

/// The recoverer of a dead worker may not see a worker that joins at the same time. If this worker
/// leaves as the last one, the pool is not dead.
#[test]
fn a_worker_that_joined_during_a_recovery_outlives_the_death() {
    let _watched = crate::watchdog::watched();
    let segment =
        Segment::new(8, 0, vec![pool(OnDeath::Tell), stage("behind", &[0], OnDeath::Wait)]);
    let (mut tx, mut reader) = (segment.producer(20), segment.reader(21, 1));
    tx.publish(|slot| *slot = 7).unwrap();
    let one = segment.worker(1, 0);
    segment.kill(1, one);
    let ring = segment.attach(9);
    ring.find_dead(1, &*segment.dead);
    let recovered = segment.dead.recover(1, &mut || {
        let joined = segment.worker(2, 0);
        // Frees the seat as that of the pool's last worker.
        ring.seat(0).bury(1);
        assert!(ring.seat(0).last_death().is_some());
        drop(joined);
    });
    assert!(recovered);
    assert_eq!(told(&mut reader), None, "the last one has left");
}

/// Whether the producers count as dead depends on the last of them alone. If it left, they are not
/// dead, even if another one died before, because the last one closed the ring. If it died, they
/// are dead.
#[test]
fn the_last_producer_decides_whether_the_producers_are_dead() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::shared(8, 0, only(), 3, OnDeath::Tell);
    let (one, other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(21, 0);
    segment.kill(1, one);
    assert_eq!(told(&mut reader), None, "one lives");
    segment.kill(2, other);
    assert_eq!(told(&mut reader), Some(1002), "the last one has died");
    assert_eq!(told(&mut reader), Some(1002), "and is recovered");
    let next = segment.shared_producer(4);
    assert_eq!(told(&mut reader), None, "another one lives");
    drop(next);
    let end = reader.batch_by(1, late()).map(drop);
    assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{end:?}");
}

/// The last producer leaves before a dead producer is recovered. The stream is complete, and no
/// call returns the death.
#[test]
fn a_death_before_the_last_producer_left_is_not_told() {
    let _watched = crate::watchdog::watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let segment = Segment::shared(8, 0, only(), 2, on_death);
        let (mut one, other) = (segment.shared_producer(1), segment.shared_producer(2));
        let mut reader = segment.reader(21, 0);
        std::mem::forget(one.claim().unwrap());
        segment.kill(1, one);
        segment.recover_with(1, 0, || drop(other));
        let end = reader.batch_by(1, late()).map(drop);
        assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{on_death:?}: {end:?}");
    }
}
