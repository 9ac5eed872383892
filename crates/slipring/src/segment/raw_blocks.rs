//! The places of blocks, and handles that lend the blocks' addresses by position.
//!
//! Invariants
//! - I1: each position's block has `size` bytes, which begin at the address of the position's
//!   event, and belong to no other position of the same lap. So to lend or claim a position is to
//!   lend or claim its block.

use std::ptr::NonNull;
use std::slice;
use std::time::Instant;

use crate::adapters::raw::{RawConsumer, RawProducer};
use crate::consumer::markers::{Updating, sealed as lease};
use crate::errors::{BatchError, ClaimError, NotHeld};
use crate::processes::layout::InSegment;
use crate::processes::markers::{BeginsAgain, Succeeds};
use crate::producer::{Producer, Single, sealed as sharing};
use crate::ring::events::straight;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::{Storage as _, Strided, View};

/// Stands for the beginning of a block. A reference to a `BlockStart` gives access to no byte.
#[derive(Clone, Copy, Debug)]
pub struct BlockStart(());

/// View of a segment's slots as blocks of one size.
#[derive(Clone, Copy)]
pub(super) struct BlockView {
    pub(super) blocks: View<BlockStart, InSegment<Strided>>,
    /// Size of a block, in bytes.
    pub(super) size: usize,
}

impl BlockView {
    /// Returns the bytes of a position's block.
    #[inline(always)]
    pub(super) fn bytes(&self, seq: u64) -> *mut [u8] {
        std::ptr::slice_from_raw_parts_mut(self.blocks.event(seq).cast(), self.size)
    }

    /// Returns where `len` blocks from `first` on lie.
    pub(super) fn stretches(&self, first: u64, len: usize) -> [Stretch; 2] {
        let before = straight(&*self.blocks, first, len);
        let stretch = |first: u64, count: usize| Stretch {
            first,
            count,
            address: NonNull::new(self.blocks.event(first).cast()).unwrap_or(NonNull::dangling()),
            stride: self.blocks.stride(),
        };
        [stretch(first, before), stretch(first.wrapping_add(before as u64), len - before)]
    }
}

/// Blocks at equal distances from each other, in the form that an array library takes. Lent blocks
/// form two stretches. The second stretch begins at the ring's first slot, and is often empty.
///
/// Example: [`BlockBatch::stretches`](super::BlockBatch::stretches).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stretch {
    /// Position of the first block.
    pub first: u64,
    /// Number of blocks.
    pub count: usize,
    /// Address of the first block. Valid while the blocks are lent or claimed.
    pub address: NonNull<u8>,
    /// Distance from one block to the next, in bytes. It is the size of a block, unless the stamps
    /// lie between the blocks.
    pub stride: usize,
}

/// A producer of blocks whose calls take and return positions, and lend addresses. It uses no
/// closures and lifetimes, so bindings for other languages can use it.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{Segment, blocks::Blocks};
/// use std::time::{Duration, Instant};
/// let segment = Segment::<Blocks>::create_memfd("rows").capacity(4).block(16, 8);
/// let segment = segment.type_name("rows", 1).reader("all").build()?;
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let mut tx = attached.producer()?.into_raw();
/// let mut all = attached.reader("all")?.into_raw();
/// let soon = Instant::now() + Duration::from_secs(1);
/// let first = tx.claim_by(2, soon)?;
/// for stretch in tx.stretches() {
///     for block in 0..stretch.count {
///         // SAFETY: the block is claimed.
///         unsafe { stretch.address.add(block * stretch.stride).write_bytes(7, 16) };
///     }
/// }
/// tx.done(first + 1)?;
/// assert_eq!(all.wait_by(8, soon)?.len(), 2);
/// let [blocks, _] = all.stretches();
/// // SAFETY: the block is lent.
/// assert_eq!(unsafe { blocks.address.add(blocks.stride + 15).read() }, 7);
/// all.done(first + 1)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawBlockProducer<S: sharing::Sharing = Single> {
    tx: RawProducer<BlockStart, InSegment<Strided>, S>,
    view: BlockView,
    /// First position and number of the claimed blocks.
    open: Option<(u64, usize)>,
}

impl<S: sharing::Sharing> RawBlockProducer<S> {
    pub(super) fn new(tx: RawProducer<BlockStart, InSegment<Strided>, S>, view: BlockView) -> Self {
        RawBlockProducer { tx, view, open: None }
    }

