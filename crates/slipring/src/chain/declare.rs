//! A chain is a value that holds declarations; each call on the chain adds a declaration.

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use super::scope::{Sequential, sealed};
use crate::base::fault::Outcome;
use crate::base::panics::Contained;
use crate::consumer::handle::Consumer;
use crate::consumer::handler::Handler;
use crate::consumer::local_worker::LocalWorkerPosition;
use crate::consumer::markers::{Each, sealed as markers};
use crate::consumer::position::Availability;
use crate::consumer::shard::ShardPosition;
use crate::errors::BuildError;
use crate::live::monitor::Monitor;
use crate::ring::build::RingBuilder;
use crate::ring::owner::Owner;
use crate::ring::plan::Plan;
use crate::ring::settings::Settings;
use crate::ring::slots::{Contiguous, Interleaved, Layout};
use crate::ring::spec::{Access, Delivery, StageList, StageSpec};
use crate::run::hooks::Hooks;
use crate::run::judge::Judges;
use crate::run::placement::Placement;
use crate::run::runner::{BoxedRunner, LoopRunner, MakePosition, run_by_each, run_by_one};
use crate::run::threads::Threads;

/// A ring and its stages, declared in one expression and then started: see [`ring`].
///
/// Stages come one after the other, except inside [`fan_out`](Chain::fan_out). Handlers are
/// closures that may borrow locals: `run` and `feed` return only when all stages have ended. A
/// handler returns nothing, or a `Result` with any error.
///
/// These methods start the chain: [`feed`](Chain::feed), [`run`](Chain::run),
/// [`run_shared`](Chain::run_shared), [`run_inline`](Chain::run_inline), [`spawn`](Chain::spawn),
/// [`spawn_shared`](Chain::spawn_shared).
#[must_use = "a chain does nothing before it is started: call `feed`, `run` or `spawn`"]
pub struct Chain<'env, E, L: Layout = Interleaved, P = Sequential> {
    pub(super) declared: Box<Declared<'env, E, L>>,
    /// Indices of the stages that the next declared stage depends on.
    pub(super) after: Vec<usize>,
    /// Inside a fan-out: indices of the last stages of the fan-out's branches.
    pub(super) ends: Vec<usize>,
    scope: PhantomData<P>,
}

/// The declarations of a chain so far.
pub(super) struct Declared<'env, E, L: Layout> {
    pub(super) ring: Builder<'env, E>,
    pub(super) stages: StageList,
    pub(super) hooks: Hooks<'env>,
    /// For each stage, in the order of declaration, a function that makes the stage's runners
    /// (`Runner`).
    pub(super) make_runners: Vec<Contained<MakeRunners<'env, E, L>>>,
    pub(super) monitors: Vec<Monitored<E, L>>,
    /// Number of threads that the stages share; `None` if each stage has threads of its own.
    pub(super) threads: Option<Threads>,
    /// Where the threads run; `None` if the system decides.
    pub(super) placement: Option<Contained<Box<dyn Placement + 'env>>>,
    /// Whether the last declared stage has a handler of batches.
    pub(super) takes_batches: bool,
    /// Where an option would stand that comes next.
    place: Place,
    /// Indices of the open taps; a tap is open until an updating stage is declared after the tap.
    open_taps: Vec<usize>,
    /// Identity of the chain: an address that no other chain has while this chain is alive.
    identity: Arc<()>,
}

/// A place of a chain, where an option of a stage may stand.
enum Place {
    /// The beginning of the chain, of a fan-out or of a branch: there is no stage yet.
    First,
    /// Behind the last declared stage.
    Stage,
    /// Behind a fan-out or a branch, which the text names.
    Behind(&'static str),
}

impl<E, L: Layout> Declared<'_, E, L> {
    /// Returns the stage that an option here is for, or the mistake: what `missing` returns, or
    /// that `option` follows a fan-out.
    pub(super) fn stage_of(
        &mut self,
        option: &str,
        missing: impl FnOnce() -> String,
    ) -> Result<&mut StageSpec, String> {
        match self.place {
            Place::First => Err(missing()),
            Place::Stage => self.stages.last_mut().ok_or_else(missing),
            Place::Behind(what) => Err(format!(
                "`{option}` follows {what}: put it inside, behind the stage that it is for"
            )),
        }
    }
}

type Builder<'env, E> = RingBuilder<E, Box<dyn FnMut() -> E + 'env>>;

/// Binds a monitor to a ring. The type of the monitor does not name the ring's, so the function is
/// chosen where both are known.
type BindMonitor<E, L> = fn(&Monitor, &Owner<E, L>) -> Result<(), BuildError>;

/// A monitor that the chain binds when the ring is built.
pub(super) struct Monitored<E, L: Layout> {
    monitor: Monitor,
    bind: BindMonitor<E, L>,
    bind_contiguous: BindMonitor<E, Contiguous>,
}

