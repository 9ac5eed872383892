//! The raw calls: positions instead of leases, for loops that are built around them. Nothing here
//! waits.
//!
//! Invariants
//! - I1: a raw consumer gives out the `left` events from its seat's position on only: a look of its
//!   own found them there, and nobody else moves the seat.
//! - I2: a raw producer gives out the slots of its open claim only; what is done of it is no longer
//!   part of it.
//! - I3: with many producers, `open` and the producer's own open claim name the same slots: a claim
//!   that was forgotten before the handle became a raw one is settled first.

use std::fmt;
use std::marker::PhantomData;

use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Writing, sealed as lease};
use crate::consumer::position::{Availability, ConsumerPosition};
use crate::consumer::waiting::Counting;
use crate::errors::{BatchError, ClaimError, NotHeld};
use crate::producer::{Producer, Single, sealed as producer};
use crate::ring::core::Core;
use crate::ring::slots::{Interleaved, Layout, Storage as _};
use crate::ring::stamp::Run;
use crate::ring::words::ahead;

/// A producer by positions: `next`, fill, `done`. From [`Producer::into_raw`].
///
/// It has one claim at a time. What is claimed and not done is given up when the handle goes.
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
    /// Claimed and not done.
    open: Seqs,
    /// It gives out `&E`, so it may be shared only where `E` may.
    lent: PhantomData<E>,
}

impl<E, L: Layout, S: producer::Sharing> Producer<E, L, S> {
    /// This producer by positions, see [`RawProducer`].
    pub fn into_raw(mut self) -> RawProducer<E, L, S> {
        self.give_up_open_claim();
        RawProducer { producer: self, open: Seqs::NONE, lent: PhantomData }
    }
}

impl<E, L: Layout, S: producer::Sharing> RawProducer<E, L, S> {
    /// Claims the next slot if it is free now; returns its position.
    ///
    /// # Errors
    /// [`ClaimError::Gated`] by which stage and how far behind, [`ClaimError::Contended`],
    /// [`ClaimError::Wait`], and [`ClaimError::Held`] while there is a claim already.
    #[allow(clippy::should_implement_trait)] // it is what everybody calls it, and no iterator
    pub fn next(&mut self) -> Result<u64, ClaimError> {
        self.next_n(1)
    }

    /// Claims `len` slots in a row if they are free now; returns the position of the first.
    ///
    /// # Errors
    /// As [`RawProducer::next`], and [`ClaimError::Length`].
    pub fn next_n(&mut self, len: usize) -> Result<u64, ClaimError> {
        if self.open.len() != 0 {
            return Err(ClaimError::Held { first: self.open.first_seq(), len: self.open.len() });
        }
        self.producer.check_length(len)?;
        let seq = self.producer.try_reserve(len as u64)?;
        self.hold(Seqs { next: seq, len });
        self.producer.core().touch(seq, len as u64, true);
        Ok(seq)
    }

    fn hold(&mut self, open: Seqs) {
        self.producer.set_open_claim((open.len != 0).then_some((open.next, open.len as u64)));
        self.open = open;
    }

    /// How many slots could be claimed at this moment, beyond what is claimed. Others may change
    /// that at once.
    pub fn available(&mut self) -> usize {
        self.producer.free_slots().saturating_sub(if S::MANY { 0 } else { self.open.len() })
    }

    /// A claimed event.
    pub fn at(&self, seq: u64) -> Option<&E> {
        // SAFETY: claimed by this handle, and not done (I2, producer::I2); `&self` keeps writers
        // away.
        self.open.holds(seq).then(|| unsafe { &*self.producer.cell(seq) })
    }

    /// A claimed event, to fill.
    pub fn at_mut(&mut self, seq: u64) -> Option<&mut E> {
        // SAFETY: claimed by this handle, and not done (I2, producer::I2); `&mut self` keeps a
        // second reference away.
        self.open.holds(seq).then(|| unsafe { &mut *self.producer.cell(seq) })
    }

