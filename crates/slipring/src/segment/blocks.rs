//! Handles over blocks. A block is an event in a segment. Its size is known only at run time.
//!
//! The segment's head says how many bytes a block has, and at which distance the blocks lie. The
//! protocol is the same as for every ring. Each of these handles contains a producer or a consumer
//! of zero-sized events, and lends the bytes at the addresses of these events.
//!
//! Invariants
//! - I1: if a position is lent, so is the block at that position, and the same holds for claims
//!   (raw_blocks::I1).
//! - I2: every bit pattern is a valid block.

use std::fmt;
use std::time::{Duration, Instant};

use super::block_batch::BlockBatch;
use super::passes::passes;
use super::raw_blocks::{BlockStart, BlockView, RawBlockConsumer, RawBlockProducer, Stretch};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Updating, sealed as lease};
use crate::consumer::position::{Availability as _, ConsumerPosition as _};
use crate::errors::{BatchError, ClaimError, WaitError};
use crate::processes::layout::InSegment;
use crate::processes::markers::{BeginsAgain, Succeeds};
use crate::producer::claim::Slots;
use crate::producer::{Producer, Single, sealed as sharing};
use crate::ring::events::At;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Strided;

/// Number of handled bytes after which a loop releases the handled blocks.
const RELEASE_BYTES: usize = 1 << 16;

/// The handle with which a process publishes blocks. If `S` is [`Apart`](crate::segment::Apart),
/// the ring has several such handles.
pub struct BlockProducer<S: sharing::Sharing = Single> {
    tx: Producer<BlockStart, InSegment<Strided>, S>,
    size: usize,
}

impl<S: sharing::Sharing> BlockProducer<S> {
    /// Wraps a producer of the ring as a producer of blocks.
    ///
    /// # Safety
    /// Each slot of the ring has a block of `size` bytes. Any bytes form a valid value of a block.
    /// Every process treats the blocks as the protocol says.
    #[doc(hidden)]
    pub unsafe fn over(tx: Producer<BlockStart, InSegment<Strided>, S>, size: usize) -> Self {
        BlockProducer { tx, size }
    }

    fn block_view(&self) -> BlockView {
        BlockView { blocks: self.tx.view(), size: self.size }
    }

    pub(super) fn producer(&mut self) -> &mut Producer<BlockStart, InSegment<Strided>, S> {
        &mut self.tx
    }

    /// Returns the size of a block, in bytes.
    ///
    /// Example: [`BlockProducer::publish`].
    pub fn block_size(&self) -> usize {
        self.size
    }

    /// Fills the next block in place and publishes it. Returns its position. Waits while the ring
    /// is full. Before `fill` runs, the block holds the bytes of an earlier block, or zeros. If
    /// `fill` panics, nothing is published.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// let size = 1 << 16; // known at run time
    /// let segment = Segment::<Blocks>::create_memfd("field").capacity(8).block(size, 64);
    /// let segment = segment.type_name("field/f64", 1).reader("sum").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// assert_eq!(tx.block_size(), 1 << 16);
    /// assert_eq!(tx.publish(|block| block.fill(1))?, 0);
    /// drop(tx); // closes the ring
    /// let mut total = 0;
    /// sum.for_each(|block, _| total += block.iter().map(|&byte| u64::from(byte)).sum::<u64>())?;
    /// assert_eq!(total, 1 << 16);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    ///
    /// A call that returns an error has not called `fill`.
    ///
    /// # Cost
    /// Costs what [`Producer::publish`] costs.
    pub fn publish(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u64, WaitError> {
        let mut claim = self.claim_n(1).map_err(ClaimError::without_deadline)?;
        fill(&mut claim[0]);
        Ok(claim.publish())
    }

    /// Like [`BlockProducer::publish`], but never waits.
    ///
    /// Example: [`BlockProducer::publish`].
    ///
    /// # Errors
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn try_publish(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u64, ClaimError> {
        let mut claim = self.try_claim_n(1)?;
        fill(&mut claim[0]);
        Ok(claim.publish())
    }

    /// Like [`BlockProducer::publish`], but waits at most until `deadline`.
    ///
    /// Example: [`BlockProducer::publish`].
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the block.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn publish_by(
        &mut self,
        deadline: Instant,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, ClaimError> {
        let mut claim = self.claim_n_by(1, deadline)?;
        fill(&mut claim[0]);
        Ok(claim.publish())
    }

    /// Claims `len` consecutive blocks, and waits until all of them are free.
    ///
    /// Example: [`BlockClaim`].
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the blocks.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn claim_n(&mut self, len: usize) -> Result<BlockClaim<'_, S>, ClaimError> {
        self.claim_n_by(len, None)
    }

    /// Claims `len` consecutive blocks if all of them are free now.
    ///
    /// Example: [`BlockClaim`].
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::Gated`]: fewer than `len` blocks are free.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn try_claim_n(&mut self, len: usize) -> Result<BlockClaim<'_, S>, ClaimError> {
        let view = self.block_view();
        Ok(BlockClaim { slots: self.tx.try_claim_n(len)?, view })
    }

    /// Claims `len` consecutive blocks, and waits at most until `deadline`.
    ///
    /// Example: [`BlockClaim`].
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::TimedOut`]: `deadline` or, if `deadline` is `None`, the wait strategy's
    ///   timeout passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the blocks.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn claim_n_by(
        &mut self,
        len: usize,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<BlockClaim<'_, S>, ClaimError> {
        let view = self.block_view();
        Ok(BlockClaim { slots: self.tx.claim_n_by(len, deadline)?, view })
    }

