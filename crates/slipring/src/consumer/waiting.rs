//! Methods for counting and for waiting, which all kinds of positions share.
//!
//! Invariants
//! - I1: a handle's counts reach the graph's counters exactly once. The field `flushed` holds the
//!   counts at the last flush, and each flush adds the difference to the graph's counters. The
//!   field stays correct if a wait panics.
//! - I2: a wait that a look has ended is counted, and reported to the strategy's learner, before
//!   the handle's next longer wait begins; and it is counted before a flush of the counts.

use std::marker::PhantomData;
use std::ptr;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::base::sync::{now, spin_loop};
use crate::consumer::gather::{Gather, POLLS_BEFORE};
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState};
use crate::errors::WaitError;
use crate::ring::counters::{FLUSH_EVERY, LocalCounts};
use crate::ring::helper;
use crate::ring::self_wait::{self, StageHandle};
use crate::ring::slots::Layout;
use crate::ring::waits::{Awaited, Place, SelfWait, Unmet, Waiter, WaitingTask};
use crate::ring::world::World as _;
use crate::wait::{HandleLearner, UNNOTIFIED_SLEEP, WaitRun, WaitStrategy as _, spin};

/// Methods that count a handle's events and batches.
pub(crate) trait Counting<E, L: Layout>: ConsumerPosition<E, L> {
    /// Counts a finished batch; flushes the counts after every [`FLUSH_EVERY`] batches.
    #[inline(always)]
    fn count_batch(&mut self) {
        let state = self.state_mut();
        state.has_new_counts = true;
        let counts = &mut state.counts;
        counts.batches += 1;
        if counts.batches.is_multiple_of(FLUSH_EVERY) {
            self.flush();
            self.state_mut().note_thread();
        }
    }

    /// Adds the counts since the last flush to the graph's counters.
    #[cold]
    #[inline(never)]
    fn flush(&mut self) {
        self.state_mut().count_wait();
        self.state_mut().flushed = self.flush_counts();
        self.state_mut().has_new_counts = false;
        self.state().control().note_releases();
    }

    /// Flushes the counts if a batch or a tombstone was counted since the last flush. A handle that
    /// finds no event calls this method, so that the counts of an idle handle are complete.
    #[inline(always)]
    fn flush_if_new(&mut self) {
        if self.state().has_new_counts {
            self.flush_progress();
        }
    }

    /// Flushes only those counts that grow even if the handle never waits for long.
    #[cold]
    #[inline(never)]
    fn flush_progress(&mut self) {
        self.state_mut().count_wait();
        let events = self.handled();
        let ConsumerState { core, stage, counts, flushed, .. } = self.state_mut();
        core.control.count_progress(*stage, events, counts, flushed);
        self.state_mut().has_new_counts = false;
    }

    /// Counts the wait of a task, or of another owner of a waker. Repeated calls before the next
    /// batch count as one wait.
    fn count_armed(&mut self) {
        let state = self.state_mut();
        if state.armed_at != state.counts.batches {
            state.armed_at = state.counts.batches;
            state.counts.waits += 1;
            state.note_thread();
            self.flush();
        } else {
            self.flush_if_new();
        }
    }

    /// Like [`Counting::flush`], but returns the flushed counts instead of storing them. The caller
    /// must store them as `flushed`.
    fn flush_counts(&self) -> LocalCounts {
        let state = self.state();
        let now = LocalCounts { events: self.handled(), ..state.counts };
        state.control().counters.flush(state.stage, &now, &state.flushed);
        now
    }
}

impl<E, L: Layout, P: ConsumerPosition<E, L>> Counting<E, L> for P {}

