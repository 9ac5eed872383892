//! This module replaces `base::system` on the simulated machine.

use std::cell::Cell;

use super::machine::{Seen, access, choose, twin_is};

thread_local! {
    /// Whether the simulated system can refuse barriers.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether the simulated system can refuse barriers.
pub(super) fn set_refuses(refuses: bool) {
    REFUSES.set(refuses);
}

pub(crate) fn membarrier_available() -> bool {
    true
}

/// Executes a full barrier in all threads. If the simulated system can refuse barriers, the
/// exploration tries a refusal, too.
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
