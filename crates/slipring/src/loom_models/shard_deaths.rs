//! Models of shards between processes. One shard dies in the middle of a change of two words, while
//! the other shard, the producer and the stage behind the shards continue. Each model uses the
//! segment of [`processes`](super::processes).
//!
//! The models have three threads, two shards and up to 3 events, on rings of two slots.

use loom::thread;

use super::mortal::lives;
use super::processes::Segment;
use super::*;
use crate::base::sync::may_die;
use crate::segment::handles_for_tests::{SegmentReader, SegmentShardWriter};
use crate::segment::{
    Declaration, OnDeath, SegmentProducer, StageDeclaration, StageDelivery, shard_of_bytes,
};

const UNANNOUNCED: Caught = Caught::Message("a half-written event is not announced");
const HALF_SEEN: Caught = Caught::Message("a stage behind sees half an event");

/// The parts of an event, which a shard changes one after the other.
const PARTS: [u64; 2] = [1 << 32, 1 << 33];
const WHOLE: u64 = PARTS[0] | PARTS[1];

/// Returns an event that belongs to `shard` and contains its position `seq`.
fn event_of(shard: u32, seq: u64) -> u64 {
    let of = |event: &u64| shard_of_bytes(&event.to_ne_bytes(), 2) == shard;
    (0..).map(|n| n << 8 | seq).find(of).expect("an event of each shard")
}

/// Makes a segment of two slots, with shards that write, and a stage behind them.
fn segment() -> Arc<Segment> {
    let stage = |name: &str, writes, delivery, after| {
        let (name, on_death) = (name.into(), OnDeath::Wait);
        StageDeclaration { name, writes, delivery, after, on_death }
    };
    let delivery = StageDelivery::Shards { shards: 2, key_offset: 0, key_length: 8 };
    let stages =
        vec![stage("s0", true, delivery, vec![]), stage("s1", false, StageDelivery::Each, vec![0])];
    let (capacity, start, producer_on_death) = (2, 0, OnDeath::Tell);
    let declaration = Declaration { capacity, start, stages, producers: 1, producer_on_death };
    Segment::declared(declaration, Wait::BusySpin)
}

fn shard(segment: &Segment, number: u32, shard: usize) -> SegmentShardWriter<u64> {
    let ring = segment.attach(number);
    ring.seat(ring.seats_of(0).start + shard).take(number).expect("a free seat");
    // SAFETY: the seat was taken.
    unsafe { ring.shard_updater(0, shard) }
}

/// Changes and releases the shard's available events one by one. Each event must be untouched,
/// unless the handle and its batch announce it as redelivered. Returns the number of events.
fn change(shard: &mut SegmentShardWriter<u64>) -> usize {
    let suspects = shard.suspects();
    let Some(mut batch) = available(shard.try_batch(2)) else { return 0 };
    let (first, announced, len) = (batch.first_seq(), batch.suspects(), batch.len());
    for (index, event) in batch.iter_mut().enumerate() {
        let suspect = suspects.contains(first + index as u64);
        assert_eq!(index < announced, suspect, "batch and handle differ");
        assert!(suspect || *event & WHOLE == 0, "a half-written event is not announced");
        *event &= !WHOLE;
        for part in PARTS {
            may_die!();
            *event |= part;
        }
    }
    for _ in 0..len {
        batch.release_front(1);
    }
    len
}

/// Reads the events that the shards have released.
fn read(reader: &mut SegmentReader<u64>, seen: &mut Vec<u64>) {
    if let Some(batch) = available(reader.try_batch(2)) {
        for event in batch.iter() {
            assert_eq!(event & WHOLE, WHOLE, "a stage behind sees half an event");
            seen.push(event & !WHOLE);
        }
        batch.release();
    }
}

fn publish(tx: &mut SegmentProducer<u64>, events: &[u64]) -> usize {
    let mut published = 0;
    for &event in events {
        match tx.try_publish(|slot| *slot = event) {
            Ok(_) => published += 1,
            Err(_) => break,
        }
    }
    published
}

/// The first shard dies after `stores` stores. `shards` lists the shard of each event.
fn a_shard_dies(stores: usize, shards: [u32; 3], least: usize) {
    explore_unfenced(least, Some(3), move || {
        let events = [0, 1, 2].map(|seq| event_of(shards[seq], seq as u64));
        let segment = segment();
        let (mut tx, mut reader) = (segment.producer(1, 2), segment.reader(5, 1));
        let (mut first, mut other) = (shard(&segment, 2, 0), shard(&segment, 3, 1));
        let of_shard = segment.clone();
        let living = thread::spawn(move || {
            lives(stores, || _ = change(&mut first));
            let ring = of_shard.attach(4);
            ring.seat(ring.seats_of(0).start).bury(2);
            let mut second = shard(&of_shard, 4, 0);
            change(&mut second);
            (first, second)
        });
        let beside = thread::spawn(move || {
            change(&mut other);
            other
        });
        let mut published = publish(&mut tx, &events[..2]);
        let mut seen = Vec::new();
        read(&mut reader, &mut seen);
        published += publish(&mut tx, &events[published..]);
        let ((first, mut second), mut other) = (living.join().unwrap(), beside.join().unwrap());
        for _ in 0..3 {
            while change(&mut second) + change(&mut other) != 0 {}
            read(&mut reader, &mut seen);
            published += publish(&mut tx, &events[published..]);
        }
        assert_eq!(seen, events, "events were lost, or come out of order");
        (tx, first, second, other, reader)
    });
}

/// Number of stores by which a shard changes one event: one for the lent events, one for each part,
/// and one each for the boundary and the frontier.
const STORES: usize = 1 + PARTS.len() + 2;

#[test]
fn loom_a_shard_dies_beside_another() {
    (0..=STORES).for_each(|stores| a_shard_dies(stores, [0, 1, 0], 1_500));
}

#[test]
fn loom_a_shard_dies_that_has_most_events() {
    (1..=STORES).for_each(|stores| a_shard_dies(stores, [0, 0, 1], 1_500));
}

#[test]
fn loom_twin_held_late_of_a_shard() {
    caught("shard_deaths::loom_a_shard_dies_beside_another", "held-late", UNANNOUNCED);
}

#[test]
fn loom_twin_one_shard_gates_between_processes() {
    caught("shard_deaths::loom_a_shard_dies_beside_another", "one-shard-gates", HALF_SEEN);
}

#[test]
fn loom_twin_partitioned_late_between_processes() {
    caught("shard_deaths::loom_a_shard_dies_beside_another", "partitioned-late", HALF_SEEN);
}
