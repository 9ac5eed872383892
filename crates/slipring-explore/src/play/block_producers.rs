//! Producers of blocks, by leases or by positions.
//!
//! - I1: The blocks' size is that of the segment, as in `blocks`. A block is filled only while its
//!   position is claimed.

use slipring::errors::ClaimError;
use slipring::segment::{BlockClaim, BlockProducer, RawBlockProducer, Sharing};

use super::acts::{settle, settle_all};
use super::blocks::each;
use super::plain::{Patience, Puts};
use crate::bytes::fill_block;
use crate::event::point;
use crate::oracle::Log;
use crate::plan::Fate;

/// A producer of blocks.
pub struct BlockPuts<S: Sharing> {
    /// `None` once it has become one by positions.
    lends: Option<BlockProducer<S>>,
    raw: Option<RawBlockProducer<S>>,
    size: usize,
    capacity: usize,
}

/// Claims some blocks by positions.
fn claim<S: Sharing>(
    raw: &mut RawBlockProducer<S>,
    len: usize,
    patience: Patience,
) -> Result<u64, ClaimError> {
    match patience {
        Patience::Try => raw.try_claim(len),
        Patience::Wait => raw.claim_by(len, None),
        Patience::Until(deadline) => raw.claim_by(len, deadline),
    }
}

impl<S: Sharing> BlockPuts<S> {
    pub fn new(producer: BlockProducer<S>, capacity: usize) -> BlockPuts<S> {
        let size = producer.block_size();
        BlockPuts { lends: Some(producer), raw: None, size, capacity }
    }

    /// Claims some blocks by positions, and fills them. Publishes the first half, and then the
    /// rest, or gives that up.
    fn claim_raw(&mut self, log: &Log, len: usize, fate: Fate) -> Result<(), ClaimError> {
        let Some(raw) = &mut self.raw else { return Ok(()) };
        let first = Patience::all_ways(|patience| claim(raw, len, patience))?;
        let ids: Vec<u64> = (0..len).map(|_| log.begin()).collect();
        for ((_, block), id) in each(raw.stretches(), self.size).zip(&ids) {
            // SAFETY: the block is claimed, and has this size (I1).
            fill_block(unsafe { &mut *block }, *id);
        }
        let half = if fate == Fate::Publish { len / 2 } else { len.div_ceil(2) };
        let (ended, rest) = ids.split_at(half);
        if !ended.is_empty() {
            log.whole(first, half as u64);
            raw.done(first.wrapping_add(half as u64 - 1)).expect("the position is claimed");
            settle_all(log, ended, &Ok::<u64, ClaimError>(first));
            point();
        }
        let places = raw.stretches();
        assert_eq!(places[0].count + places[1].count, rest.len(), "the rest is claimed");
        if fate == Fate::Publish {
            raw.done(first.wrapping_add(len as u64 - 1)).expect("the position is claimed");
            let from = first.wrapping_add(half as u64);
            settle_all(log, rest, &Ok::<u64, ClaimError>(from));
        } else {
            rest.iter().for_each(|id| log.given_up(*id));
            raw.give_up();
        }
        Ok(())
    }
}

impl<S: Sharing> Puts for BlockPuts<S> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn put_by(&mut self, log: &Log, id: u64, patience: Patience) -> Result<u64, ClaimError> {
        let mut filled = false;
        let done = if let Some(raw) = &mut self.raw {
            claim(raw, 1, patience).inspect(|seq| {
                let block = each(raw.stretches(), self.size).next();
                let (_, block) = block.expect("a block is claimed");
                // SAFETY: the block is claimed, and has this size (I1).
                fill_block(unsafe { &mut *block }, id);
                raw.done(*seq).expect("the position is claimed");
            })
        } else {
            let producer = self.lends.as_mut().expect("it is one or the other");
            let fill = |block: &mut [u8]| {
                filled = true;
                fill_block(block, id);
            };
            match patience {
                Patience::Wait => producer.publish(fill).map_err(ClaimError::from),
                Patience::Try => producer.try_publish(fill),
                Patience::Until(deadline) => producer.publish_by(deadline, fill),
            }
        };
        settle(log, id, filled, &done, |seq| *seq);
        done
    }

    fn put_all(&mut self, log: &Log, events: usize) -> Result<(), ClaimError> {
        for first in (0..events).step_by(self.capacity) {
            self.claim(log, self.capacity.min(events - first), Fate::Publish)?;
        }
        Ok(())
    }

    fn claim(&mut self, log: &Log, len: usize, fate: Fate) -> Result<(), ClaimError> {
        let Some(producer) = &mut self.lends else { return self.claim_raw(log, len, fate) };
        Patience::all_ways(|patience| {
            let claimed = match patience {
                Patience::Wait => producer.claim_n(len),
                Patience::Try => producer.try_claim_n(len),
                Patience::Until(deadline) => producer.claim_n_by(len, deadline),
            };
            claimed.map(|claim| finish(log, claim, fate))
        })
    }

    fn raw(&mut self, log: &Log, len: usize) -> Result<(), ClaimError> {
        if let Some(producer) = self.lends.take() {
            self.raw = Some(producer.into_raw());
        }
        self.claim_raw(log, len, if len.is_multiple_of(2) { Fate::Publish } else { Fate::Drop })
    }

    fn remaining(&mut self) -> Option<usize> {
        self.lends.as_mut().map(BlockProducer::remaining)
    }
}

/// Fills the claimed blocks, and does with them what their fate says.
fn finish<S: Sharing>(log: &Log, mut claim: BlockClaim<'_, S>, fate: Fate) {
    let first = claim.first_seq();
    let begin = |_| {
        let id = log.begin();
        if fate != Fate::Publish {
            log.given_up(id);
        }
        id
    };
    let ids: Vec<u64> = (0..claim.len()).map(begin).collect();
    ids.iter().enumerate().for_each(|(offset, id)| fill_block(&mut claim[offset], *id));
    let places = claim.stretches().map(|stretch| stretch.count);
    assert_eq!(places[0] + places[1], claim.len(), "the claimed blocks have places");
    match fate {
        Fate::Publish => {
            log.whole(first, ids.len() as u64);
            let done = claim.publish();
            assert_eq!(done, first, "the claim has told its position");
            settle_all(log, &ids, &Ok::<u64, ClaimError>(first));
        }
        Fate::Drop => drop(claim),
        Fate::Forget => std::mem::forget(claim),
    }
}
