//! Tests of taps whose members are processes that come, go and die.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::for_tests::{Segment, stage};
use super::handles_for_tests::SegmentSubscription;
use super::zeroed::Memory;
use super::*;
use crate::errors::{BatchError, ClaimError, SubscribeError, WaitError};
use crate::live::tap::StartAt;
use crate::ring::stage::CURSOR_LINE;

/// Returns a tap, for which `OnDeath` has no effect.
fn tap(name: &str, room: usize, after: &[usize]) -> StageDeclaration {
    let delivery = StageDelivery::Tap(room);
    StageDeclaration { delivery, ..stage(name, after, OnDeath::Fail) }
}

fn writer(name: &str, after: &[usize]) -> StageDeclaration {
    StageDeclaration { writes: true, ..stage(name, after, OnDeath::Wait) }
}

/// Returns a stage, and a tap behind it with room for two readers.
fn behind_a_stage() -> Vec<StageDeclaration> {
    vec![stage("first", &[], OnDeath::Wait), tap("tap", 2, &[0])]
}

impl Segment {
    /// Attaches a member of the tap with this index.
    fn member(&self, number: u32, tap: usize, start: StartAt) -> SegmentSubscription<u64> {
        self.attach(number).subscribe(tap, start).unwrap()
    }

    /// Returns the seat of a tap's member.
    fn unread(&self, tap: usize, seat: usize) -> (u32, u64) {
        let ring = self.attach(59);
        let seat = ring.seat(ring.seats_of(tap).start + seat);
        (seat.deaths(), seat.unread())
    }
}

/// Handles all available events, and asserts that each value is the event's position plus `add`.
/// Returns the number of events, which is 0 if the stream is closed.
fn read(member: &mut SegmentSubscription<u64>, add: u64) -> u64 {
    let mut next = member.next_seq();
    let handle = |event: &u64, at: crate::At| {
        assert_eq!((*event, at.seq), (next.wrapping_add(add), next));
        next = next.wrapping_add(1);
    };
    match member.poll(usize::MAX, handle) {
        Err(WaitError::Closed) => 0,
        handled => handled.unwrap() as u64,
    }
}

fn publish(tx: &mut SegmentProducer<u64>, count: u64) {
    (0..count).for_each(|_| {
        let mut slot = tx.claim().unwrap();
        *slot = slot.seq();
        slot.publish();
    });
}

/// Members join at the position that they ask for, read each event once, and leave, by themselves
/// or on request.
#[test]
fn members_of_other_processes_join_and_leave() {
    let _watched = crate::watchdog::watched();
    for start in [0, 5, u64::MAX - 5, (1 << 63) - 5] {
        let at = |count: u64| start.wrapping_add(count);
        let segment = Segment::new(4, start, behind_a_stage());
        let (mut tx, mut first) = (segment.producer(1), segment.reader(2, 0));
        publish(&mut tx, 3);
        first.poll(2, |_, _| ()).unwrap();
        let mut now = segment.member(3, 1, StartAt::Now);
        assert_eq!(now.next_seq(), at(2));
        let mut oldest = segment.member(4, 1, StartAt::Oldest);
        assert_eq!((oldest.next_seq(), oldest.stage().as_str()), (at(0), "tap"));
        let full = segment.attach(5).subscribe(1, StartAt::Now);
        assert!(matches!(full, Err(SubscribeError::Full { room: 2 })));
        assert_eq!((read(&mut now, 0), read(&mut oldest, 0)), (0, 2));
        first.poll(1, |_, _| ()).unwrap();
        assert_eq!((read(&mut now, 0), read(&mut oldest, 0)), (1, 1));
        drop(oldest);
        publish(&mut tx, 4);
        first.poll(4, |_, _| ()).unwrap();
        let ahead = segment.attach(5).subscribe(1, StartAt::At(at(8)));
        assert!(matches!(ahead, Err(SubscribeError::NotYet { .. })));
        let lost = segment.attach(5).subscribe(1, StartAt::At(at(2)));
        assert!(matches!(lost, Err(SubscribeError::Overwritten { .. })));
        let mut again = segment.member(4, 1, StartAt::At(at(5)));
        assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
        assert_eq!((read(&mut now, 0), read(&mut again, 0)), (4, 2));
        publish(&mut tx, 1);
        let leaver = now.leave_handle();
        assert!(leaver.leave() && !leaver.leave());
        assert!(matches!(now.batch(1), Err(WaitError::Left)));
        now.leave();
        first.poll(1, |_, _| ()).unwrap();
        assert_eq!(read(&mut again, 0), 1);
        drop(tx);
        assert!(matches!(again.batch(1), Err(WaitError::Closed)));
        drop(again);
        let report = segment.attach(9).report();
        assert_eq!(report.stages[1].events, 2 + 1 + 1 + 4 + 2 + 1);
    }
}

