//! Leases for reading and writing: the handles of those who own their threads.
//!
//! Invariants
//! - I1: a batch borrows its handle mutably, so a handle lends one batch at a time, and its
//!   positions move only when the batch is gone.
//! - I2: a batch that is dropped or forgotten has moved nothing: the same events come again.
//! - I3: no `&mut EventsMut` of a batch is handed out: two batches could swap them, and outlive
//!   each other's release.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Index, IndexMut};
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::base::fault::Fault;
use crate::base::name::Name;
use crate::consumer::drive::{ENOUGH, End, Handler, Lent, Walked, drive, find, hand_over};
use crate::consumer::member;
use crate::consumer::pool;
use crate::consumer::position::enter_position;
use crate::consumer::position::{self, ConsumerPosition};
use crate::consumer::shard;
use crate::errors::{BatchError, WaitError};
use crate::ring::events::{At, Events, EventsIterMut};
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout, Storage};
use crate::wait::Learned;

pub(crate) mod sealed {
    use super::*;
    pub trait Access: 'static {}
    pub trait Delivery: 'static {
        #[allow(private_bounds)]
        type Position<E, L: Layout>: ConsumerPosition<E, L>;
    }
    /// Who may go on without letting go.
    pub trait Holds: Delivery {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64);
    }
    impl Holds for super::Every {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
    impl Holds for super::Joined {
        fn release_until<E, L: Layout>(position: &mut Self::Position<E, L>, seq: u64) {
            position.release_until(seq);
        }
    }
    impl Access for super::Reading {}
    impl Access for super::Writing {}
    impl Delivery for super::Every {
        type Position<E, L: Layout> = position::StagePosition<E, L>;
    }
    impl Delivery for super::Joined {
        type Position<E, L: Layout> = position::SequentialPosition<E, L, member::MemberRole>;
    }
    impl Delivery for super::Sharded {
        type Position<E, L: Layout> = shard::ShardPosition<E, L>;
    }
    impl Delivery for super::Shared {
        type Position<E, L: Layout> = pool::WorkerPosition<E, L>;
    }
}

/// Marks a [`Consumer`] that is lent `&E`.
pub struct Reading(());
/// Marks a [`Consumer`] that is lent `&mut E`.
pub struct Writing(());
/// Marks a [`Consumer`] that sees every event.
pub struct Every(());
/// Marks a [`Consumer`] that sees every event from where it joined on.
pub struct Joined(());
/// Marks a [`Consumer`] that shares the events with the other workers of its pool.
pub struct Shared(());
/// Marks a [`Consumer`] that sees the events of its own keys.
pub struct Sharded(());

/// A stage's handle, through which events are lent: a [`Reader`], a [`Writer`], a [`PoolReader`] or
/// a [`PoolWriter`].
///
/// - Nothing lent is overwritten or changed by anybody else until it is released; meanwhile other
///   stages beside this one may read the same events, and the producers go on filling other slots.
/// - Dropping the handle of a stage before its stream has ended fails the graph: the events behind
///   it could never be released. A worker may go while others of its pool remain; they finish what
///   it had begun. Forgetting a handle (`std::mem::forget`) cannot be healed: give such graphs
///   deadlines.
pub struct Consumer<E, A: sealed::Access, C: sealed::Delivery, L: Layout = Interleaved> {
    position: C::Position<E, L>,
    access: PhantomData<A>,
}

/// The handle of a stage that reads every event.
pub type Reader<E, L = Interleaved> = Consumer<E, Reading, Every, L>;
/// The handle of a stage that may change every event.
pub type Writer<E, L = Interleaved> = Consumer<E, Writing, Every, L>;
/// A worker of a pool that reads.
pub type PoolReader<E, L = Interleaved> = Consumer<E, Reading, Shared, L>;
/// A worker of a pool that may change events.
pub type PoolWriter<E, L = Interleaved> = Consumer<E, Writing, Shared, L>;
/// A shard of a stage that reads.
pub type ShardReader<E, L = Interleaved> = Consumer<E, Reading, Sharded, L>;
/// A shard of a stage that may change events.
pub type ShardWriter<E, L = Interleaved> = Consumer<E, Writing, Sharded, L>;

