//! A graph on threads that outlive the call that started it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::groups::{Handoff, PlannedThread, ThreadBegin};
use super::launch::{Built, count, crowd};
use super::placement::{Assigned, Bound, bind};
use super::running::RunningThreads;
use crate::base::fault::Fault;
use crate::base::panics::{Contained, call_contained, drop_contained, drop_payload};
use crate::base::sync::unmodelled::{JoinHandle, Mutex, ThreadBuilder, ThreadId, this_thread};
use crate::base::sync::{Arc, now, whole};
use crate::errors::{BindError, Cause, Error, Failure, JoinError, Report};
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::snapshot;

/// The running stages of a spawned chain or graph: see [`Chain::spawn`](crate::Chain::spawn).
///
/// Dropping a pipeline neither stops its stages nor waits for them: they run until the ring is
/// closed and drained. If the program ends before that, the events that they have not handled are
/// lost, and no handler's `stop` is called. So a program should join its pipeline
/// ([`join`](Pipeline::join)), or let the pipeline's drop do so
/// ([`join_on_drop`](Pipeline::join_on_drop)).
#[must_use = "if the program ends before the stages do, the events that they have not handled are \
              lost: join the pipeline, or let `join_on_drop` do it"]
pub struct Pipeline {
    ring: Box<dyn PipelineRing>,
    /// How the drop joins the pipeline; `None` if the drop does not join it.
    on_drop: Mutex<Option<OnDrop>>,
    threads: Vec<StartedThread>,
    /// The handles of the threads, until a call of [`Pipeline::join`] takes them.
    handles: Mutex<Vec<JoinHandle<()>>>,
    running: StdArc<RunningThreads>,
    /// Whether the user runs other stages by handles.
    has_handles: bool,
    /// Where the threads run, if the graph has a placement.
    places: Option<Assigned>,
    /// See [`count`].
    count: Option<usize>,
}

/// A thread of a pipeline.
struct StartedThread {
    /// Index among the [`RunningThreads`].
    index: usize,
    id: ThreadId,
    name: String,
    /// Indices of the stages that the thread may run.
    stages: Vec<usize>,
}

/// The user's function that the pipeline's drop calls with the result of the run.
type Tell = Box<dyn FnOnce(Result<Report, JoinError>) + Send + Sync>;

/// How a pipeline's drop joins it.
struct OnDrop {
    /// The longest time that the drop waits.
    limit: Duration,
    tell: Contained<Tell>,
}

/// Time after which a waiting drop checks again whether the stages have handled all events. While a
/// producer is open, no notification tells the drop that they have.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A ring without its type parameters.
trait PipelineRing: Send + Sync {
    fn control(&self) -> &Control;
    /// Returns the number of claimed events that a stage has not released.
    fn left(&self, stage: usize) -> u64;
    /// Returns whether [`PipelineRing::left`] would return a number above zero.
    fn has_left(&self, stage: usize) -> bool;
    /// Ends the observers' access to the ring, if the graph has ended. The caller has seen every
    /// stage end. A graph without stages has not ended as long as producers may still publish.
    fn end_run(&self);
    /// Gives up the pipeline's ownership. If no other handle owns the ring, drops the events.
    /// Returns the panic's message if such a drop panics.
    fn take_apart(&self) -> Option<String>;
}

/// The ring of a pipeline, which owns it until it is joined, and observes it afterwards.
struct OwnedRing<E, L: Layout> {
    owner: Mutex<Option<Owner<E, L>>>,
    core: Arc<Core<E, L>>,
}

impl<E: Send, L: Layout> PipelineRing for OwnedRing<E, L> {
    fn control(&self) -> &Control {
        &self.core.control
    }
    fn left(&self, stage: usize) -> u64 {
        let control = self.control();
        self.core.claimed_after(control.positions.position(&control.plan, stage))
    }
    fn has_left(&self, stage: usize) -> bool {
        let control = self.control();
        self.core.is_claimed(control.positions.position(&control.plan, stage))
    }
    fn end_run(&self) {
        if self.control().status.is_over() {
            self.core.owners.end_run();
        }
    }
    fn take_apart(&self) -> Option<String> {
        let owner = whole(self.owner.lock()).take();
        owner.and_then(Owner::take_apart)
    }
}

