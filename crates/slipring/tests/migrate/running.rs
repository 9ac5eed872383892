//! What users of either library rely on while a graph runs: full rings by choice, joining and
//! leaving, failing and going on, being told, waiting without a thread.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    At, BatchError, ClaimError, ConflateError, Done, Error, Fault, Marks, Mirror, Monitor, NotHeld,
    ObserveError, OnFault, PRODUCER, ReadHandler, Selector, Sent, StartAt, SubscribeError, Tap,
    Verdict, Wait, WaitError,
};

use crate::common::{LIMIT, Oops, PURPOSE, quiet};
use crate::{Patience, chain, each_once, graph, pair, shared, until};

// Full rings.

#[test]
fn room_is_told() {
    let _watched = crate::common::watched();
    let graph = graph(4).publish_cursor();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
    let told = || monitor.report().unwrap().remaining();
    assert_eq!((tx.remaining(), told()), (4, Some(4)));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    assert_eq!((tx.remaining(), told()), (1, Some(1)));
    assert!(tx.try_claim_n(1).is_ok() && tx.try_claim_n(2).is_err());
    assert_eq!(rx.poll(2, |_, _| ()).unwrap(), 2);
    assert_eq!((tx.remaining(), told()), (3, Some(3)));
    tx.claim_n(3).unwrap().publish();
    assert_eq!((tx.remaining(), told()), (0, Some(0)));
    // What somebody else has claimed is no room, published or not.
    let graph = shared(4);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut a, mut b, _rx) = (ring.producer(), ring.producer(), ring.reader(key));
    let claim = a.claim_n(3).unwrap();
    assert_eq!(b.remaining(), 1);
    claim.publish();
    assert_eq!((a.remaining(), b.remaining()), (1, 1));
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let _watched = crate::common::watched();
    let graph = graph(2);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let sent = [(); 4].map(|()| tx.publish_or_drop(|_| ()).unwrap());
    assert_eq!(sent, [Some(0), Some(1), None, None]);
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 2);
    assert_eq!(tx.publish_or_drop(|_| ()).unwrap(), Some(2));
    tx.close();
    let report = ring.report();
    assert_eq!((report.producer().events, report.producer().dropped), (3, 2));
}

#[test]
fn what_finds_no_room_goes_elsewhere() {
    let _watched = crate::common::watched();
    let ((mut first, mut left), (mut second, mut right)) = (pair(2), pair(4));
    for i in 0..6 {
        match first.try_publish(|slot| *slot = i) {
            Ok(_) => {}
            // The closure was not called.
            Err(ClaimError::Gated { stage, lag: 2 }) if &*stage == "r" => {
                _ = second.publish(|slot| *slot = i).unwrap()
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(left.try_batch(9).unwrap().iter().copied().eq(0..2));
    assert!(right.try_batch(9).unwrap().iter().copied().eq(2..6));
}

#[test]
fn the_newest_for_each_key_is_kept() {
    let _watched = crate::common::watched();
    let (tx, mut rx) = pair(2);
    let mut tx = tx.conflate(2, |slot, key: &u64, value: u64| *slot = key * 100 + value).unwrap();
    assert_eq!(
        (tx.send(1, 1).unwrap(), tx.send(2, 1).unwrap()),
        (Sent::Published(0), Sent::Published(1))
    );
    assert_eq!(
        (tx.send(1, 2).unwrap(), tx.send(2, 2).unwrap(), tx.send(1, 3).unwrap()),
        (Sent::Kept, Sent::Kept, Sent::Replaced(2))
    );
    assert!(matches!(tx.send(3, 7), Err(ConflateError::Full { room: 2, value: 7 })));
    let mut seen = Vec::new();
    assert_eq!(rx.poll(9, |v, _| seen.push(*v)).unwrap(), 2);
    tx.finish().unwrap();
    rx.for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [101, 201, 103, 202]);
}

#[test]
fn publishing_into_ones_own_full_ring_is_an_error() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(2);
    tx.publish(|_| ()).unwrap();
    let (mut tx, mut told) = (Some(tx), None);
    let handled = rx.for_each(|_, _| {
        if let Some(mut tx) = tx.take() {
            while told.is_none() {
                told = tx.publish(|_| ()).err();
            }
        }
    });
    assert!(matches!(told, Some(WaitError::WaitsForItself(stage)) if stage.as_str() == "r"));
    // Nothing was lost by it.
    assert_eq!(handled.unwrap(), 2);
}

// Joining and leaving.

#[test]
fn a_reader_joins_a_running_ring() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (key, tap) = (graph.reader("r"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::Full { room: 1 })));
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 3);
    assert!((3..7).all(|i| tx.try_publish(|slot| *slot = i).is_ok()));
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 4);
    // It holds the producer back like any other stage.
    assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { stage, lag: 4 }) if &*stage == "tap"));
    let batch = late.try_batch(9).unwrap();
    assert!(batch.first_seq() == 3 && batch.iter().copied().eq(3..7));
    batch.release();
    assert!(tx.try_claim().is_ok());
    tx.close();
    assert!(matches!(late.batch(1), Err(WaitError::Closed)));
}

