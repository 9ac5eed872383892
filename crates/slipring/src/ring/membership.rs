//! The counts of a ring's handles (producers, claimants, workers, members of taps), and the ring's
//! orphans (chunks whose workers left).
//!
//! A *claimant* is a handle that can claim, or that can create a handle that claims. The claimants
//! of a ring are its producers and its `Ring` handle.
//!
//! Invariants
//! - I1: a pool's worker stores the bound of its chunk, or [`IDLE`], on the line of its seat. A
//!   worker that adopts an orphan stores the chunk's bound on the line of the orphan's seat, which
//!   the worker then owns. On the heap, it gives its own seat up. A seat is free only while the
//!   seat's line holds [`IDLE`].
//! - I2: the computation of a pool's frontier loads the lines of all the pool's seats, taken or
//!   free. So a worker joins a pool without informing other parties: they load the line of its seat
//!   even while the seat is free.
//! - I3: a handle takes its seat by a compare-and-swap of the seat's owner, and gives the seat back
//!   by its last store. No handle waits until another handle has taken or given back a seat. So a
//!   thread or process that dies in between holds up no other handle. A member that takes a seat
//!   stores a new badge, which identifies the member.

use std::num::NonZeroU64;
use std::ops::Range;

use crate::base::edge;
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::sync::{AtomicU64, AtomicUsize, Line, Relaxed, may_die, twin};
use crate::ring::plan::Plan;
use crate::ring::positions::Positions;
use crate::ring::seat::Seat;
use crate::ring::spec::{Delivery, TICKETS_LEFT};
use crate::ring::stage::Stage;
use crate::ring::words::IDLE;

/// The amount by which one claimant raises [`Membership::claimants`]. The number of claimants is
/// stored times two, to leave the lowest bit free for [`COMPANY`]. The number fits 63 bits, because
/// each claimant owns the ring (owner::I1), and the process aborts soon after 2^62 owners are
/// counted. The counts of claimants and of owners include forgotten handles.
const CLAIMANT: u64 = 2;
/// Lowest bit of [`Membership::claimants`]. A new claimant sets it, and a ring's only claimant
/// clears it after it has read the claim word.
const COMPANY: u64 = 1;
/// Value of [`Membership::claimants`] for one claimant while the bit [`COMPANY`] is set.
const ALONE_AGAIN: u64 = CLAIMANT | COMPANY;

/// Bit of a member's badge: 1 if the member was asked to leave or has left.
const LEAVE: u64 = 1;
/// Difference of two successive badges of one seat. Badges are even numbers, to leave the lowest
/// bit free for [`LEAVE`].
const NEXT_BADGE: u64 = 2;

/// An orphan: a chunk whose worker left the pool before it had finished the chunk, or a ticket
/// whose worker sleeps or has taken over another orphan (`worker::I6`). Until the worker that
/// adopts the orphan has finished the chunk, the bound on the seat's line holds back the pool's
/// frontier.
pub(crate) struct Orphan {
    /// Index of the seat among the seats of its pool.
    pub(crate) seat: usize,
    /// The unfinished positions of the chunk.
    pub(crate) rest: Range<u64>,
}

/// Whether the ring has, or had, a claimant other than the caller of [`Membership::company`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// No other claimant has existed since the caller last read the claim word. The caller knows
    /// the value of the claim word.
    Never,
    /// The caller is now the only claimant, but former claimants may have moved the claim word.
    Earlier,
    /// Other claimants exist, and the claim word may move at any time.
    Now,
}

/// The counts of a ring's handles, the seats of its pools and taps, and its orphans.
pub(crate) struct Membership {
    /// Number of producer handles.
    producers: AtomicUsize,
    /// Number of claimants times [`CLAIMANT`]. The lowest bit is [`COMPANY`].
    claimants: AtomicU64,
    /// Number of task numbers that were given out so far; see
    /// [`TaskNumber`](crate::ring::task_number::TaskNumber).
    tasks: AtomicU64,
    /// Number of each pool's current workers, indexed by stage; unused for a stage that is not a
    /// pool.
    alive: Box<[AtomicUsize]>,
    /// The seats of all parties.
    pub(crate) seats: MaybeMapped<[Line<Seat>]>,
    /// The cells of each stage, indexed by stage. A pool of a segment has a cell for each slot;
    /// other stages have no cells.
    pub(crate) cells: Box<[MaybeMapped<[AtomicU64]>]>,
    /// The number that marks a seat as owned by a handle of this process.
    pub(crate) participant: u32,
    /// Number of each pool's orphans, indexed by stage. An orphan is counted before it is left, and
    /// counted out after it was adopted, so the number is never too low.
    orphaned: Box<[Line<AtomicUsize>]>,
}

