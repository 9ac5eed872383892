//! Rows of MIGRATING.md on a running graph: positions, reports, raw calls, tasks, streams and
//! selectors.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use slipring::{
    Monitor,
    errors::{BatchError, ClaimError, NotHeld, WaitError},
    stages::PRODUCER,
    tasks::Selector,
};

use crate::common::Unpark;

use crate::common::LIMIT;
use crate::{Patience, chain, graph, pair, shared, until};

// Positions and reports.

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
    // With many producers, the reported position includes claims that are not published yet.
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
            until("the release of all events", || {
                monitor.report().unwrap().stage("r").unwrap().seq == 5
            });
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
    tx.done(1).unwrap(); // also position 0
    let there = rx.available(9).unwrap();
    assert_eq!((there.first_seq(), there.last_seq()), (0, 1));
    assert!(there.map(|seq| *rx.at(seq).unwrap()).eq(10..12));
    rx.done(0).unwrap();
    assert_eq!((rx.at(0), rx.at(1)), (None, Some(&11)));
    assert_eq!(rx.next().unwrap(), 1);
    // `done` and `next` accept only held positions.
    assert!(matches!(rx.done(2), Err(NotHeld { seq: 2, first: 1, len: 1, .. })));
    assert!(matches!(tx.done(3), Err(NotHeld { seq: 3, first: 2, len: 1, .. })));
    assert!(matches!(tx.next(), Err(ClaimError::Held { first: 2, len: 1 })));
    tx.done(2).unwrap();
    // `into_inner` returns the handle that lends batches. An event that is not done is delivered
    // again.
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

// Tasks, streams and selectors.

#[test]
fn a_task_holds_no_thread() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(2);
    let woken = Unpark::new();
    let (waker, count) = (Waker::from(woken.clone()), || woken.wakes());
    let mut cx = Context::from_waker(&waker);
    {
        let mut batch = pin!(rx.batch_async(9));
        assert!(batch.as_mut().poll(&mut cx).is_pending() && count() == 0);
        tx.publish(|slot| *slot = 7).unwrap();
        assert_eq!(count(), 1);
        let Poll::Ready(Ok(batch)) = batch.as_mut().poll(&mut cx) else { panic!("no event") };
        assert_eq!(batch[0], 7);
        batch.release();
    }
    // Two tasks run in turn on this thread. One fills the ring, and the other empties it.
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
    // The selector sleeps until one of the rings has an event.
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
            let turn = turn.expect("an event, or the end");
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
