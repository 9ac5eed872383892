//! Tests of raw producers and consumers, which claim, fill, lend and release by position.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use slipring::{
    Graph, SharedProducer,
    errors::{BatchError, ClaimError, NotHeld, WaitError},
};

#[test]
fn raw_positions_are_claimed_filled_and_done() {
    let _watched = crate::common::watched();
    macro_rules! check {
        ($ring:expr, $end:expr, $many:expr) => {{
            let (tx, rx, many) = ($ring.producer(), $ring.reader($end), $many);
            drop($ring);
            let (mut tx, mut rx) = (tx.into_raw(), rx.into_raw());
            assert_eq!(tx.available(), 8);
            assert!(matches!(rx.next(), Err(BatchError::Unavailable)));
            assert_eq!(tx.next_n(4).unwrap(), u64::MAX - 1);
            assert_eq!(tx.available(), 4);
            // A producer has one claim at a time, and accesses only the claim's slots.
            assert!(matches!(tx.next(), Err(ClaimError::Held { first, len: 4 }) if first == u64::MAX - 1));
            for (i, seq) in [u64::MAX - 1, u64::MAX, 0, 1].into_iter().enumerate() {
                *tx.at_mut(seq).unwrap() = i as u64;
                assert_eq!(tx.at(seq), Some(&(i as u64)));
            }
            assert!(tx.at(2).is_none() && tx.at_mut(u64::MAX - 2).is_none());
            assert!(matches!(rx.next(), Err(BatchError::Unavailable)), "a claimed event that is not done");
            assert!(matches!(tx.done(2), Err(NotHeld { seq: 2, len: 4, .. })));
            tx.done(u64::MAX).unwrap();
            assert!(rx.available(10).unwrap().eq([u64::MAX - 1, u64::MAX]), "only the two events that are done");
            assert!(tx.at(u64::MAX).is_none(), "a published event belongs to the stages");
            assert!(tx.done(u64::MAX).is_err());
            tx.done(1).unwrap();
            assert!(matches!(tx.done(1), Err(NotHeld { len: 0, .. })));

            assert_eq!(rx.next().unwrap(), u64::MAX - 1);
            assert_eq!(rx.next().unwrap(), u64::MAX - 1, "the same position until it is done");
            assert!(rx.at(u64::MAX).is_none(), "`next` lends one event");
            let there = rx.available(10).unwrap();
            assert_eq!((there.first_seq(), there.last_seq(), there.len()), (u64::MAX - 1, 1, 4));
            assert_eq!((u64::MAX - 1..=u64::MAX).chain(0..2).map(|seq| *rx.at(seq).unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
            rx.done(u64::MAX).unwrap();
            assert!(rx.at(u64::MAX).is_none() && rx.at(2).is_none());
            assert_eq!(rx.at(0), Some(&2), "still lent");
            assert!(rx.done(u64::MAX).is_err() && rx.done(2).is_err());
            rx.done(1).unwrap();
            assert_eq!(tx.available(), 8);

            // After `give_up` a single producer claims the same positions again; with many
            // producers they become a tombstone.
            let given_up = tx.next_n(3).unwrap();
            tx.give_up();
            assert!(tx.at(given_up).is_none());
            let next = tx.next().unwrap();
            assert_eq!(next, if many { given_up + 3 } else { given_up });
            *tx.at_mut(next).unwrap() = 9;
            tx.done(next).unwrap();
            let seq = loop {
                match rx.next() {
                    Ok(seq) => break seq,
                    Err(BatchError::Unavailable) => {}
                    Err(other) => panic!("{other}"),
                }
            };
            assert_eq!((seq, rx.at(seq)), (next, Some(&9)));
            // `into_inner` returns the handle that lends batches. An event that is not done is
            // delivered again.
            let mut rx = rx.into_inner();
            let mut tx = tx.into_inner();
            tx.publish(|slot| *slot = 10).unwrap();
            drop(tx);
            let mut seen = Vec::new();
            rx.for_each(|v, _| seen.push(*v)).unwrap();
            assert_eq!(seen, [9, 10]);
            assert!(matches!(rx.into_raw().next(), Err(BatchError::Wait(WaitError::Closed))));
        }};
    }
    let graph = Graph::new(8, || 0u64).first_seq(u64::MAX - 1);
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    check!(ring, end, false);
    let graph = Graph::new(8, || 0u64).first_seq(u64::MAX - 1).shared();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    check!(ring, end, true);
}

#[test]
fn dropping_a_raw_producer_buries_its_open_claim() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).shared();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut one, mut two, mut end) =
        (ring.producer().into_raw(), ring.producer(), ring.reader(end));
    one.next_n(2).unwrap();
    two.publish(|slot| *slot = 7).unwrap();
    assert!(matches!(end.try_batch(4), Err(BatchError::Unavailable)));
    one.done(0).unwrap();
    drop(one);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        end.poll(4, |v, at| seen.push((*v, at.seq))).unwrap();
    }
    assert_eq!(seen, [(0, 0), (7, 2)]);
}

