//! Conflation keeps the newest value per key while the ring is full.
//!
//! Invariants
//! - I1: The entries of the conflator's queue have indices from 0 on, in the order of insertion.
//!   `indices` maps each kept key to the index of the key's entry.
//! - I2: Kept values are published in the order in which their keys were first kept. A call of
//!   `send` publishes its own value at once only if no kept value is left.
//! - I3: The conflator allocates nothing after its creation. The queue never holds more than `room`
//!   values, and the hash table has room for twice `room` keys.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::time::Instant;

use crate::errors::{BuildError, ClaimError, ConflateError, Error, WaitError};
use crate::producer::handle::{Producer, sealed};
use crate::ring::slots::Layout;

/// A producer that keeps each key's newest value while the ring is full, instead of waiting.
///
/// Conflation fits values of which only the newest matters, such as prices. [`Producer::conflate`]
/// creates a conflator with room for a number of keys.
///
/// Each [`send`](Conflator::send) and [`flush`](Conflator::flush) first publishes kept values, as
/// far as the ring has free slots. Call `flush` while your program has no value to send, and
/// [`finish`](Conflator::finish) at the end.
/// [`StageReport::dropped`](crate::reports::StageReport::dropped) counts the replaced values, and
/// the values still kept at the conflator's drop.
///
/// ```
/// let (tx, mut rx) = slipring::unicast(2, || ("", 0))?;
/// let mut prices = tx.conflate(8, |slot, symbol: &&'static str, price| *slot = (symbol, price))?;
/// for (symbol, price) in [("A", 1), ("B", 2), ("A", 3), ("C", 4), ("A", 5)] {
///     prices.send(symbol, price)?; // two slots: A 3 and C 4 are kept, then A 5 replaces A 3
/// }
/// let mut seen = Vec::new();
/// rx.poll(8, |price, _| seen.push(*price))?;
/// assert_eq!(prices.flush()?, 0);
/// rx.poll(8, |price, _| seen.push(*price))?;
/// assert_eq!(seen, [("A", 1), ("B", 2), ("A", 5), ("C", 4)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Conflator<P: Claims, K, T, F> {
    producer: P,
    fill: F,
    /// Number of keys that the conflator can keep at a time.
    room: usize,
    kept: VecDeque<(K, T)>,
    /// Index of each kept key's entry: the number of entries inserted before it.
    indices: HashMap<K, usize>,
    /// Number of values that have left the queue since the conflator's creation.
    removed: usize,
}

/// The producer that a [`Conflator`] publishes with: a [`Producer`] or a mutable reference to one.
///
/// This trait is sealed.
pub trait Claims: claims::Claims {}

impl<P: claims::Claims> Claims for P {}

mod claims {
    use super::*;

    pub trait Claims {
        type Event;
        /// Takes one position without waiting, or returns `None` if the ring is full. An error says
        /// that the graph has ended, or that a process has died.
        fn reserve_now(&mut self) -> Result<Option<u64>, WaitError>;
        fn reserve_until(&mut self, deadline: Option<Instant>) -> Result<u64, ClaimError>;
        fn fill_at(&mut self, seq: u64, fill: impl FnOnce(&mut Self::Event));
        fn count_dropped(&mut self);
    }

    impl<E, L: Layout, S: sealed::Sharing> Claims for Producer<E, L, S> {
        type Event = E;
        fn reserve_now(&mut self) -> Result<Option<u64>, WaitError> {
            Producer::reserve_now(self)
        }
        fn reserve_until(&mut self, deadline: Option<Instant>) -> Result<u64, ClaimError> {
            self.reserve_by(1, deadline)
        }
        fn fill_at(&mut self, seq: u64, fill: impl FnOnce(&mut E)) {
            self.fill(seq, fill);
        }
        fn count_dropped(&mut self) {
            self.count_dropped();
        }
    }

    impl<P: Claims> Claims for &mut P {
        type Event = P::Event;
        fn reserve_now(&mut self) -> Result<Option<u64>, WaitError> {
            (**self).reserve_now()
        }
        fn reserve_until(&mut self, deadline: Option<Instant>) -> Result<u64, ClaimError> {
            (**self).reserve_until(deadline)
        }
        fn fill_at(&mut self, seq: u64, fill: impl FnOnce(&mut Self::Event)) {
            (**self).fill_at(seq, fill);
        }
        fn count_dropped(&mut self) {
            (**self).count_dropped();
        }
    }
}

