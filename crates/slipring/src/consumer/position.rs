//! A consumer's private positions, and how they move: walk, handle, advance, release. Who sits here
//! is one stage, or one worker.
//!
//! Invariants
//! - I1: `released <= next <= live_end`, and `[next, live_end)` is published, not given up, and let
//!   go by every stage before this one. Only the seat's owner changes any of them.
//! - I2: from the time a position is returned by [`ConsumerPosition::look`] until it is released, this seat's
//!   stage may touch the event there: the stages after it and the producers wait for the release.
//! - I3: tombstones are passed over: they advance `next` and are released like events, but nobody
//!   is lent one.

use std::marker::PhantomData;
use std::task::Waker;
use std::time::Instant;

use crate::base::sync::twin;
use crate::errors::{BatchError, Cause, WaitError};
use crate::ring::control::{Control, Waiter};
use crate::ring::counters::{FLUSH_EVERY, LocalCounts};
use crate::ring::owner::Owner;
use crate::ring::plan::Stage;
use crate::ring::self_wait;
use crate::ring::slots::{Layout, View};
use crate::ring::spec::Access;
use crate::ring::stamp::Run;
use crate::ring::task_number::TaskNumber;
use crate::ring::words::ahead;
use crate::wait::Learned;

/// What the loops and the leases need of a consumer, one or worker.
pub(crate) trait ConsumerPosition<E, L: Layout> {
    /// Whether having fewer than was asked for says that there is no more, so that a loop may
    /// pause. See [`space`].
    const GATHERS_ALL: bool;
    /// Whether this seat stands where whatever is stamped is its to handle: then runs can be walked
    /// while they are handled.
    fn walks_runs(&self) -> bool;
    /// How many events, at most `max`, can be had now from [`ConsumerPosition::next`] on, as far as is known or
    /// one look tells.
    fn poll(&mut self, max: u64) -> u64;
    /// As [`ConsumerPosition::look`], but looks on until there are `least` or no more in a row.
    fn gather(&mut self, least: u64, max: u64) -> u64;
    /// Looks from now on are for so many events at most: a worker takes no more from its
    /// colleagues.
    #[inline(always)]
    fn want(&mut self, _max: u64) {}
    /// Where this seat says what it has let go.
    fn line(&self) -> usize;
    /// The position of the next event.
    fn next(&self) -> u64;
    /// How many events this seat has handled.
    fn handled(&self) -> u64;
    /// So many events are handled, and at least `found` are known to be published, from
    /// [`ConsumerPosition::next`] on; nobody else is told yet.
    fn advance(&mut self, len: u64, found: u64);
    /// Lets go of everything before [`ConsumerPosition::next`].
    fn release(&mut self);
    /// Goes back to what was released last.
    fn rewind(&mut self);
    /// What it has let go, as a mark: another one says that it came further.
    fn released(&self) -> u64;
    /// Whether something is handled and not released, and no look releases it.
    fn holds(&self) -> bool;
    /// Whether this seat holds the whole ring, so that nothing can come before it lets go.
    fn holds_all(&self) -> bool {
        false
    }
    /// Whether a look might find something. Changes nothing and rings nothing, so it may run under
    /// a bell's lock.
    fn has_available(&self) -> bool;
    /// Whom a wait would be for: a stage by number, or the producer.
    fn waits_for(&self) -> usize;
    /// Whether another seat took what this one looked at.
    fn was_contended(&self) -> bool {
        false
    }
    fn state(&self) -> &ConsumerState<E, L>;
    fn state_mut(&mut self) -> &mut ConsumerState<E, L>;

    /// Whether this seat's owner may go on.
    #[inline(always)]
    fn check(&self) -> Result<(), WaitError> {
        self.state().control().check_running()
    }

    /// What the core knows of why there is nothing, now or ever. Call it after a look in vain.
    fn ended(&self) -> Option<WaitError> {
        self.state().core.control.ended(self.next())
    }

    /// Whether a look should be made: there might be something, or there never will.
    fn is_ready(&self) -> bool {
        self.has_available() || self.ended().is_some()
    }

    /// Has a task woken when a look should be made, unless one should be now: then `true`.
    fn arm(&mut self, waker: &Waker) -> bool {
        let state = self.state_mut();
        let number = state.number.get(&state.core.control);
        let state = self.state();
        // No task is woken for the deadline, but one that looks past it in vain is told.
        if state.control().status.overdue().is_some() && !self.is_ready() {
            state.control().expire(state.stage, self.next());
        }
        state.control().arm(state.stage, number, waker, &mut || self.is_ready())
    }

