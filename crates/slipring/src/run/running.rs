//! Which threads of a pipeline have ended, and the threads and tasks that wait for the last one.
//!
//! Invariants
//! - I1: each thread counts itself out once, by the drop of its [`CountOut`], behind everything
//!   else that it does for the pipeline.
//! - I2: a waker is registered only under the lock, while a thread is left. The last thread to
//!   count itself out takes all wakers under the same lock, and wakes them. So no wake-up is lost.
//! - I3: no user code runs under the lock: wakers are cloned, woken and dropped outside of it.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::base::panics::{call_contained, drop_contained};
use crate::base::sync::unmodelled::{Condvar, Mutex};
use crate::base::sync::{now, whole};

/// The threads of a pipeline that have not ended.
pub(super) struct RunningThreads {
    state: Mutex<State>,
    decreased: Condvar,
}

struct State {
    /// Whether each thread has ended.
    ended: Vec<bool>,
    /// Number of threads that have not ended.
    left: usize,
    /// The tasks that wait for the last end, each with the number of its future.
    tasks: Vec<(u64, Waker)>,
    /// Number of the next future.
    next: u64,
}

impl RunningThreads {
    pub(super) fn new(threads: usize) -> Arc<RunningThreads> {
        let ended = vec![false; threads];
        let state = State { ended, left: threads, tasks: Vec::new(), next: 0 };
        Arc::new(RunningThreads { state: Mutex::new(state), decreased: Condvar::new() })
    }

    /// Returns the guard of the thread with this index.
    pub(super) fn count_out(self: &Arc<Self>, thread: usize) -> CountOut {
        CountOut { running: self.clone(), thread }
    }

    /// Returns whether the thread with this index has ended.
    pub(super) fn has_ended(&self, thread: usize) -> bool {
        whole(self.state.lock()).ended[thread]
    }

    /// Waits until all threads have ended. Returns `false` if `deadline` passes first.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut state = whole(self.state.lock());
        while state.left > 0 {
            state = match deadline {
                None => whole(self.decreased.wait(state)),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(now());
                    if left.is_zero() {
                        return false;
                    }
                    whole(self.decreased.wait_timeout(state, left)).0
                }
            };
        }
        true
    }

    /// Returns whether all threads have ended. If not, the end of the last thread wakes `waker`,
    /// which replaces an earlier waker of the same future. `number` is the future's number, and is
    /// set by its first poll.
    pub(super) fn poll(&self, number: &mut Option<u64>, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = whole(self.state.lock());
        let is_over = state.left == 0;
        let unused = if is_over {
            Some(waker)
        } else {
            let own = *number.get_or_insert_with(|| {
                state.next += 1;
                state.next
            });
            match state.tasks.iter_mut().find(|(number, _)| *number == own) {
                Some((_, earlier)) => Some(std::mem::replace(earlier, waker)),
                None => {
                    state.tasks.push((own, waker));
                    None
                }
            }
        };
        drop(state);
        drop_contained(unused);
        is_over
    }

    /// Removes the waker of a future that is dropped.
    pub(super) fn forget(&self, number: u64) {
        let mut state = whole(self.state.lock());
        let own = state.tasks.iter().position(|(of, _)| *of == number);
        let waker = own.map(|own| state.tasks.swap_remove(own));
        drop(state);
        drop_contained(waker);
    }
}

/// A guard that each thread holds. Its drop, at the thread's end or panic, counts the thread out.
pub(super) struct CountOut {
    running: Arc<RunningThreads>,
    thread: usize,
}

impl Drop for CountOut {
    fn drop(&mut self) {
        let mut state = whole(self.running.state.lock());
        state.ended[self.thread] = true;
        state.left -= 1;
        let tasks = if state.left == 0 { std::mem::take(&mut state.tasks) } else { Vec::new() };
        drop(state);
        self.running.decreased.notify_all();
        for (_, waker) in tasks {
            call_contained(|| waker.wake());
        }
    }
}
