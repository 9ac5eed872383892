//! The handles that a process takes from an attached segment, by what the segment holds: events of
//! a type, blocks, or messages.

use slipring::segment::{
    BlockConsumer, BlockPoolReader, BlockPoolWriter, BlockProducer, BlockReader, BlockShardReader,
    BlockShardWriter, BlockSubscription, BlockWriter, MessageConsumer, MessageProducer,
    MessageReader, MessageSubscription, SegmentPoolReader as PoolReader,
    SegmentPoolWriter as PoolWriter, SegmentReader as Reader, SegmentShardReader as ShardReader,
    SegmentShardWriter as ShardWriter, SegmentSharedProducer as SharedProducer,
    SegmentSubscription as Subscription, SegmentWriter as Writer, SharedBlockProducer,
    SharedMessageProducer,
};
use slipring::{Producer, StartAt};

use crate::attach::places::{EACH, POOL};
use crate::contents::{Blocks, Event, Messages};
#[cfg(doc)]
use crate::errors::Problem;
use crate::errors::SegmentError;
use crate::handles::attached::Attached;

impl<E: Event> Attached<E> {
    /// Takes the producer's place, and returns its handle, which goes on where the producer before
    /// stopped: behind the last published event. What a dead producer had claimed and not published
    /// is never seen. Dropping the handle closes the ring, unless a panic drops it.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// [`Problem::Taken`], if a living process has the place; [`Problem::Over`];
    /// [`Problem::Producers`], if the ring has room for several.
    ///
    /// # Cost
    /// A few system calls, and a load of each slot's stamp.
    pub fn producer(&self) -> Result<Producer<E>, SegmentError> {
        // SAFETY: the seat was just taken, so no other handle exists.
        self.places.take_producer().map(|ring| unsafe { ring.producer() })
    }

    /// Takes the place of one of several producers, and returns its handle. What a dead producer
    /// had claimed and not published is never seen, and the stream goes on behind it. The drop of
    /// the last producer's handle closes the ring, unless a panic drops it.
    ///
    /// Example: [`Builder::producers`](crate::Builder::producers).
    ///
    /// # Errors
    /// [`Problem::AllTaken`], if living processes have all places; [`Problem::Over`];
    /// [`Problem::Producers`], if the ring was declared for a single producer.
    ///
    /// # Cost
    /// A compare-and-swap for each place until a free one. If none is free, a few system calls for
    /// each place.
    pub fn shared_producer(&self) -> Result<SharedProducer<E>, SegmentError> {
        let (ring, seat) = self.places.take_shared_producer()?;
        // SAFETY: the seat was just taken, so no other handle of it exists. There are several.
        Ok(unsafe { ring.shared_producer(seat) })
    }

