//! A chain's thread starts the runners of its stages, runs them in turn, handles their failures,
//! and stops them.
//!
//! Invariants
//! - I1: no panic of user code leaves this module. A caught panic fails the graph, unless the
//!   stage's policy lets the stage go on. The graph's failure names the stage, and also the event
//!   if the handler panicked at an event. A panic in the drop of a caught panic's payload is
//!   contained, too.
//! - I2: if a handler's `start` succeeded, the handler's `stop` is called, also after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::hooks::OnFaults;
use super::runner::{BoxedRunner, Runner};
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::consumer::drive::End;
use crate::errors::Cause;
use crate::ring::control::{Control, Waiter};
use crate::ring::counters::LocalCounts;
use crate::ring::peers::Checkup;
use crate::ring::policy::{Faulted, Verdict};
use crate::ring::self_wait::enter;

/// The stages, workers and shards that run on one thread. Most threads run a single stage, worker
/// or shard.
pub(super) struct StageThread<'env> {
    entries: Vec<Entry<'env>>,
    on_faults: Option<OnFaults<'env>>,
    /// Number of runners that were started.
    started: usize,
}

/// A runner, and its failures since its last release.
struct Entry<'env> {
    runner: BoxedRunner<'env>,
    /// Whether the runner has not ended yet.
    running: bool,
    /// [`Runner::released`] at the last failure.
    released: u64,
    /// Number of failures that the runner survived since the last change of `released`.
    failures: u32,
}