impl<E, A: sealed::Access, L: Layout> Consumer<E, A, Every, L> {
    pub(crate) fn every(core: Owner<E, L>, stage: usize, learned: Learned) -> Self {
        Consumer {
            position: position::StagePosition::new(core, stage, learned),
            access: PhantomData,
        }
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn position_mut(&mut self) -> &mut position::StagePosition<E, L> {
        &mut self.position
    }
}

impl<E, L: Layout> Consumer<E, Reading, Joined, L> {
    pub(crate) fn joined(position: position::SequentialPosition<E, L, member::MemberRole>) -> Self {
        Consumer { position, access: PhantomData }
    }

    pub(crate) fn membership(&self) -> (&position::ConsumerState<E, L>, &member::MemberRole) {
        (self.position.state(), self.position.role())
    }
}

impl<E, A: sealed::Access, L: Layout> Consumer<E, A, Sharded, L> {
    pub(crate) fn shard(core: Owner<E, L>, stage: usize, shard: usize, learned: Learned) -> Self {
        Consumer {
            position: shard::ShardPosition::new(core, stage, shard, learned),
            access: PhantomData,
        }
    }
}

impl<E, A: sealed::Access, L: Layout> Consumer<E, A, Shared, L> {
    pub(crate) fn worker(core: Owner<E, L>, stage: usize, worker: usize, learned: Learned) -> Self {
        Self::at_work(pool::WorkerPosition::new(core, stage, worker, learned))
    }

    pub(crate) fn at_work(position: pool::WorkerPosition<E, L>) -> Self {
        Consumer { position, access: PhantomData }
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// The stage's name.
    pub fn stage(&self) -> Name {
        self.position.state().plan().name.clone()
    }

    /// The position of the next event this handle will be lent. For a worker: where its pool
    /// stands, as far as it knows.
    pub fn next_seq(&self) -> u64 {
        self.position.next()
    }

    /// Up to `max` events that are there now, without waiting. Costs one load of a shared line when
    /// there is nothing.
    ///
    /// # Errors
    /// [`BatchError::Unavailable`] if there is none, [`BatchError::Contended`] if another worker
    /// left none, [`BatchError::Wait`] when none will come any more. With `max` 0 the batch is
    /// empty.
    #[inline]
    pub fn try_batch(&mut self, max: usize) -> Result<Batch<'_, E, A, C, L>, BatchError> {
        let len = self.find(max)?;
        if len == 0 && max != 0 {
            // What was published before the close is visible after it: one more look.
            if let Some(closed) = self.position.ended() {
                return Err(BatchError::Wait(closed));
            }
            return Err(if self.position.was_contended() {
                BatchError::Contended
            } else {
                BatchError::Unavailable
            });
        }
        Ok(self.lend(len))
    }

    /// Up to `max` events; waits, by the graph's strategy, until there is at least one. With `max`
    /// 0 the batch is empty and comes at once, as when reading into an empty buffer.
    ///
    /// # Errors
    /// When no event will come any more: closed and drained, halted, or failed.
    /// [`WaitError::TimedOut`] if the strategy has a timeout.
    #[inline]
    pub fn batch(&mut self, max: usize) -> Result<Batch<'_, E, A, C, L>, WaitError> {
        match self.wait_for(max, None) {
            Ok(len) => Ok(self.lend(len)),
            Err(BatchError::Wait(closed)) => Err(closed),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// As [`Consumer::batch`], but waits no longer than until `deadline`.
    ///
    /// # Errors
    /// [`BatchError::TimedOut`], [`BatchError::Wait`].
    pub fn batch_by(
        &mut self,
        max: usize,
        deadline: Instant,
    ) -> Result<Batch<'_, E, A, C, L>, BatchError> {
        let len = self.wait_for(max, Some(deadline))?;
        Ok(self.lend(len))
    }

