//! The handlers of a built graph's stages, which the library runs.

use std::fmt;

use super::key::{
    Handled, Key, PoolReaderKey, PoolUpdaterKey, ReaderKey, ShardReaderKey, ShardUpdaterKey,
    UpdaterKey,
};
use super::ring::Ring;
use crate::base::fault::{Fault, Outcome};
use crate::base::name::PRODUCER;
use crate::base::panics::Contained;
use crate::consumer::handler::Handler;
use crate::consumer::local_worker::LocalWorkerPosition;
use crate::consumer::position::Availability;
use crate::consumer::shard::ShardPosition;
use crate::errors::{BuildError, Error};
use crate::observe::mirror::Mirror;
use crate::observe::words::Plain;
use crate::producer::{Producer, Single, sealed::Sharing};
use crate::ring::events::{At, Events, EventsMut};
use crate::ring::policy::{Faulted, OnFault};
use crate::ring::slots::{Interleaved, Layout};
use crate::run::Pipeline;
use crate::run::groups::{Groups, PlannedThread, Work};
use crate::run::handlers::{
    ReadBatch, ReadEach, ReadHandler, ReadWith, UpdateHandler, WriteBatch, WriteEach, WriteWith,
};
use crate::run::hooks::Hooks;
use crate::run::judge::{Failed, Judge, Judges};
use crate::run::launch::{Built, Done, feeding};
use crate::run::runner::{MakePosition, run_by_each, run_by_one};
use crate::run::threads::{Caller, SharedThreads, shared_thread_name};

/// The handlers of a built graph's stages. The library runs them on a thread for each stage, worker
/// and shard, or on shared threads ([`Graph::threads`](crate::Graph::threads)).
///
/// Handlers are closures that may borrow locals: [`run`](Handlers::run) and
/// [`feed`](Handlers::feed) return only when all stages with a handler here have ended. A handler
/// returns nothing, or a `Result` with any error; [`Key::on_error`] and [`Key::on_panic`] decide
/// what follows a failure.
///
/// If you took the handle of a stage from the [`Ring`] earlier, the stage runs on a thread of
/// yours, and may still run when [`run`](Handlers::run) or [`feed`](Handlers::feed) returns.
/// [`Done::report`](crate::reports::Done::report) then shows the stage's counts at that moment. If
/// the stage fails later, only the calls on its handle return the failure.
///
/// If the handlers are dropped and never run, the graph fails with
/// [`Cause::Dropped`](crate::errors::Cause::Dropped).
///
/// ```
/// use slipring::{Graph, OnFault};
/// let graph = Graph::new(64, || 0u64);
/// let check = graph.updater("check").on_error(OnFault::skip());
/// let totals: Vec<_> =
///     (0..3).map(|i| graph.reader(&format!("total-{i}")).after(&check)).collect();
/// let ring = graph.build()?;
/// let mut sums = [0; 3];
/// let mut handlers = ring.handlers();
/// handlers.update(check, |value, _| if *value == 2 { Err("bad") } else { Ok(*value *= 10) });
/// for (key, sum) in totals.into_iter().zip(&mut sums) {
///     handlers.read(key, |value, _| *sum += value);
/// }
/// let done = handlers.feed(1..=3, |slot, i| *slot = i)?;
/// assert_eq!(done.report.stage("check").unwrap().skipped, 1);
/// assert_eq!(sums, [10 + 2 + 30; 3]);
/// # Ok::<(), slipring::Error>(())
/// ```
#[must_use = "handlers run nothing before `run`, `feed` or `spawn`, and their drop ends the graph"]
pub struct Handlers<'env, E, L: Layout = Interleaved, S = Single> {
    // This field stands before `ring`, so that the runners are dropped first. The failure then
    // names a stage that has a handler.
    groups: Groups<'env>,
    hooks: Hooks<'env>,
    /// The closures that decide about failures, of stages that have no handler yet.
    judges: Vec<(usize, Contained<Judges<'env, E, L>>)>,
    /// The first problem with a handler.
    problem: Option<BuildError>,
    ring: Ring<E, L, S>,
}

impl<E, L: Layout, S> Ring<E, L, S> {
    /// Gives each remaining stage a handler. The library then runs these stages, on threads of
    /// their own or on shared threads ([`Graph::threads`](crate::Graph::threads)).
    ///
    /// Before this call, take the taps, pools and monitors, and the handles of the stages that run
    /// on threads of your own.
    ///
    /// Example: [`Handlers`].
    pub fn handlers<'env>(self) -> Handlers<'env, E, L, S> {
        Handlers {
            groups: Groups::default(),
            hooks: Hooks::default(),
            judges: Vec::new(),
            problem: None,
            ring: self,
        }
    }
}

