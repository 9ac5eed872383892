//! Waits until a stage has passed a position: until it has released the event there.
//!
//! Such a waiter stands where a party stands that follows the stage. It polls the same positions,
//! waits by that party's strategy, and sleeps in that party's queue, which each release of the
//! stage notifies anyway. So a graph without such waiters does nothing for them, and a waiter loses
//! a wake-up no more than that party does.
//!
//! A stage notifies no queue if no party sleeps behind it, or if shared threads run both the stage
//! and all that follow it. The waiter then polls, and sleeps by a timer if its strategy sleeps.
//!
//! Invariants
//! - I1: a waiter sleeps only in a queue that each release of the awaited stage notifies, and that
//!   the end of the graph notifies. In a queue that wakes one, it sleeps as a task does, because it
//!   takes no event there (queue::I6).
//! - I2: a waiter accesses no event. It may outlive the ring's last owner, which notifies all
//!   queues (owner::I3).
//! - I3: a waiter asks whether the ring is gone before it loads positions, and then sees all
//!   releases of the run. So it does not take a stage that has passed for one that never will.
//! - I4: an [`AnyRing`] may outlive what the ring's events borrow. Neither its calls nor the drop
//!   of its memory access an event (owner::I3), and nothing else in a ring borrows.
//! - I5: a call with a deadline ends by it, and a poll of a task takes a bounded number of steps,
//!   whatever other processes store.

use std::future::Future;
use std::mem::transmute;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::base::sync::{Arc, Weak, now, twin};
use crate::errors::{PassError, Report, WaitError};
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::helper;
use crate::ring::owner::Owner;
use crate::ring::owner_count::OwnerCount;
use crate::ring::plan::Plan;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::spec::Delivery;
use crate::ring::stage::PRODUCER_QUEUE;
use crate::ring::task_number::TaskNumber;
use crate::ring::waits::{Place, Unmet, Waiter, WaitingTask};
use crate::ring::words::{ahead, earlier};
use crate::ring::world::World as _;
use crate::wait::{
    Bystander, Condition, HandleLearner, KeepWaiting, SleepPlace, WaitOptions, WaitStrategy as _,
    wait_until, waker_of_this_thread,
};

/// The parts of a ring that depend neither on its events nor on its layout.
pub(crate) trait RingParts {
    fn control(&self) -> &Control;
    fn owners(&self) -> &OwnerCount;
}

impl<E, L: Layout> RingParts for Core<E, L> {
    fn control(&self) -> &Control {
        &self.control
    }
    fn owners(&self) -> &OwnerCount {
        &self.owners
    }
}

