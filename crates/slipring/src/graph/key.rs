//! Keys of stages. A graph gives out one key for each stage. The graph's ring exchanges the key for
//! the stage's handles.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::base::panics::Contained;
use crate::consumer::markers::{Each, Joined, Pooled, Reading, Sharded, Updating};
use crate::errors::{BuildError, Cause, WaitError};
use crate::graph::stages::{SharedStages, Stages};
use crate::ring::policy::{Marks, OnFault, Policy};
use crate::ring::spec::{Delivery, ThreadChoice};
use crate::wait::Wait;

/// The right to the handles of one stage. A [`Graph`](crate::Graph) gives out the key, and a
/// [`Ring`](crate::Ring) exchanges the key for the handles.
///
/// Before the build, a key also declares the stages that its own stage depends on
/// ([`after`](Key::after)). It is not `Clone`, because a ring exchanges it for handles only once.
/// Dropping a key fails the build, or the built graph: a stage without its key gets no handle, and
/// would release no event. Only a tap's key may be dropped, because a tap needs no reader.
#[must_use = "a graph whose keys are not kept cannot be built: no thread could work on the stage"]
pub struct Key<A, C> {
    stages: Arc<SharedStages>,
    /// Index of the stage.
    stage: usize,
    /// Number of handles for which the key is exchanged.
    handles: usize,
    exchanged: bool,
    /// The option of the key that only applies to a handler, if one was set.
    handler_option: Option<&'static str>,
    kind: PhantomData<(A, C)>,
}

/// The key of a stage that reads.
pub type ReaderKey = Key<Reading, Each>;
/// The key of a stage that may update events.
pub type UpdaterKey = Key<Updating, Each>;
/// The key of a tap.
pub type TapKey = Key<Reading, Joined>;
/// The key of a sharded stage that reads.
pub type ShardReaderKey = Key<Reading, Sharded>;
/// The key of a sharded stage that may update events.
pub type ShardUpdaterKey = Key<Updating, Sharded>;
/// The key of a pool that reads.
pub type PoolReaderKey = Key<Reading, Pooled>;
/// The key of a pool that may update events.
pub type PoolUpdaterKey = Key<Updating, Pooled>;

impl<A, C> Key<A, C> {
    /// Makes the key of a stage that was just declared.
    pub(super) fn new(stages: Arc<SharedStages>, stage: usize, handles: usize) -> Self {
        Key { stages, stage, handles, exchanged: false, handler_option: None, kind: PhantomData }
    }