impl<E: Send + 'static, L: Layout> Built<'static, E, L> {
    /// Starts the stages, and returns while they run.
    pub(crate) fn spawn(self) -> Result<Pipeline, Error> {
        let Built { core, threads, hooks, has_handles, .. } = self;
        let (count, running) = (count(&threads), RunningThreads::new(threads.len()));
        let mut started = Vec::with_capacity(threads.len());
        let mut handles = Vec::with_capacity(threads.len());
        for (index, PlannedThread { name, place, stages, work }) in threads.into_iter().enumerate()
        {
            let (shared, count_out) = (core.clone(), running.count_out(index));
            let (on_start, places) = (hooks.on_start.clone(), hooks.places.clone());
            let work = Handoff::new(work);
            let taken = work.clone();
            let own_name = name.clone();
            let thread = ThreadBuilder::new().name(name.clone()).spawn(move || {
                let count_out = count_out;
                let begin = ThreadBegin { name: &own_name, place: &place, places, on_start };
                taken.run(begin, &shared.control);
                // The last owner drops the events. A panic of their drop could reach no caller, so
                // `drop_contained` contains it.
                drop_contained(shared);
                drop(count_out);
            });
            match thread {
                Ok(handle) => {
                    started.push(StartedThread { index, id: handle.thread().id(), name, stages });
                    handles.push(handle);
                }
                Err(error) => {
                    core.control.fail(stages[0], None, Cause::Thread(error));
                    work.refuse(&core.control);
                }
            }
        }
        let places = hooks.places.clone();
        hooks.drop_contained(&core.control);
        let observed = core.observed().upgrade().expect("`core` owns the ring");
        let owner = Mutex::new(Some(core.clone()));
        let pipeline = Pipeline {
            ring: Box::new(OwnedRing { owner, core: observed }),
            on_drop: Mutex::new(None),
            threads: started,
            handles: Mutex::new(handles),
            running,
            has_handles,
            places,
            count,
        };
        match core.control.status.failure() {
            Some(failure) if matches!(failure.cause(), Cause::Thread(_)) => {
                let report = core.report();
                core.take_apart();
                Err(pipeline.join().err().unwrap_or_else(|| Error::failed(failure, report)))
            }
            _ => Ok(pipeline),
        }
    }
}

impl Pipeline {
    /// Waits until every stage that the library runs has ended. Stages end after the last producer
    /// has closed, or after a failure or a halt.
    ///
    /// The pipeline then gives up its part in the ring's events, but keeps the ring's memory until
    /// it is dropped. The run is over, so the early drop of another stage's handle is no failure
    /// any more. A further call returns the same result at once. Several threads may call `join`;
    /// the first of them also waits for the destructors of the stages' thread-local values. For the
    /// state of a handler, see [`lend`](crate::lend).
    ///
    /// Example: [`Chain::spawn`](crate::Chain::spawn).
    ///
    /// # Errors
    /// Returns the first failure. A stage that joins its own pipeline would wait for itself, so in
    /// that case the call returns an error at once. A panic in the drop of an event is returned by
    /// the call that dropped the event.
    pub fn join(&self) -> Result<Report, Error> {
        if let Some(stage) = self.own_stage() {
            return Err(self.waits_for_itself(stage));
        }
        let on_drop = whole(self.on_drop.lock()).take();
        drop(on_drop); // The closure is `Contained`.
        self.wait(None);
        let handles = std::mem::take(&mut *whole(self.handles.lock()));
        for handle in handles {
            // The thread has contained the panics of its stages, and the graph has recorded them.
            if let Err(panic) = handle.join() {
                drop_payload(panic);
            }
        }
        match (self.outcome(), self.ring.take_apart()) {
            (Ok(report), Some(panic)) => Err(Error::event_drop(panic, report)),
            (outcome, _) => outcome,
        }
    }

