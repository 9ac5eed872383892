//! Claims of a producer that shares the ring with producers of other processes.
//!
//! Invariants
//! - I1: a handle claims only after its last claim has ended (`claims::I1`).
//! - I2: a handle publishes the front of its claim, and then the front of the rest, until no rest
//!   is left, or until it gives the rest up.

use crate::base::sync::twin;
use crate::errors::WaitError;
use crate::processes::claims::{self, ProducerSeat};
use crate::processes::closing;
use crate::producer::sealed::Sharing;
use crate::producer::{Producer, Refusal};
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::ring::words::{SeatedClaim, ahead};
use crate::ring::world::World as _;
use crate::wait::HandleLearner;

/// Marks one of several producers of a segment that processes share. It cannot be cloned, because a
/// segment has room for a declared number of producers.
pub struct Apart {
    /// Index of the handle's seat.
    seat: usize,
    /// End of the handle's last claim.
    claim_end: u64,
    /// Whether a claim of this handle stops at the ring's end, instead of continuing at the first
    /// slot.
    stops_at_end: bool,
}

/// Number of times that a call which does not wait tries to claim while other producers claim. A
/// call that waits tries once before each pause, so that producers which have lost do not take the
/// claim word's line from each other.
const TRIES: usize = 3;

#[allow(private_interfaces)]
impl Sharing for Apart {
    const MANY: bool = true;

    fn at(next: u64) -> Self {
        Apart { seat: 0, claim_end: next, stops_at_end: false }
    }

    #[inline(always)]
    fn reserve<E, L: Layout>(
        producer: &mut Producer<E, L, Apart>,
        len: u64,
    ) -> Result<u64, Refusal> {
        producer.reserve_apart(len, TRIES)
    }

    #[inline(always)]
    fn reserve_patiently<E, L: Layout>(
        producer: &mut Producer<E, L, Apart>,
        len: u64,
    ) -> Result<u64, Refusal> {
        producer.reserve_apart(len, 1)
    }

    #[inline(always)]
    fn within_end<E, L: Layout>(producer: &Producer<E, L, Apart>, seq: u64, len: u64) -> u64 {
        if producer.sharing.stops_at_end {
            let at = seq & (producer.core.capacity() - 1);
            return len.min(producer.core.capacity() - at);
        }
        len
    }

    fn stop_at_end(&mut self) {
        self.stops_at_end = true;
    }

    fn claimed<E, L: Layout>(core: &Core<E, L>, next: u64) -> (u64, bool) {
        (next, core.control.status.is_closing())
    }

    #[inline(always)]
    fn begin_front<E, L: Layout>(producer: &mut Producer<E, L, Apart>, seq: u64, len: u64) {
        producer.begin_front(seq, len);
    }

    #[inline(always)]
    fn end_front<E, L: Layout>(producer: &mut Producer<E, L, Apart>, seq: u64, len: u64) {
        producer.end_front(seq, len);
    }

    fn leave<E, L: Layout>(producer: &Producer<E, L, Apart>, _last: bool, leaves: bool) {
        producer.leave_seat(!leaves);
    }
}

impl<E, L: Layout> Producer<E, L, Apart> {
    /// Closes the ring for the producers of all processes. The stages drain all claims made before
    /// the close. Claims after the close return
    /// [`WaitError::Closed`](crate::errors::WaitError::Closed).
    ///
    /// A claim that another producer made before the close can still be published or given up.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::errors::WaitError;
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .producers(2)
    ///     .reader("count")
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut one, mut other) = (attached.shared_producer()?, attached.shared_producer()?);
    /// let mut reader = attached.reader("count")?;
    /// one.publish(|slot| *slot = 1)?;
    /// one.close_all();
    /// assert!(matches!(other.publish(|slot| *slot = 2), Err(WaitError::Closed)));
    /// assert_eq!(reader.for_each(|_, _| ())?, 1);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_all(mut self) {
        self.give_up_open_claim();
        self.core.control.begin_closing();
        self.ignores_panic = true;
    }
}

impl<E, L: Layout> Producer<E, L, Apart> {
    /// Creates the producer that owns the seat with the index `seat`, in a ring whose producers are
    /// several processes. `from` is the claim word's position.
    pub(crate) fn seated(
        core: Owner<E, L>,
        seat: usize,
        from: u64,
        learned: HandleLearner,
    ) -> Self {
        let mut producer: Self = Producer::new(core, learned);
        (producer.next, producer.limit, producer.sharing.seat) = (from, from, seat);
        producer
    }

