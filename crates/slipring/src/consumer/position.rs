//! The traits by which a consumer's private position moves and finds events, and the state that all
//! kinds of position share.
//!
//! The kinds of position are
//! [`SequentialPosition`](crate::consumer::sequential::SequentialPosition) (a stage, or a member of
//! a tap), [`ShardPosition`](crate::consumer::shard::ShardPosition) and
//! [`WorkerPosition`](crate::consumer::worker::WorkerPosition). Waiting and counting are the same
//! for all kinds of position: see [`waiting`](crate::consumer::waiting).
//!
//! Invariants
//! - I1: `released <= next <= live_end`. Every position in `[next, live_end)` is published, is no
//!   tombstone, and was released by every dependency of the stage. Only the position's owner
//!   changes these three fields. A worker has its bound instead of `released`, and its chunk's end
//!   instead of `live_end`.
//! - I2: a stage may access an event from the poll that finds it until its release. Later stages
//!   and the producers access it only after the release.
//! - I3: a consumer never lends a tombstone to a handler. It passes over the tombstone, and
//!   releases the tombstone's slots as it releases an event's slot.

use std::time::Instant;

use crate::base::sync::panicking;
use crate::consumer::spacing::CallSpacing;
use crate::errors::{Cause, WaitError};
use crate::ring::control::Control;
use crate::ring::counters::LocalCounts;
use crate::ring::owner::Owner;
use crate::ring::slots::{Layout, View};
use crate::ring::spec::Access;
use crate::ring::stage::Stage;
use crate::ring::task_budget::TaskBudget;
use crate::ring::task_number::TaskNumber;
use crate::ring::world::World;
use crate::wait::{HandleLearner, LeftWait};

/// A consumer's place in the stream: the position of its next event, and of its last release.
pub(crate) trait ConsumerPosition<E, L: Layout> {
    /// Returns a reference to the state that every kind of position has.
    fn state(&self) -> &ConsumerState<E, L>;

    /// Returns a mutable reference to the state that every kind of position has.
    fn state_mut(&mut self) -> &mut ConsumerState<E, L>;

    /// Returns the index of the line to which `release` stores a position.
    fn line(&self) -> usize;

    /// Returns the position of the next event.
    fn next(&self) -> u64;

    /// Returns the number of events that this position has handled.
    fn handled(&self) -> u64;

    /// Moves `next` over `len` handled events, without a release. At least `found` events from
    /// `next` on are known to be published. `found` is less than `len` if the last poll found the
    /// handled events.
    fn advance(&mut self, len: u64, found: u64);

    /// Releases every event before `next`, and notifies the parties that may wait for the release.
    fn release(&mut self);

    /// Moves `next` over `len` handled events that the last poll found, at least one, and releases
    /// them.
    #[inline(always)]
    fn pass(&mut self, len: u64) {
        self.advance(len, 0);
        self.release();
    }

    /// Moves `next` back to the position of the last release.
    fn rewind(&mut self);

    /// Returns a word that changes whenever a release makes progress.
    fn released(&self) -> u64;

    /// Returns the position of the first event that this position has not released.
    fn first_unreleased(&self) -> u64;

    /// Returns whether the position has handled an event since its last release. Positions that
    /// were only passed over do not count.
    fn has_unreleased(&self) -> bool;

    /// Returns whether the unreleased events fill the ring, so that no event can come before a
    /// release.
    fn holds_whole_ring(&self) -> bool {
        false
    }
}

/// The way in which a position goes from run to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// The position finds events by a frontier, or does not lend all stamped events.
    Hidden,
    /// The position finds events by their stamps, and lends each of them. A handler touches only
    /// events that a poll has found.
    Polled,
    /// Like `Polled`, but a handler can continue with the published runs after the polled events.
    Walked,
}

/// Finds the available events at a position, and detects the end of the stream.
pub(crate) trait Availability<E, L: Layout>: ConsumerPosition<E, L> {
    /// Whether a stage's loop may pause after it has handled all available events; see
    /// [`spacing`](crate::consumer::spacing).
    const MAY_PAUSE: bool;

    /// Returns how this position moves from one run to the next.
    fn runs(&self) -> Runs;

    /// Returns the number of available events from `next` on, at most `max`. Reads shared words
    /// only if the position knows of no available event.
    fn poll(&mut self, max: u64) -> u64;

    /// Like [`Availability::poll`] for a single event. Returns whether an event is available.
    #[inline(always)]
    fn poll_single(&mut self) -> bool {
        self.poll(1) != 0
    }

    /// Moves `next` over the event that [`Availability::poll_single`] has found, and over events
    /// behind it that this position does not handle, and releases them.
    #[inline(always)]
    fn pass_single(&mut self) {
        self.advance(1, 0);
        self.is_exhausted(false);
        self.release();
    }

