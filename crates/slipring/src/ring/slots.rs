//! Storage of events and stamps.
//!
//! The trait [`Storage`] gives access to the stamp and the event of a position. The layouts
//! [`Interleaved`] and [`Contiguous`] are for events of a known type, on the heap or in a segment.
//! The layout [`Strided`] is for blocks of a segment, whose size is known at run time only.
//!
//! Invariants
//! - I1: the addresses `stamp(seq)` and `event(seq)` stay valid and unchanged from `allocate` until
//!   `free`, and in a segment as long as the core keeps it mapped.
//! - I2: from [`Storage::fill`] until [`Storage::free`] every event is an initialised `E`. No slot
//!   is empty in between: the slot's event is made once, overwritten in place, and dropped with the
//!   ring. In a segment, every bit pattern is a valid event.
//! - I3: the protocol (PROTOCOL.md) alone decides which thread may access an event, never this
//!   module.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::base::edge;
use crate::base::sync::{AtomicU64, planted};
use crate::ring::memory::{Pages, allocate_array, free_array};
use crate::ring::stamp::{self, Lap, Stamp};
use crate::ring::words::ahead;
use crate::ring::world::{OneProcess, World};

/// A layout of slots in memory: [`Interleaved`] or [`Contiguous`].
///
/// The trait is sealed, so no other layouts exist.
pub trait Layout: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The storage of slots. The trait is not for use outside the library.
    #[doc(hidden)]
    type Storage<E>: Storage<E>;
    /// The threads or the processes that share slots of this layout.
    #[doc(hidden)]
    type World: World;
    /// Name of this layout in the text of a printed graph.
    #[doc(hidden)]
    const ALIAS: &'static str;
    /// Whether a single producer publishes by a cursor instead of stamps. For the costs of cursors
    /// and of stamps, see `records/2026-11-28-choices` ("Storage").
    #[doc(hidden)]
    const CURSOR: bool;
}

/// The default layout: each slot holds an event and its stamp. With small events, a consumer that
/// keeps up fetches one cache line per event, not two.
///
/// A slot has the size of an event plus 8 bytes, rounded up to the slot's alignment.
#[derive(Clone, Copy, Debug)]
pub struct Interleaved;

/// A layout without gaps between events, so that batches are lent as slices
/// ([`Events::as_slices`](crate::handles::Events::as_slices)). A single producer publishes by
/// storing one position, the cursor. Many producers stamp their runs in an array beside the events,
/// which takes 8 bytes per slot.
///
/// Where events come densely, calls such as [`poll`](crate::Consumer::poll) and
/// [`try_batch`](crate::Consumer::try_batch) pause for 250 ns to a microsecond before they look for
/// events, as [`for_each`](crate::Consumer::for_each) does. A loop without pauses would take the
/// cursor's cache line away from the producer at every publication, which costs ten times as much
/// as an event. After a call that got as many events as it asked for, the next call looks at once,
/// so a loop of `poll(1, ..)` never pauses.
///
/// ```
/// let mut sum = 0;
/// slipring::ring(8, || 0u64)
///     .contiguous()
///     .read_batch("sum", |events, _| {
///         let (head, tail) = events.as_slices();
///         sum += head.iter().chain(tail).sum::<u64>();
///     })
///     .feed(0..100, |slot, i| *slot = i)?;
/// assert_eq!(sum, 4950);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Contiguous;

/// The layout of a segment's blocks, whose size is known at run time only. The distance from one
/// block to the next is constant, and so is the distance from one stamp to the next. Each stamp
/// lies in front of its block, or all stamps lie in an array of their own.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Strided;

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Interleaved {}
    impl Sealed for super::Contiguous {}
    impl Sealed for super::Strided {}
}

impl Layout for Interleaved {
    type Storage<E> = InterleavedStorage<E>;
    type World = OneProcess;
    const ALIAS: &'static str = "stamps inside the slots";
    const CURSOR: bool = false;
}

impl Layout for Contiguous {
    type Storage<E> = ContiguousStorage<E>;
    type World = OneProcess;
    const ALIAS: &'static str = "contiguous events";
    const CURSOR: bool = true;
}

impl Layout for Strided {
    type Storage<E> = StridedStorage<E>;
    type World = OneProcess;
    const ALIAS: &'static str = "blocks of one size";
    const CURSOR: bool = false;
}