impl Membership {
    /// Makes the counts of a ring. `cells` holds the cells of each stage, and `participant` is the
    /// number of this process.
    pub(crate) fn new(
        plan: &Plan,
        seats: MaybeMapped<[Line<Seat>]>,
        cells: Box<[MaybeMapped<[AtomicU64]>]>,
        participant: u32,
    ) -> Membership {
        let stages = &plan.stages;
        Membership {
            producers: AtomicUsize::new(0),
            claimants: AtomicU64::new(0),
            tasks: AtomicU64::new(0),
            alive: stages.iter().map(|stage| AtomicUsize::new(stage.delivery.len())).collect(),
            seats,
            cells,
            participant,
            orphaned: stages.iter().map(|_| Line::new(AtomicUsize::new(0))).collect(),
        }
    }

    /// Returns the seats of a stage.
    pub(crate) fn seats_of(&self, stage: &Stage) -> &[Line<Seat>] {
        &self.seats[stage.first_seat..][..stage.seats]
    }

    /// Takes a free seat of a stage. Returns `None` if no seat is free.
    fn take_seat(&self, stage: &Stage) -> Option<usize> {
        let take = |seat: &Line<Seat>| {
            let taken = seat.take(self.participant).is_ok();
            twin!("bounded-seat": taken => taken || seat.adopt(self.participant).is_some())
        };
        self.seats_of(stage).iter().position(take)
    }

    /// Gives a seat of a worker or member back. The seat's line holds [`IDLE`] (I1).
    pub(crate) fn free_seat(&self, stage: &Stage, seat: usize) {
        self.seats_of(stage)[seat].free(self.participant);
    }

    // Producers.

    pub(crate) fn add_producer(&self) {
        self.producers.fetch_add(1, Relaxed);
        self.add_claimant();
    }

    /// Returns the number of producer handles. Handles may come and go at any time.
    pub(crate) fn producers(&self) -> usize {
        self.producers.load(Relaxed)
    }

    /// Subtracts one producer handle; returns whether it was the last one.
    pub(crate) fn remove_producer(&self) -> bool {
        edge::counted_out::count_out(&self.producers) == 1
    }

    /// Adds a new claimant.
    ///
    /// Except while the ring is built, the caller borrows an existing claimant during the call. A
    /// claim borrows its claimant mutably, so no claimant is added while a sole claimant claims.
    pub(crate) fn add_claimant(&self) {
        let add = |claimants| {
            Some(twin!("company-unmarked": claimants | COMPANY => claimants) + CLAIMANT)
        };
        let added = self.claimants.fetch_update(Relaxed, Relaxed, add);
        debug_assert!(added.is_ok(), "the closure always has a value");
    }

    /// Subtracts a claimant, which neither claims nor creates other claimants after the call.
    pub(crate) fn remove_claimant(&self) {
        edge::left_alone::leave(&self.claimants, CLAIMANT);
    }

    /// Returns whether other claimants exist, or have existed since the caller last called
    /// [`Membership::settle_alone`].
    #[inline(always)]
    pub(crate) fn company(&self) -> Company {
        let claimants = edge::left_alone::see(&self.claimants);
        match twin!("alone-in-company": claimants => CLAIMANT | COMPANY) {
            CLAIMANT => Company::Never,
            ALONE_AGAIN => Company::Earlier,
            _ => Company::Now,
        }
    }

    /// Records that no other claimant has existed since the caller read the claim word.
    ///
    /// The caller has read the claim word, and is the only claimant. Only claimants change the
    /// field `claimants`, so no other thread changes it during the call.
    pub(crate) fn settle_alone(&self) {
        self.claimants.store(CLAIMANT, Relaxed);
    }

    // Tasks.

