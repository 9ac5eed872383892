//! Models of taps between processes: members that die while they join, read or leave, and processes
//! that recover them. Each model uses the segment of [`processes`](super::processes).
//!
//! The models have up to three threads, on rings of one or two slots.

use std::time::Duration;

use loom::thread;

use super::mortal::lives;
use super::processes::{Segment, publish_runs};
use super::*;
use crate::live::tap::StartAt;
use crate::segment::handles_for_tests::SegmentSubscription;
use crate::segment::{Declaration, OnDeath, SegmentRing, StageDeclaration, StageDelivery};

const GATED: Caught = Caught::Message("a dead member holds events");
const MISCOUNTED: Caught = Caught::Message("members are miscounted");
/// A living member finds that it was removed.
const REMOVED: Caught = Caught::Message("a poll without waiting");
const UNREAD: Caught = Caught::Message("the unread events are counted");
const BEHIND: Caught = Caught::Message("a member is not told of an event");

/// Makes a segment with a tap for `room` members behind the producer. Behind the tap, the segment
/// has one stage for each access in `behind`.
fn tapped(capacity: usize, room: usize, behind: &[Access], wait: Wait) -> Arc<Segment> {
    let stage = |name: &str, access, delivery, after: &[usize]| StageDeclaration {
        name: name.into(),
        writes: access == Access::Write,
        delivery,
        after: after.to_vec(),
        on_death: OnDeath::Wait,
    };
    let mut stages = vec![stage("s0", Access::Read, StageDelivery::Tap(room), &[])];
    let behind = behind.iter().enumerate();
    stages.extend(
        behind.map(|(i, &access)| stage(&format!("s{}", i + 1), access, StageDelivery::Each, &[0])),
    );
    let producer_on_death = OnDeath::Wait;
    let declaration = Declaration { capacity, start: 0, stages, producers: 1, producer_on_death };
    Segment::declared(declaration, wait)
}

impl Segment {
    /// Joins the tap as the process `number`.
    fn member(&self, number: u32, start: StartAt) -> SegmentSubscription<u64> {
        self.attach(number).subscribe(0, start).expect("a free seat")
    }

