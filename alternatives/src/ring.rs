//! The ring that all designs share: positions, free slots, and release.
//!
//! Invariants
//! - I1: the producer writes only positions below `released + capacity`, and the consumer reads
//!   only positions that its design found published. So no slot is written and read at the same
//!   time. There is one handle for each side, which works through `&mut`.
//! - I2: the consumer stores `released` with release after its last read of the released events.
//!   The producer loads it with acquire before it writes to their slots. A design publishes events
//!   by a release store, and finds them by an acquire load.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

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
    /// Publishes the events `[seq, seq + len)` by a release store.
    fn publish(&self, seq: u64, len: u64);
    /// Finds out, by an acquire load, how many events from `seq` on are published.
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
pub(crate) struct CacheLine(pub(crate) AtomicU64);

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
/// Panics if the capacity is not a power of two, or is below [`Design::MIN_CAPACITY`].
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
    /// Calls `f` with each published event, and releases the events after each eighth of the ring
    /// and at the end. Returns the number of events.
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
pub(crate) struct Cells<E>(Box<[UnsafeCell<E>]>);

// SAFETY: I1 keeps the two threads from accessing a cell at the same time.
unsafe impl<E: Send> Sync for Cells<E> {}

impl<E: Copy + Default> Cells<E> {
    pub(crate) fn new(capacity: usize) -> Self {
        Cells((0..capacity).map(|_| UnsafeCell::new(E::default())).collect())
    }
    #[inline(always)]
    pub(crate) fn at(&self, seq: u64) -> &UnsafeCell<E> {
        &self.0[seq as usize & (self.0.len() - 1)]
    }
}
