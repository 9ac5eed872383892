//! Claims, batches, handles and keys that are forgotten or dropped.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;
use std::time::Duration;

use slipring::{
    Graph, Wait,
    errors::{BatchError, BuildError, Cause, ErrorKind, WaitError},
};

use crate::CAPACITY;
use crate::common::{PURPOSE, ends};

const SOON: Duration = Duration::from_millis(if cfg!(miri) { 400 } else { 60 });
#[test]
fn a_forgotten_claim_is_claimed_again_or_passed_over() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(CAPACITY, || 7u64).unwrap();
    for _ in 0..10 {
        forget(tx.claim().unwrap());
        forget(tx.claim_n(CAPACITY).unwrap());
    }
    assert_eq!(
        tx.publish(|slot| *slot = 1).unwrap(),
        0,
        "a single producer claims the same slots again"
    );
    drop(tx.claim_n(2).unwrap());
    forget(tx.try_claim().unwrap());
    tx.close();
    let mut seen = Vec::new();
    rx.for_each(|v, at| seen.push((at.seq, *v))).unwrap();
    assert_eq!(seen, [(0, 1)]);

    // With many producers, a forgotten claim becomes a tombstone at the handle's next use, at its
    // drop, or at the close.
    ends("forgotten claims of many producers", || {
        let graph = Graph::new(8, || 7u64).shared();
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut a, mut b, mut c, mut rx) =
            (ring.producer(), ring.producer(), ring.producer(), ring.reader(key));
        forget(a.claim().unwrap());
        forget(a.claim_n(2).unwrap());
        assert!(
            matches!(rx.try_batch(9), Err(BatchError::Unavailable)),
            "position 0 is passed over, position 1 is claimed"
        );
        assert_eq!(a.publish(|slot| *slot = 3).unwrap(), 3);
        assert_eq!(rx.poll(9, |v, at| assert_eq!((at.seq, *v), (3, 3))).unwrap(), 1);
        forget(b.claim_n(2).unwrap());
        drop(b.clone());
        drop(b);
        forget(c.try_claim_n(2).unwrap());
        drop(a);
        c.close_all();
        assert_eq!(rx.for_each(|_, _| panic!("nothing was published")).unwrap(), 0);
        drop(rx);
        let report = ring.report();
        assert_eq!((report.producer().tombstones, report.stage("r").unwrap().tombstones), (7, 7));
    });
}

/// Between two claims of a producer, 2^32 other handles come and go, so a 32-bit count of handles
/// wraps. The producer must not conclude that it is the only one. `SLIPRING_HANDLES` sets another
/// number of handles.
#[test]
#[ignore = "takes minutes in a release build: 2^32 handles"]
fn a_producer_notices_2_pow_32_other_handles() {
    let _watched = crate::common::watched();
    let handles =
        std::env::var("SLIPRING_HANDLES").map_or(1u64 << 32, |count| count.parse().unwrap());
    let graph = Graph::new(4, || 0u64).shared().wait(Wait::BusySpin);
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut one, mut rx) = (ring.producer(), ring.reader(end));
    drop(ring);
    one.publish(|slot| *slot = 1).unwrap();
    let mut two = one.clone();
    two.publish(|slot| *slot = 2).unwrap();
    drop(two);
    // The loop makes one handle less than that, because `two` is also a handle.
    (1..handles).for_each(|_| drop(one.clone()));
    one.publish(|slot| *slot = 3).unwrap();
    drop(one);
    let mut seen = Vec::new();
    rx.for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [1, 2, 3], "a position was claimed twice");
}

#[test]
fn a_dropped_or_forgotten_batch_is_delivered_again() {
    let _watched = crate::common::watched();
    let graph = Graph::new(CAPACITY, || 0u64);
    let pool = graph.pool_updater("pool", 2);
    let after = graph.updater("after").after(&pool);
    let ring = graph.build().unwrap();
    let (mut tx, mut workers, mut after) =
        (ring.producer(), ring.pool_updaters(pool), ring.updater(after));
    tx.publish_all(1..=3, |slot, i| *slot = i).unwrap();
    let first: Vec<u64> = workers[0].try_batch(9).unwrap().iter().copied().collect();
    forget(workers[0].try_batch(9).unwrap());
    drop(workers[0].try_batch(9).unwrap());
    let mut again = workers[0].try_batch(9).unwrap();
    assert_eq!(again.iter().copied().collect::<Vec<_>>(), first);
    assert_eq!(first[0], 1);
    again.iter_mut().for_each(|v| *v += 10);
    forget(again);
    assert!(matches!(after.try_batch(9), Err(BatchError::Unavailable)));
    // A worker that leaves hands its partly handled chunk to another.
    drop(workers.remove(0));
    let mut sum = 0;
    while workers[0].poll(9, |v, _| sum += *v).unwrap() > 0 {}
    assert_eq!(sum, 6 + 10 * first.len() as u64);
    forget(after.try_batch(1).unwrap());
    drop(after.try_batch(2).unwrap());
    assert_eq!(after.batch(9).unwrap().len(), 3);
    after.batch(9).unwrap().release();
    drop(tx);
    assert!(matches!(workers[0].batch(1), Err(WaitError::Closed)));
    assert!(matches!(after.batch(1), Err(WaitError::Closed)));
}

