//! The graph front: shapes known only at run time, handles by key, threads of the user's own.
//!
//! Invariants
//! - I1: a key exchanges once, for the handle of its own stage in its own graph.
//! - I2: a stage whose key or ring goes before anybody attached fails the graph: it could never let
//!   go of an event.

use std::cell::RefCell;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::base::name::Name;
use crate::base::panics::Contained;
use crate::base::sync::whole;
use crate::consumer::handle::{
    Consumer, PoolReader, PoolWriter, Reader, ShardReader, ShardWriter, Writer,
};
use crate::consumer::markers::{Every, Joined, Reading, Sharded, Shared, Writing};
use crate::errors::Report;
use crate::errors::{BuildError, Cause, Error};
use crate::live::monitor::Monitor;
use crate::live::tap::Tap;
use crate::producer::{Many, Producer, Single};
use crate::ring::build::build;
use crate::ring::core::Settings;
use crate::ring::owner::Owner;
use crate::ring::partition::{Partitioner, partitioner};
use crate::ring::slots::{Contiguous, Interleaved, Layout};
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::wait::{HandleLearner, Wait};

/// What the keys of a graph and the graph itself share until it is built, and after.
struct Draft {
    specs: Mutex<Drawing>,
}

#[derive(Default)]
struct Drawing {
    stages: Vec<StageSpec>,
    abandoned: Vec<usize>,
    problem: Option<BuildError>,
    /// Its stages were taken to be built.
    sealed: bool,
    /// Once built: ends the graph if a stage can never be attached to.
    built: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl Draft {
    fn lock(&self) -> MutexGuard<'_, Drawing> {
        whole(self.specs.lock())
    }
}

/// A graph of stages being declared; [`Graph::build`] makes it a [`Ring`].
///
/// Every stage comes after the stages it is told to with `after`, or directly after the producer. A
/// stage that may write must come before or after every other one.
///
/// ```
/// let graph = slipring::Graph::new(64, || 0u64);
/// let double = graph.writer("double");
/// let print = graph.reader("print").after(&double);
/// let sum = graph.reader("sum").after(&double);
/// let ring = graph.build()?;
/// println!("{ring}");
///
/// let (mut tx, mut double, mut print, mut sum) = (ring.producer(), ring.writer(double), ring.reader(print), ring.reader(sum));
/// for i in 0..10 { tx.publish(|slot| *slot = i)?; }
/// tx.close();
/// let mut total = 0;
/// double.for_each(|value, _| *value *= 2)?;
/// print.for_each(|value, at| println!("{}: {value}", at.seq))?;
/// sum.for_each(|value, _| total += value)?;
/// assert_eq!(total, 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Graph<E, L: Layout = Interleaved, S = Single> {
    draft: Arc<Draft>,
    settings: Settings,
    factory: Contained<Box<dyn FnMut() -> E>>,
    partitioners: RefCell<Vec<(usize, Contained<Partitioner<E>>)>>,
    kind: PhantomData<(L, S)>,
}

/// A key for the handle of one stage: what a [`Graph`] gives out, and a [`Ring`] takes back. Not
/// `Clone`: one stage, one handle.
#[must_use = "nobody can attach to a stage whose key is gone"]
pub struct Key<A, C> {
    draft: Arc<Draft>,
    stage: usize,
    workers: usize,
    exchanged: bool,
    kind: PhantomData<(A, C)>,
}

/// The key of a stage that reads.
pub type ReaderKey = Key<Reading, Every>;
/// The key of a stage that may write.
pub type WriterKey = Key<Writing, Every>;
/// The key of a tap.
pub type TapKey = Key<Reading, Joined>;
/// The key of shards that read.
pub type ShardReaderKey = Key<Reading, Sharded>;
/// The key of shards that may write.
pub type ShardWriterKey = Key<Writing, Sharded>;
/// The key of a pool that reads.
pub type PoolReaderKey = Key<Reading, Shared>;
/// The key of a pool that may write.
pub type PoolWriterKey = Key<Writing, Shared>;

