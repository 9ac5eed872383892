//! Arrays of the ring's slots in memory, on ordinary or on huge pages.
//!
//! Invariants
//! - I1: an array keeps the address that [`allocate_array`] returned until [`free_array`] frees it.
//! - I2: the layout of an allocation depends on the element type, the length and the [`Pages`]
//!   only, so `free_array` frees the array with the layout of its allocation.

use std::alloc::{Layout as Bytes, alloc, dealloc};
use std::ptr::NonNull;

use crate::base::system;

/// Size and alignment of the huge pages that [`Pages::Huge`] asks for, in bytes. A huge page has 2
/// MiB on x86-64, and also on aarch64 if an ordinary page has 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

/// The pages of an array.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The pages that the allocator provides.
    #[default]
    Ordinary,
    /// Huge pages, if the system grants them.
    Huge,
}

/// Returns the layout of an array (I2), or `None` if the size overflows.
fn bytes<T>(len: usize, pages: Pages) -> Option<Bytes> {
    let bytes = Bytes::array::<T>(len).ok()?;
    match pages {
        Pages::Huge if bytes.size() != 0 => {
            // The array takes whole huge pages, because a page can be huge only if all of it lies
            // inside of the array's mapping.
            let size = bytes.size().checked_next_multiple_of(HUGE_PAGE)?;
            Bytes::from_size_align(size, bytes.align().max(HUGE_PAGE)).ok()
        }
        _ => Some(bytes),
    }
}

/// Allocates an array without initialising it. The system provides each page of the array when the
/// page is first touched. Returns `None` if there is no memory.
pub(crate) fn allocate_array<T>(len: usize, pages: Pages) -> Option<NonNull<T>> {
    let bytes = bytes::<T>(len, pages)?;
    if bytes.size() == 0 {
        return Some(NonNull::dangling());
    }
    // SAFETY: the size is not zero.
    let array = NonNull::new(unsafe { alloc(bytes) })?;
    if pages == Pages::Huge {
        // SAFETY: the array was just allocated with this size, and is aligned to whole pages.
        unsafe { system::advise_huge_pages(array, bytes.size()) };
    }
    Some(array.cast())
}

/// # Safety
/// [`allocate_array`] returned `array` for the same length and pages, and `array` is not used
/// afterwards.
pub(crate) unsafe fn free_array<T>(array: NonNull<T>, len: usize, pages: Pages) {
    if let Some(bytes) = bytes::<T>(len, pages)
        && bytes.size() != 0
    {
        // SAFETY: the array was allocated with this layout (I2). The caller promises that it is not
        // used afterwards.
        unsafe { dealloc(array.as_ptr().cast(), bytes) }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn huge_arrays_are_whole_huge_pages_and_ordinary_ones_are_as_before() {
        for len in [1, 1000, HUGE_PAGE / 8, HUGE_PAGE / 8 + 1] {
            let huge = bytes::<u64>(len, Pages::Huge).unwrap();
            assert_eq!((huge.size() % HUGE_PAGE, huge.align()), (0, HUGE_PAGE), "{len}");
            assert!(huge.size() >= 8 * len && huge.size() < 8 * len + HUGE_PAGE, "{len}");
            assert_eq!(bytes::<u64>(len, Pages::Ordinary), Bytes::array::<u64>(len).ok());
        }
        assert_eq!(bytes::<u64>(0, Pages::Huge).map(|bytes| bytes.size()), Some(0));
        assert_eq!(bytes::<u64>(usize::MAX / 8, Pages::Huge), None, "the size overflows");
    }

    #[test]
    fn every_byte_of_an_array_can_be_written_whatever_the_pages() {
        for pages in [Pages::Ordinary, Pages::Huge] {
            for len in [0, 1, 3000, HUGE_PAGE / 4] {
                let array = allocate_array::<u32>(len, pages).unwrap();
                for at in 0..len {
                    // SAFETY: `at` is inside of the array.
                    unsafe { array.as_ptr().add(at).write(at as u32) };
                }
                if pages == Pages::Huge && len != 0 {
                    assert_eq!(array.as_ptr() as usize % HUGE_PAGE, 0);
                }
                // SAFETY: the array was allocated with the same length and pages, and is not used
                // afterwards.
                unsafe { free_array(array, len, pages) };
            }
        }
    }
}
