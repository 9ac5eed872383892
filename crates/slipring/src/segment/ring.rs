//! The ring of a segment, as one process sees it, and the ring's handles.
//!
//! Invariants
//! - I1: a ring lies over the areas of its own declaration (segment::I1), and its core keeps their
//!   mapping (segment::I3).
//! - I2: a process makes a handle only on a seat that it owns (segment::I2), unless the ring is a
//!   ring of copies, in which every access to an event is atomic.

use std::ops::Range;

use super::areas::{Areas, SegmentLayout};
use super::declaration::Declaration;
use super::participant::Participant;
use crate::base::atomic_bytes::{AtomicBytes, PlainBytes};
use crate::base::sync::twin;
use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Joined, Reading, Updating, sealed};
use crate::consumer::shard::ShardPosition;
use crate::consumer::worker::WorkerPosition;
use crate::errors::{BuildError, Report, SubscribeError};
use crate::live::tap::{self, StartAt};
use crate::processes::claims;
use crate::processes::layout::InSegment;
use crate::processes::markers::{Seated, SeatedShard, SeatedWorker};
use crate::processes::producer::Apart;
use crate::processes::recovery;
use crate::processes::successor;
use crate::processes::watch::forget_deaths;
use crate::producer::{Producer, Single};
use crate::ring::control::{Control, ControlOptions};
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::partition::{KeyBytes, Partitioner, copying_partitioner};
use crate::ring::plan::Plan;
use crate::ring::seat::Seat;
use crate::ring::slots::Interleaved;
use crate::ring::spec::Delivery;

/// A producer of a segment.
pub type SegmentProducer<E, L = Interleaved, S = Single> = Producer<E, InSegment<L>, S>;
/// A consumer of a segment: the handle of a stage, a shard, a pool's worker or a tap's member.
pub type SegmentConsumer<E, A, D, L = Interleaved> = Consumer<E, A, D, InSegment<L>>;

/// A ring over the areas of a segment. `E` is plain data: every bit pattern is a valid `E`.
pub struct SegmentRing<E, L: SegmentLayout = Interleaved> {
    core: Owner<E, InSegment<L>>,
    participant: u32,
}

impl<E: PlainBytes + 'static> SegmentRing<AtomicBytes<E>> {
    /// Makes the ring of one process whose handles copy events in and out. The ring's events are
    /// [`AtomicBytes`], to which a `&` is sound whatever other processes store. Each handle of the
    /// ring becomes a [`CopyingConsumer`](super::CopyingConsumer) or a
    /// [`CopyingProducer`](super::CopyingProducer), and is used in no other way.
    ///
    /// # Errors
    /// Returns why no ring can be made from the declaration.
    ///
    /// # Safety
    /// - The areas have the sizes that the declaration needs for events of type `E`, and `begin`
    ///   has stored their first words, with an equal declaration.
    /// - The threads of this process access the words of the areas by atomic accesses of the words'
    ///   sizes, and the events by this ring's handles, or by handles of a
    ///   [`SegmentRing<E>`](SegmentRing::over) whose maker promised that all processes follow the
    ///   protocol. Other processes may store anything at any time.
    pub unsafe fn over_copies(
        declaration: &Declaration,
        areas: &Areas,
        participant: &Participant,
    ) -> Result<SegmentRing<AtomicBytes<E>>, BuildError> {
        // The call that computes the needs also checks that the keys lie inside an `E`.
        declaration.needs::<E>()?;
        let mut plan = declaration.plan()?;
        plan.choose_wait(&participant.wait, &participant.producer_wait);
        // SAFETY: the caller promises the conditions of the call. A slot of `AtomicBytes<E>` has
        // the size of a slot of `E`, and its event lies at the same place (`AtomicBytes`). Every
        // access to an event is atomic.
        unsafe {
            let partitioner = &copying_partitioner::<E>;
            SegmentRing::partitioned(plan, declaration, areas, participant, partitioner)
        }
    }
}

