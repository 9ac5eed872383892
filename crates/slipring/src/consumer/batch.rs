//! A batch is a number of events that a handle lends until the batch is released or dropped.
//!
//! Invariants
//! - I1: a handle lends one batch at a time, because a batch borrows its handle mutably. While the
//!   batch lives, only the batch moves the handle's position.
//! - I2: a batch that is dropped or forgotten without a release does not move its handle's
//!   position, so the handle lends the same events again.
//! - I3: a batch never gives out `&mut EventsMut`. With two such references, a caller could swap
//!   the views of two batches, and then use a view after its own batch was released.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Index, IndexMut};

use crate::consumer::markers::{Updating, sealed};
use crate::consumer::position::ConsumerPosition;
use crate::consumer::waiting::Counting;
use crate::ring::events::{Events, EventsIter, EventsIterMut, mut_slices, out_of_bounds};
use crate::ring::slots::{Contiguous, Interleaved, Layout, Storage};

/// Events lent to a stage together: consecutive positions in their order, without a tombstone. A
/// batch dereferences to [`Events`].
///
/// [`Batch::release`] gives the events back to the graph. If a batch is dropped without a release,
/// the handle's next call lends the same events again.
///
/// ```
/// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
/// for i in 0..4 { tx.publish(|v| *v = i * 10)?; }
/// drop(rx.try_batch(8)?); // not released
/// let batch = rx.try_batch(8)?;
/// assert_eq!((batch.first_seq(), batch.len(), batch[3]), (0, 4, 30));
/// assert_eq!(batch.iter().sum::<u64>(), 60);
/// batch.release();
/// assert!(rx.try_batch(8).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch that is dropped is lent again: give its events back by `release`"]
pub struct Batch<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout = Interleaved> {
    pub(crate) view: Events<'c, E, L>,
    /// Number of events that the batch lends.
    pub(crate) len: u64,
    /// The handle's position.
    pub(crate) position: &'c mut C::Position<E, L>,
    access: PhantomData<A>,
}

impl<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout> Batch<'c, E, A, C, L> {
    /// Lends `len` events.
    ///
    /// # Safety
    ///
    /// At the handle's last poll, at least `len` events were available, and the handle has released
    /// none since.
    #[inline]
    pub(crate) unsafe fn new(position: &'c mut C::Position<E, L>, len: u64) -> Self {
        let state = position.state();
        let first = position.next();
        state.touch(first, len);
        // SAFETY: `[first, first + len)` is lent to this position (position::I2).
        // The batch borrows the position, so the release comes after the last use of the view (I1).
        let view = unsafe { Events::new(state.slots, first, len) };
        Batch { view, len, position, access: PhantomData }
    }

    /// Releases the batch's events to the next stages or, if none follows, their slots to the
    /// producers.
    ///
    /// A release costs one store to a cache line that other threads read. The call also checks the
    /// wait queue of each party that may wait for the release, and wakes the threads that sleep
    /// there.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(1, || 0u64)?;
    /// tx.publish(|v| *v = 7)?;
    /// let batch = rx.try_batch(1)?;
    /// assert_eq!(tx.remaining(), 0);
    /// batch.release();
    /// assert_eq!(tx.remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn release(self) {
        let Batch { len, position, .. } = self;
        if len != 0 {
            position.count_batch();
            position.pass(len);
        }
    }

    /// Releases the batch's first `count` events, and keeps the later ones. After the call, offset
    /// 0 of the batch is the first event that it kept. A call costs as much as [`Batch::release`],
    /// or nothing if `count` is 0.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(4, || 0u64)?;
    /// for i in 0..4 { tx.publish(|v| *v = i)?; }
    /// let mut batch = rx.try_batch(4)?;
    /// batch.release_front(3);
    /// assert_eq!(tx.remaining(), 3);
    /// assert_eq!((batch.first_seq(), batch.len(), batch[0]), (3, 1, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the batch has fewer than `count` events. A call that panics releases no event.
    pub fn release_front(&mut self, count: usize) {
        assert!(
            count <= self.view.len(),
            "cannot release {count} events of a batch of {}",
            self.view.len()
        );
        if count == 0 {
            return;
        }
        let count = count as u64;
        self.position.state_mut().has_new_counts = true;
        self.position.pass(count);
        self.len -= count;
        if self.len == 0 {
            self.position.count_batch();
        }
        // SAFETY: the rest of the batch is still lent.
        // No reference to a released event is left, because the reference would borrow this batch.
        self.view =
            unsafe { Events::new(self.position.state().slots, self.position.next(), self.len) };
    }
}

impl<E, A: sealed::Access, C: sealed::Holds, L: Layout> Batch<'_, E, A, C, L> {
    /// Holds the batch's events: they stay unreleased while the handle continues with later events.
    /// For example, a journal holds events until it has written them to disk. A hold stores nothing
    /// that other threads read.
    ///
    /// [`Consumer::release_until`](crate::Consumer::release_until) releases held events. Every
    /// later [`Batch::release`], [`Batch::release_front`], `poll` or `for_each` of the same handle
    /// releases held events, too. A handle lends each held event only once.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(4, || 0u64)?;
    /// for i in 0..4 { tx.publish(|v| *v = i)?; }
    /// rx.try_batch(3)?.hold();
    /// assert_eq!(rx.try_batch(3)?.first_seq(), 3);
    /// assert_eq!(tx.remaining(), 0);
    /// rx.release_until(2);
    /// assert_eq!(tx.remaining(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold(self) {
        let Batch { len, position, .. } = self;
        if len != 0 {
            position.count_batch();
            position.advance(len, len);
        }
    }
}

