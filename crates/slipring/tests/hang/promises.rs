//! A thread that waits for a promise is woken whatever becomes of the thread that owes the value.

use std::future::Future;
use std::panic::panic_any;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use slipring::{Promise, Wait, errors::AwaitError, promise};

use crate::common::Unpark;

use crate::common::{Bomb, Fragile, PURPOSE, ends};

/// The time after which the other thread ends its promise. It is usually long enough for the waiter
/// to fall asleep.
const LATER: Duration = Duration::from_millis(3);

/// For each strategy, lets a thread wait while another thread calls `end` with the promise. Every
/// wait must return the error that the promise was broken.
fn waits(name: &str, end: impl Fn(Promise<u64>) + Clone + Send + 'static) {
    for wait in Wait::all() {
        let end = end.clone();
        let result = ends(&format!("{name}, {wait}"), move || {
            let (promise, awaited) = promise::<u64>();
            let other = thread::spawn(move || {
                thread::sleep(LATER);
                end(promise);
            });
            let result = awaited.with_wait(wait).wait();
            // The thread's panic payload may panic when it is dropped, so it is forgotten.
            std::mem::forget(other.join());
            result
        });
        assert_eq!(result, Err(AwaitError::Broken));
    }
}

#[test]
fn a_promise_that_is_dropped_wakes_its_waiter() {
    let _watched = crate::common::watched();
    waits("dropped", drop);
}

#[test]
fn a_panic_of_the_promises_owner_wakes_its_waiter() {
    let _watched = crate::common::watched();
    waits("a panic", |_promise| panic!("an owner {PURPOSE}"));
    waits("a panic with a payload whose drop panics", |_promise| panic_any(Bomb));
}

#[test]
fn a_wait_ends_at_its_deadline_while_the_promise_lives() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let result = ends(&format!("a deadline, {wait}"), move || {
            let (promise, awaited) = promise::<u64>();
            let mut awaited = awaited.with_wait(wait);
            let result = awaited.wait_for(LATER);
            assert!(!promise.is_abandoned());
            result
        });
        assert_eq!(result, Err(AwaitError::TimedOut));
    }
}

/// Puts a promise into the value of another promise, and drops a waiter whose value panics on drop.
#[test]
fn halves_that_own_each_other_end() {
    let _watched = crate::common::watched();
    ends("a promise inside its own value", || {
        let (outer, mut awaited) = promise::<Option<Promise<u64>>>();
        let (inner, mut other) = promise::<u64>();
        assert!(outer.fulfil(Some(inner)).is_ok());
        drop(awaited.wait());
        assert_eq!(other.wait(), Err(AwaitError::Broken));
    });
    ends("a value whose drop panics", || {
        let (promise, awaited) = promise::<Fragile>();
        assert!(promise.fulfil(Fragile(true)).is_ok());
        let dropped = thread::spawn(move || drop(awaited));
        assert!(dropped.join().is_err());
    });
}

/// A strategy of the user that panics ends the wait, and leaves the promise as it was.
#[test]
fn a_strategy_that_panics_ends_the_wait_only() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct Panics;
    impl slipring::waiting::WaitStrategy for Panics {
        fn next_action(&self, _: &slipring::waiting::WaitContext) -> slipring::waiting::WaitAction {
            panic!("a strategy {PURPOSE}");
        }
        fn parks(&self) -> bool {
            true
        }
        fn alias(&self) -> String {
            "panics".into()
        }
    }
    let result = ends("a strategy that panics", || {
        let (promise, awaited) = promise::<u64>();
        let mut awaited = awaited.with_wait(Wait::Custom(Arc::new(Panics)));
        let wait = std::panic::AssertUnwindSafe(|| awaited.wait());
        assert!(std::panic::catch_unwind(wait).is_err());
        promise.fulfil(7).unwrap();
        awaited.wait()
    });
    assert_eq!(result, Ok(7));
}

/// A task that moves between threads, with a new waker at each poll, misses no value.
#[test]
fn a_task_that_changes_its_waker_is_woken() {
    let _watched = crate::common::watched();
    ends("a task with changing wakers", || {
        for round in 0..200u64 {
            let (promise, awaited) = promise();
            let other = thread::spawn(move || promise.fulfil(round).unwrap());
            let mut awaited = pin!(awaited);
            let result = loop {
                let waker = Waker::from(Unpark::new());
                match awaited.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => break result,
                    // The promise keeps the waker of the last poll.
                    Poll::Pending => thread::park(),
                }
            };
            assert_eq!(result, Ok(round));
            other.join().unwrap();
        }
    });
}
