//! Keeping the newest per key while the ring is full: conflation, in a table of the producer's own.
//!
//! Invariants
//! - I1: `places` has one entry for each value that is kept, and says how many values were kept
//!   before it, counted from the first ever.
//! - I2: what is kept goes out in the order in which its keys came, and before anything that comes
//!   later.
//! - I3: nothing is allocated after the build: the queue never holds more than `room`, and the
//!   table has room for twice as many.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::time::Instant;

use crate::errors::{BuildError, ClaimError, WaitError};
use crate::producer::{Producer, sealed};
use crate::ring::slots::Layout;

/// A producer that never waits: while the ring is full it keeps values, the newest for each key, up
/// to so many, and publishes them as soon as there is room. For prices, positions, states: where
/// only the last value counts. From [`Producer::conflate`].
///
/// Values that were replaced are counted as dropped
/// ([`StageReport::dropped`](crate::StageReport::dropped)), as are those still kept when this goes.
/// Room is looked for when something is sent, and on [`flush`](Conflator::flush); call that when
/// nothing is sent for a while, and [`finish`](Conflator::finish) at the end.
///
/// ```
/// let (tx, mut rx) = slipring::unicast(2, || ("", 0))?;
/// let mut prices = tx.conflate(8, |slot, symbol: &&'static str, price| *slot = (symbol, price))?;
/// for (symbol, price) in [("A", 1), ("B", 2), ("A", 3), ("C", 4), ("A", 5)] {
///     prices.send(symbol, price)?; // the ring has two slots: A 3 and C 4 are kept, and then A 5 takes the place of A 3
/// }
/// let mut seen = Vec::new();
/// rx.poll(8, |price, _| seen.push(*price))?;
/// assert_eq!(prices.flush()?, 0);
/// rx.poll(8, |price, _| seen.push(*price))?;
/// assert_eq!(seen, [("A", 1), ("B", 2), ("A", 5), ("C", 4)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Conflator<P: Sends, K, T, F> {
    producer: P,
    fill: F,
    room: usize,
    kept: VecDeque<(K, T)>,
    places: HashMap<K, usize>,
    /// How many values went out of the queue, ever.
    gone: usize,
}

/// What a [`Conflator`] sends by: a [`Producer`], or `&mut` of one.
pub trait Sends: sends::Sends {}

impl<P: sends::Sends> Sends for P {}

mod sends {
    use super::*;

    pub trait Sends {
        type Event;
        /// A position, if the ring has room.
        fn reserve_now(&mut self) -> Result<Option<u64>, WaitError>;
        fn reserve_until(&mut self, deadline: Option<Instant>) -> Result<u64, ClaimError>;
        fn fill_at(&mut self, seq: u64, fill: impl FnOnce(&mut Self::Event));
        fn count_dropped(&mut self);
    }

    impl<E, L: Layout, S: sealed::Sharing> Sends for Producer<E, L, S> {
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
            self.dropped();
        }
    }

    impl<P: Sends> Sends for &mut P {
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

/// What became of a value that was sent to a [`Conflator`].
#[derive(Debug, PartialEq, Eq)]
pub enum Sent<T> {
    /// It was published, at this position.
    Published(u64),
    /// It is kept until there is room.
    Kept,
    /// It is kept in the place of this one, which has the same key, and is dropped.
    Replaced(T),
}

/// Why a [`Conflator`] did not take a value.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConflateError<T> {
    /// The ring is full, and so is the table, and nothing with this key is in it. The value comes
    /// back.
    Full {
        /// How many values the table has room for.
        room: usize,
        /// The value.
        value: T,
    },
    /// The ring takes nothing any more.
    Wait(WaitError),
}

impl<T> fmt::Display for ConflateError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConflateError::Full { room, .. } => {
                write!(
                    f,
                    "the ring is full, and values of {room} other keys are kept, as many as there is room for; make more room, or drop this one"
                )
            }
            ConflateError::Wait(closed) => closed.fmt(f),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for ConflateError<T> {}

impl<T> From<WaitError> for ConflateError<T> {
    fn from(closed: WaitError) -> Self {
        ConflateError::Wait(closed)
    }
}

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Makes this a producer that keeps the newest value for each key while the ring is full, for
    /// up to `room` keys. `fill` fills an event from a key and a value. See [`Conflator`]; where
    /// there is only `&mut` of a producer, as in [`Chain::run`](crate::Chain::run),
    /// [`Conflator::new`] takes that.
    ///
    /// # Errors
    /// [`BuildError::Memory`] if there is none for so many; the ring is closed then, for this
    /// handle is gone.
    pub fn conflate<K: Hash + Eq + Clone, T, F: FnMut(&mut E, &K, T)>(
        self,
        room: usize,
        fill: F,
    ) -> Result<Conflator<Self, K, T, F>, BuildError> {
        Conflator::new(self, room, fill)
    }
}