impl<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout> Deref for Batch<'c, E, A, C, L> {
    type Target = Events<'c, E, L>;
    #[inline]
    fn deref(&self) -> &Events<'c, E, L> {
        &self.view
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Index<usize> for Batch<'_, E, A, C, L> {
    type Output = E;
    #[inline]
    fn index(&self, offset: usize) -> &E {
        &self.view[offset]
    }
}

impl<E, C: sealed::Delivery, L: Layout> Batch<'_, E, Updating, C, L> {
    /// Returns a mutable reference to the event at `offset` from the batch's first event. Returns
    /// `None` if the batch has no event at `offset`; indexing (`batch[offset]`) would panic there.
    ///
    /// Example: [`Batch::iter_mut`].
    #[inline]
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut E> {
        let seq = self.view.first_seq().wrapping_add(offset as u64);
        // SAFETY: no other stage touches the batch of an updating stage (plan::I1).
        // `&mut self` rules out a second reference.
        (offset < self.view.len()).then(|| unsafe { &mut *self.position.state().slots.event(seq) })
    }

    /// Iterates over mutable references to the batch's events, in the order of their positions.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64);
    /// let double = graph.updater("double");
    /// let end = graph.reader("end").after(&double);
    /// let ring = graph.build()?;
    /// let (mut tx, mut double, mut end) =
    ///     (ring.producer(), ring.updater(double), ring.reader(end));
    /// for i in 0..3 { tx.publish(|v| *v = i)?; }
    /// let mut batch = double.try_batch(8)?;
    /// for event in batch.iter_mut() { *event *= 2; }
    /// batch[0] = 100;
    /// if let Some(event) = batch.get_mut(1) { *event += 1; }
    /// assert!(batch.get_mut(3).is_none());
    /// batch.release();
    /// assert!(end.try_batch(8)?.iter().eq(&[100, 3, 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn iter_mut(&mut self) -> EventsIterMut<'_, E, L> {
        // SAFETY: as in `get_mut`, no other stage touches the batch (plan::I1). The iterator
        // returns each event once.
        unsafe {
            EventsIterMut::new(self.position.state().slots, self.view.first_seq(), self.view.len())
        }
    }
}

impl<E, C: sealed::Delivery> Batch<'_, E, Updating, C, Contiguous> {
    /// Returns the batch's events as two slices. The second slice is empty unless the batch
    /// continues from the ring's last slot to its first slot.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64).contiguous();
    /// let sort = graph.updater("sort");
    /// let ring = graph.build()?;
    /// let (mut tx, mut sort) = (ring.producer(), ring.updater(sort));
    /// for i in [3, 1, 2] { tx.publish(|v| *v = i)?; }
    /// let mut batch = sort.try_batch(8)?;
    /// let (front, back) = batch.as_mut_slices();
    /// front.sort_unstable();
    /// assert_eq!((&*front, &*back), (&[1, 2, 3][..], &[][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn as_mut_slices(&mut self) -> (&mut [E], &mut [E]) {
        let (first, len) = (self.view.first_seq(), self.view.len());
        // SAFETY: as in `get_mut`.
        unsafe { mut_slices(self.position.state().slots, first, len) }
    }
}

impl<E, C: sealed::Delivery, L: Layout> IndexMut<usize> for Batch<'_, E, Updating, C, L> {
    #[inline]
    fn index_mut(&mut self, offset: usize) -> &mut E {
        let len = self.view.len();
        self.get_mut(offset).unwrap_or_else(|| out_of_bounds(offset, len))
    }
}

/// `for event in &batch` visits the events in the order of their positions. The loop releases
/// nothing, also if it ends early: the caller releases the batch behind it.
///
/// A loop over the batch itself does not exist, because the loop could keep references to events
/// beyond their release.
///
/// ```
/// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
/// for i in 1..=3 { tx.publish(|v| *v = i)?; }
/// let (batch, mut sum) = (rx.batch(8)?, 0);
/// for event in &batch {
///     sum += event;
/// }
/// batch.release();
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'b, E, A: sealed::Access, C: sealed::Delivery, L: Layout> IntoIterator
    for &'b Batch<'_, E, A, C, L>
{
    type Item = &'b E;
    type IntoIter = EventsIter<'b, E, L>;
    #[inline]
    fn into_iter(self) -> EventsIter<'b, E, L> {
        self.view.iter()
    }
}

/// `for event in &mut batch` visits mutable references to the events, as [`Batch::iter_mut`] does.
impl<'b, E, C: sealed::Delivery, L: Layout> IntoIterator for &'b mut Batch<'_, E, Updating, C, L> {
    type Item = &'b mut E;
    type IntoIter = EventsIterMut<'b, E, L>;
    #[inline]
    fn into_iter(self) -> EventsIterMut<'b, E, L> {
        self.iter_mut()
    }
}

impl<E: fmt::Debug, A: sealed::Access, C: sealed::Delivery, L: Layout> fmt::Debug
    for Batch<'_, E, A, C, L>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}