impl<E: 'static> Graph<E> {
    /// A graph over a ring of `capacity` slots (a power of two), whose events `factory` makes. One
    /// producer, stamps inside the slots.
    pub fn new(capacity: usize, factory: impl FnMut() -> E + 'static) -> Graph<E> {
        Graph {
            draft: Arc::new(Draft { specs: Mutex::default() }),
            settings: Settings::new(capacity),
            factory: Contained::new(Box::new(factory)),
            partitioners: RefCell::default(),
            kind: PhantomData,
        }
    }
}

impl<E, L: Layout, S> Graph<E, L, S> {
    /// Events side by side, so that batches can be had as slices. See [`Contiguous`] for what it
    /// changes besides.
    pub fn contiguous(self) -> Graph<E, Contiguous, S> {
        Graph {
            draft: self.draft,
            settings: self.settings,
            factory: self.factory,
            partitioners: self.partitioners,
            kind: PhantomData,
        }
    }

    /// Many producers: [`Ring::producer`] can be called often, and its handles can be cloned.
    ///
    /// Claiming is a compare-and-swap then, unless a handle is alone: no other is alive, and the
    /// [`Ring`], which could make one, is dropped.
    pub fn shared(mut self) -> Graph<E, L, Many> {
        self.settings.many_producers = true;
        Graph {
            draft: self.draft,
            settings: self.settings,
            factory: self.factory,
            partitioners: self.partitioners,
            kind: PhantomData,
        }
    }

    /// How stages wait for events and producers for room, unless they say otherwise ([`Key::wait`],
    /// [`Graph::producer_wait`]). Default: [`Wait::ADAPTIVE`].
    pub fn wait(mut self, wait: Wait) -> Self {
        self.settings.wait = Contained::new(wait);
        self
    }

    /// How producers wait for room. Default: as the stages do.
    pub fn producer_wait(mut self, wait: Wait) -> Self {
        self.settings.producer_wait = Some(Contained::new(wait));
        self
    }

    /// The position of the first event. Default: 0. Positions wrap at 2^64.
    pub fn first_seq(mut self, seq: u64) -> Self {
        self.settings.start = seq;
        self
    }

