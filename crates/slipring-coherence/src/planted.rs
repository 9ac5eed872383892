//! Planted defects: wrong variants of single steps of a program, which its tests must catch.
//!
//! - I1: A system thread has at most one planted defect, and loses it when its [`Planted`] is
//!   dropped. All virtual threads of a run are on one system thread, so they share the defect.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// A planted defect, which stays until this value is dropped.
///
/// Example: [`plant`].
#[must_use = "the defect goes when this value is dropped"]
pub struct Planted(PhantomData<*mut ()>);

/// Plants the defect `name` into the simulations of the calling system thread.
///
/// A program asks for it by [`is_planted`], at the step that the defect changes. A structure that
/// is built while the defect is planted is also dropped before the defect goes.
///
/// ```
/// let planted = slipring_coherence::plant("fence-too-many");
/// assert!(slipring_coherence::is_planted("fence-too-many"));
/// drop(planted);
/// assert!(!slipring_coherence::is_planted("fence-too-many"));
/// ```
///
/// # Panics
///
/// If another defect is planted.
pub fn plant(name: &'static str) -> Planted {
    let other = PLANTED.replace(Some(name));
    assert!(other.is_none(), "one defect at a time: {other:?} is planted");
    Planted(PhantomData)
}

/// Returns whether the defect `name` is planted. Costs no virtual time.
///
/// Example: [`plant`].
#[inline]
pub fn is_planted(name: &str) -> bool {
    PLANTED.get().is_some_and(|planted| planted == name)
}

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
    }
}
