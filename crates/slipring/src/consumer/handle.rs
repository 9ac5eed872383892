//! [`Consumer`] is the handle of a stage that runs on one of the user's own threads. The methods
//! that call a closure for each event are in [`closures`](crate::consumer::closures).
//!
//! Invariants
//! - I1: the length passed to `lend` never exceeds the number of events that the last call of
//!   `available` found and that are still unhandled.

use std::fmt;
use std::marker::PhantomData;
use std::task::{Poll, Waker, ready};
use std::time::Instant;

use crate::base::name::Name;
#[cfg(debug_assertions)]
use crate::base::sync::Statistic;
use crate::base::sync::{now, spin_loop};
use crate::consumer::batch::Batch;
use crate::consumer::local_worker::LocalWorkerPosition;
use crate::consumer::markers::{Each, Joined, Pooled, Reading, Sharded, Updating, sealed};
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState};
use crate::consumer::role::MemberRole;
use crate::consumer::sequential::{SequentialPosition, StagePosition};
use crate::consumer::shard::ShardPosition;
use crate::consumer::waiting::{Counting, Waiting};
use crate::errors::{BatchError, WaitError};
use crate::ring::owner::Owner;
use crate::ring::slots::{Interleaved, Layout, View};
use crate::ring::waits::{Place, Unmet};
use crate::ring::world::World;
use crate::wait::HandleLearner;
#[cfg(debug_assertions)]
use crate::wait::warning::{Warning, warn};

/// A stage's handle, which lends events to one thread at a time.
///
/// | handle | sees | lends |
/// |---|---|---|
/// | [`Reader`], [`Updater`] | every event | `&E`, `&mut E` |
/// | [`PoolReader`], [`PoolUpdater`] | the events that no other worker of the pool takes | `&E`, `&mut E` |
/// | [`ShardReader`], [`ShardUpdater`] | the events of its own keys | `&E`, `&mut E` |
/// | [`Subscription`](crate::handles::Subscription) | every event since it joined | `&E` |
///
/// - No other thread overwrites or changes a lent event until its release. Meanwhile parallel
///   stages may read it, and producers may fill other slots.
/// - Dropping a stage's handle before the stream's end fails the graph, because the stage could
///   never release its later events. A worker may be dropped, outside of a panic, while other
///   workers of its pool remain: they finish its chunk. Dropping a subscription never fails the
///   graph.
/// - A forgotten handle (`std::mem::forget`) holds its events for ever. A graph whose user may
///   forget handles needs a [deadline](crate::Graph::deadline).
///
/// ```
/// let (mut tx, mut rx) = slipring::unicast(8, String::new)?;
/// tx.publish(|text| text.push_str("first"))?;
/// let batch = rx.batch(8)?;
/// assert_eq!(batch[0], "first");
/// batch.release();
/// tx.publish(|text| text.replace_range(.., "second"))?;
/// drop(tx); // the stream ends
/// assert_eq!(rx.for_each(|text, at| assert_eq!((text.as_str(), at.seq), ("second", 1)))?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Consumer<E, A: sealed::Access, C: sealed::Delivery, L: Layout = Interleaved> {
    pub(crate) position: C::Position<E, L>,
    access: PhantomData<A>,
}

/// The handle with which a stage reads every event.
pub type Reader<E, L = Interleaved> = Consumer<E, Reading, Each, L>;
/// The handle with which a stage reads, and may change, every event.
pub type Updater<E, L = Interleaved> = Consumer<E, Updating, Each, L>;
/// The handle with which one worker of a pool reads events.
pub type PoolReader<E, L = Interleaved> = Consumer<E, Reading, Pooled, L>;
/// The handle with which one worker of a pool reads, and may change, events.
pub type PoolUpdater<E, L = Interleaved> = Consumer<E, Updating, Pooled, L>;
/// The handle with which one shard of a stage reads events.
pub type ShardReader<E, L = Interleaved> = Consumer<E, Reading, Sharded, L>;
/// The handle with which one shard of a stage reads, and may change, events.
pub type ShardUpdater<E, L = Interleaved> = Consumer<E, Updating, Sharded, L>;