    /// Like [`Pipeline::join`], but waits no longer than `limit`, and leaves the events to the
    /// pipeline's drop.
    ///
    /// `join_within` does not wait for the destructors of the threads' thread-local values;
    /// [`Pipeline::join`] does.
    ///
    /// ```
    /// use slipring::errors::JoinError;
    /// use std::time::Duration;
    /// let (mut tx, pipeline) =
    ///     slipring::ring(8, || 0u64).read("print", |_, _| ()).spawn_shared()?;
    /// let early = pipeline.join_within(Duration::from_millis(1));
    /// assert!(matches!(early, Err(JoinError::StillRunning { .. })));
    /// tx.publish(|slot| *slot = 1)?;
    /// drop(tx); // closes
    /// pipeline.join_within(Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`JoinError::StillRunning`] names a stage that has not ended. [`JoinError::Failed`] carries
    /// the first failure.
    pub fn join_within(&self, limit: Duration) -> Result<Report, JoinError> {
        if let Some(stage) = self.own_stage() {
            return Err(self.still_running(stage));
        }
        if !self.wait(Some(limit)) {
            let runs = |thread: &&StartedThread| !self.running.has_ended(thread.index);
            if let Some(thread) = self.threads.iter().find(runs).or(self.threads.first()) {
                return Err(self.still_running(self.unfinished(&thread.stages)));
            }
        }
        self.outcome().map_err(JoinError::Failed)
    }

    /// Like [`Pipeline::join`], but for a task instead of a thread. The future is done when every
    /// stage that the library runs has ended. Like [`Pipeline::join_within`], it leaves the events
    /// to the pipeline's drop, and does not wait for destructors of thread-local values.
    ///
    /// The last thread to end wakes the task. A future that is dropped before has no effect. For a
    /// limit of time, use a timeout of the runtime, and then [`Pipeline::halt`].
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output {
    /// #     let mut f = std::pin::pin!(f);
    /// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop { if let std::task::Poll::Ready(v) = f.as_mut().poll(&mut cx) { return v } }
    /// # }
    /// let (mut tx, pipeline) = slipring::ring(8, || 0u64).read("print", |_, _| ()).spawn()?;
    /// let report = block_on(async {
    ///     for i in 0..3 { tx.publish_async(|slot| *slot = i).await?; }
    ///     tx.close(); // never waits
    ///     pipeline.join_async().await.map_err(Box::<dyn std::error::Error>::from)
    /// })?;
    /// assert_eq!(report.stage("print").unwrap().events, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the first failure, and an error if a stage of the pipeline polls the future.
    pub fn join_async(&self) -> Joining<'_> {
        Joining { pipeline: self, number: None }
    }

    /// Shuts the pipeline down: waits until the producers have closed and the stages have handled
    /// all events, but no longer than `limit`, and then halts the pipeline.
    ///
    /// After the halt, each stage still finishes the call of its handler, and calls the handler's
    /// `stop`. `drain` waits for these ends for up to `limit` again. So it returns after twice the
    /// limit at the latest, also if a handler never returns.
    ///
    /// ```
    /// use std::time::Duration;
    /// let (mut tx, pipeline) = slipring::ring(8, || 0u64).read("print", |_, _| ()).spawn()?;
    /// tx.publish(|slot| *slot = 1)?;
    /// tx.close();
    /// let report = pipeline.drain(Duration::from_secs(5))?;
    /// assert_eq!(report.stage("print").unwrap().events, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`JoinError::Halted`] if the limit has passed, or the pipeline was halted otherwise, and a
    ///   stage has events left. The error names the stage.
    /// - [`JoinError::StillRunning`] if a handler has not returned, although the pipeline was
    ///   halted. On a thread of the pipeline itself, the call returns this error at once, and does
    ///   not halt.
    /// - [`JoinError::Failed`] carries the first failure.
    pub fn drain(&self, limit: Duration) -> Result<Report, JoinError> {
        match self.join_within(limit) {
            Err(JoinError::StillRunning { stage, left }) if self.own_stage().is_none() => {
                self.halt();
                self.join_within(limit)?;
                Err(JoinError::Halted { stage, left })
            }
            Ok(report) if report.halted() => {
                let mut all = self.threads.iter().flat_map(|thread| &*thread.stages).copied();
                match all.find(|&stage| self.ring.has_left(stage)) {
                    Some(stage) => Err(JoinError::Halted {
                        stage: self.ring.control().plan.name_of(stage),
                        left: self.ring.left(stage),
                    }),
                    None => Ok(report),
                }
            }
            ended => ended,
        }
    }

