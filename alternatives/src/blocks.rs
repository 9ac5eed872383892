//! Block-wise control: the ring is divided into blocks, each with a cursor of its own. The design
//! follows BBQ (Wang et al., "BBQ: A Block-based Bounded Queue for Exchanging Data and Profiling",
//! USENIX ATC 2022), reduced to one producer and one consumer.
//!
//! A consumer that lags by a block or more never reads the word that the producer writes. A
//! consumer that keeps up does read it, and then the word is just a cursor. A single cursor is as
//! fast if the consumer pauses between polls, and it needs no work at the end of a block.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::ring::{CacheLine, Cells, Design};

/// Number of slots in a block.
const BLOCK: u64 = 64;

/// A design with a cursor for each block.
pub struct Blocks<E> {
    events: Cells<E>,
    /// End of the published events of each block, as a position. A value from an earlier lap is at
    /// or before the block's beginning, so the block then has no published event.
    ends: Box<[CacheLine]>,
}

impl<E> Blocks<E> {
    fn end(&self, seq: u64) -> &AtomicU64 {
        &self.ends[(seq / BLOCK) as usize & (self.ends.len() - 1)].0
    }
}

impl<E: Copy + Default + Send> Design<E> for Blocks<E> {
    const MIN_CAPACITY: usize = BLOCK as usize;
    fn new(capacity: usize) -> Self {
        let ends = (0..capacity as u64 / BLOCK).map(|_| CacheLine(AtomicU64::new(0))).collect();
        Blocks { events: Cells::new(capacity), ends }
    }
    #[inline(always)]
    fn cell(&self, seq: u64) -> &UnsafeCell<E> {
        self.events.at(seq)
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        let (mut from, end) = (seq, seq + len);
        while from < end {
            let to = end.min((from / BLOCK + 1) * BLOCK);
            self.end(from).store(to, Release);
            from = to;
        }
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        self.end(seq).load(Acquire).saturating_sub(seq)
    }
    #[inline(always)]
    fn found_all(&self, seq: u64) -> bool {
        !seq.is_multiple_of(BLOCK)
    }
}
