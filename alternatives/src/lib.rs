//! Designs for handing over events that slipring tried and rejected, kept so that they can be
//! measured again.
//!
//! Each [`Design`] is a ring of one producer, one consumer and plain events. Positions, free slots
//! and release are common code; a design publishes events and finds published ones. [`Lanes`] are
//! rings of the library, one for each of many producers. Each module gives the reason for the
//! rejection, and `records/` has the figures.
//!
//! Invariants
//! - I1: the producer writes only positions below `released + capacity`, and the consumer reads
//!   only positions that its design found published. So no slot is written and read at the same
//!   time. There is one handle for each side, which works through `&mut`.
//! - I2: the consumer stores `released` with release after its last read of the released events.
//!   The producer loads it with acquire before it writes to their slots. A design publishes with
//!   release and finds with acquire.

mod beside;
mod blocks;
mod lanes;
mod prefetch;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

pub use beside::Beside;
pub use blocks::Blocks;
pub use lanes::{Lanes, lanes};
pub use prefetch::Prefetch;

/// A way to publish events and to find published ones.
pub trait Design<E>: Sized + Send + Sync {
    /// Smallest capacity, in slots.
    const MIN_CAPACITY: usize = 1;
    /// Makes the slots of a ring.
    fn new(capacity: usize) -> Self;
    /// Returns the cell of the event at a position.
    fn cell(&self, seq: u64) -> &UnsafeCell<E>;
    /// Prepares the slots of the events `[seq, seq + len)`, which are written next.
    fn prepare(&self, seq: u64, len: u64) {
        let _ = (seq, len);
    }
    /// Publishes the events `[seq, seq + len)`, with release.
    fn publish(&self, seq: u64, len: u64);
    /// Returns how many events from `seq` on are known to be published, with acquire.
    fn published(&self, seq: u64) -> u64;
    /// Returns whether the load that found the events before `seq` found all published events. A
    /// second load in the same poll would then only take the cache line from the producer.
    fn found_all(&self, seq: u64) -> bool {
        let _ = seq;
        false
    }
}

/// A word on cache lines of its own.
#[repr(align(128))]
struct CacheLine(AtomicU64);

struct Ring<D> {
    design: D,
    /// Number of events that the consumer has released.
    released: CacheLine,
    capacity: u64,
}

/// The sending half of a ring.
pub struct Producer<E, D> {
    ring: Arc<Ring<D>>,
    next: u64,
    /// First position that is not known to be free.
    limit: u64,
    event: std::marker::PhantomData<fn(E)>,
}

/// The receiving half of a ring.
pub struct Consumer<E, D> {
    ring: Arc<Ring<D>>,
    next: u64,
    event: std::marker::PhantomData<fn() -> E>,
}

/// Makes a ring and returns its two halves.
///
/// # Panics
/// If the capacity is not a power of two, or below [`Design::MIN_CAPACITY`].
pub fn channel<E: Copy + Default + Send, D: Design<E>>(
    capacity: usize,
) -> (Producer<E, D>, Consumer<E, D>) {
    assert!(
        capacity.is_power_of_two() && capacity >= D::MIN_CAPACITY,
        "the capacity must be a power of two of at least {}, not {capacity}",
        D::MIN_CAPACITY
    );
    let ring = Arc::new(Ring {
        design: D::new(capacity),
        released: CacheLine(AtomicU64::new(0)),
        capacity: capacity as u64,
    });
    let (event, made) = (std::marker::PhantomData, std::marker::PhantomData);
    (
        Producer { ring: ring.clone(), next: 0, limit: capacity as u64, event },
        Consumer { ring, next: 0, event: made },
    )
}

impl<E: Copy + Default + Send, D: Design<E>> Producer<E, D> {
    /// Publishes `len` events, which `make` makes in order, with one publication. Returns false if
    /// the ring has no room for all of them now.
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
            // SAFETY: `seq` is below the limit and not published (I1).
            unsafe { *self.ring.design.cell(seq).get() = make() }
        }
        self.ring.design.publish(self.next, len);
        self.next += len;
        true
    }
}

impl<E: Copy + Default + Send, D: Design<E>> Consumer<E, D> {
    /// Calls `f` with all published events; releases them after each eighth of the ring and at the
    /// end. Returns their number.
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
                // SAFETY: `seq` is published and not released (I1).
                f(unsafe { &*self.ring.design.cell(seq).get() });
            }
            self.next += len;
            if self.next - released > self.ring.capacity / 8 {
                released = self.next;
                self.ring.released.0.store(released, Release);
            }
            if self.ring.design.found_all(self.next) {
                break;
            }
        }
        if released != self.next {
            self.ring.released.0.store(self.next, Release);
        }
        self.next - start
    }
}

/// An array of events, for designs whose stamps or cursors lie elsewhere.
struct Cells<E>(Box<[UnsafeCell<E>]>);

// SAFETY: I1 keeps the two threads from accessing a cell at the same time.
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
        sending.join().expect("the sending thread panicked");
        assert_eq!(rx.poll(|_| ()), 0);
    }

    fn all_streams<D: Design<u64> + 'static>() {
        for capacity in [D::MIN_CAPACITY, 2 * D::MIN_CAPACITY, 1024] {
            for batch in [1, 2, 10, 100] {
                if batch <= capacity as u64 {
                    streams::<D>(capacity, batch);
                }
            }
        }
    }

    #[test]
    fn every_event_arrives_in_order() {
        all_streams::<Beside<u64>>();
        all_streams::<Blocks<u64>>();
        all_streams::<Prefetch<u64>>();
    }

    #[test]
    #[should_panic(expected = "a power of two of at least 64, not 32")]
    fn a_capacity_that_is_too_small_is_refused() {
        let _ = channel::<u64, Blocks<u64>>(32);
    }

    #[test]
    #[should_panic(expected = "a power of two of at least 1, not 3")]
    fn a_capacity_that_is_not_a_power_of_two_is_refused() {
        let _ = channel::<u64, Beside<u64>>(3);
    }
}
