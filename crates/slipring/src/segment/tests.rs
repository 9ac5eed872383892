//! Tests of rings whose words lie in memory that several rings share. Each ring stands for a
//! process.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::for_tests::{Segment, stage};
use super::handles_for_tests::SegmentReader;
use super::zeroed::Memory;
use super::*;
use crate::errors::{BatchError, ClaimError, WaitError};
use crate::errors::{BuildError, Cause};

#[test]
fn two_rings_over_one_memory_are_one_ring() {
    let _watched = crate::watchdog::watched();
    for start in [0, 5, u64::MAX - 3, u64::MAX - 99] {
        let segment = Segment::new(
            4,
            start,
            vec![stage("first", &[], OnDeath::Wait), stage("second", &[0], OnDeath::Wait)],
        );
        let mut tx = segment.producer(1);
        let (mut first, mut second) = (segment.reader(2, 0), segment.reader(3, 1));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (0..100).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
            });
            let sum = |reader: &mut SegmentReader<u64>| {
                let (mut sum, mut next) = (0, start);
                let count = reader.for_each(|event, at| {
                    assert_eq!(at.seq, next);
                    next = next.wrapping_add(1);
                    sum += *event;
                });
                (count.unwrap(), sum)
            };
            scope.spawn(move || assert_eq!(sum(&mut first), (100, 4950)));
            scope.spawn(move || assert_eq!(sum(&mut second), (100, 4950)));
        });
    }
}

