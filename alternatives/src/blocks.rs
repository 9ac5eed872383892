//! Block-wise control: the ring is cut in blocks, each with a word of its own that says how far it
//! is published. After BBQ (Wang et al., "BBQ: A Block-based Bounded Queue for Exchanging Data and
//! Profiling", USENIX ATC 2022), reduced to one producer and one consumer.
//!
//! A consumer that lags by a block or more never looks at the word that the producer writes. One
//! that keeps up does, and there it is a cursor. With pauses between looks a single cursor serves
//! as well, without the crossing from block to block.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::{Cells, Design, Line};

/// Slots of a block.
const BLOCK: u64 = 64;

/// See the module.
pub struct Blocks<E> {
    events: Cells<E>,
    /// By block, up to which position it was last published. Of an earlier lap: no later than where
    /// the block begins.
    ends: Box<[Line]>,
}

impl<E> Blocks<E> {
    fn end(&self, seq: u64) -> &AtomicU64 {
        &self.ends[(seq / BLOCK) as usize & (self.ends.len() - 1)].0
    }
}

impl<E: Copy + Default + Send> Design<E> for Blocks<E> {
    const LEAST: usize = BLOCK as usize;
    fn new(capacity: usize) -> Self {
        let ends = (0..capacity as u64 / BLOCK).map(|_| Line(AtomicU64::new(0))).collect();
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
    fn told_all(&self, seq: u64) -> bool {
        !seq.is_multiple_of(BLOCK)
    }
}