impl<E: Send + Sync + 'static, L: SegmentLayout> SegmentRing<E, L> {
    /// Makes the ring of one process.
    ///
    /// # Errors
    /// Returns why no ring can be made from the declaration.
    ///
    /// # Safety
    /// - The areas have the sizes that the declaration needs for events of type `E`, and `begin`
    ///   has stored their first words, with an equal declaration.
    /// - Every bit pattern is a valid `E`, no byte of an `E` is padding, and `E` needs no drop.
    /// - The key of each sharded stage lies inside an event, or block, of the size for which the
    ///   declaration's needs were computed.
    /// - As long as the areas are mapped, every process that can write to them follows the
    ///   protocol.
    pub unsafe fn over(
        declaration: &Declaration,
        areas: &Areas,
        participant: &Participant,
    ) -> Result<SegmentRing<E, L>, BuildError> {
        let mut plan = declaration.plan()?;
        plan.choose_wait(&participant.wait, &participant.producer_wait);
        // SAFETY: the caller's promise.
        unsafe { SegmentRing::planned(plan, declaration, areas, participant) }
    }

    /// Makes the ring of one process from a plan.
    ///
    /// # Safety
    /// The conditions of [`SegmentRing::over`] hold. The plan has the same lines and queues as the
    /// plan of the declaration.
    pub(super) unsafe fn planned(
        plan: Plan,
        declaration: &Declaration,
        areas: &Areas,
        participant: &Participant,
    ) -> Result<SegmentRing<E, L>, BuildError> {
        // SAFETY: the caller's promise. The keys lie in the events, or blocks, and none of their
        // bytes is padding.
        unsafe {
            let partitioner = &Partitioner::of_bytes;
            SegmentRing::partitioned(plan, declaration, areas, participant, partitioner)
        }
    }

    /// Makes the ring of one process from a plan, and from a function that makes the partitioner of
    /// a sharded stage.
    ///
    /// # Safety
    /// - The areas are those of the declaration, for events with the size and alignment of `E`.
    /// - The plan has the same lines and queues as the declaration's plan.
    /// - Every access to an event is sound, whatever other processes do.
    unsafe fn partitioned(
        plan: Plan,
        declaration: &Declaration,
        areas: &Areas,
        participant: &Participant,
        partitioner: &dyn Fn(usize, KeyBytes) -> Partitioner<E>,
    ) -> Result<SegmentRing<E, L>, BuildError> {
        let no_memory = BuildError::Memory { capacity: plan.lines, bytes_per_slot: 128 };
        // SAFETY: the caller's promise.
        let board = unsafe { areas.board(&plan, participant) };
        let world = declaration.processes(participant, plan.queues);
        let (start, timed) = (declaration.start, !cfg!(slipring_loom));
        let options = ControlOptions { start, deadline: None, timed, samples: None };
        let control =
            board.and_then(|board| Control::new(plan, board, options)).ok_or(no_memory)?;
        // SAFETY: the caller's promise.
        let slots = unsafe { areas.slots::<E, L>(declaration.capacity) };
        // SAFETY: as above.
        let core = unsafe {
            let shard_ids = areas.shard_ids(declaration, partitioner);
            Core::over(control, slots, shard_ids, world, areas.mapping.clone())
        };
        #[cfg(slipring_loom)]
        let core = {
            let mut core = core;
            core.watch(areas.watched.clone());
            core
        };
        let core = Owner::new(core);
        core.world.reactors.watch(core.observed());
        Ok(SegmentRing { core, participant: participant.number })
    }
}

impl<E, L: SegmentLayout> SegmentRing<E, L> {
    #[cfg(test)]
    pub(crate) fn control(&self) -> &Control {
        &self.core.control
    }

    pub(super) fn owner(&self) -> &Owner<E, InSegment<L>> {
        &self.core
    }

    /// Returns the seat with this index.
    pub fn seat(&self, seat: usize) -> &Seat {
        &self.core.control.membership.seats[seat]
    }

    /// Returns the indices of a party's seats.
    pub fn seats_of(&self, party: usize) -> Range<usize> {
        self.core.control.plan.seats_of(party)
    }

