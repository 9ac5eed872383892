//! Models of shards: each event goes to the shard of its key, and a slot is released once every
//! shard has passed it.
//!
//! The models have one producer, two shards, up to two other stages and up to 4 events, on rings of
//! 2 slots.

use loom::thread;

use super::*;
use crate::consumer::handle::ShardUpdater;
use crate::ring::build::build;
use crate::ring::partition::Partitioner;
use Access::{Read, Write};

/// Assigns even events to shard 0 and odd events to shard 1.
fn by_parity() -> Partitioner<u64> {
    Partitioner::Of(Box::new(|event| (event % 2) as u32))
}

fn sharded(settings: Settings, stages: &[(Access, Delivery, &[usize])], shards: usize) -> Ring {
    build(
        settings,
        named(stages.iter().copied()),
        vec![(shards, Contained::new(by_parity()))],
        &mut || u64::MAX,
    )
    .expect("a sound graph")
}

fn shard(ring: &Ring, stage: usize, shard: usize) -> ShardUpdater<u64> {
    Consumer::shard(ring.clone(), stage, shard, HandleLearner::default())
}

/// Polls `polls` times, asserts that each event belongs to the shard, and returns the number of
/// events.
fn work(shard: &mut ShardUpdater<u64>, own: u64, polls: usize) -> usize {
    let mut seen = 0;
    for _ in 0..polls {
        seen += shard
            .poll(4, |event, _| {
                assert_eq!(*event % 2, own, "an event of the other shard");
                *event += 100;
            })
            .unwrap();
    }
    seen
}

/// Shows that the producer fills a slot again only after both shards have passed the slot.
#[test]
fn loom_the_producer_waits_for_every_shard() {
    explore_unfenced(3_000, Some(2), || {
        let ring = sharded(settings(2), &[(Write, Delivery::Shards(2), &[])], 0);
        let (mut tx, mut even, mut odd) = (producer(&ring), shard(&ring, 0, 0), shard(&ring, 0, 1));
        let evens = thread::spawn(move || (work(&mut even, 0, 2), even));
        let odds = thread::spawn(move || (work(&mut odd, 1, 2), odd));
        let mut published = 0;
        for _ in 0..4 {
            published += usize::from(tx.try_publish(|event| *event = 1 + published as u64).is_ok());
        }
        let ((mut seen, mut even), (others, mut odd)) =
            (evens.join().unwrap(), odds.join().unwrap());
        seen += others + work(&mut even, 0, 1) + work(&mut odd, 1, 1);
        assert_eq!(seen, published, "events were lost");
    });
}

#[test]
fn loom_twin_shard_relaxed() {
    caught("shard::loom_the_producer_waits_for_every_shard", "shard-relaxed", Caught::Race);
}

#[test]
fn loom_twin_one_shard_gates() {
    caught(
        "shard::loom_the_producer_waits_for_every_shard",
        "one-shard-gates",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_partitioned_late() {
    caught(
        "shard::loom_the_producer_waits_for_every_shard",
        "partitioned-late",
        Caught::Message("events were lost"),
    );
}

/// A writer makes even events odd, and odd events even. Of the two shards behind it, one gets the
/// even events, and the other the odd ones. Shows that the value after the change determines an
/// event's shard, and that a reader behind the shards sees the events in order.
#[test]
fn loom_shards_between_a_writer_and_a_reader() {
    explore_unfenced(300, Some(2), || {
        let ring = sharded(
            settings(2),
            &[
                (Write, Delivery::Each, &[]),
                (Write, Delivery::Shards(2), &[0]),
                (Read, Delivery::Each, &[1]),
            ],
            1,
        );
        let (mut tx, mut writer, mut rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 2));
        let (mut even, mut odd) = (shard(&ring, 1, 0), shard(&ring, 1, 1));
        (0..2).for_each(|i| _ = tx.publish(|event| *event = i).unwrap());
        let writing = thread::spawn(move || {
            // The writer changes each event's parity, so each event moves to the other shard.
            writer.poll(2, |event, _| *event += 11).unwrap();
            (work(&mut odd, 1, 2), odd, writer)
        });
        let evens = thread::spawn(move || (work(&mut even, 0, 2), even));
        for _ in 0..2 {
            rx.poll(2, |&event, at| assert_eq!(event, at.seq.wrapping_sub(START) + 111)).unwrap();
        }
        drop((writing.join().unwrap(), evens.join().unwrap(), rx));
    });
}

/// A shard without events still releases every event, and wakes the waiting producer.
#[test]
fn loom_a_shard_without_events_releases_all() {
    explore(20, Some(2), || {
        let ring = sharded(blocking(2), &[(Write, Delivery::Shards(2), &[])], 0);
        let (mut tx, mut even, mut odd) = (producer(&ring), shard(&ring, 0, 0), shard(&ring, 0, 1));
        (0..2).for_each(|_| _ = tx.publish(|event| *event = 1).unwrap());
        assert_eq!(work(&mut odd, 1, 1), 2);
        let passing =
            thread::spawn(move || even.for_each(|_, _| panic!("an event of the other shard")));
        // The producer of the full ring waits for the shard without events.
        tx.publish(|event| *event = 1).unwrap();
        drop(tx);
        assert_eq!(work(&mut odd, 1, 1), 1);
        assert_eq!(passing.join().unwrap().unwrap(), 0);
    });
}

#[test]
fn loom_twin_others_held() {
    caught(
        "shard::loom_a_shard_without_events_releases_all",
        "others-held",
        Caught::Deadlock(&["producer", "s0"]),
    );
}

/// The ring's two slots hold an event of one shard, and a tombstone. Shows that the producer
/// refills a slot only after both shards have moved past it.
#[test]
fn loom_shards_pass_over_a_tombstone() {
    explore_unfenced(1_000, Some(3), || {
        let ring = sharded(shared(settings(2)), &[(Write, Delivery::Shards(2), &[])], 0);
        let (mut tx, mut even, mut odd) =
            (shared_producer(&ring), shard(&ring, 0, 0), shard(&ring, 0, 1));
        tx.publish(|event| *event = 0).unwrap();
        drop(tx.claim().unwrap());
        let evens = thread::spawn(move || (work(&mut even, 0, 2), even));
        let odds = thread::spawn(move || (work(&mut odd, 1, 2), odd));
        let mut published = 1;
        for _ in 0..2 {
            published += usize::from(tx.try_publish(|event| *event = 1).is_ok());
        }
        let ((mut seen, mut even), (others, mut odd)) =
            (evens.join().unwrap(), odds.join().unwrap());
        seen += others + work(&mut even, 0, 1) + work(&mut odd, 1, 1);
        let passed = START.wrapping_add(1 + published as u64);
        assert_eq!(
            ring.control.positions.frontier(&ring.control.plan, 0, START),
            passed,
            "the tombstone is not released"
        );
        assert_eq!(seen, published, "events were lost");
    });
}

#[test]
fn loom_twin_shard_relaxed_at_a_tombstone() {
    caught("shard::loom_shards_pass_over_a_tombstone", "shard-relaxed", Caught::Race);
}

#[test]
fn loom_twin_one_shard_gates_at_a_tombstone() {
    caught("shard::loom_shards_pass_over_a_tombstone", "one-shard-gates", Caught::Race);
}

#[test]
fn loom_twin_given_up_unburied_before_shards() {
    caught(
        "shard::loom_shards_pass_over_a_tombstone",
        "given-up-unburied",
        Caught::Message("the tombstone is not released"),
    );
}
