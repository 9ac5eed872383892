//! The ring of a built graph ([`Ring`]), and the ring without a graph ([`unicast`]).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::name::Name;
use crate::base::sync::unmodelled::{Mutex, MutexGuard};
use crate::base::sync::whole;
use crate::consumer::handle::{
    Consumer, PoolReader, PoolUpdater, Reader, ShardReader, ShardUpdater, Updater,
};
use crate::consumer::markers::{Pooled, sealed::Access};
use crate::errors::{BindError, BuildError, Cause, Error, Report};
use crate::graph::key::{
    Key, PoolReaderKey, PoolUpdaterKey, ReaderKey, ShardReaderKey, ShardUpdaterKey, TapKey,
    UpdaterKey,
};
use crate::graph::stages::SharedStages;
use crate::live::monitor::Monitor;
use crate::live::pool::{AccessMarker, Pool};
use crate::live::tap::Tap;
use crate::producer::{Many, Producer, Single, sealed::Sharing};
use crate::ring::build::RingBuilder;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};
use crate::ring::spec::{self, Delivery, StageSpec};
use crate::run::placement::{Assigned, Bound, bind};
use crate::run::threads::SharedThreads;
use crate::wait::HandleLearner;

/// A built graph. It exchanges keys for handles, takes handlers for the remaining keys
/// ([`Ring::handlers`]), and shows its stages by `Display`.
///
/// Drop the ring after taking every handle. Once the ring of a [`shared`](crate::Graph::shared)
/// graph is dropped, a sole producer handle claims without a compare-and-swap. Dropping the ring
/// earlier ends the graph. If a key was not exchanged, the graph fails with [`Cause::Dropped`]; if
/// no producer was taken, the ring closes.
///
/// Example: [`Graph`](crate::Graph).
pub struct Ring<E, L: Layout = Interleaved, S = Single> {
    pub(super) core: Owner<E, L>,
    pub(super) stages: Arc<SharedStages>,
    taken: Mutex<Taken>,
    pub(super) threads: RingThreads,
    kind: PhantomData<S>,
}

/// The threads that will run the ring's stages.
pub(super) struct RingThreads {
    /// The threads that the stages with handlers share, if they share any.
    pub(super) shared: SharedThreads,
    /// Where the threads run, if the graph has a placement.
    pub(super) places: Option<Assigned>,
}

/// A record of the handles that were taken from a ring.
struct Taken {
    producer: bool,
    /// Indices of the stages whose keys have not been exchanged yet.
    unattached: Vec<usize>,
    /// Whether a key was exchanged for handles.
    lent_handles: bool,
}

impl<E, L: Layout> Ring<E, L, Single> {
    /// Takes the handle of the producer.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, String::new);
    /// let print = graph.reader("print");
    /// let ring = graph.build()?;
    /// let (mut tx, mut print) = (ring.producer(), ring.reader(print));
    /// tx.publish(|text| text.push_str("hello"))?;
    /// drop(tx); // closes the ring
    /// print.for_each(|text, _| assert_eq!(text, "hello"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the handle was taken already; [`Ring::try_producer`] returns `None` instead. A
    /// [`shared`](crate::Graph::shared) graph gives out several handles.
    pub fn producer(&self) -> Producer<E, L> {
        self.try_producer().expect(
            "this ring has one producer, and it was taken already; declare the graph `shared()` for several",
        )
    }

    /// Takes the handle of the producer, or returns `None` if the handle was taken already.
    ///
    /// ```
    /// let ring = slipring::Graph::new(8, || 0).build()?;
    /// let tx = ring.try_producer();
    /// assert!(tx.is_some() && ring.try_producer().is_none());
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn try_producer(&self) -> Option<Producer<E, L>> {
        let learned = self.core.control.learner(self.core.control.plan.producer_party());
        let taken = std::mem::replace(&mut self.taken().producer, true);
        (!taken).then(|| Producer::new(self.core.clone(), learned))
    }
}

