//! Sound from safe code: odd lengths, strangers' handles, everything forgotten and everything
//! dropped, in any order. Small enough for Miri, which then judges every access.

// what forgetting and dropping a batch do is to be shown
#![allow(clippy::forget_non_drop, clippy::drop_non_drop)]

mod common;

use std::cell::Cell;
use std::mem::{forget, swap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{PURPOSE, ends, quiet};
use slipring::{
    BatchError, BuildError, Cause, ClaimError, ErrorKind, Graph, PRODUCER, Producer, Reader,
    SharedProducer, Wait, WaitError, Writer,
};

const CAPACITY: usize = 4;
const SOON: Duration = Duration::from_millis(if cfg!(miri) { 400 } else { 60 });
const ODD: [usize; 3] = [0, CAPACITY + 1, usize::MAX];

/// Says at compile time whether a type is not `Sync` (or not `Send`): with the bound there would be
/// two candidates.
macro_rules! assert_not {
    ($bound:ident: $($type:ty),* $(,)?) => { $({
        trait Unless<A> {
            fn it() {}
        }
        impl<T: ?Sized> Unless<()> for T {}
        struct Bounded;
        impl<T: ?Sized + $bound> Unless<Bounded> for T {}
        let _ = <$type as Unless<_>>::it;
    })* };
}

#[test]
fn what_lends_events_is_shared_between_threads_only_if_they_are() {
    let _watched = crate::common::watched();
    type Lonely = Cell<u8>;
    assert_not!(Sync: slipring::Slot<'static, Lonely>, slipring::Slots<'static, Lonely>, slipring::Events<'static, Lonely>,
        slipring::EventsMut<'static, Lonely>, slipring::Batch<'static, Lonely, slipring::Reading, slipring::Every>,
        slipring::Batch<'static, Lonely, slipring::Writing, slipring::Every>, slipring::EventsIter<'static, Lonely, slipring::Interleaved>,
        slipring::EventsIterMut<'static, Lonely, slipring::Interleaved>);
    assert_not!(Send: slipring::Events<'static, Lonely>, slipring::EventsIter<'static, Lonely, slipring::Interleaved>);
    type Bound = std::rc::Rc<u8>;
    assert_not!(Send: Producer<Bound>, SharedProducer<Bound>, Reader<Bound>, Writer<Bound>, slipring::Slot<'static, Bound>,
        slipring::EventsIterMut<'static, Bound, slipring::Interleaved>, slipring::Ring<Bound>);
    fn is<T: Send + Sync>() {}
    is::<slipring::Slots<'static, u8>>();
    is::<Producer<Lonely>>();
    is::<Reader<Lonely>>();
}

// Lengths.

#[test]
fn odd_lengths_of_claims() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
    let graph = Graph::new(CAPACITY, || 0u64).shared();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut many, mut all) = (ring.producer(), ring.reader(key));
    for asked in ODD {
        let is_length = |error: ClaimError| matches!(error, ClaimError::Length { asked: a, capacity: CAPACITY } if a == asked);
        macro_rules! refused {
            ($tx:ident) => {
                assert!(is_length($tx.claim_n(asked).err().unwrap()));
                assert!(is_length($tx.try_claim_n(asked).err().unwrap()));
                assert!(is_length($tx.claim_n_by(asked, Instant::now()).err().unwrap()));
                assert!(is_length(
                    $tx.publish_batches(asked, 0..9, |slot, i| *slot = i).err().unwrap()
                ));
            };
        }
        refused!(tx);
        refused!(many);
    }
    // The whole ring at once is fine, and not one slot more fits.
    let mut slots = tx.claim_n(CAPACITY).unwrap();
    assert!(slots.get_mut(CAPACITY).is_none() && slots.get_mut(usize::MAX).is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| slots[CAPACITY] = 1)).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| slots[usize::MAX])).is_err());
    slots.iter_mut().enumerate().for_each(|(i, slot)| *slot = i as u64);
    assert_eq!(slots.iter_mut().len(), CAPACITY);
    slots.publish();
    assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { lag: 4, .. })));
    assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
    assert!(matches!(tx.publish_by(Instant::now(), |_| ()), Err(ClaimError::TimedOut { .. })));

    for max in [CAPACITY + 1, usize::MAX] {
        let batch = rx.try_batch(max).unwrap();
        assert_eq!((batch.len(), batch.first_seq()), (CAPACITY, 0));
        assert!(batch.get(CAPACITY).is_none() && batch.get(usize::MAX).is_none());
        assert!(catch_unwind(AssertUnwindSafe(|| batch[CAPACITY])).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| batch[usize::MAX])).is_err());
        assert_eq!(batch.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
    for empty in [
        rx.try_batch(0).unwrap().len(),
        rx.batch(0).unwrap().len(),
        rx.batch_by(0, Instant::now()).unwrap().len(),
    ] {
        assert_eq!(empty, 0);
    }
    rx.batch(0).unwrap().release();
    assert_eq!(rx.poll(0, |_, _| panic!("nothing was asked for")).unwrap(), 0);
    assert_eq!(rx.poll(usize::MAX, |_, _| ()).unwrap(), CAPACITY);
    assert!(matches!(rx.try_batch(usize::MAX), Err(BatchError::Unavailable)));
    assert!(matches!(rx.batch_by(usize::MAX, Instant::now()), Err(BatchError::TimedOut)));
    assert_eq!(many.publish_batches(CAPACITY, 0..3, |slot, i| *slot = i).unwrap(), 3);
    assert_eq!(all.poll(usize::MAX, |v, at| assert_eq!(*v, at.seq)).unwrap(), 3);
    many.publish(|_| ()).unwrap();
    // Position 3 was claimed by the batch that came out short.
    assert_eq!(all.poll(usize::MAX, |_, at| assert_eq!(at.seq, 4)).unwrap(), 1);
}