    /// Takes the place of a stage that reads, and returns its handle, which goes on behind the last
    /// event that the stage has released. [`redelivered`](slipring::Consumer::redelivered) tells
    /// which events may come again. Dropping the handle leaves the place to another process.
    ///
    /// Example: the [first page](crate).
    ///
    /// # Errors
    /// [`Problem::Taken`], if a living process has the place; [`Problem::NoStage`];
    /// [`Problem::Access`].
    pub fn reader(&self, stage: &str) -> Result<Reader<E>, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, false)?;
        // SAFETY: the seat was just taken, so no other handle exists.
        Ok(unsafe { ring.reader(number) })
    }

    /// Takes the place of a stage that may write, as [`reader`](Attached::reader) does for one that
    /// reads. The process before may have left events half-written: the handle's
    /// [`suspects`](slipring::Consumer::suspects), the first events that it lends. The handler
    /// repairs or marks them, or
    /// [`pass_over_suspects`](slipring::Consumer::pass_over_suspects) leaves them out.
    ///
    /// Example: [`Builder::after`](crate::Builder::after).
    ///
    /// # Errors
    /// As [`reader`](Attached::reader).
    pub fn writer(&self, stage: &str) -> Result<Writer<E>, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, true)?;
        // SAFETY: the seat was just taken, so no other handle exists. The stage writes.
        Ok(unsafe { ring.writer(number) })
    }

    /// Adds a reader to a tap, as [`Tap::subscribe`](slipring::Tap::subscribe) does within one
    /// process. The reader sees each event exactly once, from its first position on, and holds back
    /// the parties behind the tap until it leaves, is dropped, or dies.
    ///
    /// A reader that dies is removed within a notice by the parties that wait for it. Nothing comes
    /// again: a reader that joins in its place begins where it asks to. [`inspect`](crate::inspect)
    /// tells how many events the dead one had not read.
    ///
    /// Example: [`Builder::tap`](crate::Builder::tap).
    ///
    /// # Errors
    /// [`Problem::AllTaken`], if living readers have all places; [`Problem::Subscribe`];
    /// [`Problem::NoStage`]; [`Problem::Delivery`].
    ///
    /// # Cost
    /// A compare-and-swap for each place until a free one, and a fence. If none is free, a few
    /// system calls for each place.
    pub fn subscribe(&self, tap: &str, start: StartAt) -> Result<Subscription<E>, SegmentError> {
        self.places.subscribe(tap, |ring, number| ring.subscribe(number, start))
    }

    /// Takes a place in a pool that reads, and returns the worker's handle, which gets the events
    /// that no other worker of the pool takes. A worker that dies or leaves in the middle of its
    /// events leaves these to the other workers, which are told so
    /// ([`Batch::redelivered`](slipring::Batch::redelivered)). If no place is free, the handle
    /// begins with the events of such a worker. Dropping the last handle leaves the pool open.
    ///
    /// Example: [`Builder::pool_reader`](crate::Builder::pool_reader).
    ///
    /// # Errors
    /// [`Problem::AllTaken`], if living processes have all places; [`Problem::NoStage`];
    /// [`Problem::Delivery`]; [`Problem::Access`].
    ///
    /// # Cost
    /// A compare-and-swap for each place until a free one. If none is free, a few system calls for
    /// each place.
    pub fn pool_reader(&self, pool: &str) -> Result<PoolReader<E>, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, false)?;
        // SAFETY: the seat was just taken, so no other handle of it exists.
        Ok(unsafe { ring.pool_reader(number, seat) })
    }

    /// Takes a place in a pool that may write, as [`pool_reader`](Attached::pool_reader) does in
    /// one that reads. Events that [`redelivered`](slipring::Batch::redelivered) names may be
    /// half-changed by the worker before.
    ///
    /// Example: [`Builder::pool_writer`](crate::Builder::pool_writer).
    ///
    /// # Errors
    /// As [`pool_reader`](Attached::pool_reader).
    pub fn pool_writer(&self, pool: &str) -> Result<PoolWriter<E>, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, true)?;
        // SAFETY: the seat was just taken, so no other handle of it exists. The pool writes.
        Ok(unsafe { ring.pool_writer(number, seat) })
    }

    /// Takes the place of one shard of a stage that reads, by its number from 0 on, and returns its
    /// handle, which sees the events whose keys belong to the shard, in their order. The handle
    /// goes on behind the last event that the shard has released, and
    /// [`redelivered`](slipring::Consumer::redelivered) tells which events may come again. Dropping
    /// the handle leaves the place to another process. The parties behind the stage wait for each
    /// shard, whether a process runs it or not.
    ///
    /// Example: [`Builder::shard_reader`](crate::Builder::shard_reader).
    ///
    /// # Errors
    /// [`Problem::Taken`], if a living process has the place; [`Problem::NoShard`];
    /// [`Problem::NoStage`]; [`Problem::Delivery`]; [`Problem::Access`].
    ///
    /// # Cost
    /// As of [`reader`](Attached::reader). Finding the next own event costs a load for each event
    /// of the other shards.
    pub fn shard_reader(&self, stage: &str, shard: usize) -> Result<ShardReader<E>, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, false)?;
        // SAFETY: the seat was just taken, so no other handle of it exists.
        Ok(unsafe { ring.shard_reader(number, shard) })
    }

    /// Takes the place of one shard of a stage that may write, as
    /// [`shard_reader`](Attached::shard_reader) does for one that reads. The process before may
    /// have left events half-written: see [`writer`](Attached::writer).
    ///
    /// Example: [`Builder::shard_writer`](crate::Builder::shard_writer).
    ///
    /// # Errors
    /// As [`shard_reader`](Attached::shard_reader).
    pub fn shard_writer(&self, stage: &str, shard: usize) -> Result<ShardWriter<E>, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, true)?;
        // SAFETY: the seat was just taken, so no other handle of it exists. The stage writes.
        Ok(unsafe { ring.shard_writer(number, shard) })
    }
}

/// Places in a ring of blocks. Each call has the errors and the cost of the call for a ring of
/// events.
impl Attached<Blocks> {
    fn block_size(&self) -> usize {
        self.participation().checked().shape.event_size as usize
    }

