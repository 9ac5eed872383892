//! Groups the runners that share a thread, and holds the planned threads until they start.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::executor::{Executor, SharedThread};
use super::hooks::{Hooks, OnStart};
use super::placement::{Assigned, Bound};
use super::runner::BoxedRunner;
use super::thread::StageThread;
use super::threads::{SharedThreads, shared_thread_name};
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained};
use crate::base::sync::unmodelled::Mutex;
use crate::base::sync::whole;
use crate::ring::control::Control;
use crate::ring::plan::Plan;
use crate::ring::spec::{ThreadChoice, thread_name};

/// The runners of a graph, grouped by threads. They are dropped one by one, because the drop of a
/// handler may panic, and a second panic during the unwinding would abort the process.
#[derive(Default)]
pub(crate) struct Groups<'env>(Vec<Group<'env>>);

/// The stages, workers and shards that will run on one thread, or on the executor's threads.
struct Group<'env> {
    /// The threads that the stages of this group share.
    label: ThreadChoice,
    /// Name of the thread.
    name: String,
    /// The runners in the order of their stages' declaration.
    runners: Vec<BoxedRunner<'env>>,
}

impl<'env> Groups<'env> {
    /// Adds the runners of a stage to the groups of their threads.
    pub(crate) fn add(&mut self, plan: &Plan, runners: Vec<BoxedRunner<'env>>) {
        for (worker, runner) in runners.into_iter().enumerate() {
            let stage = runner.stage();
            let spec = &plan.stages[stage];
            match self.0.iter_mut().find(|group| group.label.shares(&spec.thread)) {
                Some(group) => {
                    let later = group.runners.partition_point(|other| other.stage() <= stage);
                    group.runners.insert(later, runner);
                }
                None => {
                    let name = thread_name(&spec.thread, spec.delivery, &spec.name, worker);
                    let label = spec.thread.clone();
                    self.0.push(Group { label, name, runners: vec![runner] });
                }
            }
        }
    }

    /// Returns the threads to start, and the executor of the stages that share threads.
    pub(crate) fn into_threads(
        mut self,
        plan: &Plan,
        shared: SharedThreads,
        hooks: &Hooks<'env>,
    ) -> (Vec<PlannedThread<'env>>, Option<Arc<Executor<'env>>>) {
        let (mut threads, mut runners_of_all) = (Vec::new(), Vec::new());
        for Group { name, runners, label } in std::mem::take(&mut self.0) {
            if label.is_shared() {
                runners_of_all = runners;
            } else if !runners.is_empty() {
                let mut stages: Vec<usize> = runners.iter().map(|runner| runner.stage()).collect();
                stages.dedup();
                let work = Work::Own(StageThread::new(runners, hooks.on_faults.clone()));
                threads.push(PlannedThread { place: name.clone(), name, stages, work });
            }
        }
        let executor = Executor::new(plan, runners_of_all, shared.count());
        if let Some(executor) = &executor {
            threads.extend((0..shared.started).map(|number| PlannedThread {
                name: shared_thread_name(number),
                place: shared_thread_name(number),
                stages: executor.stages(),
                work: Work::Shared(SharedThread::new(
                    executor.clone(),
                    hooks.on_faults.clone(),
                    number,
                )),
            }));
        }
        (threads, executor)
    }
}

impl Drop for Groups<'_> {
    fn drop(&mut self) {
        let runners = self.0.drain(..).flat_map(|group| group.runners);
        runners.for_each(|runner| drop(drop_contained(runner)));
    }
}

/// A thread that is not yet started.
pub(crate) struct PlannedThread<'env> {
    pub(crate) name: String,
    /// Name under which the placement lists this thread's place.
    pub(crate) place: String,
    /// Indices of the stages that the thread may run, at least one, in the order of their
    /// declaration.
    pub(crate) stages: Vec<usize>,
    pub(crate) work: Work<'env>,
}

/// The work of a thread.
pub(crate) enum Work<'env> {
    /// Stages of this thread alone.
    Own(StageThread<'env>),
    /// Stages that several threads share.
    Shared(SharedThread<'env>),
}

impl<'env> Work<'env> {
    fn run(self, control: &Control, on_start: impl FnOnce() -> Result<(), Fault>) {
        match self {
            Work::Own(stages) => stages.run(control, on_start),
            Work::Shared(thread) => thread.run(control, on_start),
        }
    }

    fn stop(self, control: &Control) {
        match self {
            Work::Own(stages) => stages.stop(control),
            Work::Shared(thread) => thread.stop(control),
        }
    }
}

/// The steps that a thread takes before its first stage starts: it binds itself to its place, and
/// calls the hook.
pub(crate) struct ThreadBegin<'a, 'env> {
    pub(crate) name: &'a str,
    /// Name under which the placement lists this thread's place.
    pub(crate) place: &'a str,
    pub(crate) places: Option<Assigned>,
    pub(crate) on_start: Option<OnStart<'env>>,
}

/// Drops a thread's reference to a user's hook. In a spawned graph, it may be the last reference,
/// so its drop may panic. The panic continues, and fails the graph.
fn fail_if_dropped_badly<T>(hook: Contained<T>) {
    if let Some(panic) = hook.drop_contained() {
        resume_unwind(Box::new(panic));
    }
}

/// The work of a new thread, until the thread takes it. If the system cannot start the thread, it
/// drops the thread's closure, but a clone of the handoff keeps the work. Without the clone, the
/// closure's drop would drop the stages, and the graph would fail with [`Cause::Dropped`] instead
/// of [`Cause::Thread`].
#[derive(Clone)]
pub(crate) struct Handoff<'env>(Arc<Mutex<Option<Work<'env>>>>);

impl<'env> Handoff<'env> {
    pub(crate) fn new(work: Work<'env>) -> Self {
        Handoff(Arc::new(Mutex::new(Some(work))))
    }

    /// Runs the work on the current thread, bound to the thread's place.
    pub(crate) fn run(self, begin: ThreadBegin<'_, 'env>, control: &Control) {
        let work = whole(self.0.lock()).take();
        if let Some(work) = work {
            let mut bound: Option<Bound> = None;
            work.run(control, || {
                let ThreadBegin { name, place, places, on_start } = begin;
                if let Some(places) = places {
                    bound = Some(places.bind(place)?);
                    fail_if_dropped_badly(places);
                }
                // The hook runs after the placement, so that the hook can still change the binding.
                if let Some(hook) = on_start {
                    hook(name);
                    fail_if_dropped_badly(hook);
                }
                Ok(())
            });
            // The stages have ended, and the thread ends with them. So if undoing the binding
            // panics, there is no stage left to fail, and the panic is ignored.
            drop_contained(bound);
        }
    }

    /// Drops the work of a thread that the system could not start.
    pub(crate) fn refuse(self, control: &Control) {
        let work = whole(self.0.lock()).take();
        if let Some(work) = work {
            work.stop(control);
        }
    }
}
