//! Ways to hand events over that slipring tried and does not use, kept so that anybody can measure
//! them again.
//!
//! One producer, one consumer, plain events; the frame (positions, room, release) is the same for
//! all, a [`Design`] is how publications are told and found. Why each was rejected stands with it;
//! the figures are under `records/`.
//!
//! Invariants
//! - I1: the producer writes only positions below `released + capacity`, and the consumer reads
//!   only positions that its design found published: so no slot is written and read at once. There
//!   is one half of each, and both work through `&mut`.
//! - I2: `released` is stored with release after the last read before it, and loaded with acquire
//!   before the first write behind it; a design publishes with release and finds with acquire.

mod beside;
mod blocks;
mod prefetch;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

pub use beside::Beside;
pub use blocks::Blocks;
pub use prefetch::Prefetch;

/// How publications are told and found.
pub trait Design<E>: Sized + Send + Sync {
    /// The smallest capacity that it works with.
    const LEAST: usize = 1;
    /// For a ring of so many slots.
    fn new(capacity: usize) -> Self;
    /// Where the event of a position lies.
    fn cell(&self, seq: u64) -> &UnsafeCell<E>;
    /// Before `[seq, seq + len)` is filled.
    fn prepare(&self, seq: u64, len: u64) {
        let _ = (seq, len);
    }
    /// Tells that `[seq, seq + len)` is filled, with release.
    fn publish(&self, seq: u64, len: u64);
    /// How many are known to be published from `seq` on, with acquire: 0 if none.
    fn published(&self, seq: u64) -> u64;
    /// Whether the look that found what lies before `seq` told all there was. Then a second one
    /// would only take the line from the producer.
    fn told_all(&self, seq: u64) -> bool {
        let _ = seq;
        false
    }
}

/// A word that shares its lines with nothing.
#[repr(align(128))]
struct Line(AtomicU64);

struct Ring<D> {
    design: D,
    released: Line,
    capacity: u64,
}

/// The sending half.
pub struct Producer<E, D> {
    ring: Arc<Ring<D>>,
    next: u64,
    limit: u64,
    event: std::marker::PhantomData<fn(E)>,
}

/// The receiving half.
pub struct Consumer<E, D> {
    ring: Arc<Ring<D>>,
    next: u64,
    event: std::marker::PhantomData<fn() -> E>,
}

/// A ring and its two halves.
///
/// # Panics
/// If the capacity is no power of two, or too small for the design.
pub fn channel<E: Copy + Default + Send, D: Design<E>>(
    capacity: usize,
) -> (Producer<E, D>, Consumer<E, D>) {
    assert!(
        capacity.is_power_of_two() && capacity >= D::LEAST,
        "a capacity is a power of two, here {} or more; {capacity} is not",
        D::LEAST
    );
    let ring = Arc::new(Ring {
        design: D::new(capacity),
        released: Line(AtomicU64::new(0)),
        capacity: capacity as u64,
    });
    let (event, made) = (std::marker::PhantomData, std::marker::PhantomData);
    (
        Producer { ring: ring.clone(), next: 0, limit: capacity as u64, event },
        Consumer { ring, next: 0, event: made },
    )
}

impl<E: Copy + Default + Send, D: Design<E>> Producer<E, D> {
    /// Publishes `len` events as one, which `make` makes in order, if there is room for all of them
    /// now.
    #[inline(always)]
    pub fn try_send(&mut self, len: u64, mut make: impl FnMut() -> E) -> bool {
        if self.next + len > self.limit {
            self.limit = self.ring.released.0.load(Acquire) + self.ring.capacity;
            if self.next + len > self.limit {
                return false;
            }
        }
        self.ring.design.prepare(self.next, len);
        for seq in self.next..self.next + len {
            // SAFETY: below the limit, and not published (I1).
            unsafe { *self.ring.design.cell(seq).get() = make() }
        }
        self.ring.design.publish(self.next, len);
        self.next += len;
        true
    }
}

impl<E: Copy + Default + Send, D: Design<E>> Consumer<E, D> {
    /// Hands what is there to `f`, and lets go of it at an eighth of the ring and at the end; says
    /// how many there were.
    #[inline(always)]
    pub fn poll(&mut self, mut f: impl FnMut(&E)) -> u64 {
        let start = self.next;
        let mut released = start;
        loop {
            let len = self.ring.design.published(self.next);
            if len == 0 {
                break;
            }
            for seq in self.next..self.next + len {
                // SAFETY: published, and not released (I1).
                f(unsafe { &*self.ring.design.cell(seq).get() });
            }
            self.next += len;
            if self.next - released > self.ring.capacity / 8 {
                released = self.next;
                self.ring.released.0.store(released, Release);
            }
            if self.ring.design.told_all(self.next) {
                break;
            }
        }
        if released != self.next {
            self.ring.released.0.store(self.next, Release);
        }
        self.next - start
    }
}

/// Cells side by side, for designs that keep their marks elsewhere.
struct Cells<E>(Box<[UnsafeCell<E>]>);

// SAFETY: who touches which cell when is decided by I1.
unsafe impl<E: Send> Sync for Cells<E> {}

impl<E: Copy + Default> Cells<E> {
    fn new(capacity: usize) -> Self {
        Cells((0..capacity).map(|_| UnsafeCell::new(E::default())).collect())
    }
    #[inline(always)]
    fn at(&self, seq: u64) -> &UnsafeCell<E> {
        &self.0[seq as usize & (self.0.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams<D: Design<u64> + 'static>(capacity: usize, batch: u64) {
        let (mut tx, mut rx) = channel::<u64, D>(capacity);
        let events = 20 * capacity as u64 / batch * batch + 10 * batch;
        let sending = std::thread::spawn(move || {
            let mut next = 0;
            while next < events {
                let mut number = next;
                let sent = tx.try_send(batch, || {
                    number += 1;
                    number
                });
                if sent {
                    next += batch;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let mut seen = 0;
        while seen < events {
            let had = rx.poll(|event| {
                seen += 1;
                assert_eq!(*event, seen);
            });
            if had == 0 {
                std::thread::yield_now();
            }
        }
        sending.join().expect("all is sent");
        assert_eq!(rx.poll(|_| ()), 0);
    }

    fn all_streams<D: Design<u64> + 'static>() {
        for capacity in [D::LEAST, 2 * D::LEAST, 1024] {
            for batch in [1, 2, 10, 100] {
                if batch <= capacity as u64 {
                    streams::<D>(capacity, batch);
                }
            }
        }
    }

    #[test]
    fn every_event_comes_in_order() {
        all_streams::<Beside<u64>>();
        all_streams::<Blocks<u64>>();
        all_streams::<Prefetch<u64>>();
    }

    #[test]
    #[should_panic(expected = "here 64 or more; 32 is not")]
    fn a_capacity_that_is_too_small_is_refused() {
        let _ = channel::<u64, Blocks<u64>>(32);
    }

    #[test]
    #[should_panic(expected = "a power of two, here 1 or more; 3 is not")]
    fn a_capacity_that_is_no_power_of_two_is_refused() {
        let _ = channel::<u64, Beside<u64>>(3);
    }
}
