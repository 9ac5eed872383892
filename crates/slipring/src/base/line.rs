//! A value on its own cache line. The type stays sound even if other processes store there at any
//! time.
//!
//! Invariants
//! - I1: all bytes of a [`Line`], including those that no word uses, lie inside of an `UnsafeCell`.
//!   So a `&Line` says nothing about bytes that another process may store at any time. A `&` to a
//!   struct of atomics alone would say that the bytes between and behind them do not change.

use std::cell::UnsafeCell;
use std::ops::Deref;
use std::panic::RefUnwindSafe;

#[repr(C, align(128))]
struct Padded<T>(T);

/// A value on a 128-byte cache line of its own. x86 processors fetch neighbouring 64-byte lines in
/// pairs (Intel's optimisation manual, "spatial prefetcher"). Some aarch64 processors have lines of
/// 128 bytes (Apple's M1).
#[repr(transparent)]
pub(crate) struct Line<T>(UnsafeCell<Padded<T>>);

// SAFETY: a `&Line<T>` gives a `&T`, and nothing else.
unsafe impl<T: Sync> Sync for Line<T> {}

// The cell offers no way to change the value.
impl<T: RefUnwindSafe> RefUnwindSafe for Line<T> {}

impl<T> Line<T> {
    pub(crate) const fn new(value: T) -> Line<T> {
        Line(UnsafeCell::new(Padded(value)))
    }
}

impl<T> Deref for Line<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value is never borrowed as `&mut` while the line is borrowed. The reference
        // covers the value without the unused bytes (I1).
        unsafe { &(*self.0.get()).0 }
    }
}
