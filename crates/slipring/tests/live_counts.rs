//! Tests of the reports of a running graph whose handles are alive and idle: for each kind of
//! handle, and for each way to publish and to read.

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Monitor, Wait,
    errors::{BatchError, ClaimError},
    handles::{Sent, StartAt},
    stages::PRODUCER,
    tasks::{Selector, Waitable},
};

/// Polls a future by hand until it is ready.
fn now<F: Future>(future: F) -> F::Output {
    let (mut future, mut cx) = (pin!(future), Context::from_waker(Waker::noop()));
    for _ in 0..3 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
    }
    panic!("the future waits");
}

/// Counts of a party in a report: events, batches, tombstones, waits.
fn counts(monitor: &Monitor, party: &str) -> (u64, u64, u64, u64) {
    let report = monitor.report().expect("the graph runs");
    let party = report.stage(party).unwrap();
    (party.events, party.batches, party.tombstones, party.waits)
}

/// Number of calls in each way of publishing, and number of publications for each way of reading.
const CALLS: u64 = 300;

/// Publishes in every way that a producer offers (a *path*), into a ring that is never full.
/// `$many` says whether dropped claims leave tombstones.
macro_rules! publishes {
    ($graph:expr, $many:literal) => {{
        type Path<P> = (&'static str, fn(P) -> P, u64);
        let graph = $graph;
        let end = graph.reader("end");
        let ring = graph.build().unwrap();
        let (mut end, monitor) = (ring.reader(end), ring.monitor());
        let mut tx = ring.producer();
        fn paths<P>(_: &P, paths: Vec<Path<P>>) -> Vec<Path<P>> {
            paths
        }
        macro_rules! call {
            ($tx:ident, $call:expr) => {
                |mut $tx| {
                    (0..CALLS).for_each(|_| _ = $call);
                    $tx
                }
            };
        }
        // The third part of an entry is the number of events that one call publishes.
        let paths = paths(
            &tx,
            vec![
                ("publish", call!(tx, tx.publish(|_| ()).unwrap()), 1),
                ("try_publish", call!(tx, tx.try_publish(|_| ()).unwrap()), 1),
                ("publish_or_drop", call!(tx, tx.publish_or_drop(|_| ()).unwrap().unwrap()), 1),
                ("publish_by", call!(tx, tx.publish_by(Instant::now(), |_| ()).unwrap()), 1),
                ("publish_all", call!(tx, tx.publish_all(0..1, |_, _| ()).unwrap()), 1),
                ("publish_batches", call!(tx, tx.publish_batches(3, 0..3, |_, _| ()).unwrap()), 3),
                ("claim", call!(tx, tx.claim().unwrap().publish()), 1),
                ("try_claim", call!(tx, tx.try_claim().unwrap().publish()), 1),
                ("claim_n", call!(tx, tx.claim_n(2).unwrap().publish()), 2),
                ("try_claim_n", call!(tx, tx.try_claim_n(2).unwrap().publish()), 2),
                ("publish_async", call!(tx, now(tx.publish_async(|_| ())).unwrap()), 1),
                ("claim_n_async", call!(tx, now(tx.claim_n_async(2)).unwrap().publish()), 2),
                (
                    "raw",
                    |tx| {
                        let mut raw = tx.into_raw();
                        for _ in 0..CALLS {
                            let first = raw.next_n(2).unwrap();
                            raw.done(first + 1).unwrap();
                        }
                        raw.into_inner()
                    },
                    2,
                ),
            ],
        );
        let (mut events, mut batches) = (0, 0);
        for (path, publish, len) in paths {
            tx = publish(tx);
            (events, batches) = (events + CALLS * len, batches + CALLS);
            let before = counts(&monitor, PRODUCER);
            assert!(before.0 <= events && events - before.0 < 1024, "{path}: {before:?}");
            assert!(before.1 <= batches && batches - before.1 < 1024, "{path}: {before:?}");
            // The event counts are exact once a stage has handled the events.
            while end.poll(usize::MAX, |_, _| ()).unwrap() != 0 {}
            assert_eq!(counts(&monitor, PRODUCER).0, events, "{path}");
        }
        // All counts are exact once a call has found no room.
        drop(tx.claim_n(2).unwrap());
        let given_up = if $many { 2 } else { 0 };
        assert_eq!(counts(&monitor, PRODUCER).2, given_up, "given up");
        assert_eq!(end.poll(8, |_, _| ()).unwrap(), 0);
        while tx.try_publish(|_| ()).is_ok() {
            (events, batches) = (events + 1, batches + 1);
        }
        assert_eq!(counts(&monitor, PRODUCER), (events, batches, given_up, 0), "full");
        assert_eq!(tx.publish_or_drop(|_| ()).unwrap(), None);
        assert_eq!(monitor.report().unwrap().producer().dropped, 1);
        for _ in 0..2 {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(pin!(tx.publish_async(|_| ())).poll(&mut cx).is_pending());
            assert_eq!(counts(&monitor, PRODUCER).3, 1, "a task that polls again waits on");
        }
        end.poll(1, |_, _| ()).unwrap();
        now(tx.publish_async(|_| ())).unwrap();
        assert!(!tx.arm(Waker::noop()));
        assert_eq!(counts(&monitor, PRODUCER), (events + 1, batches + 1, given_up, 2), "armed");
        end.poll(1, |_, _| ()).unwrap();
        let mut raw = tx.into_raw();
        let seq = raw.next().unwrap();
        raw.done(seq).unwrap();
        assert!(matches!(raw.next(), Err(ClaimError::Gated { .. })));
        assert_eq!(counts(&monitor, PRODUCER), (events + 2, batches + 2, given_up, 2), "raw");
        end.poll(1, |_, _| ()).unwrap();
        let mut latest = raw.into_inner().conflate(1, |_, _: &u8, _: u8| ()).unwrap();
        assert!(matches!(latest.send(0, 0).unwrap(), Sent::Published(_)));
        assert!(matches!(latest.send(0, 1).unwrap(), Sent::Kept));
        assert_eq!(counts(&monitor, PRODUCER), (events + 3, batches + 3, given_up, 2), "conflate");
    }};
}

#[test]
fn a_producer_that_never_waits_is_counted() {
    let _watched = crate::common::watched();
    publishes!(Graph::new(1024, || 0u64).first_seq(u64::MAX - 700), false);
    publishes!(Graph::new(1024, || 0u64).publish_cursor(), false);
    publishes!(Graph::new(1024, || 0u64).shared().first_seq(u64::MAX - 700), true);
}

/// The ring publishes its cursor, so the event count is exact before any stage has handled the
/// events.
#[test]
fn events_behind_a_cursor_are_counted_at_once() {
    let _watched = crate::common::watched();
    let graph = Graph::new(64, || 0u64).publish_cursor();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, _end, monitor) = (ring.producer(), ring.reader(end), ring.monitor());
    for i in 1..=50 {
        tx.publish(|_| ()).unwrap();
        assert_eq!(counts(&monitor, PRODUCER).0, i);
    }
}

