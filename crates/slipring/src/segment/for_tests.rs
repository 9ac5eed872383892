//! A segment on the heap, so that Miri can run the tests, and rings over the segment that stand for
//! processes. To kill a process, a test sets the process's bit in a word that the proof of death
//! reads. The dead process's handles stay as they were.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::handles_for_tests::SegmentReader;
use super::zeroed::on_heap;
use super::*;
use crate::wait::Wait;

/// A proof of death that takes the participants in `set` to be dead. Like a lock, the proof of one
/// death has one holder at a time, and a participant does not look dead while it is being
/// recovered.
#[derive(Default)]
pub(super) struct Dead {
    pub(super) set: AtomicU64,
    recovered: AtomicU64,
}

impl Proof for Dead {
    fn is_dead(&self, number: u32) -> bool {
        let recovered = self.recovered.load(Ordering::Acquire);
        number < 64 && self.set.load(Ordering::Acquire) & !recovered & (1 << number) != 0
    }

    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool {
        if number >= 64 || self.recovered.fetch_or(1 << number, Ordering::AcqRel) >> number & 1 != 0
        {
            return false;
        }
        let dead = self.set.load(Ordering::Acquire) & (1 << number) != 0;
        if dead {
            settle();
            self.set.fetch_and(!(1 << number), Ordering::AcqRel);
        }
        self.recovered.fetch_and(!(1 << number), Ordering::AcqRel);
        dead
    }

    fn pid(&self, number: u32) -> u32 {
        1000u32.wrapping_add(number)
    }
}

/// A segment, and the processes that can attach to it.
pub(super) struct Segment {
    pub(super) declaration: Declaration,
    pub(super) areas: Areas,
    pub(super) dead: Arc<Dead>,
    /// The handles of dead processes, which are dropped when the test is over.
    pub(super) dead_handles: Mutex<Vec<Box<dyn std::any::Any + Send>>>,
}

pub(super) fn stage(name: &str, after: &[usize], on_death: OnDeath) -> StageDeclaration {
    let (name, delivery) = (name.into(), StageDelivery::Each);
    StageDeclaration { name, writes: false, delivery, after: after.to_vec(), on_death }
}

impl Segment {
    pub(super) fn new(capacity: usize, start: u64, stages: Vec<StageDeclaration>) -> Segment {
        Segment::shared(capacity, start, stages, 1, OnDeath::Tell)
    }

    /// Makes a segment with room for several producers.
    pub(super) fn shared(
        capacity: usize,
        start: u64,
        stages: Vec<StageDeclaration>,
        producers: usize,
        producer_on_death: OnDeath,
    ) -> Segment {
        let declaration = Declaration { capacity, start, stages, producers, producer_on_death };
        let areas = on_heap::<u64>(&declaration).unwrap();
        Segment { declaration, areas, dead: Arc::default(), dead_handles: Mutex::default() }
    }

    pub(super) fn attach(&self, number: u32) -> SegmentRing<u64> {
        let participant = Participant {
            number,
            proof: self.dead.clone(),
            notice: Duration::from_millis(1),
            always_fences: true,
            wait: Wait::Blocking,
            producer_wait: Wait::Blocking,
        };
        // SAFETY: `shared` laid out the areas as the declaration needs them, and all rings follow
        // the protocol.
        unsafe { SegmentRing::over(&self.declaration, &self.areas, &participant) }.unwrap()
    }

    /// Attaches a producer.
    pub(super) fn producer(&self, number: u32) -> SegmentProducer<u64> {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(ring.producer_party()).start).take(number).unwrap();
        // SAFETY: the seat was taken.
        unsafe { ring.producer() }
    }

    /// Attaches a reader of a stage.
    pub(super) fn reader(&self, number: u32, stage: usize) -> SegmentReader<u64> {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(stage).start).take(number).unwrap();
        // SAFETY: the seat was taken.
        unsafe { ring.reader(stage) }
    }

    /// Recovers the seats of a dead participant.
    pub(super) fn bury(&self, number: u32) {
        let ring = self.attach(60);
        let settle = &mut || (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, number));
        ring.find_dead(number, &*self.dead);
        assert!(self.dead.recover(number, settle), "the participant lives");
    }

    /// Kills a participant. Its handle stays as it is until the test is over.
    pub(super) fn kill<T: Send + 'static>(&self, number: u32, handle: T) {
        self.dead_handles.lock().unwrap().push(Box::new(handle));
        self.dead.set.fetch_or(1 << number, Ordering::Relaxed);
    }
}