/// Leaks a handle, but keeps it reachable for leak checkers.
fn leak<T>(handle: T) {
    static LEAKED: Mutex<Vec<AtomicPtr<()>>> = Mutex::new(Vec::new());
    LEAKED.lock().unwrap().push(AtomicPtr::new(Box::into_raw(Box::new(handle)).cast()));
}

/// Only a deadline can end a graph whose handle was forgotten.
#[test]
fn a_deadline_ends_a_graph_with_a_forgotten_handle() {
    let _watched = crate::common::watched();
    let deadline =
        |failure: &slipring::errors::Failure| matches!(failure.cause(), Cause::Deadline(_));
    for wait in [Wait::Blocking, Wait::YIELDING, Wait::SLEEPING, Wait::BusySpin] {
        let w = wait.clone();
        ends(&format!("a forgotten reader, {wait}"), move || {
            let graph = Graph::new(CAPACITY, || 0u64).wait(w).deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            leak(ring.reader(key));
            let closed = ring.producer().publish_all(0.., |slot, i| *slot = i).unwrap_err();
            assert!(deadline(closed.failure().unwrap()), "{closed}");
        });
        let w = wait.clone();
        ends(&format!("a forgotten producer, {wait}"), move || {
            let graph = Graph::new(CAPACITY, || 0u64).wait(w).shared().deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            forget(tx.claim_n(2).unwrap());
            leak(tx);
            let closed =
                ring.reader(key).for_each(|_, _| panic!("nothing was published")).unwrap_err();
            assert!(deadline(closed.failure().unwrap()), "{closed}");
        });
        let w = wait.clone();
        ends(&format!("a forgotten worker with a chunk, {wait}"), move || {
            let graph = Graph::new(CAPACITY, || 0u64).wait(w).deadline(SOON);
            let pool = graph.pool_reader("pool", 2);
            let ring = graph.build().unwrap();
            let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
            tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
            tx.close();
            let mut lost = workers.remove(0);
            forget(lost.try_batch(1).unwrap());
            leak(lost);
            let closed = workers[0].for_each(|_, _| ()).unwrap_err();
            assert!(deadline(closed.failure().unwrap()), "{closed}");
        });
        let w = wait.clone();
        ends(&format!("a forgotten key and ring, {wait}"), move || {
            let graph = Graph::new(CAPACITY, || 0u64).wait(w).deadline(SOON);
            let (a, b) = (graph.reader("a"), graph.reader("b"));
            let ring = graph.build().unwrap();
            let (mut tx, mut a) = (ring.producer(), ring.reader(a));
            leak((b, ring));
            tx.publish_all(0.., |slot, i| *slot = i).unwrap_err();
            assert!(deadline(a.for_each(|_, _| ()).unwrap_err().failure().unwrap()));
        });
        ends(&format!("a forgotten pipeline and producer, {wait}"), move || {
            let (sender, receiver) = std::sync::mpsc::channel();
            let (tx, pipeline) = slipring::ring(CAPACITY, || 0u64)
                .wait(wait)
                .deadline(SOON)
                .read("r", move |_, _| sender.send(()))
                .spawn()
                .unwrap();
            leak((tx, pipeline));
            assert!(receiver.recv().is_err(), "a stage that ends drops its handler");
        });
    }
}

