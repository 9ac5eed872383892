//! An executor runs the stages of a chain or graph on threads that all stages share.
//!
//! Each runner (a stage, a worker or a shard) is an entry. A thread takes the turn at an entry that
//! has events, handles one batch of these events, and gives the turn back. So a runner runs on one
//! thread at a time, and any thread runs any runner.
//!
//! [`history`](super::history) says which entry comes next.
//!
//! # How no wake-up is lost
//!
//! - When a party outside of the executor publishes or releases events, it notifies the queue in
//!   which the executor's threads sleep, as it notifies the queue of any other stage.
//! - A release notifies that queue only for the sake of the producers. A thread that has handled a
//!   batch may leave events in its entry, and may have made the followers' entries ready. The
//!   thread first chooses its own next entry. If another of these entries is left over, the thread
//!   notifies the queue ([`Executor::hand_on`]).
//! - An entry may be due at a time, without an event: its batch has waited long enough, or its
//!   `idle` repeats. The thread that learns the time sleeps no longer than that, and the others may
//!   sleep for longer. So if it takes a turn instead, it first makes the others check all entries
//!   ([`Executor::leave_time`]).
//! - A thread that is about to sleep checks every entry. It cannot check an entry that another
//!   thread runs, so it leaves a mark at that entry. The mark makes the other thread check the
//!   entry once more when it gives the turn back (`turn::I2`).
//!
//! Invariants
//! - I1: a runner is used by the thread that has the turn at its entry.
//! - I2: an entry is taken out, stopped and dropped once: by the thread in whose turn the entry
//!   ended, or by the last thread that leaves the executor.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::entry::{Entry, Supervisor, call_user};
use super::history::{Done, History};
use super::hooks::OnFaults;
use super::runner::BoxedRunner;
use crate::base::fault::Fault;
use crate::base::panics::Contained;
use crate::base::sync::{
    AtomicU32, AtomicUsize, Line, Mutex, Relaxed, Statistic, lock, now, twin, yield_now,
};
use crate::base::turn::{InTurns, Turn};
use crate::errors::Cause;
use crate::ring::control::Control;
use crate::ring::counters::LocalCounts;
use crate::ring::helper::{self, Help};
use crate::ring::plan::Plan;
use crate::ring::self_wait::{self, enter};
use crate::ring::stage::PRODUCER_QUEUE;
use crate::ring::waits::{Unmet, Waiter};
use crate::wait::HandleLearner;

/// The entries of stages that share threads.
pub(crate) struct Executor<'env> {
    entries: Box<[Line<ScheduledEntry<'env>>]>,
    /// For each entry, the entries of the stages that directly follow its stage.
    followers: Box<[Box<[usize]>]>,
    /// The stage of each entry.
    stages: Box<[usize]>,
    /// The entries by depth, the deepest first.
    levels: Box<[Box<[usize]>]>,
    /// Index of the first entry's stage, whose queue and strategy all entries share.
    stage: usize,
    /// Whether threads hand entries on to one another. They do if there are several threads, and
    /// these sleep in the queue.
    hands_on: bool,
    /// Number of entries that have not ended.
    left: AtomicUsize,
    /// Number of threads that wait for an entry.
    waiting: AtomicUsize,
    /// Number of turns that producers ran while they waited for room. After such a turn, another
    /// thread has to call the handler's `idle`. Also counts the turns of threads that know when an
    /// entry is due and do not wait for that time ([`Executor::leave_time`]).
    helped: AtomicUsize,
    /// Number of threads that have not left the executor.
    threads: Mutex<usize>,
}

/// An entry, with the marks of the threads that run it.
struct ScheduledEntry<'env> {
    /// The entry; `None` once it has ended.
    entry: InTurns<Option<Entry<'env>>>,
    /// 1 while the thread that has the turn calls the handler; 0 while that thread only checks
    /// whether the entry is ready.
    calls: AtomicU32,
    /// Number of the thread that ran the entry last. Only a hint.
    home: Statistic,
}

/// A turn at an entry.
struct Taken<'a, 'env> {
    entry: usize,
    turn: Turn<'a, Option<Entry<'env>>>,
}

impl Taken<'_, '_> {
    /// Returns whether the entry has work: a start, an event, or an end.
    fn is_ready(&self) -> bool {
        let ready = |entry: &Entry<'_>| !entry.is_started() || entry.is_ready();
        self.turn.as_ref().is_some_and(ready)
    }
}

