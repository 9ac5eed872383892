//! How one of several producers of a process takes positions.
//!
//! A call that does not wait, or that waits until a deadline, moves the claim word by a
//! compare-and-swap, over free slots only. A call that waits without a deadline adds to the claim
//! word: an *early claim*. An addition never fails, however many producers claim at once. But
//! another producer may have taken the last free slots just before, and then the call holds
//! positions whose slots are not free yet, and waits for them.
//!
//! Invariants
//! - I1: the owner of an early claim touches its slots only after the gating stages have released
//!   them. A waiting owner runs no stage and no user code, so nothing but the gating stages delays
//!   it.
//! - I2: the owner publishes its early claim or gives it up, unless the graph was halted, has
//!   failed, or is closed before the claim (`early_claims::I2`).

use std::time::Duration;

use crate::base::sync::{AtomicU64, Relaxed, twin};
use crate::errors::WaitError;
use crate::producer::handle::{Many, Producer, Refusal, WaitingCounts};
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::early_claims::{EarlyClaiming, Fate};
use crate::ring::helper;
use crate::ring::membership::Company;
use crate::ring::self_wait;
use crate::ring::slots::{Layout, Storage as _};
use crate::ring::waits::{Awaited, Unmet, Waiter};
use crate::ring::words::{ClaimWord, ahead};

/// The margin of a handle that never claims early. No ring has this many slots.
pub(super) const NO_EARLY_CLAIMS: u64 = u64::MAX / 2;

/// Returns the number of free slots behind a claim that a handle must know of to claim early.
///
/// While the owner of an early claim waits for its slots, no stage gets past them. That costs
/// nothing if the owner runs when they become free. If the threads outnumber the cores, or if the
/// owner sleeps by a timer, it may come much later, so it claims early only while half of the ring
/// is free: then it is all but certain that it need not wait.
fn margin(control: &Control) -> u64 {
    let half = (control.plan.capacity as u64 / 2).max(1);
    match control.plan.early_claims {
        EarlyClaiming::Never => NO_EARLY_CLAIMS,
        EarlyClaiming::InHalfRing => half,
        EarlyClaiming::WhileCoresSuffice if control.producers_outnumber_cores() => half,
        EarlyClaiming::WhileCoresSuffice => 0,
    }
}

impl<E, L: Layout> Producer<E, L, Many> {
    /// Returns whether the next claim of `len` positions may be an early one.
    ///
    /// A thread that runs a stage of this ring claims free slots only: if it held an early claim,
    /// the stage could wait for the claim, and the claim for the stage.
    #[inline(always)]
    fn may_claim_early(&self, len: u64) -> bool {
        let (control, needed) = (&self.core.control, len + self.sharing.margin);
        needed <= self.slots.mask() + 1
            && self.knows_room(needed)
            && !control.status.is_over()
            && !self_wait::is_inside(control)
            && !helper::is_there(control)
    }

    /// Takes the next `len` positions, even if other producers have just taken the last free slots,
    /// and waits until the slots are free.
    #[inline]
    fn claim_early(&mut self, len: u64) -> Result<u64, Refusal> {
        let expected = self.next;
        let claim = self.claim_word();
        let added = ClaimWord::open(len).0;
        // The addition is relaxed, as all accesses to the claim word are (`swap_claim_word`).
        let word = ClaimWord(twin!("added-by-store": claim.fetch_add(added, Relaxed) => {
            let word = claim.load(Relaxed);
            claim.store(word.wrapping_add(added), Relaxed);
            word
        }));
        self.next = self.open_position(word)?;
        self.sharing.is_undisturbed = self.next == expected;
        if twin!("slots-unawaited": self.knows_room(len) => true) {
            let seq = self.next;
            self.next = seq.wrapping_add(len);
            return Ok(seq);
        }
        self.await_slots(len)
    }

    /// Waits for the slots of the early claim of the `len` positions from `next` on.
    #[cold]
    #[inline(never)]
    fn await_slots(&mut self, len: u64) -> Result<u64, Refusal> {
        let core = &*self.core;
        let control = &core.control;
        let word = ClaimWord::open(self.next);
        self.next = control.positions.claim_at(&control.plan, word, self.next);
        let seq = self.next;
        let mut is_handed_in = false;
        loop {
            let Err(refusal) = self.find_room(len) else { break };
            let Refusal::Gated(slowest) = refusal else { return Err(refusal) };
            let control = &self.core.control;
            control.status.check_running().map_err(Refusal::Wait)?;
            if control.status.is_closed() {
                // The slots may have become free before the close, but that decides nothing: the
                // claim is published only if no other waiting producer has ended the stream here.
                match control.hand_in_claim(seq, len) {
                    Fate::Stays => is_handed_in = true,
                    Fate::Refused => return Err(Refusal::Wait(WaitError::Closed)),
                }
            }
            self.wait_for_slots(len, slowest, is_handed_in)?;
        }
        let early_claims = &self.core.control.early_claims;
        if is_handed_in && !early_claims.take_back(seq) {
            return Err(Refusal::Wait(WaitError::Closed));
        }
        self.next = seq.wrapping_add(len);
        Ok(seq)
    }