/// Takes the closures that decide about the failures of `stage` out of the list.
fn take_judges<'env, E, L: Layout>(
    list: &mut Vec<(usize, Contained<Judges<'env, E, L>>)>,
    stage: usize,
) -> Judges<'env, E, L> {
    let found = list.iter().position(|(of, _)| *of == stage);
    found.map_or_else(Judges::default, |index| list.swap_remove(index).1.into_inner())
}

impl<'env, E, L: Layout, S> Handlers<'env, E, L, S> {
    /// Sets a hook for failures that a stage survives by its policy, as
    /// [`Chain::on_faults`](crate::Chain::on_faults) does.
    ///
    /// Example: [`Chain::on_faults`](crate::Chain::on_faults).
    pub fn on_faults(&mut self, hook: impl Fn(&Faulted) + Send + Sync + 'env) -> &mut Self {
        self.hooks.set_on_faults(hook);
        self
    }

    /// Sets a hook that each thread of the library calls with its own name before its first stage
    /// starts, as [`Chain::on_thread_start`](crate::Chain::on_thread_start) does.
    ///
    /// Example: [`Chain::on_thread_start`](crate::Chain::on_thread_start).
    pub fn on_thread_start(&mut self, hook: impl Fn(&str) + Send + Sync + 'env) -> &mut Self {
        self.hooks.set_on_start(hook);
        self
    }
}