    /// Makes this stage depend on `earlier`, in addition to its other dependencies: the stage gets
    /// an event only after `earlier` has released that event.
    ///
    /// A stage without dependencies gets events from the producers. If `earlier` belongs to another
    /// graph, the build fails with [`BuildError::Foreign`].
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64);
    /// let (left, right) = (graph.reader("left"), graph.reader("right"));
    /// let both = graph.reader("both").after(&left).after(&right);
    /// let ring = graph.build()?;
    /// let (mut left, mut right) = (ring.reader(left), ring.reader(right));
    /// let (mut tx, mut both) = (ring.producer(), ring.reader(both));
    /// tx.publish(|value| *value = 7)?;
    /// left.poll(1, |_, _| ())?;
    /// assert_eq!(both.poll(1, |_, _| ())?, 0); // `right` still holds the event
    /// right.poll(1, |_, _| ())?;
    /// assert_eq!(both.poll(1, |value, _| assert_eq!(*value, 7))?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn after<B, D>(self, earlier: &Key<B, D>) -> Self {
        // `name` locks the stages of the graph of `earlier`, and `edit` those of the graph of
        // `self`. `name` is called first, so that no thread holds the locks of two graphs.
        let name = earlier.stages.name(earlier.stage);
        let same_graph = Arc::ptr_eq(&self.stages, &earlier.stages);
        self.edit(&format!("put after `{name}`"), |stages, own| {
            let spec = stages.list.spec_mut(own);
            if !same_graph {
                let stage = spec.name.clone();
                stages.list.note(BuildError::Foreign { stage, after: name });
            } else if !spec.after.contains(&earlier.stage) {
                spec.after.push(earlier.stage);
            }
        })
    }

    /// Sets how this stage waits for events, in place of [`Graph::wait`](crate::Graph::wait). The
    /// strategy applies to each worker or shard of the stage.
    ///
    /// ```
    /// use slipring::{Graph, Wait};
    /// let graph = Graph::new(64, || 0u64).wait(Wait::SLEEPING);
    /// let trade = graph.reader("trade").wait(Wait::YIELDING);
    /// let journal = graph.reader("journal");
    /// let ring = graph.build()?;
    /// assert!(ring.to_string().contains("trade    reads, after producer, waits: yielding"));
    /// # drop((ring.producer(), ring.reader(trade), ring.reader(journal)));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn wait(self, wait: Wait) -> Self {
        // If `edit` panics, the unwinding drops the strategy. `Contained` catches a panic of that
        // drop, which would abort the process.
        let wait = Contained::new(wait);
        self.edit("changed", |stages, own| stages.list.spec_mut(own).wait.replace(wait))
    }

    /// Changes the stage before the build. Panics with the message "stage cannot be {action}" if
    /// the graph was built already. The value that `change` returns is dropped after the lock is
    /// released, because its drop may run user code.
    fn edit<T>(self, action: &str, change: impl FnOnce(&mut Stages, usize) -> T) -> Self {
        let mut stages = self.stages.lock();
        if stages.frozen {
            drop(stages);
            let own = self.stages.name(self.stage);
            panic!(
                "stage `{own}` cannot be {action}: the graph was built already; call this before `build`"
            );
        }
        let replaced = change(&mut stages, self.stage);
        drop(stages);
        drop(replaced);
        self
    }

    /// If the stage has both a user's own loop and an option for handlers, records a mistake.
    fn without_contradiction(self) -> Self {
        let Some(option) = self.handler_option else { return self };
        self.edit("changed", |stages, own| {
            let spec = stages.list.spec_mut(own);
            if spec.policy.user_loop {
                let problem = format!(
                    "stage `{}` has both `own_loop` and `{option}`, which only applies to a handler: \
                     leave one of them out",
                    spec.name
                );
                stages.list.reject(problem);
            }
        })
    }

    /// Returns the index of this key's stage, and the number of handles for which this key is
    /// exchanged.
    ///
    /// # Panics
    /// Panics if the key belongs to another graph.
    pub(super) fn of_graph(&self, stages: &Arc<SharedStages>) -> (usize, usize) {
        if !Arc::ptr_eq(&self.stages, stages) {
            let name = self.stages.name(self.stage);
            panic!(
                "the key of stage `{name}` belongs to another graph: give it to the ring that its own \
                 graph was built into"
            );
        }
        (self.stage, self.handles)
    }

    /// Asserts that the user may exchange the key for handles, and run the stage with them.
    pub(super) fn assert_lends_handles(&self, thread: &ThreadChoice) {
        let name = || self.stages.name(self.stage);
        if let Some(option) = self.handler_option {
            panic!(
                "stage `{}` was declared with `{option}`, which only applies to a handler: \
                 give its key to `Ring::handlers`",
                name()
            );
        }
        if thread.is_shared() {
            panic!(
                "stage `{}` runs on the graph's shared threads: give its key to `Ring::handlers`, \
                 or declare it with `own_loop()`",
                name()
            );
        }
    }

    /// Consumes the key, once the handles of its stage have been made.
    pub(super) fn exchanged(mut self) {
        self.exchanged = true;
    }
}

