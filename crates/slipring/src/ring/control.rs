//! The data that a ring's handles share besides the slots. It depends neither on the type of events
//! nor on the slots.
//!
//! [`Control`] joins eight parts, each with its own words and invariants: the [`Plan`], which never
//! changes; the [`Positions`]; the [`Status`]; the [`Waits`]; the [`Membership`]; the [`Counters`];
//! the [`EarlyClaims`]; and the [`Askers`]. Callers use a part directly if one part suffices. An
//! operation that needs two parts is a method of `Control`: a release stores a position and
//! notifies queues, and a call that ends the graph stores a status and notifies all queues.
//!
//! The waits of a ring's handles go through [`Control::wait`]. It has two arguments and one result:
//!
//! - The [`Waiter`] says which party waits, for which other party, and until when.
//! - The subject, an [`Awaited`], polls for an event or for room, and knows what could keep the
//!   event or the room from coming.
//! - The result says that the subject is ready, or why the wait ended before that. It comes with
//!   the wait's [`WaitRun`].

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::base::edge;
use crate::base::panics::{drop_payload, panic_message};
use crate::base::sync::{Arc, Line, Relaxed, Statistic, now, sleep, twin};
use crate::errors::{Cause, Failure, WaitError};
use crate::ring::askers::Askers;
use crate::ring::board::{Board, IsOwnProcess};
use crate::ring::cores::Joined;
use crate::ring::counters::{Counters, LocalCounts, Samples};
use crate::ring::early_claims::{EarlyClaims, Fate};
use crate::ring::membership::{Membership, Orphan, PoolIsOver};
use crate::ring::plan::Plan;
use crate::ring::positions::Positions;
use crate::ring::seat::Seat;
use crate::ring::spec::Delivery;
use crate::ring::stage::Stage;
use crate::ring::status::Status;
use crate::ring::waits::{ASK_AGAIN, Awaited, SelfWait, Unmet, Waiter, Waits};
use crate::wait::{
    self, Condition, HandleLearner, KeepWaiting, NotedThread, WaitRun, WaitStrategy,
};

/// The data that a ring's handles share besides the slots.
pub struct Control {
    pub(crate) plan: Plan,
    /// Position of the first event.
    pub(crate) start: u64,
    /// Whether the stages' loops and the pools read the clock, to adapt the lengths of batches and
    /// chunks.
    pub(crate) timed: bool,
    /// Length of a consumer's pause after a short batch, in spin hints.
    pub(crate) spacing: u32,
    pub(crate) positions: Positions,
    pub(crate) status: Status,
    pub(crate) membership: Membership,
    pub(crate) counters: Counters,
    /// Number of waiting threads that could run any stage on shared threads. The number is only a
    /// hint.
    pub(crate) idle_threads: Line<Statistic>,
    pub(crate) waits: Waits,
    /// The claims of waiting producers, while the ring closes.
    pub(crate) early_claims: EarlyClaims,
    /// The threads and tasks that wait for answers to requests in this ring.
    pub(crate) askers: Arc<Askers>,
    is_own_process: Option<IsOwnProcess>,
}

/// The options of a ring's control, besides its plan and its board.
pub(crate) struct ControlOptions {
    /// Position of the first event.
    pub(crate) start: u64,
    /// Time from the build to the graph's deadline, when all waits end; `None` if the graph has no
    /// deadline.
    pub(crate) deadline: Option<Duration>,
    /// Whether the stages' loops and the pools read the clock.
    pub(crate) timed: bool,
    pub(crate) samples: Option<Samples>,
}

impl Control {
    /// Makes the control of a ring. Returns `None` if there is no memory for the seats of its
    /// workers, readers and stages.
    pub(crate) fn new(plan: Plan, board: Board, options: ControlOptions) -> Option<Control> {
        let ControlOptions { start, deadline, timed, samples } = options;
        let membership = Membership::new(&plan, board.seats, board.cells, board.participant);
        let is_shared = board.is_own_process.is_some();
        let waits = Waits::new(&plan, board.queues, board.always_fences, is_shared);
        let names = (0..=plan.stages.len()).map(|party| plan.name_of(party));
        let record = board.failure.map(|record| (record, names.collect()));
        Some(Control {
            start,
            timed,
            spacing: wait::spacing(),
            positions: Positions::over(board.lines),
            // The deadline begins after `Waits::new`, which calls methods of the strategies and may
            // take long.
            status: Status::new(board.status, record, plan.many_producers, deadline),
            membership,
            counters: Counters::new(&plan, board.counters, samples),
            idle_threads: Line::new(Statistic::new(0)),
            waits,
            early_claims: EarlyClaims::new(),
            askers: Askers::new(),
            is_own_process: board.is_own_process,
            plan,
        })
    }

