//! The position of a consumer that goes through all events in order: a stage, a member of a tap, or
//! a shard.
//! A `SequentialPosition` finds available events by stamps or by a frontier. In a ring with stamps,
//! a consumer finds available events by stamps if its stage has no dependencies and is no tap. A
//! consumer that does not find events by stamps loads a frontier: the frontier of its stage's
//! dependencies, a single producer's cursor, or the sentinel. With many producers, a consumer that
//! finds events by a frontier also loads stamps, to recognise tombstones. The invariants are those
//! of [`position`](crate::consumer::position).

use crate::base::sync::twin;
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState, Runs};
use crate::consumer::role::{Role, StageRole};
use crate::consumer::waiting::{Counting, Waiting};
use crate::errors::WaitError;
use crate::ring::heads;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::ring::stamp::Run;
use crate::ring::words::ahead;
use crate::wait::HandleLearner;

/// Largest number of times that a search of a seated handle passes over tombstones, at most a lap of
/// them each time.
const TOMBSTONE_ROUNDS: u32 = 64;

/// The position of a stage that sees every event.
pub(crate) type StagePosition<E, L> = SequentialPosition<E, L, StageRole>;

/// The position of a consumer that goes through all events in order, in the role `R`.
#[repr(align(128))] // on cache lines of its own, as `Producer`
pub struct SequentialPosition<E, L: Layout, R: Role> {
    state: ConsumerState<E, L>,
    role: R,
    /// Index of the line to which `release` stores the position.
    line: usize,
    /// Number of bits by which `release` shifts the stored position to the left: 1 for a member of
    /// a tap, else 0.
    shift: u32,
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
    /// The dependencies' frontier when this position last loaded the frontier. If `reads_stamps` is
    /// `true`: the position before which all events are published, although a run without a stamp
    /// may contain them.
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
        SequentialPosition::begin(core, stage, StageRole, (line, 0), start, learned)
    }
}

