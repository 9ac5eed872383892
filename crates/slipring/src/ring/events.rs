//! Views of lent events at consecutive positions, without tombstones.
//!
//! Invariants
//! - I1: as long as a view or its iterator lives, the protocol lends the view's positions: for
//!   reading or, if the view is mutable, to this view alone. The slots stay allocated meanwhile.
//! - I2: an iterator returns each position once.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use crate::ring::slots::{Contiguous, Interleaved, Layout, Storage, View};

/// A handler's second argument, after the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct At {
    /// The event's position in the stream. The first event has position 0, unless the ring was
    /// given another first position.
    pub seq: u64,
}

/// Events lent to a reader: consecutive positions, in order.
///
/// Indexing is by offset from [`Events::first_seq`]. Lent events are not always one slice, because
/// they can continue from the ring's last slot to its first slot. If the ring's layout is
/// contiguous, [`Events::as_slices`] returns the events as two slices.
///
/// ```
/// slipring::ring(8, || 0u64)
///     .read_batch("check", |events, first_seq| {
///         assert_eq!((events.first_seq(), events.is_empty()), (first_seq, false));
///         assert_eq!(events.iter().count(), events.len());
///         assert_eq!(events.get(0), Some(&events[0]));
///     })
///     .feed(0..4, |slot, i| *slot = i)?;
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct Events<'a, E, L: Layout = Interleaved> {
    slots: View<E, L>,
    first: u64,
    len: usize,
    lent: PhantomData<&'a E>,
}

/// Events lent to a writer. The view dereferences to [`Events`] for reading.
///
/// ```
/// slipring::ring(8, || 0u64)
///     .update_batch("double", |events, _| {
///         events.iter_mut().for_each(|event| *event *= 2);
///         if let Some(first) = events.get_mut(0) {
///             *first += 1;
///         }
///         events[0] -= 1;
///     })
///     .feed(0..4, |slot, i| *slot = i)?;
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct EventsMut<'a, E, L: Layout = Interleaved> {
    view: Events<'a, E, L>,
    lent: PhantomData<&'a mut E>,
}

impl<'a, E, L: Layout> Events<'a, E, L> {
    /// # Safety
    /// For all of `'a`, the protocol lends `[first, first + len)` for reading, and the slots stay
    /// allocated.
    #[inline(always)]
    pub(crate) unsafe fn new(slots: View<E, L>, first: u64, len: u64) -> Self {
        Events { slots, first, len: len as usize, lent: PhantomData }
    }

    /// Returns the number of events.
    ///
    /// Example: [`Events`].
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the view has no event.
    ///
    /// Example: [`Events`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the position of the view's first event. For an empty view, returns the position at
    /// which the next event will come.
    ///
    /// Example: [`Events`].
    #[inline]
    pub fn first_seq(&self) -> u64 {
        self.first
    }

    /// Returns the event at `offset` from the view's first event, or `None` if the view ends before
    /// it.
    ///
    /// Example: [`Events`].
    #[inline]
    pub fn get(&self, offset: usize) -> Option<&E> {
        // SAFETY: the event is lent for reading (I1).
        (offset < self.len)
            .then(|| unsafe { &*self.slots.event(self.first.wrapping_add(offset as u64)) })
    }

    /// Iterates over the events in order.
    ///
    /// Example: [`Events`].
    #[inline]
    pub fn iter(&self) -> EventsIter<'_, E, L> {
        EventsIter { cells: Cells::new(self.slots, self.first, self.len), lent: PhantomData }
    }
}

impl<E> Events<'_, E, Contiguous> {
    /// Returns the events as two slices. The second slice is empty unless the batch continues from
    /// the ring's last slot to its first slot.
    ///
    /// Example: [`Contiguous`](crate::markers::Contiguous).
    pub fn as_slices(&self) -> (&[E], &[E]) {
        let straight = straight(&*self.slots, self.first, self.len);
        // SAFETY: the events are lent for reading (I1). This layout has no gaps between events up
        // to the ring's last slot.
        unsafe {
            (
                std::slice::from_raw_parts(self.slots.event(self.first), straight),
                std::slice::from_raw_parts(
                    self.slots.event(self.first.wrapping_add(straight as u64)),
                    self.len - straight,
                ),
            )
        }
    }
}

/// Returns the number of events in `[first, first + len)` that come before the wrap from the ring's
/// last slot to its first slot.
#[inline(always)]
pub(crate) fn straight<E, S: Storage<E>>(slots: &S, first: u64, len: usize) -> usize {
    len.min((slots.mask() + 1 - (first & slots.mask())) as usize)
}