/// Methods by which a thread or a task waits for the next event.
pub(crate) trait Waiting<E, L: Layout>: Availability<E, L> + Counting<E, L> + Sized {
    /// Blocks until a poll is due ([`Availability::is_ready`]) or a deadline passes.
    #[inline(always)]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Unmet> {
        if !Self::DRAWS && self.wait_shortly() {
            return Ok(());
        }
        self.wait_longer(deadline, |position| position.is_ready().then_some(())).map(|_| ())
    }

    /// Returns the number of looks with which a call may begin its wait: the wait's first polls, or
    /// none if the wait has to draw a ticket first.
    #[inline(always)]
    fn looks_in_wait(&self) -> u32 {
        if Self::DRAWS { 0 } else { self.state().first_polls() }
    }

    /// Like [`Waiting::wait`], behind the first polls of a wait that draws no ticket. While the
    /// wait strategy spins, the polls are calls of `look`. Returns the result of the look that
    /// ended the wait; `None` if the wait ended otherwise, and a poll is due.
    ///
    /// The looks are part of the calling function, and a look that finds an event ends the wait at
    /// once (I2): everything that lies between an event and its reader delays the event. When the
    /// loop of the wait polled, and settled the wait before it returned, an event came 20 to 35 ns
    /// later (records/2026-11-30-spinning-waits).
    #[inline(always)]
    fn wait_longer<T>(
        &mut self,
        deadline: Option<Instant>,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Unmet> {
        if Self::DRAWS || helper::is_there(self.state().control()) {
            return self.wait_drawing(deadline).map(|()| None);
        }
        let mut wait = self.begin_wait(deadline, &None);
        while let Some(polls) = self.step_wait(&mut wait, deadline, &mut None)? {
            let mut found = None;
            let looked = spin(polls, || {
                found = look(self);
                if found.is_none() && wait.joins {
                    wait.upstream = self.waits_for();
                }
                found.is_some()
            });
            if let Some(polls) = looked {
                self.leave_wait(&mut wait, polls);
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Like [`Waiting::wait_longer`], for a wait that draws a ticket, or in which the thread may
    /// run other stages.
    #[cold]
    #[inline(never)]
    fn wait_drawing(&mut self, deadline: Option<Instant>) -> Result<(), Unmet> {
        if Self::DRAWS && deadline.is_none() {
            self.draw();
        }
        loop {
            if !Self::DRAWS || !self.wait_shortly() {
                self.wait_long(deadline, None)?;
            }
            if self.may_end_wait() {
                return Ok(());
            }
        }
    }

    /// Blocks until a batch has nothing to wait for ([`Availability::is_gathered`]) or a deadline
    /// passes.
    #[cold]
    #[inline(never)]
    fn wait_gathering(&mut self, gather: &mut Gather, deadline: Instant) -> Result<(), Unmet> {
        self.wait_long(Some(deadline), Some(gather))
    }

    fn wait_long(
        &mut self,
        deadline: Option<Instant>,
        gather: Option<&mut Gather>,
    ) -> Result<(), Unmet> {
        match helper::is_there(self.state().control()) {
            true => self.wait_helping(deadline, gather),
            false => self.wait_on(deadline, gather),
        }
    }

    /// Waits inside a stage's handler, on a thread that runs stages of this ring. Meanwhile the
    /// thread runs other stages of the ring. Their events notify other queues than this handle's
    /// queue, so the thread checks for such events once per [`helper::LOOK_AGAIN`].
    #[cold]
    #[inline(never)]
    fn wait_helping(
        &mut self,
        deadline: Option<Instant>,
        mut gather: Option<&mut Gather>,
    ) -> Result<(), Unmet> {
        loop {
            let control = self.state().control();
            let now = now();
            if deadline.is_none_or(|deadline| now < deadline) && helper::step(control, deadline) {
                return Ok(()); // The caller polls again.
            }
            let look = now.checked_add(helper::LOOK_AGAIN);
            // The end of the interval `LOOK_AGAIN` could not be distinguished from a timeout of the
            // strategy. So if the strategy has a timeout, the thread does not check for other
            // stages during its wait.
            let look =
                look.filter(|_| control.plan.wait_of(self.state().stage).timeout().is_none());
            let until = deadline.into_iter().chain(look).min();
            match helper::waiting(ptr::from_ref(control), || {
                self.wait_on(until, gather.as_deref_mut())
            }) {
                Err(Unmet::TimedOut) if until != deadline => {}
                waited => return waited,
            }
        }
    }

    /// During the wait's first polls, spins until the handle should poll. Returns whether it
    /// should.
    ///
    /// The function does nothing else, because everything that a wait does between two polls may
    /// delay an event.
    #[inline(always)]
    fn wait_shortly(&mut self) -> bool {
        for polls in 0..self.state().first_polls() {
            if self.is_ready() {
                self.state_mut().note_short_wait(polls);
                return true;
            }
            spin_loop();
        }
        false
    }

    /// Waits as the wait strategy decides, after the wait's first polls.
    #[cold]
    #[inline(never)]
    fn wait_on(
        &mut self,
        deadline: Option<Instant>,
        mut gather: Option<&mut Gather>,
    ) -> Result<(), Unmet> {
        let mut wait = self.begin_wait(deadline, &gather);
        while let Some(polls) = self.step_wait(&mut wait, deadline, &mut gather)? {
            if let Some(polls) = spin(polls, || self.is_due(&mut gather)) {
                wait.run.found(polls);
                return self.end_wait(&mut wait);
            }
        }
        Ok(())
    }

    /// Begins a wait behind its first polls. A wait that gathers a batch has no first polls, and
    /// counts some as made.
    #[cold]
    #[inline(never)]
    fn begin_wait(&mut self, deadline: Option<Instant>, gather: &Option<&mut Gather>) -> OneWait {
        self.state_mut().settle_wait();
        let polls = if gather.is_some() { POLLS_BEFORE } else { self.state().first_polls() };
        let waiter = Waiter { polls, ..self.waiter(deadline, gather, self.waits_for()) };
        // Other handles may have joined or left since this handle was made, which changes whether
        // threads outnumber cores.
        self.state_mut().refresh_first_polls();
        self.state_mut().polls = u32::MAX;
        OneWait {
            run: self.state().control().begin_wait(&waiter),
            upstream: waiter.waits_for,
            joins: self.state().plan().after.len() > 1,
            gathers: gather.is_some(),
        }
    }

    fn waiter(
        &self,
        deadline: Option<Instant>,
        gather: &Option<&mut Gather>,
        waits_for: usize,
    ) -> Waiter {
        let at = gather.as_ref().map_or_else(|| self.next(), |gather| gather.end);
        Waiter { until: deadline, ..Waiter::new(self.state().stage, waits_for, at) }
    }

    /// Makes a step of the wait. Returns the number of polls that the caller makes before the next
    /// step, or `None` if the wait is over.
    ///
    /// The strategy's learner does not hear of a wait that gathers a batch, because it learns how
    /// long a handle without an event waits.
    #[cold]
    #[inline(never)]
    fn step_wait(
        &mut self,
        wait: &mut OneWait,
        deadline: Option<Instant>,
        gather: &mut Option<&mut Gather>,
    ) -> Result<Option<u32>, Unmet> {
        let OneWait { run, upstream, joins, gathers } = wait;
        let (joins, gathers) = (*joins, *gathers);
        let waiter = self.waiter(deadline, gather, *upstream);
        let learned = match gathers {
            true => self.state().learned.without_learner(),
            false => std::mem::take(&mut self.state_mut().learned),
        };
        let polls = {
            // `guard` is not moved, because a move would copy the counts in `guard.flushed`.
            let mut guard = WaitGuard {
                position: &mut *self,
                learned,
                gathers,
                flushed: None,
                panics: true,
                kind: PhantomData,
            };
            let WaitGuard { ref position, ref mut learned, ref mut flushed, .. } = guard;
            let position: &Self = position;
            let kind = PhantomData;
            let mut next = NextEvent { position, gather, flushed, slowest: upstream, joins, kind };
            let polls = position.state().control().step_wait(run, &waiter, learned, &mut next);
            guard.panics = false;
            polls
        };
        if polls.is_none() { self.end_wait(wait).map(|()| None) } else { Ok(polls) }
    }

    /// Leaves a wait because the last of `polls` looks has found an event.
    #[inline(always)]
    fn leave_wait(&mut self, wait: &mut OneWait, polls: u32) {
        wait.run.found(polls);
        match wait.run.leave() {
            Some(left) => {
                self.note_polls(&wait.run);
                self.state_mut().settle_later(left, wait.upstream);
            }
            None => self.settle(wait),
        }
    }

    /// Notes the number of polls of a wait that ended before its strategy read the clock or slept.
    #[inline(always)]
    fn note_polls(&mut self, run: &WaitRun) {
        if let Some(polls) = run.untimed_polls() {
            self.state_mut().polls = u32::try_from(polls).unwrap_or(u32::MAX);
        }
    }

    /// Counts a wait that has ended, and reports it to the learner.
    #[cold]
    fn settle(&mut self, wait: &OneWait) {
        self.note_polls(&wait.run);
        let state = self.state_mut();
        state.has_slept |= wait.run.sleeps != 0;
        state.counts.wait(wait.upstream, wait.run.time(), wait.run.sleeps);
        if !wait.gathers {
            wait.run.learn(&mut state.learned);
        }
    }

    /// Ends a wait, and settles it.
    fn end_wait(&mut self, wait: &mut OneWait) -> Result<(), Unmet> {
        self.wait_ended();
        self.settle(wait);
        match wait.run.unmet.take() {
            None => Ok(()),
            Some(why) => {
                self.flush();
                Err(why)
            }
        }
    }

    /// Returns whether a poll is due, or whether the batch has nothing to wait for.
    #[inline(always)]
    fn is_due(&self, gather: &mut Option<&mut Gather>) -> bool {
        match gather {
            None => self.is_ready(),
            Some(gather) => {
                gather.pause();
                self.is_gathered(gather.len, &mut gather.end)
            }
        }
    }

    /// Registers a task to be woken when a poll is due. Returns `true`, and registers no task, if a
    /// poll is due now.
    fn arm(&mut self, waker: &Waker) -> bool {
        self.arm_for(waker, None)
    }

    /// Like [`Waiting::arm`]. If the task gathers a batch, a poll is due when the batch has nothing
    /// to wait for.
    fn arm_for(&mut self, waker: &Waker, mut gather: Option<&mut Gather>) -> bool {
        let is_ready = |position: &Self, gather: &mut Option<&mut Gather>| match gather {
            None => position.is_ready(),
            Some(gather) => position.is_gathered(gather.len, &mut gather.end),
        };
        let at = gather.as_ref().map_or_else(|| self.next(), |gather| gather.end);
        let state = self.state_mut();
        let number = state.task.get(&state.core.control.membership);
        let state = self.state();
        // No thread wakes tasks when the graph's deadline passes, so `arm` fails a graph that is
        // overdue.
        if state.control().status.overdue().is_some() && !is_ready(self, &mut gather) {
            state.control().expire(state.stage, at);
        }
        let place = Place { party: state.stage, at };
        let task = WaitingTask { place, number, waker };
        let (world, control) = (&state.core.world, state.control());
        let ready = world.arm(control, task, &mut || is_ready(self, &mut gather));
        if !ready {
            self.count_armed();
        }
        ready
    }

    /// Removes the task that [`Waiting::arm`] registered; does nothing if no task is registered.
    fn disarm(&mut self) {
        if let Some(number) = self.state_mut().task.taken() {
            let state = self.state();
            state.core.world.disarm(state.control(), state.stage, number);
        }
    }
}

impl<E, L: Layout, P: Availability<E, L>> Waiting<E, L> for P {}

/// A wait of a handle, behind the wait's first polls.
pub(crate) struct OneWait {
    run: WaitRun,
    /// The party for which the position waited, when it last found nothing.
    upstream: usize,
    /// Whether the position follows several parties.
    joins: bool,
    /// Whether the wait gathers a batch.
    gathers: bool,
}

/// The next event of a position, or the next batch, as the subject of a wait.
struct NextEvent<'g, 'h, E, L: Layout, P> {
    position: &'g P,
    /// The batch for which the position waits; `None` if it waits for any event.
    gather: &'g mut Option<&'h mut Gather>,
    /// The counts that the wait has flushed; `None` if it has not flushed them.
    flushed: &'g mut Option<LocalCounts>,
    /// The slowest of the parties that the position follows. Each poll that finds no event updates
    /// it.
    slowest: &'g mut usize,
    /// Whether the position follows several parties.
    joins: bool,
    kind: PhantomData<(E, L)>,
}

impl<E, L: Layout, P: Availability<E, L>> Awaited for NextEvent<'_, '_, E, L, P> {
    fn is_ready(&mut self) -> bool {
        let is_ready = self.position.is_due(self.gather);
        if self.joins && !is_ready {
            *self.slowest = self.position.waits_for();
        }
        is_ready
    }

    fn self_wait(&mut self) -> SelfWait {
        let (position, state) = (self.position, self.position.state());
        state.control().note_releases();
        let own = StageHandle { stage: state.stage, line: position.line() };
        let end = self.gather.as_ref().map(|gather| gather.end);
        let at = || end.unwrap_or_else(|| position.awaited());
        self_wait::of_consumer(state.control(), own, at, |at| state.core.is_claimed(at))
    }

    fn flush_after(&self) -> Option<Duration> {
        let state = self.position.state();
        Some(state.counts.flush_after(&state.flushed, self.joins))
    }

    fn flush(&mut self) {
        *self.flushed = Some(self.position.flush_counts());
    }

    fn nap(&mut self) -> Option<Duration> {
        match &mut *self.gather {
            Some(gather) => gather.nap(now()),
            None => (!self.position.may_sleep()).then_some(UNNOTIFIED_SLEEP),
        }
    }

    fn watch(&mut self, waiter: &Waiter) -> Option<WaitError> {
        let state = self.position.state();
        let is_damaged = || self.position.finds_damage();
        let ring = state.core.watched(&is_damaged);
        state.core.world.watch(ring, waiter)
    }

    fn notice(&self) -> Option<Duration> {
        self.position.state().core.world.notice()
    }
}

/// A guard whose drop stores the other fields in the position's `ConsumerState`, also after a panic
/// of the wait strategy (I1).
struct WaitGuard<'s, E, L: Layout, P: Availability<E, L>> {
    position: &'s mut P,
    learned: HandleLearner,
    /// Whether the wait gathers a batch, so that the handle kept its own learner.
    gathers: bool,
    flushed: Option<LocalCounts>,
    /// Whether the drop comes from a panic, which ends the wait.
    panics: bool,
    kind: PhantomData<(E, L)>,
}

impl<E, L: Layout, P: Availability<E, L>> Drop for WaitGuard<'_, E, L, P> {
    fn drop(&mut self) {
        if self.panics {
            self.position.wait_ended();
        }
        let state = self.position.state_mut();
        match self.gathers {
            true => state.learned.noted = self.learned.noted,
            false => std::mem::swap(&mut state.learned, &mut self.learned),
        }
        // `flushed` is `None` if the wait ended before any flush of the counts.
        if let Some(flushed) = self.flushed {
            state.flushed = flushed;
            state.has_new_counts = false;
        }
    }
}