impl<E, L: Layout> Ring<E, L, Many> {
    /// Makes the handle of one more producer.
    ///
    /// Dropping the last producer handle closes the ring, although this [`Ring`] still exists and
    /// could make another handle. Make or clone all handles before any thread drops its handle.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64).shared();
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (tx, mut sum) = (ring.producer(), ring.reader(sum));
    /// drop(ring); // every handle is taken: `tx` can be cloned
    /// std::thread::scope(|scope| {
    ///     for i in 1..=3 {
    ///         let mut tx = tx.clone();
    ///         scope.spawn(move || tx.publish(|slot| *slot = i).unwrap());
    ///     }
    ///     drop(tx);
    ///     let mut total = 0;
    ///     sum.for_each(|value, _| total += value).unwrap();
    ///     assert_eq!(total, 6);
    /// });
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn producer(&self) -> Producer<E, L, Many> {
        let learned = self.core.control.learner(self.core.control.plan.producer_party());
        self.taken().producer = true;
        Producer::new(self.core.clone(), learned)
    }
}

impl<E, L: Layout, S> Ring<E, L, S> {
    /// Makes the ring of a built graph from its `stages` and its `core`. `required` lists the
    /// stages whose keys must be exchanged for handles.
    pub(super) fn new(
        core: Owner<E, L>,
        stages: Arc<SharedStages>,
        required: Vec<usize>,
        threads: RingThreads,
    ) -> Self {
        core.control.membership.add_claimant();
        let taken = Taken { producer: false, unattached: required, lent_handles: false };
        let taken = Mutex::new(taken);
        Ring { core, stages, taken, threads, kind: PhantomData }
    }

    /// Binds the calling thread, until the result is dropped, to the place that the graph's
    /// [`placement`](crate::Graph::placement) chose for the thread of this name. The name is
    /// [`PRODUCER`](crate::stages::PRODUCER), or the name of a stage, worker or shard (`store-0`).
    /// In a graph without a placement, the call does nothing.
    ///
    /// Call this on your own threads that run handles. The library binds its own threads.
    ///
    /// Example: [`Graph::placement`](crate::Graph::placement).
    ///
    /// # Errors
    /// Fails if the graph has no thread of this name, or if the system refuses the binding.
    pub fn bind_thread(&self, thread: &str) -> Result<Option<Bound>, BindError> {
        bind(self.threads.places.as_ref(), thread)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        whole(self.taken.lock())
    }

