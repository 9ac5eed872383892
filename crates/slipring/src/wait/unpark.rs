//! Threads that sleep as tasks do: parked, until a waker unparks them.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::queue::WaitQueue;
use super::wait_loop::SleepPlace;
use crate::base::sync::{Thread, park, park_timeout, this_thread};

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that ends the calling thread's next sleep.
pub(crate) fn waker_of_this_thread() -> Waker {
    Waker::from(Arc::new(Unpark(this_thread())))
}

/// Parks the calling thread, for at most `limit`.
pub(crate) fn park_for(limit: Option<Duration>) {
    match limit {
        None => park(),
        Some(limit) => park_timeout(limit),
    }
}

/// A place in a queue that wakes one worker for each event, for a thread that takes no event: it
/// sleeps there as a task does, so it takes no worker's wake-up (queue::I6).
pub(crate) struct Bystander<'a> {
    pub(crate) queue: &'a WaitQueue,
    /// Number under which the queue knows the thread. No task of the queue has the same number.
    pub(crate) number: u64,
    /// The thread's waker.
    pub(crate) waker: Waker,
}

impl SleepPlace for Bystander<'_> {
    fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration> {
        if !self.queue.arm(self.number, &self.waker, ready) {
            park_for(limit);
            self.queue.disarm(self.number);
        }
        None
    }
}
