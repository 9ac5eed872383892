//! Handles that lend blocks of a segment, by leases or by positions.
//!
//! - I1: The blocks' size is that of the segment, at least `Block::PARTS`, and a multiple of 8.

use std::cell::Cell;
use std::time::Duration;

use slipring::segment::{
    Access, BlockBatch, BlockConsumer, Delivery, RawBlockConsumer, Seated, SeatedShard,
    SeatedWorker, Stretch,
};
use slipring::{
    errors::{BatchError, WaitError},
    markers::{Joined, Reading, Updating},
    raw::SeqRange,
};
use slipring_coherence::sync;

use super::handles::{Ask, Finish, Handle, See, positions};
use crate::bytes::{Block, parts_mut};
use crate::event::point;

/// Number of blocks of a call that has no limit of its own.
const SOME: usize = 3;

/// The way in which a stage uses blocks.
pub trait Blocks: Access + Sized {
    /// Shows a block to the oracle, and writes to it if the stage does.
    fn show<C: Again>(batch: &mut BlockBatch<'_, Self, C>, offset: usize, see: See<'_>);
    fn poll<C: Again>(
        handle: &mut BlockConsumer<Self, C>,
        max: usize,
        see: See<'_>,
    ) -> Result<u64, WaitError>;
    fn for_each<C: Again>(
        handle: &mut BlockConsumer<Self, C>,
        see: See<'_>,
    ) -> Result<u64, WaitError>;
    fn suspects<C: Again>(_: &BlockConsumer<Self, C>) -> Option<(u64, usize)> {
        None
    }
    fn pass_over<C: Again>(_: &mut BlockConsumer<Self, C>) -> Result<u64, WaitError> {
        Ok(0)
    }
    fn raw_suspects<C: Again>(_: &RawBlockConsumer<Self, C>) -> Option<(u64, usize)> {
        None
    }
    /// The number of a batch's blocks that may be half-written, if it tells.
    fn suspects_of<C: Again>(_: &BlockBatch<'_, Self, C>) -> Option<usize> {
        None
    }
    /// Stores a trail in a block, if the stage writes.
    fn write(_block: &mut [u8], _trail: u64) {}
}

impl Blocks for Reading {
    fn show<C: Again>(batch: &mut BlockBatch<'_, Reading, C>, offset: usize, see: See<'_>) {
        let seq = batch.first_seq().wrapping_add(offset as u64);
        let block = batch.iter().nth(offset).expect("the batch has this block");
        see(seq, &Block(block));
    }
    fn poll<C: Again>(
        handle: &mut BlockConsumer<Reading, C>,
        max: usize,
        see: See<'_>,
    ) -> Result<u64, WaitError> {
        handle.poll(max, |block, at| _ = see(at.seq, &Block(block)))
    }
    fn for_each<C: Again>(
        handle: &mut BlockConsumer<Reading, C>,
        see: See<'_>,
    ) -> Result<u64, WaitError> {
        handle.for_each(|block, at| _ = see(at.seq, &Block(block)))
    }
}

impl Blocks for Updating {
    fn show<C: Again>(batch: &mut BlockBatch<'_, Updating, C>, offset: usize, see: See<'_>) {
        let seq = batch.first_seq().wrapping_add(offset as u64);
        let trail = see(seq, &Block(batch.get(offset).expect("the batch has this block")));
        Updating::write(batch.get_mut(offset).expect("the batch has this block"), trail);
    }
    fn poll<C: Again>(
        handle: &mut BlockConsumer<Updating, C>,
        max: usize,
        see: See<'_>,
    ) -> Result<u64, WaitError> {
        let mut batch = match handle.try_batch(max) {
            Ok(batch) => batch,
            Err(BatchError::Wait(error)) => return Err(error),
            Err(_) => return Ok(0),
        };
        (0..batch.len()).for_each(|offset| Updating::show(&mut batch, offset, see));
        let len = batch.len() as u64;
        batch.release();
        Ok(len)
    }
    fn for_each<C: Again>(
        handle: &mut BlockConsumer<Updating, C>,
        see: See<'_>,
    ) -> Result<u64, WaitError> {
        let mut handled = 0;
        loop {
            let mut batch = match handle.batch(SOME) {
                Err(WaitError::Closed) => return Ok(handled),
                found => found?,
            };
            (0..batch.len()).for_each(|offset| Updating::show(&mut batch, offset, see));
            handled += batch.len() as u64;
            batch.release();
        }
    }
    fn suspects<C: Again>(handle: &BlockConsumer<Updating, C>) -> Option<(u64, usize)> {
        C::suspects(handle)
    }
    fn pass_over<C: Again>(handle: &mut BlockConsumer<Updating, C>) -> Result<u64, WaitError> {
        C::pass_over(handle)
    }
    fn raw_suspects<C: Again>(raw: &RawBlockConsumer<Updating, C>) -> Option<(u64, usize)> {
        C::raw_suspects(raw)
    }
    fn suspects_of<C: Again>(batch: &BlockBatch<'_, Updating, C>) -> Option<usize> {
        C::suspects_of(batch)
    }
    fn write(block: &mut [u8], trail: u64) {
        parts_mut(block).write(trail);
    }
}

