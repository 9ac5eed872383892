//! The wait queues of a ring, and the waits of its parties.
//!
//! Invariants
//! - I1: a party first stores its progress, and then notifies the queues of the parties that wait
//!   for this progress. The end of a graph is stored before all queues are notified.

use std::task::Waker;
use std::time::Instant;

use crate::base::sync::Weak;
use crate::errors::WaitError;
use crate::ring::plan::{PRODUCER_QUEUE, Plan};
use crate::ring::reactors::{Reactors, Watched};
use crate::ring::spinning::Cores;
use crate::wait::queue::{self, QuietCheck, WaitQueue};
use crate::wait::{
    self, FullRing, HandleLearner, KeepWaiting, Wait, WaitOptions, WaitStats, WaitStrategy,
};

/// A party that waits. A party is a stage or the producers.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// Index of the waiting party.
    pub(crate) party: usize,
    /// Index of the party whose progress is awaited.
    pub(crate) waits_for: usize,
    /// The waiter's position.
    pub(crate) at: u64,
    /// Number of polls that the waiter has made since the wait began.
    pub(crate) polls: u32,
    /// The full ring, if the waiter is a producer whose thread runs no stage while it waits.
    pub(crate) full_ring: Option<FullRing>,
}

impl Waiter {
    /// Returns the waiter of a wait that begins.
    pub(crate) fn new(party: usize, waits_for: usize, at: u64) -> Waiter {
        Waiter { party, waits_for, at, polls: 0, full_ring: None }
    }
}

/// Whether a thread that waits, waits for one of its own handlers.
pub(crate) enum SelfWait {
    /// It does not, and will not while this wait lasts.
    Never,
    /// It does not. That may change while the wait lasts.
    NotNow,
    /// The thread waits for its handler of the stage with this index, so its wait would not end.
    Holds(usize),
}

/// Why a wait ended before what it waited for was there. A call that returns it to a user adds the
/// name of the party for which it waited by then.
pub(crate) enum Unmet {
    /// The deadline of the call, or the timeout of the waiting strategy, passed.
    TimedOut,
    /// The graph has ended, or the wait would not end.
    Ended(WaitError),
}

impl From<WaitError> for Unmet {
    fn from(reason: WaitError) -> Unmet {
        Unmet::Ended(reason)
    }
}

/// The wait queues of a ring.
pub(crate) struct Waits {
    queues: Box<[WaitQueue]>,
    /// Whether each notification executes a fence: this process could not register for the barriers
    /// with which other processes replace its fences.
    always_fences: bool,
    /// Number of cores minus the number of the graph's threads, without the handles that join while
    /// the graph runs.
    free_cores: i64,
    /// The spinning parties whose threads are each bound to a single core.
    pub(crate) cores: Cores,
    /// The tasks of this process, in a ring of several processes.
    reactors: Reactors,
}

impl Waits {
    /// `between_processes`: other processes share the queues.
    pub(crate) fn new(
        plan: &Plan,
        queues: Box<[WaitQueue]>,
        always_fences: bool,
        between_processes: bool,
    ) -> Waits {
        Waits {
            reactors: Reactors::new(if between_processes { queues.len() } else { 0 }),
            queues,
            always_fences,
            free_cores: plan.cores as i64 - plan.threads as i64,
            cores: Cores::new(plan),
        }
    }

    /// Notifies the queues whose indices are in `queues`; called after progress was stored.
    #[inline]
    pub(crate) fn notify(&self, queues: &[usize]) {
        if queues.is_empty() {
            return;
        }
        if self.always_fences {
            queue::notify_fenced(&self.queues, queues);
        } else {
            queue::notify(&self.queues, queues);
        }
    }

    /// Notifies the queues of the stages that wait for a publication. Producers call the method
    /// after a publication, if `QuietCheck::is_quiet` returned `false`.
    pub(crate) fn notify_publication(&self, plan: &Plan) {
        if !plan.producer_notifies.is_empty() {
            queue::notify_fenced(&self.queues, &plan.producer_notifies);
        }
    }

