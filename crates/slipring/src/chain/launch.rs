//! Starts a chain on scoped threads. The result of the run is the closure's value and the report,
//! or the first failure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use super::declare::{Chain, Declared, MakeRunners};
use super::entry::Supervisor;
use super::executor::{Executor, SharedThread};
use super::hooks::{Hooks, OnStart};
use super::runner::BoxedRunner;
use super::thread::StageThread;
use super::threads::Caller;
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::base::sync::whole;
use crate::errors::{BuildError, Cause, Error, Failure, Report};
use crate::producer::publish::FILL_PANIC;
use crate::producer::{HELD_PANIC, Producer, SharedProducer};
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::policy::Marks;
use crate::ring::slots::Layout;
use crate::ring::spec::{Delivery, ThreadChoice};

/// The result of a run without a failure.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done<T = ()> {
    /// The value that the producer's closure returned.
    pub value: T,
    /// Statistics of the producer and of each stage.
    pub report: Report,
}

/// A chain that is built and not yet started.
pub(super) struct Built<'env, E, L: Layout> {
    pub(super) core: Owner<E, L>,
    pub(super) threads: Vec<PlannedThread<'env>>,
    /// The executor, if the calling thread is one of its threads.
    pub(super) executor: Option<Arc<Executor<'env>>>,
    pub(super) hooks: Hooks<'env>,
}

/// A thread that is not yet started.
pub(super) struct PlannedThread<'env> {
    pub(super) name: String,
    /// Index of the thread's first stage.
    pub(super) stage: usize,
    pub(super) work: Work<'env>,
}

