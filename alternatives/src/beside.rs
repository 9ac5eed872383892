//! Run-length stamps in an array beside the events: what slipring's contiguous layout had for a
//! single producer, too, until it got a cursor.
//!
//! A publication touches a line of stamps besides the lines of its events, and so does whoever
//! looks for it; in batches of ten the stamps of a lap fill as many lines as the events do. Many
//! producers still publish so, because they finish out of order.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::{Cells, Design};

/// See the module.
pub struct Beside<E> {
    events: Cells<E>,
    /// Position + 1 of the run that begins here, above its length in 16 bits.
    stamps: Box<[AtomicU64]>,
}

impl<E> Beside<E> {
    fn stamp(&self, seq: u64) -> &AtomicU64 {
        &self.stamps[seq as usize & (self.stamps.len() - 1)]
    }
}

impl<E: Copy + Default + Send> Design<E> for Beside<E> {
    fn new(capacity: usize) -> Self {
        Beside {
            events: Cells::new(capacity),
            stamps: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
        }
    }
    #[inline(always)]
    fn cell(&self, seq: u64) -> &UnsafeCell<E> {
        self.events.at(seq)
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.stamp(seq).store((seq + 1) << 16 | len, Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        let word = self.stamp(seq).load(Acquire);
        if word >> 16 == seq + 1 { word & 0xffff } else { 0 }
    }
}
