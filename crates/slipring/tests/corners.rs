//! Cases in which several features meet. Each of them was a defect once.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Monitor, OnFault, Ring, SharedProducer, Wait,
    errors::{BatchError, WaitError},
    handles::StartAt,
    markers::Many,
    tasks::Selector,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

/// Publishes an event (position 0), a tombstone (1 to 4), and another event (5).
fn with_a_tombstone(tx: &mut SharedProducer<u64>) {
    tx.publish(|v| *v = 100).unwrap();
    drop(tx.claim_n(4).unwrap());
    tx.publish(|v| *v = 105).unwrap();
}

/// Holds the first event, takes a batch behind the tombstone, and then releases everything up to
/// the middle of the tombstone.
macro_rules! release_into_the_tombstone {
    ($handle:expr) => {
        $handle.try_batch(1).unwrap().hold();
        assert_eq!($handle.try_batch(1).unwrap().first_seq(), 5);
        $handle.release_until(3);
    };
}

/// Returns the position and the length of each of up to three batches.
macro_rules! lent {
    ($handle:expr) => {{
        let mut lent = Vec::new();
        for _ in 0..3 {
            match $handle.try_batch(4) {
                Ok(batch) => {
                    lent.push((batch.first_seq(), batch.len()));
                    batch.release();
                }
                Err(BatchError::Unavailable) => break,
                Err(other) => panic!("{other}"),
            }
        }
        lent
    }};
}

#[test]
fn a_release_up_to_the_middle_of_a_tombstone_keeps_the_event_behind_it() {
    let _watched = crate::common::watched();
    for follower in ["writer", "pool", "shards"] {
        let graph = Graph::new(16, || 0u64).shared();
        let first = graph.updater("first");
        macro_rules! check {
            ($key:expr, $attach:expr) => {{
                let key = $key.after(&first);
                let ring: Ring<u64, _, Many> = graph.build().unwrap();
                let (mut tx, mut first) = (ring.producer(), ring.updater(first));
                let mut behind = $attach(&ring, key);
                with_a_tombstone(&mut tx);
                release_into_the_tombstone!(first);
                let mut batch = first.try_batch(1).unwrap();
                let own: &mut u64 = &mut batch[0];
                let lent = lent!(behind);
                *own += 1; // only this stage has the event
                assert_eq!(lent, [(0, 1)], "{follower}");
                batch.release();
                assert_eq!(lent!(behind), [(5, 1)], "{follower}");
            }};
        }
        match follower {
            "writer" => {
                check!(graph.updater("behind"), |ring: &Ring<u64, _, Many>, key| ring.updater(key))
            }
            "pool" => {
                check!(graph.pool_updater("behind", 1), |ring: &Ring<u64, _, Many>, key| ring
                    .pool_updaters(key)
                    .remove(0))
            }
            _ => check!(
                graph.shard_updater("behind", 1, |v: &u64| *v),
                |ring: &Ring<u64, _, Many>, key| ring.shard_updaters(key).remove(0)
            ),
        }
    }
}

#[test]
fn a_reader_that_joins_in_the_middle_of_a_tombstone_holds_the_event_behind_it() {
    let _watched = crate::common::watched();
    for pins in [true, false] {
        let graph = Graph::new(16, || 0u64).shared();
        let tap = graph.tap("tap", 2);
        let behind = graph.updater("behind").after(&tap);
        let ring = graph.build().unwrap();
        let (mut tx, mut behind, tap) = (ring.producer(), ring.updater(behind), ring.tap(tap));
        let mut late;
        if pins {
            with_a_tombstone(&mut tx);
            late = tap.subscribe(StartAt::At(3)).unwrap();
        } else {
            late = tap.subscribe(StartAt::Now).unwrap();
            with_a_tombstone(&mut tx);
            release_into_the_tombstone!(late);
        }
        let batch = late.try_batch(4).unwrap();
        assert_eq!((batch.first_seq(), batch.len()), (5, 1));
        assert_eq!(lent!(behind), [(0, 1)]);
        assert_eq!(batch[0], 105);
    }
    // A reader that joins at position 3 lets the producers fill exactly one lap from there.
    let graph = Graph::new(8, || 0u64).shared();
    let tap = graph.tap("tap", 2);
    let behind = graph.pool_updater("behind", 1).after(&tap);
    let ring = graph.build().unwrap();
    let (mut tx, mut behind, tap) =
        (ring.producer(), ring.pool_updaters(behind).remove(0), ring.tap(tap));
    tx.publish(|v| *v = 100).unwrap();
    drop(tx.claim_n(4).unwrap());
    let mut late = tap.subscribe(StartAt::At(3)).unwrap();
    while behind.poll(10, |_, _| ()).unwrap() != 0 {}
    let published = std::iter::from_fn(|| tx.try_publish(|v| *v = 999).ok()).count();
    assert_eq!(5 + published, 3 + 8);
    assert_eq!(late.try_batch(1).unwrap().first_seq(), 5);
}

