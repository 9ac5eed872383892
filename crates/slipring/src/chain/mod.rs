//! The chain front: stages on named threads, in one expression.
//!
//! Invariants
//! - I1: a stage that writes is declared only on the chain's own line, never inside a fan-out, so
//!   the soundness rule (plan::I1) holds by construction; the plan checks it again all the same.
//! - I2: nothing user code does wrong while a chain is put together is lost: the first mistake
//!   comes back when the chain is started.

mod handlers;
mod inline;
mod launch;
mod pipeline;
mod runner;
mod settings;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::Outcome;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::consumer::handle::{Consumer, Reader, Writer};
use crate::consumer::handler::Handler;
use crate::consumer::markers::Every;
use crate::consumer::position::Availability;
use crate::consumer::sequential::StagePosition;
use crate::consumer::shard::ShardPosition;
use crate::consumer::worker::WorkerPosition;
use crate::errors::BuildError;
use crate::live::monitor::Monitor;
use crate::live::pool::Pool;
use crate::live::tap::Tap;
use crate::observe::mirror::Mirror;
use crate::observe::words::Plain;
use crate::ring::core::Settings;
use crate::ring::events::{At, Events, EventsMut};
use crate::ring::owner::Owner;
use crate::ring::partition::{Partitioner, partitioner};
use crate::ring::plan::Plan;
use crate::ring::policy::Faulted;
use crate::ring::slots::{Contiguous, Interleaved, Layout};
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::wait::{HandleLearner, Wait};

pub use handlers::{ReadHandler, WriteHandler};
pub use inline::Inline;
pub use launch::Done;
pub use pipeline::{JoinError, Pipeline};

use handlers::{ReadBatch, ReadEach, ReadWith, WriteBatch, WriteEach, WriteWith};
use runner::{BoxedRunner, OwnLoop, Positioned};

/// Marks a [`Chain`] on its own line: each stage comes after all before it.
pub struct Line(());
/// Marks the stages of a fan-out: each comes after the same stages, beside the others.
pub struct Beside(());
/// Marks one branch of a fan-out: each stage comes after the one before it, beside the other
/// branches.
pub struct Branch(());

mod sealed {
    pub trait Place {
        const BESIDE: bool;
    }
    impl Place for super::Line {
        const BESIDE: bool = false;
    }
    impl Place for super::Beside {
        const BESIDE: bool = true;
    }
    impl Place for super::Branch {
        const BESIDE: bool = false;
    }
}

/// Where a stage that writes may stand: on the chain's own line, and not inside a fan-out.
#[diagnostic::on_unimplemented(
    message = "a stage that writes cannot stand beside other stages",
    label = "everything inside `fan_out` runs side by side on the same events, so it may only read",
    note = "put the writing stage before or after the `fan_out`"
)]
pub trait MayWrite {}
#[diagnostic::do_not_recommend]
impl MayWrite for Line {}

type Maker<'env, E, L> =
    Box<dyn FnOnce(&Owner<E, L>, usize) -> Result<Vec<BoxedRunner<'env>>, BuildError> + 'env>;
/// Makes one of the seats of a stage: the stage's number, the seat's, what its waits begin to learn
/// from.
type MakeSeat<E, L, S> = fn(Owner<E, L>, usize, usize, HandleLearner) -> S;
type OnFaulted<'env> = Contained<Arc<dyn Fn(&Faulted) + Send + Sync + 'env>>;
type OnStart<'env> = Contained<Arc<dyn Fn(&str) + Send + Sync + 'env>>;

/// What a chain is made of so far.
struct Parts<'env, E, L: Layout> {
    settings: Settings,
    factory: Contained<Box<dyn FnMut() -> E + 'env>>,
    specs: Vec<StageSpec>,
    makers: Vec<Contained<Maker<'env, E, L>>>,
    partitioners: Vec<(usize, Contained<Partitioner<E>>)>,
    /// Taps declared so far that no writing stage came after.
    taps: Vec<usize>,
    monitors: Vec<Monitor<E, L>>,
    on_faults: Option<OnFaulted<'env>>,
    on_start: Option<OnStart<'env>>,
    problem: Option<BuildError>,
    /// Identity of the chain. It is kept alive with the chain, so no other chain can have the same
    /// address meanwhile.
    identity: Arc<()>,
}

