//! A supervised runner. This module starts and stops the runner, and applies the stage's policy to
//! its failures.
//!
//! Invariants
//! - I1: no panic of user code leaves this module. A caught panic fails the graph, unless the
//!   stage's policy lets the stage continue. The failure names the stage, and also the event if the
//!   handler panicked at an event. A panic in the drop of a caught panic's payload is contained,
//!   too.
//! - I2: if a handler's `start` succeeded, the handler's `stop` is called, even after a failure.

use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::hooks::OnFaults;
use super::runner::BoxedRunner;
use super::turn_clock::TurnClock;
use crate::base::fault::Fault;
use crate::base::panics::{drop_contained, panic_message};
use crate::base::sync::now;
use crate::consumer::drive::End;
use crate::errors::Cause;
use crate::ring::control::Control;
use crate::ring::policy::{Faulted, Verdict};

/// State that the entries of a graph share.
#[derive(Clone, Copy)]
pub(crate) struct Supervisor<'a, 'env> {
    pub(crate) control: &'a Control,
    pub(crate) on_faults: Option<&'a OnFaults<'env>>,
    /// Number of the current thread among the threads that share the entries.
    pub(crate) thread: usize,
}

/// A runner, and its failures since its last release.
pub(crate) struct Entry<'env> {
    runner: BoxedRunner<'env>,
    /// Whether `start` of the handler has succeeded.
    started: bool,
    /// Whether the runner has not ended yet.
    running: bool,
    /// Whether the runner has survived a failure since its last step. The next step releases the
    /// events that the runner skipped, even if the step finds no event.
    is_due: bool,
    /// [`Runner::released`](super::runner::Runner::released) at the last failure.
    released: u64,
    /// Number of failures that the runner survived since the last change of `released`.
    failures: u32,
    /// `Some` if [`Entry::idle_once`] has called `idle` since the last event. The inner value is
    /// the time at which `idle` is due again, if it repeats.
    idled: Option<Option<Instant>>,
    clock: TurnClock,
}

impl<'env> Entry<'env> {
    pub(crate) fn new(runner: BoxedRunner<'env>) -> Entry<'env> {
        Entry {
            runner,
            started: false,
            running: true,
            is_due: false,
            released: 0,
            failures: 0,
            idled: None,
            clock: TurnClock::default(),
        }
    }

    /// Returns the runner.
    pub(crate) fn runner(&self) -> &BoxedRunner<'env> {
        &self.runner
    }