impl<E, L: Layout> Monitored<E, L> {
    pub(super) fn new(monitor: &Monitor) -> Self
    where
        E: Send,
    {
        let monitor = monitor.clone();
        Monitored { monitor, bind: Monitor::bind, bind_contiguous: Monitor::bind }
    }

    /// Binds the monitor to the chain's ring.
    pub(super) fn bind(&self, core: &Owner<E, L>) -> Result<(), BuildError> {
        (self.bind)(&self.monitor, core)
    }

    fn contiguous(self) -> Monitored<E, Contiguous> {
        let Monitored { monitor, bind_contiguous, .. } = self;
        Monitored { monitor, bind: bind_contiguous, bind_contiguous }
    }
}

/// The runners of one stage, or the panic of the user's code that makes their handlers.
pub(super) type Made<'env> = Result<Vec<BoxedRunner<'env>>, BuildError>;

/// A function that makes the runners of one stage from the ring, the stage's number, and the
/// closures that decide about its failures, when the ring is built.
pub(super) type MakeRunners<'env, E, L> =
    Box<dyn FnOnce(&Owner<E, L>, usize, Judges<'env, E, L>) -> Made<'env> + 'env>;

/// Begins a chain over a new ring of `capacity` slots (a power of two), whose events `factory`
/// makes once, before the start.
///
/// ```
/// let mut total = 0;
/// slipring::ring(1024, || 0u64)
///     .update("square", |value, _| *value *= *value)
///     .read("sum", |value, _| total += value)
///     .feed(1..=3, |slot, value| *slot = value)?;
/// assert_eq!(total, 14);
/// # Ok::<(), slipring::Error>(())
/// ```
#[doc(alias = "Disruptor")]
pub fn ring<'env, E: Send>(capacity: usize, factory: impl FnMut() -> E + 'env) -> Chain<'env, E> {
    let ring = RingBuilder::new(capacity, Box::new(factory) as Box<dyn FnMut() -> E + 'env>);
    Chain::new(Declared::new(ring, StageList::default(), Hooks::default(), Arc::new(())))
}

impl<'env, E, L: Layout> Declared<'env, E, L> {
    fn new(
        ring: Builder<'env, E>,
        stages: StageList,
        hooks: Hooks<'env>,
        identity: Arc<()>,
    ) -> Self {
        Declared {
            ring,
            stages,
            hooks,
            make_runners: Vec::new(),
            monitors: Vec::new(),
            threads: None,
            placement: None,
            takes_batches: false,
            place: Place::First,
            open_taps: Vec::new(),
            identity,
        }
    }
}

impl<'env, E, L: Layout> Chain<'env, E, L> {
    fn new(declared: Declared<'env, E, L>) -> Self {
        Chain {
            declared: Box::new(declared),
            after: Vec::new(),
            ends: Vec::new(),
            scope: PhantomData,
        }
    }
}

impl<'env, E: Send> Chain<'env, E, Interleaved, Sequential> {
    /// Stores events side by side, so that a batch is one slice, or two slices if the batch wraps
    /// around the ring's end. Must be called before the first stage is declared. The documentation
    /// of [`Contiguous`] states the cost of the contiguous layout.
    ///
    /// ```
    /// let mut sum = 0;
    /// slipring::ring(64, || 0u32)
    ///     .contiguous()
    ///     .read_batch("sum", |events, _first_seq| {
    ///         let (front, back) = events.as_slices();
    ///         sum += front.iter().sum::<u32>() + back.iter().sum::<u32>();
    ///     })
    ///     .feed(1..=4, |slot, i| *slot = i)?;
    /// assert_eq!(sum, 10);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn contiguous(self) -> Chain<'env, E, Contiguous> {
        let Declared { ring, mut stages, hooks, identity, monitors, threads, placement, .. } =
            *self.declared;
        if let Some(stage) = stages.specs().first() {
            let problem = format!(
                "`contiguous` must come before the first stage, and `{}` is declared already",
                stage.name
            );
            stages.reject(problem);
        }
        let mut declared = Declared::new(ring, stages, hooks, identity);
        (declared.threads, declared.placement) = (threads, placement);
        declared.monitors = monitors.into_iter().map(Monitored::contiguous).collect();
        Chain::new(declared)
    }
}

impl<'env, E, L: Layout, P> Chain<'env, E, L, P> {
    pub(super) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.declared.ring.settings
    }
}