    /// Like [`Availability::poll`], but continues until `least` events are found or no further
    /// event is available.
    fn gather(&mut self, least: u64, max: u64) -> u64;

    /// Searches for a batch of `len` events, also behind the events that are known. Returns the
    /// number of available events, at most `len`.
    fn grow(&mut self, len: u64) -> u64 {
        self.gather(len, len)
    }

    /// Returns whether a batch of `len` events has nothing to wait for: that many events are
    /// available, or no event will directly follow the available ones, or the handle must stop.
    /// The caller has made a [`Gather`](crate::consumer::gather::Gather) with this `end`, and each
    /// call moves `end` over the events that it finds. A waiting thread may call this method under
    /// a wait queue's lock, because the method notifies no queue.
    ///
    /// A pool's worker cannot add events to its chunk, so it has nothing to wait for.
    fn is_gathered(&self, _len: u64, _end: &mut u64) -> bool {
        true
    }

    /// Returns the end of the available events that this position knows.
    fn known_until(&self) -> u64 {
        self.next()
    }

    /// Returns whether the handler has handled all available events. The caller has just handled
    /// some events, and has released none of them. `short` says whether the last poll found fewer
    /// events than requested. Reads no shared word that another thread writes meanwhile.
    fn is_exhausted(&mut self, short: bool) -> bool;

    /// Limits later chunks to `max` events, so that a worker leaves further events to the pool's
    /// other workers.
    #[inline(always)]
    fn limit_chunk(&mut self, _max: u64) {}

    /// Notes that the thread may have done other work since the last call, so that the handler's
    /// time does not include that work.
    #[inline(always)]
    fn resume(&mut self) {}

    /// Returns whether the position has handled all events of its chunk. Only a worker's position
    /// has chunks.
    #[inline(always)]
    fn is_at_end_of_chunk(&self) -> bool {
        false
    }

    /// Whether a wait without a deadline begins by [`Availability::draw`], before its first polls.
    const DRAWS: bool = false;

    /// Draws a ticket, if this position waits by tickets. Called after a poll that found no event.
    fn draw(&mut self) {}

    /// Called before each sleep of a wait. If the result is `false`, the thread sleeps by a timer,
    /// for a short time. The call changes only what [`Availability::wait_ended`] completes.
    fn may_sleep(&self) -> bool {
        true
    }

    /// Called at the end of each wait, also if the wait panicked.
    #[inline(always)]
    fn wait_ended(&mut self) {}

    /// Called when a wait has ended without an error. If the result is `false`, the wait continues.
    #[inline(always)]
    fn may_end_wait(&mut self) -> bool {
        true
    }

    /// Returns whether a poll may find an event. A waiting thread may call this method under a wait
    /// queue's lock, because the method notifies no queue. The method moves no position except the
    /// sentinel.
    fn has_available(&self) -> bool;

    /// Returns the index of the party, a stage or the producers, whose progress ends a wait at this
    /// position. While a wait lasts, another party may become the slowest one.
    fn waits_for(&self) -> usize;

    /// Returns the position of the event that ends a wait. During the wait, another worker of the
    /// pool may take that event, and then the wait continues for a later event.
    fn awaited(&self) -> u64 {
        self.next()
    }

    /// Returns whether another worker took the events that the last poll saw.
    fn was_contended(&self) -> bool {
        false
    }

    /// Fails if the graph was halted or has failed, or if this member of a tap was asked to leave.
    #[inline(always)]
    fn check(&self) -> Result<(), WaitError> {
        self.state().control().status.check_running()
    }

    /// Returns whether the stream continues, so that [`Availability::ended`] need not search for
    /// the stream's end. Empty polls dominate a consumer's cost, and this is the only check that
    /// they make.
    #[inline(always)]
    fn is_undisturbed(&self) -> bool {
        !self.state().control().status.is_over()
    }

    /// Returns why no event will come any more. The caller has just polled and found no event.
    /// Returns `None` if the next poll may find an event.
    #[inline(always)]
    fn ended(&self) -> Option<WaitError> {
        if self.is_undisturbed() { None } else { self.see_end() }
    }

    /// Like [`Availability::find_end`], but if the stream has ended, also notifies the threads that
    /// wait for answers to requests: these threads may have waited only for this handle's releases.
    #[cold]
    fn see_end(&self) -> Option<WaitError> {
        let ended = self.find_end();
        if ended.is_some() {
            self.state().core.control.notify_drained();
        }
        ended
    }

    /// Returns the result of [`Availability::ended`] for a stream that may have ended.
    #[cold]
    fn find_end(&self) -> Option<WaitError> {
        self.state().core.control.status.ended(self.next())
    }

