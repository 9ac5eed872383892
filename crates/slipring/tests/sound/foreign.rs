//! Keys, handles, claims and chains that are passed to a ring or graph to which they do not belong.

use std::cell::Cell;
use std::mem::swap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use slipring::{
    Graph,
    errors::{BatchError, BuildError, Cause, ErrorKind, WaitError},
    stages::PRODUCER,
};

use crate::CAPACITY;
use crate::common::{ends, quiet};

#[test]
fn a_key_of_another_graph_is_refused() {
    let _watched = crate::common::watched();
    quiet();
    let (one, other) = (Graph::new(CAPACITY, || 0u64), Graph::new(CAPACITY, || 0u64));
    let (own, foreign) = (one.reader("own"), other.reader("foreign"));
    let (ring, other_ring) = (one.build().unwrap(), other.build().unwrap());
    let caught = catch_unwind(AssertUnwindSafe(|| drop(ring.reader(foreign)))).unwrap_err();
    assert!(caught.downcast_ref::<String>().unwrap().contains("belongs to another graph"));
    // The refused key was dropped, and its own graph fails.
    let closed = other_ring.producer().publish(|_| ()).unwrap_err();
    assert!(matches!(closed.failure().unwrap().cause(), Cause::Dropped));
    let (mut tx, mut rx) = (ring.producer(), ring.reader(own));
    tx.publish(|_| ()).unwrap();
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert!(ring.try_producer().is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| ring.producer())).is_err());

    let (one, other) = (Graph::new(CAPACITY, || 0u64), Graph::new(CAPACITY, || 0u64));
    let foreign = other.reader("foreign");
    let _own = one.reader("own").after(&foreign);
    let error = one.build().err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Foreign { .. })), "{error}");
    let late = other.reader("late");
    let _ring = other.build().unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| late.after(&foreign))).unwrap_err();
    assert!(caught.downcast_ref::<String>().unwrap().contains("built already"));

    let graph = Graph::new(CAPACITY, || 0u64);
    let (a, b) = (graph.reader("a"), graph.reader("b"));
    let a = a.after(&b).after(&b);
    let _b = b.after(&a);
    assert!(matches!(
        graph.build().err().unwrap().kind(),
        ErrorKind::Build(BuildError::Cycle { .. })
    ));
}

#[test]
fn a_factory_may_show_and_drop_a_key_of_its_graph() {
    let _watched = crate::common::watched();
    for drops in [false, true] {
        let outcome = ends(&format!("keys in the factory, dropped: {drops}"), move || {
            let stash = Arc::new(std::sync::Mutex::new(None::<slipring::stages::ReaderKey>));
            let factory_stash = stash.clone();
            let graph = Graph::new(CAPACITY, move || {
                let mut stash = factory_stash.lock().unwrap();
                assert!(format!("{stash:?}").contains(if drops { "" } else { "r" }));
                if drops {
                    *stash = None;
                }
            });
            *stash.lock().unwrap() = Some(graph.reader("r"));
            graph.build().map(drop).map_err(|error| error.to_string())
        });
        assert_eq!(outcome.is_err(), drops, "{outcome:?}");
    }
}

