//! A segment on the heap. Miri runs tests over it, and simulated threads stand for its processes.
//!
//! Invariants
//! - I1: the memory is zeroed like that of a new segment, has room for all pieces that were cut
//!   from it, and is freed with its last reference.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::areas::{Areas, begin};
use super::declaration::Declaration;
use crate::errors::BuildError;

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

/// Returns pieces of these numbers of lines, and their memory.
pub(super) fn cut<const N: usize>(lines: [usize; N]) -> ([NonNull<u8>; N], Arc<Memory>) {
    let bytes = Layout::from_size_align(lines.iter().sum::<usize>() * 128, 4096);
    let bytes = bytes.expect("a small segment");
    assert_ne!(bytes.size(), 0);
    // SAFETY: the size is not zero.
    let first = NonNull::new(unsafe { alloc_zeroed(bytes) });
    let first = first.unwrap_or_else(|| handle_alloc_error(bytes));
    let mut at = 0;
    let pieces = lines.map(|lines| {
        // SAFETY: I1.
        let piece = unsafe { first.add(at * 128) };
        at += lines;
        piece
    });
    (pieces, Arc::new(Memory { first, bytes }))
}

/// Lays out the areas of a new segment of events of the type `E`, and stores their first words.
///
/// # Errors
/// Returns why no ring can be made from the declaration.
pub fn on_heap<E>(declaration: &Declaration) -> Result<Areas, BuildError> {
    let (capacity, needs) = (declaration.capacity, declaration.needs::<E>()?);
    let (pieces, mapping) = cut([
        needs.lines,
        needs.queues,
        needs.seats,
        1,
        needs.failure,
        needs.counters,
        needs.waited,
        (needs.cells * capacity * 8).div_ceil(128),
        (needs.shard_ids * capacity * 4).div_ceil(128),
        (needs.slot * capacity).div_ceil(128),
    ]);
    let [lines, queues, seats, status, failure, counters, waited, cells, shard_ids, slots] = pieces;
    let areas = Areas {
        lines,
        queues,
        seats,
        status,
        failure,
        counters,
        waited,
        cells,
        shard_ids,
        stamps: slots,
        events: slots,
        strides: (0, 0),
        mapping,
    };
    // SAFETY: the areas were laid out as the declaration needs them.
    unsafe { begin(declaration, &areas) }?;
    Ok(areas)
}
