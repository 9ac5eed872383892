//! The ordering edges of the protocol: one module per edge, one function per end.
//!
//! Most edges order two threads by one word: a thread stores a value in the word, and another
//! thread loads that value. The storing thread's accesses before the store come before the loading
//! thread's accesses after the load of the stored value. The module's name is the edge's label:
//! PROTOCOL.md explains `edge::slot_published` under `SYNC[slot-published]`. Each module has both
//! ends of its edge side by side. The compiler rejects an edge that does not exist. The command
//! `cargo xtask tidy` checks that each end is used, and that PROTOCOL.md explains each label.
//!
//! Invariants
//! - I1: every ordering of the library that is stronger than `Relaxed` is in these modules, except
//!   the orderings of the count of owners (`ring/owner_count.rs`). The count of owners works as
//!   `Arc`'s reference count does.
//! - I2: no load or store is `SeqCst`. A fence is `SeqCst` where a store must come before a later
//!   load of another word.
//!
//! A twin is a weakened variant that a model must catch. If a twin weakens only one use of an
//! edge's load or store, that use calls a function of its own, and the function's body names the
//! twin.

pub(crate) mod announced;

// `announced` imports `sync` and `system` by `super`. In `queue_model.rs`, the modules `sync` and
// `system` belong to the simulated machine.
use super::sync::{
    self, AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, SeqCst, fence, twin,
};
use super::system;

/// A stamp publishes the events of a run, or declares the run's slots a tombstone.
pub(crate) mod slot_published {
    use super::*;

    /// Stores a stamp, after the events of its run were written.
    #[inline(always)]
    pub(crate) fn stamp(slot: &AtomicU64, word: u64) {
        slot.store(word, twin!("stamp-relaxed": Release => Relaxed));
    }

    /// Loads a stamp, before the events of its run are read.
    #[inline(always)]
    pub(crate) fn see(slot: &AtomicU64) -> u64 {
        slot.load(twin!("stamp-seen-relaxed": Acquire => Relaxed))
    }
}

/// The cursor of a single producer publishes all events before the cursor.
pub(crate) mod cursor_moved {
    use super::*;

    /// Stores the cursor, after the events before the cursor were written.
    #[inline(always)]
    pub(crate) fn move_to(cursor: &AtomicU64, end: u64) {
        cursor.store(end, twin!("cursor-relaxed": Release => Relaxed));
    }

    /// Loads the cursor, before the caller reads the events before the cursor.
    #[inline(always)]
    pub(crate) fn see(cursor: &AtomicU64) -> u64 {
        cursor.load(twin!("cursor-seen-relaxed": Acquire => Relaxed))
    }
}

/// A stage's frontier, or the bound of a worker or a member, releases events to the later stages
/// and to the producers.
pub(crate) mod released {
    use super::*;

    /// Stores a position after the handler has returned for every event before that position.
    #[inline(always)]
    pub(crate) fn release(line: &AtomicU64, word: u64) {
        line.store(word, twin!("released-relaxed": Release => Relaxed));
    }

    /// Stores a worker's bound before the worker takes its next chunk.
    #[inline(always)]
    pub(crate) fn bind(bound: &AtomicU64, word: u64) {
        bound.store(word, twin!("bound-unreleased": Release => Relaxed));
    }

    /// Stores the position that a joining member pins. The accesses of the seat's previous member
    /// come before the store of the joining member's pin.
    #[inline(always)]
    pub(crate) fn pin(bound: &AtomicU64, word: u64) {
        bound.store(word, twin!("pin-unreleased": Release => Relaxed));
    }

    /// Loads the frontier of a stage with one handle.
    #[inline(always)]
    pub(crate) fn see(line: &AtomicU64) -> u64 {
        line.load(twin!("frontier-relaxed": Acquire => Relaxed))
    }

    /// Loads the bound of a worker or a member.
    #[inline(always)]
    pub(crate) fn see_bound(bound: &AtomicU64) -> u64 {
        bound.load(twin!("bound-relaxed": Acquire => Relaxed))
    }

    /// Loads the position of one shard.
    #[inline(always)]
    pub(crate) fn see_shard(line: &AtomicU64) -> u64 {
        line.load(twin!("shard-relaxed": Acquire => Relaxed))
    }

    /// Loads a stage's frontier for a report.
    #[inline(always)]
    pub(crate) fn see_position(line: &AtomicU64) -> u64 {
        line.load(twin!("position-relaxed": Acquire => Relaxed))
    }

    /// Loads a seat's bound, before a worker takes the seat.
    #[inline(always)]
    pub(crate) fn see_seat(bound: &AtomicU64) -> u64 {
        bound.load(twin!("seat-unacquired": Acquire => Relaxed))
    }
}

/// The sentinel gates the producers of a graph without a gating stage.
pub(crate) mod sentinel {
    use super::*;