impl<'env, E: Send + 'env, L: Layout, P: sealed::ChainScope> Chain<'env, E, L, P> {
    /// Calls a closure that declares stages. Each declared stage comes after the stages in `after`.
    /// `behind` says behind what an option would stand after the closure, in an error's text.
    pub(super) fn nested(
        mut declared: Box<Declared<'env, E, L>>,
        after: &[usize],
        behind: &'static str,
        declare: impl FnOnce(Self) -> Self,
    ) -> Self {
        let own = declared.identity.clone();
        declared.place = Place::First;
        let mut nested = declare(Chain {
            declared,
            after: after.to_vec(),
            ends: Vec::new(),
            scope: PhantomData,
        });
        if !Arc::ptr_eq(&own, &nested.declared.identity) {
            // The closure has returned a chain other than the one that it was given.
            nested
                .declared
                .stages
                .reject("the closure must give back the chain that it was given, not another one");
            (nested.after, nested.ends) = (after.to_vec(), Vec::new());
        }
        nested.declared.place = Place::Behind(behind);
        nested
    }

    /// Adds a stage. `make_runners` makes its runners when the ring is built.
    pub(super) fn declare(
        mut self,
        name: &str,
        access: Access,
        delivery: Delivery,
        make_runners: impl FnOnce(&Owner<E, L>, usize, Judges<'env, E, L>) -> Made<'env> + 'env,
    ) -> Self {
        let mut after = self.after.clone();
        if access == Access::Write {
            // An updating stage depends on the open taps, so the taps' readers release an event
            // before the stage changes the event.
            after.append(&mut self.declared.open_taps);
        }
        let stage = self.declared.stages.add(name, access, delivery, &after);
        self.declared.make_runners.push(Contained::new(Box::new(make_runners)));
        self.declared.takes_batches = false;
        self.declared.place = Place::Stage;
        if matches!(delivery, Delivery::Tap(_)) {
            self.declared.open_taps.push(stage);
        } else if P::SIDE_BY_SIDE {
            self.ends.push(stage);
        } else {
            self.after = vec![stage];
        }
        self
    }

    /// Adds a stage of one handler.
    pub(super) fn stage<H: Handler<E, L> + Send + 'env>(
        self,
        name: &str,
        access: Access,
        handler: H,
    ) -> Self {
        let mut chain = self.declare(name, access, Delivery::Each, move |core, stage, judges| {
            Ok(vec![run_by_one(core, stage, handler, judges)])
        });
        chain.declared.takes_batches = H::GATHERS;
        chain
    }

    /// Adds a stage whose handler gets the stage's handle and runs its own loop.
    pub(super) fn looping<A: markers::Access, R: Outcome + 'env>(
        self,
        name: &str,
        access: Access,
        run: impl FnOnce(&mut Consumer<E, A, Each, L>) -> R + Send + 'env,
    ) -> Self
    where
        Consumer<E, A, Each, L>: Send,
    {
        let mut chain = self.declare(name, access, Delivery::Each, move |core, stage, _| {
            let runner = LoopRunner::<E, A, L, _>::new(core.clone(), stage, run);
            Ok(vec![Box::new(runner) as BoxedRunner<'env>])
        });
        if let Some(spec) = chain.declared.stages.last_mut() {
            spec.policy.user_loop = true;
        }
        chain
    }

    pub(super) fn pool<H: Handler<E, L> + Send + 'env>(
        self,
        name: &str,
        access: Access,
        workers: usize,
        make: impl FnMut(usize) -> H + 'env,
    ) -> Self {
        self.several(name, access, Delivery::pool(workers), make, LocalWorkerPosition::new)
    }

    pub(super) fn shards<K: Hash, H: Handler<E, L> + Send + 'env>(
        mut self,
        name: &str,
        access: Access,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
        make: impl FnMut(usize) -> H + 'env,
    ) -> Self {
        let stage = self.declared.stages.specs().len();
        self.declared.ring.partition(stage, shards, key);
        self.several(name, access, Delivery::Shards(shards), make, ShardPosition::new)
    }

    /// Adds a stage of several handlers, each with a position and a thread of its own.
    fn several<H: Handler<E, L> + Send + 'env, S: Availability<E, L> + Send + 'env>(
        self,
        name: &str,
        access: Access,
        delivery: Delivery,
        make: impl FnMut(usize) -> H + 'env,
        position: MakePosition<E, L, S>,
    ) -> Self {
        self.declare(name, access, delivery, move |core, stage, judges| {
            run_by_each(core, stage, make, position, judges)
        })
    }
}

impl<E, L: Layout, P> fmt::Display for Chain<'_, E, L, P> {
    /// Writes the graph as declared so far, or the first mistake in the declarations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Declared { ring, stages, .. } = &*self.declared;
        let settings = &ring.settings;
        if let Some(problem) = stages.problem() {
            return writeln!(f, "not a graph: {problem}");
        }
        let specs = stages.specs().to_vec();
        let (capacity, wait) = (settings.capacity, &*settings.wait);
        match Plan::new(specs, capacity, false, wait, settings.producer_wait(), true) {
            Ok(plan) => write!(f, "ring of {capacity} slots ({}), {wait}\n{plan}", L::ALIAS),
            Err(error) => writeln!(f, "not a graph yet: {error}"),
        }
    }
}
