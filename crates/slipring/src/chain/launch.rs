//! Starting a chain on scoped threads, and bringing everything back: handlers' state, the report,
//! the first failure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use super::runner::{BoxedRunner, Delivery};
use super::{Chain, Maker, OnFaulted, OnStart, Parts};
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::base::sync::whole;
use crate::errors::Report;
use crate::errors::{BuildError, Cause, Error, ErrorKind, Failure};
use crate::producer::publish::FILL_PANIC;
use crate::producer::{HELD_PANIC, Producer, SharedProducer};
use crate::ring::build::build;
use crate::ring::control::Control;
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::policy::Marks;
use crate::ring::slots::Layout;

/// What a run that went well comes back with.
#[derive(Debug)]
#[non_exhaustive]
pub struct Done<T = ()> {
    /// What the producer's closure returned.
    pub value: T,
    /// What happened, per stage.
    pub report: Report,
}

/// A thread to be: its name, and who works on it.
pub(super) struct Seating<'env> {
    pub(super) name: String,
    pub(super) delivery: Delivery<'env>,
    pub(super) stage: usize,
}

/// Who works on which thread: its name, its first stage, its label if it has one, its runners.
type Groups<'env> = Vec<(String, usize, Option<String>, Vec<BoxedRunner<'env>>)>;

/// A chain that is built and not started.
pub(super) struct Built<'env, E, L: Layout> {
    pub(super) core: Owner<E, L>,
    pub(super) threads: Vec<Seating<'env>>,
    pub(super) hooks: Hooks<'env>,
}

/// The chain's own references to the user's hooks. They outlive the stages of a run, so that the
/// run is told if one panics when it goes.
pub(super) struct Hooks<'env> {
    pub(super) on_start: Option<OnStart<'env>>,
    on_faults: Option<OnFaulted<'env>>,
}

impl Hooks<'_> {
    /// Lets the hooks go; a panic of theirs ends the graph.
    pub(super) fn drop_contained(self, control: &Control) {
        let gone = [
            self.on_start.and_then(Contained::drop_contained),
            self.on_faults.and_then(Contained::drop_contained),
        ];
        for panic in gone.into_iter().flatten() {
            control.fail(control.producer_party(), None, Cause::Panic(panic));
        }
    }
}

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L> {
    /// Allocates everything and makes all handlers.
    pub(super) fn build(self, many_producers: bool) -> Result<Built<'env, E, L>, Error> {
        let Parts {
            mut settings,
            mut factory,
            specs,
            makers,
            partitioners,
            monitors,
            on_faults,
            on_start,
            problem,
            ..
        } = *self.parts;
        settings.many_producers = many_producers;
        let built = match problem {
            Some(problem) => Err(problem),
            None => build(settings, specs, partitioners, &mut *factory),
        };
        let dropped = factory.drop_contained();
        let core = built?;
        let mut groups = Groups::new();
        let bound = monitors.iter().try_for_each(|monitor| monitor.bind(&core));
        let seated = bound
            .and_then(|()| make_marks(&core))
            .and_then(|()| Self::position(&core, makers, &mut groups));
        if let Err(problem) = seated {
            // Taps and pools are bound one after the other, so readers and workers may have joined
            // by now, from a worker's factory for one. No stage will run, so they are told that it
            // is over.
            core.owners.end_run();
            core.control.halt();
            // Each on its own: what a handler captured may panic when it goes, and two panics at
            // once are an abort.
            groups
                .into_iter()
                .flat_map(|(.., runners)| runners)
                .for_each(|runner| drop(drop_contained(runner)));
            core.take_apart();
            return Err(problem.into());
        }
        let control = &core.control;
        if let Some(panic) = dropped {
            control.fail(control.producer_party(), None, Cause::Panic(panic));
        }
        let seating = |(name, stage, _, runners)| Seating {
            name,
            delivery: Delivery::new(runners, on_faults.clone()),
            stage,
        };
        let threads = groups.into_iter().map(seating).collect();
        Ok(Built { core, threads, hooks: Hooks { on_start, on_faults } })
    }

    /// Makes the handlers, and shares them out to threads.
    fn position(
        core: &Owner<E, L>,
        makers: Vec<Contained<Maker<'env, E, L>>>,
        groups: &mut Groups<'env>,
    ) -> Result<(), BuildError> {
        for (stage, maker) in makers.into_iter().enumerate() {
            let spec = &core.control.plan.stages[stage];
            for (worker, runner) in maker.into_inner()(core, stage)?.into_iter().enumerate() {
                let shared = groups
                    .iter_mut()
                    .find(|(_, _, thread, _)| thread.is_some() && *thread == spec.thread);
                match shared {
                    Some((.., runners)) => runners.push(runner),
                    None => {
                        let name = match (&spec.thread, spec.delivery) {
                            (Some(thread), _) => thread.clone(),
                            (None, crate::ring::spec::Delivery::Each) => spec.name.to_string(),
                            (None, _) => format!("{}-{worker}", spec.name),
                        };
                        groups.push((name, stage, spec.thread.clone(), vec![runner]));
                    }
                }
            }
        }
        Ok(())
    }

    /// Publishes every item of an iterator, from this thread, and comes back when all stages have
    /// handled all of them.
    ///
    /// # Errors
    /// The first failure: a handler's error or panic, the iterator's or `fill`'s panic, a deadline;
    /// or what is wrong with the chain.
    pub fn feed<I: IntoIterator>(
        self,
        items: I,
        fill: impl FnMut(&mut E, I::Item),
    ) -> Result<Done<u64>, Error> {
        let (items, fill) = (Contained::new(items), Contained::new(fill));
        self.run(|producer| {
            let (mut items, mut fill) = (Contained::new(items.into_inner().into_iter()), fill);
            let count = producer.publish_all(&mut *items, &mut *fill)?;
            // Both are let go, whatever the first one does.
            let gone = [items.drop_contained(), fill.drop_contained()];
            if let Some(panic) = gone.into_iter().flatten().next() {
                resume_unwind(Box::new(panic));
            }
            Ok(count)
        })
    }

    /// Starts the stages, calls `produce` on this thread, closes, and comes back when all stages
    /// have ended.
    ///
    /// # Errors
    /// As [`Chain::feed`], and `produce`'s own error.
    pub fn run<T>(
        self,
        produce: impl FnOnce(&mut Producer<E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        self.build(false)?.run(Producer::of_chain, produce, |producer| producer.core())
    }

    /// As [`Chain::run`], with a producer that can be cloned for other threads. The ring closes
    /// when `produce` has come back and the last clone is dropped; a clone that is kept longer, or
    /// handed out as the closure's value, keeps this call waiting, and only a
    /// [`deadline`](Chain::deadline) ends that.
    ///
    /// # Errors
    /// As [`Chain::run`].
    pub fn run_shared<T>(
        self,
        produce: impl FnOnce(&mut SharedProducer<E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        self.build(true)?.run(Producer::of_chain, produce, |producer| producer.core())
    }
}

/// Makes room for the marks of those stages that leave some.
fn make_marks<E, L: Layout>(core: &Core<E, L>) -> Result<(), BuildError> {
    for stage in &core.control.plan.stages {
        let Some(marks) = &stage.policy.marks else { continue };
        let capacity = core.control.plan.capacity;
        match marks.make(core.control.start, capacity) {
            Some(true) => {}
            None => {
                return Err(BuildError::Memory { capacity, bytes_per_slot: Marks::BYTES_PER_SLOT });
            }
            Some(false) => {
                let what = format!(
                    "the marks of `{}` are another stage's already; make some for each stage",
                    stage.name
                );
                return Err(BuildError::Misplaced { what });
            }
        }
    }
    Ok(())
}

/// A crew on its way to its thread. If the thread cannot be started the crew is still here, and
/// what is reported is the system's refusal, not that the crew was dropped with the thread's
/// closure.
#[derive(Clone)]
pub(super) struct Handed<'env>(Arc<Mutex<Option<Delivery<'env>>>>);