    /// Makes the drop of the pipeline wait until the stages have ended, but no longer than `limit`.
    /// Then the drop calls `tell` with the result that [`join_within`](Pipeline::join_within) would
    /// return.
    ///
    /// So a program can leave `main` early, by `?` or by a panic, and its log is still written.
    ///
    /// A producer that is still open could publish for ever. While a producer is open, the drop
    /// waits only until the stages have handled all published events, and the handlers' `stop` is
    /// not called. So drop the producers first. Variables are dropped in the reverse order of their
    /// declaration, so here `log` is dropped before `_pipeline`.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let (sender, told) = std::sync::mpsc::channel();
    /// # let written = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    /// # let lines = written.clone();
    /// # {
    /// let (log, pipeline) = slipring::ring(1024, String::new)
    ///     .read("write", move |line, _| {
    ///         println!("{line}");
    /// #       lines.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ///     })
    ///     .spawn()?;
    /// let _pipeline = pipeline.join_on_drop(Duration::from_secs(5), move |ended| {
    ///     if let Err(left) = &ended {
    ///         eprintln!("the log is incomplete: {left}");
    ///     }
    /// #   sender.send(ended.is_ok()).unwrap();
    /// });
    /// let mut log = log;
    /// for i in 0..1000 {
    ///     log.publish(|line| *line = format!("line {i}"))?;
    /// }
    /// # }
    /// # assert!(told.recv()?);
    /// # assert_eq!(written.load(std::sync::atomic::Ordering::Relaxed), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// On one of the pipeline's own threads, the drop does not wait. After
    /// [`join`](Pipeline::join), the drop has nothing to wait for, and does not call `tell`. A
    /// panic of `tell` is contained.
    pub fn join_on_drop(
        self,
        limit: Duration,
        tell: impl FnOnce(Result<Report, JoinError>) + Send + Sync + 'static,
    ) -> Pipeline {
        let on_drop = OnDrop { limit, tell: Contained::new(Box::new(tell)) };
        let earlier = whole(self.on_drop.lock()).replace(on_drop);
        drop(earlier);
        self
    }

    /// Ends the stages without draining the ring: the stages do not get the events that they have
    /// not seen.
    ///
    /// ```
    /// let (_tx, pipeline) = slipring::ring(8, || 0u64).read("print", |_, _| ()).spawn()?;
    /// pipeline.halt();
    /// pipeline.join()?; // returns, although the producer is still open
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn halt(&self) {
        self.control().halt();
    }

    /// Binds the calling thread to the place that the [`placement`](crate::Chain::placement) chose
    /// for the thread named `thread`, until the result is dropped. In a chain or graph without a
    /// placement, the call does nothing.
    ///
    /// Call this on the thread that produces, with the name [`PRODUCER`](crate::stages::PRODUCER).
    /// The library binds its own threads.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    /// let machine = Machine::this()?;
    /// # // A machine of one core has no such placement.
    /// # if machine.assign(&Placement::SharedCache, &["producer", "print"]).is_err() { return Ok(()); }
    /// let (mut tx, pipeline) = slipring::ring(1024, || 0u64)
    ///     .placement(machine.at(Placement::SharedCache))
    ///     .read("print", |value, _| println!("{value}"))
    ///     .spawn()?;
    /// let bound = pipeline.bind_thread(slipring::stages::PRODUCER)?;
    /// tx.publish(|slot| *slot = 1)?;
    /// tx.close();
    /// drop(bound);
    /// pipeline.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the graph has no thread of this name, or if the system refuses the binding.
    pub fn bind_thread(&self, thread: &str) -> Result<Option<Bound>, BindError> {
        bind(self.places.as_ref(), thread)
    }

