//! Tests every order of the calls of a promise's two halves, on one thread and on several.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::{Awaited, Promise, promise};
use crate::errors::{Abandoned, AwaitError};
use crate::wait::Wait;

/// A value that counts its drops.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A waker that counts its wake-ups.
struct Alarm(AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn alarm() -> (Arc<Alarm>, Waker) {
    let alarm = Arc::new(Alarm(AtomicUsize::new(0)));
    (alarm.clone(), Waker::from(alarm))
}

fn poll<T>(awaited: &mut Awaited<T>, waker: &Waker) -> Poll<Result<T, AwaitError>> {
    Pin::new(awaited).poll(&mut Context::from_waker(waker))
}

/// A step of one half, in a sequence of the test [`a_value_is_dropped_once_in_every_order`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Fulfil,
    Break,
    Poll,
    TryTake,
    TimeOut,
    Abandon,
}

/// Runs all sequences of up to four steps, and then drops the halves that are left. If there was a
/// value, it was dropped exactly once.
#[test]
fn a_value_is_dropped_once_in_every_order() {
    let _watched = crate::watchdog::watched();
    const STEPS: [Step; 6] =
        [Step::Fulfil, Step::Break, Step::Poll, Step::TryTake, Step::TimeOut, Step::Abandon];
    let mut ran = 0;
    for code in 0..STEPS.len().pow(4) {
        let steps: Vec<Step> =
            (0..4u32).map(|at| STEPS[code / STEPS.len().pow(at) % STEPS.len()]).collect();
        let drops = Arc::new(AtomicUsize::new(0));
        let (promise, awaited) = promise();
        let (mut promise, mut awaited) = (Some(promise), Some(awaited));
        let (mut made, mut taken, mut settled) = (0, 0, None);
        let (alarm, waker) = alarm();
        for &step in &steps {
            let result = match (step, &mut awaited) {
                (Step::Fulfil, _) => {
                    let Some(promise) = promise.take() else { continue };
                    made += 1;
                    let result = promise.fulfil(Counted(drops.clone()));
                    assert_eq!(result.is_ok(), awaited.is_some(), "{steps:?}");
                    settled = Some(AwaitError::Taken);
                    continue;
                }
                (Step::Break, _) => {
                    if promise.take().is_some() {
                        settled = Some(AwaitError::Broken);
                    }
                    continue;
                }
                (Step::Abandon, _) => {
                    awaited = None;
                    continue;
                }
                (_, None) => continue,
                (Step::Poll, Some(awaited)) => match poll(awaited, &waker) {
                    Poll::Pending => Ok(None),
                    Poll::Ready(result) => result.map(Some),
                },
                (Step::TryTake, Some(awaited)) => awaited.try_take(),
                (Step::TimeOut, Some(awaited)) => match awaited.wait_for(Duration::ZERO) {
                    Err(AwaitError::TimedOut) => Ok(None),
                    result => result.map(Some),
                },
            };
            match (result, settled.clone()) {
                (Ok(None), None) => {}
                (Ok(Some(value)), Some(AwaitError::Taken)) if taken == 0 => {
                    taken += 1;
                    assert_eq!(drops.load(Relaxed), 0, "{steps:?}");
                    drop(value);
                }
                (Err(error), Some(expected)) if error == expected => {
                    assert!(error == AwaitError::Broken || taken == 1, "{steps:?}");
                }
                other => panic!("{steps:?}: {other:?}"),
            }
        }
        drop((promise, awaited));
        assert_eq!(drops.load(Relaxed), made, "{steps:?}");
        assert!(alarm.0.load(Relaxed) <= 1, "{steps:?}");
        drop(waker);
        assert_eq!(Arc::strong_count(&alarm), 1, "a waker is kept: {steps:?}");
        ran += 1;
    }
    assert_eq!(ran, 1296);
}

#[test]
fn every_strategy_waits_for_the_value_and_for_the_break() {
    let _watched = crate::watchdog::watched();
    for wait in Wait::all() {
        for fulfils in [true, false] {
            let (promise, awaited) = promise();
            let mut awaited = awaited.with_wait(wait.clone());
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                if fulfils {
                    promise.fulfil(Box::new(7)).unwrap();
                }
            });
            let expected = if fulfils { Ok(Box::new(7)) } else { Err(AwaitError::Broken) };
            assert_eq!(awaited.wait(), expected, "{wait}");
            other.join().unwrap();
        }
    }
}

