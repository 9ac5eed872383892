//! Observers that wait, on threads and in tasks: a put or the mirror's end wakes each of them, and
//! each value is seen or counted as missed.
#![cfg(not(slipring_loom))]

mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::errors::ObserveError;

use common::{Unpark, block_on};
use slipring::handles::{MirrorHandle, Observed, Observer};
use slipring::{Graph, Mirror, Wait};

/// Number of values; few under Miri.
const PUTS: u64 = if cfg!(miri) { 40 } else { 20_000 };

fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// An observer that sleeps until a notification, after a few polls.
fn sleeper(mirror: &MirrorHandle<u64>) -> Observer<u64> {
    mirror.observe().wait(Wait::Blocking)
}

/// Gives another thread time to fall asleep. A test passes without it, too.
fn doze() {
    thread::sleep(Duration::from_millis(if cfg!(miri) { 0 } else { 2 }));
}

fn poll_once<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A call that waits for a value.
type Call = fn(&mut Observer<u64>) -> Result<Observed<u64>, ObserveError>;

/// All calls that wait for a value.
const CALLS: [(&str, Call); 6] = [
    ("next", |it| it.next().ok_or(ObserveError::Closed)),
    ("next_by", |it| it.next_by(far_deadline())),
    ("latest", Observer::latest),
    ("latest_by", |it| it.latest_by(far_deadline())),
    ("next_async", |it| block_on(it.next_async())),
    ("latest_async", |it| block_on(it.latest_async())),
];

#[test]
fn a_put_and_the_end_wake_each_call_that_waits() {
    let _watched = common::watched();
    for (name, call) in CALLS {
        let mut mirror = Mirror::new(2).unwrap();
        let mut observer = sleeper(&mirror.handle());
        thread::scope(|scope| {
            let (seen, sees) = mpsc::channel();
            scope.spawn(move || {
                for _ in 0..2 {
                    seen.send(call(&mut observer).map(|it| (it.seq, it.value))).unwrap();
                }
                seen.send(call(&mut observer).map(|it| (it.seq, it.value))).unwrap();
                assert_eq!(call(&mut observer), Err(ObserveError::Closed), "{name}");
            });
            for i in 0..2 {
                doze();
                mirror.put(i, &(i + 10));
                assert_eq!(sees.recv().unwrap(), Ok((i, i + 10)), "{name}");
            }
            doze();
            drop(mirror);
            assert_eq!(sees.recv().unwrap(), Err(ObserveError::Closed), "{name}");
        });
    }
}

#[test]
fn threads_and_tasks_of_one_mirror_see_or_miss_each_value() {
    let _watched = common::watched();
    for capacity in [1, 2, 16] {
        let mut mirror = Mirror::new(capacity).unwrap();
        thread::scope(|scope| {
            for (name, call) in CALLS {
                for wait in [Wait::Blocking, Wait::ADAPTIVE, Wait::SLEEPING] {
                    let mut observer = mirror.handle().observe().wait(wait);
                    scope.spawn(move || {
                        let mut total = 0;
                        let end = loop {
                            match call(&mut observer) {
                                Ok(seen) => {
                                    total += seen.missed + 1;
                                    assert_eq!((seen.seq + 1, seen.value), (total, !seen.seq));
                                }
                                Err(end) => break end,
                            }
                        };
                        assert_eq!((total, end), (PUTS, ObserveError::Closed), "{name}");
                    });
                }
            }
            for seq in 0..PUTS {
                mirror.put(seq, &!seq);
                // Now and then the observers catch up, and sleep.
                if seq % (PUTS / 10) == 0 {
                    doze();
                }
            }
            drop(mirror);
        });
    }
}

#[test]
fn the_mirrors_end_wakes_all_observers() {
    let _watched = common::watched();
    let mirror = Mirror::new(4).unwrap();
    let (asleep, sleeps) = mpsc::channel();
    thread::scope(|scope| {
        for (_, call) in CALLS.into_iter().cycle().take(12) {
            let (mut observer, asleep) = (sleeper(&mirror.handle()), asleep.clone());
            scope.spawn(move || {
                asleep.send(()).unwrap();
                assert_eq!(call(&mut observer), Err(ObserveError::Closed));
            });
        }
        (0..12).for_each(|_| sleeps.recv().unwrap());
        doze();
        drop(mirror);
    });
}

