//! Rows of MIGRATING.md on the LMAX Disruptor: shapes of graphs, threads, and pools.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use slipring::{
    At, Chain, Graph, Producer, Reader, Updater,
    errors::{BatchError, BuildError},
    handles::{PoolReader, PoolUpdater},
    stages::{ReaderKey, UpdaterKey},
};

use crate::{build_error, chain, graph};

// Putting it together.

#[test]
fn events_before_the_start_are_seen() {
    let _watched = crate::common::watched();
    let graph = graph(8);
    let (a, b) = (graph.updater("a"), graph.pool_reader("b", 2));
    let b = b.after(&a);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    tx.publish_all(0..5, |slot, i| *slot = i).unwrap();
    tx.close();
    assert_eq!(ring.updater(a).for_each(|v, _| *v += 10).unwrap(), 5);
    let mut seen = Vec::new();
    let mut workers = ring.pool_readers(b);
    assert_eq!(workers[0].for_each(|v, _| seen.push(*v)).unwrap(), 5);
    assert!(seen.into_iter().eq(10..15));
}

#[test]
fn nothing_is_started_twice() {
    let _watched = crate::common::watched();
    // Fails to compile if one of these types is `Clone`.
    macro_rules! not_clone {
        ($($kind:ty)*) => { $({
            trait Unless<A> {
                fn check() {}
            }
            struct Cloned;
            impl<T> Unless<()> for T {}
            impl<T: Clone> Unless<Cloned> for T {}
            <$kind as Unless<_>>::check();
        })* };
    }
    not_clone!(Chain<'static, u64> Graph<'static, u64> ReaderKey UpdaterKey Producer<u64> Reader<u64> Updater<u64> PoolReader<u64> PoolUpdater<u64>);
    let ring = graph(4).build().unwrap();
    let _tx = ring.producer();
    assert!(ring.try_producer().is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| ring.producer())).is_err());
}

#[test]
fn a_built_graph_is_fixed() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (a, b) = (graph.reader("a"), graph.reader("b"));
    let ring = graph.build().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| b.after(&a))).is_err());
    // The refused call dropped the key of `b`, so `b` gets no handle and the graph fails.
    let closed = ring.reader(a).batch(1).map(drop).unwrap_err();
    assert_eq!(&**closed.failure().unwrap().stage(), "b");
}

#[test]
fn a_stranger_cannot_be_followed() {
    let _watched = crate::common::watched();
    let (graph, other) = (graph(4), graph(4));
    let stranger = other.reader("stranger");
    let _stage = graph.reader("stage").after(&stranger);
    assert_eq!(
        build_error(graph.build()),
        BuildError::Foreign { stage: "stage".into(), after: "stranger".into() }
    );
}

#[test]
fn names_tell_stages_apart() {
    let _watched = crate::common::watched();
    let handler = |_: &u64, _: At| ();
    assert!(chain(4).read("a", handler).read("b", handler).feed(0..9, |slot, i| *slot = i).is_ok());
    let error = chain(4).read("a", handler).read("a", handler).feed(0..9, |slot, i| *slot = i);
    assert_eq!(build_error(error), BuildError::DuplicateName { stage: "a".into() });
}

#[test]
fn a_multicast_keeps_order() {
    let _watched = crate::common::watched();
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    chain(8)
        .fan_out(|side| {
            side.read("a", |v, _| a.push(*v))
                .read("b", |v, _| b.push(*v))
                .read("c", |v, _| c.push(*v))
        })
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert!([a, b, c].iter().all(|seen| seen.iter().copied().eq(0..500)));
}

#[test]
fn a_pipeline_hands_on() {
    let _watched = crate::common::watched();
    let mut seen = Vec::new();
    chain(8)
        .update("double", |v, _| *v *= 2)
        .update("add", |v, _| *v += 1)
        .read("keep", |v, _| seen.push(*v))
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert!(seen.into_iter().eq((0..500).map(|i| 2 * i + 1)));
}

#[test]
fn a_diamond_joins() {
    let _watched = crate::common::watched();
    let (a, b) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut joined = 0;
    chain(8)
        .fan_out(|side| {
            side.read("a", |_, at| a.store(at.seq + 1, SeqCst))
                .read("b", |_, at| b.store(at.seq + 1, SeqCst))
        })
        .read("join", |_, at| {
            assert!(a.load(SeqCst) > at.seq && b.load(SeqCst) > at.seq);
            joined += 1;
        })
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(joined, 500);
}

