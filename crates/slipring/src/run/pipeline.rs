//! Runs a graph on threads that outlive the call that started the graph.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::groups::{Handoff, PlannedThread, ThreadBegin};
use super::launch::Built;
use super::placement::{Assigned, Bound, bind};
use crate::base::fault::Fault;
use crate::base::name::Name;
use crate::base::panics::{drop_contained, drop_payload};
use crate::base::sync::whole;
use crate::errors::{BindError, Cause, Error, Failure, Report};
use crate::ring::control::Control;
use crate::ring::owner::Owner;
use crate::ring::self_wait;
use crate::ring::slots::Layout;
use crate::ring::snapshot;

/// The running stages of a spawned chain or graph: see [`Chain::spawn`](crate::Chain::spawn).
///
/// Dropping a pipeline stops no stage: the stages run until the ring is closed and drained.
pub struct Pipeline {
    ring: Box<dyn AnyRing>,
    /// The threads, each with the index of its first stage.
    threads: Vec<(usize, thread::JoinHandle<()>)>,
    running: Arc<RunningThreads>,
    /// Whether other stages run by handles of the user's own.
    has_handles: bool,
    /// Where the threads run, if the graph has a placement.
    places: Option<Assigned>,
}

/// A ring without its type parameters.
trait AnyRing: Send + Sync {
    fn control(&self) -> &Control;
    /// Ends the observers' access to the ring, if the graph has ended. The caller has seen every
    /// stage end. A graph without stages has not ended while producers may still publish.
    fn end_run(&self);
    /// Drops the events, if no other handle owns the ring. Returns the panic's message if a drop
    /// panics.
    fn take_apart(self: Box<Self>) -> Option<String>;
}

impl<E: Send, L: Layout> AnyRing for Owner<E, L> {
    fn control(&self) -> &Control {
        &self.control
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

/// A guard that each thread holds. The guard's drop, at the thread's end or panic, lowers the
/// number of running threads by one.
struct CountOut(Arc<RunningThreads>);

impl Drop for CountOut {
    fn drop(&mut self) {
        *whole(self.0.count.lock()) -= 1;
        self.0.decreased.notify_all();
    }
}

/// The reason why a pipeline could not be joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// This stage has not ended yet: a producer is open, events are left, or its handler has not
    /// returned.
    StillRunning {
        /// A stage that has not ended.
        stage: Name,
    },
    /// The pipeline has ended with a failure.
    Failed(Error),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::StillRunning { stage } => write!(
                f,
                "stage `{stage}` is still running; close the producers, or halt the pipeline"
            ),
            JoinError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            JoinError::Failed(error) => error.source(),
            JoinError::StillRunning { .. } => None,
        }
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
        for PlannedThread { name, place, stage, work } in threads {
            let (shared, count_out) = (core.clone(), CountOut(running.clone()));
            let (on_start, places) = (hooks.on_start.clone(), hooks.places.clone());
            let work = Handoff::new(work);
            let taken = work.clone();
            let thread = thread::Builder::new().name(name.clone()).spawn(move || {
                let count_out = count_out;
                let begin = ThreadBegin { name: &name, place: &place, places, on_start };
                taken.run(begin, &shared.control);
                // The last owner drops the events. A panic of an event's drop could reach no
                // caller, so `drop_contained` contains the panic.
                drop_contained(shared);
                drop(count_out);
            });
            match thread {
                Ok(handle) => started.push((stage, handle)),
                Err(error) => {
                    core.control.fail(stage, None, Cause::Thread(error));
                    work.refuse(&core.control);
                }
            }
        }
        let places = hooks.places.clone();
        hooks.drop_contained(&core.control);
        let ring = Box::new(core.clone());
        let pipeline = Pipeline { ring, threads: started, running, has_handles, places };
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
    /// Binds the calling thread to the place that the
    /// [`placement`](crate::Chain::placement) chose for the thread of this name, until the result
    /// is dropped. In a chain or graph without a placement, the call does nothing.
    ///
    /// For the thread that produces, and its name [`PRODUCER`](crate::PRODUCER). The library binds
    /// its own threads.
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
    /// let bound = pipeline.bind_thread(slipring::PRODUCER)?;
    /// tx.publish(|slot| *slot = 1)?;
    /// tx.close();
    /// drop(bound);
    /// pipeline.join()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A name that the graph does not have, or the system's refusal.
    pub fn bind_thread(&self, thread: &str) -> Result<Option<Bound>, BindError> {
        bind(self.places.as_ref(), thread)
    }

