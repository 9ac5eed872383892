//! Raw handles give out positions instead of leases, for loops that are built around positions.
//!
//! No public call of a raw handle waits.
//!
//! Invariants
//! - I1: a raw consumer lends only events that its last call of `available` found, until `done`
//!   releases them. The field `left` is the number of lent events. No other handle moves the
//!   consumer's position.
//! - I2: a raw producer lends only the slots of its open claim, which contains no published slot
//!   and no given-up slot.
//! - I3: in a ring with many producers, the field `open` of a raw producer always equals the open
//!   claim that its inner producer records. `into_raw` gives up a claim that was forgotten before
//!   the call.

use std::fmt;
use std::marker::PhantomData;
use std::time::Instant;

use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Updating, sealed as lease};
use crate::consumer::position::{Availability, ConsumerPosition};
use crate::consumer::waiting::Counting;
use crate::errors::{BatchError, ClaimError, NotHeld};
use crate::processes::markers::{BeginsAgain, Succeeds};
use crate::producer::{Producer, Single, sealed as producer};
use crate::ring::core::Core;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::{Interleaved, Layout, Storage as _};
use crate::ring::stamp::Stamp;
use crate::ring::words::ahead;

/// A producer whose calls take and return positions: `next` claims, `at_mut` fills, `done`
/// publishes. [`Producer::into_raw`] returns it.
///
/// A raw producer has one claim at a time. Its drop gives up the claimed slots that
/// [`RawProducer::done`] has not published.
///
/// ```
/// let (tx, rx) = slipring::unicast(4, || 0u64)?;
/// let (mut tx, mut rx) = (tx.into_raw(), rx.into_raw());
/// while let Ok(seq) = tx.next() {
///     *tx.at_mut(seq).unwrap() = seq * 10;
///     tx.done(seq)?;
/// }
/// assert!(tx.next().unwrap_err().to_string().contains("`reader` is 4 events behind"));
/// let there = rx.available(usize::MAX)?;
/// assert_eq!((there.first_seq(), there.len()), (0, 4));
/// assert_eq!(rx.at(2), Some(&20));
/// rx.done(there.last_seq())?;
/// assert_eq!(tx.available(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "SPSequence")]
#[doc(alias = "MPSequence")]
pub struct RawProducer<E, L: Layout = Interleaved, S: producer::Sharing = Single> {
    producer: Producer<E, L, S>,
    /// Claimed positions that `done` has not published.
    open: SeqRange,
    /// Marks the handle as a lender of `&E`, so that the handle is `Sync` only if `E` is `Sync`.
    lent: PhantomData<E>,
}

impl<E, L: Layout, S: producer::Sharing> Producer<E, L, S> {
    /// Turns this producer into a [`RawProducer`], whose calls take and return positions.
    ///
    /// Example: [`RawProducer`].
    pub fn into_raw(mut self) -> RawProducer<E, L, S> {
        self.give_up_open_claim();
        RawProducer { producer: self, open: SeqRange::new(0, 0), lent: PhantomData }
    }
}

impl<E, L: Layout, S: producer::Sharing> RawProducer<E, L, S> {
    /// Claims the next slot if it is free now, and returns its position.
    ///
    /// Example: [`RawProducer`].
    ///
    /// # Errors
    /// - [`ClaimError::Held`]: another claim of this handle is open.
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    #[allow(clippy::should_implement_trait)] // the name that users of sequences know; no iterator
    pub fn next(&mut self) -> Result<u64, ClaimError> {
        self.next_n(1)
    }