#[test]
fn a_reader_begins_where_it_says() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (key, tap) = (graph.reader("r"), graph.tap("tap", 4));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    for (from, first) in
        [(StartAt::Now, 3), (StartAt::Oldest, 0), (StartAt::At(1), 1), (StartAt::At(3), 3)]
    {
        let mut joined = tap.subscribe(from).unwrap();
        assert_eq!(joined.next_seq(), first);
        let mut next = first;
        joined
            .poll(9, |v, at| {
                assert_eq!((*v, at.seq), (next, std::mem::replace(&mut next, at.seq + 1)))
            })
            .unwrap();
        assert_eq!(next, 3);
    }
    assert!(matches!(
        tap.subscribe(StartAt::At(4)),
        Err(SubscribeError::NotYet { asked: 4, newest: 3 })
    ));
    // A stage that the graph needs cannot jump: it lets events go without looking at them.
    assert_eq!(rx.poll(usize::MAX, |_, _| ()).unwrap(), 3);
    assert_eq!(rx.next_seq(), 3);
    // What was overwritten meanwhile is gone for those who join.
    tx.publish_all(3..7, |slot, i| *slot = i).unwrap();
    assert!(matches!(
        tap.subscribe(StartAt::At(0)),
        Err(SubscribeError::Overwritten { asked: 0, oldest: 1.. })
    ));
}

#[test]
fn a_reader_leaves_a_running_ring() {
    let _watched = crate::common::watched();
    let graph = graph(2);
    let (key, tap) = (graph.reader("r"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    let late = tap.subscribe(StartAt::Now).unwrap();
    tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 2);
    assert!(tx.try_claim().is_err());
    drop(late);
    assert!(tx.try_claim().is_ok());
    // One that waits on another thread is asked to.
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    let leaver = late.leaver();
    thread::scope(|scope| {
        let waits = scope.spawn(|| late.batch(1).map(drop));
        assert!(leaver.leave());
        assert!(matches!(waits.join().unwrap(), Err(WaitError::Left)));
    });
    assert!(!leaver.leave());
    drop(late);
    // The graph has not ended, and the seat is free again.
    tx.publish(|_| ()).unwrap();
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 1);
    assert!(tap.subscribe(StartAt::Now).is_ok());
}

#[test]
fn readers_come_and_go_in_flight() {
    let _watched = crate::common::watched();
    let tap = Tap::new();
    let mut all = 0;
    let done = chain(8)
        .write("mark", |v, _| *v += 1000)
        .tap(&tap)
        .write("spoil", |v, _| *v = 0)
        .read("end", |_, _| all += 1)
        .run(|p| {
            thread::scope(|scope| {
                let visitor = scope.spawn(|| {
                    for stay in 0..20 {
                        let mut late = tap.subscribe(StartAt::Now).unwrap();
                        let mut next = late.next_seq();
                        for _ in 0..stay % 4 {
                            let batch = late.batch(3).unwrap();
                            assert!(
                                batch.first_seq() == next
                                    && batch
                                        .iter()
                                        .copied()
                                        .eq((next..).map(|i| i + 1000).take(batch.len()))
                            );
                            next += batch.len() as u64;
                            batch.release();
                        }
                    }
                });
                let mut sent = 0;
                while !visitor.is_finished() {
                    p.publish(|slot| *slot = sent)?;
                    sent += 1;
                    thread::yield_now();
                }
                Ok(sent)
            })
        });
    assert_eq!(all, done.unwrap().value);
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::NotRunning)));
}

