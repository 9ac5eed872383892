//! Models of publication by one producer or by several: a reader that sees a stamp or a cursor also
//! sees the published events' content, and no claim is lost.
//!
//! The models have one or two producers, one reader and 2 to 4 events, on rings of 1 to 4 slots.

use loom::thread;

use super::*;
use crate::errors::{ClaimError, WaitError};
use crate::ring::build::build;
use crate::ring::slots::Contiguous;
use Access::Read;

#[test]
fn loom_one_producer_one_reader() {
    explore_unfenced(90, None, || {
        let ring = ring(settings(2), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let reading = thread::spawn(move || (read_some(&mut rx, 3), rx));
        for i in 0..2 {
            tx.publish(|event| *event = i).unwrap();
        }
        let (seen, mut rx) = reading.join().unwrap();
        assert_eq!(seen + read_some(&mut rx, 1), 2, "events were lost");
    });
}

#[test]
fn loom_twin_stamp_relaxed() {
    caught("publish::loom_one_producer_one_reader", "stamp-relaxed", Caught::Race);
}

#[test]
fn loom_twin_stamp_seen_relaxed() {
    caught("publish::loom_one_producer_one_reader", "stamp-seen-relaxed", Caught::Race);
}

/// One of two producers drops its handle, and the other then claims by a plain store. Shows that it
/// claims no position that the dropped handle has claimed.
#[test]
fn loom_a_producer_is_left_alone() {
    explore_unfenced(50, None, || {
        let ring = ring(shared(settings(4)), &[(Read, 0, &[])]);
        let (mut one, mut rx) = (shared_producer(&ring), reader(&ring, 0));
        let mut two = one.clone();
        let leaving = thread::spawn(move || {
            two.publish(|event| *event = 2).unwrap();
        });
        let mut claimed = 0;
        for _ in 0..2 {
            claimed += usize::from(one.try_publish(|event| *event = 1).is_ok());
        }
        leaving.join().unwrap();
        let (mut ones, mut twos) = (0, 0);
        rx.poll(4, |event, _| *(if *event == 1 { &mut ones } else { &mut twos }) += 1).unwrap();
        assert_eq!((ones, twos), (claimed, 1), "events were lost");
    });
}

/// A sole producer clones its handle and drops the clone between two claims.
#[test]
fn loom_a_producer_is_alone_again() {
    explore_unfenced(1, None, || {
        let ring = ring(shared(settings(4)), &[(Read, 0, &[])]);
        let (mut one, mut rx) = (shared_producer(&ring), reader(&ring, 0));
        one.publish(|event| *event = 1).unwrap();
        let mut two = one.clone();
        let leaving = thread::spawn(move || {
            two.publish(|event| *event = 2).unwrap();
        });
        leaving.join().unwrap();
        one.publish(|event| *event = 3).unwrap();
        let mut seen = Vec::new();
        rx.poll(4, |event, _| seen.push(*event)).unwrap();
        let count = |event| seen.iter().filter(|&&other| other == event).count();
        assert_eq!((count(1), count(2), count(3)), (1, 1, 1), "events were lost");
    });
}

#[test]
fn loom_twin_company_unmarked() {
    caught(
        "publish::loom_a_producer_is_alone_again",
        "company-unmarked",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_settled_in_company() {
    caught("publish::loom_a_producer_is_left_alone", "settled-in-company", Caught::Race);
}

#[test]
fn loom_twin_left_relaxed() {
    caught("publish::loom_a_producer_is_left_alone", "left-relaxed", Caught::Race);
}

#[test]
fn loom_twin_alone_relaxed() {
    caught("publish::loom_a_producer_is_left_alone", "alone-relaxed", Caught::Race);
}

#[test]
fn loom_twin_alone_in_company() {
    caught("publish::loom_a_producer_is_left_alone", "alone-in-company", Caught::Race);
}

/// In the contiguous layout a single producer publishes by a cursor instead of stamps. The ring has
/// one slot, so the producer also waits for the reader.
#[test]
fn loom_a_cursor_publishes() {
    explore_unfenced(90, None, || {
        let reader = StageSpec::new("s0", Read, Delivery::Each, &[]);
        let ring =
            build::<u64, Contiguous>(settings(1), vec![reader], Vec::new(), &mut || u64::MAX)
                .expect("a sound graph");
        let mut rx: Reader<u64, Contiguous> =
            Consumer::every(ring.clone(), 0, HandleLearner::default());
        let mut tx: Producer<u64, Contiguous> = Producer::new(ring, HandleLearner::default());
        let reading = thread::spawn(move || {
            let seen: usize = (0..3)
                .map(|_| {
                    rx.poll(4, |event, at| assert_eq!(*event, at.seq.wrapping_sub(START))).unwrap()
                })
                .sum();
            (seen, rx)
        });
        let published = (0..3)
            .filter(|_| tx.try_publish(|event| *event = event.wrapping_add(1)).is_ok())
            .count();
        let (seen, mut rx) = reading.join().unwrap();
        let rest = rx.poll(4, |event, at| assert_eq!(*event, at.seq.wrapping_sub(START))).unwrap();
        assert_eq!(seen + rest, published, "events were lost");
    });
}

#[test]
fn loom_twin_cursor_relaxed() {
    caught("publish::loom_a_cursor_publishes", "cursor-relaxed", Caught::Race);
}

#[test]
fn loom_twin_cursor_seen_relaxed() {
    caught("publish::loom_a_cursor_publishes", "cursor-seen-relaxed", Caught::Race);
}

/// Shows that a reader that sees one event of a publication sees all of them. Depending on `start`,
/// the publication consists of two runs, or has a stamp on each slot (`stamp::refreshes`).
fn a_publication_is_seen_whole(start: u64) {
    explore_unfenced(7, None, move || {
        let ring = ring(Settings { start, ..settings(4) }, &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (producer(&ring), reader(&ring, 0));
        let reading = thread::spawn(move || {
            for _ in 0..2 {
                if let Some(batch) = available(rx.try_batch(4)) {
                    assert_eq!(batch.len(), 4, "a part of a publication");
                    batch.iter().zip(0..).for_each(|(&event, i)| assert_eq!(event, i));
                }
            }
            rx
        });
        let mut slots = tx.claim_n(4).unwrap();
        slots.iter_mut().zip(0..).for_each(|(event, i)| *event = i);
        slots.publish();
        let mut rx = reading.join().unwrap();
        assert_eq!(rx.try_batch(4).unwrap().len(), 4);
    });
}

#[test]
fn loom_a_publication_is_seen_whole() {
    a_publication_is_seen_whole(1);
}

#[test]
fn loom_a_publication_that_refreshes_is_seen_whole() {
    a_publication_is_seen_whole(START);
}

#[test]
fn loom_twin_first_run_first() {
    caught(
        "publish::loom_a_publication_is_seen_whole",
        "first-run-first",
        Caught::Message("a part of a publication"),
    );
}

#[test]
fn loom_twin_first_run_first_of_a_refresh() {
    caught(
        "publish::loom_a_publication_that_refreshes_is_seen_whole",
        "first-run-first",
        Caught::Message("a part of a publication"),
    );
}

#[test]
fn loom_twin_stamp_relaxed_of_a_run() {
    caught("publish::loom_a_publication_is_seen_whole", "stamp-relaxed", Caught::Race);
}

/// Two producers publish at the same time. Shows that the reader sees each event once, and each
/// producer's events in order.
#[test]
fn loom_two_producers_one_reader() {
    explore_unfenced(5_000, Some(2), || {
        let ring = ring(shared(settings(4)), &[(Read, 0, &[])]);
        let (mut one, mut two) = (shared_producer(&ring), shared_producer(&ring));
        let mut rx = reader(&ring, 0);
        let first = thread::spawn(move || {
            one.publish(|event| *event = 10).unwrap();
            one.publish(|event| *event = 11).unwrap();
            one
        });
        let second = thread::spawn(move || {
            two.publish(|event| *event = 20).unwrap();
            two
        });
        let reading = thread::spawn(move || {
            let mut seen = Vec::new();
            for _ in 0..2 {
                rx.poll(4, |&event, _| seen.push(event)).unwrap();
            }
            (seen, rx)
        });
        let producers = (first.join().unwrap(), second.join().unwrap());
        let (mut seen, mut rx) = reading.join().unwrap();
        rx.poll(4, |&event, _| seen.push(event)).unwrap();
        assert!(
            matches!(seen[..], [10, 11, 20] | [10, 20, 11] | [20, 10, 11]),
            "lost or out of order: {seen:?}"
        );
        drop(producers);
    });
}

#[test]
fn loom_twin_claim_by_store() {
    caught("publish::loom_two_producers_one_reader", "claim-by-store", Caught::Race);
}

#[test]
fn loom_twin_stamp_relaxed_of_two_producers() {
    caught("publish::loom_two_producers_one_reader", "stamp-relaxed", Caught::Race);
}

/// Makes one attempt to publish an event, and returns the number of published events. Returns 0 if
/// the claim lost a race against another producer, or if another producer has closed the ring.
fn try_one(tx: &mut SharedProducer<u64>) -> usize {
    match tx.try_publish(|event| *event = 1) {
        Ok(_) => 1,
        Err(ClaimError::Contended | ClaimError::Wait(WaitError::Closed)) => 0,
        Err(other) => panic!("{other}"),
    }
}

/// Polls a closed ring until its end, and asserts that each poll finds an event.
fn drain(rx: &mut Reader<u64>, published: usize) {
    let mut seen = 0;
    while let Ok(polled) = rx.poll(4, |_, _| ()) {
        assert_ne!(polled, 0, "a poll found neither an event nor the end");
        seen += polled;
    }
    assert_eq!(seen, published, "events were lost");
}

/// One of two producers closes the ring for both, and drops its handle. The other claims by a plain
/// store, which must not overwrite the closed bit. This model cannot catch the twin `left-relaxed`,
/// because the fence of the closing handle hides the weakened step; `loom_a_producer_is_left_alone`
/// catches it.
#[test]
fn loom_a_producer_is_left_alone_by_a_close() {
    explore_unfenced(50, None, || {
        let ring = ring(shared(settings(4)), &[(Read, 0, &[])]);
        let (mut one, mut rx) = (shared_producer(&ring), reader(&ring, 0));
        let two = one.clone();
        let closing = thread::spawn(move || two.close_all());
        let published = try_one(&mut one) + try_one(&mut one);
        closing.join().unwrap();
        assert_eq!(try_one(&mut one), 0, "a claim behind the close");
        drain(&mut rx, published);
        ring
    });
}

#[test]
fn loom_twin_alone_relaxed_before_a_close() {
    caught(
        "publish::loom_a_producer_is_left_alone_by_a_close",
        "alone-relaxed",
        Caught::Message("a claim behind the close"),
    );
}

#[test]
fn loom_twin_alone_in_company_of_a_close() {
    caught(
        "publish::loom_a_producer_is_left_alone_by_a_close",
        "alone-in-company",
        Caught::Message("a poll found neither an event nor the end"),
    );
}

/// The only producer drops its handle while the graph's `Ring` makes a second producer; then the
/// `Ring` is dropped. The first drop may set the closed bit. Once the second producer is the only
/// claimant, it claims by a plain store to the claim word. Shows that this store does not overwrite
/// the closed bit.
#[test]
fn loom_a_producer_is_made_while_the_last_one_goes() {
    explore(2_000, None, || {
        let ring = ring(shared(settings(4)), &[(Read, 0, &[])]);
        // The model has no `graph::Ring`, which would count as a claimant, so it adds one claimant
        // itself.
        ring.control.membership.add_claimant();
        let (one, mut rx) = (shared_producer(&ring), reader(&ring, 0));
        let going = thread::spawn(move || drop(one));
        let mut two = shared_producer(&ring);
        ring.control.membership.remove_claimant();
        let published = try_one(&mut two) + try_one(&mut two);
        going.join().unwrap();
        drop(two);
        drain(&mut rx, published);
    });
}

#[test]
fn loom_twin_left_unclosed() {
    caught(
        "publish::loom_a_producer_is_made_while_the_last_one_goes",
        "left-unclosed",
        Caught::Message("a poll found neither an event nor the end"),
    );
}
