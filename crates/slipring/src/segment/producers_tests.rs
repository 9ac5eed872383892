//! Tests of rings in which several processes produce.

use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use super::for_tests::{Segment, stage};
use super::handles_for_tests::{SegmentReader, SegmentSharedProducer};
use super::zeroed::Memory;
use super::*;
use crate::errors::{BatchError, ClaimError, PassError, WaitError};
use crate::ring::stamp::MAX_RUN;
use crate::tasks_in_tests::block_on_counting;
use crate::{Conflator, errors::Cause};

fn only() -> Vec<StageDeclaration> {
    vec![stage("only", &[], OnDeath::Wait)]
}

fn followed() -> Vec<StageDeclaration> {
    vec![stage("first", &[], OnDeath::Wait), stage("later", &[0], OnDeath::Wait)]
}

/// Makes a segment with two producers whose deaths no call reports. The other processes only give
/// up a dead producer's claim.
fn two(capacity: usize, start: u64, stages: Vec<StageDeclaration>) -> Segment {
    Segment::shared(capacity, start, stages, 2, OnDeath::Wait)
}

impl Segment {
    /// Attaches a producer, at the first free seat of the producers.
    pub(super) fn shared_producer(&self, number: u32) -> SegmentSharedProducer<u64> {
        let ring = self.attach(number);
        let mut seats = ring.seats_of(ring.producer_party());
        let seat = seats.find(|&seat| ring.seat(seat).take(number).is_ok()).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.shared_producer(seat) }
    }
}

/// Takes all events that are there.
fn take(reader: &mut SegmentReader<u64>) -> Vec<u64> {
    let mut seen = Vec::new();
    while reader.poll(usize::MAX, |event, _| seen.push(*event)).unwrap_or(0) != 0 {}
    seen
}

/// Two processes claim in turn, over several laps, at positions that wrap, and at positions where
/// producers refresh all stamps.
#[test]
fn two_processes_claim_by_turns() {
    let _watched = crate::watchdog::watched();
    for start in [0, 5, u64::MAX - 9, (1 << 46) - 9, (1 << 47) - 9] {
        let segment = two(4, start, only());
        let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
        let mut reader = segment.reader(3, 0);
        for round in 0..16u64 {
            let at = start.wrapping_add(3 * round);
            assert_eq!(one.publish(|slot| *slot = 10 * round).unwrap(), at);
            let mut claim = other.claim_n(2).unwrap();
            (claim[0], claim[1]) = (10 * round + 1, 10 * round + 2);
            assert_eq!(claim.publish(), at.wrapping_add(1));
            assert_eq!((one.remaining(), other.remaining()), (1, 1));
            let expected: Vec<u64> = (10 * round..10 * round + 3).collect();
            assert_eq!(take(&mut reader), expected, "{start}");
        }
    }
}

/// A handle that has not claimed for many laps learns the position from the claim word.
#[test]
fn a_lapped_handle_claims_where_the_others_stopped() {
    let _watched = crate::watchdog::watched();
    let segment = two(4, 0, only());
    let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    for lapped in [1, 2, 3, 4, 5, 7, 9, 50] {
        one.publish(|_| ()).unwrap();
        take(&mut reader);
        for sent in 0..lapped {
            let len = 1 + sent % 3;
            other.claim_n(len).unwrap().publish();
            take(&mut reader);
        }
        let next = reader.next_seq();
        assert_eq!(one.publish(|_| ()).unwrap(), next, "{lapped}");
        take(&mut reader);
    }
}

#[test]
fn a_full_ring_gates_all_producers() {
    let _watched = crate::watchdog::watched();
    let segment = two(2, 0, only());
    let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    one.publish(|slot| *slot = 0).unwrap();
    other.publish(|slot| *slot = 1).unwrap();
    for tx in [&mut one, &mut other] {
        assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
        let late = tx.publish_by(Instant::now(), |_| ());
        assert!(matches!(late, Err(ClaimError::TimedOut(_))));
        assert_eq!(tx.publish_or_drop(|_| ()).unwrap(), None);
    }
    let mut reader = segment.reader(3, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || one.publish(|slot| *slot = 2).unwrap());
        scope.spawn(move || other.publish(|slot| *slot = 2).unwrap());
        let mut seen = Vec::new();
        assert_eq!(reader.for_each(|event, _| seen.push(*event)).unwrap(), 4);
        assert_eq!(seen, [0, 1, 2, 2]);
    });
}

