//! A chain's thread starts the runners of its stages, runs them in turn, and stops them.

use std::time::Instant;

use super::entry::{Entry, Supervisor, call_user};
use super::hooks::OnFaults;
use super::runner::BoxedRunner;
use crate::base::fault::Fault;
use crate::base::panics::Contained;
use crate::errors::Cause;
use crate::ring::control::Control;
use crate::ring::counters::LocalCounts;
use crate::ring::self_wait::enter;
use crate::ring::waits::Waiter;

/// The stages, workers and shards that run on one thread. Most threads run a single stage, worker
/// or shard.
pub(crate) struct StageThread<'env> {
    entries: Vec<Entry<'env>>,
    on_faults: Option<OnFaults<'env>>,
}

impl<'env> StageThread<'env> {
    pub(crate) fn new(
        runners: Vec<BoxedRunner<'env>>,
        on_faults: Option<OnFaults<'env>>,
    ) -> StageThread<'env> {
        StageThread { entries: runners.into_iter().map(Entry::new).collect(), on_faults }
    }

    /// Calls `on_start`, runs all stages of the thread, and drops the handlers of the stages.
    pub(crate) fn run(mut self, control: &Control, on_start: impl FnOnce() -> Result<(), Fault>) {
        let Some(first) = self.entries.first().map(|entry| entry.runner().stage()) else { return };
        let within = enter(control, self.lines());
        let hooked = call_user(control, first, None, on_start);
        if hooked.is_some() && self.start(control) {
            match &mut self.entries[..] {
                [only] => {
                    let on_faults = self.on_faults.as_ref();
                    only.run(Supervisor { control, on_faults, thread: 0 });
                }
                _ => self.take_turns(control),
            }
        }
        // Once `within` is dropped, other threads may finish the orphaned chunks of this thread's
        // stages (self_wait::I2).
        drop(within);
        self.stop(control);
    }

    /// Starts the handlers in turn. Returns `false` at the first handler whose start fails.
    pub(crate) fn start(&mut self, control: &Control) -> bool {
        self.entries.iter_mut().all(|entry| entry.start(control))
    }

    /// Runs several stages in turn until all have ended.
    fn take_turns(&mut self, control: &Control) {
        let mut learned = self
            .entries
            .first()
            .map(|entry| control.learner_contained(entry.runner().stage()))
            .unwrap_or_default();
        while let Some(handled) = self.turn(control) {
            if handled == 0
                && let Ok(until) = self.idle(control)
            {
                let Some(first) = self.running().next() else { return };
                let (stage, waits_for) = (first.stage(), first.waits_for());
                let waiter = Waiter { until, ..Waiter::new(stage, waits_for, first.next_seq()) };
                let mut ready = || self.running().any(|runner| runner.is_ready());
                // The graph fails if the user's waiting strategy panics, or if the graph's deadline
                // passes. In a failed graph, each stage ends at its next step.
                let waited = call_user(control, waiter.party, Some(waiter.at), || {
                    Ok(control.wait(waiter, &mut learned, &mut ready))
                });
                if let Some(run) = waited {
                    let mut counts = LocalCounts::default();
                    counts.wait(waiter.waits_for, run.time(), run.sleeps);
                    control.count(waiter.party, &counts, &LocalCounts::default());
                }
            }
        }
    }

    /// Lets each running stage handle its available events once. Returns the number of handled
    /// events. After a failure, and after the turn that follows it, the result is at least 1, so
    /// that the thread takes its next turn without waiting. Returns `None` if all stages have
    /// ended.
    pub(crate) fn turn(&mut self, control: &Control) -> Option<u64> {
        let supervisor = Supervisor { control, on_faults: self.on_faults.as_ref(), thread: 0 };
        let running = self.entries.iter_mut().filter(|entry| entry.is_running());
        let handled = running.map(|entry| entry.step(supervisor)).sum();
        self.entries.iter().any(Entry::is_running).then_some(handled)
    }

    /// Calls `idle` of each running handler. Returns the earliest time at which a call of `idle` is
    /// due again, or an error if a handler has failed.
    fn idle(&mut self, control: &Control) -> Result<Option<Instant>, ()> {
        let supervisor = Supervisor { control, on_faults: self.on_faults.as_ref(), thread: 0 };
        let mut earliest: Option<Instant> = None;
        for entry in self.entries.iter_mut().filter(|entry| entry.is_running()) {
            earliest = earliest.into_iter().chain(entry.idle(supervisor)?).min();
        }
        Ok(earliest)
    }

    /// Calls `stop` of each started handler, and drops all handlers.
    pub(crate) fn stop(self, control: &Control) {
        let StageThread { entries, on_faults } = self;
        let mut last = control.plan.producer_party();
        for entry in entries {
            last = entry.stop(control);
        }
        // In a spawned chain, `on_faults` may be the last reference to the user's function, and the
        // drop of the function may panic.
        if let Some(panic) = on_faults.and_then(Contained::drop_contained) {
            control.fail(last, None, Cause::Panic(panic));
        }
    }

    /// Returns the indices of the shared lines on which the thread's runners release events. A
    /// runner of a user's loop adds no index.
    pub(crate) fn lines(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().filter_map(|entry| entry.runner().line())
    }

    /// Returns the index and the next position of the first stage that has not ended.
    pub(crate) fn first_running(&self) -> Option<(usize, u64)> {
        self.running().next().map(|runner| (runner.stage(), runner.next_seq()))
    }

    /// Returns whether a turn would handle an event, or find the end of the stream.
    pub(crate) fn is_ready(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_running() && entry.is_ready())
    }

    fn running(&self) -> impl Iterator<Item = &BoxedRunner<'env>> {
        self.entries.iter().filter(|entry| entry.is_running()).map(Entry::runner)
    }
}