    /// A wait without a deadline ended without a reason of the graph's: it was the strategy's
    /// timeout.
    #[cold]
    fn timed_out(&self) -> WaitError {
        WaitError::TimedOut(Box::new(
            self.position.state().control().name(self.position.waits_for()),
        ))
    }

    #[inline]
    pub(crate) fn find(&mut self, max: usize) -> Result<u64, WaitError> {
        self.position.check()?;
        self.position.want(max as u64);
        Ok(if max == 0 { 0 } else { self.position.gather(max as u64, max as u64) })
    }

    #[inline]
    fn wait_for(&mut self, max: usize, deadline: Option<Instant>) -> Result<u64, BatchError> {
        loop {
            let len = self.find(max)?;
            if len != 0 || max == 0 {
                return Ok(len);
            }
            if let Some(closed) = self.position.ended() {
                return Err(closed.into());
            }
            if self.position.holds_all() {
                return Err(WaitError::WaitsForItself(Box::new(self.stage())).into());
            }
            self.position.wait(deadline)?;
        }
    }

    /// How many events, at most `max`, can be had now; if none, has a task woken when there may be
    /// some.
    pub(crate) fn find_or_arm(
        &mut self,
        max: usize,
        waker: &Waker,
    ) -> Poll<Result<u64, WaitError>> {
        loop {
            let len = self.find(max)?;
            if len != 0 || max == 0 {
                return Poll::Ready(Ok(len));
            }
            if let Some(closed) = self.position.ended() {
                return Poll::Ready(Err(closed));
            }
            if self.position.holds_all() {
                return Poll::Ready(Err(WaitError::WaitsForItself(Box::new(self.stage()))));
            }
            if !self.position.arm(waker) {
                return Poll::Pending;
            }
        }
    }

    pub(crate) fn state(&self) -> &position::ConsumerState<E, L> {
        self.position.state()
    }

    pub(crate) fn position(&mut self) -> &mut C::Position<E, L> {
        &mut self.position
    }

    #[inline]
    pub(crate) fn lend(&mut self, len: u64) -> Batch<'_, E, A, C, L> {
        let state = self.position.state();
        let first = self.position.next();
        state.touch(first, len);
        // SAFETY: `[first, first + len)` is lent to this seat (position::I2); the batch borrows the
        // handle, so it is released only after the view is gone (I1).
        let view = unsafe { Events::new(state.slots, first, len) };
        Batch { view, len, consumer: self }
    }

    #[inline(always)]
    fn poll_with<H: Handler<E, L>>(
        &mut self,
        max: usize,
        mut handler: H,
    ) -> Result<usize, WaitError> {
        self.position.check()?;
        let max = max as u64;
        self.position.want(max);
        let mut done = 0;
        let polled = Driven { consumer: self };
        while done < max {
            let position = &mut polled.consumer.position;
            let found = find(position, ENOUGH, max - done);
            if found.len == 0 {
                break;
            }
            let (walked, outcome) = hand_over(position, &mut handler, &found);
            if let Err(fault) = outcome {
                unreachable!("a closure without errors returned one: {fault}");
            }
            done += walked.handled;
            // Where many produce, there may be a tombstone next, and more behind it.
            if C::Position::<E, L>::GATHERS_ALL
                && (found.all || walked.ended)
                && !position.state().control().plan.many_producers
            {
                break;
            }
        }
        drop(polled);
        if done != 0 {
            self.position.count_batch();
        } else if max != 0
            && let Some(closed) = self.position.ended()
        {
            return Err(closed);
        }
        Ok(done as usize)
    }

    #[inline(always)]
    fn drive_with<H: Handler<E, L>>(&mut self, mut handler: H) -> Result<u64, WaitError> {
        let before = self.position.handled();
        self.position.want(u64::MAX);
        let _within = enter_position(&self.position);
        let driven = Driven { consumer: self };
        match drive(&mut driven.consumer.position, &mut handler) {
            End::Wait(WaitError::Closed) => {
                Ok(driven.consumer.position.handled().wrapping_sub(before))
            }
            End::Wait(closed) => Err(closed),
            End::Fault(_) | End::Panic(_) => {
                unreachable!("the closure cannot fail, and its panics go through")
            }
        }
    }
}

