//! Futures, and `Selector`, on this file's own executor.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Wait,
    errors::WaitError,
    handles::StartAt,
    tasks::{Selector, Waitable},
};

use crate::common::{Unpark, block_on};

#[test]
fn a_task_feeds_a_task() {
    let _watched = crate::common::watched();
    let events = if cfg!(miri) { 200 } else { 5_000 };
    for capacity in [1, 2, 64] {
        let (mut tx, mut rx) = slipring::unicast(capacity, || 0u64).unwrap();
        let sending = thread::spawn(move || {
            block_on(async {
                for i in 0..events {
                    tx.publish_async(|slot| *slot = i).await.unwrap();
                }
            });
        });
        let mut next = 0;
        let ended = block_on(async {
            loop {
                match rx.batch_async(8).await {
                    Ok(batch) => {
                        for value in batch.iter() {
                            assert_eq!(*value, next);
                            next += 1;
                        }
                        batch.release();
                    }
                    Err(closed) => return closed,
                }
            }
        });
        assert!(matches!(ended, WaitError::Closed));
        assert_eq!(next, events);
        sending.join().unwrap();
    }
}

#[test]
fn tasks_can_run_every_role_of_a_graph() {
    let _watched = crate::common::watched();
    let claims = if cfg!(miri) { 50 } else { 500 };
    let graph = Graph::new(4, || 0u64).shared();
    let double = graph.pool_updater("double", 2);
    let (end, tap) = (graph.reader("end").after(&double), graph.tap("tap", 1).after(&double));
    let ring = graph.build().unwrap();
    let tap = ring.tap(tap);
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    let workers = ring.pool_updaters(double).into_iter().map(|mut worker| {
        thread::spawn(move || {
            block_on(async {
                while let Ok(mut batch) = worker.batch_async(2).await {
                    batch.iter_mut().for_each(|value| *value *= 2);
                    batch.release();
                }
            });
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut end = ring.reader(end);
    let producers: Vec<_> = (0..2)
        .map(|_| {
            let mut tx = ring.producer();
            thread::spawn(move || {
                block_on(async {
                    for _ in 0..claims {
                        let mut slots = tx.claim_n_async(2).await.unwrap();
                        slots.iter_mut().for_each(|slot| *slot = 1);
                        slots.publish();
                    }
                });
            })
        })
        .collect();
    drop(ring);
    let following = thread::spawn(move || {
        block_on(async {
            let mut sum = 0;
            while let Ok(batch) = late.batch_async(3).await {
                sum += batch.iter().sum::<u64>();
                batch.release();
            }
            sum
        })
    });
    let sum = block_on(async {
        let mut sum = 0;
        while let Ok(batch) = end.batch_async(usize::MAX).await {
            sum += batch.iter().sum::<u64>();
            batch.release();
        }
        sum
    });
    // Two producers publish two events per claim, and each event is doubled.
    assert_eq!((sum, following.join().unwrap()), (8 * claims, 8 * claims));
    workers.into_iter().chain(producers).for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_dropped_future_takes_no_event_and_leaves_no_waker() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(1, || 0u64).unwrap();
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    {
        let mut batch = pin!(rx.batch_async(1));
        assert!(batch.as_mut().poll(&mut cx).is_pending());
    }
    tx.publish(|slot| *slot = 1).unwrap();
    assert_eq!(unpark.wakes(), 0, "the waker of a dropped future");
    let mut ran = false;
    {
        let mut publish = pin!(tx.publish_async(|_| ran = true));
        assert!(publish.as_mut().poll(&mut cx).is_pending());
        assert!(publish.as_mut().poll(&mut cx).is_pending());
    }
    assert!(!ran);
    let mut publish = pin!(tx.publish_async(|slot| *slot = 2));
    assert!(publish.as_mut().poll(&mut cx).is_pending());
    assert_eq!(rx.poll(1, |v, _| assert_eq!(*v, 1)).unwrap(), 1);
    assert_eq!(unpark.wakes(), 1, "only the release wakes the task");
    assert!(matches!(publish.as_mut().poll(&mut cx), Poll::Ready(Ok(1))));
    assert_eq!(Arc::strong_count(&unpark), 2, "a waker was left behind");
}

#[test]
fn an_end_wakes_a_task() {
    let _watched = crate::common::watched();
    for halted in [false, true] {
        let (tx, mut rx) = slipring::unicast(1, || 0u64).unwrap();
        let (asked, asking) = mpsc::channel();
        let waiting = thread::spawn(move || {
            block_on(async {
                let mut batch = pin!(rx.batch_async(1));
                std::future::poll_fn(|cx| {
                    let polled = batch.as_mut().poll(cx);
                    asked.send(()).ok();
                    polled
                })
                .await
                .map(|batch| batch.len())
            })
        });
        asking.recv().unwrap();
        if halted {
            tx.halt()
        } else {
            tx.close()
        }
        let ended = waiting.join().unwrap();
        assert!(matches!(
            (halted, ended),
            (true, Err(WaitError::Halted)) | (false, Err(WaitError::Closed))
        ));
    }
}

#[test]
fn a_task_with_a_strategy_that_does_not_park_is_polled_again() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64).wait(Wait::YIELDING);
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.reader(end));
    let sending = thread::spawn(move || (0..100).for_each(|i| drop(tx.publish(|slot| *slot = i))));
    let mut seen = 0;
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    while seen < 100 {
        let mut batch = pin!(end.batch_async(4));
        match batch.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(batch) => {
                let batch = batch.unwrap();
                seen += batch.len();
                batch.release();
            }
            Poll::Pending => thread::park_timeout(Duration::from_secs(10)),
        }
    }
    sending.join().unwrap();
}