#[test]
fn workers_come_and_go() {
    let _watched = crate::common::watched();
    let graph = graph(8);
    let key = graph.pool_reader("pool", 1).room(2);
    let last = graph.reader("last").after(&key);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut last) =
        (ring.producer(), ring.pool_readers(key).pop().unwrap(), ring.reader(last));
    let pool = first.pool();
    tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
    assert_eq!(first.poll(1, |v, _| assert_eq!(*v, 0)).unwrap(), 1);
    let mut second = pool.join().unwrap();
    assert!(matches!(pool.join(), Err(SubscribeError::Full { room: 2 })));
    assert_eq!(second.poll(1, |v, _| assert_eq!(*v, 1)).unwrap(), 1);
    // It leaves with an event in its hands, and the other one takes it over.
    assert_eq!(second.try_batch(1).unwrap()[0], 2);
    drop(second);
    let mut rest = Vec::new();
    while rest.len() < 6 {
        assert!(first.poll(9, |v, _| rest.push(*v)).unwrap() > 0);
    }
    assert!(rest.into_iter().eq(2..8));
    assert_eq!(last.poll(9, |_, _| ()).unwrap(), 8);
    // The first one may go as well, while somebody is there. With the last one the graph goes.
    let second = pool.join().unwrap();
    drop(first);
    assert!(tx.try_publish(|_| ()).is_ok());
    drop(second);
    assert!(
        matches!(tx.publish(|_| ()), Err(WaitError::Failed(failure)) if &**failure.stage() == "pool")
    );
}

#[test]
fn each_key_has_its_shard() {
    let _watched = crate::common::watched();
    let seen = Mutex::new(HashMap::new());
    let mut behind = Vec::new();
    let make = |shard| {
        let seen = &seen;
        move |v: &u64, at: At| {
            let (owner, before) =
                seen.lock().unwrap().insert(*v % 7, (shard, at.seq)).unwrap_or((shard, 0));
            assert!(owner == shard && before <= at.seq);
        }
    };
    let sharded =
        chain(16).read_shards("books", 3, |v| *v % 7, make).read("behind", |v, _| behind.push(*v));
    assert_eq!(
        sharded.feed(0..200, |slot, i| *slot = i).unwrap().report.stage("books").unwrap().events,
        200
    );
    assert!(seen.into_inner().unwrap().len() == 7 && behind.into_iter().eq(0..200));
}

#[test]
fn an_observer_holds_nobody_up() {
    let _watched = crate::common::watched();
    let mirror = Mirror::<u64>::new(8).unwrap();
    let mut observer = mirror.mirrored().observe();
    assert_eq!(observer.try_next(), Err(ObserveError::Unavailable));
    // Nobody looks meanwhile.
    chain(4).observe("mirror", mirror, |v| v + 1).feed(0..100, |slot, i| *slot = i).unwrap();
    let mut next = 0;
    for seen in &mut observer {
        next += seen.missed;
        assert_eq!((seen.seq, seen.value), (next, next + 1));
        next += 1;
    }
    assert_eq!((next, observer.try_next()), (100, Err(ObserveError::Closed)));
}

// Batches.

#[test]
fn a_batch_has_a_largest_size() {
    let _watched = crate::common::watched();
    let (mut sizes, mut ends) = (Vec::new(), Vec::new());
    struct Ends<'a>(&'a mut Vec<u64>);
    impl ReadHandler<u64> for Ends<'_> {
        fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
            Ok(())
        }
        fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
            self.0.push(next_seq);
            Ok(())
        }
    }
    chain(64)
        .read_batch("sizes", |events, _| sizes.push(events.len()))
        .max_batch(3)
        .read_with("ends", Ends(&mut ends))
        .max_batch(4)
        .run_inline(|p| Ok(p.publish_all(0..10, |slot, i| *slot = i)?))
        .unwrap();
    assert_eq!(sizes, [3, 3, 3, 1]);
    assert!(
        ends.last() == Some(&10)
            && ends
                .iter()
                .zip([0].iter().chain(&ends))
                .all(|(end, begin)| (1..=4).contains(&(end - begin))),
        "{ends:?}"
    );
}

