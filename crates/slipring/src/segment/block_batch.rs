//! Blocks that are lent together.
//!
//! Invariants
//! - I1: each position of the batch is a block that was lent to the batch's handle, for writing if
//!   the handle writes.
//! - I2: every bit pattern is a valid block.

use std::slice;

use super::raw_blocks::{BlockStart, BlockView, Stretch};
use crate::consumer::batch::Batch;
use crate::consumer::markers::{Updating, sealed as lease};
use crate::processes::layout::InSegment;
use crate::processes::markers::{BeginsAgain, SeatedWorker};
use crate::ring::events::At;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Strided;

/// Blocks lent together, at consecutive positions and in their order. If the batch is dropped
/// without a release, its blocks are lent again.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{Segment, blocks::Blocks};
/// let segment = Segment::<Blocks>::create_memfd("rows").capacity(4).block(16, 8);
/// let segment = segment.type_name("rows", 1).updater("double").build()?;
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut double) = (attached.producer()?, attached.updater("double")?);
/// for byte in 1..=3 { tx.publish(|block| block.fill(byte))?; }
/// let mut batch = double.batch(2)?;
/// assert_eq!((batch.first_seq(), batch.len(), batch.get(1).unwrap()[15]), (0, 2, 2));
/// batch.get_mut(0).unwrap().iter_mut().for_each(|byte| *byte *= 2);
/// batch.release();
/// assert_eq!(double.next_seq(), 2);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockBatch<'c, A: lease::Access, C: lease::Delivery> {
    pub(super) batch: Batch<'c, BlockStart, A, C, InSegment<Strided>>,
    pub(super) view: BlockView,
}

impl<A: lease::Access, C: lease::Delivery> BlockBatch<'_, A, C> {
    /// Returns the number of lent blocks.
    ///
    /// Example: [`BlockBatch`].
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns whether no block is lent. That is so if the caller asked for the batch with `max` 0,
    /// or if all blocks were released.
    ///
    /// Example: [`BlockBatch`].
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Returns the position of the first block.
    ///
    /// Example: [`BlockBatch`].
    pub fn first_seq(&self) -> u64 {
        self.batch.first_seq()
    }

    /// Returns the block at `offset` from the batch's first block, or `None` if the batch has no
    /// block there.
    ///
    /// Example: [`BlockBatch`].
    pub fn get(&self, offset: usize) -> Option<&[u8]> {
        let seq = self.first_seq().wrapping_add(offset as u64);
        // SAFETY: lent for reading (I1, I2).
        (offset < self.len()).then(|| unsafe { &*self.view.bytes(seq) })
    }

    /// Iterates over the blocks, in the order of their positions.
    ///
    /// Example: [`BlockBatch::stretches`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let (first, view) = (self.first_seq(), self.view);
        // SAFETY: lent for reading (I1, I2).
        (0..self.len())
            .map(move |offset| unsafe { &*view.bytes(first.wrapping_add(offset as u64)) })
    }

    /// Returns where the lent blocks lie, in two stretches.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// let segment = Segment::<Blocks>::create_memfd("rows").capacity(4).block(16, 8);
    /// let segment = segment.type_name("rows", 1).reader("all").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut all) = (attached.producer()?, attached.reader("all")?);
    /// for _ in 0..2 {
    ///     for byte in 1..=3 { tx.publish(|block| block.fill(byte))?; }
    ///     let batch = all.batch(8)?;
    ///     let counts = batch.stretches().map(|stretch| (stretch.first, stretch.count));
    ///     assert!([[(0, 3), (3, 0)], [(3, 1), (4, 2)]].contains(&counts));
    ///     assert_eq!(batch.stretches()[0].stride, 16); // no stamps between the blocks
    ///     assert!(batch.iter().map(|block| block[0]).eq(1..=3));
    ///     batch.release();
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stretches(&self) -> [Stretch; 2] {
        self.view.stretches(self.first_seq(), self.len())
    }

    /// Returns the bytes of `count` blocks from `offset` on, if these blocks are adjacent. The
    /// function is meant for messages, whose cells are adjacent.
    pub(super) fn joined(&self, offset: usize, count: usize) -> Option<&[u8]> {
        let end = offset.checked_add(count)?;
        let [first, second] =
            self.view.stretches(self.first_seq().wrapping_add(offset as u64), count);
        let joined = end <= self.len() && second.count == 0 && first.stride == self.view.size;
        // SAFETY: as in `get`; the distance between two blocks of the stretch equals their size, so
        // the blocks are adjacent in memory.
        joined.then(|| unsafe {
            slice::from_raw_parts(first.address.as_ptr(), count * self.view.size)
        })
    }

    /// Releases all blocks of the batch.
    ///
    /// Example: [`BlockBatch`].
    pub fn release(self) {
        self.batch.release();
    }

    /// Releases the batch's first `count` blocks, and keeps the other blocks.
    ///
    /// Example: [`Batch::release_front`](crate::Batch::release_front).
    ///
    /// # Panics
    /// The batch has fewer blocks.
    pub fn release_front(&mut self, count: usize) {
        self.batch.release_front(count);
    }

    /// Handles all blocks, and releases the blocks for which `handle` returned.
    pub(super) fn handle(self, handle: &mut impl FnMut(&[u8], At)) -> u64 {
        /// Releases the handled blocks when it is dropped, even by a panic.
        struct Handled<'c, A: lease::Access, C: lease::Delivery>(BlockBatch<'c, A, C>, usize);
        impl<A: lease::Access, C: lease::Delivery> Drop for Handled<'_, A, C> {
            fn drop(&mut self) {
                self.0.release_front(self.1);
            }
        }
        let len = self.len();
        let mut handled = Handled(self, 0);
        for offset in 0..len {
            let seq = handled.0.first_seq().wrapping_add(offset as u64);
            if let Some(block) = handled.0.get(offset) {
                handle(block, At { seq });
            }
            handled.1 += 1;
        }
        len as u64
    }
}