#[test]
fn a_future_that_is_dropped_leaves_no_waker() {
    let _watched = common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let mut observer = mirror.handle().observe();
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut future = observer.next_async();
    assert!(poll_once(&mut future, &waker).is_pending());
    assert_eq!(Arc::strong_count(&unpark), 3, "the queue holds a clone");
    drop(future);
    assert_eq!(Arc::strong_count(&unpark), 2);
    mirror.put(0, &1u64);
    assert_eq!((unpark.wakes(), observer.try_next().unwrap().value), (0, 1));
    // A future that is forgotten leaves its waker to the observer.
    let mut future = observer.latest_async();
    assert!(poll_once(&mut future, &waker).is_pending());
    std::mem::forget(future);
    assert_eq!(Arc::strong_count(&unpark), 3);
    drop(observer);
    assert_eq!(Arc::strong_count(&unpark), 2);
    mirror.put(1, &2);
    assert_eq!(unpark.wakes(), 0);
}

#[test]
fn the_newest_waker_of_a_task_is_woken_once() {
    let _watched = common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let mut observer = mirror.handle().observe();
    let [old, new] = [(); 2].map(|()| Unpark::new());
    let mut future = observer.next_async();
    assert!(poll_once(&mut future, &Waker::from(old.clone())).is_pending());
    assert!(poll_once(&mut future, &Waker::from(new.clone())).is_pending());
    (0..3u64).for_each(|i| mirror.put(i, &i));
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
    assert!(
        matches!(poll_once(&mut future, Waker::noop()), Poll::Ready(Ok(seen)) if seen.seq == 0)
    );
}

#[test]
fn a_clone_of_an_observer_waits_on_its_own() {
    let _watched = common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let mut observer = mirror.handle().observe();
    let [first, second] = [(); 2].map(|()| Unpark::new());
    let mut future = observer.next_async();
    assert!(poll_once(&mut future, &Waker::from(first.clone())).is_pending());
    std::mem::forget(future);
    // The clone neither wakes for the original nor takes its waker away.
    drop(observer.clone());
    let mut clone = observer.clone();
    let mut future = clone.next_async();
    assert!(poll_once(&mut future, &Waker::from(second.clone())).is_pending());
    mirror.put(0, &1u64);
    assert_eq!((first.wakes(), second.wakes()), (1, 1));
    drop(future);
    assert_eq!(observer.next().map(|it| it.value), Some(1));
    assert_eq!(clone.next().map(|it| it.value), Some(1));
}

#[test]
fn a_panic_of_a_waker_does_not_reach_the_writer() {
    let _watched = common::watched();
    common::quiet();
    struct Bad(Arc<AtomicUsize>);
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
            panic!("a waker panics");
        }
    }
    impl Drop for Bad {
        fn drop(&mut self) {
            self.0.fetch_add(100, Relaxed);
            panic!("a waker's drop panics");
        }
    }
    let mut mirror = Mirror::new(4).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let [mut bad, mut good] = [(); 2].map(|()| mirror.handle().observe());
    let unpark = Unpark::new();
    let mut waits = good.next_async();
    {
        let waker = Waker::from(Arc::new(Bad(calls.clone())));
        let mut future = bad.next_async();
        assert!(poll_once(&mut future, &waker).is_pending());
        std::mem::forget((future, waker));
    }
    assert!(poll_once(&mut waits, &Waker::from(unpark.clone())).is_pending());
    mirror.put(0, &1u64);
    assert_eq!((calls.load(Relaxed), unpark.wakes()), (1, 1));
    assert!(poll_once(&mut waits, Waker::noop()).is_ready());
    // The drop of an observer contains the panic of its waker's drop.
    let waker = Waker::from(Arc::new(Bad(calls.clone())));
    assert!(poll_once(&mut bad.latest_async(), Waker::noop()).is_ready());
    let mut future = bad.next_async();
    assert!(poll_once(&mut future, &waker).is_pending());
    std::mem::forget(future);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(waker)));
    assert!(dropped.is_ok(), "the queue still has the waker");
    drop(bad);
    assert_eq!(calls.load(Relaxed), 101);
    drop(mirror);
}

/// A waker that reads from the observer for which it waits, and waits again, inside of the put.
#[test]
fn a_waker_may_use_its_observer() {
    let _watched = common::watched();
    struct Again(Mutex<Observer<u64>>, Mutex<Vec<u64>>);
    impl Again {
        fn poll(self: Arc<Self>) {
            let waker = Waker::from(self.clone());
            let mut observer = self.0.lock().unwrap();
            loop {
                let mut future = observer.next_async();
                match poll_once(&mut future, &waker) {
                    Poll::Ready(Ok(seen)) => self.1.lock().unwrap().push(seen.value),
                    Poll::Ready(Err(_)) => return,
                    Poll::Pending => return std::mem::forget(future),
                }
            }
        }
    }
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            self.poll();
        }
    }
    let mut mirror = Mirror::new(4).unwrap();
    let again = Arc::new(Again(Mutex::new(mirror.handle().observe()), Mutex::default()));
    again.clone().poll();
    for i in 0..5 {
        mirror.put(i, &i);
    }
    assert_eq!(*again.1.lock().unwrap(), [0, 1, 2, 3, 4]);
    drop(mirror);
    assert_eq!(Arc::strong_count(&again), 1, "the end takes the waker out");
}

