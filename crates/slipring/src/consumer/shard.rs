//! Shards are several handles of one stage. Each shard handles the events of its own keys, in the
//! order of their positions.
//!
//! Invariants
//! - I1: each event's shard id is stored before the event is published to the stage, and stays
//!   unchanged until a producer fills the slot again. The last party with write access before the
//!   sharded stage assigns the id: after its last change of the event, and before it publishes or
//!   releases the event. That publication or release makes the id visible to the shard
//!   (`SYNC[slot-published]`, `SYNC[cursor-moved]` or `SYNC[released]`).
//! - I2: a shard accesses only its own events. It passes over the events of other shards, and
//!   releases their positions, too. Each shard of a stage has a released position, and the stage's
//!   frontier is the least of these positions. A shard that released only its own events would hold
//!   the frontier up.
//! - I3: an event whose key function panicked belongs to no shard. The panic fails the graph.
//! - I4: a shard of a segment stores on its seat the end of its own events only, up to the last
//!   event that it is about to lend. So after the death of the shard's process, exactly the events
//!   that the process may have touched come again.

use crate::base::sync::twin;
use crate::consumer::drive::GATHER_AT_LEAST;
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState, Runs};
use crate::consumer::role::{Role, ShardRole};
use crate::consumer::sequential::SequentialPosition;
use crate::errors::WaitError;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::ring::waits::Place;
use crate::ring::world::World;
use crate::wait::HandleLearner;

/// The position of one shard. The role `R` says whether the shard belongs to a ring of one process
/// or to a segment.
pub struct ShardPosition<E, L: Layout, R: Role = ShardRole> {
    /// The underlying position, which goes through the events of all shards.
    sequence: SequentialPosition<E, L, R>,
    /// The shard's number, from 0 on.
    shard: u32,
    /// Number of consecutive events from `next` on that this shard is known to own.
    own: u64,
    /// Whether the shard has handled an event since its last release. If it has, `poll` does not
    /// release other shards' events: that release would also cover the handled events, which a
    /// retry must repeat.
    handled: bool,
    /// Whether the last search for events found all events that were available.
    exhausted: bool,
}

impl<E, L: Layout> ShardPosition<E, L> {
    /// Creates the position of a shard, at the ring's first position.
    pub(crate) fn new(
        core: Owner<E, L>,
        stage: usize,
        shard: usize,
        learned: HandleLearner,
    ) -> Self {
        let (start, line) = (core.control.start, core.control.plan.stages[stage].line + shard);
        let role = ShardRole { shard: shard as u32 };
        let place = Place { party: stage, at: start };
        let sequence = SequentialPosition::begin(core, place, line, role, learned);
        ShardPosition::over(sequence, shard)
    }
}

impl<E, L: Layout, R: Role> ShardPosition<E, L, R> {
    /// Creates the position of the shard with this number, over a position that goes through the
    /// events of all shards.
    pub(crate) fn over(sequence: SequentialPosition<E, L, R>, shard: usize) -> Self {
        let shard = shard as u32;
        ShardPosition { sequence, shard, own: 0, handled: false, exhausted: false }
    }

    /// Returns the underlying position.
    pub(crate) fn sequence(&self) -> &SequentialPosition<E, L, R> {
        &self.sequence
    }

    /// Searches for available events of all shards. Called if no event is known.
    fn find(&mut self) {
        let found = self.sequence.find(GATHER_AT_LEAST);
        // A search also ends at a tombstone, and events may follow it.
        let stops_early = self.sequence.state().control().plan.many_producers;
        self.exhausted = found == 0 || found < GATHER_AT_LEAST && !stops_early;
    }

    /// Passes over the next `len` events, which are this shard's own and known to be available.
    pub(crate) fn pass_over_own(&mut self, len: u64) {
        self.own -= len;
        self.handled |= len != 0;
        self.sequence.pass_over(len);
    }

    /// Passes over the next events that are known to be available, up to the first event of this
    /// shard.
    fn pass_over_others(&mut self) {
        let others = self.count(self.sequence.next(), self.sequence.known(), false);
        self.sequence.pass_over(others);
    }

    /// Counts at most `len` consecutive events from `seq` on. If `own` is true, counts the events
    /// of this shard, up to the first event of another shard. If `own` is false, counts the events
    /// of other shards, up to the first event of this shard.
    fn count(&self, seq: u64, len: u64, own: bool) -> u64 {
        let state = self.sequence.state();
        let Some(ids) = &state.core.shard_ids[state.stage] else { return 0 };
        let counts = |offset: &u64| {
            let owner = ids.shard_of(seq.wrapping_add(*offset)); // I1
            (owner == self.shard) == own
        };
        (0..len).take_while(counts).count() as u64
    }
}