    /// Returns whether producers of other processes have passed over the position at which this
    /// consumer waits. That happens only in a damaged segment, and then no event will ever come.
    /// Once the method has returned `true`, [`Availability::check`] returns an error.
    #[cold]
    fn finds_damage(&self) -> bool {
        false
    }

    /// Returns whether the consumer should poll: an event may be available, or no event will ever
    /// come.
    #[inline(always)]
    fn is_ready(&self) -> bool {
        self.has_available() || !self.is_undisturbed() && self.has_ended()
    }

    /// Returns whether [`Availability::find_end`] would return an error. A waiting thread may call
    /// this method under a wait queue's lock, because the method notifies no queue.
    #[cold]
    fn has_ended(&self) -> bool {
        self.find_end().is_some()
    }
}

/// A wait that its handle has left as soon as it found an event.
struct Unsettled {
    wait: LeftWait,
    /// The party for which the handle waited, when it last found nothing.
    upstream: usize,
    counted: bool,
}

/// The state that every kind of position carries.
pub struct ConsumerState<E, L: Layout> {
    pub(crate) core: Owner<E, L>,
    pub(crate) slots: View<E, L>,
    /// The stage's index.
    pub(crate) stage: usize,
    /// Counts of this handle since its creation.
    pub(crate) counts: LocalCounts,
    /// The part of `counts` that the handle has already flushed to the graph's counters.
    pub(crate) flushed: LocalCounts,
    /// Whether a batch or a tombstone was counted since the last flush.
    pub(crate) has_new_counts: bool,
    /// Number of batches at the last counted wait of a task; `u64::MAX` if no wait was counted.
    pub(crate) armed_at: u64,
    /// Whether the stage is between events. A failure between events is attributed to no event.
    pub(crate) between_events: bool,
    /// The position at which the handler's `idle` has failed: there it is not called again before
    /// the next wait.
    pub(crate) idle_failed: Option<u64>,
    /// Whether the stage may go back to its last release.
    pub(crate) rewinds: bool,
    /// Whether an advance or a release does extra work: assigns shard ids, samples latencies, or
    /// saves values that a retry restores.
    pub(crate) bookkeeping: bool,
    /// Whether the stage has wait queues to notify at a release.
    notifies: bool,
    /// Whether an event was skipped since the last release.
    pub(crate) skipped: bool,
    /// Length, in events, of the last batch that a batch handler got.
    pub(crate) batch_len: u64,
    /// Number of polls at the beginning of each wait, before the wait strategy is asked.
    first_polls: u32,
    /// Number of empty polls in the last wait; `u32::MAX` if the wait lasted so long that it read
    /// the clock.
    pub(crate) polls: u32,
    /// For a worker: whether one of its waits has slept since it last took a chunk. The worker may
    /// then owe another worker a wake-up (queue::I6).
    pub(crate) has_slept: bool,
    /// The number by which a wait queue identifies this handle's tasks.
    pub(crate) task: TaskNumber,
    /// Budget of results that this handle's futures return in a row before they give the thread
    /// back.
    pub(crate) budget: TaskBudget,
    /// Schedule by which this handle's refused calls check for dead processes.
    pub(crate) checks: <L::World as World>::Checks,
    /// Whether the last call of `poll` that found events found few; see
    /// [`Pace::is_sparse`](crate::consumer::pace::Pace::is_sparse).
    pub(crate) is_sparse: bool,
    /// Rule by which calls of the user's own loop pause; used by handles that follow a cursor.
    pub(crate) calls: CallSpacing,
    /// The wait strategy's learned state, from this handle's earlier waits.
    pub(crate) learned: HandleLearner,
    /// The handle's last wait, while the learner has not heard of it (waiting::I2).
    unsettled: Option<Unsettled>,
    /// Position of the last batch that [`Consumer::batch`](crate::Consumer::batch) lent, and how
    /// often it lent that position in a row.
    #[cfg(debug_assertions)]
    pub(crate) lent: (u64, u32),
    /// The first event of the last gathered batch, and the time at which the handle found it.
    pub(crate) oldest: Option<(u64, Instant)>,
}

impl<E, L: Layout> ConsumerState<E, L> {
    /// Creates the state of a handle of `stage`. The caller creates `learned` first, before it
    /// counts the handle or pins a position: the creation runs user code, and a panic there must
    /// leave neither a counted handle nor a pinned position.
    pub(crate) fn new(core: Owner<E, L>, stage: usize, learned: HandleLearner) -> Self {
        let (counts, flushed) = Default::default();
        let plan = &core.control.plan.stages[stage];
        let rewinds = plan.policy.rewinds();
        let bookkeeping =
            !plan.partitions.is_empty() || rewinds || core.control.counters.samples.is_some();
        let notifies = !plan.notifies.is_empty();
        let Control { spacing, timed, .. } = core.control;
        let calls = CallSpacing::new(core.capacity(), spacing, timed);
        ConsumerState {
            first_polls: core.control.first_polls(stage),
            polls: u32::MAX,
            has_slept: false,
            slots: core.slots,
            core,
            stage,
            counts,
            flushed,
            has_new_counts: false,
            armed_at: u64::MAX,
            between_events: true,
            idle_failed: None,
            rewinds,
            bookkeeping,
            notifies,
            skipped: false,
            batch_len: 1,
            task: TaskNumber::default(),
            budget: TaskBudget::default(),
            checks: Default::default(),
            is_sparse: false,
            calls,
            learned,
            unsettled: None,
            #[cfg(debug_assertions)]
            lent: (0, 0),
            oldest: None,
        }
    }