impl<'env> StageThread<'env> {
    pub(super) fn new(
        runners: Vec<BoxedRunner<'env>>,
        on_faults: Option<OnFaults<'env>>,
    ) -> StageThread<'env> {
        let entry = |runner| Entry { runner, running: true, released: 0, failures: 0 };
        StageThread { entries: runners.into_iter().map(entry).collect(), on_faults, started: 0 }
    }

    /// Calls `on_start`, runs all stages of the thread, and drops the handlers of the stages.
    pub(super) fn run(mut self, control: &Control, on_start: impl FnOnce()) {
        let Some(first) = self.entries.first().map(|entry| entry.runner.stage()) else { return };
        let within = enter(control, self.lines());
        let hooked = call_user(control, first, None, || {
            on_start();
            Ok(())
        });
        if hooked.is_some() && self.start(control) {
            match &self.entries[..] {
                [_] => self.run_alone(control),
                _ => self.take_turns(control),
            }
        }
        // After the drop of `within`, other threads may finish the orphaned chunks of this thread's
        // stages (self_wait::I2).
        drop(within);
        self.stop(control);
    }

    /// Starts the handlers in turn. Returns `false` at the first handler whose start fails.
    pub(super) fn start(&mut self, control: &Control) -> bool {
        for Entry { runner, .. } in &mut self.entries {
            if call_user(control, runner.stage(), None, || runner.start()).is_none() {
                return false;
            }
            self.started += 1;
        }
        true
    }

    /// Runs the only stage of the thread until the stage ends.
    fn run_alone(&mut self, control: &Control) {
        let end = loop {
            let runner = &mut self.entries[0].runner;
            let end = catch_end(|| runner.run()).unwrap_or_else(|end| end);
            if let Some(end) = self.survive(0, control, end) {
                break end;
            }
        };
        fail(control, &*self.entries[0].runner, end);
    }

    /// Runs several stages in turn until all have ended.
    fn take_turns(&mut self, control: &Control) {
        let mut learned = self
            .entries
            .first()
            .map(|entry| control.learner_contained(entry.runner.stage()))
            .unwrap_or_default();
        while let Some(handled) = self.turn(control) {
            if handled == 0
                && let Ok(until) = self.idle(control)
            {
                let Some(first) = self.running().next() else { return };
                let waiter = Waiter {
                    party: first.stage(),
                    waits_for: first.waits_for(),
                    at: first.next_seq(),
                    polls: 0,
                };
                let mut ready = || self.running().any(|runner| runner.is_ready());
                // The graph fails if the user's waiting strategy panics, or if the graph's deadline
                // passes. In a failed graph, each stage ends at its next step.
                let waited = call_user(control, waiter.party, Some(waiter.at), || {
                    Ok(control.wait_at(
                        waiter,
                        &mut learned,
                        until,
                        &mut || None,
                        Checkup::NONE,
                        &mut ready,
                    ))
                });
                if let Some((_, stats)) = waited {
                    let mut counts = LocalCounts::default();
                    counts.wait(waiter.waits_for, stats);
                    control.count(waiter.party, &counts, &LocalCounts::default());
                }
            }
        }
    }

    /// Lets each running stage handle its available events once. Returns the number of handled
    /// events. After a failure, the result is at least 1, so that the thread takes its next turn
    /// without waiting. `None`: all stages have ended.
    pub(super) fn turn(&mut self, control: &Control) -> Option<u64> {
        let mut handled = 0;
        let mut failed = false;
        for i in 0..self.entries.len() {
            let Entry { runner, running: true, .. } = &mut self.entries[i] else { continue };
            match catch_end(|| runner.step()).unwrap_or_else(Err) {
                Ok(count) => handled += count,
                Err(end) => {
                    // The failed stage may have events left, so the thread must not wait after this
                    // turn.
                    failed = true;
                    self.survive_or_end(i, control, end);
                }
            }
        }
        if self.entries.iter().any(|entry| entry.running) {
            Some(handled.max(u64::from(failed)))
        } else {
            None
        }
    }

    /// Calls `idle` of each running handler. Returns the earliest time at which a handler's `idle`
    /// is due again, or an error if a handler has failed.
    fn idle(&mut self, control: &Control) -> Result<Option<Instant>, ()> {
        let mut earliest: Option<Instant> = None;
        for i in 0..self.entries.len() {
            let Entry { runner, running: true, .. } = &mut self.entries[i] else { continue };
            match catch_end(|| runner.idle()).unwrap_or_else(Err) {
                Ok(until) => earliest = earliest.into_iter().chain(until).min(),
                Err(end) => {
                    self.survive_or_end(i, control, end);
                    return Err(());
                }
            }
        }
        Ok(earliest)
    }

    /// Lets a stage go on after a failure, or ends the stage.
    fn survive_or_end(&mut self, i: usize, control: &Control, end: End) {
        if let Some(end) = self.survive(i, control, end) {
            fail(control, &*self.entries[i].runner, end);
            self.entries[i].running = false;
        }
    }

    /// Lets a stage go on after a failure, if the stage's policy allows the stage to go on.
    /// `Some(end)`: the stage ends, with a failure or without one.
    fn survive(&mut self, i: usize, control: &Control, end: End) -> Option<End> {
        let Entry { runner, released, failures, .. } = &mut self.entries[i];
        let stage = runner.stage();
        let policy = &control.plan.stages[stage].policy;
        let on = match &end {
            End::Wait(_) => return Some(end),
            End::Fault(_) => policy.on_error,
            End::Panic(_) => policy.on_panic,
        };
        let at = runner.failed_at();
        let now = runner.released();
        if *released != now {
            (*released, *failures) = (now, 0);
        }
        let again = *failures != 0;
        let Some(verdict) = on.verdict(*failures).filter(|_| control.is_running()) else {
            return Some(end);
        };
        *failures = failures.saturating_add(1);
        if let Some(hook) = &self.on_faults {
            // The error's `to_string` and the function `hook` are user code and may panic.
            call_user(control, stage, at, || {
                let message = match &end {
                    End::Fault(fault) => fault.to_string(),
                    End::Panic(message) => message.clone(),
                    End::Wait(_) => String::new(),
                };
                hook(&Faulted { stage: control.name(stage), seq: at, message, verdict });
                Ok(())
            });
        }
        // `end` is dropped outside of `call_user`. A panic of `hook` inside of `call_user` would
        // drop `end` while unwinding, and a second panic in that drop would abort the process.
        if let Some(panic) = drop_contained(end) {
            control.fail(stage, at, Cause::Panic(panic));
        }
        match verdict {
            Verdict::Retried => {
                runner.retry();
                control.pause(on.pause_time(), stage, runner.next_seq());
            }
            Verdict::Skipped => runner.skip(),
        }
        // Each wait for events checks the graph's deadline. A stage that keeps failing can go on
        // without any wait, so `survive` also checks the graph's deadline.
        if again {
            control.expire(stage, runner.next_seq());
        }
        None
    }

    /// Calls `stop` of each started handler (I2), and drops all handlers.
    pub(super) fn stop(self, control: &Control) {
        let StageThread { entries, started, on_faults } = self;
        let mut last = control.producer_party();
        for (i, Entry { mut runner, .. }) in entries.into_iter().enumerate() {
            last = runner.stage();
            if i < started {
                call_user(control, last, None, || runner.stop());
            }
            if let Some(panic) = drop_contained(runner) {
                control.fail(last, None, Cause::Panic(panic));
            }
        }
        // In a spawned chain, `on_faults` may be the last reference to the user's function, and the
        // drop of the function may panic.
        if let Some(panic) = on_faults.and_then(Contained::drop_contained) {
            control.fail(last, None, Cause::Panic(panic));
        }
    }

    /// Returns the indices of the shared lines on which the thread's runners release events. A
    /// runner of a user's loop adds no index.
    pub(super) fn lines(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().filter_map(|entry| entry.runner.line())
    }

    /// Returns the index and the next position of the first stage that has not ended.
    pub(super) fn first_running(&self) -> Option<(usize, u64)> {
        self.running().next().map(|runner| (runner.stage(), runner.next_seq()))
    }

    fn running(&self) -> impl Iterator<Item = &BoxedRunner<'env>> {
        self.entries.iter().filter(|entry| entry.running).map(|entry| &entry.runner)
    }
}

/// Calls user code of a stage. If the user code panics or returns an error, `call_user` fails the
/// graph (I1) and returns `None`.
fn call_user<T>(
    control: &Control,
    stage: usize,
    at: Option<u64>,
    call: impl FnOnce() -> Result<T, Fault>,
) -> Option<T> {
    let cause = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(fault)) => Cause::Error(fault),
        Err(panic) => Cause::Panic(panic_message(panic)),
    };
    control.fail(stage, at, cause);
    None
}

/// Calls code that runs handlers. A panic becomes [`End::Panic`] (I1), so that the stage's policy
/// applies to the panic.
fn catch_end<T>(call: impl FnOnce() -> T) -> Result<T, End> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| End::Panic(panic_message(panic)))
}

/// Fails the graph, unless the stage ended without a failure.
fn fail(control: &Control, runner: &dyn Runner, end: End) {
    let cause = match end {
        End::Wait(_) => return,
        End::Fault(fault) => Cause::Error(fault),
        End::Panic(message) => Cause::Panic(message),
    };
    control.fail(runner.stage(), runner.failed_at(), cause);
}