    /// Waits until every stage that the library runs has ended. Stages end after the last producer
    /// has closed, or after a failure or a halt.
    ///
    /// Example: [`Chain::spawn`](crate::Chain::spawn).
    ///
    /// # Errors
    /// The first failure. A stage that joins its own pipeline would wait for itself, so the call
    /// returns an error at once.
    pub fn join(mut self) -> Result<Report, Error> {
        if let Some(stage) = self.own_stage() {
            let cause = Cause::Error(Fault::msg("a stage cannot wait for its own pipeline to end"));
            return Err(Error::failed(
                Failure::new(stage, None, cause),
                snapshot::report(self.ring.control()),
            ));
        }
        self.wait(None);
        for (_, handle) in self.threads.drain(..) {
            // The thread has contained the panics of its stages, and the graph has recorded these
            // panics.
            if let Err(panic) = handle.join() {
                drop_payload(panic);
            }
        }
        let outcome = self.outcome();
        match (outcome, self.ring.take_apart()) {
            (Ok(report), Some(panic)) => Err(Error::event_drop(panic, report)),
            (outcome, _) => outcome,
        }
    }

    /// Waits as [`Pipeline::join`] does, but no longer than `limit`. Unlike `join`, this method can
    /// be called again.
    ///
    /// `join_within` does not wait for the destructors of the threads' thread-local values;
    /// [`Pipeline::join`] does.
    ///
    /// ```
    /// use slipring::JoinError;
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
            return Err(JoinError::StillRunning { stage });
        }
        if !self.wait(Some(limit)) {
            let mut running = self.threads.iter().filter(|(_, handle)| !handle.is_finished());
            if let Some(&(stage, _)) = running.next().or(self.threads.first()) {
                let stage = self.ring.control().name(self.unfinished(stage));
                return Err(JoinError::StillRunning { stage });
            }
        }
        self.outcome().map_err(JoinError::Failed)
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
        self.ring.control().halt();
    }

    /// Returns the stage that the calling thread runs, or the first stage of that thread, if the
    /// thread belongs to the pipeline.
    fn own_stage(&self) -> Option<Name> {
        let (own, control) = (thread::current().id(), self.ring.control());
        let &(first, _) = self.threads.iter().find(|(_, handle)| handle.thread().id() == own)?;
        Some(control.name(self_wait::innermost(control).unwrap_or(first)))
    }

    /// Returns a stage that has not ended, of a thread whose first stage is `first`.
    fn unfinished(&self, first: usize) -> usize {
        let control = self.ring.control();
        let runs = |&stage: &usize| control.ended(control.position(stage)).is_none();
        let stages = control.plan.stages.iter().enumerate();
        let shared = stages.filter(|(_, stage)| stage.thread.is_shared()).map(|(stage, _)| stage);
        let is_shared = control.plan.stages[first].thread.is_shared();
        shared.filter(|_| is_shared).find(runs).unwrap_or(first)
    }

    /// Waits until every stage has ended. Returns `false` if some stage has not ended within
    /// `limit`.
    fn wait(&mut self, limit: Option<Duration>) -> bool {
        // A limit beyond the clock's range counts as no limit.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut count = whole(self.running.count.lock());
        while *count > 0 {
            count = match deadline {
                None => whole(self.running.decreased.wait(count)),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    whole(self.running.decreased.wait_timeout(count, left)).0
                }
            };
        }
        drop(count);
        if !self.has_handles {
            self.ring.end_run();
        }
        true
    }

    fn outcome(&self) -> Result<Report, Error> {
        let control = self.ring.control();
        let report = snapshot::report(control);
        match control.status.failure() {
            Some(failure) => Err(Error::failed(failure, report)),
            None => Ok(report),
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