#[test]
fn handles_dropped_in_any_order_end_the_graph() {
    let _watched = crate::common::watched();
    // Producer, writer, reader and ring are dropped in every possible order. In no order does the
    // graph hang.
    for order in 0..24 {
        ends(&format!("order {order}"), move || {
            let graph = Graph::new(CAPACITY, || Box::new(0u64));
            let (a, b) = (graph.updater("a"), graph.reader("b"));
            let b = b.after(&a);
            let ring = graph.build().unwrap();
            let (tx, a, b) = (ring.producer(), ring.updater(a), ring.reader(b));
            let mut handles: Vec<Box<dyn FnOnce()>> = vec![
                Box::new(move || drop(tx)),
                Box::new(move || drop(a)),
                Box::new(move || drop(b)),
                Box::new(move || drop(ring)),
            ];
            let mut left = order;
            for count in (1..=4).rev() {
                handles.remove(left % count)();
                left /= count;
            }
        });
    }
    // The keys are dropped before the build, after the build, or after the ring.
    let graph = Graph::new(CAPACITY, || 0u64);
    drop(graph.reader("gone"));
    let error = graph.build().err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::DroppedKey { .. })), "{error}");
    for ring_first in [false, true] {
        let graph = Graph::new(CAPACITY, || 0u64);
        let (kept, gone) = (graph.reader("kept"), graph.reader("gone"));
        let ring = graph.build().unwrap();
        let (mut tx, mut kept) = (ring.producer(), ring.reader(kept));
        if ring_first {
            drop(ring);
            drop(gone);
        } else {
            drop(gone);
            drop(ring);
        }
        let failure = kept.batch(1).err().unwrap();
        let failure = failure.failure().unwrap();
        assert!(
            matches!(failure.cause(), Cause::Dropped) && &**failure.stage() == "gone",
            "{failure}"
        );
        assert!(tx.publish(|_| ()).is_err());
    }
    // A ring whose producer was never taken is closed when it is dropped.
    let graph = Graph::new(CAPACITY, || 0u64);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let mut rx = ring.reader(key);
    drop(ring);
    assert!(matches!(rx.batch(1), Err(WaitError::Closed)));
    // The graph is dropped before it is built.
    let graph = Graph::new(CAPACITY, || 0u64);
    let key = graph.reader("r");
    drop(graph);
    drop(key);
}

#[test]
fn a_worker_that_leaves_hands_its_chunk_to_another() {
    let _watched = crate::common::watched();
    ends("workers that leave", || {
        let graph = Graph::new(8, || 0u64);
        let pool = graph.pool_reader("pool", 3);
        let ring = graph.build().unwrap();
        let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
        tx.publish_all(0..6, |slot, i| *slot = i).unwrap();
        forget(workers[0].try_batch(1).unwrap());
        forget(workers[1].try_batch(1).unwrap());
        drop(workers.remove(0));
        // The second worker finishes its own chunk, then the orphaned one.
        let mut seen = Vec::new();
        workers[0].poll(1, |v, _| seen.push(*v)).unwrap();
        while seen.len() < 3 {
            workers[0].poll(1, |v, _| seen.push(*v)).unwrap();
        }
        drop(workers.remove(0));
        tx.close();
        workers[0].for_each(|v, _| seen.push(*v)).unwrap();
        seen.sort();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    });
    ends("the last worker", || {
        let graph = Graph::new(8, || 0u64);
        let pool = graph.pool_reader("pool", 2);
        let after = graph.reader("after").after(&pool);
        let ring = graph.build().unwrap();
        let (mut tx, workers, mut after) =
            (ring.producer(), ring.pool_readers(pool), ring.reader(after));
        tx.publish(|_| ()).unwrap();
        drop(workers);
        let closed = after.batch(1).err().unwrap();
        assert_eq!(&**closed.failure().unwrap().stage(), "pool");
        assert!(tx.publish(|_| ()).is_err());
    });
    // A worker whose thread panics after all events were handled does not fail the graph.
    ends("a panic after the end", || {
        let graph = Graph::new(8, || 0u64);
        let pool = graph.pool_updater("pool", 2);
        let after = graph.reader("after").after(&pool);
        let ring = graph.build().unwrap();
        let (mut tx, mut workers, mut after) =
            (ring.producer(), ring.pool_updaters(pool), ring.reader(after));
        tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
        let mut early = workers.remove(0);
        assert_eq!(early.poll(1, |_, _| ()).unwrap(), 1);
        let mut late = workers.remove(0);
        tx.publish_all(2..4, |slot, i| *slot = i).unwrap();
        tx.close();
        assert_eq!(late.for_each(|_, _| ()).unwrap(), 3);
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _held = early;
            panic!("too late {PURPOSE}");
        }));
        assert!(caught.is_err());
        assert_eq!(after.for_each(|_, _| ()).unwrap(), 4);
    });
}
