//! The handles of a mirror: [`Mirror`] writes values, and [`MirrorHandle`] creates observers.

use std::fmt;
use std::marker::PhantomData;

use crate::base::sync::Arc;
use crate::errors::{BuildError, Error};
use crate::observe::words::{Plain, Words, bytes_per_slot};
use crate::ring::events::At;

/// The one writer of a small ring that holds the newest `capacity` values, for observers to read.
///
/// A [`put`](Mirror::put) never waits for an observer to read a value.
/// [`Chain::observe`](crate::Chain::observe) turns a mirror into a stage; a thread with a
/// [`Consumer`](crate::Consumer) of its own calls `put` in its loop. Dropping a mirror closes it,
/// and wakes its observers: each reads the remaining values, and then the end. A mirror that is
/// forgotten (`std::mem::forget`) never closes.
///
/// A slot takes 16 bytes plus the size of its value, rounded up to a multiple of 8 bytes.
///
/// ```
/// use slipring::{Graph, Mirror};
///
/// let graph = Graph::new(8, || 0u32);
/// let rx = graph.reader("mirror");
/// let ring = graph.build()?;
/// let (mut tx, mut rx) = (ring.producer(), ring.reader(rx));
///
/// let mut mirror = Mirror::new(4)?;
/// let mut observer = mirror.handle().observe();
/// for i in 0..8 { tx.publish(|slot| *slot = i * 10).unwrap(); }
/// drop(tx);
/// rx.for_each(|event, at| mirror.put(at.seq, event)).unwrap(); // overwrites the oldest values
///
/// let next = observer.try_next()?;
/// // An observer that is overtaken keeps 3 of 4 slots.
/// assert_eq!((next.missed, next.seq, next.value), (5, 5, 50));
/// assert_eq!(observer.map(|next| next.seq).take(2).collect::<Vec<_>>(), [6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mirror<T> {
    words: Arc<Words>,
    /// Twice the index of the next put (see `words::PUT`).
    next: u64,
    values: PhantomData<fn(T)>,
}

impl<T: Plain> Mirror<T> {
    /// Size of a slot, in bytes.
    pub const BYTES_PER_SLOT: usize = bytes_per_slot::<T>();

    /// Creates a mirror that holds the newest `capacity` values. `capacity` must be a power of two.
    ///
    /// An observer that falls behind by more than `capacity` values misses some values. With a
    /// capacity of 1, an observer can read a value only while the writer is not storing a value.
    ///
    /// Example: [`Mirror`].
    ///
    /// # Errors
    /// - [`BuildError::Capacity`]: `capacity` is not a power of two.
    /// - [`BuildError::MemoryShortage`]: the values take more memory than is available.
    /// - [`BuildError::Memory`]: the allocator has no memory for the values.
    pub fn new(capacity: usize) -> Result<Mirror<T>, Error> {
        Ok(Mirror::starting_at(capacity, 0, false)?)
    }

    /// Like [`Mirror::new`], but creates the mirror even if the values take more memory than is
    /// available: see [`Graph::allow_overcommit`](crate::Graph::allow_overcommit).
    ///
    /// ```
    /// let mut mirror = slipring::Mirror::allow_overcommit(4)?;
    /// let mut observer = mirror.handle().observe();
    /// mirror.put(0, &7u32);
    /// assert_eq!(observer.try_next()?.value, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BuildError::Capacity`]: `capacity` is not a power of two.
    /// - [`BuildError::Memory`]: the allocator has no memory for the values.
    pub fn allow_overcommit(capacity: usize) -> Result<Mirror<T>, Error> {
        Ok(Mirror::starting_at(capacity, 0, true)?)
    }

    /// Creates a mirror whose count of puts begins at `start`. `start` is twice the index of the
    /// first put (see `words::PUT`).
    pub(crate) fn starting_at(
        capacity: usize,
        start: u64,
        overcommit: bool,
    ) -> Result<Mirror<T>, BuildError> {
        let words = Arc::new(Words::new::<T>(capacity, start, overcommit)?);
        Ok(Mirror { words, next: start, values: PhantomData })
    }

    /// Copies a value and the number `seq` into the mirror, over the oldest value.
    ///
    /// `seq` is usually the position of the value's event; the mirror only stores `seq` for the
    /// observers.
    ///
    /// The call allocates nothing, and does not fail. While no observer sleeps, it costs one store
    /// per 8 bytes of the value, four further stores, and two loads. While observers poll the
    /// mirror, the writer must fetch the polled cache lines back.
    ///
    /// If observers sleep ([`Observer::wait`](crate::handles::Observer::wait)) or their tasks wait,
    /// the put wakes all of them. It then takes the lock of their wait queue, makes a system call
    /// for the threads, and calls the wakers of the tasks; a panic of a waker is contained. In a
    /// new mirror, and while observers fall asleep now and then, each put also costs a fence.
    ///
    /// Example: [`Mirror`].
    #[inline]
    pub fn put(&mut self, seq: u64, value: &T) {
        self.next = self.words.put(self.next, seq, value);
    }

    /// Puts a value as [`Mirror::put`] does while the wait queue is quiet. In a model no queue is
    /// quiet, and the fence of each notification would hide a missing edge.
    #[cfg(all(test, slipring_loom))]
    pub(crate) fn put_quietly(&mut self, seq: u64, value: &T) {
        self.next = self.words.write(self.next, seq, value);
    }

    /// Returns a handler that copies a value of each event into this mirror.
    pub(crate) fn put_each<E>(mut self, mut project: impl FnMut(&E) -> T) -> impl FnMut(&E, At) {
        move |event, at| self.put(at.seq, &project(event))
    }
}

impl<T> Mirror<T> {
    /// Returns a handle that creates observers at any time, also after the mirror's drop.
    ///
    /// Example: [`Mirror`].
    pub fn handle(&self) -> MirrorHandle<T> {
        MirrorHandle { words: self.words.clone(), values: PhantomData }
    }
}

impl<T> Drop for Mirror<T> {
    fn drop(&mut self) {
        self.words.close();
    }
}

impl<T> fmt::Debug for Mirror<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror").field("capacity", &self.words.capacity()).finish_non_exhaustive()
    }
}

/// Creates observers of a [`Mirror`], on any thread.
///
/// All clones of a handle create observers of the same mirror. A handle keeps the mirror's memory
/// alive, but does not keep it open.
///
/// ```
/// let mut mirror = slipring::Mirror::new(4)?;
/// mirror.put(0, &10u64);
/// let handle = mirror.handle();
/// let (mut new, mut old) = (handle.observe(), handle.observe_from_oldest());
/// mirror.put(1, &11);
/// assert_eq!(new.try_next().unwrap().value, 11);
/// assert_eq!(old.try_next().unwrap().value, 10);
/// assert_eq!(handle.capacity(), 4);
/// # Ok::<(), slipring::Error>(())
/// ```
pub struct MirrorHandle<T> {
    pub(super) words: Arc<Words>,
    values: PhantomData<fn() -> T>,
}

impl<T> Clone for MirrorHandle<T> {
    fn clone(&self) -> Self {
        MirrorHandle { words: self.words.clone(), values: PhantomData }
    }
}

impl<T: Plain> MirrorHandle<T> {
    /// Returns the number of values that the mirror can hold.
    ///
    /// Example: [`MirrorHandle`].
    pub fn capacity(&self) -> usize {
        self.words.capacity()
    }
}

impl<T> fmt::Debug for MirrorHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorHandle")
            .field("capacity", &self.words.capacity())
            .finish_non_exhaustive()
    }
}
