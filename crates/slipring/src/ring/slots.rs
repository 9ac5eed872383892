//! Where events and stamps lie: the storage that the ring's algorithms run over.
//!
//! [`Storage`] is what an algorithm may ask of storage: the stamp and the event of a position. Two
//! heap layouts implement it; shared memory is to be a third, with the same algorithms on top.
//!
//! Invariants
//! - I1: `stamp(seq)` and `event(seq)` stay valid, and at the same place, from `allocate` until
//!   `free`.
//! - I2: from [`Storage::fill`] until [`Storage::free`] every event is an initialised `E`. A slot is
//!   never left empty: events are made once, overwritten in place, and dropped when the ring is.
//! - I3: who may touch an event is decided by the protocol above (PROTOCOL.md), never here.

use std::alloc::{Layout as Bytes, alloc, dealloc};
use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::base::edge;
use crate::base::sync::AtomicU64;
use crate::ring::stamp::{self, Run};

/// How the slots of a ring lie in memory: [`Interleaved`] or [`Contiguous`].
///
/// Sealed: the library knows all of them.
pub trait Layout: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The storage itself. Not for use outside the library.
    #[doc(hidden)]
    type Storage<E>: Storage<E>;
    /// How the graph's print names this layout.
    #[doc(hidden)]
    const ALIAS: &'static str;
    /// Whether a single producer tells by a cursor, not by stamps, how far it has published. See
    /// ARCHITECTURE.md ("Layouts").
    #[doc(hidden)]
    const CURSOR: bool;
}

/// Each event beside its own stamp, in one slot: the default. A consumer that keeps up fetches one
/// line per event, not two.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved;

/// Events side by side without gaps: batches are lent as slices
/// ([`Events::as_slices`](crate::Events::as_slices)).
///
/// A single producer tells by one position how far it has published; many stamp their runs, in an
/// array beside the events. A loop of your own over leases should pause for some 200 ns after a
/// look that found something, as `for_each` does: looking on at once takes the line of that
/// position away from the producer, for every publication (5 ns an event instead of 1.5 in batches
/// of ten; `records/`).
#[derive(Clone, Copy, Debug)]
pub struct Contiguous;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Interleaved {}
    impl Sealed for super::Contiguous {}
}

impl Layout for Interleaved {
    type Storage<E> = InterleavedStorage<E>;
    const ALIAS: &'static str = "stamps inside the slots";
    const CURSOR: bool = false;
}

impl Layout for Contiguous {
    type Storage<E> = ContiguousStorage<E>;
    const ALIAS: &'static str = "contiguous events";
    const CURSOR: bool = true;
}

/// Storage as the algorithms see it: a copyable view; its owner frees it.
///
/// # Safety
/// An implementation keeps I1 and I2 of this module, and `seq` and `seq + capacity` name the same
/// slot.
#[doc(hidden)]
pub unsafe trait Storage<E>: Copy {
    /// Memory for a power of two of slots, with stamps or without; the events are not made yet.
    /// `None`: that much memory cannot be had.
    fn allocate(capacity: usize, stamped: bool) -> Option<Self>;
    /// Whether there are stamps.
    fn stamped(&self) -> bool;
    /// Storage minus one.
    fn mask(&self) -> u64;
    /// log2 of the number of slots.
    fn shift(&self) -> u32;
    /// The stamp word of a position. Only where there are stamps.
    fn stamp(&self, seq: u64) -> *const AtomicU64;
    /// The event cell of a position.
    fn event(&self, seq: u64) -> *mut E;
    /// Bytes from one event to the next, the ring's end apart.
    const STRIDE: usize;
    /// Bytes a slot takes, its stamp included if it has one.
    fn bytes_per_slot(stamped: bool) -> usize;
    /// Gives the memory back, without dropping events.
    ///
    /// # Safety
    /// Once, and nobody holds a view any more.
    unsafe fn free(self);