/// Calls by which a handle tells of blocks that come again.
pub trait Again: Delivery + Sized {
    /// Whether it tells with each batch.
    const IN_CHUNKS: bool = false;
    fn again<A: Access>(_: &BlockConsumer<A, Self>) -> (u64, usize) {
        (0, 0)
    }
    /// The same of one batch, if that tells.
    fn again_of<A: Access>(_: &BlockBatch<'_, A, Self>) -> Option<(u64, usize)> {
        None
    }
    fn raw_again<A: Access>(_: &RawBlockConsumer<A, Self>) -> (u64, usize) {
        (0, 0)
    }
    fn suspects(_: &BlockConsumer<Updating, Self>) -> Option<(u64, usize)> {
        None
    }
    fn raw_suspects(_: &RawBlockConsumer<Updating, Self>) -> Option<(u64, usize)> {
        None
    }
    fn suspects_of(_: &BlockBatch<'_, Updating, Self>) -> Option<usize> {
        None
    }
    fn pass_over(_: &mut BlockConsumer<Updating, Self>) -> Result<u64, WaitError> {
        Ok(0)
    }
}

macro_rules! begins_again {
    ($($delivery:ident),*) => { $(
        impl Again for $delivery {
            fn again<A: Access>(handle: &BlockConsumer<A, $delivery>) -> (u64, usize) {
                positions(handle.redelivered())
            }
            fn raw_again<A: Access>(handle: &RawBlockConsumer<A, $delivery>) -> (u64, usize) {
                positions(handle.redelivered())
            }
            fn suspects(handle: &BlockConsumer<Updating, $delivery>) -> Option<(u64, usize)> {
                Some(positions(handle.suspects()))
            }
            fn raw_suspects(raw: &RawBlockConsumer<Updating, $delivery>) -> Option<(u64, usize)> {
                Some(positions(raw.suspects()))
            }
            fn suspects_of(batch: &BlockBatch<'_, Updating, $delivery>) -> Option<usize> {
                Some(batch.suspects())
            }
            fn pass_over(handle: &mut BlockConsumer<Updating, $delivery>) -> Result<u64, WaitError> {
                handle.pass_over_suspects()
            }
        }
    )* };
}
begins_again!(Seated, SeatedShard);

impl Again for SeatedWorker {
    const IN_CHUNKS: bool = true;
    fn again<A: Access>(handle: &BlockConsumer<A, SeatedWorker>) -> (u64, usize) {
        positions(handle.redelivered())
    }
    fn again_of<A: Access>(batch: &BlockBatch<'_, A, SeatedWorker>) -> Option<(u64, usize)> {
        Some(positions(batch.redelivered()))
    }
    fn raw_again<A: Access>(handle: &RawBlockConsumer<A, SeatedWorker>) -> (u64, usize) {
        positions(handle.redelivered())
    }
}

impl Again for Joined {}

/// A consumer of blocks.
pub struct BlockHandle<A: Access, C: Delivery> {
    /// `None` once it has become one by positions.
    lends: Option<BlockConsumer<A, C>>,
    raw: Option<RawBlockConsumer<A, C>>,
    size: usize,
}

impl<A: Blocks, C: Again> BlockHandle<A, C> {
    pub fn new(handle: BlockConsumer<A, C>) -> BlockHandle<A, C> {
        let size = handle.block_size();
        BlockHandle { lends: Some(handle), raw: None, size }
    }

    fn lends(&mut self) -> &mut BlockConsumer<A, C> {
        self.lends.as_mut().expect("a handle by positions has no other calls")
    }