    /// Moves the sentinel over a run, after this thread saw the run's stamp. Returns the sentinel's
    /// position as an error if another thread moved the sentinel first.
    #[inline(always)]
    pub(crate) fn advance(sentinel: &AtomicU64, from: u64, to: u64) -> Result<u64, u64> {
        let order = twin!("sentinel-unreleased": Release => Relaxed);
        let lost = twin!("sentinel-lost-relaxed": Acquire => Relaxed);
        sentinel.compare_exchange(from, to, order, lost)
    }

    /// Loads the sentinel before this thread moves the sentinel.
    #[inline(always)]
    pub(crate) fn see(sentinel: &AtomicU64) -> u64 {
        sentinel.load(twin!("sentinel-relaxed": Acquire => Relaxed))
    }

    /// Loads the sentinel for a tap directly behind the producers, and for the stages behind that
    /// tap.
    #[inline(always)]
    pub(crate) fn see_behind(sentinel: &AtomicU64) -> u64 {
        sentinel.load(twin!("sentinel-seen-relaxed": Acquire => Relaxed))
    }
}

/// A pool's claim word hands chunks to workers.
pub(crate) mod chunk_taken {
    use super::*;

    /// Loads the claim word. A worker that loads another worker's value of the claim word may read
    /// the events whose publication that other worker saw.
    #[inline(always)]
    pub(crate) fn see(claim: &AtomicU64) -> u64 {
        claim.load(twin!("word-relaxed": Acquire => Relaxed))
    }

    /// Takes a chunk by moving the claim word, after the worker stored its bound. A failed
    /// compare-and-swap needs no acquire ordering, because the worker loads the claim word again.
    #[inline(always)]
    pub(crate) fn take(claim: &AtomicU64, seen: u64, taken: u64) -> Result<u64, u64> {
        let order = twin!("swap-unreleased": Release => Relaxed);
        twin!("take-by-store": claim.compare_exchange(seen, taken, order, Relaxed) => {
            claim.store(taken, Release);
            Ok(seen)
        })
    }

    /// Loads the claim word, before the workers' bounds are loaded.
    #[inline(always)]
    pub(crate) fn see_for_frontier(claim: &AtomicU64) -> u64 {
        claim.load(twin!("frontier-word-relaxed": Acquire => Relaxed))
    }
}

/// A worker that is dropped in the middle of a chunk leaves the rest of the chunk, an orphan, to
/// another worker of the pool.
pub(crate) mod orphaned {
    use super::*;

    /// Adds 1 to the number of orphans, after the orphan was stored under the lock of the orphans.
    /// The lock orders the accesses to the orphan's data.
    #[inline(always)]
    pub(crate) fn leave(count: &AtomicUsize) {
        count.fetch_add(1, Relaxed);
    }

    /// Loads the number of orphans, before the caller takes the lock of the orphans.
    #[inline(always)]
    pub(crate) fn see(count: &AtomicUsize) -> usize {
        count.load(Relaxed)
    }
}

/// The last worker of a pool ends the pool after the releases of all other workers.
pub(crate) mod signed_off {
    use super::*;

    /// Subtracts one worker from the count and returns the previous number of workers. `count_out`
    /// is both a release and an acquire, so the releases of events by all other workers happen
    /// before the last worker's call returns.
    #[inline(always)]
    pub(crate) fn count_out(alive: &AtomicUsize) -> usize {
        alive.fetch_sub(1, twin!("signed-off-relaxed": AcqRel => Relaxed))
    }
}

/// A claimant is a handle that can claim, or that can create a handle that claims. If only one
/// claimant is left, that claimant claims without a compare-and-swap. The sole claimant's claims
/// come after the last claims of all former claimants.
pub(crate) mod left_alone {
    use super::*;

    /// Subtracts one from the number of claimants, after the subtracted claimant's last claim.
    #[inline(always)]
    pub(crate) fn leave(claimants: &AtomicU64, one: u64) {
        claimants.fetch_sub(one, twin!("left-relaxed": Release => Relaxed));
    }

    /// Loads the number of claimants, before the caller's claim.
    #[inline(always)]
    pub(crate) fn see(claimants: &AtomicU64) -> u64 {
        claimants.load(twin!("alone-relaxed": Acquire => Relaxed))
    }
}

/// The last producer handle closes the ring. Any other producer handle that fails records its
/// failure before the last handle closes the ring.
pub(crate) mod counted_out {
    use super::*;

    /// Subtracts one producer handle from the count, after a failed handle has recorded its
    /// failure. Returns the previous number of producer handles. `count_out` is both a release and
    /// an acquire, so the last handle sees the failures that all other handles have recorded.
    #[inline(always)]
    pub(crate) fn count_out(producers: &AtomicUsize) -> usize {
        producers.fetch_sub(1, AcqRel)
    }
}

/// A member leaves its tap, and the stages behind the tap no longer wait for that member.
pub(crate) mod left {
    use super::*;

    /// Stores `idle` as the member's bound, so that the bound gates no event. The member accesses
    /// no event after this store.
    #[inline(always)]
    pub(crate) fn unbind(bound: &AtomicU64, idle: u64) {
        bound.store(idle, twin!("idle-unreleased": Release => Relaxed));
    }

