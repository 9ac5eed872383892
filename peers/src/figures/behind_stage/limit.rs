//! Hand-made lower bounds for a stage that follows another stage and learns of events from its
//! frontier. They protect nothing, have no wait strategy, and cannot be closed.
//!
//! Invariants
//! - I1: an event is written before the frontier passes it, and the second stage reads it after
//!   that and before it stores `released`. The slot is written again only after `released` has
//!   passed it.
//! - I2: the number of slots is a power of two, and each index is masked by that number minus one.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;

use slipring_machine::{pin, unpin};

use crate::figures::oversubscribed::timing::{Stage, Timing};
use crate::work;

/// A word on cache lines of its own.
#[repr(align(128))]
struct CacheLine(AtomicU64);

/// A stamp and the event that it publishes.
#[repr(C)]
struct Slot(AtomicU64, UnsafeCell<u64>);

struct Ring {
    slots: Box<[Slot]>,
    /// Number of events that the first stage has released; the second stage reads it.
    frontier: CacheLine,
    /// Number of events that the second stage has released; the producer reads it.
    released: CacheLine,
}

// SAFETY: no slot is written while another thread reads it (I1).
unsafe impl Sync for Ring {}

impl Ring {
    fn new(capacity: usize) -> Ring {
        Ring {
            slots: (0..capacity).map(|_| Slot(AtomicU64::new(0), UnsafeCell::new(0))).collect(),
            frontier: CacheLine(AtomicU64::new(0)),
            released: CacheLine(AtomicU64::new(0)),
        }
    }

    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline(always)]
    fn at(&self, seq: u64) -> &Slot {
        let index = seq as usize & (self.slots.len() - 1);
        // SAFETY: the index is masked (I2).
        unsafe { self.slots.get_unchecked(index) }
    }

    /// Runs the second stage, which handles all events that the frontier has passed. It releases
    /// them after each eighth of the ring and after each poll.
    fn follow(&self, events: u64, spacing: u32, stage: &mut Stage) {
        let mut next = 0;
        while next < events {
            let frontier = self.frontier.0.load(Acquire);
            if frontier == next {
                spin_loop();
                continue;
            }
            while next < frontier {
                let end = frontier.min(next + self.capacity() / 8);
                for seq in next..end {
                    // SAFETY: the frontier has passed the event, and `released` has not (I1).
                    stage.see(unsafe { &*self.at(seq).1.get() });
                }
                next = end;
                self.released.0.store(next, Release);
            }
            (0..spacing).for_each(|_| spin_loop());
        }
    }
}

/// Measures the hand-over to the second stage. One thread produces and runs the first stage after
/// every `every` events; another runs the second stage. If `SPACED` is set, the second stage pauses
/// after each poll that found events.
pub fn stream<const SPACED: bool>(capacity: usize, events: u64, every: u64, steps: u32) -> f64 {
    let spacing = if SPACED { work::spacing() } else { 0 };
    let ring = Ring::new(capacity);
    let timing = Timing::new(2, events);
    let (mut first, mut second) = (timing.stage::<1>(), timing.stage::<1>());
    thread::scope(|scope| {
        let ring = &ring;
        scope.spawn(move || {
            pin(1);
            ring.follow(events, spacing, &mut second);
        });
        pin(0);
        let (mut limit, mut next, mut handled) = (capacity as u64, 0, 0);
        timing.produce(steps, |event| {
            while next == limit {
                limit = ring.released.0.load(Acquire) + capacity as u64;
            }
            let slot = ring.at(next);
            // SAFETY: `released` has passed the slot's old event, and the frontier has not passed
            // the new one (I1).
            unsafe { *slot.1.get() = event };
            slot.0.store(next + 1, Release);
            next += 1;
            if next - handled >= every || next == events || next == 1 {
                while handled < next && ring.at(handled).0.load(Acquire) == handled + 1 {
                    // SAFETY: only this thread writes events (I1).
                    first.see(unsafe { &*ring.at(handled).1.get() });
                    handled += 1;
                }
                ring.frontier.0.store(handled, Release);
            }
        });
        drop(first);
    });
    unpin();
    timing.result()
}
