//! Suspects are the events that a dead process may have left half-written. The next process of a
//! writing stage learns of them, and handles them or passes over them. Deaths in the middle of a
//! change are in `kills.rs`.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::ops::Range;

use common::watched;
use slipring::errors::{BatchError, WaitError};
use slipring_shm::{Attached, Producer, Reader, Segment, Updater};

/// Positions at which the ring begins. Two of them are so high that the positions wrap during the
/// test.
const STARTS: [u64; 4] = [0, 5, u64::MAX - 3, u64::MAX - 9];

/// A ring whose stage `add` writes. A stage follows it, and another one may precede it.
struct Ring {
    me: Attached<u64>,
    first: u64,
    before: Option<Reader<u64>>,
    behind: Reader<u64>,
    tx: Producer<u64>,
}

impl Ring {
    fn new(capacity: u64, first: u64, follows: bool) -> Ring {
        let segment = Segment::<u64>::create_memfd("suspects").capacity(capacity).first_seq(first);
        let segment = match follows {
            true => segment.reader("before").updater("add").after(["before"]),
            false => segment.updater("add"),
        };
        let segment = segment.reader("behind").after(["add"]).build().unwrap();
        // SAFETY: only this test knows the segment.
        let me = unsafe { segment.attach() }.unwrap();
        let before = follows.then(|| me.reader("before").unwrap());
        let (behind, tx) = (me.reader("behind").unwrap(), me.producer().unwrap());
        Ring { me, first, before, behind, tx }
    }

    /// Publishes runs of the lengths `runs`. If there is a stage `before`, it releases them.
    fn publish(&mut self, runs: &[usize]) {
        for &run in runs {
            let mut claim = self.tx.try_claim_n(run).unwrap();
            let first = claim.first_seq();
            (0..run).for_each(|i| claim[i] = first.wrapping_add(i as u64));
            claim.publish();
        }
        if let Some(before) = &mut self.before {
            before.poll(usize::MAX, |_, _| ()).unwrap();
        }
    }

    fn add(&self) -> Updater<u64> {
        self.me.updater("add").unwrap()
    }

    /// Asserts which of the events, counted from the first one, are suspects.
    #[track_caller]
    fn assert_suspects(&self, add: &Updater<u64>, events: Range<u64>) {
        let suspects = add.suspects();
        assert_eq!(
            (suspects.len(), suspects.is_empty()),
            ((events.end - events.start) as usize, events.is_empty())
        );
        for event in 0..20 {
            let seq = self.first.wrapping_add(event);
            assert_eq!(suspects.contains(seq), events.contains(&event), "{event}, {suspects:?}");
        }
        assert!(!suspects.contains(self.first.wrapping_sub(1)));
    }

    fn skipped(&self) -> u64 {
        self.me.report().unwrap().stage("add").unwrap().skipped
    }

    /// Reads the events as the stage behind sees them. Returns their differences from the published
    /// events.
    fn seen(&mut self) -> Vec<u64> {
        let mut seen = Vec::new();
        let see = |event: &u64, at: slipring::At| seen.push(event.wrapping_sub(at.seq));
        self.behind.poll(usize::MAX, see).unwrap();
        seen
    }
}

#[test]
fn suspects_are_what_was_lent_and_not_released() {
    let _watched = watched();
    for (start, follows) in STARTS.into_iter().flat_map(|start| [(start, false), (start, true)]) {
        let mut ring = Ring::new(16, start, follows);
        ring.publish(&[3, 1, 5, 2]);
        let mut add = ring.add();
        ring.assert_suspects(&add, 0..0);
        // The polls stop in the middle of a run, and lend no more events than they are asked for.
        assert_eq!(add.poll(2, |_, _| ()).unwrap(), 2);
        assert_eq!(add.try_batch(3).unwrap().suspects(), 0);
        assert_eq!(add.try_batch(1).unwrap().len(), 1);
        ring.assert_suspects(&add, 0..0); // its own
        drop(add);

        let mut add = ring.add();
        ring.assert_suspects(&add, 2..5);
        assert_eq!(add.redelivered(), (start.wrapping_add(2)..start.wrapping_add(5)).into());
        for (max, suspects) in [(1, 1), (3, 3), (4, 3), (16, 3)] {
            assert_eq!(add.try_batch(max).unwrap().suspects(), suspects, "of {max}");
        }
        let mut batch = add.try_batch(9).unwrap();
        batch.release_front(2);
        assert_eq!((batch.len(), batch.suspects()), (7, 1));
        batch.release_front(2);
        assert_eq!((batch.len(), batch.suspects()), (5, 0));
        let _ = batch;
        ring.assert_suspects(&add, 0..0);
        // If a successor is lent fewer events than its predecessor, all of the predecessor's
        // suspects remain.
        drop(add);
        let mut add = ring.add();
        ring.assert_suspects(&add, 6..11);
        assert_eq!(add.try_batch(1).unwrap().suspects(), 1);
        drop(add);
        ring.assert_suspects(&ring.add(), 6..11);
    }
}

