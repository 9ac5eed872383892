//! Models of pools of which a notification wakes one worker: an event that can be taken does not
//! stay untaken while the workers sleep.
//!
//! The models have two workers with `Wait::Blocking`, each of which takes a single event, on rings
//! of 2 slots. A worker that stays asleep causes a deadlock.

use loom::thread;
use loom::thread::JoinHandle;

use super::*;
use crate::consumer::waiting::Waiting as _;
use crate::errors::WaitError;
use Access::{Read, Write};

/// Starts two threads, each with a worker of the ring's first stage that takes one event.
fn working(ring: &Ring) -> [JoinHandle<PoolUpdater<u64>>; 2] {
    [0, 1].map(|seat| {
        let mut worker = worker(ring, 0, seat);
        thread::spawn(move || {
            worker.batch(1).unwrap().release();
            worker
        })
    })
}

/// One publication makes two events available, because the second one was published before the
/// first one. The notified worker takes one of them, and wakes the other worker.
#[test]
fn loom_a_notification_is_passed_on() {
    explore(1_000, Some(2), || {
        let ring = ring(shared(blocking(2)), &[(Write, 2, &[])]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let working = working(&ring);
        let (first, second) = (one.claim().unwrap(), two.claim().unwrap());
        second.publish();
        first.publish();
        drop(working.map(|working| working.join().unwrap()));
    });
}

/// A batch of two events wakes two workers.
#[test]
fn loom_a_batch_wakes_two_workers() {
    explore(1_000, Some(2), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let mut tx = producer(&ring);
        let working = working(&ring);
        tx.claim_n(2).unwrap().publish();
        drop(working.map(|working| working.join().unwrap()));
    });
}

/// The stage before the pool releases two events at once.
#[test]
fn loom_a_release_wakes_two_workers() {
    explore(1_000, Some(2), || {
        let ring = ring(blocking(2), &[(Write, 2, &[1]), (Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 1));
        tx.claim_n(2).unwrap().publish();
        let working = working(&ring);
        rx.batch(2).unwrap().release();
        drop(working.map(|working| working.join().unwrap()));
    });
}

/// A worker that was notified leaves the pool without another poll, so the other worker handles the
/// event.
#[test]
fn loom_a_notified_worker_leaves() {
    explore(500, Some(2), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        let leaving = thread::spawn(move || one.position().wait(None).unwrap());
        let working = thread::spawn(move || {
            two.batch(1).unwrap().release();
            two
        });
        tx.publish(|event| *event = 0).unwrap();
        let two = working.join().unwrap();
        // If the other worker has not been notified, only the end wakes it.
        drop(tx);
        leaving.join().unwrap();
        drop(two);
    });
}

/// The end of the graph wakes two workers.
#[test]
fn loom_an_ending_wakes_two_workers() {
    explore(300, Some(2), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let tx = producer(&ring);
        let ending = [0, 1].map(|seat| {
            let mut worker = worker(&ring, 0, seat);
            thread::spawn(move || {
                assert!(matches!(worker.batch(1), Err(WaitError::Closed)));
                worker
            })
        });
        drop(tx);
        drop(ending.map(|ending| ending.join().unwrap()));
    });
}

/// While the graph ends, a worker releases the last chunk. The other worker sleeps until both have
/// happened: the end wakes it, or the release.
#[test]
fn loom_the_last_release_meets_the_end() {
    explore(300, Some(2), || {
        let ring = ring(blocking(2), &[(Write, 2, &[])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        tx.publish(|event| *event = 0).unwrap();
        let last = one.batch(1).unwrap();
        let idle = thread::spawn(move || {
            assert!(matches!(two.batch(1), Err(WaitError::Closed)));
            two
        });
        let closing = thread::spawn(move || drop(tx));
        last.release();
        closing.join().unwrap();
        drop(idle.join().unwrap());
    });
}

/// Declares a test for each twin of this file's models. In each twin's deadlock, a worker stays
/// asleep.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("wake_one::", $model), $twin, Caught::Deadlock(&["s0"]));
            }
        )+
    };
}
twins! {
    loom_twin_not_passed_on: "loom_a_notification_is_passed_on", "not-passed-on";
    loom_twin_following_event_unasked:
        "loom_a_notification_is_passed_on", "following-event-unasked";
    loom_twin_batch_not_passed_on: "loom_a_release_wakes_two_workers", "not-passed-on";
    loom_twin_notification_swallowed: "loom_a_notified_worker_leaves", "notification-swallowed";
    loom_twin_ending_wakes_one: "loom_an_ending_wakes_two_workers", "ending-wakes-one";
    loom_twin_last_release_unfenced: "loom_the_last_release_meets_the_end", "last-release-unfenced";
}

#[test]
fn loom_twin_one_of_two_permits() {
    caught(
        "wake_one::loom_an_ending_wakes_two_workers",
        "one-of-two-permits",
        Caught::Message("subtract with overflow"),
    );
}
