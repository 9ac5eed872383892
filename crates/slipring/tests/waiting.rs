//! Every wait has an end: the graph's deadline ends each of them, and a thread that waits for itself is told, wherever the wait begins.

mod common;

use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use common::{Oops, ends};
use slipring::{Cause, Closed, Error, Failure, Fault, From, Graph, OnFault, PRODUCER, ReadHandler, Selector, Tap, Wait, Waitable};

const SOON: Duration = Duration::from_millis(if cfg!(miri) { 400 } else { 60 });

fn is_deadline(failure: &Failure) -> bool {
    matches!(failure.cause(), Cause::Deadline(after) if *after == SOON)
}

#[track_caller]
fn timed_out(error: &Error, stage: &str) {
    assert!(error.failure().is_some_and(is_deadline) && error.stage() == Some(stage), "{error}");
}

// Deadlines.

/// A member of a tap that holds the whole ring keeps a chain on one thread from moving.
#[test]
fn the_deadline_ends_publishing_on_one_thread() {
    let _watched = crate::common::watched();
    let error = ends("inline, a member of the tap holds the ring", || {
        let tap = Tap::new();
        slipring::ring(2, || 0u64)
            .deadline(SOON)
            .tap(&tap)
            .run_inline(|p| {
                let _held = tap.subscribe(From::Now)?;
                while p.publish(|_| ()).is_ok() {}
                Ok(p.publish(|_| ())?)
            })
            .unwrap_err()
    });
    timed_out(&error, PRODUCER);
}

#[test]
fn the_deadline_ends_the_last_turns_on_one_thread() {
    let _watched = crate::common::watched();
    for halves in [false, true] {
        let error = ends(&format!("inline, closing while a member holds what a writer waits for, {halves}"), move || {
            let tap = Tap::new();
            let kept = Mutex::new(None);
            slipring::ring(4, || 0u64)
                .deadline(SOON)
                .read("before", |_, _| ())
                .tap(&tap)
                .write("behind", |_, _| ())
                .run_inline(|p| {
                    *kept.lock().unwrap() = Some(tap.subscribe(From::Now)?);
                    p.publish(|_| ())?;
                    if halves {
                        p.work();
                    }
                    Ok(())
                })
                .unwrap_err()
        });
        timed_out(&error, "behind");
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
            assert!(matches!(&closed, slipring::BatchError::Closed(Closed::Failed(failure)) if is_deadline(failure)), "{closed}");
            assert!(late.publish(|_| ()).unwrap_err().failure().is_some_and(|failure| &**failure.stage() == "r"));
            // The other graph goes on.
            calm.publish(|_| ()).unwrap();
            assert_eq!(selector.wait(&mut [&mut patient, &mut hasty], None).map(|_| patient.poll(1, |_, _| ()).unwrap()), Some(1));
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
            assert!(is_deadline(failure) && &**failure.stage() == PRODUCER && failure.seq() == Some(1), "{failure}");
        });
    }
}

/// A selector's own deadline is not the graph's, and what is there is not hidden by a deadline that has passed.
#[test]
fn a_selector_says_what_is_there_after_the_deadline() {
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

/// The deadline wakes no task, but one that is polled past it is told.
#[test]
fn a_task_that_is_polled_past_the_deadline_is_told() {
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
                let told = loop {
                    match batch.as_mut().poll(&mut cx) {
                        Poll::Ready(told) => break told.err().unwrap(),
                        Poll::Pending => thread::yield_now(),
                    }
                };
                assert!(told.failure().is_some_and(is_deadline), "{told}");
            }
            assert!(rx.arm(Waker::noop()), "the end is worth a look");
        });
    }
}

#[test]
fn the_deadline_ends_retries_and_their_pauses() {
    let _watched = crate::common::watched();
    let pauses = [Duration::ZERO, Duration::from_millis(1), Duration::MAX];
    for pause in pauses {
        for panics in [false, true] {
            let error = ends(&format!("retried for ever, {pause:?}, panics: {panics}"), move || {
                let chain = slipring::ring(2, || 0u64).deadline(SOON).read("stubborn", move |_, _| {
                    assert!(!panics, "again {}", common::PURPOSE);
                    Err(Oops(1))
                });
                let on = OnFault::retry(u32::MAX).pause(pause);
                chain.on_error(on).on_panic(on).feed(0..1, |slot, i| *slot = i).unwrap_err()
            });
            timed_out(&error, "stubborn");
        }
    }
    let error = ends("retried for ever on one thread", || {
        let chain = slipring::ring(2, || 0u64).deadline(SOON).read("stubborn", |_, _| Err(Oops(1)));
        let on = OnFault::retry(u32::MAX);
        chain.on_error(on).run_inline(|p| Ok(p.publish_all(0..9, |slot, i| *slot = i)?)).unwrap_err()
    });
    timed_out(&error, "stubborn");
}

/// An `idle` that fails each time, and is skipped, comes before each wait; the stage never gets to one.
#[test]
fn the_deadline_ends_a_stage_whose_idle_always_fails() {
    let _watched = crate::common::watched();
    struct Restless;
    impl ReadHandler<u64> for Restless {
        fn event(&mut self, _: &u64, _: slipring::At) -> Result<(), Fault> {
            Ok(())
        }
        fn idle(&mut self) -> Result<(), Fault> {
            Err(Oops(2).into())
        }
    }
    for together in [false, true] {
        let error = ends(&format!("idle fails, together: {together}"), move || {
            let chain = slipring::ring(2, || 0u64).deadline(SOON).read_with("restless", Restless).on_error(OnFault::skip());
            let chain = if together { chain.on("t").read("other", |_, _| ()).on("t") } else { chain };
            let (tx, pipeline) = chain.spawn().unwrap();
            let error = pipeline.join().unwrap_err();
            drop(tx);
            error
        });
        timed_out(&error, "restless");
    }
}
