//! Puts a thread to sleep while it waits for a promise.
//!
//! Invariants
//! - I1: a [`Sleep`] borrows the waiter's half mutably, so no other call uses the half while the
//!   `Sleep` lives.
//! - I2: each sleep registers the thread once, and takes the registration back before it returns.

use std::cell::OnceCell;
use std::task::Waker;
use std::time::Duration;

use super::handover::WaiterHalf;
use super::sleeper::Sleeper;
use crate::base::panics::drop_contained;
use crate::ring::asked::Asked;
use crate::wait::{SleepPlace, park_for, waker_of_this_thread};

/// Puts the calling thread to sleep until the promise is settled, or until the promise's graph
/// notifies its askers.
pub(super) struct Sleep<'a, T> {
    half: &'a mut WaiterHalf<T>,
    /// The request; `None` if the promise knows no graph.
    asked: Option<&'a Asked>,
    /// The waker that the graph keeps during a sleep. Made by the first sleep.
    waker: OnceCell<Waker>,
}

impl<'a, T> Sleep<'a, T> {
    pub(super) fn new(half: &'a mut WaiterHalf<T>, asked: Option<&'a Asked>) -> Self {
        Sleep { half, asked, waker: OnceCell::new() }
    }

    /// Returns whether the promise is settled, or its graph has ended.
    pub(super) fn is_over(&self) -> bool {
        self.half.settlement().is_some() || self.asked.is_some_and(Asked::is_over)
    }

    /// Parks the thread. The thread is already registered at the promise, so settling the promise
    /// wakes it. If there is a request, also registers the thread with the askers of its ring, and
    /// parks only if `ready` then returns `false`.
    fn park(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let Some(asked) = self.asked else { return park_for(limit) };
        let waker = self.waker.get_or_init(waker_of_this_thread);
        if !asked.arm(waker, ready) {
            park_for(limit.into_iter().chain(asked.longest_sleep()).min());
            asked.disarm();
        }
    }
}

impl<T> SleepPlace for Sleep<'_, T> {
    fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration> {
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::base::model_hooks::asleep("awaited");
        // SAFETY: I1. If a task has polled before, its waker is removed: this thread now waits in
        // the task's place.
        drop_contained(unsafe { self.half.withdraw() });
        // SAFETY: I1, and no sleeper is registered since the call above.
        if ready() || !unsafe { self.half.register(Sleeper::this_thread()) } {
            return None;
        }
        self.park(limit, ready);
        // SAFETY: I1. The call keeps I2.
        drop(unsafe { self.half.withdraw() });
        None
    }
}