#[test]
fn a_refused_joiner_does_not_lower_a_producers_limit() {
    let _watched = crate::common::watched();
    let polls = if cfg!(miri) { 30 } else { 2_000 };
    for _ in 0..if cfg!(miri) { 2 } else { 20 } {
        let graph = Graph::new(8, || 0u64);
        let (reader, tap) = (graph.reader("reader"), graph.tap("tap", 2));
        let ring = graph.build().unwrap();
        let (mut tx, mut reader, tap) =
            (ring.producer().into_raw(), ring.reader(reader), ring.tap(tap));
        tx.next_n(8).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                while !over.load(Relaxed) {
                    assert!(tap.subscribe(StartAt::At(0u64.wrapping_sub(4))).is_err());
                }
            });
            (0..polls).for_each(|_| assert_eq!(tx.available(), 0));
            over.store(true, Relaxed);
        });
        tx.done(7).unwrap();
        assert_eq!(reader.try_batch(8).unwrap().len(), 8);
        assert!(tx.next().is_err(), "all events are lent");
    }
}

/// A strategy that counts its calls in the stage `skips`, and panics in the first few of them. The
/// second field is the number of calls that panic.
#[derive(Debug)]
struct Panics(AtomicUsize, usize);

impl WaitStrategy for Panics {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        let here = thread::current().name().is_some_and(|name| name.starts_with("skips"));
        assert!(!here || self.0.fetch_add(1, Relaxed) >= self.1, "a strategy");
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "panics".into()
    }
}

#[test]
fn a_wait_that_panics_skips_no_event() {
    let _watched = crate::common::watched();
    for delivery in ["one", "shards", "pool"] {
        let seen = Mutex::new(Vec::new());
        let strategy = Arc::new(Panics(AtomicUsize::new(0), 3));
        let chain = slipring::ring(8, || 7777u64)
            .wait(Wait::Custom(strategy.clone()))
            .deadline(Duration::from_secs(60));
        let chain = match delivery {
            "one" => chain.update("skips", |_, _| ()),
            "shards" => chain.update_shards("skips", 1, |v| *v, |_| |_: &mut u64, _| ()),
            _ => chain.update_pool("skips", 1, |_| |_: &mut u64, _| ()),
        };
        let done = chain
            .on_panic(OnFault::skip())
            .read("behind", |v, _| seen.lock().unwrap().push(*v))
            .run(|p| {
                while strategy.0.load(Relaxed) < 3 {
                    thread::yield_now();
                }
                (0..4).try_for_each(|i| p.publish(|v| *v = i).map(drop))?;
                Ok(())
            })
            .unwrap();
        assert_eq!(seen.into_inner().unwrap(), [0, 1, 2, 3], "{delivery}");
        assert_eq!(done.report.stage("skips").unwrap().skipped, 0, "{delivery}");
    }
}

#[test]
fn a_loop_that_returns_with_held_events_fails_the_graph() {
    let _watched = crate::common::watched();
    let error = slipring::ring(8, || 0u64)
        .read_by("journal", |rx| {
            while let Ok(batch) = rx.batch(4) {
                batch.hold();
            }
        })
        .update("behind", |_, _| ())
        .feed(0..3, |slot, i| *slot = i)
        .unwrap_err();
    assert_eq!(error.stage(), Some("journal"), "{error}");
}

#[test]
fn releasing_the_last_held_event_releases_the_tombstones_behind_it() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64).shared().deadline(Duration::from_secs(60));
    let first = graph.reader("first");
    let behind = graph.updater("behind").after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut behind) =
        (ring.producer(), ring.reader(first), ring.updater(behind));
    drop(ring);
    (0..3).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    drop(tx.claim().unwrap());
    drop(tx.claim_n(2).unwrap());
    tx.close();
    while let Ok(batch) = first.batch(8) {
        batch.hold();
    }
    first.release_until(2);
    assert_eq!(lent!(behind), [(0, 2)]);
    first.release_until(3);
    drop(first);
    assert_eq!(behind.for_each(|_, _| ()).unwrap(), 1);
}

#[test]
fn a_task_that_holds_the_whole_ring_waits_for_itself() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(2, || 0u64).unwrap();
    (0..2).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    rx.batch(2).unwrap().hold();
    let mut batch = pin!(rx.batch_async(2));
    let polled = batch.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(WaitError::WaitsForItself(_)))));
}

#[test]
fn a_stages_own_loop_may_run_on_another_thread() {
    let _watched = crate::common::watched();
    let sent = Mutex::new(None);
    let over = AtomicBool::new(false);
    let (tx, pipeline) = {
        let (sent, over) = (Arc::new(sent), Arc::new(over));
        let (received, done) = (sent.clone(), over.clone());
        let (tx, pipeline) = slipring::ring(2, || 0u64)
            .deadline(Duration::from_secs(60))
            .read_by("own", move |rx| {
                let mut tx: slipring::Producer<u64> = loop {
                    if let Some(tx) = received.lock().unwrap().take() {
                        break tx;
                    }
                    thread::yield_now();
                };
                thread::scope(|s| {
                    s.spawn(|| rx.for_each(|_, _| thread::yield_now()));
                    for i in 0..200 {
                        tx.publish(|v| *v = i).expect("another thread moves the stage");
                    }
                    drop(tx);
                });
                done.store(true, Relaxed);
            })
            .spawn()
            .unwrap();
        *sent.lock().unwrap() = Some(tx);
        (over, pipeline)
    };
    pipeline.join().unwrap();
    assert!(tx.load(Relaxed));
}