    fn disarm(&mut self) {
        if let Some(number) = self.state_mut().number.taken() {
            let state = self.state();
            state.control().queue_of(state.stage).disarm(number);
        }
    }

    /// Tells the graph's counters what this seat has counted.
    #[cold]
    #[inline(never)]
    fn flush(&mut self) {
        self.state_mut().flushed = self.flush_counts();
    }

    /// Tells it if there was a batch since.
    fn flush_if_new(&mut self) {
        if self.state().counts.batches != self.state().flushed.batches {
            self.flush();
        }
    }

    /// Tells it, for whoever notes what was told.
    fn flush_counts(&self) -> LocalCounts {
        let state = self.state();
        let now = LocalCounts { events: self.handled(), ..state.counts };
        state.control().count(state.stage, &now, &state.flushed);
        now
    }

    /// A batch is done.
    #[inline(always)]
    fn count_batch(&mut self) {
        let counts = &mut self.state_mut().counts;
        counts.batches += 1;
        if counts.batches.is_multiple_of(FLUSH_EVERY) {
            self.flush();
        }
    }

    /// Waits until [`ConsumerPosition::look`] has something or never will. Out of line, or the loop around it
    /// would be compiled around it.
    #[cold]
    #[inline(never)]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), BatchError> {
        let waits_for = self.waits_for();
        let waiter = Waiter { party: self.state().stage, waits_for, at: self.next() };
        let learned = std::mem::take(&mut self.state_mut().learned);
        let (waited, stats) = {
            // Dropped where it is, at the end of this block: moving it to drop it would copy all
            // its counts.
            let mut waiting =
                Waiting { position: &mut *self, learned, flushed: None, kind: PhantomData };
            let Waiting { ref position, ref mut learned, ref mut flushed, .. } = waiting;
            let (state, next) = (position.state(), position.next());
            let lasts = &mut || {
                *flushed = Some(position.flush_counts());
                self_wait::stuck_at(state.control(), state.stage, next)
                    .filter(|_| state.core.is_claimed(next))
            };
            state.control().wait_at(waiter, learned, deadline, lasts, &mut || position.is_ready())
        };
        self.state_mut().counts.wait(waits_for, stats);
        if waited.is_err() {
            self.flush();
        }
        waited
    }
}

/// A wait of a seat. Dropped, also by a panic of the strategy, it puts back what was learned and
/// what was told, so that nothing is counted twice.
struct Waiting<'s, E, L: Layout, S: ConsumerPosition<E, L> + ?Sized> {
    position: &'s mut S,
    learned: Learned,
    flushed: Option<LocalCounts>,
    kind: PhantomData<(E, L)>,
}

impl<E, L: Layout, S: ConsumerPosition<E, L> + ?Sized> Drop for Waiting<'_, E, L, S> {
    fn drop(&mut self) {
        let state = self.position.state_mut();
        std::mem::swap(&mut state.learned, &mut self.learned);
        // After a short wait there is nothing to copy.
        if let Some(flushed) = self.flushed {
            state.flushed = flushed;
        }
    }
}

/// What every seat carries.
pub struct ConsumerState<E, L: Layout> {
    pub(crate) core: Owner<E, L>,
    pub(crate) slots: View<E, L>,
    pub(crate) stage: usize,
    pub(crate) counts: LocalCounts,
    /// What of them the graph's counters know.
    flushed: LocalCounts,
    /// Nothing is being handled: what fails now is no event's fault.
    pub(crate) between: bool,
    /// Whether there is more to do with what it handled than to say so: to work out keys for
    /// shards, to take times, to note where a retry would go back to.
    pub(crate) notes: bool,
    /// Whether anybody may sleep until it lets something go.
    notifies: bool,
    /// Something was skipped since the last release.
    pub(crate) skipped: bool,
    /// How many events a handler of batches was given at once.
    pub(crate) stretch: u64,
    /// Under which its tasks wait.
    pub(crate) number: TaskNumber,
    /// What its waits have taught it.
    learned: Learned,
}