impl<E, L: Layout, R: Role> ConsumerPosition<E, L> for ShardPosition<E, L, R> {
    fn state(&self) -> &ConsumerState<E, L> {
        self.sequence.state()
    }

    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        self.sequence.state_mut()
    }

    #[inline(always)]
    fn line(&self) -> usize {
        self.sequence.line()
    }

    #[inline(always)]
    fn next(&self) -> u64 {
        self.sequence.next()
    }

    fn handled(&self) -> u64 {
        self.sequence.handled()
    }

    fn advance(&mut self, len: u64, _found: u64) {
        self.own -= len;
        self.handled |= len != 0;
        self.sequence.advance(len, len);
    }

    fn release(&mut self) {
        let state = self.sequence.state();
        if let Some(samples) = &state.control().counters.samples {
            let from = self.sequence.released();
            samples.releasing(state.stage, from, self.sequence.next().wrapping_sub(from), |seq| {
                self.count(seq, 1, true) == 1
            });
        }
        self.handled = false;
        self.sequence.release();
    }

    fn rewind(&mut self) {
        (self.own, self.handled, self.exhausted) = (0, false, false);
        self.sequence.rewind();
    }

    fn released(&self) -> u64 {
        self.sequence.released()
    }

    fn first_unreleased(&self) -> u64 {
        self.sequence.released()
    }

    fn has_unreleased(&self) -> bool {
        self.handled
    }
}

impl<E, L: Layout, R: Role> Availability<E, L> for ShardPosition<E, L, R> {
    const MAY_PAUSE: bool = true;

    fn runs(&self) -> Runs {
        Runs::Hidden
    }

    fn poll(&mut self, max: u64) -> u64 {
        let begin = self.sequence.next();
        while self.own == 0 {
            if self.sequence.known() == 0 {
                self.find();
            }
            self.pass_over_others();
            self.own = self.count(self.sequence.next(), self.sequence.known(), true);
            let ended = self.exhausted && self.sequence.known() == 0;
            let share = (self.sequence.state().core.capacity() / 8).max(1);
            let held = self.sequence.next().wrapping_sub(self.sequence.released());
            if !self.handled && (ended || held >= share) {
                twin!("others-held": self.release() => ());
            }
            // Another process could publish events of other shards as fast as this one passes over
            // them, so a poll stops after a lap of such events.
            let passed = self.sequence.next().wrapping_sub(begin);
            let stops =
                L::World::SHARED && self.own == 0 && passed > self.sequence.state().core.capacity();
            if ended || stops {
                return 0;
            }
        }
        self.sequence.lend(self.own.min(max)) // I4
    }

    fn gather(&mut self, _least: u64, max: u64) -> u64 {
        self.poll(max)
    }

    fn grow(&mut self, len: u64) -> u64 {
        let own = self.poll(len);
        if own == 0 || own == len || self.own != self.sequence.known() {
            return own;
        }
        self.sequence.find(own + 1);
        self.own = self.count(self.sequence.next(), self.sequence.known(), true);
        self.sequence.lend(self.own.min(len)) // I4
    }

    /// The next event of any shard ends the wait: if another shard owns it, this shard's batch ends
    /// before it.
    fn is_gathered(&self, _len: u64, end: &mut u64) -> bool {
        self.own != self.sequence.known() || self.sequence.is_gathered(self.own + 1, end)
    }

    fn known_until(&self) -> u64 {
        self.sequence.known_until()
    }

    /// A poll ends at the first event of another shard, although more events of this shard may
    /// follow.
    fn is_exhausted(&mut self, _short: bool) -> bool {
        if self.own != 0 || !self.exhausted {
            return false;
        }
        self.pass_over_others();
        self.sequence.known() == 0
    }

    fn has_available(&self) -> bool {
        self.sequence.has_available()
    }

    fn waits_for(&self) -> usize {
        self.sequence.waits_for()
    }

    #[inline(always)]
    fn check(&self) -> Result<(), WaitError> {
        self.sequence.check()
    }

    #[inline(always)]
    fn is_undisturbed(&self) -> bool {
        self.sequence.is_undisturbed()
    }

    #[cold]
    fn find_end(&self) -> Option<WaitError> {
        self.sequence.find_end()
    }

    #[cold]
    fn has_ended(&self) -> bool {
        self.sequence.has_ended()
    }

    #[cold]
    fn finds_damage(&self) -> bool {
        self.sequence.finds_damage()
    }
}