#[test]
fn a_selector_buries_a_forgotten_claim_before_it_waits() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64).shared();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    std::mem::forget(tx.claim_n(2).unwrap());
    assert_eq!(Selector::new().wait(&mut [&mut tx], Some(Instant::now())), None);
    assert_eq!(end.poll(8, |_, _| ()).unwrap(), 0);
    assert_eq!(
        Selector::new().wait(&mut [&mut tx], Some(Instant::now() + Duration::from_secs(30))),
        Some(0)
    );
    assert_eq!(tx.remaining(), 2);
}

#[test]
fn a_tap_without_members_behind_many_producers_has_no_lag() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64).shared();
    let (reader, tap) = (graph.reader("reader"), graph.tap("tap", 2));
    let ring = graph.build().unwrap();
    let (mut tx, mut reader, _tap) = (ring.producer(), ring.reader(reader), ring.tap(tap));
    (0..5).for_each(|i| _ = tx.publish(|v| *v = i).unwrap());
    reader.poll(8, |_, _| ()).unwrap();
    let report = ring.report();
    assert_eq!(
        (report.stage("tap").unwrap().lag, report.remaining(), tx.remaining()),
        (0, Some(8), 8)
    );
}

#[test]
fn each_stage_samples_each_events_latency_once() {
    let _watched = crate::common::watched();
    for shards in [false, true] {
        let mut tries = 0;
        let mut fails = move |v: &u64| {
            tries += u32::from(*v == 3);
            if *v == 3 && tries < 5 { Err("busy") } else { Ok(()) }
        };
        let chain = slipring::ring(16, || 0u64).sample_latency(1);
        let chain = match shards {
            true => chain.read_shards("s", 1, |v| *v, move |_| move |v: &u64, _| fails(v)),
            false => chain.read("s", move |v, _| fails(v)),
        };
        let done = chain
            .on_error(OnFault::retry(9))
            .max_batch(4)
            .read_shards("two", 2, |v| *v, |_| |_: &u64, _| ())
            .run_inline(|p| {
                (0..8).try_for_each(|i| p.publish(|slot| *slot = i).map(drop)).map_err(Into::into)
            })
            .unwrap();
        for stage in ["s", "two"] {
            assert_eq!(done.report.stage(stage).unwrap().latency.unwrap().samples, 8, "{stage}");
        }
    }
}

/// The type of a monitor does not name its ring's layout, so `contiguous` may come behind it.
#[test]
fn a_monitor_observes_a_ring_that_becomes_contiguous_behind_it() {
    let _watched = crate::common::watched();
    let monitor = Monitor::new();
    slipring::ring(8, || 0u64)
        .monitor(&monitor)
        .contiguous()
        .read("s", |_, _| ())
        .run(|tx| {
            tx.publish(|_| ())?;
            monitor.flush()?;
            assert_eq!(monitor.report().unwrap().published_seq(), Some(1));
            Ok(())
        })
        .unwrap();
}

/// If a call released everything only at its end, the producer would have no slot to fill
/// meanwhile.
#[test]
fn a_poll_of_the_whole_ring_releases_each_quarter() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(64, || 0u64).unwrap();
    tx.publish_all(0..64, |slot, i| *slot = i).unwrap();
    let mut free = Vec::new();
    let all = rx.poll(usize::MAX, |&i, _| free.push((i, tx.remaining()))).unwrap();
    assert_eq!(all, 64);
    // Short runs are lent 32 events at a time, so the poll releases its first slots by the middle
    // of the ring at the latest.
    assert!(free.iter().all(|&(i, free)| free as u64 <= i), "{free:?}");
    assert!(free[40].1 >= 16 && free[63].1 >= 32, "{free:?}");
    assert_eq!(tx.remaining(), 64);
}

/// After a call that found few events, the next call takes one run at a time. It still finds all
/// events.
#[test]
fn a_poll_finds_all_events_after_polls_that_found_few() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(64, || 0u64).unwrap();
    let mut next = 0;
    for len in [1, 0, 1, 64, 3, 3, 17, 0, 0, 7, 8, 64, 64, 1] {
        tx.publish_all(next..next + len, |slot, i| *slot = i).unwrap();
        let mut seen = Vec::new();
        assert_eq!(rx.poll(usize::MAX, |&i, _| seen.push(i)).unwrap() as u64, len);
        assert!(seen.into_iter().eq(next..next + len));
        next += len;
    }
}