/// A ring and the stages over it, put together in one expression and then started: see [`ring`].
///
/// Stages come one after the other, except inside [`fan_out`](Chain::fan_out). Handlers are
/// closures that may borrow locals: `run` and `feed` come back only when all stages have ended. A
/// handler returns nothing, or a `Result` with any error.
///
/// The methods that start it: [`feed`](Chain::feed), [`run`](Chain::run),
/// [`run_shared`](Chain::run_shared), [`run_inline`](Chain::run_inline), [`spawn`](Chain::spawn),
/// [`spawn_shared`](Chain::spawn_shared).
#[must_use = "a chain does nothing before it is started: call `feed`, `run` or `spawn`"]
pub struct Chain<'env, E, L: Layout = Interleaved, P = Line> {
    parts: Box<Parts<'env, E, L>>,
    /// What the next stage comes after.
    base: Vec<usize>,
    /// Of a fan-out: the last stages of its branches.
    ends: Vec<usize>,
    place: PhantomData<P>,
}

/// A chain over a new ring of `capacity` slots (a power of two), whose events `factory` makes once,
/// before the start.
///
/// ```
/// let mut total = 0;
/// slipring::ring(1024, || 0u64)
///     .write("square", |value, _| *value *= *value)
///     .read("sum", |value, _| total += value)
///     .feed(1..=3, |slot, value| *slot = value)?;
/// assert_eq!(total, 14);
/// # Ok::<(), slipring::Error>(())
/// ```
#[doc(alias = "Disruptor")]
pub fn ring<'env, E: Send>(capacity: usize, factory: impl FnMut() -> E + 'env) -> Chain<'env, E> {
    Chain {
        parts: Box::new(Parts {
            settings: Settings::new(capacity),
            factory: Contained::new(Box::new(factory)),
            specs: Vec::new(),
            makers: Vec::new(),
            partitioners: Vec::new(),
            taps: Vec::new(),
            monitors: Vec::new(),
            on_faults: None,
            on_start: None,
            problem: None,
            identity: Arc::new(()),
        }),
        base: Vec::new(),
        ends: Vec::new(),
        place: PhantomData,
    }
}

impl<'env, E: Send> Chain<'env, E, Interleaved, Line> {
    /// Events side by side, stamps beside: batches can be had as slices. Comes before the first
    /// stage.
    pub fn contiguous(self) -> Chain<'env, E, Contiguous> {
        let Parts {
            settings,
            factory,
            specs,
            monitors,
            on_start,
            on_faults,
            mut problem,
            identity,
            ..
        } = *self.parts;
        if let Some(stage) = specs.first() {
            let what = format!(
                "`contiguous` must come before the first stage, and `{}` is declared already",
                stage.name
            );
            problem.get_or_insert(BuildError::Misplaced { what });
        }
        if !monitors.is_empty() {
            let what =
                "`contiguous` must come before `monitor`: a monitor is of one layout".to_owned();
            problem.get_or_insert(BuildError::Misplaced { what });
        }
        let parts = Box::new(Parts {
            settings,
            factory,
            specs: Vec::new(),
            makers: Vec::new(),
            partitioners: Vec::new(),
            taps: Vec::new(),
            monitors: Vec::new(),
            on_faults,
            on_start,
            problem,
            identity,
        });
        Chain { parts, base: Vec::new(), ends: Vec::new(), place: PhantomData }
    }
}

