//! A request in a ring, as its asker holds it: the ring, the request's position, and the stages
//! that the asker's thread can run while it waits.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::base::sync::{Arc, now};
use crate::errors::{AwaitError, WaitError};
use crate::ring::askers::{AskedRing, Askers};
use crate::ring::control::Control;
use crate::ring::helper;
use crate::ring::self_wait;

/// In a forked child, the words of a segment are not mapped. There, the ring counts as stopped.
impl AskedRing for Control {
    fn has_stirred(&self) -> bool {
        self.is_mapped() || self.status.is_over()
    }
    fn is_stopped(&self) -> bool {
        !self.is_own_process() || !self.status.is_running()
    }
    fn why_stopped(&self) -> Option<WaitError> {
        if self.is_own_process() { self.status.stopped() } else { Some(WaitError::Halted) }
    }
    fn is_closed(&self) -> bool {
        self.status.is_closing()
    }
    fn has_released(&self, stage: usize, seq: u64) -> Option<bool> {
        let Control { plan, positions, .. } = self;
        (stage < plan.stages.len()).then(|| positions.has_released(plan, stage, seq))
    }
    fn record_deadline(&self, seq: u64) -> bool {
        self.is_own_process() && self.record_deadline(self.plan.producer_party(), seq)
    }
    fn capacity(&self) -> u64 {
        self.plan.capacity as u64
    }
    fn start(&self) -> u64 {
        self.start
    }
}

/// The request at one position of a ring. The type does not own the ring.
pub(crate) struct Asked {
    askers: Arc<Askers>,
    seq: u64,
    /// The time at which the graph fails, if it has a deadline.
    deadline: Option<Instant>,
    /// Whether a task may be registered.
    armed: bool,
}

impl Asked {
    /// Longest sleep of a waiting thread whose wait may end without a notification. That happens in
    /// three cases: a stage whose handle stays alive makes its last release, another process ends
    /// the wait, or the thread would wait for itself.
    pub(crate) const NAP: Duration = Duration::from_millis(10);

    /// Makes the handle of the request that the caller is about to publish at `seq`. The caller
    /// owns the ring.
    #[inline]
    pub(crate) fn of(control: &Control, seq: u64) -> Asked {
        control.askers.attach(control);
        let deadline = control.status.deadline();
        Asked { askers: control.askers.clone(), seq, deadline, armed: false }
    }

    /// Returns why the graph will give no answer, or `None` if an answer may still come.
    #[inline]
    pub(crate) fn over(&self) -> Option<AwaitError> {
        self.askers.over(self.seq)
    }

    /// Returns whether [`Asked::over`] would return an error.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.askers.is_over(self.seq)
    }

    /// Returns the time at which the graph fails.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Fails the graph if its deadline has passed.
    pub(crate) fn expire(&self) {
        if self.deadline.is_some_and(|deadline| now() >= deadline) {
            self.askers.expire(self.seq);
        }
    }

    /// Returns the longest sleep of a waiting thread, or `None` if a notification ends each sleep.
    pub(crate) fn longest_sleep(&self) -> Option<Duration> {
        self.askers.is_stirred().then_some(Asked::NAP)
    }

    // Methods for callers whose thread may run stages of the ring.

    fn is_of(&self, control: &Control) -> bool {
        Arc::ptr_eq(&control.askers, &self.askers)
    }

    /// Returns whether the current thread runs stages while it waits.
    pub(crate) fn is_helped(&self) -> bool {
        helper::at(|control| self.is_of(control), |_| ()).is_some()
    }

    /// Runs one batch of a stage, as [`helper::step`] does.
    pub(crate) fn step(&self, until: Option<Instant>) -> bool {
        let step = |control: &Control| helper::step(control, until);
        helper::at(|control| self.is_of(control), step).unwrap_or(false)
    }

    /// Returns whether [`Asked::step`] would run a stage.
    pub(crate) fn has_step(&self, until: Option<Instant>) -> bool {
        let is_ready = |control: &Control| helper::is_ready(control, until);
        helper::at(|control| self.is_of(control), is_ready).unwrap_or(false)
    }

    /// Calls `wait`, which may call [`Asked::has_step`].
    pub(crate) fn waiting<T>(&self, mut wait: impl FnMut() -> T) -> T {
        let helped = helper::at(
            |control| self.is_of(control),
            |control| helper::waiting(control, &mut wait),
        );
        helped.unwrap_or_else(wait)
    }

    /// Returns whether the current thread runs a handler of the ring.
    pub(crate) fn is_inside(&self) -> bool {
        self_wait::at(|control| self.is_of(control), |_| Some(())).is_some()
    }

    /// Returns the error of a wait that would never end: the current thread runs a handler of the
    /// ring, and every stage that could still answer waits for that handler.
    pub(crate) fn stuck(&self) -> Option<WaitError> {
        self_wait::at(
            |control| self.is_of(control),
            |control| {
                let stage = holder(control, self.seq)?;
                Some(WaitError::WaitsForItself(control.plan.name_of(stage)))
            },
        )
    }

    // Sleeping.

    /// Registers a thread's waker for the next notification, unless `ready` returns `true`. Returns
    /// `true` if the caller must poll again. [`Asked::disarm`] removes the registration.
    pub(crate) fn arm(&self, waker: &Waker, ready: &mut dyn FnMut() -> bool) -> bool {
        self.askers.arm(self.seq, waker, ready)
    }

    /// Called before a task registers: makes the drop of this handle remove the registration.
    pub(crate) fn keeps_task(&mut self) {
        self.armed = true;
    }

    /// Removes the registration of a thread or task.
    pub(crate) fn disarm(&self) {
        self.askers.disarm(self.seq);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.armed {
            self.disarm();
        }
    }
}

/// Returns why no stage will answer the request at `seq`: the graph has failed or was halted, or
/// the ring is closed and every stage has released the request. Returns `None` if a stage may still
/// answer.
pub(crate) fn ended(control: &Control, seq: u64) -> Option<WaitError> {
    let Control { plan, positions, status, .. } = control;
    status.stopped().or_else(|| {
        let mut stages = 0..plan.stages.len();
        let drained = status.is_closing() && stages.all(|it| positions.has_released(plan, it, seq));
        drained.then_some(WaitError::Closed)
    })
}

/// Returns a stage whose handler runs on the current thread, if no stage can reach the request at
/// `seq` before that handler returns. Returns `None` if at least one stage may still answer.
///
/// Another handle of a pool or of a sharded stage may get the request, unless all handles of the
/// stage are on the current thread.
fn holder(control: &Control, seq: u64) -> Option<usize> {
    let (stages, behind) = (&control.plan.stages, seq.wrapping_add(1));
    let held = |stage: usize| self_wait::held(control, stage, behind);
    let first = (0..stages.len()).find(|&stage| held(stage) != 0)?;
    let may_answer = |stage: usize| {
        !control.positions.has_released(&control.plan, stage, seq)
            && held(stage) < stages[stage].delivery.room()
            && !(0..stages.len()).any(|other| control.plan.before[stage][other] && held(other) != 0)
    };
    (!(0..stages.len()).any(may_answer)).then_some(first)
}
