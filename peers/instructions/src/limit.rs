//! A hand-made lower bound: a ring of one producer and one consumer whose slots have a flag of the
//! lap beside the event. It waits for nothing, cannot be closed, and counts nothing.
//!
//! Invariants
//! - I1: the producer writes a slot after the consumer has released it and before the store of the
//!   slot's lap; the consumer reads it between that store and the release.
//! - I2: the number of slots is a power of two, and each index is masked by that number minus one.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::operation::{Operation, RING, laps};

/// The operations of the lower bound.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "limit-publish",
        symbol: "count_limit_publish",
        units: RING,
        unit: "event",
        what: "the hand-made limit: publish one event",
        beside: Some("publish"),
        run: || one_by_one(count_limit_poll_1),
    },
    Operation {
        name: "limit-poll-1",
        symbol: "count_limit_poll_1",
        units: RING,
        unit: "event",
        what: "the hand-made limit: read and release one event",
        beside: Some("poll-1"),
        run: || one_by_one(count_limit_poll_1),
    },
    Operation {
        name: "limit-poll-all",
        symbol: "count_limit_poll_all",
        units: RING,
        unit: "event",
        what: "the hand-made limit: read a lap, release at its end",
        beside: Some("poll-all"),
        run: || one_by_one(count_limit_poll_all),
    },
    Operation {
        name: "limit-pair",
        symbol: "count_limit_pair",
        units: RING,
        unit: "event",
        what: "the hand-made limit: publish one event, and read it",
        beside: Some("pair"),
        run: || {
            let (mut tx, mut rx) = ring(RING as u64);
            laps(|| count_limit_pair(black_box(&mut tx), black_box(&mut rx)));
        },
    },
];

/// A word on cache lines of its own.
#[repr(align(128))]
struct CacheLine(AtomicU64);

/// A slot: the flag of its lap, which is its event's position plus one, and its event.
#[repr(C)]
struct Slot(AtomicU64, UnsafeCell<u64>);

struct Ring {
    slots: Box<[Slot]>,
    mask: u64,
    /// Number of events that the consumer has released.
    released: CacheLine,
}

// SAFETY: no slot is written while the other side reads it (I1).
unsafe impl Sync for Ring {}

impl Ring {
    #[inline(always)]
    fn at(&self, seq: u64) -> &Slot {
        // SAFETY: the index is masked (I2).
        unsafe { self.slots.get_unchecked((seq & self.mask) as usize) }
    }
}

/// The producer's side: the next position, and the first position without a free slot.
struct Sender {
    ring: Arc<Ring>,
    next: u64,
    limit: u64,
}

/// The consumer's side.
struct Receiver {
    ring: Arc<Ring>,
    next: u64,
}

/// Makes a ring of `capacity` slots, a power of two.
fn ring(capacity: u64) -> (Sender, Receiver) {
    let slots = (0..capacity).map(|_| Slot(AtomicU64::new(0), UnsafeCell::new(0))).collect();
    let released = CacheLine(AtomicU64::new(0));
    let ring = Arc::new(Ring { slots, mask: capacity - 1, released });
    (Sender { ring: ring.clone(), next: 0, limit: capacity }, Receiver { ring, next: 0 })
}

impl Sender {
    /// Publishes an event, unless the ring is full. Returns whether it has.
    #[inline(always)]
    fn publish(&mut self, fill: impl FnOnce(&mut u64)) -> bool {
        if self.next == self.limit {
            self.limit = self.ring.released.0.load(Acquire) + self.ring.mask + 1;
            if self.next == self.limit {
                return false;
            }
        }
        let slot = self.ring.at(self.next);
        // SAFETY: the producer owns the slot now (I1).
        fill(unsafe { &mut *slot.1.get() });
        self.next += 1;
        slot.0.store(self.next, Release);
        true
    }
}

impl Receiver {
    /// Calls `f` with the published events, `max` at most, and releases them. Returns their number.
    #[inline(always)]
    fn poll(&mut self, max: u64, mut f: impl FnMut(&u64)) -> u64 {
        let start = self.next;
        while self.next - start < max {
            let slot = self.ring.at(self.next);
            if slot.0.load(Acquire) != self.next + 1 {
                break;
            }
            // SAFETY: the consumer owns the slot now (I1).
            f(unsafe { &*slot.1.get() });
            self.next += 1;
        }
        if self.next != start {
            self.ring.released.0.store(self.next, Release);
        }
        self.next - start
    }
}

fn one_by_one(read: fn(&mut Receiver) -> u64) {
    let (mut tx, mut rx) = ring(RING as u64);
    laps(|| {
        count_limit_publish(black_box(&mut tx));
        read(black_box(&mut rx))
    });
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_limit_publish(tx: &mut Sender) {
    for number in 0..RING as u64 {
        assert!(tx.publish(|slot| *slot = number));
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_limit_poll_1(rx: &mut Receiver) -> u64 {
    let mut sum = 0;
    for _ in 0..RING {
        assert_eq!(rx.poll(1, |event| sum += event), 1);
    }
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_limit_poll_all(rx: &mut Receiver) -> u64 {
    let mut sum = 0;
    rx.poll(RING as u64, |event| sum += event);
    sum
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_limit_pair(tx: &mut Sender, rx: &mut Receiver) -> u64 {
    let mut sum = 0;
    for number in 0..RING as u64 {
        assert!(tx.publish(|slot| *slot = number));
        assert_eq!(rx.poll(1, |event| sum += event), 1);
    }
    sum
}