#[test]
fn one_thread_waits_for_several_rings() {
    let _watched = crate::common::watched();
    for wait in [Wait::Blocking, Wait::YIELDING] {
        let mut rings: Vec<_> = (0..3)
            .map(|_| {
                let graph = Graph::new(4, || 0u64).wait(wait.clone());
                let end = graph.reader("end");
                let ring = graph.build().unwrap();
                (ring.producer(), ring.reader(end))
            })
            .collect();
        let (mut txs, mut rxs): (Vec<_>, Vec<_>) = rings.drain(..).unzip();
        let sending = thread::spawn(move || {
            for i in 0..600u64 {
                txs[(i * 7 % 3) as usize].publish(|slot| *slot = i).unwrap();
            }
        });
        let mut selector = Selector::new();
        let mut open = [true; 3];
        let (mut seen, mut last) = (0, [None; 3]);
        let end = Instant::now() + Duration::from_secs(30);
        while open.contains(&true) {
            let numbers: Vec<usize> = (0..3).filter(|&i| open[i]).collect();
            let mut handles: Vec<&mut dyn Waitable> = rxs
                .iter_mut()
                .enumerate()
                .filter(|(i, _)| open[*i])
                .map(|(_, rx)| rx as &mut dyn Waitable)
                .collect();
            let ready =
                numbers[selector.wait(&mut handles, Some(end)).expect("a wake-up was lost")];
            match rxs[ready].poll(8, |&value, _| {
                assert!(last[ready] < Some(value));
                last[ready] = Some(value);
                seen += 1;
            }) {
                Ok(_) => {}
                Err(WaitError::Closed) => open[ready] = false,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(seen, 600);
        sending.join().unwrap();
    }
}

#[test]
fn a_selector_keeps_its_deadline_and_waits_for_room() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(1, || 0u64).unwrap();
    let mut selector = Selector::new();
    assert_eq!(selector.wait(&mut [], None), None);
    assert_eq!(
        selector.wait(&mut [&mut rx], Some(Instant::now() + Duration::from_millis(2))),
        None
    );
    assert_eq!(selector.wait(&mut [&mut tx], None), Some(0));
    tx.publish(|_| ()).unwrap();
    assert_eq!(
        selector.wait(&mut [&mut tx], Some(Instant::now() + Duration::from_millis(2))),
        None
    );
    assert_eq!(selector.wait(&mut [&mut tx, &mut rx], None), Some(1));
    drop(rx);
    assert_eq!(selector.wait(&mut [&mut tx], None), Some(0), "a handle of a failed ring is ready");
    assert!(tx.publish(|_| ()).is_err());
}

#[test]
fn dropping_an_armed_handle_removes_its_waker() {
    let _watched = crate::common::watched();
    struct Counts(AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let counts = Arc::new(Counts(AtomicUsize::new(0)));
    let waker = Waker::from(counts.clone());
    let graph = Graph::new(4, || 0u64).shared();
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let pool = graph.pool_reader("pool", 1).room(2);
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap, mut pool) =
        (ring.producer(), ring.reader(end), ring.tap(tap), ring.pool_readers(pool));
    for _ in 0..10 {
        assert!(!tap.subscribe(StartAt::Now).unwrap().arm(&waker));
        assert!(!pool[0].pool().join().unwrap().arm(&waker));
    }
    (0..4).for_each(|_| _ = tx.publish(|_| ()).unwrap());
    for _ in 0..10 {
        assert!(!tx.clone().arm(&waker));
    }
    assert_eq!(Arc::strong_count(&counts), 2, "a waker was left behind");
    end.poll(8, |_, _| ()).unwrap();
    while pool[0].poll(8, |_, _| ()).unwrap() != 0 {}
    assert_eq!(counts.0.load(Relaxed), 0, "a dropped handle was woken");
}

/// Runs two tasks in turn on one thread, until the first task has ended. Returns the number of
/// results that the first task had at each poll of the second.
fn beside_another_task(results: &Cell<u32>, first: impl Future<Output = ()>) -> Vec<u32> {
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    let mut first = pin!(first);
    let mut seen = Vec::new();
    let mut second = pin!(std::future::poll_fn::<(), _>(|cx| {
        seen.push(results.get());
        cx.waker().wake_by_ref();
        Poll::Pending
    }));
    loop {
        let woken = unpark.wakes();
        if first.as_mut().poll(&mut cx).is_ready() {
            break;
        }
        assert_eq!(unpark.wakes(), woken + 1, "a task whose ring is ready wakes itself");
        assert!(second.as_mut().poll(&mut cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&unpark), 2, "a waker was left in a wait queue");
    seen
}

/// Number of results that are ready at once. It is larger than the longest [`ROW`], and smaller
/// than [`SLOTS`].
const READY: u32 = 2000;
const SLOTS: usize = 2048;
/// Allowed length of a row. A *row* is a series of results that a task takes before it lets another
/// task run. A row of slow results is shorter.
const ROW: std::ops::RangeInclusive<u32> = 15..=511;

fn ends_its_rows(seen: &[u32]) {
    let rows = seen.iter().zip([0].iter().chain(seen)).map(|(after, before)| after - before);
    assert!(rows.clone().all(|row| ROW.contains(&row)), "{:?}", rows.collect::<Vec<_>>());
    assert!(seen.last().is_some_and(|last| READY - last <= *ROW.end()), "{seen:?}");
}

#[test]
fn a_task_whose_ring_always_has_events_lets_another_task_run() {
    let _watched = crate::common::watched();
    let graph = Graph::new(SLOTS, || 0u32).shared();
    let (every, pool) = (graph.reader("every"), graph.pool_reader("pool", 1));
    let (shards, tap) = (graph.shard_reader("shards", 1, |_| 0u64), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let mut tap = ring.tap(tap).subscribe(StartAt::Now).unwrap();
    let mut pool = ring.pool_readers(pool).remove(0);
    let mut shard = ring.shard_readers(shards).remove(0);
    let (mut tx, mut every) = (ring.producer(), ring.reader(every));
    tx.publish_all(0..READY, |slot, i| *slot = i).unwrap();
    macro_rules! reads {
        ($rx:ident) => {
            let results = Cell::new(0);
            let seen = beside_another_task(&results, async {
                while results.get() < READY {
                    let batch = $rx.batch_async(1).await.unwrap();
                    assert_eq!((batch.len(), batch[0]), (1, results.get()));
                    batch.release();
                    results.set(results.get() + 1);
                }
            });
            ends_its_rows(&seen);
        };
    }
    reads!(every);
    reads!(pool);
    reads!(shard);
    reads!(tap);
}

#[test]
fn a_task_whose_ring_always_has_room_lets_another_task_run() {
    let _watched = crate::common::watched();
    let (mut tx, _rx) = slipring::unicast(SLOTS, || 0u32).unwrap();
    let graph = Graph::new(SLOTS, || 0u32).shared();
    let end = graph.reader("end");
    let ring = graph.build().unwrap();
    let (mut shared, _end) = (ring.producer(), ring.reader(end));
    macro_rules! feeds {
        ($tx:ident) => {
            let results = Cell::new(0);
            let seen = beside_another_task(&results, async {
                while results.get() < READY {
                    let published = match results.get() % 2 {
                        0 => $tx.publish_async(|slot| *slot = 1).await.unwrap(),
                        _ => $tx.claim_n_async(1).await.unwrap().publish(),
                    };
                    assert_eq!(published, u64::from(results.get()), "each claim is published");
                    results.set(results.get() + 1);
                }
            });
            ends_its_rows(&seen);
        };
    }
    feeds!(tx);
    feeds!(shared);
}

#[test]
fn a_task_that_goes_on_at_an_ended_ring_lets_another_task_run() {
    let _watched = crate::common::watched();
    let (tx, mut rx) = slipring::unicast(8, || 0u32).unwrap();
    tx.close();
    let results = Cell::new(0);
    let seen = beside_another_task(&results, async {
        while results.get() < READY {
            assert!(matches!(rx.batch_async(1).await, Err(WaitError::Closed)));
            results.set(results.get() + 1);
        }
    });
    ends_its_rows(&seen);
}

/// The stream releases the events that it has yielded before it lets another task run.
#[cfg(feature = "stream")]
#[test]
fn a_stream_that_always_has_items_lets_another_task_run() {
    let _watched = crate::common::watched();
    let (mut tx, rx) = slipring::unicast(SLOTS, || 0u32).unwrap();
    tx.publish_all(0..READY, |slot, i| *slot = i).unwrap();
    let mut items = pin!(rx.into_stream(|item, _| *item));
    let (results, mut freed) = (Cell::new(0), Vec::new());
    let mut polls = 0;
    let seen = beside_another_task(
        &results,
        std::future::poll_fn(|cx| {
            polls += 1;
            if polls > 1 {
                freed.push((tx.remaining() as u32, results.get() + SLOTS as u32 - READY));
            }
            while results.get() < READY {
                match futures_core::Stream::poll_next(items.as_mut(), cx) {
                    Poll::Ready(item) => assert_eq!(item.unwrap().unwrap(), results.get()),
                    Poll::Pending => return Poll::Pending,
                }
                results.set(results.get() + 1);
            }
            Poll::Ready(())
        }),
    );
    ends_its_rows(&seen);
    assert!(freed.iter().all(|(free, expected)| free == expected), "{freed:?}");
}

/// Once a row has 8 results, it ends as soon as another 100 µs have passed.
#[test]
fn slow_results_end_their_row_early() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(64, || 0u32).unwrap();
    tx.publish_all(0..60, |slot, i| *slot = i).unwrap();
    let results = Cell::new(0);
    let seen = beside_another_task(&results, async {
        while results.get() < 60 {
            rx.batch_async(1).await.unwrap().release();
            thread::sleep(Duration::from_micros(50));
            results.set(results.get() + 1);
        }
    });
    assert_eq!(seen, [15, 30, 45]);
}

/// A wait begins a new row, so a task that waits now and then returns pending only when it has to
/// wait.
#[test]
fn a_wait_begins_a_new_row() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(8, || 0u32).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        for _ in 0..8 {
            let mut publish = pin!(tx.publish_async(|_| ()));
            assert!(publish.as_mut().poll(&mut cx).is_ready());
        }
        assert!(pin!(tx.publish_async(|_| ())).poll(&mut cx).is_pending(), "the ring is full");
        for _ in 0..8 {
            let Poll::Ready(Ok(batch)) = pin!(rx.batch_async(1)).poll(&mut cx) else {
                panic!("an event is there")
            };
            batch.release();
        }
        assert!(pin!(rx.batch_async(1)).poll(&mut cx).is_pending(), "the ring is empty");
    }
}

#[test]
fn a_future_dropped_at_the_end_of_a_row_has_taken_nothing() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(SLOTS, || 0u32).unwrap();
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    let (mut published, mut pending, mut read) = (0, 0, 0);
    while published < READY {
        match pin!(tx.publish_async(move |slot| *slot = published)).poll(&mut cx) {
            Poll::Ready(seq) => {
                assert_eq!(seq.unwrap(), u64::from(published));
                published += 1;
                pending = 0;
            }
            Poll::Pending => pending += 1,
        }
        assert!(pending <= 1, "the next poll succeeds");
    }
    while read < READY {
        match pin!(rx.batch_async(1)).poll(&mut cx) {
            Poll::Ready(batch) => {
                let batch = batch.unwrap();
                assert_eq!(batch[0], read);
                batch.release();
                read += 1;
                pending = 0;
            }
            Poll::Pending => pending += 1,
        }
        assert!(pending <= 1, "the next poll succeeds");
    }
    assert!(unpark.wakes() >= 2 * 3, "each dropped future has woken its task");
    assert_eq!(Arc::strong_count(&unpark), 2, "a waker was left behind");
    assert_eq!(tx.remaining(), SLOTS);
}
