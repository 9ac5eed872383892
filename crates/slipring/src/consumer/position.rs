//! A consumer's private position: the traits of moving it and of finding events, and the state that
//! every kind of position carries.
//!
//! The kinds are [`SequentialPosition`](crate::consumer::sequential::SequentialPosition) (a stage,
//! or a member of a tap), [`ShardPosition`](crate::consumer::shard::ShardPosition) and
//! [`WorkerPosition`](crate::consumer::worker::WorkerPosition). Waiting and counting are the same
//! for all of them: see [`waiting`](crate::consumer::waiting).
//!
//! Invariants
//! - I1: `released <= next <= live_end`. Every position in `[next, live_end)` is published, is no
//!   tombstone, and was released by every dependency of the stage. Only the position's owner
//!   changes any of the three.
//! - I2: the stage may touch an event from the poll that finds it until its release. Later stages
//!   and the producers wait for that release.
//! - I3: a position passes over tombstones. They advance `next` and are released like events, but
//!   no handler is lent one.

use crate::errors::{Cause, WaitError};
use crate::ring::control::Control;
use crate::ring::counters::LocalCounts;
use crate::ring::owner::Owner;
use crate::ring::plan::Stage;
use crate::ring::slots::{Layout, View};
use crate::ring::spec::Access;
use crate::ring::task_number::TaskNumber;
use crate::ring::words::ahead;
use crate::wait::HandleLearner;

/// A consumer's place in the stream: the position of its next event, and that of its last release.
pub(crate) trait ConsumerPosition<E, L: Layout> {
    /// Returns the state that every kind of position carries.
    fn state(&self) -> &ConsumerState<E, L>;

    /// As [`ConsumerPosition::state`], to change.
    fn state_mut(&mut self) -> &mut ConsumerState<E, L>;

    /// Returns the number of the line to which this position stores its releases.
    fn line(&self) -> usize;

    /// Returns the position of the next event.
    fn next(&self) -> u64;

    /// Returns how many events this position has handled.
    fn handled(&self) -> u64;

    /// Moves `next` over `len` handled events, without a release. At least `found` events from
    /// `next` on are known to be published.
    fn advance(&mut self, len: u64, found: u64);

    /// Releases every event before `next`, and notifies the parties that may sleep until then.
    fn release(&mut self);

    /// Moves `next` back to the last release.
    fn rewind(&mut self);

    /// Returns a word that differs from an earlier one if a release made progress in between.
    fn released(&self) -> u64;

    /// Whether handled events are unreleased. Positions that were only passed over do not count: a
    /// poll releases those.
    fn has_unreleased(&self) -> bool;

    /// Whether the unreleased events fill the ring, so that no event can come before a release.
    fn holds_whole_ring(&self) -> bool {
        false
    }
}

/// Finding events: how many are available at a position, and why no more will come.
pub(crate) trait Availability<E, L: Layout>: ConsumerPosition<E, L> {
    /// Whether a short read means that the upstream is exhausted, so that a loop may pause. See
    /// [`space`](crate::consumer::pace::space).
    const SHORT_MEANS_EXHAUSTED: bool;

    /// Whether each stamped event is this position's to handle. Then a handler can walk from run to
    /// run, beyond the events that were polled.
    fn walks_runs(&self) -> bool;

    /// Returns how many events are available from `next` on, at most `max`. Reads shared words only
    /// if none is known to be available.
    fn poll(&mut self, max: u64) -> u64;

    /// As [`Availability::poll`], but polls on until `least` events are found or no more follow.
    fn gather(&mut self, least: u64, max: u64) -> u64;

    /// Limits later chunks to `max` events, so that a worker leaves the rest to its colleagues.
    #[inline(always)]
    fn limit_chunk(&mut self, _max: u64) {}

    /// Whether a poll may find an event. Changes nothing and notifies no queue, so a wait may call
    /// it under the lock of its queue.
    fn has_available(&self) -> bool;

    /// Returns the party that a wait would be for: a stage's number, or the producer's.
    fn waits_for(&self) -> usize;

