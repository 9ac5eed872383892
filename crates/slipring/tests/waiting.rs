//! Every wait ends: the graph's deadline ends each of them, and a thread that waits for itself gets
//! an error, wherever the wait begins.

mod common;

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use common::{Oops, ends};
use slipring::{
    At, Error, Graph, Monitor, OnFault, Reader, Tap, Wait,
    errors::{Cause, Failure, WaitError},
    faults::Fault,
    handles::{PoolReader, StartAt, Subscription},
    stages::{PRODUCER, ReadHandler},
    tasks::{Selector, Waitable},
};

const SOON: Duration = Duration::from_millis(if cfg!(miri) { 400 } else { 60 });

fn is_deadline(failure: &Failure) -> bool {
    matches!(failure.cause(), Cause::Deadline(after) if *after == SOON)
}

#[track_caller]
fn assert_timed_out(error: &Error, stage: &str) {
    assert!(error.failure().is_some_and(is_deadline) && error.stage() == Some(stage), "{error}");
}

// Deadlines.

/// A member of a tap holds the whole ring, so a chain on one thread cannot make progress.
#[test]
fn the_deadline_ends_publishing_on_one_thread() {
    let _watched = crate::common::watched();
    let error = ends("inline, a member of the tap holds the ring", || {
        let tap = Tap::new();
        slipring::ring(2, || 0u64)
            .deadline(SOON)
            .tap(&tap)
            .run_inline(|p| {
                let _held = tap.subscribe(StartAt::Now)?;
                while p.publish(|_| ()).is_ok() {}
                Ok(p.publish(|_| ())?)
            })
            .unwrap_err()
    });
    assert_timed_out(&error, PRODUCER);
}

#[test]
fn the_deadline_ends_the_draining_on_one_thread() {
    let _watched = crate::common::watched();
    for halves in [false, true] {
        let error =
            ends(&format!("inline, closing while a member gates a writer, {halves}"), move || {
                let tap = Tap::new();
                let kept = Mutex::new(None);
                slipring::ring(4, || 0u64)
                    .deadline(SOON)
                    .read("before", |_, _| ())
                    .tap(&tap)
                    .update("behind", |_, _| ())
                    .run_inline(|p| {
                        *kept.lock().unwrap() = Some(tap.subscribe(StartAt::Now)?);
                        p.publish(|_| ())?;
                        if halves {
                            p.work();
                        }
                        Ok(())
                    })
                    .unwrap_err()
            });
        assert_timed_out(&error, "behind");
    }
}

#[test]
fn the_deadline_of_each_ring_ends_a_selector() {
    let _watched = crate::common::watched();
    for wait in [Wait::Blocking, Wait::YIELDING] {
        let w = wait.clone();
        ends(&format!("a selector over two rings, {wait}"), move || {
            let rings = [None, Some(SOON)].map(|deadline| {
                let graph = Graph::new(2, || 0u64).wait(w.clone());
                let graph = if let Some(after) = deadline { graph.deadline(after) } else { graph };
                let key = graph.reader("r");
                let ring = graph.build().unwrap();
                let (tx, rx) = (ring.producer(), ring.reader(key));
                (tx, rx)
            });
            let [(mut calm, mut patient), (mut late, mut hasty)] = rings;
            let mut selector = Selector::new();
            assert_eq!(selector.wait(&mut [&mut patient, &mut hasty], None), Some(1));
            let closed = hasty.try_batch(1).err().unwrap();
            assert!(
                matches!(&closed, slipring::errors::BatchError::Wait(WaitError::Failed(failure)) if is_deadline(failure)),
                "{closed}"
            );
            assert!(
                late.publish(|_| ())
                    .unwrap_err()
                    .failure()
                    .is_some_and(|failure| &**failure.stage() == "r")
            );
            // The other graph continues.
            calm.publish(|_| ()).unwrap();
            assert_eq!(
                selector
                    .wait(&mut [&mut patient, &mut hasty], None)
                    .map(|_| patient.poll(1, |_, _| ()).unwrap()),
                Some(1)
            );
        });
        ends(&format!("a selector over a full ring, {wait}"), move || {
            let graph = Graph::new(1, || 0u64).wait(wait).deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut tx, _rx) = (ring.producer(), ring.reader(key));
            tx.publish(|_| ()).unwrap();
            assert_eq!(Selector::new().wait(&mut [&mut tx], None), Some(0));
            let failure = tx.publish(|_| ()).unwrap_err();
            let failure = failure.failure().unwrap();
            assert!(
                is_deadline(failure) && &**failure.stage() == PRODUCER && failure.seq() == Some(1),
                "{failure}"
            );
        });
    }
}

