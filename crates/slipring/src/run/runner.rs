//! A runner is a stage's position together with the stage's handler, or with the user's own loop.
//!
//! Invariants
//! - I1: while a user's closure decides about a failure, its runner is borrowed: the position
//!   releases nothing, and the handler is not called.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::judge::{Failed, Judges};
use crate::base::fault::{Fault, Outcome};
use crate::base::panics::{drop_contained, panic_message};
use crate::consumer::drive::{End, drive, idle, skip, step};
use crate::consumer::handle::Consumer;
use crate::consumer::handler::Handler;
use crate::consumer::markers::{Each, sealed};
use crate::consumer::pace::Pace;
use crate::consumer::position::Availability;
use crate::consumer::sequential::StagePosition;
use crate::consumer::waiting::Counting;
use crate::errors::{BuildError, Cause, WaitError};
use crate::ring::control::Control;
use crate::ring::events::Events;
use crate::ring::owner::Owner;
use crate::ring::policy::OnFault;
use crate::ring::slots::Layout;
use crate::wait::HandleLearner;

/// A stage, or one worker or shard of a stage, that runs on a thread.
///
/// A thread with one runner calls `run`, which handles all events until the stream ends or the
/// handler fails. A thread with several runners calls the `step` of each in turn. These calls are
/// virtual, and the loops over events inside them are monomorphic.
pub(crate) trait Runner {
    /// Returns the index of the stage.
    fn stage(&self) -> usize;
    /// Returns the position of the next event.
    fn next_seq(&self) -> u64;
    /// Returns the position of the event at which the handler failed; `None` if the handler failed
    /// between events.
    fn failed_at(&self) -> Option<u64>;
    /// Calls the handler's `start`.
    fn start(&mut self) -> Result<(), Fault>;
    /// Calls the handler's `stop`.
    fn stop(&mut self) -> Result<(), Fault>;
    /// Handles events until the stream ends.
    fn run(&mut self) -> End;
    /// Handles the available events and returns their number. The result 0 means that no event is
    /// available, and that more may come. `began` is the current time, if the caller has read the
    /// clock.
    fn step(&mut self, began: Option<Instant>) -> Result<u64, End>;
    /// Returns whether the last step's batch was so long that the step ended with events left.
    fn is_behind(&self) -> bool;
    /// Calls the handler's `idle` before the thread waits. Returns the time at which `idle` is due
    /// again, if `idle` repeats, or at which a batch is due, if the runner gathers one.
    fn idle(&mut self) -> Result<Option<Instant>, End>;
    /// Returns whether [`Runner::idle`] would return a time: the last step has left events that
    /// wait for more, or `idle` repeats.
    fn is_timed(&self) -> bool;
    /// Returns the index of the shared line on which this runner releases events. Returns `None`
    /// for a user's loop, which may give the stage's handle to another thread.
    fn line(&self) -> Option<usize>;
    /// If the user's closure decides what follows a failure like `end`, calls the closure, and
    /// returns its decision, or an error if the graph was halted or has failed before the call.
    /// `tries` is the number of failures since the last release.
    fn judge(&mut self, control: &Control, end: &End, tries: u32) -> Option<Judged>;
    /// Goes back to the last release, and counts a retry.
    fn retry(&mut self);
    /// Skips and counts the event or batch at which the handler failed. Skips nothing if the
    /// handler failed between events.
    fn skip(&mut self);
    /// Returns the released position, or another value that changes with each release.
    fn released(&self) -> u64;
    /// Returns whether a step would handle an event, or find the end of the stream.
    fn is_ready(&self) -> bool;
    /// Returns the index of the party (a stage, or the producers) that this runner would wait for.
    fn waits_for(&self) -> usize;
}

/// The decision of a user's closure, or why it was not asked.
pub(crate) type Judged = Result<OnFault, WaitError>;

pub(crate) type BoxedRunner<'env> = Box<dyn Runner + Send + 'env>;

/// A function that makes one position of a stage. Its arguments are the ring, the stage's number,
/// the number of the worker or shard, and a learner.
pub(crate) type MakePosition<E, L, S> = fn(Owner<E, L>, usize, usize, HandleLearner) -> S;

/// Makes the runner of a stage with one handler.
pub(crate) fn run_by_one<'env, E: Send + 'env, L: Layout, H: Handler<E, L> + Send + 'env>(
    core: &Owner<E, L>,
    stage: usize,
    handler: H,
    judges: Judges<'env, E, L>,
) -> BoxedRunner<'env> {
    let learned = core.control.learner_contained(stage);
    let position = StagePosition::new(core.clone(), stage, learned);
    Box::new(StageRunner::new(position, handler, judges))
}

