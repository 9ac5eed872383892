//! Threads that end as a process dies: between two instructions, and without a drop of any handle.
//!
//! The library marks each store that another process may read by `may_die!`. A model gives a thread
//! a number of such stores; the thread ends right before the store that exceeds the number. Where a
//! thread ends between two stores makes no difference to other threads, so the numbers from 0 on
//! cover every moment of a death.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

loom::thread_local! {
    /// Number of marked stores that the current thread makes before it dies; `None`: it lives on.
    static LEFT: Cell<Option<usize>> = Cell::new(None);
}

/// What a dying thread unwinds with.
struct Died;

/// Ends the current thread's life, if it has made its last store. Called before a marked store.
pub(crate) fn step() {
    LEFT.with(|left| match left.get() {
        // No handle is dropped by the unwinding, and nothing that is dropped uses a word of the
        // model.
        Some(0) => resume_unwind(Box::new(Died)),
        Some(stores) => left.set(Some(stores - 1)),
        None => {}
    });
}

/// Runs `life` until it ends or has made `stores` marked stores. The caller owns all handles that
/// `life` uses, and drops none of them before the model's end.
pub(super) fn lives(stores: usize, life: impl FnOnce()) {
    LEFT.with(|left| left.set(Some(stores)));
    let ended = catch_unwind(AssertUnwindSafe(life));
    LEFT.with(|left| left.set(None));
    if let Err(reason) = ended
        && !reason.is::<Died>()
    {
        resume_unwind(reason);
    }
}
