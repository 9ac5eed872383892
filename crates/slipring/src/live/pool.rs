//! Workers join a running pool through a pool handle, and leave the pool when they are dropped.
//!
//! The seats and lines of a pool's workers are part of the ring (membership::I1, I2;
//! positions::I4).

use std::fmt;
use std::marker::PhantomData;

use crate::consumer::handle::Consumer;
use crate::consumer::local_worker::LocalWorkerPosition;
use crate::consumer::markers::{Pooled, Reading, Updating};
use crate::errors::{BuildError, SubscribeError};
use crate::live::stage_ref::StageRef;
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};
use crate::ring::spec::Access;

/// A handle of a pool, with which workers join the running pool from any thread.
///
/// [`Chain::open`](crate::Chain::open) binds the handle to a chain's pool.
/// [`Ring::pool`](crate::Ring::pool) returns the handle of a graph's pool, and [`Consumer::pool`]
/// returns the handle of a worker's pool. A joined worker shares the events with the other workers,
/// and the stages behind the pool see the events in sequence order. A worker leaves when it is
/// dropped, and the other workers finish its chunk. If the last worker leaves before the stream's
/// end, the graph fails.
///
/// ```
/// use slipring::Graph;
/// let graph = Graph::new(64, || 0u64);
/// let parse = graph.pool_updater("parse", 1).room(4);
/// let end = graph.reader("end").after(&parse);
/// let ring = graph.build()?;
/// let (mut tx, mut end) = (ring.producer(), ring.reader(end));
/// let mut parse = ring.pool_updaters(parse);
/// let mut second = parse[0].pool().join()?;
/// for i in 0..10 { tx.publish(|v| *v = i)?; }
/// tx.close();
/// drop(parse); // the first worker leaves
/// second.for_each(|v, _| *v *= 2)?;
/// let mut sum = 0;
/// end.for_each(|v, _| sum += v)?;
/// assert_eq!(sum, 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "WorkerPool")]
pub struct Pool<E, A, L: Layout = Interleaved> {
    stage_ref: StageRef<Core<E, L>>,
    /// Number of workers that the pool has room for at a time.
    room: usize,
    access: PhantomData<fn() -> A>,
}

impl<E, A, L: Layout> Clone for Pool<E, A, L> {
    fn clone(&self) -> Self {
        Pool { stage_ref: self.stage_ref.clone(), ..*self }
    }
}

impl<E, L: Layout> Pool<E, Reading, L> {
    /// Creates a handle for a reading pool, to be passed to [`Chain::open`](crate::Chain::open).
    ///
    /// The pool has room for `room` workers at a time, including its first workers.
    ///
    /// ```
    /// use slipring::Pool;
    /// let pool = Pool::reading(2);
    /// slipring::ring(8, || 0u64).read_pool("print", 1, |_| |_, _| ()).open(&pool).run(|producer| {
    ///     for i in 0..8 { producer.publish(|slot| *slot = i)?; }
    ///     let mut second = pool.join()?;
    ///     let _done = second.poll(8, |_, _| ())?; // its share, which may be none
    ///     Ok(())
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn reading(room: usize) -> Self {
        Pool { stage_ref: StageRef::unbound(), room, access: PhantomData }
    }
}

impl<E, L: Layout> Pool<E, Updating, L> {
    /// Creates a handle for a pool that may update events, to be passed to
    /// [`Chain::open`](crate::Chain::open).
    ///
    /// The pool has room for `room` workers at a time, including its first workers.
    ///
    /// Example: [`Pool::reading`].
    pub fn updating(room: usize) -> Self {
        Pool { stage_ref: StageRef::unbound(), room, access: PhantomData }
    }
}

/// Maps a marker type ([`Reading`], [`Updating`]) to the access that it stands for.
pub(crate) trait AccessMarker {
    const ACCESS: Access;
}
impl AccessMarker for Reading {
    const ACCESS: Access = Access::Read;
}
impl AccessMarker for Updating {
    const ACCESS: Access = Access::Write;
}

#[allow(private_bounds)]
impl<E, A: AccessMarker + crate::consumer::markers::sealed::Access, L: Layout> Pool<E, A, L> {
    /// Returns the handle of the pool `stage` of a ring.
    pub(crate) fn of(core: &Owner<E, L>, stage: usize) -> Self {
        let room = core.control.plan.stages[stage].delivery.room();
        Pool { stage_ref: StageRef::bound(core.observed(), stage), room, access: PhantomData }
    }

    /// Number of workers that the pool has room for at a time.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(super) fn stage_ref(&self) -> &StageRef<Core<E, L>> {
        &self.stage_ref
    }

    pub(crate) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        let plan = &core.control.plan.stages[stage];
        if plan.access != A::ACCESS {
            let (is, marked) = if A::ACCESS == Access::Write {
                ("only reads", "reading")
            } else {
                ("may update events", "updating")
            };
            return Err(BuildError::Declaration {
                problem: format!("pool `{}` {is}: open it with `Pool::{marked}`", plan.name),
            });
        }
        self.stage_ref.bind(core.observed(), stage)
    }

    /// Adds a worker to the pool. The worker takes its share of the events from now on.
    ///
    /// The call never waits, and stops no stage. It costs a compare-and-swap, and up to one load
    /// per seat. The call allocates only for a wait strategy that learns, such as the default
    /// [`Wait::Adaptive`](crate::Wait::Adaptive) (once, a few hundred bytes).
    ///
    /// The seat of a worker that leaves in the middle of a chunk is taken until another worker
    /// takes that chunk over. If that worker already waits for an event of its own, as the workers
    /// of a pool do that spin, the seat stays taken until this event comes.
    ///
    /// Example: [`Pool`].
    ///
    /// # Errors
    /// - [`SubscribeError::Full`]: the pool has no room for another worker.
    /// - [`SubscribeError::NotRunning`]: the pool belongs to no running graph.
    /// - [`SubscribeError::Ended`]: the graph has ended.
    pub fn join(&self) -> Result<Consumer<E, A, Pooled, L>, SubscribeError> {
        let (core, stage) = self.stage_ref.find()?;
        core.control.status.check_running()?;
        let learned = core.control.learner(stage); // user code: before the worker is counted
        let room = core.control.plan.stages[stage].delivery.room();
        let worker = core.control.acquire_worker(stage)?.ok_or(SubscribeError::Full { room })?;
        // The last step of `join` makes the new worker an owner of the ring. A refused worker never
        // owns the ring, and never drops the ring's events.
        let Some(owner) = Owner::of(&core) else {
            core.control.membership.remove_worker(stage);
            core.control.membership.free_seat(&core.control.plan.stages[stage], worker);
            return Err(SubscribeError::NotRunning);
        };
        Ok(Consumer::of_worker(LocalWorkerPosition::join(owner, stage, worker, learned)))
    }
}

impl<E, A, L: Layout> fmt::Debug for Pool<E, A, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("room", &self.room).finish_non_exhaustive()
    }
}

#[allow(private_bounds)]
impl<E, A: AccessMarker + crate::consumer::markers::sealed::Access, L: Layout>
    Consumer<E, A, Pooled, L>
{
    /// Returns a handle of this worker's pool, with which other workers join.
    ///
    /// The pool's declaration limits the number of workers at a time.
    ///
    /// Example: [`Pool`].
    pub fn pool(&self) -> Pool<E, A, L> {
        let state = self.state();
        Pool::of(&state.core, state.stage)
    }
}