/// Forgets a claim, passes its producer to `proceed`, and keeps the result alive. Asserts that the
/// stage still passes over the claim.
fn buries_forgotten_claim<T>(proceed: impl FnOnce(SharedProducer<u64>) -> T) {
    let graph = Graph::new(8, || 0u64).shared().deadline(Duration::from_secs(20));
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut last, mut rx) = (ring.producer(), ring.producer(), ring.reader(end));
    drop(ring);
    std::mem::forget(tx.claim_n(2).unwrap());
    let kept = proceed(tx);
    last.publish(|slot| *slot = 7).unwrap();
    last.close_all();
    let mut seen = Vec::new();
    rx.for_each(|v, _| seen.push(*v))
        .unwrap_or_else(|error| panic!("the stage waits for the forgotten claim: {error}"));
    assert_eq!(seen.last(), Some(&7));
    drop(kept);
}

#[test]
fn raw_calls_bury_a_forgotten_claim() {
    let _watched = crate::common::watched();
    buries_forgotten_claim(|tx| drop(tx.into_raw()));
    buries_forgotten_claim(|tx| tx.into_raw());
    buries_forgotten_claim(|tx| tx.into_raw().into_inner());
    buries_forgotten_claim(|tx| {
        let mut tx = tx.into_raw();
        tx.give_up();
        tx
    });
    buries_forgotten_claim(|tx| {
        let mut tx = tx.into_raw();
        assert_eq!(tx.available(), 6);
        let seq = tx.next().unwrap();
        tx.done(seq).unwrap();
        tx
    });
    buries_forgotten_claim(|tx| {
        let mut tx = tx.into_raw();
        tx.next_n(2).unwrap();
        tx.give_up();
        tx
    });
}