/// A selector's deadline does not fail the graph. After the graph's deadline a selector still
/// returns a handle with available events.
#[test]
fn a_selector_returns_a_ready_handle_after_the_deadline() {
    let _watched = crate::common::watched();
    ends("events and a deadline that has passed", || {
        let graph = Graph::new(2, || 0u64).deadline(SOON);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let soon = std::time::Instant::now() + Duration::from_millis(1);
        assert_eq!(Selector::new().wait(&mut [&mut rx], Some(soon)), None);
        assert!(!ring.report().to_string().is_empty());
        tx.publish(|_| ()).unwrap();
        thread::sleep(2 * SOON);
        assert_eq!(Selector::new().wait(&mut [&mut rx], None), Some(0));
        assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    });
}

/// A deadline wakes no task, but a task that is polled after it gets the failure.
#[test]
fn a_task_polled_after_the_deadline_gets_the_failure() {
    let _watched = crate::common::watched();
    for wait in [Wait::Blocking, Wait::YIELDING] {
        ends(&format!("tasks, {wait}"), move || {
            let graph = Graph::new(1, || 0u64).wait(wait.clone()).deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (_tx, mut rx) = (ring.producer(), ring.reader(key));
            let mut cx = Context::from_waker(Waker::noop());
            {
                let mut batch = std::pin::pin!(rx.batch_async(1));
                let error = loop {
                    match batch.as_mut().poll(&mut cx) {
                        Poll::Ready(error) => break error.err().unwrap(),
                        Poll::Pending => thread::yield_now(),
                    }
                };
                assert!(error.failure().is_some_and(is_deadline), "{error}");
            }
            assert!(rx.arm(Waker::noop()), "a handle of a failed ring is ready");
        });
    }
}

#[test]
fn the_deadline_ends_retries_and_their_pauses() {
    let _watched = crate::common::watched();
    let pauses = [Duration::ZERO, Duration::from_millis(1), Duration::MAX];
    for pause in pauses {
        for panics in [false, true] {
            let error =
                ends(&format!("retried for ever, {pause:?}, panics: {panics}"), move || {
                    let chain =
                        slipring::ring(2, || 0u64).deadline(SOON).read("stubborn", move |_, _| {
                            assert!(!panics, "again {}", common::PURPOSE);
                            Err(Oops(1))
                        });
                    let on = OnFault::retry(u32::MAX).pause(pause);
                    chain.on_error(on).on_panic(on).feed(0..1, |slot, i| *slot = i).unwrap_err()
                });
            assert_timed_out(&error, "stubborn");
        }
    }
    let error = ends("retried for ever on one thread", || {
        let chain = slipring::ring(2, || 0u64).deadline(SOON).read("stubborn", |_, _| Err(Oops(1)));
        let on = OnFault::retry(u32::MAX);
        chain
            .on_error(on)
            .run_inline(|p| Ok(p.publish_all(0..9, |slot, i| *slot = i)?))
            .unwrap_err()
    });
    assert_timed_out(&error, "stubborn");
}