/// The producers' count of events includes neither given-up claims nor what the members of a tap
/// have handled.
#[test]
fn several_producers_are_counted_by_what_stages_have_handled() {
    let _watched = crate::common::watched();
    let graph = Graph::new(64, || 0u64).shared();
    let (pool, tap) = (graph.pool_reader("pool", 2), graph.tap("tap", 2));
    let shards = graph.shard_reader("shards", 2, |&value| value);
    let ring = graph.build().unwrap();
    let (mut pool, tap) = (ring.pool_readers(pool), ring.tap(tap));
    let (mut shards, monitor) = (ring.shard_readers(shards), ring.monitor());
    let mut members: Vec<_> = (0..2).map(|_| tap.subscribe(StartAt::Now).unwrap()).collect();
    let (mut one, mut other) = (ring.producer(), ring.producer());
    let mut last = 0;
    for i in 1..=100 {
        one.publish(|slot| *slot = i).unwrap();
        other.publish(|slot| *slot = i + 1).unwrap();
        drop(one.claim_n(3).unwrap());
        let open = other.claim().unwrap();
        for _ in 0..2 {
            pool.iter_mut().for_each(|worker| _ = worker.poll(8, |_, _| ()).unwrap());
            shards.iter_mut().for_each(|shard| _ = shard.poll(8, |_, _| ()).unwrap());
            members.iter_mut().for_each(|member| _ = member.poll(8, |_, _| ()).unwrap());
            let events = counts(&monitor, PRODUCER).0;
            assert!(last <= events && events <= 2 * i, "{events} of {}", 2 * i);
            last = events;
        }
        drop(open);
        assert_eq!(last, 2 * i, "all stages are idle");
    }
    assert_eq!(counts(&monitor, PRODUCER).2, 400);
    pool.iter_mut().for_each(|worker| _ = worker.poll(8, |_, _| ()).unwrap());
    shards.iter_mut().for_each(|shard| _ = shard.poll(8, |_, _| ()).unwrap());
    let all = |party: &str| counts(&monitor, party);
    assert_eq!((all("pool").0, all("pool").2), (200, 400));
    assert_eq!((all("shards").0, all("tap").0), (200, 400));
}