    #[cfg(all(test, not(slipring_loom)))]
    pub(super) fn pool_line(&self, pool: usize) -> usize {
        self.core.control.plan.stages[pool].line
    }

    /// Returns the number of seats.
    pub fn seats(&self) -> usize {
        self.core.control.plan.seats()
    }

    /// Cleans up what the dead participant `dead` left on one seat. The caller holds the proof of
    /// the participant's death, and settles all seats before it frees the participant's number.
    pub fn settle_seat(&self, seat: usize, dead: u32) {
        recovery::settle_seat(&self.core, seat, dead);
    }

    /// Marks the seats of the participant `dead` as those of a dead participant. A process that
    /// recovers a participant does so before it takes the lock that proves the death.
    #[cfg(test)]
    pub(crate) fn find_dead(&self, dead: u32, proof: &dyn crate::processes::deaths::Proof) {
        let proof = || proof.is_dead(dead).then(|| proof.pid(dead));
        (0..self.seats()).for_each(|seat| _ = self.seat(seat).find_dead(dead, proof));
    }

    /// Returns the index of the producer as a party.
    pub fn producer_party(&self) -> usize {
        self.core.control.plan.producer_party()
    }

    /// Returns a stage's position: the stage has released all events before it.
    pub fn position(&self, stage: usize) -> u64 {
        self.core.control.positions.position(&self.core.control.plan, stage)
    }

    /// Returns whether the ring was closed or halted, or has failed.
    pub fn is_over(&self) -> bool {
        self.core.control.status.is_over()
    }

    /// Returns whether the ring is closed to claims, or a process has begun to close it.
    pub fn is_closing(&self) -> bool {
        self.core.control.status.is_closing()
    }

    /// Returns the last position of a ring that was closed, if the ring was not halted and has not
    /// failed.
    pub fn last_position(&self) -> Option<u64> {
        self.core.control.status.last_position()
    }

    /// Returns the positions and counts of all parties.
    pub fn report(&self) -> Report {
        self.core.report()
    }

    /// Makes the producer's handle, which continues where the previous producer stopped.
    ///
    /// # Safety
    /// This process owns the producer's seat, and has no other producer's handle; or the ring is a
    /// ring of copies ([`SegmentRing::over_copies`]), in which a second handle at worst loses
    /// events.
    pub unsafe fn producer(&self) -> SegmentProducer<E, L> {
        let control = &self.core.control;
        let next = recovery::first_unpublished(&self.core, recovery::boundary(&self.core));
        if control.plan.cursor {
            // The previous producer may have died after it stored its stamps and before it moved
            // the cursor.
            twin!("cursor-behind-stamps": control.positions.move_cursor(next) => ());
            control.waits.notify(&control.plan.producer_notifies);
        }
        twin!("strays-uncleared": recovery::clear_stray_stamps(&self.core, next) => ());
        let learned = control.learner(control.plan.producer_party());
        Producer::resume(self.core.clone(), next, learned)
    }

    /// Makes the handle of one of several producers, which owns the seat with the index `seat`.
    ///
    /// # Safety
    /// This process owns the seat, which belongs to the producers, and has no other handle of the
    /// seat; or the ring is a ring of copies. The declaration has several producers.
    pub unsafe fn shared_producer(&self, seat: usize) -> SegmentProducer<E, L, Apart> {
        let control = &self.core.control;
        let learned = control.learner(control.plan.producer_party());
        forget_deaths(control, control.plan.producer_party());
        let claimed = control.positions.last_claim().seq(claims::boundary(&self.core));
        Producer::seated(self.core.clone(), seat, claimed, learned)
    }

    /// Makes the handle of a stage that reads.
    ///
    /// # Safety
    /// This process owns the stage's seat, and has no other handle of the stage; or the ring is a
    /// ring of copies. In a ring of copies, a second handle only makes events come twice or not at
    /// all.
    pub unsafe fn reader(&self, stage: usize) -> SegmentConsumer<E, Reading, Seated, L> {
        self.consumer(stage)
    }

