//! A graph on threads that outlive the call that started it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::groups::{Handoff, PlannedThread, ThreadBegin};
use super::launch::Built;
use super::placement::{Assigned, Bound, bind};
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained, drop_payload};
use crate::base::sync::unmodelled::{Condvar, JoinHandle, Mutex, ThreadBuilder, this_thread};
use crate::base::sync::{now, whole};
use crate::errors::{BindError, Cause, Error, Failure, JoinError, Report};
use crate::ring::control::Control;
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
    /// `None` once the pipeline was joined.
    ring: Option<Box<dyn AnyRing>>,
    /// How the drop joins the pipeline; `None` if the drop does not join it.
    on_drop: Option<OnDrop>,
    /// The threads, each with the indices of the stages that it may run.
    threads: Vec<(Vec<usize>, JoinHandle<()>)>,
    running: Arc<RunningThreads>,
    /// Whether the user runs other stages by handles.
    has_handles: bool,
    /// Where the threads run, if the graph has a placement.
    places: Option<Assigned>,
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
trait AnyRing: Send + Sync {
    fn control(&self) -> &Control;
    /// Returns the number of claimed events that a stage has not released.
    fn left(&self, stage: usize) -> u64;
    /// Returns whether [`AnyRing::left`] would return a number above zero.
    fn has_left(&self, stage: usize) -> bool;
    /// Ends the observers' access to the ring, if the graph has ended. The caller has seen every
    /// stage end. A graph without stages has not ended as long as producers may still publish.
    fn end_run(&self);
    /// If no other handle owns the ring, drops the events. Returns the panic's message if such a
    /// drop panics.
    fn take_apart(self: Box<Self>) -> Option<String>;
}

impl<E: Send, L: Layout> AnyRing for Owner<E, L> {
    fn control(&self) -> &Control {
        &self.control
    }
    fn left(&self, stage: usize) -> u64 {
        self.claimed_after(self.control.positions.position(&self.control.plan, stage))
    }
    fn has_left(&self, stage: usize) -> bool {
        self.is_claimed(self.control.positions.position(&self.control.plan, stage))
    }
    fn end_run(&self) {
        if self.control.status.is_over() {
            self.owners.end_run();
        }
    }
    fn take_apart(self: Box<Self>) -> Option<String> {
        Owner::take_apart(*self)
    }
}

/// Number of threads that have not ended.
struct RunningThreads {
    count: Mutex<usize>,
    decreased: Condvar,
}

/// A guard that each thread holds. Its drop, at the thread's end or panic, lowers the number of
/// running threads by one.
struct CountOut(Arc<RunningThreads>);

impl Drop for CountOut {
    fn drop(&mut self) {
        *whole(self.0.count.lock()) -= 1;
        self.0.decreased.notify_all();
    }
}