/// Makes the runners of a stage with several handlers. `make` makes the handler of each worker or
/// shard, and may panic.
pub(crate) fn run_by_each<'env, E, L, H, S>(
    core: &Owner<E, L>,
    stage: usize,
    mut make: impl FnMut(usize) -> H,
    position: MakePosition<E, L, S>,
    judges: Judges<'env, E, L>,
) -> Result<Vec<BoxedRunner<'env>>, BuildError>
where
    E: Send + 'env,
    L: Layout,
    H: Handler<E, L> + Send + 'env,
    S: Availability<E, L> + Send + 'env,
{
    let spec = &core.control.plan.stages[stage];
    let workers = spec.delivery.len();
    let mut runners: Vec<BoxedRunner<'env>> = Vec::with_capacity(workers);
    let mut panic_of_make = None;
    for worker in 0..workers {
        match catch_unwind(AssertUnwindSafe(|| make(worker))) {
            Ok(handler) => {
                let learned = core.control.learner_contained(stage);
                let position = position(core.clone(), stage, worker, learned);
                runners.push(Box::new(StageRunner::new(position, handler, judges.clone())));
            }
            Err(panic) => {
                panic_of_make = Some(panic_message(panic));
                break;
            }
        }
    }
    let worker = if panic_of_make.is_some() { runners.len() } else { workers.saturating_sub(1) };
    let panic_of_drop = drop_contained(make);
    let of_drop = || Some(format!("{} (in the factory's own drop)", panic_of_drop?));
    match panic_of_make.or_else(of_drop) {
        None => Ok(runners),
        Some(panic) => {
            runners.into_iter().for_each(|runner| drop(drop_contained(runner)));
            drop_contained(judges);
            Err(BuildError::WorkerFactory { stage: spec.name.to_string(), worker, panic })
        }
    }
}

/// The position of a stage, and the stage's handler.
#[repr(align(128))]
pub(crate) struct StageRunner<'env, E, L: Layout, S: Availability<E, L>, H> {
    position: S,
    handler: H,
    pace: Pace,
    /// The last field: if the handler's drop panics, the drop of the closures adds no second panic.
    judges: Judges<'env, E, L>,
    ring: PhantomData<(fn() -> E, L)>,
}

impl<'env, E, L: Layout, S: Availability<E, L>, H: Handler<E, L>> StageRunner<'env, E, L, S, H> {
    pub(crate) fn new(mut position: S, handler: H, judges: Judges<'env, E, L>) -> Self {
        if !judges.is_empty() {
            position.state_mut().may_rewind();
        }
        let pace = Pace::new(position.state());
        StageRunner { position, handler, pace, judges, ring: PhantomData }
    }
}

