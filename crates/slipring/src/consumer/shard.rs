//! Shards: several handles of one stage, each of which sees the events of its own keys, in
//! sequence.
//!
//! Invariants
//! - I1: whose an event is stands in the stage's lane from before it is published to the stage
//!   until its slot is filled again: the last party before the shards that may change the event
//!   works it out when it is done with the event, and lets go of it only then
//!   (`SYNC[slot-published]`, `SYNC[cursor-moved]` or `SYNC[released]` carry it).
//! - I2: a shard touches only events that are its own. It passes over the others, and what it has
//!   passed is as good as handled: the stage's frontier is the least of what its shards have
//!   passed.
//! - I3: an event whose key could not be worked out is nobody's; then the graph has failed.

use crate::base::sync::twin;
use crate::consumer::position::{ConsumerPosition, ConsumerState, Role, SequentialPosition};
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::wait::Learned;

/// The role of one shard of a stage: the graph cannot do without it.
pub(crate) struct ShardRole {
    shard: u32,
}

impl Role for ShardRole {
    /// A shard samples its own events only.
    const SAMPLES: bool = false;
    /// All shards pass the same tombstones; one counts them.
    fn counts_tombstones(&self) -> bool {
        self.shard == 0
    }
    fn goes<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64) {
        state.left(released);
    }
}

/// The seat of one shard.
pub struct ShardPosition<E, L: Layout> {
    walk: SequentialPosition<E, L, ShardRole>,
    /// So many events from the next one on are known to be its own.
    own: u64,
    /// Whether something was handled since the last release. If not, others are passed for good.
    handled: bool,
}

impl<E, L: Layout> ShardPosition<E, L> {
    pub(crate) fn new(core: Owner<E, L>, stage: usize, shard: usize, learned: Learned) -> Self {
        let (start, line) = (core.control.start, core.control.plan.stages[stage].line + shard);
        let sharer = ShardRole { shard: shard as u32 };
        ShardPosition {
            walk: SequentialPosition::begin(core, stage, sharer, (line, 0), start, learned),
            own: 0,
            handled: false,
        }
    }

    /// How many events in a row are this shard's, or are not, from `seq` on and among `len`.
    fn count(&self, seq: u64, len: u64, own: bool) -> u64 {
        let state = self.walk.state();
        let Some(ids) = &state.core.shard_ids[state.stage] else { return 0 };
        let is = |offset: &u64| {
            let owner = ids.shard_of(seq.wrapping_add(*offset)); // I1
            (owner == self.walk.role().shard) == own
        };
        (0..len).take_while(is).count() as u64
    }
}

impl<E, L: Layout> ConsumerPosition<E, L> for ShardPosition<E, L> {
    /// The end of what is its own in a row is not the end of what there is.
    const GATHERS_ALL: bool = false;
    fn walks_runs(&self) -> bool {
        false
    }
    fn poll(&mut self, max: u64) -> u64 {
        while self.own == 0 {
            let found = self.walk.poll(u64::MAX);
            let others = self.count(self.walk.next(), found, false);
            self.walk.pass_over(others);
            self.own = self.count(self.walk.next(), found - others, true);
            let share = (self.walk.state().core.capacity() / 8).max(1);
            if !self.handled
                && (found == 0 || self.walk.next().wrapping_sub(self.walk.released()) >= share)
            {
                twin!("others-held": self.release() => ());
            }
            if found == 0 {
                return 0;
            }
        }
        self.own.min(max)
    }
    fn gather(&mut self, _least: u64, max: u64) -> u64 {
        self.poll(max)
    }
    #[inline(always)]
    fn line(&self) -> usize {
        self.walk.line()
    }
    #[inline(always)]
    fn next(&self) -> u64 {
        self.walk.next()
    }
    fn handled(&self) -> u64 {
        self.walk.handled()
    }
    fn advance(&mut self, len: u64, _found: u64) {
        self.own -= len;
        self.handled |= len != 0;
        self.walk.advance(len, len);
    }
    fn release(&mut self) {
        let state = self.walk.state();
        if let Some(samples) = &state.control().counters.samples {
            let from = self.walk.released();
            samples.releasing(state.stage, from, self.walk.next().wrapping_sub(from), |seq| {
                self.count(seq, 1, true) == 1
            });
        }
        self.handled = false;
        self.walk.release();
    }
    fn rewind(&mut self) {
        (self.own, self.handled) = (0, false);
        self.walk.rewind();
    }
    fn released(&self) -> u64 {
        self.walk.released()
    }
    fn holds(&self) -> bool {
        self.handled
    }
    fn has_available(&self) -> bool {
        self.walk.has_available()
    }
    fn waits_for(&self) -> usize {
        self.walk.waits_for()
    }
    fn state(&self) -> &ConsumerState<E, L> {
        self.walk.state()
    }
    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        self.walk.state_mut()
    }
}
