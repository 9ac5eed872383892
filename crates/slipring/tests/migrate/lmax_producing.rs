//! Rows of MIGRATING.md on the LMAX Disruptor: claims, slots, and full rings.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use slipring::{
    At, Graph, Producer,
    errors::{BatchError, BuildError, ClaimError},
    faults::Fault,
    stages::PRODUCER,
};

use crate::common::{LIMIT, PURPOSE, quiet};
use crate::{build_error, chain, graph, pair, shared, until};

// Claiming and publishing.

#[test]
fn claims_count_up_from_zero() {
    let _watched = crate::common::watched();
    let (mut tx, _rx) = pair(4);
    let slot = tx.claim().unwrap();
    assert_eq!(slot.seq(), 0);
    assert_eq!(slot.publish(), 0);
    assert_eq!(tx.publish(|v| *v = 1).unwrap(), 1);
    assert_eq!(tx.try_claim().unwrap().publish(), 2);
    assert_eq!(tx.try_publish(|v| *v = 3).unwrap(), 3);
}

#[test]
fn a_range_is_published_as_a_whole() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(8);
    let mut slots = tx.claim_n(6).unwrap();
    assert_eq!((slots.first_seq(), slots.len()), (0, 6));
    slots.iter_mut().zip(10..).for_each(|(slot, i)| *slot = i);
    assert!(matches!(rx.try_batch(8), Err(BatchError::Unavailable)));
    assert_eq!(slots.publish(), 0);
    let batch = rx.try_batch(8).unwrap();
    assert!(batch.iter().copied().eq(10..16));
    batch.release();
    assert_eq!(tx.claim().unwrap().seq(), 6);
}

#[test]
fn odd_claims_are_refused() {
    let _watched = crate::common::watched();
    let (mut single, _rx) = pair(4);
    let graph = shared(4);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut many, _reader) = (ring.producer(), ring.reader(key));
    for asked in [0, 5, usize::MAX] {
        let is_length = |error: Option<ClaimError>| matches!(error, Some(ClaimError::Length { asked: a, capacity: 4 }) if a == asked);
        assert!(
            is_length(single.claim_n(asked).err()) && is_length(single.try_claim_n(asked).err())
        );
        assert!(is_length(many.claim_n(asked).err()) && is_length(many.try_claim_n(asked).err()));
        assert!(is_length(single.publish_batches(asked, 0..9, |_, _| ()).err()));
    }
    // The refused calls claimed no slot.
    assert_eq!((single.claim_n(4).unwrap().publish(), many.claim_n(4).unwrap().publish()), (0, 0));
}

#[test]
fn an_open_claim_holds_back_the_rest() {
    let _watched = crate::common::watched();
    let graph = shared(8);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut a, mut b, mut rx) = (ring.producer(), ring.producer(), ring.reader(key));
    let mut first = a.claim().unwrap();
    assert_eq!(b.publish(|v| *v = 1).unwrap(), 1);
    assert!(matches!(rx.try_batch(8), Err(BatchError::Unavailable)));
    *first = 0;
    first.publish();
    assert!(rx.try_batch(8).unwrap().iter().copied().eq(0..2));
}

#[test]
fn a_claim_may_be_given_up() {
    let _watched = crate::common::watched();
    // A single producer claims the position again.
    let (mut tx, mut rx) = pair(4);
    drop(tx.claim().unwrap());
    assert_eq!(tx.publish(|v| *v = 7).unwrap(), 0);
    assert_eq!(rx.poll(9, |v, at| assert_eq!((*v, at.seq), (7, 0))).unwrap(), 1);
    // With many producers the stages pass over the position.
    let graph = shared(4);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    drop(tx.claim_n(2).unwrap());
    assert_eq!(tx.publish(|v| *v = 7).unwrap(), 2);
    assert_eq!(rx.poll(9, |v, at| assert_eq!((*v, at.seq), (7, 2))).unwrap(), 1);
}

#[test]
fn a_translator_is_a_closure() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    let (price, amount) = (3, 5);
    tx.publish(|slot| *slot = price * amount).unwrap();
    assert_eq!(tx.publish_all([20, 30], |slot, item| *slot = item).unwrap(), 2);
    // A translator that needs the position uses a claim.
    let mut slot = tx.claim().unwrap();
    *slot = slot.seq() + 100;
    slot.publish();
    assert!(rx.try_batch(9).unwrap().iter().copied().eq([15, 20, 30, 103]));
}

#[test]
fn a_failed_translation_is_not_published() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    let fill = |tx: &mut Producer<u64>, text: &str| -> Result<u64, Fault> {
        let mut slot = tx.claim()?;
        *slot = text.parse()?;
        Ok(slot.publish())
    };
    assert!(fill(&mut tx, "x").is_err());
    assert_eq!(fill(&mut tx, "8").unwrap(), 0);
    assert_eq!(rx.poll(9, |v, _| assert_eq!(*v, 8)).unwrap(), 1);
    // A panic ends the graph.
    quiet();
    assert!(
        catch_unwind(AssertUnwindSafe(|| tx.publish(|_| panic!("filling {PURPOSE}")))).is_err()
    );
    let closed = rx.for_each(|v, _| panic!("saw {v}")).unwrap_err();
    let failure = closed.failure().unwrap();
    assert_eq!((&**failure.stage(), failure.seq()), (PRODUCER, Some(1)));
}