impl<'a, E, L: Layout> EventsMut<'a, E, L> {
    /// # Safety
    /// For all of `'a`, the protocol lends `[first, first + len)` to this view alone, and the slots
    /// stay allocated.
    #[inline(always)]
    pub(crate) unsafe fn new(slots: View<E, L>, first: u64, len: u64) -> Self {
        // SAFETY: the protocol lends the events for writing, which includes reading.
        EventsMut { view: unsafe { Events::new(slots, first, len) }, lent: PhantomData }
    }

    /// Returns a mutable reference to the event at `offset` from the view's first event, or `None`
    /// if the view ends before it.
    ///
    /// Example: [`EventsMut`].
    #[inline]
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut E> {
        // SAFETY: the events are lent to this view alone (I1), and `&mut self` allows no second
        // reference.
        (offset < self.view.len).then(|| unsafe {
            &mut *self.view.slots.event(self.view.first.wrapping_add(offset as u64))
        })
    }

    /// Iterates over the events in order.
    ///
    /// Example: [`EventsMut`].
    #[inline]
    pub fn iter_mut(&mut self) -> EventsIterMut<'_, E, L> {
        // SAFETY: the events are lent to this view alone (I1), and `&mut self` allows no second
        // reference.
        unsafe { EventsIterMut::new(self.view.slots, self.view.first, self.view.len) }
    }
}

impl<E, L: Layout> EventsIterMut<'_, E, L> {
    /// # Safety
    /// The protocol lends `[first, first + len)` to this iterator alone while the iterator or a
    /// reference from it is alive.
    #[inline(always)]
    pub(crate) unsafe fn new(slots: View<E, L>, first: u64, len: usize) -> Self {
        EventsIterMut { cells: Cells::new(slots, first, len), lent: PhantomData }
    }
}

impl<E> EventsMut<'_, E, Contiguous> {
    /// Returns the events as two slices. The second slice is empty unless the batch continues from
    /// the ring's last slot to its first slot.
    ///
    /// Example: [`Contiguous`](crate::markers::Contiguous).
    pub fn as_mut_slices(&mut self) -> (&mut [E], &mut [E]) {
        let Events { slots, first, len, .. } = self.view;
        // SAFETY: the events are lent to this view alone (I1), and `&mut self` allows no second
        // reference.
        unsafe { mut_slices(slots, first, len) }
    }
}

/// Returns the events in `[first, first + len)` as two slices: the events before the wrap from the
/// ring's last slot to its first slot, and the events after it.
///
/// # Safety
/// The protocol lends these events for `'a` to the caller alone, and no other reference to them is
/// used meanwhile.
#[inline]
pub(crate) unsafe fn mut_slices<'a, E>(
    slots: View<E, Contiguous>,
    first: u64,
    len: usize,
) -> (&'a mut [E], &'a mut [E]) {
    let straight = straight(&*slots, first, len);
    let wrapped = slots.event(first.wrapping_add(straight as u64));
    // SAFETY: the caller promises that the events are lent. This layout has no gaps between events
    // up to the ring's last slot. The events that are lent at once fit the ring, so the two slices
    // do not overlap.
    unsafe {
        (
            std::slice::from_raw_parts_mut(slots.event(first), straight),
            std::slice::from_raw_parts_mut(wrapped, len - straight),
        )
    }
}

impl<'a, E, L: Layout> std::ops::Deref for EventsMut<'a, E, L> {
    type Target = Events<'a, E, L>;
    #[inline]
    fn deref(&self) -> &Events<'a, E, L> {
        &self.view
    }
}

#[cold]
pub(crate) fn out_of_bounds(offset: usize, len: usize) -> ! {
    panic!("event {offset} of a batch of {len}")
}

impl<E, L: Layout> Index<usize> for Events<'_, E, L> {
    type Output = E;
    #[inline]
    fn index(&self, offset: usize) -> &E {
        self.get(offset).unwrap_or_else(|| out_of_bounds(offset, self.len))
    }
}

impl<E, L: Layout> Index<usize> for EventsMut<'_, E, L> {
    type Output = E;
    #[inline]
    fn index(&self, offset: usize) -> &E {
        &self.view[offset]
    }
}

impl<E, L: Layout> IndexMut<usize> for EventsMut<'_, E, L> {
    #[inline]
    fn index_mut(&mut self, offset: usize) -> &mut E {
        let len = self.len();
        self.get_mut(offset).unwrap_or_else(|| out_of_bounds(offset, len))
    }
}

impl<E: fmt::Debug, L: Layout> fmt::Debug for Events<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<E: fmt::Debug, L: Layout> fmt::Debug for EventsMut<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

