//! A claim is a lease: the producer lends one or several consecutive slots to be filled.
//!
//! Invariants
//! - I1: A lease borrows its producer mutably, so a handle has at most one claim at a time. While a
//!   claim lives, no other call moves the handle's positions.
//! - I2: A claim ends exactly once: it is published, given up by a drop, or forgotten. The producer
//!   gives up a forgotten claim (producer::I3).

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut};
use std::time::Instant;

use crate::errors::{ClaimError, WaitError};
use crate::producer::handle::{Producer, Single, sealed};
use crate::ring::events::{Events, EventsIterMut, mut_slices, out_of_bounds};
use crate::ring::slots::{Contiguous, Interleaved, Layout};

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Claims one slot. While the ring is full, the call waits as the graph's wait strategy says.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, String::new)?;
    /// let mut slot = tx.claim()?;
    /// slot.push_str("filled in place");
    /// assert_eq!(slot.publish(), 0);
    /// rx.poll(8, |text, _| assert_eq!(text, "filled in place"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    #[inline]
    pub fn claim(&mut self) -> Result<Slot<'_, E, L, S>, WaitError> {
        self.claim_n_by(1, None).map(Slot::new).map_err(ClaimError::without_deadline)
    }

    /// Claims one slot if it is free now.
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// let (mut tx, _rx) = slipring::unicast(1, || 0u64)?;
    /// tx.try_claim()?.publish();
    /// assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_claim(&mut self) -> Result<Slot<'_, E, L, S>, ClaimError> {
        Ok(Slot::new(self.try_claim_n(1)?))
    }

    /// Claims one slot, and waits at most until `deadline`, as [`Producer::publish_by`] does.
    ///
    /// Example: [`Producer::publish_by`].
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free a slot.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn claim_by(&mut self, deadline: Instant) -> Result<Slot<'_, E, L, S>, ClaimError> {
        Ok(Slot::new(self.claim_n_by(1, Some(deadline))?))
    }

    /// Claims `len` consecutive slots, and waits until all of them are free. `len` must be between
    /// 1 and the ring's capacity.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0)?;
    /// let mut claim = tx.claim_n(3)?;
    /// for (i, slot) in claim.iter_mut().enumerate() { *slot = i * 10; }
    /// assert_eq!(claim.publish(), 0);
    /// let mut seen = Vec::new();
    /// rx.poll(8, |value, _| seen.push(*value))?;
    /// assert_eq!(seen, [0, 10, 20]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the slots.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn claim_n(&mut self, len: usize) -> Result<Slots<'_, E, L, S>, ClaimError> {
        self.claim_n_by(len, None)
    }

    /// Claims `len` consecutive slots if all of them are free now.
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// let (mut tx, _rx) = slipring::unicast(4, || 0u64)?;
    /// tx.try_claim_n(3)?.publish();
    /// assert!(matches!(tx.try_claim_n(2), Err(ClaimError::Gated { .. })));
    /// assert!(matches!(tx.try_claim_n(5), Err(ClaimError::Length { asked: 5, capacity: 4 })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::Gated`]: fewer than `len` slots are free.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_claim_n(&mut self, len: usize) -> Result<Slots<'_, E, L, S>, ClaimError> {
        self.check_length(len)?;
        let seq = self.try_reserve(len as u64)?;
        Ok(self.lend(seq, len))
    }

    /// Claims `len` consecutive slots, and waits at most until `deadline`. With `None` as
    /// `deadline`, the call waits as [`Producer::claim_n`] does.
    ///
    /// Inside a handler on shared threads, the waiting thread runs other stages meanwhile. The call
    /// may therefore return late, by up to one turn of such a stage; see
    /// [`Chain::threads`](crate::Chain::threads).
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// use std::time::{Duration, Instant};
    /// let (mut tx, _rx) = slipring::unicast(4, || 0u64)?;
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// tx.claim_n_by(3, soon)?.publish();
    /// assert!(matches!(tx.claim_n_by(2, soon), Err(ClaimError::TimedOut(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::TimedOut`]: `deadline` or, if `deadline` is `None`, the wait strategy's
    ///   timeout passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the slots.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
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

    /// Lends the slots of the positions `[seq, seq + len)`, which this handle has claimed.
    #[inline]
    pub(crate) fn lend(&mut self, seq: u64, len: usize) -> Slots<'_, E, L, S> {
        debug_assert_eq!(S::within_end(self, seq, len as u64), len as u64);
        self.core.touch(seq, len as u64, true);
        self.set_open_claim(Some((seq, len as u64)));
        Slots { producer: self, seq, len, lent: PhantomData }
    }
}

/// One claimed slot, which dereferences to the event to fill.
///
/// [`Slot::publish`] makes the event visible. A slot that is dropped unpublished is given up, and
/// no stage sees its event.
///
/// Example: [`Producer::claim`].
#[must_use = "a claim that is dropped publishes nothing"]
pub struct Slot<'p, E, L: Layout = Interleaved, S: sealed::Sharing = Single> {
    slots: Slots<'p, E, L, S>,
}

