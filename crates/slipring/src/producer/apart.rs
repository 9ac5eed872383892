//! Claims of a producer that shares the ring with producers of other processes.
//!
//! Invariants
//! - I1: the handle's seat holds an intent only while the handle claims, or has a claim. A handle
//!   that waits or gives up has taken back an intent that lost, because a stage that looks for the
//!   end of a closing ring waits for each intent.
//! - I2: a handle publishes the front of its claim, and then the next front, until nothing stays.

use crate::base::sync::twin;
use crate::errors::WaitError;
use crate::producer::handle::{Producer, sealed};
use crate::producer::room::Refusal;
use crate::ring::closing;
use crate::ring::heads::{self, Claim, Lost};
use crate::ring::recovery;
use crate::ring::seat::Seat;
use crate::ring::slots::Layout;
use crate::ring::words::later;

/// Number of times that a call walks on after it lost a position to another producer.
const WALKS: usize = 3;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Returns the seat of this handle, and its number among the producers' seats.
    #[inline(always)]
    fn own_seat(&self) -> (u64, &Seat) {
        let control = &self.core.control;
        let number = self.seat.wrapping_sub(control.plan.first_producer_seat);
        (number as u64, &control.membership.seats[self.seat])
    }

    /// Returns the boundary from which a walk begins: this handle's own, or the one that the last
    /// claimant stored, whichever is later.
    #[inline]
    pub(super) fn hint(&self) -> u64 {
        later(self.next, heads::hint(&self.core.control, self.next))
    }

    /// Takes `len` positions if `len` positions are free now.
    #[inline]
    pub(super) fn reserve_apart(&mut self, len: u64) -> Result<u64, Refusal> {
        self.give_up_open_claim();
        let mut from = self.hint();
        if from == self.next {
            // This handle claimed last. Beside others, a line that is fetched is a line taken away.
            heads::prefetch(&self.core, from);
        }
        for _ in 0..WALKS {
            let free = match heads::first_free(&self.core, from) {
                Ok(free) => free,
                Err(lost) => return Err(self.lost(lost)),
            };
            self.next = free.seq;
            if !self.knows_room(len)
                && let Err(refusal) = self.find_room(len)
            {
                return Err(self.gated(refusal));
            }
            match heads::claim(&self.core, self.own_seat(), free, len) {
                Claim::Won => return Ok(self.won(len)),
                Claim::Lost => from = self.next,
                Claim::Closing => {
                    self.take_back();
                    return Err(Refusal::Wait(WaitError::Closed));
                }
            }
        }
        self.take_back();
        Err(Refusal::Contended)
    }

    #[inline(always)]
    fn won(&mut self, len: u64) -> u64 {
        let seq = self.next;
        self.next = seq.wrapping_add(len);
        self.claim_end = self.next;
        heads::set_hint(&self.core.control, self.next);
        seq
    }

    /// Takes back the intent of a claim that another producer won (I1).
    #[cold]
    fn take_back(&self) {
        let control = &self.core.control;
        twin!("intent-kept": self.own_seat().1.intend_nothing() => ());
        // A stage of a closing ring may wait for the intent.
        control.notify(&control.plan.producer_notifies);
    }

    #[cold]
    fn lost(&mut self, lost: Lost) -> Refusal {
        self.take_back();
        match lost {
            Lost::Overtaken(at) => {
                self.next = at;
                Refusal::Contended
            }
            Lost::Damaged => Refusal::Wait(WaitError::Damaged),
        }
    }

    #[cold]
    fn gated(&self, refusal: Refusal) -> Refusal {
        self.take_back();
        if self.core.control.status.is_closing() {
            Refusal::Wait(WaitError::Closed)
        } else if heads::is_out_of_reach(&self.core, self.next) {
            Refusal::Wait(WaitError::Damaged)
        } else {
            refusal
        }
    }

    /// Called before the positions `[seq, seq + len)` are published. If they are the front of the
    /// claim, the rest gets a head of its own.
    #[inline(always)]
    pub(super) fn begin_front(&mut self, seq: u64, len: u64) {
        let end = seq.wrapping_add(len);
        if end != self.claim_end {
            twin!("front-first": heads::split(&self.core, self.own_seat(), end) => ());
        }
    }

    /// Called after the positions were published.
    #[inline(always)]
    pub(super) fn end_front(&mut self, seq: u64, len: u64) {
        let end = seq.wrapping_add(len);
        if end != self.claim_end {
            twin!("front-first": () => heads::split(&self.core, self.own_seat(), end));
            self.own_seat().1.shorten(end);
        }
    }

    /// Ends the producer of this handle, whose claim was published or given up. If `leaves`, the
    /// last producer closes the ring.
    pub(crate) fn leave_seat(&self, leaves: bool) {
        let control = &self.core.control;
        let (_, seat) = self.own_seat();
        seat.intend_nothing();
        if leaves {
            // A producer that has died does not keep the ring open.
            control.settle_dead_producers(&|dead| recovery::settle(&self.core, dead));
            closing::leave(control, seat);
        } else {
            control.notify(&control.plan.producer_notifies);
        }
        seat.free(control.membership.participant); // SYNC[seated]: last
    }
}