/// Iterates over [`Events`].
pub struct EventsIter<'a, E, L: Layout> {
    cells: Cells<E, L>,
    lent: PhantomData<&'a E>,
}

/// Iterates over [`EventsMut`].
pub struct EventsIterMut<'a, E, L: Layout> {
    cells: Cells<E, L>,
    lent: PhantomData<&'a mut E>,
}

/// An iterator over the addresses of consecutive events. From one slot to the next, the address
/// grows by the distance between two events. After the ring's last slot, the iterator continues at
/// the first slot.
struct Cells<E, L: Layout> {
    slots: View<E, L>,
    /// Address of the next event, if an event is left.
    event: *mut E,
    /// Number of remaining events before the wrap from the ring's last slot to its first slot.
    straight: usize,
    /// Number of remaining events after the wrap from the ring's last slot to its first slot.
    wrapped: usize,
}

// SAFETY: the iterator holds addresses of slots, as a view does. Only the lending iterators
// dereference an address.
unsafe impl<E: Send, L: Layout> Send for Cells<E, L> {}
// SAFETY: as above.
unsafe impl<E: Sync, L: Layout> Sync for Cells<E, L> {}

impl<E, L: Layout> Cells<E, L> {
    #[inline(always)]
    fn new(slots: View<E, L>, first: u64, len: usize) -> Self {
        let straight = straight(&*slots, first, len);
        Cells { event: slots.event(first), straight, wrapped: len - straight, slots }
    }
    #[inline(always)]
    fn left(&self) -> usize {
        self.straight + self.wrapped
    }
    #[inline(always)]
    fn next(&mut self) -> Option<*mut E> {
        if self.straight == 0 {
            if self.wrapped == 0 {
                return None;
            }
            self.event = self.slots.event(0);
            self.straight = std::mem::take(&mut self.wrapped);
        }
        let event = self.event;
        // After the last event, the address is out of range, and is not used.
        self.event = event.wrapping_byte_add(self.slots.stride());
        self.straight -= 1;
        Some(event)
    }
    /// Does the same as a loop over [`Cells::next`], but does not test at each event for the wrap
    /// to the first slot: one loop visits the events before the wrap, and a second loop those after
    /// it.
    #[inline(always)]
    fn fold<A>(self, initial: A, mut f: impl FnMut(A, *mut E) -> A) -> A {
        let mut all = initial;
        for (mut event, len) in [(self.event, self.straight), (self.slots.event(0), self.wrapped)] {
            for _ in 0..len {
                all = f(all, event);
                event = event.wrapping_byte_add(self.slots.stride());
            }
        }
        all
    }
}

macro_rules! iterator {
    ($name:ident, $item:ty, |$event:ident| $lend:expr) => {
        impl<'a, E, L: Layout> Iterator for $name<'a, E, L> {
            type Item = $item;
            #[inline]
            fn next(&mut self) -> Option<$item> {
                let $event = self.cells.next()?;
                // SAFETY: the iterator's view is lent for `'a` (I1), and the iterator returns each
                // position once (I2).
                Some(unsafe { $lend })
            }
            #[inline]
            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.cells.left(), Some(self.cells.left()))
            }
            #[inline]
            fn fold<A, F: FnMut(A, $item) -> A>(self, initial: A, mut f: F) -> A {
                // SAFETY: as in `next`.
                self.cells.fold(initial, |all, $event| f(all, unsafe { $lend }))
            }
        }
        impl<E, L: Layout> ExactSizeIterator for $name<'_, E, L> {}
        impl<E, L: Layout> std::iter::FusedIterator for $name<'_, E, L> {}
    };
}
iterator!(EventsIter, &'a E, |event| &*event);
iterator!(EventsIterMut, &'a mut E, |event| &mut *event);

impl<'a, E, L: Layout> IntoIterator for &'a Events<'_, E, L> {
    type Item = &'a E;
    type IntoIter = EventsIter<'a, E, L>;
    #[inline]
    fn into_iter(self) -> EventsIter<'a, E, L> {
        self.iter()
    }
}

impl<'a, E, L: Layout> IntoIterator for &'a EventsMut<'_, E, L> {
    type Item = &'a E;
    type IntoIter = EventsIter<'a, E, L>;
    #[inline]
    fn into_iter(self) -> EventsIter<'a, E, L> {
        self.iter()
    }
}

impl<'a, E, L: Layout> IntoIterator for &'a mut EventsMut<'_, E, L> {
    type Item = &'a mut E;
    type IntoIter = EventsIterMut<'a, E, L>;
    #[inline]
    fn into_iter(self) -> EventsIterMut<'a, E, L> {
        self.iter_mut()
    }
}