/// Tests all ways to publish a claim, to publish a part of it, and to give it up.
#[test]
fn fronts_are_published_and_rests_given_up() {
    let _watched = crate::watchdog::watched();
    let segment = two(8, 3, followed());
    let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    let (mut first, mut later) = (segment.reader(3, 0), segment.reader(4, 1));
    let mut expect = |expected: &[u64]| {
        assert_eq!((take(&mut first), take(&mut later)), (expected.to_vec(), expected.to_vec()));
    };
    assert_eq!(one.publish_all(0..3, |slot, i| *slot = i).unwrap(), 3);
    expect(&[0, 1, 2]);
    // The last batch has only two events: the call publishes these two slots of its claim, and
    // gives up the third.
    assert_eq!(other.publish_batches(3, 3..8, |slot, i| *slot = i).unwrap(), 5);
    expect(&[3, 4, 5, 6, 7]);
    drop(one.claim_n(4).unwrap());
    std::mem::forget(one.claim_n(3).unwrap());
    other.publish(|slot| *slot = 9).unwrap();
    expect(&[]);
    assert_eq!(one.publish(|slot| *slot = 10).unwrap(), 3 + 3 + 6 + 4 + 3 + 1);
    expect(&[9, 10]);
    // A raw claim can be published piece by piece, and each piece becomes visible at once.
    let mut raw = one.into_raw();
    let seq = raw.next_n(5).unwrap();
    (0..5).for_each(|i| *raw.at_mut(seq + i).unwrap() = 20 + i);
    other.publish(|slot| *slot = 30).unwrap();
    expect(&[]);
    raw.done(seq + 1).unwrap();
    expect(&[20, 21]);
    raw.done(seq + 2).unwrap();
    expect(&[22]);
    raw.give_up();
    expect(&[30]);
    let mut one = raw.into_inner();
    assert_eq!(one.next_seq(), seq + 5);
    let mut prices = Conflator::new(&mut one, 4, |slot, _: &u8, value| *slot = value).unwrap();
    (0..3).for_each(|value| _ = prices.send(1, value).unwrap());
    prices.finish().unwrap();
    let polled = std::task::Context::from_waker(std::task::Waker::noop());
    let mut polled = polled;
    let mut publish = one.publish_async(|slot| *slot = 40);
    assert!(std::future::Future::poll(std::pin::Pin::new(&mut publish), &mut polled).is_ready());
    drop(publish);
    expect(&[0, 1, 2, 40]);
    drop((one, other));
    assert!(matches!(first.batch(1), Err(WaitError::Closed)));
    assert!(matches!(later.batch(1), Err(WaitError::Closed)));
    drop((first, later)); // and tell what they have counted
    let report = segment.attach(9).report();
    assert_eq!(report.stages[0].tombstones, 1 + 4 + 3 + 2);
}

/// Tests a claim of several runs that is published, published in part, given up, or left by a dead
/// producer.
#[test]
fn claims_longer_than_a_run() {
    let _watched = crate::watchdog::watched();
    if cfg!(miri) {
        return; // too many slots
    }
    let len = (2 * MAX_RUN + 70) as usize;
    let segment = two(1 << 17, 0, only());
    let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    let mut polled = |most: usize| {
        let mut seen = 0;
        while reader.poll(most, |event, at| assert_eq!(*event, at.seq)).unwrap() != 0 {
            seen = reader.next_seq();
        }
        seen
    };
    let mut end = 0;
    for round in 0..3u64 {
        let mut claim = one.claim_n(len).unwrap();
        claim.iter_mut().zip(end..).for_each(|(slot, seq)| *slot = seq);
        assert_eq!(claim.publish(), end);
        end += len as u64;
        assert_eq!(other.publish(|slot| *slot = end).unwrap(), end);
        end += 1;
        assert_eq!(polled(1000), end, "{round}");
        let mut raw = one.into_raw();
        assert_eq!(raw.next_n(len).unwrap(), end);
        let front = MAX_RUN + 5;
        (end..end + front).for_each(|seq| *raw.at_mut(seq).unwrap() = seq);
        raw.done(end + front - 1).unwrap();
        assert_eq!(polled(100_000), end + front);
        one = raw.into_inner();
        end += len as u64;
    }
    assert_eq!(other.publish(|slot| *slot = end).unwrap(), end);
    std::mem::forget(other.claim_n(len).unwrap());
    segment.kill(2, other);
    let after = one.publish(|slot| *slot = end + 1 + len as u64).unwrap();
    assert_eq!(after, end + 1 + len as u64);
    assert_eq!(reader.batch(10).unwrap().len(), 1);
    reader.poll(1, |_, _| ()).unwrap();
    assert_eq!(reader.batch(1).unwrap().first_seq(), after, "the dead one's claim is passed over");
}