impl<'env, E: Send, L: Layout> Chain<'env, E, L, Line> {
    /// How stages wait for events and the producer for room, unless they say otherwise
    /// ([`Chain::stage_wait`], [`Chain::producer_wait`]). Default: [`Wait::ADAPTIVE`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.parts.settings.wait = Contained::new(wait);
        self
    }

    /// How producers wait for room. Default: as the stages do.
    pub fn producer_wait(mut self, wait: Wait) -> Self {
        self.parts.settings.producer_wait = Some(Contained::new(wait));
        self
    }

    /// Called for each failure that a stage survived by its policy, on the stage's thread. A panic
    /// in it ends the graph.
    pub fn on_faults(mut self, hook: impl Fn(&Faulted) + Send + Sync + 'env) -> Self {
        self.parts.on_faults = Some(Contained::new(Arc::new(hook)));
        self
    }

    /// Lets a monitor look at the chain while it runs. The producer tells how far it is, one more
    /// store for each publication.
    pub fn monitor(mut self, monitor: &Monitor<E, L>) -> Self {
        self.parts.settings.watched = true;
        self.parts.monitors.push(monitor.clone());
        self
    }

    /// Times one of so many events (rounded up to a power of two), from its publication until each
    /// stage lets it go. See [`StageReport::latency`](crate::StageReport::latency).
    pub fn sample_latency(mut self, every: u64) -> Self {
        self.parts.settings.sample = Some(every);
        self
    }

    /// The position of the first event. Default: 0. Positions wrap at 2^64.
    pub fn first_seq(mut self, seq: u64) -> Self {
        self.parts.settings.start = seq;
        self
    }

    /// Ends all of the library's waits this long after the start: the graph fails then, and names
    /// who was waiting. User code that does not come back is not interrupted.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.parts.settings.deadline = Some(after);
        self
    }

    /// Called on each thread before its first stage starts, with the thread's name: pin it, give it
    /// a priority, name it in a trace.
    pub fn on_thread_start(mut self, hook: impl Fn(&str) + Send + Sync + 'env) -> Self {
        self.parts.on_start = Some(Contained::new(Arc::new(hook)));
        self
    }
}

