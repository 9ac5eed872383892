//! Starts a graph on scoped threads. The result of the run is the closure's value and the report,
//! or the first failure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::entry::{Supervisor, call_user};
use super::executor::Executor;
use super::groups::{Groups, Handoff, PlannedThread, ThreadBegin, Work};
use super::hooks::Hooks;
use super::placement::{Assigned, Bound};
use super::threads::SharedThreads;
use crate::base::fault::Fault;
use crate::base::name::PRODUCER;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::base::sync::unmodelled::{ThreadBuilder, scope};
use crate::errors::{Cause, Error, Failure, Report};
use crate::producer::publish::FILL_PANIC;
use crate::producer::{HELD_PANIC, Producer, sealed};
use crate::ring::control::Control;
use crate::ring::owner::Owner;
use crate::ring::slots::Layout;

/// The result of a run without a failure.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done<T = ()> {
    /// The value that the producer's closure returned.
    pub value: T,
    /// Statistics of the producer and of each stage.
    pub report: Report,
}

/// A graph that is built and not yet started.
pub(crate) struct Built<'env, E, L: Layout> {
    pub(crate) core: Owner<E, L>,
    pub(crate) threads: Vec<PlannedThread<'env>>,
    /// The executor, if the calling thread is one of its threads.
    pub(crate) executor: Option<Arc<Executor<'env>>>,
    pub(crate) hooks: Hooks<'env>,
    /// Whether the user runs stages by handles, which may continue after the end of the run.
    pub(crate) has_handles: bool,
}

impl<'env, E: Send + 'env, L: Layout> Built<'env, E, L> {
    /// Puts the runners on their threads.
    pub(crate) fn new(
        core: Owner<E, L>,
        groups: Groups<'env>,
        shared: SharedThreads,
        hooks: Hooks<'env>,
    ) -> Self {
        let (threads, executor) = groups.into_threads(&core.control.plan, shared, &hooks);
        let executor = executor.filter(|_| shared.caller);
        Built { core, threads, executor, hooks, has_handles: false }
    }

    /// Starts the stages, calls `produce` with `producer` on this thread, and closes the ring.
    /// Returns when all stages have ended.
    pub(crate) fn run<T, S: sealed::Sharing>(
        self,
        mut producer: Producer<E, L, S>,
        produce: Contained<impl FnOnce(&mut Producer<E, L, S>) -> Result<T, Fault>>,
    ) -> Result<Done<T>, Error> {
        let Built { core, threads, executor, hooks, has_handles } = self;
        // The calling thread is the last of the threads that share stages.
        let is_shared = |thread: &&PlannedThread<'_>| matches!(thread.work, Work::Shared(_));
        let count = count(&threads);
        let supervisor = Supervisor {
            control: &core.control,
            on_faults: hooks.on_faults.as_ref(),
            thread: threads.iter().filter(is_shared).count(),
        };
        let produced = scope(|scope| {
            for PlannedThread { name, place, stages, work } in threads {
                let (core, work) = (&core, Handoff::new(work));
                let (on_start, places) = (hooks.on_start.clone(), hooks.places.clone());
                let (thread, taken) = (ThreadBuilder::new().name(name.clone()), work.clone());
                let spawned = thread.spawn_scoped(scope, move || {
                    let begin = ThreadBegin { name: &name, place: &place, places, on_start };
                    taken.run(begin, &core.control);
                });
                if let Err(error) = spawned {
                    core.control.fail(stages[0], None, Cause::Thread(error));
                    work.refuse(&core.control);
                }
            }
            // The calling thread is bound after the other threads were started, because a thread
            // begins with the binding of the thread that starts it.
            let bound = bind_producer(&core.control, hooks.places.as_ref());
            let produce = || produce_contained(&core.control, &mut producer, produce.into_inner());
            let produced = match (&executor, &bound) {
                (_, None) => Err(None),
                (Some(executor), _) => executor.helping(supervisor, produce),
                (None, _) => produce(),
            };
            if !producer.core().same(&core) {
                // The graph fails, because the user's closure has swapped in another ring's
                // producer, whose drop does not close this graph's ring.
                core.control.fail(core.control.plan.producer_party(), None, Cause::Dropped);
            }
            // If the user's closure has swapped in another ring's producer, `producer` may be that
            // ring's last owner, which drops the ring's events. An event's drop is user code that
            // may panic.
            if let Some(panic) = drop_contained(producer) {
                core.control.fail(core.control.plan.producer_party(), None, Cause::Panic(panic));
            }
            if let Some(executor) = &executor {
                executor.work(supervisor);
                executor.leave(&core.control);
            }
            if let Some(panic) = drop_contained(bound) {
                core.control.fail(core.control.plan.producer_party(), None, Cause::Panic(panic));
            }
            produced
        });
        drop(executor);
        hooks.drop_contained(&core.control);
        let crowd = crowd(&core.control, count);
        let mut done = finish(core, produced, has_handles);
        if let Ok(done) = &mut done {
            done.report.crowd = crowd;
        }
        done
    }
}