#[test]
fn odd_capacities_and_crews() {
    let _watched = crate::common::watched();
    for asked in [0, 3, usize::MAX, (1 << 63) + 1] {
        let error = slipring::unicast(asked, || 0u64).err().unwrap();
        assert!(
            matches!(error.kind(), ErrorKind::Build(BuildError::Capacity { asked: a }) if *a == asked),
            "{error}"
        );
        let error = slipring::ring(asked, || 0u64)
            .contiguous()
            .read("r", |_, _| ())
            .feed(0..1, |_, _| ())
            .unwrap_err();
        assert!(error.is_build(), "{error}");
        assert!(slipring::ring(asked, || 0u64).to_string().contains("not a graph"));
    }
    // A power of two, and more bytes than there can be.
    let error = slipring::unicast(1 << 62, || [0u8; 64]).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Memory { .. })), "{error}");
    let error = slipring::ring(1 << 63, || ()).contiguous().feed(0..1, |_, _| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Memory { .. })), "{error}");
    for workers in ODD {
        let error = slipring::ring(CAPACITY, || 0u64)
            .write_pool("p", workers, |_| |_, _| ())
            .feed(0..1, |_, _| ())
            .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Build(BuildError::Workers { asked, .. }) if *asked == workers),
            "{error}"
        );
        let graph = Graph::new(CAPACITY, || 0u64);
        let _key = graph.pool_reader("p", workers);
        let error = graph.build().err().unwrap();
        assert!(
            matches!(error.kind(), ErrorKind::Build(BuildError::Workers { asked, .. }) if *asked == workers),
            "{error}"
        );
    }
}