impl<E, L: Layout, R: Role> SequentialPosition<E, L, R> {
    /// Creates a position at `at`. The stages before the position's stage have released every event
    /// before `at`.
    pub(crate) fn begin(
        core: Owner<E, L>,
        stage: usize,
        role: R,
        (line, shift): (usize, u32),
        at: u64,
        learned: HandleLearner,
    ) -> Self {
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
            shift,
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

    /// Moves the end of the known events to `end`, for a stage that goes on where another handle
    /// stopped. Every position before `end` is published.
    pub(crate) fn know_until(&mut self, end: u64) {
        if ahead(end, self.live_end) > 0 && self.reads_stamps {
            // Given-up positions of several producers have stamps, and are no events.
            let all_live = !self.state.control().plan.many_producers;
            if twin!("tombstones-assumed-live": all_live => true) {
                (self.live_end, self.run_end) = (end, end);
                self.keep_within_ring();
            } else if end.wrapping_sub(self.released) > self.state.core.capacity() {
                self.role.find_damage();
            } else {
                self.limit = end;
            }
        }
    }

    /// Keeps the known events of a seated stage within the ring. Other processes write the words by
    /// which events are found, whatever these words say. Returns whether the words are whole.
    #[inline(always)]
    fn keep_within_ring(&mut self) -> bool {
        if R::SEATED {
            let known = self.live_end.wrapping_sub(self.released);
            if known > self.state.core.capacity() {
                self.role.find_damage();
                (self.live_end, self.run_end, self.limit) = (self.next, self.next, self.next);
                return false;
            }
        }
        true
    }

    /// Tells the seat that `len` events are lent, before the handler touches them. Returns `len`.
    #[inline(always)]
    pub(crate) fn lend(&self, len: u64) -> u64 {
        self.role.lend(self.next.wrapping_add(len));
        len
    }

    /// Checks the last position of a closed ring, whose word other processes write, for a stage
    /// that has not reached it. Returns an error if the stage can never reach it.
    #[inline]
    fn false_end(&self) -> Option<WaitError> {
        let last = self.state.control().status.last_position()?;
        // The events up to the last position fit into the ring, because this stage has released
        // none of them. All of them are published, so a stage that goes by stamps finds them.
        let beyond = last.wrapping_sub(self.released) > self.state.core.capacity();
        let behind = ahead(last, self.next) < 0;
        let missing = self.reads_stamps && last != self.next && !self.has_available();
        (beyond || behind || missing).then_some(WaitError::Damaged)
    }

    /// Releases the handled events before `seq`. Also releases the tombstones that directly follow
    /// the released events.
    pub(crate) fn release_until(&mut self, seq: u64) {
        let next = self.next;
        let (tombstones, end) = self.held_tombstones;
        let seq = if end == next && ahead(seq, tombstones) >= 0 { next } else { seq };
        if ahead(seq, self.released) > 0 {
            // `release` releases every position before `self.next`. During the call of `release`,
            // `self.next` holds the earlier of two positions: `seq` and the value that `self.next`
            // had before.
            self.next = if ahead(next, seq) >= 0 { seq } else { next };
            self.release();
            self.next = next;
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

    /// Looks for an event until one is known, or until none is available. Returns whether one is
    /// known.
    #[inline(always)]
    fn find_any(&mut self) -> bool {
        let mut rounds = 0;
        while self.next == self.live_end {
            // A round that finds no event passes over tombstones. Another process could stamp
            // tombstones as fast as this one passes over them.
            if R::SEATED {
                if rounds == TOMBSTONE_ROUNDS {
                    return false;
                }
                rounds += 1;
            }
            if !self.extend() || !self.keep_within_ring() {
                return false;
            }
        }
        true
    }

    /// Loads a stamp or a frontier, then moves `live_end` or passes over a tombstone. Returns
    /// `true` if the position made progress; another call may then find more events.
    #[inline(always)]
    fn extend(&mut self) -> bool {
        if !self.reads_stamps {
            return self.extend_to_limit();
        }
        match self.state.slots.run_at(self.live_end) {
            Run::Live(len) => {
                self.live_end = self.live_end.wrapping_add(len);
                true
            }
            Run::Unpublished => R::STARTS_MID_RUN && self.extend_midway(),
            Run::Tombstone(_) => self.skip_tombstones(),
        }
    }

    /// Moves `live_end` over a part of a run whose first slot is before this handle's start, for a
    /// position that reads stamps. Each slot of a tombstone has a stamp, so a slot without a stamp
    /// belongs to a run of events.
    #[cold]
    fn extend_midway(&mut self) -> bool {
        if !self.is_midway() {
            return false;
        }
        self.live_end = self.live_end.wrapping_add(1);
        while self.is_midway() && self.state.slots.run_at(self.live_end) == Run::Unpublished {
            self.live_end = self.live_end.wrapping_add(1);
        }
        true
    }

    /// Returns whether the event at `live_end` is published, although it may have no stamp.
    #[inline]
    fn is_midway(&self) -> bool {
        ahead(self.limit, self.live_end) > 0
    }

    /// Returns whether this position has come to the end of a closing ring.
    fn is_at_end(&self) -> bool {
        self.state.control().status.is_closing()
            && self.waits_for_run()
            && self.role.is_end(&self.state, self.next)
    }

    /// Returns whether this position has no event, and is where the next run of one of several
    /// processes begins.
    fn waits_for_run(&self) -> bool {
        R::SEATED
            && self.state.control().plan.many_producers
            && self.next == self.live_end
            && !self.is_midway()
            && self.is_at_boundary()
    }

    /// Returns whether no run contains `next`, at which this position knows of no event. The
    /// frontier of other stages may lie in the middle of a run, whose stamp stands at its first slot
    /// only. The sentinel stands at the end of a run.
    fn is_at_boundary(&self) -> bool {
        let at_sentinel = || {
            let (plan, core) = (&self.state.control().plan, &self.state.core);
            let sentinel = || core.advance_sentinel() == self.next;
            plan.sentinel && twin!("boundary-assumed": sentinel() => true)
        };
        self.reads_stamps || at_sentinel()
    }

    /// Returns why no event will come any more, as far as this handle and the status know.
    fn known_end(&self) -> Option<WaitError> {
        let ended = self
            .role
            .refusal(self.state.control())
            .or_else(|| self.state.control().ended(self.next));
        if R::SEATED && ended.is_none() { self.false_end() } else { ended }
    }

    /// Works as [`SequentialPosition::extend`], for a position that follows a frontier.
    #[inline]
    fn extend_to_limit(&mut self) -> bool {
        let core = &*self.state.core;
        let plan = &core.control.plan;
        if self.live_end == self.limit {
            let frontier = if self.follows_cursor {
                core.control.cursor()
            } else {
                core.pass(self.state.stage, self.limit)
            };
            if ahead(frontier, self.limit) <= 0 {
                return false;
            }
            let beyond = frontier.wrapping_sub(self.released) > self.state.core.capacity();
            if R::SEATED && beyond {
                self.role.find_damage();
                return false;
            }
            self.limit = frontier;
        }
        if plan.many_producers {
            return self.extend_by_runs();
        }
        // A single producer's stream has no tombstones, because the producer claims given-up
        // positions again. Each position before `limit` holds an event.
        self.live_end = self.limit;
        true
    }

    /// Searches until `least` events are known or no further event is available, and lends none.
    /// Returns the number of known events.
    #[inline]
    pub(crate) fn find(&mut self, least: u64) -> u64 {
        if !self.reads_stamps {
            self.find_to_limit(least);
            return if self.keep_within_ring() { self.known() } else { 0 };
        }
        if !self.find_any() {
            return 0;
        }
        let (slots, mut end) = (self.state.slots, self.live_end);
        // Other processes write the stamps of a segment, so the walk is bounded by the ring.
        let least = if R::SEATED { least.min(self.state.core.capacity()) } else { least };
        while end.wrapping_sub(self.next) < least
            && let Run::Live(run) = slots.run_at(end)
        {
            end = end.wrapping_add(run);
            // The loop guesses that the next run is as long as the previous run. While runs stay
            // equally long, branch prediction lets the processor load the next stamp before the
            // previous stamp has arrived.
            while end.wrapping_sub(self.next) < least && slots.is_run_of(end, run) {
                end = end.wrapping_add(run);
            }
        }
        self.live_end = end;
        if self.keep_within_ring() { self.known() } else { 0 }
    }

    /// Works as [`SequentialPosition::find`], for a position that follows a frontier. Loads the
    /// frontier at most once, because an immediate second load would only slow down the threads
    /// that store the frontier.
    #[inline]
    fn find_to_limit(&mut self, least: u64) {
        let mut loaded = false;
        while self.known() < least {
            if self.live_end == self.limit && std::mem::replace(&mut loaded, true) {
                break;
            }
            if !self.extend_to_limit() {
                break;
            }
        }
    }

    /// Moves `live_end` to the end of the next run, or to `limit` if `limit` is inside of the next
    /// run.
    fn extend_by_runs(&mut self) -> bool {
        if self.run_end == self.live_end {
            match self.state.slots.run_at(self.live_end) {
                Run::Live(len) => self.run_end = self.live_end.wrapping_add(len),
                Run::Tombstone(_) => return self.skip_tombstones(),
                // A tap's member can start in the middle of a run. A producer may already have
                // overwritten the stamp at the run's first slot. Each slot of a tombstone has a
                // stamp, so a slot without a stamp belongs to a run of events.
                Run::Unpublished if R::STARTS_MID_RUN => {
                    let mut end = self.live_end.wrapping_add(1);
                    while end != self.limit && self.state.slots.run_at(end) == Run::Unpublished {
                        end = end.wrapping_add(1);
                    }
                    self.run_end = end;
                }
                // All handles of a segment may start in the middle of a run, so no word that another
                // process writes leads here.
                Run::Unpublished => {
                    unreachable!("a dependency released a position that is not published")
                }
            }
        }
        let (by_run, by_limit) =
            (ahead(self.run_end, self.live_end), ahead(self.limit, self.live_end));
        self.live_end = self.live_end.wrapping_add(by_run.min(by_limit) as u64);
        true
    }

    /// Passes over the tombstones at `next`. If unhandled events precede the tombstones, returns
    /// `false` and passes over nothing.
    #[cold]
    fn skip_tombstones(&mut self) -> bool {
        if self.next != self.live_end {
            return false;
        }
        let holds = self.released != self.next;
        let (tombstones, end) = self.held_tombstones;
        let start = if holds && end == self.next { tombstones } else { self.next };
        // Stages and members of taps can stop inside of a tombstone, so the frontier `limit` can
        // lie inside of a tombstone. The loop stops at `limit`. Each slot of a tombstone has a
        // stamp, so a later call can continue inside of a tombstone.
        let begin = self.next;
        while self.reads_stamps || self.next != self.limit {
            // No lap has more tombstones than slots, unless another process stamps more meanwhile.
            if R::SEATED && self.next.wrapping_sub(begin) > self.state.core.capacity() {
                break;
            }
            let Run::Tombstone(run) = self.state.slots.run_at(self.next) else { break };
            let len = if self.reads_stamps {
                run
            } else {
                twin!("past-the-limit": run.min(self.limit.wrapping_sub(self.next)) => run)
            };
            self.next = self.next.wrapping_add(len);
            self.passed_over += len;
            self.state.counts.tombstones += if self.role.counts_tombstones() { len } else { 0 };
        }
        self.live_end = self.next;
        self.run_end = self.next;
        // A release covers all earlier positions, so tombstones after held events stay unreleased
        // until the held events are released.
        if holds {
            self.held_tombstones = (start, self.next);
        } else {
            self.release();
        }
        true
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
        self.line
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
        debug_assert!(len <= found);
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
            self.released = self.next;
            twin!("boundary-late": self.role.bound(self.live_end) => ());
            self.state.control().release(self.line, self.next << self.shift, self.state.notifies());
            twin!("boundary-late": () => self.role.bound(self.live_end));
        }
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
            // A seat must know of each event before the handler touches the event.
            true if R::SEATED => Runs::Polled,
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

    #[inline]
    fn gather(&mut self, least: u64, max: u64) -> u64 {
        let known = self.find(least);
        if known == 0 { 0 } else { self.lend(known.min(max)) }
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
                    self.state.slots.run_at(self.live_end) != Run::Unpublished
                        || R::STARTS_MID_RUN && self.is_midway()
                }
                false if self.follows_cursor => ahead(core.control.cursor(), self.live_end) > 0,
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
        self.state.control().check_running()?;
        self.role.refusal(self.state.control()).map_or(Ok(()), Err)
    }

    #[cold]
    fn find_end(&self) -> Option<WaitError> {
        let ended = self.known_end();
        if ended.is_none() && self.is_at_end() {
            self.state.control().close(self.next);
            return self.state.control().ended(self.next);
        }
        ended
    }

    #[inline(always)]
    fn is_undisturbed(&self) -> bool {
        let control = self.state.control();
        control.is_undisturbed() && self.role.refusal(control).is_none()
    }

    #[cold]
    fn has_ended(&self) -> bool {
        self.known_end().is_some() || self.is_at_end()
    }

    #[cold]
    fn finds_damage(&self) -> bool {
        let damaged = self.waits_for_run() && heads::is_passed_over(&self.state.core, self.next);
        if damaged {
            self.role.find_damage();
        }
        damaged
    }
}

impl<E, L: Layout, R: Role> Drop for SequentialPosition<E, L, R> {
    fn drop(&mut self) {
        if R::SEATED {
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