/// Consecutive claimed slots.
///
/// [`Slots::publish`] makes all events of a claim visible at once. Slots that are dropped
/// unpublished are given up, and no stage sees their events.
///
/// ```
/// let (mut tx, mut rx) = slipring::unicast(8, || 0)?;
/// let mut claim = tx.claim_n(2)?;
/// claim[0] = 1; // by index ...
/// claim[1] = claim[0] + 1;
/// drop(claim); // ... and given up
/// tx.claim_n(2)?.publish();
/// assert_eq!(rx.poll(8, |_, _| ())?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a claim that is dropped publishes nothing"]
pub struct Slots<'p, E, L: Layout = Interleaved, S: sealed::Sharing = Single> {
    producer: &'p mut Producer<E, L, S>,
    seq: u64,
    len: usize,
    /// Makes the claim `Sync` only if `E` is `Sync`, although a `Producer` is `Sync` for every `E`.
    lent: PhantomData<&'p mut E>,
}

impl<'p, E, L: Layout, S: sealed::Sharing> Slot<'p, E, L, S> {
    /// Wraps a claim of one slot.
    #[inline]
    fn new(slots: Slots<'p, E, L, S>) -> Self {
        Slot { slots }
    }

    /// Returns the position that the slot's event will have.
    ///
    /// ```
    /// let (mut tx, _rx) = slipring::unicast(8, || 0u64)?;
    /// let mut slot = tx.claim()?;
    /// *slot = slot.seq() + 100; // an event that knows its own position
    /// slot.publish();
    /// assert_eq!(tx.claim()?.seq(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn seq(&self) -> u64 {
        self.slots.seq
    }

    /// Publishes the slot's event, and returns the event's position.
    ///
    /// Example: [`Producer::claim`].
    #[inline]
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
    /// Returns the number of claimed slots, at least 1.
    ///
    /// Example: [`Slots::get_mut`].
    #[allow(clippy::len_without_is_empty)] // a claim is never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the position that the claim's first event will have.
    ///
    /// Example: [`Slots::get_mut`].
    pub fn first_seq(&self) -> u64 {
        self.seq
    }

    /// Returns a mutable reference to the event at `offset` from the claim's first event, or `None`
    /// if the claim has no event there.
    ///
    /// ```
    /// let (mut tx, _rx) = slipring::unicast(8, || 0)?;
    /// let mut claim = tx.claim_n(2)?;
    /// assert_eq!((claim.first_seq(), claim.len()), (0, 2));
    /// if let Some(event) = claim.get_mut(1) { *event = 5; }
    /// assert!(claim.get_mut(2).is_none());
    /// # claim.publish();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut E> {
        // SAFETY: claimed by the handle that this borrows (I1, producer::I2); `&mut self` excludes
        // a second reference.
        (offset < self.len)
            .then(|| unsafe { &mut *self.producer.cell(self.seq.wrapping_add(offset as u64)) })
    }

    /// Iterates over mutable references to the claim's events, in the order of their positions. A
    /// claim may continue from the ring's last slot to its first one. `for_each` checks this once,
    /// and a `for` loop checks it at each event, which takes about a third of a nanosecond.
    ///
    /// Example: [`Producer::claim_n`].
    #[inline]
    pub fn iter_mut(&mut self) -> EventsIterMut<'_, E, L> {
        // SAFETY: as in `get_mut`; the iterator yields each slot once.
        unsafe { EventsIterMut::new(self.producer.view(), self.seq, self.len) }
    }

    /// Publishes all events of the claim at once, and returns the first event's position.
    ///
    /// For a claim of at most 2^15 events, the call usually makes a single store. If the wait
    /// strategy parks, each call also loads the wait queue's state once.
    ///
    /// Example: [`Producer::claim_n`].
    #[inline]
    pub fn publish(self) -> u64 {
        let (seq, len) = (self.seq, self.len as u64);
        self.producer.clear_open_claim();
        self.producer.commit(seq, len);
        std::mem::forget(self);
        seq
    }
}

impl<E, S: sealed::Sharing> Slots<'_, E, Contiguous, S> {
    /// Returns the claim's events as two slices. The second slice is empty unless the claim
    /// continues from the ring's last slot to its first slot.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64).contiguous();
    /// let copy = graph.reader("copy");
    /// let ring = graph.build()?;
    /// let (mut tx, mut rx) = (ring.producer(), ring.reader(copy));
    /// tx.claim_n(6)?.publish();
    /// assert_eq!(rx.poll(6, |_, _| ())?, 6);
    /// let numbers = [1, 2, 3, 4, 5];
    /// let mut claim = tx.claim_n(numbers.len())?;
    /// let (front, back) = claim.as_mut_slices();
    /// let (first, rest) = numbers.split_at(front.len());
    /// front.copy_from_slice(first);
    /// back.copy_from_slice(rest);
    /// assert_eq!((front.len(), back.len()), (2, 3));
    /// claim.publish();
    /// assert!(rx.try_batch(8)?.iter().eq(&numbers));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn as_mut_slices(&mut self) -> (&mut [E], &mut [E]) {
        // SAFETY: as in `get_mut`.
        unsafe { mut_slices(self.producer.view(), self.seq, self.len) }
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
        self.producer.clear_open_claim();
        self.producer.give_up(self.seq, self.len as u64);
    }
}

impl<E: fmt::Debug, L: Layout, S: sealed::Sharing> fmt::Debug for Slots<'_, E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: claimed by the handle that this borrows (I1, producer::I2); `&self` excludes
        // writers.
        unsafe { Events::<E, L>::new(self.producer.view(), self.seq, self.len as u64) }.fmt(f)
    }
}

impl<E: fmt::Debug, L: Layout, S: sealed::Sharing> fmt::Debug for Slot<'_, E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
