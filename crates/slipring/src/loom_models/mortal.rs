//! Threads that end in the way a process dies: between two instructions, and without dropping any
//! handle.
//!
//! In the library, a `may_die!` marks each store that another process may read. A model sets the
//! number of such stores that a thread may make, and the thread ends right before the next one.
//! Other threads cannot tell at which instruction between two stores the thread has ended. So the
//! numbers from 0 on cover every moment at which a process can die.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::model_hooks::{Died, set_stores_left};

/// Runs `life` until it ends or has made `stores` marked stores. The caller owns all handles that
/// `life` uses, and drops none of them before the model's end.
pub(super) fn lives(stores: usize, life: impl FnOnce()) {
    set_stores_left(Some(stores));
    let ended = catch_unwind(AssertUnwindSafe(life));
    set_stores_left(None);
    if let Err(reason) = ended
        && !reason.is::<Died>()
    {
        resume_unwind(reason);
    }
}