    /// Settles every seat that the process `dead` left, as if this process held the proof of the
    /// death.
    fn settle_member(&self, by: u32, dead: u32) {
        let ring = self.attach(by);
        (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
    }
}

/// Reads all available events. Asserts that the first event's value is its position.
fn read(member: &mut SegmentSubscription<u64>) {
    if let Some(batch) = available(member.try_batch(4)) {
        assert_eq!(batch[0], batch.first_seq(), "another event");
        batch.release();
    }
}

fn members(ring: &SegmentRing<u64>) -> usize {
    let control = ring.control();
    control.positions.members(&control.plan.stages[0])
}

/// Asserts that the tap holds back no event before `seq`.
fn assert_free(ring: &SegmentRing<u64>, seq: u64) {
    let control = ring.control();
    let held = control.positions.held(&control.plan.stages[0], 0);
    assert!(members(ring) == 0 && held >= seq as i64, "a dead member holds events");
}

/// A process dies after its first `stores` stores, and another process recovers it. If `has_joined`
/// is set, the process reads and leaves; otherwise it joins. Another member lives on, and keeps its
/// event all the time.
fn a_member_dies(has_joined: bool, stores: usize, least: usize) {
    explore(least, Some(2), move || {
        let segment = tapped(1, 2, &[], Wait::BusySpin);
        let mut tx = segment.producer(1, 1);
        let mut lives_on = segment.member(2, StartAt::Now);
        let mut dying = has_joined.then(|| segment.member(3, StartAt::Now));
        publish_runs(&mut tx, 0, &[1], 1);
        let (ring, of_members) = (segment.attach(3), segment.clone());
        let changing = thread::spawn(move || {
            lives(stores, || match &mut dying {
                None => dying = Some(ring.subscribe(0, StartAt::Oldest).expect("a free seat")),
                Some(member) => {
                    read(member);
                    dying = None; // leaves
                }
            });
            of_members.settle_member(4, 3);
            read(&mut lives_on);
            (dying, lives_on)
        });
        publish_runs(&mut tx, 0, &[1], 1);
        let (dying, lives_on) = changing.join().unwrap();
        let ring = segment.attach(6);
        assert_eq!(members(&ring), 1, "members are miscounted");
        assert!(ring.seat(1).deaths() <= 1, "a death is counted once");
        drop((segment.member(5, StartAt::Now), lives_on));
        assert_free(&ring, 2);
        std::mem::forget(dying); // its process is dead
        drop(tx);
    });
}

#[test]
fn loom_a_member_dies_while_it_joins() {
    for stores in 0..6 {
        a_member_dies(false, stores, 10);
    }
}

#[test]
fn loom_a_member_dies_while_it_leaves() {
    for stores in 0..6 {
        a_member_dies(true, stores, 10);
    }
}

#[test]
fn loom_twin_members_counted() {
    caught("members::loom_a_member_dies_while_it_joins", "members-counted", MISCOUNTED);
}

/// A member dies with an event that it has not read. The process that recovers it dies after
/// `stores` stores. Another process completes the recovery, if anything is left to do, and a new
/// member then takes the seat.
fn a_recoverer_dies(stores: usize, least: usize) {
    explore(least, Some(2), move || {
        let segment = tapped(1, 1, &[], Wait::BusySpin);
        let mut tx = segment.producer(1, 1);
        let dead = segment.member(2, StartAt::Now);
        publish_runs(&mut tx, 0, &[1], 1);
        let recovering = segment.clone();
        let changing = thread::spawn(move || {
            lives(stores, || recovering.settle_member(3, 2));
            recovering.settle_member(4, 2);
            let ring = recovering.attach(4);
            assert_free(&ring, 1);
            assert_eq!((ring.seat(0).owner(), ring.seat(0).deaths()), (None, 1));
            assert_eq!(ring.seat(0).unread(), 1, "the unread events are counted");
            let mut next = recovering.member(5, StartAt::Oldest);
            assert_eq!(ring.seat(0).unread(), 0);
            read(&mut next);
            next
        });
        publish_runs(&mut tx, 0, &[1], 1);
        let next = changing.join().unwrap();
        std::mem::forget(dead);
        drop((next, tx));
    });
}

#[test]
fn loom_a_recoverer_of_a_member_dies() {
    for stores in 0..7 {
        a_recoverer_dies(stores, 10);
    }
}

#[test]
fn loom_twin_dead_member_freed_first() {
    caught("members::loom_a_recoverer_of_a_member_dies", "dead-member-freed-first", GATED);
}

#[test]
fn loom_twin_unread_late() {
    caught("members::loom_a_recoverer_of_a_member_dies", "unread-late", UNREAD);
}

/// Two processes recover a dead member at once, and one of them then joins in its place.
#[test]
fn loom_two_processes_recover_a_member() {
    explore(100, Some(2), || {
        let segment = tapped(1, 1, &[], Wait::BusySpin);
        let mut tx = segment.producer(1, 1);
        let dead = segment.member(2, StartAt::Now);
        publish_runs(&mut tx, 0, &[1], 1);
        segment.bytes.unlock(2);
        let recover = |segment: &Segment, by| {
            if segment.bytes.claim_dead(2) {
                segment.settle_member(by, 2);
                segment.bytes.unlock(2);
            }
        };
        let other = segment.clone();
        let other = thread::spawn(move || recover(&other, 3));
        let joining = segment.clone();
        let joining = thread::spawn(move || {
            recover(&joining, 4);
            let mut next = joining.attach(4).subscribe(0, StartAt::Oldest).ok()?;
            read(&mut next);
            Some(next)
        });
        publish_runs(&mut tx, 0, &[1, 1], 2);
        let next = joining.join().unwrap();
        other.join().unwrap();
        std::mem::forget(dead);
        drop((next, tx));
    });
}

#[test]
fn loom_twin_recovered_unlocked_of_a_member() {
    caught("members::loom_two_processes_recover_a_member", "recovered-unlocked", REMOVED);
}

#[test]
fn loom_twin_owner_assumed_of_a_member() {
    caught("members::loom_two_processes_recover_a_member", "member-assumed", REMOVED);
}

/// The producer waits for a member that dies, and removes it.
#[test]
fn loom_a_waiting_producer_removes_a_member() {
    explore(10, None, || {
        let segment = tapped(1, 1, &[], Wait::Blocking);
        let mut tx = segment.hasty_producer(1, 1);
        let dead = segment.member(2, StartAt::Now);
        tx.publish(|event| *event = 0).unwrap();
        let dying = segment.clone();
        let dying = thread::spawn(move || dying.bytes.unlock(2));
        tx.publish(|event| *event = 1).unwrap();
        dying.join().unwrap();
        assert_eq!(segment.attach(3).seat(0).unread(), 1, "the unread events are counted");
        std::mem::forget(dead);
        drop(tx);
    });
}

#[test]
fn loom_twin_dead_members_left() {
    caught(
        "members::loom_a_waiting_producer_removes_a_member",
        "dead-members-left",
        // The producer checks for deaths between any two polls, so it polls for ever instead of
        // sleeping.
        Caught::Message("exceeded maximum number of branches"),
    );
}

/// Two stages wait for a member that dies. One of them removes it, and wakes the other.
#[test]
fn loom_the_recovery_of_a_member_wakes_others() {
    explore(20, Some(2), || {
        let segment = tapped(1, 1, &[Access::Read, Access::Read], Wait::Blocking);
        let mut tx = segment.producer(1, 3);
        let dead = segment.member(2, StartAt::Now);
        tx.publish(|event| *event = 0).unwrap();
        segment.bytes.unlock(2);
        let (mut sleeper, hasty) = (segment.reader(3, 1), segment.attach_with(4, Duration::ZERO));
        hasty.seat(2).take(4).unwrap();
        // SAFETY: the seat was taken.
        let mut hasty = unsafe { hasty.reader(2) };
        let sleeping = thread::spawn(move || {
            sleeper.batch(1).unwrap().release();
            sleeper
        });
        hasty.batch(1).unwrap().release();
        std::mem::forget(dead);
        drop((sleeping.join().unwrap(), hasty, tx));
    });
}

#[test]
fn loom_twin_dead_member_unnotified() {
    caught(
        "members::loom_the_recovery_of_a_member_wakes_others",
        "dead-member-unnotified",
        Caught::Deadlock(&["s1"]),
    );
}

/// A stage behind the tap dies after `stores` stores; the last store may be its announced position.
/// Its successor changes the event, while a process joins the tap.
fn a_passer_dies(stores: usize, least: usize) {
    explore(least, Some(3), move || {
        let segment = tapped(2, 1, &[Access::Write], Wait::BusySpin);
        let mut tx = segment.producer(1, 2);
        publish_runs(&mut tx, 0, &[1, 1], 2);
        let mut first = segment.updater(2, 1).expect("a free seat");
        let joining = segment.clone();
        let joining = thread::spawn(move || {
            let mut member = joining.member(3, StartAt::Oldest);
            read(&mut member);
            member
        });
        lives(stores, || {
            first.poll(1, |event, _| *event += 100).unwrap();
        });
        segment.settle_member(4, 2);
        let mut second = segment.updater(4, 1).expect("a free seat");
        second.poll(2, |event, _| *event += 100).unwrap();
        std::mem::forget(first);
        drop((joining.join().unwrap(), second, tx));
    });
}

#[test]
fn loom_a_passer_dies_behind_a_tap() {
    for stores in 0..4 {
        a_passer_dies(stores, 10);
    }
}

#[test]
fn loom_twin_passer_unfenced_after_a_death() {
    caught("members::loom_a_passer_dies_behind_a_tap", "passer-unfenced", Caught::Race);
}

#[test]
fn loom_twin_joiner_unfenced_after_a_death() {
    caught("members::loom_a_passer_dies_behind_a_tap", "joiner-unfenced", Caught::Race);
}

/// The producer dies after `stores` stores: before its stamp, or between its stamp and its cursor.
/// The next producer publishes nothing, and the member sees every published event.
fn a_producer_dies(stores: usize, least: usize) {
    explore(least, None, move || {
        let segment = tapped(2, 1, &[], Wait::BusySpin);
        let mut first = segment.producer(1, 1);
        let mut member = segment.member(2, StartAt::Now);
        let reading = thread::spawn(move || {
            read(&mut member);
            member
        });
        lives(stores, || _ = publish_runs(&mut first, 0, &[1, 1], 2));
        segment.settle_member(3, 1);
        let second = segment.producer(3, 1);
        let mut member = reading.join().unwrap();
        read(&mut member);
        read(&mut member);
        assert_eq!(member.next_seq(), second.next_seq(), "a member is not told of an event");
        std::mem::forget(first);
        drop((member, second));
    });
}

#[test]
fn loom_a_producer_dies_before_its_cursor() {
    for stores in 0..5 {
        a_producer_dies(stores, if stores < 2 { 1 } else { 15 });
    }
}

#[test]
fn loom_twin_cursor_behind_stamps() {
    caught("members::loom_a_producer_dies_before_its_cursor", "cursor-behind-stamps", BEHIND);
}