    /// Claims `len` consecutive slots if all of them are free now. Returns the first slot's
    /// position.
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// let (tx, _rx) = slipring::unicast(8, || 0u64)?;
    /// let mut tx = tx.into_raw();
    /// let first = tx.next_n(3)?;
    /// *tx.at_mut(first).unwrap() = 7;
    /// tx.done(first)?; // publishes one of three
    /// assert!(matches!(tx.next(), Err(ClaimError::Held { first: 1, len: 2 })));
    /// tx.done(first + 2)?; // publishes the others
    /// assert_eq!(tx.next()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Held`]: another claim of this handle is open.
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::Gated`]: fewer than `len` slots are free.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn next_n(&mut self, len: usize) -> Result<u64, ClaimError> {
        if !self.open.is_empty() {
            return Err(ClaimError::Held { first: self.open.first_seq(), len: self.open.len() });
        }
        self.producer.check_length(len)?;
        let seq = self.producer.try_reserve(len as u64)?;
        Ok(self.hold_claim(seq, len))
    }

    /// Holds the claim of `len` positions from `seq` on. If the claim must stop at the ring's end,
    /// holds only its positions before that end.
    fn hold_claim(&mut self, seq: u64, len: usize) -> u64 {
        let len = S::within_end(&self.producer, seq, len as u64);
        self.hold(SeqRange::new(seq, len as usize));
        self.producer.core().touch(seq, len, true);
        seq
    }

    /// Makes each later claim stop at the ring's end. The producer of one of several processes
    /// needs this.
    pub(crate) fn stop_at_end(&mut self) {
        self.producer.sharing.stop_at_end();
    }

    /// Returns the number of claimed positions that are not published yet.
    pub(crate) fn claimed(&self) -> usize {
        self.open.len()
    }

    /// Like [`RawProducer::next_n`], but waits for room, at most until `deadline`.
    pub(crate) fn next_n_by(
        &mut self,
        len: usize,
        deadline: Option<Instant>,
    ) -> Result<u64, ClaimError> {
        if !self.open.is_empty() {
            return Err(ClaimError::Held { first: self.open.first_seq(), len: self.open.len() });
        }
        self.producer.check_length(len)?;
        let seq = self.producer.reserve_by(len as u64, deadline)?;
        Ok(self.hold_claim(seq, len))
    }

    /// Returns the position of the next claim. The position is exact only if the ring has a single
    /// producer.
    pub(crate) fn claim_seq(&self) -> u64 {
        self.producer.next_seq()
    }

    /// Records the open claim in this handle and in its producer (I3).
    fn hold(&mut self, open: SeqRange) {
        let claim = (open.first_seq(), open.len() as u64);
        self.producer.set_open_claim((!open.is_empty()).then_some(claim));
        self.open = open;
    }

    /// Returns the number of slots that could be claimed at this moment, in addition to the open
    /// claim.
    ///
    /// At any time, stages may free more slots, and other producers may claim slots. The call costs
    /// as much as [`Producer::remaining`].
    ///
    /// Example: [`RawProducer`].
    pub fn available(&mut self) -> usize {
        self.producer.free_slots(self.open.len())
    }

    /// Returns the event at a claimed position, or `None` if `seq` is outside the open claim.
    ///
    /// Example: [`RawProducer::at_mut`].
    pub fn at(&self, seq: u64) -> Option<&E> {
        // SAFETY: this handle has claimed the slot, and not published it (I2, producer::I2).
        // `&self` excludes writers.
        self.open.contains(seq).then(|| unsafe { &*self.producer.cell(seq) })
    }

    /// Returns a mutable reference to the event at a claimed position, or `None` if `seq` is
    /// outside the open claim.
    ///
    /// ```
    /// let (tx, _rx) = slipring::unicast(8, || 0u64)?;
    /// let mut tx = tx.into_raw();
    /// let seq = tx.next()?;
    /// *tx.at_mut(seq).unwrap() = 7;
    /// assert_eq!((tx.at(seq), tx.at(seq + 1)), (Some(&7), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at_mut(&mut self, seq: u64) -> Option<&mut E> {
        // SAFETY: this handle has claimed the slot, and not published it (I2, producer::I2). `&mut
        // self` excludes a second reference.
        self.open.contains(seq).then(|| unsafe { &mut *self.producer.cell(seq) })
    }

    /// Publishes the open claim up to and including position `seq`. The slots at positions greater
    /// than `seq` stay claimed.
    ///
    /// A call costs as much as [`Producer::publish`], without the cost of claiming a slot.
    ///
    /// Example: [`RawProducer::next_n`].
    ///
    /// # Errors
    /// [`NotHeld`] if `seq` is outside the open claim. A failed call publishes nothing.
    pub fn done(&mut self, seq: u64) -> Result<(), NotHeld> {
        let (done, rest) = self.open.split_after(seq)?;
        // Dropping the handle gives up the slots that `hold` has recorded last. `commit` may panic
        // after it has published, so `hold(rest)` comes first: a drop then gives up only `rest`,
        // and never a published slot.
        self.hold(rest);
        self.producer.commit(done.first_seq(), done.len() as u64);
        Ok(())
    }

    /// Gives up the open claim, so no stage sees the events in its slots.
    ///
    /// ```
    /// let (tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let mut tx = tx.into_raw();
    /// tx.next_n(3)?;
    /// tx.give_up();
    /// assert_eq!(rx.poll(8, |_, _| ())?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_up(&mut self) {
        self.open = SeqRange::new(0, 0);
        // A single producer later claims the given-up positions again. With many producers,
        // `give_up_open_claim` gives up the slots of the recorded open claim (I3).
        self.producer.give_up_open_claim();
    }

    /// Gives up the open claim, and lends the producer, whose calls leave no claim open.
    pub(crate) fn without_claim(&mut self) -> &mut Producer<E, L, S> {
        self.give_up();
        &mut self.producer
    }

    /// Gives up the open claim and returns the producer.
    ///
    /// Example: [`RawConsumer::into_inner`].
    pub fn into_inner(mut self) -> Producer<E, L, S> {
        self.give_up();
        self.producer
    }
}