/// A producer dies with a claim. A stage that waits at the claim gives it up, and continues with
/// the events of the other producer.
#[test]
fn a_waiting_stage_gives_up_the_claim_of_a_dead_producer() {
    let _watched = crate::watchdog::watched();
    for front in [0, 1, 2] {
        let segment = two(8, 0, followed());
        let (dying, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
        let (mut first, mut later) = (segment.reader(3, 0), segment.reader(4, 1));
        let mut raw = dying.into_raw();
        let seq = raw.next_n(3).unwrap();
        if front != 0 {
            raw.done(seq + front - 1).unwrap();
        }
        other.publish(|slot| *slot = 7).unwrap();
        segment.kill(1, raw);
        assert_eq!(first.poll(8, |_, _| ()).unwrap() as u64, front);
        assert_eq!(first.batch(1).unwrap()[0], 7);
        first.poll(1, |_, _| ()).unwrap();
        assert_eq!(later.poll(8, |_, _| ()).unwrap() as u64, front + 1);
        // The seat is free for another process, and the death is counted.
        let next = segment.shared_producer(5);
        assert_eq!(segment.attach(9).seat(2).deaths(), 1);
        drop((next, other));
        assert!(matches!(first.batch(1), Err(WaitError::Closed)));
    }
}

/// A producer that waits for room recovers a dead producer, and so does a loop of calls that do not
/// wait.
#[test]
fn a_waiting_producer_gives_up_the_claim_of_a_dead_one() {
    let _watched = crate::watchdog::watched();
    let segment = two(2, 0, only());
    let (mut dying, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    std::mem::forget(dying.claim().unwrap());
    segment.kill(1, dying);
    other.publish(|slot| *slot = 7).unwrap();
    let late = other.publish_by(Instant::now() + Duration::from_millis(20), |_| ());
    assert!(matches!(late, Err(ClaimError::TimedOut(_))));
    assert_eq!(segment.attach(9).seat(1).owner(), None, "the dead one's seat is free");
    let mut reader = segment.reader(3, 0);
    assert_eq!(take(&mut reader), [7]);
    let mut dying = segment.shared_producer(4);
    std::mem::forget(dying.claim().unwrap());
    segment.kill(4, dying);
    other.publish(|slot| *slot = 8).unwrap();
    while segment.attach(9).seat(1).owner().is_some() {
        assert!(matches!(other.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
    }
    assert_eq!(take(&mut reader), [8]);
}

/// Depending on the segment's declaration, the stages' calls return the death of the last living
/// producer, or the graph fails.
#[test]
fn the_death_of_the_last_producer_is_told_or_fails() {
    let _watched = crate::watchdog::watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let segment = Segment::shared(4, 0, only(), 2, on_death);
        let (one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
        let mut reader = segment.reader(3, 0);
        segment.kill(1, one);
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(matches!(reader.batch_by(1, soon), Err(BatchError::TimedOut(_))));
        assert_eq!(segment.attach(9).seat(1).deaths(), 1);
        std::mem::forget(other.claim().unwrap());
        segment.kill(2, other);
        match (on_death, reader.batch(1).map(|_| ()).unwrap_err()) {
            (OnDeath::Tell, WaitError::PeerDead(dead)) => {
                assert_eq!((dead.stage.as_str(), dead.pid), (crate::stages::PRODUCER, 1002));
                let again = reader.batch(1).map(|_| ()).unwrap_err();
                assert!(matches!(again, WaitError::PeerDead(_)), "{again}");
                let mut next = segment.shared_producer(4);
                next.publish(|slot| *slot = 7).unwrap();
                assert_eq!(reader.batch(1).unwrap()[0], 7);
            }
            (OnDeath::Fail, WaitError::Failed(failure)) => {
                assert!(matches!(failure.cause(), Cause::Died { pid: 1002 }), "{failure}");
            }
            (_, error) => panic!("{on_death:?}: {error}"),
        }
    }
}

/// A ring can close without room, and while claims are open. These claims can still be published.
#[test]
fn a_close_needs_no_room() {
    let _watched = crate::watchdog::watched();
    let segment = two(2, 0, followed());
    let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    one.publish(|slot| *slot = 0).unwrap();
    let mut open = other.claim().unwrap();
    one.close_all();
    let (mut first, mut later) = (segment.reader(3, 0), segment.reader(4, 1));
    assert_eq!(take(&mut first), [0]);
    assert!(matches!(first.try_batch(1), Err(BatchError::Unavailable)), "a claim is open");
    *open = 1;
    open.publish();
    for attempt in [other.try_publish(|_| ()), other.publish_by(Instant::now(), |_| ())] {
        assert!(matches!(attempt, Err(ClaimError::Wait(WaitError::Closed))));
    }
    assert!(matches!(other.publish(|_| ()), Err(WaitError::Closed)));
    assert_eq!(first.for_each(|_, _| ()).unwrap(), 1);
    assert_eq!(later.for_each(|_, _| ()).unwrap(), 2);
    drop(first); // and tells what it has counted
    assert_eq!(segment.attach(9).report().stages[0].events, 2);
}

/// No producer will publish the awaited position, although no stage has found the ring's end yet.
#[test]
fn a_close_ends_the_wait_for_a_position_that_is_never_published() {
    let _watched = crate::watchdog::watched();
    for as_task in [false, true] {
        let segment = two(8, u64::MAX, followed());
        let (one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
        let _readers = (segment.reader(3, 0), segment.reader(4, 1));
        let last = other.publish(|slot| *slot = 0).unwrap();
        let seq = last.wrapping_add(1);
        let waiting = std::thread::spawn(move || {
            let result = match as_task {
                false => other.wait_for("first", seq),
                true => block_on_counting(other.wait_for_async("first", seq)).0,
            };
            (result, other)
        });
        std::thread::sleep(Duration::from_millis(5));
        one.close_all();
        let (result, mut other) = waiting.join().unwrap();
        assert!(
            matches!(result, Err(PassError::NotPublished { seq, end }) if (seq, end) == (0, 0)),
            "{result:?}"
        );
        let soon = Instant::now() + Duration::from_millis(5);
        let late = other.wait_for_by("first", last, soon);
        assert!(matches!(late, Err(PassError::TimedOut(_))), "{late:?}");
    }
}

/// If a producer waits for room, its call returns when the ring closes.
#[test]
fn a_close_ends_the_wait_of_a_producer() {
    let _watched = crate::watchdog::watched();
    let segment = two(2, 0, only());
    let (one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    (0..2).for_each(|i| _ = other.publish(|slot| *slot = i).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.publish(|_| ()));
        std::thread::sleep(Duration::from_millis(5));
        one.close_all();
        assert!(matches!(waiting.join().unwrap(), Err(WaitError::Closed)));
    });
    assert_eq!(segment.reader(3, 0).for_each(|_, _| ()).unwrap(), 2);
}

/// The last producer that leaves closes the ring, even if another producer died before. A producer
/// that dies does not close it.
#[test]
fn the_last_producer_that_leaves_closes() {
    let _watched = crate::watchdog::watched();
    // `dies`: the first producer dies instead of leaving. `first`: it ends, in either way, before
    // the other producer leaves.
    for (dies, first) in [(false, true), (true, true), (true, false)] {
        let segment = two(4, 0, only());
        let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
        let mut reader = segment.reader(3, 0);
        one.publish(|slot| *slot = 0).unwrap();
        other.publish(|slot| *slot = 1).unwrap();
        let ends = |one: SegmentSharedProducer<u64>| match dies {
            true => segment.kill(1, one),
            false => drop(one),
        };
        if first {
            ends(one);
            assert!(!segment.attach(9).is_over());
            drop(other);
        } else {
            drop(other);
            ends(one);
        }
        assert_eq!(take(&mut reader), [0, 1]);
        let soon = Instant::now() + Duration::from_millis(20);
        let ended = reader.batch_by(1, soon).map(|_| ()).unwrap_err();
        if first {
            assert!(matches!(ended, BatchError::Wait(WaitError::Closed)), "{dies}: {ended}");
        } else {
            assert!(matches!(ended, BatchError::TimedOut(_)), "{dies}: {ended}");
            drop(segment.shared_producer(5));
            assert!(matches!(reader.batch(1), Err(WaitError::Closed)));
        }
    }
}

/// A panic leaves the place to another process, and the claim is given up.
#[test]
fn a_panic_leaves_the_place_of_one_of_several() {
    let _watched = crate::watchdog::watched();
    let segment = two(8, 0, only());
    let mut reader = segment.reader(3, 0);
    let mut tx = segment.shared_producer(1);
    let panics = std::thread::spawn(move || {
        tx.publish(|slot| *slot = 1).unwrap();
        tx.publish_batches(3, 0..2, |_, i| assert!(i == 0, "while it fills")).unwrap();
    });
    panics.join().unwrap_err();
    assert_eq!(take(&mut reader), [1]);
    let mut tx = segment.shared_producer(2);
    assert_eq!(tx.publish(|slot| *slot = 2).unwrap(), 4);
    assert_eq!(take(&mut reader), [2]);
    drop(tx);
    assert!(matches!(reader.batch(1), Err(WaitError::Closed)));
}

/// A stage's successor in another process may have to begin in the middle of a run or of a
/// tombstone.
#[test]
fn a_stage_goes_on_among_runs_and_tombstones() {
    let _watched = crate::watchdog::watched();
    for taken in 0..8 {
        for held in 0..8 - taken {
            let segment = two(16, 0, followed());
            let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
            let mut claim = |len: usize, live: bool, first: u64| {
                let mut claim = one.claim_n(len).unwrap();
                claim.iter_mut().zip(first..).for_each(|(slot, value)| *slot = value);
                if live { _ = claim.publish() } else { drop(claim) }
            };
            claim(3, true, 0);
            claim(2, false, 100);
            claim(3, true, 3);
            drop(other.claim().unwrap());
            other.publish(|slot| *slot = 6).unwrap();
            other.publish(|slot| *slot = 7).unwrap();
            for stage in 0..2 {
                let mut first = segment.reader(3, 0);
                if stage == 1 {
                    take(&mut first);
                }
                let mut dying = if stage == 0 { first } else { segment.reader(4, 1) };
                let mut seen = Vec::new();
                while seen.len() < taken {
                    let max = taken - seen.len();
                    dying.poll(max, |event, _| seen.push(*event)).unwrap();
                }
                dying.try_batch(held).map(|_| ()).unwrap(); // lent, and not released
                let number = 3 + stage as u32;
                segment.kill(number, dying);
                segment.bury(number);
                let mut next = segment.reader(number, stage);
                seen.extend(take(&mut next));
                assert_eq!(seen, (0..8).collect::<Vec<_>>(), "{taken}, {held}, {stage}");
                drop(next);
            }
        }
    }
}

/// Three processes publish at once, one of them is killed again and again, and nothing is lost.
#[test]
fn nothing_is_lost_among_several_producers() {
    let _watched = crate::watchdog::watched();
    let each = if cfg!(miri) { 20 } else { 2_000 };
    let segment = Segment::shared(8, 0, followed(), 3, OnDeath::Wait);
    let (mut first, mut later) = (segment.reader(10, 0), segment.reader(11, 1));
    let segment = &segment;
    let producers: Vec<_> = (1..4).map(|number| segment.shared_producer(number)).collect();
    std::thread::scope(|scope| {
        for (by, mut tx) in (0..3u64).zip(producers) {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(by);
                let mut sent = 0;
                while sent < each {
                    let len = random.usize(1..4).min((each - sent) as usize);
                    let mut claim = tx.claim_n(len).unwrap();
                    if random.u8(..4) == 0 {
                        continue;
                    }
                    claim.iter_mut().for_each(|slot| {
                        *slot = by << 32 | sent;
                        sent += 1;
                    });
                    claim.publish();
                }
            });
        }
        for reader in [&mut first, &mut later] {
            scope.spawn(move || {
                let mut next = [0u64; 3];
                let seen = reader.for_each(|event, _| {
                    let (by, sent) = ((event >> 32) as usize, event & 0xFFFF_FFFF);
                    assert_eq!(next[by], sent);
                    next[by] += 1;
                });
                assert_eq!(seen.unwrap(), 3 * each);
            });
        }
    });
}

/// Whatever the words of a segment with several producers hold, no call panics, leaves its bounds
/// or runs for ever.
#[test]
fn random_words_are_an_error_at_most_for_several_producers() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 400 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let segment = Segment::shared(4, 0, followed(), 3, OnDeath::Tell);
        let ring = segment.attach(1);
        let mut one = segment.shared_producer(2);
        let mut other = segment.shared_producer(3);
        let (mut first, mut later) = (segment.reader(4, 0), segment.reader(5, 1));
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let words = memory.bytes.size() / 8;
        // For about half of the seeds, the test changes only the slots and the seats, and stores
        // words that are nearly right.
        let near = random.bool();
        for _ in 0..20 {
            for _ in 0..random.usize(1..if near { 8 } else { words }) {
                let (at, value) = if near {
                    let slots = [segment.areas.stamps, segment.areas.seats][random.usize(..2)];
                    // SAFETY: the word lies in the slots, or in the seats.
                    let at = unsafe { slots.cast::<AtomicU64>().add(random.usize(..8)) };
                    let low = [0, random.u64(..5), 1 << 17 | random.u64(..4), 1 << 16 | 1];
                    let seq = random.u64(..20);
                    let value = (seq / 4 + 1) << 18 | low[random.usize(..4)];
                    (at, if random.bool() { value } else { seq })
                } else {
                    // SAFETY: the word lies in the memory.
                    let at = unsafe { memory.first.cast::<AtomicU64>().add(random.usize(..words)) };
                    (at, random.u64(..) >> random.u32(..64))
                };
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
            for tx in [&mut one, &mut other] {
                let _ = tx.try_publish(|slot| *slot = 1);
                let _ = tx.publish_by(Instant::now(), |slot| *slot = 1);
                let _ = tx.try_claim_n(3).map(drop);
                let _ = tx.try_claim_n(2).map(std::mem::forget);
                let _ = (tx.remaining(), tx.publish_or_drop(|_| ()));
            }
            let _ = first.try_batch(9).map(|batch| batch.iter().sum::<u64>());
            let _ = first.poll(3, |_, _| ());
            let _ = later.poll(9, |_, _| ());
            let _ = later.batch_by(1, Instant::now()).map(|batch| batch.release());
            let _ = first.batch_by(1, Instant::now()).map(|batch| batch.release());
            let _ = (ring.report(), ring.position(1), ring.is_over(), ring.seat(2).owner());
            (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, 2 + random.u32(..6)));
            let number = 5 + random.u32(..40);
            let ring = segment.attach(number);
            if ring.seat(0).take(number).is_ok() {
                // SAFETY: the seat was taken; the other handle of the stage is not used meanwhile.
                let mut another = unsafe { ring.reader(0) };
                let _ = another.poll(2, |_, _| ());
            }
            // SAFETY: as above.
            let mut another = unsafe { ring.shared_producer(3) };
            let _ = another.try_publish(|slot| *slot = 2);
        }
    }
}

