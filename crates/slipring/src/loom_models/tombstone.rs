//! Models of tombstones: with many producers, every stage passes over the slots of a claim that is
//! never published.
//!
//! The models have one or two producers and up to two stages, on rings of 1 to 4 slots.

use loom::thread;

use super::*;
use Access::{Read, Write};

/// One producer drops its claim, and another producer publishes. The reader passes over the
/// tombstone and gets the published event.
#[test]
fn loom_a_dropped_claim_is_passed_over() {
    explore(7_000, Some(2), || {
        let ring = ring(shared(blocking(2)), &[(Read, 0, &[])]);
        let (mut one, mut two, mut rx) =
            (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        let giving_up = thread::spawn(move || drop(one.claim().unwrap()));
        let publishing = thread::spawn(move || {
            two.publish(|event| *event = 7).unwrap();
        });
        assert_eq!(rx.for_each(|&event, _| assert_eq!(event, 7)).unwrap(), 1);
        giving_up.join().unwrap();
        publishing.join().unwrap();
    });
}

#[test]
fn loom_twin_given_up_unburied() {
    caught(
        "tombstone::loom_a_dropped_claim_is_passed_over",
        "given-up-unburied",
        Caught::Deadlock(&["s0"]),
    );
}

/// A producer forgets a claim and claims again with the same handle. The second claim turns the
/// forgotten slots into a tombstone.
#[test]
fn loom_a_forgotten_claim_is_settled_by_the_next() {
    explore(500, Some(3), || {
        let ring = ring(shared(blocking(2)), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (shared_producer(&ring), reader(&ring, 0));
        let publishing = thread::spawn(move || {
            std::mem::forget(tx.claim().unwrap());
            tx.publish(|event| *event = 7).unwrap();
            tx
        });
        let batch = rx.batch(1).unwrap();
        assert_eq!((batch[0], batch.first_seq()), (7, START.wrapping_add(1)));
        batch.release();
        drop(publishing.join().unwrap());
    });
}

#[test]
fn loom_twin_forgotten_unburied() {
    caught(
        "tombstone::loom_a_forgotten_claim_is_settled_by_the_next",
        "forgotten-unburied",
        Caught::Deadlock(&["s0"]),
    );
}

/// A producer forgets a claim. When its handle is dropped, the forgotten slots become a tombstone.
#[test]
fn loom_a_forgotten_claim_is_settled_by_the_end() {
    explore(500, Some(3), || {
        let ring = ring(shared(blocking(2)), &[(Read, 0, &[])]);
        let (mut tx, mut rx) = (shared_producer(&ring), reader(&ring, 0));
        let forgetting = thread::spawn(move || std::mem::forget(tx.claim_n(2).unwrap()));
        assert_eq!(rx.for_each(|_, _| unreachable!()).unwrap(), 0);
        forgetting.join().unwrap();
    });
}

#[test]
fn loom_twin_forgotten_unburied_at_the_end() {
    caught(
        "tombstone::loom_a_forgotten_claim_is_settled_by_the_end",
        "forgotten-unburied",
        Caught::Deadlock(&["s0"]),
    );
}

/// A reader behind a writer walks over a run, a tombstone and an event.
#[test]
fn loom_a_follower_passes_over_a_tombstone() {
    explore(300, Some(3), || {
        let ring = ring(shared(settings(4)), &[(Write, 0, &[]), (Read, 0, &[0])]);
        let (mut tx, mut writer, mut rx) =
            (shared_producer(&ring), writer(&ring, 0), reader(&ring, 1));
        let mut slots = tx.claim_n(2).unwrap();
        slots.iter_mut().zip(0..).for_each(|(event, i)| *event = i);
        slots.publish();
        drop(tx.claim().unwrap());
        tx.publish(|event| *event = 3).unwrap();
        let writing = thread::spawn(move || {
            for _ in 0..4 {
                // The writer releases one event at a time, so that the follower may find only a
                // part of the run released.
                if let Some(mut batch) = available(writer.try_batch(1)) {
                    batch[0] += 100;
                    batch.release();
                }
            }
            writer
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            rx.poll(4, |&event, _| seen.push(event)).unwrap();
        }
        let _writer = writing.join().unwrap();
        rx.poll(4, |&event, _| seen.push(event)).unwrap();
        assert_eq!(seen, [100, 101, 103], "events were lost");
    });
}

#[test]
fn loom_twin_frontier_relaxed_at_a_tombstone() {
    caught("tombstone::loom_a_follower_passes_over_a_tombstone", "frontier-relaxed", Caught::Race);
}

#[test]
fn loom_twin_given_up_unburied_and_let_go() {
    caught(
        "tombstone::loom_a_follower_passes_over_a_tombstone",
        "given-up-unburied",
        Caught::Message("events were lost"),
    );
}

/// A tombstone's slot is claimed again only in the next lap.
#[test]
fn loom_a_tombstone_is_lapped() {
    explore(600, Some(3), || {
        let ring = ring(shared(settings(1)), &[(Read, 0, &[])]);
        let (mut one, mut two, mut rx) =
            (shared_producer(&ring), shared_producer(&ring), reader(&ring, 0));
        let giving_up = thread::spawn(move || {
            one.try_claim().map(drop).ok();
            one
        });
        let publishing = thread::spawn(move || {
            let published = (0..2).filter(|_| two.try_publish(|event| *event = 7).is_ok()).count();
            (published, two)
        });
        let mut seen = rx.poll(4, |&event, _| assert_eq!(event, 7)).unwrap();
        let _one = giving_up.join().unwrap();
        let (published, _two) = publishing.join().unwrap();
        seen += rx.poll(4, |&event, _| assert_eq!(event, 7)).unwrap();
        assert_eq!(seen, published, "events were lost");
    });
}

/// A reader joins a tap in the middle of a tombstone of two slots. The stage behind the tap stops
/// at the reader's position, instead of passing the whole tombstone. It is a pool of `workers`, or
/// a writer if `workers` is 0.
fn from_the_middle_of_a_tombstone(workers: usize) {
    let behind = if workers == 0 { Delivery::Each } else { Delivery::pool(workers) };
    let ring = ring_of(
        shared(settings(4)),
        [(Read, Delivery::Tap(1), &[][..]), (Write, behind, &[0][..])],
    );
    let mut tx = shared_producer(&ring);
    tx.publish(|event| *event = 0).unwrap();
    drop(tx.try_claim_n(2).unwrap());
    tx.publish(|event| *event = 3).unwrap();
    let mut late = crate::live::tap::join(
        &ring.observed().upgrade().expect("the owner is alive"),
        0,
        crate::live::tap::StartAt::At(START.wrapping_add(2)),
    )
    .expect("a free member seat");
    let reading = thread::spawn(move || {
        late.poll(1, |event, _| assert_eq!(*event, 3, "an event of the next lap")).unwrap();
        late
    });
    macro_rules! polls {
        ($behind:expr) => {{
            let mut behind = $behind;
            (0..3).for_each(|_| _ = behind.poll(1, |event, _| *event += 0).unwrap());
            // The producer fills the next lap's slots, up to the reader's position.
            (4..7).for_each(|value| _ = tx.try_publish(|event| *event = value));
            drop((reading.join().unwrap(), behind));
        }};
    }
    if workers == 0 { polls!(writer(&ring, 1)) } else { polls!(worker(&ring, 1, 0)) }
}

#[test]
fn loom_a_follower_stops_inside_of_a_tombstone() {
    explore(10, None, || from_the_middle_of_a_tombstone(0));
}

#[test]
fn loom_twin_past_the_limit() {
    caught(
        "tombstone::loom_a_follower_stops_inside_of_a_tombstone",
        "past-the-limit",
        Caught::Race,
    );
}

#[test]
fn loom_a_worker_stops_inside_of_a_tombstone() {
    explore(10, None, || from_the_middle_of_a_tombstone(1));
}

#[test]
fn loom_twin_worker_past_the_limit() {
    caught(
        "tombstone::loom_a_worker_stops_inside_of_a_tombstone",
        "worker-past-the-limit",
        Caught::Message("an event of the next lap"),
    );
}