/// A member dies with unread events. The producer, which waits for the member, removes it, and
/// another process takes its seat.
#[test]
fn a_waiting_producer_removes_a_dead_member() {
    let _watched = crate::watchdog::watched();
    for waits in [false, true] {
        let segment = Segment::new(4, 0, behind_a_stage());
        let (mut tx, mut first) = (segment.producer(1), segment.reader(2, 0));
        let mut dying = segment.member(3, 1, StartAt::Now);
        let mut other = segment.member(4, 1, StartAt::Now);
        publish(&mut tx, 4);
        first.poll(4, |_, _| ()).unwrap();
        assert_eq!(read(&mut other, 0), 4);
        dying.poll(1, |_, _| ()).unwrap();
        let asked = dying.leave_handle();
        segment.kill(3, dying);
        publish(&mut tx, 1);
        if waits {
            publish(&mut tx, 1);
        } else {
            // A loop of calls that do not wait checks for dead processes, too.
            while tx.try_publish(|slot| *slot = 5).is_err() {}
        }
        assert_eq!(segment.unread(1, 0), (1, 3));
        assert!(!asked.leave(), "the seat is not the dead member's any more");
        let held = segment.attach(9).seat(2).owner();
        assert_eq!(held, Some(4), "the seat of the living member");
        // The seat is free again, and no longer holds the previous member's unread count.
        let mut next = segment.member(5, 1, StartAt::Now);
        assert_eq!((next.next_seq(), segment.unread(1, 0)), (4, (1, 0)));
        first.poll(4, |_, _| ()).unwrap();
        assert_eq!((read(&mut other, 0), read(&mut next, 0)), (2, 2));
    }
}

/// A stage behind the tap removes a dead member, and can then change the events that the member had
/// not read.
#[test]
fn a_waiting_stage_removes_a_dead_member() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(4, 0, vec![tap("tap", 3, &[]), writer("change", &[0])]);
    let mut tx = segment.producer(1);
    let ring = segment.attach(2);
    ring.seat(3).take(2).unwrap();
    // SAFETY: the seat was taken. The stage writes.
    let mut change = unsafe { ring.updater(1) };
    let members = [3, 4].map(|number| segment.member(number, 0, StartAt::Now));
    publish(&mut tx, 3);
    for (number, member) in [3, 4].into_iter().zip(members) {
        assert!(matches!(change.try_batch(1), Err(BatchError::Unavailable)));
        segment.kill(number, member);
    }
    // Both dead members are removed at once.
    assert_eq!(change.batch(4).unwrap().len(), 3);
    assert_eq!((segment.unread(0, 0), segment.unread(0, 1)), ((1, 3), (1, 3)));
    assert_eq!(segment.unread(0, 2), (0, 0));
}

