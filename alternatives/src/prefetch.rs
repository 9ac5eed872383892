//! Stamps inside the slots, with a producer that prefetches slots ahead of its position.
//!
//! Prefetching helps a producer that fills batches at full speed while the consumer is slower.
//! Where the consumer keeps up, the prefetch takes cache lines that the consumer is reading. The
//! hardware's own prefetcher achieves most of the gain without that harm.
//!
//! Invariants
//! - I1: no slot is written and read at the same time, by I1 of `ring`.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::ring::Design;

#[repr(C)]
struct Slot<E> {
    /// The run that begins in the slot: its length in the low 16 bits, and its position plus 1
    /// above them.
    stamp: AtomicU64,
    event: UnsafeCell<E>,
}

/// A design with stamps inside the slots and prefetching.
pub struct Prefetch<E> {
    slots: Box<[Slot<E>]>,
    /// Distance from the producer's position to the prefetched slot, in slots: about eight lines.
    ahead: u64,
}

// SAFETY: the two threads do not access a slot at the same time (I1).
unsafe impl<E: Send> Sync for Prefetch<E> {}

impl<E> Prefetch<E> {
    #[inline(always)]
    fn slot(&self, seq: u64) -> &Slot<E> {
        &self.slots[seq as usize & (self.slots.len() - 1)]
    }
}

/// Prefetches a cache line for writing: a hint to the processor that changes no value.
#[inline(always)]
fn fetch_to_write<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint, and the address comes from a reference.
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
        // A cache line has several slots, so one prefetch per line is enough.
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