impl<P: Sends, K: Hash + Eq + Clone, T, F: FnMut(&mut P::Event, &K, T)> Conflator<P, K, T, F> {
    /// Keeps the newest value for each key while the ring is full, for up to `room` keys. `fill`
    /// fills an event from a key and a value.
    ///
    /// # Errors
    /// [`BuildError::Memory`] if there is none for so many.
    pub fn new(producer: P, room: usize, fill: F) -> Result<Self, BuildError> {
        let (mut kept, mut places) = (VecDeque::new(), HashMap::new());
        let enough = kept.try_reserve_exact(room).is_ok()
            && places.try_reserve(room.saturating_mul(2)).is_ok();
        if !enough {
            return Err(BuildError::Memory {
                capacity: room,
                bytes_per_slot: size_of::<(K, T)>() + 2 * size_of::<(K, usize)>(),
            });
        }
        Ok(Conflator { producer, fill, room, kept, places, gone: 0 })
    }

    /// Publishes the value if there is room, after all that is kept; otherwise keeps it. Never
    /// waits.
    ///
    /// # Errors
    /// [`ConflateError::Full`], [`ConflateError::Wait`].
    pub fn send(&mut self, key: K, value: T) -> Result<Sent<T>, ConflateError<T>> {
        if self.flush()? == 0
            && let Some(seq) = self.producer.reserve_now()?
        {
            let fill = &mut self.fill;
            self.producer.fill_at(seq, |event| fill(event, &key, value));
            return Ok(Sent::Published(seq));
        }
        if let Some(&place) = self.places.get(&key) {
            let old = std::mem::replace(&mut self.kept[place.wrapping_sub(self.gone)].1, value);
            self.producer.count_dropped();
            return Ok(Sent::Replaced(old));
        }
        if self.kept.len() == self.room {
            return Err(ConflateError::Full { room: self.room, value });
        }
        self.places.insert(key.clone(), self.gone.wrapping_add(self.kept.len()));
        self.kept.push_back((key, value));
        Ok(Sent::Kept)
    }

    /// Publishes what is kept while there is room; says how many values are still kept. Never
    /// waits.
    ///
    /// # Errors
    /// When the ring takes nothing any more.
    pub fn flush(&mut self) -> Result<usize, WaitError> {
        while !self.kept.is_empty()
            && let Some(seq) = self.producer.reserve_now()?
        {
            self.publish_first(seq);
        }
        Ok(self.kept.len())
    }

    /// Publishes all that is kept, waiting for room by the graph's strategy until `deadline`
    /// (`None`: as long as it takes).
    ///
    /// # Errors
    /// [`ClaimError::TimedOut`] with what is left still kept, [`ClaimError::Wait`].
    pub fn flush_by(&mut self, deadline: impl Into<Option<Instant>>) -> Result<(), ClaimError> {
        let deadline = deadline.into();
        while !self.kept.is_empty() {
            match self.producer.reserve_until(deadline) {
                Ok(seq) => self.publish_first(seq),
                // The strategy's own.
                Err(ClaimError::TimedOut { .. }) if deadline.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many values are kept.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Publishes all that is kept, waiting for room as long as it takes, and closes this handle.
    ///
    /// # Errors
    /// When the ring takes nothing any more.
    pub fn finish(mut self) -> Result<(), WaitError> {
        self.flush_by(None).map_err(ClaimError::without_deadline)
    }

    /// Publishes what was kept first.
    fn publish_first(&mut self, seq: u64) {
        let (fill, kept, places) = (&mut self.fill, &mut self.kept, &mut self.places);
        self.gone = self.gone.wrapping_add(1);
        // The keys' own code runs in here, so a panic of it fails the graph like one of `fill`.
        self.producer.fill_at(seq, |event| {
            if let Some((key, value)) = kept.pop_front() {
                places.remove(&key);
                fill(event, &key, value);
            }
        });
    }
}

impl<P: Sends, K, T, F> Drop for Conflator<P, K, T, F> {
    fn drop(&mut self) {
        self.kept.iter().for_each(|_| self.producer.count_dropped());
    }
}

impl<P: Sends + fmt::Debug, K, T, F> fmt::Debug for Conflator<P, K, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflator")
            .field("producer", &self.producer)
            .field("kept", &self.kept.len())
            .field("room", &self.room)
            .finish()
    }
}