/// After a reader that dies or leaves in the middle of a run, another reader begins at the first
/// event that was not released, and learns which events may come again.
#[test]
fn a_reader_goes_on_where_the_one_before_stopped() {
    let _watched = crate::watchdog::watched();
    for dies in [false, true] {
        let segment = Segment::new(8, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let mut tx = segment.producer(1);
        let mut reader = segment.reader(2, 0);
        assert_eq!(reader.redelivered(), (0..0).into());
        let mut claim = tx.claim_n(5).unwrap();
        (0..5).for_each(|i| claim[i] = i as u64);
        claim.publish();
        // The reader is lent four of the five events of one run, and releases two.
        assert_eq!(reader.poll(2, |_, _| ()).unwrap(), 2);
        assert_eq!(reader.try_batch(2).unwrap().len(), 2);
        if dies {
            segment.kill(2, reader);
            segment.bury(2);
        } else {
            drop(reader);
        }
        tx.publish(|slot| *slot = 5).unwrap();
        let mut reader = segment.reader(3, 0);
        assert_eq!(reader.redelivered(), (2..4).into());
        let mut seen = Vec::new();
        reader.poll(usize::MAX, |event, at| seen.push((at.seq, *event))).unwrap();
        assert_eq!(seen, (2..6).map(|i| (i, i)).collect::<Vec<_>>());
        drop(reader);
        assert_eq!(segment.reader(4, 0).redelivered(), (6..6).into());
        assert_eq!(segment.attach(5).seat(0).deaths(), u32::from(dies));
    }
}

/// A reader that is lent redelivered events may die, too. Even if it was lent only some of them,
/// its successor learns that all of them may come again.
#[test]
fn what_was_lent_is_never_forgotten() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(8, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let mut tx = segment.producer(1);
    (0..6).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let mut reader = segment.reader(2, 0);
    assert_eq!(reader.try_batch(6).unwrap().len(), 6);
    segment.kill(2, reader);
    segment.bury(2);
    let mut reader = segment.reader(3, 0);
    assert_eq!((reader.redelivered(), reader.try_batch(1).unwrap().len()), ((0..6).into(), 1));
    segment.kill(3, reader);
    segment.bury(3);
    assert_eq!(segment.reader(4, 0).redelivered(), (0..6).into());
}

/// After a producer that dies, another producer finds its place from the segment alone. No stage
/// ever sees slots that the dead producer claimed and did not publish.
#[test]
fn a_producer_goes_on_where_the_one_before_died() {
    let _watched = crate::watchdog::watched();
    let stages = vec![stage("only", &[], OnDeath::Wait)];
    let segment = Segment::shared(8, 0, stages, 1, OnDeath::Wait);
    let mut reader = segment.reader(2, 0);
    let mut sent = 0;
    for round in 0..20u64 {
        let number = 3 + (round % 2) as u32;
        let mut tx = segment.producer(number);
        for _ in 0..round % 4 {
            assert_eq!(tx.publish(|slot| *slot = sent).unwrap(), sent);
            sent += 1;
        }
        if let Ok(mut claim) = tx.try_claim_n(2) {
            (claim[0], claim[1]) = (666, 666);
            std::mem::forget(claim);
        }
        segment.kill(number, tx);
        segment.bury(number);
        let mut next = reader.next_seq();
        reader
            .poll(usize::MAX, |event, _| {
                assert_eq!(*event, next);
                next += 1;
            })
            .unwrap();
        assert_eq!(next, sent);
    }
    assert!(matches!(reader.try_batch(1), Err(BatchError::Unavailable)));
    drop(segment.producer(9));
    assert!(matches!(reader.try_batch(1), Err(BatchError::Wait(WaitError::Closed))));
}

#[test]
fn a_wait_for_a_dead_process_tells_or_fails_as_declared() {
    let _watched = crate::watchdog::watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let segment = Segment::new(2, 0, vec![stage("only", &[], on_death)]);
        let mut tx = segment.producer(1);
        let reader = segment.reader(2, 0);
        segment.kill(2, reader);
        (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
        match (on_death, &error) {
            (OnDeath::Tell, WaitError::PeerDead(dead)) => {
                assert_eq!((dead.stage.as_str(), dead.pid, dead.seq), ("only", 1002, 0));
                assert!(error.to_string().contains("process 1002"), "{error}");
                // The graph continues with another reader.
                segment.bury(2);
                let mut reader = segment.reader(3, 0);
                assert_eq!(reader.poll(8, |_, _| ()).unwrap(), 2);
                assert_eq!(tx.publish(|slot| *slot = 2).unwrap(), 2);
            }
            (OnDeath::Fail, WaitError::Failed(failure)) => {
                assert!(matches!(failure.cause(), Cause::Died { pid: 1002 }), "{failure}");
                // Another process gets the same failure, as text.
                segment.bury(2);
                let elsewhere = segment.reader(3, 0).batch(1).map(|_| ()).unwrap_err();
                let text = elsewhere.to_string();
                assert!(text.contains("`only`") && text.contains("process 1002 died"), "{text}");
            }
            _ => panic!("{on_death:?}: {error}"),
        }
    }
}

/// The producer waits for a living stage, which waits for a stage that has died.
#[test]
fn a_death_is_told_through_living_stages() {
    let _watched = crate::watchdog::watched();
    let stages = ["first", "second", "third"].iter().enumerate();
    let stages = stages.map(|(number, name)| {
        let after: Vec<usize> = (0..number).rev().take(1).collect();
        stage(name, &after, OnDeath::Tell)
    });
    let segment = Segment::new(2, 0, stages.collect());
    let mut tx = segment.producer(1);
    let first = segment.reader(2, 0);
    let (_second, _third) = (segment.reader(3, 1), segment.reader(4, 2));
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    segment.kill(2, first);
    let WaitError::PeerDead(dead) = tx.publish(|_| ()).unwrap_err() else { panic!() };
    assert_eq!((dead.stage.as_str(), dead.pid), ("first", 1002));
}

/// In a loop of calls that do not wait, a call also returns the error about a death.
#[test]
fn a_loop_without_waits_is_told() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![stage("only", &[], OnDeath::Tell)]);
    let (mut tx, mut reader) = (segment.producer(1), segment.reader(2, 0));
    segment.dead.set.store(1 << 1, Ordering::Relaxed);
    let told = |error: &WaitError| matches!(error, WaitError::PeerDead(_));
    loop {
        match reader.try_batch(1).map(|_| ()) {
            Err(BatchError::Unavailable) => std::thread::yield_now(),
            Err(BatchError::Wait(error)) if told(&error) => break,
            other => panic!("{other:?}"),
        }
    }
    while !reader.poll(1, |_, _| ()).is_err_and(|error| told(&error)) {}
    segment.dead.set.store(0, Ordering::Relaxed);
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    segment.kill(2, reader);
    loop {
        match tx.try_publish(|_| ()) {
            Err(ClaimError::Gated { .. }) => {}
            Err(ClaimError::Wait(error)) if told(&error) => break,
            other => panic!("{other:?}"),
        }
    }
}

/// A reader waits, and its call returns the producer's death. Once another producer follows, the
/// reader can wait again.
#[test]
fn a_reader_is_told_of_a_dead_producer() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let tx = segment.producer(1);
    let mut reader = segment.reader(2, 0);
    segment.kill(1, tx);
    let error = reader.batch(1).map(|_| ()).unwrap_err();
    let WaitError::PeerDead(dead) = error else { panic!("{error}") };
    assert_eq!((dead.stage.as_str(), dead.pid), (crate::stages::PRODUCER, 1001));
    segment.bury(1);
    segment.producer(3).publish(|slot| *slot = 7).unwrap();
    assert_eq!(reader.batch(1).unwrap()[0], 7);
}

