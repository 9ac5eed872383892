//! The words that a process leaves on its seat, and how other processes read them.
//!
//! The module [`seat`](crate::ring::seat) has the type [`Seat`] itself, its invariants, and the
//! methods that take and free a seat.

use std::ops::Range;

use crate::base::edge;
use crate::base::sync::{Relaxed, may_die, twin};
use crate::ring::seat::{GENERATION, ORPHAN, PARTICIPANT, Seat, taken_from};

/// Deaths.
impl Seat {
    /// Returns how many owners of the seat have died.
    pub fn deaths(&self) -> u32 {
        self.deaths.load(Relaxed) as u32
    }

    /// If the seat's last owner died and was recovered, and the seat has been free or an orphan
    /// since then (I4), returns that owner's process id. The result is `Some(0)` if the process id
    /// is not known.
    pub(crate) fn last_death(&self) -> Option<u32> {
        let owner = edge::seated::see(&self.owner);
        let is_left = matches!(owner & PARTICIPANT, 0 | ORPHAN);
        if !is_left || owner == 0 || self.deaths.load(Relaxed) >> 32 != owner >> 32 {
            return None;
        }
        let found = self.found_dead.load(Relaxed);
        Some(if found >> 32 == owner >> 32 { found as u32 } else { 0 })
    }

    /// Notes that the participant `dead` is dead, if this participant owns the seat and `proof`
    /// proves its death. Returns whether both conditions hold. `proof` returns the dead
    /// participant's process id. The method calls it after it has loaded the owner, so the proof is
    /// for this owner. Any process may call this method.
    pub fn find_dead(&self, dead: u32, proof: impl FnOnce() -> Option<u32>) -> bool {
        let owner = edge::seated::see(&self.owner);
        if owner & PARTICIPANT != u64::from(dead) {
            return false;
        }
        let Some(pid) = proof() else { return false };
        let found = owner & !PARTICIPANT | u64::from(pid);
        let is_later =
            |noted: u64| ((owner >> 32) as u32).wrapping_sub((noted >> 32) as u32) as i32 > 0;
        may_die!();
        // A process that was delayed does not replace the note of a later owner's death.
        let note = |noted| is_later(noted).then_some(found);
        let _ = self.found_dead.fetch_update(Relaxed, Relaxed, note); // SYNC[last-out]: before the lock
        true
    }

    /// Forgets that the last owner died, if the seat has been free since then. The caller has
    /// another seat of the party, so no party waits because of this death (I4).
    pub(crate) fn forget_death(&self) {
        let owner = self.owner.load(Relaxed);
        if owner & PARTICIPANT == 0 && self.last_death().is_some() {
            // The change acts as if a process took the seat and freed it at once. It is part of the
            // release sequence of the earlier free, and so synchronises as that free does.
            let freed = owner.wrapping_add(GENERATION);
            let _ = self.owner.compare_exchange(owner, freed, Relaxed, Relaxed); // SYNC[seated]
        }
    }

    /// Counts the death of the seat's owner, and frees the seat. Each step may be repeated, because
    /// the recovering process may die, too.
    pub fn bury(&self, dead: u32) {
        let owner = self.owner.load(Relaxed);
        if owner & PARTICIPANT != u64::from(dead) {
            return;
        }
        twin!("freed-before-counted": () => self.free(dead));
        self.count_death(owner);
        self.free(dead);
    }

    /// Like [`Seat::bury`], but for an owner whose party has another living handle. Afterwards the
    /// seat is free, as if another process had taken the seat and left it (I4).
    pub(crate) fn bury_beside_others(&self, dead: u32) {
        let owner = self.owner.load(Relaxed);
        if owner & PARTICIPANT == u64::from(dead) {
            self.count_death(owner);
            edge::seated::free(&self.owner, (owner & !PARTICIPANT).wrapping_add(GENERATION));
        }
    }

