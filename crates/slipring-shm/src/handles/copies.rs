//! A mapped segment whose other processes are not trusted: the handles of this process copy events
//! in and out.
//!
//! Invariants
//! - I1: the ring's events are `AtomicBytes`, so each access of this process to an event is a
//!   relaxed atomic one, and no `&E` into the mapping exists. So a [`Copies`] needs no promise.
//! - I2: what other processes can store decides what a call returns, and how long a call without a
//!   deadline waits. It decides nothing else: no address, no allocation, and no number of steps
//!   beyond what the ring's size bounds. The head, which tells the sizes, is copied and checked
//!   once, before the mapping.

use std::fmt;
use std::sync::Arc;

use slipring::segment::{
    AtomicBytes, CopyingPoolReader, CopyingPoolWriter, CopyingProducer, CopyingReader,
    CopyingShardReader, CopyingShardWriter, CopyingSharedProducer, CopyingSubscription,
    CopyingWriter,
};
use slipring::{Report, StartAt, Wait};

use crate::attach::participant::{Liveness, Participation};
use crate::attach::places::{EACH, POOL, Places};
use crate::attach::ring;
use crate::contents::Event;
use crate::errors::{Problem, SegmentError};

/// A mapped segment, whose handles copy events. Other processes need not be trusted. This process
/// is a participant until the value and all that is made of it are dropped.
///
/// [`Segment::attach_copies`](crate::Segment::attach_copies) makes it. The calls are those of
/// [`Attached`](crate::Attached), and the handles work with those of processes that lend events.
///
/// Example: [`Segment::attach_copies`](crate::Segment::attach_copies).
pub struct Copies<E: Event> {
    places: Places<AtomicBytes<E>>,
}

impl<E: Event> Copies<E> {
    pub(crate) fn new(inner: Arc<Participation>) -> Result<Copies<E>, Problem> {
        Ok(Copies { places: Places::new::<E>(inner, ring::over_copies::<E>)? })
    }

    /// Chooses how the handles that this process makes from now on wait, as
    /// [`Attached::wait`](crate::Attached::wait) does.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::Wait;
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("waits").capacity(8).reader("sum").build()?;
    /// let copies = segment.attach_copies()?.wait(Wait::Blocking)?;
    /// let (mut tx, mut sum) = (copies.producer()?, copies.reader("sum")?);
    /// tx.publish(&7)?;
    /// assert_eq!(sum.next()?, (7, 0));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no memory for the strategy's state.
    pub fn wait(mut self, wait: Wait) -> Result<Copies<E>, SegmentError> {
        self.places.wait(wait, ring::over_copies::<E>)?;
        Ok(self)
    }

    /// Has calls that wait return [`WaitError::NameLost`](slipring::WaitError::NameLost) once the
    /// segment's name no longer means the file, as
    /// [`Attached::require_name`](crate::Attached::require_name) does.
    ///
    /// Example: [`Attached::require_name`](crate::Attached::require_name).
    pub fn require_name(self) -> Copies<E> {
        self.places.require_name();
        self
    }

    /// Takes the producer's place, as [`Attached::producer`](crate::Attached::producer) does.
    ///
    /// Example: [`CopyingProducer`].
    ///
    /// # Errors
    /// As [`Attached::producer`](crate::Attached::producer).
    pub fn producer(&self) -> Result<CopyingProducer<E>, SegmentError> {
        Ok(self.places.take_producer()?.copying_producer())
    }

    /// Takes the place of one of several producers, as
    /// [`Attached::shared_producer`](crate::Attached::shared_producer) does.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::Segment;
    /// let segment =
    ///     Segment::<u64>::create_memfd("two").capacity(8).producers(2).reader("sum").build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut one, mut other) = (copies.shared_producer()?, copies.shared_producer()?);
    /// let mut sum = copies.reader("sum")?;
    /// (one.publish(&1)?, other.publish(&2)?);
    /// drop((one, other));
    /// let mut total = 0;
    /// sum.for_each(|number, _| total += number)?;
    /// assert_eq!(total, 3);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Attached::shared_producer`](crate::Attached::shared_producer).
    pub fn shared_producer(&self) -> Result<CopyingSharedProducer<E>, SegmentError> {
        let (ring, seat) = self.places.take_shared_producer()?;
        Ok(ring.copying_shared_producer(seat))
    }

