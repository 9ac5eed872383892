//! Models of rings between processes: seats that change their owner, the recovery of dead
//! processes, and how living processes learn of deaths and failures. Each model uses the segment of
//! [`processes`](super::processes).
//!
//! The models have up to three threads, on rings of one slot.

use loom::thread;

use super::mortal::lives;
use super::processes::{Segment, publish_runs};
use super::*;
use crate::errors::{Cause, WaitError};
use crate::segment::OnDeath;
use crate::segment::handles_for_tests::SegmentWriter;

const COUNTED_ONCE: Caught = Caught::Message("a death is counted once");
const PART_OF_A_FAILURE: Caught = Caught::Message("a part of a failure");
const NO_REASON: Caught = Caught::Message("failed without a reason");
const LEFT_ASLEEP: Caught = Caught::Deadlock(&["s1"]);

/// A process leaves its seat, and another process takes it. Both processes write to the same event.
#[test]
fn loom_a_seat_changes_its_owner() {
    explore_unfenced(8, None, || {
        let segment = Segment::unfenced(1, &[(Access::Write, &[])]);
        let (mut tx, mut first) =
            (segment.producer(1, 1), segment.updater(2, 0).expect("a free seat"));
        publish_runs(&mut tx, 0, &[1], 1);
        let taking = thread::spawn(move || {
            let mut second = (0..2).find_map(|_| segment.updater(3, 0))?;
            assert_eq!(available(second.try_batch(1)).map(|batch| batch.len()), Some(1));
            Some(second)
        });
        assert_eq!(available(first.try_batch(1)).map(|batch| batch.len()), Some(1));
        drop(first);
        (tx, taking.join().unwrap())
    });
}

#[test]
fn loom_twin_seat_taken_relaxed() {
    caught("recovery::loom_a_seat_changes_its_owner", "seat-taken-relaxed", Caught::Race);
}

#[test]
fn loom_twin_seat_freed_relaxed() {
    caught("recovery::loom_a_seat_changes_its_owner", "seat-freed-relaxed", Caught::Race);
}

/// Takes the seat of a stage. If the seat has an owner, recovers that owner first, provided that it
/// is dead. The recoverer dies after `stores` stores.
fn take_over(segment: &Segment, number: u32, stores: usize) -> Option<SegmentWriter<u64>> {
    let ring = segment.attach(number);
    for _ in 0..2 {
        let Err(owner) = ring.seat(0).take(number) else {
            // SAFETY: the seat was taken.
            let mut writer = unsafe { ring.updater(0) };
            assert_eq!(available(writer.try_batch(1)).map(|batch| batch.len()), Some(1));
            return Some(writer);
        };
        if segment.bytes.claim_dead(owner) {
            let mut whole = false;
            lives(stores, || {
                ring.seat(0).bury(owner);
                whole = true;
            });
            // The byte becomes free in both cases: when the recovery ends, and when the recoverer
            // dies.
            segment.bytes.unlock(owner);
            if !whole {
                return None;
            }
        }
    }
    None
}

/// Two processes find that a seat's owner is dead, and each of them tries to take the seat. One of
/// the two may die meanwhile.
#[test]
fn loom_two_processes_recover_a_dead_one() {
    for stores in [0, 1, usize::MAX] {
        explore_unfenced(250, Some(3), move || {
            let segment = Segment::unfenced(1, &[(Access::Write, &[])]);
            let (mut tx, mut dead) =
                (segment.producer(1, 1), segment.updater(2, 0).expect("a free seat"));
            publish_runs(&mut tx, 0, &[1], 1);
            let taking = [(3, stores), (4, usize::MAX)].map(|(number, stores)| {
                let segment = segment.clone();
                thread::spawn(move || take_over(&segment, number, stores))
            });
            let _ = available(dead.try_batch(1));
            segment.bytes.unlock(2);
            let [one, other] = taking.map(|taking| taking.join().unwrap());
            assert!(one.is_none() || other.is_none(), "a seat has two owners");
            let ring = segment.attach(5);
            ring.seat(0).bury(2);
            assert_eq!(ring.seat(0).deaths(), 1, "a death is counted once");
            (tx, dead, one, other)
        });
    }
}

#[test]
fn loom_twin_recovered_unlocked() {
    caught("recovery::loom_two_processes_recover_a_dead_one", "recovered-unlocked", Caught::Race);
}

#[test]
fn loom_twin_freed_before_counted() {
    caught("recovery::loom_two_processes_recover_a_dead_one", "freed-before-counted", COUNTED_ONCE);
}

#[test]
fn loom_twin_generation_uncompared() {
    caught(
        "recovery::loom_two_processes_recover_a_dead_one",
        "generation-uncompared",
        COUNTED_ONCE,
    );
}

/// One process fails the graph, and another one reads the reason.
#[test]
fn loom_a_failure_is_read_elsewhere() {
    explore_unfenced(5, None, || {
        let segment = Segment::unfenced(1, &[(Access::Read, &[])]);
        let (one, other) = (segment.attach(1), segment.attach(2));
        let failing = thread::spawn(move || {
            one.control().fail(0, Some(7), Cause::Panic("a model's text".into()));
            one
        });
        let early = other.control().status.failure().map(|failure| failure.to_string());
        let one = failing.join().unwrap();
        let late = other.control().status.failure().expect("the failure").to_string();
        assert!(late.contains("s0") && late.contains("a model's text"), "{late}");
        // While the reason is being written, only the party is known.
        let unsaid = |early: &str| early.contains("s0") && early.contains("has not written why");
        assert!(early.is_none_or(|early| early == late || unsaid(&early)), "a part of a failure");
        (one, other)
    });
}

