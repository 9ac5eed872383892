//! The places of a ring's words in a segment.
//!
//! Invariants
//! - I1: the areas have the sizes that their declaration needs, and stay mapped, at the same
//!   addresses, while their mapping lives (segment::I3).

use std::ptr::NonNull;

use super::declaration::{Declaration, StageDeclaration, StageDelivery};
use super::participant::Participant;
use crate::base::maybe_mapped::{Mapping, MaybeMapped};
use crate::base::panics::Contained;
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Line, Relaxed};
use crate::errors::BuildError;
use crate::processes::layout::InSegment;
use crate::ring::board::Board;
use crate::ring::counters::CounterWords;
use crate::ring::partition::{KeyBytes, Partitioner, ShardIds};
use crate::ring::plan::Plan;
use crate::ring::positions::Positions;
use crate::ring::seat::Seat;
use crate::ring::slots::{
    Interleaved, InterleavedStorage, Layout, Strided, StridedArray, StridedStorage, View,
};
use crate::ring::spec::Delivery;
use crate::ring::status::StatusWords;
use crate::wait::queue::WaitQueue;
use crate::wait::queue_state::QueueState;

/// The areas of a segment, by address. Each address is a multiple of 128, and as many lines follow
/// it as the [`Needs`](super::Needs) say. All bytes of a new segment are zero.
#[derive(Clone)]
pub struct Areas {
    /// The lines of positions, each of which holds one word.
    pub lines: NonNull<u8>,
    /// The states of the wait queues.
    pub queues: NonNull<u8>,
    /// The seats.
    pub seats: NonNull<u8>,
    /// The status, one line.
    pub status: NonNull<u8>,
    /// The record of the graph's failure.
    pub failure: NonNull<u8>,
    /// The counters.
    pub counters: NonNull<u8>,
    /// The times that parties waited.
    pub waited: NonNull<u8>,
    /// The cells of all pools, one array after the other; dangling if there are no pools.
    pub cells: NonNull<u8>,
    /// The shard ids of all sharded stages, one array after the other; dangling if no stage is
    /// sharded.
    pub shard_ids: NonNull<u8>,
    /// The first stamp. If the stamps are inside the slots, this is also the address of the first
    /// slot.
    pub stamps: NonNull<u8>,
    /// The first event, or block.
    pub events: NonNull<u8>,
    /// Distance from one stamp to the next, and from one block to the next, in bytes. Events of a
    /// known type do not use these distances: each lies right after its stamp, and the type
    /// determines the distance.
    pub strides: (usize, usize),
    /// The mapping, which the areas keep alive.
    pub mapping: Mapping,
    /// The cells that the model checker watches in place of the events. All processes share them.
    #[cfg(slipring_loom)]
    pub(crate) watched: crate::ring::core::WatchedEvents,
}

/// A layout of slots that lie in a segment.
pub trait SegmentLayout: Layout {
    /// Returns the view of the slots of `areas`.
    ///
    /// # Safety
    /// The areas have `capacity` slots of this layout, and the slots stay where they are.
    #[doc(hidden)]
    unsafe fn slots_at<E>(areas: &Areas, capacity: usize) -> Self::Storage<E>;
}

impl SegmentLayout for Interleaved {
    unsafe fn slots_at<E>(areas: &Areas, capacity: usize) -> InterleavedStorage<E> {
        // SAFETY: the caller's promise.
        unsafe { InterleavedStorage::at(areas.stamps, capacity) }
    }
}

impl SegmentLayout for Strided {
    unsafe fn slots_at<E>(areas: &Areas, capacity: usize) -> StridedStorage<E> {
        let (stamp_stride, block_stride) = areas.strides;
        let stamps = StridedArray { first: areas.stamps, stride: stamp_stride };
        let blocks = StridedArray { first: areas.events, stride: block_stride };
        // SAFETY: the caller's promise.
        unsafe { StridedStorage::at(stamps, blocks, capacity) }
    }
}

// SAFETY: the addresses are those of atomic words and slots, whose use the protocol orders.
unsafe impl Send for Areas {}
// SAFETY: as above.
unsafe impl Sync for Areas {}

impl Areas {
    /// Returns the view of the slots.
    ///
    /// # Safety
    /// The areas have `capacity` slots of the layout `L`.
    pub(super) unsafe fn slots<E, L: SegmentLayout>(
        &self,
        capacity: usize,
    ) -> View<E, InSegment<L>> {
        // SAFETY: the caller's promise.
        View(unsafe { L::slots_at(self, capacity) })
    }

    /// Returns the seats of a ring.
    ///
    /// # Safety
    /// The areas are those of the declaration that `plan` was made from.
    unsafe fn seats(&self, plan: &Plan) -> MaybeMapped<[Line<Seat>]> {
        // SAFETY: the caller's promise.
        unsafe { MaybeMapped::mapped_slice(self.seats, plan.seats(), &self.mapping) }
    }