#[test]
fn a_stage_follows_those_it_names() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (a, b) = (graph.reader("a"), graph.reader("b"));
    let (both, one) = (graph.reader("both").after(&a).after(&b), graph.reader("one").after(&a));
    let ring = graph.build().unwrap();
    let (mut tx, mut a, mut b) = (ring.producer(), ring.reader(a), ring.reader(b));
    let (mut both, mut one) = (ring.reader(both), ring.reader(one));
    tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
    assert!(matches!(one.try_batch(9), Err(BatchError::Unavailable)));
    assert_eq!(a.poll(9, |_, _| ()).unwrap(), 2);
    assert_eq!(one.poll(9, |_, _| ()).unwrap(), 2);
    assert!(matches!(both.try_batch(9), Err(BatchError::Unavailable)));
    assert_eq!(b.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(both.poll(9, |_, at| assert_eq!(at.seq, 0)).unwrap(), 1);
}

#[test]
fn own_loops_stand_between_handlers() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let a = graph.updater("a");
    let own = graph.updater("own").after(&a);
    let c = graph.reader("c").after(&own);
    let ring = graph.build().unwrap();
    let (mut tx, mut a, mut own, mut c) =
        (ring.producer(), ring.updater(a), ring.updater(own), ring.reader(c));
    thread::scope(|scope| {
        scope.spawn(move || tx.publish_all(0..100, |slot, i| *slot = i).unwrap());
        scope.spawn(move || a.for_each(|v, _| *v *= 2).unwrap());
        scope.spawn(move || {
            while let Ok(mut batch) = own.batch(3) {
                batch.iter_mut().for_each(|v| *v += 1);
                batch.release();
            }
        });
        let mut seen = Vec::new();
        assert_eq!(c.for_each(|v, _| seen.push(*v)).unwrap(), 100);
        assert!(seen.into_iter().eq((0..100).map(|i| 2 * i + 1)));
    });
    // The same holds for a loop that runs on a thread of a chain.
    let mut seen = Vec::new();
    chain(4)
        .update("a", |v, _| *v *= 2)
        .update_by("own", |own| {
            while let Ok(mut batch) = own.batch(3) {
                batch.iter_mut().for_each(|v| *v += 1);
                batch.release();
            }
        })
        .read("c", |v, _| seen.push(*v))
        .feed(0..100, |slot, i| *slot = i)
        .unwrap();
    assert!(seen.into_iter().eq((0..100).map(|i| 2 * i + 1)));
}

#[test]
fn threads_are_named() {
    let _watched = crate::common::watched();
    let (prepared, worked) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let note = || worked.lock().unwrap().push(thread::current().name().unwrap().to_owned());
    chain(8)
        .on_thread_start(|name| prepared.lock().unwrap().push(name.to_owned()))
        .read_pool("pool", 2, |_| |_, _| ())
        .read("last", |_, _| note())
        .feed(0..1, |_, _| ())
        .unwrap();
    let mut prepared = prepared.into_inner().unwrap();
    prepared.sort();
    assert_eq!(
        (prepared, worked.into_inner().unwrap()),
        (vec!["last".into(), "pool-0".into(), "pool-1".into()], vec!["last".to_owned()])
    );
}

#[test]
fn several_stages_share_a_thread() {
    let _watched = crate::common::watched();
    let threads = Mutex::new(Vec::new());
    let note = || threads.lock().unwrap().push(thread::current().id());
    chain(8)
        .fan_out(|side| {
            side.read("a", |_, _| note()).on("both").read("b", |_, _| note()).on("both")
        })
        .feed(0..10, |slot, i| *slot = i)
        .unwrap();
    let threads = threads.into_inner().unwrap();
    assert!(
        threads.len() == 20
            && threads.iter().all(|id| *id == threads[0] && *id != thread::current().id())
    );
}

// Pools.

#[test]
fn a_pool_lets_go_in_order() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let pool = graph.pool_reader("pool", 2);
    let last = graph.reader("last").after(&pool);
    let ring = graph.build().unwrap();
    let (mut tx, mut workers, mut last) =
        (ring.producer(), ring.pool_readers(pool), ring.reader(last));
    let [a, b] = &mut workers[..] else { unreachable!() };
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    // The second event is released first, but the last stage gets it only after the first.
    let (zero, one) = (a.try_batch(1).unwrap(), b.try_batch(1).unwrap());
    assert_eq!((zero[0], one[0]), (0, 1));
    one.release();
    assert!(matches!(last.try_batch(9), Err(BatchError::Unavailable)));
    zero.release();
    assert_eq!(last.poll(9, |_, _| ()).unwrap(), 2);
    // The first event is released first, so the last stage gets it at once.
    let (two, three) = (a.try_batch(1).unwrap(), b.try_batch(1).unwrap());
    assert_eq!((two[0], three[0]), (2, 3));
    two.release();
    assert_eq!(last.poll(9, |v, _| assert_eq!(*v, 2)).unwrap(), 1);
    three.release();
    assert_eq!(last.poll(9, |v, _| assert_eq!(*v, 3)).unwrap(), 1);
}