/// If a dead member has read all events, its unread count is zero. A dead process may also have
/// been a member of several taps, and more than once.
#[test]
fn a_process_may_be_several_members() {
    let _watched = crate::watchdog::watched();
    let stages = vec![tap("one", 2, &[]), tap("two", 2, &[]), stage("all", &[], OnDeath::Wait)];
    let segment = Segment::new(4, 0, stages);
    let (mut tx, mut all) = (segment.producer(1), segment.reader(2, 2));
    let ring = segment.attach(3);
    let mut members: Vec<_> =
        [0, 0, 1].iter().map(|&tap| ring.subscribe(tap, StartAt::Now).unwrap()).collect();
    publish(&mut tx, 4);
    all.poll(4, |_, _| ()).unwrap();
    assert_eq!(read(&mut members[0], 0), 4);
    assert_eq!(members[1].try_batch(2).unwrap().len(), 2); // lent, and not released
    members[2].poll(3, |_, _| ()).unwrap();
    segment.kill(3, members);
    publish(&mut tx, 4);
    let unread = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(tap, seat)| segment.unread(tap, seat));
    assert_eq!(unread, [(1, 0), (1, 4), (1, 1), (0, 0)]);
}

/// A process that dies before it has pinned a position leaves a taken seat, and holds up no party.
#[test]
fn a_joiner_that_dies_early_leaves_a_seat() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, behind_a_stage());
    let (mut tx, mut first) = (segment.producer(1), segment.reader(2, 0));
    let ring = segment.attach(3);
    ring.seat(1).take(3).unwrap();
    segment.kill(3, ());
    publish(&mut tx, 2);
    first.poll(2, |_, _| ()).unwrap();
    publish(&mut tx, 2);
    assert_eq!(ring.seat(1).owner(), Some(3), "the producer did not wait");
    segment.bury(3);
    assert_eq!((ring.seat(1).owner(), segment.unread(1, 0)), (None, (1, 0)));
}

/// The recovery of a dead member leaves the next owner of its seat alone.
#[test]
fn a_late_recovery_leaves_the_next_member_alone() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, behind_a_stage());
    let (mut tx, mut first) = (segment.producer(1), segment.reader(2, 0));
    segment.kill(3, segment.member(3, 1, StartAt::Now));
    segment.bury(3);
    let mut next = segment.member(4, 1, StartAt::Now);
    publish(&mut tx, 2);
    first.poll(2, |_, _| ()).unwrap();
    segment.dead.recover(3, &mut || panic!("the participant was recovered"));
    let ring = segment.attach(9);
    (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, 3));
    assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
    assert_eq!(read(&mut next, 0), 2);
}

/// A segment may have no stages except taps. If these have no members, nothing gates the producer.
#[test]
fn a_segment_of_taps_alone() {
    let _watched = crate::watchdog::watched();
    for start in [0, u64::MAX - 7] {
        let segment = Segment::new(4, start, vec![tap("tap", 2, &[])]);
        let mut tx = segment.producer(1);
        publish(&mut tx, 10);
        let mut late = segment.member(2, 0, StartAt::Oldest);
        assert!(late.next_seq().wrapping_sub(start.wrapping_add(6)) <= 4);
        read(&mut late, 0);
        publish(&mut tx, 4);
        assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
        segment.kill(2, late);
        publish(&mut tx, 1);
        // The next producer continues where this producer died.
        segment.kill(1, tx);
        segment.bury(1);
        let mut tx = segment.producer(3);
        assert_eq!(tx.next_seq(), start.wrapping_add(15));
        let mut late = segment.member(2, 0, StartAt::Now);
        publish(&mut tx, 1);
        assert_eq!(read(&mut late, 0), 1);
        drop(tx);
        assert!(matches!(late.batch(1), Err(WaitError::Closed)));
        let ended = segment.attach(5).subscribe(0, StartAt::Now).unwrap().batch(1).map(drop);
        assert!(matches!(ended, Err(WaitError::Closed)));
    }
}