/// A ring of any events and any layout, for callers that access no event.
pub(crate) trait AnyRing: RingParts + Send + Sync {
    /// Returns the position before which all events are published, for a tap that directly follows
    /// the producers.
    fn published_for_tap(&self) -> u64;
    /// Returns a position that is not before any event that was published before the call.
    fn published(&self) -> u64;
    fn report(&self) -> Report;
    /// Checks for deaths; see [`World::watch`](crate::ring::world::World::watch).
    fn watch(&self, waiter: &Waiter) -> Option<WaitError>;
    fn notice(&self) -> Option<Duration>;
    /// See [`World::arm`](crate::ring::world::World::arm).
    fn arm(&self, task: WaitingTask<'_>, ready: &mut dyn FnMut() -> bool) -> bool;
    fn disarm(&self, party: usize, number: u64);
    /// Forgets an error that a check for deaths has noted for a task, which checks itself.
    fn forget_noted(&self, place: Place, number: &TaskNumber);
}

/// Returns a reference to the ring for observers, whose types do not name the events.
pub(crate) fn observed<E: Send, L: Layout>(ring: &Owner<E, L>) -> Weak<dyn AnyRing> {
    let ring: Weak<dyn AnyRing + '_> = ring.observed();
    // SAFETY: I4: the two types differ in the lifetime only.
    unsafe { transmute::<Weak<dyn AnyRing + '_>, Weak<dyn AnyRing>>(ring) }
}

impl<E: Send, L: Layout> AnyRing for Core<E, L> {
    fn published_for_tap(&self) -> u64 {
        match self.control.plan.sentinel {
            true => self.advance_sentinel(),
            false => self.control.positions.cursor(),
        }
    }

    fn published(&self) -> u64 {
        let Control { plan, positions, start, .. } = &self.control;
        if plan.cursor {
            return positions.cursor();
        }
        let last = plan.gating.iter().map(|&stage| positions.position(plan, stage));
        let least = last.reduce(earlier).unwrap_or(*start);
        match plan.many_producers {
            true => self.control.claimed(least).0,
            false => least.wrapping_add(self.claimed_after(least)),
        }
    }

    fn report(&self) -> Report {
        Core::report(self)
    }

    fn watch(&self, waiter: &Waiter) -> Option<WaitError> {
        self.world.watch(self.watched(&|| false), waiter)
    }

    fn notice(&self) -> Option<Duration> {
        self.world.notice()
    }

    fn arm(&self, task: WaitingTask<'_>, ready: &mut dyn FnMut() -> bool) -> bool {
        self.world.arm(&self.control, task, ready)
    }

    fn disarm(&self, party: usize, number: u64) {
        self.world.disarm(&self.control, party, number);
    }

    fn forget_noted(&self, place: Place, number: &TaskNumber) {
        let _forgotten = self.world.refuse(self.watched(&|| false), place, number, false);
    }
}

/// Returns whether `stage` has released the event at `seq`. For a tap: whether every stage before
/// it has, and each of its members, which are asked last: until then, a member may join before the
/// event.
fn has_passed(ring: &dyn AnyRing, stage: usize, seq: u64) -> bool {
    let Control { plan, positions, .. } = ring.control();
    let it = &plan.stages[stage];
    let reached = match (&it.delivery, &it.after[..]) {
        (Delivery::Tap(_), []) => ahead(ring.published_for_tap(), seq) > 0,
        (Delivery::Tap(_), after) => after.iter().all(|&stage| has_passed(ring, stage, seq)),
        _ => true,
    };
    reached && positions.has_released(plan, stage, seq)
}

/// The subject of a wait.
#[derive(Clone, Copy)]
pub(crate) struct Goal {
    /// The stage that has to pass; `None` for all last stages.
    stage: Option<usize>,
    /// The position to pass. With all last stages, the wait ends at the last position of a closed
    /// ring, if that is earlier.
    seq: u64,
}

/// How a wait stands. To find it out runs no user code, and takes no lock.
enum Standing {
    Passed,
    /// The wait goes on for the stage with this index.
    Awaits(usize),
    /// The graph was halted or has failed.
    Stopped,
    /// The ring was closed at this position, before the awaited one.
    Beyond(u64),
    /// The run is over, or the ring's last owner was dropped.
    Gone,
}

impl Goal {
    /// Waits for the stage named `stage`. Fails if the graph has no such stage, or if `seq` lies
    /// before the ring's first position. Positions wrap, so a position that lies further ahead than
    /// any stage can come lies before the first one, too.
    pub(crate) fn stage(control: &Control, stage: &str, seq: u64) -> Result<Goal, PassError> {
        let (stages, start) = (&control.plan.stages, control.start);
        match stages.iter().position(|it| it.name.as_str() == stage) {
            Some(_) if ahead(seq, start) < 0 => Err(PassError::NotPublished { seq, end: start }),
            Some(stage) => Ok(Goal { stage: Some(stage), seq }),
            None => Err(PassError::UnknownStage {
                asked: stage.to_owned(),
                stages: stages.iter().map(|stage| stage.name.clone()).collect(),
            }),
        }
    }

    /// Waits until all last stages have passed the events before `end`.
    pub(crate) fn before(end: u64) -> Goal {
        Goal { stage: None, seq: end.wrapping_sub(1) }
    }

    fn standing(&self, ring: &dyn AnyRing) -> Standing {
        let Control { plan, status, .. } = ring.control();
        if !ring.control().is_own_process() {
            return Standing::Stopped;
        }
        let (gone, runs) = (ring.owners().are_gone(), status.is_running()); // I3: first
        let (mut seq, end) = (self.seq, ring.control().last_position());
        if let Some(end) = end.filter(|&end| ahead(seq, end) >= 0) {
            if self.stage.is_some() {
                return Standing::Beyond(end);
            }
            seq = end.wrapping_sub(1);
        }
        let stages = match &self.stage {
            Some(stage) => std::slice::from_ref(stage),
            None => twin!("one-last-stage-asked": &plan.gating[..] => &plan.gating[..1]),
        };
        match stages.iter().find(|&&stage| !has_passed(ring, stage, seq)) {
            None => Standing::Passed,
            Some(_) if !runs => Standing::Stopped,
            Some(_) if gone => Standing::Gone,
            Some(&stage) => Standing::Awaits(stage),
        }
    }

    /// Returns the awaited stage, or the result of a wait that is over.
    fn look(&self, ring: &dyn AnyRing) -> Result<usize, Result<(), PassError>> {
        let status = &ring.control().status;
        Err(match self.standing(ring) {
            Standing::Awaits(stage) => return Ok(stage),
            Standing::Passed => Ok(()),
            Standing::Beyond(end) => Err(PassError::NotPublished { seq: self.seq, end }),
            Standing::Gone => Err(PassError::NotRunning),
            // The words of the status are not mapped in a forked child.
            Standing::Stopped if !ring.control().is_own_process() => Err(WaitError::Halted.into()),
            // The run may have taken its failure out already.
            Standing::Stopped => Err(status.stopped().unwrap_or(WaitError::Halted).into()),
        })
    }

    /// Returns the result of a wait that is over.
    pub(crate) fn result(&self, ring: &dyn AnyRing) -> Option<Result<(), PassError>> {
        self.look(ring).err()
    }

    /// Waits, at most until `deadline`.
    pub(crate) fn wait(
        &self,
        ring: &dyn AnyRing,
        deadline: Option<Instant>,
    ) -> Result<(), PassError> {
        let control = ring.control();
        let mut was_late = false;
        loop {
            let stage = match self.look(ring) {
                Ok(stage) => stage,
                Err(result) => return result,
            };
            // Other processes may make a stage seem to pass again and again (I5).
            if was_late {
                return Err(PassError::TimedOut(control.plan.name_of(stage)));
            }
            // If this thread may run stages of the graph, it runs one batch of one stage, which may
            // be the awaited one. A call whose deadline has passed checks for deaths all the same,
            // so it goes on to the sleep, which ends at once.
            let is_late = deadline.is_some_and(|deadline| now() >= deadline);
            if !is_late && helper::step(control, deadline) {
                continue;
            }
            match helper::waiting(control, || self.sleep(ring, stage, deadline)) {
                Ok(()) => was_late = is_late,
                Err(Unmet::Ended(reason)) => return Err(reason.into()),
                Err(Unmet::TimedOut) if control.expire(control.plan.producer_party(), self.seq) => {
                }
                Err(Unmet::TimedOut) => {
                    return Err(PassError::TimedOut(control.plan.name_of(stage)));
                }
            }
        }
    }

    /// Waits until `stage` has passed, or the wait is over.
    fn sleep(
        &self,
        ring: &dyn AnyRing,
        stage: usize,
        deadline: Option<Instant>,
    ) -> Result<(), Unmet> {
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::base::model_hooks::asleep("passing");
        let Control { plan, waits, status, membership, .. } = ring.control();
        let Spot { party, queue } = Spot::behind(plan, stage);
        let bystander = queue.filter(|&queue| plan.wakes_one(queue)).map(|queue| Bystander {
            queue: waits.queue(queue),
            number: membership.next_task().get(),
            waker: waker_of_this_thread(),
        });
        let place = match &bystander {
            Some(bystander) => Some(bystander as &dyn SleepPlace),
            None => queue.map(|queue| waits.queue(queue) as _),
        };
        let wait = plan.wait_of(party);
        let options = WaitOptions {
            wait,
            polls: 0,
            full_ring: None,
            queue: place,
            deadline: status.deadline().into_iter().chain(deadline).min(),
            // A caller's own deadline replaces the strategy's timeout.
            timeout: if deadline.is_none() { wait.timeout() } else { None },
        };
        let mut pass = Pass { goal: self, ring, stage, party, deadline };
        let run = wait_until(options, &mut HandleLearner::default(), &mut pass);
        run.unmet.map_or(Ok(()), Err)
    }

    /// Returns the error of a wait for `stage` that would never end, or that a death ends.
    fn doomed(&self, ring: &dyn AnyRing, stage: usize, party: usize) -> Option<WaitError> {
        let control = ring.control();
        if let Some(inside) = self_wait::of_release(control, stage, self.seq) {
            return Some(WaitError::WaitsForItself(control.plan.name_of(inside)));
        }
        let at = self.place(&control.plan, party).at;
        ring.watch(&Waiter { only: Some(stage), ..Waiter::new(party, stage, at) })
    }

    /// Returns the place of the party at which the waiter stands, if that party waited for the
    /// awaited release.
    fn place(&self, plan: &Plan, party: usize) -> Place {
        let a_lap = if party == plan.producer_party() { plan.capacity as u64 } else { 0 };
        Place { party, at: self.seq.wrapping_add(a_lap) }
    }
}

/// Where a waiter stands.
struct Spot {
    /// The party whose strategy the waiter follows.
    party: usize,
    /// Index of the queue in which the waiter sleeps (I1); `None` if it has to poll.
    queue: Option<usize>,
}

impl Spot {
    fn behind(plan: &Plan, stage: usize) -> Spot {
        let stage = &plan.stages[stage];
        let notified = stage.notifies_behind();
        let queue = notified.iter().find(|&&queue| !plan.wakes_one(queue)).or(notified.first());
        let queue = queue.copied();
        let queue_of = |party: usize| plan.stages.get(party).map_or(PRODUCER_QUEUE, |it| it.queue);
        let sleeps = |&party: &usize| plan.parks(party) && Some(queue_of(party)) == queue;
        let sleeper = (0..=plan.producer_party()).rev().find(sleeps);
        let follower = || stage.followers.first().copied().unwrap_or(plan.producer_party());
        Spot { party: sleeper.unwrap_or_else(follower), queue: queue.filter(|_| sleeper.is_some()) }
    }
}

/// The condition for which a thread waits: the stage has passed, the wait is over, or there is a
/// stage to run.
struct Pass<'a> {
    goal: &'a Goal,
    ring: &'a dyn AnyRing,
    stage: usize,
    party: usize,
    /// Deadline of the call.
    deadline: Option<Instant>,
}

impl Condition for Pass<'_> {
    fn is_ready(&mut self) -> bool {
        let awaits = |at| matches!(at, Standing::Awaits(stage) if stage == self.stage);
        !awaits(self.goal.standing(self.ring))
            || helper::is_ready(self.ring.control(), self.deadline)
    }

