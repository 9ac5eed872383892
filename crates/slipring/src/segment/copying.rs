//! Handles that copy events out of a segment. The user need not trust the segment's other
//! processes.
//!
//! A handle of this module contains a handle of the module `consumer`, whose events are
//! [`AtomicBytes`]. It uses that handle's code to find and release events, but lends no event: the
//! user gets copies.
//!
//! Invariants
//! - I1: bytes of an event are accessed only through `&AtomicBytes`, so no other process can make
//!   an access undefined. The other words of a segment are atomic.
//! - I2: the inner handle's last call found the next `read` events. They were copied out, and are
//!   not released yet.
//! - I3: the number of steps of a call that does not wait is bounded by the ring's capacity and its
//!   number of seats. A call with a deadline ends by its deadline. Both hold whatever other
//!   processes store.

use std::fmt;
use std::time::{Duration, Instant};

use crate::base::atomic_bytes::{AtomicBytes, PlainBytes};
use crate::base::name::Name;
use crate::consumer::batch::Batch;
use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Reading, Updating, sealed};
use crate::errors::{BatchError, WaitError};
use crate::processes::layout::InSegment;
use crate::processes::markers::Succeeds;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Interleaved;

/// A handle of a stage that gets copies of the stage's events. Whatever other processes store, they
/// cannot cause undefined behaviour in its calls.
///
/// - [`next`](CopyingConsumer::next) returns a copy of one event and the event's position;
///   [`read_batch`](CopyingConsumer::read_batch) copies several events to a slice.
/// - The next call, or [`release`](CopyingConsumer::release), releases the events that a call
///   returned. Until then, no honest producer overwrites these events. If the handle is dropped
///   before that, or its process dies, the events are delivered again, to the next handle
///   ([`redelivered`](CopyingConsumer::redelivered)).
/// - A stage that updates events stores changed copies back
///   ([`write_back`](CopyingConsumer::write_back)).
///
/// # Cost
/// Costs one load for each eight bytes of an event, and one store for the release. Releasing one
/// event costs as much as releasing many, so [`read_batch`](CopyingConsumer::read_batch) is cheaper
/// for small events.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::Segment;
/// let segment = Segment::<u64>::create_memfd("numbers").capacity(8).reader("sum").build()?;
/// let copies = segment.attach_copies()?;
/// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
/// for n in 0..3 { tx.publish(&(n * 10))?; }
/// tx.close();
/// assert_eq!(sum.next()?, (0, 0));
/// assert_eq!(sum.next()?, (10, 1)); // releases the event at 0
/// drop(sum); // the event at 1 was not released
/// let mut sum = copies.reader("sum")?;
/// assert_eq!((sum.redelivered(), sum.next()?), ((1..2).into(), (10, 1)));
/// assert_eq!(sum.for_each(|number, at| assert_eq!((number, at), (20, 2)))?, 1);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CopyingConsumer<E: PlainBytes, A: sealed::Access, C: sealed::Delivery> {
    inner: Consumer<AtomicBytes<E>, A, C, InSegment<Interleaved>>,
    /// Number of events that were copied out and are not released yet (I2).
    read: u64,
}

impl<E: PlainBytes, A: sealed::Access, C: sealed::Delivery> CopyingConsumer<E, A, C> {
    /// Turns `inner`, a consumer of the ring that has not lent an event yet, into one that copies.
    #[doc(hidden)]
    pub fn over(inner: Consumer<AtomicBytes<E>, A, C, InSegment<Interleaved>>) -> Self {
        CopyingConsumer { inner, read: 0 }
    }

    /// Returns the stage's name.
    ///
    /// Example: [`CopyingConsumer::read_batch`].
    pub fn stage(&self) -> Name {
        self.inner.stage()
    }

    /// Returns a copy of the next event, and the event's position. Waits while no event is
    /// available. First releases the events of the last call.
    ///
    /// Example: [`CopyingConsumer`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "an iterator has no error of its own")]
    pub fn next(&mut self) -> Result<(E, u64), WaitError> {
        self.release();
        let batch = self.inner.batch(1)?;
        let event = first(&batch);
        self.read = batch.len() as u64;
        Ok(event)
    }

