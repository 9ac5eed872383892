//! Models of early claims: producers take positions whose slots are not free yet, wait for them,
//! and settle with the close of their ring who still publishes.
//!
//! Each model begins with a full ring, and with handles that take it for half empty, because they
//! have not looked since other handles filled it. So the next claims of these handles are early.

use loom::thread;

use super::*;
use crate::errors::WaitError;
use Access::Read;

/// Fills the ring. Each handle of `early` publishes one event, and `last` publishes the rest. Each
/// of the handles `early` then knows of a slot that is no longer free.
fn fill(early: &mut [SharedProducer<u64>], last: &mut SharedProducer<u64>) {
    let rest = last.capacity() - early.len();
    for tx in early {
        tx.publish(|event| *event = 0).unwrap();
    }
    for _ in 0..rest {
        last.publish(|event| *event = 0).unwrap();
    }
}

/// Makes a full ring of four slots, and returns two handles whose next claims are early, a third
/// handle, and a reader.
fn two_early() -> ([SharedProducer<u64>; 2], SharedProducer<u64>, Reader<u64>) {
    let ring = ring(shared(blocking(4)), &[(Read, 0, &[])]);
    let [one, two, mut last] = [0; 3].map(|_| shared_producer(&ring));
    let rx = reader(&ring, 0);
    let mut early = [one, two];
    fill(&mut early, &mut last);
    (early, last, rx)
}

/// Publishes an event, and returns whether the ring was still open.
fn publishes(tx: &mut SharedProducer<u64>, value: u64) -> bool {
    match tx.publish(|event| *event = value) {
        Ok(_) => true,
        Err(WaitError::Closed) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Reads a closed ring to its end, and returns the events.
fn drained(rx: &mut Reader<u64>) -> Vec<u64> {
    let mut seen = Vec::new();
    let ended = rx.for_each(|&event, _| seen.push(event));
    ended.expect("the ring is closed");
    seen
}

/// A producer claims a position early, and publishes it after the slot's release; another producer
/// claims the next position.
#[test]
fn loom_an_early_claim_waits_for_its_slots() {
    explore(500, Some(3), || {
        let ring = ring(shared(blocking(2)), &[(Read, 0, &[])]);
        let (one, mut last) = (shared_producer(&ring), shared_producer(&ring));
        let mut rx = reader(&ring, 0);
        let mut early = [one];
        fill(&mut early, &mut last);
        let [mut one] = early;
        let publishing = thread::spawn(move || {
            one.publish(|event| *event = 10).unwrap();
            one.publish(|event| *event = 11).unwrap();
        });
        drop(last);
        let seen = drained(&mut rx);
        publishing.join().unwrap();
        assert_eq!(seen, [0, 0, 10, 11], "lost or out of order");
    });
}

#[test]
fn loom_twin_slots_unawaited() {
    caught("early::loom_an_early_claim_waits_for_its_slots", "slots-unawaited", Caught::Race);
}

/// Two producers claim early at the same time. Neither gets the other's position.
#[test]
fn loom_two_producers_claim_early() {
    explore(500, Some(2), || {
        let (early, last, mut rx) = two_early();
        let mut values = 1..;
        let publishing = early.map(|mut tx| {
            let value = values.next().expect("a value");
            thread::spawn(move || {
                tx.publish(|event| *event = value).unwrap();
                tx
            })
        });
        rx.poll(4, |_, _| ()).unwrap();
        let producers = publishing.map(|publishing| publishing.join().unwrap());
        let mut seen = Vec::new();
        rx.poll(4, |&event, _| seen.push(event)).unwrap();
        assert!(matches!(seen[..], [1, 2] | [2, 1]), "events were lost: {seen:?}");
        drop((producers, last));
    });
}

#[test]
fn loom_twin_added_by_store() {
    caught(
        "early::loom_two_producers_claim_early",
        "added-by-store",
        Caught::Message("events were lost"),
    );
}

/// A ring closes while two producers wait with early claims, and no stage releases a slot. Both
/// producers return, and the stream ends before their claims.
#[test]
fn loom_a_close_refuses_early_claims() {
    explore(500, Some(3), || {
        let (early, last, mut rx) = two_early();
        let publishing = early.map(|mut tx| {
            thread::spawn(move || assert!(!publishes(&mut tx, 1), "there was no room"))
        });
        last.close_all();
        publishing.into_iter().for_each(|publishing| publishing.join().unwrap());
        assert_eq!(drained(&mut rx), [0; 4], "events were lost");
    });
}

#[test]
fn loom_twin_closed_claim_waits() {
    caught(
        "early::loom_a_close_refuses_early_claims",
        "closed-claim-waits",
        Caught::Deadlock(&["producer"]),
    );
}

#[test]
fn loom_twin_moved_unnotified() {
    caught(
        "early::loom_a_close_refuses_early_claims",
        "moved-unnotified",
        Caught::Deadlock(&["producer"]),
    );
}

/// A ring closes while two producers wait with early claims, and then a stage releases slots. A
/// claim that is published is read, and a claim that is refused holds the stage up no longer.
#[test]
fn loom_a_close_races_with_a_release() {
    explore(500, Some(2), || {
        let (early, last, mut rx) = two_early();
        let publishing =
            early.map(|mut tx| thread::spawn(move || usize::from(publishes(&mut tx, 1))));
        last.close_all();
        let seen = drained(&mut rx).len();
        let published: usize =
            publishing.into_iter().map(|publishing| publishing.join().unwrap()).sum();
        assert_eq!(seen, 4 + published, "events were lost");
    });
}

#[test]
fn loom_twin_refused_over_a_gap() {
    caught(
        "early::loom_a_close_races_with_a_release",
        "refused-over-a-gap",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_refused_claim_taken() {
    caught(
        "early::loom_a_close_races_with_a_release",
        "refused-claim-taken",
        Caught::Message("events were lost"),
    );
}
