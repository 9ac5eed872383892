//! The position of a consumer that goes through all events in order: a stage, a member of a tap, or
//! a shard.
//!
//! The search for available events is in [`search`]. This module moves the position over events,
//! releases them, and finds the stream's end. The module [`position`](crate::consumer::position)
//! states the invariants of all positions.
//!
//! Invariants
//! - I1: `line` is a line of the ring that `state.core` keeps alive (positions::I5), so its word is
//!   valid while the position lives.

mod search;

use crate::base::edge;
use crate::base::sync::twin;
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState, Runs};
use crate::consumer::role::{Role, StageRole};
use crate::consumer::waiting::{Counting, Waiting};
use crate::errors::WaitError;
use crate::ring::owner::Owner;
use crate::ring::positions::ReleaseLine;
use crate::ring::slots::Layout;
use crate::ring::stamp::Stamp;
use crate::ring::waits::Place;
use crate::ring::words::ahead;
use crate::ring::world::{Recover as _, World};
use crate::wait::HandleLearner;

/// The position of a stage that sees every event.
pub(crate) type StagePosition<E, L> = SequentialPosition<E, L, StageRole>;

/// The position of a consumer that goes through all events in order, in the role `R`.
#[repr(align(128))] // on cache lines of its own, as `Producer`
pub struct SequentialPosition<E, L: Layout, R: Role> {
    state: ConsumerState<E, L>,
    role: R,
    /// The line to which `release` stores the position.
    line: ReleaseLine,
    /// Whether the position finds available events by loading stamps instead of a frontier.
    reads_stamps: bool,
    /// Whether the producer's cursor alone decides how far the position may go.
    follows_cursor: bool,
    /// The position at which this handle started.
    started_at: u64,
    /// The position of the next event.
    next: u64,
    /// End of the events that are known to be available.
    live_end: u64,
    /// End of the run that contains `live_end`. `run_end` equals `live_end` unless the dependencies
    /// have released only a part of the run.
    run_end: u64,
    /// The dependencies' frontier when this position last loaded it. If `reads_stamps` is `true`, a
    /// position before which every event is known to be published, even an event without a stamp
    /// inside of a run.
    limit: u64,
    /// End of the released positions.
    released: u64,
    /// Number of positions that were passed over: tombstones, and events of other shards.
    passed_over: u64,
    /// Start and end of the latest tombstones that were passed over while earlier events were held.
    held_tombstones: (u64, u64),
    /// Values that the position had at its last release, and that a retry restores.
    at_last_release: Checkpoint,
}

/// The values that a retry restores in a position, in addition to `next`.
struct Checkpoint {
    live_end: u64,
    run_end: u64,
    passed_over: u64,
    tombstones: u64,
}

#[cfg(all(test, not(slipring_loom)))]
impl<E, L: Layout, R: Role> SequentialPosition<E, L, R> {
    /// Adds to the number of passed-over positions, so that a test reaches the wrap of the number.
    pub(crate) fn count_passed(&mut self, positions: u64) {
        self.passed_over = self.passed_over.wrapping_add(positions);
    }
}

impl<E, L: Layout> StagePosition<E, L> {
    /// Creates the position of a stage, at the ring's first position.
    pub(crate) fn new(core: Owner<E, L>, stage: usize, learned: HandleLearner) -> Self {
        let (start, line) = (core.control.start, core.control.plan.stages[stage].line);
        let place = Place { party: stage, at: start };
        SequentialPosition::begin(core, place, line, StageRole, learned)
    }
}