/// The work of a thread.
pub(super) enum Work<'env> {
    /// Stages of this thread alone.
    Own(StageThread<'env>),
    /// Stages that threads share.
    Shared(SharedThread<'env>),
}

impl<'env> Work<'env> {
    fn run(self, control: &Control, on_start: impl FnOnce()) {
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

/// The stages, workers and shards that will run on one thread.
struct Group<'env> {
    /// The threads that the stages of this group share.
    label: ThreadChoice,
    /// Name of the thread.
    name: String,
    /// Index of the thread's first stage.
    stage: usize,
    runners: Vec<BoxedRunner<'env>>,
}

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L> {
    /// Builds the ring and makes all handlers. `caller`: what the calling thread does meanwhile.
    pub(super) fn build(
        self,
        many_producers: bool,
        caller: Caller,
    ) -> Result<Built<'env, E, L>, Error> {
        let Declared { mut ring, stages, hooks, make_runners, monitors, threads, .. } =
            *self.declared;
        ring.settings.many_producers = many_producers;
        let mut specs = stages.checked()?;
        let shared = threads.map(|threads| threads.share(&mut specs, caller)).transpose()?;
        let core: Owner<E, L> = ring.build(specs)?;
        let mut groups = Vec::new();
        let made = monitors
            .iter()
            .try_for_each(|monitor| monitor.bind(&core))
            .and_then(|()| allocate_marks(&core))
            .and_then(|()| Self::group_runners(&core, make_runners, &mut groups));
        if let Err(problem) = made {
            // Readers may have joined through a tap, and workers through a pool, before the build
            // failed. The stages of a failed build never run, so only a halt ends the waits of
            // readers and workers that have joined.
            core.owners.end_run();
            core.control.halt();
            // Handlers are dropped one by one, because a drop may panic, and a second panic during
            // the unwinding would abort the process.
            groups
                .into_iter()
                .flat_map(|group: Group| group.runners)
                .for_each(|runner| drop(drop_contained(runner)));
            core.take_apart();
            return Err(problem.into());
        }
        let (mut threads, mut runners_of_all) = (Vec::new(), Vec::new());
        for Group { name, stage, runners, label } in groups {
            if label.is_shared() {
                runners_of_all.extend(runners);
            } else {
                let work = Work::Own(StageThread::new(runners, hooks.on_faults.clone()));
                threads.push(PlannedThread { name, stage, work });
            }
        }
        let shared = shared.unwrap_or_default();
        let count = shared.started + usize::from(shared.caller);
        let executor = Executor::new(&core.control.plan, runners_of_all, count);
        if let Some(executor) = &executor {
            threads.extend((0..shared.started).map(|number| PlannedThread {
                name: format!("stages-{number}"),
                stage: executor.stage(),
                work: Work::Shared(SharedThread::new(executor.clone(), hooks.on_faults.clone())),
            }));
        }
        let executor = executor.filter(|_| shared.caller);
        Ok(Built { core, threads, executor, hooks })
    }

    /// Makes the runners of all stages, and adds each runner to the group of its thread.
    fn group_runners(
        core: &Owner<E, L>,
        make_runners: Vec<Contained<MakeRunners<'env, E, L>>>,
        groups: &mut Vec<Group<'env>>,
    ) -> Result<(), BuildError> {
        for (stage, make) in make_runners.into_iter().enumerate() {
            let spec = &core.control.plan.stages[stage];
            for (worker, runner) in make.into_inner()(core, stage)?.into_iter().enumerate() {
                let shared = groups.iter_mut().find(|group| group.label.shares(&spec.thread));
                match shared {
                    Some(group) => group.runners.push(runner),
                    None => {
                        let name = match (spec.thread.label(), spec.delivery) {
                            (Some(thread), _) => thread.to_owned(),
                            (None, Delivery::Each) => spec.name.to_string(),
                            (None, _) => format!("{}-{worker}", spec.name),
                        };
                        let label = spec.thread.clone();
                        groups.push(Group { label, name, stage, runners: vec![runner] });
                    }
                }
            }
        }
        Ok(())
    }

    /// Publishes every item of an iterator from this thread; `fill` writes an item into a slot.
    /// Returns when all stages have handled all events. [`Done::value`] is the number of items.
    ///
    /// ```
    /// let mut words = Vec::new();
    /// let done = slipring::ring(8, String::new)
    ///     .read("collect", |word, _| words.push(word.clone()))
    ///     .feed("to be or not".split(' '), |slot, word| word.clone_into(slot))?;
    /// assert_eq!((done.value, words.len()), (4, 4));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the first failure: a handler's error or panic, a panic of the iterator or of `fill`,
    /// or a passed deadline. If the chain cannot start, returns the first mistake in the chain
    /// ([`BuildError`]).
    pub fn feed<I: IntoIterator>(
        self,
        items: I,
        fill: impl FnMut(&mut E, I::Item),
    ) -> Result<Done<u64>, Error> {
        let (items, fill) = (Contained::new(items), Contained::new(fill));
        self.run(|producer| {
            let (mut items, mut fill) = (Contained::new(items.into_inner().into_iter()), fill);
            let count = producer.publish_all(&mut *items, &mut *fill)?;
            // The iterator and `fill` are both dropped, even if the first drop panics.
            let panics = [items.drop_contained(), fill.drop_contained()];
            if let Some(panic) = panics.into_iter().flatten().next() {
                resume_unwind(Box::new(panic));
            }
            Ok(count)
        })
    }

    /// Starts the stages, calls `produce` with the producer on this thread, and closes the ring.
    /// Returns when all stages have handled all events.
    ///
    /// ```
    /// let mut sum = 0;
    /// let done = slipring::ring(8, || 0u64)
    ///     .read("sum", |value, _| sum += value)
    ///     .run(|tx| {
    ///         for i in 1..=3 { tx.publish(|slot| *slot = i)?; }
    ///         Ok("all sent")
    ///     })?;
    /// assert_eq!((done.value, sum), ("all sent", 6));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Chain::feed`], and the error that `produce` returns.
    pub fn run<T>(
        self,
        produce: impl FnOnce(&mut Producer<E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        self.build(false, Caller::Helps)?
            .run(Producer::of_chain, produce, |producer| producer.core())
    }

    /// Runs the chain as [`Chain::run`] does, with a producer that can be cloned for other threads.
    ///
    /// The ring closes when `produce` has returned and the last clone of the producer is dropped. A
    /// clone of the producer may outlive `produce`, for instance inside the value that `produce`
    /// returns. `run_shared` waits until all clones of the producer are dropped, or until the
    /// chain's [`deadline`](Chain::deadline) passes.
    ///
    /// ```
    /// let mut sum = 0;
    /// slipring::ring(8, || 0u64)
    ///     .read("sum", |value, _| sum += value)
    ///     .run_shared(|tx| {
    ///         std::thread::scope(|scope| {
    ///             for i in 1..=3 {
    ///                 let mut tx = tx.clone();
    ///                 scope.spawn(move || tx.publish(|slot| *slot = i));
    ///             }
    ///         });
    ///         Ok(())
    ///     })?;
    /// assert_eq!(sum, 6);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chain::run`].
    pub fn run_shared<T>(
        self,
        produce: impl FnOnce(&mut SharedProducer<E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        self.build(true, Caller::Helps)?
            .run(Producer::of_chain, produce, |producer| producer.core())
    }
}

/// Allocates the marks of all stages that record marks.
fn allocate_marks<E, L: Layout>(core: &Core<E, L>) -> Result<(), BuildError> {
    for stage in &core.control.plan.stages {
        let Some(marks) = &stage.policy.marks else { continue };
        let capacity = core.control.plan.capacity;
        match marks.allocate(core.control.start, capacity) {
            Some(true) => {}
            None => {
                return Err(BuildError::Memory { capacity, bytes_per_slot: Marks::BYTES_PER_SLOT });
            }
            Some(false) => {
                let problem = format!(
                    "the marks of `{}` belong to another stage or run already; make some for each stage",
                    stage.name
                );
                return Err(BuildError::Declaration { problem });
            }
        }
    }
    Ok(())
}

/// The work of a new thread, until the thread takes the work. If the system cannot start the
/// thread, the thread's closure is dropped, and a clone of the handoff keeps the work. Without the
/// clone of the handoff, a failed start of a thread would drop the thread's stages. If the stages
/// were dropped here, the graph would fail with [`Cause::Dropped`] instead of [`Cause::Thread`].
#[derive(Clone)]
pub(super) struct Handoff<'env>(Arc<Mutex<Option<Work<'env>>>>);

impl<'env> Handoff<'env> {
    pub(super) fn new(work: Work<'env>) -> Self {
        Handoff(Arc::new(Mutex::new(Some(work))))
    }

    /// Runs the work on the current thread.
    pub(super) fn run(self, name: &str, control: &Control, on_start: Option<OnStart<'env>>) {
        let work = whole(self.0.lock()).take();
        if let Some(work) = work {
            work.run(control, || {
                if let Some(hook) = on_start {
                    hook(name);
                    // In a spawned chain, `hook` may be the last reference to the user's hook, so
                    // the drop of `hook` may panic.
                    if let Some(panic) = hook.drop_contained() {
                        resume_unwind(Box::new(panic));
                    }
                }
            });
        }
    }

    /// Drops the work of a thread that the system could not start.
    pub(super) fn refuse(self, control: &Control) {
        let work = whole(self.0.lock()).take();
        if let Some(work) = work {
            work.stop(control);
        }
    }
}

impl<'env, E: Send + 'env, L: Layout> Built<'env, E, L> {
    fn run<T, P>(
        self,
        start: impl FnOnce(&Owner<E, L>) -> P,
        produce: Contained<impl FnOnce(&mut P) -> Result<T, Fault>>,
        core_of: impl FnOnce(&P) -> &Owner<E, L>,
    ) -> Result<Done<T>, Error> {
        let Built { core, threads, executor, hooks } = self;
        let supervisor = Supervisor { control: &core.control, on_faults: hooks.on_faults.as_ref() };
        let mut producer = start(&core);
        let produced = thread::scope(|scope| {
            for PlannedThread { name, stage, work } in threads {
                let (core, on_start, work) = (&core, hooks.on_start.clone(), Handoff::new(work));
                let (thread, taken) = (thread::Builder::new().name(name.clone()), work.clone());
                let spawned =
                    thread.spawn_scoped(scope, move || taken.run(&name, &core.control, on_start));
                if let Err(error) = spawned {
                    core.control.fail(stage, None, Cause::Thread(error));
                    work.refuse(&core.control);
                }
            }
            let produce = || produce_contained(&core.control, &mut producer, produce.into_inner());
            let produced = match &executor {
                Some(executor) => executor.helping(supervisor, produce),
                None => produce(),
            };
            if !core_of(&producer).same(&core) {
                // The graph fails, because the user's closure has swapped in another ring's
                // producer. The drop of another ring's producer does not close this chain's ring.
                core.control.fail(core.control.producer_party(), None, Cause::Dropped);
            }
            // If the user's closure has swapped in another ring's producer, `producer` may be the
            // last owner of that ring. The last owner of a ring drops the ring's events, and an
            // event's drop is user code that may panic.
            if let Some(panic) = drop_contained(producer) {
                core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
            }
            if let Some(executor) = &executor {
                executor.work(supervisor);
                executor.leave(&core.control);
            }
            produced
        });
        drop(executor);
        hooks.drop_contained(&core.control);
        finish(core, produced)
    }
}

/// Calls the producer's closure. An error or a panic fails the graph. Returns the message of a
/// panic.
pub(super) fn produce_contained<T, P>(
    control: &Control,
    producer: &mut P,
    produce: impl FnOnce(&mut P) -> Result<T, Fault>,
) -> Result<T, Option<String>> {
    let party = control.producer_party();
    match catch_unwind(AssertUnwindSafe(|| produce(producer))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(fault)) => {
            control.fail(party, None, Cause::Error(fault));
            Err(None)
        }
        Err(panic) => {
            let message = panic_message(panic);
            control.fail(party, None, Cause::Panic(message.clone()));
            Err(Some(message))
        }
    }
}