    /// Claims `len` consecutive blocks if all of them are free now. Returns the first position.
    ///
    /// Example: [`RawBlockProducer`].
    ///
    /// # Errors
    /// - [`ClaimError::Held`]: another claim of this handle is open.
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::Gated`]: fewer than `len` blocks are free.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn try_claim(&mut self, len: usize) -> Result<u64, ClaimError> {
        let first = self.tx.next_n(len)?;
        self.open = Some((first, self.tx.claimed()));
        Ok(first)
    }

    /// Claims `len` consecutive blocks, and waits at most until `deadline`, or without a limit if
    /// `deadline` is `None`. Returns the first position.
    ///
    /// Example: [`RawBlockProducer`].
    ///
    /// # Errors
    /// - [`ClaimError::Held`]: another claim of this handle is open.
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::TimedOut`]: `deadline` or, if `deadline` is `None`, the wait strategy's
    ///   timeout passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the blocks.
    /// - [`ClaimError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn claim_by(
        &mut self,
        len: usize,
        deadline: impl Into<Option<Instant>>,
    ) -> Result<u64, ClaimError> {
        let first = self.tx.next_n_by(len, deadline.into())?;
        self.open = Some((first, self.tx.claimed()));
        Ok(first)
    }

    /// Returns the places of the claimed blocks that are not published yet.
    ///
    /// Example: [`RawBlockProducer`].
    pub fn stretches(&self) -> [Stretch; 2] {
        let (first, len) = self.open.unwrap_or((0, 0));
        self.view.stretches(first, len)
    }

    /// Publishes the claimed blocks up to and including the position `seq`.
    ///
    /// Example: [`RawBlockProducer`].
    ///
    /// # Errors
    /// [`NotHeld`]: the position is not claimed. Nothing is published.
    pub fn done(&mut self, seq: u64) -> Result<(), NotHeld> {
        self.tx.done(seq)?;
        self.open = self.open.and_then(|(first, len)| behind(first, len, seq));
        Ok(())
    }

    /// Returns the first claimed position that is not published yet, and the bytes of all claimed
    /// blocks from that position on. Returns `None` if there is no such block, or if the blocks do
    /// not lie side by side, as the cells of a message do.
    pub(super) fn joined_mut(&mut self) -> Option<(u64, &mut [u8])> {
        let (seq, len) = self.open?;
        let [first, second] = self.stretches();
        let joined = second.count == 0 && first.stride == self.view.size;
        let len = len * self.view.size;
        // SAFETY: this handle has claimed the blocks, and `&mut self` excludes a second reference.
        // They form one stretch whose stride is a block's size, so their bytes are contiguous.
        joined.then(|| (seq, unsafe { slice::from_raw_parts_mut(first.address.as_ptr(), len) }))
    }

    /// Like [`RawBlockProducer::joined_mut`], but returns only the bytes, and only for reading.
    pub(super) fn joined(&self) -> Option<&[u8]> {
        let (_, len) = self.open?;
        let [first, second] = self.stretches();
        let joined = second.count == 0 && first.stride == self.view.size;
        // SAFETY: as in `joined_mut`; `&self` excludes writers.
        joined
            .then(|| unsafe { slice::from_raw_parts(first.address.as_ptr(), len * self.view.size) })
    }

    /// Makes each later claim stop at the ring's end, if the ring has several producers.
    pub(super) fn stop_at_end(&mut self) {
        self.tx.stop_at_end();
    }

    /// Returns the number of claimed blocks that are not published yet.
    pub(super) fn claimed(&self) -> usize {
        self.tx.claimed()
    }

    /// Returns the position of the next claim. The position is exact only if the ring has a single
    /// producer.
    pub(super) fn next_seq(&self) -> u64 {
        self.tx.claim_seq()
    }

    /// Returns the number of slots.
    pub(super) fn capacity(&self) -> usize {
        self.view.blocks.mask() as usize + 1
    }

    /// Gives up the claimed blocks that are not published yet.
    ///
    /// Example: [`RawProducer::give_up`].
    pub fn give_up(&mut self) {
        self.open = None;
        self.tx.give_up();
    }

    /// Gives up the open claim, and lends the producer in this handle.
    pub(super) fn without_claim(&mut self) -> &mut Producer<BlockStart, InSegment<Strided>, S> {
        self.open = None;
        self.tx.without_claim()
    }
}

/// Returns the part of `[first, first + len)` that lies behind the position `seq`.
fn behind(first: u64, len: usize, seq: u64) -> Option<(u64, usize)> {
    let done = seq.wrapping_sub(first).wrapping_add(1) as usize;
    let left = len.checked_sub(done).filter(|&left| left != 0)?;
    Some((seq.wrapping_add(1), left))
}

