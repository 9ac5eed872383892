//! The place of the process that waits for a promise, and the value that it is lent.
//!
//! Invariants
//! - I1: the value counts as taken once the waiting stage has released the first position, and not
//!   before.
//! - I2: the value takes precedence over the end of the request's ring: a call that finds the ring
//!   ended checks for the value once more.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use slipring::segment::{InSegment, Seated, SegmentConsumer, SegmentRequest};
use slipring::{
    Batch,
    errors::BatchError,
    markers::{Interleaved, Reading},
};

use crate::contents::{Contents, Event, Reader};
use crate::errors::PromiseError;
use crate::handles::attached::Attached;

/// The place of the process that waits for the value of a promise.
///
/// Dropping the handle leaves its place to another process, which gets the value if this process
/// has not released it.
///
/// Example: [`PromiseSegment`](crate::promises::PromiseSegment).
pub struct Awaited<T> {
    reader: SegmentConsumer<T, Reading, Seated>,
    /// Position of the value.
    first: u64,
    /// Longest wait of a call without a deadline.
    timeout: Option<Duration>,
    /// The request that the value answers, or `None` if the waits are not tied to a request.
    request: Option<SegmentRequest>,
}

impl<T: Event> Awaited<T> {
    pub(crate) fn new(reader: Reader<T>, first: u64, timeout: Option<Duration>) -> Awaited<T> {
        Awaited { reader, first, timeout, request: None }
    }

    /// Ties the waits to the request that the awaited value answers: the request at position `seq`
    /// of the ring to which `ring` is attached. A wait then also ends with
    /// [`PromiseError::Request`] if
    ///
    /// - that ring fails or is halted;
    /// - that ring is closed, and every stage has released the request;
    /// - a process that holds up the request has died, and its place is declared to report deaths
    ///   ([`OnDeath::Tell`](crate::OnDeath::Tell)). If the place is declared to wait for a
    ///   successor, the death does not end the wait.
    ///
    /// A stage may open the promise, release the request, and fulfil the promise later. If the ring
    /// ends meanwhile, the wait ends, but a later call still gets the value once it is fulfilled.
    ///
    /// ```
    /// use slipring_shm::{Segment, errors::PromiseError, promises::PromiseSegment};
    ///
    /// let requests =
    ///     Segment::<u64>::create_memfd("requests").capacity(8).reader("answer").build()?;
    /// let asked = PromiseSegment::<u64>::create_memfd("answer").build()?;
    /// // SAFETY: no other process has the memfds.
    /// let (ring, answer) = unsafe { (requests.attach()?, asked.awaited()?) };
    ///
    /// let mut tx = ring.producer()?;
    /// let seq = tx.publish(|request| *request = 7)?; // says which promise it means
    /// let mut answer = answer.of_request(&ring, seq);
    /// assert!(answer.try_take()?.is_none());
    /// tx.halt(); // or a stage fails
    /// assert!(matches!(answer.wait(), Err(PromiseError::Request(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cost
    /// The returned handle keeps this process attached to the ring. A waiting thread wakes once per
    /// notice of the ring's segment. It then checks the ring, and the locks of the processes that
    /// hold up the request.
    pub fn of_request<C: Contents>(self, ring: &Attached<C>, seq: u64) -> Awaited<T> {
        Awaited { request: ring.places.request(seq).or(self.request), ..self }
    }