/// Returns the result of a run whose stages and producer have ended.
pub(super) fn finish<E, L: Layout, T>(
    core: Owner<E, L>,
    produced: Result<T, Option<String>>,
) -> Result<Done<T>, Error> {
    core.owners.end_run();
    let report = core.report();
    let failure = core.control.status.failure();
    let party = core.control.producer_party();
    let name = core.control.name(party);
    let dropped = core.take_apart();
    let (value, message) = match produced {
        Ok(value) => (Some(value), None),
        Err(message) => (None, message),
    };
    if let Some(failure) = failure {
        drop_contained(value); // The value's drop is user code.
        return Err(Error::failed(with_message(failure, message), report));
    }
    let Some(value) = value else {
        let failure =
            Failure::new(name, None, Cause::Panic("the producer ended without a reason".into()));
        return Err(Error::failed(failure, report));
    };
    match dropped {
        Some(panic) => {
            drop_contained(value);
            Err(Error::event_drop(panic, report))
        }
        None => Ok(Done { value, report }),
    }
}

/// Puts the message of the caught panic into the failure. The failure was noted without the
/// message, while the producer's closure was still unwinding.
fn with_message(failure: Failure, message: Option<String>) -> Failure {
    match (failure.cause(), message) {
        (Cause::Panic(noted), Some(message)) if [FILL_PANIC, HELD_PANIC].contains(&&**noted) => {
            Failure::new(failure.stage().clone(), failure.seq(), Cause::Panic(message))
        }
        _ => failure,
    }
}

impl<T> fmt::Display for Done<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}
