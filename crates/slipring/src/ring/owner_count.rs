//! The number of owners of a ring.
//!
//! The count works like the count of an `Arc`: each owner is subtracted with release ordering, and
//! the last owner acquires the accesses of all other owners. The count uses the atomics of `std`,
//! as `Arc` does, so no model covers it.

use std::process::abort;

use crate::base::sync::{Acquire, Relaxed, Release, Statistic};

/// The number of owners of one ring, plus the bit [`OwnerCount::OVER`] after the run has ended.
pub(crate) struct OwnerCount {
    count: Statistic,
    /// Number of owners that were ever added, for tests of calls that add none.
    #[cfg(all(test, not(slipring_loom)))]
    added: Statistic,
}

impl OwnerCount {
    const OVER: u64 = 1 << 63;

    /// Creates the count for a new ring. The caller is about to make the ring's first owner.
    pub(crate) const fn one() -> OwnerCount {
        OwnerCount {
            count: Statistic::new(1),
            #[cfg(all(test, not(slipring_loom)))]
            added: Statistic::new(0),
        }
    }

    /// Adds an owner. Another owner must be alive during the call.
    pub(super) fn add(&self) {
        #[cfg(all(test, not(slipring_loom)))]
        self.added.fetch_add(1, Relaxed);
        // The count reaches 2^62 only if owners are forgotten (`mem::forget`), because memory
        // cannot hold so many owners. Like `Arc`, the method aborts at an excessive count.
        if self.count.fetch_add(1, Relaxed) & !Self::OVER > Self::OVER / 2 {
            abort();
        }
    }

    /// Returns how many owners [`OwnerCount::add`] has added.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn added(&self) -> u64 {
        self.added.load(Relaxed)
    }

    /// Adds an owner, unless the last owner was dropped or the run is over. Returns whether an
    /// owner was added.
    pub(super) fn try_add(&self) -> bool {
        let grown = |count: u64| (count != 0 && count & Self::OVER == 0).then_some(count + 1);
        self.count.fetch_update(Relaxed, Relaxed, grown).is_ok()
    }

    /// Subtracts an owner. Returns whether it was the last one.
    pub(super) fn remove(&self) -> bool {
        let last = self.count.fetch_sub(1, Release) & !Self::OVER == 1;
        // The load of the count acquires the accesses of the other owners.
        last && { self.count.load(Acquire) & !Self::OVER == 0 }
    }

    /// Ends the run. After the call, observers no longer find the ring, and `try_add` adds no
    /// owner. Owners that exist at the call stay owners.
    pub(crate) fn end_run(&self) {
        self.count.fetch_or(Self::OVER, Release);
    }

    /// Returns whether the run is over, or the last owner was dropped. If so, the caller sees all
    /// accesses of the run, or of the owners.
    pub(crate) fn are_gone(&self) -> bool {
        let count = self.count.load(Acquire);
        count == 0 || count & Self::OVER != 0
    }

    /// Returns whether observers can find the ring: an owner exists, and `end_run` was not called.
    pub(crate) fn are_there(&self) -> bool {
        let count = self.count.load(Relaxed);
        count != 0 && count & Self::OVER == 0
    }
}