impl<E, L: Layout> ConsumerState<E, L> {
    /// `learned`: made before its seat was counted or pinned, for that is the user's code.
    pub(crate) fn new(core: Owner<E, L>, stage: usize, learned: Learned) -> Self {
        let (counts, flushed) = Default::default();
        let plan = &core.control.plan.stages[stage];
        let notes = !plan.partitions.is_empty()
            || plan.policy.rewinds()
            || core.control.counters.samples.is_some();
        let notifies = !plan.notifies.is_empty();
        ConsumerState {
            slots: core.slots,
            core,
            stage,
            counts,
            flushed,
            between: true,
            notes,
            notifies,
            skipped: false,
            stretch: 1,
            number: TaskNumber::default(),
            learned,
        }
    }
    #[inline(always)]
    pub(crate) fn control(&self) -> &Control {
        &self.core.control
    }
    #[inline(always)]
    pub(crate) fn plan(&self) -> &Stage {
        &self.core.control.plan.stages[self.stage]
    }
    /// The bells of those who wait for it.
    #[inline(always)]
    pub(crate) fn notifies(&self) -> &[usize] {
        if self.notifies { &self.plan().notifies } else { &[] }
    }
    /// Works out whose these events are, which this stage is done with and has not let go.
    #[cold]
    pub(crate) fn partition(&self, first: u64, len: u64) {
        self.core.partition(&self.plan().partitions, self.stage, first, len);
    }
    /// Tells the model checker that this stage has these events now.
    #[inline(always)]
    pub(crate) fn touch(&self, first: u64, len: u64) {
        self.core.touch(first, len, self.plan().access == Access::Write);
    }
    /// Ends the graph because this seat's owner went, unless the graph is over anyway.
    pub(crate) fn left(&self, at: u64) {
        if self.control().ended(at).is_none() {
            let cause = if std::thread::panicking() {
                Cause::Panic("the thread that held its handle panicked".into())
            } else {
                Cause::Dropped
            };
            self.control().fail(self.stage, Some(at), cause);
        }
    }
}

/// In what the handles differ that see every event.
pub trait Role {
    /// Whether this one may begin in the middle of a run.
    const MIDWAY: bool = false;
    /// Whether what it lets go is timed.
    const SAMPLES: bool = true;
    /// Whether the tombstones that it passes are counted.
    fn counts_tombstones(&self) -> bool {
        true
    }
    /// Why this one may not go on, while the others may.
    #[inline(always)]
    fn refused(&self, _control: &Control) -> Option<WaitError> {
        None
    }
    /// It goes, and has let go of what is before `released`.
    fn goes<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64);
}

/// The role of a declared stage: the graph cannot do without it.
pub struct StageRole;

impl Role for StageRole {
    fn goes<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64) {
        state.left(released);
    }
}

/// The seat of a stage that sees every event.
pub(crate) type StagePosition<E, L> = SequentialPosition<E, L, StageRole>;

/// The seat of one who sees every event.
#[repr(align(128))] // as a producer
pub struct SequentialPosition<E, L: Layout, R: Role> {
    state: ConsumerState<E, L>,
    role: R,
    /// The line on which it tells what it has let go.
    line: usize,
    /// By how many bits the position is shifted there.
    shift: u32,
    /// Whether it stands directly behind producers who stamp.
    first: bool,
    /// Whether all that says how far it may go is the producer's cursor.
    follows: bool,
    /// Where it began.
    began: u64,
    next: u64,
    live_end: u64,
    /// Where the run ends that `live_end` lies in, if the stages before this one have not let all
    /// of it go.
    run_end: u64,
    /// What the stages before this one are known to have let go. Unused directly behind the
    /// producer.
    limit: u64,
    released: u64,
    /// How many positions it has passed without an event of its own there.
    passed: u64,
    /// From where to where it passed over tombstones last while it held what is before them.
    tail: (u64, u64),
    /// What stood at the last release: `live_end`, `run_end`, `passed`, and the count of
    /// tombstones.
    then: (u64, u64, u64, u64),
}

#[cfg(all(test, not(slipring_loom)))]
impl<E, L: Layout, R: Role> SequentialPosition<E, L, R> {
    /// As if so many more positions had been passed without an event of its own there.
    pub(crate) fn count_passed(&mut self, positions: u64) {
        self.passed = self.passed.wrapping_add(positions);
    }
}

impl<E, L: Layout> StagePosition<E, L> {
    pub(crate) fn new(core: Owner<E, L>, stage: usize, learned: Learned) -> Self {
        let (start, line) = (core.control.start, core.control.plan.stages[stage].line);
        SequentialPosition::begin(core, stage, StageRole, (line, 0), start, learned)
    }
}

impl<E, L: Layout, R: Role> SequentialPosition<E, L, R> {
    /// Begins at a position that the stages before have let go up to, or a later one.
    pub(crate) fn begin(
        core: Owner<E, L>,
        stage: usize,
        role: R,
        (line, shift): (usize, u32),
        at: u64,
        learned: Learned,
    ) -> Self {
        let first = core.control.plan.reads_stamps(stage);
        let plan = &core.control.plan;
        let follows = !first
            && plan.stages[stage].after.is_empty()
            && plan.stages[stage].guard.is_none()
            && !plan.sentinel;
        SequentialPosition {
            state: ConsumerState::new(core, stage, learned),
            role,
            line,
            shift,
            first,
            follows,
            began: at,
            next: at,
            live_end: at,
            run_end: at,
            limit: at,
            released: at,
            passed: 0,
            tail: (at, at),
            then: (at, at, 0, 0),
        }
    }

