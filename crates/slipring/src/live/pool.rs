//! Workers that join a pool while it works. They leave by being dropped, as all workers do.
//!
//! Invariants
//! - I1: a worker's line belongs to who has its seat, and to who took over a chunk that it bounds.
//!   A seat is given away again only when nobody has it and its line says [`IDLE`]: when such a
//!   chunk is done, too.
//! - I2: every line of a pool is looked at by whoever computes its frontier, be its seat taken or
//!   not; so joining tells nobody anything.
//! - I3: the landmark is a position that the claim word has passed, by no more than 2^32 and one
//!   lap of the ring. A worker stores it after the swap that crosses a multiple of 2^32, and before
//!   it lets that chunk go; until then the chunk's bound keeps the word within one lap. So joiners
//!   and idle workers widen the claim word from it.

use std::fmt;
use std::marker::PhantomData;

use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Reading, Shared, Writing};
use crate::consumer::worker::WorkerPosition;
use crate::errors::BuildError;
use crate::errors::SubscribeError;
use crate::live::tap::Place;
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout};
use crate::ring::spec::Access;

/// A pool that workers can join while it works, from any thread.
///
/// Put where the pool is with [`Chain::open`](crate::Chain::open), or had from a worker with
/// [`Consumer::pool`]. A worker that joined is one of the pool: it shares the events with the
/// others, and whoever comes after sees sequence order. Dropping it is leaving; the others finish
/// what it had begun. When the last one leaves before the stream has ended, the graph fails.
///
/// ```
/// use slipring::{Graph, Writing};
/// let graph = Graph::new(64, || 0u64);
/// let parse = graph.pool_writer("parse", 1).room(4);
/// let end = graph.reader("end").after(&parse);
/// let ring = graph.build()?;
/// let (mut tx, mut parse, mut end) = (ring.producer(), ring.pool_writers(parse), ring.reader(end));
/// let mut second = parse[0].pool().join()?;
/// for i in 0..10 { tx.publish(|v| *v = i)?; }
/// tx.close();
/// drop(parse); // the first one leaves
/// second.for_each(|v, _| *v *= 2)?;
/// let mut sum = 0;
/// end.for_each(|v, _| sum += v)?;
/// assert_eq!(sum, 90);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "WorkerPool")]
pub struct Pool<E, A, L: Layout = Interleaved> {
    place: Place<E, L>,
    room: usize,
    access: PhantomData<fn() -> A>,
}

impl<E, A, L: Layout> Clone for Pool<E, A, L> {
    fn clone(&self) -> Self {
        Pool { place: self.place.clone(), ..*self }
    }
}

impl<E, L: Layout> Pool<E, Reading, L> {
    /// For a pool that reads; with room for so many workers, those that it has from the beginning
    /// included.
    pub fn reading(room: usize) -> Self {
        Pool { place: Place::nowhere(), room, access: PhantomData }
    }
}

impl<E, L: Layout> Pool<E, Writing, L> {
    /// For a pool that may write; with room for so many workers, those that it has from the
    /// beginning included.
    pub fn writing(room: usize) -> Self {
        Pool { place: Place::nowhere(), room, access: PhantomData }
    }
}

/// What a mark of access stands for.
pub(crate) trait Marked {
    const ACCESS: Access;
}
impl Marked for Reading {
    const ACCESS: Access = Access::Read;
}
impl Marked for Writing {
    const ACCESS: Access = Access::Write;
}

#[allow(private_bounds)]
impl<E, A: Marked + crate::consumer::markers::sealed::Access, L: Layout> Pool<E, A, L> {
    pub(crate) fn seats(&self) -> usize {
        self.room
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn place(&self) -> &Place<E, L> {
        &self.place
    }

    pub(crate) fn bind(&self, core: &Owner<E, L>, stage: usize) -> Result<(), BuildError> {
        let plan = &core.control.plan.stages[stage];
        if plan.access != A::ACCESS {
            let (is, marked) = if A::ACCESS == Access::Write {
                ("only reads", "reading")
            } else {
                ("may write", "writing")
            };
            return Err(BuildError::Misplaced {
                what: format!("pool `{}` {is}: open it with `Pool::{marked}`", plan.name),
            });
        }
        self.place.bind(core, stage)
    }

    /// Joins: the new worker takes its share of the events from now on. Never waits, and stops no
    /// stage. Allocates nothing but what a strategy that learns keeps for the worker
    /// ([`Wait::Adaptive`](crate::Wait::Adaptive), the default: once, some hundred bytes).
    ///
    /// A worker that leaves in the middle of a chunk keeps its place until a colleague has finished
    /// that chunk.
    ///
    /// # Errors
    /// [`SubscribeError::Full`], [`SubscribeError::NotRunning`], [`SubscribeError::Ended`].
    pub fn join(&self) -> Result<Consumer<E, A, Shared, L>, SubscribeError> {
        let (core, stage) = self.place.find()?;
        core.control.check_running()?;
        let learned = core.control.learner(stage); // the user's code: before the worker is counted
        let room = core.control.plan.stages[stage].delivery.room();
        let worker = core.control.acquire_worker(stage)?.ok_or(SubscribeError::Full { room })?;
        // Last, so that one who is refused has owned nothing.
        let Some(owner) = Owner::of(&core) else {
            core.control.membership.remove_worker(stage);
            core.control.membership.release_worker(stage, worker);
            return Err(SubscribeError::NotRunning);
        };
        Ok(Consumer::of_worker(WorkerPosition::join(owner, stage, worker, learned)))
    }
}

impl<E, A, L: Layout> fmt::Debug for Pool<E, A, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("room", &self.room).finish_non_exhaustive()
    }
}

#[allow(private_bounds)]
impl<E, A: Marked + crate::consumer::markers::sealed::Access, L: Layout> Consumer<E, A, Shared, L> {
    /// The pool this worker is of, so that others can join it: as many at a time as it was declared
    /// with room for.
    pub fn pool(&self) -> Pool<E, A, L> {
        let state = self.state();
        Pool {
            place: Place::at(&state.core, state.stage),
            room: state.plan().delivery.room(),
            access: PhantomData,
        }
    }
}