    /// Takes the producer for a run of the handlers. Fails if the producer was taken, or if a stage
    /// has neither a handle nor a handler.
    pub(super) fn take_for_run(&self) -> Result<(), BuildError>
    where
        S: Sharing,
    {
        let mut taken = self.taken();
        let problem = if let Some(&stage) = taken.unattached.first() {
            let stage = self.core.control.plan.name_of(stage);
            format!(
                "stage `{stage}` has no handler: give its key to `Handlers::read` or the like, or \
                 exchange the key for a handle before `Ring::handlers`"
            )
        } else if self.core.control.status.is_closed() {
            "the ring is closed: all producers that were taken from it before were dropped; keep one \
             until `Handlers::run` or `Handlers::spawn` has taken its own"
                .to_owned()
        } else if std::mem::replace(&mut taken.producer, true) && !S::MANY {
            "the producer was taken from the ring before: `Handlers::run` lends the producer to its \
             closure, and `Handlers::spawn` returns it"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(BuildError::Declaration { problem })
    }

    /// Takes a key. Returns the index of the key's stage, and one learner for each handle of the
    /// stage.
    ///
    /// A user's wait strategy makes the learners, and may panic. The key is marked as exchanged
    /// only after that. If the strategy panics, the unwinding drops the unmarked key, which fails
    /// the graph.
    fn attach<A, C>(&self, key: Key<A, C>) -> (usize, Vec<HandleLearner>) {
        let (stage, handles) = key.of_graph(&self.stages);
        key.assert_lends_handles(&self.core.control.plan.stages[stage].thread);
        let learned = (0..handles).map(|_| self.core.control.learner(stage)).collect();
        self.exchange(key, stage);
        (stage, learned)
    }

    /// Returns whether the user runs stages of this ring by handles.
    pub(super) fn has_lent_handles(&self) -> bool {
        self.taken().lent_handles
    }

    /// Records that a stage now has handles or a handler.
    pub(super) fn exchange<A, C>(&self, key: Key<A, C>, stage: usize) {
        key.exchanged();
        self.taken().unattached.retain(|&other| other != stage);
    }

    /// Takes the key of a stage that has one handle. Returns the stage's index, and the handle's
    /// learner.
    fn attach_one<A, C>(&self, key: Key<A, C>) -> (usize, HandleLearner) {
        let (stage, learned) = self.attach(key);
        self.taken().lent_handles = true;
        (stage, learned.into_iter().next().unwrap_or_default())
    }

    /// Takes the key of a stage, and returns all of its handles. `handle` makes one from the ring,
    /// the stage's index, the handle's index, and a learner.
    fn attach_all<A, C, H>(
        &self,
        key: Key<A, C>,
        handle: impl Fn(Owner<E, L>, usize, usize, HandleLearner) -> H,
    ) -> Vec<H> {
        let (stage, learned) = self.attach(key);
        self.taken().lent_handles = true;
        learned
            .into_iter()
            .enumerate()
            .map(|(number, learned)| handle(self.core.clone(), stage, number, learned))
            .collect()
    }

    /// Exchanges the key of a reading stage for the stage's handle.
    ///
    /// Example: [`Ring::producer`](Ring::producer).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph, or if its stage needs a handler.
    pub fn reader(&self, key: ReaderKey) -> Reader<E, L> {
        let (stage, learned) = self.attach_one(key);
        Consumer::every(self.core.clone(), stage, learned)
    }

    /// Exchanges the key of an updating stage for the stage's handle.
    ///
    /// Example: [`Graph`](crate::Graph).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph, or if its stage needs a handler.
    pub fn updater(&self, key: UpdaterKey) -> Updater<E, L> {
        let (stage, learned) = self.attach_one(key);
        Consumer::every(self.core.clone(), stage, learned)
    }

    /// Exchanges the key of a reading pool for the handles of all its workers.
    ///
    /// Example: [`Graph::pool_updater`](crate::Graph::pool_updater).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph, or if its stage needs a handler.
    pub fn pool_readers(&self, key: PoolReaderKey) -> Vec<PoolReader<E, L>> {
        self.attach_all(key, Consumer::worker)
    }

    /// Exchanges the key of an updating pool for the handles of all its workers.
    ///
    /// Example: [`Graph::pool_updater`](crate::Graph::pool_updater).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph, or if its stage needs a handler.
    pub fn pool_updaters(&self, key: PoolUpdaterKey) -> Vec<PoolUpdater<E, L>> {
        self.attach_all(key, Consumer::worker)
    }

    /// Exchanges the key of a sharded reading stage for the handles of all its shards. The handles
    /// are in the order of the shards.
    ///
    /// Example: [`Graph::shard_reader`](crate::Graph::shard_reader).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph, or if its stage needs a handler.
    pub fn shard_readers(&self, key: ShardReaderKey) -> Vec<ShardReader<E, L>> {
        self.attach_all(key, Consumer::shard)
    }

    /// Exchanges the key of a sharded updating stage for the handles of all its shards. The handles
    /// are in the order of the shards.
    ///
    /// Example: [`Graph::shard_reader`](crate::Graph::shard_reader).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph, or if its stage needs a handler.
    pub fn shard_updaters(&self, key: ShardUpdaterKey) -> Vec<ShardUpdater<E, L>> {
        self.attach_all(key, Consumer::shard)
    }

    /// Exchanges the key of a tap for the tap itself; readers can subscribe from then on.
    ///
    /// Example: [`Graph::tap`](crate::Graph::tap).
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub fn tap(&self, key: TapKey) -> Tap<E, L> {
        let (stage, _) = self.attach(key);
        Tap::of(&self.core, stage)
    }

    /// Returns a handle of a pool, with which workers join while the graph runs. The pool's `room`
    /// ([`Key::room`]) limits their number.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64).threads(2);
    /// let double = graph.pool_updater("double", 1).room(2);
    /// let ring = graph.build()?;
    /// let pool = ring.pool(&double);
    /// let mut handlers = ring.handlers();
    /// handlers.update_pool(double, |_worker| |value, _| *value *= 2);
    /// handlers.run(|tx| {
    ///     let extra = pool.join()?;
    ///     tx.publish(|slot| *slot = 1)?;
    ///     drop(extra); // leaves again; the first worker goes on
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    #[allow(private_bounds)]
    pub fn pool<A: AccessMarker + Access>(&self, key: &Key<A, Pooled>) -> Pool<E, A, L> {
        Pool::of(&self.core, key.of_graph(&self.stages).0)
    }

    /// Ends the graph without draining the ring: every later call of a handle returns
    /// [`WaitError::Halted`](crate::errors::WaitError::Halted). The stages do not get the events
    /// that they have not seen.
    ///
    /// ```
    /// use slipring::errors::WaitError;
    /// let graph = slipring::Graph::new(8, || 0);
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (mut tx, mut sum) = (ring.producer(), ring.reader(sum));
    /// tx.publish(|slot| *slot = 1)?;
    /// ring.halt();
    /// assert!(matches!(sum.for_each(|_, _| ()), Err(WaitError::Halted)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn halt(&self) {
        self.core.control.halt();
    }

