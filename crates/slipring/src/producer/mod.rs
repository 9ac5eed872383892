//! Claiming, filling and publishing: the producers' side.
//!
//! Invariants
//! - I1: `[seq, seq + len)` is claimed by one handle at a time: a single producer's `next` is its
//!   own; many producers move a shared word by compare-and-swap, and only to what the gating stages
//!   have let go of (or, with no stage, to what is fully published).
//! - I2: so the claimed slots are this handle's alone until it stamps them: no stage looks at an
//!   unstamped position, and no producer claims it again before every stage has passed it.
//! - I3: every position that many producers claimed gets a stamp: the claim's publication, its
//!   tombstone when it is dropped, or, if it was forgotten, a tombstone at the handle's next use or
//!   drop. What a single producer did not publish it claims again.
//! - I4: the last position is stated once, by whoever closes; nothing is claimed after it.

pub(crate) mod claim;
pub(crate) mod conflate;
pub(crate) mod publish;

use std::fmt;
use std::marker::PhantomData;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::base::edge;
use crate::base::sync::{Relaxed, panicking, twin};
use crate::errors::{BatchError, Cause, ClaimError, WaitError};
use crate::producer::claim::Slots;
use crate::ring::control::Waiter;
use crate::ring::core::Core;
use crate::ring::counters::LocalCounts;
use crate::ring::membership::Company;
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::{Interleaved, Layout, Storage as _, View};
use crate::ring::task_number::TaskNumber;
use crate::ring::words::{ClaimWord, ahead};
use crate::wait::HandleLearner;
use crate::wait::queue::QuietCheck;

pub(crate) mod sealed {
    pub trait Sharing: 'static {
        const MANY: bool;
    }
    impl Sharing for super::Single {
        const MANY: bool = false;
    }
    impl Sharing for super::Many {
        const MANY: bool = true;
    }
}

/// Marks the producer of a ring that has only one.
pub struct Single(());
/// Marks a producer of a ring that may have several; its handles can be cloned.
pub struct Many(());

/// The producers' handle of a ring with one producer (the default), or with several
/// ([`SharedProducer`]).
///
/// - `publish` fills one slot in place and makes it visible. `claim` and `claim_n` lend slots to
///   fill at leisure; nothing behind them is seen by the stages before they are published or given
///   up.
/// - Dropping the producer (the last clone, if there are several) closes the ring; the stages drain
///   it.
/// - A slot holds what was there a lap ago: reset everything that matters.
// on lines of its own: it is written at every step, and what lies beside it may be another thread's
#[repr(align(128))]
pub struct Producer<E, L: Layout = Interleaved, S: sealed::Sharing = Single> {
    core: Owner<E, L>,
    slots: View<E, L>,
    /// Single: the next position to claim. Many: the newest position this handle has seen claimed.
    next: u64,
    /// The gating stages are known to have let go of everything before `limit - capacity`.
    limit: u64,
    /// A claim of this handle that is neither published nor given up. Many only.
    open: Option<(u64, u64)>,
    /// Under which its tasks wait.
    number: TaskNumber,
    /// Whether a publication takes the long way: it is told to others than those who look at
    /// stamps, or at the cursor where there are none; or it may lie in a lap in which stamps are
    /// refreshed.
    long_way: bool,
    /// Whether it takes the long way in every lap.
    always_long_way: bool,
    learned: HandleLearner,
    /// Whether a publication has to be rung for.
    quiet_check: QuietCheck,
    counts: LocalCounts,
    /// What of them the graph's counters know.
    flushed: LocalCounts,
    /// How many events were published together with one before them. What the counts tell of a
    /// single producer's events and batches is worked out from this and its position, so that
    /// publishing one event counts nothing.
    joined: u64,
    /// Its thread was unwinding already when this was made, or it was closed by name: that the
    /// thread panics says nothing about it.
    excused: bool,
    sharing: PhantomData<S>,
}

/// A handle of a ring that many producers share; clone it for each.
pub type SharedProducer<E, L = Interleaved> = Producer<E, L, Many>;