    /// Counts the death of the owner `owner`, once for each generation.
    fn count_death(&self, owner: u64) {
        let deaths = self.deaths.load(Relaxed);
        if twin!("generation-uncompared": deaths >> 32 != owner >> 32 => true) {
            // The count and the generation change in one store, so that a repeated recovery does
            // not count the death again.
            let count = (deaths as u32).wrapping_add(1);
            may_die!();
            self.deaths.store(owner & !PARTICIPANT | u64::from(count), Relaxed);
        }
    }
}

/// The words of a stage's seat that tell a successor where to begin.
impl Seat {
    /// Returns the position up to which the stage was lent events.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Stores that the stage is lent all events before `end` (I2).
    #[inline(always)]
    pub(crate) fn hold(&self, end: u64) {
        edge::seated::lend(&self.held, end);
    }

    /// Returns the end of the last run that the stage has found (I3).
    pub fn boundary(&self) -> u64 {
        edge::bounded::see(&self.boundary)
    }

    /// Stores the end of the last run that the stage has found, before a release (I3).
    #[inline(always)]
    pub(crate) fn bound(&self, end: u64) {
        edge::bounded::bound(&self.boundary, end);
    }
}

/// Workers. See [`worker`](crate::processes::worker).
impl Seat {
    /// Stores the chunk that the owner is about to take: its begin and end, and the number of
    /// events that are left in the run behind the chunk. The seat's bound is idle.
    #[inline(always)]
    pub(crate) fn intend_chunk(&self, chunk: &Range<u64>, left: u64) {
        edge::cell_taken::intend(&self.lo, chunk.start);
        edge::cell_taken::intend(&self.hi, chunk.end);
        may_die!();
        self.left.store(left, Relaxed);
    }

    /// Returns the values that [`Seat::intend_chunk`] stored last. If the owner stores another
    /// chunk meanwhile, the values may be a mixture of both chunks.
    pub fn chunk(&self) -> (Range<u64>, u64) {
        let lo = edge::cell_taken::see_intent(&self.lo);
        (lo..edge::cell_taken::see_intent(&self.hi), self.left.load(Relaxed))
    }

    /// Leaves the seat's chunk to another worker. The seat's bound is the first unfinished position
    /// of the chunk. The caller owns the seat, or holds the proof of the owner's death.
    pub(crate) fn leave_chunk(&self) {
        edge::orphaned::leave(&self.owner, self.owner.load(Relaxed) | ORPHAN);
    }

    /// Returns whether the seat is an orphan. Another worker may adopt it at any time.
    #[inline]
    pub fn is_orphan(&self) -> bool {
        self.owner.load(Relaxed) & PARTICIPANT == ORPHAN
    }

    /// Takes the seat over if it is an orphan. Returns whether the caller is now the owner.
    pub fn adopt_chunk(&self, participant: u32) -> bool {
        edge::orphaned::adopt(&self.owner, taken_from(ORPHAN, participant)).is_ok()
    }

    /// Counts the death of the seat's owner, and makes the seat an orphan. Each step may be
    /// repeated, as in [`Seat::bury`].
    pub(crate) fn orphan(&self, dead: u32) {
        if self.owner() == Some(dead) {
            self.count_death(self.owner.load(Relaxed));
            self.leave_chunk();
        }
    }
}

/// Members of taps.
impl Seat {
    /// Returns the number of events that the last member had not read when it was found dead, or 0
    /// if the seat's current or last member has not died.
    pub fn unread(&self) -> u64 {
        self.unread.load(Relaxed)
    }

    /// Stores the number of events that a dead member has not read.
    pub(crate) fn leave_unread(&self, events: u64) {
        may_die!();
        self.unread.store(events, Relaxed);
    }
}

/// The words of a producer's seat, in a ring with several producers. See
/// [`claims`](crate::processes::claims) and [`closing`](crate::processes::closing).
impl Seat {
    /// Stores that the owner is about to claim `[seq, end)`.
    #[inline(always)]
    pub(crate) fn intend(&self, seq: u64, end: u64) {
        edge::intended::intend(&self.lo, seq);
        edge::intended::intend(&self.hi, end);
    }