    /// Prepares a new handle for going back to its last release.
    pub(crate) fn may_rewind(&mut self) {
        (self.rewinds, self.bookkeeping) = (true, true);
    }

    #[inline(always)]
    pub(crate) fn control(&self) -> &Control {
        &self.core.control
    }

    /// Returns the number of polls with which each wait begins.
    #[inline(always)]
    pub(crate) fn first_polls(&self) -> u32 {
        self.first_polls
    }

    /// Updates the number of polls with which a wait begins: no polls, if the graph has more
    /// threads than cores.
    pub(crate) fn refresh_first_polls(&mut self) {
        self.first_polls = self.control().first_polls(self.stage);
    }

    /// Notes a wait that ended after `polls` empty polls, all of them first polls.
    #[inline(always)]
    pub(crate) fn note_short_wait(&mut self, polls: u32) {
        self.polls = polls;
        self.counts.waits += 1;
        self.learned.note_short_wait();
    }

    /// Notes a wait for the party `upstream`, which is settled later.
    #[inline(always)]
    pub(crate) fn settle_later(&mut self, wait: LeftWait, upstream: usize) {
        self.unsettled = Some(Unsettled { wait, upstream, counted: false });
    }

    /// Counts the last wait, unless that was done before.
    pub(crate) fn count_wait(&mut self) {
        if let Some(Unsettled { wait, upstream, counted }) = &mut self.unsettled
            && !std::mem::replace(counted, true)
        {
            self.counts.wait(*upstream, wait.time(), 0);
        }
    }

    /// Counts the last wait, unless that was done before, and reports it to the learner.
    pub(crate) fn settle_wait(&mut self) {
        self.count_wait();
        if let Some(Unsettled { wait, .. }) = self.unsettled.take() {
            wait.learn(&mut self.learned);
        }
    }

    /// Notes the current thread as the handle's.
    pub(crate) fn note_thread(&mut self) {
        self.core.control.note_thread(self.stage, &mut self.learned.noted);
    }

    /// Returns the declaration of this handle's stage in the graph's plan.
    #[inline(always)]
    pub(crate) fn plan(&self) -> &Stage {
        &self.core.control.plan.stages[self.stage]
    }

    /// Returns the indices of the wait queues that this stage notifies at each release.
    #[inline(always)]
    pub(crate) fn notifies(&self) -> &[usize] {
        if self.notifies { &self.plan().notifies } else { &[] }
    }

    /// Counts slots that this handle passed over, because their claim was given up.
    #[inline(always)]
    pub(crate) fn count_tombstones(&mut self, len: u64) {
        self.counts.tombstones += len;
        self.has_new_counts = true;
    }

    /// Assigns shard ids to `len` events that this stage has handled and not yet released.
    #[cold]
    pub(crate) fn partition(&self, first: u64, len: u64) {
        self.core.partition(&self.plan().partitions, self.stage, first, len);
    }

    /// Returns whether a stage behind this stage waits for an event at `seq`. The result is only a
    /// hint.
    #[inline]
    pub(crate) fn has_starving_follower(&self, seq: u64) -> bool {
        self.plan().followers.iter().any(|&follower| self.control().starves_at(follower, seq))
    }

    /// Tells the model checker that this stage accesses the events of `[first, first + len)`.
    #[inline(always)]
    pub(crate) fn touch(&self, first: u64, len: u64) {
        // Other builds must not look the stage up in the plan, which would cost a bounds check.
        if cfg!(any(slipring_loom, slipring_coherence)) {
            self.core.touch(first, len, self.plan().access == Access::Write);
        }
    }

    /// Fails the graph, unless the graph has ended. Called when a handle is dropped although its
    /// stage still needs it; `at` is the position of the handle's next event.
    pub(crate) fn fail_dropped(&self, at: u64) {
        if self.control().status.ended(at).is_none() {
            let cause = if panicking() {
                Cause::Panic("the thread that held its handle panicked".into())
            } else {
                Cause::Dropped
            };
            self.control().fail(self.stage, Some(at), cause);
        }
    }
}