/// A handler publishes into its own ring, and begins to wait for slots that another process's stage
/// holds. The other producer takes these slots as they become free, until the handler's own stage
/// holds the next slot.
#[test]
fn a_handler_whose_awaited_slot_moves_on_hears_that_it_waits_for_itself() {
    let _watched = crate::watchdog::watched();
    let segment = two(8, 0, followed());
    let ring = segment.attach(1);
    let (first, producers) = (ring.seats_of(0).start, ring.seats_of(ring.producer_party()).start);
    [first, producers].iter().for_each(|&seat| ring.seat(seat).take(1).unwrap());
    // SAFETY: the seats were taken.
    let (mut reader, own) = unsafe { (ring.reader(0), ring.shared_producer(producers)) };
    let (mut other, mut later) = (segment.shared_producer(2), segment.reader(3, 1));
    (0..4).for_each(|_| _ = other.publish(|_| ()).unwrap());
    assert_eq!(reader.poll(4, |_, _| ()).unwrap(), 4);
    (0..4).for_each(|_| _ = other.publish(|_| ()).unwrap());
    let waits = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while waits.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            // The sleep is long enough for the handler to begin its wait.
            std::thread::sleep(Duration::from_millis(20));
            for _ in 0..4 {
                assert_eq!(later.poll(1, |_, _| ()).unwrap(), 1);
                _ = other.try_publish(|_| ());
            }
            other.close();
            later.for_each(|_, _| ()).unwrap();
        });
        let (mut own, mut told) = (Some(own), None);
        reader
            .for_each(|_, _| {
                // The handler's producer is dropped, so that the ring closes.
                let Some(mut own) = own.take() else { return };
                waits.store(1, Ordering::Release);
                while told.is_none() {
                    told = own.publish(|_| ()).err();
                }
            })
            .unwrap();
        let told = told.unwrap();
        assert!(matches!(&told, WaitError::WaitsForItself(it) if it.as_str() == "first"), "{told}");
    });
}