/// A consumer of blocks whose calls take and return positions, and lend addresses.
///
/// Example: [`RawBlockProducer`].
pub struct RawBlockConsumer<A: lease::Access, C: lease::Delivery> {
    /// `None` only while a call waits.
    rx: Option<RawConsumer<BlockStart, A, C, InSegment<Strided>>>,
    view: BlockView,
    /// First position and number of the lent blocks.
    lent: Option<(u64, usize)>,
}

impl<A: lease::Access, C: lease::Delivery> RawBlockConsumer<A, C> {
    pub(super) fn new(
        rx: RawConsumer<BlockStart, A, C, InSegment<Strided>>,
        view: BlockView,
    ) -> Self {
        RawBlockConsumer { rx: Some(rx), view, lent: None }
    }

    /// Returns the positions of up to `max` blocks that are available now, at least one.
    ///
    /// Example: [`RawBlockProducer`].
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: no block is published yet, or `max` is 0.
    /// - [`BatchError::Gated`]: an earlier stage has not released the next block.
    /// - [`BatchError::Contended`]: another worker of the pool took the available blocks.
    /// - [`BatchError::Wait`]: no block will come any more.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn available(&mut self, max: usize) -> Result<SeqRange, BatchError> {
        self.lent = None;
        let rx = self.rx.as_mut().ok_or(BatchError::Unavailable)?;
        let found = rx.available(max)?;
        self.lent = Some((found.first_seq(), found.len()));
        Ok(found)
    }

    /// Like [`RawBlockConsumer::available`], but waits at most until `deadline`.
    ///
    /// Example: [`RawBlockProducer`].
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed.
    /// - [`BatchError::Unavailable`]: `max` is 0.
    /// - [`BatchError::Contended`]: another worker of the pool took the available blocks.
    /// - [`BatchError::Wait`]: no block will come any more, or only this thread could release it.
    /// - [`BatchError::Wait`], too: `PeerDead`, `NameLost` or `Damaged` of a
    ///   [`WaitError`](crate::errors::WaitError).
    pub fn wait_by(&mut self, max: usize, deadline: Instant) -> Result<SeqRange, BatchError> {
        self.lent = None;
        if let Some(rx) = self.rx.take() {
            let mut rx = rx.into_inner();
            let waited = rx.batch_by(max, deadline).map(drop);
            self.rx = Some(rx.into_raw());
            waited?;
        }
        self.available(max)
    }

    /// Returns where the lent blocks lie.
    ///
    /// Example: [`RawBlockProducer`].
    pub fn stretches(&self) -> [Stretch; 2] {
        let (first, len) = self.lent.unwrap_or((0, 0));
        self.view.stretches(first, len)
    }

    /// Releases the lent blocks up to and including the position `seq`.
    ///
    /// Example: [`RawBlockProducer`].
    ///
    /// # Errors
    /// [`NotHeld`]: the position is not lent. Nothing is released.
    pub fn done(&mut self, seq: u64) -> Result<(), NotHeld> {
        if let Some(rx) = &mut self.rx {
            rx.done(seq)?;
        }
        self.lent = self.lent.and_then(|(first, len)| behind(first, len, seq));
        Ok(())
    }
}

impl<A: lease::Access, C: Succeeds> RawBlockConsumer<A, C> {
    /// Returns the positions of blocks that were lent before and come again, as
    /// [`Consumer::redelivered`](crate::Consumer::redelivered) does. For a pool's worker, returns
    /// only the positions in the chunk in which [`RawBlockConsumer::available`] found blocks last.
    /// If the pool writes, each of these blocks may be half-written.
    ///
    /// Example: [`BlockBatch::redelivered`](super::BlockBatch::redelivered).
    pub fn redelivered(&self) -> SeqRange {
        self.rx.as_ref().map_or(SeqRange::new(0, 0), RawConsumer::redelivered)
    }
}

impl<C: BeginsAgain> RawBlockConsumer<Updating, C> {
    /// Returns which of the next blocks may be half-written, as
    /// [`Consumer::suspects`](crate::Consumer::suspects) does.
    ///
    /// Example: [`Consumer::suspects`](crate::Consumer::suspects).
    pub fn suspects(&self) -> SeqRange {
        self.rx.as_ref().map_or(SeqRange::new(0, 0), RawConsumer::suspects)
    }
}