impl<E, A: sealed::Access, L: Layout> Consumer<E, A, Each, L> {
    /// Creates the handle of a stage that sees every event.
    pub(crate) fn every(core: Owner<E, L>, stage: usize, learned: HandleLearner) -> Self {
        Consumer { position: StagePosition::new(core, stage, learned), access: PhantomData }
    }
}

impl<E, L: Layout> Consumer<E, Reading, Joined, L> {
    /// Creates the handle of a member that has joined a tap.
    pub(crate) fn joined(position: SequentialPosition<E, L, MemberRole>) -> Self {
        Consumer { position, access: PhantomData }
    }

    pub(crate) fn membership(&self) -> (&ConsumerState<E, L>, &MemberRole) {
        (self.position.state(), self.position.role())
    }
}

impl<E, A: sealed::Access, L: Layout> Consumer<E, A, Sharded, L> {
    /// Creates the handle of a shard.
    pub(crate) fn shard(
        core: Owner<E, L>,
        stage: usize,
        shard: usize,
        learned: HandleLearner,
    ) -> Self {
        Consumer { position: ShardPosition::new(core, stage, shard, learned), access: PhantomData }
    }
}

impl<E, A: sealed::Access, L: Layout> Consumer<E, A, Pooled, L> {
    /// Creates the handle of a worker that is declared with the graph.
    pub(crate) fn worker(
        core: Owner<E, L>,
        stage: usize,
        worker: usize,
        learned: HandleLearner,
    ) -> Self {
        Self::of_worker(LocalWorkerPosition::new(core, stage, worker, learned))
    }

