//! Producers that copy events into a segment. The user need not trust the segment's other
//! processes.
//!
//! A producer of this module contains a producer of the module `producer`, whose events are
//! [`AtomicBytes`], and leaves claiming, publishing and waiting to it. It never lends a slot to the
//! user: between claim and publication it copies the user's value, and runs no user code.
//!
//! Invariants
//! - I1: bytes of an event are accessed only through `&AtomicBytes`.
//! - I2: no call returns with a claim that is neither published nor given up.
//! - I3: a call that does not wait takes a bounded number of steps, and a call with a deadline ends
//!   by its deadline. Both hold whatever other processes store.

use std::fmt;
use std::time::Instant;

use super::passes::passes;
use crate::base::atomic_bytes::{AtomicBytes, PlainBytes};
use crate::errors::{ClaimError, WaitError};
use crate::processes::layout::InSegment;
use crate::processes::producer::Apart;
use crate::producer::{Producer, Single, sealed};
use crate::ring::slots::Interleaved;

/// A producer of a segment that publishes copies of values. Whatever other processes store, they
/// cannot cause undefined behaviour in its calls.
///
/// Dropping the last producer closes the ring.
///
/// # Cost
/// A call costs a claim, one store for each eight bytes of an event, and a publication; see
/// [`Producer`](crate::Producer).
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::Segment;
/// let segment = Segment::<f32>::create_memfd("numbers").capacity(8).reader("all").build()?;
/// let copies = segment.attach_copies()?;
/// let (mut tx, mut all) = (copies.producer()?, copies.reader("all")?);
/// assert_eq!(tx.publish(&0.5)?, 0); // the position
/// assert_eq!(tx.publish_batch(&[1.5, 2.5])?, 1);
/// assert_eq!((all.next()?, all.next()?), ((0.5, 0), (1.5, 1)));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CopyingProducer<E: PlainBytes, S: sealed::Sharing = Single> {
    inner: Producer<AtomicBytes<E>, InSegment<Interleaved>, S>,
}

impl<E: PlainBytes, S: sealed::Sharing> CopyingProducer<E, S> {
    /// Wraps a producer of the ring as a producer that copies.
    #[doc(hidden)]
    pub fn over(inner: Producer<AtomicBytes<E>, InSegment<Interleaved>, S>) -> Self {
        CopyingProducer { inner }
    }

    pub(super) fn producer(&mut self) -> &mut Producer<AtomicBytes<E>, InSegment<Interleaved>, S> {
        &mut self.inner
    }

    /// Publishes a copy of `event`. Returns the event's position. Waits while the ring is full.
    ///
    /// Example: [`CopyingProducer`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    ///
    /// A call that returns an error publishes nothing.
    #[inline]
    pub fn publish(&mut self, event: &E) -> Result<u64, WaitError> {
        let seq = match self.inner.reserve(1) {
            Ok(seq) => seq,
            Err(refusal) => self.inner.wait_for_room(1, refusal)?,
        };
        Ok(self.put(seq, std::slice::from_ref(event)))
    }