    /// Notifies all queues; called after the graph's end was stored.
    pub(crate) fn notify_all(&self) {
        queue::notify_all(&self.queues);
    }

    /// Returns the check by which producers decide whether a publication has to notify a queue.
    pub(crate) fn quiet_check(&self, plan: &Plan) -> QuietCheck {
        QuietCheck::at(&self.queues, &plan.producer_notifies, self.always_fences)
    }

    /// Returns the queue of a stage, or of the producers.
    pub(crate) fn queue_of(&self, plan: &Plan, party: usize) -> &WaitQueue {
        self.indexed_queue_of(plan, party).1
    }

    fn indexed_queue_of(&self, plan: &Plan, party: usize) -> (usize, &WaitQueue) {
        let queue = plan.stages.get(party).map_or(PRODUCER_QUEUE, |stage| stage.queue);
        (queue, &self.queues[queue])
    }

    /// Returns the queue with this index.
    pub(crate) fn queue(&self, index: usize) -> &WaitQueue {
        &self.queues[index]
    }

    /// Gives the threads that sleep for this process's tasks the ring.
    pub(crate) fn watch(&self, ring: Weak<dyn Watched>) {
        self.reactors.watch(ring);
    }

    /// Stops the threads that sleep for this process's tasks.
    pub(crate) fn stop_reactors(&self) {
        self.reactors.stop(&self.queues);
    }

    /// Returns `true` if `ready` returns `true`. If `ready` returns `false`, registers the task to
    /// be woken at the queue's next notification. If the queue is one that no party ever notifies,
    /// the method wakes the task at once, and the task polls again. `at` is the task's position.
    pub(crate) fn arm(
        &self,
        plan: &Plan,
        (party, at): (usize, u64),
        number: u64,
        waker: &Waker,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        if plan.parks(party) {
            let queue = self.indexed_queue_of(plan, party);
            let armed = self.reactors.arm(queue, (number, (party, at)), waker, ready);
            return armed.unwrap_or_else(|| queue.1.arm(number, waker, ready));
        }
        let ready = ready();
        if !ready {
            waker.wake_by_ref();
        }
        ready
    }

    /// Removes the task with this number, if it is armed.
    pub(crate) fn disarm(&self, plan: &Plan, party: usize, number: u64) {
        let queue = self.indexed_queue_of(plan, party);
        if !self.reactors.disarm(queue, number) {
            queue.1.disarm(number);
        }
    }

    /// Returns whether the graph has more threads than cores. `joined` is the number of handles
    /// that have joined since the build.
    pub(crate) fn is_oversubscribed(&self, joined: usize) -> bool {
        joined as i64 > self.free_cores
    }

    /// Calls [`wait::wait_until`] with the strategy of the waiter's party.
    /// `oversubscribed` returns whether the graph has more threads than cores. The wait's deadline
    /// is the graph's deadline or the caller's deadline, whichever is earlier.
    pub(crate) fn wait(
        &self,
        plan: &Plan,
        (waiter, oversubscribed): (&Waiter, &dyn Fn() -> bool),
        learned: &mut HandleLearner,
        (own, theirs): (Option<Instant>, Option<Instant>),
        keep_waiting: &mut dyn FnMut() -> KeepWaiting,
        ready: &mut dyn FnMut() -> bool,
    ) -> (bool, WaitStats) {
        let Waiter { party, polls, full_ring, .. } = *waiter;
        let wait: &Wait = plan.wait_of(party);
        let site = WaitOptions {
            wait,
            polls: u64::from(polls),
            oversubscribed,
            full_ring,
            queue: plan.parks(party).then(|| self.queue_of(plan, party) as _),
            deadline: own.into_iter().chain(theirs).min(),
            // A caller's own deadline replaces the strategy's timeout.
            timeout: if theirs.is_none() { wait.timeout() } else { None },
        };
        wait::wait_until(site, learned, keep_waiting, ready)
    }
}
