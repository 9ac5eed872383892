//! The ordering edges of the protocol: one module per edge, one function per end. In most edges,
//! one thread stores a value that another thread loads. Everything that the first thread did before
//! its store happens before everything that the second thread does after its load.
//!
//! A module has the name of its edge's label: PROTOCOL.md explains `edge::slot_published` under
//! `SYNC[slot-published]`. `cargo xtask tidy` checks that the library calls each function, and that
//! PROTOCOL.md explains each edge.
//!
//! Callers name each edge directly below `edge`, even if the edge lies in a file of its own. The
//! edges that only rings between processes have are in `between_processes.rs`. `announced` has its
//! own file, because the wait queue's models compile that file a second time.
//!
//! Invariants
//! - I1: every ordering of the library that is stronger than `Relaxed` is in these modules, except
//!   the orderings of the count of owners (`ring/owner_count.rs`), which follows the reference
//!   count of an `Arc`.
//! - I2: no load or store is `SeqCst`. A fence is `SeqCst` where a store must come before a later
//!   load of another word.
//!
//! A twin is a weakened variant that a model must catch. If a twin weakens only one load or store,
//! that access is a separate edge function.

pub(crate) mod announced;
mod between_processes;
pub(crate) mod turn_taken;

pub(crate) use between_processes::{bounded, cell_taken, intended, last_out, seated};

// These imports use `super`, because `queue_model.rs` puts the simulated machine's `sync` and
// `system` there for `announced`.
use super::sync::{
    self, AcqRel, Acquire, AtomicU32, AtomicU64, AtomicUsize, Relaxed, Release, SeqCst, fence,
    may_die, twin,
};
use super::system;

/// A stamp publishes the events of a run, or declares the run's slots a tombstone.
pub(crate) mod slot_published {
    use super::*;

    /// Stores a stamp, after the events of its run were written.
    #[inline(always)]
    pub(crate) fn stamp(slot: &AtomicU64, word: u64) {
        may_die!();
        slot.store(word, twin!("stamp-relaxed": Release => Relaxed));
    }

    /// Stores a stamp in a slot in which another producer may record the claim at the same time
    /// (`intended`). Outside of models, a plain store suffices: the other producer's swap expects
    /// an earlier stamp, so it either precedes the store or fails (C++20, [atomics.order]/10). Loom
    /// orders a store only after those swaps that the storing thread has seen, so models swap
    /// instead.
    #[cfg(slipring_loom)]
    pub(crate) fn stamp_recorded(slot: &AtomicU64, word: u64) {
        may_die!();
        slot.swap(word, twin!("stamp-relaxed": Release => Relaxed));
    }

    /// Loads a stamp, before the events of its run are read.
    #[inline(always)]
    pub(crate) fn see(slot: &AtomicU64) -> u64 {
        slot.load(twin!("stamp-seen-relaxed": Acquire => Relaxed))
    }
}

/// The cursor of a single producer publishes all events below the cursor.
pub(crate) mod cursor_moved {
    use super::*;

    /// Stores the cursor, after the producer has written the events below the cursor.
    #[inline(always)]
    pub(crate) fn move_to(cursor: &AtomicU64, end: u64) {
        may_die!();
        cursor.store(end, twin!("cursor-relaxed": Release => Relaxed));
    }

    /// Loads the cursor, before the caller reads the events below the cursor.
    #[inline(always)]
    pub(crate) fn see(cursor: &AtomicU64) -> u64 {
        cursor.load(twin!("cursor-seen-relaxed": Acquire => Relaxed))
    }
}

/// A stage's frontier releases events to the later stages and to the producers. Each worker of a
/// pool, and each member of a tap, stores a *bound*: the position at which it holds up other
/// parties. A party that waits for a pool or a tap stops at the lowest of these bounds.
pub(crate) mod released {
    use super::*;

    /// Stores a position after the handler has returned for every event before that position.
    #[inline(always)]
    pub(crate) fn release(line: &AtomicU64, word: u64) {
        may_die!();
        line.store(word, twin!("released-relaxed": Release => Relaxed));
    }

    /// Stores the first position of a worker's next chunk as its bound, before the worker takes the
    /// chunk.
    #[inline(always)]
    pub(crate) fn bind(bound: &AtomicU64, word: u64) {
        may_die!();
        bound.store(word, twin!("bound-unreleased": Release => Relaxed));
    }

    /// Stores the position that a joining member pins. All accesses by the seat's previous member
    /// come before this store.
    #[inline(always)]
    pub(crate) fn pin(bound: &AtomicU64, word: u64) {
        may_die!();
        bound.store(word, twin!("pin-unreleased": Release => Relaxed));
    }

    /// Loads the frontier of a stage that has a single handle.
    #[inline(always)]
    pub(crate) fn see(line: &AtomicU64) -> u64 {
        line.load(twin!("frontier-relaxed": Acquire => Relaxed))
    }