    /// Ends all of the library's waits this long after the build: the graph fails then, and names
    /// who was waiting. No task is woken for it; one that is polled later is told.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.settings.deadline = Some(after);
        self
    }

    /// Has a single producer tell how far it is, one more store for each publication, so that
    /// reports know lags and free slots exactly.
    pub fn publish_cursor(mut self) -> Self {
        self.settings.watched = true;
        self
    }

    /// Times one of so many events (rounded up to a power of two), from its publication until each
    /// stage lets it go. See [`StageReport::latency`](crate::StageReport::latency).
    pub fn sample_latency(mut self, every: u64) -> Self {
        self.settings.sample = Some(every);
        self
    }

    /// Declares a stage that may change every event.
    pub fn writer(&self, name: &str) -> WriterKey
    where
        E: Send,
    {
        self.declare(name, Access::Write, Delivery::Each)
    }

    /// Declares a stage that reads every event.
    pub fn reader(&self, name: &str) -> ReaderKey
    where
        E: Send + Sync,
    {
        self.declare(name, Access::Read, Delivery::Each)
    }

    /// Declares a pool: each event goes to one of `workers`, which may change it. Whoever comes
    /// after sees sequence order.
    #[doc(alias = "WorkerPool")]
    pub fn pool_writer(&self, name: &str, workers: usize) -> PoolWriterKey
    where
        E: Send,
    {
        self.declare(name, Access::Write, Delivery::pool(workers))
    }

    /// Declares a pool whose workers only read.
    #[doc(alias = "WorkerPool")]
    pub fn pool_reader(&self, name: &str, workers: usize) -> PoolReaderKey
    where
        E: Send + Sync,
    {
        self.declare(name, Access::Read, Delivery::pool(workers))
    }

    /// Declares shards: each event goes to one of `shards`, by its key, so that each key's events
    /// are seen in sequence. Whoever comes after sees sequence order. See
    /// [`Chain::read_shards`](crate::Chain::read_shards) on the key.
    pub fn shard_reader<K: Hash>(
        &self,
        name: &str,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
    ) -> ShardReaderKey
    where
        E: Send + Sync,
    {
        self.declare_shards(name, Access::Read, shards, key)
    }

    /// Declares shards that may change events.
    pub fn shard_writer<K: Hash>(
        &self,
        name: &str,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
    ) -> ShardWriterKey
    where
        E: Send,
    {
        self.declare_shards(name, Access::Write, shards, key)
    }

    fn declare_shards<A, C, K: Hash>(
        &self,
        name: &str,
        access: Access,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
    ) -> Key<A, C> {
        let declared = self.declare(name, access, Delivery::Shards(shards));
        self.partitioners
            .borrow_mut()
            .push((declared.stage, Contained::new(partitioner(shards, key))));
        declared
    }

    /// Declares a tap, with room for so many readers at a time: a place where they join and leave
    /// while the graph runs. See [`Tap`].
    ///
    /// A stage that writes has to come [`after`](Key::after) it or before it, as with every other
    /// stage; one that comes after it sees an event when everybody who joined has released it. A
    /// tap cannot come after a tap.
    pub fn tap(&self, name: &str, room: usize) -> TapKey
    where
        E: Send + Sync,
    {
        self.declare(name, Access::Read, Delivery::Tap(room))
    }

    fn declare<A, C>(&self, name: &str, access: Access, delivery: Delivery) -> Key<A, C> {
        let mut drawing = self.draft.lock();
        drawing.stages.push(StageSpec::new(name, access, delivery, &[]));
        Key {
            draft: self.draft.clone(),
            stage: drawing.stages.len() - 1,
            workers: delivery.len(),
            exchanged: false,
            kind: PhantomData,
        }
    }

    /// Checks the graph and makes its ring: all memory is allocated and all events are made here,
    /// and never afterwards.
    ///
    /// # Errors
    /// [`BuildError`](crate::BuildError) says what is wrong and what to do.
    pub fn build(mut self) -> Result<Ring<E, L, S>, Error>
    where
        E: Send + 'static,
    {
        let stages = {
            let mut drawing = self.draft.lock();
            if let Some(problem) = drawing.problem.take() {
                return Err(problem.into());
            }
            drawing.sealed = true;
            drawing.stages.clone()
        };
        // Not under the lock: the factory and the events are user code, and may hold keys.
        let built =
            build(self.settings.clone(), stages, self.partitioners.take(), &mut *self.factory);
        let dropped = self.factory.drop_contained();
        let mut drawing = self.draft.lock();
        let abandoned = drawing.abandoned.first().map(|&stage| drawing.stages[stage].name.clone());
        drawing.sealed = built.is_ok() && abandoned.is_none();
        // The soundness rule speaks first, for it is the more useful answer.
        let core = match (built, abandoned) {
            (Err(problem), _) => return Err(problem.into()),
            (Ok(core), Some(stage)) => {
                drop(drawing);
                core.take_apart(); // the events are the user's
                return Err(BuildError::DroppedKey { stage }.into());
            }
            (Ok(core), None) => core,
        };
        if let Some(panic) = dropped {
            core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
        }
        let weak = core.observed();
        drawing.built = Some(Arc::new(move |stage| {
            if let Some(core) = weak.upgrade() {
                core.control.fail(stage, None, Cause::Dropped);
            }
        }));
        core.control.membership.add_maker();
        let required = (0..drawing.stages.len())
            .filter(|&stage| !matches!(drawing.stages[stage].delivery, Delivery::Tap(_)));
        let taken = Mutex::new(Taken { producer: false, unattached: required.collect() });
        drop(drawing);
        Ok(Ring { core, draft: self.draft.clone(), taken, kind: PhantomData })
    }
}

impl<A, C> Key<A, C> {
    /// Puts this stage behind another one, in addition to those it already follows.
    ///
    /// # Panics
    /// If the graph was built already.
    pub fn after<B, D>(self, earlier: &Key<B, D>) -> Self {
        // Two graphs are never locked at once.
        let name = earlier.draft.lock().stages[earlier.stage].name.clone();
        let mut drawing = self.draft.lock();
        if drawing.sealed {
            let own = drawing.stages[self.stage].name.clone();
            drop(drawing);
            panic!("stage `{own}` cannot be put after `{name}`: the graph was built already");
        }
        if Arc::ptr_eq(&self.draft, &earlier.draft) {
            let after = &mut drawing.stages[self.stage].after;
            if !after.contains(&earlier.stage) {
                after.push(earlier.stage);
            }
        } else {
            let stage = drawing.stages[self.stage].name.clone();
            drawing.problem.get_or_insert(BuildError::Foreign { stage, after: name });
        }
        drop(drawing);
        self
    }