    /// Draws the number by which wait queues identify the tasks of one handle.
    pub(crate) fn next_task(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.tasks.fetch_add(1, Relaxed))
    }

    // Workers.

    /// Adds a worker to a pool, and returns the worker's seat. Returns `None` if the pool has no
    /// room or no free seat, and an error if every worker of the pool has left.
    pub(crate) fn acquire_worker(
        &self,
        pool: usize,
        stage: &Stage,
    ) -> Result<Option<usize>, PoolIsOver> {
        let Some(seat) = self.take_seat(stage) else { return Ok(None) };
        let workers = 1..stage.delivery.room();
        let add = |count| workers.contains(&count).then_some(count + 1);
        match self.alive[pool].fetch_update(Relaxed, Relaxed, add) {
            Ok(_) => Ok(Some(seat)),
            Err(count) => {
                self.free_seat(stage, seat);
                if count == 0 { Err(PoolIsOver) } else { Ok(None) }
            }
        }
    }

    /// Subtracts a worker; returns how many workers of the pool are left.
    pub(crate) fn remove_worker(&self, pool: usize) -> usize {
        edge::signed_off::count_out(&self.alive[pool]) - 1
    }

    /// Leaves the unfinished chunk of a seat as an orphan, which another worker of the pool can
    /// adopt. The caller must then notify the pool's queue.
    pub(crate) fn leave_orphan(&self, pool: usize, stage: &Stage, orphan: Orphan) {
        let Orphan { seat, rest } = orphan;
        self.orphaned[pool].fetch_add(1, Relaxed);
        self.seats_of(stage)[seat].leave_orphan(rest.start, rest.end);
    }

    /// Moves a worker to a free seat, and leaves the ticket on its old seat as an orphan. Returns
    /// the new seat, or `None` if the pool has [`TICKETS_LEFT`] orphans already: other workers may
    /// join, so the pool keeps a seat for each worker that it has room for.
    pub(crate) fn leave_ticket(&self, pool: usize, stage: &Stage, ticket: Orphan) -> Option<usize> {
        let has_room = self.orphaned[pool].fetch_add(1, Relaxed) < TICKETS_LEFT;
        let seat = if has_room { self.take_seat(stage) } else { None };
        match seat {
            Some(_) => {
                self.seats_of(stage)[ticket.seat].leave_orphan(ticket.rest.start, ticket.rest.end);
            }
            None => _ = self.orphaned[pool].fetch_sub(1, Relaxed),
        }
        seat
    }

    /// Returns whether the pool may have an orphan. The number saves the loads of all seats: other
    /// threads may add or adopt orphans at any time, and a worker may see the number before it sees
    /// the orphan.
    #[inline(always)]
    pub(crate) fn has_orphans(&self, pool: usize) -> bool {
        self.orphaned[pool].load(Relaxed) != 0
    }

    /// Takes over an orphan whose first position `accepts` accepts. Returns `None` if the pool has
    /// no such orphan. Between the two steps, another orphan may come to the same seat, so the
    /// caller looks again at the orphan that it gets.
    #[cold]
    pub(crate) fn adopt(
        &self,
        plan: &Plan,
        pool: usize,
        accepts: impl Fn(u64) -> bool,
    ) -> Option<Orphan> {
        let from = twin!("any-orphan": pool => plan.stages.len() - 1 - pool);
        let stage = &plan.stages[from];
        let adopt = |seat: &Line<Seat>| {
            accepts(seat.orphan_start()?).then(|| seat.adopt(self.participant)).flatten()
        };
        let mut seats = self.seats_of(stage).iter().enumerate();
        let orphan = seats.find_map(|(seat, line)| Some(Orphan { seat, rest: adopt(line)? }))?;
        self.orphaned[pool].fetch_sub(1, Relaxed);
        Some(orphan)
    }

    /// Returns whether [`Membership::adopt`] would find an orphan.
    #[inline]
    pub(crate) fn has_orphan(
        &self,
        plan: &Plan,
        pool: usize,
        accepts: impl Fn(u64) -> bool,
    ) -> bool {
        let is_accepted = |seat: &Line<Seat>| seat.orphan_start().is_some_and(&accepts);
        self.has_orphans(pool) && self.seats_of(&plan.stages[pool]).iter().any(is_accepted)
    }

    /// Returns the number of handles that have joined since the build: the members of all taps, and
    /// each pool's workers beyond those that the pool was built with.
    pub(crate) fn joined(&self, positions: &Positions, plan: &Plan) -> usize {
        let joined = plan.open.iter().map(|&stage| self.joined_to(positions, plan, stage));
        joined.fold(0, usize::saturating_add) // a segment's words may be damaged
    }

    /// Like [`Membership::joined`], for one stage.
    pub(crate) fn joined_to(&self, positions: &Positions, plan: &Plan, stage: usize) -> usize {
        match &plan.stages[stage] {
            Stage { delivery: Delivery::Pool { workers, .. }, .. } => {
                self.alive[stage].load(Relaxed).saturating_sub(*workers)
            }
            stage @ Stage { delivery: Delivery::Tap(_), .. } => positions.members(stage),
            _ => 0,
        }
    }

    // Members of taps.

    /// Takes a free seat of a tap, stores the seat's next badge, and returns the seat. Returns
    /// `None` if no seat is free.
    pub(crate) fn acquire_member(&self, positions: &Positions, stage: &Stage) -> Option<usize> {
        let seat = self.take_seat(stage)?;
        self.seats_of(stage)[seat].begin_member();
        let badge = positions.line(stage.badge_line(seat));
        may_die!();
        badge.store((badge.load(Relaxed) & !LEAVE).wrapping_add(NEXT_BADGE), Relaxed);
        Some(seat)
    }

    /// Gives a member's seat back. After the call, the caller must notify the queues of the parties
    /// that waited for the member.
    pub(crate) fn release_member(&self, positions: &Positions, stage: &Stage, seat: usize) {
        // The leaving member's bound becomes idle before the seat is free. If the seat were freed
        // first, the idle bound could overwrite the next member's bound.
        twin!("seat-freed-first": unseat(positions, stage, seat) => ());
        bar(positions, stage, seat);
        self.free_seat(stage, seat);
        twin!("seat-freed-first": () => unseat(positions, stage, seat));
    }
}