/// The outcome of [`Conflator::send`].
#[derive(Debug, PartialEq, Eq)]
pub enum Sent<T> {
    /// The value was published; the field is the event's position.
    Published(u64),
    /// The value is kept until the ring has a free slot.
    Kept,
    /// The value replaces an older kept value of the same key; the field is the older value, which
    /// counts as dropped.
    Replaced(T),
}

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Turns this producer into a [`Conflator`] with room for up to `room` keys.
    ///
    /// `fill` fills an event from a key and a value. For a borrowed producer, as in
    /// [`Chain::run`](crate::Chain::run), use [`Conflator::new`].
    ///
    /// Example: [`Conflator`].
    ///
    /// # Errors
    /// [`BuildError::Memory`]: there is no memory for so many keys. A failed call drops the
    /// producer. Dropping the ring's only producer closes the ring.
    pub fn conflate<K: Hash + Eq + Clone, T, F: FnMut(&mut E, &K, T)>(
        self,
        room: usize,
        fill: F,
    ) -> Result<Conflator<Self, K, T, F>, Error> {
        Conflator::new(self, room, fill)
    }
}

impl<P: Claims, K: Hash + Eq + Clone, T, F: FnMut(&mut P::Event, &K, T)> Conflator<P, K, T, F> {
    /// Creates a conflator that publishes with `producer` and has room for up to `room` keys.
    ///
    /// `fill` fills an event from a key and a value. The call allocates the room for all keys.
    ///
    /// ```
    /// use slipring::Conflator;
    /// slipring::ring(8, || (0, 0)).read("prices", |_, _| ()).run(|producer| {
    ///     let mut latest = Conflator::new(producer, 4, |slot, key: &u32, value| *slot = (*key, value))
    ///         .expect("memory for four keys");
    ///     latest.send(1, 100).expect("room for the first value");
    ///     latest.finish()?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`BuildError::Memory`]: there is no memory for so many keys.
    pub fn new(producer: P, room: usize, fill: F) -> Result<Self, Error> {
        let (mut kept, mut indices) = (VecDeque::new(), HashMap::new());
        let enough = kept.try_reserve_exact(room).is_ok()
            && indices.try_reserve(room.saturating_mul(2)).is_ok();
        if !enough {
            return Err(Error::from(BuildError::Memory {
                capacity: room,
                bytes_per_slot: size_of::<(K, T)>() + 2 * size_of::<(K, usize)>(),
            }));
        }
        Ok(Conflator { producer, fill, room, kept, indices, removed: 0 })
    }

    /// Publishes the kept values and then `value`, as far as the ring has free slots. Keeps `value`
    /// if no slot is free for it. Never waits.
    ///
    /// ```
    /// use slipring::{errors::ConflateError, handles::Sent};
    /// let (tx, _rx) = slipring::unicast(1, || 0)?;
    /// let mut latest = tx.conflate(1, |slot, _key: &char, value| *slot = value)?;
    /// assert_eq!(latest.send('a', 1)?, Sent::Published(0));
    /// assert_eq!(latest.send('a', 2)?, Sent::Kept); // the ring is full
    /// assert_eq!(latest.send('a', 3)?, Sent::Replaced(2));
    /// assert!(matches!(latest.send('b', 4), Err(ConflateError::Full { room: 1, value: 4 })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ConflateError::Full`]: no slot is free, and the conflator has no room for another key.
    /// - [`ConflateError::Wait`]: the graph has ended.
    /// - [`ConflateError::Wait`] with [`WaitError::PeerDead`], between processes: a process that
    ///   holds the ring up has died, and the declaration of its stage asks for this error. The
    ///   conflator keeps the value all the same, unless it has no room for another key. A later
    ///   call works as before.
    pub fn send(&mut self, key: K, value: T) -> Result<Sent<T>, ConflateError<T>> {
        let free = self.flush().and_then(|kept| match kept {
            0 => self.producer.reserve_now(),
            _ => Ok(None),
        });
        match free {
            Ok(Some(seq)) => {
                let fill = &mut self.fill;
                self.producer.fill_at(seq, |event| fill(event, &key, value));
                Ok(Sent::Published(seq))
            }
            Ok(None) => self.keep(key, value),
            Err(error) => {
                if matches!(error, WaitError::PeerDead(_)) {
                    let _ = self.keep(key, value);
                }
                Err(error.into())
            }
        }
    }