impl<E, L: Layout, R: Role> SequentialPosition<E, L, R> {
    /// Creates a position at `place` that stores its releases to line number `line`. The stages
    /// before the position's stage have released every event before `place.at`.
    pub(crate) fn begin(
        core: Owner<E, L>,
        place: Place,
        line: usize,
        role: R,
        learned: HandleLearner,
    ) -> Self {
        let Place { party: stage, at } = place;
        let line = core.control.positions.release_line(line);
        let reads_stamps = core.control.plan.reads_stamps(stage);
        let plan = &core.control.plan;
        let follows_cursor = !reads_stamps
            && plan.stages[stage].after.is_empty()
            && plan.stages[stage].guard.is_none()
            && !plan.sentinel;
        SequentialPosition {
            state: ConsumerState::new(core, stage, learned),
            role,
            line,
            reads_stamps,
            follows_cursor,
            started_at: at,
            next: at,
            live_end: at,
            run_end: at,
            limit: at,
            released: at,
            passed_over: 0,
            held_tombstones: (at, at),
            at_last_release: Checkpoint {
                live_end: at,
                run_end: at,
                passed_over: 0,
                tombstones: 0,
            },
        }
    }

    /// Stores on the seat that `len` events are lent, before the handler touches these events.
    /// Returns `len`.
    #[inline(always)]
    pub(crate) fn lend(&self, len: u64) -> u64 {
        self.role.lend(self.next.wrapping_add(len));
        len
    }

    /// Checks the last position of a closed ring for a stage that has not reached it; another
    /// process may have damaged the word that holds it. Returns an error if the stage can never
    /// reach the position.
    #[inline]
    fn false_end(&self) -> Option<WaitError> {
        let last = self.state.control().status.last_position()?;
        // The events up to the last position fit into the ring, because this stage has released
        // none of them. All of these events are published, so a stage that finds events by stamps
        // finds them all.
        let beyond = last.wrapping_sub(self.released) > self.state.core.capacity();
        let behind = ahead(last, self.next) < 0;
        let missing = self.reads_stamps && last != self.next && !self.has_available();
        (beyond || behind || missing).then_some(WaitError::Damaged)
    }

    /// Releases the handled events before `seq`, and the tombstones that directly follow them.
    pub(crate) fn release_until(&mut self, seq: u64) {
        let next = self.next;
        let (tombstones, end) = self.held_tombstones;
        let seq = if end == next && ahead(seq, tombstones) >= 0 { next } else { seq };
        if ahead(seq, self.released) > 0 {
            // `release` releases every position before `self.next`. So for this call, a `self.next`
            // beyond `seq` is moved back to `seq`.
            self.next = if ahead(next, seq) >= 0 { seq } else { next };
            self.release();
            self.next = next;
            // The call that found the stream's end may have come before this release.
            self.state.control().notify_drained();
        }
    }

    pub(crate) fn role(&self) -> &R {
        &self.role
    }

    /// Returns the number of events from `next` on that are known to be available.
    #[inline(always)]
    pub(crate) fn known(&self) -> u64 {
        self.live_end.wrapping_sub(self.next)
    }

    /// Passes over `len` available events that other shards own.
    pub(crate) fn pass_over(&mut self, len: u64) {
        debug_assert!(len <= self.known());
        self.next = self.next.wrapping_add(len);
        self.passed_over += len;
    }

    /// Returns whether this position has reached the end of a closing ring.
    fn is_at_end(&self) -> bool {
        self.state.control().status.is_closing()
            && self.waits_for_run()
            && L::World::is_end(self.state.control(), self.next)
    }

    /// Returns whether this position knows of no event and, in a segment with several producers,
    /// lies where the next run begins.
    fn waits_for_run(&self) -> bool {
        L::World::SHARED
            && self.state.control().plan.many_producers
            && self.next == self.live_end
            && !self.is_midway()
            && self.is_at_boundary()
    }

    /// Returns whether `next` lies outside of all runs; the position knows of no event at `next`.
    /// If the position follows the frontier of other stages, `next` may lie in the middle of a run,
    /// and only the run's first slot has the stamp. The sentinel always stands at the end of a run.
    fn is_at_boundary(&self) -> bool {
        let at_sentinel = || {
            let (plan, core) = (&self.state.control().plan, &self.state.core);
            let sentinel = || core.advance_sentinel() == self.next;
            plan.sentinel && twin!("boundary-assumed": sentinel() => true)
        };
        self.reads_stamps || at_sentinel()
    }

