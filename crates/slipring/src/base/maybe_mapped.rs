//! Defines a value that is accessed through its address. The value lies on the heap of this
//! process, or in memory that other processes map, too.
//!
//! For example, the words through which a ring's handles communicate are values of this type. The
//! code that uses the words is the same in both cases, because it knows only their address.
//!
//! Invariants
//! - I1: the address is valid and unchanged while the [`MaybeMapped`] lives. If the value is on the
//!   heap, the [`MaybeMapped`] is its only owner. If the value is in a mapping, the [`MaybeMapped`]
//!   holds a reference that keeps the memory mapped.
//! - I2: a shared value consists of atomic words and locks, so any thread may use it through `&T`
//!   while other threads, or other processes, use it.

use std::ops::Deref;
use std::ptr::NonNull;

use super::sync::Arc;

/// Keeps memory mapped that other processes map, too.
pub type Mapping = Arc<dyn std::any::Any + Send + Sync>;

/// A value that other threads, or other processes, use at the same time.
pub(crate) struct MaybeMapped<T: ?Sized> {
    at: NonNull<T>,
    /// The owner of the mapping; `None` if the value lies on the heap and belongs to this
    /// `MaybeMapped`.
    mapping: Option<Mapping>,
}

// SAFETY: a `MaybeMapped` is used as a `Box<T>` and as a `&T`. A value in a mapping is never
// dropped.
unsafe impl<T: ?Sized + Send + Sync> Send for MaybeMapped<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for MaybeMapped<T> {}

impl<T> MaybeMapped<T> {
    /// Places a value on the heap.
    pub(crate) fn new(value: T) -> MaybeMapped<T> {
        MaybeMapped::from(Box::new(value))
    }
}

impl<T: ?Sized> From<Box<T>> for MaybeMapped<T> {
    fn from(value: Box<T>) -> MaybeMapped<T> {
        // The `MaybeMapped` keeps a raw pointer, because a `Box` that moves would claim sole access
        // to a value to which other threads have pointers.
        MaybeMapped { at: NonNull::from(Box::leak(value)), mapping: None }
    }
}

impl<T: ?Sized> MaybeMapped<T> {
    /// Refers to a value in a mapping.
    ///
    /// # Safety
    /// `at` points to a valid `T` as long as `mapping` lives. Other threads and processes change
    /// that memory only by atomic accesses of the sizes of the words of `T`.
    pub(crate) unsafe fn mapped(at: NonNull<T>, mapping: Mapping) -> MaybeMapped<T> {
        MaybeMapped { at, mapping: Some(mapping) }
    }
}

impl<T> MaybeMapped<[T]> {
    /// Refers to an array of `len` values in a mapping.
    ///
    /// # Safety
    /// Each value of the array meets the requirements of [`MaybeMapped::mapped`].
    pub(crate) unsafe fn mapped_slice(first: NonNull<u8>, len: usize, mapping: &Mapping) -> Self {
        let all = NonNull::slice_from_raw_parts(first.cast(), len);
        // SAFETY: the caller's promise.
        unsafe { MaybeMapped::mapped(all, mapping.clone()) }
    }
}

impl<T: ?Sized> Deref for MaybeMapped<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: I1.
        unsafe { self.at.as_ref() }
    }
}

impl<T: ?Sized> Drop for MaybeMapped<T> {
    fn drop(&mut self) {
        if self.mapping.is_none() {
            // SAFETY: I1: the value was leaked by `from`, and belongs to this `MaybeMapped`.
            drop(unsafe { Box::from_raw(self.at.as_ptr()) });
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::base::sync::{AtomicU64, Relaxed};

    #[test]
    fn a_value_on_the_heap_is_dropped_once_and_a_mapped_one_never() {
        struct Dropped<'a>(&'a AtomicU64);
        impl Drop for Dropped<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        let drops = AtomicU64::new(0);
        drop(MaybeMapped::new(Dropped(&drops)));
        assert_eq!(drops.load(Relaxed), 1);
        let of_slice: MaybeMapped<[Dropped]> =
            MaybeMapped::from(vec![Dropped(&drops), Dropped(&drops)].into_boxed_slice());
        assert_eq!(of_slice.len(), 2);
        drop(of_slice);
        assert_eq!(drops.load(Relaxed), 3);
        let memory: Mapping = Arc::new([const { AtomicU64::new(0) }; 2]);
        let words: &[AtomicU64; 2] = memory.downcast_ref().unwrap();
        // SAFETY: the `Arc` keeps the words allocated.
        let mapped = unsafe {
            MaybeMapped::<[AtomicU64]>::mapped(NonNull::from(&words[..]), memory.clone())
        };
        assert_eq!(Arc::strong_count(&memory), 2);
        mapped[1].store(7, Relaxed);
        drop(mapped);
        assert_eq!((words[1].load(Relaxed), Arc::strong_count(&memory)), (7, 1));
    }
}
