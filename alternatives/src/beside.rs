//! Run-length stamps in an array beside the events. slipring's contiguous layout used them for a
//! single producer before it had a cursor.
//!
//! A publication and a poll touch a cache line of stamps besides the lines of the events. With
//! batches of ten, the stamps of a lap take up as many lines as its events. Shared producers still
//! use such stamps, because the producers finish out of order.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::ring::{Cells, Design};

/// A design with run-length stamps beside the events.
pub struct Beside<E> {
    events: Cells<E>,
    /// Position + 1 of the run that begins in the slot, above the run's length in 16 bits.
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