/// Reads in every way that a consumer offers (a *path*) until no event is left, and checks the
/// effect of each way on the counts.
macro_rules! reads {
    ($monitor:ident, $tx:ident, $rx:ident, $party:literal) => {{
        let (mut events, mut batches, mut waits) = (0, 0, 0);
        let fill = |tx: &mut slipring::SharedProducer<u64>| {
            (0..CALLS).for_each(|_| _ = tx.publish(|_| ()).unwrap());
            drop(tx.claim().unwrap());
        };
        let mut tombstones = 0;
        let mut check = |path: &str, done: u64, waited: u64| {
            (events, batches) = (events + CALLS, batches + done);
            (waits, tombstones) = (waits + waited, tombstones + 1);
            let expected = (events, batches, tombstones, waits);
            let mut seen = counts(&$monitor, $party);
            if done == ANY {
                seen.1 = expected.1;
            }
            assert_eq!(seen, expected, "{} by {path}", $party);
        };
        let mut done = 0;
        fill(&mut $tx);
        while $rx.poll(10, |_, _| ()).unwrap() != 0 {
            done += 1;
        }
        check("poll", std::mem::take(&mut done), 0);
        fill(&mut $tx);
        while let Ok(batch) = $rx.try_batch(10) {
            batch.release();
            done += 1;
        }
        check("try_batch", std::mem::take(&mut done), 0);
        fill(&mut $tx);
        while let Ok(mut batch) = $rx.try_batch(10) {
            let half = batch.len().div_ceil(2);
            batch.release_front(half);
            batch.release_front(batch.len());
            done += 1;
        }
        check("release_front", std::mem::take(&mut done), 0);
        fill(&mut $tx);
        while $rx.try_batch(10).is_ok() {
            $rx.batch(10).unwrap().release();
            done += 1;
        }
        check("batch", std::mem::take(&mut done), 0);
        fill(&mut $tx);
        while $rx.try_batch(10).is_ok() {
            $rx.batch_by(10, Instant::now()).unwrap().release();
            done += 1;
        }
        check("batch_by", std::mem::take(&mut done), 0);
        fill(&mut $tx);
        let mut raw = $rx.into_raw();
        loop {
            match raw.available(10) {
                Ok(found) => raw.done(found.last_seq()).unwrap(),
                Err(BatchError::Unavailable) => break,
                Err(error) => panic!("{error}"),
            }
            done += 1;
        }
        $rx = raw.into_inner();
        check("raw", std::mem::take(&mut done), 0);
        fill(&mut $tx);
        let (mut cx, mut pending) = (Context::from_waker(Waker::noop()), 0);
        while pending < 3 {
            match pin!($rx.batch_async(10)).poll(&mut cx) {
                Poll::Ready(batch) => {
                    batch.unwrap().release();
                    (done, pending) = (done + 1, 0);
                }
                Poll::Pending => pending += 1,
            }
        }
        check("batch_async", std::mem::take(&mut done), 1);
        fill(&mut $tx);
        let mut selector = Selector::new();
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        while selector.wait(&mut [&mut $rx], soon()).is_some() {
            // The selector may have woken for a tombstone only.
            done += u64::from($rx.poll(10, |_, _| ()).unwrap() != 0);
        }
        check("selector", std::mem::take(&mut done), 1);
        #[cfg(feature = "stream")]
        {
            fill(&mut $tx);
            let mut items = pin!($rx.into_stream(|_, _| ()));
            let (mut items_seen, mut pending) = (0, 0);
            while pending < 3 {
                match futures_core::Stream::poll_next(items.as_mut(), &mut cx) {
                    Poll::Ready(item) => {
                        item.unwrap().unwrap();
                        (items_seen, pending) = (items_seen + 1, 0);
                    }
                    Poll::Pending => pending += 1,
                }
            }
            assert_eq!(items_seen, CALLS);
            check("stream", ANY, 1);
        }
    }};
}

/// Stands for any number of batches.
const ANY: u64 = 1 << 32;

#[test]
fn an_idle_handle_is_counted_whatever_it_reads_by() {
    let _watched = crate::common::watched();
    let graph = || Graph::new(1024, || 0u64).shared().first_seq(u64::MAX - 700);
    macro_rules! kind {
        ($name:literal, |$graph:ident| $key:expr, |$ring:ident, $own:ident| $handle:expr) => {
            let $graph = graph();
            let $own = $key;
            let $ring = $graph.build().unwrap();
            #[allow(unused_mut)]
            let (mut rx, mut tx, monitor) = ($handle, $ring.producer(), $ring.monitor());
            reads!(monitor, tx, rx, $name);
        };
    }
    kind!("reader", |graph| graph.reader("reader"), |ring, key| ring.reader(key));
    kind!("worker", |graph| graph.pool_reader("worker", 1), |ring, key| ring
        .pool_readers(key)
        .remove(0));
    kind!("shard", |graph| graph.shard_reader("shard", 1, |_| 0u64), |ring, key| ring
        .shard_readers(key)
        .remove(0));
    kind!("member", |graph| graph.tap("member", 1), |ring, key| ring
        .tap(key)
        .subscribe(StartAt::Now)
        .unwrap());
}