    /// Like [`publish`](CopyingProducer::publish), but never waits.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::errors::ClaimError;
    /// use std::time::{Duration, Instant};
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(2).reader("all").build()?;
    /// let mut tx = segment.attach_copies()?.producer()?;
    /// tx.try_publish_batch(&[1, 2])?;
    /// assert!(matches!(tx.try_publish(&3), Err(ClaimError::Gated { lag: 2, .. })));
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert!(matches!(tx.publish_by(soon, &3), Err(ClaimError::TimedOut(_))));
    /// assert!(matches!(tx.publish_batch_by(soon, &[3]), Err(ClaimError::TimedOut(_))));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_publish(&mut self, event: &E) -> Result<u64, ClaimError> {
        self.try_publish_batch(std::slice::from_ref(event))
    }

    /// Like [`publish`](CopyingProducer::publish), but waits at most until `deadline`, whatever
    /// other processes store.
    ///
    /// Example: [`CopyingProducer::try_publish`].
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the slot.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn publish_by(&mut self, deadline: Instant, event: &E) -> Result<u64, ClaimError> {
        self.publish_batch_by(deadline, std::slice::from_ref(event))
    }

    /// Publishes copies of all `events` at once, so that they become visible together. Returns the
    /// position of the first event. Waits until the ring has room for all of them.
    ///
    /// Example: [`CopyingProducer`].
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `events` is empty or longer than the ring.
    /// - [`ClaimError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the slots.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// A call that returns an error publishes nothing.
    pub fn publish_batch(&mut self, events: &[E]) -> Result<u64, ClaimError> {
        self.inner.check_length(events.len())?;
        let seq = self.inner.reserve_by(events.len() as u64, None)?;
        Ok(self.put(seq, events))
    }

    /// Like [`publish_batch`](CopyingProducer::publish_batch), but never waits.
    ///
    /// Example: [`CopyingProducer::try_publish`].
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `events` is empty or longer than the ring.
    /// - [`ClaimError::Gated`]: the ring has no room for all events.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_publish_batch(&mut self, events: &[E]) -> Result<u64, ClaimError> {
        self.inner.check_length(events.len())?;
        let seq = self.inner.try_reserve(events.len() as u64)?;
        Ok(self.put(seq, events))
    }

    /// Like [`publish_batch`](CopyingProducer::publish_batch), but waits at most until `deadline`,
    /// whatever other processes store.
    ///
    /// Example: [`CopyingProducer::try_publish`].
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `events` is empty or longer than the ring.
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the slots.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn publish_batch_by(&mut self, deadline: Instant, events: &[E]) -> Result<u64, ClaimError> {
        self.inner.check_length(events.len())?;
        let seq = self.inner.reserve_by(events.len() as u64, Some(deadline))?;
        Ok(self.put(seq, events))
    }

    /// Copies `events` to the slots from `seq` on, which this handle has just claimed, and
    /// publishes them. Returns `seq`.
    #[inline(always)]
    fn put(&mut self, seq: u64, events: &[E]) -> u64 {
        for (offset, event) in (0..).zip(events) {
            let slot = self.inner.cell(seq.wrapping_add(offset));
            // SAFETY: slots::I1; the handle keeps the core. A `&AtomicBytes` is sound whatever
            // other processes store (I1).
            unsafe { &*slot }.store(event);
        }
        self.inner.commit(seq, events.len() as u64);
        seq
    }

    /// Returns the number of slots that could be claimed at this moment, at most the ring's
    /// capacity; see [`Producer::remaining`](crate::Producer::remaining).
    ///
    /// Example: [`CopyingConsumer::read_batch`](super::CopyingConsumer::read_batch).
    pub fn remaining(&mut self) -> usize {
        self.inner.remaining()
    }

    /// Returns the number of slots of the ring.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("all").build()?;
    /// assert_eq!(segment.attach_copies()?.producer()?.capacity(), 8);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// Closes this handle, as dropping it does; see [`Producer::close`](crate::Producer::close).
    ///
    /// Example: [`CopyingConsumer`](super::CopyingConsumer).
    pub fn close(self) {
        self.inner.close();
    }

    /// Ends the graph at once, without draining the ring; see
    /// [`Producer::halt`](crate::Producer::halt).
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("all").build()?;
    /// let copies = segment.attach_copies()?;
    /// let (tx, mut all) = (copies.producer()?, copies.reader("all")?);
    /// tx.halt();
    /// assert!(matches!(all.next(), Err(slipring::errors::WaitError::Halted)));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn halt(&self) {
        self.inner.halt();
    }
}

passes!(CopyingProducer<E, S>, E: PlainBytes, S: sealed::Sharing);

impl<E: PlainBytes> CopyingProducer<E, Apart> {
    /// Closes the ring for the producers of all processes; see
    /// [`Producer::close_all`](crate::Producer::close_all).
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .producers(2)
    ///     .reader("count")
    ///     .build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut one, mut other) = (copies.shared_producer()?, copies.shared_producer()?);
    /// one.publish(&1)?;
    /// one.close_all();
    /// assert!(matches!(other.publish(&2), Err(slipring::errors::WaitError::Closed)));
    /// assert_eq!(copies.reader("count")?.for_each(|_, _| ())?, 1);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_all(self) {
        self.inner.close_all();
    }
}

impl<E: PlainBytes, S: sealed::Sharing> fmt::Debug for CopyingProducer<E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyingProducer")
            .field("next_seq", &self.inner.next_seq())
            .field("capacity", &self.capacity())
            .finish()
    }
}