    /// How this stage waits for events (each worker or shard of it), whatever the others do.
    /// Default: as [`Graph::wait`] says.
    ///
    /// # Panics
    /// If the graph was built already.
    pub fn wait(self, wait: Wait) -> Self {
        // Before the change, which panics if it comes too late.
        let wait = Contained::new(wait);
        self.change(|spec| spec.wait.replace(wait))
    }

    /// What the change replaces is dropped after the lock is released: it may be the user's.
    fn change<T>(self, change: impl FnOnce(&mut StageSpec) -> T) -> Self {
        let mut drawing = self.draft.lock();
        if drawing.sealed {
            let own = drawing.stages[self.stage].name.clone();
            drop(drawing);
            panic!("stage `{own}` cannot be changed: the graph was built already");
        }
        let replaced = change(&mut drawing.stages[self.stage]);
        drop(drawing);
        drop(replaced);
        self
    }

    /// Panics unless this is a key of that graph.
    fn check(&self, draft: &Arc<Draft>) {
        if !Arc::ptr_eq(&self.draft, draft) {
            let name = self.draft.lock().stages[self.stage].name.clone();
            panic!("the key of stage `{name}` belongs to another graph");
        }
    }
}

impl<A> Key<A, Shared> {
    /// Room for so many workers at a time, those that the pool has from the beginning included. See
    /// [`Pool`](crate::Pool).
    ///
    /// # Panics
    /// If the graph was built already.
    pub fn room(self, workers: usize) -> Self {
        self.change(|spec| {
            if let Delivery::Pool { room, .. } = &mut spec.delivery {
                *room = workers;
            }
        })
    }
}

impl<A, C> Drop for Key<A, C> {
    fn drop(&mut self) {
        if !self.exchanged {
            let mut drawing = self.draft.lock();
            match drawing.built.clone() {
                // Nobody has to join a tap.
                _ if matches!(drawing.stages[self.stage].delivery, Delivery::Tap(_)) => {}
                None => drawing.abandoned.push(self.stage),
                Some(built) => {
                    // the last reference to the ring may go with this call, and take user code with
                    // it
                    drop(drawing);
                    built(self.stage);
                }
            }
        }
    }
}

impl<A, C> fmt::Debug for Key<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.draft.lock().stages[self.stage].name).finish()
    }
}

/// What nobody holds a handle of yet.
struct Taken {
    producer: bool,
    unattached: Vec<usize>,
}

/// A built graph: exchanges keys for handles, and prints itself.
///
/// Dropping it before every key was exchanged fails the graph, and before a producer was taken
/// closes it.
pub struct Ring<E, L: Layout = Interleaved, S = Single> {
    core: Owner<E, L>,
    draft: Arc<Draft>,
    taken: Mutex<Taken>,
    kind: PhantomData<S>,
}

impl<E, L: Layout> Ring<E, L, Single> {
    /// The producer's handle.
    ///
    /// # Panics
    /// If it was taken already; [`Ring::try_producer`] does not. For several producers declare the
    /// graph [`shared`](Graph::shared).
    pub fn producer(&self) -> Producer<E, L> {
        self.try_producer().expect("this ring has one producer, and it was taken already; declare the graph `shared()` for several")
    }

    /// The producer's handle, unless it was taken already.
    pub fn try_producer(&self) -> Option<Producer<E, L>> {
        let learned = self.core.control.learner(self.core.control.producer_party());
        let taken = std::mem::replace(&mut self.taken().producer, true);
        (!taken).then(|| Producer::new(self.core.clone(), learned))
    }
}

impl<E, L: Layout> Ring<E, L, Many> {
    /// A producer's handle; the ring closes when the last one is dropped.
    pub fn producer(&self) -> Producer<E, L, Many> {
        let learned = self.core.control.learner(self.core.control.producer_party());
        self.taken().producer = true;
        Producer::new(self.core.clone(), learned)
    }
}

