//! A direct pointer to a value that the handles of a ring share.
//!
//! Invariants
//! - I1: the value does not move (`maybe_mapped::I1`), and its ring keeps it. A handle with a
//!   [`Direct`] keeps its ring alive.

use std::ptr::NonNull;

/// A pointer to one of a ring's shared values, which a handle keeps beside its ring. Without it,
/// each access would load the addresses on the way to the value, and check an index.
pub(crate) struct Direct<T>(NonNull<T>);

// SAFETY: a `Direct<T>` gives a `&T`, and nothing else.
unsafe impl<T: Sync> Send for Direct<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Direct<T> {}

impl<T> Direct<T> {
    /// Makes the pointer of one handle to `value`.
    pub(crate) fn to(value: &T) -> Direct<T> {
        Direct(NonNull::from(value))
    }

    /// Returns the value.
    ///
    /// # Safety
    /// The ring of the value is alive (I1).
    #[inline(always)]
    pub(crate) unsafe fn get(&self) -> &T {
        // SAFETY: the caller's promise.
        unsafe { self.0.as_ref() }
    }
}