/// The result of a thread's check of all entries before it waits.
enum Lull<'a, 'env> {
    /// An entry is ready. The flag says whether another entry is due at some time.
    Over(Taken<'a, 'env>, bool),
    /// No entry is ready. Of the entries that no other thread runs, the thread picks the most
    /// upstream one. It waits for the progress that this entry needs, at most until an entry's
    /// `idle` is due.
    Lasts(Option<Waiter>, Option<Instant>),
}

impl<'env> Executor<'env> {
    /// Makes the executor of these runners, for `threads` threads. Returns `None` if there is no
    /// runner.
    pub(crate) fn new(
        plan: &Plan,
        runners: Vec<BoxedRunner<'env>>,
        threads: usize,
    ) -> Option<Arc<Executor<'env>>> {
        let stage = runners.first()?.stage();
        let stages: Vec<usize> = runners.iter().map(|runner| runner.stage()).collect();
        let mut levels = BTreeMap::<_, Vec<usize>>::new();
        for (entry, &stage) in stages.iter().enumerate() {
            levels.entry(Reverse(plan.depth(stage))).or_default().push(entry);
        }
        let follow = |stage: &usize| -> Box<[usize]> {
            let follows = |&entry: &usize| plan.stages[stages[entry]].after.contains(stage);
            (0..stages.len()).filter(follows).collect()
        };
        Some(Arc::new(Executor {
            followers: stages.iter().map(follow).collect(),
            levels: levels.into_values().map(Vec::into_boxed_slice).collect(),
            left: AtomicUsize::new(stages.len()),
            stages: stages.into(),
            entries: runners
                .into_iter()
                .map(|runner| {
                    let entry = InTurns::new(Some(Entry::new(runner)));
                    let (calls, home) = (AtomicU32::new(0), Statistic::new(u64::MAX));
                    Line::new(ScheduledEntry { entry, calls, home })
                })
                .collect(),
            stage,
            hands_on: threads > 1 && (plan.parks(stage) || plan.producer_parks),
            waiting: AtomicUsize::new(0),
            helped: AtomicUsize::new(0),
            threads: Mutex::new(threads),
        }))
    }

    /// Returns the indices of the entries' stages.
    pub(crate) fn stages(&self) -> Vec<usize> {
        let mut stages = self.stages.to_vec();
        stages.dedup();
        stages
    }

    /// Runs entries until all have ended.
    pub(crate) fn work(&self, supervisor: Supervisor<'_, 'env>) {
        self.helping(supervisor, || {
            let mut learned = supervisor.control.learner_contained(self.stage);
            let (mut history, mut timed_out) = (History::of(supervisor.thread), false);
            let mut next = self.find(&history, |_| true);
            while !self.is_over() {
                next = match next {
                    Some(taken) => {
                        let done = self.turn(supervisor, taken);
                        history.add(&done);
                        let next = self.find(&history, |_| true);
                        self.hand_on(supervisor.control, done, next.as_ref());
                        next
                    }
                    None => {
                        history.add_wait();
                        self.wait(supervisor, &history, &mut learned, &mut timed_out)
                    }
                };
            }
        });
    }

    /// Calls `run`. If the current thread must wait during that call, for room in the ring or for
    /// an event, it runs entries while it waits.
    pub(crate) fn helping<T>(
        &self,
        supervisor: Supervisor<'_, 'env>,
        run: impl FnOnce() -> T,
    ) -> T {
        let history = Cell::new(History::of(supervisor.thread));
        let helping = Helping { executor: self, supervisor, history };
        helper::during(supervisor.control, &helping, run)
    }

    /// Called once for each thread, when the thread has finished or could not be started. The last
    /// call ends the entries that have not ended.
    pub(crate) fn leave(&self, control: &Control) {
        let left = {
            let mut threads = lock(&self.threads);
            *threads -= 1;
            *threads
        };
        if left == 0 {
            for entry in 0..self.entries.len() {
                if let Some(mut taken) = self.take(entry) {
                    self.end(control, &mut taken);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.left.load(Relaxed) == 0
    }

    fn take(&self, entry: usize) -> Option<Taken<'_, 'env>> {
        Some(Taken { entry, turn: self.entries[entry].entry.take()? })
    }

    /// Takes the turn at an entry that is ready.
    fn take_ready(&self, entry: usize) -> Option<Taken<'_, 'env>> {
        let mut taken = self.take(entry)?;
        loop {
            if taken.is_ready() {
                return Some(taken);
            }
            if !taken.turn.give_back() {
                return None;
            }
            taken = self.take(entry)?;
        }
    }

    /// Takes the turn at an entry, unless another thread is calling its handler. If another thread
    /// is only checking the entry, waits until that thread gives the turn back, which it does soon.
    ///
    /// This thread marks the turn only if it no longer waits for it. A mark makes the other thread
    /// check the entry once more, so a thread that waited and marked could keep the turn at the
    /// other thread for as long as the two run in step.
    fn take_idle(&self, entry: usize) -> Option<Taken<'_, 'env>> {
        while self.entries[entry].calls.load(Relaxed) == 0 {
            if let Some(turn) = self.entries[entry].entry.take_unmarked() {
                return Some(Taken { entry, turn });
            }
            yield_now();
        }
        self.take(entry)
    }

    /// Gives a turn back, and returns whether the entry is ready. If another thread wanted the turn
    /// meanwhile, this thread checks the entry once more: the other thread may have been woken for
    /// an event that came after this thread's check, and may have gone back to sleep without
    /// handling it.
    fn give_back<'a>(&'a self, mut taken: Taken<'a, 'env>) -> bool {
        let entry = taken.entry;
        loop {
            let is_ready = taken.is_ready();
            let wanted = taken.turn.give_back();
            if is_ready || !twin!("want-ignored": wanted => false) {
                return is_ready;
            }
            match self.take(entry) {
                Some(again) => taken = again,
                None => return false,
            }
        }
    }

    /// Considers the entries that are ready and that a thread `may` run, and takes the turn at the
    /// one that comes next for the thread.
    fn find(
        &self,
        history: &History,
        may: impl Fn(usize) -> bool + Copy,
    ) -> Option<Taken<'_, 'env>> {
        let order = || history.order(&self.followers, &self.levels);
        let is_own = |entry: &usize| self.entries[*entry].home.load(Relaxed) == history.thread;
        let take = |entry| if may(entry) { self.take_ready(entry) } else { None };
        if history.is_fair() {
            return history.fair_order(self.entries.len()).find_map(take);
        }
        let own = || order().filter(is_own).find_map(take);
        let others = || order().filter(|entry| !is_own(entry)).find_map(take);
        history.stay().and_then(take).or_else(own).or_else(others)
    }

    /// Handles a batch of an entry, and gives the turn back.
    fn turn(&self, supervisor: Supervisor<'_, 'env>, mut taken: Taken<'_, 'env>) -> Done {
        let entry = taken.entry;
        let ScheduledEntry { calls, home, .. } = &*self.entries[entry];
        calls.store(1, Relaxed);
        home.store(supervisor.thread as u64, Relaxed);
        self.step(supervisor, &mut taken);
        calls.store(0, Relaxed);
        let (is_behind, ended, is_timed) = match &*taken.turn {
            Some(entry) => (entry.runner().is_behind(), entry.ended(), entry.runner().is_timed()),
            None => (false, 0, false),
        };
        Done { entry, is_behind, ended, is_timed, is_ready: self.give_back(taken) }
    }

    fn step(&self, supervisor: Supervisor<'_, 'env>, taken: &mut Taken<'_, 'env>) {
        let control = supervisor.control;
        let Some(entry) = &mut *taken.turn else { return };
        let within = enter(control, entry.runner().line());
        // If the graph has failed already, the handler is not started.
        let is_started =
            entry.is_started() || control.status.stopped().is_none() && entry.start(control);
        if is_started && entry.is_running() {
            entry.step(supervisor);
        }
        let has_ended = !is_started || !entry.is_running();
        drop(within);
        if has_ended {
            self.end(control, taken);
        }
    }

    /// Ends an entry (I2). When the last entry ends, the threads end, too.
    fn end(&self, control: &Control, taken: &mut Taken<'_, 'env>) {
        if let Some(entry) = taken.turn.take() {
            entry.stop(control);
            if self.left.fetch_sub(1, Relaxed) == 1 {
                control.waits.notify(&[PRODUCER_QUEUE]);
            }
        }
    }

    /// Called after a turn, when the thread has chosen its next entry. Wakes another thread for the
    /// entries that this turn has left ready, or made ready, and that this thread does not run
    /// next.
    fn hand_on(&self, control: &Control, done: Done, next: Option<&Taken<'_, 'env>>) {
        let next = next.map(|taken| taken.entry);
        let leaves = |entry: usize| Some(entry) != next;
        let leaves_rest = done.is_ready && leaves(done.entry);
        let leaves_follower = || self.followers[done.entry].iter().any(|&entry| leaves(entry));
        let leaves_any = twin!("rest-kept": leaves_rest => false)
            || twin!("followers-kept": leaves_follower() => false);
        if self.hands_on && leaves_any {
            control.waits.notify(&[PRODUCER_QUEUE]);
        }
        if done.is_timed && next.is_some() {
            self.leave_time(control);
        }
    }

    /// Lets the threads that wait check all entries once more. The current thread knows of an entry
    /// that is due at a time, and goes on with another entry, so a waiting thread must learn the
    /// time.
    #[cold]
    fn leave_time(&self, control: &Control) {
        self.helped.fetch_add(1, Relaxed);
        control.waits.notify(&[PRODUCER_QUEUE]);
    }

    /// Waits until an entry is ready, or until all entries have ended.
    fn wait(
        &self,
        supervisor: Supervisor<'_, 'env>,
        history: &History,
        learned: &mut HandleLearner,
        timed_out: &mut bool,
    ) -> Option<Taken<'_, 'env>> {
        let control = supervisor.control;
        let helped = self.helped.load(Relaxed);
        let (waiter, until) = match self.lull(supervisor, *timed_out) {
            Lull::Over(taken, is_timed) => {
                if is_timed {
                    self.leave_time(control);
                }
                return Some(taken);
            }
            Lull::Lasts(waiter, until) => (waiter, until),
        };
        let party = waiter.map_or(self.stage, |waiter| waiter.party);
        let at = waiter
            .map_or_else(|| control.positions.position(&control.plan, party), |waiter| waiter.at);
        let site = Waiter { until, ..waiter.unwrap_or(Waiter::new(party, party, at)) };
        let mut found = None;
        let is_first = self.waiting.fetch_add(1, Relaxed) == 0;
        control.idle_threads.fetch_add(1, Relaxed);
        let waited = {
            let mut ready = || {
                if found.is_none() {
                    found = self.find(history, |_| true);
                }
                found.is_some() || self.is_over() || self.helped.load(Relaxed) != helped
            };
            // The graph fails if the user's waiting strategy panics, or if the graph's deadline
            // passes. In a failed graph, each entry ends at its next step.
            call_user(control, party, Some(at), || Ok(control.wait(site, learned, &mut ready)))
        };
        control.idle_threads.fetch_sub(1, Relaxed);
        self.waiting.fetch_sub(1, Relaxed);
        // Behind the graph's deadline, each wait ends at once, although another thread may still
        // call a handler.
        if found.is_none() && !control.status.is_running() {
            yield_now();
        }
        if until.is_some() && found.is_some() {
            self.leave_time(control);
        }
        *timed_out = false;
        if let Some(run) = waited {
            *timed_out = until.is_none() && matches!(run.unmet, Some(Unmet::TimedOut));
            // If several threads wait for the same event, only the first thread counts its wait.
            if let (Some(waiter), true) = (waiter, is_first) {
                let mut counts = LocalCounts::default();
                counts.wait(waiter.waits_for, run.time(), run.sleeps);
                control.count(party, &counts, &LocalCounts::default());
            }
        }
        found
    }

    /// Checks all entries that no other thread runs, the most upstream first, and calls `idle` of
    /// their handlers. If `again` is set, also calls `idle` of handlers whose `idle` was called
    /// since their last event.
    fn lull(&self, supervisor: Supervisor<'_, 'env>, again: bool) -> Lull<'_, 'env> {
        let mut waiter = None;
        let mut earliest: Option<Instant> = None;
        for &entry in self.levels.iter().rev().flatten() {
            let Some(mut taken) = self.take_idle(entry) else { continue };
            if taken.is_ready() {
                return Lull::Over(taken, earliest.is_some());
            }
            let calls = &self.entries[entry].calls;
            if let Some(entry) = &mut *taken.turn {
                let within = enter(supervisor.control, entry.runner().line());
                calls.store(1, Relaxed);
                let idled = entry.idle_once(supervisor, again);
                calls.store(0, Relaxed);
                drop(within);
                match idled {
                    Ok(until) => earliest = earliest.into_iter().chain(until).min(),
                    // The failed handler may have events left, or its entry has ended.
                    Err(()) => return Lull::Over(taken, earliest.is_some()),
                }
                let runner = entry.runner();
                waiter.get_or_insert_with(|| {
                    Waiter::new(runner.stage(), runner.waits_for(), runner.next_seq())
                });
            }
            if self.give_back(taken)
                && let Some(taken) = self.take_ready(entry)
            {
                return Lull::Over(taken, earliest.is_some());
            }
        }
        Lull::Lasts(waiter, earliest)
    }
}

#[cfg(all(test, slipring_loom))]
impl<'env> Executor<'env> {
    /// Runs one turn as a producer that waits for room.
    pub(crate) fn help_once(&self, supervisor: Supervisor<'_, 'env>) -> bool {
        let history = Cell::new(History::of(supervisor.thread));
        Helping { executor: self, supervisor, history }.step(None)
    }
}

/// A thread that runs entries while it waits for room in the ring.
struct Helping<'a, 'env> {
    executor: &'a Executor<'env>,
    supervisor: Supervisor<'a, 'env>,
    history: Cell<History>,
}

impl<'a, 'env> Helping<'a, 'env> {
    /// Finds an entry as [`Executor::find`] does, but only an entry whose usual turn ends by
    /// `until`. If `until` is given, an entry that has had no turn yet is not found, because its
    /// turn may take any time.
    ///
    /// Inside a handler, `until` is ignored. There, this thread may be the only one that can run
    /// the entry, because the thread that calls `run` may be in the program's own code. If `until`
    /// were not ignored, a handler that repeats a call with a short deadline would never succeed.
    /// Outside of handlers, there is always a started thread that can run the entry.
    ///
    /// Inside the closure that decides about a stage's failures, no entry of that stage is found
    /// (judge::I3).
    fn find(&self, history: &History, until: Option<Instant>) -> Option<Taken<'a, 'env>> {
        let Helping { executor, supervisor, .. } = self;
        let until = until.filter(|_| self_wait::innermost(supervisor.control).is_none());
        let left = until.map(|until| until.saturating_duration_since(now()));
        let usual = |entry| supervisor.control.counters.usual_turn(executor.stages[entry]);
        executor.find(history, |entry| {
            !self_wait::is_judging(supervisor.control, executor.stages[entry])
                && left.is_none_or(|left| usual(entry).is_some_and(|turn| turn <= left))
        })
    }

    /// Wakes another thread, because this thread goes back to the user's code.
    fn wake_another(&self) {
        if self.executor.hands_on {
            self.supervisor.control.waits.notify(&[PRODUCER_QUEUE]);
        }
    }
}

impl Help for Helping<'_, '_> {
    fn step(&self, until: Option<Instant>) -> bool {
        let mut history = self.history.get();
        let Some(taken) = self.find(&history, until) else { return false };
        let done = self.executor.turn(self.supervisor, taken);
        history.add(&done);
        self.history.set(history);
        self.executor.hand_on(self.supervisor.control, done, None);
        // This thread wakes a thread that waits for events, and leaves the call of the handler's
        // `idle` to that thread. In a model, this wake-up would hide a missing wake-up elsewhere.
        if !cfg!(slipring_loom) {
            self.executor.helped.fetch_add(1, Relaxed);
            self.wake_another();
        }
        true
    }

    fn wait_begins(&self) {
        self.supervisor.control.idle_threads.fetch_add(1, Relaxed);
    }

    fn wait_ended(&self) {
        self.supervisor.control.idle_threads.fetch_sub(1, Relaxed);
        self.wake_another();
    }

    fn is_ready(&self, until: Option<Instant>) -> bool {
        let is_ready = |taken| self.executor.give_back(taken);
        self.find(&self.history.get(), until).is_some_and(is_ready)
    }
}

/// A thread of an executor.
pub(crate) struct SharedThread<'env> {
    executor: Arc<Executor<'env>>,
    on_faults: Option<OnFaults<'env>>,
    /// Number of this thread, counted from 0.
    number: usize,
}

impl<'env> SharedThread<'env> {
    pub(crate) fn new(
        executor: Arc<Executor<'env>>,
        on_faults: Option<OnFaults<'env>>,
        number: usize,
    ) -> Self {
        SharedThread { executor, on_faults, number }
    }

    /// Calls `on_start`, and runs entries until all have ended.
    pub(crate) fn run(self, control: &Control, on_start: impl FnOnce() -> Result<(), Fault>) {
        let stage = self.executor.stage;
        // If the hook panics, the graph has failed, and the entries end.
        call_user(control, stage, None, on_start);
        let (on_faults, thread) = (self.on_faults.as_ref(), self.number);
        self.executor.work(Supervisor { control, on_faults, thread });
        self.stop(control);
    }

    /// Ends a thread that has run its entries, or that could not be started.
    pub(crate) fn stop(self, control: &Control) {
        self.executor.leave(control);
        // In a spawned chain, `on_faults` may be the last reference to the user's function, and the
        // drop of the function may panic.
        if let Some(panic) = self.on_faults.and_then(Contained::drop_contained) {
            control.fail(self.executor.stage, None, Cause::Panic(panic));
        }
    }
}
