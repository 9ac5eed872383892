//! A stage at work: its seat and its handler, run on a thread of their own, in turn with others, or
//! by hand.
//!
//! Invariants
//! - I1: no panic of user code leaves this module: it ends the graph, names stage and event, and is
//!   dropped here, whatever its payload does.
//! - I2: whoever was started is stopped, also after a failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::OnFaulted;
use crate::base::fault::{Fault, Outcome};
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::consumer::drive::{End, drive, idle, skip, step};
use crate::consumer::handle::Consumer;
use crate::consumer::handler::Handler;
use crate::consumer::markers::{Every, sealed};
use crate::consumer::pace::Pace;
use crate::consumer::position::Availability;
use crate::consumer::waiting::Counting;
use crate::errors::{Cause, WaitError};
use crate::ring::control::{Control, Waiter};
use crate::ring::counters::LocalCounts;
use crate::ring::owner::Owner;
use crate::ring::policy::{Faulted, Verdict};
use crate::ring::self_wait::enter;
use crate::ring::slots::Layout;

/// One virtual call per thread, or per round where stages share a thread; the loops inside are
/// monomorphic.
pub(super) trait Runner {
    fn stage(&self) -> usize;
    /// The position of the next event.
    fn at(&self) -> u64;
    /// The position of the event that the handler failed at, if it was an event.
    fn failed_at(&self) -> Option<u64>;
    fn start(&mut self) -> Result<(), Fault>;
    fn stop(&mut self) -> Result<(), Fault>;
    /// Until the stream ends.
    fn run(&mut self) -> End;
    /// What is there now; `Ok(0)`: nothing, and more may come.
    fn step(&mut self) -> Result<u64, End>;
    /// There is nothing, and the thread is about to wait; when it is to be told so again.
    fn idle(&mut self) -> Result<Option<Instant>, End>;
    /// Where it says what it has let go, if this thread is the only one to move it: a loop of its
    /// own may hand its handle on.
    fn line(&self) -> Option<usize>;
    /// Goes back to its last release, and counts that.
    fn retry(&mut self);
    /// Passes over what it failed at, if that was an event or a batch of them, and counts that.
    fn skip(&mut self);
    /// What it has let go, as a mark: another one says that it came further.
    fn released(&self) -> u64;
    /// Whether a step would do anything.
    fn is_ready(&self) -> bool;
    /// Whom a wait would be for.
    fn waits_for(&self) -> usize;
}

pub(super) struct Positioned<E, L: Layout, S: Availability<E, L>, H> {
    position: S,
    handler: H,
    pace: Pace,
    ring: std::marker::PhantomData<(fn() -> E, L)>,
}

impl<E, L: Layout, S: Availability<E, L>, H: Handler<E, L>> Positioned<E, L, S, H> {
    pub(super) fn new(position: S, handler: H) -> Self {
        let pace = Pace::new(position.state());
        Positioned { position, handler, pace, ring: std::marker::PhantomData }
    }
}

impl<E, L: Layout, S: Availability<E, L>, H: Handler<E, L>> Runner for Positioned<E, L, S, H> {
    fn stage(&self) -> usize {
        self.position.state().stage
    }
    fn at(&self) -> u64 {
        self.position.next()
    }
    fn failed_at(&self) -> Option<u64> {
        (!self.position.state().between_events).then(|| self.position.next())
    }
    fn start(&mut self) -> Result<(), Fault> {
        self.handler.start()
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.handler.stop()
    }
    fn run(&mut self) -> End {
        drive(&mut self.position, &mut self.handler)
    }
    fn step(&mut self) -> Result<u64, End> {
        match step(&mut self.position, &mut self.handler, &mut self.pace) {
            Ok(0) => self.position.ended().map_or(Ok(0), |closed| Err(End::Wait(closed))),
            other => other,
        }
    }
    fn idle(&mut self) -> Result<Option<Instant>, End> {
        self.position.flush_if_new();
        idle(&self.position, &mut self.handler)?;
        Ok(self.pace.idles_until())
    }
    fn line(&self) -> Option<usize> {
        Some(self.position.line())
    }
    fn retry(&mut self) {
        // What was skipped is skipped for good: if its batch's end failed, that end alone is tried
        // again.
        if !self.position.state().skipped {
            self.position.rewind();
        }
        let state = self.position.state_mut();
        state.between_events = true;
        state.counts.retries += 1;
    }
    fn skip(&mut self) {
        if !self.position.state().between_events {
            let len = if H::GATHERS { self.position.state().batch_len } else { 1 };
            skip(&mut self.position, len);
        }
        if std::mem::replace(&mut self.position.state_mut().between_events, true) {
            self.position.state_mut().skipped = false;
            // What its handler was told about is let go, as if it had gone well.
            self.position.release();
        }
    }
    fn released(&self) -> u64 {
        self.position.released()
    }
    fn is_ready(&self) -> bool {
        self.position.is_ready()
    }
    fn waits_for(&self) -> usize {
        self.position.waits_for()
    }
}