/// A consumer whose calls take and return positions: `available` finds events, `at` reads, `done`
/// releases. [`Consumer::into_raw`] returns it.
///
/// Dropping a raw consumer drops its [`Consumer`]. Events that [`RawConsumer::done`] has not
/// released count as not handled.
///
/// Example: [`RawProducer`].
#[doc(alias = "SCSequence")]
#[doc(alias = "MCSequence")]
pub struct RawConsumer<E, A: lease::Access, C: lease::Delivery, L: Layout = Interleaved> {
    consumer: Consumer<E, A, C, L>,
    /// Number of events that `available` found and `done` has not released.
    left: usize,
    /// Marks the handle as a lender of `&E`, so that the handle is `Sync` only if `E` is `Sync`.
    lent: PhantomData<E>,
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Turns this consumer into a [`RawConsumer`], whose calls take and return positions.
    ///
    /// Example: [`RawProducer`].
    pub fn into_raw(self) -> RawConsumer<E, A, C, L> {
        RawConsumer { consumer: self, left: 0, lent: PhantomData }
    }
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> RawConsumer<E, A, C, L> {
    /// Returns the position of the next event if it is available now. Repeated calls return the
    /// same position until the event is [`done`](RawConsumer::done).
    ///
    /// ```
    /// use slipring::errors::BatchError;
    /// let (mut tx, rx) = slipring::unicast(8, || 0u64)?;
    /// let mut rx = rx.into_raw();
    /// assert!(matches!(rx.next(), Err(BatchError::Unavailable)));
    /// tx.publish(|slot| *slot = 7)?;
    /// let seq = rx.next()?;
    /// assert_eq!((seq, rx.at(seq)), (0, Some(&7)));
    /// rx.done(seq)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: the event is not published yet.
    /// - [`BatchError::Gated`]: the event is published, and an earlier stage has not released it.
    ///   If the gating stage has no dependencies, and the ring does not know which events are
    ///   published, `next` may return `Unavailable` instead. A ring knows which events are
    ///   published if it is [contiguous](crate::Graph::contiguous) or
    ///   [shared](crate::Graph::shared), or [publishes its cursor](crate::Graph::publish_cursor).
    /// - [`BatchError::Contended`]: another worker of the pool took the event.
    /// - [`BatchError::Wait`]: no event will come any more.
    /// - [`BatchError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    #[allow(clippy::should_implement_trait)] // the name that users of sequences know; no iterator
    pub fn next(&mut self) -> Result<u64, BatchError> {
        self.available(1).map(|found| found.first_seq())
    }

    /// Returns the positions of the events that are available now: at least one, and at most `max`.
    /// In a pool, the call takes the returned positions away from the other workers.
    ///
    /// Example: [`RawProducer`].
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: no event is published yet, or `max` is 0.
    /// - [`BatchError::Gated`]: an earlier stage has not released the next event, as for
    ///   [`RawConsumer::next`].
    /// - [`BatchError::Contended`]: another worker of the pool took the available events.
    /// - [`BatchError::Wait`]: no event will come any more.
    /// - [`BatchError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn available(&mut self, max: usize) -> Result<SeqRange, BatchError> {
        self.left = 0;
        let len = self.consumer.available(max)?;
        if len == 0 {
            return Err(self.why_unavailable(max));
        }
        let position = self.consumer.position();
        let first = position.next();
        position.state().touch(first, len);
        self.left = len as usize;
        Ok(self.lent())
    }

