//! The edges that only rings between processes have, in the order of PROTOCOL.md's section "Between
//! processes". The invariants are those of [`edge`](crate::base::edge).

use crate::base::sync::{
    Acquire, AtomicU64, Relaxed, Release, SeqCst, compiler_fence, fence, may_die, twin,
};
use crate::base::system;

/// A seat of a segment has one owner. The next owner sees all that the owner before has stored.
pub(crate) mod seated {
    use super::*;

    /// Takes a seat, if `take` returns the word that the new owner stores.
    #[inline(always)]
    pub(crate) fn take(
        owner: &AtomicU64,
        take: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        owner.fetch_update(twin!("seat-taken-relaxed": Acquire => Relaxed), Relaxed, take)
    }

    /// Frees a seat, after its owner has settled all words of the seat.
    #[inline(always)]
    pub(crate) fn free(owner: &AtomicU64, word: u64) {
        may_die!();
        owner.store(word, twin!("seat-freed-relaxed": Release => Relaxed));
    }
}

/// A first stage of a segment stores a boundary, and then releases. A process that sees the release
/// also sees the boundary, or a later one.
pub(crate) mod bounded {
    use super::*;

    /// Stores the end of the last run that a first stage has found, before the stage releases. A
    /// process that laps the boundary has acquired the release behind this store, so the models
    /// need no release here.
    #[inline(always)]
    pub(crate) fn bound(boundary: &AtomicU64, end: u64) {
        may_die!();
        boundary.store(end, Release);
    }

    /// Loads the boundary of a first stage, before the caller loads the stamps from there on.
    #[inline(always)]
    pub(crate) fn see(boundary: &AtomicU64) -> u64 {
        boundary.load(Acquire)
    }
}

/// Several producers between processes: the stamp of a claim's head names the producers' seat whose
/// words say how far the claim goes.
pub(crate) mod intended {
    use super::*;

    /// Stores a word of a seat's intent, before the head is claimed, or after it has changed.
    #[inline(always)]
    pub(crate) fn intend(word: &AtomicU64, seq: u64) {
        may_die!();
        word.store(seq, twin!("intent-unreleased": Release => Relaxed));
    }

    /// Claims a head, after the seat's intent was stored. Returns `false` if the word is no longer
    /// `seen`.
    #[inline(always)]
    pub(crate) fn claim(slot: &AtomicU64, seen: u64, claimed: u64) -> bool {
        may_die!();
        let order = twin!("head-unreleased": Release => Relaxed);
        slot.compare_exchange(seen, claimed, order, Relaxed).is_ok()
    }

    /// Loads a word of an intent, after the caller saw the head, and before the caller looks at the
    /// head again.
    #[inline(always)]
    pub(crate) fn see(word: &AtomicU64) -> u64 {
        word.load(twin!("intent-seen-relaxed": Acquire => Relaxed))
    }
}

/// Several producers between processes: the claim word is a hint, from which a walk to the first free
/// position begins. A party that sees a hint sees all that the claimant before the hint saw.
pub(crate) mod hinted {
    use super::*;

    /// Stores the end of a claim as the hint, after the claim's head was claimed.
    #[inline(always)]
    pub(crate) fn hint(claim: &AtomicU64, word: u64) {
        may_die!();
        claim.store(word, twin!("hint-unreleased": Release => Relaxed));
    }

    /// Loads the hint, before the caller loads the stamps, frontiers and boundaries from there on.
    #[inline(always)]
    pub(crate) fn see(claim: &AtomicU64) -> u64 {
        claim.load(twin!("hint-seen-relaxed": Acquire => Relaxed))
    }
}

/// Of a producer that claims and a stage that looks for the end of a closing ring, one sees the
/// other: the producer sees that the ring closes, or the stage sees the producer's intent.
pub(crate) mod closing {
    use super::*;

    /// Orders a producer's intent before its check whether the ring closes. With `always`, the
    /// process is not registered for the membarriers of other processes, and issues a fence.
    #[inline(always)]
    pub(crate) fn fence_claimant(always: bool) {
        if always {
            twin!("claimant-unfenced": fence(SeqCst) => ());
        } else {
            compiler_fence(SeqCst);
        }
    }

    /// Orders a stage's look at *closing* before its look at the intents, and executes a memory
    /// barrier in every registered process. Returns `false` if the system refused the barrier.
    pub(crate) fn fence_processes() -> bool {
        let barrier = system::membarrier_in_processes();
        twin!("closer-unfenced": fence(SeqCst) => ());
        barrier
    }
}

/// Of two producers that leave at once, one at least sees that the other leaves.
pub(crate) mod last_out {
    use super::*;

    /// Stores that a producer leaves, before its look at the other producers.
    pub(crate) fn leave(state: &AtomicU64, word: u64) {
        may_die!();
        state.store(word, Relaxed);
        twin!("leaver-unfenced": fence(SeqCst) => ());
    }

    /// Loads whether another producer leaves, after the caller has stored that it leaves itself.
    pub(crate) fn see(state: &AtomicU64) -> u64 {
        state.load(Relaxed)
    }
}

/// In a segment, the cell of a chunk's first slot names the worker that took the chunk. A thread
/// that sees the cell also sees the worker's bound and the chunk's extent.
pub(crate) mod cell_taken {
    use super::*;

    /// Loads the cell of the claim word's position. A worker that sees the cell taken may move the
    /// claim word on, for the worker that took the chunk.
    #[inline(always)]
    pub(crate) fn see(cell: &AtomicU64) -> u64 {
        cell.load(twin!("cell-relaxed": Acquire => Relaxed))
    }

    /// Takes a chunk by swapping its cell, after the chunk's extent and bound were stored. Returns
    /// whether the cell still was `seen`.
    #[inline(always)]
    pub(crate) fn take(cell: &AtomicU64, seen: u64, taken: u64) -> bool {
        may_die!();
        let order = twin!("cell-unreleased": Release => Relaxed);
        cell.compare_exchange(seen, taken, order, Relaxed).is_ok()
    }

    /// Stores begin or end of the next chunk. The caller has seen that the claim word is beyond its
    /// last chunk.
    #[inline(always)]
    pub(crate) fn intend(word: &AtomicU64, seq: u64) {
        may_die!();
        word.store(seq, twin!("chunk-unreleased": Release => Relaxed));
    }

    /// Loads begin or end of the chunk of a worker that a cell names. If the worker has stored
    /// another chunk since, the caller sees that the claim word has moved.
    #[inline(always)]
    pub(crate) fn see_intent(word: &AtomicU64) -> u64 {
        word.load(twin!("chunk-relaxed": Acquire => Relaxed))
    }
}
