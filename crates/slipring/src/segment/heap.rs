//! Puts the memory of a segment on the heap, for models of several processes. The model checker's
//! atomics must be constructed and cannot lie in raw zeroed memory, so each area is built from such
//! values.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::time::Duration;

use super::areas::{Areas, begin};
use super::declaration::Declaration;
use super::participant::Participant;
use super::ring::SegmentRing;
use crate::base::maybe_mapped::Mapping;
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Line, Statistic};
use crate::processes::deaths::Proof;
use crate::ring::core::watched_events;
use crate::ring::memory::Pages;
use crate::ring::seat::Seat;
use crate::ring::slots::{InterleavedStorage, Storage as _};
use crate::ring::status::{FailureRecord, StatusWords};
use crate::wait::queue_state::QueueState;
use crate::wait::{Wait, WaitStrategy as _};

/// The words and slots of a segment with events of type `u64`.
pub(crate) struct Words {
    lines: Box<[Line<AtomicU64>]>,
    queues: Box<[MaybeUninit<Line<QueueState>>]>,
    seats: Box<[Line<Seat>]>,
    cells: Box<[AtomicU64]>,
    shard_ids: Box<[AtomicU32]>,
    status: Line<StatusWords>,
    failure: FailureRecord,
    counters: Box<[Line<[Statistic; 16]>]>,
    waited: Box<[Line<[Statistic; 16]>]>,
    slots: InterleavedStorage<u64>,
}

// SAFETY: the words are atomic, and the protocol orders the use of the slots.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: each ring keeps the words, so no view of the slots is left.
        unsafe { self.slots.free(Pages::Ordinary) }
    }
}

/// A segment, to which the processes of a model attach.
pub(crate) struct HeapSegment {
    declaration: Declaration,
    areas: Areas,
}

impl HeapSegment {
    /// Makes a new segment. All events are `u64::MAX`.
    pub(crate) fn new(declaration: Declaration) -> HeapSegment {
        let needs = declaration.needs::<u64>().expect("a sound declaration");
        let counters = |lines| {
            (0..lines).map(|_| Line::new([const { Statistic::new(0) }; 16])).collect::<Box<[_]>>()
        };
        let capacity = declaration.capacity;
        let slots = InterleavedStorage::allocate(capacity, true, Pages::Ordinary).expect("memory");
        // SAFETY: no other view exists yet.
        unsafe { slots.fill(declaration.start, &mut || u64::MAX) }.expect("plain events");
        let words = Arc::new(Words {
            lines: (0..needs.lines).map(|_| Line::new(AtomicU64::new(0))).collect(),
            queues: (0..needs.queues).map(|_| MaybeUninit::uninit()).collect(),
            seats: (0..needs.seats).map(|_| Line::new(Seat::default())).collect(),
            cells: (0..needs.cells * capacity).map(|_| AtomicU64::new(0)).collect(),
            shard_ids: (0..needs.shard_ids * capacity).map(|_| AtomicU32::new(0)).collect(),
            status: Line::new(StatusWords::default()),
            failure: FailureRecord::default(),
            counters: counters(needs.counters),
            waited: counters(needs.waited),
            slots,
        });
        let first = |stamp: *const AtomicU64| NonNull::new(stamp.cast_mut()).expect("a slot");
        let areas = Areas {
            lines: NonNull::from(&words.lines[..]).cast(),
            queues: NonNull::from(&words.queues[..]).cast(),
            seats: NonNull::from(&words.seats[..]).cast(),
            status: NonNull::from(&words.status).cast(),
            failure: NonNull::from(&words.failure).cast(),
            counters: NonNull::from(&words.counters[..]).cast(),
            waited: NonNull::from(&words.waited[..]).cast(),
            cells: NonNull::from(&words.cells[..]).cast(),
            shard_ids: NonNull::from(&words.shard_ids[..]).cast(),
            // A slot begins with its stamp.
            stamps: first(slots.stamp(0)).cast(),
            events: first(slots.stamp(0)).cast(),
            strides: (0, 0),
            mapping: words as Mapping,
            watched: watched_events(capacity),
        };
        // SAFETY: the areas have the sizes of the declaration's needs, and no process uses them
        // yet.
        unsafe { begin(&declaration, &areas) }.expect("a sound declaration");
        HeapSegment { declaration, areas }
    }

    /// Attaches a process whose handles follow the wait strategy `wait`. If no handle of any
    /// process parks, no process notifies, and so no process issues a fence.
    pub(crate) fn attach(
        &self,
        number: u32,
        proof: Arc<dyn Proof>,
        notice: Duration,
        wait: &Wait,
    ) -> SegmentRing<u64> {
        let plan = self.declaration.plan_for(wait).expect("a sound declaration");
        let (wait, producer_wait) = (wait.clone(), wait.clone());
        // If handles may sleep, the producers in all processes must either execute a fence for each
        // claim or rely on a membarrier that another process issues. If handles never sleep, a
        // model needs neither.
        let always_fences = wait.parks();
        let participant = Participant { number, proof, notice, always_fences, wait, producer_wait };
        // SAFETY: as in `new`; all rings of a model follow the protocol, and are made from one
        // declaration.
        unsafe { SegmentRing::planned(plan, &self.declaration, &self.areas, &participant) }
            .expect("memory")
    }
}