/// If a producer dies after it stored a stamp and before it moved the cursor, the event is
/// published. The next producer moves the cursor and notifies the members, even if it publishes
/// nothing itself.
#[test]
fn a_cursor_behind_the_stamps_is_moved() {
    let _watched = crate::watchdog::watched();
    for behind in [1, 3] {
        let segment =
            Segment::new(4, 0, vec![tap("tap", 2, &[]), stage("all", &[], OnDeath::Wait)]);
        let (mut tx, mut all) = (segment.producer(1), segment.reader(2, 1));
        let mut member = segment.member(3, 0, StartAt::Now);
        publish(&mut tx, 1);
        tx.publish_all(1..1 + behind, |slot, seq| *slot = seq).unwrap();
        segment.kill(1, tx);
        segment.bury(1);
        let ring = segment.attach(9);
        let cursor = ring.control().positions.line(CURSOR_LINE);
        assert_eq!(cursor.swap(1, Ordering::Relaxed), 1 + behind);
        assert_eq!(read(&mut member, 0), 1);
        let tx = segment.producer(4);
        assert_eq!((tx.next_seq(), read(&mut member, 0)), (1 + behind, behind));
        drop(tx);
        assert!(matches!(member.batch(1), Err(WaitError::Closed)));
        assert_eq!(all.for_each(|_, _| ()).unwrap(), 1 + behind);
    }
}