    /// Releases all events before a position: stores `word`, which holds that position, on the line
    /// `line`, and then notifies the queues in `notifies`.
    #[inline]
    pub(crate) fn release(&self, line: usize, word: u64, notifies: &[usize]) {
        edge::released::release(self.positions.line(line), word);
        self.waits.notify(notifies);
    }

    /// Like [`Control::release`], for a worker of the stage `pool`. `notifies` is empty, or holds
    /// the queues that the stage notifies.
    #[inline]
    pub(crate) fn release_chunk(&self, line: usize, word: u64, pool: usize, notifies: &[usize]) {
        edge::released::release(self.positions.line(line), word);
        match &self.plan.stages[pool] {
            _ if notifies.is_empty() => {}
            pool if pool.wakes_one => self.waits.notify_released(pool, &self.status),
            _ => self.waits.notify(notifies),
        }
    }

    /// Returns whether a stage waits for an event at `seq`, and a waiting thread could run the
    /// stage. The result is only a hint.
    #[inline]
    pub(crate) fn starves_at(&self, stage: usize, seq: u64) -> bool {
        let Stage { thread, delivery, .. } = &self.plan.stages[stage];
        // Workers that join an open pool come with threads of their own.
        let is_open = matches!(delivery, Delivery::Pool { workers, room } if room > workers);
        (!thread.is_shared() || is_open || self.idle_threads.load(Relaxed) != 0)
            && self.positions.waits_at(&self.plan, stage, seq)
    }

    // Waiting and notifying. See `Waits`.