    /// Waits until the slots of an early claim may be free, or until the stream may end before
    /// them.
    fn wait_for_slots(
        &mut self,
        len: u64,
        slowest: usize,
        is_handed_in: bool,
    ) -> Result<(), Refusal> {
        let seq = self.next;
        let (core, learned, counts) = self.begin_wait();
        let control = &core.control;
        let mut slots = EarlySlots { core, seq, len, is_handed_in, slowest, counts };
        let waiter = Waiter {
            full_ring: control.plan.full_ring(seq, len),
            ..Waiter::new(control.plan.producer_party(), slowest, seq)
        };
        let run = control.wait(waiter, learned, &mut slots);
        let slowest = slots.slowest;
        self.counts.wait(slowest, run.time(), run.sleeps);
        match run.unmet {
            Some(Unmet::Ended(error)) => {
                debug_assert!(!self.core.control.status.is_running(), "I2: an early claim is lost");
                self.flush_counts();
                Err(Refusal::Wait(error))
            }
            // These waits have no deadline but that of the graph, whose end the caller notices.
            None | Some(Unmet::TimedOut) => Ok(()),
        }
    }

    /// Returns the word by which the producers claim.
    #[inline(always)]
    fn claim_word(&self) -> &AtomicU64 {
        // SAFETY: direct::I1; the core is alive.
        unsafe { self.word.get() }
    }

    // Claims over free slots.

    /// Takes positions, whether or not this process has other handles. The path of a handle that
    /// has always been alone is inlined wherever a program publishes, because a function call would
    /// cost as much as the claim itself. A `patient` call waits without a deadline, and may claim
    /// early.
    #[inline(always)]
    pub(super) fn reserve_shared(&mut self, len: u64, patient: bool) -> Result<u64, Refusal> {
        self.give_up_open_claim();
        match self.core.control.membership.company() {
            Company::Never => {}
            Company::Now if self.sharing.is_undisturbed && self.knows_room(len) => {
                return self.claim_undisturbed(len);
            }
            Company::Now if patient && self.may_claim_early(len) => return self.claim_early(len),
            company => return self.reserve_in_company(len, company),
        }
        if !self.knows_room(len) {
            self.find_shared_room(len)?;
        }
        Ok(self.claim_alone(len))
    }

    /// Takes positions, if no other producer has claimed since this handle's last claim.
    ///
    /// While no other producer claims, a compare-and-swap is faster than an addition by 3 to 5 ns:
    /// its position is known beforehand, so the processor fills the slot meanwhile. But it waits
    /// until the handle's earlier stores have their lines. So behind a stage that lags, a later
    /// slot's line is fetched, too. Two producers that take turns on two cores then take 10 to 12
    /// ns an event instead of 12 to 14, and 14 instead of 28 to 35 where the cores are far from
    /// each other (records/2026-11-30-spinning-waits).
    #[inline(always)]
    fn claim_undisturbed(&mut self, len: u64) -> Result<u64, Refusal> {
        let seq = match self.swap_claim_word(len) {
            Ok(seq) => seq,
            Err(word) => return self.claim_again(word, len),
        };
        if ahead(self.fetch_until, seq) > 0 {
            self.fetch_ahead(self.fetch, seq);
        }
        Ok(seq)
    }

    /// Takes positions while no other handle can claim. The handle claims by a store, because a
    /// compare-and-swap would cost as much as the rest of the claim.
    #[inline(always)]
    fn claim_alone(&mut self, len: u64) -> u64 {
        let seq = self.next;
        self.next = seq.wrapping_add(len);
        self.claim_word().store(ClaimWord::open(self.next).0, Relaxed);
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
        let claim = self.claim_word();
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
        self.sharing.is_undisturbed = false;
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
        self.open_position(ClaimWord(self.claim_word().load(Relaxed)))
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
        self.sharing.margin = margin(&self.core.control);
        self.next = self.core.control.positions.claim_at(
            &self.core.control.plan,
            ClaimWord::open(self.next),
            self.next,
        );
        self.find_room(len)
    }
}

/// The condition for which the owner of an early claim waits.
struct EarlySlots<'c, E, L: Layout> {
    core: &'c Core<E, L>,
    /// The first position of the claim.
    seq: u64,
    /// Number of claimed positions.
    len: u64,
    /// Whether the ring is closed, and the claim was handed in.
    is_handed_in: bool,
    /// The stage that still holds the slots.
    slowest: usize,
    counts: WaitingCounts<'c>,
}

impl<E, L: Layout> Awaited for EarlySlots<'_, E, L> {
    fn is_ready(&mut self) -> bool {
        let (control, capacity) = (&self.core.control, self.core.capacity());
        let (gate, slowest) = self.core.gate(self.seq.wrapping_sub(capacity));
        let free = ahead(gate.wrapping_add(capacity), self.seq);
        self.slowest = slowest;
        let is_settled = || {
            control.status.is_closed()
                && (!self.is_handed_in || control.status.ends_before(self.seq))
        };
        free >= self.len as i64
            || !control.status.is_running()
            || twin!("closed-claim-waits": is_settled() => false)
    }

    fn flush_after(&self) -> Option<Duration> {
        self.counts.flush_after()
    }

    fn flush(&mut self) {
        self.counts.flush();
    }
}
