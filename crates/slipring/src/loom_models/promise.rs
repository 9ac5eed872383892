//! Models of a promise: one value, one thread that fulfils or breaks the promise, and one thread or
//! task that waits.
//!
//! The models watch each use of the value, the sleeper and the allocation. They fail if the
//! allocation is used after it was freed (`promise::handover::I4`), or if it is never freed.
//!
//! In loom, an unparked thread sees everything that the waking thread did. A sleeping thread would
//! hide missing edges, so the threads of the data-edge models poll instead.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use loom::thread;

use super::*;
use crate::base::sync::{Condvar, Mutex};
use crate::errors::{Abandoned, AwaitError};
use crate::promise::{Awaited, promise};

/// A waker: a flag, and the condition variable on which [`Alarm::sleep`] waits.
pub(super) struct Alarm(Mutex<bool>, Condvar);

impl Alarm {
    pub(super) fn new() -> Arc<Alarm> {
        Arc::new(Alarm(Mutex::new(false), Condvar::new()))
    }

    pub(super) fn sleep(&self) {
        let _asleep = crate::base::model_hooks::asleep("task");
        let mut flag = self.0.lock().unwrap();
        while !*flag {
            flag = self.1.wait(flag).unwrap();
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

pub(super) fn poll<T>(awaited: &mut Awaited<T>, waker: &Waker) -> Poll<Result<T, AwaitError>> {
    Pin::new(awaited).poll(&mut Context::from_waker(waker))
}

/// A polling thread sees the whole value, or no value yet.
#[test]
fn loom_a_value_is_handed_over() {
    explore_unfenced(60, None, || {
        let (promise, mut awaited) = promise();
        let fulfils = thread::spawn(move || promise.fulfil(7u64).map_err(|Abandoned(value)| value));
        let taken = (0..3).find_map(|_| awaited.try_take().unwrap());
        drop(awaited);
        match (taken, fulfils.join().unwrap()) {
            (Some(7), Ok(())) | (None, Ok(()) | Err(7)) => {}
            other => panic!("{other:?}"),
        }
    });
}

/// A thread that sleeps is woken by the value.
#[test]
fn loom_a_thread_sleeps_until_the_value() {
    explore_unfenced(70, None, || {
        let (promise, mut awaited) = promise();
        let fulfils = thread::spawn(move || promise.fulfil(7u64).unwrap());
        assert_eq!(awaited.wait(), Ok(7));
        assert_eq!(awaited.wait(), Err(AwaitError::Taken));
        fulfils.join().unwrap();
    });
}

/// A thread that sleeps is woken by the drop of the promise.
#[test]
fn loom_a_thread_sleeps_until_the_promise_is_broken() {
    explore_unfenced(70, None, || {
        let (promise, mut awaited) = promise::<u64>();
        let breaks = thread::spawn(move || drop(promise));
        assert_eq!(awaited.wait(), Err(AwaitError::Broken));
        assert_eq!(awaited.try_take(), Err(AwaitError::Broken));
        breaks.join().unwrap();
        assert!(awaited.is_settled());
    });
}

/// A task polls again and again, with a new waker each time, while the promise is fulfilled. The
/// task may take the value while the promise's half is still removing the sleeper. Either half may
/// be the last one to use the allocation.
#[test]
fn loom_a_task_polls_with_changing_wakers() {
    explore(900, None, || {
        let (promise, mut awaited) = promise();
        let fulfils = thread::spawn(move || promise.fulfil(7u64).map_err(|Abandoned(value)| value));
        let mut taken = None;
        for _ in 0..2 {
            if let Poll::Ready(value) = poll(&mut awaited, &Waker::from(Alarm::new())) {
                taken = Some(value.unwrap());
                break;
            }
        }
        drop(awaited);
        match (taken, fulfils.join().unwrap()) {
            (Some(7), Ok(())) | (None, Ok(()) | Err(7)) => {}
            other => panic!("{other:?}"),
        }
    });
}

/// If a task polls again with a second waker, the second waker wakes it.
#[test]
fn loom_a_task_sleeps_with_its_last_waker() {
    explore(900, None, || {
        let (promise, mut awaited) = promise();
        let fulfils = thread::spawn(move || promise.fulfil(7u64).unwrap());
        let (first, last) = (Alarm::new(), Alarm::new());
        let mut polled = poll(&mut awaited, &Waker::from(first));
        if polled.is_pending() {
            polled = poll(&mut awaited, &Waker::from(last.clone()));
        }
        if polled.is_pending() {
            last.sleep();
            polled = poll(&mut awaited, Waker::noop());
        }
        assert_eq!(polled, Poll::Ready(Ok(7)));
        fulfils.join().unwrap();
    });
}

/// A thread waits for a promise that a task has polled.
#[test]
fn loom_a_thread_waits_after_a_poll() {
    explore(1300, None, || {
        let (promise, mut awaited) = promise();
        let fulfils = thread::spawn(move || promise.fulfil(7u64).unwrap());
        let taken = match poll(&mut awaited, &Waker::from(Alarm::new())) {
            Poll::Ready(value) => value,
            Poll::Pending => awaited.wait(),
        };
        assert_eq!(taken, Ok(7));
        fulfils.join().unwrap();
    });
}

/// The waiter's half is dropped, with a registered task or without, while the promise is fulfilled.
/// The value is handed over or given back, and one half frees the allocation.
#[test]
fn loom_a_waiter_leaves() {
    for registered in [false, true] {
        explore(15, None, move || {
            let value = Arc::new(());
            let handed = value.clone();
            let (promise, mut awaited) = promise::<Arc<()>>();
            if registered {
                assert!(poll(&mut awaited, &Waker::from(Alarm::new())).is_pending());
            }
            let fulfils = thread::spawn(move || promise.fulfil(handed).is_ok());
            drop(awaited);
            fulfils.join().unwrap();
            // Each value is dropped once, by the half that held it.
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }
}

/// Both halves are dropped at once.
#[test]
fn loom_both_halves_leave() {
    explore_unfenced(15, None, || {
        let (promise, awaited) = promise::<u64>();
        let breaks = thread::spawn(move || drop(promise));
        drop(awaited);
        breaks.join().unwrap();
    });
}

/// Declares a test for each twin of this file's models.
macro_rules! twins {
    ($($test:ident: $model:literal, $twin:literal, $how:expr;)+) => {
        $(
            #[test]
            fn $test() {
                caught(concat!("promise::", $model), $twin, $how);
            }
        )+
    };
}
twins! {
    loom_twin_settled_unreleased: "loom_a_value_is_handed_over", "settled-unreleased", Caught::Race;
    loom_twin_settled_seen_relaxed: "loom_a_value_is_handed_over", "settled-seen-relaxed", Caught::Race;
    loom_twin_settled_unacquired_by_a_leaver: "loom_a_waiter_leaves", "settled-unacquired", Caught::Race;
    loom_twin_settled_unacquired_by_a_sleeper: "loom_a_thread_sleeps_until_the_value", "settled-unacquired", Caught::Race;
    loom_twin_sleeper_unreleased: "loom_a_thread_sleeps_until_the_value", "sleeper-unreleased", Caught::Race;
    loom_twin_registered_by_store: "loom_a_thread_sleeps_until_the_value", "registered-by-store", Caught::Deadlock(&["awaited"]);
    loom_twin_registered_by_store_at_a_break: "loom_a_thread_sleeps_until_the_promise_is_broken", "registered-by-store", Caught::Deadlock(&["awaited"]);
    loom_twin_registered_by_store_by_a_task: "loom_a_task_sleeps_with_its_last_waker", "registered-by-store", Caught::Deadlock(&["task"]);
    loom_twin_settled_unnotified: "loom_a_thread_sleeps_until_the_value", "settled-unnotified", Caught::Deadlock(&["awaited"]);
    loom_twin_settled_unnotified_at_a_break: "loom_a_thread_sleeps_until_the_promise_is_broken", "settled-unnotified", Caught::Deadlock(&["awaited"]);
    loom_twin_settled_unnotified_to_a_task: "loom_a_task_sleeps_with_its_last_waker", "settled-unnotified", Caught::Deadlock(&["task"]);
    loom_twin_registered_unasked: "loom_a_task_polls_with_changing_wakers", "registered-unasked", Caught::Race;
    loom_twin_freed_unasked: "loom_a_task_polls_with_changing_wakers", "freed-unasked", Caught::Race;
    loom_twin_freed_by_none: "loom_a_task_polls_with_changing_wakers", "freed-by-none", Caught::Message("leaked");
    loom_twin_sleeper_taken_unreleased: "loom_a_task_polls_with_changing_wakers", "sleeper-taken-unreleased", Caught::Race;
    loom_twin_sleeper_taken_unacquired: "loom_a_task_polls_with_changing_wakers", "sleeper-taken-unacquired", Caught::Race;
    loom_twin_abandoned_unreleased: "loom_a_task_polls_with_changing_wakers", "abandoned-unreleased", Caught::Race;
    loom_twin_abandoned_unreleased_by_a_leaver: "loom_a_waiter_leaves", "abandoned-unreleased", Caught::Race;
    loom_twin_abandoned_unacquired: "loom_a_waiter_leaves", "abandoned-unacquired", Caught::Race;
}
