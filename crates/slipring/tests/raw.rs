//! The raw calls, and a full ring by choice.

mod common;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    BatchError, ClaimError, ConflateError, ErrorKind, Graph, NotHeld, Sent, SharedProducer,
    StartAt, Wait, WaitError,
};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn positions_are_claimed_filled_and_done() {
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
            // One claim at a time, and nothing outside of it.
            assert!(matches!(tx.next(), Err(ClaimError::Held { first, len: 4 }) if first == u64::MAX - 1));
            for (i, seq) in [u64::MAX - 1, u64::MAX, 0, 1].into_iter().enumerate() {
                *tx.at_mut(seq).unwrap() = i as u64;
                assert_eq!(tx.at(seq), Some(&(i as u64)));
            }
            assert!(tx.at(2).is_none() && tx.at_mut(u64::MAX - 2).is_none());
            assert!(matches!(rx.next(), Err(BatchError::Unavailable)), "not done yet");
            assert!(matches!(tx.done(2), Err(NotHeld { seq: 2, len: 4, .. })));
            tx.done(u64::MAX).unwrap();
            assert!(rx.available(10).unwrap().eq([u64::MAX - 1, u64::MAX]), "the first two, and not what is behind");
            assert!(tx.at(u64::MAX).is_none(), "it is others' now");
            assert!(tx.done(u64::MAX).is_err());
            tx.done(1).unwrap();
            assert!(matches!(tx.done(1), Err(NotHeld { len: 0, .. })));

            assert_eq!(rx.next().unwrap(), u64::MAX - 1);
            assert_eq!(rx.next().unwrap(), u64::MAX - 1, "the same until it is done");
            assert!(rx.at(u64::MAX).is_none(), "only one was asked for");
            let there = rx.available(10).unwrap();
            assert_eq!((there.first_seq(), there.last_seq(), there.len()), (u64::MAX - 1, 1, 4));
            assert_eq!((u64::MAX - 1..=u64::MAX).chain(0..2).map(|seq| *rx.at(seq).unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
            rx.done(u64::MAX).unwrap();
            assert!(rx.at(u64::MAX).is_none() && rx.at(2).is_none());
            assert_eq!(rx.at(0), Some(&2), "still lent");
            assert!(rx.done(u64::MAX).is_err() && rx.done(2).is_err());
            rx.done(1).unwrap();
            assert_eq!(tx.available(), 8);

            // Given up: a single producer claims the same again, of many everybody passes over it.
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
            // Back to leases: what is not done comes again.
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
fn a_claim_that_is_left_open_is_given_up_with_its_handle() {
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

/// Forgets a claim, lets `go_on` have the handle, and keeps what that returns alive: all stages
/// must get past the claim.
fn forgets_a_claim<T>(go_on: impl FnOnce(SharedProducer<u64>) -> T) {
    let graph = Graph::new(8, || 0u64).shared().deadline(Duration::from_secs(20));
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut last, mut rx) = (ring.producer(), ring.producer(), ring.reader(end));
    drop(ring);
    std::mem::forget(tx.claim_n(2).unwrap());
    let kept = go_on(tx);
    last.publish(|slot| *slot = 7).unwrap();
    last.close_all();
    let mut seen = Vec::new();
    rx.for_each(|v, _| seen.push(*v))
        .unwrap_or_else(|error| panic!("the stage waits for the forgotten claim: {error}"));
    assert_eq!(seen.last(), Some(&7));
    drop(kept);
}

#[test]
fn a_claim_that_was_forgotten_is_given_up_by_the_raw_calls() {
    let _watched = crate::common::watched();
    forgets_a_claim(|tx| drop(tx.into_raw()));
    forgets_a_claim(|tx| tx.into_raw());
    forgets_a_claim(|tx| tx.into_raw().into_inner());
    forgets_a_claim(|tx| {
        let mut tx = tx.into_raw();
        tx.give_up();
        tx
    });
    forgets_a_claim(|tx| {
        let mut tx = tx.into_raw();
        assert_eq!(tx.available(), 6);
        let seq = tx.next().unwrap();
        tx.done(seq).unwrap();
        tx
    });
    forgets_a_claim(|tx| {
        let mut tx = tx.into_raw();
        tx.next_n(2).unwrap();
        tx.give_up();
        tx
    });
}

#[test]
fn unavailable_contended_and_gated_are_told_apart() {
    let _watched = crate::common::watched();
    // Where it is known what is published, or the stages stand between publications.
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
fn many_to_many_by_raw_calls() {
    let _watched = crate::common::watched();
    let each = if cfg!(miri) { 50 } else { 5_000u64 };
    let graph = Graph::new(16, || 0u64).shared();
    let pool = graph.pool_writer("pool", 3);
    let end = graph.reader("end").after(&pool);
    let ring = graph.build().unwrap();
    let producers: Vec<_> = (0..2).map(|_| ring.producer().into_raw()).collect();
    let workers = ring.pool_writers(pool);
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
fn a_worker_takes_no_more_than_it_asks_for() {
    let _watched = crate::common::watched();
    let graph = Graph::new(64, || 0u64);
    let pool = graph.pool_reader("pool", 2);
    let ring = graph.build().unwrap();
    let (mut tx, mut pool) = (ring.producer(), ring.pool_readers(pool));
    for i in 0..3000u64 {
        tx.publish(|slot| *slot = i).unwrap();
        if i % 3 == 2 {
            // However quick the first is, it takes what it asks for, and the second has the others.
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

#[test]
fn room_is_told_as_it_is() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    for free in (1..=4).rev() {
        assert_eq!(tx.remaining(), free);
        tx.publish(|_| ()).unwrap();
    }
    assert_eq!(tx.remaining(), 0);
    rx.poll(3, |_, _| ()).unwrap();
    assert_eq!(tx.remaining(), 3);
    let graph = Graph::new(4, || 0u64).shared();
    let ring = graph.build().unwrap();
    let (mut one, mut two) = (ring.producer(), ring.producer());
    (0..3).for_each(|_| _ = one.publish(|_| ()).unwrap());
    assert_eq!((one.remaining(), two.remaining()), (4, 4), "without stages nothing is held");
    let claim = one.claim_n(3).unwrap();
    assert_eq!(two.remaining(), 1);
    claim.publish();
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).shared();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    let mut sent = Vec::new();
    for i in 0..10 {
        if i == 7 {
            end.poll(1, |_, _| ()).unwrap();
        }
        if let Some(seq) = tx.publish_or_drop(|slot| *slot = i).unwrap() {
            sent.push((seq, i));
        }
    }
    assert_eq!(sent, [(0, 0), (1, 1), (2, 2), (3, 3), (4, 7)]);
    drop(tx);
    let report = ring.report();
    let producer = report.stage(slipring::PRODUCER).unwrap();
    assert_eq!((producer.dropped, producer.events), (5, 5));
    ring.halt();
    assert!(matches!(ring.producer().publish_or_drop(|_| ()), Err(WaitError::Halted)));
}

#[test]
fn the_newest_for_each_key_is_kept() {
    let _watched = crate::common::watched();
    let (tx, mut rx) = slipring::unicast(2, || (0u64, 0u64)).unwrap();
    let mut tx = tx.conflate(2, |slot, key, value| *slot = (*key, value)).unwrap();
    assert_eq!(tx.send(1, 10).unwrap(), Sent::Published(0));
    assert_eq!(tx.send(2, 20).unwrap(), Sent::Published(1));
    assert_eq!(tx.send(1, 11).unwrap(), Sent::Kept);
    assert_eq!(tx.send(2, 21).unwrap(), Sent::Kept);
    assert_eq!(tx.send(1, 12).unwrap(), Sent::Replaced(11));
    let error = tx.send(3, 30).unwrap_err();
    assert!(error.to_string().contains("2 other keys"), "{error}");
    assert!(matches!(error, ConflateError::Full { room: 2, value: 30 }));
    assert_eq!((tx.kept(), tx.flush().unwrap()), (2, 2));
    let mut seen = Vec::new();
    rx.poll(1, |v, _| seen.push(*v)).unwrap();
    // There is room for one, and that is for what came first.
    assert_eq!(tx.send(3, 31).unwrap(), Sent::Kept);
    assert_eq!(tx.send(2, 22).unwrap(), Sent::Replaced(21));
    rx.poll(9, |v, _| seen.push(*v)).unwrap();
    assert_eq!(tx.flush().unwrap(), 0);
    assert!(matches!(tx.send(4, 40).unwrap(), Sent::Kept));
    assert!(matches!(
        tx.flush_by(Instant::now() + Duration::from_millis(1)),
        Err(ClaimError::TimedOut { .. })
    ));
    rx.poll(9, |v, _| seen.push(*v)).unwrap();
    tx.flush_by(soon()).unwrap();
    tx.finish().unwrap();
    rx.for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [(1, 10), (2, 20), (1, 12), (2, 22), (3, 31), (4, 40)]);
}

#[test]
fn the_producer_of_a_chain_conflates_too() {
    let _watched = crate::common::watched();
    let (mut last, mut seen) = (HashMap::new(), 0);
    let done = slipring::ring(2, || (0u64, 0u64))
        .read("slow", |(key, value), _| {
            thread::yield_now();
            seen += 1;
            assert!(last.insert(*key, *value).is_none_or(|before| before < *value));
        })
        .run(|tx| {
            let mut newest = slipring::Conflator::new(
                &mut *tx,
                3,
                |slot: &mut (u64, u64), key: &u64, value| *slot = (*key, value),
            )?;
            for value in 0..1000 {
                newest.send(value % 3, value)?;
            }
            newest.finish()?;
            tx.publish(|slot| *slot = (9, 9))?;
            Ok(())
        })
        .unwrap();
    assert_eq!(last, HashMap::from([(0, 999), (1, 997), (2, 998), (9, 9)]));
    assert_eq!(done.report.stage(slipring::PRODUCER).unwrap().dropped, 1001 - seen);
}

#[test]
fn a_conflator_loses_only_what_was_replaced_whatever_the_order() {
    let _watched = crate::common::watched();
    let mut random = 12345u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below
    };
    for round in 0..if cfg!(miri) { 5 } else { 200 } {
        let graph = Graph::new(1 << (round % 4), || (0u64, 0u64));
        let end = graph.reader("end");
        let ring = graph.build().unwrap();
        let (tx, mut rx) = (ring.producer(), ring.reader(end));
        let mut tx = tx.conflate(3, |slot, key, value| *slot = (*key, value)).unwrap();
        let (mut newest, mut replaced, mut refused, mut seen) = (HashMap::new(), 0, 0, Vec::new());
        for value in 0..100 {
            if next(3) == 0 {
                rx.poll(next(3) as usize, |v, _| seen.push(*v)).unwrap();
            }
            let key = next(5);
            match tx.send(key, value) {
                Ok(sent) => {
                    replaced += u64::from(matches!(sent, Sent::Replaced(_)));
                    newest.insert(key, value);
                }
                Err(ConflateError::Full { value: back, .. }) => {
                    assert_eq!(back, value);
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
            if next(7) == 0 {
                tx.flush().unwrap();
            }
        }
        while tx.flush().unwrap() > 0 {
            rx.poll(9, |v, _| seen.push(*v)).unwrap();
        }
        drop(tx);
        rx.for_each(|v, _| seen.push(*v)).unwrap();
        assert_eq!(seen.len() as u64 + replaced + refused, 100);
        for (key, newest) in newest {
            let of_key: Vec<u64> =
                seen.iter().filter(|(other, _)| *other == key).map(|(_, value)| *value).collect();
            assert!(of_key.is_sorted(), "{of_key:?}");
            assert_eq!(of_key.last(), Some(&newest));
        }
        assert_eq!(ring.report().stage(slipring::PRODUCER).unwrap().dropped, replaced);
    }
}

#[test]
fn what_is_kept_when_a_conflator_goes_is_counted_and_a_panic_in_it_ends_the_graph() {
    let _watched = crate::common::watched();
    let graph = Graph::new(1, || 0u64);
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let _end = ring.reader(end);
    let mut tx = ring.producer().conflate(4, |slot, _: &u64, value| *slot = value).unwrap();
    (0..4).for_each(|i| _ = tx.send(i, i).unwrap());
    drop(tx);
    assert_eq!(ring.report().stage(slipring::PRODUCER).unwrap().dropped, 3);

    let (tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    let mut tx = tx.conflate(4, |_, _: &u64, _: u64| panic!("no fill")).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(tx.send(1, 1))));
    assert!(panicked.is_err());
    assert!(matches!(rx.batch(1), Err(WaitError::Failed(_))));
    assert!(matches!(tx.send(1, 1), Err(ConflateError::Wait(WaitError::Failed(_)))));
    assert!(
        slipring::unicast(2, || 0u64)
            .unwrap()
            .0
            .conflate(usize::MAX, |_, _: &u64, _: u64| ())
            .is_err()
    );
}

/// Runs a chain whose stage publishes into its own ring until that is full.
fn into_its_own_ring(shards: bool, pool: bool, wait: Wait) -> (slipring::Error, Option<WaitError>) {
    let told = Mutex::new(None);
    let producer = Mutex::new(None);
    let full = AtomicBool::new(false);
    let publish = |_: &u64, _: slipring::At| {
        while producer.lock().unwrap().is_none() {
            thread::yield_now();
        }
        let mut guard = producer.lock().unwrap();
        let tx: &mut slipring::SharedProducer<u64> = guard.as_mut().unwrap();
        loop {
            if let Err(closed) = tx.publish(|slot| *slot = 1) {
                told.lock().unwrap().get_or_insert(closed.clone());
                full.store(true, Relaxed);
                return Err(closed);
            }
        }
    };
    let chain = slipring::ring(8, || 0u64).wait(wait).deadline(Duration::from_secs(60));
    let chain = match (shards, pool) {
        (true, _) => chain.read_shards("own", 2, |v| *v, |_| publish),
        (_, true) => chain.read_pool("own", 2, |_| publish),
        _ => chain.read("own", publish),
    };
    let error = chain
        .read("behind", |_, _| ())
        .run_shared(|tx| {
            *producer.lock().unwrap() = Some(tx.clone());
            tx.publish(|slot| *slot = 0)?;
            Ok(())
        })
        .unwrap_err();
    producer.lock().unwrap().take();
    (error, told.into_inner().unwrap())
}

#[test]
fn publishing_into_ones_own_full_ring_is_an_error_where_a_loop_runs_the_stage() {
    let _watched = crate::common::watched();
    for (shards, pool) in [(false, false), (true, false), (false, true)] {
        for wait in [Wait::Blocking, Wait::YIELDING] {
            let (error, told) = into_its_own_ring(shards, pool, wait);
            let told = told.expect("an answer");
            assert!(
                matches!(&told, WaitError::WaitsForItself(stage) if stage.as_str() == "own"),
                "{told}"
            );
            assert!(matches!(error.kind(), ErrorKind::Failed(_)), "{error}");
        }
    }
    // In a loop of one's own on a handle, too; and it is over when the loop is.
    let (tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    let mut tx = tx;
    tx.publish(|_| ()).unwrap();
    let mut outcome = None;
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rx.for_each(|_, _| {
            while outcome.is_none() {
                outcome = tx.publish(|_| ()).err();
            }
            panic!("out of the loop");
        })
    }));
    let outcome = outcome.unwrap();
    assert!(matches!(outcome, WaitError::WaitsForItself(_)), "{outcome}");
    assert!(outcome.to_string().contains("wait for ever"), "{outcome}");
    assert!(
        matches!(
            tx.publish_by(Instant::now() + Duration::from_millis(1), |_| ()),
            Err(ClaimError::TimedOut { .. })
        ),
        "outside it is a wait"
    );
}

#[test]
fn publishing_into_another_full_ring_from_a_handler_is_fine() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    let count = if cfg!(miri) { 20 } else { 2_000 };
    let sum = thread::scope(|s| {
        let reading = s.spawn(move || {
            let mut sum = 0;
            rx.for_each(|v, _| sum += v).unwrap();
            sum
        });
        slipring::ring(2, || 0u64)
            .read("forward", move |v, _| tx.publish(|slot| *slot = *v).map(drop))
            .feed(0..count, |slot, i| *slot = i)
            .unwrap();
        reading.join().unwrap()
    });
    assert_eq!(sum, count * (count - 1) / 2);
}

#[test]
fn a_reader_that_joined_and_publishes_is_told_too() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let reading = thread::spawn(move || {
        let mut end = end;
        end.for_each(|_, _| ())
    });
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    tx.publish(|_| ()).unwrap();
    let mut outcome = None;
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        late.for_each(|_, _| {
            while outcome.is_none() {
                outcome = tx.publish(|_| ()).err();
            }
            panic!("out of the loop");
        })
    }));
    assert!(
        matches!(&outcome, Some(WaitError::WaitsForItself(stage)) if stage.as_str() == "tap"),
        "{outcome:?}"
    );
    drop((late, tx));
    reading.join().unwrap().unwrap();
}