/// A copyable view of storage. It frees nothing: the storage's owner does that.
///
/// # Safety
/// An implementation keeps I1 and I2 of this module. The positions `seq` and `seq + capacity` share
/// one slot.
#[doc(hidden)]
pub unsafe trait Storage<E>: Copy {
    /// Allocates `capacity` slots, a power of two, with or without stamps. Makes no event, and
    /// touches no page. Returns `None` if there is not enough memory.
    fn allocate(capacity: usize, stamped: bool, pages: Pages) -> Option<Self>;
    /// Returns whether the storage has stamps.
    fn stamped(&self) -> bool;
    /// Returns the number of slots minus one.
    fn mask(&self) -> u64;
    /// Returns log2 of the number of slots.
    fn shift(&self) -> u32;
    /// Returns the address of the stamp of a position. Called only if the storage has stamps.
    fn stamp(&self, seq: u64) -> *const AtomicU64;
    /// Returns the address of the event of a position.
    fn event(&self, seq: u64) -> *mut E;
    /// Returns the distance from one event to the next, in bytes; the step from the last slot to
    /// the first one differs. The result is a compile-time constant if the size of events is known
    /// at compile time.
    fn stride(&self) -> usize;
    /// Returns the size of a slot in bytes, with its stamp if `stamped`.
    fn bytes_per_slot(stamped: bool) -> usize;
    /// Frees the memory, without dropping events.
    ///
    /// # Safety
    /// The owner calls `free` once, and uses no view of the storage afterwards. `pages` is the
    /// argument of the storage's allocation.
    unsafe fn free(self, pages: Pages);