    /// Stamps every slot blank for positions from `start` on, then makes the events. An `Err`
    /// carries the index of the event whose factory panicked and the panic; all events made before
    /// are dropped then.
    ///
    /// # Safety
    /// Freshly allocated, not filled before.
    unsafe fn fill(
        &self,
        start: u64,
        factory: &mut dyn FnMut() -> E,
    ) -> Result<(), (usize, Box<dyn Any + Send>)> {
        for offset in 0..if self.stamped() { self.mask() + 1 } else { 0 } {
            let seq = start.wrapping_add(offset);
            // SAFETY: I1; nobody else sees the slots yet.
            unsafe {
                self.stamp(seq).cast_mut().write(AtomicU64::new(stamp::blank(seq, self.shift())))
            }
        }
        for index in 0..=self.mask() {
            match catch_unwind(AssertUnwindSafe(&mut *factory)) {
                // SAFETY: I1; the cell is vacant, so nothing is overwritten.
                Ok(event) => unsafe { self.event(index).write(event) },
                Err(panic) => {
                    // SAFETY: exactly the events below `index` were made.
                    if let Some(another) = unsafe { self.drop_events(index) } {
                        crate::base::panics::discard(another);
                    }
                    return Err((index as usize, panic));
                }
            }
        }
        Ok(())
    }

    /// Drops the first `count` events, each on its own, so that one that panics does not keep the
    /// others; returns the first panic.
    ///
    /// # Safety
    /// Those events are made, nobody refers to them, and this is called once.
    unsafe fn drop_events(&self, count: u64) -> Option<Box<dyn Any + Send>> {
        let mut first = None;
        if std::mem::needs_drop::<E>() {
            for index in 0..count {
                // SAFETY: the caller's promise, event by event.
                let drop_one = || unsafe { self.event(index).drop_in_place() };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(drop_one)) {
                    match first {
                        None => first = Some(panic),
                        Some(_) => crate::base::panics::discard(panic),
                    }
                }
            }
        }
        first
    }
}

#[repr(C)]
struct Slot<E> {
    stamp: AtomicU64,
    event: UnsafeCell<E>,
}

/// See [`Interleaved`].
#[doc(hidden)]
pub struct InterleavedStorage<E> {
    slots: NonNull<Slot<E>>,
    mask: u64,
    shift: u32,
}

/// See [`Contiguous`].
#[doc(hidden)]
pub struct ContiguousStorage<E> {
    /// As many as there are events, or none.
    stamps: NonNull<AtomicU64>,
    events: NonNull<UnsafeCell<E>>,
    mask: u64,
    shift: u32,
    stamped: bool,
}

impl<E> Clone for InterleavedStorage<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for InterleavedStorage<E> {}
impl<E> Clone for ContiguousStorage<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for ContiguousStorage<E> {}

/// The slots of one ring, as handles carry them: a copy of the address.
pub(crate) struct View<E, L: Layout>(pub(crate) L::Storage<E>);

impl<E, L: Layout> Clone for View<E, L> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, L: Layout> Copy for View<E, L> {}

impl<E, L: Layout> std::ops::Deref for View<E, L> {
    type Target = L::Storage<E>;
    #[inline(always)]
    fn deref(&self) -> &L::Storage<E> {
        &self.0
    }
}

impl<E, L: Layout> View<E, L> {
    /// Whether a single producer does without stamps. Events without a size keep them: a word has to
    /// bound a ring of nothing.
    pub(crate) const CURSOR: bool = L::CURSOR && size_of::<E>() != 0;

    #[inline(always)]
    fn word_at(&self, seq: u64) -> u64 {
        // SAFETY: slots::I1; handles carry a view beside the core that keeps the slots.
        edge::slot_published::see(unsafe { &*self.stamp(seq) })
    }

    /// Returns whether a run of exactly `len` events is published at a position.
    #[inline(always)]
    pub(crate) fn is_run_of(&self, seq: u64, len: u64) -> bool {
        self.word_at(seq) == stamp::live(seq, self.shift(), len)
    }

    /// Returns what the stamp at a position says.
    #[inline(always)]
    pub(crate) fn run_at(&self, seq: u64) -> Run {
        stamp::read(self.word_at(seq), seq, self.shift())
    }
}

// SAFETY: a view is an address; every use of what it points to is decided by the protocol, which
// moves an event between threads (`E: Send`) and lets several threads read it at once only where
// the stages that do so asked for `E: Sync`.
unsafe impl<E: Send, L: Layout> Send for View<E, L> {}
// SAFETY: as above.
unsafe impl<E: Send, L: Layout> Sync for View<E, L> {}

