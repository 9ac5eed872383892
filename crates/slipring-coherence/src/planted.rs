//! Planted defects: wrong variants of single steps of a program, which its tests must catch.
//!
//! - I1: A system thread has at most one planted defect, and loses it when its [`Planted`] is
//!   dropped. All virtual threads of a run are on one system thread, so they share the defect.
//! - I2: The steps that can be changed are also those at which a program's protocols are delicate,
//!   so a run by a schedule holds threads there. `LEFT` counts them down to the next such hold. If
//!   the schedule looks at one class of steps only, `CLASS` says which, and no others are counted.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
    static REACHED: Cell<u64> = const { Cell::new(0) };
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static CLASS: Cell<u64> = const { Cell::new(0) };
}

/// Number of classes of steps.
pub(crate) const CLASSES: u64 = 32;

/// Returns the class of a step of this name, from 1 on: see
/// [`Schedule::class`](crate::Schedule::class). It depends on nothing but the name.
///
/// ```
/// assert!((1..=32).contains(&slipring_coherence::class("fence-too-many")));
/// ```
pub const fn class(name: &str) -> u64 {
    let (bytes, mut hash, mut at) = (name.as_bytes(), 0xCBF2_9CE4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01B3);
        at += 1;
    }
    1 + (hash >> 32) % CLASSES
}

/// A planted defect, which stays until this value is dropped.
///
/// Example: [`plant`].
#[must_use = "the defect goes when this value is dropped"]
pub struct Planted(PhantomData<*mut ()>);

impl Planted {
    /// Returns how often the step was reached that the defect changes.
    ///
    /// ```
    /// let planted = slipring_coherence::plant("fence-too-many");
    /// slipring_coherence::is_planted("fence-too-many");
    /// slipring_coherence::is_planted("another");
    /// assert_eq!(planted.reached(), 1);
    /// ```
    pub fn reached(&self) -> u64 {
        REACHED.get()
    }
}

/// Plants the defect `name` into the simulations of the calling system thread.
///
/// A program asks for it by [`is_planted`](crate::is_planted), at the step that the defect changes.
/// A structure that is built while the defect is planted is also dropped before the defect goes.
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

/// Returns whether the defect `name` is planted, and counts that its step was reached.
#[inline]
pub(crate) fn reach(name: &str) -> bool {
    let planted = PLANTED.get().is_some_and(|planted| planted == name);
    if planted {
        REACHED.set(REACHED.get() + 1);
    }
    planted
}

/// Counts a step. Returns whether the run interferes at it.
#[inline]
pub(crate) fn count_step(name: &str) -> bool {
    let counted = CLASS.get();
    if counted != 0 && counted != class(name) {
        return false;
    }
    let left = LEFT.get() - 1;
    LEFT.set(left);
    left == 0
}

/// Lets a run count the steps of one class only; 0: all steps.
pub(crate) fn count_class(class: u64) {
    CLASS.set(class);
}

/// Lets a run interfere at one of the next steps (I2); `u64::MAX`: at none.
pub(crate) fn interfere_after(steps: u64) {
    LEFT.set(steps);
}

impl Drop for Planted {
    fn drop(&mut self) {
        PLANTED.set(None);
        REACHED.set(0);
    }
}