#[test]
fn a_batch_is_released_early() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    let mut batch = rx.try_batch(4).unwrap();
    assert!(tx.try_claim().is_err());
    batch.release_front(3);
    assert!(tx.try_claim_n(3).is_ok() && tx.try_claim_n(4).is_err());
    assert_eq!((batch.first_seq(), batch.len(), batch[0]), (3, 1, 3));
    batch.release();
    assert_eq!(tx.remaining(), 4);
    // On a thread of a chain: a loop of its own.
    let mut seen = Vec::new();
    let done = chain(8).read_by("own", |rx| {
        while let Ok(mut batch) = rx.batch(4) {
            while let Some(v) = batch.iter().next().copied() {
                seen.push(v);
                batch.release_front(1);
            }
        }
    });
    done.feed(0..100, |slot, i| *slot = i).unwrap();
    assert!(seen.into_iter().eq(0..100));
}

#[test]
fn a_batch_is_released_late() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(4);
    tx.publish_all(0..4, |slot, i| *slot = i).unwrap();
    // Written down, and not safe yet.
    rx.try_batch(3).unwrap().hold();
    assert_eq!((rx.next_seq(), tx.remaining()), (3, 0));
    rx.release_until(2);
    assert_eq!(tx.remaining(), 2);
    let batch = rx.try_batch(9).unwrap();
    assert_eq!((batch.first_seq(), batch.len()), (3, 1));
    batch.release();
    assert_eq!(tx.remaining(), 4);
}

struct Idler<'a> {
    idles: &'a AtomicU64,
    seen: &'a AtomicU64,
}

impl ReadHandler<u64> for Idler<'_> {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        self.seen.fetch_add(1, SeqCst);
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        self.idles.fetch_add(1, SeqCst);
        Ok(())
    }
}

#[test]
fn a_handler_is_told_that_nothing_comes() {
    let _watched = crate::common::watched();
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        let (idles, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        chain(4)
            .wait(wait)
            .read_with("idler", Idler { idles: &idles, seen: &seen })
            .idle_every(Duration::from_millis(1))
            .run(|p| {
                for round in 1..3 {
                    let before = idles.load(SeqCst);
                    until("it was told again and again", || idles.load(SeqCst) >= before + 3);
                    p.publish(|_| ())?;
                    until("it sees the event", || seen.load(SeqCst) == round);
                }
                Ok(())
            })
            .unwrap();
    }
}

// Where everybody is.

#[test]
fn what_is_published_is_told() {
    let _watched = crate::common::watched();
    let graph = graph(8).publish_cursor();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
    let mut rx = rx.into_raw();
    let slots = tx.claim_n(2).unwrap();
    assert!(matches!(rx.next(), Err(BatchError::Unavailable)));
    assert_eq!(monitor.report().unwrap().published_seq(), Some(0));
    slots.publish();
    assert_eq!((rx.next().unwrap(), rx.available(9).unwrap().last_seq()), (0, 1));
    assert_eq!(
        thread::scope(|scope| scope
            .spawn(|| monitor.report().unwrap().published_seq())
            .join()
            .unwrap()),
        Some(2)
    );
    // With many producers: what is claimed.
    let ring = shared(8).build().unwrap();
    let mut tx = ring.producer();
    let slots = tx.claim_n(3).unwrap();
    assert_eq!(ring.report().published_seq(), Some(3));
    drop(slots);
}

#[test]
fn a_monitor_tells_where_everybody_stands() {
    let _watched = crate::common::watched();
    let monitor = Monitor::new();
    let seen = AtomicU64::new(0);
    chain(8)
        .monitor(&monitor)
        .read("r", |_, _| _ = seen.fetch_add(1, SeqCst))
        .run(|p| {
            p.publish_all(0..5, |slot, i| *slot = i)?;
            until("it has let go", || monitor.report().unwrap().stage("r").unwrap().seq == 5);
            let now = monitor.report().unwrap();
            assert_eq!(
                (now.published_seq(), now.remaining(), now.stage("r").unwrap().lag),
                (Some(5), Some(8), 0)
            );
            assert_eq!(
                (now.stage(PRODUCER).unwrap().seq, now.stage("stranger").is_none()),
                (5, true)
            );
            Ok(())
        })
        .unwrap();
    assert!(monitor.report().is_none() && seen.into_inner() == 5);
}

// Positions instead of leases.