    /// Returns whether the handler was started.
    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Returns whether a step would find an event or the stream's end, or would finish the recovery
    /// from a failure.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_due || !self.running || self.runner.is_ready()
    }

    /// Returns whether the runner has not ended yet.
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// Returns the reading of the coarse clock at the end of the last turn, in nanoseconds.
    pub(crate) fn ended(&self) -> u64 {
        self.clock.ended()
    }

    /// Starts the handler. If the start fails, fails the graph and returns `false`.
    pub(crate) fn start(&mut self, control: &Control) -> bool {
        let runner = &mut self.runner;
        self.started = call_user(control, runner.stage(), None, || runner.start()).is_some();
        self.started
    }

    /// Handles events until the stream ends, or until a failure that the stage does not survive.
    pub(crate) fn run(&mut self, supervisor: Supervisor<'_, 'env>) {
        while self.running {
            let end = catch_end(|| self.runner.run()).unwrap_or_else(|end| end);
            self.survive_or_end(supervisor, end);
        }
    }

    /// Runs the handler once on the events that are available, and returns their number. After a
    /// failure, the number is at least 1, because the stage may have events left. It is at least 1
    /// again in the next step, because the release of skipped events may give others work.
    pub(crate) fn step(&mut self, supervisor: Supervisor<'_, 'env>) -> u64 {
        let control = supervisor.control;
        self.idled = None;
        let was_due = take(&mut self.is_due);
        let turn = self.clock.begin(control, self.runner.stage(), supervisor.thread);
        let handled = match catch_end(|| self.runner.step(turn.exact)).unwrap_or_else(Err) {
            Ok(count) => count,
            Err(end) => {
                self.survive_or_end(supervisor, end);
                1
            }
        };
        self.clock.end(control, turn, handled > 0);
        handled.max(was_due.into())
    }

    /// Calls `idle` of the handler. Returns the time at which `idle` is due again, or an error if
    /// the handler has failed.
    pub(crate) fn idle(&mut self, supervisor: Supervisor<'_, 'env>) -> Result<Option<Instant>, ()> {
        catch_end(|| self.runner.idle()).unwrap_or_else(Err).map_err(|end| {
            self.survive_or_end(supervisor, end);
        })
    }

    /// Like [`Entry::idle`], but calls `idle` only if it was not called since the last event, or if
    /// it is due again. If `again` is set, calls `idle` in any case.
    pub(crate) fn idle_once(
        &mut self,
        supervisor: Supervisor<'_, 'env>,
        again: bool,
    ) -> Result<Option<Instant>, ()> {
        match self.idled {
            Some(due) if !again && due.is_none_or(|due| now() < due) => Ok(due),
            _ => {
                let due = self.idle(supervisor)?;
                self.idled = Some(due);
                Ok(due)
            }
        }
    }

    /// Lets a stage continue after a failure, or ends the stage.
    fn survive_or_end(&mut self, supervisor: Supervisor<'_, 'env>, end: End) {
        let Some(end) = self.survive(supervisor, end) else {
            self.is_due = true;
            return;
        };
        self.running = false;
        let cause = match end {
            End::Wait(_) => return,
            End::Fault(fault) => Cause::Error(fault),
            End::Panic(message) => Cause::Panic(message),
        };
        supervisor.control.fail(self.runner.stage(), self.runner.failed_at(), cause);
    }

    /// Decides whether a stage continues after a handler's end. If the end is a failure and the
    /// stage's policy allows it, the stage continues. Otherwise the stage ends, and the call
    /// returns `Some(end)`.
    fn survive(&mut self, supervisor: Supervisor<'_, 'env>, end: End) -> Option<End> {
        let Supervisor { control, on_faults, .. } = supervisor;
        let Entry { runner, released, failures, .. } = self;
        let stage = runner.stage();
        let policy = &control.plan.stages[stage].policy;
        let of_stage = match &end {
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
        // The user's closure may panic, and the failure is final then.
        let tries = failures.saturating_add(1);
        let judged = call_user(control, stage, at, || Ok(runner.judge(control, &end, tries)));
        let Some(judged) = judged else { return Some(end) };
        // Nothing is handled again once the graph was halted or has failed. A failure that would be
        // retried is not final then: the stage ends as it would have ended during the retry.
        let decided = judged.unwrap_or(Ok(of_stage)).and_then(|on| {
            let verdict = on.verdict(*failures);
            if verdict == Some(Verdict::Retried) {
                control.status.check_running()?;
            }
            Ok((on, verdict))
        });
        let (on, verdict) = match decided {
            Ok((on, Some(verdict))) => (on, verdict),
            Ok((_, None)) => return Some(end),
            Err(stopped) => {
                Self::forget(control, stage, at, end);
                return Some(End::Wait(stopped));
            }
        };
        *failures = tries;
        if let Some(hook) = on_faults {
            // The error's `to_string` and the function `hook` are user code and may panic.
            call_user(control, stage, at, || {
                let message = match &end {
                    End::Fault(fault) => fault.to_string(),
                    End::Panic(message) => message.clone(),
                    End::Wait(_) => String::new(),
                };
                hook(&Faulted { stage: control.plan.name_of(stage), seq: at, message, verdict });
                Ok(())
            });
        }
        // `end` is dropped outside of `call_user`. Inside of it, a panic of `hook` would drop `end`
        // while unwinding, and a second panic in that drop would abort the process.
        Self::forget(control, stage, at, end);
        match verdict {
            Verdict::Retried => {
                runner.retry();
                control.pause(on.pause_time(), stage, runner.next_seq());
            }
            Verdict::Skipped => runner.skip(),
        }
        // Each wait for events checks the graph's deadline. A stage that keeps failing can continue
        // without any wait, so `survive` checks it, too.
        if again {
            control.expire(stage, runner.next_seq());
        }
        None
    }

    /// Drops a failure that the stage survives. If its drop panics, the graph fails.
    fn forget(control: &Control, stage: usize, at: Option<u64>, end: End) {
        if let Some(panic) = drop_contained(end) {
            control.fail(stage, at, Cause::Panic(panic));
        }
    }

    /// If the handler was started, calls its `stop` (I2). Then drops the handler. Returns the
    /// stage's index.
    pub(crate) fn stop(self, control: &Control) -> usize {
        let Entry { mut runner, started, mut clock, .. } = self;
        let stage = runner.stage();
        clock.flush(control, stage);
        if started {
            call_user(control, stage, None, || runner.stop());
        }
        if let Some(panic) = drop_contained(runner) {
            control.fail(stage, None, Cause::Panic(panic));
        }
        stage
    }
}

/// Calls user code of a stage. If it panics or returns an error, fails the graph (I1) and returns
/// `None`.
pub(crate) fn call_user<T>(
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
/// applies to it.
fn catch_end<T>(call: impl FnOnce() -> T) -> Result<T, End> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| End::Panic(panic_message(panic)))
}
