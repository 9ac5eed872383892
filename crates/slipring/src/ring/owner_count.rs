//! The number of owners of a ring.
//!
//! The count works as the one in `Arc` does: an owner is counted out with release, and the last one
//! acquires what all others did. It uses `std`, as `Arc` does, and is not modelled.

use std::process::abort;

use crate::base::sync::{Acquire, Relaxed, Release, Statistic};

/// The number of owners of one ring, with [`OwnerCount::OVER`] once observers may not become owners
/// any more.
pub(crate) struct OwnerCount(Statistic);

impl OwnerCount {
    const OVER: u64 = 1 << 63;

    /// Counts one owner, which is yet to be made.
    pub(crate) const fn one() -> OwnerCount {
        OwnerCount(Statistic::new(1))
    }

    /// Counts an owner in, beside one that is alive meanwhile.
    pub(super) fn add(&self) {
        // Only forgotten owners can be so many: memory does not hold them. `Arc` aborts, too.
        if self.0.fetch_add(1, Relaxed) & !Self::OVER > Self::OVER / 2 {
            abort();
        }
    }

    /// Counts an owner in, unless the last one is gone or the run is over.
    pub(super) fn try_add(&self) -> bool {
        let grown = |count: u64| (count != 0 && count & Self::OVER == 0).then_some(count + 1);
        self.0.fetch_update(Relaxed, Relaxed, grown).is_ok()
    }

    /// Counts an owner out; returns whether it was the last one.
    pub(super) fn remove(&self) -> bool {
        let last = self.0.fetch_sub(1, Release) & !Self::OVER == 1;
        // Acquires what the other owners did.
        last && { self.0.load(Acquire) & !Self::OVER == 0 }
    }

    /// Ends the run that observers are bound to. Observers no longer find it, and none of them becomes
    /// an owner; owners that exist stay.
    pub(crate) fn end_run(&self) {
        self.0.fetch_or(Self::OVER, Relaxed);
    }

    /// Returns whether observers find the ring.
    pub(crate) fn are_there(&self) -> bool {
        let count = self.0.load(Relaxed);
        count != 0 && count & Self::OVER == 0
    }
}