/// `idle` comes before each wait. If it fails each time and is skipped, the stage never waits.
#[test]
fn the_deadline_ends_a_stage_whose_idle_always_fails() {
    let _watched = crate::common::watched();
    struct FailingIdle;
    impl ReadHandler<u64> for FailingIdle {
        fn event(&mut self, _: &u64, _: slipring::At) -> Result<(), Fault> {
            Ok(())
        }
        fn idle(&mut self) -> Result<(), Fault> {
            Err(Oops(2).into())
        }
    }
    for together in [false, true] {
        let error = ends(&format!("idle fails, together: {together}"), move || {
            let chain = slipring::ring(2, || 0u64)
                .deadline(SOON)
                .read_with("idle", FailingIdle)
                .on_error(OnFault::skip());
            let chain =
                if together { chain.on("t").read("other", |_, _| ()).on("t") } else { chain };
            let (tx, pipeline) = chain.spawn().unwrap();
            let error = pipeline.join().unwrap_err();
            drop(tx);
            error
        });
        assert_timed_out(&error, "idle");
    }
}

/// After the deadline, a stage skips the last event of a full ring, so the producer need not wait.
#[test]
fn a_graph_past_its_deadline_continues_while_no_thread_waits() {
    let _watched = crate::common::watched();
    ends("skips, on one thread", || {
        let chain = slipring::ring(2, || 0u64).deadline(Duration::from_millis(1));
        let chain = chain
            .read("picky", |v, _| if *v % 2 == 1 { Err(Oops(*v)) } else { Ok(()) })
            .on_error(OnFault::skip());
        let done = chain.run_inline(|p| {
            thread::sleep(Duration::from_millis(5));
            Ok(p.publish_all(0..9, |slot, i| *slot = i)?)
        });
        assert_eq!(done.unwrap().value, 9);
    });
}

// Waiting for oneself.

fn assert_waits_for_itself(error: &WaitError, stage: &str) {
    assert!(matches!(error, WaitError::WaitsForItself(name) if name.as_str() == stage), "{error}");
}

/// A worker that handles an adopted chunk keeps the ring full, just as a worker does that handles
/// its own chunk.
#[test]
fn a_worker_with_an_adopted_chunk_that_publishes_gets_an_error() {
    let _watched = crate::common::watched();
    for joined in [false, true] {
        ends(&format!("adopted, joined: {joined}"), move || {
            let graph = Graph::new(2, || 0u64);
            let key = graph.pool_reader("pool", 2);
            let ring = graph.build().unwrap();
            let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(key));
            tx.publish(|_| ()).unwrap();
            tx.publish(|_| ()).unwrap();
            let mut first = workers.remove(0);
            if joined {
                drop(workers.remove(0)); // a joining worker takes its seat
                let second = first.pool().join().unwrap();
                workers.push(second);
            }
            assert_eq!(first.try_batch(1).unwrap().len(), 1); // dropped: the chunk stays unfinished
            drop(first); // orphans its chunk
            let (mut errors, mut seen) = (Vec::new(), 0);
            let mut other: PoolReader<u64> = workers.remove(0);
            let mut tx = Some(tx);
            let handled = other.for_each(|_, _| {
                // The first event lies in the adopted chunk, the second in the worker's own.
                seen += 1;
                if let Some(tx) = tx.as_mut().filter(|_| seen <= 2) {
                    while errors.len() < seen {
                        errors.extend(tx.publish(|_| ()).err());
                    }
                } else {
                    tx = None;
                }
            });
            errors.iter().for_each(|error| assert_waits_for_itself(error, "pool"));
            assert_eq!((handled.unwrap(), seen), (3, 3));
        });
    }
}

/// The library does not detect that a wait in the closure of `poll` never ends; the deadline ends
/// it.
#[test]
fn the_deadline_ends_a_wait_in_the_closure_of_poll() {
    let _watched = crate::common::watched();
    ends("poll", || {
        let graph = Graph::new(2, || 0u64).deadline(SOON);
        let (key, later) = (graph.reader("r"), graph.reader("later"));
        let later = later.after(&key);
        let ring = graph.build().unwrap();
        let (mut tx, mut rx, mut later) = (ring.producer(), ring.reader(key), ring.reader(later));
        tx.publish(|_| ()).unwrap();
        let mut errors = Vec::new();
        let polled = rx.poll(1, |_, _| {
            while errors.is_empty() {
                errors.extend(tx.publish(|_| ()).err());
            }
            errors.extend(later.batch(1).err());
        });
        assert_eq!((polled.unwrap(), errors.len()), (1, 2));
        assert!(
            errors.iter().all(|closed| closed.failure().is_some_and(is_deadline)),
            "{errors:?}"
        );
    });
}