/// Several producers in a ring whose first stage is a tap: the sentinel gates them, a dead
/// producer's claim is given up, and a party behind the tap finds the end.
#[test]
fn several_producers_before_taps_alone() {
    let _watched = crate::watchdog::watched();
    for follower in [false, true] {
        let mut stages = vec![tap("tap", 2, &[])];
        stages.extend(follower.then(|| stage("behind", &[0], OnDeath::Wait)));
        let segment = Segment::shared(4, 0, stages, 2, OnDeath::Wait);
        let (mut one, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
        let mut behind = follower.then(|| segment.reader(3, 1));
        let mut member = (!follower).then(|| segment.member(4, 0, StartAt::Now));
        let mut seen = 0;
        let mut take = || {
            behind.iter_mut().for_each(|it| seen += it.poll(9, |_, _| ()).unwrap());
            member.iter_mut().for_each(|it| seen += it.poll(9, |_, _| ()).unwrap());
            seen
        };
        for count in 1..=6 {
            one.publish(|_| ()).unwrap();
            other.publish(|_| ()).unwrap();
            assert_eq!(take(), 2 * count);
        }
        std::mem::forget(one.claim_n(2).unwrap());
        segment.kill(1, one);
        other.publish(|_| ()).unwrap();
        // A call that finds nothing settles the dead producer, and then passes over its claim.
        let end = Instant::now() + Duration::from_secs(60);
        while take() != 13 {
            assert!(Instant::now() < end, "the dead one's claim is in the way");
        }
        other.publish(|_| ()).unwrap();
        drop(other);
        let ended = match (&mut behind, &mut member) {
            (Some(behind), _) => behind.for_each(|_, _| ()),
            (_, Some(member)) => member.for_each(|_, _| ()),
            _ => unreachable!(),
        };
        assert_eq!(ended.unwrap(), 1);
    }
}

/// Members and stages of living processes work while others join, read a little, and die or leave.
#[test]
fn members_come_go_and_die_beside_a_stream() {
    let _watched = crate::watchdog::watched();
    let (rounds, events) = if cfg!(miri) { (6, 60) } else { (60, 3000) };
    for many in [false, true] {
        let stages = vec![tap("tap", 3, &[]), writer("change", &[0]), tap("late", 2, &[1])];
        let producers = if many { 2 } else { 1 };
        let segment = Segment::shared(8, 0, stages, producers, OnDeath::Wait);
        std::thread::scope(|scope| {
            let (segment, change) = (&segment, segment.attach(2));
            change.seat(3).take(2).unwrap();
            // SAFETY: the seat was taken. The stage writes.
            let mut change = unsafe { change.updater(1) };
            scope.spawn(move || {
                let changed = change.for_each(|event, at| {
                    assert_eq!(*event, at.seq, "changed before");
                    *event += 1;
                });
                assert_eq!(changed.unwrap(), events);
            });
            if many {
                let mut tx = segment.shared_producer(1);
                scope.spawn(move || {
                    for _ in 0..events {
                        let mut slot = tx.claim().unwrap();
                        *slot = slot.seq();
                        slot.publish();
                    }
                });
            } else {
                let mut tx = segment.producer(1);
                scope.spawn(move || publish(&mut tx, events));
            }
            for (number, tap) in [(10, 0), (30, 2)] {
                scope.spawn(move || {
                    for round in 0..rounds {
                        let number = number + round % 16;
                        if segment.dead.is_dead(number) {
                            continue; // recovered later, or never
                        }
                        let ring = segment.attach(number);
                        let start = if round % 2 == 0 { StartAt::Oldest } else { StartAt::Now };
                        let mut member = match ring.subscribe(tap, start) {
                            Ok(member) => member,
                            Err(SubscribeError::Full { .. }) => {
                                (number - round % 16..number + 16).for_each(|dead| {
                                    let ring = segment.attach(50);
                                    let mut settle = || {
                                        (0..ring.seats())
                                            .for_each(|seat| ring.settle_seat(seat, dead))
                                    };
                                    segment.dead.recover(dead, &mut settle);
                                });
                                continue;
                            }
                            Err(error) => panic!("{error}"),
                        };
                        for _ in 0..round % 4 {
                            read(&mut member, u64::from(tap == 2));
                        }
                        if round % 3 == 0 {
                            segment.kill(number, member);
                        }
                    }
                });
            }
        });
    }
}

/// Whatever the words of a segment with taps hold, no call panics, leaves its bounds or runs for
/// ever.
#[test]
fn random_words_of_taps_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 4 } else { 400 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let stages =
            vec![tap("tap", 3, &[]), stage("behind", &[0], OnDeath::Wait), tap("late", 2, &[1])];
        let many = seed % 2 == 0;
        let segment = Segment::shared(4, 0, stages, if many { 2 } else { 1 }, OnDeath::Tell);
        let ring = segment.attach(1);
        let mut one = (!many).then(|| segment.producer(2));
        let mut two = many.then(|| segment.shared_producer(2));
        let mut behind = segment.reader(3, 1);
        let mut members =
            vec![segment.member(4, 0, StartAt::Now), segment.member(5, 2, StartAt::Now)];
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
            let now = Instant::now();
            if let Some(tx) = &mut one {
                let _ = tx.try_publish(|slot| *slot = 1);
                let _ = tx.publish_by(now, |slot| *slot = 1);
            }
            if let Some(tx) = &mut two {
                let _ = tx.try_publish(|slot| *slot = 1);
                let _ = tx.publish_by(now, |slot| *slot = 1);
            }
            let _ = behind.poll(9, |_, _| ());
            for member in &mut members {
                let _ = member.try_batch(9).map(|batch| batch.iter().sum::<u64>());
                let _ = member.batch_by(1, now).map(|batch| batch.release());
                let _ = member.leave_handle();
            }
            let _ = (ring.report(), ring.position(0), ring.position(2));
            let start = match random.u32(..3) {
                0 => StartAt::Now,
                1 => StartAt::Oldest,
                _ => StartAt::At(random.u64(..)),
            };
            if let Ok(mut member) = segment.attach(6).subscribe(random.usize(..2) * 2, start) {
                let _ = member.poll(3, |_, _| ());
            }
            let dead = random.u32(..8);
            (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
        }
    }
}

/// A tap of a segment has room for at most 64 members, because one word has a bit for each member.
#[test]
fn a_tap_of_a_segment_has_limited_room() {
    let segment = Segment::new(4, 0, vec![tap("tap", 64, &[])]);
    let ring = segment.attach(1);
    let members: Vec<_> = (0..64).map(|_| ring.subscribe(0, StartAt::Now).unwrap()).collect();
    assert!(segment.attach(2).subscribe(0, StartAt::Now).is_err());
    drop(members);
    let soon = Instant::now() + Duration::from_millis(1);
    let late = segment.member(1, 0, StartAt::Now).batch_by(1, soon).map(drop);
    assert!(matches!(late, Err(BatchError::TimedOut(_))));
    let beyond = Declaration { stages: vec![tap("wide", 65, &[])], ..segment.declaration.clone() };
    let error = beyond.needs::<u64>().unwrap_err().to_string();
    assert!(error.contains("`wide`") && error.contains("64"), "{error}");
}