impl<'env, E: Send + 'env, L: Layout, S> Handlers<'env, E, L, S> {
    /// Gives a handler to a stage that has a single handle.
    fn one<A, C, H: Handler<E, L> + Send + 'env>(
        &mut self,
        key: Key<A, C>,
        handler: H,
    ) -> &mut Self {
        // If the key belongs to another graph, the call panics and drops the handler, whose drop
        // may panic, too.
        let handler = Contained::new(handler);
        let (core, (stage, _)) = (&self.ring.core, key.of_graph(&self.ring.stages));
        let spec = &core.control.plan.stages[stage];
        if let Some(correction) = spec.policy.gathers_in_vain(H::GATHERS) {
            let problem = format!("`batch_within` is an option of `{}`, {correction}", spec.name);
            self.problem.get_or_insert(BuildError::Declaration { problem });
        }
        let judges = take_judges(&mut self.judges, stage);
        let runner = run_by_one(core, stage, handler.into_inner(), judges);
        self.groups.add(&core.control.plan, vec![runner]);
        self.ring.exchange(key, stage);
        self
    }

    /// Gives each worker or shard of a stage its handler.
    fn each<A, C, H: Handler<E, L> + Send + 'env, P: Availability<E, L> + Send + 'env>(
        &mut self,
        key: Key<A, C>,
        make: impl FnMut(usize) -> H,
        position: MakePosition<E, L, P>,
    ) -> &mut Self {
        let make = Contained::new(make); // as in `one`
        let (core, (stage, _)) = (&self.ring.core, key.of_graph(&self.ring.stages));
        let judges = take_judges(&mut self.judges, stage);
        match run_by_each(core, stage, make.into_inner(), position, judges) {
            Ok(runners) => {
                self.groups.add(&core.control.plan, runners);
                self.ring.exchange(key, stage);
            }
            // Dropping the key fails the graph.
            Err(problem) => drop(self.problem.get_or_insert(problem)),
        }
        self
    }

    /// Lets a closure decide what follows an error that the stage's handler returns, as
    /// [`Chain::on_error_with`](crate::Chain::on_error_with) does. Call this before the stage gets
    /// its handler, which takes the key.
    ///
    /// ```
    /// use slipring::{Graph, OnFault};
    /// let graph = Graph::new(64, || 0u64);
    /// let check = graph.updater("check");
    /// let mut dead = Vec::new();
    /// let mut handlers = graph.build()?.handlers();
    /// handlers.on_error_with(&check, |failed| {
    ///     dead.extend(failed.event().copied());
    ///     OnFault::skip()
    /// });
    /// handlers.update(check, |value, _| if *value == 2 { Err("two") } else { Ok(()) });
    /// handlers.feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(dead, [2]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    #[allow(private_bounds)]
    pub fn on_error_with<A, C: Handled>(
        &mut self,
        key: &Key<A, C>,
        decide: impl FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env,
    ) -> &mut Self {
        self.judge(key, decide, |judges, judge| judges.on_error = Some(judge))
    }

    /// Lets a closure decide what follows a panic of the stage's handler, as
    /// [`Chain::on_panic_with`](crate::Chain::on_panic_with) does. Call this before the stage gets
    /// its handler, which takes the key.
    ///
    /// Example: [`Handlers::on_error_with`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    #[allow(private_bounds)]
    pub fn on_panic_with<A, C: Handled>(
        &mut self,
        key: &Key<A, C>,
        decide: impl FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env,
    ) -> &mut Self {
        self.judge(key, decide, |judges, judge| judges.on_panic = Some(judge))
    }

    fn judge<A, C>(
        &mut self,
        key: &Key<A, C>,
        decide: impl FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env,
        set: impl FnOnce(&mut Judges<'env, E, L>, Judge<'env, E, L>),
    ) -> &mut Self {
        let decide = Contained::new(decide); // as in `one`
        let (stage, _) = key.of_graph(&self.ring.stages);
        let mut judges = take_judges(&mut self.judges, stage);
        set(&mut judges, Judge::new(decide.into_inner()));
        self.judges.push((stage, Contained::new(judges)));
        self
    }

    /// Gives a reading stage a handler that is called for each event.
    ///
    /// Example: [`Handlers`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn read<R: Outcome + 'env>(
        &mut self,
        key: ReaderKey,
        handler: impl FnMut(&E, At) -> R + Send + 'env,
    ) -> &mut Self {
        self.one(key, ReadEach::new(handler))
    }

    /// Gives an updating stage a handler that is called for each event, and may change it.
    ///
    /// Example: [`Handlers`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn update<R: Outcome + 'env>(
        &mut self,
        key: UpdaterKey,
        handler: impl FnMut(&mut E, At) -> R + Send + 'env,
    ) -> &mut Self {
        self.one(key, WriteEach::new(handler))
    }

    /// Gives a reading stage a handler of whole batches. The handler also gets the position of each
    /// batch's first event.
    ///
    /// Example: [`Chain::read_batch`](crate::Chain::read_batch).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn read_batch<R: Outcome + 'env>(
        &mut self,
        key: ReaderKey,
        handler: impl FnMut(&Events<'_, E, L>, u64) -> R + Send + 'env,
    ) -> &mut Self {
        self.one(key, ReadBatch::new(handler))
    }

    /// Gives an updating stage a handler of whole batches, which may change them.
    ///
    /// Example: [`Chain::read_batch`](crate::Chain::read_batch).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn update_batch<R: Outcome + 'env>(
        &mut self,
        key: UpdaterKey,
        handler: impl FnMut(&mut EventsMut<'_, E, L>, u64) -> R + Send + 'env,
    ) -> &mut Self {
        self.one(key, WriteBatch::new(handler))
    }

    /// Gives a reading stage a [`ReadHandler`], or `&mut` of one.
    ///
    /// Example: [`ReadHandler`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn read_with(
        &mut self,
        key: ReaderKey,
        handler: impl ReadHandler<E> + Send + 'env,
    ) -> &mut Self {
        self.one(key, ReadWith(handler))
    }

    /// Gives an updating stage a [`UpdateHandler`], or `&mut` of one.
    ///
    /// Example: [`UpdateHandler`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn update_with(
        &mut self,
        key: UpdaterKey,
        handler: impl UpdateHandler<E> + Send + 'env,
    ) -> &mut Self {
        self.one(key, WriteWith(handler))
    }

    /// Lets a reading stage copy a value of each event into a mirror, as
    /// [`Chain::observe`](crate::Chain::observe) does.
    ///
    /// Example: [`Chain::observe`](crate::Chain::observe).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn observe<T: Plain>(
        &mut self,
        key: ReaderKey,
        mirror: Mirror<T>,
        project: impl FnMut(&E) -> T + Send + 'env,
    ) -> &mut Self {
        self.one(key, ReadEach::new(mirror.put_each(project)))
    }

    /// Gives each worker of a reading pool a handler. During this call, `make` runs once for each
    /// worker, with the worker's number, counted from 0. If `make` panics, the start of the graph
    /// fails with that panic's message.
    ///
    /// Example: [`Handlers::update_pool`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn read_pool<R: Outcome + 'env, H: FnMut(&E, At) -> R + Send + 'env>(
        &mut self,
        key: PoolReaderKey,
        mut make: impl FnMut(usize) -> H,
    ) -> &mut Self {
        self.each(key, move |worker| ReadEach::new(make(worker)), LocalWorkerPosition::new)
    }

    /// Gives each worker of an updating pool a handler, as [`Handlers::read_pool`] does.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64).threads(2);
    /// let square = graph.pool_updater("square", 3);
    /// let sum = graph.reader("sum").after(&square);
    /// let mut total = 0;
    /// let mut handlers = graph.build()?.handlers();
    /// handlers.update_pool(square, |_worker| |value, _| *value *= *value);
    /// handlers.read(sum, |value, _| total += value);
    /// handlers.feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(total, 14);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn update_pool<R: Outcome + 'env, H: FnMut(&mut E, At) -> R + Send + 'env>(
        &mut self,
        key: PoolUpdaterKey,
        mut make: impl FnMut(usize) -> H,
    ) -> &mut Self {
        self.each(key, move |worker| WriteEach::new(make(worker)), LocalWorkerPosition::new)
    }

    /// Gives each shard of a reading stage a handler. During this call, `make` runs once for each
    /// shard, with the shard's number, counted from 0. If `make` panics, the start of the graph
    /// fails with that panic's message.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// let graph = slipring::Graph::new(64, || 0u64).threads(2);
    /// let odd = graph.shard_reader("by parity", 2, |value| value % 2);
    /// let count = AtomicU64::new(0);
    /// let mut handlers = graph.build()?.handlers();
    /// handlers.read_shards(odd, |_shard| |_, _| _ = count.fetch_add(1, Relaxed));
    /// handlers.feed(0..10, |slot, i| *slot = i)?;
    /// assert_eq!(count.into_inner(), 10);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn read_shards<R: Outcome + 'env, H: FnMut(&E, At) -> R + Send + 'env>(
        &mut self,
        key: ShardReaderKey,
        mut make: impl FnMut(usize) -> H,
    ) -> &mut Self {
        self.each(key, move |shard| ReadEach::new(make(shard)), ShardPosition::new)
    }

    /// Gives each shard of an updating stage a handler, as [`Handlers::read_shards`] does.
    ///
    /// Example: [`Handlers::read_shards`].
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn update_shards<R: Outcome + 'env, H: FnMut(&mut E, At) -> R + Send + 'env>(
        &mut self,
        key: ShardUpdaterKey,
        mut make: impl FnMut(usize) -> H,
    ) -> &mut Self {
        self.each(key, move |shard| WriteEach::new(make(shard)), ShardPosition::new)
    }
}