    /// Loads the bound of a pool's worker or a tap's member: the position at which it holds up
    /// other parties.
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
}

/// The sentinel gates the producers of a graph without a gating stage.
pub(crate) mod sentinel {
    use super::*;

    /// Moves the sentinel over a run whose stamp this thread saw. Returns the sentinel's position
    /// as an error if another thread moved it first.
    #[inline(always)]
    pub(crate) fn advance(sentinel: &AtomicU64, from: u64, to: u64) -> Result<u64, u64> {
        let order = twin!("sentinel-unreleased": Release => Relaxed);
        let lost = twin!("sentinel-lost-relaxed": Acquire => Relaxed);
        sentinel.compare_exchange(from, to, order, lost)
    }

    /// Loads the sentinel, before this thread moves it.
    #[inline(always)]
    pub(crate) fn see(sentinel: &AtomicU64) -> u64 {
        sentinel.load(twin!("sentinel-relaxed": Acquire => Relaxed))
    }

    /// Loads the sentinel for a tap that directly follows the producers, or for a stage behind such
    /// a tap.
    #[inline(always)]
    pub(crate) fn see_behind(sentinel: &AtomicU64) -> u64 {
        sentinel.load(twin!("sentinel-seen-relaxed": Acquire => Relaxed))
    }
}

/// A pool's claim word hands chunks to workers.
pub(crate) mod chunk_taken {
    use super::*;

    /// Loads the claim word. It holds a position, and how many published events remain in the run
    /// at that position. The worker may read these events without loading the run's stamp.
    #[inline(always)]
    pub(crate) fn see(claim: &AtomicU64) -> u64 {
        claim.load(twin!("word-relaxed": Acquire => Relaxed))
    }

    /// Takes a chunk for a worker by moving the claim word, after the worker's bound was stored. A
    /// failed compare-and-swap needs no acquire ordering, because the worker then calls `see`,
    /// which acquires.
    #[inline(always)]
    pub(crate) fn take(claim: &AtomicU64, seen: u64, taken: u64) -> Result<u64, u64> {
        may_die!();
        let order = twin!("swap-unreleased": Release => Relaxed);
        twin!("take-by-store": claim.compare_exchange(seen, taken, order, Relaxed) => {
            claim.store(taken, Release);
            Ok(seen)
        })
    }