#[test]
fn done_and_available_by_number() {
    let _watched = crate::common::watched();
    let (tx, rx) = pair(4);
    let (mut tx, mut rx) = (tx.into_raw(), rx.into_raw());
    assert_eq!((tx.available(), tx.next_n(3).unwrap(), tx.available()), (4, 0, 1));
    for seq in 0..3 {
        *tx.at_mut(seq).unwrap() = seq + 10;
    }
    tx.done(1).unwrap(); // and what comes before it
    let there = rx.available(9).unwrap();
    assert_eq!((there.first_seq(), there.last_seq()), (0, 1));
    assert!(there.map(|seq| *rx.at(seq).unwrap()).eq(10..12));
    rx.done(0).unwrap();
    assert_eq!((rx.at(0), rx.at(1)), (None, Some(&11)));
    assert_eq!(rx.next().unwrap(), 1);
    // Only what is held.
    assert!(matches!(rx.done(2), Err(NotHeld { seq: 2, first: 1, len: 1, .. })));
    assert!(matches!(tx.done(3), Err(NotHeld { seq: 3, first: 2, len: 1, .. })));
    assert!(matches!(tx.next(), Err(ClaimError::Held { first: 2, len: 1 })));
    tx.done(2).unwrap();
    // And back to leases: what is not done comes again.
    assert!(rx.into_inner().try_batch(9).unwrap().iter().copied().eq(11..13));
}

#[test]
fn idle_and_gating_are_told_apart() {
    let _watched = crate::common::watched();
    let graph = graph(8).publish_cursor();
    let first = graph.reader("first");
    let second = graph.reader("second").after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut second) =
        (ring.producer(), ring.reader(first), ring.reader(second).into_raw());
    assert!(matches!(second.next(), Err(BatchError::Unavailable)));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    assert!(
        matches!(second.next(), Err(BatchError::Gated { stage, lag: 3 }) if &*stage == "first")
    );
    assert_eq!(first.poll(2, |_, _| ()).unwrap(), 2);
    assert_eq!(second.available(9).unwrap().len(), 2);
    second.done(1).unwrap();
    assert!(matches!(second.next(), Err(BatchError::Gated { lag: 1, .. })));
    assert_eq!(first.poll(9, |_, _| ()).unwrap(), 1);
    let seq = second.next().unwrap();
    second.done(seq).unwrap();
    assert!(matches!(second.next(), Err(BatchError::Unavailable)));
    tx.close();
    assert!(matches!(second.next(), Err(BatchError::Wait(WaitError::Closed))));
}

// Failing, and going on.

#[test]
fn a_stage_may_go_on() {
    let _watched = crate::common::watched();
    let marks = Marks::new();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let done = chain(8)
        .write("parse", |v, _| if *v % 3 == 0 { Err(Oops(*v)) } else { Ok(()) })
        .on_error(OnFault::skip())
        .marks(&marks)
        .read("keep", |v, at| if marks.skipped(at.seq) { bad.push(*v) } else { good.push(*v) })
        .feed(0..20, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(
        (done.report.stage("parse").unwrap().skipped, done.report.stage("keep").unwrap().events),
        (7, 20)
    );
    assert!(
        bad.into_iter().eq((0..20).step_by(3))
            && good.into_iter().eq((0..20).filter(|i| i % 3 != 0))
    );
}

#[test]
fn each_stage_has_its_policy() {
    let _watched = crate::common::watched();
    quiet();
    let told = Mutex::new(Vec::new());
    let mut panics = 1;
    let fragile = |v: &u64, _: At| {
        if *v == 3 && std::mem::take(&mut panics) == 1 {
            panic!("three {PURPOSE}")
        }
    };
    let error = chain(8)
        .on_faults(|fault| {
            told.lock().unwrap().push((fault.stage.to_string(), fault.seq, fault.verdict))
        })
        .read("skips", |v, _| if *v == 1 { Err(Oops(1)) } else { Ok(()) })
        .on_error(OnFault::skip())
        .read("fragile", fragile)
        .on_panic(OnFault::retry(1))
        .read("strict", |v, _| if *v == 5 { Err(Oops(5)) } else { Ok(()) })
        .feed(0.., |slot, i| *slot = i)
        .unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("strict"), Some(5), Some(&Oops(5)))
    );
    let mut told = told.into_inner().unwrap();
    told.sort_by(|a, b| b.0.cmp(&a.0));
    assert_eq!(
        told,
        [
            ("skips".into(), Some(1), Verdict::Skipped),
            ("fragile".into(), Some(3), Verdict::Retried)
        ]
    );
}