    /// Whether another worker took the events that the last poll saw.
    fn was_contended(&self) -> bool {
        false
    }

    /// Fails if this consumer must stop before the stream's end: the graph was halted or has
    /// failed, or a member of a tap was told to leave.
    #[inline(always)]
    fn check(&self) -> Result<(), WaitError> {
        self.state().control().check_running()
    }

    /// Returns why no event will come any more. Called after a poll that found none; `None` means
    /// that the next poll may find one.
    fn ended(&self) -> Option<WaitError> {
        self.state().core.control.ended(self.next())
    }

    /// Whether a poll is due: an event may be available, or none will ever come.
    fn is_ready(&self) -> bool {
        self.has_available() || self.ended().is_some()
    }
}

/// A wait of a seat. Dropped, also by a panic of the strategy, it puts back what was learned and
/// what was told, so that nothing is counted twice.
struct Waiting<'s, E, L: Layout, S: ConsumerPosition<E, L> + ?Sized> {
    position: &'s mut S,
    learned: HandleLearner,
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
    /// The stage's number.
    pub(crate) stage: usize,
    /// Counts of this handle since its creation.
    pub(crate) counts: LocalCounts,
    /// The part of `counts` that was already flushed to the graph's counters.
    pub(crate) flushed: LocalCounts,
    /// Whether no event is being handled, so that a failure is not attributed to an event.
    pub(crate) between_events: bool,
    /// Whether handled events need bookkeeping: shard ids to assign, latencies to sample, or a
    /// place for a retry to return to.
    pub(crate) bookkeeping: bool,
    /// Whether any party may sleep until this position releases.
    notifies: bool,
    /// Whether an event was skipped since the last release.
    pub(crate) skipped: bool,
    /// How many events a handler of batches was given at once.
    pub(crate) stretch: u64,
    /// Under which its tasks wait.
    pub(crate) number: TaskNumber,
    /// What its waits have taught it.
    learned: HandleLearner,
}

impl<E, L: Layout> ConsumerState<E, L> {
    /// `learned`: made before its seat was counted or pinned, for that is the user's code.
    pub(crate) fn new(core: Owner<E, L>, stage: usize, learned: HandleLearner) -> Self {
        let (counts, flushed) = Default::default();
        let plan = &core.control.plan.stages[stage];
        let bookkeeping = !plan.partitions.is_empty()
            || plan.policy.rewinds()
            || core.control.counters.samples.is_some();
        let notifies = !plan.notifies.is_empty();
        ConsumerState {
            slots: core.slots,
            core,
            stage,
            counts,
            flushed,
            between_events: true,
            bookkeeping,
            notifies,
            skipped: false,
            batch_len: 1,
            task: TaskNumber::default(),
            learned,
        }
    }

    #[inline(always)]
    pub(crate) fn control(&self) -> &Control {
        &self.core.control
    }

    /// The declaration of this position's stage.
    #[inline(always)]
    pub(crate) fn plan(&self) -> &Stage {
        &self.core.control.plan.stages[self.stage]
    }

    /// The wait queues of the parties that wait for this stage.
    #[inline(always)]
    pub(crate) fn notifies(&self) -> &[usize] {
        if self.notifies { &self.plan().notifies } else { &[] }
    }

    /// Assigns shard ids to `len` events that this stage has handled and not released.
    #[cold]
    pub(crate) fn partition(&self, first: u64, len: u64) {
        self.core.partition(&self.plan().partitions, self.stage, first, len);
    }

    /// Tells the model checker that this stage accesses `len` events.
    #[inline(always)]
    pub(crate) fn touch(&self, first: u64, len: u64) {
        self.core.touch(first, len, self.plan().access == Access::Write);
    }

    /// Fails the graph because a position that it cannot do without was dropped at `at`. An ended
    /// graph stays as it is.
    pub(crate) fn fail_dropped(&self, at: u64) {
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
    pub(crate) fn new(core: Owner<E, L>, stage: usize, learned: HandleLearner) -> Self {
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
        learned: HandleLearner,
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