// The ring.

#[test]
fn events_are_made_once_and_reused() {
    let _watched = crate::common::watched();
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let graph = Graph::new(4, move || vec![count.fetch_add(1, SeqCst)]).deadline(LIMIT);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    assert_eq!(made.load(SeqCst), 4);
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    for seq in 0..12 {
        tx.publish(|slot| slot.push(seq + 100)).unwrap();
        rx.poll(9, |event, at| {
            assert!(event[0] == at.seq % 4 && event.len() as u64 == 2 + at.seq / 4)
        })
        .unwrap();
    }
    assert_eq!((made.load(SeqCst), tx.capacity()), (4, 4));
}

#[test]
fn the_capacity_is_a_power_of_two() {
    let _watched = crate::common::watched();
    for asked in [0, 3, 1000] {
        let graph = graph(asked);
        let _key = graph.reader("r");
        assert_eq!(build_error(graph.build()), BuildError::Capacity { asked });
        assert!(chain(asked).read("r", |_, _| ()).feed(0..1, |_, _| ()).unwrap_err().is_build());
    }
    assert_eq!(pair(1).0.capacity(), 1);
}

#[test]
fn slots_come_round() {
    let _watched = crate::common::watched();
    let mut next = 0;
    let check = |v: &u64, at: At| {
        assert_eq!((*v, at.seq), (next, next));
        next += 1;
    };
    chain(32).read("r", check).feed(0..1032, |slot, i| *slot = i).unwrap();
    assert_eq!(next, 1032);
}

#[test]
fn a_ring_begins_anywhere() {
    let _watched = crate::common::watched();
    for start in [14, u64::MAX - 2] {
        let graph = graph(4).first_seq(start);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        for i in 0..10 {
            let seq = start.wrapping_add(i);
            assert_eq!(rx.next_seq(), seq);
            assert_eq!(tx.publish(|v| *v = i).unwrap(), seq);
            assert_eq!(rx.poll(9, |v, at| assert_eq!((*v, at.seq), (i, seq))).unwrap(), 1);
        }
    }
}

#[test]
fn without_stages_a_ring_is_never_full() {
    let _watched = crate::common::watched();
    let ring = graph(4).build().unwrap();
    let mut tx = ring.producer();
    assert!((0..100).all(|i| tx.try_publish(|v| *v = i).unwrap() == i));
}

// Full rings.

#[test]
fn a_full_ring_refuses() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    assert!((0..4).all(|i| tx.try_publish(|v| *v = i).is_ok()));
    for _ in 0..2 {
        assert!(
            matches!(tx.try_publish(|v| *v = 4), Err(ClaimError::Gated { stage, lag: 4 }) if &*stage == "r")
        );
        assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { .. })));
    }
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(tx.try_publish(|v| *v = 4).unwrap(), 4);
    assert!(rx.try_batch(9).unwrap().iter().copied().eq(1..5));
    // If a ring with many producers is full, it is full for each of them.
    let graph = shared(2);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut producers, mut rx) = ([ring.producer(), ring.producer()], ring.reader(key));
    assert!(producers.iter_mut().all(|tx| tx.try_publish(|_| ()).is_ok()));
    for tx in &mut producers {
        assert!(
            matches!(tx.try_claim(), Err(ClaimError::Gated { stage, lag: 2 }) if &*stage == "r")
        );
    }
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(producers[1].try_publish(|_| ()).unwrap(), 2);
}

#[test]
fn a_full_ring_holds_the_producer() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    let published = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..5 {
                tx.publish(|v| *v = i).unwrap();
                published.fetch_add(1, SeqCst);
            }
        });
        until("the ring is full", || published.load(SeqCst) == 4);
        assert!(rx.batch(9).unwrap().iter().copied().eq(0..4)); // not released
        assert_eq!(published.load(SeqCst), 4);
        rx.batch(1).unwrap().release();
        until("the fifth is published", || published.load(SeqCst) == 5);
    });
    assert!(rx.try_batch(9).unwrap().iter().copied().eq(1..5));
}

#[test]
fn the_slowest_end_gates() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let first = graph.reader("first");
    let (quick, slow) = (graph.reader("quick").after(&first), graph.reader("slow").after(&first));
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut quick, mut slow) =
        (ring.producer(), ring.reader(first), ring.reader(quick), ring.reader(slow));
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    assert_eq!((first.poll(9, |_, _| ()).unwrap(), quick.poll(9, |_, _| ()).unwrap()), (4, 4));
    assert!(
        matches!(tx.try_claim(), Err(ClaimError::Gated { stage, lag: 4 }) if &*stage == "slow")
    );
    assert_eq!(slow.poll(3, |_, _| ()).unwrap(), 3);
    assert!(
        matches!(tx.try_claim_n(4), Err(ClaimError::Gated { stage, lag: 1 }) if &*stage == "slow")
    );
    tx.try_claim_n(3).unwrap().publish();
}