impl<A: lease::Access> BlockBatch<'_, A, SeatedWorker> {
    /// Returns the positions of the batch's blocks that may have been lent before, to a worker that
    /// died or left without a release. If the pool writes, each of these blocks may be
    /// half-written.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// let segment = Segment::<Blocks>::create_memfd("rows").capacity(4).block(16, 8);
    /// let segment = segment.pool_updater("double", 2).build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// tx.publish(|block| block.fill(1))?;
    /// let mut one = attached.pool_updater("double")?;
    /// let mut batch = one.batch(8)?;
    /// assert!(batch.redelivered().is_empty());
    /// batch.get_mut(0).unwrap()[..8].fill(2); // half-written, and not released
    /// drop(batch);
    /// drop(one);
    /// let mut other = attached.pool_updater("double")?;
    /// let mut batch = other.batch(8)?;
    /// for seq in batch.redelivered() {
    ///     let offset = seq.wrapping_sub(batch.first_seq()) as usize;
    ///     batch.get_mut(offset).unwrap().fill(0); // marks what cannot be repaired
    /// }
    /// assert_eq!(batch.get(0).unwrap(), [0; 16]);
    /// batch.release();
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn redelivered(&self) -> SeqRange {
        self.batch.redelivered()
    }
}

impl<C: BeginsAgain> BlockBatch<'_, Updating, C> {
    /// Returns how many blocks at the beginning of the batch may be half-written; see
    /// [`Batch::suspects`](crate::Batch::suspects).
    ///
    /// Example: [`Batch::suspects`](crate::Batch::suspects).
    pub fn suspects(&self) -> usize {
        self.batch.suspects()
    }
}

impl<C: lease::Delivery> BlockBatch<'_, Updating, C> {
    /// Returns the block at `offset` from the batch's first block, for writing, or `None` if the
    /// batch has no block there.
    ///
    /// Example: [`BlockBatch`].
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut [u8]> {
        let seq = self.first_seq().wrapping_add(offset as u64);
        // SAFETY: lent for writing (I1, I2); `&mut self` excludes a second reference.
        (offset < self.len()).then(|| unsafe { &mut *self.view.bytes(seq) })
    }
}
