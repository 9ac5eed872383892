//! A [`Graph`] declares its stages at run time. Either the user exchanges keys for handles and
//! starts the threads, or the user gives each key a handler and the library starts the threads.
//!
//! Invariants
//! - I1: a key is exchanged once, for the handles of its own stage in its own graph, or for runners
//!   of the user's handlers.
//! - I2: if a key (other than a tap's), or the ring, is dropped before the key's exchange, the
//!   graph fails. A stage without a handle would release no event, and the ring would stay full.

// rustdoc shows methods in the order of these lines: a page begins with those that most users call.
mod ring;

mod handlers;
mod key;
mod stages;

use std::cell::RefCell;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::base::panics::Contained;
use crate::errors::{BuildError, Error};
use crate::producer::{Many, Single};
use crate::ring::build::RingBuilder;
use crate::ring::owner::Owner;
use crate::ring::partition::key::ShardKey;
use crate::ring::passing::observed;
use crate::ring::settings::{Settings, ring_options};
use crate::ring::slots::{Contiguous, Interleaved, Layout};
use crate::ring::spec::{Access, Delivery};
use crate::run::placement::{Assigned, Placement, assign, build_in_place};
use crate::run::threads::{Caller, Threads};
use crate::wait::Wait;

pub use handlers::Handlers;
pub use key::*;
pub use ring::*;

use stages::SharedStages;

/// A graph of stages that is being declared. [`Graph::build`] makes a [`Ring`] of the graph.
///
/// A stage gets its events from the stages that it comes [`after`](Key::after), or from the
/// producers. A stage that may update events must come before or after each other stage.
///
/// ```
/// let graph = slipring::Graph::new(64, || 0u64);
/// let double = graph.updater("double");
/// let print = graph.reader("print").after(&double);
/// let sum = graph.reader("sum").after(&double);
/// let ring = graph.build()?;
/// println!("{ring}");
///
/// let (mut tx, mut double) = (ring.producer(), ring.updater(double));
/// let (mut print, mut sum) = (ring.reader(print), ring.reader(sum));
/// for i in 0..10 { tx.publish(|slot| *slot = i)?; }
/// tx.close();
/// let mut total = 0;
/// double.for_each(|value, _| *value *= 2)?;
/// print.for_each(|value, at| println!("{}: {value}", at.seq))?;
/// sum.for_each(|value, _| total += value)?;
/// assert_eq!(total, 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Graph<'env, E, L: Layout = Interleaved, S = Single> {
    stages: Arc<SharedStages>,
    /// Builder of the ring, in a `RefCell` because a declaration of shards changes it through a
    /// shared reference to the graph.
    ring: RefCell<Builder<'env, E>>,
    /// Number of threads shared by the stages that have handlers; `None` if each stage has threads
    /// of its own.
    threads: Option<Threads>,
    /// Where the threads run; `None` if the system decides.
    placement: Option<Contained<Box<dyn Placement + 'env>>>,
    kind: PhantomData<(L, S)>,
}

type Builder<'env, E> = RingBuilder<E, Box<dyn FnMut() -> E + 'env>>;

impl<'env, E> Graph<'env, E> {
    /// Begins a graph over a ring of `capacity` slots (a power of two), whose events `factory`
    /// makes.
    ///
    /// By default, the ring has one producer, and the stamps are inside the slots.
    /// [`Graph::shared`] allows many producers, and [`Graph::contiguous`] stores the events side by
    /// side.
    ///
    /// Example: [`Graph`].
    pub fn new(capacity: usize, factory: impl FnMut() -> E + 'env) -> Graph<'env, E> {
        let factory: Box<dyn FnMut() -> E + 'env> = Box::new(factory);
        let ring = RefCell::new(RingBuilder::new(capacity, factory));
        Graph {
            stages: SharedStages::new(),
            ring,
            threads: None,
            placement: None,
            kind: PhantomData,
        }
    }
}

impl<'env, E, L: Layout, S> Graph<'env, E, L, S> {
    /// Converts the graph to another layout and another number of producers, which are both type
    /// parameters.
    fn into_kind<M: Layout, T>(self) -> Graph<'env, E, M, T> {
        let Graph { stages, ring, threads, placement, kind: _ } = self;
        Graph { stages, ring, threads, placement, kind: PhantomData }
    }