    /// Returns the shard ids of each stage, or `None` for a stage without shards. `partitioner`
    /// makes a partitioner from the number of shards and the range of the key's bytes.
    ///
    /// # Safety
    /// The areas are those of the declaration.
    pub(super) unsafe fn shard_ids<E>(
        &self,
        declaration: &Declaration,
        partitioner: &dyn Fn(usize, KeyBytes) -> Partitioner<E>,
    ) -> Box<[Option<ShardIds<E>>]> {
        let (mut arrays, capacity) = (0, declaration.capacity);
        let ids_of = |stage: &StageDeclaration| {
            let StageDelivery::Shards { shards, key_offset, key_length } = stage.delivery else {
                return None;
            };
            arrays += 1;
            // SAFETY: the caller promises that each sharded stage has an id per slot, and these ids
            // lie behind the ids of the earlier sharded stages.
            let ids = unsafe {
                let first = self.shard_ids.cast::<AtomicU32>().add((arrays - 1) * capacity);
                MaybeMapped::mapped_slice(first.cast(), capacity, &self.mapping)
            };
            let key = KeyBytes { offset: key_offset, length: key_length };
            let partitioner = partitioner(shards, key);
            Some(ShardIds::over(Contained::new(partitioner), ids))
        };
        declaration.stages.iter().map(ids_of).collect()
    }

    /// Makes the board of one process.
    ///
    /// # Safety
    /// The areas are those of the declaration that `plan` was made from.
    pub(super) unsafe fn board(&self, plan: &Plan, participant: &Participant) -> Option<Board> {
        let Areas { mapping, .. } = self;
        let parties = plan.stages.len() + 1;
        let queue = |number: usize| {
            // SAFETY: the caller's promise: there are `plan.queues` states.
            let state = unsafe { self.queues.cast::<Line<QueueState>>().add(number) };
            // SAFETY: the caller promises that the states lie in the mapping.
            WaitQueue::between_processes(unsafe { MaybeMapped::mapped(state, mapping.clone()) })
        };
        let proof = Arc::clone(&participant.proof);
        let mut pools = 0;
        let cells = plan.stages.iter().map(|stage| {
            if !matches!(stage.delivery, Delivery::Pool { .. }) {
                return MaybeMapped::from(Box::default());
            }
            pools += 1;
            // SAFETY: the caller promises that each pool has `plan.capacity` cells, which lie
            // behind the cells of the earlier pools.
            unsafe {
                let first = self.cells.cast::<AtomicU64>().add((pools - 1) * plan.capacity);
                MaybeMapped::mapped_slice(first.cast(), plan.capacity, mapping)
            }
        });
        let cells = cells.collect();
        // SAFETY: the caller's promise, for each area.
        unsafe {
            Some(Board {
                lines: MaybeMapped::mapped_slice(self.lines, plan.lines, mapping),
                seats: self.seats(plan),
                cells,
                participant: participant.number,
                status: MaybeMapped::mapped(
                    self.status.cast::<Line<StatusWords>>(),
                    mapping.clone(),
                ),
                queues: (0..plan.queues).map(queue).collect(),
                always_fences: participant.always_fences,
                failure: Some(MaybeMapped::mapped(self.failure.cast(), mapping.clone())),
                is_own_process: Some(Box::new(move || proof.is_own_process())),
                counters: CounterWords::mapped(parties, self.counters, self.waited, mapping)?,
            })
        }
    }
}

/// Stores the first words of a new segment, whose bytes are all zero.
///
/// # Errors
/// Returns why no ring can be made from the declaration.
///
/// # Safety
/// The areas have the sizes that the declaration needs, and no other process uses them yet.
pub unsafe fn begin(declaration: &Declaration, areas: &Areas) -> Result<(), BuildError> {
    let plan = declaration.plan()?;
    // SAFETY: the caller's promise.
    let (lines, queues, seats) = unsafe {
        let lines: MaybeMapped<[Line<AtomicU64>]> =
            MaybeMapped::mapped_slice(areas.lines, plan.lines, &areas.mapping);
        let queues = areas.queues.cast::<Line<QueueState>>();
        (lines, queues, areas.seats(&plan))
    };
    for (number, line) in lines.iter().enumerate() {
        line.store(Positions::first_word(&plan, number, declaration.start), Relaxed);
    }
    for number in 0..plan.queues {
        // The rest of the line stays as it is, because writing a whole `Line` would make its
        // padding uninitialised. SAFETY: the caller promises that there are `plan.queues` states,
        // and that no other process uses them yet. A line begins with its state.
        unsafe { queues.add(number).cast::<QueueState>().write(QueueState::new()) };
    }
    seats.iter().for_each(|seat| seat.begin(declaration.start));
    Ok(())
}