/// Marks a delivery whose stages may have handlers.
pub(super) mod handles {
    /// A handle has events, and neither a key nor a graph is one: no type implements this trait.
    #[diagnostic::on_unimplemented(
        message = "a key or a graph only declares stages: it has no events yet",
        label = "only a handle of the built graph has this call",
        note = "build the graph, and take the handles from its ring: `let ring = graph.build()?;`, then `ring.producer()`, and `ring.reader(key)` for each key"
    )]
    pub trait Handle {}
}

/// Calls of handles, so that the compiler tells how to get a handle.
impl<A, C> Key<A, C> {
    #[doc(hidden)]
    pub fn batch(&mut self, _max: usize) -> Result<(), WaitError>
    where
        Self: handles::Handle,
    {
        Ok(())
    }
}

pub(super) trait Handled {}
impl Handled for Each {}
impl Handled for Pooled {}
impl Handled for Sharded {}

#[allow(private_bounds)]
impl<A, C: Handled> Key<A, C> {
    /// Keeps this stage off the graph's shared threads ([`Graph::threads`](crate::Graph::threads)),
    /// so that the key can be exchanged for the stage's handles.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64).threads(2);
    /// let double = graph.updater("double");
    /// let sum = graph.reader("sum").after(&double).own_loop();
    /// let ring = graph.build()?;
    /// let mut sum = ring.reader(sum);
    /// let mut handlers = ring.handlers();
    /// handlers.update(double, |value, _| *value *= 2);
    /// let own = std::thread::spawn(move || {
    ///     let mut total = 0;
    ///     sum.for_each(|value, _| total += value).map(|_| total)
    /// });
    /// handlers.feed(1..=3, |slot, i| *slot = i)?;
    /// assert_eq!(own.join().unwrap()?, 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The build fails if the stage also has an option that only applies to a handler.
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn own_loop(self) -> Self {
        self.edit("changed", |stages, own| stages.list.spec_mut(own).policy.user_loop = true)
            .without_contradiction()
    }

    /// Changes the policy of a stage. A policy applies only to a stage with a handler.
    fn edit_policy(mut self, option: &'static str, change: impl FnOnce(&mut Policy)) -> Self {
        self.handler_option = Some(option);
        self.edit("changed", |stages, own| change(&mut stages.list.spec_mut(own).policy))
            .without_contradiction()
    }

    /// Sets a policy for errors that the stage's handler returns, as
    /// [`Chain::on_error`](crate::Chain::on_error) does. For a closure that sees the event and the
    /// error, see [`Handlers::on_error_with`](crate::stages::Handlers::on_error_with).
    ///
    /// Example: [`Handlers`](crate::stages::Handlers).
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn on_error(self, on: OnFault) -> Self {
        self.edit_policy("on_error", |policy| policy.on_error = on)
    }

    /// Sets a policy for panics of the stage's handler, as
    /// [`Chain::on_panic`](crate::Chain::on_panic) does.
    ///
    /// Example: [`Chain::on_panic`](crate::Chain::on_panic).
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn on_panic(self, on: OnFault) -> Self {
        self.edit_policy("on_panic", |policy| policy.on_panic = on)
    }

    /// Lets the stage record the events that its handler skips, as
    /// [`Chain::marks`](crate::Chain::marks) does.
    ///
    /// Example: [`Marks`].
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn marks(self, marks: &Marks) -> Self {
        let marks = Some(marks.clone());
        self.edit_policy("marks", |policy| policy.marks = marks)
    }

    /// Sets the largest number of events that the stage's handler handles before a release, as
    /// [`Chain::max_batch`](crate::Chain::max_batch) does.
    ///
    /// Example: [`Chain::max_batch`](crate::Chain::max_batch).
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn max_batch(self, events: usize) -> Self {
        self.edit_policy("max_batch", |policy| policy.max_batch = (events as u64).max(1))
    }

    /// Sets the interval at which the stage calls its handler's `idle` while it waits, as
    /// [`Chain::idle_every`](crate::Chain::idle_every) does.
    ///
    /// Example: [`Chain::idle_every`](crate::Chain::idle_every).
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn idle_every(self, time: Duration) -> Self {
        self.edit_policy("idle_every", |policy| policy.idle_every = Some(time))
    }
}

