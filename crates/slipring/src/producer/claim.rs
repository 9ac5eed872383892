//! Claiming: slots, lent to be filled: one, or several in a row.
//!
//! Invariants
//! - I1: a claim borrows its producer mutably, so a handle has one claim at a time, and nothing
//!   else happens to its positions meanwhile.
//! - I2: a claim ends once: published, or given up (dropped), or forgotten; then its producer
//!   settles it (producer::I3).

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::time::Instant;

use crate::errors::{ClaimError, WaitError};
use crate::producer::{Producer, Single, sealed};
use crate::ring::events::{Events, EventsIterMut, out_of_bounds};
use crate::ring::slots::{Interleaved, Layout};

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Claims one slot, waiting while the ring is full.
    ///
    /// # Errors
    /// As [`Producer::publish`].
    pub fn claim(&mut self) -> Result<Slot<'_, E, L, S>, WaitError> {
        self.claim_n_by(1, None).map(Slot::new).map_err(ClaimError::without_deadline)
    }

    /// Claims one slot if there is one now.
    ///
    /// # Errors
    /// As [`Producer::try_publish`].
    pub fn try_claim(&mut self) -> Result<Slot<'_, E, L, S>, ClaimError> {
        Ok(Slot::new(self.try_claim_n(1)?))
    }

    /// Claims one slot, waiting no longer than until `deadline`.
    ///
    /// # Errors
    /// As [`Producer::publish_by`].
    pub fn claim_by(&mut self, deadline: Instant) -> Result<Slot<'_, E, L, S>, ClaimError> {
        Ok(Slot::new(self.claim_n_by(1, Some(deadline))?))
    }

    /// Claims `len` slots in a row, 1 to the capacity, waiting until all of them are free.
    ///
    /// # Errors
    /// [`ClaimError::Length`], [`ClaimError::Wait`].
    #[inline]
    pub fn claim_n(&mut self, len: usize) -> Result<Slots<'_, E, L, S>, ClaimError> {
        self.claim_n_by(len, None)
    }

    /// Claims `len` slots in a row if they are free now.
    ///
    /// # Errors
    /// [`ClaimError::Length`], [`ClaimError::Gated`], [`ClaimError::Contended`],
    /// [`ClaimError::Wait`].
    pub fn try_claim_n(&mut self, len: usize) -> Result<Slots<'_, E, L, S>, ClaimError> {
        self.check_length(len)?;
        let seq = self.try_reserve(len as u64)?;
        Ok(self.lend(seq, len))
    }

    /// Claims `len` slots in a row, waiting no longer than until `deadline`, or without a deadline
    /// if it is `None`.
    ///
    /// # Errors
    /// [`ClaimError::Length`], [`ClaimError::TimedOut`], [`ClaimError::Wait`].
    #[inline]
    pub fn claim_n_by(
        &mut self,
        len: usize,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<Slots<'_, E, L, S>, ClaimError> {
        self.check_length(len)?;
        let seq = self.reserve_by(len as u64, deadline.into())?;
        Ok(self.lend(seq, len))
    }
}

/// One claimed slot: dereferences to the event to fill. [`Slot::publish`] makes it visible; dropped
/// without it, it is given up.
pub struct Slot<'p, E, L: Layout = Interleaved, S: sealed::Sharing = Single> {
    slots: Slots<'p, E, L, S>,
}

/// Claimed slots in a row. [`Slots::publish`] makes them visible as a whole; dropped without it,
/// they are given up.
pub struct Slots<'p, E, L: Layout = Interleaved, S: sealed::Sharing = Single> {
    producer: &'p mut Producer<E, L, S>,
    seq: u64,
    len: usize,
    /// A claim gives out `&E` as a `&mut [E]` does, so it may be shared only where `E` may; its
    /// producer may be shared always.
    lent: PhantomData<&'p mut E>,
}

impl<'p, E, L: Layout, S: sealed::Sharing> Slot<'p, E, L, S> {
    /// A claim of one.
    pub(crate) fn new(slots: Slots<'p, E, L, S>) -> Self {
        Slot { slots }
    }

    /// The position this event will have.
    pub fn seq(&self) -> u64 {
        self.slots.seq
    }

    /// Makes the event visible; returns its position.
    pub fn publish(self) -> u64 {
        self.slots.publish()
    }
}

impl<E, L: Layout, S: sealed::Sharing> Deref for Slot<'_, E, L, S> {
    type Target = E;
    #[inline]
    fn deref(&self) -> &E {
        &self.slots[0]
    }
}

impl<E, L: Layout, S: sealed::Sharing> DerefMut for Slot<'_, E, L, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut E {
        &mut self.slots[0]
    }
}

impl<'p, E, L: Layout, S: sealed::Sharing> Slots<'p, E, L, S> {
    /// `producer` has claimed `[seq, seq + len)`.
    #[inline(always)]
    pub(crate) fn new(producer: &'p mut Producer<E, L, S>, seq: u64, len: usize) -> Self {
        Slots { producer, seq, len, lent: PhantomData }
    }

    /// How many slots.
    #[allow(clippy::len_without_is_empty)] // a claim is never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// The position the first event will have.
    pub fn first_seq(&self) -> u64 {
        self.seq
    }

    /// The slot at an offset.
    #[inline]
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut E> {
        // SAFETY: claimed by the handle that this borrows (I1, producer::I2), and `&mut self` keeps
        // a second reference away.
        (offset < self.len)
            .then(|| unsafe { &mut *self.producer.cell(self.seq.wrapping_add(offset as u64)) })
    }

    /// The slots in order.
    #[inline]
    pub fn iter_mut(&mut self) -> EventsIterMut<'_, E, L> {
        // SAFETY: as in `get_mut`; the iterator gives each slot out once.
        unsafe { EventsIterMut::new(self.producer.view(), self.seq, self.len) }
    }

    /// Makes all of them visible; returns the position of the first.
    #[inline]
    pub fn publish(self) -> u64 {
        let (seq, len) = (self.seq, self.len as u64);
        self.producer.ended();
        self.producer.commit(seq, len);
        std::mem::forget(self);
        seq
    }
}

impl<E, L: Layout, S: sealed::Sharing> Index<usize> for Slots<'_, E, L, S> {
    type Output = E;
    #[inline]
    fn index(&self, offset: usize) -> &E {
        if offset >= self.len {
            out_of_bounds(offset, self.len);
        }
        // SAFETY: claimed by the handle that this borrows (I1, producer::I2).
        unsafe { &*self.producer.cell(self.seq.wrapping_add(offset as u64)) }
    }
}

impl<E, L: Layout, S: sealed::Sharing> IndexMut<usize> for Slots<'_, E, L, S> {
    #[inline]
    fn index_mut(&mut self, offset: usize) -> &mut E {
        let len = self.len;
        self.get_mut(offset).unwrap_or_else(|| out_of_bounds(offset, len))
    }
}

impl<E, L: Layout, S: sealed::Sharing> Drop for Slots<'_, E, L, S> {
    fn drop(&mut self) {
        self.producer.ended();
        self.producer.give_up(self.seq, self.len as u64);
    }
}

impl<E: fmt::Debug, L: Layout, S: sealed::Sharing> fmt::Debug for Slots<'_, E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: claimed by the handle that this borrows (I1, producer::I2); `&self` keeps writers
        // away.
        unsafe { Events::<E, L>::new(self.producer.view(), self.seq, self.len as u64) }.fmt(f)
    }
}

impl<E: fmt::Debug, L: Layout, S: sealed::Sharing> fmt::Debug for Slot<'_, E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