/// A stage with a loop of its own. The loop has its handle as `&mut`, and may swap it for that of
/// another stage, or of another ring: so the stage is known without the handle.
pub(super) struct OwnLoop<E, A: sealed::Access, L: Layout, F> {
    core: Owner<E, L>,
    stage: usize,
    /// The stage's handle, or what the loop has put in its place.
    consumer: Consumer<E, A, Every, L>,
    /// Until it has run.
    run: Option<F>,
}

impl<E, A: sealed::Access, L: Layout, F> OwnLoop<E, A, L, F> {
    pub(super) fn new(core: Owner<E, L>, stage: usize, run: F) -> Self {
        let learned = core.control.learner_contained(stage);
        OwnLoop {
            consumer: Consumer::every(core.clone(), stage, learned),
            core,
            stage,
            run: Some(run),
        }
    }

    /// The stage's handle, unless it is elsewhere.
    fn own(&self) -> Option<&Consumer<E, A, Every, L>> {
        let state = self.consumer.state();
        (state.core.same(&self.core) && state.stage == self.stage).then_some(&self.consumer)
    }

    /// The loop has come back. A handle that is here ends the graph when it is dropped too early;
    /// one that is elsewhere might not be dropped at all.
    fn check_handle(&self) {
        let control = &self.core.control;
        if self.own().is_none() && control.ended(control.position(self.stage)).is_none() {
            control.fail(self.stage, None, Cause::Dropped);
        }
    }
}

impl<E, A: sealed::Access, L: Layout, R: Outcome, F: FnOnce(&mut Consumer<E, A, Every, L>) -> R>
    Runner for OwnLoop<E, A, L, F>
{
    fn stage(&self) -> usize {
        self.stage
    }
    fn at(&self) -> u64 {
        self.core.control.position(self.stage)
    }
    fn failed_at(&self) -> Option<u64> {
        self.own().map(Consumer::next_seq)
    }
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn run(&mut self) -> End {
        let Some(run) = self.run.take() else { return End::Wait(WaitError::Closed) };
        match run(&mut self.consumer).outcome() {
            Ok(()) => {
                self.check_handle();
                End::Wait(WaitError::Closed)
            }
            Err(fault) => End::Fault(fault),
        }
    }
    fn step(&mut self) -> Result<u64, End> {
        Err(self.run())
    }
    fn idle(&mut self) -> Result<Option<Instant>, End> {
        Ok(None)
    }
    fn line(&self) -> Option<usize> {
        None
    }
    // A stage with a loop of its own takes no policy: its loop is gone with what it failed at.
    fn retry(&mut self) {}
    fn skip(&mut self) {}
    fn released(&self) -> u64 {
        0
    }
    fn is_ready(&self) -> bool {
        true
    }
    fn waits_for(&self) -> usize {
        self.stage
    }
}

pub(super) type BoxedRunner<'env> = Box<dyn Runner + Send + 'env>;

/// Calls user code of a stage; a panic or an error ends the graph (I1). `None`: it did.
fn contain<T>(
    control: &Control,
    stage: usize,
    at: impl FnOnce() -> Option<u64>,
    call: impl FnOnce() -> Result<T, Fault>,
) -> Option<T> {
    let cause = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(fault)) => Cause::Error(fault),
        Err(panic) => Cause::Panic(panic_message(panic)),
    };
    control.fail(stage, at(), cause);
    None
}

/// Calls what runs handlers; a panic of theirs is an end as others are (I1).
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, End> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| End::Panic(panic_message(panic)))
}