type Later = Reader<u64>;

/// Waits for the last stage in a handler of the first, and asserts that the wait returns an error.
/// If `between` is set, a third stage stands between the two.
fn wait_for_later_stage(how: fn(&mut Later) -> WaitError, between: bool) {
    ends(&format!("a later stage, between: {between}"), move || {
        let graph = Graph::new(4, || 0u64);
        let first = graph.reader("first");
        let (middle, last) = if between {
            let middle = graph.reader("middle").after(&first);
            let last = graph.reader("last").after(&middle);
            (Some(middle), last)
        } else {
            (None, graph.reader("last").after(&first))
        };
        let ring = graph.build().unwrap();
        let (mut tx, mut first, mut last) =
            (ring.producer(), ring.reader(first), ring.reader(last));
        let middle = middle.map(|key| {
            let mut middle = ring.reader(key);
            thread::spawn(move || middle.for_each(|_, _| ()))
        });
        drop(ring);
        tx.publish(|_| ()).unwrap();
        tx.close();
        let mut error = None;
        first.for_each(|_, _| error = Some(how(&mut last))).unwrap();
        assert_waits_for_itself(&error.unwrap(), "first");
        assert_eq!(last.for_each(|_, _| ()).unwrap(), 1);
        if let Some(middle) = middle {
            middle.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_consumer_that_waits_in_a_handler_of_an_earlier_stage_gets_an_error() {
    let _watched = crate::common::watched();
    for between in [false, true] {
        wait_for_later_stage(|last| last.batch(1).err().unwrap(), between);
        wait_for_later_stage(|last| last.for_each(|_, _| ()).unwrap_err(), between);
        wait_for_later_stage(
            |last| match last.batch_by(1, std::time::Instant::now() + common::LIMIT) {
                Err(slipring::errors::BatchError::Wait(closed)) => closed,
                other => panic!("{other:?}"),
            },
            between,
        );
    }
}

/// A handler of the stage before a tap is also a member of that tap, and waits as the member. The
/// test runs on threads and inline.
#[test]
fn a_member_that_waits_in_a_handler_before_its_tap_gets_an_error() {
    let _watched = crate::common::watched();
    for inline in [false, true] {
        ends(&format!("a member inside the stage before it, inline: {inline}"), move || {
            let tap = Tap::new();
            let errors = Mutex::new(None);
            let joiner = tap.clone();
            let chain = slipring::ring(4, || 0u64)
                .update("first", |_, _| {
                    let mut member = joiner.subscribe(StartAt::Now).unwrap();
                    errors.lock().unwrap().get_or_insert(member.batch(1).err().unwrap());
                })
                .tap(&tap);
            if inline {
                chain
                    .run_inline(|p| Ok(p.publish_all(0..9, |slot, i| *slot = i)?))
                    .map(drop)
                    .unwrap();
            } else {
                chain.feed(0..9, |slot, i| *slot = i).map(drop).unwrap();
            }
            assert_waits_for_itself(&errors.lock().unwrap().take().unwrap(), "first");
        });
    }
}

/// A stage that holds the whole ring delays every further event of a stage beside it, but not the
/// end.
#[test]
fn a_consumer_beside_a_stage_that_holds_the_whole_ring_gets_the_end() {
    let _watched = crate::common::watched();
    ends("side by side", || {
        let graph = Graph::new(2, || 0u64);
        let (one, other) = (graph.reader("one"), graph.reader("other"));
        let ring = graph.build().unwrap();
        let (mut tx, mut one, mut other) = (ring.producer(), ring.reader(one), ring.reader(other));
        tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
        let closer = thread::spawn(move || {
            thread::sleep(SOON);
            tx.close();
        });
        let mut seen = None;
        one.for_each(|_, _| _ = seen.get_or_insert_with(|| other.for_each(|_, _| ()))).unwrap();
        assert_eq!(seen.unwrap().unwrap(), 2);
        closer.join().unwrap();
    });
}

/// A handler that joins the tap behind its own stage, and reads there in `idle`.
struct Follower<'a> {
    tap: &'a Tap<u64>,
    member: Option<Subscription<u64>>,
    seen: &'a Mutex<Option<Result<u64, WaitError>>>,
}

impl ReadHandler<u64> for Follower<'_> {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        if self.member.is_none() {
            self.member = Some(self.tap.subscribe(StartAt::Now)?);
        }
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        if let Some(mut member) = self.member.take() {
            *self.seen.lock().unwrap() = Some(member.for_each(|_, _| ()));
        }
        Ok(())
    }
}