    /// Returns the number of blocks that could be claimed at this moment. Other processes may
    /// change that number at any time.
    ///
    /// Example: [`BlockClaim`].
    pub fn remaining(&mut self) -> usize {
        self.tx.remaining()
    }

    /// Turns the handle into one whose calls take and return positions, and lend addresses.
    ///
    /// Example: [`RawBlockProducer`].
    pub fn into_raw(self) -> RawBlockProducer<S> {
        let view = self.block_view();
        RawBlockProducer::new(self.tx.into_raw(), view)
    }
}

passes!(BlockProducer<S>, S: sharing::Sharing);

impl<S: sharing::Sharing> fmt::Debug for BlockProducer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tx.fmt(f)
    }
}

/// Consecutive claimed blocks. If the claim is dropped without a publication, the blocks are given
/// up, and no stage sees them.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{Segment, blocks::Blocks};
/// let segment = Segment::<Blocks>::create_memfd("rows").capacity(8).block(24, 8);
/// let segment = segment.type_name("rows", 1).reader("all").build()?;
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut all) = (attached.producer()?, attached.reader("all")?);
/// let mut claim = tx.claim_n(3)?;
/// for offset in 0..claim.len() { claim[offset].fill(offset as u8); }
/// assert_eq!(claim.publish(), 0);
/// assert_eq!(tx.remaining(), 5);
/// let mut seen = Vec::new();
/// all.poll(8, |block, at| seen.push((at.seq, block[23])))?;
/// assert_eq!(seen, [(0, 0), (1, 1), (2, 2)]);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a claim that is dropped publishes nothing"]
pub struct BlockClaim<'p, S: sharing::Sharing = Single> {
    slots: Slots<'p, BlockStart, InSegment<Strided>, S>,
    view: BlockView,
}

impl<S: sharing::Sharing> BlockClaim<'_, S> {
    /// Returns the number of claimed blocks, at least 1.
    ///
    /// Example: [`BlockClaim`].
    #[allow(clippy::len_without_is_empty)] // a claim is never empty
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the position that the first block will have.
    ///
    /// Example: [`BlockClaim`].
    pub fn first_seq(&self) -> u64 {
        self.slots.first_seq()
    }

    /// Returns the block at `offset` from the claim's first block, or `None` if the claim has no
    /// block there.
    ///
    /// Example: [`BlockClaim`].
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut [u8]> {
        let seq = self.first_seq().wrapping_add(offset as u64);
        // SAFETY: claimed by the handle that this borrows (I1, I2); `&mut self` excludes a second
        // reference.
        (offset < self.len()).then(|| unsafe { &mut *self.view.bytes(seq) })
    }

    /// Returns where the claimed blocks lie, in two stretches.
    ///
    /// Example: [`BlockBatch::stretches`].
    pub fn stretches(&self) -> [Stretch; 2] {
        self.view.stretches(self.first_seq(), self.len())
    }

    /// Publishes all blocks of the claim at once. Returns the first block's position.
    ///
    /// Example: [`BlockClaim`].
    pub fn publish(self) -> u64 {
        self.slots.publish()
    }
}