    /// Takes the place of a stage that reads, as [`Attached::reader`](crate::Attached::reader)
    /// does.
    ///
    /// Example: [`CopyingConsumer`](crate::CopyingConsumer).
    ///
    /// # Errors
    /// As [`Attached::reader`](crate::Attached::reader).
    pub fn reader(&self, stage: &str) -> Result<CopyingReader<E>, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, false)?;
        Ok(ring.copying_reader(number))
    }

    /// Takes the place of a stage that may write, as [`Attached::writer`](crate::Attached::writer)
    /// does.
    ///
    /// Example: [`CopyingConsumer::write_back`](crate::CopyingConsumer::write_back).
    ///
    /// # Errors
    /// As [`Attached::writer`](crate::Attached::writer).
    pub fn writer(&self, stage: &str) -> Result<CopyingWriter<E>, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, true)?;
        Ok(ring.copying_writer(number))
    }

    /// Adds a reader to a tap, as [`Attached::subscribe`](crate::Attached::subscribe) does.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring::StartAt;
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("field")
    ///     .capacity(8)
    ///     .reader("log")
    ///     .tap("viewers", 4)
    ///     .build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut log) = (copies.producer()?, copies.reader("log")?);
    /// tx.publish(&10)?;
    /// let mut viewer = copies.subscribe("viewers", StartAt::Now)?;
    /// tx.publish(&20)?;
    /// assert_eq!((viewer.next()?, log.next()?), ((20, 1), (10, 0)));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Attached::subscribe`](crate::Attached::subscribe).
    pub fn subscribe(
        &self,
        tap: &str,
        start: StartAt,
    ) -> Result<CopyingSubscription<E>, SegmentError> {
        self.places.subscribe(tap, |ring, number| ring.copying_subscribe(number, start))
    }

    /// Takes a place in a pool that reads, as
    /// [`Attached::pool_reader`](crate::Attached::pool_reader) does.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::Segment;
    /// let segment =
    ///     Segment::<u64>::create_memfd("n").capacity(8).pool_reader("print", 2).build()?;
    /// let copies = segment.attach_copies()?;
    /// let (mut tx, mut one) = (copies.producer()?, copies.pool_reader("print")?);
    /// tx.publish(&7)?;
    /// assert_eq!(one.next()?, (7, 0));
    /// drop(one); // not released
    /// let mut other = copies.pool_reader("print")?;
    /// assert_eq!((other.next()?, other.redelivered()), ((7, 0), (0..1).into()));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Attached::pool_reader`](crate::Attached::pool_reader).
    pub fn pool_reader(&self, pool: &str) -> Result<CopyingPoolReader<E>, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, false)?;
        Ok(ring.copying_pool_reader(number, seat))
    }

    /// Takes a place in a pool that may write, as
    /// [`Attached::pool_writer`](crate::Attached::pool_writer) does.
    ///
    /// Example: [`Copies::pool_reader`], and
    /// [`CopyingConsumer::write_back`](crate::CopyingConsumer::write_back).
    ///
    /// # Errors
    /// As [`Attached::pool_writer`](crate::Attached::pool_writer).
    pub fn pool_writer(&self, pool: &str) -> Result<CopyingPoolWriter<E>, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, true)?;
        Ok(ring.copying_pool_writer(number, seat))
    }

    /// Takes the place of one shard of a stage that reads, as
    /// [`Attached::shard_reader`](crate::Attached::shard_reader) does. The bytes of the key are
    /// copied, too.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("n")
    ///     .capacity(8)
    ///     .shard_reader("by number", 2, |number| number)
    ///     .build()?;
    /// let copies = segment.attach_copies()?;
    /// let mut tx = copies.producer()?;
    /// let mut shards =
    ///     [copies.shard_reader("by number", 0)?, copies.shard_reader("by number", 1)?];
    /// tx.publish_batch(&[1, 2, 3, 4, 5])?;
    /// tx.close();
    /// let mut count = 0;
    /// for shard in &mut shards { count += shard.for_each(|_, _| ())?; }
    /// assert_eq!(count, 5);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Attached::shard_reader`](crate::Attached::shard_reader).
    pub fn shard_reader(
        &self,
        stage: &str,
        shard: usize,
    ) -> Result<CopyingShardReader<E>, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, false)?;
        Ok(ring.copying_shard_reader(number, shard))
    }

    /// Takes the place of one shard of a stage that may write, as
    /// [`Attached::shard_writer`](crate::Attached::shard_writer) does.
    ///
    /// Example: [`Copies::shard_reader`], and
    /// [`CopyingConsumer::write_back`](crate::CopyingConsumer::write_back).
    ///
    /// # Errors
    /// As [`Attached::shard_writer`](crate::Attached::shard_writer).
    pub fn shard_writer(
        &self,
        stage: &str,
        shard: usize,
    ) -> Result<CopyingShardWriter<E>, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, true)?;
        Ok(ring.copying_shard_writer(number, shard))
    }

    /// Returns positions and counts of all parties, as the segment's words say.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Liveness, Segment};
    /// let segment = Segment::<u64>::create_memfd("n").capacity(8).reader("sum").build()?;
    /// let copies = segment.attach_copies()?;
    /// assert_eq!(copies.report().unwrap().stages()[0].name.as_str(), "sum");
    /// assert_eq!((copies.participant(), copies.capacity()), (1, 8));
    /// assert_eq!(copies.liveness(1)?, Liveness::Alive);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(&self) -> Option<Report> {
        self.places.report()
    }

    /// Returns the number of this participant, from 1.
    ///
    /// Example: [`Copies::report`].
    pub fn participant(&self) -> u32 {
        self.places.participation().number()
    }

    /// Returns the number of slots.
    ///
    /// Example: [`Copies::report`].
    pub fn capacity(&self) -> u64 {
        self.places.participation().checked().shape.capacity
    }

    /// Returns whether the segment's name no longer means the file that this process is attached
    /// to, as [`Attached::has_lost_name`](crate::Attached::has_lost_name) does.
    ///
    /// Example: [`Attached::has_lost_name`](crate::Attached::has_lost_name).
    ///
    /// # Errors
    /// The system does not tell what the name means.
    pub fn has_lost_name(&self) -> Result<bool, SegmentError> {
        self.places.has_lost_name()
    }

    /// Returns what is known of participant `number`, as
    /// [`Attached::liveness`](crate::Attached::liveness) does.
    ///
    /// Example: [`Copies::report`].
    ///
    /// # Errors
    /// The kernel refuses to probe the lock.
    pub fn liveness(&self, number: u32) -> Result<Liveness, SegmentError> {
        self.places.liveness(number)
    }

    /// Returns what keeps the segment mapped.
    #[doc(hidden)]
    pub fn participation(&self) -> &Arc<Participation> {
        self.places.participation()
    }
}

impl<E: Event> fmt::Debug for Copies<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("participant", &self.participant()).finish()
    }
}