#[test]
fn an_error_in_a_worker_may_be_skipped() {
    let _watched = crate::common::watched();
    let seen = Mutex::new(Vec::new());
    let worker = |_| {
        |v: &u64, _| {
            seen.lock().unwrap().push(*v);
            if *v == 20 { Err(Oops(20)) } else { Ok(()) }
        }
    };
    let done = chain(8)
        .read_pool("pool", 2, worker)
        .on_error(OnFault::skip())
        .feed(0..50, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(
        (done.report.stage("pool").unwrap().skipped, done.report.stage("pool").unwrap().events),
        (1, 50)
    );
    assert!(each_once(seen.into_inner().unwrap(), 50));
}

/// Eight events in batches of `batch`, to a handler that fails at some of them, so many times each:
/// what it sees, and what came of it.
fn rewound(
    fails: &[(u64, u32)],
    batch: usize,
    on: OnFault,
) -> (Vec<u64>, Result<Done<u64>, Error>) {
    let (mut seen, mut behind, mut left) =
        (Vec::new(), Vec::new(), HashMap::<_, _>::from_iter(fails.iter().copied()));
    let tries = |v: &u64, _: At| {
        seen.push(*v);
        match left.get_mut(v) {
            Some(times @ 1..) => {
                *times -= 1;
                Err(Oops(*v))
            }
            _ => Ok(()),
        }
    };
    let chain = chain(16)
        .read("tries", tries)
        .on_error(on)
        .max_batch(batch)
        .read("behind", |v, _| behind.push(*v));
    let outcome = chain.run_inline(|p| Ok(p.publish_all(0..8, |slot, i| *slot = i)?));
    // Whatever was seen twice, nobody behind sees anything twice, or leaves anything out.
    assert!(
        behind.iter().copied().eq(0..behind.len() as u64)
            && (outcome.is_err() || behind.len() == 8)
    );
    if let Ok(done) = &outcome {
        let stage = done.report.stage("tries").unwrap();
        assert_eq!(
            (stage.retries, stage.events),
            (fails.iter().map(|(_, times)| u64::from(*times)).sum(), 8)
        );
    }
    (seen, outcome)
}

#[test]
fn a_rewind_at_the_first_event_of_a_batch() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(4, 1)], 4, OnFault::retry(1));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 4, 4, 5, 6, 7], true));
}

#[test]
fn a_rewind_in_the_middle_of_a_batch() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(6, 1)], 4, OnFault::retry(1));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7], true));
}

#[test]
fn a_rewind_at_the_last_event_of_a_batch() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(7, 1)], 4, OnFault::retry(1));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7], true));
}

#[test]
fn rewinds_repeat() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(1, 3)], 4, OnFault::retry(3));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7], true));
    // At several events of one batch.
    let (seen, done) = rewound(&[(0, 1), (2, 1), (3, 1)], 4, OnFault::retry(3));
    assert_eq!((seen, done.is_ok()), (vec![0, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7], true));
}

#[test]
fn a_rewind_of_a_batch_of_one() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(3, 2), (7, 1)], 1, OnFault::retry(2));
    assert_eq!((seen, done.is_ok()), (vec![0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7], true));
}

#[test]
fn rewinds_come_to_an_end() {
    let _watched = crate::common::watched();
    let (seen, done) = rewound(&[(5, 9)], 4, OnFault::retry(2));
    let error = done.unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("tries"), Some(5), Some(&Oops(5)))
    );
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 4, 5, 4, 5]);
}

#[test]
fn rewinds_may_end_with_a_skip() {
    let _watched = crate::common::watched();
    let mut seen = Vec::new();
    let always = |v: &u64, _: At| {
        seen.push(*v);
        if *v == 1 { Err(Oops(1)) } else { Ok(()) }
    };
    let on = OnFault::retry(1).pause(Duration::from_millis(1)).then_skip();
    let done = chain(8)
        .read("r", always)
        .on_error(on)
        .max_batch(1)
        .feed(0..4, |slot, i| *slot = i)
        .unwrap();
    let stage = done.report.stage("r").unwrap();
    assert_eq!((seen, stage.retries, stage.skipped, stage.events), (vec![0, 1, 1, 2, 3], 1, 1, 4));
}

#[test]
fn a_handler_of_batches_is_rewound_too() {
    let _watched = crate::common::watched();
    let (mut calls, mut failed) = (Vec::new(), false);
    let tries = |events: &slipring::Events<'_, u64>, first| {
        calls.push((first, events.len()));
        if first == 4 && !std::mem::replace(&mut failed, true) { Err(Oops(4)) } else { Ok(()) }
    };
    let chain = chain(16).read_batch("r", tries).on_error(OnFault::retry(1));
    chain.run_inline(|p| Ok(p.publish_all(0..8, |slot, i| *slot = i)?)).unwrap();
    assert_eq!(calls, [(0, 4), (4, 4), (4, 4)]);
}

