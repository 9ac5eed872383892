//! Claims of a producer that shares the ring with producers of other processes.
//!
//! Invariants
//! - I1: a handle claims only after its last claim has ended (`claims::I1`).
//! - I2: a handle publishes the front of its claim, and then the next front, until nothing stays.

use crate::base::sync::twin;
use crate::errors::WaitError;
use crate::producer::handle::{Producer, sealed};
use crate::producer::room::Refusal;
use crate::ring::claims;
use crate::ring::closing;
use crate::ring::recovery;
use crate::ring::seat::Seat;
use crate::ring::slots::Layout;
use crate::ring::words::{SeatedClaim, ahead};

/// Number of times that a call tries to claim while other producers claim.
const TRIES: usize = 3;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Returns the seat of this handle, and its number among the producers' seats.
    #[inline(always)]
    fn own_seat(&self) -> (u64, &Seat) {
        let control = &self.core.control;
        let number = self.seat.wrapping_sub(control.plan.first_producer_seat);
        (number as u64, &control.membership.seats[self.seat])
    }

    /// From now on, a claim of this handle that would cross the ring's end takes the positions
    /// before it only.
    pub(crate) fn stop_at_end(&mut self) {
        self.stops_at_end = S::APART;
    }

    /// Returns how many positions a claim of `len` positions from `seq` on takes.
    #[inline(always)]
    pub(crate) fn within_end(&self, seq: u64, len: u64) -> u64 {
        if S::APART && self.stops_at_end {
            let at = seq & (self.core.capacity() - 1);
            return len.min(self.core.capacity() - at);
        }
        len
    }

    /// Takes `len` positions if `len` positions are free now, or those before the ring's end.
    #[inline]
    pub(super) fn reserve_apart(&mut self, len: u64) -> Result<u64, Refusal> {
        self.give_up_open_claim();
        // The swap itself finds out whether another producer has claimed since. A load before the
        // swap would fetch the claim word's cache line once more while other producers claim.
        let asked = len;
        let len = self.within_end(self.next, asked);
        if self.next == self.claim_end && self.knows_room(len) {
            let own = SeatedClaim::new(self.claim_end, self.own_seat().0);
            if claims::claim(&self.core.control, self.own_seat(), (own, self.next), len) {
                let seq = self.won(len);
                // Beside others, a line that is fetched is a line taken away.
                claims::prefetch(&self.core, self.next);
                return Ok(seq);
            }
        }
        self.reserve_behind(asked)
    }

    /// Takes `asked` positions behind the last claim, which may be another producer's.
    #[inline(never)]
    fn reserve_behind(&mut self, asked: u64) -> Result<u64, Refusal> {
        let control = &self.core.control;
        if twin!("closing-overlooked": control.status.is_closing() => false) {
            control.positions.close_claims(); // closing::I1
            return Err(Refusal::Wait(WaitError::Closed));
        }
        for _ in 0..TRIES {
            let last = self.core.control.positions.last_claim();
            if last.is_closed() {
                return Err(Refusal::Wait(WaitError::Closed));
            }
            let seq = last.seq(self.next);
            if ahead(seq, self.next) < 0 {
                return Err(Refusal::Wait(WaitError::Damaged));
            }
            self.next = seq;
            let len = self.within_end(seq, asked);
            if !self.knows_room(len)
                && let Err(refusal) = self.find_room(len)
            {
                return Err(self.gated(refusal));
            }
            let is_others = last.seat() != self.own_seat().0;
            if twin!("recorded-late": is_others => false) {
                claims::record(&self.core, last, seq);
            }
            if claims::claim(&self.core.control, self.own_seat(), (last, seq), len) {
                twin!("recorded-late": () => claims::record(&self.core, last, seq));
                return Ok(self.won(len));
            }
        }
        Err(Refusal::Contended)
    }

    #[inline(always)]
    fn won(&mut self, len: u64) -> u64 {
        let seq = self.next;
        self.next = seq.wrapping_add(len);
        self.claim_end = self.next;
        seq
    }

    #[cold]
    fn gated(&self, refusal: Refusal) -> Refusal {
        if self.core.control.status.is_closing() {
            Refusal::Wait(WaitError::Closed)
        } else if claims::is_out_of_reach(&self.core, self.next) {
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
            twin!("front-first": claims::split(&self.core, self.own_seat(), end) => ());
        }
    }

    /// Called after the positions were published.
    #[inline(always)]
    pub(super) fn end_front(&mut self, seq: u64, len: u64) {
        let end = seq.wrapping_add(len);
        if end != self.claim_end {
            twin!("front-first": () => claims::split(&self.core, self.own_seat(), end));
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