impl<S: sharing::Sharing> std::ops::Index<usize> for BlockClaim<'_, S> {
    type Output = [u8];
    fn index(&self, offset: usize) -> &[u8] {
        let seq = self.first_seq().wrapping_add(offset as u64);
        assert!(offset < self.len(), "block {offset} of a claim of {}", self.len());
        // SAFETY: as in `get_mut`; `&self` excludes writers.
        unsafe { &*self.view.bytes(seq) }
    }
}

impl<S: sharing::Sharing> std::ops::IndexMut<usize> for BlockClaim<'_, S> {
    fn index_mut(&mut self, offset: usize) -> &mut [u8] {
        let len = self.len();
        let block = self.get_mut(offset);
        block.unwrap_or_else(|| panic!("block {offset} of a claim of {len}"))
    }
}

/// The handle through which a stage of a segment, a worker or a tap's member gets blocks.
pub struct BlockConsumer<A: lease::Access, C: lease::Delivery> {
    rx: Consumer<BlockStart, A, C, InSegment<Strided>>,
    size: usize,
}

impl<A: lease::Access, C: lease::Delivery> BlockConsumer<A, C> {
    /// Wraps a consumer of the ring as a consumer of blocks.
    ///
    /// # Safety
    /// The conditions of [`BlockProducer::over`] hold.
    #[doc(hidden)]
    pub unsafe fn over(rx: Consumer<BlockStart, A, C, InSegment<Strided>>, size: usize) -> Self {
        BlockConsumer { rx, size }
    }

    fn block_view(&self) -> BlockView {
        BlockView { blocks: self.rx.state().slots, size: self.size }
    }

    /// Returns the size of a block, in bytes.
    ///
    /// Example: [`BlockProducer::publish`].
    pub fn block_size(&self) -> usize {
        self.size
    }

    /// Returns the position of the next block that this handle lends.
    ///
    /// Example: [`BlockBatch`].
    pub fn next_seq(&self) -> u64 {
        self.rx.next_seq()
    }

