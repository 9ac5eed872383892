//! The wait queues of a ring, and the waits of its parties.
//!
//! Invariants
//! - I1: a party first stores its progress, and then notifies the queues of the parties that wait
//!   for this progress. The end of a graph is stored before all queues are notified.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::errors::WaitError;
use crate::ring::cores::Cores;
use crate::ring::plan::Plan;
use crate::ring::stage::{PRODUCER_QUEUE, Stage};
use crate::ring::status::Status;
pub(crate) use crate::wait::Unmet;
use crate::wait::queue::{self, WaitQueue};
use crate::wait::quiet_check::QuietCheck;
use crate::wait::{FullRing, Wait, WaitOptions, WaitStrategy};

/// The place of a handle that waits or polls.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Index of the handle's party: of its stage, or of the producers.
    pub(crate) party: usize,
    /// The handle's position.
    pub(crate) at: u64,
}

/// A task that a wait queue registers.
#[derive(Clone, Copy)]
pub(crate) struct WaitingTask<'a> {
    /// The place of the task's handle.
    pub(crate) place: Place,
    /// The number by which wait queues identify the handle's tasks.
    pub(crate) number: u64,
    pub(crate) waker: &'a Waker,
}

/// A wait queue of a ring, with its index.
#[derive(Clone, Copy)]
pub(crate) struct NumberedQueue<'a> {
    pub(crate) index: usize,
    pub(crate) queue: &'a WaitQueue,
}

/// A waiting party, the party that it waits for, and the deadline of the wait. A party is a stage
/// or the producers.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// Index of the waiting party.
    pub(crate) party: usize,
    /// Index of the party whose progress is awaited.
    pub(crate) waits_for: usize,
    /// The waiter's position.
    pub(crate) at: u64,
    /// Deadline of the waiting call; the graph's deadline applies, too.
    pub(crate) until: Option<Instant>,
    /// Number of polls that the waiter has made since the wait began.
    pub(crate) polls: u32,
    /// The full ring, if the waiter is a producer whose thread runs no stage while it waits.
    pub(crate) full_ring: Option<FullRing>,
    /// The only stage whose release is awaited; `None` if the waiter waits for whichever stage is
    /// the slowest of those before its party.
    pub(crate) only: Option<usize>,
}

impl Waiter {
    /// Returns the waiter of a wait that begins.
    pub(crate) fn new(party: usize, waits_for: usize, at: u64) -> Waiter {
        Waiter { party, waits_for, at, until: None, polls: 0, full_ring: None, only: None }
    }

    /// Returns a waiter on behalf of the handle at this place, while that handle itself does not
    /// wait.
    pub(crate) fn at(Place { party, at }: Place) -> Waiter {
        Waiter::new(party, party, at)
    }
}

/// The subject of a wait: the condition that ends the wait, and the checks for reasons why the
/// condition may never hold.
pub(crate) trait Awaited {
    /// Polls for the awaited event or room. May run under a wait queue's lock, so it notifies no
    /// queue and runs no user code.
    fn is_ready(&mut self) -> bool;

    /// Checks whether the waiting thread waits for its own handler. Called when the wait outlasts
    /// its first polls and, while the result is [`SelfWait::NotNow`], once per [`ASK_AGAIN`] after
    /// that. It is not called before the first polls, because in a dense stream the call would
    /// delay the next event.
    fn self_wait(&mut self) -> SelfWait {
        SelfWait::Never
    }

    /// Returns the time after which a wait flushes the handle's counts; see
    /// [`Condition::flush_after`](crate::wait::Condition::flush_after).
    fn flush_after(&self) -> Option<Duration> {
        None
    }

    /// Adds the handle's new counts to the graph's counters.
    fn flush(&mut self) {}

    /// Called before each sleep; see [`Condition::nap`](crate::wait::Condition::nap).
    fn nap(&mut self) -> Option<Duration> {
        None
    }

    /// Returns the error that ends the wait, for example because a process that should bring the
    /// awaited progress has died. Called as often as [`Awaited::notice`] says.
    fn watch(&mut self, _waiter: &Waiter) -> Option<WaitError> {
        None
    }

    /// Returns the longest time between two calls of [`Awaited::watch`], or `None` if one call is
    /// enough.
    fn notice(&self) -> Option<Duration> {
        None
    }
}

/// A closure that polls can be the subject of a wait. Apart from the poll, only the graph's end or
/// a deadline ends such a wait.
impl<F: FnMut() -> bool> Awaited for F {
    fn is_ready(&mut self) -> bool {
        self()
    }
}

/// Interval at which a thread that waits inside a handler of the same ring checks again whether it
/// waits for itself. The interval is too short for a person to notice, and long compared with the
/// poll that each check costs.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(1);