    fn by_positions(&mut self) -> &mut RawBlockConsumer<A, C> {
        let lends = self.lends.take();
        self.raw.get_or_insert_with(|| {
            let lends = lends.expect("it is one or the other");
            let suspects = A::suspects(&lends);
            let raw = lends.into_raw();
            assert_eq!(A::raw_suspects(&raw), suspects, "the same suspects");
            raw
        })
    }
}

/// The blocks of two stretches, with their positions and `size` bytes each.
pub fn each(stretches: [Stretch; 2], size: usize) -> impl Iterator<Item = (u64, *mut [u8])> {
    stretches.into_iter().flat_map(move |stretch| {
        (0..stretch.count).map(move |offset| {
            let at = stretch.address.as_ptr().wrapping_add(offset * stretch.stride);
            let block = std::ptr::slice_from_raw_parts_mut(at, size);
            (stretch.first.wrapping_add(offset as u64), block)
        })
    })
}

impl<A: Blocks, C: Again> Handle for BlockHandle<A, C>
where
    BlockConsumer<A, C>: Send,
    RawBlockConsumer<A, C>: Send,
{
    fn redelivered(&self) -> (u64, usize) {
        match (&self.lends, &self.raw) {
            (Some(handle), _) => C::again(handle),
            (_, Some(raw)) => C::raw_again(raw),
            _ => (0, 0),
        }
    }

    fn suspects(&self) -> Option<(u64, usize)> {
        self.lends.as_ref().and_then(A::suspects)
    }

    fn pass_over(&mut self) -> Result<u64, WaitError> {
        A::pass_over(self.lends())
    }

    fn tells_again(&self) -> bool {
        C::IN_CHUNKS
    }

    fn poll(&mut self, max: usize, see: See<'_>) -> Result<usize, WaitError> {
        A::poll(self.lends(), max, see).map(|handled| handled as usize)
    }

    fn for_each(&mut self, see: See<'_>) -> Result<u64, WaitError> {
        A::for_each(self.lends(), see)
    }

    #[allow(
        clippy::drop_non_drop,
        clippy::forget_non_drop,
        reason = "a batch's end is the subject"
    )]
    fn batch(
        &mut self,
        ask: Ask,
        max: usize,
        finish: Finish,
        again: &Cell<(u64, usize)>,
        see: See<'_>,
    ) -> Result<usize, BatchError> {
        let handle = self.lends();
        let suspects = A::suspects(handle);
        let mut batch = match ask {
            Ask::Wait | Ask::Task(_) => handle.batch(max)?,
            Ask::Try => handle.try_batch(max)?,
            Ask::For(time) => handle.batch_by(max, sync::now() + time)?,
        };
        let len = batch.len();
        if let Some(positions) = C::again_of(&batch) {
            again.set(positions);
        }
        if let (Some((first, count)), Some(told)) = (suspects, A::suspects_of(&batch)) {
            let left = first.wrapping_add(count as u64).wrapping_sub(batch.first_seq()) as i64;
            assert_eq!(told, left.clamp(0, len as i64) as usize, "suspects of a batch");
        }
        (0..len).for_each(|offset| A::show(&mut batch, offset, see));
        match finish {
            Finish::FrontFirst => {
                batch.release_front(len.div_ceil(2));
                point();
                batch.release();
            }
            Finish::Drop => drop(batch),
            Finish::Forget => std::mem::forget(batch),
            Finish::All | Finish::Hold => batch.release(),
        }
        Ok(len)
    }

    fn raw(&mut self, max: usize, see: See<'_>) -> Result<usize, BatchError> {
        let size = self.size;
        let raw = self.by_positions();
        let found = match max.is_multiple_of(2) {
            true => raw.wait_by(max, sync::now() + Duration::from_micros(20)),
            false => raw.available(max),
        };
        let [first, second] = raw.stretches();
        let lent = found.as_ref().map_or(0, SeqRange::len);
        assert_eq!(first.count + second.count, lent, "the lent blocks have places");
        let found = found?;
        // The rest is lent again by the next call.
        let some = lent.div_ceil(2);
        for (seq, block) in each([first, second], size).take(some) {
            // SAFETY: the block is lent, for writing if the stage writes, and has this size (I1).
            let trail = see(seq, &Block(unsafe { &*block }));
            // SAFETY: as above; the reference to read is gone.
            A::write(unsafe { &mut *block }, trail);
        }
        let last = found.first_seq().wrapping_add(some as u64 - 1);
        raw.done(last).expect("the position is lent");
        Ok(some)
    }
}
