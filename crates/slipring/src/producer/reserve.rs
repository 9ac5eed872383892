//! A reservation takes positions, and waits until the ring has room for them.
//!
//! Invariants
//! - I1: a reservation takes positions only after a look at the graph's status, so each call
//!   notices a halt or a failure that came before it. The handle looks by a direct pointer to the
//!   status, which the handle's ring keeps (direct::I1).

use std::marker::PhantomData;
use std::task::{Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::base::sync::now;
use crate::errors::{ClaimError, WaitError};
use crate::producer::handle::{Producer, Refusal, WaitingCounts, sealed};
use crate::ring::core::Core;
use crate::ring::helper;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::waits::{Awaited, Place, SelfWait, Unmet, Waiter, WaitingTask};
use crate::ring::words::ahead;
use crate::ring::world::World;
use crate::wait::BackOff;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Returns the number of slots that could be claimed at this moment.
    ///
    /// Stages may free more slots at any time, and other producers may claim slots.
    ///
    /// In a ring between processes, the call also checks for dead processes, as a refused call
    /// does, unless all slots are free. It removes a dead reader of a tap, and fails the graph if
    /// the death of a process requires that. The call itself reports no error: the next call that
    /// returns a `Result` reports the death or the graph's end. So a loop that only waits for this
    /// number to grow might never end.
    ///
    /// The call loads the frontier of each gating stage, as a claim does when its handle knows of
    /// no free slot. Each load slows down the stage's next release, because the stage's thread must
    /// fetch the frontier's cache line back.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// tx.publish(|slot| *slot = 1)?;
    /// assert_eq!(tx.remaining(), 7);
    /// rx.poll(8, |_, _| ())?;
    /// assert_eq!(tx.remaining(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "remainingCapacity")]
    pub fn remaining(&mut self) -> usize {
        self.give_up_open_claim();
        self.free_slots(0)
    }

    /// Like [`Producer::remaining`], for a handle with an open claim of `claimed` positions, which
    /// this call does not give up.
    pub(crate) fn free_slots(&mut self, claimed: usize) -> usize {
        if S::MANY {
            self.next = self.core.control.claimed(self.next).0;
        }
        let _ = self.find_room(1);
        let free = ahead(self.limit, self.next).clamp(0, self.capacity() as i64) as usize;
        // Even while some slots are free, a dead process may hold the others, so the check for
        // deaths runs unless all slots are free.
        if free != self.capacity() && self.refused().is_some() {
            L::World::check_again(&mut self.checks);
        }
        free.saturating_sub(if S::MANY { 0 } else { claimed })
    }

    // Taking positions.

    #[inline(always)]
    pub(crate) fn try_reserve(&mut self, len: u64) -> Result<u64, ClaimError> {
        self.reserve(len).map_err(|refusal| self.refuse(refusal))
    }

    /// Returns the error of a call that does not wait.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, refusal: Refusal) -> ClaimError {
        match refusal {
            Refusal::Gated(party) => {
                self.flush_if_new();
                if let Some(dead) = self.refused() {
                    return ClaimError::Wait(dead);
                }
                let stage = self.core.control.plan.name_of(party);
                let lag = self.core.lag(party, self.next);
                ClaimError::Gated { stage, lag }
            }
            Refusal::Contended => ClaimError::Contended,
            Refusal::Wait(error) => ClaimError::Wait(error),
        }
    }

    /// Called when a call that does not wait has found no room. Checks for dead processes, if a
    /// check is due, and returns the error that the caller must return, if any.
    #[inline]
    pub(crate) fn refused(&mut self) -> Option<WaitError> {
        if !L::World::SHARED {
            return None;
        }
        let due = self.core.world.is_due(&mut self.checks);
        if due || self.number.taken().is_some() { self.heard(due) } else { None }
    }

    /// Like [`Producer::refused`], for a handle that has just registered a waker. If there is an
    /// error, the call removes the waker, keeps the error for the handle's next call, and returns
    /// `true`.
    pub(crate) fn hears_of_death(&mut self) -> bool {
        let Some(death) = self.refused() else { return false };
        self.disarm();
        self.core.world.tell_later(&self.number, death);
        true
    }

    /// Returns the error that a check for dead processes has found for this handle, if any. `due`
    /// says whether another check is due now.
    #[cold]
    fn heard(&self, due: bool) -> Option<WaitError> {
        let control = &self.core.control;
        let place = Place { party: control.plan.producer_party(), at: self.next };
        let ring = self.core.watched(&|| false);
        self.core.world.refuse(ring, place, &self.number, due)
    }

    /// Fails if the graph was halted or has failed.
    #[inline(always)]
    fn check_running(&self) -> Result<(), Refusal> {
        // SAFETY: direct::I1; the core is alive.
        if unsafe { self.status.get() }.is_running() {
            return Ok(());
        }
        self.core.control.status.stopped().map_or(Ok(()), |error| Err(Refusal::Wait(error)))
    }

    /// Takes `len` positions if `len` positions are free now.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, len: u64) -> Result<u64, Refusal> {
        self.check_running()?;
        S::reserve(self, len)
    }

    /// Takes `len` positions, for a call that waits without a deadline. Such a call may take
    /// positions that are not free yet, and then waits until they are.
    #[inline(always)]
    pub(crate) fn reserve_patiently(&mut self, len: u64) -> Result<u64, Refusal> {
        self.check_running()?;
        S::reserve_patiently(self, len)
    }

    /// Takes one position without waiting, or returns `None` if the ring is full. An error says
    /// that the graph has ended, or that a process has died.
    #[inline]
    pub(crate) fn reserve_now(&mut self) -> Result<Option<u64>, WaitError> {
        let mut races = BackOff::default();
        loop {
            match self.reserve(1) {
                Ok(seq) => return Ok(Some(seq)),
                Err(Refusal::Gated(_)) => {
                    self.flush_if_new();
                    return self.refused().map_or(Ok(None), Err);
                }
                Err(Refusal::Contended) => self.back_off(&mut races),
                Err(Refusal::Wait(error)) => return Err(error),
            }
        }
    }

    /// Pauses after a claim that lost a race against other producers.
    #[cold]
    fn back_off(&self, races: &mut BackOff) {
        let control = &self.core.control;
        let rivals = control.plan.producer_seats.max(control.membership.producers());
        races.pause(control.spacing, rivals);
    }

    // Waiting for positions.

    #[inline(always)]
    fn reserve_until(&mut self, len: u64, deadline: Option<Instant>) -> Result<u64, Refusal> {
        if deadline.is_none() { self.reserve_patiently(len) } else { self.reserve(len) }
    }

    #[inline(always)]
    pub(crate) fn reserve_by(
        &mut self,
        len: u64,
        deadline: Option<Instant>,
    ) -> Result<u64, ClaimError> {
        match self.reserve_until(len, deadline) {
            Ok(seq) => Ok(seq),
            Err(refusal) => self.wait_for_room_by(len, refusal, deadline),
        }
    }

    /// Takes one position, and waits as the wait strategy says.
    #[inline(always)]
    pub(crate) fn reserve_waiting(&mut self) -> Result<u64, WaitError> {
        self.reserve_patiently(1).or_else(|refusal| self.wait_for_room(1, refusal))
    }

    /// Takes `len` positions, and waits again after each timeout of the wait strategy.
    #[inline(always)]
    pub(crate) fn reserve_past_timeouts(&mut self, len: u64) -> Result<u64, WaitError> {
        loop {
            match self.reserve_by(len, None) {
                Err(ClaimError::TimedOut(_)) => {}
                reserved => return reserved.map_err(ClaimError::without_deadline),
            }
        }
    }

    #[cold]
    pub(crate) fn wait_for_room(&mut self, len: u64, refusal: Refusal) -> Result<u64, WaitError> {
        self.wait_for_room_by(len, refusal, None).map_err(ClaimError::without_deadline)
    }

    #[cold]
    fn wait_for_room_by(
        &mut self,
        len: u64,
        mut refusal: Refusal,
        deadline: Option<Instant>,
    ) -> Result<u64, ClaimError> {
        // The loop checks the deadline itself, because a round may end without a wait: a position
        // seemed free, and another producer took it. Other producers can cause any number of such
        // rounds.
        let is_over = || deadline.is_some_and(|deadline| now() >= deadline);
        let (mut round, mut races) = (0u64, BackOff::default());
        loop {
            match refusal {
                Refusal::Wait(error) => return Err(error.into()),
                Refusal::Contended if round != 0 && is_over() => {
                    let control = &self.core.control;
                    return Err(ClaimError::TimedOut(
                        control.plan.name_of(control.plan.producer_party()),
                    ));
                }
                Refusal::Contended => self.back_off(&mut races),
                Refusal::Gated(slowest) if round != 0 && is_over() => {
                    return Err(ClaimError::TimedOut(self.core.control.plan.name_of(slowest)));
                }
                // If this thread may run stages of the graph, it runs one batch of one stage, which
                // may make room.
                Refusal::Gated(_) if !is_over() && helper::step(&self.core.control, deadline) => {}
                Refusal::Gated(slowest) => self.wait(len, slowest, deadline)?,
            }
            match self.reserve_until(len, deadline) {
                Ok(seq) => return Ok(seq),
                Err(again) => refusal = again,
            }
            round = round.wrapping_add(1);
        }
    }

    fn wait(
        &mut self,
        len: u64,
        slowest: usize,
        deadline: Option<Instant>,
    ) -> Result<(), ClaimError> {
        let len = S::within_end(self, self.next, len);
        let next = self.next;
        let (core, learned, counts) = self.begin_wait();
        let control = &core.control;
        let full_ring = control.plan.full_ring(next, len).filter(|_| !helper::is_there(control));
        let waiter = Waiter {
            full_ring,
            until: deadline,
            ..Waiter::new(control.plan.producer_party(), slowest, next)
        };
        let sharing = PhantomData::<S>;
        let mut room = Room { core, next, len, deadline, slowest, counts, sharing };
        let run = helper::waiting(control, || control.wait(waiter, learned, &mut room));
        let slowest = room.slowest;
        self.counts.wait(slowest, run.time(), run.sleeps);
        let error = match run.unmet {
            None => return Ok(()),
            Some(Unmet::Ended(error)) => error.into(),
            Some(Unmet::TimedOut) => ClaimError::TimedOut(self.core.control.plan.name_of(slowest)),
        };
        self.flush_counts();
        Err(error)
    }

    /// Returns whether a wait can end, because `len` positions from `next` on are free, or because
    /// the ring takes no more claims.
    ///
    /// The check may run under a wait queue's lock, because it changes only the sentinel and
    /// notifies no queue.
    fn is_ready(core: &Core<E, L>, next: u64, len: u64) -> bool {
        Self::holds_back(core, next, len).is_none()
    }

    /// Returns the stage that holds up a wait for `len` positions from `next` on, or `None` if the
    /// wait can end, as [`Producer::is_ready`] says.
    fn holds_back(core: &Core<E, L>, next: u64, len: u64) -> Option<usize> {
        let (control, capacity) = (&core.control, core.capacity());
        let (next, closed) = S::claimed(core, next);
        let (gate, slowest) = core.gate(next.wrapping_sub(capacity));
        let is_over = closed
            || !control.status.is_running()
            || gate.wrapping_add(capacity).wrapping_sub(next) as i64 >= len as i64;
        (!is_over).then_some(slowest)
    }

    /// Takes `len` positions if `len` positions are free now. If fewer are free, registers `waker`
    /// in the wait queue. A task whose budget is spent is woken at once instead, claims nothing and
    /// is not registered.
    pub(crate) fn reserve_or_arm(
        &mut self,
        len: u64,
        waker: &Waker,
    ) -> Poll<Result<u64, WaitError>> {
        ready!(self.budget.spend(waker));
        let mut races = BackOff::default();
        loop {
            match self.reserve(len) {
                Ok(seq) => return Poll::Ready(Ok(seq)),
                Err(Refusal::Wait(error)) => return Poll::Ready(Err(error)),
                Err(Refusal::Contended) => self.back_off(&mut races),
                Err(Refusal::Gated(_)) => {
                    if let Some(dead) = self.refused() {
                        return Poll::Ready(Err(dead));
                    }
                    if !self.arm_for_room(len, waker) {
                        self.budget.refill();
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// If no claim of `len` positions could succeed now, registers `waker` in the wait queue and
    /// returns `false`. If the caller must try to claim again, returns `true` and registers no
    /// waker.
    pub(crate) fn arm_for_room(&mut self, len: u64, waker: &Waker) -> bool {
        self.give_up_open_claim();
        let number = self.task_number();
        let (core, next) = (&*self.core, self.next);
        // No thread wakes tasks when the graph's deadline passes. So this function itself fails the
        // graph if the deadline has passed.
        if core.control.status.overdue().is_some() && !Self::is_ready(core, next, len) {
            core.control.expire(core.control.plan.producer_party(), next);
        }
        let place = Place { party: core.control.plan.producer_party(), at: next };
        let task = WaitingTask { place, number, waker };
        let is_ready = &mut || Self::is_ready(core, next, len);
        let ready = core.world.arm(&core.control, task, is_ready);
        if !ready {
            self.count_armed();
        }
        ready
    }
}

/// The condition for which a producer waits: room for a claim.
struct Room<'c, E, L: Layout, S> {
    core: &'c Core<E, L>,
    /// The producer's position when the wait began.
    next: u64,
    /// Number of awaited positions.
    len: u64,
    /// Deadline of the call.
    deadline: Option<Instant>,
    /// The stage that still holds the awaited slots. If other producers take these slots, the wait
    /// continues for later slots, which another stage may hold.
    slowest: usize,
    counts: WaitingCounts<'c>,
    sharing: PhantomData<S>,
}

impl<E, L: Layout, S: sealed::Sharing> Awaited for Room<'_, E, L, S> {
    fn is_ready(&mut self) -> bool {
        match Producer::<E, L, S>::holds_back(self.core, self.next, self.len) {
            Some(stage) => {
                self.slowest = stage;
                helper::is_ready(&self.core.control, self.deadline)
            }
            None => true,
        }
    }

    fn self_wait(&mut self) -> SelfWait {
        self_wait::of_producer(&self.core.control, || {
            let (next, _) = S::claimed(self.core, self.next);
            next.wrapping_add(self.len).wrapping_sub(self.core.capacity())
        })
    }

    fn flush_after(&self) -> Option<Duration> {
        self.counts.flush_after()
    }

    fn flush(&mut self) {
        self.counts.flush();
    }

    fn watch(&mut self, waiter: &Waiter) -> Option<WaitError> {
        let ring = self.core.watched(&|| false);
        self.core.world.watch(ring, waiter)
    }

    fn notice(&self) -> Option<Duration> {
        self.core.world.notice()
    }
}
