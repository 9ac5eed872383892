//! The ordering edges of the protocol: one module per edge, one function per end.
//!
//! An edge orders two threads. One thread's accesses before its store of a word precede the other
//! thread's accesses after its load of that word. The module's name is the edge's label:
//! `edge::slot_published` is `SYNC[slot-published]` in PROTOCOL.md, which states the argument. Each
//! module has both ends of its edge side by side. The compiler rejects an edge that does not exist,
//! and `cargo xtask tidy` checks that each end is used and each label is explained.
//!
//! Invariants
//! - I1: every ordering of the library that is stronger than `Relaxed` is in these modules, except
//!   the orderings of the count of owners (`ring/owner_count.rs`). The count of owners works as
//!   `Arc`'s reference count does.
//! - I2: no load or store is `SeqCst`. A fence is `SeqCst` where a store must come before a later
//!   load of another word.
//!
//! A twin may weaken only one of several uses of an edge's load or store. The weakened use then
//! calls a function of its own, whose body names the twin.

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

    /// Stores the position that a joining member pins. The previous member's accesses come before
    /// this store of the pin.
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
    /// position as an error if another thread moved it.
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

    /// Loads the claim word. Through a load of the claim word, a worker may read events whose
    /// publication only another worker saw.
    #[inline(always)]
    pub(crate) fn see(claim: &AtomicU64) -> u64 {
        claim.load(twin!("word-relaxed": Acquire => Relaxed))
    }

    /// Takes a chunk by moving the claim word, after the worker stored its bound. The load that
    /// returned `seen` was an acquire load, so a failed swap need not acquire.
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

/// A worker leaves the rest of its chunk to another worker.
pub(crate) mod orphaned {
    use super::*;

    /// Adds 1 to the number of orphans, after the orphan was stored under the lock. The lock under
    /// which the orphan is stored orders the accesses to the orphan's data.
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

/// The sole remaining maker claims without a swap. The sole maker's claims come after the last
/// claims of all former makers.
pub(crate) mod left_alone {
    use super::*;

    /// Subtracts one maker from the count, after the maker's last claim.
    #[inline(always)]
    pub(crate) fn leave(makers: &AtomicU64, one: u64) {
        makers.fetch_sub(one, twin!("left-relaxed": Release => Relaxed));
    }

    /// Loads the number of makers, before a claim.
    #[inline(always)]
    pub(crate) fn see(makers: &AtomicU64) -> u64 {
        makers.load(twin!("alone-relaxed": Acquire => Relaxed))
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

    /// Subtracts one member from the count. The member accesses no event after this subtraction.
    #[inline(always)]
    pub(crate) fn count_out(members: &AtomicU64) {
        members.fetch_sub(1, twin!("left-unreleased": Release => Relaxed));
    }

    /// Loads the number of members, before a passer passes the positions of former members.
    #[inline(always)]
    pub(crate) fn see(members: &AtomicU64) -> u64 {
        members.load(twin!("left-unseen": Acquire => Relaxed))
    }
}

/// The edge `joined` is between a member that joins a tap and a passer of that tap. At least one of
/// the member and the passer sees the other's store.
pub(crate) mod joined {
    use super::*;

    /// Orders the joiner's pin before its loads of the passers' announced positions.
    #[inline(always)]
    pub(crate) fn fence_joiner() {
        twin!("joiner-unfenced": fence(SeqCst) => ());
    }

    /// Orders a passer's announced position before the passer's loads of the members' bounds.
    #[inline(always)]
    pub(crate) fn fence_passer() {
        twin!("passer-unfenced": fence(SeqCst) => ());
    }
}

/// The closed bit publishes the last position.
pub(crate) mod closed {
    use super::*;

    /// Sets the closed bit, after the last position was stored.
    #[inline(always)]
    pub(crate) fn close(bits: &AtomicU32, closed: u32) {
        bits.fetch_or(closed, twin!("closed-relaxed": Release => Relaxed));
    }

    /// Loads the status bits. After this load of the status bits, the caller reads the last
    /// position and the events before that position.
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

/// A mark publishes one complete put in a mirror's slot.
pub(crate) mod mirrored {
    use super::*;

    /// Stores the mark of a complete put, after the writer has stored the words of the put.
    #[inline(always)]
    pub(crate) fn put(mark: &AtomicU64, done: u64) {
        mark.store(done, twin!("put-relaxed": Release => Relaxed));
    }

    /// Loads the mark of a put, before the caller loads the words of the put.
    #[inline(always)]
    pub(crate) fn see(mark: &AtomicU64) -> u64 {
        mark.load(twin!("put-seen-relaxed": Acquire => Relaxed))
    }
}

/// If an observer copied a word of a later put, the observer sees that later put's mark.
pub(crate) mod overwritten {
    use super::*;

    /// Orders the writer's store of the mark *being written* before the stores of the put's words.
    #[inline(always)]
    pub(crate) fn fence_writer() {
        twin!("writer-unfenced": fence(Release) => ());
    }

    /// Orders the observer's loads of a put's words before the second load of the put's mark.
    #[inline(always)]
    pub(crate) fn fence_observer() {
        twin!("observer-unfenced": fence(Acquire) => ());
    }
}

/// The count of completed puts publishes the completed puts.
pub(crate) mod completed {
    use super::*;

    /// Stores the number of completed puts, after the writer has stored the mark of the last
    /// completed put.
    #[inline(always)]
    pub(crate) fn complete(count: &AtomicU64, done: u64) {
        count.store(done, twin!("completed-relaxed": Release => Relaxed));
    }

    /// Loads the number of completed puts. The caller loads the marks of these puts after this
    /// load.
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

    /// Loads whether the mirror is closed, before the marks of the last puts are loaded.
    #[inline(always)]
    pub(crate) fn see(closed: &AtomicU32) -> u32 {
        closed.load(twin!("mirror-closed-seen-relaxed": Acquire => Relaxed))
    }
}