impl<'env> Handed<'env> {
    pub(super) fn new(delivery: Delivery<'env>) -> Self {
        Handed(Arc::new(Mutex::new(Some(delivery))))
    }

    /// Runs the crew on the present thread.
    pub(super) fn attend(self, name: &str, control: &Control, on_start: Option<OnStart<'env>>) {
        let delivery = whole(self.0.lock()).take();
        if let Some(delivery) = delivery {
            delivery.attend(control, || {
                if let Some(hook) = on_start {
                    hook(name);
                    // The last reference of a chain that was spawned may be this one.
                    if let Some(panic) = hook.drop_contained() {
                        resume_unwind(Box::new(panic));
                    }
                }
            });
        }
    }

    /// Lets the crew go whose thread the system refused.
    pub(super) fn refuse(self, control: &Control) {
        let delivery = whole(self.0.lock()).take();
        if let Some(delivery) = delivery {
            delivery.stop(control);
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
        let Built { core, threads, hooks } = self;
        let mut producer = start(&core);
        let produced = thread::scope(|scope| {
            for Seating { name, delivery, stage } in threads {
                let (core, on_start, delivery) =
                    (&core, hooks.on_start.clone(), Handed::new(delivery));
                let (thread, taken) = (thread::Builder::new().name(name.clone()), delivery.clone());
                let spawned = thread
                    .spawn_scoped(scope, move || taken.attend(&name, &core.control, on_start));
                if let Err(error) = spawned {
                    core.control.fail(stage, None, Cause::Thread(error));
                    delivery.refuse(&core.control);
                }
            }
            let produced = produce_contained(&core.control, &mut producer, produce.into_inner());
            if !core_of(&producer).same(&core) {
                // The closure swapped its producer for another ring's, so dropping it would not
                // close this one.
                core.control.fail(core.control.producer_party(), None, Cause::Dropped);
            }
            // It may be the last owner of that other ring, whose events are the user's.
            if let Some(panic) = drop_contained(producer) {
                core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
            }
            produced
        });
        hooks.drop_contained(&core.control);
        finish(core, produced)
    }
}

/// What the producer's closure came to: a value, or the message of its panic. An error or a panic
/// has ended the graph.
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

/// Everybody has ended: what came of it.
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
        drop_contained(value); // the user's too
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

/// A failure noted while the closure was still unwinding, with the message that came to light when
/// it was caught.
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

impl Error {
    /// Whether it is about building, before anything ran.
    pub fn is_build(&self) -> bool {
        matches!(self.kind(), ErrorKind::Build(_))
    }
}