    /// Keeps a value for which no slot is free.
    fn keep(&mut self, key: K, value: T) -> Result<Sent<T>, ConflateError<T>> {
        if let Some(&index) = self.indices.get(&key) {
            let old = std::mem::replace(&mut self.kept[index.wrapping_sub(self.removed)].1, value);
            self.producer.count_dropped();
            return Ok(Sent::Replaced(old));
        }
        if self.kept.len() == self.room {
            return Err(ConflateError::Full { room: self.room, value });
        }
        self.indices.insert(key.clone(), self.removed.wrapping_add(self.kept.len()));
        self.kept.push_back((key, value));
        Ok(Sent::Kept)
    }

    /// Publishes kept values as long as the ring has free slots. Returns the number of values still
    /// kept. Never waits.
    ///
    /// Example: [`Conflator`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// The conflator still keeps the values that the call has not published.
    pub fn flush(&mut self) -> Result<usize, WaitError> {
        while !self.kept.is_empty()
            && let Some(seq) = self.producer.reserve_now()?
        {
            self.publish_first(seq);
        }
        Ok(self.kept.len())
    }

    /// Publishes all kept values, and waits for free slots at most until `deadline`. If `deadline`
    /// is `None`, the call waits past every timeout of the wait strategy.
    ///
    /// Inside a handler on shared threads, the waiting thread runs other stages meanwhile. The call
    /// may therefore return late, by up to one turn of such a stage; see
    /// [`Chain::threads`](crate::Chain::threads).
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// use std::time::{Duration, Instant};
    /// let (tx, mut rx) = slipring::unicast(1, || 0)?;
    /// let mut latest = tx.conflate(1, |slot, _key: &char, value| *slot = value)?;
    /// latest.send('a', 1)?;
    /// latest.send('a', 2)?; // kept
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert!(matches!(latest.flush_by(soon), Err(ClaimError::TimedOut(_))));
    /// rx.poll(1, |_, _| ())?;
    /// latest.flush_by(None)?;
    /// assert_eq!(latest.kept(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed. The conflator still keeps the unpublished
    ///   values.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free a slot.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn flush_by(&mut self, deadline: impl Into<Option<Instant>>) -> Result<(), ClaimError> {
        let deadline = deadline.into();
        while !self.kept.is_empty() {
            match self.producer.reserve_until(deadline) {
                Ok(seq) => self.publish_first(seq),
                // Without a deadline, `flush_by` continues to wait after the wait strategy's
                // timeout.
                Err(ClaimError::TimedOut(_)) if deadline.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the number of kept values.
    ///
    /// Example: [`Conflator::flush_by`].
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Publishes all kept values, and waits for free slots as long as necessary. Then drops the
    /// conflator, and with it the producer, if the conflator owns it.
    ///
    /// Example: [`Conflator::new`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    pub fn finish(mut self) -> Result<(), WaitError> {
        self.flush_by(None).map_err(ClaimError::without_deadline)
    }

    /// Publishes the oldest kept value at position `seq`, which the caller has claimed.
    fn publish_first(&mut self, seq: u64) {
        let (fill, kept, indices) = (&mut self.fill, &mut self.kept, &mut self.indices);
        self.removed = self.removed.wrapping_add(1);
        // The key's `Hash` and `Eq` run inside of `fill_at`, so a panic in one of them fails the
        // graph.
        self.producer.fill_at(seq, |event| {
            if let Some((key, value)) = kept.pop_front() {
                indices.remove(&key);
                fill(event, &key, value);
            }
        });
    }
}

impl<P: Claims, K, T, F> Drop for Conflator<P, K, T, F> {
    fn drop(&mut self) {
        self.kept.iter().for_each(|_| self.producer.count_dropped());
    }
}

impl<P: Claims + fmt::Debug, K, T, F> fmt::Debug for Conflator<P, K, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflator")
            .field("producer", &self.producer)
            .field("kept", &self.kept.len())
            .field("room", &self.room)
            .finish()
    }
}