/// Returns the number of threads with the producer's, if several stages have threads of their own.
pub(super) fn count(threads: &[PlannedThread<'_>]) -> Option<usize> {
    let has_shared = threads.iter().any(|thread| matches!(thread.work, Work::Shared(_)));
    (threads.len() > 1 && !has_shared).then_some(threads.len() + 1)
}

/// Returns the numbers of threads and of cores, if the threads were counted, and if they are more
/// than the cores.
pub(super) fn crowd(control: &Control, threads: Option<usize>) -> Option<(usize, usize)> {
    threads
        .map(|threads| (threads, control.waits.cores.usable()))
        .filter(|(all, cores)| all > cores)
}

/// Binds the calling thread to the producer's place, if the graph has a placement. If the binding
/// fails, fails the graph and returns `None`.
///
/// If the graph has several producers, none of them is bound. The calling thread starts the
/// producers' threads, which would all inherit its binding, so one place would hold all producers.
fn bind_producer(control: &Control, places: Option<&Assigned>) -> Option<Option<Bound>> {
    let places = places.filter(|_| !control.plan.many_producers);
    call_user(control, control.plan.producer_party(), None, || {
        places.map(|places| places.bind(PRODUCER)).transpose()
    })
}

/// Returns a closure that publishes every item of an iterator; `fill` writes an item into a slot.
/// The iterator and `fill` may panic, also in their drops.
pub(crate) fn feeding<E, L: Layout, S: sealed::Sharing, I: IntoIterator>(
    items: I,
    fill: impl FnMut(&mut E, I::Item),
) -> impl FnOnce(&mut Producer<E, L, S>) -> Result<u64, Fault> {
    let (items, fill) = (Contained::new(items), Contained::new(fill));
    |producer| {
        let (mut items, mut fill) = (Contained::new(items.into_inner().into_iter()), fill);
        let count = producer.publish_all(&mut *items, &mut *fill)?;
        // The iterator and `fill` are both dropped, even if the first drop panics.
        let panics = [items.drop_contained(), fill.drop_contained()];
        if let Some(panic) = panics.into_iter().flatten().next() {
            resume_unwind(Box::new(panic));
        }
        Ok(count)
    }
}

/// Calls the producer's closure. An error or a panic fails the graph. Returns the message of a
/// panic.
pub(crate) fn produce_contained<T, P>(
    control: &Control,
    producer: &mut P,
    produce: impl FnOnce(&mut P) -> Result<T, Fault>,
) -> Result<T, Option<String>> {
    let party = control.plan.producer_party();
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

/// Returns the result of a run whose stages and producer have ended. `has_handles` says whether the
/// user runs other stages by handles.
pub(crate) fn finish<E, L: Layout, T>(
    core: Owner<E, L>,
    produced: Result<T, Option<String>>,
    has_handles: bool,
) -> Result<Done<T>, Error> {
    if !has_handles {
        core.owners.end_run();
    }
    let report = core.report();
    let failure = core.control.status.failure();
    let party = core.control.plan.producer_party();
    let name = core.control.plan.name_of(party);
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

/// Puts the message of the caught panic into the failure. The failure was recorded without the
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
