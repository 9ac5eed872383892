//! Models of `Selector`: one thread that waits for several rings loses no wake-up.
//!
//! The model has two rings of one slot, and each ring has one producer and one event.

use loom::thread;

use super::*;
use crate::adapters::select::{Selector, Waitable};
use Access::Read;

/// Each of two producers publishes once. Shows that the waiting thread gets both events, in
/// whatever order the publications and the polls come. A lost wake-up would leave the waiting
/// thread in a deadlock.
#[test]
fn loom_one_thread_waits_for_two_rings() {
    explore(500, Some(2), || {
        let rings = [(); 2].map(|()| ring(blocking(1), &[(Read, 0, &[])]));
        let [mut left, mut right] = [0, 1].map(|i| reader(&rings[i], 0));
        let publishing = rings.each_ref().map(|ring| {
            let mut tx = producer(ring);
            thread::spawn(move || {
                tx.publish(|event| *event = 7).unwrap();
                tx
            })
        });
        let mut selector = Selector::new();
        let mut seen = [0, 0];
        while seen != [1, 1] {
            let asleep = crate::base::model_hooks::asleep("selector");
            let ready = match seen {
                [0, 0] => selector.wait(&mut [&mut left, &mut right], None),
                [1, _] => selector.wait(&mut [&mut right], None).map(|_| 1),
                _ => selector.wait(&mut [&mut left as &mut dyn Waitable], None),
            };
            drop(asleep);
            let ready = ready.expect("no deadline was given");
            seen[ready] +=
                [&mut left, &mut right][ready].poll(1, |&event, _| assert_eq!(event, 7)).unwrap();
        }
        drop((publishing.map(|publishing| publishing.join().unwrap()), left, right));
    });
}

#[test]
fn loom_twin_woken_reset_late() {
    caught(
        "select::loom_one_thread_waits_for_two_rings",
        "woken-reset-late",
        Caught::Deadlock(&["selector"]),
    );
}

#[test]
fn loom_twin_task_unfenced_in_a_selector() {
    caught(
        "select::loom_one_thread_waits_for_two_rings",
        "task-unfenced",
        Caught::Deadlock(&["selector"]),
    );
}

#[test]
fn loom_twin_notifier_unfenced_before_a_selector() {
    caught(
        "select::loom_one_thread_waits_for_two_rings",
        "notifier-unfenced",
        Caught::Deadlock(&["selector"]),
    );
}

#[test]
fn loom_twin_task_blind_in_a_selector() {
    caught(
        "select::loom_one_thread_waits_for_two_rings",
        "task-blind",
        Caught::Deadlock(&["selector"]),
    );
}
