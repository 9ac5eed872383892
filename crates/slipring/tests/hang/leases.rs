//! Leases: holders that panic or leave, and producers that panic while they fill.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use slipring::{Graph, Wait, errors::Cause, stages::PRODUCER};

use crate::common::{PURPOSE, ends};
use crate::{CAPACITY, message};

/// The way in which a lease holder uses its handle until it panics or leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ForEach,
    Poll,
    Batch,
    DropHandle,
}

#[test]
fn a_lease_holder_that_panics_or_leaves_fails_its_stage() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for way in [Way::ForEach, Way::Poll, Way::Batch, Way::DropHandle] {
            for pool in [false, true] {
                for full in [true, false] {
                    let wait = wait.clone();
                    ends(&format!("{way:?}, {wait}, pool: {pool}, full: {full}"), move || {
                        lease_holder_fails(wait, way, pool, full)
                    });
                }
            }
        }
    }
}

/// Consumes events through `$handle` up to the event that the case selects, and then panics or
/// leaves.
macro_rules! consume {
    ($handle:ident, $way:ident, $filled:ident, $full:ident) => {{
        let ready = || {
            while $full && $filled.load(SeqCst) < CAPACITY as u64 {
                thread::yield_now()
            }
        };
        match $way {
            Way::ForEach => drop($handle.for_each(|_, at| {
                ready();
                assert!($full || at.seq < 3, "seen enough {PURPOSE}");
                if $full {
                    panic!("seen enough {PURPOSE}");
                }
            })),
            Way::Poll => loop {
                let polled = $handle.poll(1, |_, at| {
                    ready();
                    assert!(!$full && at.seq < 3, "seen enough {PURPOSE}");
                });
                if polled.is_err() {
                    break;
                }
                thread::yield_now();
            },
            Way::Batch => {
                while let Ok(batch) = $handle.batch(2) {
                    ready();
                    assert!(
                        !$full && batch.first_seq() + (batch.len() as u64) <= 3,
                        "seen enough {PURPOSE}"
                    );
                    batch.release();
                }
            }
            Way::DropHandle => {
                while let Ok(batch) = $handle.batch(1) {
                    ready();
                    if $full || batch.first_seq() == 3 {
                        break;
                    }
                    batch.release();
                }
            }
        }
    }};
}

/// Runs a graph whose middle stage fails in this way, and checks the error that the producer and
/// the last stage get.
fn lease_holder_fails(wait: Wait, way: Way, pool: bool, full: bool) {
    let graph = Graph::new(CAPACITY, || 0u64).wait(wait);
    let filled = AtomicU64::new(0);
    let filled = &filled;
    let first = graph.updater("first");
    let (one, many, after) = if pool {
        let key = graph.pool_updater("x", 2).after(&first);
        let after = graph.reader("after").after(&key);
        (None, Some(key), after)
    } else {
        let key = graph.updater("x").after(&first);
        let after = graph.reader("after").after(&key);
        (Some(key), None, after)
    };
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut after) = (ring.producer(), ring.updater(first), ring.reader(after));
    let closed = thread::scope(|scope| {
        scope.spawn(move || drop(first.for_each(|_, _| ())));
        if let Some(key) = one {
            let mut x = ring.updater(key);
            scope.spawn(move || {
                catch_unwind(AssertUnwindSafe(move || consume!(x, way, filled, full))).is_ok()
            });
        }
        if let Some(key) = many {
            for mut x in ring.pool_updaters(key) {
                scope.spawn(move || {
                    catch_unwind(AssertUnwindSafe(move || consume!(x, way, filled, full))).is_ok()
                });
            }
        }
        let after = scope.spawn(move || after.for_each(|_, _| ()).unwrap_err());
        let closed = loop {
            match tx.publish(|_| ()) {
                Ok(seq) => filled.store(seq + 1, SeqCst),
                Err(closed) => break closed,
            }
        };
        let seen = after.join().unwrap();
        assert_eq!(
            seen.failure().map(|failure| failure.stage().clone()),
            closed.failure().map(|failure| failure.stage().clone())
        );
        closed
    });
    let failure = closed.failure().expect("a failed graph").clone();
    assert_eq!(&**failure.stage(), "x", "{failure}");
    let dropped = way == Way::DropHandle;
    assert!(
        if dropped {
            matches!(failure.cause(), Cause::Dropped)
        } else {
            message(&failure).contains("panicked")
        },
        "{failure}"
    );
    let seq = failure.seq().unwrap();
    match (pool, full) {
        (false, true) => assert_eq!(seq, 0, "{failure}"),
        (false, false) => assert!((2..=3).contains(&seq), "{failure}"),
        (true, _) => {} // either worker may fail first
    }
}

#[test]
fn a_producer_that_panics_while_it_fills_fails_the_graph() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for full in [true, false] {
            for claim in [true, false] {
                let wait = wait.clone();
                ends(&format!("filling, {wait}, full: {full}, claim: {claim}"), move || {
                    let graph = Graph::new(CAPACITY, || 0u64).wait(wait).shared();
                    let key = graph.reader("r");
                    let ring = graph.build().unwrap();
                    let (tx, mut rx) = (ring.producer(), ring.reader(key));
                    let bystander = tx.clone();
                    let at = if full { 9 } else { 0 };
                    let user = thread::spawn(move || {
                        let mut tx = tx;
                        loop {
                            if claim {
                                let mut slots = tx.claim_n(2).unwrap();
                                slots[0] = 1;
                                assert!(slots.first_seq() < at, "filling {PURPOSE}");
                                slots.publish();
                            } else {
                                let mut seq = 0;
                                tx.publish(|slot| {
                                    *slot = 1;
                                    assert!(seq < at, "filling {PURPOSE}");
                                })
                                .map(|at| seq = at + 1)
                                .unwrap();
                                tx.publish_all(seq..at, |slot, _| *slot = 1).unwrap();
                                tx.publish(|_| panic!("filling {PURPOSE}")).unwrap();
                            }
                        }
                    });
                    let closed = rx.for_each(|_, _| ()).unwrap_err();
                    assert!(user.join().is_err());
                    let failure = closed.failure().unwrap();
                    assert_eq!(&**failure.stage(), PRODUCER);
                    assert!(message(failure).contains("panicked"), "{failure}");
                    assert!(failure.seq().unwrap() >= at, "{failure}");
                    drop(bystander);
                });
            }
        }
    }
}

#[test]
fn a_reader_continues_after_a_caught_panic() {
    let _watched = crate::common::watched();
    ends("caught panics", || {
        let (mut tx, mut rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
        tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                rx.poll(8, |v, _| {
                    assert!(*v < 1 || seen.len() > 1, "caught {PURPOSE}");
                    seen.push(*v);
                    assert!(*v < 2, "caught {PURPOSE}");
                })
            }));
            assert!(caught.is_err());
            seen.push(100);
        }
        tx.publish(|slot| *slot = 3).unwrap();
        tx.close();
        // Event 2 was pushed before its handler panicked, and is handled again.
        assert!(
            catch_unwind(AssertUnwindSafe(|| rx.for_each(|v, _| panic!("{v} {PURPOSE}")))).is_err()
        );
        assert_eq!(rx.for_each(|v, _| seen.push(*v)).unwrap(), 2);
        assert_eq!(seen, [0, 100, 1, 2, 100, 2, 3]);
    });
}