    /// Makes the handle of a stage that may update events.
    ///
    /// # Safety
    /// The conditions of [`SegmentRing::reader`] hold. The stage was declared as a stage that
    /// writes, or the ring is a ring of copies.
    pub unsafe fn updater(&self, stage: usize) -> SegmentConsumer<E, Updating, Seated, L> {
        self.consumer(stage)
    }

    /// Adds a reader to the tap with the index `tap`, as [`Tap::subscribe`](crate::Tap::subscribe)
    /// does.
    ///
    /// # Errors
    /// - [`SubscribeError::Overwritten`], [`SubscribeError::NotYet`]: no reader can join at
    ///   `start`.
    /// - [`SubscribeError::Full`]: the tap has no room for another reader.
    /// - [`SubscribeError::NotRunning`]: the ring is gone.
    /// - [`SubscribeError::Ended`]: the graph was halted or has failed.
    ///
    /// # Panics
    /// Panics if the stage with this index is not a tap.
    pub fn subscribe(
        &self,
        tap: usize,
        start: StartAt,
    ) -> Result<SegmentConsumer<E, Reading, Joined, L>, SubscribeError> {
        assert!(matches!(self.core.control.plan.stages[tap].delivery, Delivery::Tap(_)));
        let core = self.core.observed().upgrade().ok_or(SubscribeError::NotRunning)?;
        tap::join(&core, tap, start)
    }

    /// Makes the handle of a worker that reads.
    ///
    /// # Safety
    /// This process owns the seat with the index `seat`, which belongs to the pool, and has no
    /// other handle of the seat; or the ring is a ring of copies.
    pub unsafe fn pool_reader(
        &self,
        pool: usize,
        seat: usize,
    ) -> SegmentConsumer<E, Reading, SeatedWorker, L> {
        self.worker(pool, seat)
    }

    /// Makes the handle of a worker that may write.
    ///
    /// # Safety
    /// The conditions of [`SegmentRing::pool_reader`] hold. The pool was declared as a pool that
    /// writes, or the ring is a ring of copies.
    pub unsafe fn pool_updater(
        &self,
        pool: usize,
        seat: usize,
    ) -> SegmentConsumer<E, Updating, SeatedWorker, L> {
        self.worker(pool, seat)
    }

    fn worker<A: sealed::Access>(
        &self,
        pool: usize,
        seat: usize,
    ) -> SegmentConsumer<E, A, SeatedWorker, L> {
        let control = &self.core.control;
        let (number, learned) = (seat - self.seats_of(pool).start, control.learner(pool));
        forget_deaths(control, pool);
        Consumer::over(WorkerPosition::seat(self.core.clone(), pool, number, learned))
    }

    /// Makes the handle of one shard of a stage that reads.
    ///
    /// # Safety
    /// This process owns the seat of the shard with the number `shard`, and has no other handle of
    /// the seat; or the ring is a ring of copies.
    pub unsafe fn shard_reader(
        &self,
        stage: usize,
        shard: usize,
    ) -> SegmentConsumer<E, Reading, SeatedShard, L> {
        self.shard(stage, shard)
    }

    /// Makes the handle of one shard of a stage that may update events.
    ///
    /// # Safety
    /// The conditions of [`SegmentRing::shard_reader`] hold. The stage was declared as a stage that
    /// writes, or the ring is a ring of copies.
    pub unsafe fn shard_updater(
        &self,
        stage: usize,
        shard: usize,
    ) -> SegmentConsumer<E, Updating, SeatedShard, L> {
        self.shard(stage, shard)
    }

    fn shard<A: sealed::Access>(
        &self,
        stage: usize,
        shard: usize,
    ) -> SegmentConsumer<E, A, SeatedShard, L> {
        let position = successor::position(self.core.clone(), stage, shard, self.participant);
        Consumer::over(ShardPosition::over(position, shard))
    }

    fn consumer<A: sealed::Access>(&self, stage: usize) -> SegmentConsumer<E, A, Seated, L> {
        Consumer::over(successor::position(self.core.clone(), stage, 0, self.participant))
    }
}