/// Why a claim did not succeed at once.
pub(crate) enum Refusal {
    Gated(usize),
    Contended,
    Wait(WaitError),
}

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// `learned`: made before this counts the handle, for that is the user's code.
    pub(crate) fn new(core: Owner<E, L>, learned: HandleLearner) -> Self {
        core.control.membership.add_producer();
        let start = core.control.start;
        let next = if S::MANY { core.control.claimed(start).0 } else { start };
        // With many, others may have claimed up to `next`; all that is known then is that they were
        // allowed to.
        let limit = if S::MANY { next } else { start.wrapping_add(core.capacity()) };
        let plan = &core.control.plan;
        let always_long_way = core.control.counters.samples.is_some()
            || !plan.producer_partitions.is_empty()
            || (!S::MANY && plan.cursor && plan.stamped);
        Producer {
            slots: core.slots,
            next,
            limit,
            open: None,
            learned,
            quiet_check: core.control.quiet_check(),
            counts: LocalCounts::default(),
            flushed: LocalCounts::default(),
            number: TaskNumber::default(),
            long_way: always_long_way || core.may_refresh(next, limit),
            always_long_way,
            joined: 0,
            excused: panicking(),
            sharing: PhantomData,
            core,
        }
    }

    /// The producer of a chain: a panic of the strategy fails the graph.
    pub(crate) fn of_chain(core: &Owner<E, L>) -> Self {
        Producer::new(core.clone(), core.control.learner_contained(core.control.producer_party()))
    }

    /// The event cell of a position that this handle has claimed.
    #[inline(always)]
    pub(crate) fn cell(&self, seq: u64) -> *mut E {
        self.slots.event(seq)
    }

    /// Where this handle stands, as far as it knows.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next
    }

    pub(crate) fn view(&self) -> View<E, L> {
        self.slots
    }

    pub(crate) fn core(&self) -> &Owner<E, L> {
        &self.core
    }

    /// How many slots the ring has.
    pub fn capacity(&self) -> usize {
        self.core.capacity() as usize
    }

    /// How many slots could be claimed at this moment. Stages may free more at any time, and other
    /// producers may take some.
    ///
    /// Asks the gating stages: about what a claim costs that has to ask them.
    #[doc(alias = "remainingCapacity")]
    pub fn remaining(&mut self) -> usize {
        self.settle();
        self.room()
    }

    /// As [`Producer::remaining`], where a claim may be open.
    pub(crate) fn room(&mut self) -> usize {
        if S::MANY {
            self.next = self.core.control.claimed(self.next).0;
        }
        let _ = self.find_room(1);
        ahead(self.limit, self.next).clamp(0, self.capacity() as i64) as usize
    }

    /// Closes this handle, as dropping it does. When it is the ring's only one, or the last, the
    /// stages drain what was published, and end.
    pub fn close(mut self) {
        self.excused = true;
    }

    /// Ends the graph at once: what was published and not yet seen stays unseen, and all blocking
    /// calls come back with [`WaitError::Halted`].
    pub fn halt(&self) {
        self.core.control.halt();
    }

    #[inline]
    pub(crate) fn check_length(&self, asked: usize) -> Result<(), ClaimError> {
        let capacity = self.capacity();
        if (1..=capacity).contains(&asked) {
            Ok(())
        } else {
            Err(ClaimError::Length { asked, capacity })
        }
    }

    #[inline]
    pub(crate) fn lend(&mut self, seq: u64, len: usize) -> Slots<'_, E, L, S> {
        self.core.touch(seq, len as u64, true);
        self.open_claim(Some((seq, len as u64)));
        Slots::new(self, seq, len)
    }

    // Reserving positions.

    pub(crate) fn try_reserve(&mut self, len: u64) -> Result<u64, ClaimError> {
        self.reserve(len).map_err(|refusal| match refusal {
            Refusal::Gated(party) => {
                let stage = self.core.control.name(party);
                let lag = self.core.lag(party, self.next);
                ClaimError::Gated { stage, lag }
            }
            Refusal::Contended => ClaimError::Contended,
            Refusal::Wait(closed) => ClaimError::Wait(closed),
        })
    }

    /// Takes `len` positions if they are free now.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, len: u64) -> Result<u64, Refusal> {
        self.core.control.check_running().map_err(Refusal::Wait)?;
        if S::MANY {
            return self.reserve_shared(len);
        }
        if self.limit.wrapping_sub(self.next) < len {
            self.find_room(len)?;
        }
        Ok(self.next)
    }

    #[inline]
    fn reserve_shared(&mut self, len: u64) -> Result<u64, Refusal> {
        self.settle();
        let company = self.core.control.membership.company();
        if company != Company::Never {
            self.read_claim_word(company)?;
        }
        // There is never more room than slots. If there seems to be, the handle was unused while
        // others went so far that its limit, or the position widened from its own, says nothing.
        let (room, capacity) = (self.limit.wrapping_sub(self.next), self.slots.mask() + 1);
        if room.wrapping_sub(len) > capacity.wrapping_sub(len) {
            self.next = self.core.control.claim_at(ClaimWord::open(self.next), self.next);
            self.find_room(len)?;
        }
        let seq = self.next;
        let (free, claimed) = (ClaimWord::open(seq).0, ClaimWord::open(seq.wrapping_add(len)).0);
        let claim = self.core.control.positions.claim();
        if company != Company::Now {
            // A swap would take as long as all the rest.
            claim.store(claimed, Relaxed);
        } else {
            let swapped = twin!("claim-by-store": claim.compare_exchange(free, claimed, Relaxed, Relaxed) => {
                claim.store(claimed, Relaxed);
                Ok(free)
            });
            swapped.map_err(|_| Refusal::Contended)?;
        }
        self.next = seq.wrapping_add(len);
        Ok(seq)
    }

    /// Learns from the claim word how far others have claimed. A sole maker whose company has long
    /// gone does not call this: that load would wait for the handle's own last store to the word.
    #[inline(always)]
    fn read_claim_word(&mut self, company: Company) -> Result<(), Refusal> {
        // Relaxed throughout: the word says whose a position is, and nothing else. That its slot is
        // free says the gate, which this handle loads itself.
        let word = ClaimWord(self.core.control.positions.claim().load(Relaxed));
        if word.is_closed() {
            return Err(Refusal::Wait(WaitError::Closed));
        }
        self.next = word.seq(self.next);
        if twin!("settled-in-company": company == Company::Earlier => true) {
            self.core.control.membership.settle_alone();
        }
        Ok(())
    }

    /// Asks the gating stages how far they have come.
    #[cold]
    fn find_room(&mut self, len: u64) -> Result<(), Refusal> {
        let capacity = self.core.capacity();
        let lower_bound = self.next.wrapping_sub(capacity);
        let (gate, slowest) = self.core.pass_gate(lower_bound);
        // The first guard: no frontier is less than what its reader knows, so the limit is not
        // behind `next`.
        debug_assert!(
            S::MANY || ahead(gate, lower_bound) >= 0,
            "the gate is behind what this producer knows"
        );
        let limit = gate.wrapping_add(capacity);
        // The second guard. A look may tell less than one before: a joiner that is about to learn
        // that it is too late, a worker that lost a race. What one producer was allowed it stays
        // allowed: an open claim may lie between `next` and the limit, and `commit` moves `next`
        // behind it.
        if S::MANY || ahead(limit, self.limit) > 0 {
            self.limit = limit;
        }
        // All that is claimed until this is asked again lies in the lap before the limit, and a
        // claim that is open already in one before that, for it holds up the others. Not from
        // `next` on: others may have gone on since it was read.
        self.long_way = self.always_long_way
            || self.core.may_refresh(self.limit.wrapping_sub(capacity), self.limit);
        if (self.limit.wrapping_sub(self.next) as i64) < len as i64 {
            Err(Refusal::Gated(slowest))
        } else {
            Ok(())
        }
    }

    /// Takes a position if the ring has room now; `None`: it is full.
    #[inline]
    pub(crate) fn reserve_now(&mut self) -> Result<Option<u64>, WaitError> {
        loop {
            match self.reserve(1) {
                Ok(seq) => return Ok(Some(seq)),
                Err(Refusal::Gated(_)) => return Ok(None),
                Err(Refusal::Contended) => crate::base::sync::spin_loop(),
                Err(Refusal::Wait(closed)) => return Err(closed),
            }
        }
    }

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

    /// Takes `len` positions, however long that takes: no timeout of the strategy's ends it.
    #[inline(always)]
    pub(crate) fn reserve_patiently(&mut self, len: u64) -> Result<u64, WaitError> {
        loop {
            match self.reserve_by(len, None) {
                Err(ClaimError::TimedOut { .. }) => {}
                settled => return settled.map_err(ClaimError::without_deadline),
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
        loop {
            match refusal {
                Refusal::Wait(closed) => return Err(closed.into()),
                Refusal::Contended => crate::base::sync::spin_loop(),
                Refusal::Gated(slowest) => self.wait(len, slowest, deadline)?,
            }
            match self.reserve(len) {
                Ok(seq) => return Ok(seq),
                Err(again) => refusal = again,
            }
        }
    }

    fn wait(
        &mut self,
        len: u64,
        slowest: usize,
        deadline: Option<Instant>,
    ) -> Result<(), ClaimError> {
        self.flush();
        let (core, next) = (&*self.core, self.next);
        let control = &core.control;
        let waiter = Waiter { party: control.producer_party(), waits_for: slowest, at: next };
        let (waited, stats) = control.wait_at(
            waiter,
            &mut self.learned,
            deadline,
            &mut || self_wait::stuck(control, next.wrapping_add(len).wrapping_sub(core.capacity())),
            &mut || Self::may_claim(core, next, len),
        );
        self.counts.wait(slowest, stats);
        let error = match waited {
            Ok(()) => return Ok(()),
            Err(BatchError::Wait(closed)) => closed.into(),
            Err(_) => ClaimError::TimedOut { stage: control.name(slowest) },
        };
        self.flush();
        Err(error)
    }

    /// Whether `len` positions might be claimed now, or never will. `next`: where this handle
    /// stands, as far as it knows. Changes nothing but the sentinel, and rings nothing, so it may
    /// run under a bell's lock.
    fn may_claim(core: &Core<E, L>, next: u64, len: u64) -> bool {
        let (control, capacity) = (&core.control, core.capacity());
        let (next, closed) = if S::MANY { control.claimed(next) } else { (next, false) };
        let (gate, _) = core.gate(next.wrapping_sub(capacity));
        closed
            || !control.is_running()
            || gate.wrapping_add(capacity).wrapping_sub(next) as i64 >= len as i64
    }

    /// Takes `len` positions if they are free now; if not, has a task woken when they may be.
    pub(crate) fn reserve_or_arm(
        &mut self,
        len: u64,
        waker: &Waker,
    ) -> Poll<Result<u64, WaitError>> {
        loop {
            match self.reserve(len) {
                Ok(seq) => return Poll::Ready(Ok(seq)),
                Err(Refusal::Wait(closed)) => return Poll::Ready(Err(closed)),
                Err(Refusal::Contended) => crate::base::sync::spin_loop(),
                Err(Refusal::Gated(_)) if !self.arm_for(len, waker) => return Poll::Pending,
                Err(Refusal::Gated(_)) => {}
            }
        }
    }

    pub(crate) fn arm_for(&mut self, len: u64, waker: &Waker) -> bool {
        self.settle();
        let number = self.number.get(&self.core.control);
        let (core, next) = (&*self.core, self.next);
        // As for a consumer.
        if core.control.status.overdue().is_some() && !Self::may_claim(core, next, len) {
            core.control.expire(core.control.producer_party(), next);
        }
        core.control.arm(core.control.producer_party(), number, waker, &mut || {
            Self::may_claim(core, next, len)
        })
    }

    pub(crate) fn disarm(&mut self) {
        if let Some(number) = self.number.taken() {
            self.core.control.queue_of(self.core.control.producer_party()).disarm(number);
        }
    }

    /// States the last position: whatever the claim word says at the moment it is closed (I4).
    fn close_shared(&self) {
        let claim = self.core.control.positions.claim();
        let word = ClaimWord(
            twin!("close-by-load": claim.fetch_or(ClaimWord::CLOSED, Relaxed) => claim.load(Relaxed)),
        );
        if !word.is_closed() {
            self.core.control.close(
                twin!("closed-short": self.core.control.claim_at(word, self.next) => self.next),
            );
        }
    }

    // Ends of a claim.

    /// Where somebody keeps times, goes by keys, or follows a cursor besides the stamps.
    #[inline(never)]
    fn commit_long_way(&mut self, seq: u64, len: u64) {
        let core = &*self.core;
        twin!("partitioned-late": core.partition(&core.control.plan.producer_partitions, core.control.producer_party(), seq, len) => ());
        if let Some(samples) = &self.core.control.counters.samples {
            samples.publishing(seq, len, true);
        }
        if !S::MANY && View::<E, L>::CURSOR {
            self.core.publish_to(seq.wrapping_add(len));
        } else if !S::MANY && core.control.plan.cursor {
            self.core.publish_with_cursor(seq, len);
        } else {
            self.core.stamp_runs(seq, len);
        }
        twin!("partitioned-late": () => core.partition(&core.control.plan.producer_partitions, core.control.producer_party(), seq, len));
    }

    #[inline(always)]
    pub(crate) fn commit(&mut self, seq: u64, len: u64) {
        self.core.touch(seq, len, true);
        if self.long_way {
            self.commit_long_way(seq, len);
        } else if View::<E, L>::CURSOR && !S::MANY {
            self.core.publish_to(seq.wrapping_add(len));
        } else {
            self.core.publish(seq, len);
        }
        if S::MANY {
            self.counts.events = self.counts.events.wrapping_add(len);
        } else {
            self.next = seq.wrapping_add(len);
            debug_assert!(
                ahead(self.limit, self.next) >= 0,
                "what was claimed is no longer allowed"
            );
        }
        if len != 1 {
            self.joined = self.joined.wrapping_add(len.wrapping_sub(1));
        }
        edge::announced::order_quiet_check(); // publication before the check (queue::I4)
        // SAFETY: queue::I5; the core is alive.
        if !unsafe { self.quiet_check.is_quiet() } {
            self.core.control.notify_publication();
        }
    }

    /// As if so many more events had been published together with one before them.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn count_joined(&mut self, events: u64) {
        self.joined = self.joined.wrapping_add(events);
    }

    /// Tells the graph's counters what this handle has counted.
    fn flush(&mut self) {
        let control = &self.core.control;
        if !S::MANY {
            self.counts.events = self.next.wrapping_sub(control.start);
        }
        self.counts.batches = self.counts.events.wrapping_sub(self.joined);
        control.count(control.producer_party(), &self.counts, &self.flushed);
        self.flushed = self.counts;
    }

    #[cold]
    pub(crate) fn give_up(&mut self, seq: u64, len: u64) {
        // A single producer claims the same positions again (I3).
        if S::MANY && len != 0 {
            if let Some(samples) = &self.core.control.counters.samples {
                samples.publishing(seq, len, false);
            }
            twin!("given-up-unburied": self.core.bury(seq, len) => ());
            self.counts.tombstones += len;
        }
    }

    /// What this handle has claimed and neither published nor given up.
    #[inline(always)]
    pub(crate) fn open_claim(&mut self, open: Option<(u64, u64)>) {
        if S::MANY {
            self.open = open;
        }
    }

    /// An event was dropped instead of published.
    pub(crate) fn dropped(&mut self) {
        self.counts.dropped += 1;
        self.flush();
    }

    /// A claim of this handle has come to its end.
    #[inline(always)]
    pub(crate) fn ended(&mut self) {
        self.open = None;
    }

    /// Buries the open claim, if there is one: it was forgotten, or its raw handle gives it up.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        // Asked first: to take it would store at every claim.
        if self.open.is_some() {
            self.bury();
        }
    }

    #[cold]
    fn bury(&mut self) {
        if let Some((seq, len)) = self.open.take() {
            twin!("forgotten-unburied": self.give_up(seq, len) => ());
        }
    }
}

