//! Full rings: free slots, dropped events, and conflation by key.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph,
    errors::{ClaimError, ConflateError, WaitError},
    handles::Sent,
};

fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[test]
fn remaining_counts_the_free_slots() {
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
    assert_eq!((one.remaining(), two.remaining()), (4, 4), "without stages no slot is held");
    let claim = one.claim_n(3).unwrap();
    assert_eq!(two.remaining(), 1);
    claim.publish();
}

#[test]
fn publish_or_drop_counts_the_dropped_events() {
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
    let producer = report.stage(slipring::stages::PRODUCER).unwrap();
    assert_eq!((producer.dropped, producer.events), (5, 5));
    ring.halt();
    assert!(matches!(ring.producer().publish_or_drop(|_| ()), Err(WaitError::Halted)));
}

#[test]
fn a_conflator_keeps_the_newest_value_of_each_key() {
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
    // The only free slot goes to the key that was kept first.
    assert_eq!(tx.send(3, 31).unwrap(), Sent::Kept);
    assert_eq!(tx.send(2, 22).unwrap(), Sent::Replaced(21));
    rx.poll(9, |v, _| seen.push(*v)).unwrap();
    assert_eq!(tx.flush().unwrap(), 0);
    assert!(matches!(tx.send(4, 40).unwrap(), Sent::Kept));
    assert!(matches!(
        tx.flush_by(Instant::now() + Duration::from_millis(1)),
        Err(ClaimError::TimedOut(_))
    ));
    rx.poll(9, |v, _| seen.push(*v)).unwrap();
    tx.flush_by(far_deadline()).unwrap();
    tx.finish().unwrap();
    rx.for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [(1, 10), (2, 20), (1, 12), (2, 22), (3, 31), (4, 40)]);
}

#[test]
fn a_chains_producer_can_conflate() {
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
    assert_eq!(done.report.stage(slipring::stages::PRODUCER).unwrap().dropped, 1001 - seen);
}

#[test]
fn a_conflator_loses_only_replaced_values() {
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
        assert_eq!(ring.report().stage(slipring::stages::PRODUCER).unwrap().dropped, replaced);
    }
}

#[test]
fn a_dropped_conflator_counts_its_kept_values_and_a_panic_in_it_fails_the_graph() {
    let _watched = crate::common::watched();
    let graph = Graph::new(1, || 0u64);
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let _end = ring.reader(end);
    let mut tx = ring.producer().conflate(4, |slot, _: &u64, value| *slot = value).unwrap();
    (0..4).for_each(|i| _ = tx.send(i, i).unwrap());
    drop(tx);
    assert_eq!(ring.report().stage(slipring::stages::PRODUCER).unwrap().dropped, 3);

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