    /// Takes the producer's place, as in a ring of events.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_producer(&self) -> Result<BlockProducer, SegmentError> {
        let ring = self.places.take_producer()?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockProducer::over(ring.producer(), self.block_size()) })
    }

    /// Takes the place of one of several producers.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn shared_block_producer(&self) -> Result<SharedBlockProducer, SegmentError> {
        let (ring, seat) = self.places.take_shared_producer()?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockProducer::over(ring.shared_producer(seat), self.block_size()) })
    }

    /// Takes the place of a stage that reads.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_reader(&self, stage: &str) -> Result<BlockReader, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, false)?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockConsumer::over(ring.reader(number), self.block_size()) })
    }

    /// Takes the place of a stage that may write.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_writer(&self, stage: &str) -> Result<BlockWriter, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, true)?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockConsumer::over(ring.writer(number), self.block_size()) })
    }

    /// Adds a reader to a tap.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_subscription(
        &self,
        tap: &str,
        start: StartAt,
    ) -> Result<BlockSubscription, SegmentError> {
        let handle = self.places.subscribe(tap, |ring, number| ring.subscribe(number, start))?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockConsumer::over(handle, self.block_size()) })
    }

    /// Takes a place in a pool that reads.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_pool_reader(&self, pool: &str) -> Result<BlockPoolReader, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, false)?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockConsumer::over(ring.pool_reader(number, seat), self.block_size()) })
    }

    /// Takes a place in a pool that may write.
    ///
    /// Example: [`Blocks`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_pool_writer(&self, pool: &str) -> Result<BlockPoolWriter, SegmentError> {
        let (ring, number, seat) = self.places.take(pool, POOL, true)?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockConsumer::over(ring.pool_writer(number, seat), self.block_size()) })
    }

    /// Takes the place of one shard of a stage that reads, by its number from 0 on. A batch holds
    /// blocks of consecutive positions only, so it ends at the next block of another shard; `poll`
    /// and `for_each` go on behind it.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Blocks, Segment};
    /// let segment = Segment::<Blocks>::create_memfd("rows").capacity(8).block(16, 8);
    /// let segment = segment.shard_reader("books", 2, 0..8).build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.block_producer()?;
    /// let mut shards =
    ///     [attached.block_shard_reader("books", 0)?, attached.block_shard_reader("books", 1)?];
    /// for byte in [1, 2, 1, 1, 2] { tx.publish(|block| block.fill(byte))?; }
    /// let mut count = 0;
    /// for shard in &mut shards {
    ///     let mut last = None;
    ///     count += shard.poll(8, |_, at| assert!(last.replace(at.seq) < Some(at.seq)))?;
    /// }
    /// assert_eq!(count, 5);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_shard_reader(
        &self,
        stage: &str,
        shard: usize,
    ) -> Result<BlockShardReader, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, false)?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        Ok(unsafe { BlockConsumer::over(ring.shard_reader(number, shard), self.block_size()) })
    }

    /// Takes the place of one shard of a stage that may write. The process before may have left
    /// blocks half-written: the handle's [`suspects`](BlockConsumer::suspects).
    ///
    /// Example: [`Attached::block_shard_reader`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn block_shard_writer(
        &self,
        stage: &str,
        shard: usize,
    ) -> Result<BlockShardWriter, SegmentError> {
        let (ring, number) = self.places.take_shard(stage, shard, true)?;
        // SAFETY: the seat was just taken. The slots have blocks of the size that the head says
        // (contents::I1), and the caller of `attach` has promised how other processes treat them.
        // The stage writes.
        Ok(unsafe { BlockConsumer::over(ring.shard_writer(number, shard), self.block_size()) })
    }
}

/// Places in a ring of messages. Each call has the errors and the cost of the call for a ring of
/// events.
impl Attached<Messages> {
    /// Size of a cell, as `contents::I1` says.
    fn cell(&self) -> usize {
        self.participation().checked().shape.event_size as usize
    }

    /// Takes the producer's place.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn message_producer(&self) -> Result<MessageProducer, SegmentError> {
        let ring = self.places.take_producer()?;
        // SAFETY: the seat was just taken. As for blocks, which are cells here.
        Ok(MessageProducer::over(unsafe { BlockProducer::over(ring.producer(), self.cell()) }))
    }

    /// Takes the place of one of several producers.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn shared_message_producer(&self) -> Result<SharedMessageProducer, SegmentError> {
        let (ring, seat) = self.places.take_shared_producer()?;
        // SAFETY: the seat was just taken. As for blocks, which are cells here.
        Ok(MessageProducer::over(unsafe {
            BlockProducer::over(ring.shared_producer(seat), self.cell())
        }))
    }

    /// Takes the place of a stage.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn message_reader(&self, stage: &str) -> Result<MessageReader, SegmentError> {
        let (ring, number, _) = self.places.take(stage, EACH, false)?;
        // SAFETY: the seat was just taken. As for blocks, which are cells here.
        Ok(MessageConsumer::over(unsafe { BlockConsumer::over(ring.reader(number), self.cell()) }))
    }

    /// Adds a reader to a tap. It begins with the next message: an earlier position may lie inside
    /// of a message.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// As the call for events of that name, without the prefix.
    pub fn message_subscription(&self, tap: &str) -> Result<MessageSubscription, SegmentError> {
        let handle =
            self.places.subscribe(tap, |ring, number| ring.subscribe(number, StartAt::Now))?;
        // SAFETY: the seat was just taken. As for blocks, which are cells here.
        Ok(MessageConsumer::over(unsafe { BlockConsumer::over(handle, self.cell()) }))
    }
}