impl<E, L: Layout> Producer<E, L, Many> {
    /// Closes the ring for all its producers. Claims that were made before are still published or
    /// given up, and drained; later ones are refused with [`WaitError::Closed`].
    pub fn close_all(mut self) {
        self.settle();
        self.close_shared();
        self.excused = true;
    }
}

impl<E, L: Layout> Clone for Producer<E, L, Many> {
    fn clone(&self) -> Self {
        let learned = self.core.control.learner(self.core.control.producer_party());
        Producer::new(self.core.clone(), learned)
    }
}

impl<E, L: Layout, S: sealed::Sharing> Drop for Producer<E, L, S> {
    fn drop(&mut self) {
        self.settle();
        self.disarm();
        let control = &self.core.control;
        let fail = || {
            control.fail(control.producer_party(), Some(self.next), Cause::Panic(HELD_PANIC.into()))
        };
        let unwinds = panicking() && !self.excused;
        if unwinds {
            twin!("failed-late": fail() => ());
        }
        // After a failure of this handle. The last handle closes after the failures of all others
        // (`edge::counted_out`), and the claim word says where.
        let last = control.membership.remove_producer();
        twin!("left-unclosed": () => control.membership.remove_maker());
        if last {
            if S::MANY { self.close_shared() } else { control.close(self.next) }
        }
        twin!("failed-late": () => if unwinds {
            fail();
        });
        // After the close: a maker that is left alone by this one finds the closed bit.
        twin!("left-unclosed": control.membership.remove_maker() => ());
        self.flush();
    }
}

/// What is reported when a producer is dropped by a panic that nobody of ours has seen yet.
pub(crate) const HELD_PANIC: &str = "the thread that held the producer panicked";

impl<E, L: Layout, S: sealed::Sharing> fmt::Debug for Producer<E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("next_seq", &self.next)
            .field("capacity", &self.capacity())
            .finish()
    }
}
