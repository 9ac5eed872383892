//! Models of threads that sleep and wake: no wake-up is lost. Each model ends with a wake-up that
//! the sleeper needs, so a lost wake-up causes a deadlock.
//!
//! The models have two or three threads and one event, on rings of 1 or 2 slots with
//! `Wait::Blocking`.

use loom::thread;

use super::*;
use crate::ring::build::build;
use crate::ring::slots::Contiguous;
use Access::{Read, Write};

/// Shows that a publication wakes a sleeping reader.
#[test]
fn loom_a_reader_sleeps() {
    explore(40, None, || {
        let ring = ring(blocking(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let reading = thread::spawn(move || {
            assert_eq!(rx.batch(1).unwrap()[0], 7);
            rx
        });
        tx.publish(|event| *event = 7).unwrap();
        drop(reading.join().unwrap());
    });
}

/// Shows that a release wakes a producer that sleeps at a full ring.
#[test]
fn loom_a_producer_sleeps() {
    explore(40, None, || {
        let ring = ring(blocking(1), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        tx.publish(|event| *event = 0).unwrap();
        let publishing = thread::spawn(move || {
            tx.publish(|event| *event = 1).unwrap();
            tx
        });
        rx.batch(1).unwrap().release();
        drop(publishing.join().unwrap());
    });
}

/// Two stages side by side sleep in one wait queue, and one publication wakes the two stages.
#[test]
fn loom_two_stages_sleep_in_one_queue() {
    explore(1_000, Some(3), || {
        let ring = ring(blocking(1), &[(Read, 0, &[]), (Read, 0, &[])]);
        let (mut tx, left, right) = (producer(&ring), reader(&ring, 0), reader(&ring, 1));
        let reading = [left, right].map(|mut rx| {
            thread::spawn(move || {
                assert_eq!(rx.batch(1).unwrap()[0], 7);
                rx
            })
        });
        tx.publish(|event| *event = 7).unwrap();
        drop(reading.map(|reading| reading.join().unwrap()));
    });
}

/// Shows that a writer's release wakes a stage that sleeps behind the writer.
#[test]
fn loom_a_follower_sleeps() {
    explore(60, None, || {
        let ring = ring(blocking(2), &[(Write, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, mut writer, mut rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 1));
        tx.publish(|event| *event = 7).unwrap();
        let reading = thread::spawn(move || {
            assert_eq!(rx.batch(1).unwrap()[0], 8);
            rx
        });
        writer.poll(1, |event, _| *event += 1).unwrap();
        drop(reading.join().unwrap());
    });
}

/// Shows that a publication wakes a sleeping worker, and that the worker's release wakes the reader
/// behind the pool.
#[test]
fn loom_a_worker_and_its_follower_sleep() {
    explore(10_000, Some(3), || {
        let ring = ring(blocking(2), &[(Write, 1, &[]), (Read, 0, &[0])]);
        let (mut tx, mut worker, mut rx) = (producer(&ring), worker(&ring, 0, 0), reader(&ring, 1));
        let working = thread::spawn(move || {
            let mut batch = worker.batch(1).unwrap();
            batch[0] += 1;
            batch.release();
            worker
        });
        let reading = thread::spawn(move || {
            assert_eq!(rx.batch(1).unwrap()[0], 8);
            rx
        });
        tx.publish(|event| *event = 7).unwrap();
        drop((working.join().unwrap(), reading.join().unwrap()));
    });
}

/// In a ring without stages a producer sleeps until another producer publishes.
#[test]
fn loom_a_producer_sleeps_and_there_is_no_stage() {
    explore(40, None, || {
        let ring = ring(shared(blocking(1)), &[]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let slot = one.claim().unwrap();
        let publishing = thread::spawn(move || {
            two.publish(|event| *event = 1).unwrap();
            two
        });
        slot.publish();
        drop(publishing.join().unwrap());
    });
}

/// One publication notifies two wait queues, and a stage sleeps in each queue.
#[test]
fn loom_a_publication_notifies_two_queues() {
    explore(1_000, Some(3), || {
        let mut stages = named([(Read, Delivery::Each, &[][..]), (Read, Delivery::Each, &[])]);
        // Stages of different threads have different wait queues.
        stages[1].thread = ThreadChoice::Named("another".to_owned());
        let ring = build(blocking(1), stages, Vec::new(), &mut || u64::MAX).expect("a sound graph");
        assert_eq!(ring.control.plan.producer_notifies.len(), 2);
        let (mut tx, left, right) = (producer(&ring), reader(&ring, 0), reader(&ring, 1));
        let reading = [left, right].map(|mut rx| {
            thread::spawn(move || {
                assert_eq!(rx.batch(1).unwrap()[0], 7);
                rx
            })
        });
        tx.publish(|event| *event = 7).unwrap();
        drop(reading.map(|reading| reading.join().unwrap()));
    });
}

/// Two stages sleep in two different wait queues, and one release notifies both wait queues.
#[test]
fn loom_a_release_notifies_two_queues() {
    explore(500, Some(2), || {
        let mut stages = named([
            (Read, Delivery::Each, &[][..]),
            (Read, Delivery::Each, &[0]),
            (Read, Delivery::Each, &[0]),
        ]);
        stages[2].thread = ThreadChoice::Named("another".to_owned());
        let ring = build(blocking(1), stages, Vec::new(), &mut || u64::MAX).expect("a sound graph");
        assert_eq!(ring.control.plan.stages[0].notifies.len(), 2);
        // On the heap, because a model's threads have small stacks.
        let mut tx = Box::new(producer(&ring));
        let [mut first, left, right] = [0, 1, 2].map(|stage| Box::new(reader(&ring, stage)));
        tx.publish(|event| *event = 7).unwrap();
        let reading = [left, right].map(|mut rx| {
            thread::spawn(move || {
                assert_eq!(rx.batch(1).unwrap()[0], 7);
                rx
            })
        });
        first.batch(1).unwrap().release();
        drop((tx, first, reading.map(|reading| reading.join().unwrap())));
    });
}

/// In the contiguous layout with one producer, the reader sleeps until the cursor moves.
#[test]
fn loom_a_reader_sleeps_behind_a_cursor() {
    explore(40, None, || {
        let stages = named([(Read, Delivery::Each, &[][..])]);
        let ring = build::<u64, Contiguous>(blocking(2), stages, Vec::new(), &mut || u64::MAX)
            .expect("a sound graph");
        let mut rx: Reader<u64, Contiguous> =
            Consumer::every(ring.clone(), 0, HandleLearner::default());
        let mut tx: Producer<u64, Contiguous> = Producer::new(ring, HandleLearner::default());
        let reading = thread::spawn(move || {
            assert_eq!(rx.batch(1).unwrap()[0], 7);
            rx
        });
        tx.publish(|event| *event = 7).unwrap();
        drop(reading.join().unwrap());
    });
}

/// Declares a test for each twin of this file's models. Each entry names the stages and producers
/// that stay asleep in the twin's deadlock.
///
/// Every model of this file runs the steps of the wake-up protocol, and must fail if the sleeper or
/// the notifier leaves out one of these steps.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $asleep:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("wait::", $model), $twin, Caught::Deadlock(&$asleep));
            }
        )+
    };
}
twins! {
    loom_twin_sleeper_unfenced: "loom_a_reader_sleeps", "sleeper-unfenced", ["s0"];
    loom_twin_notifier_unfenced: "loom_a_reader_sleeps", "notifier-unfenced", ["s0"];
    loom_twin_sleeper_blind: "loom_a_reader_sleeps", "sleeper-blind", ["s0"];
    loom_twin_notifier_unlocked: "loom_a_reader_sleeps", "notifier-unlocked", ["s0"];
    loom_twin_sleeper_unfenced_producer: "loom_a_producer_sleeps", "sleeper-unfenced", ["producer"];
    loom_twin_notifier_unfenced_release: "loom_a_producer_sleeps", "notifier-unfenced", ["producer"];
    loom_twin_sleeper_blind_producer: "loom_a_producer_sleeps", "sleeper-blind", ["producer"];
    loom_twin_notifier_unlocked_release: "loom_a_producer_sleeps", "notifier-unlocked", ["producer"];
    loom_twin_one_of_two_woken: "loom_two_stages_sleep_in_one_queue", "one-woken", ["s1"];
    loom_twin_notifier_unfenced_to_follower: "loom_a_follower_sleeps", "notifier-unfenced", ["s1"];
    loom_twin_sleeper_unfenced_worker: "loom_a_worker_and_its_follower_sleep", "sleeper-unfenced", ["s0", "s1"];
    loom_twin_notifier_unfenced_pool: "loom_a_worker_and_its_follower_sleep", "notifier-unfenced", ["s0", "s1"];
    loom_twin_leaf_unnotified: "loom_a_producer_sleeps", "leaf-unnotified", ["producer"];
    loom_twin_publication_unnotified: "loom_a_producer_sleeps_and_there_is_no_stage", "publication-unnotified", ["producer"];
    loom_twin_one_of_two_queues_notified: "loom_a_publication_notifies_two_queues", "one-queue-notified", ["s1"];
    loom_twin_notifier_unfenced_at_two_queues: "loom_a_publication_notifies_two_queues", "notifier-unfenced", ["s0", "s1"];
    loom_twin_sleeper_unfenced_at_two_queues: "loom_a_publication_notifies_two_queues", "sleeper-unfenced", ["s0", "s1"];
    loom_twin_one_of_two_queues_notified_by_a_release: "loom_a_release_notifies_two_queues", "one-queue-notified", ["s2"];
    loom_twin_notifier_unfenced_release_at_two_queues: "loom_a_release_notifies_two_queues", "notifier-unfenced", ["s1", "s2"];
    loom_twin_sleeper_unfenced_cursor: "loom_a_reader_sleeps_behind_a_cursor", "sleeper-unfenced", ["s0"];
    loom_twin_notifier_unfenced_cursor: "loom_a_reader_sleeps_behind_a_cursor", "notifier-unfenced", ["s0"];
    loom_twin_sleeper_blind_cursor: "loom_a_reader_sleeps_behind_a_cursor", "sleeper-blind", ["s0"];
    loom_twin_notifier_unlocked_cursor: "loom_a_reader_sleeps_behind_a_cursor", "notifier-unlocked", ["s0"];
}