/// Runners that share a thread (often one alone).
pub(super) struct Delivery<'env> {
    runners: Vec<BoxedRunner<'env>>,
    running: Vec<bool>,
    /// What each had let go when it failed last, and how often it has failed since.
    faults: Vec<(u64, u32)>,
    on_faults: Option<OnFaulted<'env>>,
    started: usize,
}

impl<'env> Delivery<'env> {
    pub(super) fn new(
        runners: Vec<BoxedRunner<'env>>,
        on_faults: Option<OnFaulted<'env>>,
    ) -> Delivery<'env> {
        let (running, faults) = (vec![true; runners.len()], vec![(0, 0); runners.len()]);
        Delivery { runners, running, faults, on_faults, started: 0 }
    }

    /// Lets a runner go on after a failure, if its policy says so. `Some`: it does not, or there
    /// was none.
    fn survive(&mut self, i: usize, control: &Control, end: End) -> Option<End> {
        let runner = &mut self.runners[i];
        let policy = &control.plan.stages[runner.stage()].policy;
        let on = match &end {
            End::Wait(_) => return Some(end),
            End::Fault(_) => policy.error,
            End::Panic(_) => policy.panic,
        };
        let at = runner.failed_at();
        let (last, tries) = &mut self.faults[i];
        let released = runner.released();
        if *last != released {
            (*last, *tries) = (released, 0);
        }
        let again = *tries != 0;
        let Some(verdict) = on.verdict(*tries).filter(|_| control.is_running()) else {
            return Some(end);
        };
        *tries = tries.saturating_add(1);
        let (stage, hook) = (runner.stage(), &self.on_faults);
        // The error's text, the hook and the error's drop are the user's. The drop is contained by
        // itself: a panic in it while another one unwinds would end the process.
        let flush = || {
            let Some(hook) = hook else { return Ok(()) };
            let message = match &end {
                End::Fault(fault) => fault.to_string(),
                End::Panic(message) => message.clone(),
                End::Wait(_) => String::new(),
            };
            (***hook)(&Faulted { stage: control.name(stage), seq: at, message, verdict });
            Ok(())
        };
        contain(control, stage, || at, flush);
        if let Some(panic) = drop_contained(end) {
            control.fail(stage, at, Cause::Panic(panic));
        }
        match verdict {
            Verdict::Retried => {
                runner.retry();
                control.pause(on.pauses(), stage, runner.at());
            }
            Verdict::Skipped => runner.skip(),
        }
        // One that fails and fails where it stands, at `idle` for one, never comes to a wait.
        if again {
            control.expire(stage, runner.at());
        }
        None
    }

    /// The whole life of the crew's thread.
    pub(super) fn attend(mut self, control: &Control, on_start: impl FnOnce()) {
        let Some(first) = self.runners.first().map(|runner| runner.stage()) else { return };
        let within = enter(control, self.lines());
        let hooked = contain(
            control,
            first,
            || None,
            || {
                on_start();
                Ok(())
            },
        );
        if hooked.is_some() && self.start(control) {
            match &mut self.runners[..] {
                [_] => {
                    let end = loop {
                        let runner = &mut self.runners[0];
                        let end = caught(|| runner.run()).unwrap_or_else(|end| end);
                        if let Some(end) = self.survive(0, control, end) {
                            break end;
                        }
                    };
                    settle(control, &self.runners[0], end);
                }
                _ => self.take_turns(control),
            }
        }
        // From here on others may finish what it had begun (self_wait::I2).
        drop(within);
        self.stop(control);
    }

    /// Starts everybody; `false` if one could not.
    pub(super) fn start(&mut self, control: &Control) -> bool {
        for runner in &mut self.runners {
            let stage = runner.stage();
            if contain(control, stage, || None, || runner.start()).is_none() {
                return false;
            }
            self.started += 1;
        }
        true
    }

    /// Gives everybody one turn. Comes back with how many events were handled; `None`: all have
    /// ended.
    pub(super) fn turn(&mut self, control: &Control) -> Option<u64> {
        let mut handled = 0;
        let mut ended = false;
        for i in 0..self.runners.len() {
            if self.running[i] {
                let runner = &mut self.runners[i];
                match caught(|| runner.step()).unwrap_or_else(Err) {
                    Ok(count) => handled += count,
                    Err(end) => {
                        // That one has survived, or has ended, may be what the others wait for.
                        ended = true;
                        self.survive_or_end(i, control, end);
                    }
                }
            }
        }
        if self.running.iter().any(|&running| running) {
            Some(handled.max(u64::from(ended)))
        } else {
            None
        }
    }

    /// Where those say what they have let go whom this thread alone moves on.
    pub(super) fn lines(&self) -> impl Iterator<Item = usize> {
        self.runners.iter().filter_map(|runner| runner.line())
    }

    /// Those that have not ended.
    fn waiting(&self) -> impl Iterator<Item = &BoxedRunner<'env>> {
        self.runners
            .iter()
            .zip(&self.running)
            .filter(|(_, running)| **running)
            .map(|(runner, _)| runner)
    }

    /// The first stage here that has not ended, and where it stands.
    pub(super) fn first_waiting(&self) -> Option<(usize, u64)> {
        self.waiting().next().map(|runner| (runner.stage(), runner.at()))
    }

    /// Lets a runner go on after a failure, or end.
    fn survive_or_end(&mut self, i: usize, control: &Control, end: End) {
        if let Some(end) = self.survive(i, control, end) {
            settle(control, &self.runners[i], end);
            self.running[i] = false;
        }
    }

    /// Tells everybody that there is nothing; when the first of them wants to be told again. `Err`:
    /// somebody failed at that.
    fn idle(&mut self, control: &Control) -> Result<Option<Instant>, ()> {
        let mut earliest: Option<Instant> = None;
        for i in 0..self.runners.len() {
            if self.running[i] {
                let runner = &mut self.runners[i];
                match caught(|| runner.idle()).unwrap_or_else(Err) {
                    Ok(until) => earliest = earliest.into_iter().chain(until).min(),
                    Err(end) => {
                        self.survive_or_end(i, control, end);
                        return Err(());
                    }
                }
            }
        }
        Ok(earliest)
    }

    fn take_turns(&mut self, control: &Control) {
        let mut learned = self
            .runners
            .first()
            .map(|runner| control.learner_contained(runner.stage()))
            .unwrap_or_default();
        while let Some(handled) = self.turn(control) {
            if handled == 0
                && let Ok(until) = self.idle(control)
            {
                let Some(first) = self.waiting().next() else { return };
                let waiter =
                    Waiter { party: first.stage(), waits_for: first.waits_for(), at: first.at() };
                let mut ready = || self.waiting().any(|runner| runner.is_ready());
                // A strategy of the user's own may panic. Then, as past the deadline, the graph has
                // failed, and every stage's next step says so.
                let (party, whom, at) = (waiter.party, waiter.waits_for, waiter.at);
                if let Some((_, stats)) = contain(
                    control,
                    party,
                    || Some(at),
                    || Ok(control.wait_at(waiter, &mut learned, until, &mut || None, &mut ready)),
                ) {
                    let mut counts = LocalCounts::default();
                    counts.wait(whom, stats);
                    control.count(party, &counts, &LocalCounts::default());
                }
            }
        }
    }

    /// Stops whoever was started, and lets everybody's handler go (I2).
    pub(super) fn stop(self, control: &Control) {
        let Delivery { runners, started, on_faults, .. } = self;
        let mut last = None;
        for (i, mut runner) in runners.into_iter().enumerate() {
            let stage = runner.stage();
            last = Some(stage);
            if i < started {
                contain(control, stage, || None, || runner.stop());
            }
            contain(
                control,
                stage,
                || None,
                || {
                    drop(runner);
                    Ok(())
                },
            );
        }
        // The last reference to the hook, where the chain was spawned.
        if let Some(panic) = on_faults.and_then(Contained::drop_contained) {
            control.fail(last.unwrap_or(control.producer_party()), None, Cause::Panic(panic));
        }
    }
}

/// Tells the graph how a stage's loop ended.
fn settle(control: &Control, runner: &BoxedRunner<'_>, end: End) {
    let cause = match end {
        End::Wait(_) => return,
        End::Fault(fault) => Cause::Error(fault),
        End::Panic(message) => Cause::Panic(message),
    };
    control.fail(runner.stage(), runner.failed_at(), cause);
}