    fn keep_waiting(&mut self) -> KeepWaiting {
        match self.goal.doomed(self.ring, self.stage, self.party) {
            Some(error) => ControlFlow::Break(error.into()),
            // A stage that becomes ready for this thread may notify another queue than its own.
            None if helper::is_there(self.ring.control()) => {
                ControlFlow::Continue(Some(helper::LOOK_AGAIN))
            }
            None => ControlFlow::Continue(self.ring.notice()),
        }
    }

    fn is_oversubscribed(&self) -> bool {
        self.ring.control().is_oversubscribed()
    }
}

/// The ring of a waiting task.
enum Source<'a> {
    Owned(&'a dyn AnyRing),
    /// The task keeps the ring's memory only while it is polled.
    Observed(Weak<dyn AnyRing>),
}

/// A future that waits until a stage, or every last stage, has passed a position.
///
/// Progress, a close or a failure wakes the task if the party behind the stage parks, as
/// [`Wait::Blocking`](crate::Wait::Blocking) and the default
/// [`Wait::ADAPTIVE`](crate::Wait::ADAPTIVE) do; otherwise the task asks to be polled again at
/// once. No thread wakes a task when the graph's deadline passes; the task's next poll then fails
/// the graph. A poll on a thread that runs the graph's stages
/// ([`Chain::threads`](crate::Chain::threads), [`Chain::run_inline`](crate::Chain::run_inline))
/// runs one batch of one of these stages, and asks to be polled again at once. Dropping the future
/// ends the wait.
///
/// Example: [`Producer::wait_for_async`](crate::Producer::wait_for_async).
#[must_use = "futures do nothing unless they are polled"]
pub struct PassAsync<'a> {
    /// The wait, or the error with which the call began.
    wait: Result<TaskWait<'a>, PassError>,
}