#[test]
fn a_task_that_always_has_values_lets_others_run() {
    let _watched = common::watched();
    let mut mirror = Mirror::new(1024).unwrap();
    let mut observer = mirror.handle().observe();
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut in_a_row = 0;
    for i in 0..1024u64 {
        mirror.put(i, &i);
        if poll_once(&mut observer.next_async(), &waker).is_pending() {
            break;
        }
        in_a_row += 1;
    }
    assert!((15..=511).contains(&in_a_row), "{in_a_row}");
    assert_eq!(unpark.wakes(), 1, "the task polls again");
    let seen = block_on(observer.next_async()).unwrap();
    assert_eq!((seen.value, seen.missed), (in_a_row, 0));
}

#[test]
fn a_wait_has_an_end_beside_a_writer_that_laps_it() {
    let _watched = common::watched();
    let (is_over, mut mirror) = (AtomicBool::new(false), Mirror::new(1).unwrap());
    let [mut by, mut task] = [(); 2].map(|()| mirror.handle().observe());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut puts = 0;
            while !is_over.load(Relaxed) {
                mirror.put(puts, &[puts; 512]);
                puts += 1;
            }
            drop(mirror);
        });
        for _ in 0..if cfg!(miri) { 2 } else { 50 } {
            match by.latest_by(Instant::now() + Duration::from_micros(200)) {
                Ok(seen) => assert_eq!(seen.value, [seen.seq; 512]),
                Err(error) => assert_eq!(error, ObserveError::TimedOut),
            }
            let polled = poll_once(&mut task.latest_async(), Waker::noop());
            assert!(!matches!(polled, Poll::Ready(Err(_))));
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn a_strategys_timeout_ends_latest_and_not_the_iterator() {
    let _watched = common::watched();
    let mut mirror = Mirror::new(4).unwrap();
    let wait = Wait::Blocking.or_timeout(Duration::from_millis(1));
    let mut observer = mirror.handle().observe().wait(wait);
    assert_eq!(observer.latest(), Err(ObserveError::TimedOut));
    assert_eq!(observer.next_by(Instant::now()), Err(ObserveError::TimedOut));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            mirror.put(0, &1u64);
        });
        assert_eq!(observer.next().map(|it| it.value), Some(1));
    });
}

/// One stage writes the mirror, and the graph ends in each way: each waiting observer gets the end.
#[test]
fn each_end_of_a_graph_ends_the_waits_of_its_observers() {
    let _watched = common::watched();
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        Close,
        Halt,
        OtherStageFails,
        OwnStageFails,
        Deadline,
        DropThePipeline,
    }
    use End::*;
    for threads in [None, Some(1), Some(2)] {
        for end in [Close, Halt, OtherStageFails, OwnStageFails, Deadline, DropThePipeline] {
            let mirror = Mirror::new(4).unwrap();
            let mirrored = mirror.handle();
            let mut chain = slipring::ring(8, || 0u64)
                .read("first", move |v, _| assert!(*v != 7 || end != OtherStageFails, "planted"))
                .observe("mirror", mirror, move |v| {
                    assert!(*v != 7 || end != OwnStageFails, "planted");
                    *v
                })
                .read("last", |_, _| ());
            if let Some(threads) = threads {
                chain = chain.threads(threads);
            }
            if end == Deadline {
                chain = chain.deadline(Duration::from_millis(20));
            }
            common::quiet();
            let (mut tx, pipeline) = chain.spawn().unwrap();
            thread::scope(|scope| {
                let waits = CALLS.map(|(name, call)| {
                    let mut observer = sleeper(&mirrored);
                    scope.spawn(move || {
                        while call(&mut observer).is_ok() {}
                        assert_eq!(
                            call(&mut observer),
                            Err(ObserveError::Closed),
                            "{name} {end:?}"
                        );
                    })
                });
                drop(tx.publish(|slot| *slot = 1));
                doze();
                match end {
                    Close => {
                        drop(tx);
                        pipeline.join().unwrap();
                    }
                    Halt => {
                        pipeline.halt();
                        waits.into_iter().for_each(|wait| wait.join().unwrap());
                    }
                    OtherStageFails | OwnStageFails => {
                        drop(tx.publish(|slot| *slot = 7));
                        waits.into_iter().for_each(|wait| wait.join().unwrap());
                    }
                    Deadline => {
                        waits.into_iter().for_each(|wait| wait.join().unwrap());
                    }
                    DropThePipeline => drop((tx, pipeline)),
                }
            });
        }
    }
}