impl<'env, E: Send + 'env, L: Layout, P: sealed::Place> Chain<'env, E, L, P> {
    /// Lets a closure declare stages behind `base`.
    fn inside(
        parts: Box<Parts<'env, E, L>>,
        base: &[usize],
        declare: impl FnOnce(Self) -> Self,
    ) -> Self {
        let own = parts.identity.clone();
        let mut inside =
            declare(Chain { parts, base: base.to_vec(), ends: Vec::new(), place: PhantomData });
        if !Arc::ptr_eq(&own, &inside.parts.identity) {
            // Stages are known by number, and these numbers are another chain's.
            let what = "the closure must give back the chain that it was given, not another one"
                .to_owned();
            inside.parts.problem.get_or_insert(BuildError::Misplaced { what });
            (inside.base, inside.ends) = (base.to_vec(), Vec::new());
        }
        inside
    }

    fn declare(
        mut self,
        name: &str,
        access: Access,
        delivery: Delivery,
        maker: impl FnOnce(&Owner<E, L>, usize) -> Result<Vec<BoxedRunner<'env>>, BuildError> + 'env,
    ) -> Self {
        let stage = self.parts.specs.len();
        let mut after = self.base.clone();
        if access == Access::Write {
            // Whoever joins a tap before a stage that writes is done with an event before that
            // stage has it.
            after.append(&mut self.parts.taps);
        }
        self.parts.specs.push(StageSpec::new(name, access, delivery, &after));
        self.parts.makers.push(Contained::new(Box::new(maker)));
        if matches!(delivery, Delivery::Tap(_)) {
            self.parts.taps.push(stage);
        } else if P::BESIDE {
            self.ends.push(stage);
        } else {
            self.base = vec![stage];
        }
        self
    }

    fn one<H: Handler<E, L> + Send + 'env>(self, name: &str, access: Access, handler: H) -> Self {
        self.declare(name, access, Delivery::Each, move |core, stage| {
            let learned = core.control.learner_contained(stage);
            Ok(vec![Box::new(Positioned::new(
                StagePosition::new(core.clone(), stage, learned),
                handler,
            )) as BoxedRunner<'env>])
        })
    }

    fn pool<H: Handler<E, L> + Send + 'env>(
        self,
        name: &str,
        access: Access,
        workers: usize,
        make: impl FnMut(usize) -> H + 'env,
    ) -> Self {
        self.several(name, access, Delivery::pool(workers), make, WorkerPosition::new)
    }

    fn shards<K: Hash, H: Handler<E, L> + Send + 'env>(
        mut self,
        name: &str,
        access: Access,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
        make: impl FnMut(usize) -> H + 'env,
    ) -> Self {
        self.parts
            .partitioners
            .push((self.parts.specs.len(), Contained::new(partitioner(shards, key))));
        self.several(name, access, Delivery::Shards(shards), make, ShardPosition::new)
    }

    /// A stage of several handlers, each with a seat and a thread of its own.
    fn several<H: Handler<E, L> + Send + 'env, S: Availability<E, L> + Send + 'env>(
        self,
        name: &str,
        access: Access,
        delivery: Delivery,
        mut make: impl FnMut(usize) -> H + 'env,
        position: MakeSeat<E, L, S>,
    ) -> Self {
        let pool = name.to_owned();
        self.declare(name, access, delivery, move |core, stage| {
            let workers = delivery.len();
            let mut runners: Vec<BoxedRunner<'env>> = Vec::with_capacity(workers);
            let mut panicked = None;
            for worker in 0..workers {
                match catch_unwind(AssertUnwindSafe(|| make(worker))) {
                    Ok(handler) => {
                        let learned = core.control.learner_contained(stage);
                        runners.push(Box::new(Positioned::new(
                            position(core.clone(), stage, worker, learned),
                            handler,
                        )));
                    }
                    Err(panic) => {
                        panicked = Some(panic_message(panic));
                        break;
                    }
                }
            }
            let worker = runners.len();
            let gone = drop_contained(make);
            match panicked.or(gone) {
                None => Ok(runners),
                Some(panic) => {
                    runners.into_iter().for_each(|runner| drop(drop_contained(runner)));
                    Err(BuildError::WorkerFactory { stage: pool, worker, panic })
                }
            }
        })
    }

    /// A place where readers join and leave while the chain runs: see [`Tap`]. They see events as
    /// the stages before left them.
    ///
    /// The stages behind that write, and the producer, wait for those who joined; stages that only
    /// read go on beside them.
    #[doc(alias = "subscribe")]
    pub fn tap(self, tap: &Tap<E, L>) -> Self
    where
        E: Sync + 'env,
    {
        let taps = self
            .parts
            .specs
            .iter()
            .filter(|spec| matches!(spec.delivery, Delivery::Tap(_)))
            .count();
        let name = match tap.name() {
            Some(name) => name.to_owned(),
            None if taps == 0 => "tap".to_owned(),
            None => format!("tap-{}", taps + 1),
        };
        let tap = tap.clone();
        self.declare(&name, Access::Read, tap.delivery(), move |core, stage| {
            tap.bind(core, stage).map(|()| Vec::new())
        })
    }

    /// A stage whose handler reads every event.
    #[doc(alias = "EventHandler")]
    pub fn read<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&E, At) -> R + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.one(name, Access::Read, ReadEach::new(handler))
    }

    /// A stage that reads whole batches: the events that were there, up to a quarter of the ring,
    /// and the position of the first. They are released when the handler comes back.
    pub fn read_batch<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&Events<'_, E, L>, u64) -> R + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.one(name, Access::Read, ReadBatch::new(handler))
    }

    /// A stage with a life: started, told of batches, stopped. Takes the handler or `&mut` of it.
    pub fn read_with(self, name: &str, handler: impl ReadHandler<E> + Send + 'env) -> Self
    where
        E: Sync,
    {
        self.one(name, Access::Read, ReadWith(handler))
    }

    /// A pool: each event goes to one of `workers`, whose handlers `make` makes (called with 0, 1,
    /// ...). Whoever comes after sees sequence order.
    #[doc(alias = "WorkerPool")]
    pub fn read_pool<R: Outcome + 'env, H: FnMut(&E, At) -> R + Send + 'env>(
        self,
        name: &str,
        workers: usize,
        mut make: impl FnMut(usize) -> H + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.pool(name, Access::Read, workers, move |worker| ReadEach::new(make(worker)))
    }

    /// Lets workers join the pool declared last, while it works: see [`Pool`].
    #[allow(private_bounds)]
    pub fn open<A: crate::live::pool::AccessMarker + crate::consumer::markers::sealed::Access>(
        mut self,
        pool: &Pool<E, A, L>,
    ) -> Self
    where
        E: 'env,
    {
        match self.parts.specs.last_mut() {
            Some(StageSpec { delivery: Delivery::Pool { room, .. }, .. }) => {
                *room = pool.room();
                let pool = pool.clone();
                if let Some(make) = self.parts.makers.pop() {
                    let maker: Maker<'env, E, L> = Box::new(move |core, stage| {
                        pool.bind(core, stage).and_then(|()| make.into_inner()(core, stage))
                    });
                    self.parts.makers.push(Contained::new(maker));
                }
            }
            Some(StageSpec { name, .. }) => {
                let what = format!("`open` follows `{name}`, which is no pool");
                self.parts.problem.get_or_insert(BuildError::Misplaced { what });
            }
            None => {
                self.parts.problem.get_or_insert(BuildError::Misplaced {
                    what: "`open` must follow the pool that it opens".to_owned(),
                });
            }
        }
        self
    }

    /// A stage whose handler may change every event.
    pub fn write<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&mut E, At) -> R + Send + 'env,
    ) -> Self
    where
        P: MayWrite,
    {
        self.one(name, Access::Write, WriteEach::new(handler))
    }

    /// A stage that may change whole batches; see [`Chain::read_batch`].
    pub fn write_batch<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&mut EventsMut<'_, E, L>, u64) -> R + Send + 'env,
    ) -> Self
    where
        P: MayWrite,
    {
        self.one(name, Access::Write, WriteBatch::new(handler))
    }

    /// A writing stage with a life; see [`Chain::read_with`].
    pub fn write_with(self, name: &str, handler: impl WriteHandler<E> + Send + 'env) -> Self
    where
        P: MayWrite,
    {
        self.one(name, Access::Write, WriteWith(handler))
    }

    /// A pool whose workers may change events; see [`Chain::read_pool`].
    #[doc(alias = "WorkerPool")]
    pub fn write_pool<R: Outcome + 'env, H: FnMut(&mut E, At) -> R + Send + 'env>(
        self,
        name: &str,
        workers: usize,
        mut make: impl FnMut(usize) -> H + 'env,
    ) -> Self
    where
        P: MayWrite,
    {
        self.pool(name, Access::Write, workers, move |worker| WriteEach::new(make(worker)))
    }

    /// Shards: `shards` threads, each of which reads the events of its own keys, so that events
    /// with the same key are seen by the same handler, in sequence. `make` is called once for each
    /// shard, before the start. Whoever comes after sees sequence order again.
    ///
    /// `key` is called once for each event, by the last stage before that may write, or by the
    /// producer if there is none, when it is done with the event: keep it short. Which shard a key
    /// goes to is the same in every run of a build, and known to nobody else; keys are spread
    /// evenly, their events only if no key has most of them. A panic of `key` ends the graph. Costs
    /// four bytes a slot.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::Mutex;
    /// let books = Mutex::new(HashMap::new());
    /// slipring::ring(64, || ("", 0))
    ///     .read_shards("books", 3, |(symbol, _)| *symbol, |_shard| {
    ///         |(symbol, price): &(&'static str, i32), _| { books.lock().unwrap().insert(*symbol, *price); }
    ///     })
    ///     .feed([("A", 1), ("B", 7), ("A", 2)], |slot, order| *slot = order)?;
    /// assert_eq!(books.lock().unwrap()["A"], 2);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "partition")]
    pub fn read_shards<K: Hash, R: Outcome + 'env, H: FnMut(&E, At) -> R + Send + 'env>(
        self,
        name: &str,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
        mut make: impl FnMut(usize) -> H + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.shards(name, Access::Read, shards, key, move |shard| ReadEach::new(make(shard)))
    }

    /// Shards that may change events; see [`Chain::read_shards`].
    pub fn write_shards<K: Hash, R: Outcome + 'env, H: FnMut(&mut E, At) -> R + Send + 'env>(
        self,
        name: &str,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
        mut make: impl FnMut(usize) -> H + 'env,
    ) -> Self
    where
        P: MayWrite,
    {
        self.shards(name, Access::Write, shards, key, move |shard| WriteEach::new(make(shard)))
    }

    /// A stage that reads in a loop of its own: `run` gets the stage's handle on the stage's
    /// thread, and everything that a handle can do: early release within a batch
    /// ([`Batch::release_front`](crate::Batch::release_front)), late release after it
    /// ([`Batch::hold`](crate::Batch::hold)), waiting for something else meanwhile. It comes back
    /// when the handle says `Closed`; if it comes back earlier, the graph fails.
    ///
    /// ```
    /// let mut lines = Vec::new();
    /// slipring::ring(8, || 0u64)
    ///     .read_by("journal", |rx| {
    ///         while let Ok(mut batch) = rx.batch(4) {
    ///             lines.push(batch[0]);
    ///             batch.release_front(1); // the others are still held
    ///             lines.extend(batch.iter().copied());
    ///             batch.release();
    ///         }
    ///     })
    ///     .feed(0..20, |slot, i| *slot = i)?;
    /// assert_eq!(lines, (0..20).collect::<Vec<_>>());
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn read_by<R: Outcome + 'env>(
        self,
        name: &str,
        run: impl FnOnce(&mut Reader<E, L>) -> R + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.own_loop(name, Access::Read, run)
    }

    /// As [`Chain::read_by`], for a stage that may change events.
    pub fn write_by<R: Outcome + 'env>(
        self,
        name: &str,
        run: impl FnOnce(&mut Writer<E, L>) -> R + Send + 'env,
    ) -> Self
    where
        P: MayWrite,
    {
        self.own_loop(name, Access::Write, run)
    }

    fn own_loop<A: crate::consumer::markers::sealed::Access, R: Outcome + 'env>(
        self,
        name: &str,
        access: Access,
        run: impl FnOnce(&mut Consumer<E, A, Every, L>) -> R + Send + 'env,
    ) -> Self
    where
        Consumer<E, A, Every, L>: Send,
    {
        let mut declared = self.declare(name, access, Delivery::Each, move |core, stage| {
            Ok(vec![
                Box::new(OwnLoop::<E, A, L, _>::new(core.clone(), stage, run)) as BoxedRunner<'env>
            ])
        });
        if let Some(spec) = declared.parts.specs.last_mut() {
            spec.policy.own_loop = true;
        }
        declared
    }

    /// A stage that copies what `project` makes of each event into a mirror, for observers that
    /// hold nobody up: see [`Mirror`]. The stage itself is waited for as any other is, for as long
    /// as a copy takes. The mirror goes with the stage, whose end closes it. An event that the
    /// stage handles again ([`OnFault::retry`](crate::OnFault::retry)) is put again.
    pub fn observe<T: Plain>(
        self,
        name: &str,
        mut mirror: Mirror<T>,
        mut project: impl FnMut(&E) -> T + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.read(name, move |event, at| mirror.put(at.seq, &project(event)))
    }

    /// Stages side by side: each sees every event, at the same time as the others. What comes after
    /// the fan-out comes after all of them. They may only read; fan-outs nest.
    #[doc(alias = "FanOut")]
    pub fn fan_out(
        mut self,
        declare: impl FnOnce(Chain<'env, E, L, Beside>) -> Chain<'env, E, L, Beside>,
    ) -> Self {
        let Chain { parts, ends, .. } = Chain::inside(self.parts, &self.base, declare);
        self.parts = parts;
        if P::BESIDE {
            self.ends.extend(ends);
        } else if !ends.is_empty() {
            self.base = ends;
        }
        self
    }
}

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L, Beside> {
    /// Several stages one after the other, as one branch of this fan-out.
    pub fn branch(
        mut self,
        declare: impl FnOnce(Chain<'env, E, L, Branch>) -> Chain<'env, E, L, Branch>,
    ) -> Self {
        let Chain { parts, base, .. } = Chain::inside(self.parts, &self.base, declare);
        self.parts = parts;
        if base != self.base {
            self.ends.extend(base);
        }
        self
    }
}

impl<E, L: Layout, P> fmt::Display for Chain<'_, E, L, P> {
    /// The graph as declared so far, or what is wrong with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { capacity, wait, producer_wait, .. } = &self.parts.settings;
        if let Some(problem) = &self.parts.problem {
            return writeln!(f, "not a graph: {problem}");
        }
        match Plan::new(
            self.parts.specs.clone(),
            *capacity,
            false,
            wait,
            producer_wait.as_deref().unwrap_or(wait),
        ) {
            Ok(plan) => write!(f, "ring of {capacity} slots ({}), {}\n{plan}", L::ALIAS, **wait),
            Err(error) => writeln!(f, "not a graph yet: {error}"),
        }
    }
}
