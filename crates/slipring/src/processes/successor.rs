//! A handle of a segment that continues where another process's handle stopped: its role, the
//! position at which it begins, and the events that it passes over.
//!
//! Invariants
//! - I1: the events that a stage, or a shard, was lent and has not released are `[released, held)`.
//!   They are the first events that the successor is lent (`seat::I2`). No later stage has seen
//!   them.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::base::sync::twin;
use crate::consumer::position::{Availability, ConsumerState};
use crate::consumer::role::Role;
use crate::consumer::sequential::SequentialPosition;
use crate::consumer::shard::ShardPosition;
use crate::consumer::waiting::Counting;
use crate::errors::WaitError;
use crate::ring::control::Control;
use crate::ring::owner::Owner;
use crate::ring::seat::Seat;
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Layout;
use crate::ring::waits::Place;
use crate::ring::words::ahead;
use crate::ring::world::World;

/// The role of a stage of a segment, or of one shard of such a stage. After the drop of its handle,
/// another process may take its seat.
pub struct SeatRole {
    /// The seat in the segment, which the ring's core keeps mapped.
    pub(crate) seat: NonNull<Seat>,
    /// The number of this process as a participant of the segment.
    pub(crate) participant: u32,
    /// Number of the shard, from 0 on; 0 if the stage has no shards.
    pub(crate) shard: usize,
    /// Positions of the events that the previous handle was lent and did not release. They are the
    /// first events that this handle lends.
    pub(crate) again: SeqRange,
    /// Highest position up to which the stage was ever lent events, by this handle or an earlier
    /// one.
    pub(crate) held: Cell<u64>,
    /// The boundary that this handle, or an earlier one, stored last.
    pub(crate) boundary: Cell<u64>,
    /// Whether the words of the segment were found to contradict each other.
    pub(crate) damaged: Cell<bool>,
}

// SAFETY: a `Seat` consists of atomic words, which any thread may use while the core lives. The
// `Cell`s belong to the handle, which only one thread uses at a time.
unsafe impl Send for SeatRole {}

impl SeatRole {
    fn seat(&self) -> &Seat {
        // SAFETY: the handle that has this role keeps the core, which keeps the segment mapped.
        unsafe { self.seat.as_ref() }
    }
}

impl Role for SeatRole {
    /// A successor begins where its predecessor stopped, which may be in the middle of a run.
    const STARTS_MID_RUN: bool = true;

    /// Every shard passes over the same tombstones, so only the first shard counts the tombstones.
    fn counts_tombstones(&self) -> bool {
        self.shard == 0
    }

    #[inline(always)]
    fn lend(&self, end: u64) {
        if ahead(end, self.held.get()) > 0 {
            self.held.set(end);
            twin!("held-late": self.seat().hold(end) => ());
        }
    }

    #[inline(always)]
    fn bound(&self, end: u64) {
        twin!("held-late": () => self.seat().hold(self.held.get()));
        // A successor may begin before its predecessor's boundary, and the stored boundary must not
        // go back.
        if ahead(end, self.boundary.get()) > 0 {
            self.boundary.set(end);
            self.seat().bound(end);
        }
    }

    fn find_damage(&self) {
        self.damaged.set(true);
    }

    #[inline(always)]
    fn refusal<W: World>(&self, _control: &Control) -> Option<WaitError> {
        self.damaged.get().then_some(WaitError::Damaged)
    }

    /// Leaves the stage's place to another handle, even if a panic drops this handle. The next
    /// handle lends the events that this handle has not released.
    fn leave<E, L: Layout>(&self, _state: &ConsumerState<E, L>, _released: u64) {
        self.seat().free(self.participant);
    }
}

/// Creates the position of the handle that has just taken a seat of a stage, or of one of its
/// shards. `shard` is the seat's number among the stage's seats. The position begins where the
/// previous handle stopped.
pub(crate) fn position<E, L: Layout>(
    core: Owner<E, L>,
    stage: usize,
    shard: usize,
    participant: u32,
) -> SequentialPosition<E, L, SeatRole> {
    let control = &core.control;
    let seat: &Seat = &control.seats_of(stage)[shard];
    let line = control.plan.stages[stage].line + shard;
    let (released, held) = (control.positions.released(line), seat.held());
    let boundary = seat.boundary();
    // A handle has at most a lap of lent events that it has not released.
    let lent = ahead(held, released);
    let damaged = lent > core.capacity() as i64;
    let role = SeatRole {
        seat: NonNull::from(seat),
        participant,
        shard,
        again: (released..if damaged { released } else { held }).into(),
        boundary: Cell::new(boundary),
        held: Cell::new(twin!("held-back": held => released)),
        damaged: Cell::new(damaged),
    };
    let learned = control.learner(stage);
    let place = Place { party: stage, at: released };
    let mut position = SequentialPosition::begin(core, place, line, role, learned);
    twin!("boundary-ignored": position.know_until(boundary) => ());
    position
}

/// A position that begins at the first event that the previous handle was lent and did not release.
/// It lends these events again.
pub(crate) trait PassesOver<E, L: Layout>: Availability<E, L> {
    /// Passes over the next `len` events, which a poll has found, without counting them as handled.
    fn forgo(&mut self, len: u64);

    /// Notes that the words of the segment contradict each other.
    fn find_damage(&self);
}

impl<E, L: Layout> PassesOver<E, L> for SequentialPosition<E, L, SeatRole> {
    fn forgo(&mut self, len: u64) {
        self.pass_over(len);
    }

    fn find_damage(&self) {
        self.role().find_damage();
    }
}

impl<E, L: Layout> PassesOver<E, L> for ShardPosition<E, L, SeatRole> {
    fn forgo(&mut self, len: u64) {
        self.pass_over_own(len);
    }

    fn find_damage(&self) {
        self.sequence().role().find_damage();
    }
}

/// Passes over the available events before `end`, and releases them. Returns their number.
pub(crate) fn pass_over<E, L: Layout>(
    position: &mut impl PassesOver<E, L>,
    end: u64,
) -> Result<u64, WaitError> {
    let mut passed = 0;
    let left = |next: u64| ahead(end, next).max(0) as u64;
    // If the handle found damage when it was created, it has no events to pass over.
    position.check()?;
    while left(position.next()) > 0 {
        position.check()?;
        let found = position.poll(left(position.next()));
        // A poll of a shard also passes over the events of other shards.
        let len = found.min(left(position.next()));
        if found == 0 && left(position.next()) > 0 {
            // The events were available to the previous process, so they still are, unless the
            // segment is damaged. A handle that has passed over only some of them, and has not
            // released them, cannot continue.
            position.find_damage();
            return Err(position.ended().unwrap_or(WaitError::Damaged));
        }
        if position.state().bookkeeping {
            position.state().partition(position.next(), len);
        }
        position.forgo(len);
        passed += len;
    }
    if passed != 0 {
        // The events are counted before they are released. If this process dies in between, the
        // events may be counted twice, but each is counted at least once.
        position.state_mut().counts.skipped += passed;
        position.flush();
        position.release();
    }
    Ok(passed)
}