/// The result of the check whether a waiting thread waits for one of its own handlers.
pub(crate) enum SelfWait {
    /// The thread does not wait for itself, and will not while this wait lasts.
    Never,
    /// The thread does not wait for itself now, but may do so later in this wait.
    NotNow,
    /// The thread waits for its handler of the stage with this index, so its wait would not end.
    Holds(usize),
}

/// The wait queues of a ring.
pub(crate) struct Waits {
    queues: Box<[WaitQueue]>,
    /// Whether each notification executes a fence. That is necessary if this process could not
    /// register for the memory barriers that other processes issue in place of its fences.
    always_fences: bool,
    /// Whether a publication notifies a pool's queue among several queues, and first loads their
    /// state words. The check of a publication sees only a single queue.
    loads_several: bool,
    /// The cores on which the graph's threads may run.
    pub(crate) cores: Cores,
}

impl Waits {
    /// `is_shared`: other processes share the ring.
    pub(crate) fn new(
        plan: &Plan,
        queues: Box<[WaitQueue]>,
        always_fences: bool,
        is_shared: bool,
    ) -> Waits {
        let notifies = &plan.producer_notifies;
        let has_pool = notifies.iter().any(|&queue| plan.wakes_one(queue));
        Waits {
            queues,
            always_fences,
            loads_several: has_pool && notifies.len() > 1 && !always_fences,
            cores: Cores::new(plan, is_shared),
        }
    }

    /// Notifies the queues whose indices are in `queues`; called after progress was stored.
    #[inline]
    pub(crate) fn notify(&self, queues: &[usize]) {
        if queues.is_empty() {
            return;
        }
        if self.always_fences {
            queue::notify_fenced(&self.queues, queues, |_| 1);
        } else {
            queue::notify(&self.queues, queues);
        }
    }

    /// Like [`Waits::notify`], for the release of a chunk by a worker of `pool`, whose own queue
    /// wakes one. `status` is the graph's status.
    #[inline]
    pub(crate) fn notify_released(&self, pool: &Stage, status: &Status) {
        queue::notify_released(&self.queues, &pool.notifies, pool.queue, || status.is_over());
    }

    /// Wakes more workers of `pool`, whose queue wakes one, because a woken worker has left events.
    /// It wakes two, and each of them may wake two more, so that a burst soon wakes all workers.
    #[cold]
    pub(crate) fn pass_on(&self, pool: &Stage) {
        queue::notify_up_to(&self.queues, &[pool.queue], |_| 2);
    }

    /// Wakes all sleepers of a stage's queue.
    pub(crate) fn wake_all(&self, stage: &Stage) {
        queue::notify_all(std::slice::from_ref(&self.queues[stage.queue]));
    }

    /// Notifies the `queues` that a publication notifies. A queue that wakes one wakes up to
    /// `most(queue)` threads, where `queue` is its index.
    pub(crate) fn notify_publication(&self, queues: &[usize], most: impl Fn(usize) -> usize) {
        match queues {
            [] => {}
            _ if self.loads_several => queue::notify_up_to(&self.queues, queues, most),
            _ => queue::notify_fenced(&self.queues, queues, most),
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
    pub(crate) fn queue_of(&self, plan: &Plan, party: usize) -> NumberedQueue<'_> {
        let index = plan.stages.get(party).map_or(PRODUCER_QUEUE, |stage| stage.queue);
        NumberedQueue { index, queue: &self.queues[index] }
    }

    /// Returns the queue with this index.
    pub(crate) fn queue(&self, index: usize) -> &WaitQueue {
        &self.queues[index]
    }

    /// Returns all queues.
    pub(crate) fn queues(&self) -> &[WaitQueue] {
        &self.queues
    }

    /// Registers a task to be woken at its queue's next notification. If `ready` returns `true`,
    /// registers no task and returns `true`. If no party ever notifies the queue, wakes the task at
    /// once, so that it polls again.
    pub(crate) fn arm(
        &self,
        plan: &Plan,
        task: WaitingTask<'_>,
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let party = task.place.party;
        if plan.parks(party) {
            return self.queue_of(plan, party).queue.arm(task.number, task.waker, ready);
        }
        let ready = ready();
        if !ready {
            task.waker.wake_by_ref();
        }
        ready
    }

    /// Returns the options of a wait, as the strategy of the waiter's party determines them. `own`
    /// is the graph's deadline.
    pub(crate) fn options<'a>(
        &'a self,
        plan: &'a Plan,
        waiter: &Waiter,
        own: Option<Instant>,
    ) -> WaitOptions<'a> {
        let Waiter { party, polls, full_ring, until, .. } = *waiter;
        let wait: &Wait = plan.wait_of(party);
        WaitOptions {
            wait,
            polls: u64::from(polls),
            full_ring,
            queue: plan.parks(party).then(|| self.queue_of(plan, party).queue as _),
            deadline: own.into_iter().chain(until).min(),
            // A caller's own deadline replaces the strategy's timeout.
            timeout: if until.is_none() { wait.timeout() } else { None },
        }
    }
}
