//! Many threads on rings of a few slots.

use std::mem::forget;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use slipring::{Graph, errors::ClaimError};

use crate::CAPACITY;
use crate::common::ends;

#[test]
fn a_ring_without_stages_gates_by_its_publications() {
    let _watched = crate::common::watched();
    ends("no stages", || {
        slipring::ring(2, || 0u64)
            .run(|tx| Ok(tx.publish_all(0..20, |slot, i| *slot = i)?))
            .unwrap();
        let graph = Graph::new(2, || 0u64).shared();
        let ring = graph.build().unwrap();
        let (mut a, mut b) = (ring.producer(), ring.producer());
        let held = a.claim().unwrap();
        b.publish(|_| ()).unwrap();
        // The slot that `a` holds can be claimed again only after `a` has published it.
        assert!(matches!(b.try_claim(), Err(ClaimError::Gated { .. })));
        held.publish();
        b.publish(|_| ()).unwrap();
        let counter = AtomicU64::new(0);
        thread::scope(|scope| {
            for mut tx in [a, b] {
                let counter = &counter;
                scope.spawn(move || {
                    for _ in 0..if cfg!(miri) { 5 } else { 500 } {
                        tx.publish(|slot| {
                            *slot += 1;
                            counter.fetch_add(1, SeqCst);
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), if cfg!(miri) { 10 } else { 1000 });
    });
}

/// Pools and readers stand side by side with a writer behind them, and some claims are dropped or
/// forgotten. All values stay intact and in order.
#[test]
fn a_diamond_of_leases_keeps_values_and_order() {
    let _watched = crate::common::watched();
    let events = if cfg!(miri) { 12 } else { 2000 };
    ends("diamond", move || {
        let graph = Graph::new(CAPACITY, || String::from("0")).contiguous().shared();
        let head = graph.pool_updater("head", 2);
        let (a, b) = (graph.reader("a").after(&head), graph.pool_reader("b", 2).after(&head));
        let tail = graph.updater("tail").after(&a).after(&b);
        let ring = graph.build().unwrap();
        let (tx, head, mut a, b, mut tail) = (
            ring.producer(),
            ring.pool_updaters(head),
            ring.reader(a),
            ring.pool_readers(b),
            ring.updater(tail),
        );
        let shared = AtomicU64::new(0);
        let shared = &shared;
        let (sum, own) = thread::scope(|scope| {
            for mut tx in [tx.clone(), tx] {
                scope.spawn(move || {
                    for i in 0..events {
                        match i % 5 {
                            0 => drop(tx.claim_n(2).unwrap()),
                            1 => forget(tx.claim().unwrap()),
                            _ => {}
                        }
                        tx.publish(|slot| *slot = i.to_string()).unwrap();
                    }
                });
            }
            for mut head in head {
                scope.spawn(move || head.for_each(|text, _| text.push('0')).unwrap());
            }
            let own = scope.spawn(move || {
                let (mut sum, mut last) = (0, None);
                while let Ok(batch) = a.batch(3) {
                    assert!(last < Some(batch.first_seq()));
                    last = Some(batch.first_seq() + batch.len() as u64 - 1);
                    let (front, back) = batch.as_slices();
                    sum += front
                        .iter()
                        .chain(back)
                        .map(|text| text.parse::<u64>().unwrap())
                        .sum::<u64>();
                    batch.release();
                }
                sum
            });
            for mut b in b {
                scope.spawn(move || {
                    b.for_each(|text, _| {
                        shared.fetch_add(text.parse().unwrap(), SeqCst);
                    })
                    .unwrap()
                });
            }
            let mut sum = 0;
            tail.for_each(|text, _| sum += std::mem::take(text).parse::<u64>().unwrap()).unwrap();
            (sum, own.join().unwrap())
        });
        let expected = 10 * events * (events - 1);
        assert_eq!((sum, own, shared.load(SeqCst)), (expected, expected, expected));
    });
}
