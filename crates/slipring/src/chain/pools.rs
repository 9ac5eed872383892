//! Stages whose events are divided among several handlers: pools and shards.

use super::declare::{Chain, MakeRunners};
use super::scope::{MayUpdate, sealed};
use crate::base::fault::Outcome;
use crate::base::panics::Contained;
use crate::consumer::markers::sealed as markers;
use crate::live::pool::{AccessMarker, Pool};
use crate::ring::events::At;
use crate::ring::partition::key::ShardKey;
use crate::ring::slots::Layout;
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::run::handlers::{ReadEach, WriteEach};

impl<'env, E: Send + 'env, L: Layout, P: sealed::ChainScope> Chain<'env, E, L, P> {
    /// Adds a pool that reads: each event goes to one of `workers` workers. Each worker has a
    /// thread of its own.
    ///
    /// Example: [`Chain::update_pool`].
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

    /// Adds a pool that may update events: each event goes to one of `workers` workers. Each worker
    /// has a thread of its own.
    ///
    /// `make` makes the handler of each worker before the start, from the worker's number, counted
    /// from 0. The workers claim chunks of events, so which of them gets an event depends on
    /// timing. Later stages see the events in the order of their positions.
    ///
    /// ```
    /// let mut out = Vec::new();
    /// slipring::ring(128, String::new)
    ///     .update_pool("upper", 3, |_worker| |text, _| text.make_ascii_uppercase())
    ///     .read("collect", |text, _| out.push(text.clone()))
    ///     .feed(["alpha", "beta"], |slot, text| text.clone_into(slot))?;
    /// assert_eq!(out, ["ALPHA", "BETA"]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "WorkerPool")]
    pub fn update_pool<R: Outcome + 'env, H: FnMut(&mut E, At) -> R + Send + 'env>(
        self,
        name: &str,
        workers: usize,
        mut make: impl FnMut(usize) -> H + 'env,
    ) -> Self
    where
        P: MayUpdate,
    {
        self.pool(name, Access::Write, workers, move |worker| WriteEach::new(make(worker)))
    }

    /// Lets more workers join the last declared pool while the chain runs. The room of `pool`
    /// limits the number of workers. See [`Pool`].
    ///
    /// ```
    /// use slipring::Pool;
    /// let parse = Pool::updating(2);
    /// slipring::ring(8, || 0u64)
    ///     .update_pool("parse", 1, |_worker| |value, _| *value *= 2)
    ///     .open(&parse)
    ///     .run(|tx| {
    ///         let extra = parse.join()?;
    ///         tx.publish(|slot| *slot = 1)?;
    ///         drop(extra); // leaves again; the first worker goes on
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[allow(private_bounds)]
    pub fn open<A: AccessMarker + markers::Access>(mut self, pool: &Pool<E, A, L>) -> Self
    where
        E: 'env,
    {
        let missing = || "`open` must follow the pool that it opens".to_owned();
        let problem = match self.declared.stage_of("open", missing) {
            Ok(StageSpec { delivery: Delivery::Pool { room, .. }, .. }) => {
                *room = pool.room();
                let pool = pool.clone();
                if let Some(make_runners) = self.declared.make_runners.pop() {
                    let bound: MakeRunners<'env, E, L> = Box::new(move |core, stage, judges| {
                        pool.bind(core, stage)?;
                        make_runners.into_inner()(core, stage, judges)
                    });
                    self.declared.make_runners.push(Contained::new(bound));
                }
                return self;
            }
            Ok(StageSpec { name, .. }) => format!("`open` follows `{name}`, which is no pool"),
            Err(problem) => problem,
        };
        self.declared.stages.reject(problem);
        self
    }

    /// Adds shards that read: an event's key selects one of `shards` shards, whose handler sees all
    /// events of that key, in order. A stage has 1 to
    /// [`MAX_STAGE_HANDLES`](crate::stages::MAX_STAGE_HANDLES) shards, and not more than the ring
    /// has slots.
    ///
    /// Each shard has a thread and a handler of its own. `make` makes the handler before the start,
    /// from the shard's number, counted from 0. Later stages see the events in the order of their
    /// positions.
    ///
    /// `key` is called once for each event, so it should be short. The last updating stage before
    /// the shards calls `key`, after that stage has handled the event. If no updating stage comes
    /// before the shards, the producer calls it. A panic of `key` ends the graph.
    ///
    /// The library hashes each key. Every run of an executable gives a key the same hash. The
    /// hashes spread keys evenly over the shards. So events are spread evenly, too, unless a single
    /// key has a large part of them. The stage takes four bytes of memory for each slot.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::Mutex;
    /// let books = Mutex::new(HashMap::new());
    /// slipring::ring(64, || ("", 0))
    ///     .read_shards("books", 3, |(symbol, _)| *symbol, |_shard| {
    ///         |order: &(&'static str, i32), _| {
    ///             books.lock().unwrap().insert(order.0, order.1);
    ///         }
    ///     })
    ///     .feed([("A", 1), ("B", 7), ("A", 2)], |slot, order| *slot = order)?;
    /// assert_eq!(books.lock().unwrap()["A"], 2);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "partition")]
    pub fn read_shards<K: ShardKey, R: Outcome + 'env, H: FnMut(&E, At) -> R + Send + 'env>(
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

    /// Adds shards that may change their events.
    ///
    /// Example: [`Chain::read_shards`].
    #[doc(alias = "partition")]
    pub fn update_shards<K: ShardKey, R: Outcome + 'env, H: FnMut(&mut E, At) -> R + Send + 'env>(
        self,
        name: &str,
        shards: usize,
        key: impl Fn(&E) -> K + Send + Sync + 'static,
        mut make: impl FnMut(usize) -> H + 'env,
    ) -> Self
    where
        P: MayUpdate,
    {
        self.shards(name, Access::Write, shards, key, move |shard| WriteEach::new(make(shard)))
    }
}
