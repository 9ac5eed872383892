//! Holds the tasks of one process that wait in a queue that several processes share.
//!
//! A notifier of another process can wake a thread of this process, but no executor. So each queue
//! in which tasks of this process wait has a *reactor*: the list of these tasks, and a thread that
//! sleeps in the queue on their behalf.
//!
//! # Protocol
//!
//! A task that finds no progress takes these steps:
//!
//! 1. The task locks the reactor.
//! 2. The task announces itself in the shared queue, and notes the epoch. These are steps 1 and 2
//!    of a sleeper (`shared_queue`).
//! 3. The task issues a `SeqCst` fence and polls.
//! 4. If the poll finds progress, the task withdraws its announcement. Otherwise it leaves its
//!    waker and the noted epoch in the list, and wakes the thread if the thread is idle. Then it
//!    unlocks the reactor.
//!
//! The reactor's thread takes these steps:
//!
//! 1. The thread locks the reactor, and loads the queue's epoch.
//! 2. The thread takes the tasks out that noted another epoch, unlocks the reactor, and wakes these
//!    tasks.
//! 3. If no task noted another epoch, the thread unlocks the reactor, and sleeps in the queue as
//!    long as the epoch equals the loaded epoch, but no longer than a limit. Then it begins again.
//!
//! A notifier treats the task's announcement as the announcement of a thread: it raises the epoch,
//! and wakes the sleepers of the futex, among them the reactor's thread.
//!
//! # Invariants
//!
//! - I1: a task in the list has announced itself and has then polled without success, so the next
//!   progress raises the epoch that the task noted (`shared_queue::I1`).
//! - I2: while a task is in the list, the thread is about to take step 1, or it sleeps at an epoch
//!   that is not newer than the task's. In both cases, once the epoch is raised, the thread reaches
//!   step 2 and finds the task. Because of the lock, the thread sees either none or all of the
//!   task's steps. Otherwise a task could enter the list with an epoch that the thread has already
//!   left behind.
//! - I3: no user code runs under the lock.
//! - I4: the thread uses the queue only while it is *inside*. [`Reactor::stop`] returns when the
//!   thread is outside and will not come inside again. After that, the queue's memory may be
//!   unmapped. Wakers are user code, and run while the thread is outside. So a waker may drop the
//!   ring, and a waker that blocks does not hold up a thread that drops the ring.
//! - I5: if a notifier dies before it has woken the sleepers, a task is delayed by at most one
//!   limit: the reactor's thread finds the raised epoch (`shared_queue::I3`), or, if the notifier
//!   had not raised it, the progress itself (`reactors::I3`).

use std::task::Waker;
use std::time::Duration;

// The imports below begin with `super`, because `queue_model.rs` compiles this file a second time,
// for a simulated machine.
use super::edge::announced;
use super::queue::WaitQueue;
use super::sync::{Condvar, Mutex, lock, twin, whole};

/// A task that waits in a shared queue.
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct Task {
    /// Number of the task's handle.
    pub(crate) number: u64,
    /// The party of the task's handle, and its position when the task was armed.
    pub(crate) place: (usize, u64),
    pub(crate) waker: Waker,
}

/// State of a reactor's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thread {
    /// There is no thread.
    Absent,
    /// The thread uses neither the queue nor the ring. It may run wakers.
    Outside,
    /// Like `Outside`, but the thread waits for a task or for the end.
    Idle,
    /// The thread uses the queue and the ring.
    Inside,
}

#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct State {
    /// The armed tasks, and the epoch that each of them noted.
    tasks: Vec<(Task, u32)>,
    thread: Thread,
    /// Whether the ring is gone.
    stopped: bool,
}

impl State {
    /// Takes out the tasks that noted another epoch than `epoch`.
    fn take_notified(&mut self, epoch: u32) -> Vec<Task> {
        self.tasks.extract_if(.., |(_, noted)| *noted != epoch).map(|(task, _)| task).collect()
    }

    /// Takes out the task with this number.
    fn take(&mut self, number: u64) -> Option<(Task, u32)> {
        let at = self.tasks.iter().position(|(task, _)| task.number == number)?;
        Some(self.tasks.swap_remove(at))
    }
}

/// The tasks of this process at one queue, and the state of the thread that sleeps for them.
pub(crate) struct Reactor {
    state: Mutex<State>,
    /// Notified in two cases: the idle thread has something to do, or the thread is now outside.
    changed: Condvar,
}