// Waiting without a thread, and for several at once.

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_task_holds_no_thread() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(2);
    let woken = Arc::new(Woken::default());
    let (waker, count) = (Waker::from(woken.clone()), || woken.0.load(SeqCst));
    let mut cx = Context::from_waker(&waker);
    {
        let mut batch = pin!(rx.batch_async(9));
        assert!(batch.as_mut().poll(&mut cx).is_pending() && count() == 0);
        tx.publish(|slot| *slot = 7).unwrap();
        assert_eq!(count(), 1);
        let Poll::Ready(Ok(batch)) = batch.as_mut().poll(&mut cx) else { panic!("nothing there") };
        assert_eq!(batch[0], 7);
        batch.release();
    }
    // Two tasks in turn on this thread: one fills the ring, the other one empties it.
    let mut sends = pin!(async {
        for i in 0..100 {
            tx.publish_async(|slot| *slot = i).await.unwrap();
        }
        tx.close();
    });
    let mut reads = pin!(async {
        let mut next = 0;
        let closed = loop {
            match rx.batch_async(9).await {
                Ok(batch) => {
                    assert!(batch.iter().copied().eq(next..next + batch.len() as u64));
                    next += batch.len() as u64;
                    batch.release();
                }
                Err(closed) => break closed,
            }
        };
        assert!(matches!(closed, WaitError::Closed));
        next
    });
    let (patience, mut sent) = (Patience::new(), false);
    let total = loop {
        sent = sent || sends.as_mut().poll(&mut cx).is_ready();
        match reads.as_mut().poll(&mut cx) {
            Poll::Ready(total) => break total,
            Poll::Pending => patience.pause("the tasks"),
        }
    };
    assert!(sent && total == 100);
}

#[cfg(feature = "stream")]
#[test]
fn events_are_a_stream() {
    let _watched = crate::common::watched();
    use futures_core::Stream;
    let (mut tx, rx) = pair(4);
    let mut stream = pin!(rx.into_stream(|v, at| (*v, at.seq)));
    let mut next = || stream.as_mut().poll_next(&mut Context::from_waker(Waker::noop()));
    assert!(next().is_pending());
    tx.publish_all(5..7, |slot, i| *slot = i).unwrap();
    assert!(matches!(next(), Poll::Ready(Some(Ok((5, 0))))));
    assert!(matches!(next(), Poll::Ready(Some(Ok((6, 1))))));
    assert!(next().is_pending());
    tx.close();
    assert!(matches!(next(), Poll::Ready(None)));
}

#[test]
fn several_rings_on_one_thread() {
    let _watched = crate::common::watched();
    let ((mut a, mut left), (mut b, mut right)) = (pair(4), pair(4));
    let (mut selector, by) = (Selector::new(), Instant::now() + LIMIT);
    assert_eq!(selector.wait(&mut [&mut left, &mut right], Some(Instant::now())), None);
    b.publish(|slot| *slot = 1).unwrap();
    assert_eq!(selector.wait(&mut [&mut left, &mut right], Some(by)), Some(1));
    assert_eq!(right.poll(9, |_, _| ()).unwrap(), 1);
    // It sleeps until one of them has something.
    let seen = thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..50 {
                a.publish(|slot| *slot = i).unwrap();
                b.publish(|slot| *slot = i).unwrap();
            }
        });
        let (mut seen, mut open) = ([0, 0], [true; 2]);
        while open.contains(&true) {
            let mut handles = [&mut left, &mut right];
            let turn = match (open, &mut handles) {
                ([true, true], [left, right]) => selector.wait(&mut [*left, *right], Some(by)),
                ([true, false], [left, _]) => selector.wait(&mut [*left], Some(by)),
                (_, [_, right]) => selector.wait(&mut [*right], Some(by)).map(|_| 1),
            };
            let turn = turn.expect("something came, or the end");
            match handles[turn].poll(9, |_, _| seen[turn] += 1) {
                Ok(_) => {}
                Err(WaitError::Closed) => open[turn] = false,
                Err(other) => panic!("{other}"),
            }
        }
        seen
    });
    assert_eq!(seen, [50, 50]);
}
