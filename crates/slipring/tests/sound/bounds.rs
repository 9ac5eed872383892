//! Bounds: thread-safety of handles, and lengths, capacities and events of unusual sizes.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use slipring::{
    Graph, Producer, Reader, SharedProducer, Updater,
    errors::{BatchError, BuildError, ClaimError, ErrorKind},
};

use crate::CAPACITY;

const OUT_OF_RANGE: [usize; 3] = [0, CAPACITY + 1, usize::MAX];

/// Asserts at compile time that a type lacks `Sync` (or `Send`): if the type had the bound, `it`
/// would be ambiguous.
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
fn a_handle_is_sync_only_if_its_events_are() {
    let _watched = crate::common::watched();
    type NotSync = Cell<u8>;
    assert_not!(Sync: slipring::Slot<'static, NotSync>, slipring::handles::Slots<'static, NotSync>, slipring::handles::Events<'static, NotSync>,
        slipring::handles::EventsMut<'static, NotSync>, slipring::Batch<'static, NotSync, slipring::markers::Reading, slipring::markers::Each>,
        slipring::Batch<'static, NotSync, slipring::markers::Updating, slipring::markers::Each>, slipring::handles::EventsIter<'static, NotSync, slipring::markers::Interleaved>,
        slipring::handles::EventsIterMut<'static, NotSync, slipring::markers::Interleaved>);
    assert_not!(Send: slipring::handles::Events<'static, NotSync>, slipring::handles::EventsIter<'static, NotSync, slipring::markers::Interleaved>);
    type NotSend = std::rc::Rc<u8>;
    assert_not!(Send: Producer<NotSend>, SharedProducer<NotSend>, Reader<NotSend>, Updater<NotSend>, slipring::Slot<'static, NotSend>,
        slipring::handles::EventsIterMut<'static, NotSend, slipring::markers::Interleaved>, slipring::Ring<NotSend>);
    fn is<T: Send + Sync>() {}
    is::<slipring::handles::Slots<'static, u8>>();
    is::<Producer<NotSync>>();
    is::<Reader<NotSync>>();
}

#[test]
fn lengths_of_zero_and_beyond_the_capacity_are_refused_or_cut() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
    let graph = Graph::new(CAPACITY, || 0u64).shared();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut many, mut all) = (ring.producer(), ring.reader(key));
    for asked in OUT_OF_RANGE {
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
    // A claim of the whole ring succeeds, and no slot is left.
    let mut slots = tx.claim_n(CAPACITY).unwrap();
    assert!(slots.get_mut(CAPACITY).is_none() && slots.get_mut(usize::MAX).is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| slots[CAPACITY] = 1)).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| slots[usize::MAX])).is_err());
    slots.iter_mut().enumerate().for_each(|(i, slot)| *slot = i as u64);
    assert_eq!(slots.iter_mut().len(), CAPACITY);
    slots.publish();
    assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { lag: 4, .. })));
    assert!(matches!(tx.try_publish(|_| ()), Err(ClaimError::Gated { .. })));
    assert!(matches!(tx.publish_by(Instant::now(), |_| ()), Err(ClaimError::TimedOut(_))));

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
    assert!(matches!(rx.batch_by(usize::MAX, Instant::now()), Err(BatchError::TimedOut(_))));
    assert_eq!(many.publish_batches(CAPACITY, 0..3, |slot, i| *slot = i).unwrap(), 3);
    assert_eq!(all.poll(usize::MAX, |v, at| assert_eq!(*v, at.seq)).unwrap(), 3);
    many.publish(|_| ()).unwrap();
    // Position 3 belongs to the batch that `publish_batches` claimed and partly filled.
    assert_eq!(all.poll(usize::MAX, |_, at| assert_eq!(at.seq, 4)).unwrap(), 1);
}

#[test]
fn capacities_and_numbers_of_workers_out_of_range_are_build_errors() {
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
    // The capacity is a power of two, but its bytes exceed the address space.
    let error = slipring::unicast(1 << 62, || [0u8; 64]).err().unwrap();
    // If the system does not state its available memory, only the allocator refuses the request.
    let is_of_memory = |error: &slipring::Error| {
        use BuildError::{Memory, MemoryShortage};
        matches!(error.kind(), ErrorKind::Build(MemoryShortage(_) | Memory { .. }))
    };
    assert!(is_of_memory(&error), "{error}");
    let chain = || slipring::ring(1 << 63, || ()).contiguous().read("r", |_, _| ());
    let error = chain().feed(0..1, |_, _| ()).unwrap_err();
    assert!(is_of_memory(&error), "{error}");
    let error = chain().allow_overcommit().feed(0..1, |_, _| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Memory { .. })), "{error}");
    for workers in OUT_OF_RANGE {
        let error = slipring::ring(CAPACITY, || 0u64)
            .update_pool("p", workers, |_| |_, _| ())
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
fn rings_of_one_slot_empty_events_and_wide_events_keep_order() {
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
        .update_batch("one", |events, _| {
            assert_eq!(events.as_mut_slices().0.len(), 1);
        })
        .read_batch("two", |events, _| count += events.as_slices().0.len())
        .feed(0..20, |_, _| ())
        .unwrap();
    assert_eq!(count, 20);
    // A pool has as many workers as the ring has slots. In two cases that is more workers than
    // events; in the third, it is a single worker.
    for (capacity, events) in [(8, 3), (1, 5), (8, 0)] {
        let mut seen = Vec::new();
        slipring::ring(capacity, || 0u64)
            .update_pool("pool", capacity, |_| |v, _| *v += 1)
            .read("r", |v, at| seen.push(*v - at.seq))
            .feed(0..events, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(seen, vec![1; events as usize]);
    }
    // From each of these starts, the positions soon overflow one of the fields that store positions
    // or laps.
    for start in [u64::MAX, u64::MAX - 5, (1 << 63) - 2, (1 << 48) - 3, (1 << 46) - 1] {
        let (mut sum, mut next) = (0, start);
        slipring::ring(CAPACITY, || 0u64)
            .first_seq(start)
            .update_pool("pool", 2, |_| |v, _| *v += 1)
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