    /// Stores the blank stamps of a ring that begins at `start`, and then makes the events. If the
    /// factory panics, the call drops the events that it has made, and the error has the index of
    /// the event that the factory did not make.
    ///
    /// # Safety
    /// Called once, before any other use of the storage.
    unsafe fn fill(
        &self,
        start: u64,
        factory: &mut dyn FnMut() -> E,
    ) -> Result<(), (usize, Box<dyn Any + Send>)> {
        for offset in 0..if self.stamped() { self.mask() + 1 } else { 0 } {
            let seq = start.wrapping_add(offset);
            // SAFETY: I1; no other view exists yet.
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
                        crate::base::panics::drop_payload(another);
                    }
                    return Err((index as usize, panic));
                }
            }
        }
        Ok(())
    }

    /// Drops the first `count` events one by one, so that a panic of one drop does not prevent the
    /// others. Returns the first panic of an event's drop.
    ///
    /// # Safety
    /// The first `count` events exist, no reference to these events is left, and the method is
    /// called once.
    unsafe fn drop_events(&self, count: u64) -> Option<Box<dyn Any + Send>> {
        let mut first = None;
        if std::mem::needs_drop::<E>() {
            for index in 0..count {
                // SAFETY: the caller promises that this event exists and is dropped once, and that
                // no reference to it is left.
                let drop_one = || unsafe { self.event(index).drop_in_place() };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(drop_one)) {
                    match first {
                        None => first = Some(panic),
                        Some(_) => crate::base::panics::drop_payload(panic),
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

impl<E> Slot<E> {
    /// Returns the distance from one slot to the next, in slots.
    #[inline(always)]
    fn step() -> usize {
        planted!("slot-per-line": 1 => 64usize.div_ceil(size_of::<Slot<E>>()))
    }
}

/// See [`Interleaved`].
#[doc(hidden)]
pub struct InterleavedStorage<E> {
    /// Address of the first slot. It is no `NonNull`, here and in the other layout: a batch holds a
    /// copy, and each caller of a blocking call would check the copy to tell a batch from an error.
    slots: *mut Slot<E>,
    mask: u64,
    shift: u32,
}

/// See [`Contiguous`].
#[doc(hidden)]
pub struct ContiguousStorage<E> {
    /// Array of one stamp per event; `None` if the storage has no stamps.
    stamps: Option<NonNull<AtomicU64>>,
    events: *mut UnsafeCell<E>,
    mask: u64,
    shift: u32,
}

/// The slots of the layout [`Strided`]. `E` stands for the beginning of a block, and is zero-sized.
#[doc(hidden)]
pub struct StridedStorage<E> {
    stamps: NonNull<u8>,
    events: NonNull<u8>,
    /// Distance from one stamp to the next, in bytes; the next field is the distance from one block
    /// to the next.
    stamp_stride: usize,
    stride: usize,
    mask: u64,
    shift: u32,
    event: PhantomData<*mut E>,
}

impl<E> Clone for StridedStorage<E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for StridedStorage<E> {}
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

/// A handle's view of the ring's slots: a copy of the slots' address.
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
    /// Whether a single producer publishes by the cursor, without stamps. Rings of zero-sized
    /// events always have stamps: without them, their slots would take no memory, and the capacity
    /// would have no limit.
    pub(crate) const CURSOR: bool = L::CURSOR && size_of::<E>() != 0;

    /// Returns the stamp in the slot of position `seq`. The stamp may be of any lap.
    #[inline(always)]
    pub(crate) fn word_at(&self, seq: u64) -> u64 {
        // SAFETY: slots::I1; handles carry a view beside the core that keeps the slots.
        edge::slot_published::see(unsafe { &*self.stamp(seq) })
    }

    /// Returns the lap of position `seq`, by which its stamp is written and read.
    #[inline(always)]
    pub(crate) fn lap(&self, seq: u64) -> Lap {
        Lap::of(seq, self.shift())
    }

    /// Returns whether a run of exactly `len` events is published at position `seq`.
    #[inline(always)]
    pub(crate) fn is_run_of(&self, seq: u64, len: u64) -> bool {
        self.word_at(seq) == self.lap(seq).live(len)
    }

    /// Returns the end of the consecutive runs from `seq` on that have exactly `len` events each.
    /// Looks at no run that begins at `until` or behind it. The distance to `until` is at most a
    /// lap.
    #[inline]
    pub(crate) fn end_of_runs(&self, mut seq: u64, until: u64, len: u64) -> u64 {
        while ahead(until, seq) > 0 {
            // Up to the ring's end, all runs of this length have the same stamp.
            let straight = self.mask() + 1 - (seq & self.mask());
            let bend = seq.wrapping_add(straight.min(until.wrapping_sub(seq)));
            let stamp = self.lap(seq).live(len);
            while ahead(bend, seq) > 0 {
                if self.word_at(seq) != stamp {
                    return seq;
                }
                seq = seq.wrapping_add(len);
            }
        }
        seq
    }

    /// Returns the run or the tombstone that the stamp of position `seq` describes.
    #[inline(always)]
    pub(crate) fn run_at(&self, seq: u64) -> Stamp {
        self.lap(seq).read(self.word_at(seq))
    }
}

// SAFETY: a view is an address. The protocol decides which thread accesses the slots, and moves
// events between threads (`E: Send`). Several threads read an event at once only if their stages
// required `E: Sync`.
unsafe impl<E: Send, L: Layout> Send for View<E, L> {}
// SAFETY: as above.
unsafe impl<E: Send, L: Layout> Sync for View<E, L> {}

// SAFETY: the arrays live from `allocate` to `free` and do not move; masked indices stay below
// their length.
unsafe impl<E> Storage<E> for InterleavedStorage<E> {
    fn allocate(capacity: usize, _stamped: bool, pages: Pages) -> Option<Self> {
        let slots = allocate_array(capacity * Slot::<E>::step(), pages)?;
        Some(InterleavedStorage {
            slots: slots.as_ptr(),
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
        // SAFETY: `slot` is inside the array.
        unsafe { &raw const (*self.slot(seq)).stamp }
    }
    #[inline(always)]
    fn event(&self, seq: u64) -> *mut E {
        // SAFETY: `slot` is inside the array; `raw_get` makes no reference.
        unsafe { UnsafeCell::raw_get(&raw const (*self.slot(seq)).event) }
    }
    #[inline(always)]
    fn stride(&self) -> usize {
        size_of::<Slot<E>>() * Slot::<E>::step()
    }
    fn bytes_per_slot(_stamped: bool) -> usize {
        size_of::<Slot<E>>()
    }
    unsafe fn free(self, pages: Pages) {
        // SAFETY: the caller's promise.
        unsafe {
            let slots = NonNull::new_unchecked(self.slots);
            free_array(slots, (self.mask as usize + 1) * Slot::<E>::step(), pages);
        }
    }
}

impl<E> InterleavedStorage<E> {
    /// Returns the address of the slot of a position.
    #[inline(always)]
    fn slot(&self, seq: u64) -> *mut Slot<E> {
        // SAFETY: the array has a step for each masked index.
        unsafe { self.slots.add((seq & self.mask) as usize * Slot::<E>::step()) }
    }

    /// Returns the view of slots that lie in a mapping. `capacity` is a power of two.
    ///
    /// # Safety
    /// `first` points to `capacity` slots, each with a stamp and an event, which stay where they
    /// are. No caller frees the slots by [`Storage::free`].
    pub(crate) unsafe fn at(first: NonNull<u8>, capacity: usize) -> Self {
        InterleavedStorage {
            slots: first.cast().as_ptr(),
            mask: capacity as u64 - 1,
            shift: capacity.trailing_zeros(),
        }
    }
}

// SAFETY: as for `InterleavedStorage`.
unsafe impl<E> Storage<E> for ContiguousStorage<E> {
    fn allocate(capacity: usize, stamped: bool, pages: Pages) -> Option<Self> {
        let stamps = if stamped { Some(allocate_array(capacity, pages)?) } else { None };
        let Some(events) = allocate_array(capacity, pages) else {
            if let Some(stamps) = stamps {
                // SAFETY: the array was just allocated with this length and these pages.
                unsafe { free_array(stamps, capacity, pages) };
            }
            return None;
        };
        Some(ContiguousStorage {
            stamps,
            events: events.as_ptr(),
            mask: capacity as u64 - 1,
            shift: capacity.trailing_zeros(),
        })
    }
    #[inline(always)]
    fn stamped(&self) -> bool {
        self.stamps.is_some()
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
        // SAFETY: the caller promises that the storage has stamps, and the masked index is inside
        // of their array.
        unsafe { self.stamps.unwrap_unchecked().as_ptr().add((seq & self.mask) as usize) }
    }
    #[inline(always)]
    fn event(&self, seq: u64) -> *mut E {
        // SAFETY: the masked index is inside the array; `raw_get` makes no reference.
        unsafe { UnsafeCell::raw_get(self.events.add((seq & self.mask) as usize)) }
    }
    #[inline(always)]
    fn stride(&self) -> usize {
        size_of::<E>()
    }
    fn bytes_per_slot(stamped: bool) -> usize {
        size_of::<E>() + if stamped { size_of::<AtomicU64>() } else { 0 }
    }
    unsafe fn free(self, pages: Pages) {
        let capacity = self.mask as usize + 1;
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(stamps) = self.stamps {
                free_array(stamps, capacity, pages);
            }
            free_array(NonNull::new_unchecked(self.events), capacity, pages);
        }
    }
}

// SAFETY: the areas stay mapped where they are; masked indices stay below the number of slots.
unsafe impl<E> Storage<E> for StridedStorage<E> {
    /// Blocks lie in segments only, so the heap has no memory for them.
    fn allocate(_capacity: usize, _stamped: bool, _pages: Pages) -> Option<Self> {
        None
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
        // SAFETY: the masked index is inside the array, whose stamps are aligned.
        unsafe { self.stamps.add((seq & self.mask) as usize * self.stamp_stride).cast().as_ptr() }
    }
    #[inline(always)]
    fn event(&self, seq: u64) -> *mut E {
        // SAFETY: the masked index is inside the array.
        unsafe { self.events.add((seq & self.mask) as usize * self.stride).cast().as_ptr() }
    }
    #[inline(always)]
    fn stride(&self) -> usize {
        self.stride
    }
    fn bytes_per_slot(_stamped: bool) -> usize {
        0
    }
    unsafe fn free(self, _pages: Pages) {}
}

/// An array in a mapping, with a constant distance from one element to the next.
pub(crate) struct StridedArray {
    /// Address of the first element.
    pub(crate) first: NonNull<u8>,
    /// Distance from one element to the next, in bytes.
    pub(crate) stride: usize,
}

impl<E> StridedStorage<E> {
    /// Returns the view of blocks that lie in a mapping. `capacity` is a power of two.
    ///
    /// # Safety
    /// The mapping has `capacity` stamps and `capacity` blocks, which stay where they are. `E` is
    /// zero-sized, and each block has the alignment of `E`. The stamps are aligned words.
    pub(crate) unsafe fn at(
        StridedArray { first: stamps, stride: stamp_stride }: StridedArray,
        StridedArray { first: events, stride }: StridedArray,
        capacity: usize,
    ) -> Self {
        const { assert!(size_of::<E>() == 0, "a block is no value of a type") };
        let (mask, shift) = (capacity as u64 - 1, capacity.trailing_zeros());
        StridedStorage { stamps, events, stamp_stride, stride, mask, shift, event: PhantomData }
    }
}
