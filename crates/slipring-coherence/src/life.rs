//! Lives: what a program has to end exactly once, such as an allocation that it frees by itself.
//!
//! - I1: `LIVES` counts the lives of a system thread that have begun and not ended. All virtual
//!   threads of a run are on one system thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::give_up;

thread_local! {
    static LIVES: Cell<u64> = const { Cell::new(0) };
}

/// The life of an object of the program. A run is given up if the object is used after its life has
/// ended, or if its life ends twice. The memory of what is freed in a run stays until the run's
/// end, so both are seen.
///
/// ```
/// let begun = slipring_coherence::lives();
/// let life = slipring_coherence::Life::begin();
/// assert_eq!(slipring_coherence::lives(), begun + 1);
/// life.go_on();
/// life.end();
/// assert_eq!(slipring_coherence::lives(), begun);
/// ```
#[derive(Debug)]
pub struct Life(AtomicBool);

impl Life {
    /// Begins a life.
    ///
    /// Example: [`Life`].
    #[must_use = "its object has a life for as long as it lives"]
    pub fn begin() -> Life {
        LIVES.set(LIVES.get() + 1);
        Life(AtomicBool::new(true))
    }

    /// Called at a use of the object.
    ///
    /// Example: [`Life`].
    pub fn go_on(&self) {
        if !self.0.load(Relaxed) {
            give_up("an object is used after it was freed or dropped");
        }
    }

    /// Called when the object is freed or dropped.
    ///
    /// Example: [`Life`].
    pub fn end(&self) {
        if !self.0.swap(false, Relaxed) {
            return give_up("an object is freed or dropped twice");
        }
        LIVES.set(LIVES.get() - 1);
    }
}

/// Returns the number of lives of the calling system thread that have begun and not ended.
///
/// Example: [`Life`].
pub fn lives() -> u64 {
    LIVES.get()
}