impl<'a> PassAsync<'a> {
    /// Makes the future of a handle that owns `ring`.
    pub(crate) fn owned(ring: &'a dyn AnyRing, goal: Result<Goal, PassError>) -> Self {
        PassAsync { wait: goal.map(|goal| TaskWait::new(Source::Owned(ring), goal)) }
    }
}

impl PassAsync<'static> {
    /// Makes the future of an observer. `found` is the ring and the subject of the wait.
    pub(crate) fn observed(found: Result<(Arc<dyn AnyRing>, Goal), PassError>) -> Self {
        let wait = |(ring, goal)| TaskWait::new(Source::Observed(Arc::downgrade(&ring)), goal);
        PassAsync { wait: found.map(wait) }
    }
}

impl Future for PassAsync<'_> {
    type Output = Result<(), PassError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.wait {
            Ok(wait) => wait.poll(context.waker()),
            Err(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

impl std::fmt::Debug for PassAsync<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassAsync").finish_non_exhaustive()
    }
}

/// The wait of a task.
struct TaskWait<'a> {
    source: Source<'a>,
    goal: Goal,
    number: TaskNumber,
    /// The party in whose queue the task is registered.
    armed: Option<usize>,
}

impl<'a> TaskWait<'a> {
    fn new(source: Source<'a>, goal: Goal) -> Self {
        TaskWait { source, goal, number: TaskNumber::default(), armed: None }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<(), PassError>> {
        match &self.source {
            &Source::Owned(ring) => self.poll_in(ring, waker),
            Source::Observed(ring) => match ring.upgrade() {
                Some(ring) => self.poll_in(&*ring, waker),
                None => Poll::Ready(Err(PassError::NotRunning)),
            },
        }
    }

    fn poll_in(&mut self, ring: &dyn AnyRing, waker: &Waker) -> Poll<Result<(), PassError>> {
        let (control, goal) = (ring.control(), self.goal);
        let plan = &control.plan;
        // Each step finds another stage that has passed, or that the graph has ended. If there are
        // more steps, the words of the ring are damaged (I5).
        for _ in 0..plan.stages.len() + 2 {
            let stage = match goal.look(ring) {
                Ok(stage) => stage,
                Err(result) => return Poll::Ready(result),
            };
            if control.expire(plan.producer_party(), goal.seq) {
                continue;
            }
            if helper::is_there(control) {
                if !helper::step(control, None)
                    && let Some(inside) = self_wait::of_release(control, stage, goal.seq)
                {
                    let inside = plan.name_of(inside);
                    return Poll::Ready(Err(WaitError::WaitsForItself(inside).into()));
                }
                waker.wake_by_ref();
                return Poll::Pending;
            }
            let party = Spot::behind(plan, stage).party;
            if let Some(error) = goal.doomed(ring, stage, party) {
                return Poll::Ready(Err(error.into()));
            }
            if self.armed != Some(party) {
                self.disarm(ring);
            }
            let (place, number) = (goal.place(plan, party), self.number.get(&control.membership));
            ring.forget_noted(place, &self.number);
            self.armed = Some(party);
            let task = WaitingTask { place, number, waker };
            let awaits = |at| matches!(at, Standing::Awaits(other) if other == stage);
            if Spot::behind(plan, stage).queue.is_none() {
                waker.wake_by_ref();
                return Poll::Pending;
            }
            if !ring.arm(task, &mut || !awaits(goal.standing(ring))) {
                return Poll::Pending;
            }
        }
        waker.wake_by_ref();
        Poll::Pending
    }

    fn disarm(&mut self, ring: &dyn AnyRing) {
        if let Some((party, number)) = self.armed.take().zip(self.number.taken()) {
            ring.disarm(party, number);
        }
    }
}

impl Drop for TaskWait<'_> {
    fn drop(&mut self) {
        match &self.source {
            &Source::Owned(ring) => self.disarm(ring),
            Source::Observed(ring) => {
                if let Some(ring) = ring.upgrade() {
                    self.disarm(&*ring);
                }
            }
        }
    }
}