/// A reader that gathers a batch notices the producer's death. It gets the events that are there,
/// and then the error.
#[test]
fn a_reader_that_gathers_notices_a_dead_producer() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(8, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let mut tx = segment.producer(1);
    let mut reader = segment.reader(2, 0);
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    segment.kill(1, tx);
    let batch = reader.batch_within(4, Duration::MAX).unwrap();
    assert!(batch.iter().eq(&[0, 1]));
    batch.release();
    let error = reader.batch_within(4, Duration::MAX).map(|_| ()).unwrap_err();
    assert!(matches!(error, WaitError::PeerDead(dead) if dead.pid == 1001));
    segment.bury(1);
    let mut tx = segment.producer(3);
    let publishing = std::thread::spawn(move || {
        for i in 0..4 {
            tx.publish(|slot| *slot = i).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        tx
    });
    assert!(reader.batch_within(4, Duration::MAX).unwrap().iter().eq(&[0, 1, 2, 3]));
    drop(publishing.join().unwrap());
}

/// The stage of another process holds the rest of the ring, and waits for the events of the batch.
#[test]
fn a_full_ring_ends_a_batch_before_the_stage_of_another_process() {
    let _watched = crate::watchdog::watched();
    let stages = || vec![stage("first", &[], OnDeath::Wait), stage("later", &[0], OnDeath::Wait)];
    for start in [0, u64::MAX - 3] {
        let segment = Segment::new(8, start, stages());
        let mut tx = segment.producer(1);
        let (mut first, mut later) = (segment.reader(2, 0), segment.reader(3, 1));
        (0..6).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        first.poll(8, |_, _| ()).unwrap();
        (6..8).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        let batch = first.batch_within(3, Duration::MAX).unwrap();
        assert!(batch.iter().eq(&[6, 7]));
        batch.release();
        assert_eq!(later.batch_within(9, Duration::MAX).unwrap().len(), 8);
    }
}

/// With several processes that produce, a batch waits for the claim of a living process. It ends at
/// the claim of a dead one, which the wait gives up, and with the stream.
#[test]
fn a_batch_grows_with_several_producers() {
    let _watched = crate::watchdog::watched();
    let stages = vec![stage("only", &[], OnDeath::Wait)];
    let segment = Segment::shared(8, 0, stages, 2, OnDeath::Tell);
    let (mut one, mut two) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    one.publish(|slot| *slot = 0).unwrap();
    let mut early = two.claim().unwrap();
    *early = 1;
    one.publish(|slot| *slot = 2).unwrap();
    let some = Duration::from_millis(5);
    assert_eq!(reader.batch_within(3, some).unwrap().len(), 1);
    early.publish();
    let batch = reader.batch_within(3, Duration::MAX).unwrap();
    assert!(batch.iter().eq(&[0, 1, 2]));
    batch.release();
    one.publish(|slot| *slot = 3).unwrap();
    let mut raw = two.into_raw();
    raw.next_n(1).unwrap();
    segment.kill(2, raw);
    let batch = reader.batch_within(3, Duration::MAX).unwrap();
    assert!(batch.iter().eq(&[3]));
    batch.release();
    one.publish(|slot| *slot = 5).unwrap();
    drop(one); // closes the ring
    let batch = reader.batch_within(3, Duration::MAX).unwrap();
    assert!(batch.iter().eq(&[5]));
    batch.release();
    assert!(matches!(reader.batch_within(3, Duration::MAX), Err(WaitError::Closed)));
}

/// The counts of all handles of a party add up, even if one handle follows another.
#[test]
fn counts_add_up_over_successors() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(8, 5, vec![stage("only", &[], OnDeath::Wait)]);
    for number in 1..4 {
        let mut tx = segment.producer(number);
        let mut reader = segment.reader(10 + number, 0);
        (0..3).for_each(|_| _ = tx.publish(|slot| *slot = 0).unwrap());
        assert_eq!(reader.poll(8, |_, _| ()).unwrap(), 3);
        // A panic drops the producer, so the ring stays open for the next one.
        let leaves = std::thread::spawn(move || {
            let _tx = tx;
            panic!("leaves");
        });
        leaves.join().unwrap_err();
        drop(reader);
        let report = segment.attach(20).report();
        let counts: Vec<u64> = report.stages.iter().map(|stage| stage.events).collect();
        assert_eq!(counts, [3 * u64::from(number); 2]);
    }
}