    /// Lets go of what comes before `seq`, of what it has handled.
    pub(crate) fn release_until(&mut self, seq: u64) {
        let next = self.next;
        // With the last event go the tombstones behind it.
        let seq = if self.tail.1 == next && ahead(seq, self.tail.0) >= 0 { next } else { seq };
        if ahead(seq, self.released) > 0 {
            // As if it stood there; what was released cannot be handled again.
            self.next = if ahead(next, seq) >= 0 { seq } else { next };
            self.release();
            self.next = next;
        }
    }

    pub(crate) fn role(&self) -> &R {
        &self.role
    }

    /// Moves `live_end` on by what one look tells. `true`: something moved, look again.
    #[inline(always)]
    fn extend(&mut self) -> bool {
        if !self.first {
            return self.extend_to_limit();
        }
        match self.state.slots.run_at(self.live_end) {
            Run::Live(len) => {
                self.live_end = self.live_end.wrapping_add(len);
                true
            }
            Run::Unpublished => false,
            Run::Tombstone(_) => self.skip_tombstones(),
        }
    }

    /// The same behind other stages, or a producer that does not stamp: what they have let go.
    #[inline]
    fn extend_to_limit(&mut self) -> bool {
        let core = &*self.state.core;
        let plan = &core.control.plan;
        if self.live_end == self.limit {
            let frontier = if self.follows {
                core.control.cursor()
            } else {
                core.pass(self.state.stage, self.limit)
            };
            if ahead(frontier, self.limit) <= 0 {
                return false;
            }
            self.limit = frontier;
        }
        if plan.many_producers {
            return self.extend_by_runs();
        }
        // A single producer takes back what it gives up, so everything let go is live.
        self.live_end = self.limit;
        true
    }

    /// One look at the frontiers tells all there is: looking again at once would only slow those
    /// down who store them.
    #[inline]
    fn gather_to_limit(&mut self, least: u64, max: u64) -> u64 {
        let mut looked = false;
        while self.live_end.wrapping_sub(self.next) < least {
            if self.live_end == self.limit && std::mem::replace(&mut looked, true) {
                break;
            }
            if !self.extend_to_limit() {
                break;
            }
        }
        self.live_end.wrapping_sub(self.next).min(max)
    }

    fn extend_by_runs(&mut self) -> bool {
        if self.run_end == self.live_end {
            match self.state.slots.run_at(self.live_end) {
                Run::Live(len) => self.run_end = self.live_end.wrapping_add(len),
                Run::Tombstone(_) => return self.skip_tombstones(),
                // Begun in the middle of a run, whose head may be gone; what is given up is stamped
                // slot by slot, so this is live.
                Run::Unpublished if R::MIDWAY => {
                    let mut end = self.live_end.wrapping_add(1);
                    while end != self.limit && self.state.slots.run_at(end) == Run::Unpublished {
                        end = end.wrapping_add(1);
                    }
                    self.run_end = end;
                }
                Run::Unpublished => {
                    unreachable!("a stage before this one has let an unpublished position go")
                }
            }
        }
        let (by_run, by_limit) =
            (ahead(self.run_end, self.live_end), ahead(self.limit, self.live_end));
        self.live_end = self.live_end.wrapping_add(by_run.min(by_limit) as u64);
        true
    }

    /// Passes over the tombstones that come next; what is live before them must be handled first.
    #[cold]
    fn skip_tombstones(&mut self) -> bool {
        if self.next != self.live_end {
            return false;
        }
        let holds = self.released != self.next;
        let from = if holds && self.tail.1 == self.next { self.tail.0 } else { self.next };
        // The limit may lie inside of a tombstone: whoever releases by position, or pins one, may
        // say any. Each slot of a tombstone has a stamp.
        while self.first || self.next != self.limit {
            let Run::Tombstone(run) = self.state.slots.run_at(self.next) else { break };
            let len = if self.first {
                run
            } else {
                twin!("past-the-limit": run.min(self.limit.wrapping_sub(self.next)) => run)
            };
            self.next = self.next.wrapping_add(len);
            self.passed += len;
            self.state.counts.tombstones += if self.role.counts_tombstones() { len } else { 0 };
        }
        self.live_end = self.next;
        self.run_end = self.next;
        // At once, unless events before them are still held.
        if holds {
            self.tail = (from, self.next);
        } else {
            self.release();
        }
        true
    }