#[test]
fn a_wait_ends_at_its_deadline_and_goes_on_later() {
    let _watched = crate::watchdog::watched();
    for wait in Wait::all() {
        let (promise, awaited) = promise();
        let mut awaited = awaited.with_wait(wait.clone());
        let began = Instant::now();
        let time = Duration::from_millis(2);
        assert_eq!(awaited.wait_for(time), Err(AwaitError::TimedOut), "{wait}");
        assert_eq!(awaited.wait_until(began + time), Err(AwaitError::TimedOut), "{wait}");
        assert!(began.elapsed() >= time);
        awaited = awaited.with_wait(wait.or_timeout(time));
        assert_eq!(awaited.wait(), Err(AwaitError::TimedOut));
        assert!(!awaited.is_settled());
        promise.fulfil(7).unwrap();
        // If the value is there, the call takes it, even if the deadline has passed.
        assert_eq!(awaited.wait_until(began), Ok(7));
        assert!(awaited.is_settled());
    }
}

#[test]
fn a_time_beyond_the_clock_is_no_deadline() {
    let _watched = crate::watchdog::watched();
    let (promise, mut awaited) = promise();
    let other = thread::spawn(move || promise.fulfil(7).unwrap());
    assert_eq!(awaited.wait_for(Duration::MAX), Ok(7));
    other.join().unwrap();
}

#[test]
fn the_last_waker_is_woken_once() {
    let _watched = crate::watchdog::watched();
    let (promise, mut awaited) = promise();
    let ((first, first_waker), (last, last_waker)) = (alarm(), alarm());
    for _ in 0..3 {
        assert!(poll(&mut awaited, &first_waker).is_pending());
    }
    assert!(poll(&mut awaited, &last_waker).is_pending());
    // The promise no longer holds the first waker. It holds the last waker, in addition to
    // `last_waker`.
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&last)), (2, 3));
    promise.fulfil(7).unwrap();
    assert_eq!((first.0.load(Relaxed), last.0.load(Relaxed)), (0, 1));
    assert_eq!(poll(&mut awaited, &last_waker), Poll::Ready(Ok(7)));
    assert_eq!(poll(&mut awaited, &last_waker), Poll::Ready(Err(AwaitError::Taken)));
}

#[test]
fn a_broken_promise_wakes_its_task() {
    let _watched = crate::watchdog::watched();
    let (promise, mut awaited) = promise::<u8>();
    let (alarm, waker) = alarm();
    assert!(poll(&mut awaited, &waker).is_pending());
    drop(promise);
    assert_eq!(alarm.0.load(Relaxed), 1);
    assert_eq!(poll(&mut awaited, &waker), Poll::Ready(Err(AwaitError::Broken)));
}

/// A thread that times out after a poll leaves no registration of its own, and the task's next poll
/// registers again.
#[test]
fn a_task_polls_again_after_a_thread_has_waited() {
    let _watched = crate::watchdog::watched();
    let (promise, mut awaited) = promise();
    let (alarm, waker) = alarm();
    assert!(poll(&mut awaited, &waker).is_pending());
    assert_eq!(awaited.wait_for(Duration::from_millis(1)), Err(AwaitError::TimedOut));
    assert!(poll(&mut awaited, &waker).is_pending());
    promise.fulfil(7).unwrap();
    assert_eq!(alarm.0.load(Relaxed), 1);
    assert_eq!(awaited.wait(), Ok(7));
}

#[test]
fn a_panicking_waker_fulfils_all_the_same() {
    let _watched = crate::watchdog::watched();
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a waker on purpose"));
        }
    }
    let (promise, mut awaited) = promise();
    assert!(poll(&mut awaited, &Waker::from(Arc::new(Panics))).is_pending());
    promise.fulfil(7).unwrap();
    assert_eq!(awaited.try_take(), Ok(Some(7)));
}