    /// Returns whether no event will follow the events before `end`, or whether the handle must
    /// stop. While a ring closes whose last position is not known yet, the result is `true`.
    #[cold]
    fn stops_at(&self, end: u64) -> bool {
        let control = self.state.control();
        let must_stop = self.check().is_err();
        must_stop || control.status.last_position().is_none_or(|last| ahead(last, end) <= 0)
    }

    /// Returns whether the ring is full, although this stage holds only a part of it. Later stages
    /// hold the rest, and may wait for the events of this stage.
    fn is_ring_full(&self, end: u64) -> bool {
        let (core, stage) = (&self.state.core, self.state.stage);
        !core.control.plan.gating.contains(&stage) && core.is_full_at(end)
    }

    /// Returns why no event will come any more, if this handle or the status knows a reason.
    fn known_end(&self) -> Option<WaitError> {
        let ended = self
            .role
            .refusal::<L::World>(self.state.control())
            .or_else(|| self.state.control().status.ended(self.next));
        if L::World::SHARED && ended.is_none() { self.false_end() } else { ended }
    }

    /// Releases every position before `end`, which is `next`.
    #[inline(always)]
    fn release_at(&mut self, end: u64) {
        self.released = end;
        twin!("boundary-late": self.role.bound(self.live_end) => ());
        // SAFETY: I1.
        let line = unsafe { self.line.word() };
        edge::released::release(line, end << R::RELEASE_SHIFT);
        self.state.control().waits.notify(self.state.notifies());
        twin!("boundary-late": () => self.role.bound(self.live_end));
    }

    /// Samples latencies of the events that are about to be released, and saves the values that a
    /// retry restores.
    #[cold]
    #[inline(never)]
    fn prepare_release(&mut self) {
        if R::SAMPLES
            && let Some(samples) = &self.state.control().counters.samples
        {
            samples.releasing(
                self.state.stage,
                self.released,
                self.next.wrapping_sub(self.released),
                |_| true,
            );
        }
        self.at_last_release = Checkpoint {
            live_end: self.live_end,
            run_end: self.run_end,
            passed_over: self.passed_over,
            tombstones: self.state.counts.tombstones,
        };
    }
}

impl<E, L: Layout, R: Role> ConsumerPosition<E, L> for SequentialPosition<E, L, R> {
    fn state(&self) -> &ConsumerState<E, L> {
        &self.state
    }

    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        &mut self.state
    }

    #[inline(always)]
    fn line(&self) -> usize {
        self.line.index()
    }

    #[inline(always)]
    fn next(&self) -> u64 {
        self.next
    }

    #[inline(always)]
    fn handled(&self) -> u64 {
        self.next.wrapping_sub(self.started_at).wrapping_sub(self.passed_over)
    }

    #[inline(always)]
    fn advance(&mut self, len: u64, found: u64) {
        debug_assert!(len <= found.max(self.known()));
        if self.state.bookkeeping {
            self.state.partition(self.next, len);
        }
        if found > self.known() {
            self.live_end = self.next.wrapping_add(found);
        }
        self.next = self.next.wrapping_add(len);
    }

    #[inline(always)]
    fn release(&mut self) {
        if self.released != self.next {
            if self.state.bookkeeping {
                self.prepare_release();
            }
            self.release_at(self.next);
        }
    }

    /// Like the trait's method, with one check for all extra work.
    #[inline(always)]
    fn pass(&mut self, len: u64) {
        debug_assert!((1..=self.known()).contains(&len));
        let end = self.next.wrapping_add(len);
        if self.state.bookkeeping {
            self.advance(len, 0);
            self.prepare_release();
        }
        self.next = end;
        self.release_at(end);
    }

    fn rewind(&mut self) {
        debug_assert!(self.state.bookkeeping);
        self.next = twin!("rewound-too-far": self.released => self.released.wrapping_sub(1));
        let Checkpoint { live_end, run_end, passed_over, tombstones } = self.at_last_release;
        (self.live_end, self.run_end, self.passed_over) = (live_end, run_end, passed_over);
        self.state.counts.tombstones = tombstones;
    }

    fn released(&self) -> u64 {
        self.released
    }

    #[inline(always)]
    fn first_unreleased(&self) -> u64 {
        self.released
    }

    #[inline(always)]
    fn has_unreleased(&self) -> bool {
        self.released != self.next
    }

    fn holds_whole_ring(&self) -> bool {
        self.next.wrapping_sub(self.released) >= self.state.core.capacity()
    }
}