    /// Returns the error of a call that has just found no event.
    fn why_unavailable(&mut self, max: usize) -> BatchError {
        if max == 0 {
            return self.consumer.position().ended().map_or(BatchError::Unavailable, Into::into);
        }
        if let Some(closed) = self.consumer.ended_or_refused() {
            return closed.into();
        }
        let position = self.consumer.position();
        if position.was_contended() {
            return BatchError::Contended;
        }
        let state = position.state();
        why_empty(&state.core, state.stage, position.waits_for(), position.next())
    }

    fn lent(&self) -> SeqRange {
        SeqRange::new(self.consumer.next_seq(), self.left)
    }

    /// Returns the event at position `seq`. Returns `None` if [`RawConsumer::available`] has not
    /// returned the position, or if [`RawConsumer::done`] has released its event.
    ///
    /// Example: [`RawConsumer::next`].
    pub fn at(&self, seq: u64) -> Option<&E> {
        // SAFETY: the event is lent to this handle, and not released (I1, position::I2). `&self`
        // excludes releases.
        self.lent().contains(seq).then(|| unsafe { &*self.consumer.state().slots.event(seq) })
    }

    /// Releases the events up to and including position `seq`.
    ///
    /// After the call, later stages or the producers may change the released slots. A call costs
    /// one store, and a notification if another thread may be sleeping.
    ///
    /// ```
    /// let (mut tx, rx) = slipring::unicast(8, || 0u64)?;
    /// tx.publish_all(0..3, |slot, i| *slot = i)?;
    /// let mut rx = rx.into_raw();
    /// let found = rx.available(8)?;
    /// rx.done(found.first_seq() + 1)?; // two of three
    /// assert!(rx.done(found.first_seq()).is_err()); // done already
    /// assert_eq!(rx.next()?, found.last_seq());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotHeld`] if [`RawConsumer::available`] has not returned position `seq`, or the event at
    /// `seq` is released already. A failed call releases nothing.
    pub fn done(&mut self, seq: u64) -> Result<(), NotHeld> {
        let (done, rest) = self.lent().split_after(seq)?;
        let position = self.consumer.position();
        position.count_batch();
        position.advance(done.len() as u64, done.len() as u64);
        position.release();
        self.left = rest.len();
        Ok(())
    }

    /// Returns the inner consumer. It lends again each event that [`RawConsumer::done`] has not
    /// released.
    ///
    /// ```
    /// let (tx, rx) = slipring::unicast(8, || 0u64)?;
    /// let (mut tx, mut rx) = (tx.into_raw(), rx.into_raw());
    /// let seq = tx.next()?;
    /// tx.done(seq)?;
    /// rx.next()?;
    /// let (mut tx, mut rx) = (tx.into_inner(), rx.into_inner());
    /// tx.publish(|slot| *slot = 1)?;
    /// assert_eq!(rx.poll(8, |_, _| ())?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> Consumer<E, A, C, L> {
        self.consumer
    }
}

