//! The calls by which a process takes its handles from an attached segment. They are the same for
//! all contents.
//!
//! Invariants
//! - I1: a handle of a seat is made right after this process took the seat (places::I1), so no
//!   other handle of it exists.
//! - I2: the slots have events of the size that the head states, and of the contents that the
//!   handles serve (contents::I1). The caller of `attach` has promised how other processes treat
//!   the events. Handles that copy need no such promise (copies::I1).

use crate::attach::places::{EACH, POOL};
use crate::contents::{
    Divisible, Handles, PoolReader, PoolUpdater, Producer, Reader, ShardReader, ShardUpdater,
    SharedProducer, Subscription, Updater,
};
#[cfg(doc)]
use crate::errors::Problem;
use crate::errors::SegmentError;
use crate::handles::attached::Attached;

/// The places of a ring. The documentation of these calls speaks of events, and also applies to
/// blocks and messages. [`Handles`] lists the handles of each kind of contents.
impl<H: Handles> Attached<H> {
    /// Returns the size of a slot's event, in bytes.
    fn event_size(&self) -> usize {
        self.participation().checked().shape.event_size as usize
    }

    /// Takes the producer's place, and returns its handle, which continues where the previous
    /// producer stopped: behind the last published event.
    ///
    /// Events that a dead producer had claimed and not published are never seen. Dropping the
    /// handle closes the ring, unless a panic drops it.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process has the place.
    /// - [`Problem::Over`]: the ring has ended.
    /// - [`Problem::Producers`]: the ring has room for several producers.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    ///
    /// # Cost
    /// The call takes a few system calls, and loads each slot's stamp.
    pub fn producer(&self) -> Result<Producer<H>, SegmentError> {
        let ring = self.places.take_producer()?;
        // SAFETY: I1, I2.
        Ok(unsafe { H::producer(ring.producer(), self.event_size()) })
    }

    /// Takes the place of one of several producers, and returns its handle. Events that a dead
    /// producer had claimed and not published are never seen, and the stream continues behind them.
    /// Dropping the last producer's handle closes the ring, unless a panic drops it.
    ///
    /// Example: [`Builder::producers`](crate::Builder::producers).
    ///
    /// # Errors
    /// - [`Problem::AllTaken`]: living processes have all places.
    /// - [`Problem::Over`]: the ring has ended.
    /// - [`Problem::Producers`]: the ring was declared for a single producer.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    ///
    /// # Cost
    /// The call takes one compare-and-swap for each place, up to the first free place. If no place
    /// is free, it takes a few system calls for each place.
    pub fn shared_producer(&self) -> Result<SharedProducer<H>, SegmentError> {
        let (ring, seat) = self.places.take_shared_producer()?;
        // SAFETY: I1, I2. The ring has several producers.
        Ok(unsafe { H::producer(ring.shared_producer(seat), self.event_size()) })
    }

    /// Takes the place of a stage that reads, and returns its handle, which continues behind the
    /// last event that the stage has released. [`redelivered`](slipring::Consumer::redelivered)
    /// tells which events may come again. Dropping the handle leaves the place to another process.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process has the place.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage is a tap or a pool, or has shards.
    /// - [`Problem::Access`]: the stage was declared to update events.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    pub fn reader(&self, stage: &str) -> Result<Reader<H>, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, false)?;
        // SAFETY: I1, I2.
        Ok(unsafe { H::reader(ring.reader(number), self.event_size()) })
    }

    /// Adds a reader to a tap, as [`Tap::subscribe`](slipring::Tap::subscribe) does within one
    /// process. The reader sees each event exactly once, from its first position on. It holds back
    /// the parties behind the tap until it leaves, is dropped, or dies.
    ///
    /// When a reader dies, the parties that wait for it remove it within a notice. No event is
    /// delivered twice: a reader that joins in the dead reader's place begins at the position that
    /// its own call chooses. [`inspect`](crate::inspect) tells how many events the dead reader had
    /// not read.
    ///
    /// A reader of [`Messages`](crate::messages::Messages) begins with the next message, as the
    /// example there shows.
    ///
    /// Example: [`Builder::tap`](crate::Builder::tap).
    ///
    /// # Errors
    /// - [`Problem::AllTaken`]: living readers have all places.
    /// - [`Problem::Subscribe`]: no reader can join at `start`.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage is no tap.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    ///
    /// # Cost
    /// The call takes one compare-and-swap for each place, up to the first free place, and a fence.
    /// If no place is free, it takes a few system calls for each place.
    pub fn subscribe(&self, tap: &str, start: H::Start) -> Result<Subscription<H>, SegmentError> {
        let start = start.into();
        let member = self.places.subscribe(tap, |ring, number| ring.subscribe(number, start))?;
        // SAFETY: I2.
        Ok(unsafe { H::reader(member, self.event_size()) })
    }
}

