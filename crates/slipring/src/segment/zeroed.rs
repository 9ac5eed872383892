//! A segment on the heap. Miri runs tests over it, and simulated threads stand for its processes.
//!
//! Invariants
//! - I1: the memory is zeroed like that of a new segment, has room for all pieces that were cut
//!   from it, and is freed with its last reference.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::areas::{Areas, begin};
use super::declaration::{Declaration, Needs};
use crate::errors::BuildError;

/// Size of a line, in bytes.
const LINE: usize = 128;

/// Zeroed memory (I1).
pub(super) struct Memory {
    pub(super) first: NonNull<u8>,
    pub(super) bytes: Layout,
}

// SAFETY: the memory holds atomic words, and slots whose use the protocol orders.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: I1: allocated with this layout.
        unsafe { dealloc(self.first.as_ptr(), self.bytes) }
    }
}

/// Returns pieces of these numbers of bytes, each on lines of its own, and their memory.
fn cut<const N: usize>(bytes: [usize; N]) -> ([NonNull<u8>; N], Arc<Memory>) {
    let lines = bytes.map(|bytes| bytes.div_ceil(LINE) * LINE);
    let bytes = Layout::from_size_align(lines.iter().sum(), 4096).expect("a small segment");
    assert_ne!(bytes.size(), 0);
    // SAFETY: the size is not zero.
    let first = NonNull::new(unsafe { alloc_zeroed(bytes) });
    let first = first.unwrap_or_else(|| handle_alloc_error(bytes));
    let mut at = 0;
    let pieces = lines.map(|bytes| {
        // SAFETY: I1.
        let piece = unsafe { first.add(at) };
        at += bytes;
        piece
    });
    (pieces, Arc::new(Memory { first, bytes }))
}

/// Lays out the areas of a new segment, with an area of `stamps` bytes and one of `events` bytes.
/// The caller sets the strides, and stores the first words.
fn lay_out(declaration: &Declaration, needs: &Needs, stamps: usize, events: usize) -> Areas {
    let capacity = declaration.capacity;
    let (pieces, mapping) = cut([
        needs.lines * LINE,
        needs.queues * LINE,
        needs.seats * LINE,
        LINE,
        needs.failure * LINE,
        needs.counters * LINE,
        needs.waited * LINE,
        needs.cells * capacity * 8,
        needs.shard_ids * capacity * 4,
        stamps,
        events,
    ]);
    let [lines, queues, seats, status, failure, counters, waited, cells, shard_ids, stamps, events] =
        pieces;
    let strides = (0, 0);
    Areas {
        lines,
        queues,
        seats,
        status,
        failure,
        counters,
        waited,
        cells,
        shard_ids,
        stamps,
        events,
        strides,
        mapping,
    }
}

/// Lays out the areas of a new segment of events of the type `E`, and stores their first words.
///
/// # Errors
/// Returns why no ring can be made from the declaration.
pub fn on_heap<E>(declaration: &Declaration) -> Result<Areas, BuildError> {
    let needs = declaration.needs::<E>()?;
    let slots = needs.slot * declaration.capacity;
    let mut areas = lay_out(declaration, &needs, 0, slots);
    areas.stamps = areas.events; // A slot begins with its stamp.
    // SAFETY: the areas were laid out as the declaration needs them.
    unsafe { begin(declaration, &areas) }?;
    Ok(areas)
}

/// Lays out the areas of a new segment of blocks of `size` bytes, and stores their first words. If
/// `inside` is set, each block lies directly behind its stamp; otherwise the blocks lie side by
/// side.
///
/// # Errors
/// Returns why no ring can be made from the declaration.
pub fn blocks_on_heap(
    declaration: &Declaration,
    size: usize,
    inside: bool,
) -> Result<Areas, BuildError> {
    let (capacity, needs) = (declaration.capacity, declaration.needs_for(size)?);
    let slot = if inside { 8 + size.next_multiple_of(8) } else { size };
    let stamps = if inside { 0 } else { capacity * 8 };
    let mut areas = lay_out(declaration, &needs, stamps, slot * capacity);
    areas.strides = if inside { (slot, slot) } else { (8, slot) };
    if inside {
        areas.stamps = areas.events;
        // SAFETY: a slot has a stamp before its block.
        areas.events = unsafe { areas.events.add(8) };
    }
    // SAFETY: the areas were laid out as the declaration needs them.
    unsafe { begin(declaration, &areas) }?;
    Ok(areas)
}