    /// Publishes what is claimed, up to this position and including it. What is behind it stays
    /// claimed.
    ///
    /// # Errors
    /// [`NotHeld`] if this handle has not claimed that position. Then nothing is published.
    pub fn done(&mut self, seq: u64) -> Result<(), NotHeld> {
        let (done, rest) = self.open.upto(seq)?;
        // First, so that nothing is given up that is published.
        self.hold(rest);
        self.producer.commit(done.next, done.len as u64);
        Ok(())
    }

    /// Gives up what is claimed and not done: nobody will see it.
    pub fn give_up(&mut self) {
        self.open = Seqs::NONE;
        // A single producer claims the same positions again; with many, the producer knows the
        // claim (I3).
        self.producer.give_up_open_claim();
    }

    /// The producer again; an open claim is given up.
    pub fn into_inner(mut self) -> Producer<E, L, S> {
        self.give_up();
        self.producer
    }
}

/// A consumer by positions: `next` or `available`, look, `done`. From [`Consumer::into_raw`].
///
/// What is not done when the handle goes was not handled: see [`Consumer`] on what dropping it
/// means.
#[doc(alias = "SCSequence")]
#[doc(alias = "MCSequence")]
pub struct RawConsumer<E, A: lease::Access, C: lease::Delivery, L: Layout = Interleaved> {
    consumer: Consumer<E, A, C, L>,
    /// How much of what the last look found is not done.
    left: usize,
    /// It gives out `&E`, so it may be shared only where `E` may.
    lent: PhantomData<E>,
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// This consumer by positions, see [`RawConsumer`].
    pub fn into_raw(self) -> RawConsumer<E, A, C, L> {
        RawConsumer { consumer: self, left: 0, lent: PhantomData }
    }
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> RawConsumer<E, A, C, L> {
    /// The position of the next event, if it is there now. The same one until it is
    /// [`done`](RawConsumer::done).
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: it is not published yet.
    /// - [`BatchError::Gated`]: it is, and a stage before this one has not let it go. To tell the
    ///   two apart directly behind one producer, what is published has to be known: it is where the
    ///   ring is [contiguous](crate::Graph::contiguous), [shared](crate::Graph::shared) or
    ///   [publish_cursor](crate::Graph::publish_cursor). Elsewhere a stage that stands within a publication of
    ///   several events counts as `Unavailable`.
    /// - [`BatchError::Contended`]: another worker of the pool was faster.
    /// - [`BatchError::Wait`]: none will come.
    #[allow(clippy::should_implement_trait)] // it is what everybody calls it, and no iterator
    pub fn next(&mut self) -> Result<u64, BatchError> {
        self.available(1).map(|there| there.first_seq())
    }

    /// The positions of up to `max` events that are there now, at least one. A worker of a pool
    /// takes them from the others.
    ///
    /// # Errors
    /// As [`RawConsumer::next`]. `Unavailable` if `max` is 0.
    pub fn available(&mut self, max: usize) -> Result<Seqs, BatchError> {
        self.left = 0;
        let len = self.consumer.available(max)?;
        let position = self.consumer.position();
        if len == 0 {
            return Err(match position.ended() {
                Some(closed) => closed.into(),
                None if max == 0 => BatchError::Unavailable,
                None if position.was_contended() => BatchError::Contended,
                None => {
                    let state = position.state();
                    state.core.held_up(state.stage, position.waits_for(), position.next())
                }
            });
        }
        let first = position.next();
        position.state().touch(first, len);
        self.left = len as usize;
        Ok(self.lent())
    }

    fn lent(&self) -> Seqs {
        Seqs { next: self.consumer.next_seq(), len: self.left }
    }

    /// An event that the last look found and that is not done.
    pub fn at(&self, seq: u64) -> Option<&E> {
        // SAFETY: lent to this handle's seat and not released (I1, position::I2); `&self` keeps
        // releases away.
        self.lent().holds(seq).then(|| unsafe { &*self.consumer.state().slots.event(seq) })
    }

    /// Releases what is lent, up to this position and including it.
    ///
    /// # Errors
    /// [`NotHeld`] if that position is not lent. Then nothing is released.
    pub fn done(&mut self, seq: u64) -> Result<(), NotHeld> {
        let (done, rest) = self.lent().upto(seq)?;
        let position = self.consumer.position();
        position.count_batch();
        position.advance(done.len as u64, done.len as u64);
        position.release();
        self.left = rest.len;
        Ok(())
    }

    /// The consumer again. What is not done comes again.
    pub fn into_inner(self) -> Consumer<E, A, C, L> {
        self.consumer
    }
}

impl<E, C: lease::Delivery, L: Layout> RawConsumer<E, Writing, C, L> {
    /// An event that the last look found and that is not done, to change.
    pub fn at_mut(&mut self, seq: u64) -> Option<&mut E> {
        // SAFETY: as in `at`; a stage that writes has what it is lent to itself (plan::I1), and
        // `&mut self` keeps a second reference away.
        self.lent().holds(seq).then(|| unsafe { &mut *self.consumer.state().slots.event(seq) })
    }
}

/// Positions in a row: an iterator over them, and what their first and their last is. They may
/// wrap, which a range may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seqs {
    next: u64,
    len: usize,
}