/// A batch that is released from its front ends with its last event.
#[test]
fn an_idle_handle_counts_a_batch_that_it_released_from_the_front() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let stage = graph.reader("stage");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, monitor) = (ring.producer(), ring.reader(stage), ring.monitor());
    (0..4).for_each(|_| _ = tx.publish(|_| ()).unwrap());
    rx.try_batch(4).unwrap().release_front(3);
    rx.try_batch(4).unwrap().release_front(1);
    assert!(rx.try_batch(4).is_err());
    assert_eq!(counts(&monitor, "stage"), (4, 1, 0, 0));
}

/// A waiting thread flushes its counts before it sleeps, or after a while if its strategy never
/// sleeps.
#[test]
fn a_thread_that_waits_is_counted() {
    let _watched = crate::common::watched();
    for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::BusySpin] {
        let graph = Graph::new(64, || 0u64).wait(wait);
        let (first, second) = (graph.reader("first"), graph.updater("second"));
        let second = second.after(&first);
        let ring = graph.build().unwrap();
        let (mut first, mut second) = (ring.reader(first), ring.updater(second));
        let (mut tx, monitor) = (ring.producer(), ring.monitor());
        thread::scope(|threads| {
            threads.spawn(move || first.for_each(|_, _| ()).unwrap());
            threads.spawn(move || {
                while let Ok(batch) = second.batch(8) {
                    batch.release();
                }
            });
            let mut events = 0;
            for _ in 0..3 {
                (0..50).for_each(|_| _ = tx.publish(|_| ()).unwrap());
                events += 50;
                let all = |party| counts(&monitor, party).0 == events;
                let end = Instant::now() + Duration::from_secs(60);
                while !(all("first") && all("second") && all(PRODUCER)) {
                    assert!(Instant::now() < end, "{}", monitor.report().unwrap());
                    thread::sleep(Duration::from_micros(200));
                }
            }
            tx.close();
        });
    }
}

/// Handles that share their counters flush while they wait, too: producers behind a full ring, and
/// idle workers and shards.
#[test]
fn handles_of_one_party_that_wait_are_counted() {
    let _watched = crate::common::watched();
    const SLOTS: u64 = 8;
    for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::BusySpin] {
        let graph = Graph::new(SLOTS as usize, || 0u64).shared().wait(wait.clone());
        let pool = graph.pool_reader("pool", 2);
        let shards = graph.shard_reader("shards", 2, |&value| value);
        let end = graph.reader("end").after(&pool).after(&shards);
        let ring = graph.build().unwrap();
        let (pool, shards) = (ring.pool_readers(pool), ring.shard_readers(shards));
        let (mut end, tx, monitor) = (ring.reader(end), ring.producer(), ring.monitor());
        thread::scope(|threads| {
            for mut worker in pool {
                threads.spawn(move || worker.for_each(|_, _| ()));
            }
            for mut shard in shards {
                threads.spawn(move || shard.for_each(|_, _| ()));
            }
            for number in 0..2 {
                let mut tx = tx.clone();
                threads.spawn(move || while tx.publish(|slot| *slot = number).is_ok() {});
            }
            for lap in 1..=3 {
                // The ring is full, so the producers wait, and all stages but the last are idle.
                let events = lap * SLOTS;
                let is_complete = || {
                    let all = |party| counts(&monitor, party);
                    let [pool, shards, producers] = ["pool", "shards", PRODUCER].map(all);
                    (pool.0, shards.0) == (events, events) && producers.1 == events
                };
                while !is_complete() {
                    thread::sleep(Duration::from_micros(200));
                }
                let mut left = SLOTS as usize;
                while left != 0 {
                    left -= end.poll(left, |_, _| ()).unwrap();
                }
            }
            tx.halt();
        });
    }
}

/// A handle that has been told the end waits for nothing, so its counts are complete.
#[test]
fn the_end_completes_the_counts_of_a_handle() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0);
    let (task, thread) = (graph.reader("task"), graph.reader("thread"));
    let each = graph.reader("each");
    let ring = graph.build().unwrap();
    let (mut task, mut thread) = (ring.reader(task), ring.reader(thread));
    let mut each = ring.reader(each);
    let (mut tx, monitor) = (ring.producer(), ring.monitor());
    drop(ring);
    (0..5).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    tx.close();
    now(task.batch_async(8)).unwrap().release();
    assert!(now(task.batch_async(8)).is_err());
    assert_eq!(counts(&monitor, "task").0, 5);
    thread.batch(8).unwrap().release();
    assert!(thread.batch(8).is_err());
    assert_eq!(counts(&monitor, "thread").0, 5);
    assert_eq!(each.for_each(|_, _| ()).unwrap(), 5);
    assert_eq!(counts(&monitor, "each").0, 5);
}
