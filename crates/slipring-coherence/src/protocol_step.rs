//! The steps of a program's protocols, which defects can change, and at which runs interfere.

use crate::planted::{count_step, interfere_after, reach};
use crate::running::{Handle, Running};

/// Returns whether the defect `name` is planted. Costs no virtual time. In a run by a schedule, the
/// thread may be held at its next accesses, or its process may die there
/// ([`Schedule::holds`](crate::Schedule)).
///
/// Example: [`plant`](crate::plant).
#[inline]
pub fn is_planted(name: &str) -> bool {
    let is_planted = reach(name);
    if count_step(name) {
        let next = Handle::current().map(|handle| handle.with(Running::interfere));
        interfere_after(next.unwrap_or(u64::MAX));
    }
    is_planted
}