#[test]
fn unavailable_and_gated_are_distinct_errors() {
    let _watched = crate::common::watched();
    // The two errors can be told apart if the stage stands between two publications, or if the ring
    // has a cursor.
    macro_rules! check {
        ($graph:expr) => {{
            let graph = $graph;
            let first = graph.reader("first");
            let second = graph.reader("second").after(&first);
            let third = graph.reader("third").after(&second);
            let ring = graph.build().unwrap();
            let (mut tx, mut first) = (ring.producer(), ring.reader(first));
            let (mut second, mut third) =
                (ring.reader(second).into_raw(), ring.reader(third).into_raw());
            let gated = |error: Result<u64, BatchError>| match error {
                Err(BatchError::Gated { stage, lag }) => Some((stage.to_string(), lag)),
                Err(BatchError::Unavailable) => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(gated(second.next()), None);
            tx.publish_batches(3, 0..3, |slot, i| *slot = i).unwrap();
            assert_eq!(gated(second.next()), Some(("first".into(), 3)));
            assert_eq!(gated(third.next()), None, "second has nothing to release");
            first.try_batch(2).unwrap().release();
            assert_eq!(gated(third.next()), Some(("second".into(), 2)));
            assert!(second.available(9).unwrap().eq(0..2));
            second.done(1).unwrap();
            assert_eq!(third.next().unwrap(), 0);
        }};
    }
    check!(Graph::new(8, || 0u64));
    check!(Graph::new(8, || 0u64).publish_cursor());
    check!(Graph::new(8, || 0u64).shared());
    check!(Graph::new(8, || 0u64).contiguous());
    let (tx, rx) = slipring::unicast(2, || 0u64).unwrap();
    let mut tx = tx.into_raw();
    tx.next_n(2).unwrap();
    tx.done(1).unwrap();
    let error = tx.next().unwrap_err();
    assert!(
        matches!(&error, ClaimError::Gated { stage, lag: 2 } if stage.as_str() == "reader"),
        "{error}"
    );
    drop(rx);
    assert!(matches!(tx.next(), Err(ClaimError::Wait(WaitError::Failed(_)))));
}

#[test]
fn raw_calls_of_many_threads_lose_no_event() {
    let _watched = crate::common::watched();
    let each = if cfg!(miri) { 50 } else { 5_000u64 };
    let graph = Graph::new(16, || 0u64).shared();
    let pool = graph.pool_updater("pool", 3);
    let end = graph.reader("end").after(&pool);
    let ring = graph.build().unwrap();
    let producers: Vec<_> = (0..2).map(|_| ring.producer().into_raw()).collect();
    let workers = ring.pool_updaters(pool);
    let mut end = ring.reader(end);
    drop(ring);
    let contended = AtomicU64::new(0);
    let sum = thread::scope(|s| {
        for (i, mut tx) in producers.into_iter().enumerate() {
            let contended = &contended;
            s.spawn(move || {
                let mut sent = 0;
                while sent < each {
                    match tx.next() {
                        Ok(seq) => {
                            *tx.at_mut(seq).unwrap() = sent * 2 + i as u64;
                            tx.done(seq).unwrap();
                            sent += 1;
                        }
                        Err(ClaimError::Contended) => _ = contended.fetch_add(1, Relaxed),
                        Err(ClaimError::Gated { .. }) => thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        for worker in workers {
            s.spawn(move || {
                let mut worker = worker.into_raw();
                loop {
                    match worker.available(3) {
                        Ok(there) => {
                            assert!((1..=3).contains(&there.len()));
                            for seq in there {
                                *worker.at_mut(seq).unwrap() += 1;
                                worker.done(seq).unwrap();
                            }
                        }
                        Err(BatchError::Wait(WaitError::Closed)) => break,
                        Err(BatchError::Wait(other)) => panic!("{other}"),
                        Err(_) => thread::yield_now(),
                    }
                }
            });
        }
        let mut sum = 0;
        let mut next = 0;
        end.for_each(|v, at| {
            assert_eq!(at.seq, next);
            next += 1;
            sum += v;
        })
        .unwrap();
        sum
    });
    let total = each * 2;
    assert_eq!(sum, total * (total - 1) / 2 + total);
}

#[test]
fn a_worker_takes_at_most_the_requested_events() {
    let _watched = crate::common::watched();
    let graph = Graph::new(64, || 0u64);
    let pool = graph.pool_reader("pool", 2);
    let ring = graph.build().unwrap();
    let (mut tx, mut pool) = (ring.producer(), ring.pool_readers(pool));
    for i in 0..3000u64 {
        tx.publish(|slot| *slot = i).unwrap();
        if i % 3 == 2 {
            // The first worker takes one event, and the second gets the other two.
            assert_eq!(pool[0].poll(1, |_, _| ()).unwrap(), 1);
            let mut others = 0;
            while let Ok(batch) = pool[1].try_batch(1) {
                assert_eq!(batch.len(), 1);
                batch.release();
                others += 1;
            }
            assert_eq!(others, 2, "at {i}");
        }
    }
}