impl<E: Send + 'static, L: Layout> Built<'static, E, L> {
    /// Starts the stages, and returns while they run.
    pub(crate) fn spawn(self) -> Result<Pipeline, Error> {
        let Built { core, threads, hooks, has_handles, .. } = self;
        let running = Arc::new(RunningThreads {
            count: Mutex::new(threads.len()),
            decreased: Condvar::new(),
        });
        let mut started = Vec::with_capacity(threads.len());
        for PlannedThread { name, place, stages, work } in threads {
            let (shared, count_out) = (core.clone(), CountOut(running.clone()));
            let (on_start, places) = (hooks.on_start.clone(), hooks.places.clone());
            let work = Handoff::new(work);
            let taken = work.clone();
            let thread = ThreadBuilder::new().name(name.clone()).spawn(move || {
                let count_out = count_out;
                let begin = ThreadBegin { name: &name, place: &place, places, on_start };
                taken.run(begin, &shared.control);
                // The last owner drops the events. A panic of their drop could reach no caller, so
                // `drop_contained` contains it.
                drop_contained(shared);
                drop(count_out);
            });
            match thread {
                Ok(handle) => started.push((stages, handle)),
                Err(error) => {
                    core.control.fail(stages[0], None, Cause::Thread(error));
                    work.refuse(&core.control);
                }
            }
        }
        let places = hooks.places.clone();
        hooks.drop_contained(&core.control);
        let ring: Box<dyn AnyRing> = Box::new(core.clone());
        let (ring, on_drop) = (Some(ring), None);
        let pipeline = Pipeline { ring, on_drop, threads: started, running, has_handles, places };
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

    /// Waits until every stage that the library runs has ended. Stages end after the last producer
    /// has closed, or after a failure or a halt.
    ///
    /// Example: [`Chain::spawn`](crate::Chain::spawn).
    ///
    /// # Errors
    /// Returns the first failure. A stage that joins its own pipeline would wait for itself, so in
    /// that case the call returns an error at once.
    pub fn join(mut self) -> Result<Report, Error> {
        self.on_drop = None;
        if let Some(stage) = self.own_stage() {
            let stage = self.control().plan.name_of(stage);
            let cause = Cause::Error(Fault::msg(
                "a stage cannot wait for its own pipeline to end: join on another thread",
            ));
            return Err(Error::failed(
                Failure::new(stage, None, cause),
                snapshot::report(self.control()),
            ));
        }
        self.wait(None);
        for (_, handle) in self.threads.drain(..) {
            // The thread has contained the panics of its stages, and the graph has recorded them.
            if let Err(panic) = handle.join() {
                drop_payload(panic);
            }
        }
        let outcome = self.outcome();
        match (outcome, self.ring.take().and_then(|ring| ring.take_apart())) {
            (Ok(report), Some(panic)) => Err(Error::event_drop(panic, report)),
            (outcome, _) => outcome,
        }
    }

    /// Like [`Pipeline::join`], but waits no longer than `limit`, and can be called again.
    ///
    /// `join_within` does not wait for the destructors of the threads' thread-local values;
    /// [`Pipeline::join`] does.
    ///
    /// ```
    /// use slipring::errors::JoinError;
    /// use std::time::Duration;
    /// let (mut tx, mut pipeline) =
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
    pub fn join_within(&mut self, limit: Duration) -> Result<Report, JoinError> {
        if let Some(stage) = self.own_stage() {
            return Err(self.still_running(stage));
        }
        if !self.wait(Some(limit)) {
            let mut running = self.threads.iter().filter(|(_, handle)| !handle.is_finished());
            if let Some((stages, _)) = running.next().or(self.threads.first()) {
                return Err(self.still_running(self.unfinished(stages)));
            }
        }
        self.outcome().map_err(JoinError::Failed)
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
        mut self,
        limit: Duration,
        tell: impl FnOnce(Result<Report, JoinError>) + Send + Sync + 'static,
    ) -> Pipeline {
        self.on_drop = Some(OnDrop { limit, tell: Contained::new(Box::new(tell)) });
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

    fn control(&self) -> &Control {
        self.ring().control()
    }

    fn ring(&self) -> &dyn AnyRing {
        self.ring.as_deref().expect("`join` takes the ring last")
    }

    fn still_running(&self, stage: usize) -> JoinError {
        JoinError::StillRunning {
            stage: self.control().plan.name_of(stage),
            left: self.ring().left(stage),
        }
    }

    /// If the calling thread belongs to the pipeline, returns the stage that it runs. If it runs
    /// several stages, returns the first of them.
    fn own_stage(&self) -> Option<usize> {
        let own = this_thread().id();
        let (stages, _) = self.threads.iter().find(|(_, handle)| handle.thread().id() == own)?;
        Some(self_wait::innermost(self.control()).unwrap_or(stages[0]))
    }

    /// Returns one of the stages that has not ended.
    fn unfinished(&self, stages: &[usize]) -> usize {
        let control = self.control();
        let runs = |&stage: &usize| {
            control.status.ended(control.positions.position(&control.plan, stage)).is_none()
        };
        stages.iter().copied().find(|stage| runs(stage)).unwrap_or(stages[0])
    }

    /// Waits until every stage has ended. Returns `false` if some stage has not ended within
    /// `limit`.
    fn wait(&mut self, limit: Option<Duration>) -> bool {
        // A limit beyond the clock's range counts as no limit.
        let deadline = limit.and_then(|limit| now().checked_add(limit));
        let mut count = whole(self.running.count.lock());
        while *count > 0 {
            count = match deadline {
                None => whole(self.running.decreased.wait(count)),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(now());
                    if left.is_zero() {
                        return false;
                    }
                    whole(self.running.decreased.wait_timeout(count, left)).0
                }
            };
        }
        drop(count);
        if !self.has_handles {
            self.ring().end_run();
        }
        true
    }

    /// Returns whether a waiting drop must continue to wait, because stages are still ending, or
    /// have not released all events.
    fn goes_on(&self) -> bool {
        let has_left = |stages: &[usize]| stages.iter().any(|&stage| self.ring().has_left(stage));
        let mut own = self.threads.iter().map(|(stages, _)| stages);
        self.own_stage().is_none()
            && (self.control().status.is_over() || own.any(|stages| has_left(stages)))
    }

    fn outcome(&self) -> Result<Report, Error> {
        let control = self.control();
        let report = snapshot::report(control);
        match control.status.failure() {
            Some(failure) => Err(Error::failed(failure, report)),
            None => Ok(report),
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let Some(OnDrop { limit, tell }) = self.on_drop.take() else { return };
        // A limit beyond the clock's range counts as no limit.
        let until = now().checked_add(limit);
        let ended = loop {
            let left = until.map(|until| until.saturating_duration_since(now()));
            let left = left.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
            if left.is_zero() || !self.goes_on() || self.wait(Some(left)) {
                break self.join_within(Duration::ZERO);
            }
        };
        // `tell` is user code.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| tell.into_inner()(ended))) {
            drop_payload(panic);
        }
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            self.threads.iter().map(|(_, handle)| handle.thread().name().unwrap_or_default());
        f.debug_list().entries(names).finish()
    }
}