    /// Returns whether the graph has more threads than cores. The threads include the members of
    /// its taps and the workers that joined its pools, which may come and go at any time.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        // A model has no cores, and loads of the counts would multiply its states.
        let joined = if cfg!(slipring_loom) {
            0
        } else {
            self.membership.joined(&self.positions, &self.plan)
        };
        self.waits.cores.are_too_few(joined)
    }

    /// Notes that the current thread holds a handle of `party`, unless `noted` says that it is
    /// noted already.
    #[inline]
    pub(crate) fn note_thread(&self, party: usize, noted: &mut NotedThread) {
        // Virtual cores have no masks, and each load there is counted.
        if !cfg!(any(slipring_loom, slipring_coherence)) && noted.is_another() {
            *noted = NotedThread::this();
            let Control { membership, positions, plan, waits, .. } = self;
            let all = membership.joined(positions, plan);
            let of_stage = &|stage| membership.joined_to(positions, plan, stage);
            waits.cores.note(plan, party, &Joined { all, of_stage });
        }
    }

    /// Called by a thread that waits and has read the clock. Notes the thread, and asks now and
    /// then for the cores of one that is noted.
    fn look_at_cores(&self, party: usize, noted: &mut NotedThread, now: Instant) {
        self.note_thread(party, noted);
        if !cfg!(any(slipring_loom, slipring_coherence)) {
            self.waits.cores.look(&self.plan, now);
        }
    }

    /// Like [`Control::is_oversubscribed`], but counts every handle of a producer as a thread.
    pub(crate) fn producers_outnumber_cores(&self) -> bool {
        // See `is_oversubscribed`. In models, producers claim early.
        !cfg!(slipring_loom) && {
            let joined = self.membership.joined(&self.positions, &self.plan);
            // The plan counts two producers.
            let more = self.membership.producers().saturating_sub(2);
            self.waits.cores.are_too_few(joined + more)
        }
    }

    /// Returns whether this process may use the words of the ring. The result is `false` in a
    /// forked child of a segment's process, because the child does not map the segment's memory.
    pub(crate) fn is_own_process(&self) -> bool {
        self.is_own_process.as_ref().is_none_or(|is_own_process| is_own_process())
    }

    /// Returns whether the words of the ring may change without a notification to this process's
    /// askers.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_own_process.is_some()
    }

    // Endings. See `Status`.

    /// Closes the ring at `final_seq`, its last position. Each stage ends when it has reached that
    /// position.
    pub(crate) fn close(&self, final_seq: u64) {
        self.status.close(final_seq); // SYNC[closed]: before the queues are notified
        twin!("closed-unnotified": self.waits.notify_all() => ());
        self.askers.notify();
    }

    /// Closes a ring of many producers, whose claim word was closed to claims at `end`.
    pub(crate) fn close_claimed(&self, end: u64) {
        // SYNC[closed]: before the queues are notified
        self.early_claims.close(end, |end| self.status.close(end));
        twin!("closed-unnotified": self.waits.notify_all() => ());
        self.askers.notify();
    }

    /// Hands in the early claim of the `len` positions from `seq` on, whose slots are not free. The
    /// ring was closed.
    pub(crate) fn hand_in_claim(&self, seq: u64, len: u64) -> Fate {
        let mut moved = false;
        let fate = self.early_claims.hand_in(seq, len, |end| {
            self.status.move_end(end); // SYNC[announced]: before the queues are notified
            moved = true;
        });
        if twin!("moved-unnotified": moved => false) {
            self.waits.notify_all();
            self.askers.notify();
        }
        fate
    }

    /// Returns the position up to which producers have claimed, and whether the ring is closed to
    /// claims. Only rings with many producers use the claim word.
    pub(crate) fn claimed(&self, lower_bound: u64) -> (u64, bool) {
        let (claimed, is_closed) = self.positions.claimed(&self.plan, lower_bound);
        // Claims that came too late, and early claims behind the end, have moved the claim word.
        let last = if is_closed { self.status.last_position() } else { None };
        (last.unwrap_or(claimed), is_closed)
    }

    /// Closes the ring to further claims. Called only if several processes produce. The first
    /// stages then find the last position (`closing`).
    pub(crate) fn begin_closing(&self) {
        self.status.begin_closing(); // closing::I1: first
        self.positions.close_claims(); // SYNC[announced]: before the queues are notified
        twin!("closing-unnotified": self.waits.notify_all() => ());
        self.askers.notify();
    }

    /// Returns the last position: the stored one, or the one that the stages of a closing ring will
    /// find. It is that of the claim word, which no producer moves any more.
    pub(crate) fn last_position(&self) -> Option<u64> {
        let found = || {
            if !self.positions.last_claim().is_closed() {
                self.positions.close_claims(); // closing::I1
            }
            self.positions.claimed(&self.plan, self.start).0
        };
        let is_sought = self.plan.seated_claims && self.status.seeks_end();
        self.status.last_position().or_else(|| is_sought.then(found))
    }

    /// Ends the graph without waiting until the stages have handled all events.
    pub(crate) fn halt(&self) {
        self.status.halt(); // SYNC[announced]: before the queues are notified
        twin!("halted-unnotified": self.waits.notify_all() => ());
        self.askers.notify();
    }

    /// Ends the graph with a failure, unless the graph has failed already.
    pub(crate) fn fail(&self, party: usize, seq: Option<u64>, cause: Cause) {
        let failure = |cause| Failure::new(self.plan.name_of(party), seq, cause);
        match self.status.fail(party, failure, cause) {
            Ok(()) => {
                twin!("failed-unnotified": self.waits.notify_all() => ());
                self.askers.notify();
            }
            // The graph keeps its first failure, so the cause of a later failure is dropped.
            Err(cause) => drop_payload(Box::new(cause)),
        }
    }

    /// Called when a handle is dropped, and by a call that has found the end of the stream, or has
    /// released held events. Notifies the askers, because this handle may have been the last that
    /// could answer them.
    #[inline]
    pub(crate) fn notify_drained(&self) {
        if self.askers.is_asked() && self.is_own_process() && self.status.is_over() {
            twin!("drained-unnotified": self.askers.notify() => ());
        }
    }

    /// Like [`Control::expire`], but notifies no queue.
    pub(crate) fn record_deadline(&self, party: usize, at: u64) -> bool {
        let Some(after) = self.status.overdue() else { return false };
        let failure = |cause| Failure::new(self.plan.name_of(party), Some(at), cause);
        self.status.fail(party, failure, Cause::Deadline(after)).is_ok()
    }

    /// Fails the graph if its deadline has passed, and returns whether it has. `party` is the index
    /// of the waiting party, and `at` its position. Every loop that may run without progress calls
    /// `expire`.
    pub(crate) fn expire(&self, party: usize, at: u64) -> bool {
        let overdue = self.status.overdue();
        if let Some(after) = overdue {
            self.fail(party, Some(at), Cause::Deadline(after));
        }
        overdue.is_some()
    }

    // Waiting. See `Waits`.

    /// Creates the learner of a handle of `party`: the part of a wait strategy that learns from the
    /// handle's waits.
    ///
    /// The call runs the strategy's code, which may be user code and may panic. So the caller must
    /// hold no lock, and must not yet have counted a handle or pinned a position. That is why a
    /// handle's constructor takes the learner as a parameter: the learner exists before the handle
    /// is counted.
    pub(crate) fn learner(&self, party: usize) -> HandleLearner {
        self.plan.wait_of(party).learner().into()
    }

    /// Like [`Control::learner`], but catches a panic of the strategy. The graph then fails, and
    /// the failure names `party`.
    pub(crate) fn learner_contained(&self, party: usize) -> HandleLearner {
        catch_unwind(AssertUnwindSafe(|| self.learner(party))).unwrap_or_else(|panic| {
            self.fail(party, None, Cause::Panic(panic_message(panic)));
            HandleLearner::default()
        })
    }

    /// Returns the number of polls with which each wait of a new handle of `party` begins. During
    /// these polls the waiter spins without asking the strategy; see [`Wait::first_polls`].
    ///
    /// [`Wait::first_polls`]: crate::wait::Wait::first_polls
    pub(crate) fn first_polls(&self, party: usize) -> u32 {
        let wait = self.plan.wait_of(party);
        if self.is_oversubscribed() { 0 } else { wait.first_polls(wait::first_polls()) }
    }

    /// Waits until the subject of the wait is ready, or until the graph's deadline or the waiter's
    /// deadline, whichever is earlier.
    pub(crate) fn wait(
        &self,
        waiter: Waiter,
        learned: &mut HandleLearner,
        awaited: &mut dyn Awaited,
    ) -> WaitRun {
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::base::model_hooks::asleep(&self.plan.name_of(waiter.party));
        let options = self.waits.options(&self.plan, &waiter, self.status.deadline());
        let mut subject = Subject { control: self, waiter: &waiter, awaited, is_told: false };
        let mut run = wait::wait_until(options, learned, &mut subject);
        self.name_timeout(&mut run, &waiter);
        run
    }

    /// Begins a wait that the caller continues by [`Control::step_wait`].
    pub(crate) fn begin_wait(&self, waiter: &Waiter) -> WaitRun {
        let options = self.waits.options(&self.plan, waiter, self.status.deadline());
        WaitRun::new(&options, self.is_oversubscribed())
    }

    /// Makes a step of a wait; see [`WaitRun::step`].
    pub(crate) fn step_wait(
        &self,
        run: &mut WaitRun,
        waiter: &Waiter,
        learned: &mut HandleLearner,
        awaited: &mut dyn Awaited,
    ) -> Option<u32> {
        #[cfg(all(test, slipring_loom))]
        let _asleep = crate::base::model_hooks::asleep(&self.plan.name_of(waiter.party));
        let options = self.waits.options(&self.plan, waiter, None);
        let mut subject = Subject { control: self, waiter, awaited, is_told: false };
        let polls = run.step(&options, learned, &mut subject);
        self.name_timeout(run, waiter);
        polls
    }

    /// If the graph's own deadline has ended a wait, fails the graph, and replaces the reason.
    fn name_timeout(&self, run: &mut WaitRun, waiter: &Waiter) {
        if let Some(why @ Unmet::TimedOut) = &mut run.unmet
            && self.expire(waiter.party, waiter.at)
        {
            *why = self.status.stopped().unwrap_or(WaitError::Halted).into();
        }
    }

    /// Puts the current thread to sleep for `time`, or until the graph ends or its deadline passes.
    pub(crate) fn pause(&self, time: Duration, party: usize, at: u64) {
        let until = now().checked_add(time);
        while self.status.is_running() {
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now()));
            if left.is_zero() || self.expire(party, at) {
                return;
            }
            sleep(left.min(Duration::from_millis(10)));
        }
    }

    // Joining and leaving. See `Membership`.

    /// Returns the seats of a party.
    pub(crate) fn seats_of(&self, party: usize) -> &[Line<Seat>] {
        &self.membership.seats[self.plan.seats_of(party)]
    }

    /// Takes a free seat of a pool. Returns `None` if the pool is full, and an error if no worker
    /// of the pool is left, so that the pool has ended.
    pub(crate) fn acquire_worker(&self, pool: usize) -> Result<Option<usize>, WaitError> {
        match self.membership.acquire_worker(pool, &self.plan.stages[pool]) {
            Err(PoolIsOver) => Err(self.status.stopped().unwrap_or(WaitError::Closed)),
            // After the end, tickets keep their seats (`worker::I6`).
            Ok(None) => self.stage_ended(pool).map_or(Ok(None), Err),
            Ok(seat) => Ok(seat),
        }
    }

    /// Returns why no event will ever come behind those that `stage` has released, or `None` if an
    /// event may still come.
    pub(crate) fn stage_ended(&self, stage: usize) -> Option<WaitError> {
        self.status.ended(self.positions.position(&self.plan, stage))
    }

    /// Leaves a chunk for another worker of the pool, and notifies the pool's queue.
    pub(crate) fn orphan(&self, pool: usize, orphan: Orphan) {
        let stage = &self.plan.stages[pool];
        self.membership.leave_orphan(pool, stage, orphan); // SYNC[orphaned]: before the notification
        twin!("orphan-unnotified": self.waits.wake_all(stage) => ());
    }

    /// Gives a member's seat back to the tap, and notifies the parties that may wait for the
    /// member.
    pub(crate) fn release_member(&self, tap: usize, seat: usize) {
        let stage = &self.plan.stages[tap];
        self.membership.release_member(&self.positions, stage, seat); // SYNC[left]: before
        self.waits.notify(twin!("vacated-unnotified": &stage.notifies[..] => &[]));
        // The member may have been the last to hold a request, also if it never read: a reader that
        // joins holds events before it knows that the ring has ended.
        self.note_releases();
        self.notify_drained();
    }

    // Counting.

    /// Adds a handle's new counts, `now` minus `flushed`, to the counters of `party`.
    #[inline]
    pub(crate) fn count(&self, party: usize, now: &LocalCounts, flushed: &LocalCounts) {
        self.counters.flush(party, now, flushed);
        self.note_releases();
    }

    /// Like [`Control::count`], for a handle that has not waited long since its last flush: see
    /// [`Counters::flush_progress`].
    #[inline]
    pub(crate) fn count_progress(
        &self,
        party: usize,
        events: u64,
        now: &LocalCounts,
        flushed: &mut LocalCounts,
    ) {
        self.counters.flush_progress(party, events, now, flushed);
        self.note_releases();
    }

    /// Notifies the askers if earlier releases have ended their waits. The method runs in time,
    /// because a party that finds nothing to do calls it: each wait does that outlasts its first
    /// polls, and each flush of counts outside of a wait.
    #[inline]
    pub(crate) fn note_releases(&self) {
        self.askers.note_releases(|| self.is_own_process());
    }
}