#[test]
fn passed_over_events_are_released_as_they_are_and_counted() {
    let _watched = watched();
    for (start, follows) in STARTS.into_iter().flat_map(|start| [(start, false), (start, true)]) {
        let mut ring = Ring::new(8, start, follows);
        ring.publish(&[3, 3, 2]);
        let mut add = ring.add();
        add.poll(1, |event, _| *event = event.wrapping_add(100)).unwrap();
        let mut batch = add.batch(4).unwrap();
        (0..2).for_each(|i| batch[i] = batch[i].wrapping_add(100));
        drop(add);

        let mut add = ring.add();
        assert_eq!(ring.seen(), [100]);
        assert!(matches!(ring.tx.try_claim_n(2), Err(slipring::errors::ClaimError::Gated { .. })));
        assert_eq!(add.pass_over_suspects().unwrap(), 4);
        ring.assert_suspects(&add, 0..0);
        assert_eq!((add.next_seq(), ring.skipped()), (start.wrapping_add(5), 4));
        assert_eq!(ring.seen(), [100, 100, 0, 0]);
        assert_eq!(add.pass_over_suspects().unwrap(), 0);
        let add_all = |event: &mut u64, _| *event = event.wrapping_add(100);
        assert_eq!(add.poll(usize::MAX, add_all).unwrap(), 3);
        assert_eq!(ring.seen(), [100; 3]);
        let report = ring.me.report().unwrap();
        let stage = report.stage("add").unwrap();
        assert_eq!((stage.skipped, stage.seq), (4, start.wrapping_add(8)));
        drop(add);
        // The events that a handler saw are counted as handled, and no others.
        let events = ring.me.report().unwrap().stage("add").unwrap().events;
        assert_eq!(events, 1 + 3);
        // The ring still works.
        ring.publish(&[8]);
        let mut add = ring.add();
        assert_eq!(add.pass_over_suspects().unwrap(), 0);
        assert_eq!(add.poll(usize::MAX, add_all).unwrap(), 8);
        assert_eq!((ring.seen(), ring.skipped()), (vec![100; 8], 4));
    }
}

/// All events of the ring are suspects, and the producer waits for the stage.
#[test]
fn a_whole_ring_is_passed_over() {
    let _watched = watched();
    for capacity in [1, 2, 4] {
        for (start, follows) in STARTS.into_iter().flat_map(|start| [(start, false), (start, true)])
        {
            let mut ring = Ring::new(capacity, start, follows);
            for round in 1..4 {
                ring.publish(&vec![1; capacity as usize]);
                let mut add = ring.add();
                assert_eq!(add.pass_over_suspects().unwrap(), 0);
                assert_eq!(add.batch(8).unwrap().len() as u64, capacity);
                drop(add);
                assert_eq!(ring.add().pass_over_suspects().unwrap(), capacity);
                assert_eq!(
                    (ring.seen().len() as u64, ring.skipped()),
                    (capacity, round * capacity)
                );
            }
        }
    }
}

#[test]
fn suspects_outlive_a_close_and_not_a_failure() {
    let _watched = watched();
    let mut ring = Ring::new(8, 0, false);
    ring.publish(&[3]);
    assert_eq!(ring.add().batch(2).unwrap().len(), 2);
    drop(ring.tx);
    let mut add = ring.me.updater("add").unwrap();
    assert_eq!(add.pass_over_suspects().unwrap(), 2);
    assert_eq!(add.for_each(|_, _| ()).unwrap(), 1);
    assert!(matches!(add.try_batch(1), Err(BatchError::Wait(WaitError::Closed))));
    assert_eq!(add.pass_over_suspects().unwrap(), 0);

    // According to the damaged words, the stage was lent events that were never published.
    let mut ring = Ring::new(8, 0, false);
    ring.publish(&[3]);
    drop(ring.add());
    let participation = ring.me.participation();
    let seats = participation.checked().areas.seats;
    for held in [4, 9, 1 << 40, (1 << 63) - 1] {
        let at = seats.item(0).unwrap() + 6 * 8;
        let word = participation.mapping().address(at, 8).unwrap();
        // SAFETY: the address is that of a word of the mapping, which all processes access
        // atomically.
        let word = unsafe { word.cast::<std::sync::atomic::AtomicU64>().as_ref() };
        word.store(held, std::sync::atomic::Ordering::Relaxed);
        let mut add = ring.me.updater("add").unwrap();
        let suspects = add.suspects();
        // A stage is never lent more than a lap of events, so a larger number alone proves damage.
        assert_eq!(suspects.len() as u64, if held <= 8 { held } else { 0 });
        assert!(matches!(add.pass_over_suspects(), Err(WaitError::Damaged)), "{held}");
        assert!(matches!(add.poll(8, |_, _| ()), Err(WaitError::Damaged)), "{held}");
        assert!(ring.behind.poll(8, |_, _| ()).unwrap() == 0, "nothing is released");
        drop(add);
    }
}