/// The allocation is freed (which Miri checks), and the panic reaches the thread that drops the
/// half.
#[test]
fn a_value_whose_drop_panics_is_dropped_once() {
    let _watched = crate::watchdog::watched();
    struct Bomb(Arc<AtomicUsize>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
            std::panic::resume_unwind(Box::new("a drop on purpose"));
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let (promise, awaited) = promise();
    assert!(promise.fulfil(Bomb(drops.clone())).is_ok());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(awaited))).is_err());
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn an_abandoned_promise_gives_the_value_back() {
    let _watched = crate::watchdog::watched();
    let (promise, mut awaited) = promise();
    assert!(poll(&mut awaited, Waker::noop()).is_pending());
    assert!(!promise.is_abandoned());
    drop(awaited);
    assert!(promise.is_abandoned());
    let error = promise.fulfil(vec![7]).unwrap_err();
    assert!(error.to_string().contains("no thread waits"));
    assert_eq!(format!("{error:?}"), "Abandoned(..)");
    assert_eq!(error, Abandoned(vec![7]));
}

/// A value that must stay on its thread can be handed over on that thread, and so can a value of
/// size zero.
#[test]
fn any_value_can_be_handed_over_within_a_thread() {
    let _watched = crate::watchdog::watched();
    let (kept, mut own) = promise();
    kept.fulfil(Rc::new(7)).unwrap();
    assert_eq!(Rc::try_unwrap(own.wait().unwrap()), Ok(7));
    let (kept, mut own) = promise();
    kept.fulfil(()).unwrap();
    assert_eq!(own.wait(), Ok(()));
    #[repr(align(256))]
    struct Wide([u8; 512]);
    let (kept, mut own) = promise();
    kept.fulfil(Wide([7; 512])).unwrap_or_else(|_| panic!("the other half is here"));
    let wide = Box::new(own.wait().unwrap());
    assert_eq!((wide.0, std::ptr::from_ref(&*wide).addr() % 256), ([7; 512], 0));
}

#[test]
fn the_halves_print_their_state() {
    let _watched = crate::watchdog::watched();
    let (kept, mut own) = promise();
    assert_eq!(format!("{kept:?}"), "Promise { is_abandoned: false }");
    assert_eq!(format!("{own:?}"), r#"Awaited { state: "pending" }"#);
    kept.fulfil(7).unwrap();
    assert_eq!(format!("{own:?}"), r#"Awaited { state: "fulfilled" }"#);
    own.wait().unwrap();
    assert_eq!(format!("{own:?}"), r#"Awaited { state: "taken" }"#);
    let (kept, own) = promise::<u8>();
    drop(kept);
    assert_eq!(format!("{own:?}"), r#"Awaited { state: "broken" }"#);
}

/// Both halves act at about the same time, many times, and each value is dropped once.
#[test]
fn halves_race() {
    let _watched = crate::watchdog::watched();
    let rounds = if cfg!(miri) { 40 } else { 4000 };
    type Job = (Promise<Counted>, bool, Arc<AtomicUsize>);
    let (jobs, inbox) = std::sync::mpsc::channel::<Job>();
    let other = thread::spawn(move || {
        let mut made = 0;
        for (promise, fulfils, drops) in inbox {
            if fulfils {
                made += 1;
                drop(promise.fulfil(Counted(drops)));
            } else {
                drop(promise);
            }
        }
        made
    });
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 0..rounds {
        let (promise, mut awaited) = promise();
        jobs.send((promise, round % 5 != 0, drops.clone())).unwrap();
        match round % 7 {
            0 => drop(awaited),
            1 => drop(awaited.try_take()),
            2 => drop(awaited.wait()),
            3 => {
                let (_alarm, waker) = alarm();
                let _ = poll(&mut awaited, &waker);
                let _ = poll(&mut awaited, Waker::noop());
            }
            4 => drop(awaited.wait_for(Duration::from_nanos(round as u64))),
            5 => {
                let _ = poll(&mut awaited, &alarm().1);
                drop(awaited.wait());
            }
            _ => drop(awaited.with_wait(Wait::YIELDING).wait()),
        }
    }
    drop(jobs);
    let made: usize = other.join().unwrap();
    assert_eq!(drops.load(Relaxed), made);
}
