//! The edges that only rings between processes have, in the order of PROTOCOL.md's section "Between
//! processes". The invariants of [`edge`](crate::base::edge) hold here, too.

use crate::base::sync::{
    Acquire, AtomicU64, Relaxed, Release, SeqCst, compiler_fence, fence, may_die, twin,
};

/// A seat of a segment has one owner. The next owner sees all that the previous owner has stored.
pub(crate) mod seated {
    use super::*;

    /// Takes a seat: stores the word that `take` returns for the seat's current word. If `take`
    /// returns `None`, the seat stays as it is.
    #[inline(always)]
    pub(crate) fn take(
        owner: &AtomicU64,
        take: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        owner.fetch_update(twin!("seat-taken-relaxed": Acquire => Relaxed), Relaxed, take)
    }

    /// Loads the owner of a seat, before the caller loads the words that the previous owners have
    /// stored.
    #[inline(always)]
    pub(crate) fn see(owner: &AtomicU64) -> u64 {
        owner.load(Acquire)
    }

    /// Stores the end of the events that the owner of a seat is lent, before the owner touches
    /// these events. Another process reads the word only after the owner's death, and a process
    /// dies between two instructions. So the order of the instructions suffices.
    #[inline(always)]
    pub(crate) fn lend(held: &AtomicU64, end: u64) {
        may_die!();
        held.store(end, Relaxed);
        compiler_fence(SeqCst);
    }

    /// Frees a seat, after the final values of all of the seat's words were stored.
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
    /// process that laps the boundary has acquired the stage's release, which follows this store,
    /// so the models need no release here.
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

/// If several producers of a segment claim, the last claim ends at the claim word's position. The
/// claim word names the seat of that claim's producer, and the seat's words say where the claim
/// begins. A party that sees the claim word also sees these words, and the recorded heads of all
/// earlier claims.
pub(crate) mod intended {
    use super::*;

    /// Stores a word of a seat's intent, after the seat's last claim has ended, and before the
    /// claim word names the seat again.
    #[inline(always)]
    pub(crate) fn intend(word: &AtomicU64, seq: u64) {
        may_die!();
        word.store(seq, twin!("intent-unreleased": Release => Relaxed));
    }

    /// Loads a word of an intent, after the caller saw the claim word, and before the caller loads
    /// the head.
    #[inline(always)]
    pub(crate) fn see(word: &AtomicU64) -> u64 {
        word.load(twin!("intent-seen-relaxed": Acquire => Relaxed))
    }

    /// Records the claim of another producer at its head, before the claim word names the caller.
    /// If the claim has ended, its head is no longer `seen`, and the call changes nothing.
    #[inline]
    pub(crate) fn record(slot: &AtomicU64, seen: u64, claimed: u64) {
        may_die!();
        let record = || slot.compare_exchange(seen, claimed, Relaxed, Relaxed).is_ok();
        twin!("recorded-by-store": _ = record() => slot.store(claimed, Relaxed));
    }

    /// Claims slots by moving the claim word, after the seat's intent was stored and the previous
    /// claim was recorded. Returns `false` if the claim word is no longer `seen`.
    #[inline(always)]
    pub(crate) fn claim(word: &AtomicU64, seen: u64, claimed: u64) -> bool {
        may_die!();
        let order = twin!("claim-unreleased": Release => Relaxed);
        word.compare_exchange(seen, claimed, order, Relaxed).is_ok()
    }

    /// Loads the claim word, before the caller loads intents and heads.
    #[inline(always)]
    pub(crate) fn see_claim(word: &AtomicU64) -> u64 {
        word.load(twin!("claim-seen-relaxed": Acquire => Relaxed))
    }
}

/// If two producers leave at the same time, at least one of them sees that the other one is
/// leaving.
pub(crate) mod last_out {
    use super::*;

    /// Announces that a producer leaves, before it checks the other producers.
    pub(crate) fn leave(state: &AtomicU64, word: u64) {
        may_die!();
        state.store(word, Relaxed);
        twin!("leaver-unfenced": fence(SeqCst) => ());
    }

    /// Separates the note of a death, which the caller has made, from its look at the other handles
    /// of the dead one's party.
    pub(crate) fn fence_recoverer() {
        twin!("recoverer-unfenced": fence(SeqCst) => ());
    }

    /// Loads the word that says whether another producer is leaving. Called after the caller has
    /// announced that it leaves, or has noted a death.
    pub(crate) fn see(state: &AtomicU64) -> u64 {
        state.load(Relaxed)
    }
}

/// In a segment, the cell of a chunk's first slot names the worker that took the chunk. A thread
/// that sees the cell also sees the worker's bound and the chunk's extent.
pub(crate) mod cell_taken {
    use super::*;

    /// Loads the cell of the claim word's position. A worker that sees the cell taken may advance
    /// the claim word on behalf of the worker that took the chunk.
    #[inline(always)]
    pub(crate) fn see(cell: &AtomicU64) -> u64 {
        cell.load(twin!("cell-relaxed": Acquire => Relaxed))
    }

    /// Takes a chunk by swapping its cell, after the chunk's extent and bound were stored. Returns
    /// whether the cell was still `seen`.
    #[inline(always)]
    pub(crate) fn take(cell: &AtomicU64, seen: u64, taken: u64) -> bool {
        may_die!();
        let order = twin!("cell-unreleased": Release => Relaxed);
        cell.compare_exchange(seen, taken, order, Relaxed).is_ok()
    }

    /// Stores the beginning or the end of the next chunk. The caller has seen that the claim word
    /// is beyond the caller's last chunk.
    #[inline(always)]
    pub(crate) fn intend(word: &AtomicU64, seq: u64) {
        may_die!();
        word.store(seq, twin!("chunk-unreleased": Release => Relaxed));
    }

    /// Loads the beginning or the end of a worker's chunk, after a cell has named that worker. If
    /// the worker has stored another chunk since, the caller sees that the claim word has moved.
    #[inline(always)]
    pub(crate) fn see_intent(word: &AtomicU64) -> u64 {
        word.load(twin!("chunk-relaxed": Acquire => Relaxed))
    }
}