    /// Like [`next`](CopyingConsumer::next), but never waits.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::errors::BatchError;
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("sum").build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
    /// assert!(matches!(sum.try_next(), Err(BatchError::Unavailable)));
    /// tx.publish(&7)?;
    /// assert_eq!(sum.try_next()?, (7, 0));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: no event is available yet.
    /// - [`BatchError::Contended`]: another worker of the pool took the available events.
    /// - [`BatchError::Wait`]: no event will come any more.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_next(&mut self) -> Result<(E, u64), BatchError> {
        self.release();
        let batch = self.inner.try_batch(1)?;
        let event = first(&batch);
        self.read = batch.len() as u64;
        Ok(event)
    }

    /// Like [`next`](CopyingConsumer::next), but waits at most until `deadline`, whatever other
    /// processes store.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::errors::BatchError;
    /// use std::time::{Duration, Instant};
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("sum").build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert!(matches!(sum.next_by(soon), Err(BatchError::TimedOut(_))));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed.
    /// - [`BatchError::Wait`]: no event will come any more, or only this thread could release it.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn next_by(&mut self, deadline: Instant) -> Result<(E, u64), BatchError> {
        self.release();
        let batch = self.inner.batch_by(1, deadline)?;
        let event = first(&batch);
        self.read = batch.len() as u64;
        Ok(event)
    }

    /// Releases the events of the previous call, and waits until an event is available. Then copies
    /// to `events` as many available events as fit. Returns the position of the first event, and
    /// the number of events. If `events` is empty, the call does not wait.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("sum").build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
    /// tx.publish_batch(&[1, 2, 3])?;
    /// let mut events = [0; 2];
    /// assert_eq!((sum.read_batch(&mut events)?, events), ((0, 2), [1, 2]));
    /// assert_eq!((sum.read_batch(&mut events)?, events[0]), ((2, 1), 3));
    /// sum.release();
    /// assert_eq!((tx.remaining(), sum.stage().as_str()), (8, "sum"));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    ///
    /// A call that returns an error copies no event.
    pub fn read_batch(&mut self, events: &mut [E]) -> Result<(u64, usize), WaitError> {
        self.release();
        let batch = self.inner.batch(events.len())?;
        Ok(copy(&batch, events, &mut self.read))
    }

    /// Like [`read_batch`](CopyingConsumer::read_batch), but never waits.
    ///
    /// Example: [`CopyingConsumer::read_batch`].
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: no event is available yet.
    /// - [`BatchError::Contended`]: another worker of the pool took the available events.
    /// - [`BatchError::Wait`]: no event will come any more.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// A call that returns an error copies no event.
    pub fn try_read_batch(&mut self, events: &mut [E]) -> Result<(u64, usize), BatchError> {
        self.release();
        let batch = self.inner.try_batch(events.len())?;
        Ok(copy(&batch, events, &mut self.read))
    }

    /// Like [`read_batch`](CopyingConsumer::read_batch), but waits at most until `deadline`,
    /// whatever other processes store.
    ///
    /// Example: [`CopyingConsumer::read_batch`].
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed.
    /// - [`BatchError::Wait`]: no event will come any more, or only this thread could release it.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// A call that returns an error copies no event.
    pub fn read_batch_by(
        &mut self,
        deadline: Instant,
        events: &mut [E],
    ) -> Result<(u64, usize), BatchError> {
        self.release();
        let batch = self.inner.batch_by(events.len(), deadline)?;
        Ok(copy(&batch, events, &mut self.read))
    }

    /// Releases the events of the previous call, and waits until `events` can be filled or, once
    /// the oldest available event has waited for `time`, until one event is available at least.
    /// Then copies the available events that fit. Returns the position of the first event, and the
    /// number of events. See [`Consumer::batch_within`](crate::Consumer::batch_within).
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use std::time::Duration;
    /// let segment =
    ///     slipring_shm::Segment::<u64>::create_memfd("n").capacity(8).reader("sum").build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
    /// tx.publish_batch(&[1, 2, 3])?;
    /// tx.close();
    /// let (minute, mut events) = (Duration::from_secs(60), [0; 2]);
    /// assert_eq!((sum.read_batch_within(minute, &mut events)?, events), ((0, 2), [1, 2]));
    /// assert_eq!((sum.read_batch_within(minute, &mut events)?, events[0]), ((2, 1), 3));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The call returns the errors of [`Consumer::batch_within`](crate::Consumer::batch_within). A
    /// call that returns an error copies no event.
    ///
    /// # Cost
    /// Costs what [`Consumer::batch_within`](crate::Consumer::batch_within) costs, and the copies.
    pub fn read_batch_within(
        &mut self,
        time: Duration,
        events: &mut [E],
    ) -> Result<(u64, usize), WaitError> {
        self.release();
        let batch = self.inner.batch_within(events.len(), time)?;
        Ok(copy(&batch, events, &mut self.read))
    }

    /// Like [`read_batch_within`](CopyingConsumer::read_batch_within), but waits at most until
    /// `deadline`, whatever other processes store. If events are there at the deadline, the call
    /// copies them.
    ///
    /// Example: [`CopyingConsumer::read_batch_within`].
    ///
    /// # Errors
    /// The call returns the errors of
    /// [`Consumer::batch_within_by`](crate::Consumer::batch_within_by). A call that returns an
    /// error copies no event.
    pub fn read_batch_within_by(
        &mut self,
        time: Duration,
        deadline: Instant,
        events: &mut [E],
    ) -> Result<(u64, usize), BatchError> {
        self.release();
        let batch = self.inner.batch_within_by(events.len(), time, deadline)?;
        Ok(copy(&batch, events, &mut self.read))
    }

    /// Releases the events that the last call returned, so that the next stages get them or, after
    /// the last stage, the producers get their slots back. Does nothing if the last call returned
    /// no event, or if its events are released already.
    ///
    /// Costs as much as [`Batch::release`](crate::Batch::release).
    ///
    /// Example: [`CopyingConsumer::read_batch`].
    #[inline]
    pub fn release(&mut self) {
        let read = std::mem::take(&mut self.read);
        if read != 0 {
            self.inner.release_next(read); // I2
        }
    }
}