impl<E, L: Layout, S: Availability<E, L>, H: Handler<E, L>> Runner for StageRunner<'_, E, L, S, H> {
    fn stage(&self) -> usize {
        self.position.state().stage
    }
    fn next_seq(&self) -> u64 {
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
    fn step(&mut self, began: Option<Instant>) -> Result<u64, End> {
        // The thread may have run other stages since the last step, and the time of these stages
        // must not count for this stage.
        self.pace.resume(began);
        self.position.resume();
        match step(&mut self.position, &mut self.handler, &mut self.pace) {
            Ok(0) => self.position.ended().map_or(Ok(0), |closed| Err(End::Wait(closed))),
            other => other,
        }
    }
    fn is_behind(&self) -> bool {
        !self.pace.keeps_up
    }
    fn idle(&mut self) -> Result<Option<Instant>, End> {
        self.position.flush_if_new();
        idle(&mut self.position, &mut self.handler)?;
        let until = self.pace.gathering.as_ref().map(|gather| gather.deadline);
        Ok(self.pace.idles_until().into_iter().chain(until).min())
    }
    fn is_timed(&self) -> bool {
        self.pace.is_timed()
    }
    fn line(&self) -> Option<usize> {
        Some(self.position.line())
    }
    fn judge(&mut self, control: &Control, end: &End, tries: u32) -> Option<Judged> {
        let seq = self.failed_at();
        let StageRunner { position, judges, .. } = self;
        let (judge, message) = match end {
            End::Fault(_) => (&judges.on_error, ""),
            End::Panic(message) => (&judges.on_panic, &**message),
            End::Wait(_) => return None,
        };
        let judge = judge.as_ref()?;
        let of_panic = Fault::msg(message);
        let error = if let End::Fault(fault) = end { fault } else { &of_panic };
        let first = position.next();
        let len = match seq {
            Some(_) => position.poll(if H::GATHERS { position.state().batch_len } else { 1 }),
            None => 0,
        };
        // The position knows the failed event, so the poll has found it again, and moved nothing.
        let len = if position.next() == first { len } else { 0 };
        let state = position.state();
        state.touch(first, len);
        // SAFETY: the poll has just found the events (position::I2), and `position` releases none
        // of them while `failed` lives (I1, judge::I2). By plan::I1, no other stage writes to them
        // before their release, and the call of this stage's handler has ended.
        let events = unsafe { Events::new(state.slots, first, len) };
        let stage = control.plan.name_of(state.stage);
        Some(judge.decide(control, state.stage, &Failed { stage, seq, error, tries, events }))
    }
    fn retry(&mut self) {
        // A skipped event is never handled again. If `batch_end` fails after a skip, the retry
        // repeats `batch_end` alone.
        if !self.position.state().skipped {
            self.position.rewind();
        }
        let state = self.position.state_mut();
        (state.between_events, state.idle_failed) = (true, None);
        state.counts.retries += 1;
    }
    fn skip(&mut self) {
        if !self.position.state().between_events {
            let len = if H::GATHERS { self.position.state().batch_len } else { 1 };
            skip(&mut self.position, len);
        }
        if std::mem::replace(&mut self.position.state_mut().between_events, true) {
            self.position.state_mut().skipped = false;
            // The handler failed between events, so the stage releases the events that the handler
            // has handled.
            self.position.release();
        }
    }
    fn released(&self) -> u64 {
        self.position.released()
    }
    fn is_ready(&self) -> bool {
        match &self.pace.gathering {
            Some(gather) if H::GATHERS => {
                self.position.is_gathered(gather.len, &mut { gather.end }) || gather.is_over()
            }
            _ => self.position.is_ready(),
        }
    }
    fn waits_for(&self) -> usize {
        self.position.waits_for()
    }
}

/// A stage whose handler is a loop that the user writes.
///
/// The loop gets `&mut` of the stage's handle, and may swap it for the handle of another stage or
/// ring. So the runner also keeps the ring and the stage's index.
pub(crate) struct LoopRunner<E, A: sealed::Access, L: Layout, F> {
    core: Owner<E, L>,
    stage: usize,
    /// The stage's handle, unless the user's loop has swapped in another handle.
    consumer: Consumer<E, A, Each, L>,
    /// The user's loop; `None` once the loop has been called.
    run: Option<F>,
}

impl<E, A: sealed::Access, L: Layout, F> LoopRunner<E, A, L, F> {
    pub(crate) fn new(core: Owner<E, L>, stage: usize, run: F) -> Self {
        let learned = core.control.learner_contained(stage);
        LoopRunner {
            consumer: Consumer::every(core.clone(), stage, learned),
            core,
            stage,
            run: Some(run),
        }
    }

    /// Returns the stage's handle, unless the user's loop has swapped the handle for another one.
    fn own(&self) -> Option<&Consumer<E, A, Each, L>> {
        let state = self.consumer.state();
        (state.core.same(&self.core) && state.stage == self.stage).then_some(&self.consumer)
    }

    /// Fails the graph if the user's loop has swapped the stage's handle away and returned before
    /// the end of the stream. Without this check, only the drop of that handle would fail the
    /// graph, and the loop may have leaked the handle.
    fn check_handle(&self) {
        let control = &self.core.control;
        if self.own().is_none() && control.stage_ended(self.stage).is_none() {
            control.fail(self.stage, None, Cause::Dropped);
        }
    }
}

impl<E, A: sealed::Access, L: Layout, R: Outcome, F: FnOnce(&mut Consumer<E, A, Each, L>) -> R>
    Runner for LoopRunner<E, A, L, F>
{
    fn stage(&self) -> usize {
        self.stage
    }
    fn next_seq(&self) -> u64 {
        self.core.control.positions.position(&self.core.control.plan, self.stage)
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
    fn step(&mut self, _began: Option<Instant>) -> Result<u64, End> {
        Err(self.run())
    }
    fn is_behind(&self) -> bool {
        false
    }
    fn idle(&mut self) -> Result<Option<Instant>, End> {
        Ok(None)
    }
    fn is_timed(&self) -> bool {
        false
    }
    fn line(&self) -> Option<usize> {
        None
    }
    // A user's loop is never retried or skipped, because its closure is `FnOnce` and is called only
    // once.
    fn judge(&mut self, _: &Control, _: &End, _: u32) -> Option<Judged> {
        None
    }
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
