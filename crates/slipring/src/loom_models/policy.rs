//! Models of policies after a failure: a failed stage starts again from its last release, or skips
//! the failed event.
//!
//! Each model has one producer, one updating stage (a writer, or a pool of two workers) and one
//! reader behind it, on a ring of 2 or 4 slots.

use loom::thread;

use super::*;
use crate::consumer::drive::skip;
use crate::consumer::position::{Availability, ConsumerPosition};
use crate::ring::build::build;
use crate::ring::policy::Marks;
use Access::{Read, Write};

/// Handles up to `max` events twice, like a stage that fails once and retries. First the closure
/// `again` handles them, and rewinds the stage to the first one. Then `twice` itself handles them,
/// and releases them.
fn twice<C: crate::consumer::markers::sealed::Delivery>(
    writer: &mut Consumer<u64, crate::consumer::markers::Updating, C>,
    max: usize,
    again: impl Fn(&mut Consumer<u64, crate::consumer::markers::Updating, C>, usize),
) {
    again(writer, max);
    if let Some(mut batch) = available(writer.try_batch(max)) {
        batch.iter_mut().for_each(|event| *event += 100);
        batch.release();
    }
}

/// A writer that has released one event retries the next. Meanwhile a reader may read the first
/// event, and the producer may fill its slot again.
#[test]
fn loom_a_writer_starts_again() {
    explore_unfenced(500, Some(3), || {
        let ring = ring(settings(2), &[(Write, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, mut writer, mut rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 1));
        publish_some(&mut tx, 0..2, 2);
        writer.position().state_mut().bookkeeping = true;
        let writing = thread::spawn(move || {
            let mut batch = writer.try_batch(1).unwrap();
            batch[0] += 100;
            batch.release();
            twice(&mut writer, 1, |writer, max| {
                if let Some(mut batch) = available(writer.try_batch(max)) {
                    batch.iter_mut().for_each(|event| *event += 1000);
                    batch.hold();
                }
                writer.position().rewind();
            });
            writer
        });
        let reading = thread::spawn(move || {
            for _ in 0..2 {
                rx.poll(2, |event, at| assert_eq!(*event % 100, at.seq.wrapping_sub(START)))
                    .unwrap();
            }
            rx
        });
        publish_some(&mut tx, 2..3, 1);
        drop((writing.join().unwrap(), reading.join().unwrap()));
    });
}

#[test]
fn loom_twin_rewound_too_far() {
    caught("policy::loom_a_writer_starts_again", "rewound-too-far", Caught::Race);
}

/// A worker retries its chunk while the other worker of its pool handles another chunk.
#[test]
fn loom_a_worker_starts_again() {
    explore_unfenced(300, Some(2), || {
        let ring = ring(settings(4), &[(Write, 2, &[]), (Read, 0, &[0])]);
        let (mut tx, mut one, mut two) =
            (producer(&ring), worker(&ring, 0, 0), worker(&ring, 0, 1));
        let mut rx = reader(&ring, 1);
        let mut claim = tx.claim_n(4).unwrap();
        claim.iter_mut().enumerate().for_each(|(i, event)| *event = i as u64);
        claim.publish();
        let working = thread::spawn(move || {
            for _ in 0..2 {
                twice(&mut one, 1, |worker, max| {
                    let position = worker.position();
                    let len = position.gather(max as u64, max as u64);
                    position.state().touch(position.next(), len);
                    position.advance(len, len);
                    position.rewind();
                });
            }
            one
        });
        let other = thread::spawn(move || {
            two.poll(4, |event, _| *event += 100).unwrap();
            two
        });
        rx.poll(4, |event, at| assert_eq!(*event, at.seq.wrapping_sub(START) + 100)).unwrap();
        drop((working.join().unwrap(), other.join().unwrap(), rx));
    });
}

#[test]
fn loom_twin_worker_rewound_too_far() {
    caught("policy::loom_a_worker_starts_again", "worker-rewound-too-far", Caught::Race);
}

/// Shows that a reader finds a skipped event marked as skipped, and finds no other event marked.
#[test]
fn loom_a_skipped_event_is_marked() {
    explore_unfenced(100, None, || {
        let marks = Marks::new();
        let mut stages = named([(Write, Delivery::Each, &[][..]), (Read, Delivery::Each, &[0])]);
        stages[0].policy.marks = Some(marks.clone());
        let ring: Ring = build(settings(2), stages, Vec::new(), &mut || 0).unwrap();
        assert_eq!(marks.allocate(START, 2), Some(true));
        let (mut tx, mut writer, mut rx) = (producer(&ring), writer(&ring, 0), reader(&ring, 1));
        publish_some(&mut tx, 0..2, 2);
        let writing = thread::spawn(move || {
            writer.poll(1, |_, _| ()).unwrap();
            assert_eq!(writer.position().poll(1), 1);
            skip(writer.position(), 1);
            writer.position().release();
            writer
        });
        let reading = thread::spawn(move || {
            for _ in 0..2 {
                rx.poll(2, |_, at| {
                    assert_eq!(
                        marks.skipped(at.seq),
                        at.seq == START.wrapping_add(1),
                        "the mark of {}",
                        at.seq
                    )
                })
                .unwrap();
            }
            rx
        });
        drop((writing.join().unwrap(), reading.join().unwrap()));
    });
}

#[test]
fn loom_twin_marked_before_release() {
    caught(
        "policy::loom_a_skipped_event_is_marked",
        "marked-before-release",
        Caught::Message("the mark of"),
    );
}