    /// Stores that the owner intends to claim nothing. Each claim of the seat has ended.
    pub(crate) fn intend_nothing(&self) {
        edge::intended::intend(&self.lo, self.hi.load(Relaxed));
    }

    /// Called once the front of a claim is published. Stores `seq`, the position at which the rest
    /// of the claim begins.
    pub(crate) fn split(&self, seq: u64) {
        may_die!();
        self.mid.store(seq, Relaxed);
    }

    /// Records that the claim now begins at `seq`, because its front was published.
    pub(crate) fn shorten(&self, seq: u64) {
        edge::intended::intend(&self.lo, seq);
    }

    /// Returns the begin and the end of the intent. Each of them was the current value at some
    /// moment during the call. The call loads the begin first, and the owner also stores the begin
    /// first.
    pub fn intent(&self) -> (u64, u64) {
        (edge::intended::see(&self.lo), edge::intended::see(&self.hi))
    }

    /// Returns the head of a claim's rest, while the claim's front is being published.
    pub(crate) fn middle(&self) -> u64 {
        self.mid.load(Relaxed)
    }

    /// Stores that the owner leaves as a producer. The owner stores this before it checks whether
    /// other producers stay.
    pub(crate) fn leave(&self) {
        edge::last_out::leave(&self.state, self.owner.load(Relaxed));
    }

    /// Returns whether the owner has begun to leave as a producer. A free seat has no owner.
    pub fn is_leaving(&self) -> bool {
        let owner = edge::seated::see(&self.owner);
        owner & PARTICIPANT != 0 && edge::last_out::see(&self.state) == owner
    }

    /// Returns whether the seat has an owner that has neither begun to leave nor been found dead.
    pub(crate) fn is_staying(&self) -> bool {
        let owner = edge::seated::see(&self.owner);
        let is_found = || self.found_dead.load(Relaxed) >> 32 == owner >> 32; // SYNC[last-out]
        owner & PARTICIPANT != 0 && edge::last_out::see(&self.state) != owner && !is_found()
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_is_adopted_once() {
        let seat = Seat::default();
        assert_eq!((seat.adopt(3), seat.take(3)), (None, Ok(())));
        seat.leave_orphan(5, 8);
        assert_eq!((seat.owner(), seat.take(4)), (None, Err(ORPHAN as u32)));
        seat.free(3);
        assert_eq!((seat.adopt(4), seat.adopt(5)), (Some(5..8), None));
        assert_eq!(seat.owner(), Some(4));
        seat.bury(4);
        assert_eq!((seat.deaths(), seat.take(5)), (1, Ok(())), "an adopter's death counts, too");
    }

    #[test]
    fn a_seat_has_one_owner_and_counts_each_death_once() {
        let seat = Seat::default();
        assert_eq!((seat.owner(), seat.take(3)), (None, Ok(())));
        assert_eq!((seat.owner(), seat.take(4)), (Some(3), Err(3)));
        seat.free(4);
        assert_eq!(seat.owner(), Some(3), "only the owner frees its seat");
        seat.free(3);
        assert_eq!((seat.owner(), seat.deaths()), (None, 0));
        assert_eq!(seat.take(3), Ok(()));
        seat.bury(4);
        assert!(seat.last_death().is_none());
        seat.bury(3);
        seat.bury(3);
        assert!(seat.last_death().is_some());
        assert_eq!((seat.owner(), seat.deaths()), (None, 1));
        assert_eq!(seat.take(3), Ok(()));
        // The recovering process died between its two steps, and another process repeats the
        // recovery.
        let owner = seat.owner.load(Relaxed);
        seat.bury(3);
        seat.owner.store(owner, Relaxed);
        seat.bury(3);
        assert_eq!((seat.owner(), seat.deaths()), (None, 2));
        assert_eq!(seat.take(5), Ok(()));
        assert!(seat.last_death().is_none());
        seat.free(5);
        assert!(seat.last_death().is_none(), "the last owner left");
    }
}
