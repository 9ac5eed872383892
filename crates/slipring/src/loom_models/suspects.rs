//! Models of a stage that updates events and dies in the middle of a change of two words. Its
//! successor repairs the event that may be half-written, or passes it over. Each model uses the
//! segment of [`processes`](super::processes).
//!
//! The models have three threads, one of which only waits, on rings of two slots.

use loom::thread;

use super::mortal::lives;
use super::processes::{Segment, publish_runs};
use super::*;
use crate::base::sync::may_die;
use crate::segment::handles_for_tests::{SegmentReader, SegmentWriter};

const UNANNOUNCED: Caught = Caught::Message("a half-written event is not announced");

/// The parts of an event, which a writer changes one after the other.
const PARTS: [u64; 2] = [1 << 32, 1 << 33];
const WHOLE: u64 = PARTS[0] | PARTS[1];

/// Changes and releases up to two events one by one. Each event must be untouched, unless the
/// handle and its batch announce it as redelivered.
fn change(writer: &mut SegmentWriter<u64>) {
    let suspects = writer.suspects();
    let Some(mut batch) = available(writer.try_batch(2)) else { return };
    let (first, announced) = (batch.first_seq(), batch.suspects());
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
    for _ in 0..batch.len() {
        batch.release_front(1);
    }
}

/// Reads all available events.
fn read(reader: &mut SegmentReader<u64>, seen: &mut Vec<u64>) {
    if let Some(batch) = available(reader.try_batch(2)) {
        seen.extend(batch.iter());
        batch.release();
    }
}

/// A writer dies after `stores` stores, while a stage behind reads. Its successor passes over the
/// event that may be half-written, or repairs it.
fn a_writer_dies(stores: usize, passes: bool, least: usize) {
    explore_unfenced(least, None, move || {
        let segment = Segment::unfenced(2, &[(Access::Write, &[]), (Access::Read, &[0])]);
        let (mut tx, mut first) =
            (segment.producer(1, 2), segment.updater(2, 0).expect("a free seat"));
        let mut later = segment.reader(3, 1);
        publish_runs(&mut tx, 0, &[2], 1);
        let living = thread::spawn(move || {
            lives(stores, || change(&mut first));
            segment.attach(4).seat(0).bury(2);
            let mut second = segment.updater(4, 0).expect("a free seat");
            let begins = second.next_seq();
            let passed = if passes { second.pass_over_suspects().unwrap() } else { 0 };
            assert!(!passes || second.suspects().is_empty());
            change(&mut second);
            (first, second, begins..begins + passed)
        });
        let reading = thread::spawn(move || {
            let mut seen = Vec::new();
            read(&mut later, &mut seen);
            (later, seen)
        });
        let (first, second, passed) = living.join().unwrap();
        let (mut later, mut seen) = reading.join().unwrap();
        read(&mut later, &mut seen);
        for (seq, event) in (0..).zip(&seen) {
            let whole = event & WHOLE == WHOLE;
            assert!(whole || passed.contains(&seq), "a stage behind sees half an event");
            assert_eq!(event & !WHOLE, seq, "another event");
        }
        assert_eq!(seen.len(), 2, "events were lost");
        (tx, first, second, later)
    });
}

/// Number of stores by which a writer changes two events: one for the lent events, one for each
/// part of each event, and two for each release (boundary and frontier).
const STORES: usize = 1 + 2 * PARTS.len() + 2 * 2;

#[test]
fn loom_a_writer_dies_and_its_successor_repairs() {
    (0..=STORES).for_each(|stores| a_writer_dies(stores, false, 15));
}

#[test]
fn loom_a_writer_dies_and_its_successor_passes_over() {
    (0..=STORES).for_each(|stores| a_writer_dies(stores, true, 15));
}

#[test]
fn loom_twin_held_late_of_a_writer() {
    caught("suspects::loom_a_writer_dies_and_its_successor_repairs", "held-late", UNANNOUNCED);
}

#[test]
fn loom_twin_held_late_passed_over() {
    caught("suspects::loom_a_writer_dies_and_its_successor_passes_over", "held-late", UNANNOUNCED);
}