#[test]
fn loom_twin_record_unreleased() {
    caught("recovery::loom_a_failure_is_read_elsewhere", "record-unreleased", PART_OF_A_FAILURE);
}

#[test]
fn loom_twin_record_seen_relaxed() {
    caught("recovery::loom_a_failure_is_read_elsewhere", "record-seen-relaxed", PART_OF_A_FAILURE);
}

/// One process fails the graph. Another process that sees the failed bit finds the reason.
#[test]
fn loom_a_failed_bit_is_seen_elsewhere() {
    explore_unfenced(5, None, || {
        let segment = Segment::unfenced(1, &[(Access::Read, &[])]);
        let (one, other) = (segment.attach(1), segment.attach(2));
        let failing = thread::spawn(move || {
            one.control().fail(0, None, Cause::Panic("model".into()));
            one
        });
        if !other.control().status.is_running() {
            let stopped = other.control().status.stopped();
            assert!(matches!(stopped, Some(WaitError::Failed(_))), "failed without a reason");
        }
        (failing.join().unwrap(), other)
    });
}

#[test]
fn loom_twin_failed_unreleased() {
    caught("recovery::loom_a_failed_bit_is_seen_elsewhere", "failed-unreleased", NO_REASON);
}

#[test]
fn loom_twin_failed_seen_relaxed() {
    caught("recovery::loom_a_failed_bit_is_seen_elsewhere", "failed-seen-relaxed", NO_REASON);
}

/// The stage for which the producer waits dies. The producer's wait ends in the way that the
/// segment declares.
#[test]
fn loom_a_producer_learns_of_a_death() {
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        explore(10, None, move || {
            let segment = Segment::new(1, &[(Access::Read, &[], on_death)], Wait::Blocking);
            let mut tx = segment.hasty_producer(1, 1);
            let reader = segment.reader(2, 0);
            tx.publish(|event| *event = 0).unwrap();
            let dying = segment.clone();
            let dying = thread::spawn(move || dying.bytes.unlock(2));
            let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
            match (on_death, error) {
                (OnDeath::Tell, WaitError::PeerDead(dead)) => {
                    assert_eq!((dead.stage.as_str(), dead.pid, dead.seq), ("s0", 1002, 0))
                }
                (OnDeath::Fail, WaitError::Failed(failure)) => {
                    assert!(matches!(failure.cause(), Cause::Died { pid: 1002 }), "{failure}")
                }
                (_, error) => panic!("{error}"),
            }
            dying.join().unwrap();
            drop((tx, reader));
        });
    }
}

/// The process of the stage that the producer waits for leaves, and another process takes its seat.
/// The producer does not conclude that the leaving process is dead.
#[test]
fn loom_a_process_that_leaves_is_not_dead() {
    explore(400, Some(3), || {
        let segment = Segment::new(1, &[(Access::Read, &[], OnDeath::Tell)], Wait::Blocking);
        let (mut tx, first) = (segment.hasty_producer(1, 1), segment.reader(2, 0));
        tx.publish(|event| *event = 0).unwrap();
        let leaving = segment.clone();
        let leaving = thread::spawn(move || {
            drop(first);
            leaving.bytes.unlock(2);
            let mut second = leaving.reader(3, 0);
            second.try_batch(1).unwrap().release();
            second
        });
        assert!(tx.publish(|event| *event = 1).is_ok(), "a living process is taken for dead");
        drop((leaving.join().unwrap(), tx));
    });
}

#[test]
fn loom_twin_owner_unchecked() {
    caught(
        "recovery::loom_a_process_that_leaves_is_not_dead",
        "owner-unchecked",
        Caught::Message("a living process is taken for dead"),
    );
}

/// A stage of one process sleeps, and only a notification ends its sleep. The producer of another
/// process finds that a third process has died, and fails the graph.
#[test]
fn loom_a_death_wakes_a_sleeper_elsewhere() {
    explore(50, Some(3), || {
        let stages = [(Access::Read, &[][..], OnDeath::Fail), (Access::Read, &[], OnDeath::Wait)];
        let segment = Segment::new(1, &stages, Wait::Blocking);
        let (mut tx, dead) = (segment.hasty_producer(1, 2), segment.reader(2, 0));
        let mut sleeper = segment.reader(3, 1);
        tx.publish(|event| *event = 0).unwrap();
        sleeper.batch(1).unwrap().release();
        segment.bytes.unlock(2);
        let sleeping = thread::spawn(move || {
            let error = sleeper.batch(1).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("process 1002"), "{error}");
            sleeper
        });
        assert!(matches!(tx.publish(|_| ()), Err(WaitError::Failed(_))));
        drop((sleeping.join().unwrap(), tx, dead));
    });
}

#[test]
fn loom_twin_failed_unnotified_elsewhere() {
    caught("recovery::loom_a_death_wakes_a_sleeper_elsewhere", "failed-unnotified", LEFT_ASLEEP);
}

#[test]
fn loom_twin_sleeper_unfenced_elsewhere() {
    caught("recovery::loom_a_death_wakes_a_sleeper_elsewhere", "sleeper-unfenced", LEFT_ASLEEP);
}

#[test]
fn loom_twin_ending_unfenced() {
    caught("recovery::loom_a_death_wakes_a_sleeper_elsewhere", "ending-unfenced", LEFT_ASLEEP);
}

#[test]
fn loom_twin_same_epoch_elsewhere() {
    caught("recovery::loom_a_death_wakes_a_sleeper_elsewhere", "same-epoch", LEFT_ASLEEP);
}