impl<E, A: lease::Access, C: Succeeds, L: Layout> RawConsumer<E, A, C, L> {
    /// Returns the positions of redelivered events, like [`Consumer::redelivered`]. For a worker of
    /// a pool, covers only the chunk in which [`RawConsumer::available`] has found events most
    /// recently.
    ///
    /// Example: [`Consumer::redelivered`].
    pub fn redelivered(&self) -> SeqRange {
        self.consumer.redelivered()
    }
}

impl<E, C: BeginsAgain, L: Layout> RawConsumer<E, Updating, C, L> {
    /// Returns which of the next events may be half-written, as [`Consumer::suspects`] does.
    ///
    /// Example: [`Consumer::suspects`].
    pub fn suspects(&self) -> SeqRange {
        self.consumer.suspects()
    }
}

impl<E, C: lease::Delivery, L: Layout> RawConsumer<E, Updating, C, L> {
    /// Returns a mutable reference to the event at position `seq`. Returns `None` if
    /// [`RawConsumer::available`] has not returned the position, or if [`RawConsumer::done`] has
    /// released its event.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 1u64);
    /// let key = graph.updater("double");
    /// let ring = graph.build()?;
    /// let (mut tx, mut rx) = (ring.producer(), ring.updater(key).into_raw());
    /// tx.publish(|slot| *slot = 21)?;
    /// let seq = rx.next()?;
    /// *rx.at_mut(seq).unwrap() *= 2;
    /// assert_eq!(rx.at(seq), Some(&42));
    /// rx.done(seq)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at_mut(&mut self, seq: u64) -> Option<&mut E> {
        // SAFETY: as in `at`. No other stage accesses events lent to an updating stage (plan::I1).
        // `&mut self` excludes a second reference.
        self.lent().contains(seq).then(|| unsafe { &mut *self.consumer.state().slots.event(seq) })
    }
}

/// Maximum number of runs that one call follows to find the published position.
const MAX_RUNS: usize = 1024;

/// Returns the error of a stage that found no event at `next`. `holder` is the upstream stage that
/// is the furthest behind.
fn why_empty<E, L: Layout>(
    core: &Core<E, L>,
    stage: usize,
    holder: usize,
    next: u64,
) -> BatchError {
    let control = &core.control;
    if control.plan.reads_stamps(stage) || holder == control.plan.producer_party() {
        return BatchError::Unavailable;
    }
    let lower_bound = next.wrapping_sub(core.capacity());
    let at = control.positions.frontier(&control.plan, holder, lower_bound);
    let to = if !control.plan.reads_stamps(holder) {
        control.positions.upstream(&control.plan, holder, lower_bound).0
    } else if control.plan.many_producers {
        control.claimed(next).0
    } else if control.plan.cursor {
        control.positions.cursor()
    } else {
        published_from(core, at)
    };
    match ahead(to, at) {
        lag @ 1.. => BatchError::Gated { stage: control.plan.name_of(holder), lag: lag as u64 },
        _ => BatchError::Unavailable,
    }
}

/// Returns a lower bound of the published position, found by following runs from `seq` on.
fn published_from<E, L: Layout>(core: &Core<E, L>, mut seq: u64) -> u64 {
    for _ in 0..MAX_RUNS {
        match core.slots.run_at(seq) {
            Stamp::Live(len) | Stamp::Tombstone(len) => seq = seq.wrapping_add(len),
            Stamp::Unpublished => break,
        }
    }
    seq
}

impl<E, L: Layout, S: producer::Sharing> fmt::Debug for RawProducer<E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawProducer")
            .field("producer", &self.producer)
            .field("open", &self.open)
            .finish()
    }
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> fmt::Debug for RawConsumer<E, A, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConsumer")
            .field("consumer", &self.consumer)
            .field("lent", &self.lent())
            .finish()
    }
}
