//! Stamps inside the slots, the producer asking for lines to write some way ahead.
//!
//! It helps a producer that fills batches as fast as it can, while the consumer is slower; where
//! the consumer keeps up, it takes lines away that the consumer has just come to. The caches' own
//! prefetching does most of it without that.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::Design;

#[repr(C)]
struct Slot<E> {
    /// Position + 1 of the run that begins here, above its length in 16 bits.
    stamp: AtomicU64,
    event: UnsafeCell<E>,
}

/// See the module.
pub struct Prefetch<E> {
    slots: Box<[Slot<E>]>,
    /// How many slots lie ahead: about eight lines.
    ahead: u64,
}

// SAFETY: who touches which cell when is decided by the crate's I1.
unsafe impl<E: Send> Sync for Prefetch<E> {}

impl<E> Prefetch<E> {
    #[inline(always)]
    fn slot(&self, seq: u64) -> &Slot<E> {
        &self.slots[seq as usize & (self.slots.len() - 1)]
    }
}

/// Asks for a line to write to. A hint: it changes nothing that could be seen.
#[inline(always)]
fn fetch_to_write<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint on any address, and this one is a reference's.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl<E: Copy + Default + Send> Design<E> for Prefetch<E> {
    fn new(capacity: usize) -> Self {
        let slots = (0..capacity)
            .map(|_| Slot { stamp: AtomicU64::new(0), event: UnsafeCell::new(E::default()) })
            .collect();
        Prefetch { slots, ahead: (512 / size_of::<Slot<E>>() as u64).max(1) }
    }
    #[inline(always)]
    fn cell(&self, seq: u64) -> &UnsafeCell<E> {
        &self.slot(seq).event
    }
    #[inline(always)]
    fn prepare(&self, seq: u64, len: u64) {
        // A line has several slots; asking for each of them would be asking too often.
        let step = (64 / size_of::<Slot<E>>() as u64).max(1);
        let mut at = seq.next_multiple_of(step);
        while at < seq + len {
            fetch_to_write(self.slot(at + self.ahead));
            at += step;
        }
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.slot(seq).stamp.store((seq + 1) << 16 | len, Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        let word = self.slot(seq).stamp.load(Acquire);
        if word >> 16 == seq + 1 { word & 0xffff } else { 0 }
    }
}