    /// Returns a monitor of this ring, which observes the ring and does not own it.
    ///
    /// If the graph has a single producer, the monitor knows the producer's position only if the
    /// graph was declared with [`Graph::publish_cursor`](crate::Graph::publish_cursor).
    ///
    /// Example: [`Graph::publish_cursor`](crate::Graph::publish_cursor).
    pub fn monitor(&self) -> Monitor
    where
        E: Send,
    {
        Monitor::of(&self.core)
    }

    /// Returns the counts so far, and the position of each stage. The call stops no thread, so
    /// positions may change during the call. The counts lag behind the positions, because handles
    /// flush their counts only now and then.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0);
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (mut tx, mut sum) = (ring.producer(), ring.reader(sum));
    /// for i in 0..3 { tx.publish(|slot| *slot = i)?; }
    /// tx.close();
    /// sum.for_each(|_, _| ())?;
    /// drop(sum); // flushes its counts
    /// assert_eq!(ring.report().stage("sum").unwrap().events, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(&self) -> Report {
        self.core.report()
    }

    /// Returns the names of the stages in the order of their declaration.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0);
    /// let first = graph.updater("first");
    /// let second = graph.reader("second").after(&first);
    /// let ring = graph.build()?;
    /// assert!(ring.stages().map(|name| name.as_str()).eq(["first", "second"]));
    /// # drop((first, second));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn stages(&self) -> impl Iterator<Item = &Name> {
        self.core.control.plan.stages.iter().map(|stage| &stage.name)
    }
}

impl<E, L: Layout, S> Drop for Ring<E, L, S> {
    fn drop(&mut self) {
        let taken = whole(self.taken.get_mut());
        if let Some(&stage) = taken.unattached.first() {
            self.core.control.fail(stage, None, Cause::Dropped);
        }
        if !taken.producer {
            self.core.control.close(self.core.control.start);
        }
        self.core.control.membership.remove_claimant();
    }
}

impl<E, L: Layout, S> fmt::Display for Ring<E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl<E, L: Layout, S> fmt::Debug for Ring<E, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Builds the simplest ring: one producer, one reader, no graph, and no thread started by the
/// library. `E` need not be `Sync`.
///
/// ```
/// let (mut tx, mut rx) = slipring::unicast(64, String::new)?;
/// std::thread::scope(|s| {
///     s.spawn(move || {
///         for word in ["to", "be"] { tx.publish(|slot| word.clone_into(slot)).unwrap(); }
///     }); // dropped here: closed
///     let mut text = String::new();
///     rx.for_each(|word, _| text += word).unwrap();
///     assert_eq!(text, "tobe");
/// });
/// # Ok::<(), slipring::Error>(())
/// ```
///
/// # Errors
/// - [`BuildError::Capacity`]: `capacity` is not a power of two.
/// - [`BuildError::MemoryShortage`]: the ring takes more memory than is available. To insist on it,
///   use a [`Graph`](crate::Graph).
/// - [`BuildError::Memory`]: the allocator has no memory for the ring.
/// - [`BuildError::Factory`]: `factory` panicked.
#[doc(alias = "spsc")]
pub fn unicast<E>(
    capacity: usize,
    factory: impl FnMut() -> E,
) -> Result<(Producer<E>, Reader<E>), Error> {
    let reader = StageSpec::new("reader", spec::Access::Read, Delivery::Each, &[]);
    let core: Owner<E, Interleaved> = RingBuilder::new(capacity, factory).build(vec![reader])?;
    let (producer, reader) =
        (core.control.learner(core.control.plan.producer_party()), core.control.learner(0));
    Ok((Producer::new(core.clone(), producer), Consumer::every(core, 0, reader)))
}