impl Seqs {
    const NONE: Seqs = Seqs { next: 0, len: 0 };

    /// The first of those that are left.
    pub fn first_seq(&self) -> u64 {
        self.next
    }
    /// The last one; without any left, the one before the first.
    pub fn last_seq(&self) -> u64 {
        self.next.wrapping_add(self.len as u64).wrapping_sub(1)
    }
    fn holds(&self, seq: u64) -> bool {
        seq.wrapping_sub(self.next) < self.len as u64
    }
    /// Those up to this position and including it, and the others.
    fn upto(&self, seq: u64) -> Result<(Seqs, Seqs), NotHeld> {
        if !self.holds(seq) {
            return Err(NotHeld { seq, first: self.next, len: self.len });
        }
        let len = seq.wrapping_sub(self.next) as usize + 1;
        Ok((Seqs { next: self.next, len }, Seqs { next: seq.wrapping_add(1), len: self.len - len }))
    }
}

impl Iterator for Seqs {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let seq = self.next;
        self.len = self.len.checked_sub(1)?;
        self.next = seq.wrapping_add(1);
        Some(seq)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl ExactSizeIterator for Seqs {}
impl std::iter::FusedIterator for Seqs {}

/// Publications looked at to say how far a stage is behind.
const LOOKS: usize = 1024;

impl<E, L: Layout> Core<E, L> {
    /// Why a stage that stands at `next` has nothing there, where `holder` is furthest behind of
    /// those before it.
    fn held_up(&self, stage: usize, holder: usize, next: u64) -> BatchError {
        if self.control.plan.reads_stamps(stage) || holder == self.control.producer_party() {
            return BatchError::Unavailable;
        }
        let lower_bound = next.wrapping_sub(self.capacity());
        let at = self.control.frontier(holder, lower_bound);
        let to = if !self.control.plan.reads_stamps(holder) {
            self.control.upstream(holder, lower_bound).0
        } else if self.control.plan.many_producers {
            self.control.claimed(next).0
        } else if self.control.plan.cursor {
            self.control.cursor()
        } else {
            self.published_from(at)
        };
        match ahead(to, at) {
            lag @ 1.. => BatchError::Gated { stage: self.control.name(holder), lag: lag as u64 },
            _ => BatchError::Unavailable,
        }
    }

    /// How far everything is published from a position on, as far as a few looks tell.
    fn published_from(&self, mut seq: u64) -> u64 {
        for _ in 0..LOOKS {
            match self.slots.run_at(seq) {
                Run::Live(len) | Run::Tombstone(len) => seq = seq.wrapping_add(len),
                Run::Unpublished => break,
            }
        }
        seq
    }
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