    /// A call of the built ring, so that the compiler tells how to get there.
    #[doc(hidden)]
    pub fn producer(&self) -> crate::Producer<E, L>
    where
        Self: key::handles::Handle,
    {
        unreachable!("a graph is no handle")
    }

    fn settings_mut(&mut self) -> &mut Settings {
        &mut self.ring.get_mut().settings
    }

    /// Declares a stage that reads every event.
    ///
    /// Example: [`Graph`].
    pub fn reader(&self, name: &str) -> ReaderKey
    where
        E: Send + Sync,
    {
        self.declare(name, Access::Read, Delivery::Each)
    }

    /// Declares a stage that may change every event.
    ///
    /// Example: [`Graph`].
    pub fn updater(&self, name: &str) -> UpdaterKey
    where
        E: Send,
    {
        self.declare(name, Access::Write, Delivery::Each)
    }

    /// Declares a pool that reads: each event goes to one of `workers` workers. Later stages see
    /// the events in the order of their positions.
    ///
    /// Example: [`Graph::pool_updater`].
    #[doc(alias = "WorkerPool")]
    pub fn pool_reader(&self, name: &str, workers: usize) -> PoolReaderKey
    where
        E: Send + Sync,
    {
        self.declare(name, Access::Read, Delivery::pool(workers))
    }

