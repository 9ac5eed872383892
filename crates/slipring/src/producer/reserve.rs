//! A reservation takes positions, and waits until the ring has room for them.

use std::marker::PhantomData;
use std::task::{Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::base::sync::{Relaxed, now, spin_loop, twin};
use crate::errors::{ClaimError, WaitError};
use crate::producer::handle::{Producer, Refusal, sealed};
use crate::ring::core::Core;
use crate::ring::helper;
use crate::ring::membership::Company;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::waits::{Awaited, Place, SelfWait, Unmet, Waiter, WaitingTask};
use crate::ring::words::{ClaimWord, ahead};
use crate::ring::world::World;

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
            self.next = self.core.control.positions.claimed(&self.core.control.plan, self.next).0;
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

    pub(crate) fn try_reserve(&mut self, len: u64) -> Result<u64, ClaimError> {
        self.reserve(len).map_err(|refusal| match refusal {
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
        })
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

    /// Takes `len` positions if `len` positions are free now.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, len: u64) -> Result<u64, Refusal> {
        self.core.control.status.check_running().map_err(Refusal::Wait)?;
        S::reserve(self, len)
    }

    /// Takes positions, whether or not this process has other handles. The path of a handle that
    /// has always been alone is inlined wherever a program publishes, because a function call would
    /// cost as much as the claim itself.
    #[inline(always)]
    pub(super) fn reserve_shared(&mut self, len: u64) -> Result<u64, Refusal> {
        self.give_up_open_claim();
        let company = self.core.control.membership.company();
        if company != Company::Never {
            return self.reserve_in_company(len, company);
        }
        if !self.knows_room(len) {
            self.find_shared_room(len)?;
        }
        Ok(self.claim_alone(len))
    }

    /// Takes positions while no other handle can claim. The handle claims by a store, because a
    /// compare-and-swap would cost as much as the rest of the claim.
    #[inline(always)]
    fn claim_alone(&mut self, len: u64) -> u64 {
        let seq = self.next;
        self.next = seq.wrapping_add(len);
        self.core.control.positions.claim().store(ClaimWord::open(self.next).0, Relaxed);
        seq
    }

    /// Like [`Producer::reserve_shared`], for a handle that is not alone or has not always been
    /// alone.
    #[inline]
    fn reserve_in_company(&mut self, len: u64, company: Company) -> Result<u64, Refusal> {
        let settles = company == Company::Earlier;
        if twin!("settled-in-company": settles => true) {
            self.next = self.read_claim_word()?;
            self.core.control.membership.settle_alone();
        }
        if !self.knows_room(len) {
            if company == Company::Now {
                self.next = self.read_claim_word()?;
            }
            self.find_shared_room(len)?;
        }
        if company == Company::Now {
            // The compare-and-swap itself finds out whether `next` is outdated. A load before the
            // swap would fetch the claim word's cache line once more while other producers claim.
            return self.swap_claim_word(len).or_else(|word| self.claim_again(word, len));
        }
        Ok(self.claim_alone(len))
    }

    /// Claims the `len` positions from `next` on, if the claim word is at `next`. Otherwise returns
    /// the claim word.
    ///
    /// All accesses to the claim word are relaxed, because it assigns positions and orders no data.
    /// Each handle itself loads the gating stages' frontiers to find free slots.
    #[inline(always)]
    fn swap_claim_word(&mut self, len: u64) -> Result<u64, ClaimWord> {
        let (seq, end) = (self.next, self.next.wrapping_add(len));
        let (free, claimed) = (ClaimWord::open(seq).0, ClaimWord::open(end).0);
        let claim = self.core.control.positions.claim();
        let swapped = twin!("claim-by-store": claim.compare_exchange(free, claimed, Relaxed, Relaxed) => {
            claim.store(claimed, Relaxed);
            Ok(free)
        });
        swapped.map_err(ClaimWord)?;
        self.next = end;
        Ok(seq)
    }

    /// Claims `len` positions after other producers have moved the claim word to `word`. The claim
    /// starts at the position in `word`.
    #[inline(never)]
    fn claim_again(&mut self, word: ClaimWord, len: u64) -> Result<u64, Refusal> {
        self.next = self.open_position(word)?;
        if !self.knows_room(len) {
            self.find_shared_room(len)?;
        }
        self.swap_claim_word(len).map_err(|_| Refusal::Contended)
    }

    /// Loads the position up to which producers have claimed.
    ///
    /// Called only if another handle may have moved the claim word. Each skipped call saves a load
    /// that would wait for this handle's own last store to the claim word.
    #[inline(always)]
    fn read_claim_word(&self) -> Result<u64, Refusal> {
        self.open_position(ClaimWord(self.core.control.positions.claim().load(Relaxed)))
    }

    /// Returns the position in `word`, unless the ring is closed to claims.
    #[inline(always)]
    fn open_position(&self, word: ClaimWord) -> Result<u64, Refusal> {
        if word.is_closed() {
            Err(Refusal::Wait(WaitError::Closed))
        } else {
            Ok(word.seq(self.next))
        }
    }

    /// Like [`Producer::find_room`], but begins at the last position of the claim word that this
    /// handle has seen.
    #[cold]
    fn find_shared_room(&mut self, len: u64) -> Result<(), Refusal> {
        self.next = self.core.control.positions.claim_at(
            &self.core.control.plan,
            ClaimWord::open(self.next),
            self.next,
        );
        self.find_room(len)
    }

    /// Takes one position without waiting, or returns `None` if the ring is full. An error says
    /// that the graph has ended, or that a process has died.
    #[inline]
    pub(crate) fn reserve_now(&mut self) -> Result<Option<u64>, WaitError> {
        loop {
            match self.reserve(1) {
                Ok(seq) => return Ok(Some(seq)),
                Err(Refusal::Gated(_)) => {
                    self.flush_if_new();
                    return self.refused().map_or(Ok(None), Err);
                }
                Err(Refusal::Contended) => spin_loop(),
                Err(Refusal::Wait(error)) => return Err(error),
            }
        }
    }

    // Waiting for positions.

    #[inline(always)]
    pub(crate) fn reserve_by(
        &mut self,
        len: u64,
        deadline: Option<Instant>,
    ) -> Result<u64, ClaimError> {
        match self.reserve(len) {
            Ok(seq) => Ok(seq),
            Err(refusal) => self.wait_for_room_by(len, refusal, deadline),
        }
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
        let mut round = 0u64;
        loop {
            match refusal {
                Refusal::Wait(error) => return Err(error.into()),
                Refusal::Contended if round % 64 == 63 && is_over() => {
                    let control = &self.core.control;
                    return Err(ClaimError::TimedOut(
                        control.plan.name_of(control.plan.producer_party()),
                    ));
                }
                Refusal::Contended => spin_loop(),
                Refusal::Gated(slowest) if round != 0 && is_over() => {
                    return Err(ClaimError::TimedOut(self.core.control.plan.name_of(slowest)));
                }
                // If this thread may run stages of the graph, it runs one batch of one stage, which
                // may make room.
                Refusal::Gated(_) if !is_over() && helper::step(&self.core.control, deadline) => {}
                Refusal::Gated(slowest) => self.wait(len, slowest, deadline)?,
            }
            match self.reserve(len) {
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
        self.flush();
        let len = S::within_end(self, self.next, len);
        let (core, next) = (&*self.core, self.next);
        let control = &core.control;
        let full_ring = control.plan.full_ring(next, len).filter(|_| !helper::is_there(control));
        let waiter = Waiter {
            full_ring,
            until: deadline,
            ..Waiter::new(control.plan.producer_party(), slowest, next)
        };
        let mut room = Room::<E, L, S> { core, next, len, deadline, slowest, sharing: PhantomData };
        let learned = &mut self.learned;
        let (waited, stats) = helper::waiting(control, || control.wait(waiter, learned, &mut room));
        let slowest = room.slowest;
        self.counts.wait(slowest, stats);
        let error = match waited {
            Ok(()) => return Ok(()),
            Err(Unmet::Ended(error)) => error.into(),
            Err(Unmet::TimedOut) => ClaimError::TimedOut(control.plan.name_of(slowest)),
        };
        self.flush();
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
        loop {
            match self.reserve(len) {
                Ok(seq) => return Poll::Ready(Ok(seq)),
                Err(Refusal::Wait(error)) => return Poll::Ready(Err(error)),
                Err(Refusal::Contended) => spin_loop(),
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

    fn watch(&mut self, waiter: &Waiter) -> Option<WaitError> {
        let ring = self.core.watched(&|| false);
        self.core.world.watch(ring, waiter)
    }

    fn notice(&self) -> Option<Duration> {
        self.core.world.notice()
    }
}