/// A stage holds no event while it is idle, so the stages behind it can reach the end meanwhile.
#[test]
fn an_idle_handler_may_wait_for_the_end() {
    let _watched = crate::common::watched();
    ends("the end, from idle", || {
        for (many, watched) in [(false, false), (false, true), (true, false)] {
            let (tap, seen, monitor) = (Tap::new(), Mutex::new(None), Monitor::new());
            let mut chain = slipring::ring(8, || 0u64);
            if watched {
                chain = chain.monitor(&monitor);
            }
            let chain = chain
                .read_with("first", Follower { tap: &tap, member: None, seen: &seen })
                .tap(&tap);
            if many {
                chain
                    .run_shared(|p| {
                        Ok((p.publish_batches(3, 0..3, |slot, i| *slot = i)?, thread::sleep(SOON)))
                    })
                    .map(drop)
                    .unwrap();
            } else {
                chain
                    .run(|p| {
                        Ok((p.publish_batches(3, 0..3, |slot, i| *slot = i)?, thread::sleep(SOON)))
                    })
                    .map(drop)
                    .unwrap();
            }
            let seen = seen.into_inner().unwrap().expect("a call of `idle`");
            assert!(matches!(seen, Ok(1..=3)), "{seen:?}");
        }
    });
}

/// A handler may wait for a consumer that other threads advance. The library does not mistake this
/// for a wait for itself.
#[test]
fn a_handler_may_wait_for_consumers_of_other_threads() {
    let _watched = crate::common::watched();
    let count = if cfg!(miri) { 20 } else { 500 };
    ends("an earlier stage, and one of another ring, inside a handler", move || {
        let (mut other_tx, mut other_rx) = slipring::unicast(2, || 0u64).unwrap();
        let graph = Graph::new(4, || 0u64);
        let (first, beside) = (graph.reader("first"), graph.reader("beside"));
        let pool = graph.pool_reader("pool", 2);
        let last = graph.reader("last").after(&first);
        let ring = graph.build().unwrap();
        let (mut tx, mut first, mut last, beside) =
            (ring.producer(), ring.reader(first), ring.reader(last), ring.reader(beside));
        let workers = ring.pool_readers(pool);
        drop(ring);
        let handled = AtomicU64::new(0);
        thread::scope(|s| {
            s.spawn(move || tx.publish_all(0..count, |slot, i| *slot = i).unwrap());
            s.spawn(move || other_tx.publish_all(0..count, |slot, i| *slot = i).unwrap());
            for mut worker in workers {
                let handled = &handled;
                s.spawn(move || {
                    worker.for_each(|_, _| {
                        handled.fetch_add(1, SeqCst);
                    })
                });
            }
            let beside = RefCell::new(beside);
            // The handler of the last stage also waits with two other handles: the handle of the
            // stage beside the first stage, and the reader of the other ring.
            let early = s.spawn(move || first.for_each(|_, _| ()).unwrap());
            let done = last
                .for_each(|v, _| {
                    let mut beside = beside.borrow_mut();
                    let batch = beside.batch(1).unwrap();
                    assert_eq!(batch[0], *v);
                    batch.release();
                    let batch = other_rx.batch(1).unwrap();
                    assert_eq!(batch[0], *v);
                    batch.release();
                })
                .unwrap();
            assert_eq!((done, early.join().unwrap()), (count, count));
        });
        assert_eq!(handled.into_inner(), count);
    });
}