#[allow(private_bounds)]
impl<'env, E: Send + 'env, L: Layout, S: Sharing> Handlers<'env, E, L, S> {
    /// Starts the stages, calls `produce` with the producer on this thread, and closes the ring.
    /// Returns when all stages with a handler have ended.
    ///
    /// In a [`shared`](crate::Graph::shared) graph the ring closes when `produce` has returned and
    /// the last producer handle is dropped. A producer handle that was taken from the ring before
    /// counts, too: while a local variable or a handler of this graph owns such a handle, `run`
    /// waits until the graph's [`deadline`](crate::Graph::deadline), or for ever.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64);
    /// let sum = graph.reader("sum");
    /// let mut total = 0;
    /// let mut handlers = graph.build()?.handlers();
    /// handlers.read(sum, |value, _| total += value);
    /// let done = handlers.run(|tx| {
    ///     for i in 1..=3 { tx.publish(|slot| *slot = i)?; }
    ///     Ok("all sent")
    /// })?;
    /// assert_eq!((done.value, total), ("all sent", 6));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): a stage has no handler, a `make`
    ///   panicked, the producer was taken from the ring before, or all producers were dropped.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the graph's first failure: an
    ///   error or panic of a handler or of `produce`, or a passed deadline. A graph that had failed
    ///   before the call, for instance because a key was dropped, returns that earlier failure.
    /// - [`ErrorKind::EventDrop`](crate::errors::ErrorKind::EventDrop): the run has ended well, and
    ///   then the drop of an event panicked.
    ///
    /// If the stages cannot start, the call halts the graph.
    pub fn run<T>(
        self,
        produce: impl FnOnce(&mut Producer<E, L, S>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        let produce = Contained::new(produce);
        let (built, producer) = self.prepare(Caller::Helps)?;
        built.run(producer.into_inner(), produce)
    }

    /// Publishes every item of an iterator from this thread; `fill` writes an item into a slot.
    /// Returns when all stages with a handler have ended. [`Done::value`] is the number of items.
    ///
    /// Example: [`Handlers`].
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the stages cannot start, as for
    ///   [`Handlers::run`].
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the graph's first failure: an
    ///   error or panic of a handler, a panic of the iterator or of `fill`, or a passed deadline.
    /// - [`ErrorKind::EventDrop`](crate::errors::ErrorKind::EventDrop): the run has ended well, and
    ///   then the drop of an event panicked.
    pub fn feed<I: IntoIterator>(
        self,
        items: I,
        fill: impl FnMut(&mut E, I::Item),
    ) -> Result<Done<u64>, Error> {
        self.run(feeding(items, fill))
    }

    /// Checks that every stage can run, and puts the stages on their threads.
    #[allow(clippy::type_complexity)]
    fn prepare(
        self,
        caller: Caller,
    ) -> Result<(Built<'env, E, L>, Contained<Producer<E, L, S>>), Error> {
        let Handlers { groups, mut hooks, judges: _, problem, ring } = self;
        let core = ring.core.clone();
        let ready = match (problem, core.control.status.failure()) {
            (Some(problem), _) => Err(problem.into()),
            // A key was dropped, or the user dropped a handle before the end.
            (None, Some(failure)) => Err(Error::failed(failure, core.report())),
            (None, None) => ring.take_for_run().map_err(Error::from),
        };
        if let Err(error) = ready {
            // Handles of other stages and of producers may have been taken before. The halt makes
            // their calls return.
            core.control.halt();
            drop((groups, ring));
            hooks.drop_contained(&core.control);
            core.take_apart();
            return Err(error);
        }
        let producer = Contained::new(Producer::of_run(&core));
        let planned = ring.threads.shared;
        let shared = match caller {
            Caller::Helps => planned,
            Caller::Leaves => SharedThreads { started: planned.count(), caller: false },
        };
        hooks.places = ring.threads.places.clone();
        let has_handles = ring.has_lent_handles();
        drop(ring); // A sole producer claims without a compare-and-swap from now on.
        let mut built = Built::new(core, groups, shared, hooks);
        // The placement expected the calling thread to be the last of the shared threads. A started
        // thread runs instead, and gets the place that was meant for the calling thread.
        if shared.started > planned.started {
            let name = shared_thread_name(planned.started);
            let mut threads = built.threads.iter_mut();
            let stands_in =
                |of: &&mut PlannedThread<'_>| matches!(of.work, Work::Shared(_)) && of.name == name;
            if let Some(thread) = threads.find(stands_in) {
                PRODUCER.clone_into(&mut thread.place);
            }
        }
        Ok((Built { has_handles, ..built }, producer))
    }
}