fn allocate_array<T>(len: usize) -> Option<NonNull<T>> {
    let bytes = Bytes::array::<T>(len).ok()?;
    if bytes.size() == 0 {
        return Some(NonNull::dangling());
    }
    // SAFETY: the size is not zero.
    NonNull::new(unsafe { alloc(bytes) }.cast())
}

/// # Safety
/// `array` came from [`allocate_array`] with the same length, and is not used afterwards.
unsafe fn free_array<T>(array: NonNull<T>, len: usize) {
    if let Ok(bytes) = Bytes::array::<T>(len)
        && bytes.size() != 0
    {
        // SAFETY: allocated with this layout, by the caller's promise.
        unsafe { dealloc(array.as_ptr().cast(), bytes) }
    }
}

// SAFETY: the arrays live from `allocate` to `free` and do not move; masked indices stay below
// their length.
unsafe impl<E> Storage<E> for InterleavedStorage<E> {
    fn allocate(capacity: usize, _stamped: bool) -> Option<Self> {
        let slots = allocate_array(capacity)?;
        Some(InterleavedStorage {
            slots,
            mask: capacity as u64 - 1,
            shift: capacity.trailing_zeros(),
        })
    }
    #[inline(always)]
    fn stamped(&self) -> bool {
        true
    }
    #[inline(always)]
    fn mask(&self) -> u64 {
        self.mask
    }
    #[inline(always)]
    fn shift(&self) -> u32 {
        self.shift
    }
    #[inline(always)]
    fn stamp(&self, seq: u64) -> *const AtomicU64 {
        // SAFETY: the masked index is inside the array.
        unsafe { &raw const (*self.slots.as_ptr().add((seq & self.mask) as usize)).stamp }
    }
    #[inline(always)]
    fn event(&self, seq: u64) -> *mut E {
        // SAFETY: the masked index is inside the array; `raw_get` makes no reference.
        unsafe {
            UnsafeCell::raw_get(
                &raw const (*self.slots.as_ptr().add((seq & self.mask) as usize)).event,
            )
        }
    }
    const STRIDE: usize = size_of::<Slot<E>>();
    fn bytes_per_slot(_stamped: bool) -> usize {
        size_of::<Slot<E>>()
    }
    unsafe fn free(self) {
        // SAFETY: the caller's promise.
        unsafe { free_array(self.slots, self.mask as usize + 1) }
    }
}

// SAFETY: as for `InterleavedStorage`.
unsafe impl<E> Storage<E> for ContiguousStorage<E> {
    fn allocate(capacity: usize, stamped: bool) -> Option<Self> {
        let count = if stamped { capacity } else { 0 };
        let stamps = allocate_array(count)?;
        let Some(events) = allocate_array(capacity) else {
            // SAFETY: just allocated with this length.
            unsafe { free_array(stamps, count) };
            return None;
        };
        Some(ContiguousStorage {
            stamps,
            events,
            mask: capacity as u64 - 1,
            shift: capacity.trailing_zeros(),
            stamped,
        })
    }
    #[inline(always)]
    fn stamped(&self) -> bool {
        self.stamped
    }
    #[inline(always)]
    fn mask(&self) -> u64 {
        self.mask
    }
    #[inline(always)]
    fn shift(&self) -> u32 {
        self.shift
    }
    #[inline(always)]
    fn stamp(&self, seq: u64) -> *const AtomicU64 {
        debug_assert!(self.stamped);
        // SAFETY: there are stamps, says the caller, and the masked index is inside their array.
        unsafe { self.stamps.as_ptr().add((seq & self.mask) as usize) }
    }
    #[inline(always)]
    fn event(&self, seq: u64) -> *mut E {
        // SAFETY: the masked index is inside the array; `raw_get` makes no reference.
        unsafe { UnsafeCell::raw_get(self.events.as_ptr().add((seq & self.mask) as usize)) }
    }
    const STRIDE: usize = size_of::<E>();
    fn bytes_per_slot(stamped: bool) -> usize {
        size_of::<E>() + if stamped { size_of::<AtomicU64>() } else { 0 }
    }
    unsafe fn free(self) {
        // SAFETY: the caller's promise.
        unsafe {
            free_array(self.stamps, if self.stamped { self.mask as usize + 1 } else { 0 });
            free_array(self.events, self.mask as usize + 1);
        }
    }
}