/// The places of pools, shards and updating stages, which a ring of messages does not have.
impl<H: Divisible> Attached<H> {
    /// Like [`reader`](Attached::reader), but for a stage that may update events.
    ///
    /// The previous process may have left events half-written. These events are the handle's
    /// [`suspects`](slipring::Consumer::suspects), and the first ones that it lends. Repair or mark
    /// them in the handler, or skip them by
    /// [`pass_over_suspects`](slipring::Consumer::pass_over_suspects). A copying handle returns
    /// their positions by [`redelivered`](crate::copies::CopyingConsumer::redelivered).
    ///
    /// Example: [`Builder::after`](crate::Builder::after).
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process has the place.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage is a tap or a pool, or has shards.
    /// - [`Problem::Access`]: the stage was declared to only read events.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    pub fn updater(&self, stage: &str) -> Result<Updater<H>, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, true)?;
        // SAFETY: I1, I2. The stage writes.
        Ok(unsafe { H::updater(ring.updater(number), self.event_size()) })
    }

    /// Takes a place in a pool that reads, and returns the worker's handle. It gets only events
    /// that no other worker of the pool takes.
    ///
    /// If a worker dies or leaves in the middle of its events, other workers get these events, and
    /// their [`Batch::redelivered`](slipring::Batch::redelivered) names them. If no place is free,
    /// the new handle takes the place of such a worker, and begins with its events. Dropping the
    /// last handle leaves the pool open.
    ///
    /// Example: [`Builder::pool_reader`](crate::Builder::pool_reader).
    ///
    /// # Errors
    /// - [`Problem::AllTaken`]: living processes have all places.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage is no pool.
    /// - [`Problem::Access`]: the stage was declared to update events.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    ///
    /// # Cost
    /// The call takes one compare-and-swap for each place, up to the first free place. If no place
    /// is free, it takes a few system calls for each place.
    pub fn pool_reader(&self, pool: &str) -> Result<PoolReader<H>, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, false)?;
        // SAFETY: I1, I2.
        Ok(unsafe { H::reader(ring.pool_reader(number, seat), self.event_size()) })
    }

    /// Like [`pool_reader`](Attached::pool_reader), but for a pool that may update events. An
    /// earlier worker may have half-changed the events that
    /// [`redelivered`](slipring::Batch::redelivered) names.
    ///
    /// Example: [`Builder::pool_updater`](crate::Builder::pool_updater).
    ///
    /// # Errors
    /// - [`Problem::AllTaken`]: living processes have all places.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage is no pool.
    /// - [`Problem::Access`]: the stage was declared to only read events.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    pub fn pool_updater(&self, pool: &str) -> Result<PoolUpdater<H>, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, true)?;
        // SAFETY: I1, I2. The pool writes.
        Ok(unsafe { H::updater(ring.pool_updater(number, seat), self.event_size()) })
    }

    /// Takes the place of one shard of a stage that reads. `shard` is the shard's number, from 0
    /// on. The returned handle sees the events whose keys belong to the shard, in their order.
    ///
    /// The handle continues behind the last event that the shard has released, and
    /// [`redelivered`](slipring::Consumer::redelivered) tells which events may come again. Dropping
    /// the handle leaves the place to another process. The parties behind the stage wait for each
    /// shard, even while no process runs it.
    ///
    /// A batch of blocks holds consecutive positions only, so it ends at the next block of another
    /// shard. `poll` and `for_each` continue behind that block.
    ///
    /// ```
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// let segment = Segment::<Blocks>::create_memfd("rows").capacity(8).block(16, 8);
    /// let segment = segment.shard_reader("books", 2, 0..8).build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// let mut shards = [attached.shard_reader("books", 0)?, attached.shard_reader("books", 1)?];
    /// for byte in [1, 2, 1, 1, 2] { tx.publish(|block| block.fill(byte))?; }
    /// let mut count = 0;
    /// for shard in &mut shards {
    ///     let mut last = None;
    ///     count += shard.poll(8, |_, at| assert!(last.replace(at.seq) < Some(at.seq)))?;
    /// }
    /// assert_eq!(count, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process has the place.
    /// - [`Problem::NoShard`]: the stage has no such shard.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage has no shards.
    /// - [`Problem::Access`]: the stage was declared to update events.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    ///
    /// # Cost
    /// Taking the place costs as much as [`reader`](Attached::reader). To find its next event, a
    /// shard loads one word for each event of the other shards.
    pub fn shard_reader(&self, stage: &str, shard: usize) -> Result<ShardReader<H>, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, false)?;
        // SAFETY: I1, I2.
        Ok(unsafe { H::reader(ring.shard_reader(number, shard), self.event_size()) })
    }

    /// Like [`shard_reader`](Attached::shard_reader), but for a stage that may update events. The
    /// previous process may have left events half-written: see [`updater`](Attached::updater).
    ///
    /// Example: [`Builder::shard_updater`](crate::Builder::shard_updater).
    ///
    /// # Errors
    /// - [`Problem::Taken`]: a living process has the place.
    /// - [`Problem::NoShard`]: the stage has no such shard.
    /// - [`Problem::NoStage`]: the segment has no stage of this name.
    /// - [`Problem::Delivery`]: the stage has no shards.
    /// - [`Problem::Access`]: the stage was declared to only read events.
    /// - [`Problem::Busy`], [`Problem::System`]: the place of a dead process could not be
    ///   recovered.
    pub fn shard_updater(
        &self,
        stage: &str,
        shard: usize,
    ) -> Result<ShardUpdater<H>, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, true)?;
        // SAFETY: I1, I2. The stage writes.
        Ok(unsafe { H::updater(ring.shard_updater(number, shard), self.event_size()) })
    }
}