/// A panic of user code in one process leaves the place to another process.
#[test]
fn a_panic_leaves_the_place_to_another() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(4, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let panics = |run: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap_err());
    };
    panics(&|| {
        let mut tx = segment.producer(1);
        tx.publish(|slot| *slot = 0).unwrap();
        tx.publish(|_| panic!("while it fills")).unwrap();
    });
    segment.attach(1).seat(1).free(1);
    panics(&|| {
        segment.reader(2, 0).for_each(|_, _| panic!("while it handles")).unwrap();
    });
    let mut tx = segment.producer(3);
    assert_eq!(tx.publish(|slot| *slot = 1).unwrap(), 1);
    let mut reader = segment.reader(4, 0);
    assert_eq!(reader.redelivered(), (0..1).into());
    let mut seen = Vec::new();
    reader.poll(8, |event, _| seen.push(*event)).unwrap();
    assert_eq!(seen, [0, 1]);
}

/// A full ring gates the producer of another process, and the reader's release lets that producer
/// continue.
#[test]
fn a_full_ring_gates_the_producer() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let mut tx = segment.producer(1);
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })), "no reader yet");
    let mut reader = segment.reader(2, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || tx.publish(|slot| *slot = 2).unwrap());
        assert_eq!(reader.poll(1, |_, _| ()).unwrap(), 1);
        assert_eq!(reader.for_each(|_, _| ()).unwrap(), 2);
    });
}

/// Whatever the words of a segment hold, no call panics, leaves its bounds or runs for ever.
#[test]
fn random_words_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let segment = Segment::new(
            4,
            0,
            vec![stage("first", &[], OnDeath::Tell), stage("second", &[0], OnDeath::Fail)],
        );
        let ring = segment.attach(1);
        let mut tx = segment.producer(2);
        let (mut first, mut second) = (segment.reader(3, 0), segment.reader(4, 1));
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let words = memory.bytes.size() / 8;
        for _ in 0..20 {
            for _ in 0..random.usize(1..words) {
                let value = random.u64(..) >> random.u32(..64);
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
            let _ = tx.try_publish(|slot| *slot = 1);
            let _ = tx.publish_by(std::time::Instant::now(), |slot| *slot = 1);
            let _ = first.try_batch(9).map(|batch| batch.iter().sum::<u64>());
            let _ = first.poll(3, |_, _| ());
            let _ = second.poll(9, |_, _| ());
            let _ = second.batch_by(1, std::time::Instant::now()).map(|batch| batch.release());
            let _ = (ring.report(), ring.position(1), ring.is_over(), ring.seat(2).owner());
            let number = 5 + random.u32(..40);
            let ring = segment.attach(number);
            if ring.seat(0).take(number).is_ok() {
                // SAFETY: the seat was taken; the other handle of the stage is not used meanwhile.
                let mut another = unsafe { ring.reader(0) };
                let _ = another.poll(2, |_, _| ());
            }
            // SAFETY: as above.
            let mut another = unsafe { ring.producer() };
            let _ = another.try_publish(|slot| *slot = 2);
        }
    }
}

/// A closed ring whose last position no stage can reach is damaged, and no stage waits for it.
#[test]
fn a_last_position_that_nobody_can_reach_is_damage() {
    let _watched = crate::watchdog::watched();
    for last in [0, 2, 4, 12, u64::MAX] {
        let stages = vec![stage("first", &[], OnDeath::Wait), stage("second", &[0], OnDeath::Wait)];
        let segment = Segment::new(8, 0, stages);
        let mut tx = segment.producer(1);
        let (mut first, mut second) = (segment.reader(2, 0), segment.reader(3, 1));
        (0..3).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        drop(tx);
        // SAFETY: the second word of the status is an atomic word, and is the last position.
        let word = unsafe { segment.areas.status.cast::<AtomicU64>().add(1).as_ref() };
        assert_eq!(word.swap(last, Ordering::Relaxed), 3);
        assert!(matches!(first.for_each(|_, _| ()), Err(WaitError::Damaged)), "{last}");
        assert_eq!(first.next_seq(), 3);
        // The second stage may wait for a position that the first stage can still reach.
        if last != 4 {
            assert!(matches!(second.for_each(|_, _| ()), Err(WaitError::Damaged)), "{last}");
        }
    }
}

