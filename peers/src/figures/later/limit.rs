//! Hand-made limits for a stage behind a stage: what a hand-over through a frontier can cost at
//! best. They protect nothing, wait for nothing but each other, and cannot be closed.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;

use crate::figures::oversubscribed::line::{Line, Stage};
use crate::machine::{self, pin};

#[repr(align(128))]
struct Word(AtomicU64);

/// A stamp and the event it publishes.
#[repr(C)]
struct Slot(AtomicU64, UnsafeCell<u64>);

struct Ring {
    slots: Box<[Slot]>,
    /// How far the first stage has let go: what the second one looks at.
    frontier: Word,
    /// How far the second stage has let go: what the producer looks at.
    released: Word,
}

// SAFETY: an event is written before the frontier passes it and read after that, and written again
// only when `released` has passed it.
unsafe impl Sync for Ring {}

impl Ring {
    fn new(capacity: usize) -> Ring {
        Ring {
            slots: (0..capacity).map(|_| Slot(AtomicU64::new(0), UnsafeCell::new(0))).collect(),
            frontier: Word(AtomicU64::new(0)),
            released: Word(AtomicU64::new(0)),
        }
    }

    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    #[inline(always)]
    fn at(&self, seq: u64) -> &Slot {
        let index = seq as usize & (self.slots.len() - 1);
        // SAFETY: masked by a power of two minus one.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// The second stage: handles what the frontier has passed, and lets go at an eighth of the ring
    /// and after each look.
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
                    // SAFETY: the frontier has passed it, and `released` has not.
                    stage.see(unsafe { &*self.at(seq).1.get() });
                }
                next = end;
                self.released.0.store(next, Release);
            }
            (0..spacing).for_each(|_| spin_loop());
        }
    }
}

/// One thread produces and is the first stage after every `every` events, another is the second
/// stage, and with `SPACED` it pauses after a look that found something.
pub fn stream<const SPACED: bool>(capacity: usize, events: u64, every: u64, steps: u32) -> f64 {
    let spacing = if SPACED { machine::spacing() } else { 0 };
    let ring = Ring::new(capacity);
    let line = Line::new(2, events);
    let (mut first, mut second) = (line.stage::<1>(), line.stage::<1>());
    thread::scope(|scope| {
        let ring = &ring;
        scope.spawn(move || {
            pin(1);
            ring.follow(events, spacing, &mut second);
        });
        pin(0);
        let (mut limit, mut next, mut handled) = (capacity as u64, 0, 0);
        line.produce(steps, |event| {
            while next == limit {
                limit = ring.released.0.load(Acquire) + capacity as u64;
            }
            let slot = ring.at(next);
            // SAFETY: `released` has passed what was there, and the frontier has not passed this.
            unsafe { *slot.1.get() = event };
            slot.0.store(next + 1, Release);
            next += 1;
            if next - handled >= every || next == events || next == 1 {
                while handled < next && ring.at(handled).0.load(Acquire) == handled + 1 {
                    // SAFETY: this thread alone writes.
                    first.see(unsafe { &*ring.at(handled).1.get() });
                    handled += 1;
                }
                ring.frontier.0.store(handled, Release);
            }
        });
        drop(first);
    });
    machine::unpin();
    line.result()
}