/// Releases what was handled, even if the closure panics.
struct Driven<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout> {
    consumer: &'c mut Consumer<E, A, C, L>,
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Drop for Driven<'_, E, A, C, L> {
    #[inline(always)]
    fn drop(&mut self) {
        self.consumer.position.release();
    }
}

struct EachRef<F>(F);
struct EachMut<F>(F);

impl<E, L: Layout, F: FnMut(&E, At)> Handler<E, L> for EachRef<F> {
    #[inline(always)]
    fn handle(&mut self, lent: Lent<'_, E, L>, walked: &mut Walked) -> Result<(), Fault> {
        lent.each(walked, |event, at| {
            (self.0)(event, at);
            Ok(())
        })
    }
}

impl<E, L: Layout, F: FnMut(&mut E, At)> Handler<E, L> for EachMut<F> {
    #[inline(always)]
    fn handle(&mut self, lent: Lent<'_, E, L>, walked: &mut Walked) -> Result<(), Fault> {
        // SAFETY: only consumers marked `Writing` make this handler.
        unsafe {
            lent.each_mut(walked, |event, at| {
                (self.0)(event, at);
                Ok(())
            })
        }
    }
}

impl<E, C: sealed::Delivery, L: Layout> Consumer<E, Reading, C, L> {
    /// Handles up to `max` events that are there now, releases them, and says how many: 0 when
    /// nothing is new.
    ///
    /// If `f` panics, the events before that one are released and it comes again.
    ///
    /// # Errors
    /// When no event will come any more.
    #[inline]
    pub fn poll(&mut self, max: usize, f: impl FnMut(&E, At)) -> Result<usize, WaitError> {
        self.poll_with(max, EachRef(f))
    }

    /// Handles every event until the stream is closed and drained, waiting by the graph's strategy;
    /// says how many there were.
    ///
    /// Events are released about every microsecond, and always before waiting. If `f` panics, the
    /// events before that one are released and it comes again.
    ///
    /// # Errors
    /// When the graph was halted or has failed.
    #[doc(alias = "EventHandler")]
    #[inline]
    pub fn for_each(&mut self, f: impl FnMut(&E, At)) -> Result<u64, WaitError> {
        self.drive_with(EachRef(f))
    }
}

impl<E, C: sealed::Delivery, L: Layout> Consumer<E, Writing, C, L> {
    /// Handles up to `max` events that are there now, releases them, and says how many: 0 when
    /// nothing is new.
    ///
    /// If `f` panics, the events before that one are released and it comes again, half done as it
    /// may be.
    ///
    /// # Errors
    /// When no event will come any more.
    #[inline]
    pub fn poll(&mut self, max: usize, f: impl FnMut(&mut E, At)) -> Result<usize, WaitError> {
        self.poll_with(max, EachMut(f))
    }

    /// Handles every event until the stream is closed and drained, waiting by the graph's strategy;
    /// says how many there were.
    ///
    /// Events are released about every microsecond, and always before waiting. If `f` panics, the
    /// events before that one are released and it comes again, half done as it may be.
    ///
    /// # Errors
    /// When the graph was halted or has failed.
    #[doc(alias = "EventHandler")]
    #[inline]
    pub fn for_each(&mut self, f: impl FnMut(&mut E, At)) -> Result<u64, WaitError> {
        self.drive_with(EachMut(f))
    }
}