#[allow(private_bounds)]
impl<E: Send + 'static, L: Layout, S: Sharing> Handlers<'static, E, L, S> {
    /// Starts the stages on threads that outlive this call. Publish through the producer, close the
    /// producer, then join the pipeline.
    ///
    /// If a graph has a placement and shared threads, the last shared thread runs at the producer's
    /// place: when the placement was computed, the library still expected the calling thread to
    /// publish and to run stages.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64).threads(2);
    /// let print = graph.reader("print");
    /// let mut handlers = graph.build()?.handlers();
    /// handlers.read(print, |value, _| println!("{value}"));
    /// let (mut tx, pipeline) = handlers.spawn()?;
    /// for i in 0..3 { tx.publish(|slot| *slot = i)?; }
    /// tx.close();
    /// assert_eq!(pipeline.join()?.stage("print").unwrap().events, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): a stage has no handler, a `make`
    ///   panicked, the producer was taken from the ring before, or all producers were dropped.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the graph had failed before the
    ///   call, or the system refuses to start a thread.
    pub fn spawn(self) -> Result<(Producer<E, L, S>, Pipeline), Error> {
        let (built, producer) = self.prepare(Caller::Leaves)?;
        let pipeline = built.spawn()?;
        Ok((producer.into_inner(), pipeline))
    }
}

impl<E, L: Layout, S> fmt::Debug for Handlers<'_, E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handlers").field(&self.ring).finish()
    }
}