#[test]
fn handlers_that_never_run_close_their_mirror() {
    let _watched = common::watched();
    let mirror = Mirror::new(4).unwrap();
    let mut observer = sleeper(&mirror.handle());
    let graph = Graph::new(8, || 0u64);
    let key = graph.reader("mirror");
    let ring = graph.build().unwrap();
    let mut handlers = ring.handlers();
    handlers.observe(key, mirror, |v: &u64| *v);
    thread::scope(|scope| {
        scope.spawn(move || assert_eq!(observer.next(), None));
        doze();
        drop(handlers);
    });
}

/// A handler waits for a value that another stage puts, on the same thread.
#[test]
fn a_handler_on_a_shared_thread_runs_the_stage_that_it_waits_for() {
    let _watched = common::watched();
    let count = if cfg!(miri) { 5 } else { 300u64 };
    for threads in [1, 2] {
        for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::SLEEPING] {
            let mirror = Mirror::new(512).unwrap();
            let mut observer = mirror.handle().observe().wait(wait);
            let mut sum = 0;
            let chain = slipring::ring(4, || 0u64).fan_out(|side| {
                side.read("waits", |v, _| {
                    let seen = observer.next().expect("the mirror is open");
                    assert_eq!((seen.value, seen.missed), (*v, 0));
                    sum += seen.value;
                })
                .observe("mirror", mirror, |v| *v)
            });
            chain.threads(threads).feed(0..count, |slot, i| *slot = i).unwrap();
            assert_eq!(sum, count * (count - 1) / 2, "{threads} threads");
        }
    }
}

/// The producer of an inline run waits for a value, and meanwhile runs the stage that puts it.
#[test]
fn the_producer_of_an_inline_run_runs_the_stage_that_it_waits_for() {
    let _watched = common::watched();
    let mirror = Mirror::new(4).unwrap();
    let mut observer = sleeper(&mirror.handle());
    slipring::ring(4, || 0u64)
        .observe("mirror", mirror, |v| *v)
        .run_inline(|tx| {
            for i in 0..10 {
                tx.publish(|slot| *slot = i)?;
                assert_eq!(observer.latest().map(|it| it.value), Ok(i));
            }
            Ok(())
        })
        .unwrap();
}

/// A market-data stage, and three subscribers: a thread, a task, and a slow thread that learns how
/// much it missed.
#[test]
fn a_slow_subscriber_learns_how_many_values_it_missed() {
    let _watched = common::watched();
    let mirror = Mirror::new(8).unwrap();
    let [mut thread, mut task, mut slow] = [(); 3].map(|()| mirror.handle().observe());
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let thread = scope.spawn(move || thread.by_ref().map(|it| it.missed + 1).sum::<u64>());
        let task = scope.spawn(move || {
            block_on(async {
                let mut total = 0;
                while let Ok(price) = task.next_async().await {
                    total += price.missed + 1;
                }
                total
            })
        });
        let start = &start;
        let slow = scope.spawn(move || {
            let first = slow.next().unwrap();
            start.wait(); // the other 99 values are put meanwhile
            start.wait();
            let newest = slow.latest().unwrap();
            (first.missed, newest.missed, newest.value, slow.next())
        });
        let (mut tx, pipeline) =
            slipring::ring(64, || 0u64).observe("prices", mirror, |v| *v).spawn().unwrap();
        tx.publish(|slot| *slot = 0).unwrap();
        start.wait();
        tx.publish_all(1..100, |slot, i| *slot = i).unwrap();
        drop(tx);
        pipeline.join().unwrap();
        start.wait();
        assert_eq!(slow.join().unwrap(), (0, 98, 99, None));
        assert_eq!((thread.join().unwrap(), task.join().unwrap()), (100, 100));
    });
}

#[cfg(feature = "stream")]
#[test]
fn a_stream_yields_values_and_ends() {
    let _watched = common::watched();
    use futures_core::Stream;
    let mut mirror = Mirror::new(4).unwrap();
    let unpark = Unpark::new();
    let mut stream = pin!(mirror.handle().observe().into_stream());
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(stream.as_mut().poll_next(&mut cx).is_pending());
    (0..9).for_each(|i| mirror.put(i, &i));
    assert_eq!(unpark.wakes(), 1);
    let Poll::Ready(Some(seen)) = stream.as_mut().poll_next(&mut cx) else { panic!("a value") };
    assert_eq!((seen.value, seen.missed), (6, 6));
    for value in [7, 8] {
        let found = stream.as_mut().poll_next(&mut cx);
        assert!(matches!(found, Poll::Ready(Some(seen)) if seen.value == value));
    }
    assert!(stream.as_mut().poll_next(&mut cx).is_pending());
    drop(mirror);
    assert_eq!(unpark.wakes(), 2);
    assert_eq!(stream.as_mut().poll_next(&mut cx), Poll::Ready(None));
    assert_eq!(stream.as_mut().poll_next(&mut cx), Poll::Ready(None));
}