/// The subject of a wait in a ring, in the form that the wait loop needs.
struct Subject<'a> {
    control: &'a Control,
    waiter: &'a Waiter,
    awaited: &'a mut dyn Awaited,
    /// Whether the wait must end with an error, even if its condition now holds: the check that
    /// found the error may also have recovered from the death of a process, and so made the
    /// condition true.
    is_told: bool,
}

impl Condition for Subject<'_> {
    fn is_ready(&mut self) -> bool {
        !self.is_told && self.awaited.is_ready()
    }

    fn keep_waiting(&mut self) -> KeepWaiting {
        let asked = self.awaited.self_wait();
        if let Some(error) = self.awaited.watch(self.waiter) {
            self.is_told = true;
            return ControlFlow::Break(error.into());
        }
        let again = match asked {
            SelfWait::Never => None,
            SelfWait::NotNow => Some(ASK_AGAIN),
            SelfWait::Holds(stage) => {
                let stage = self.control.plan.name_of(stage);
                return ControlFlow::Break(WaitError::WaitsForItself(stage).into());
            }
        };
        ControlFlow::Continue(again.into_iter().chain(self.awaited.notice()).min())
    }

    fn flush_after(&self) -> Option<Duration> {
        self.awaited.flush_after()
    }

    fn flush(&mut self) {
        self.awaited.flush();
    }

    fn nap(&mut self) -> Option<Duration> {
        self.awaited.nap()
    }

    fn is_oversubscribed(&self) -> bool {
        self.control.is_oversubscribed()
    }

    fn look_at_cores(&self, noted: &mut NotedThread, now: Instant) {
        self.control.look_at_cores(self.waiter.party, noted, now);
    }
}