    /// Returns the seat of this handle.
    #[inline(always)]
    fn own_seat(&self) -> ProducerSeat<'_> {
        let control = &self.core.control;
        let number = self.sharing.seat.wrapping_sub(control.plan.first_producer_seat);
        ProducerSeat { number: number as u64, words: &control.membership.seats[self.sharing.seat] }
    }

    /// Takes `len` positions if they are free now. Near the ring's end, takes only the positions
    /// before the end. After `tries` lost races, the result is [`Refusal::Contended`].
    #[inline]
    fn reserve_apart(&mut self, len: u64, tries: usize) -> Result<u64, Refusal> {
        self.give_up_open_claim();
        // The compare-and-swap itself finds out whether another producer has claimed meanwhile. A
        // load before the swap would fetch the claim word's cache line once more while other
        // producers claim.
        let asked = len;
        let len = Apart::within_end(self, self.next, asked);
        if self.next == self.sharing.claim_end && self.knows_room(len) {
            let own = SeatedClaim::new(self.sharing.claim_end, self.own_seat().number);
            let claim = self.next..self.next.wrapping_add(len);
            if claims::claim(&self.core.control, self.own_seat(), own, claim) {
                let seq = self.won(len);
                // The handle fetches the line of a later slot only on this path, where no other
                // producer has claimed since this handle's last claim. While other producers claim,
                // the fetch would take the line away from them.
                claims::prefetch(&self.core, self.next);
                return Ok(seq);
            }
        }
        self.reserve_behind(asked, tries)
    }

    /// Takes `asked` positions behind the last claim, which may belong to another producer.
    #[inline(never)]
    fn reserve_behind(&mut self, asked: u64, tries: usize) -> Result<u64, Refusal> {
        let control = &self.core.control;
        if twin!("closing-overlooked": control.status.is_closing() => false) {
            control.positions.close_claims(); // closing::I1
            return Err(Refusal::Wait(WaitError::Closed));
        }
        for _ in 0..tries {
            let last = self.core.control.positions.last_claim();
            if last.is_closed() {
                return Err(Refusal::Wait(WaitError::Closed));
            }
            let seq = last.seq(self.next);
            if ahead(seq, self.next) < 0 {
                return Err(Refusal::Wait(WaitError::Damaged));
            }
            self.next = seq;
            let len = Apart::within_end(self, seq, asked);
            if !self.knows_room(len)
                && let Err(refusal) = self.find_room(len)
            {
                return Err(self.gated(refusal));
            }
            let is_others = last.seat() != self.own_seat().number;
            if twin!("recorded-late": is_others => false) {
                claims::record(&self.core, last, seq);
            }
            let claim = seq..seq.wrapping_add(len);
            if claims::claim(&self.core.control, self.own_seat(), last, claim) {
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
        self.sharing.claim_end = self.next;
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

    /// Called before the positions `[seq, seq + len)` are published. If these positions are only
    /// the front of the claim, records a head for the claim's rest.
    #[inline(always)]
    fn begin_front(&mut self, seq: u64, len: u64) {
        let end = seq.wrapping_add(len);
        if end != self.sharing.claim_end {
            twin!("front-first": claims::split(&self.core, self.own_seat(), end) => ());
        }
    }

    /// Called after the positions `[seq, seq + len)` were published. If these were only the front
    /// of the claim, shortens the seat's intent to the rest.
    #[inline(always)]
    fn end_front(&mut self, seq: u64, len: u64) {
        let end = seq.wrapping_add(len);
        if end != self.sharing.claim_end {
            twin!("front-first": () => claims::split(&self.core, self.own_seat(), end));
            self.own_seat().words.shorten(end);
        }
    }

    /// Ends the producer of this handle, whose claim was published or given up. If `leaves` is
    /// `true` and no other producer stays, closes the ring.
    pub(crate) fn leave_seat(&self, leaves: bool) {
        let control = &self.core.control;
        let seat = self.own_seat().words;
        seat.intend_nothing();
        if leaves {
            // A dead producer must not keep the ring open.
            self.core.world.settle_dead_producers(self.core.watched(&|| false));
            closing::leave(control, &self.core.world, seat);
        } else {
            control.waits.notify(&control.plan.producer_notifies);
        }
        seat.free(control.membership.participant); // SYNC[seated]: last
    }
}