    /// It is about to let go of everything before `next`.
    #[cold]
    #[inline(never)]
    fn note(&mut self) {
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
        self.then = (self.live_end, self.run_end, self.passed, self.state.counts.tombstones);
    }

    /// Passes over events that are known to be there and are not its own.
    pub(crate) fn pass_over(&mut self, len: u64) {
        debug_assert!(len <= self.live_end.wrapping_sub(self.next));
        self.next = self.next.wrapping_add(len);
        self.passed += len;
    }
}

impl<E, L: Layout, R: Role> ConsumerPosition<E, L> for SequentialPosition<E, L, R> {
    const GATHERS_ALL: bool = true;
    #[inline(always)]
    fn walks_runs(&self) -> bool {
        self.first
    }
    #[inline(always)]
    fn poll(&mut self, max: u64) -> u64 {
        while self.next == self.live_end {
            if !self.extend() {
                return 0;
            }
        }
        self.live_end.wrapping_sub(self.next).min(max)
    }
    #[inline]
    fn gather(&mut self, least: u64, max: u64) -> u64 {
        if !self.first {
            return self.gather_to_limit(least, max);
        }
        if self.poll(max) == 0 {
            return 0;
        }
        let (slots, mut end) = (self.state.slots, self.live_end);
        while end.wrapping_sub(self.next) < least
            && let Run::Live(run) = slots.run_at(end)
        {
            end = end.wrapping_add(run);
            // Runs are often as long as the one before. While they are, where to look next does not
            // wait for the stamp's arrival.
            while end.wrapping_sub(self.next) < least && slots.is_run_of(end, run) {
                end = end.wrapping_add(run);
            }
        }
        self.live_end = end;
        self.live_end.wrapping_sub(self.next).min(max)
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
        self.next.wrapping_sub(self.began).wrapping_sub(self.passed)
    }
    #[inline(always)]
    fn advance(&mut self, len: u64, found: u64) {
        debug_assert!(len <= found);
        if self.state.notes {
            self.state.partition(self.next, len);
        }
        if found > self.live_end.wrapping_sub(self.next) {
            self.live_end = self.next.wrapping_add(found);
        }
        self.next = self.next.wrapping_add(len);
    }
    #[inline(always)]
    fn release(&mut self) {
        if self.released != self.next {
            if self.state.notes {
                self.note();
            }
            self.released = self.next;
            self.state.control().release(self.line, self.next << self.shift, self.state.notifies());
        }
    }
    fn rewind(&mut self) {
        debug_assert!(self.state.notes);
        self.next = twin!("rewound-too-far": self.released => self.released.wrapping_sub(1));
        (self.live_end, self.run_end, self.passed, self.state.counts.tombstones) = self.then;
    }
    fn released(&self) -> u64 {
        self.released
    }
    #[inline(always)]
    fn holds(&self) -> bool {
        self.released != self.next
    }
    fn holds_all(&self) -> bool {
        self.next.wrapping_sub(self.released) >= self.state.core.capacity()
    }
    fn has_available(&self) -> bool {
        let core = &*self.state.core;
        self.next != self.live_end
            || match self.first {
                true => self.state.slots.run_at(self.live_end) != Run::Unpublished,
                false if self.follows => core.control.cursor() != self.live_end,
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
        self.role.refused(self.state.control()).map_or(Ok(()), Err)
    }
    fn ended(&self) -> Option<WaitError> {
        self.role.refused(self.state.control()).or_else(|| self.state.control().ended(self.next))
    }
    fn state(&self) -> &ConsumerState<E, L> {
        &self.state
    }
    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        &mut self.state
    }
}

impl<E, L: Layout, R: Role> Drop for SequentialPosition<E, L, R> {
    fn drop(&mut self) {
        self.disarm();
        // What it held and did not let go, nobody else ever will.
        self.role.goes(&self.state, self.released);
        self.flush();
    }
}

/// Pauses a consumer that keeps up, so that it does not fight with its upstream over the line being
/// written.
#[inline]
pub(crate) fn space(control: &Control, times: u32) {
    (0..control.spacing * times).for_each(|_| crate::base::sync::spin_loop());
}

/// As [`enter`], for whoever sits at this seat.
#[inline(always)]
pub(crate) fn enter_position<E, L: Layout>(
    position: &impl ConsumerPosition<E, L>,
) -> self_wait::Inside {
    self_wait::enter(position.state().control(), [position.line()])
}
