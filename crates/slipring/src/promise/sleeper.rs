//! The sleeper of a promise: a thread or a task that waits for one notification.

use std::task::Waker;

use crate::base::panics::call_contained;
use crate::base::sync::{Thread, this_thread};

/// A thread or a task that waits for a promise.
pub(super) enum Sleeper {
    Thread(Thread),
    Task(Waker),
}

impl Sleeper {
    /// Returns the calling thread as a sleeper.
    pub(super) fn this_thread() -> Sleeper {
        Sleeper::Thread(this_thread())
    }

    /// Wakes the sleeper. If the sleeper is a thread that has not fallen asleep yet, its next sleep
    /// ends at once. A panic of a task's waker is contained, because the caller has fulfilled its
    /// promise.
    #[cold]
    pub(super) fn wake(self) {
        match self {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => call_contained(|| waker.wake()),
        }
    }
}
