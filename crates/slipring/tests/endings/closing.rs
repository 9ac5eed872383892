//! Closing drains, halting does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use slipring::{
    Graph, Wait,
    errors::{BatchError, ClaimError, WaitError},
};

use crate::common::ends;
use crate::far_deadline;

#[test]
fn a_close_drains_every_stage() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for slow in [false, true] {
            let wait = wait.clone();
            ends(&format!("draining, {wait}, slow: {slow}"), move || {
                let graph = Graph::new(8, || 0u64).wait(wait);
                let first = graph.pool_updater("first", 2);
                let last = graph.reader("last").after(&first);
                let ring = graph.build().unwrap();
                let (mut tx, workers, mut last) =
                    (ring.producer(), ring.pool_updaters(first), ring.reader(last));
                drop(ring);
                assert_eq!(tx.publish_all(0..8, |slot, i| *slot = i).unwrap(), 8);
                tx.close();
                thread::scope(|scope| {
                    for mut worker in workers {
                        scope.spawn(move || {
                            let handled = worker.for_each(|v, _| {
                                if slow {
                                    thread::sleep(Duration::from_millis(2));
                                }
                                *v += 1;
                            });
                            handled.unwrap();
                            // Later calls return the same.
                            assert!(matches!(worker.batch(1), Err(WaitError::Closed)));
                            assert!(matches!(worker.poll(1, |_, _| ()), Err(WaitError::Closed)));
                        });
                    }
                    let mut sum = 0;
                    assert_eq!(last.for_each(|v, _| sum += v).unwrap(), 8);
                    assert_eq!(sum, 36);
                    assert!(matches!(
                        last.batch_by(1, far_deadline()),
                        Err(BatchError::Wait(WaitError::Closed))
                    ));
                    assert_eq!(last.for_each(|_, _| ()).unwrap(), 0);
                });
            });
        }
    }
}

#[test]
fn the_last_producer_to_be_dropped_closes() {
    let _watched = crate::common::watched();
    ends("last producer", || {
        let graph = Graph::new(4, || 0u64).shared();
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let mut rx = ring.reader(key);
        let a = ring.producer();
        let mut b = a.clone();
        drop(a);
        assert!(matches!(rx.try_batch(1), Err(BatchError::Unavailable)));
        b.publish(|v| *v = 1).unwrap();
        b.close();
        assert_eq!(rx.for_each(|v, _| assert_eq!(*v, 1)).unwrap(), 1);
        // A producer that is made after the close is closed as well.
        assert!(matches!(ring.producer().publish(|_| ()), Err(WaitError::Closed)));
    });
}

#[test]
fn close_all_refuses_the_others_and_loses_nothing() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("close_all, {wait}"), move || {
            let graph = Graph::new(4, || 0u64).shared().wait(wait);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let mut rx = ring.reader(key);
            let (mut held, closer) = (ring.producer(), ring.producer());
            let accepted = AtomicU64::new(0);
            let started = AtomicBool::new(false);
            thread::scope(|scope| {
                let mut slot = held.claim().unwrap();
                *slot = 100;
                for mut tx in [ring.producer(), ring.producer()] {
                    let (accepted, started) = (&accepted, &started);
                    scope.spawn(move || {
                        let closed = loop {
                            match tx.publish(|v| *v = 1) {
                                Ok(_) => accepted.fetch_add(1, SeqCst),
                                Err(closed) => break closed,
                            };
                            started.store(true, SeqCst);
                        };
                        assert!(matches!(closed, WaitError::Closed), "{closed}");
                        assert!(matches!(tx.try_claim(), Err(ClaimError::Wait(WaitError::Closed))));
                    });
                }
                while !started.load(SeqCst) {
                    thread::yield_now();
                }
                closer.close_all();
                // A claim that was made before the close can still be published, and its event is
                // delivered.
                slot.publish();
                let mut sum = 0;
                let seen = rx.for_each(|v, _| sum += *v).unwrap();
                assert_eq!((seen - 1, sum - 100), (sum - 100, accepted.load(SeqCst)));
            });
        });
    }
}

#[test]
fn a_halt_does_not_drain() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let w = wait.clone();
        ends(&format!("halt, leases, {wait}"), move || {
            let graph = Graph::new(4, || 0u64).wait(w);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            tx.publish(|_| ()).unwrap();
            thread::scope(|scope| {
                let blocked =
                    scope.spawn(move || tx.publish_all(0.., |slot, i| *slot = i).unwrap_err());
                ring.halt();
                assert!(matches!(blocked.join().unwrap(), WaitError::Halted));
                assert!(matches!(rx.batch(1), Err(WaitError::Halted)));
                assert!(matches!(rx.for_each(|_, _| ()), Err(WaitError::Halted)));
                assert!(matches!(rx.try_batch(1), Err(BatchError::Wait(WaitError::Halted))));
                assert!(matches!(rx.poll(1, |_, _| ()), Err(WaitError::Halted)));
            });
            drop(rx); // does not fail the halted graph
            assert!(ring.report().halted());
        });
        ends(&format!("halt, chains, {wait}"), move || {
            let done = slipring::ring(4, || 0u64)
                .wait(wait.clone())
                .read("r", |_, _| ())
                .run(|p| {
                    p.publish(|_| ())?;
                    p.halt();
                    assert!(matches!(p.publish(|_| ()), Err(WaitError::Halted)));
                    Ok(5)
                })
                .unwrap();
            assert!(done.report.halted() && done.value == 5);
            assert!(done.report.to_string().contains("halted"));
            let done = slipring::ring(4, || 0u64)
                .run_inline(|p| {
                    p.halt();
                    Ok(())
                })
                .unwrap();
            assert!(done.report.halted());
            let (mut tx, pipeline) =
                slipring::ring(4, || 0u64).wait(wait).read("r", |_, _| ()).spawn().unwrap();
            pipeline.halt();
            assert!(pipeline.join().unwrap().halted());
            assert!(matches!(tx.publish(|_| ()), Err(WaitError::Halted)));
        });
    }
}
