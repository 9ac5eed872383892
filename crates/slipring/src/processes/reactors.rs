//! The threads that sleep in the queues of a segment on behalf of this process's tasks.
//!
//! A process has one such thread per ring and queue in which its tasks have waited. The first task
//! that waits in a queue starts the queue's thread. The thread ends when the last handle of the
//! ring is dropped. If the system refuses to start the thread, a task that waits is woken at once,
//! and polls until a thread can be started.
//!
//! Invariants
//! - I1: the thread owns its [`Reactor`] and a weak reference to the ring. To use the
//!   ring, it takes a strong reference, and drops it before it is marked as outside of the ring
//!   (`reactor::I4`).
//! - I2: the last owner of a ring stops the threads before it drops its reference
//!   (`owner::Owner::end`). So these threads never drop the last reference: the thread that drops
//!   the last handle unmaps the segment.
//! - I3: while a task is registered, the thread checks for deaths once per notice, as a waiting
//!   call does. It also asks whether the task's handle may proceed, because a notifier may have
//!   died between its store and the notification. A thread that sleeps polls once per notice, too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use crate::base::panics::{call_contained, drop_payload};
use crate::base::sync::{Arc, Instant, Relaxed, Statistic, Weak, now, start_thread};
use crate::ring::waits::{NumberedQueue, Place, WaitingTask};
use crate::wait::queue::WaitQueue;
use crate::wait::reactor::{Reactor, Task};
use crate::wait::warning::hold_back;

/// The name of each thread: at most 15 bytes, or the system would cut it.
const NAME: &str = "slipring-tasks";

/// A ring, as its reactors' threads see it.
pub(crate) trait SleptFor: Send + Sync {
    /// Returns the queue with this index.
    fn queue(&self, index: usize) -> &WaitQueue;

    /// Returns the longest time between two checks for deaths.
    fn notice(&self) -> Duration;

    /// Checks for deaths as a waiting party does, on behalf of the task with the number `task`.
    /// `place` is the place of the task's handle. Returns whether the task must be woken because
    /// its next call returns an error.
    fn watch(&self, task: u64, place: Place) -> bool;

    /// Returns whether a call of the handle at `place` may find an event, room, or the end. It may
    /// be `true` although the call finds nothing, but not `false` although it finds something.
    fn may_proceed(&self, place: Place) -> bool;
}

/// The reactors of a ring's queues.
pub(crate) struct Reactors {
    reactors: Box<[Arc<Reactor>]>,
    ring: OnceLock<Weak<dyn SleptFor>>,
    /// 1 if a task has waited. A ring without tasks has nothing to stop.
    started: Statistic,
}

impl Reactors {
    /// Makes the reactors of `queues` queues, without a thread.
    pub(crate) fn new(queues: usize) -> Reactors {
        let reactors = (0..queues).map(|_| Arc::new(Reactor::new())).collect();
        Reactors { reactors, ring: OnceLock::new(), started: Statistic::new(0) }
    }

    /// Gives the ring to the threads. Tasks that wait before this call poll instead.
    pub(crate) fn watch(&self, ring: Weak<dyn SleptFor>) {
        // A ring is made once, so the cell is still empty.
        let _ = self.ring.set(ring);
    }

    /// Registers a task's waker with a queue, as [`WaitQueue::arm`] does.
    pub(crate) fn arm(
        &self,
        NumberedQueue { index, queue }: NumberedQueue<'_>,
        WaitingTask { place, number, waker }: WaitingTask<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let reactor = &self.reactors[index];
        let task = Task { number, place: (place.party, place.at), waker: waker.clone() };
        self.started.store(1, Relaxed);
        let start = &mut || self.ring.get().is_some_and(|ring| start(reactor, ring, index));
        reactor.arm(queue, task, start, ready)
    }

    /// Removes a task's waker from a queue, as [`WaitQueue::disarm`] does.
    pub(crate) fn disarm(&self, NumberedQueue { index, queue }: NumberedQueue<'_>, number: u64) {
        self.reactors[index].disarm(queue, number);
    }

    /// Stops all threads (I2). The caller is the last to use the ring.
    pub(crate) fn stop(&self, queues: &[WaitQueue]) {
        if self.started.load(Relaxed) == 0 {
            return;
        }
        self.reactors.iter().zip(queues).for_each(|(reactor, queue)| reactor.stop(queue));
    }
}

#[cfg(test)]
thread_local! {
    /// Set by a test: whether `start` fails on this thread, as if the system refused the new
    /// thread.
    pub(crate) static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Starts a thread. Returns `false` if the system refuses it.
fn start(reactor: &Arc<Reactor>, ring: &Weak<dyn SleptFor>, index: usize) -> bool {
    #[cfg(test)]
    if REFUSED.get() {
        return false;
    }
    let (reactor, ring) = (reactor.clone(), ring.clone());
    let life = move || run(&reactor, &ring, index);
    start_thread(NAME, life)
}

/// The thread of a reactor.
pub(crate) fn run(reactor: &Reactor, ring: &Weak<dyn SleptFor>, index: usize) {
    let mut lingers_until = None;
    let mut next_check = None;
    loop {
        // In a model, the thread always lingers, because a lingering thread is harder to wake
        // correctly than an idle one.
        let lingers = cfg!(slipring_loom) || lingers_until.is_some_and(|until| now() < until);
        if !reactor.enter(lingers) {
            return;
        }
        // A warning runs user code, and no user code runs while the thread is inside
        // (`reactor::I4`). So warnings are held back until the thread is outside again.
        let turn = hold_back(|| {
            catch_unwind(AssertUnwindSafe(|| turn(reactor, ring, index, &mut next_check)))
        });
        let Ok(turn) = turn.map_err(drop_payload) else {
            wake(reactor.abandon());
            return;
        };
        let Some((notified, notice)) = turn else { return };
        if !notified.is_empty() {
            // After a task was woken, it often waits again soon. Until then the thread sleeps in
            // the queue, so that the task need not wake the thread.
            lingers_until = now().checked_add(notice);
        }
        wake(notified);
    }
}

/// A guard whose drop records that the thread is outside.
struct Inside<'r>(&'r Reactor);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Sleeps once, and checks for deaths if a check is due. Returns the tasks to wake and the notice
/// interval, or `None` if the ring is gone.
fn turn(
    reactor: &Reactor,
    ring: &Weak<dyn SleptFor>,
    index: usize,
    next_check: &mut Option<Instant>,
) -> Option<(Vec<Task>, Duration)> {
    // Locals are dropped in reverse order, so the reference to the ring is dropped before `_inside`
    // (I1).
    let _inside = Inside(reactor);
    let ring = ring.upgrade()?;
    let (queue, notice) = (ring.queue(index), ring.notice());
    let began = now();
    let due = *next_check.get_or_insert_with(|| began.checked_add(notice).unwrap_or(began));
    let mut notified = reactor.sleep(queue, due.saturating_duration_since(began));
    if notified.is_empty() && due <= now() {
        *next_check = None;
        for (number, (party, at)) in reactor.armed() {
            let place = Place { party, at };
            if ring.watch(number, place) || ring.may_proceed(place) {
                notified.extend(reactor.take(queue, number));
            }
        }
    }
    Some((notified, notice))
}

/// Wakes tasks. A waker runs code of an executor. If one waker panics, the other tasks must be
/// woken all the same.
fn wake(tasks: Vec<Task>) {
    for task in tasks {
        call_contained(|| task.waker.wake());
    }
}