#[test]
fn rings_of_one_slot_of_nothing_and_of_wide_events() {
    let _watched = crate::common::watched();
    #[repr(align(4096))]
    struct Wide(u64);
    let (mut tx, mut rx) = slipring::unicast(2, || Wide(0)).unwrap();
    for i in 0..5 {
        tx.publish(|slot| slot.0 = i).unwrap();
        assert_eq!(
            rx.poll(9, |wide, _| assert_eq!((wide.0, (&raw const *wide).addr() % 4096), (i, 0)))
                .unwrap(),
            1
        );
    }
    let mut count = 0;
    slipring::ring(1, || ())
        .contiguous()
        .write_batch("one", |events, _| {
            assert_eq!(events.as_mut_slices().0.len(), 1);
        })
        .read_batch("two", |events, _| count += events.as_slices().0.len())
        .feed(0..20, |_, _| ())
        .unwrap();
    assert_eq!(count, 20);
    // As many workers as slots, and more than events; one slot, one worker.
    for (capacity, events) in [(8, 3), (1, 5), (8, 0)] {
        let mut seen = Vec::new();
        slipring::ring(capacity, || 0u64)
            .write_pool("pool", capacity, |_| |v, _| *v += 1)
            .read("r", |v, at| seen.push(*v - at.seq))
            .feed(0..events, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(seen, vec![1; events as usize]);
    }
    // Positions that wrap, in every lap field.
    for start in [u64::MAX, u64::MAX - 5, (1 << 63) - 2, (1 << 48) - 3, (1 << 46) - 1] {
        let (mut sum, mut next) = (0, start);
        slipring::ring(CAPACITY, || 0u64)
            .first_seq(start)
            .write_pool("pool", 2, |_| |v, _| *v += 1)
            .read("r", |v, at| {
                assert_eq!(at.seq, next);
                next = next.wrapping_add(1);
                sum += v;
            })
            .run_shared(|p| {
                p.publish_all(0..5, |slot, i| *slot = i)?;
                drop(p.claim_n(3)?);
                Ok(())
            })
            .map(drop)
            .unwrap_or_else(|error| panic!("from {start}: {error}"));
        assert_eq!(sum, 15);
    }
}

// Strangers.

#[test]
fn keys_of_another_graph() {
    let _watched = crate::common::watched();
    quiet();
    let (one, other) = (Graph::new(CAPACITY, || 0u64), Graph::new(CAPACITY, || 0u64));
    let (own, strange) = (one.reader("own"), other.reader("strange"));
    let (ring, their) = (one.build().unwrap(), other.build().unwrap());
    let caught = catch_unwind(AssertUnwindSafe(|| drop(ring.reader(strange)))).unwrap_err();
    assert!(caught.downcast_ref::<String>().unwrap().contains("belongs to another graph"));
    // The key is gone with the mistake, and its graph knows.
    let closed = their.producer().publish(|_| ()).unwrap_err();
    assert!(matches!(closed.failure().unwrap().cause(), Cause::Dropped));
    let (mut tx, mut rx) = (ring.producer(), ring.reader(own));
    tx.publish(|_| ()).unwrap();
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert!(ring.try_producer().is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| ring.producer())).is_err());

    let (one, other) = (Graph::new(CAPACITY, || 0u64), Graph::new(CAPACITY, || 0u64));
    let strange = other.reader("strange");
    let _own = one.reader("own").after(&strange);
    let error = one.build().err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Foreign { .. })), "{error}");
    let late = other.reader("late");
    let _ring = other.build().unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| late.after(&strange))).unwrap_err();
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
fn a_factory_that_plays_with_keys() {
    let _watched = crate::common::watched();
    for drops in [false, true] {
        let outcome = ends(&format!("keys in the factory, dropped: {drops}"), move || {
            let stash = Arc::new(std::sync::Mutex::new(None::<slipring::ReaderKey>));
            let theirs = stash.clone();
            let graph = Graph::new(CAPACITY, move || {
                let mut stash = theirs.lock().unwrap();
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
fn producers_swapped_for_those_of_another_ring() {
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
        // What is left is the run's own producer, of a ring that has failed; the other ring was
        // closed.
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
    // The inner ring has more stages than the outer, so that a stage's number means nothing in the
    // other one.
    for halt in [false, true] {
        ends(&format!("inline handles swapped, halted: {halt}"), move || {
            let (mut few, mut many) = (0, 0);
            let inner_done = Cell::new(false);
            let outer = slipring::ring(CAPACITY, || 0u64).read("few", |_, _| few += 1).run_inline(
                |outer| {
                    outer.publish(|_| ())?;
                    let inner = slipring::ring(CAPACITY, || 0u64)
                        .write("a", |_, _| ())
                        .write("b", |_, _| ())
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
            assert_eq!(few, 1, "the outer ring was closed and drained where its handle ended up");
            assert_eq!(outer.unwrap_err().stage(), Some(PRODUCER));
        });
    }
}

#[test]
fn claims_and_batches_swapped_between_rings() {
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
fn a_chain_swapped_for_another_one_while_it_is_declared() {
    let _watched = crate::common::watched();
    let error = slipring::ring(CAPACITY, || 0u64)
        .write("a", |_, _| ())
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
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Misplaced { .. })), "{error}");
    assert!(shown.contains(&error.to_string()), "{shown}");
}

// Forgotten and dropped.

#[test]
fn forgotten_claims_are_passed_over() {
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

    // Many producers: at the next use, at the drop, at the close.
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
            "0 is passed over, 1 is claimed"
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

/// As many handles as 32 bits can count come and go between two claims of another. The other
/// one must not believe that it was alone. `SLIPRING_HANDLES` sets how many.
#[test]
#[ignore = "takes minutes in a release build: 2^32 handles"]
fn a_handle_is_not_alone_if_others_came_and_went() {
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
    // One less: the second handle was one of them.
    (1..handles).for_each(|_| drop(one.clone()));
    one.publish(|slot| *slot = 3).unwrap();
    drop(one);
    let mut seen = Vec::new();
    rx.for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [1, 2, 3], "a position was claimed twice");
}

#[test]
fn batches_that_are_dropped_or_forgotten_come_again() {
    let _watched = crate::common::watched();
    let graph = Graph::new(CAPACITY, || 0u64);
    let pool = graph.pool_writer("pool", 2);
    let after = graph.writer("after").after(&pool);
    let ring = graph.build().unwrap();
    let (mut tx, mut workers, mut after) =
        (ring.producer(), ring.pool_writers(pool), ring.writer(after));
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
    // A worker that goes leaves its chunk, half done as it is, to another.
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

/// Forgets a handle for good, but where a search for leaks still finds it.
fn lose<T>(handle: T) {
    static LOST: Mutex<Vec<AtomicPtr<()>>> = Mutex::new(Vec::new());
    LOST.lock().unwrap().push(AtomicPtr::new(Box::into_raw(Box::new(handle)).cast()));
}

/// What is forgotten for good can only be timed out.
#[test]
fn forgotten_handles_are_healed_by_the_deadline() {
    let _watched = crate::common::watched();
    let deadline = |failure: &slipring::Failure| matches!(failure.cause(), Cause::Deadline(_));
    for wait in [Wait::Blocking, Wait::YIELDING, Wait::SLEEPING, Wait::BusySpin] {
        let w = wait.clone();
        ends(&format!("a forgotten reader, {wait}"), move || {
            let graph = Graph::new(CAPACITY, || 0u64).wait(w).deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            lose(ring.reader(key));
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
            lose(tx);
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
            lose(lost);
            let closed = workers[0].for_each(|_, _| ()).unwrap_err();
            assert!(deadline(closed.failure().unwrap()), "{closed}");
        });
        let w = wait.clone();
        ends(&format!("a forgotten key and ring, {wait}"), move || {
            let graph = Graph::new(CAPACITY, || 0u64).wait(w).deadline(SOON);
            let (a, b) = (graph.reader("a"), graph.reader("b"));
            let ring = graph.build().unwrap();
            let (mut tx, mut a) = (ring.producer(), ring.reader(a));
            lose((b, ring));
            tx.publish_all(0.., |slot, i| *slot = i).unwrap_err();
            assert!(deadline(a.for_each(|_, _| ()).unwrap_err().failure().unwrap()));
        });
        ends(&format!("a forgotten pipeline and producer, {wait}"), move || {
            let (tell, told) = std::sync::mpsc::channel();
            let (tx, pipeline) = slipring::ring(CAPACITY, || 0u64)
                .wait(wait)
                .deadline(SOON)
                .read("r", move |_, _| tell.send(()))
                .spawn()
                .unwrap();
            lose((tx, pipeline));
            assert!(told.recv().is_err(), "the handler is let go when its stage ends");
        });
    }
}

#[test]
fn what_is_dropped_ends_the_graph_in_every_order() {
    let _watched = crate::common::watched();
    // Handles: producer, two readers, ring. Each order of drops ends without a hang, and says what
    // it should.
    for order in 0..24 {
        ends(&format!("order {order}"), move || {
            let graph = Graph::new(CAPACITY, || Box::new(0u64));
            let (a, b) = (graph.writer("a"), graph.reader("b"));
            let b = b.after(&a);
            let ring = graph.build().unwrap();
            let (tx, a, b) = (ring.producer(), ring.writer(a), ring.reader(b));
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
    // Keys: dropped before the build, after it, after the ring.
    let graph = Graph::new(CAPACITY, || 0u64);
    drop(graph.reader("gone"));
    let error = graph.build().err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Abandoned { .. })), "{error}");
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
    // A ring whose producer nobody took is closed with it.
    let graph = Graph::new(CAPACITY, || 0u64);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let mut rx = ring.reader(key);
    drop(ring);
    assert!(matches!(rx.batch(1), Err(WaitError::Closed)));
    // A graph that is never built.
    let graph = Graph::new(CAPACITY, || 0u64);
    let key = graph.reader("r");
    drop(graph);
    drop(key);
}

#[test]
fn workers_that_go_one_after_the_other() {
    let _watched = crate::common::watched();
    ends("workers that go", || {
        let graph = Graph::new(8, || 0u64);
        let pool = graph.pool_reader("pool", 3);
        let ring = graph.build().unwrap();
        let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
        tx.publish_all(0..6, |slot, i| *slot = i).unwrap();
        forget(workers[0].try_batch(1).unwrap());
        forget(workers[1].try_batch(1).unwrap());
        drop(workers.remove(0));
        // The second keeps its chunk first, then takes over what the other left.
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
    // A worker whose thread panics when the whole stream is done takes nothing from those behind
    // it.
    ends("a panic after the end", || {
        let graph = Graph::new(8, || 0u64);
        let pool = graph.pool_writer("pool", 2);
        let after = graph.reader("after").after(&pool);
        let ring = graph.build().unwrap();
        let (mut tx, mut workers, mut after) =
            (ring.producer(), ring.pool_writers(pool), ring.reader(after));
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

#[test]
fn a_ring_without_stages_gates_itself() {
    let _watched = crate::common::watched();
    ends("no stages", || {
        slipring::ring(2, || 0u64).feed(0..20, |slot, i| *slot = i).unwrap();
        let graph = Graph::new(2, || 0u64).shared();
        let ring = graph.build().unwrap();
        let (mut a, mut b) = (ring.producer(), ring.producer());
        let held = a.claim().unwrap();
        b.publish(|_| ()).unwrap();
        // The slot that `a` holds is not given out again before it is published.
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

/// Readers beside each other over events that are shared, a writer behind them, claims given up
/// between: values and order hold.
#[test]
fn a_diamond_of_leases_under_way() {
    let _watched = crate::common::watched();
    let events = if cfg!(miri) { 12 } else { 2000 };
    ends("diamond", move || {
        let graph = Graph::new(CAPACITY, || String::from("0")).contiguous().shared();
        let head = graph.pool_writer("head", 2);
        let (a, b) = (graph.reader("a").after(&head), graph.pool_reader("b", 2).after(&head));
        let tail = graph.writer("tail").after(&a).after(&b);
        let ring = graph.build().unwrap();
        let (tx, head, mut a, b, mut tail) = (
            ring.producer(),
            ring.pool_writers(head),
            ring.reader(a),
            ring.pool_readers(b),
            ring.writer(tail),
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

#[test]
fn a_fan_out_knows_its_own_chain_wherever_the_other_one_lies() {
    let _watched = crate::common::watched();
    for _ in 0..200 {
        let chain = slipring::ring(8, || 0u64).read("a", |_, _| ()).read("b", |_, _| ());
        let given_back = chain.fan_out(|own| {
            // Another chain is likely to lie where this one did.
            drop(own);
            let mut other = None;
            let stolen = catch_unwind(AssertUnwindSafe(|| {
                slipring::ring(8, || 0u64).fan_out(|strange| {
                    other = Some(strange);
                    std::panic::resume_unwind(Box::new("stolen"))
                })
            }));
            assert!(stolen.is_err());
            other.unwrap()
        });
        let error = given_back.read("c", |_, _| ()).run(|_| Ok(())).unwrap_err();
        assert!(
            error.to_string().contains("must give back the chain that it was given"),
            "{error}"
        );
    }
}