impl Reactor {
    pub(crate) fn new() -> Reactor {
        let state = State { tasks: Vec::new(), thread: Thread::Absent, stopped: false };
        Reactor { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Registers a task for the next notification, unless `ready` returns `true`. Returns `true` if
    /// the task must poll again, because no notification will wake it. A task that is armed already
    /// is armed anew.
    ///
    /// If there is no thread, the call starts one by calling `start`. If `start` returns `false`,
    /// the system has refused the thread, and the task is woken at once.
    pub(crate) fn arm(
        &self,
        queue: &WaitQueue,
        task: Task,
        start: &mut dyn FnMut() -> bool,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let (mut state, noted, ready) = twin!("task-unlocked": {
            let state = lock(&self.state);
            let (noted, ready) = announce(queue, ready);
            (state, noted, ready)
        } => {
            let (noted, ready) = announce(queue, ready);
            (lock(&self.state), noted, ready)
        });
        let replaced = state.take(task.number);
        if let Some((_, noted)) = &replaced {
            queue.withdraw_shared(*noted);
        }
        let mut own = Some(task);
        let mut polls = false;
        if !ready && state.thread == Thread::Absent {
            polls = !start();
            state.thread = if polls { Thread::Absent } else { Thread::Outside };
        }
        if ready || polls {
            queue.withdraw_shared(noted);
        } else {
            state.tasks.extend(own.take().map(|task| (task, noted)));
            if state.thread == Thread::Idle {
                self.changed.notify_all();
            }
        }
        drop(state);
        // Dropping a waker runs user code. If the drops of two wakers panicked at once, the process
        // would abort.
        crate::base::panics::drop_contained(replaced);
        match own {
            Some(task) if polls => task.waker.wake(),
            own => _ = crate::base::panics::drop_contained(own),
        }
        ready
    }

    /// Removes a task, if it is armed.
    pub(crate) fn disarm(&self, queue: &WaitQueue, number: u64) {
        let mut state = lock(&self.state);
        let own = state.take(number);
        if let Some((_, noted)) = &own {
            queue.withdraw_shared(*noted);
        }
        drop(state);
        // The waker's drop is user code, whose panic would abort the process if the caller is
        // unwinding.
        crate::base::panics::drop_contained(own);
    }

    /// Stops the thread, and waits until it is outside (I4).
    pub(crate) fn stop(&self, queue: &WaitQueue) {
        let mut state = lock(&self.state);
        state.stopped = true;
        let tasks = std::mem::take(&mut state.tasks);
        self.changed.notify_all();
        if state.thread == Thread::Inside {
            drop(state);
            // If the thread loaded the epoch before `stopped` was set, the interrupt ends its
            // sleep. Otherwise it sees `stopped` and does not sleep.
            twin!("stopped-uninterrupted": queue.interrupt() => ());
            state = lock(&self.state);
            while state.thread == Thread::Inside {
                state = whole(self.changed.wait(state));
            }
        }
        drop(state);
        for (task, noted) in tasks {
            queue.withdraw_shared(noted);
            crate::base::panics::drop_contained(Some(task));
        }
    }

    // The thread.

    /// Waits until a task is armed, and then takes the thread inside (I4). Returns `false` if the
    /// thread must end. If `lingers` is set, takes the thread inside at once, even if no task is
    /// armed.
    pub(crate) fn enter(&self, lingers: bool) -> bool {
        let mut state = lock(&self.state);
        while state.tasks.is_empty() && !lingers && !state.stopped {
            state.thread = Thread::Idle;
            state = whole(self.changed.wait(state));
        }
        state.thread = if state.stopped { Thread::Absent } else { Thread::Inside };
        !state.stopped
    }

    /// Takes the thread outside (I4).
    pub(crate) fn leave(&self) {
        lock(&self.state).thread = Thread::Outside;
        self.changed.notify_all();
    }

    /// Abandons the thread after a panic. A task that is armed later starts another thread. Returns
    /// the armed tasks, which must poll again.
    pub(crate) fn abandon(&self) -> Vec<Task> {
        let mut state = lock(&self.state);
        state.thread = Thread::Absent;
        self.changed.notify_all();
        state.tasks.drain(..).map(|(task, _)| task).collect()
    }

    /// Sleeps until a notification, but for at most `limit`. Returns the tasks that were notified.
    /// Called while the thread is inside (I4).
    pub(crate) fn sleep(&self, queue: &WaitQueue, limit: Duration) -> Vec<Task> {
        let mut state = lock(&self.state);
        let epoch = queue.epoch();
        let notified = twin!("noted-ignored": state.take_notified(epoch) => Vec::new());
        if !notified.is_empty() || state.stopped {
            return notified;
        }
        drop(state);
        queue.sleep_at(epoch, limit);
        let mut state = lock(&self.state);
        let epoch = queue.epoch();
        state.take_notified(epoch)
    }

    /// Returns the numbers and places of the armed tasks.
    pub(crate) fn armed(&self) -> Vec<(u64, (usize, u64))> {
        lock(&self.state).tasks.iter().map(|(task, _)| (task.number, task.place)).collect()
    }

    /// Takes a task out of the list, to wake it without a notification. Called while the thread is
    /// inside (I4).
    pub(crate) fn take(&self, queue: &WaitQueue, number: u64) -> Option<Task> {
        let (task, noted) = lock(&self.state).take(number)?;
        queue.withdraw_shared(noted);
        Some(task)
    }
}

/// Announces a task, and polls. Returns the noted epoch, and whether the poll found progress.
fn announce(queue: &WaitQueue, ready: &mut dyn FnMut() -> bool) -> (u32, bool) {
    let noted = queue.announce_shared();
    announced::fence_task(); // The announcement comes before the poll (I1).
    (noted, twin!("task-blind": ready() => false))
}