    /// Creates the handle of the worker that owns `position`.
    pub(crate) fn of_worker(position: LocalWorkerPosition<E, L>) -> Self {
        Consumer { position, access: PhantomData }
    }
}

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Lends at least one event and at most `max`. If no event is available, the call waits as the
    /// graph's wait strategy says. If `max` is 0, the call returns an empty batch at once, as a
    /// read into an empty buffer does.
    ///
    /// The lent events are released together. So in a line of stages, `max` should take a few
    /// microseconds to handle, such as 64: no later stage sees an event of the batch, and no
    /// producer gets its slot, before the whole batch is released.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// std::thread::spawn(move || tx.publish(|v| *v = 7)); // and closes
    /// let batch = rx.batch(8)?;
    /// assert_eq!(batch[0], 7);
    /// batch.release();
    /// assert!(matches!(rx.batch(8), Err(slipring::errors::WaitError::Closed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`], in segments: a process that holds the call up has died.
    /// - [`WaitError::NameLost`], in segments: the name no longer refers to the segment's file.
    /// - [`WaitError::Damaged`], in segments: its words contradict each other.
    #[inline(always)]
    pub fn batch(&mut self, max: usize) -> Result<Batch<'_, E, A, C, L>, WaitError> {
        let len = match self.look_shortly(max)? {
            0 if max != 0 => self.wait_for_batch(max)?,
            len => len,
        };
        #[cfg(debug_assertions)]
        if len != 0 {
            self.warn_if_unreleased();
        }
        Ok(self.lend(len))
    }

    /// Waits for a batch, after a call of [`Consumer::look_shortly`] that found no event.
    #[cold]
    #[inline(never)]
    fn wait_for_batch(&mut self, max: usize) -> Result<u64, WaitError> {
        self.wait_until_found(max, None).map_err(|unmet| match unmet {
            Unmet::Ended(closed) => closed,
            Unmet::TimedOut => WaitError::TimedOut(self.awaited()),
        })
    }

    /// Warns if a loop of the user seems to release no batch, because it gets the same events for
    /// the hundredth time. Such a loop never ends. Builds without debug assertions do not count.
    #[cfg(debug_assertions)]
    fn warn_if_unreleased(&mut self) {
        static WARNED: Statistic = Statistic::new(0);
        let seq = self.next_seq();
        let (last, times) = self.position.state().lent;
        let times = if last == seq { times.saturating_add(1) } else { 1 };
        self.position.state_mut().lent = (seq, times);
        if times == 100 {
            warn(&WARNED, || Warning::NeverReleased { stage: self.stage(), seq });
        }
    }

    /// Lends up to `max` events that are available now, without waiting. If `max` is 0, the
    /// returned batch is empty.
    ///
    /// If no event is available, the call costs one load of a cache line that the upstream writes.
    /// A stage with several dependencies loads at least one line for each dependency. In a
    /// [`Contiguous`](crate::markers::Contiguous) ring, the call first pauses for up to a
    /// microsecond if events come densely.
    ///
    /// ```
    /// use slipring::errors::BatchError;
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// assert!(matches!(rx.try_batch(8), Err(BatchError::Unavailable)));
    /// for i in 0..3 { tx.publish(|v| *v = i)?; }
    /// let batch = rx.try_batch(2)?;
    /// assert_eq!((batch[0], batch[1], batch.len()), (0, 1, 2));
    /// batch.release();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BatchError::Unavailable`]: no event is available yet.
    /// - [`BatchError::Contended`]: another worker of the pool took the available events.
    /// - [`BatchError::Wait`]: no event will come any more.
    /// - [`BatchError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_batch(&mut self, max: usize) -> Result<Batch<'_, E, A, C, L>, BatchError> {
        let len = self.look(max)?;
        if len == 0 && max != 0 {
            // While a closed ring still has unhandled events, `ended` returns `None`, and a later
            // call lends these events.
            if let Some(closed) = self.ended_or_refused() {
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

    /// Like [`Consumer::batch`], but waits at most until `deadline`. The wait strategy's own
    /// timeout does not apply to this call.
    ///
    /// Inside a handler on shared threads, the waiting thread runs other stages, so the call may be
    /// late by one turn of such a stage; see [`Chain::threads`](crate::Chain::threads).
    ///
    /// ```
    /// use slipring::errors::BatchError;
    /// use std::time::{Duration, Instant};
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// assert!(matches!(rx.batch_by(8, soon), Err(BatchError::TimedOut(_))));
    /// tx.publish(|v| *v = 7)?;
    /// assert_eq!(rx.batch_by(8, soon)?[0], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed.
    /// - [`BatchError::Wait`]: no event will come any more, or only this thread could release it.
    /// - [`BatchError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn batch_by(
        &mut self,
        max: usize,
        deadline: Instant,
    ) -> Result<Batch<'_, E, A, C, L>, BatchError> {
        match self.wait_for(max, Some(deadline)) {
            Ok(len) => Ok(self.lend(len)),
            Err(Unmet::Ended(closed)) => Err(closed.into()),
            Err(Unmet::TimedOut) => Err(BatchError::TimedOut(self.awaited())),
        }
    }

    /// Returns the stage's name.
    ///
    /// ```
    /// let graph = slipring::Graph::new(8, || 0u64);
    /// let audit = graph.reader("audit");
    /// assert_eq!(graph.build()?.reader(audit).stage().as_str(), "audit");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stage(&self) -> Name {
        self.position.state().plan().name.clone()
    }

    /// Returns the position of the next event that this handle lends. For a worker without a chunk,
    /// this is the position up to which the pool's workers had taken events when this worker last
    /// checked; they may take more at any time, and workers that spin take a position before its
    /// event is there.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// assert_eq!(rx.next_seq(), 0);
    /// tx.publish(|v| *v = 7)?;
    /// rx.poll(8, |_, _| ())?;
    /// assert_eq!(rx.next_seq(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_seq(&self) -> u64 {
        self.position.next()
    }

    /// Returns the name of the stage or producer for which this handle waits.
    #[cold]
    pub(super) fn awaited(&self) -> Name {
        self.position.state().control().plan.name_of(self.position.waits_for())
    }

    /// Returns the number of events that are available now, at most `max`. Fails only if this
    /// handle must stop before the stream's end.
    #[inline(always)]
    pub(crate) fn available(&mut self, max: usize) -> Result<u64, WaitError> {
        Self::available_at(&mut self.position, max)
    }

    /// Like [`Consumer::available`], for this handle's position.
    ///
    /// The search goes on behind the first run, although a wait would end sooner without that look
    /// (records/2026-11-30-spinning-waits): a publication may have several runs, and no call lends
    /// a part of it that is shorter than `max`.
    #[inline(always)]
    fn available_at(position: &mut C::Position<E, L>, max: usize) -> Result<u64, WaitError> {
        position.check()?;
        position.limit_chunk(max as u64);
        Ok(if max == 0 { 0 } else { position.gather(max as u64, max as u64) })
    }

    /// Whether calls from a loop that the user writes pause when events come densely. In a ring
    /// with a cursor, a loop without pauses would load the cursor, and so take the cursor's cache
    /// line from the producer, at each publication. In a ring with stamps, such pauses gain
    /// nothing.
    pub(super) const PAUSES: bool =
        View::<E, L>::CURSOR && <C::Position<E, L> as Availability<E, L>>::MAY_PAUSE;

    /// Like [`Consumer::available`], but for a call from the user's own loop, which may pause
    /// first.
    #[inline(always)]
    fn look(&mut self, max: usize) -> Result<u64, WaitError> {
        if Self::PAUSES {
            self.position.state_mut().calls.pause();
        }
        let len = self.available(max)?;
        if Self::PAUSES && max != 0 {
            self.position.state_mut().calls.found(len, max as u64);
        }
        Ok(len)
    }

    /// Waits until events are available, and returns the number of available events, at most `max`.
    #[inline(always)]
    pub(super) fn wait_for(&mut self, max: usize, deadline: Option<Instant>) -> Result<u64, Unmet> {
        match self.look_shortly(max)? {
            0 if max != 0 => self.wait_until_found(max, deadline),
            len => Ok(len),
        }
    }

    /// Like [`Consumer::look`], but if no event is available, looks again for a wait's first polls,
    /// and spins in between. A close is seen only after these polls.
    ///
    /// The loop is part of the call, and does nothing else: all that lies between an event and its
    /// reader delays the event. With three calls between the two, a hand-over to another core took
    /// 64 to 72 ns. Without them, it takes 49 to 53 ns (records/2026-11-30-waits-of-batches).
    #[inline(always)]
    fn look_shortly(&mut self, max: usize) -> Result<u64, WaitError> {
        let len = self.look(max)?;
        if len != 0 || max == 0 {
            return Ok(len);
        }
        for polls in 0..self.position.looks_in_wait() {
            let len = self.available(max)?;
            if len != 0 {
                let state = self.position.state_mut();
                state.note_short_wait(polls);
                if Self::PAUSES {
                    state.calls.waited(polls);
                    state.calls.found(len, max as u64);
                }
                return Ok(len);
            }
            spin_loop();
        }
        Ok(0)
    }

    /// Like [`Consumer::wait_for`], for a call of [`Consumer::look_shortly`] that found no event.
    #[cold]
    #[inline(never)]
    fn wait_until_found(&mut self, max: usize, deadline: Option<Instant>) -> Result<u64, Unmet> {
        let mut waited = false;
        loop {
            if let Some(closed) = self.position.ended() {
                self.position.flush_if_new();
                return Err(closed.into());
            }
            if self.position.holds_whole_ring() {
                return Err(WaitError::WaitsForItself(self.stage()).into());
            }
            // A wait does not check the deadline if it ends because an event seems to be available.
            // Other processes may make such an event appear again and again, so the loop checks the
            // deadline here.
            if waited && deadline.is_some_and(|deadline| now() >= deadline) {
                return Err(Unmet::TimedOut);
            }
            // The calling function has made the first polls of the first wait.
            let looked = if std::mem::replace(&mut waited, true) {
                self.position.wait(deadline)?;
                None
            } else {
                // The wait itself notices an end, for which a look fails.
                let look = |len: Result<u64, WaitError>| len.ok().filter(|&len| len != 0);
                self.position.wait_longer(deadline, |at| look(Self::available_at(at, max)))?
            };
            let state = self.position.state_mut();
            if Self::PAUSES {
                state.calls.waited(state.polls);
            }
            let len = match looked {
                None => self.look(max)?,
                Some(len) => {
                    if Self::PAUSES {
                        state.calls.found(len, max as u64);
                    }
                    len
                }
            };
            if len != 0 {
                return Ok(len);
            }
        }
    }

    /// Returns the number of events that are available now, at most `max`. If no event is
    /// available, registers a task to be woken when another call may find an event. A task whose
    /// budget is spent is woken at once instead, and not registered.
    pub(crate) fn available_or_arm(
        &mut self,
        max: usize,
        waker: &Waker,
    ) -> Poll<Result<u64, WaitError>> {
        ready!(self.position.state_mut().budget.spend(waker));
        loop {
            let len = self.available(max)?;
            if len != 0 || max == 0 {
                return Poll::Ready(Ok(len));
            }
            if let Some(closed) = self.position.ended() {
                self.position.flush_if_new();
                return Poll::Ready(Err(closed));
            }
            if self.position.holds_whole_ring() {
                return Poll::Ready(Err(WaitError::WaitsForItself(self.stage())));
            }
            if let Some(dead) = self.refused() {
                return Poll::Ready(Err(dead));
            }
            if !self.position.arm(waker) {
                self.position.state_mut().budget.refill();
                return Poll::Pending;
            }
        }
    }

    /// Returns why no event will come any more, or the error that reports a dead process. The
    /// caller has just polled and found no event.
    #[inline(always)]
    pub(crate) fn ended_or_refused(&mut self) -> Option<WaitError> {
        self.position.flush_if_new();
        match self.position.ended() {
            None if L::World::SHARED => self.refused(),
            ended => ended,
        }
    }

    /// Checks for dead processes, if a check is due, for a call that found no event and does not
    /// wait. Returns the error that this call must return, if any.
    #[inline]
    pub(crate) fn refused(&mut self) -> Option<WaitError> {
        self.refused_at(self.position.next())
    }

    /// Like [`Consumer::refused`], but for a call that waits for the event at `at`.
    #[inline]
    pub(crate) fn refused_at(&mut self, at: u64) -> Option<WaitError> {
        if !L::World::SHARED {
            return None;
        }
        let state = self.position.state_mut();
        let due = state.core.world.is_due(&mut state.checks);
        if due || state.task.taken().is_some() { self.heard(at, due) } else { None }
    }

    /// Like [`Consumer::refused`], but for a handle that has just registered a waker. If there is
    /// an error, removes the waker, leaves the error to the handle's next call, and returns `true`.
    pub(crate) fn hears_of_death(&mut self) -> bool {
        let Some(death) = self.refused() else { return false };
        self.position.disarm();
        let state = self.position.state();
        state.core.world.tell_later(&state.task, death);
        true
    }

    /// Returns the error that a dead process causes for this handle, if any. The handle waits for
    /// the event at `at`. `due` says whether a check for dead processes is due.
    #[cold]
    fn heard(&self, at: u64, due: bool) -> Option<WaitError> {
        let state = self.position.state();
        let place = Place { party: state.stage, at };
        let is_damaged = || self.position.finds_damage();
        let ring = state.core.watched(&is_damaged);
        state.core.world.refuse(ring, place, &state.task, due)
    }

    /// See [`Availability::finds_damage`].
    #[cfg(all(test, slipring_loom))]
    pub(crate) fn finds_damage(&self) -> bool {
        self.position.finds_damage()
    }

    pub(crate) fn state(&self) -> &ConsumerState<E, L> {
        self.position.state()
    }

    pub(crate) fn position(&mut self) -> &mut C::Position<E, L> {
        &mut self.position
    }

    /// Creates the handle that owns `position`.
    pub(crate) fn over(position: C::Position<E, L>) -> Self {
        Consumer { position, access: PhantomData }
    }

    /// Lends the next `len` events, which a call of [`Consumer::available`] found.
    #[inline]
    pub(crate) fn lend(&mut self, len: u64) -> Batch<'_, E, A, C, L> {
        // SAFETY: I1.
        unsafe { Batch::new(&mut self.position, len) }
    }

    /// Releases the next `len` events, which the last call lent and which were not released since.
    pub(crate) fn release_next(&mut self, len: u64) {
        self.position.count_batch();
        self.position.pass(len);
    }
}

impl<E, A: sealed::Access, C: sealed::Holds, L: Layout> Consumer<E, A, C, L> {
    /// Releases the [held](Batch::hold) events before position `seq`: all of them if `seq` is
    /// beyond the last one, and none if they were released before.
    ///
    /// A call costs as much as [`Batch::release`]. A handle that holds all slots of the ring gets
    /// no further event, and its waiting calls return [`WaitError::WaitsForItself`].
    ///
    /// Example: [`Batch::hold`].
    pub fn release_until(&mut self, seq: u64) {
        C::release_until(&mut self.position, seq);
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