/// Returns a copy of a batch's first event, and the event's position. The batch is not empty.
fn first<E: PlainBytes, A: sealed::Access, C: sealed::Delivery>(
    batch: &Batch<'_, AtomicBytes<E>, A, C, InSegment<Interleaved>>,
) -> (E, u64) {
    (batch[0].load(), batch.first_seq())
}

/// Copies a batch to `events`, which has the batch's length, and notes in `read` how many events
/// the handle has to release. Returns the position of the first event, and the number of events.
fn copy<E: PlainBytes, A: sealed::Access, C: sealed::Delivery>(
    batch: &Batch<'_, AtomicBytes<E>, A, C, InSegment<Interleaved>>,
    events: &mut [E],
    read: &mut u64,
) -> (u64, usize) {
    events.iter_mut().zip(batch.iter()).for_each(|(event, lent)| lent.load_to(event));
    *read = batch.len() as u64;
    (batch.first_seq(), batch.len())
}

impl<E: PlainBytes, C: sealed::Delivery> CopyingConsumer<E, Reading, C> {
    /// Calls `f` with a copy of each event and the event's position, until the stream ends. Each
    /// event is released after `f` has returned. Returns the number of events.
    ///
    /// Example: [`CopyingConsumer`].
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn for_each(&mut self, mut f: impl FnMut(E, u64)) -> Result<u64, WaitError> {
        let mut count = 0;
        loop {
            match self.next() {
                Ok((event, seq)) => {
                    // If `f` panics, the next call returns the event again.
                    let read = std::mem::take(&mut self.read);
                    f(event, seq);
                    self.read = read;
                }
                Err(WaitError::Closed) => return Ok(count),
                Err(error) => return Err(error),
            }
            count += 1;
        }
    }
}

impl<E: PlainBytes, C: sealed::Delivery> CopyingConsumer<E, Updating, C> {
    /// If the last call returned the event at `seq`, and that event is not released, stores a copy
    /// of `event` over it. Returns whether the copy was stored.
    ///
    /// A handle that is dropped or dies between the call and the release may leave the event
    /// half-written; see [`redelivered`](CopyingConsumer::redelivered).
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .updater("double")
    ///     .reader("sum")
    ///     .after(["double"])
    ///     .build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut double) = (copies.producer()?, copies.updater("double")?);
    /// let mut sum = copies.reader("sum")?;
    /// tx.publish(&21)?;
    /// let (number, seq) = double.next()?;
    /// assert!(double.write_back(seq, &(2 * number)));
    /// double.release();
    /// assert!(!double.write_back(seq, &0)); // released
    /// assert_eq!(sum.next()?, (42, 0));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_back(&mut self, seq: u64, event: &E) -> bool {
        let batch = self.inner.lend(self.read); // I2
        let offset = seq.wrapping_sub(batch.first_seq());
        let found = usize::try_from(offset).ok().and_then(|offset| batch.get(offset));
        found.map(|lent| lent.store(event)).is_some()
    }

    /// Calls `f` with a copy of each event and the event's position, until the stream ends. After
    /// `f` has returned, stores the copy back and releases the event. Returns the number of events.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .updater("double")
    ///     .reader("sum")
    ///     .after(["double"])
    ///     .build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut double) = (copies.producer()?, copies.updater("double")?);
    /// let mut sum = copies.reader("sum")?;
    /// tx.publish(&21)?;
    /// tx.close();
    /// assert_eq!(double.for_each(|number, _| *number *= 2)?, 1);
    /// assert_eq!(sum.next()?, (42, 0));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn for_each(&mut self, mut f: impl FnMut(&mut E, u64)) -> Result<u64, WaitError> {
        let mut count = 0;
        loop {
            match self.next() {
                Ok((mut event, seq)) => {
                    // If `f` panics, the next call returns the event again.
                    let read = std::mem::take(&mut self.read);
                    f(&mut event, seq);
                    self.read = read;
                    self.write_back(seq, &event);
                }
                Err(WaitError::Closed) => return Ok(count),
                Err(error) => return Err(error),
            }
            count += 1;
        }
    }
}

impl<E: PlainBytes, A: sealed::Access, C: Succeeds> CopyingConsumer<E, A, C> {
    /// Returns the positions of the events that another handle got and did not release, and that
    /// this handle gets again; see [`Consumer::redelivered`](crate::Consumer::redelivered). If the
    /// stage writes, each of these events may be half-written. The range has no more positions than
    /// the ring has slots, whatever other processes store.
    ///
    /// Example: [`CopyingConsumer`].
    pub fn redelivered(&self) -> SeqRange {
        self.inner.redelivered()
    }
}

impl<E: PlainBytes, A: sealed::Access, C: sealed::Delivery> fmt::Debug
    for CopyingConsumer<E, A, C>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyingConsumer")
            .field("stage", &self.stage())
            .field("next_seq", &self.inner.next_seq().wrapping_add(self.read))
            .finish()
    }
}