    /// Lends at least one block and at most `max` blocks. Waits while no block is available.
    ///
    /// Example: [`BlockBatch`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more blocks come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited block.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn batch(&mut self, max: usize) -> Result<BlockBatch<'_, A, C>, WaitError> {
        let view = self.block_view();
        Ok(BlockBatch { batch: self.rx.batch(max)?, view })
    }

    /// Lends up to `max` blocks that are available now.
    ///
    /// Example: [`BlockBatch`].
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: no block is available yet.
    /// - [`BatchError::Contended`]: another worker of the pool took the available blocks.
    /// - [`BatchError::Wait`]: no block will come any more.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn try_batch(&mut self, max: usize) -> Result<BlockBatch<'_, A, C>, BatchError> {
        let view = self.block_view();
        Ok(BlockBatch { batch: self.rx.try_batch(max)?, view })
    }

    /// Like [`BlockConsumer::batch`], but waits at most until `deadline`.
    ///
    /// Example: [`BlockBatch`].
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed.
    /// - [`BatchError::Wait`]: no block will come any more, or only this thread could release it.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn batch_by(
        &mut self,
        max: usize,
        deadline: Instant,
    ) -> Result<BlockBatch<'_, A, C>, BatchError> {
        let view = self.block_view();
        Ok(BlockBatch { batch: self.rx.batch_by(max, deadline)?, view })
    }

    /// Lends a batch of `max` blocks or, once its oldest block has waited for `time`, the blocks
    /// that are there, at least one; see [`Consumer::batch_within`]. The call also looks for dead
    /// processes while the batch grows.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// use std::time::Duration;
    /// let segment = Segment::<Blocks>::create_memfd("rows").capacity(8).block(24, 8);
    /// let segment = segment.type_name("rows", 1).reader("all").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut all) = (attached.producer()?, attached.reader("all")?);
    /// for byte in 0..3 { tx.publish(|block| block.fill(byte))?; }
    /// drop(tx); // closes the ring
    /// for len in [2, 1] {
    ///     let batch = all.batch_within(2, Duration::from_secs(60))?;
    ///     assert_eq!(batch.len(), len);
    ///     batch.release();
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more blocks come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited block.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn batch_within(
        &mut self,
        max: usize,
        time: Duration,
    ) -> Result<BlockBatch<'_, A, C>, WaitError> {
        let view = self.block_view();
        Ok(BlockBatch { batch: self.rx.batch_within(max, time)?, view })
    }

    /// Like [`BlockConsumer::batch_within`], but waits at most until `deadline`. If blocks are
    /// there at the deadline, the call lends them.
    ///
    /// Example: [`BlockConsumer::batch_within`].
    ///
    /// # Errors
    /// The call returns the errors of [`Consumer::batch_within_by`].
    pub fn batch_within_by(
        &mut self,
        max: usize,
        time: Duration,
        deadline: Instant,
    ) -> Result<BlockBatch<'_, A, C>, BatchError> {
        let view = self.block_view();
        Ok(BlockBatch { batch: self.rx.batch_within_by(max, time, deadline)?, view })
    }

    /// Handles and releases up to `max` available blocks. Returns their number. Releases exactly
    /// the blocks for which `handle` returned, even if `handle` panics.
    ///
    /// Example: [`BlockClaim`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more blocks come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn poll(
        &mut self,
        max: usize,
        mut handle: impl FnMut(&[u8], At),
    ) -> Result<u64, WaitError> {
        let mut handled = 0;
        loop {
            match self.try_batch(max - handled) {
                Ok(batch) => handled += batch.handle(&mut handle) as usize,
                Err(BatchError::Wait(WaitError::Closed)) if max == 0 => return Ok(0),
                Err(BatchError::Wait(reason)) if handled == 0 => return Err(reason),
                Err(_) => return Ok(handled as u64),
            }
            if handled == max || self.is_exhausted() {
                return Ok(handled as u64);
            }
        }
    }

    /// Returns the number of slots of the ring.
    pub(super) fn capacity(&self) -> usize {
        self.rx.state().control().plan.capacity
    }

    /// Returns whether no block is available after the last batch, which the caller has released.
    /// If only other shards' blocks follow, a shard passes over them, and releases them.
    fn is_exhausted(&mut self) -> bool {
        // If the ring has several producers, a batch ends at a tombstone, and blocks may follow the
        // tombstone.
        let may_follow = self.rx.state().control().plan.many_producers;
        let position = self.rx.position();
        let exhausted = !may_follow && position.is_exhausted(true);
        if exhausted {
            position.release();
        }
        exhausted
    }

    /// Handles and releases every block until the stream's end. Returns the number of blocks.
    /// Releases the handled blocks after 64 KiB of blocks at the latest, and when no block is left.
    ///
    /// Example: [`BlockProducer::publish`].
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited block.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`]: a process that holds the call up has died.
    /// - [`WaitError::NameLost`]: the segment's name no longer refers to its file.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn for_each(&mut self, mut handle: impl FnMut(&[u8], At)) -> Result<u64, WaitError> {
        let most = (RELEASE_BYTES / self.size.max(1)).max(1);
        let mut handled = 0;
        loop {
            match self.batch(most) {
                Ok(batch) => handled += batch.handle(&mut handle),
                Err(WaitError::Closed) => return Ok(handled),
                Err(reason) => return Err(reason),
            }
        }
    }

    /// Turns the handle into one whose calls take and return positions, and lend addresses.
    ///
    /// Example: [`RawBlockProducer`].
    pub fn into_raw(self) -> RawBlockConsumer<A, C> {
        let view = self.block_view();
        RawBlockConsumer::new(self.rx.into_raw(), view)
    }
}

impl<A: lease::Access, C: Succeeds> BlockConsumer<A, C> {
    /// Returns the positions of blocks that were lent before and are lent again; see
    /// [`Consumer::redelivered`].
    ///
    /// Example: [`Consumer::redelivered`].
    pub fn redelivered(&self) -> SeqRange {
        self.rx.redelivered()
    }
}

impl<C: BeginsAgain> BlockConsumer<Updating, C> {
    /// Returns which of the next blocks may be half-written, as [`Consumer::suspects`] does.
    ///
    /// Example: [`Consumer::suspects`].
    pub fn suspects(&self) -> SeqRange {
        self.rx.suspects()
    }

    /// Passes over the blocks that may be half-written, as [`Consumer::pass_over_suspects`] does.
    ///
    /// Example: [`Consumer::pass_over_suspects`].
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    pub fn pass_over_suspects(&mut self) -> Result<u64, WaitError> {
        self.rx.pass_over_suspects()
    }
}

impl<A: lease::Access, C: lease::Delivery> fmt::Debug for BlockConsumer<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, next) = (self.rx.stage(), self.next_seq());
        write!(f, "BlockConsumer(`{stage}`, next {next}, blocks of {} bytes)", self.size)
    }
}