    /// Declares a pool that may update events: each event goes to one of `workers` workers, which
    /// may change it. Later stages see the events in the order of their positions.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64);
    /// let square = graph.pool_updater("square", 2);
    /// let sum = graph.reader("sum").after(&square);
    /// let ring = graph.build()?;
    /// let (mut tx, mut sum) = (ring.producer(), ring.reader(sum));
    /// std::thread::scope(|scope| {
    ///     for mut worker in ring.pool_updaters(square) {
    ///         scope.spawn(move || worker.for_each(|value, _| *value *= *value).unwrap());
    ///     }
    ///     for i in 1..=4 { tx.publish(|slot| *slot = i).unwrap(); }
    ///     tx.close();
    ///     let mut total = 0;
    ///     sum.for_each(|value, _| total += value).unwrap();
    ///     assert_eq!(total, 30);
    /// });
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "WorkerPool")]
    pub fn pool_updater(&self, name: &str, workers: usize) -> PoolUpdaterKey
    where
        E: Send,
    {
        self.declare(name, Access::Write, Delivery::pool(workers))
    }

    /// Declares shards that read: an event's key selects one of `shards` shards, which sees all
    /// events of that key, in order. Later stages see the events in the order of their positions.
    /// [`Chain::read_shards`](crate::Chain::read_shards) describes the function `key` and its cost,
    /// and the limits of `shards`.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || ("", 0));
    /// let books = graph.shard_reader("books", 2, |(symbol, _)| *symbol);
    /// let ring = graph.build()?;
    /// let (mut tx, books) = (ring.producer(), ring.shard_readers(books));
    /// for order in [("A", 1), ("B", 2), ("A", 3)] { tx.publish(|slot| *slot = order)?; }
    /// tx.close();
    /// let mut seen = 0;
    /// for mut shard in books {
    ///     let mut last = std::collections::HashMap::new();
    ///     shard.for_each(|&(symbol, price), _| {
    ///         assert!(last.insert(symbol, price) < Some(price), "in sequence");
    ///         seen += 1;
    ///     })?;
    /// }
    /// assert_eq!(seen, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shard_reader<K: ShardKey>(
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

    /// Declares shards that may change their events.
    ///
    /// Example: [`Graph::shard_reader`].
    pub fn shard_updater<K: ShardKey>(
        &self,
        name: &str,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
    ) -> ShardUpdaterKey
    where
        E: Send,
    {
        self.declare_shards(name, Access::Write, shards, key)
    }

    /// Declares a tap, at which up to `room` readers at a time join and leave while the graph runs.
    /// See [`Tap`](crate::Tap).
    ///
    /// A stage that may update events must come [`after`](Key::after) or before the tap. A stage
    /// behind the tap gets an event only after every reader at the tap has released it. A tap
    /// cannot come after another tap.
    ///
    /// ```
    /// use slipring::handles::StartAt;
    /// let graph = slipring::Graph::new(8, || 0);
    /// let feed = graph.tap("feed", 4);
    /// let ring = graph.build()?;
    /// let (mut tx, feed) = (ring.producer(), ring.tap(feed));
    /// tx.publish(|slot| *slot = 1)?; // no reader is there to see it
    /// let mut reader = feed.subscribe(StartAt::Now)?;
    /// tx.publish(|slot| *slot = 2)?;
    /// assert_eq!(reader.poll(8, |value, _| assert_eq!(*value, 2))?, 1);
    /// drop(reader); // leaves
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tap(&self, name: &str, room: usize) -> TapKey
    where
        E: Send + Sync,
    {
        self.declare(name, Access::Read, Delivery::Tap(room))
    }

    fn declare<A, C>(&self, name: &str, access: Access, delivery: Delivery) -> Key<A, C> {
        let stage = self.stages.lock().list.add(name, access, delivery, &[]);
        Key::new(self.stages.clone(), stage, delivery.len())
    }

    fn declare_shards<A, C, K: Hash>(
        &self,
        name: &str,
        access: Access,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
    ) -> Key<A, C> {
        let delivery = Delivery::Shards(shards);
        let stage = self.stages.lock().list.add(name, access, delivery, &[]);
        self.ring.borrow_mut().partition(stage, shards, key);
        Key::new(self.stages.clone(), stage, delivery.len())
    }

    /// Checks the graph and builds its ring. `build` allocates the ring's memory and makes all
    /// events.
    ///
    /// Example: [`Graph`].
    ///
    /// Returns an error if the graph has a mistake:
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0);
    /// let (double, print) = (graph.updater("double"), graph.reader("print"));
    /// let error = graph.build().unwrap_err();
    /// println!("{error}"); // names both stages, and says how to order them
    /// assert!(error.is_build());
    /// # drop((double, print));
    /// ```
    ///
    /// # Errors
    /// [`BuildError`] names the mistake and its remedy. The call refuses a ring that takes more
    /// memory than is available ([`BuildError::MemoryShortage`]), unless
    /// [`Graph::allow_overcommit`] is set.
    pub fn build(self) -> Result<Ring<E, L, S>, Error>
    where
        E: Send,
    {
        let (specs, shared) = {
            let mut stages = self.stages.lock();
            let mut specs = stages.list.checked()?;
            let share = |threads: Threads| threads.share(&mut specs, Caller::Helps);
            let shared = self.threads.map(share).transpose()?.unwrap_or_default();
            stages.frozen = true;
            (specs, shared)
        };
        // The stages' lock is not held while the placement, the factory and the events' drops run.
        // They are user code, which may drop a key, and a key's drop takes that lock.
        let mut ring = self.ring.into_inner();
        let settings = &mut ring.settings;
        let places = self.placement.map(|placement| assign(&**placement, &specs, shared, settings));
        let built: Result<(Owner<E, L>, Option<Assigned>), BuildError> =
            places.transpose().and_then(|places| {
                Ok((build_in_place(places.as_ref(), || ring.build(specs))?, places))
            });
        let mut stages = self.stages.lock();
        let abandoned = stages.abandoned.first().copied();
        stages.frozen = built.is_ok() && abandoned.is_none();
        // If the ring's build failed and a key was dropped, `build` returns the error of the ring's
        // build, which tells the user more.
        let (core, places) = built?;
        if let Some(stage) = abandoned {
            let stage = stages.list.specs()[stage].name.clone();
            drop(stages);
            core.take_apart(); // No lock is held: dropping events is user code.
            return Err(BuildError::DroppedKey { stage }.into());
        }
        stages.ring = Some(observed(&core));
        let required = stages.required();
        drop(stages);
        Ok(Ring::new(core, self.stages, required, RingThreads { shared, places }))
    }

    /// Stores events side by side, so that a batch is one slice, or two slices if the batch wraps
    /// around the ring's end. The documentation of [`Contiguous`] states the cost of the contiguous
    /// layout.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u32).contiguous();
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (mut tx, mut sum) = (ring.producer(), ring.reader(sum));
    /// for i in 1..=3 { tx.publish(|slot| *slot = i)?; }
    /// let batch = sum.batch(8)?;
    /// let (front, back) = batch.as_slices();
    /// assert_eq!((front, back), (&[1, 2, 3][..], &[][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contiguous(self) -> Graph<'env, E, Contiguous, S> {
        self.into_kind()
    }

    /// Allows many producers: [`Ring::producer`] makes any number of handles, and each handle can
    /// be cloned.
    ///
    /// In a shared graph, a claim takes a locked operation on a shared word while several handles
    /// may claim: an addition, or a compare-and-swap in calls that do not wait or that have a
    /// deadline. Additions cost the same however many producers claim at once, and
    /// compare-and-swaps fail and are repeated. Once the [`Ring`] and all other producer handles
    /// are dropped, the remaining handle needs neither.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0).shared();
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (mut one, mut two, mut sum) = (ring.producer(), ring.producer(), ring.reader(sum));
    /// drop(ring); // every handle is taken
    /// one.publish(|slot| *slot = 1)?;
    /// two.publish(|slot| *slot = 2)?;
    /// drop((one, two)); // closes the ring
    /// assert_eq!(sum.for_each(|value, at| assert_eq!(*value, at.seq + 1))?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "mpsc")]
    pub fn shared(mut self) -> Graph<'env, E, L, Many> {
        self.settings_mut().many_producers = true;
        self.into_kind()
    }

    ring_options! {
        /// ```
        /// use slipring::{Graph, Wait};
        /// let ring = Graph::new(8, || 0).wait(Wait::SLEEPING).build()?;
        /// assert!(ring.to_string().contains("one producer, sleeping"));
        /// # Ok::<(), slipring::Error>(())
        /// ```
        wait;
        /// ```
        /// use slipring::{Graph, Wait};
        /// let graph = Graph::new(8, || 0).wait(Wait::SLEEPING).producer_wait(Wait::YIELDING);
        /// assert!(graph.build()?.to_string().contains("producer waits: yielding"));
        /// # Ok::<(), slipring::Error>(())
        /// ```
        producer_wait;
        /// ```
        /// let ring = slipring::Graph::new(8, || 0).first_seq(100).build()?;
        /// assert_eq!(ring.producer().publish(|slot| *slot = 1)?, 100);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        first_seq;
        /// ```
        /// use std::time::Duration;
        /// let graph = slipring::Graph::new(8, || 0).deadline(Duration::from_millis(1));
        /// let sum = graph.reader("sum");
        /// let ring = graph.build()?;
        /// let (tx, mut sum) = (ring.producer(), ring.reader(sum));
        /// assert!(sum.batch(1).is_err(), "nothing is published in time");
        /// # drop(tx);
        /// # Ok::<(), slipring::Error>(())
        /// ```
        deadline;
        /// ```
        /// let graph = slipring::Graph::new(8, || 0).sample_latency(1);
        /// let sum = graph.reader("sum");
        /// let ring = graph.build()?;
        /// let (mut tx, mut sum) = (ring.producer(), ring.reader(sum));
        /// tx.publish(|slot| *slot = 1)?;
        /// tx.close();
        /// sum.for_each(|_, _| ())?;
        /// assert_eq!(ring.report().stage("sum").unwrap().latency.unwrap().samples, 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        sample_latency;
        /// ```
        /// let graph = slipring::Graph::new(1 << 16, || [0u64; 4]).huge_pages();
        /// let first = graph.reader("first");
        /// let ring = graph.build()?;
        /// let (mut tx, mut first) = (ring.producer(), ring.reader(first));
        /// tx.publish(|slot| slot[0] = 7)?;
        /// tx.close();
        /// first.for_each(|block, _| assert_eq!(block[0], 7))?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        huge_pages;
        /// ```
        /// let ring = slipring::Graph::new(1 << 10, || [0u64; 7]).allow_overcommit().build()?;
        /// assert!(ring.to_string().contains("ring of 1024 slots"));
        /// # Ok::<(), slipring::Error>(())
        /// ```
        allow_overcommit;
    }

    /// Makes a single producer publish its position, so that reports and monitors give exact lags
    /// and numbers of free slots. Publishing the cursor costs the producer one more store for each
    /// publication.
    ///
    /// On a chain, [`Chain::monitor`](crate::Chain::monitor) makes a single producer publish its
    /// position.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0).publish_cursor();
    /// let slow = graph.reader("slow");
    /// let ring = graph.build()?;
    /// let (mut tx, slow) = (ring.producer(), ring.reader(slow));
    /// for i in 0..3 { tx.publish(|slot| *slot = i)?; }
    /// let report = ring.monitor().report().expect("the ring is there");
    /// assert_eq!((report.published_seq(), report.remaining()), (Some(3), Some(5)));
    /// # drop(slow);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn publish_cursor(mut self) -> Self {
        self.settings_mut().publish_cursor = true;
        self
    }

    /// Runs the handlers of the stages ([`Ring::handlers`]) on `threads` threads that all stages
    /// share, instead of a thread for each stage, worker and shard.
    ///
    /// [`Chain::threads`](crate::Chain::threads) describes these threads. The stages on shared
    /// threads wait and notify together, so their keys cannot be exchanged for handles. If you want
    /// a stage's handle, declare the stage with [`Key::own_loop`], which keeps it off the shared
    /// threads. [`Key::on`] gives a stage a thread of its own.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64).threads(2);
    /// let double = graph.updater("double");
    /// let sum = graph.reader("sum").after(&double);
    /// let ring = graph.build()?;
    /// let mut total = 0;
    /// let mut handlers = ring.handlers();
    /// handlers.update(double, |value, _| *value *= 2).read(sum, |value, _| total += value);
    /// handlers.feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(total, 12);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// The build fails if `threads` is zero.
    pub fn threads(mut self, threads: impl Into<Threads>) -> Self {
        self.threads = Some(threads.into());
        self
    }

    /// Sets where the threads of the graph run, and where the ring's memory lies. By default, the
    /// system decides both.
    ///
    /// [`Chain::placement`](crate::Chain::placement) describes how the library binds the threads of
    /// [`Handlers`](crate::stages::Handlers). A thread of your own, which runs a handle, binds
    /// itself by [`Ring::bind_thread`].
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    /// let machine = Machine::this()?;
    /// # // A machine of one core has no such placement.
    /// # if machine.assign(&Placement::SharedCache, &["producer", "sum"]).is_err() { return Ok(()); }
    /// let graph = slipring::Graph::new(1024, || 0u64)
    ///     .placement(machine.at(Placement::SharedCache));
    /// let sum = graph.reader("sum");
    /// let ring = graph.build()?;
    /// let (mut tx, mut sum) = (ring.producer(), ring.reader(sum));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         let _bound = ring.bind_thread("sum").unwrap();
    ///         sum.for_each(|value, _| println!("{value}")).unwrap();
    ///     });
    ///     let _bound = ring.bind_thread(slipring::stages::PRODUCER).unwrap();
    ///     tx.publish(|slot| *slot = 1).unwrap();
    ///     tx.close();
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn placement(mut self, placement: impl Placement + 'env) -> Self {
        self.placement = Some(Contained::new(Box::new(placement)));
        self
    }
}
