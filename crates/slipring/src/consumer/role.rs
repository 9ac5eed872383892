//! Stages, shards and members of taps share one type of position, `SequentialPosition`. A role
//! gives a position the behaviour of its owner.

use std::cell::Cell;

use crate::base::sync::Relaxed;
use crate::consumer::position::ConsumerState;
use crate::errors::WaitError;
use crate::ring::control::Control;
use crate::ring::slots::Layout;
use crate::ring::world::World;

/// Adapts a `SequentialPosition` to its owner: a stage, a shard or a member of a tap.
pub trait Role {
    /// Whether the position may start in the middle of a run.
    const STARTS_MID_RUN: bool = false;
    /// Number of bits by which a release shifts the stored position to the left.
    const RELEASE_SHIFT: u32 = 0;
    /// Whether `SequentialPosition::release` samples latencies.
    const SAMPLES: bool = true;

    /// Returns whether the position counts the tombstones that it passes over.
    fn counts_tombstones(&self) -> bool {
        true
    }

    /// Called before the stage first touches the events that lie before `end`.
    #[inline(always)]
    fn lend(&self, _end: u64) {}

    /// Called before a release. `end` is the end of the last run that the position has found.
    #[inline(always)]
    fn bound(&self, _end: u64) {}

    /// Called if the words by which the position finds events contradict each other. From then on,
    /// [`Role::refusal`] returns an error.
    fn find_damage(&self) {}

    /// Returns the reason why this handle must stop while the graph continues.
    #[inline(always)]
    fn refusal<W: World>(&self, _control: &Control) -> Option<WaitError> {
        None
    }

    /// Called when a handle's position is dropped: fails the graph, or gives back the handle's
    /// seat. The handle has released every event before the position `released`.
    fn leave<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64);
}

/// The role of a declared stage. Dropping a stage's position before the stream's end fails the
/// graph.
pub struct StageRole;

impl Role for StageRole {
    fn leave<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64) {
        state.fail_dropped(released);
    }
}

/// The role of one shard of a stage. Dropping a shard's position before the stream's end fails the
/// graph.
pub struct ShardRole {
    pub(crate) shard: u32,
}

impl Role for ShardRole {
    /// `ShardPosition::release` samples the latencies of the shard's own events.
    const SAMPLES: bool = false;

    /// Every shard passes over the same tombstones, so only the first one counts them.
    fn counts_tombstones(&self) -> bool {
        self.shard == 0
    }

    fn leave<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64) {
        state.fail_dropped(released);
    }
}

/// The role of a member of a tap. The graph continues after a member is dropped.
pub struct MemberRole {
    /// The member's seat at the tap.
    pub(crate) seat: usize,
    /// Index of the line that holds the seat's badge.
    pub(crate) badge_line: usize,
    /// The badge that was current when the member joined.
    pub(crate) badge: u64,
    /// Whether the words of the segment were found to contradict each other.
    pub(crate) damaged: Cell<bool>,
}

impl Role for MemberRole {
    const STARTS_MID_RUN: bool = true;
    /// The lowest bit of a member's line marks an idle seat (`IDLE`).
    const RELEASE_SHIFT: u32 = 1;

    fn find_damage(&self) {
        self.damaged.set(true);
    }

    #[inline(always)]
    fn refusal<W: World>(&self, control: &Control) -> Option<WaitError> {
        if W::SHARED && self.damaged.get() {
            return Some(WaitError::Damaged);
        }
        // The load is relaxed, because a badge publishes no other data. The thread that changes a
        // badge also notifies the member, and the member then loads the badge again.
        (control.positions.line(self.badge_line).load(Relaxed) != self.badge)
            .then_some(WaitError::Left)
    }

    fn leave<E, L: Layout>(&self, state: &ConsumerState<E, L>, _released: u64) {
        state.control().release_member(state.stage, self.seat);
    }
}