    /// Waits for the value, or for the end of the request's ring, at most until `deadline`.
    fn wait_by(&mut self, deadline: Option<Instant>) -> Result<(), PromiseError> {
        let Some(request) = &self.request else {
            return match deadline {
                None => self.reader.batch(1).map(drop).map_err(PromiseError::from),
                Some(deadline) => {
                    self.reader.batch_by(1, deadline).map(drop).map_err(PromiseError::from)
                }
            };
        };
        // If the caller gives a deadline, the strategy's timeout does not apply.
        let timeout = || self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let deadline = deadline.or_else(timeout);
        loop {
            let ended = request.check();
            let notice = Instant::now().checked_add(request.notice());
            // Once the request's ring has ended, the call checks for the value once more (I2).
            let notice = if ended.is_some() { Some(Instant::now()) } else { notice };
            let Some(until) = deadline.into_iter().chain(notice).min() else {
                return Err(PromiseError::TimedOut);
            };
            match (self.reader.batch_by(1, until), ended) {
                (Ok(_), _) => return Ok(()),
                (Err(BatchError::TimedOut(_)), Some(ended)) => {
                    return Err(PromiseError::Request(ended));
                }
                (Err(BatchError::TimedOut(_)), None) if deadline != Some(until) => {}
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    /// Waits for the value, and lends it where it lies. The value stays until it is released.
    ///
    /// Example: [`PromiseSegment`](crate::promises::PromiseSegment).
    ///
    /// # Errors
    /// - [`PromiseError::Broken`]: the owner dropped the promise.
    /// - [`PromiseError::Taken`]: the value was released.
    /// - [`PromiseError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PromiseError::PeerDead`], if the promise was so declared: the owner has died.
    /// - [`PromiseError::Ended`]: the promise's ring has failed, or is damaged.
    /// - [`PromiseError::Request`]: the request's ring ended the wait; see [`Awaited::of_request`].
    ///
    /// # Cost
    /// If the value is there, the call takes a few loads and a store. A waiting call also probes
    /// the owner's lock, once in each notice.
    pub fn wait(&mut self) -> Result<Promised<'_, T>, PromiseError> {
        self.lend(|waiter| waiter.wait_by(None))
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most for the given time.
    ///
    /// ```
    /// use slipring_shm::{errors::PromiseError, promises::PromiseSegment};
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`PromiseError::Broken`]: the owner dropped the promise.
    /// - [`PromiseError::Taken`]: the value was released.
    /// - [`PromiseError::TimedOut`]: the time has passed.
    /// - [`PromiseError::PeerDead`], if the promise was so declared: the owner has died.
    /// - [`PromiseError::Ended`]: the promise's ring has failed, or is damaged.
    /// - [`PromiseError::Request`]: the request's ring ended the wait; see [`Awaited::of_request`].
    ///
    /// If the time exceeds the clock's range, the call waits without a deadline.
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
    /// - [`PromiseError::Broken`]: the owner dropped the promise.
    /// - [`PromiseError::Taken`]: the value was released.
    /// - [`PromiseError::TimedOut`]: `deadline` passed.
    /// - [`PromiseError::PeerDead`], if the promise was so declared: the owner has died.
    /// - [`PromiseError::Ended`]: the promise's ring has failed, or is damaged.
    /// - [`PromiseError::Request`]: the request's ring ended the wait; see [`Awaited::of_request`].
    ///
    /// # Cost
    /// As for [`wait`](Awaited::wait).
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Promised<'_, T>, PromiseError> {
        self.lend(|waiter| waiter.wait_by(Some(deadline)))
    }

    /// Lends the value, or returns `None` if it is not there yet. Never waits. Calls that find no
    /// value check, once in each notice, whether the owner or a process that holds up the request
    /// has died.
    ///
    /// Example: [`Awaited::wait_for`].
    ///
    /// # Errors
    /// - [`PromiseError::Broken`]: the owner dropped the promise.
    /// - [`PromiseError::Taken`]: the value was released.
    /// - [`PromiseError::PeerDead`], if the promise was so declared: the owner has died.
    /// - [`PromiseError::Ended`]: the promise's ring has failed, or is damaged.
    /// - [`PromiseError::Request`]: the request's ring ended the wait; see [`Awaited::of_request`].
    ///
    /// # Cost
    /// The call takes a few loads, and a store if the value is there.
    pub fn try_take(&mut self) -> Result<Option<Promised<'_, T>>, PromiseError> {
        let is_taken = self.reader.next_seq() != self.first;
        let ended = self.request.as_mut().and_then(SegmentRequest::poll);
        let found = match (self.reader.try_batch(1), ended) {
            (Err(BatchError::Unavailable), None) if !is_taken => return Ok(None),
            (Err(BatchError::Unavailable), Some(ended)) => Err(PromiseError::Request(ended)),
            (found, _) => found.map(drop).map_err(PromiseError::from),
        };
        self.lend(|_| found).map(Some)
    }

    /// Calls `wait`, which waits for the value, and then lends the value.
    fn lend(
        &mut self,
        wait: impl FnOnce(&mut Self) -> Result<(), PromiseError>,
    ) -> Result<Promised<'_, T>, PromiseError> {
        if self.reader.next_seq() != self.first {
            return Err(PromiseError::Taken); // I1
        }
        let told = match wait(self) {
            Ok(()) => None,
            // The owner may have fulfilled the promise after the last poll, and then died.
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

type Lent<'a, T> = Batch<'a, T, Reading, Seated, InSegment<Interleaved>>;

/// The value of a promise, lent where it lies. It dereferences to the value.
///
/// [`release`](Promised::release) or [`take`](Promised::take) ends the promise. A value that is
/// dropped without either call comes again, to this handle or to the next process that waits. So
/// processes that act on the value before they release it act at least once, even if one of them is
/// killed.
///
/// Example: [`PromiseSegment`](crate::promises::PromiseSegment).
#[must_use = "the value comes again unless it is released"]
pub struct Promised<'a, T: Event> {
    batch: Lent<'a, T>,
    redelivered: bool,
}

impl<T: Event> Promised<'_, T> {
    /// Returns whether the value was lent before, to a waiter that died or left without a release.
    ///
    /// ```
    /// use slipring_shm::promises::PromiseSegment;
    /// let segment = PromiseSegment::<u64>::create_memfd("again").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let (promise, mut first) = unsafe { (segment.promise()?, segment.awaited()?) };
    /// promise.fulfil(42)?;
    /// assert!(!first.wait()?.is_redelivered());
    /// drop(first); // as a kill would
    /// // SAFETY: as above.
    /// let mut next = unsafe { segment.awaited()? };
    /// assert!(next.wait()?.is_redelivered());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_redelivered(&self) -> bool {
        self.redelivered
    }

    /// Releases the value. No process gets it again.
    ///
    /// Example: [`PromiseSegment`](crate::promises::PromiseSegment).
    ///
    /// # Cost
    /// The call makes a few stores.
    pub fn release(self) {
        step!("promise-releasing");
        self.batch.release();
        step!("promise-released");
    }

    /// Copies the value, and releases it. If the process is killed right after the call, the value
    /// is lost.
    ///
    /// Example: [`open_memfd`](crate::promises::PromiseSegment::open_memfd).
    ///
    /// # Cost
    /// The call copies the value and makes a few stores.
    ///
    /// # Panics
    /// The call never panics, because any bytes are a valid value.
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
