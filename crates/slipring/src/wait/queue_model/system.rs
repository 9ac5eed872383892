//! This module replaces `base::system` on the simulated machine.

use std::cell::Cell;

use super::machine::{Seen, access, choose, twin_is};

thread_local! {
    /// Whether the explored model may refuse barriers.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether the models that follow may refuse barriers.
pub(super) fn set_refuses(refuses: bool) {
    REFUSES.set(refuses);
}

pub(crate) fn membarrier_available() -> bool {
    true
}

/// Executes a full barrier in all threads. A model with [`set_refuses`] explores the refusal of the
/// barrier, too.
pub(crate) fn membarrier() -> bool {
    let refused = REFUSES.get() && choose(2) == 1;
    access(true, |step| {
        if refused {
            step.thread().refused = true;
        } else if twin_is("barrier-late") {
            step.thread().postponed = true;
        } else {
            step.state.membarrier();
        }
        Some(Seen::Nothing)
    });
    !refused
}