#[test]
fn a_producer_swapped_for_another_rings_ends_its_run() {
    let _watched = crate::common::watched();
    ends("swapped with a lease", || {
        let (mut other, mut rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
        let error = slipring::ring(CAPACITY, || 0u64)
            .read("r", |_, _| ())
            .run(|p| {
                p.publish(|_| ())?;
                swap(p, &mut other);
                Ok(())
            })
            .unwrap_err();
        assert!(matches!(error.failure().unwrap().cause(), Cause::Dropped), "{error}");
        // `other` is now the run's own producer, whose ring has failed. The other ring was closed.
        assert!(matches!(other.publish(|_| ()), Err(WaitError::Failed(_))));
        assert!(matches!(rx.try_batch(1), Err(BatchError::Wait(WaitError::Closed))));
    });
    ends("swapped between nested runs", || {
        let chain = || slipring::ring(CAPACITY, || 0u64).read("r", |_, _| ());
        let error = chain()
            .run_shared(|outer| {
                let inner = chain().run_shared(|inner| {
                    swap(outer, inner);
                    outer.publish(|_| ())?;
                    inner.publish(|_| ())?;
                    Ok(())
                });
                assert!(inner.is_err());
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.stage(), Some(PRODUCER));
    });
    // The inner ring has more stages than the outer ring, so the numbers of their stages differ.
    for halt in [false, true] {
        ends(&format!("inline handles swapped, halted: {halt}"), move || {
            let (mut few, mut many) = (0, 0);
            let inner_done = Cell::new(false);
            let outer = slipring::ring(CAPACITY, || 0u64).read("few", |_, _| few += 1).run_inline(
                |outer| {
                    outer.publish(|_| ())?;
                    let inner = slipring::ring(CAPACITY, || 0u64)
                        .update("a", |_, _| ())
                        .update("b", |_, _| ())
                        .read("c", |_, _| many += 1)
                        .run_inline(|inner| {
                            inner.publish(|_| ())?;
                            if halt {
                                inner.halt();
                            }
                            swap(inner, outer);
                            Ok(())
                        });
                    assert!(
                        halt || matches!(
                            inner.unwrap_err().failure().unwrap().cause(),
                            Cause::Dropped
                        )
                    );
                    inner_done.set(true);
                    outer.work();
                    Ok(())
                },
            );
            assert!(inner_done.get(), "{outer:?}");
            assert_eq!(few, 1, "the inner run closes and drains the outer ring");
            assert_eq!(outer.unwrap_err().stage(), Some(PRODUCER));
        });
    }
}

#[test]
fn a_claim_or_batch_swapped_between_rings_acts_on_its_own_ring() {
    let _watched = crate::common::watched();
    let (mut a_tx, mut a_rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
    let (mut b_tx, mut b_rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
    b_tx.publish(|slot| *slot = 9).unwrap();
    let (mut a, mut b) = (a_tx.claim_n(2).unwrap(), b_tx.claim_n(3).unwrap());
    swap(&mut a, &mut b);
    (a[0], a[2], b[1]) = (10, 12, 1);
    assert_eq!((a.publish(), b.publish()), (1, 0));
    {
        let (mut a, mut b) = (a_rx.try_batch(9).unwrap(), b_rx.try_batch(9).unwrap());
        swap(&mut a, &mut b);
        assert_eq!((a.iter().copied().collect::<Vec<_>>(), b[1]), (vec![9, 10, 0, 12], 1));
        a.release();
        drop(b);
    }
    assert_eq!((a_rx.next_seq(), b_rx.next_seq()), (0, 4));
}

#[test]
fn a_branch_swapped_for_another_chains_is_a_build_error() {
    let _watched = crate::common::watched();
    let error = slipring::ring(CAPACITY, || 0u64)
        .update("a", |_, _| ())
        .fan_out(|mut outer| {
            drop(slipring::ring(CAPACITY, || 0u64).fan_out(|mut inner| {
                swap(&mut outer, &mut inner);
                inner
            }));
            outer.read("b", |_, _| ())
        })
        .read("c", |_, _| ());
    let shown = error.to_string();
    let error = error.feed(0..1, |_, _| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Declaration { .. })), "{error}");
    assert!(shown.contains(&error.to_string()), "{shown}");
}

#[test]
fn a_fan_out_refuses_another_chain_at_the_same_address() {
    let _watched = crate::common::watched();
    for _ in 0..200 {
        let chain = slipring::ring(8, || 0u64).read("a", |_, _| ()).read("b", |_, _| ());
        let given_back = chain.fan_out(|own| {
            // The next chain is likely to get the address of this one.
            drop(own);
            let mut other = None;
            let moved_out = catch_unwind(AssertUnwindSafe(|| {
                slipring::ring(8, || 0u64).fan_out(|foreign| {
                    other = Some(foreign);
                    std::panic::resume_unwind(Box::new("moved out"))
                })
            }));
            assert!(moved_out.is_err());
            other.unwrap()
        });
        let error = given_back.read("c", |_, _| ()).run(|_| Ok(())).unwrap_err();
        assert!(
            error.to_string().contains("must give back the chain that it was given"),
            "{error}"
        );
    }
}