/// Events lent to a stage at once: consecutive positions, in order, none given up. It dereferences
/// to [`Events`].
///
/// [`Batch::release`] gives them back; a batch that is dropped without it comes again.
pub struct Batch<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout = Interleaved> {
    view: Events<'c, E, L>,
    len: u64,
    consumer: &'c mut Consumer<E, A, C, L>,
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Batch<'_, E, A, C, L> {
    /// Gives the events back: the stages behind this one, or the producers, may have them now.
    #[inline]
    pub fn release(self) {
        let Batch { len, consumer, .. } = self;
        if len != 0 {
            consumer.position.count_batch();
            consumer.position.advance(len, len);
            consumer.position.release();
        }
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Batch<'_, E, A, C, L> {
    /// Gives the first `count` events back early; the batch goes on with the others, and offsets
    /// count from there.
    ///
    /// # Panics
    /// If the batch has fewer.
    pub fn release_front(&mut self, count: usize) {
        assert!(
            count <= self.view.len(),
            "cannot release {count} events of a batch of {}",
            self.view.len()
        );
        if count == 0 {
            return;
        }
        let count = count as u64;
        self.consumer.position.advance(count, count);
        self.consumer.position.release();
        self.len -= count;
        // SAFETY: what is left of the lease; nobody has a reference to what was released, for that
        // would have borrowed this batch.
        self.view = unsafe {
            Events::new(
                self.consumer.position.state().slots,
                self.consumer.position.next(),
                self.len,
            )
        };
    }
}

impl<E, A: sealed::Access, C: sealed::Holds, L: Layout> Batch<'_, E, A, C, L> {
    /// Goes on to the next events without giving these back: a journal that acknowledges later.
    /// [`Consumer::release_until`] gives them back, and so does whatever releases on this handle
    /// next: [`Batch::release`], `release_front`, `poll`, `for_each`. Until then they count as the
    /// handle's, and no call lends them again.
    pub fn hold(self) {
        let Batch { len, consumer, .. } = self;
        if len != 0 {
            consumer.position.count_batch();
            consumer.position.advance(len, len);
        }
    }
}

impl<E, A: sealed::Access, C: sealed::Holds, L: Layout> Consumer<E, A, C, L> {
    /// Gives back what was [held](Batch::hold) and lies before `seq`: a position up to
    /// [`next_seq`](Consumer::next_seq). An earlier one than was given back already changes
    /// nothing, and a later one than that stands for all.
    ///
    /// When a handle holds the whole ring nothing more can come, and a call that waits says
    /// [`WaitError::WaitsForItself`] until something is given back.
    pub fn release_until(&mut self, seq: u64) {
        C::release_until(&mut self.position, seq);
    }
}

impl<'c, E, A: sealed::Access, C: sealed::Delivery, L: Layout> Deref for Batch<'c, E, A, C, L> {
    type Target = Events<'c, E, L>;
    #[inline]
    fn deref(&self) -> &Events<'c, E, L> {
        &self.view
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Index<usize> for Batch<'_, E, A, C, L> {
    type Output = E;
    #[inline]
    fn index(&self, offset: usize) -> &E {
        &self.view[offset]
    }
}

impl<E, C: sealed::Delivery, L: Layout> Batch<'_, E, Writing, C, L> {
    /// The event at an offset.
    #[inline]
    pub fn get_mut(&mut self, offset: usize) -> Option<&mut E> {
        let seq = self.view.first_seq().wrapping_add(offset as u64);
        // SAFETY: a writing stage has its batch to itself (plan::I1), and `&mut self` keeps a
        // second reference away.
        (offset < self.view.len())
            .then(|| unsafe { &mut *self.consumer.position.state().slots.event(seq) })
    }

    /// The events in order.
    #[inline]
    pub fn iter_mut(&mut self) -> EventsIterMut<'_, E, L> {
        // SAFETY: as in `get_mut`; the iterator gives each event out once.
        unsafe {
            EventsIterMut::new(
                self.consumer.position.state().slots,
                self.view.first_seq(),
                self.view.len(),
            )
        }
    }
}

impl<E, C: sealed::Delivery, L: Layout> IndexMut<usize> for Batch<'_, E, Writing, C, L> {
    #[inline]
    fn index_mut(&mut self, offset: usize) -> &mut E {
        let len = self.view.len();
        self.get_mut(offset).unwrap_or_else(|| crate::ring::events::out_of_bounds(offset, len))
    }
}

impl<E: fmt::Debug, A: sealed::Access, C: sealed::Delivery, L: Layout> fmt::Debug
    for Batch<'_, E, A, C, L>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> fmt::Debug for Consumer<E, A, C, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("stage", &self.stage())
            .field("next_seq", &self.next_seq())
            .finish()
    }
}
