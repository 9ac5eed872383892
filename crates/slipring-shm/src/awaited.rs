//! The place of the process that waits for a promise, and the value that it is lent.
//!
//! Invariants
//! - I1: the value is taken once the stage has released the first position, and not before.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use slipring::{Batch, BatchError};

use crate::Reader;
use crate::errors::PromiseError;
use crate::event::Event;

/// The place of the process that waits for the value.
///
/// Dropping it leaves the place to another process, which gets the value if this one has not
/// released it.
///
/// Example: [`PromiseSegment`](crate::PromiseSegment).
pub struct Awaited<T> {
    reader: Reader<T>,
    /// Position of the value.
    first: u64,
}

impl<T: Event> Awaited<T> {
    pub(crate) fn new(reader: Reader<T>, first: u64) -> Awaited<T> {
        Awaited { reader, first }
    }

    /// Waits for the value, and lends it where it lies. The value stays until it is released.
    ///
    /// Example: [`PromiseSegment`](crate::PromiseSegment).
    ///
    /// # Errors
    /// [`PromiseError::Broken`]; [`PromiseError::Taken`]; [`PromiseError::PeerDead`] and
    /// [`PromiseError::Ended`], as declared; [`PromiseError::TimedOut`] with a strategy that has a
    /// timeout.
    ///
    /// # Cost
    /// A few loads and a store if the value is there. While it waits, a probe of the owner's lock
    /// each notice.
    pub fn wait(&mut self) -> Result<Promised<'_, T>, PromiseError> {
        self.lend(|reader| reader.batch(1).map(|_| ()).map_err(PromiseError::from))
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most for the given time.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{PromiseError, PromiseSegment};
    /// use std::time::{Duration, Instant};
    /// let segment = PromiseSegment::<u64>::create_memfd("late").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let mut answer = unsafe { segment.awaited()? };
    /// let error = answer.wait_for(Duration::from_millis(1)).unwrap_err();
    /// assert!(matches!(error, PromiseError::TimedOut));
    /// assert!(answer.try_take()?.is_none());
    /// // SAFETY: as above.
    /// unsafe { segment.promise()? }.fulfil(42)?;
    /// assert_eq!(answer.wait_until(Instant::now())?.take(), 42);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Awaited::wait), and [`PromiseError::TimedOut`] at the end of the time. A
    /// time beyond the clock's range never ends.
    ///
    /// # Cost
    /// As for [`wait`](Awaited::wait).
    pub fn wait_for(&mut self, time: Duration) -> Result<Promised<'_, T>, PromiseError> {
        match Instant::now().checked_add(time) {
            Some(deadline) => self.wait_until(deadline),
            None => self.wait(),
        }
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most until `deadline`.
    ///
    /// Example: [`Awaited::wait_for`].
    ///
    /// # Errors
    /// As for [`wait_for`](Awaited::wait_for).
    ///
    /// # Cost
    /// As for [`wait`](Awaited::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Promised<'_, T>, PromiseError> {
        self.lend(|reader| reader.batch_by(1, deadline).map(|_| ()).map_err(PromiseError::from))
    }

    /// Lends the value if it is there; `None`: not yet. Never waits. At each 256th call without a
    /// value, if a notice has passed, it looks whether the owner has died.
    ///
    /// Example: [`Awaited::wait_for`].
    ///
    /// # Errors
    /// As for [`wait`](Awaited::wait), without a timeout.
    ///
    /// # Cost
    /// A few loads, and a store if the value is there.
    pub fn try_take(&mut self) -> Result<Option<Promised<'_, T>>, PromiseError> {
        let is_taken = self.reader.next_seq() != self.first;
        let found = match self.reader.try_batch(1) {
            Err(BatchError::Unavailable) if !is_taken => return Ok(None),
            found => found.map(|_| ()).map_err(PromiseError::from),
        };
        self.lend(|_| found).map(Some)
    }

    /// Lends the value that `wait` waits for.
    fn lend(
        &mut self,
        wait: impl FnOnce(&mut Reader<T>) -> Result<(), PromiseError>,
    ) -> Result<Promised<'_, T>, PromiseError> {
        if self.reader.next_seq() != self.first {
            return Err(PromiseError::Taken); // I1
        }
        let told = match wait(&mut self.reader) {
            Ok(()) => None,
            // The owner may have fulfilled the promise between the last poll and its death.
            Err(told @ PromiseError::PeerDead(_)) => Some(told),
            Err(error) => return Err(error),
        };
        let redelivered = !self.reader.redelivered().is_empty();
        match self.reader.try_batch(1) {
            Ok(batch) => {
                step!("promise-lent");
                Ok(Promised { batch, redelivered })
            }
            Err(error) => Err(told.unwrap_or_else(|| error.into())),
        }
    }
}

impl<T> fmt::Debug for Awaited<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}

type Lent<'a, T> = Batch<'a, T, slipring::Reading, slipring::Seated>;

/// The value of a promise, lent where it lies. It dereferences to the value.
///
/// [`release`](Promised::release) or [`take`](Promised::take) ends the promise. A value that is
/// dropped without either comes again: to this handle, or to the next process that waits. So a
/// process that acts on the value before it releases it acts at least once, whenever it is killed.
///
/// Example: [`PromiseSegment`](crate::PromiseSegment).
#[must_use = "the value comes again unless it is released"]
pub struct Promised<'a, T: Event> {
    batch: Lent<'a, T>,
    redelivered: bool,
}

impl<T: Event> Promised<'_, T> {
    /// Returns whether the value was lent before, to a waiter that died or left without a release.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::PromiseSegment;
    /// let segment = PromiseSegment::<u64>::create_memfd("again").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let (promise, mut first) = unsafe { (segment.promise()?, segment.awaited()?) };
    /// promise.fulfil(42)?;
    /// assert!(!first.wait()?.is_redelivered());
    /// drop(first); // as a kill would
    /// // SAFETY: as above.
    /// let mut next = unsafe { segment.awaited()? };
    /// assert!(next.wait()?.is_redelivered());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_redelivered(&self) -> bool {
        self.redelivered
    }

    /// Releases the value: it does not come again, to any process.
    ///
    /// Example: [`PromiseSegment`](crate::PromiseSegment).
    ///
    /// # Cost
    /// A few stores.
    pub fn release(self) {
        step!("promise-releasing");
        self.batch.release();
        step!("promise-released");
    }

    /// Copies the value, and releases it. A process that is killed right after has lost it.
    ///
    /// Example: [`open_memfd`](crate::PromiseSegment::open_memfd).
    ///
    /// # Cost
    /// A copy of the value, and a few stores.
    ///
    /// # Panics
    /// Never: the bytes of a value are a value.
    pub fn take(self) -> T {
        let value = T::read_from_bytes(self.as_bytes()).expect("the size is the type's own");
        self.release();
        value
    }
}

impl<T: Event> Deref for Promised<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.batch[0]
    }
}

impl<T: Event + fmt::Debug> fmt::Debug for Promised<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = f.debug_struct("Promised");
        parts.field("value", &**self).field("redelivered", &self.redelivered).finish()
    }
}