    /// Adds `positions` to the claim word, and returns the word before. The worker takes these
    /// positions, after an earlier bound was stored.
    #[inline(always)]
    pub(crate) fn draw(claim: &AtomicU64, positions: u64) -> u64 {
        let order = twin!("draw-unreleased": Release => Relaxed);
        twin!("drawn-by-store": claim.fetch_add(positions, order) => {
            let word = claim.load(Relaxed);
            claim.store(word.wrapping_add(positions), Release);
            word
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

    /// Leaves a seat and its chunk to another worker, after the last access to the chunk's events.
    #[inline(always)]
    pub(crate) fn leave(owner: &AtomicU64, word: u64) {
        may_die!();
        owner.store(word, twin!("orphan-unreleased": Release => Relaxed));
    }

    /// Takes over the seat of an orphan: stores the word that `adopt` returns for the seat's owner
    /// word. The adopter may then access the chunk's events. If `adopt` returns `None`, the seat
    /// stays as it is.
    #[inline(always)]
    pub(crate) fn adopt(
        owner: &AtomicU64,
        adopt: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        may_die!();
        owner.fetch_update(twin!("orphan-unacquired": Acquire => Relaxed), Relaxed, adopt)
    }
}

/// The last worker of a pool ends the pool after the releases of all other workers.
pub(crate) mod signed_off {
    use super::*;

    /// Subtracts one worker from the count, and returns the previous number. The subtraction is
    /// acquire-release, so the last worker sees all stores that the other workers made before their
    /// own subtractions.
    #[inline(always)]
    pub(crate) fn count_out(alive: &AtomicUsize) -> usize {
        alive.fetch_sub(1, twin!("signed-off-relaxed": AcqRel => Relaxed))
    }
}

/// A claimant is a handle that can claim, or that can create a handle that claims. A claimant that
/// is left alone claims without a compare-and-swap. Every claim of a claimant that has left happens
/// before the next claim of the remaining claimant.
pub(crate) mod left_alone {
    use super::*;

    /// Subtracts a leaving claimant from the number of claimants, after its last claim.
    #[inline(always)]
    pub(crate) fn leave(claimants: &AtomicU64, one: u64) {
        claimants.fetch_sub(one, twin!("left-relaxed": Release => Relaxed));
    }

    /// Loads the number of claimants. The caller's claim comes after the load.
    #[inline(always)]
    pub(crate) fn see(claimants: &AtomicU64) -> u64 {
        claimants.load(twin!("alone-relaxed": Acquire => Relaxed))
    }
}

/// The last producer handle closes the ring. If another handle has failed, its failure was recorded
/// before that.
pub(crate) mod counted_out {
    use super::*;

    /// Subtracts one producer handle from the count, and returns the previous number. A handle that
    /// failed records its failure before this call. The subtraction is acquire-release, so the last
    /// handle sees the failures that all other handles have recorded.
    #[inline(always)]
    pub(crate) fn count_out(producers: &AtomicUsize) -> usize {
        producers.fetch_sub(1, AcqRel)
    }
}

/// A member leaves its tap, and the stages behind the tap no longer wait for it. If the member's
/// process died, the process that recovers it takes these steps.
pub(crate) mod left {
    use super::*;

    /// Stores `idle` as the member's bound, so that it gates no event. The member accesses no event
    /// after this store.
    #[inline(always)]
    pub(crate) fn unbind(bound: &AtomicU64, idle: u64) {
        may_die!();
        bound.store(idle, twin!("idle-unreleased": Release => Relaxed));
    }

    /// Clears a leaving member's bit in the word of the tap's members. After this call the member
    /// accesses no event. A repeated call changes nothing.
    #[inline(always)]
    pub(crate) fn clear(members: &AtomicU64, bit: u64) {
        may_die!();
        members.fetch_and(!bit, twin!("left-unreleased": Release => Relaxed));
    }

    /// Like [`clear`], but for a tap whose word counts the members. Each member may be counted out
    /// only once.
    #[inline(always)]
    pub(crate) fn count_out(members: &AtomicU64) {
        may_die!();
        members.fetch_sub(1, Release);
    }

    /// Loads the word of a tap's members. A member whose bit is clear does not hold up the caller.
    /// If the word counts the members and is 0, no member holds up the caller.
    #[inline(always)]
    pub(crate) fn see(members: &AtomicU64) -> u64 {
        members.load(twin!("left-unseen": Acquire => Relaxed))
    }
}

/// A member joins a tap while another party (a stage or producer) is about to pass it. The member
/// stores the position that it pins, the passer announces the position up to which it will pass,
/// and at least one of them sees the other's position.
pub(crate) mod joined {
    use super::*;

    /// A joining member calls this after it has stored the position that it pins, and before it
    /// loads the positions that parties behind the tap have announced.
    #[inline(always)]
    pub(crate) fn fence_joiner() {
        twin!("joiner-unfenced": fence(SeqCst) => ());
    }

    /// A stage or producer behind a tap calls this after it has announced a position, and before it
    /// loads the bounds of the tap's members.
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
        may_die!();
        bits.fetch_or(closed, twin!("closed-relaxed": Release => Relaxed));
    }

    /// Loads the status bits. If the closed bit is set, the caller may read the last position of
    /// the stream and all events before that position.
    #[inline(always)]
    pub(crate) fn see(bits: &AtomicU32) -> u32 {
        bits.load(twin!("closed-seen-relaxed": Acquire => Relaxed))
    }
}

/// If the failed bit is set, the graph's failure is already stored. If this process stored it, a
/// lock guards it. If another process stored it, it is in a record, and a thread that sees the bit
/// also sees the record.
pub(crate) mod failed {
    use super::*;

    /// Sets the failed bit, while the caller holds the lock of the failure.
    #[inline(always)]
    pub(crate) fn fail(bits: &AtomicU32, failed: u32) {
        bits.fetch_or(failed, twin!("failed-unreleased": Release => Relaxed));
    }

    /// Marks the record of a failure as written, after its words were stored. Other processes read
    /// the record without the lock.
    #[inline(always)]
    pub(crate) fn record(state: &AtomicU64, written: u64) {
        state.store(written, twin!("record-unreleased": Release => Relaxed));
    }

    /// Loads whether the record of a failure is written, before the caller loads its words.
    #[inline(always)]
    pub(crate) fn see_record(state: &AtomicU64) -> u64 {
        state.load(twin!("record-seen-relaxed": Acquire => Relaxed))
    }

    /// Loads the status bits, before the caller takes the lock of the failure or reads the record.
    #[inline(always)]
    pub(crate) fn see(bits: &AtomicU32) -> u32 {
        bits.load(twin!("failed-seen-relaxed": Acquire => Relaxed))
    }
}

/// A *put* stores one value in a slot of a mirror. When the value is complete, the put publishes it
/// by the slot's mark word.
pub(crate) mod mirrored {
    use super::*;

    /// Stores the mark word of a slot, after the writer has stored the value's words in it.
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

/// An observer loads a slot's mark word before and after it copies the value. If the copy contains
/// a word of a newer value, the second load finds a newer mark.
pub(crate) mod overwritten {
    use super::*;

    /// A mirror's writer calls this after it has marked a slot as unfinished, and before it stores
    /// the put's words.
    #[inline(always)]
    pub(crate) fn fence_writer() {
        twin!("writer-unfenced": fence(Release) => ());
    }

    /// Called by an observer that has loaded a put's words, before it loads the slot's mark word
    /// again.
    #[inline(always)]
    pub(crate) fn fence_observer() {
        twin!("observer-unfenced": fence(Acquire) => ());
    }
}

/// An observer that has loaded the number of completed puts sees their values, unless later puts
/// have overwritten them.
pub(crate) mod completed {
    use super::*;

    /// Stores the doubled number of completed puts, after the writer has stored the mark word of
    /// the last completed put.
    #[inline(always)]
    pub(crate) fn complete(count: &AtomicU64, done: u64) {
        count.store(done, twin!("completed-relaxed": Release => Relaxed));
    }

    /// Loads the doubled number of completed puts, before the caller loads the puts' mark words.
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

/// A promise and its waiter meet in one word, which each of them changes by additions. The promise
/// settles the word: it adds a number that says that the value is there, or that there will be no
/// value. The waiter adds a number that says that it sleeps.
pub(crate) mod settled {
    use super::*;

    /// Settles a promise, after its value was written. Returns the previous word. If the word says
    /// that a sleeper is registered, the caller may read the sleeper; if it says that the waiter is
    /// gone, the caller may free the allocation.
    #[inline(always)]
    pub(crate) fn settle(word: &AtomicU32, outcome: u32) -> u32 {
        let order = twin!("settled-unreleased": AcqRel => Acquire);
        let order = twin!("settled-unacquired": order => Release);
        word.fetch_add(outcome, order)
    }

    /// Loads the word, before the waiter reads the value or frees the allocation.
    #[inline(always)]
    pub(crate) fn see(word: &AtomicU32) -> u32 {
        word.load(twin!("settled-seen-relaxed": Acquire => Relaxed))
    }

    /// Registers a sleeper that the caller has stored, unless the promise is settled.
    #[inline(always)]
    pub(crate) fn register(word: &AtomicU32, pending: u32, asleep: u32) -> bool {
        let order = twin!("sleeper-unreleased": Release => Relaxed);
        twin!("registered-by-store": word.compare_exchange(pending, asleep, order, Relaxed).is_ok()
            => {
                word.store(asleep, Release);
                true
            }
        )
    }
}

/// A promise and its waiter share an allocation. The half that uses the allocation last frees it,
/// after all uses by the other half.
pub(crate) mod last_used {
    use super::*;

    /// Adds `abandoned` to the word, which marks that the waiter no longer uses the allocation.
    /// Returns the previous word. If it shows that the promise no longer uses the allocation
    /// either, the caller may read the value and free the allocation.
    #[inline(always)]
    pub(crate) fn abandon(word: &AtomicU32, abandoned: u32) -> u32 {
        let order = twin!("abandoned-unreleased": AcqRel => Acquire);
        let order = twin!("abandoned-unacquired": order => Release);
        word.fetch_add(abandoned, order)
    }

    /// Subtracts `asleep`, the number that marks a sleeping waiter, after the thread that settles
    /// the promise has taken the sleeper out of the allocation. Returns the previous word, which
    /// says whether the waiter still uses the allocation.
    #[inline(always)]
    pub(crate) fn take_sleeper(word: &AtomicU32, asleep: u32) -> u32 {
        let order = twin!("sleeper-taken-unreleased": AcqRel => Acquire);
        let order = twin!("sleeper-taken-unacquired": order => Release);
        word.fetch_sub(asleep, order)
    }
}

/// A thread gives its number back when it ends, and a later thread takes the number. The later
/// thread sees all that the earlier one did under the number.
pub(crate) mod number_returned {
    use super::*;

    /// Takes the lowest bit that no thread has. Returns `None` if each bit is taken.
    #[inline]
    pub(crate) fn take_lowest(word: &AtomicU64) -> Option<u32> {
        let mut taken = word.load(Relaxed);
        while taken != u64::MAX {
            let (bit, order) = (taken.trailing_ones(), Acquire);
            let order = twin!("number-taken-relaxed": order => Relaxed);
            let swapped = twin!("number-taken-by-store":
                word.compare_exchange(taken, taken | 1 << bit, order, Relaxed) => {
                    word.store(taken | 1 << bit, Release);
                    Ok(taken)
                }
            );
            match swapped {
                Ok(_) => return Some(bit),
                Err(now) => taken = now,
            }
        }
        None
    }

    /// Gives a bit back, after the thread's last use of what the number names.
    #[inline]
    pub(crate) fn give_back(word: &AtomicU64, bit: u64) {
        word.fetch_and(!bit, twin!("number-returned-relaxed": Release => Relaxed));
    }
}