    fn control(&self) -> &Control {
        self.ring.control()
    }

    fn waits_for_itself(&self, stage: usize) -> Error {
        let stage = self.control().plan.name_of(stage);
        let cause = Cause::Error(Fault::msg(
            "a stage cannot wait for its own pipeline to end: join on another thread",
        ));
        Error::failed(Failure::new(stage, None, cause), snapshot::report(self.control()))
    }

    fn still_running(&self, stage: usize) -> JoinError {
        JoinError::StillRunning {
            stage: self.control().plan.name_of(stage),
            left: self.ring.left(stage),
        }
    }

    /// If the calling thread belongs to the pipeline, returns the stage that it runs. If it runs
    /// several stages, returns the first of them.
    fn own_stage(&self) -> Option<usize> {
        let own = this_thread().id();
        let thread = self.threads.iter().find(|thread| thread.id == own)?;
        Some(self_wait::innermost(self.control()).unwrap_or(thread.stages[0]))
    }

    /// Returns one of the stages that has not ended.
    fn unfinished(&self, stages: &[usize]) -> usize {
        let control = self.control();
        let runs = |&&stage: &&usize| control.stage_ended(stage).is_none();
        stages.iter().find(runs).copied().unwrap_or(stages[0])
    }

    /// Waits until every stage has ended. Returns `false` if some stage has not ended within
    /// `limit`.
    fn wait(&self, limit: Option<Duration>) -> bool {
        // A limit beyond the clock's range counts as no limit.
        let ended = self.running.wait(limit.and_then(|limit| now().checked_add(limit)));
        if ended {
            self.end_run();
        }
        ended
    }

    /// Called when every stage that the library runs has ended.
    fn end_run(&self) {
        if !self.has_handles {
            self.ring.end_run();
        }
    }

    /// Returns whether a waiting drop must continue to wait, because stages are still ending, or
    /// have not released all events.
    fn goes_on(&self) -> bool {
        let has_left = |stages: &[usize]| stages.iter().any(|&stage| self.ring.has_left(stage));
        let mut own = self.threads.iter().map(|thread| &thread.stages);
        self.own_stage().is_none()
            && (self.control().status.is_over() || own.any(|stages| has_left(stages)))
    }

    fn outcome(&self) -> Result<Report, Error> {
        let control = self.control();
        let report = Report { crowd: crowd(control, self.count), ..snapshot::report(control) };
        match control.status.failure() {
            Some(failure) => Err(Error::failed(failure, report)),
            None => Ok(report),
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let on_drop = whole(self.on_drop.lock()).take();
        let Some(OnDrop { limit, tell }) = on_drop else { return };
        // A limit beyond the clock's range counts as no limit.
        let until = now().checked_add(limit);
        let ended = loop {
            let left = until.map(|until| until.saturating_duration_since(now()));
            let left = left.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
            if left.is_zero() || !self.goes_on() || self.wait(Some(left)) {
                break self.join_within(Duration::ZERO);
            }
        };
        call_contained(|| tell.into_inner()(ended));
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.threads.iter().map(|thread| &thread.name)).finish()
    }
}

/// The future that [`Pipeline::join_async`] returns.
#[must_use = "a future does nothing before it is awaited"]
pub struct Joining<'a> {
    pipeline: &'a Pipeline,
    /// The number of this future among those of the pipeline; `None` before its first wait.
    number: Option<u64>,
}

impl Future for Joining<'_> {
    type Output = Result<Report, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Joining { pipeline, number } = self.get_mut();
        if let Some(stage) = pipeline.own_stage() {
            return Poll::Ready(Err(pipeline.waits_for_itself(stage)));
        }
        if !pipeline.running.poll(number, context.waker()) {
            return Poll::Pending;
        }
        pipeline.end_run();
        Poll::Ready(pipeline.outcome())
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.pipeline.running.forget(number);
        }
    }
}

impl fmt::Debug for Joining<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Joining").field(&self.pipeline).finish()
    }
}