/// If a status has a bit that no version sets, the ring is over, but the status does not say how it
/// ended.
#[test]
fn an_unknown_status_is_damage() {
    let _watched = crate::watchdog::watched();
    for bits in [8, 1 << 31, 1 | 16] {
        let segment = Segment::new(4, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let (mut tx, mut reader) = (segment.producer(1), segment.reader(2, 0));
        tx.publish(|slot| *slot = 0).unwrap();
        // SAFETY: the status begins with an atomic word of 32 bits.
        let status = unsafe { segment.areas.status.cast::<AtomicU32>().as_ref() };
        status.store(bits, Ordering::Relaxed);
        assert!(matches!(reader.for_each(|_, _| ()), Err(WaitError::Damaged)), "{bits}");
        assert_eq!(reader.next_seq(), 1);
        std::mem::forget(tx);
    }
}

/// A process may be stopped, or die, while it writes why the graph has failed. The others still
/// name the party that failed.
#[test]
fn a_failure_without_a_reason_names_its_party() {
    let _watched = crate::watchdog::watched();
    let named = |state: u64| {
        let segment = Segment::new(4, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let mut reader = segment.reader(2, 0);
        let (status, record) = (segment.areas.status.cast(), segment.areas.failure.cast());
        // SAFETY: the status begins with an atomic word of 32 bits, the record with one of 64.
        let (bits, word): (&AtomicU32, &AtomicU64) = unsafe { (status.as_ref(), record.as_ref()) };
        word.store(state, Ordering::Relaxed);
        bits.store(4, Ordering::Relaxed);
        reader.for_each(|_, _| ()).unwrap_err()
    };
    for (party, name) in [(0, "only"), (1, "producer")] {
        let error = named(1 | (party + 1) << 32);
        let WaitError::Failed(failure) = &error else { panic!("{error}") };
        assert_eq!(failure.stage().as_str(), name);
        assert!(error.to_string().contains("has not written why"), "{error}");
    }
    let error = named(0);
    assert!(matches!(error, WaitError::Damaged), "no failure at all: {error}");
}

/// A call returns a death even if the dead process's seat was recovered, as long as no process has
/// taken the seat since.
#[test]
fn a_death_is_told_until_the_seat_is_taken() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![stage("only", &[], OnDeath::Tell)]);
    let mut tx = segment.producer(1);
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let reader = segment.reader(2, 0);
    segment.kill(2, reader);
    segment.bury(2);
    for _ in 0..2 {
        let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
        assert!(matches!(&error, WaitError::PeerDead(dead) if dead.pid == 1002), "{error}");
    }
    drop(segment.reader(3, 0));
    let soon = std::time::Instant::now() + Duration::from_millis(20);
    let error = tx.publish_by(soon, |_| ()).unwrap_err();
    assert!(matches!(error, ClaimError::TimedOut(_)), "the last owner left: {error}");
}

/// A party's call returns the death of a stage even if the party waits for that stage only through
/// another stage.
#[test]
fn a_death_is_told_along_the_stages() {
    let _watched = crate::watchdog::watched();
    let stages = vec![
        stage("first", &[], OnDeath::Tell),
        stage("second", &[0], OnDeath::Tell),
        stage("third", &[1], OnDeath::Tell),
    ];
    let segment = Segment::new(2, 0, stages);
    let mut tx = segment.producer(1);
    let first = segment.reader(2, 0);
    let _others = (segment.reader(3, 1), segment.reader(4, 2));
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    segment.kill(2, first);
    let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
    let WaitError::PeerDead(dead) = error else { panic!("{error}") };
    assert_eq!((dead.stage.as_str(), dead.pid), ("first", 1002));
}

/// Each event of a stream is counted once, even if the stream had several producers one after the
/// other.
#[test]
fn producers_count_their_own_events() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(8, 5, vec![stage("only", &[], OnDeath::Wait)]);
    let mut reader = segment.reader(9, 0);
    for number in 1..4 {
        let mut tx = segment.producer(number);
        (0..2).for_each(|_| _ = tx.publish(|slot| *slot = 0).unwrap());
        // The ring is full, so the producer waits, and flushes its counts.
        (0..6).for_each(|_| _ = tx.publish(|slot| *slot = 0).unwrap());
        tx.publish_by(std::time::Instant::now(), |_| ()).unwrap_err();
        segment.kill(number, tx);
        segment.bury(number);
        reader.poll(usize::MAX, |_, _| ()).unwrap();
        let report = segment.attach(20).report();
        assert_eq!(report.stages.last().unwrap().events, u64::from(number) * 8);
    }
}

#[test]
fn a_declaration_without_a_stage_is_refused() {
    let none = Declaration {
        stages: Vec::new(),
        ..Segment::new(4, 0, vec![stage("a", &[], OnDeath::Wait)]).declaration.clone()
    };
    let error = none.needs::<u64>().unwrap_err();
    assert!(matches!(&error, BuildError::Declaration { problem } if problem.contains("a stage")));
    let ahead = Declaration { stages: vec![stage("a", &[7], OnDeath::Wait)], ..none };
    assert!(ahead.needs::<u64>().is_err());
}