impl<E, L: Layout, S> Ring<E, L, S> {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        whole(self.taken.lock())
    }

    /// Exchanges a key: its stage, and a learner for each of the stage's handles. The learners come
    /// first: while the strategy makes them the key is not exchanged yet, so a panic drops the key,
    /// and that fails the graph.
    fn attach<A, C>(&self, mut key: Key<A, C>) -> (usize, Vec<HandleLearner>) {
        key.check(&self.draft);
        let (stage, handles) = (key.stage, key.workers);
        let learned = (0..handles).map(|_| self.core.control.learner(stage)).collect();
        key.exchanged = true;
        self.taken().unattached.retain(|&other| other != stage);
        (stage, learned)
    }

    /// As [`Ring::attach`], for a stage that has one handle.
    fn attach_one<A, C>(&self, key: Key<A, C>) -> (usize, HandleLearner) {
        let (stage, learned) = self.attach(key);
        (stage, learned.into_iter().next().unwrap_or_default())
    }

    /// As [`Ring::attach`], for a stage that has several handles, each of which `handle` makes from
    /// its number and a learner.
    fn attach_all<A, C, H>(
        &self,
        key: Key<A, C>,
        handle: impl Fn(Owner<E, L>, usize, usize, HandleLearner) -> H,
    ) -> Vec<H> {
        let (stage, learned) = self.attach(key);
        learned
            .into_iter()
            .enumerate()
            .map(|(number, learned)| handle(self.core.clone(), stage, number, learned))
            .collect()
    }

    /// The handle of a stage that reads.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn reader(&self, key: ReaderKey) -> Reader<E, L> {
        let (stage, learned) = self.attach_one(key);
        Consumer::every(self.core.clone(), stage, learned)
    }

    /// The handle of a stage that may write.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn writer(&self, key: WriterKey) -> Writer<E, L> {
        let (stage, learned) = self.attach_one(key);
        Consumer::every(self.core.clone(), stage, learned)
    }

    /// The handles of all workers of a pool that reads.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn pool_readers(&self, key: PoolReaderKey) -> Vec<PoolReader<E, L>> {
        self.attach_all(key, Consumer::worker)
    }

    /// The handles of all workers of a pool that may write.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn pool_writers(&self, key: PoolWriterKey) -> Vec<PoolWriter<E, L>> {
        self.attach_all(key, Consumer::worker)
    }

    /// The handles of all shards of a stage that reads, in their order.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn shard_readers(&self, key: ShardReaderKey) -> Vec<ShardReader<E, L>> {
        self.attach_all(key, Consumer::shard)
    }

    /// The handles of all shards of a stage that may write, in their order.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn shard_writers(&self, key: ShardWriterKey) -> Vec<ShardWriter<E, L>> {
        self.attach_all(key, Consumer::shard)
    }

    /// The tap, to which readers can subscribe from now on.
    ///
    /// # Panics
    /// If the key belongs to another graph.
    pub fn tap(&self, key: TapKey) -> Tap<E, L> {
        let (stage, _) = self.attach(key);
        Tap::of(&self.core, stage)
    }

    /// Ends the graph without draining it.
    pub fn halt(&self) {
        self.core.control.halt();
    }

    /// A monitor of this ring, which does not keep it. Declare the graph
    /// [`publish_cursor`](Graph::publish_cursor) for it to know the producer's position.
    pub fn monitor(&self) -> Monitor<E, L> {
        Monitor::of(&self.core)
    }

    /// What happened so far, and how far everybody is.
    pub fn report(&self) -> Report {
        self.core.report()
    }

    /// The stages' names in the order they were declared.
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
        self.core.control.membership.remove_maker();
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

/// The two ends of a [`unicast`] ring.
pub type Unicast<E> = (Producer<E>, Reader<E>);

/// The simplest ring: one producer, one reader, no graph and no thread of ours. `E` need not be
/// `Sync`.
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
/// As [`Graph::build`].
pub fn unicast<E>(capacity: usize, factory: impl FnMut() -> E) -> Result<Unicast<E>, Error> {
    let reader = StageSpec::new("reader", Access::Read, Delivery::Each, &[]);
    let mut factory = Contained::new(factory);
    let core = build(Settings::new(capacity), vec![reader], Vec::new(), &mut *factory)?;
    if let Some(panic) = factory.drop_contained() {
        core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
    }
    let (producer, reader) =
        (core.control.learner(core.control.producer_party()), core.control.learner(0));
    Ok((Producer::new(core.clone(), producer), Consumer::every(core, 0, reader)))
}