/// Takes the member at `seat` out of its tap. The caller owns the seat, or recovers it from a dead
/// process.
pub(crate) fn unseat(positions: &Positions, stage: &Stage, seat: usize) {
    edge::left::unbind(positions.line(stage.bound_line(seat)), IDLE);
    positions.remove_member(stage, seat); // SYNC[left]: after the bound
}

/// Bars the member at `seat` from further requests to leave: each later request returns `false`.
pub(crate) fn bar(positions: &Positions, stage: &Stage, seat: usize) {
    may_die!();
    positions.line(stage.badge_line(seat)).fetch_or(LEAVE, Relaxed);
}

/// The error of an attempt to join a pool that has no worker left.
#[derive(Debug)]
pub(crate) struct PoolIsOver;

/// Asks the member with the badge `badge` to leave. Returns `false` if the member was asked
/// before or has left.
pub(crate) fn ask_to_leave(badge_line: &AtomicU64, badge: u64) -> bool {
    // The request to leave carries no data, so the access is relaxed. The caller notifies the
    // member.
    badge_line.compare_exchange(badge, badge | LEAVE, Relaxed, Relaxed).is_ok()
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;
    use crate::wait::Wait;

    /// Shows that the count of claimants never overflows, and that several claimants are never
    /// taken for a sole claimant.
    #[test]
    fn claimants_are_counted_beyond_32_bits() {
        let plan = Plan::new(Vec::new(), 1, true, &Wait::BusySpin, &Wait::BusySpin, true).unwrap();
        let board = crate::ring::board::Board::heap(&plan, 0).unwrap();
        let handles = Membership::new(&plan, board.seats, board.cells, board.participant);
        assert!(handles.company() == Company::Now, "no claimant is the only one of none");
        handles.add_claimant();
        assert!(handles.company() == Company::Earlier);
        handles.settle_alone();
        assert!(handles.company() == Company::Never);
        for forgotten in
            [1, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, (1 << 62) - 1]
        {
            handles.claimants.fetch_add(CLAIMANT * forgotten, Relaxed);
            assert!(
                handles.company() == Company::Now,
                "one of {} claimants believes that it is alone",
                forgotten + 1
            );
            handles.add_claimant();
            assert!(handles.company() == Company::Now);
            handles.claimants.fetch_sub(CLAIMANT * (forgotten + 1), Relaxed);
            assert!(handles.company() == Company::Earlier, "former claimants are forgotten");
            handles.settle_alone();
        }
    }
}
