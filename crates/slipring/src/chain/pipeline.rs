//! A chain on threads of its own, which outlive the function that started it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::Chain;
use super::launch::{Built, Handed, Seating};
use crate::base::fault::Fault;
use crate::base::name::Name;
use crate::base::panics::{Contained, drop_contained, drop_payload};
use crate::base::sync::whole;
use crate::errors::Report;
use crate::errors::{Cause, Error, Failure};
use crate::producer::{Producer, SharedProducer};
use crate::ring::control::Control;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;
use crate::ring::snapshot;

/// The stages of a spawned chain. Dropping it lets them go on by themselves until the ring is
/// closed and drained.
pub struct Pipeline {
    ring: Box<dyn Controlled>,
    threads: Vec<(Name, thread::JoinHandle<()>)>,
    working: Arc<Working>,
}

trait Controlled: Send + Sync {
    fn control(&self) -> &Control;
    /// Every stage has ended: if the graph has, too, observers find the ring no more. (Without a
    /// stage, producers may go on.)
    fn end_run(&self);
    /// Drops the events, if nobody else holds the ring; says what panicked if one did.
    fn take_apart(self: Box<Self>) -> Option<String>;
}

impl<E: Send, L: Layout> Controlled for Owner<E, L> {
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

/// How many threads have not ended.
struct Working {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// Counts its thread out when it ends, in whatever way.
struct Shift(Arc<Working>);

impl Drop for Shift {
    fn drop(&mut self) {
        *whole(self.0.count.lock()) -= 1;
        self.0.fewer.notify_all();
    }
}

/// Why a pipeline could not be joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// This stage has not ended yet: its producers are open, it has events left, or its handler
    /// does not come back.
    StillRunning {
        /// A stage that has not ended.
        stage: Name,
    },
    /// The pipeline has ended, and not well.
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

impl<E: Send + 'static, L: Layout> Chain<'static, E, L> {
    /// Starts the stages on threads that outlive this call; publish through the producer, close it,
    /// then join the pipeline.
    ///
    /// # Errors
    /// What is wrong with the chain, or a thread that the system refused.
    pub fn spawn(self) -> Result<(Producer<E, L>, Pipeline), Error> {
        let built = self.build(false)?;
        let producer = Contained::new(Producer::of_chain(&built.core));
        let pipeline = built.spawn()?;
        Ok((producer.into_inner(), pipeline))
    }

    /// As [`Chain::spawn`], with a producer that can be cloned.
    ///
    /// # Errors
    /// As [`Chain::spawn`].
    pub fn spawn_shared(self) -> Result<(SharedProducer<E, L>, Pipeline), Error> {
        let built = self.build(true)?;
        let producer = Contained::new(Producer::of_chain(&built.core));
        let pipeline = built.spawn()?;
        Ok((producer.into_inner(), pipeline))
    }
}

impl<E: Send + 'static, L: Layout> Built<'static, E, L> {
    fn spawn(self) -> Result<Pipeline, Error> {
        let Built { core, threads, hooks } = self;
        let working = Arc::new(Working { count: Mutex::new(threads.len()), fewer: Condvar::new() });
        let mut started = Vec::with_capacity(threads.len());
        for Seating { name, delivery, stage } in threads {
            let (shared, on_start, shift) =
                (core.clone(), hooks.on_start.clone(), Shift(working.clone()));
            let delivery = Handed::new(delivery);
            let taken = delivery.clone();
            let thread = thread::Builder::new().name(name.clone()).spawn(move || {
                let shift = shift;
                taken.attend(&name, &shared.control, on_start);
                // The last to go drops the events. If one panics, nobody is left to be told, and
                // the system must not see the payload.
                drop_contained(shared);
                drop(shift);
            });
            match thread {
                Ok(handle) => started.push((core.control.name(stage), handle)),
                Err(error) => {
                    core.control.fail(stage, None, Cause::Thread(error));
                    delivery.refuse(&core.control);
                }
            }
        }
        hooks.drop_contained(&core.control);
        let pipeline = Pipeline { ring: Box::new(core.clone()), threads: started, working };
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
    /// Waits until every stage has ended. That takes the producers' closing, or a halt: before, it
    /// waits.
    ///
    /// # Errors
    /// The first failure. A stage that joins its own pipeline would wait for itself, and gets an
    /// error at once.
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
            // Panics of user code are contained in the thread; there is nothing to learn here.
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

    /// As [`Pipeline::join`], but waits no longer than `limit`, and can be called again.
    ///
    /// It does not wait for what the stages' threads do after the last stage has ended, which is to
    /// run the destructors of their thread-local values; [`Pipeline::join`] does.
    ///
    /// # Errors
    /// [`JoinError::StillRunning`] names a stage that has not ended; [`JoinError::Failed`].
    pub fn join_within(&mut self, limit: Duration) -> Result<Report, JoinError> {
        if let Some(stage) = self.own_stage() {
            return Err(JoinError::StillRunning { stage });
        }
        if !self.wait(Some(limit)) {
            let stage = self
                .threads
                .iter()
                .find(|(_, handle)| !handle.is_finished())
                .or(self.threads.first());
            if let Some((stage, _)) = stage {
                return Err(JoinError::StillRunning { stage: stage.clone() });
            }
        }
        self.outcome().map_err(JoinError::Failed)
    }

    /// Ends the stages without draining: what was published and not yet seen stays unseen.
    pub fn halt(&self) {
        self.ring.control().halt();
    }

    /// The stage on whose thread this is called, if it is one of the pipeline's own.
    fn own_stage(&self) -> Option<Name> {
        let own = thread::current().id();
        self.threads
            .iter()
            .find(|(_, handle)| handle.thread().id() == own)
            .map(|(stage, _)| stage.clone())
    }

    /// Waits for the end of every stage. `false`: the limit came first.
    fn wait(&mut self, limit: Option<Duration>) -> bool {
        // A limit beyond what the clock can count is none.
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut count = whole(self.working.count.lock());
        while *count > 0 {
            count = match deadline {
                None => whole(self.working.fewer.wait(count)),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    whole(self.working.fewer.wait_timeout(count, left)).0
                }
            };
        }
        drop(count);
        self.ring.end_run();
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
        f.debug_list().entries(self.threads.iter().map(|(name, _)| name)).finish()
    }
}