impl<E, L: Layout, R: Role> Availability<E, L> for SequentialPosition<E, L, R> {
    const MAY_PAUSE: bool = true;

    #[inline(always)]
    fn runs(&self) -> Runs {
        match self.reads_stamps {
            false => Runs::Hidden,
            // The seat must record each event before the handler touches the event.
            true if L::World::SHARED => Runs::Polled,
            true => Runs::Walked,
        }
    }

    #[inline(always)]
    fn poll(&mut self, max: u64) -> u64 {
        if !self.find_any() {
            return 0;
        }
        self.lend(self.known().min(max))
    }

    #[inline(always)]
    fn poll_single(&mut self) -> bool {
        let found = self.find_any();
        if found {
            self.lend(1);
        }
        found
    }

    #[inline(always)]
    fn pass_single(&mut self) {
        self.pass(1);
    }

    #[inline(always)]
    fn gather(&mut self, least: u64, max: u64) -> u64 {
        let known = self.find(least);
        if known == 0 { 0 } else { self.lend(known.min(max)) }
    }

    fn is_gathered(&self, len: u64, end: &mut u64) -> bool {
        let stops = |end| !self.is_undisturbed() && self.stops_at(end);
        self.reaches(len, end)
            || twin!("full-ring-unasked": self.is_ring_full(*end) => false)
            || twin!("gathers-past-the-end": stops(*end) => false)
    }

    fn known_until(&self) -> u64 {
        self.live_end
    }

    #[inline(always)]
    fn is_exhausted(&mut self, short: bool) -> bool {
        short
    }

    fn has_available(&self) -> bool {
        let core = &*self.state.core;
        self.next != self.live_end
            || match self.reads_stamps {
                true => {
                    self.state.slots.run_at(self.live_end) != Stamp::Unpublished
                        || R::STARTS_MID_RUN && self.is_midway()
                }
                false if self.follows_cursor => {
                    ahead(core.control.positions.cursor(), self.live_end) > 0
                }
                false => {
                    self.limit != self.live_end
                        || ahead(core.upstream(self.state.stage, self.limit).0, self.limit) > 0
                }
            }
    }

    fn waits_for(&self) -> usize {
        self.state.core.upstream(self.state.stage, self.limit).1
    }

    #[inline(always)]
    fn check(&self) -> Result<(), WaitError> {
        self.state.control().status.check_running()?;
        self.role.refusal::<L::World>(self.state.control()).map_or(Ok(()), Err)
    }

    #[cold]
    fn find_end(&self) -> Option<WaitError> {
        let ended = self.known_end();
        if ended.is_none() && self.is_at_end() {
            self.state.control().close(self.next);
            return self.state.control().status.ended(self.next);
        }
        ended
    }

    #[inline(always)]
    fn is_undisturbed(&self) -> bool {
        let control = self.state.control();
        !control.status.is_over() && self.role.refusal::<L::World>(control).is_none()
    }

    #[cold]
    fn has_ended(&self) -> bool {
        self.known_end().is_some() || self.is_at_end()
    }

    #[cold]
    fn finds_damage(&self) -> bool {
        let damaged = self.waits_for_run() && self.state.core.is_passed_over(self.next);
        if damaged {
            self.role.find_damage();
        }
        damaged
    }
}

impl<E, L: Layout, R: Role> Drop for SequentialPosition<E, L, R> {
    fn drop(&mut self) {
        if L::World::SHARED {
            if self.state.control().is_own_process() {
                self.disarm();
                self.flush();
                self.role.leave(&self.state, self.released); // SYNC[seated]: last
            }
            return;
        }
        self.disarm();
        // No other handle ever releases the events that a dropped handle held.
        self.role.leave(&self.state, self.released);
        self.flush();
    }
}