    /// Subtracts one member from the count of the tap's members. The subtracted member accesses no
    /// event afterwards.
    #[inline(always)]
    pub(crate) fn count_out(members: &AtomicU64) {
        members.fetch_sub(1, twin!("left-unreleased": Release => Relaxed));
    }

    /// Loads the number of a tap's members, before the caller passes positions that former members
    /// of the tap have held.
    #[inline(always)]
    pub(crate) fn see(members: &AtomicU64) -> u64 {
        members.load(twin!("left-unseen": Acquire => Relaxed))
    }
}

/// The edge `joined` is between a member that joins a tap and a passer, a party that goes past the
/// tap. The member stores its pinned position, and the passer stores the position that it
/// announces. At least one of the member and the passer sees the other's store.
pub(crate) mod joined {
    use super::*;

    /// Orders a joining member's store of its pinned position before the member's loads of the
    /// positions that parties behind the tap have announced.
    #[inline(always)]
    pub(crate) fn fence_joiner() {
        twin!("joiner-unfenced": fence(SeqCst) => ());
    }

    /// Orders a store of an announced position before the loads of the tap members' bounds. A party
    /// announces a position before the party passes the tap.
    #[inline(always)]
    pub(crate) fn fence_passer() {
        twin!("passer-unfenced": fence(SeqCst) => ());
    }
}

/// A thread that sees the closed bit also sees the last position of the stream, which was stored
/// before the bit was set.
pub(crate) mod closed {
    use super::*;

    /// Sets the closed bit, after the caller has stored the last position of the stream.
    #[inline(always)]
    pub(crate) fn close(bits: &AtomicU32, closed: u32) {
        bits.fetch_or(closed, twin!("closed-relaxed": Release => Relaxed));
    }

    /// Loads the status bits. If the closed bit is set, the caller may read the last position of
    /// the stream and all events before that position.
    #[inline(always)]
    pub(crate) fn see(bits: &AtomicU32) -> u32 {
        bits.load(twin!("closed-seen-relaxed": Acquire => Relaxed))
    }
}

/// The failed bit says that a failure is stored under the lock.
pub(crate) mod failed {
    use super::*;

    /// Sets the failed bit, while the caller holds the lock of the failure.
    #[inline(always)]
    pub(crate) fn fail(bits: &AtomicU32, failed: u32) {
        bits.fetch_or(failed, Relaxed);
    }

    /// Loads the status bits, before the caller takes the lock of the failure.
    #[inline(always)]
    pub(crate) fn see(bits: &AtomicU32) -> u32 {
        bits.load(Relaxed)
    }
}

/// Each slot of a mirror has a mark word, which publishes one complete put in the slot.
pub(crate) mod mirrored {
    use super::*;

    /// Stores the mark word of a slot, after the writer has stored the value's words in the slot.
    #[inline(always)]
    pub(crate) fn put(mark: &AtomicU64, done: u64) {
        mark.store(done, twin!("put-relaxed": Release => Relaxed));
    }

    /// Loads the mark word of a slot, before the caller loads the value's words from the slot.
    #[inline(always)]
    pub(crate) fn see(mark: &AtomicU64) -> u64 {
        mark.load(twin!("put-seen-relaxed": Acquire => Relaxed))
    }
}

/// If an observer has copied a word of a later put, the observer sees the later put in the slot's
/// mark word.
pub(crate) mod overwritten {
    use super::*;

    /// Orders the writer's store of the value *being written* in a slot's mark word before the
    /// stores of the put's words.
    #[inline(always)]
    pub(crate) fn fence_writer() {
        twin!("writer-unfenced": fence(Release) => ());
    }

    /// Orders the observer's loads of a put's words before its second load of the slot's mark word.
    #[inline(always)]
    pub(crate) fn fence_observer() {
        twin!("observer-unfenced": fence(Acquire) => ());
    }
}

/// The count of completed puts publishes the completed puts.
pub(crate) mod completed {
    use super::*;

    /// Stores the number of completed puts, after the writer has stored the mark word of the last
    /// completed put.
    #[inline(always)]
    pub(crate) fn complete(count: &AtomicU64, done: u64) {
        count.store(done, twin!("completed-relaxed": Release => Relaxed));
    }

    /// Loads the number of completed puts, before the caller loads the mark words of the completed
    /// puts.
    #[inline(always)]
    pub(crate) fn see(count: &AtomicU64) -> u64 {
        count.load(twin!("completed-seen-relaxed": Acquire => Relaxed))
    }
}

/// The closed word says that the writer of a mirror was dropped.
pub(crate) mod mirror_closed {
    use super::*;

    /// Stores that the mirror is closed, after the writer has completed the last put.
    #[inline(always)]
    pub(crate) fn close(closed: &AtomicU32) {
        closed.store(1, twin!("mirror-closed-relaxed": Release => Relaxed));
    }

    /// Loads whether the mirror is closed, before the caller loads the mark words of the last puts.
    #[inline(always)]
    pub(crate) fn see(closed: &AtomicU32) -> u32 {
        closed.load(twin!("mirror-closed-seen-relaxed": Acquire => Relaxed))
    }
}