impl<A> Key<A, Each> {
    /// Lets the stage wait until it has `max` events, or until its oldest event has waited for
    /// `time`, before it calls its handler, as [`Chain::batch_within`](crate::Chain::batch_within)
    /// does. The handler must take batches ([`Handlers::read_batch`], [`Handlers::update_batch`]);
    /// otherwise the start fails.
    ///
    /// [`Handlers::read_batch`]: crate::stages::Handlers::read_batch
    /// [`Handlers::update_batch`]: crate::stages::Handlers::update_batch
    ///
    /// ```
    /// use std::time::Duration;
    /// let graph = slipring::Graph::new(64, || 0u64);
    /// let send = graph.reader("send").batch_within(16, Duration::from_secs(60));
    /// let mut sent = Vec::new();
    /// let mut handlers = graph.build()?.handlers();
    /// handlers.read_batch(send, |events, _| sent.push(events.len()));
    /// handlers.feed(0..40, |slot, i| *slot = i)?;
    /// assert_eq!(sent, [16, 16, 8]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn batch_within(self, max: usize, time: Duration) -> Self {
        self.edit_policy("batch_within", |policy| policy.gather(max, time))
    }

    /// Puts the stage's handler on the thread of this name. Stages that name the same thread take
    /// turns on that thread, as stages declared with [`Chain::on`](crate::Chain::on) do.
    ///
    /// ```
    /// let graph = slipring::Graph::new(64, || 0u64);
    /// let (left, right) = (graph.reader("left").on("io"), graph.reader("right").on("io"));
    /// let mut handlers = graph.build()?.handlers();
    /// let here = || std::thread::current().name().map(str::to_owned);
    /// handlers.read(left, |_, _| assert_eq!(here().as_deref(), Some("io")));
    /// handlers.read(right, |_, _| assert_eq!(here().as_deref(), Some("io")));
    /// handlers.feed(0..3, |slot, i| *slot = i)?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn on(mut self, thread: &str) -> Self {
        self.handler_option = Some("on");
        self.edit("changed", |stages, own| {
            stages.list.spec_mut(own).thread = ThreadChoice::Named(thread.to_owned());
        })
        .without_contradiction()
    }
}

impl<A> Key<A, Pooled> {
    /// Sets how many workers the pool has room for at a time, including the workers that were
    /// declared with the pool.
    ///
    /// Example: [`Pool`](crate::Pool).
    ///
    /// By default, the pool has room only for the workers that were declared with it, so a worker
    /// can join only after another has left. The build fails if `workers` is smaller than that
    /// number, or larger than the ring's capacity or
    /// [`MAX_STAGE_HANDLES`](crate::stages::MAX_STAGE_HANDLES). Each worker's place takes 128
    /// bytes, and each computation of the pool's frontier loads every place.
    ///
    /// # Panics
    /// Panics if the graph was built already.
    pub fn room(self, workers: usize) -> Self {
        self.edit("changed", |stages, own| {
            if let Delivery::Pool { room, .. } = &mut stages.list.spec_mut(own).delivery {
                *room = workers;
            }
        })
    }
}

impl<A, C> Drop for Key<A, C> {
    fn drop(&mut self) {
        if self.exchanged {
            return;
        }
        let mut stages = self.stages.lock();
        if stages.is_tap(self.stage) {
            return;
        }
        match stages.ring.clone() {
            None => stages.abandoned.push(self.stage),
            Some(ring) => {
                // This may drop the last reference to the ring, and so run user code.
                drop(stages);
                if let Some(ring) = ring.upgrade() {
                    ring.control().fail(self.stage, None, Cause::Dropped);
                }
            }
        }
    }
}

impl<A, C> fmt::Debug for Key<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.stages.name(self.stage)).finish()
    }
}
