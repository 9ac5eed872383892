//! Models of rings between processes. Each process of a model has a `SegmentRing`, and so a
//! `Control`, of its own. All processes share one board, which lies on the heap.
//! [`mortal`](super::mortal) explains how a process dies.
//!
//! A process that has found the proof of a death sees everything that the dead process did: the
//! kernel orders the two. Therefore, in most models, one thread lives twice: as the process that
//! dies, and as its successor. The models have up to three threads, on rings of 1 to 4 slots.

use std::ops::Range;
use std::time::Duration;

use loom::thread;

use super::mortal::lives;
use super::*;
use crate::base::model_hooks::UNTIMED;
use crate::base::sync::{AcqRel, Acquire, AtomicU64, Release, twin};
use crate::segment::handles_for_tests::{SegmentReader, SegmentSharedProducer, SegmentWriter};
use crate::segment::heap::HeapSegment;
use crate::segment::{
    Declaration, OnDeath, Proof, SegmentProducer, SegmentRing, StageDeclaration, StageDelivery,
};

const ELSEWHERE: Caught = Caught::Message("a successor begins elsewhere");
const HALF_WRITTEN: Caught = Caught::Message("a half-written event is not announced");

/// The states of a participant's lock byte.
const FREE: u64 = 0;
const HELD: u64 = 1;

/// The lock bytes of the participants. The kernel frees the byte of a process that dies.
pub(super) struct Bytes([AtomicU64; 8]);

impl Bytes {
    fn byte(&self, number: u32) -> &AtomicU64 {
        &self.0[number as usize]
    }

    /// Takes the byte of a dead participant, which proves its death and excludes other recoverers.
    pub(super) fn claim_dead(&self, number: u32) -> bool {
        let byte = self.byte(number);
        twin!("recovered-unlocked":
            byte.compare_exchange(FREE, HELD, AcqRel, Acquire).is_ok() =>
            byte.load(Acquire) == FREE
        )
    }

    /// Frees a participant's byte, because its holder has died or its recovery has ended.
    pub(super) fn unlock(&self, number: u32) {
        self.byte(number).store(FREE, Release);
    }
}

impl Proof for Bytes {
    fn is_dead(&self, number: u32) -> bool {
        self.byte(number).load(Acquire) == FREE
    }

    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool {
        let dead = self.claim_dead(number);
        if dead {
            settle();
            self.unlock(number);
        }
        dead
    }

    fn pid(&self, number: u32) -> u32 {
        1000 + number
    }
}

/// A segment, and the lock bytes of its participants. At first, all bytes are held.
pub(super) struct Segment {
    memory: HeapSegment,
    pub(super) bytes: Arc<Bytes>,
    wait: Wait,
}

pub(super) type Stage<'a> = (Access, &'a [usize], OnDeath);

impl Segment {
    pub(super) fn new(capacity: usize, stages: &[Stage], wait: Wait) -> Arc<Segment> {
        Segment::with(capacity, stages, (1, OnDeath::Tell), wait)
    }

    /// Makes a segment with two producers. Stages recover the claims of a dead producer, and no
    /// call returns `PeerDead`.
    pub(super) fn shared(
        capacity: usize,
        stages: &[(Access, &[usize])],
        wait: Wait,
    ) -> Arc<Segment> {
        let stages: Vec<Stage> =
            stages.iter().map(|&(access, after)| (access, after, OnDeath::Wait)).collect();
        Segment::with(capacity, &stages, (2, OnDeath::Wait), wait)
    }

    fn with(
        capacity: usize,
        stages: &[Stage],
        (producers, producer_on_death): (usize, OnDeath),
        wait: Wait,
    ) -> Arc<Segment> {
        let stage = |(i, &(access, after, on_death)): (usize, &Stage)| StageDeclaration {
            name: format!("s{i}"),
            writes: access == Access::Write,
            delivery: StageDelivery::Each,
            after: after.to_vec(),
            on_death,
        };
        let declaration = Declaration {
            capacity,
            start: 0,
            stages: stages.iter().enumerate().map(stage).collect(),
            producers,
            producer_on_death,
        };
        Segment::declared(declaration, wait)
    }

    /// Makes a segment of one stage. `producers` has the number of producers and the effect of a
    /// producer's death.
    pub(super) fn produced(
        capacity: usize,
        producers: (usize, OnDeath),
        wait: Wait,
    ) -> Arc<Segment> {
        Segment::with(capacity, &[(Access::Read, &[], OnDeath::Wait)], producers, wait)
    }

    /// Makes a segment with two producers, as [`Segment::shared`] does, and with reading stages of
    /// any delivery.
    pub(super) fn shared_among(
        capacity: usize,
        stages: &[(StageDelivery, &[usize])],
        wait: Wait,
    ) -> Arc<Segment> {
        let stage =
            |(i, &(delivery, after)): (usize, &(StageDelivery, &[usize]))| StageDeclaration {
                name: format!("s{i}"),
                writes: false,
                delivery,
                after: after.to_vec(),
                on_death: OnDeath::Wait,
            };
        let stages = stages.iter().enumerate().map(stage).collect();
        let (producers, producer_on_death) = (2, OnDeath::Wait);
        let declaration = Declaration { capacity, start: 0, stages, producers, producer_on_death };
        Segment::declared(declaration, wait)
    }

    pub(super) fn declared(declaration: Declaration, wait: Wait) -> Arc<Segment> {
        Arc::new(Segment {
            memory: HeapSegment::new(declaration),
            bytes: Arc::new(Bytes(std::array::from_fn(|_| AtomicU64::new(HELD)))),
            wait,
        })
    }

    /// Makes a segment whose processes never sleep, and so issue no fence.
    pub(super) fn unfenced(capacity: usize, stages: &[(Access, &[usize])]) -> Arc<Segment> {
        let stages: Vec<Stage> =
            stages.iter().map(|&(access, after)| (access, after, OnDeath::Wait)).collect();
        Segment::new(capacity, &stages, Wait::BusySpin)
    }

    pub(super) fn attach_with(&self, number: u32, notice: Duration) -> SegmentRing<u64> {
        self.memory.attach(number, self.bytes.clone(), notice, &self.wait)
    }

    pub(super) fn attach(&self, number: u32) -> SegmentRing<u64> {
        self.attach_with(number, UNTIMED * 2)
    }

    /// Takes the first seat of a party for the participant `number`. Returns `None` if the seat has
    /// an owner.
    fn seated(&self, number: u32, party: usize) -> Option<SegmentRing<u64>> {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(party).start).take(number).is_ok().then_some(ring)
    }

    pub(super) fn producer(&self, number: u32, party: usize) -> SegmentProducer<u64> {
        let ring = self.seated(number, party).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.producer() }
    }

    /// Makes a producer that checks for dead processes between any two polls of a wait.
    pub(super) fn hasty_producer(&self, number: u32, party: usize) -> SegmentProducer<u64> {
        let ring = self.attach_with(number, Duration::ZERO);
        ring.seat(ring.seats_of(party).start).take(number).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.producer() }
    }

    /// Makes a producer on one of several producers' seats. Returns `None` if the seat has an
    /// owner.
    pub(super) fn try_shared_producer(
        &self,
        number: u32,
        seat: usize,
    ) -> Option<SegmentSharedProducer<u64>> {
        self.shared_producer_of(self.attach(number), number, seat)
    }

    pub(super) fn shared_producer(&self, number: u32, seat: usize) -> SegmentSharedProducer<u64> {
        self.try_shared_producer(number, seat).expect("a free seat")
    }

    fn shared_producer_of(
        &self,
        ring: SegmentRing<u64>,
        number: u32,
        seat: usize,
    ) -> Option<SegmentSharedProducer<u64>> {
        let seat = ring.seats_of(ring.producer_party()).start + seat;
        ring.seat(seat).take(number).ok()?;
        // SAFETY: the seat was taken.
        Some(unsafe { ring.shared_producer(seat) })
    }

    /// Recovers a dead participant, as a waiting process does. Returns `false` if another process
    /// recovers it, or has recovered it.
    pub(super) fn recover(&self, by: u32, dead: u32) -> bool {
        self.recover_as(&self.attach(by), dead)
    }

    /// Like [`Segment::recover`], but for a process that has attached.
    pub(super) fn recover_as(&self, ring: &SegmentRing<u64>, dead: u32) -> bool {
        let settle = &mut || (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
        twin!("death-unnoted": ring.find_dead(dead, &*self.bytes) => ());
        self.bytes.recover(dead, settle)
    }

    pub(super) fn reader(&self, number: u32, stage: usize) -> SegmentReader<u64> {
        let ring = self.seated(number, stage).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.reader(stage) }
    }

    /// Makes a reader that checks for dead processes between any two polls of a wait.
    pub(super) fn hasty_reader(&self, number: u32, stage: usize) -> SegmentReader<u64> {
        let ring = self.attach_with(number, Duration::ZERO);
        ring.seat(stage).take(number).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.reader(stage) }
    }

    pub(super) fn updater(&self, number: u32, stage: usize) -> Option<SegmentWriter<u64>> {
        // SAFETY: the seat was taken.
        self.seated(number, stage).map(|ring| unsafe { ring.updater(stage) })
    }
}

/// The events that a stage has seen, in all of its lives.
#[derive(Default)]
struct Seen {
    /// The event at each position.
    events: Vec<u64>,
    /// Position of the next event that the current process gets.
    next: usize,
    /// The position before which the stage has released all events.
    released: usize,
    /// Positions that the current process's handle announces as redelivered.
    again: Range<usize>,
    /// Number of positions that earlier processes of the stage were lent.
    touched: usize,
}

impl Seen {
    /// Notes that another process, with the handle `reader`, has taken the stage's place.
    fn follow(&mut self, reader: &SegmentReader<u64>) {
        let again = reader.redelivered();
        self.again = again.first_seq() as usize..again.end_seq() as usize;
        self.touched = self.events.len();
        self.next = reader.next_seq() as usize;
        assert!(self.next >= self.released, "a released event comes again");
        self.released = self.next;
        assert!(self.again.end >= self.touched, "a half-written event is not announced");
    }

    /// Asks for `max` events, and releases the first `released` of them one by one.
    fn lend(&mut self, reader: &mut SegmentReader<u64>, max: usize, released: usize) {
        let Some(mut batch) = available(reader.try_batch(max)) else { return };
        self.next = self.released;
        for (index, &event) in batch.iter().enumerate() {
            let at = batch.first_seq() as usize + index;
            assert_eq!(at, self.next, "an event is skipped, or comes out of order");
            self.next += 1;
            match self.events.get(at) {
                Some(&before) => assert_eq!(event, before, "a position was published twice"),
                None => self.events.push(event),
            }
        }
        for _ in 0..released.min(batch.len()) {
            batch.release_front(1);
            self.released += 1;
        }
    }
}

/// Publishes runs of these lengths, with at most `tries` attempts in total. Each event is `first`
/// plus its position. Returns the number of published events.
pub(super) fn publish_runs(
    tx: &mut SegmentProducer<u64>,
    first: u64,
    runs: &[usize],
    tries: usize,
) -> usize {
    let (mut runs, mut published) = (runs.iter(), 0);
    let mut run = runs.next();
    for _ in 0..tries {
        let Some(&len) = run else { break };
        let at = tx.next_seq();
        let Ok(mut claim) = tx.try_claim_n(len) else { continue };
        (0..len).for_each(|index| claim[index] = first + at + index as u64);
        claim.publish();
        published += len;
        run = runs.next();
    }
    published
}

/// A stage dies after `stores` stores, and its successor continues. Before its death, the first
/// process twice asks for two events and releases one of them. Meanwhile, the producer publishes
/// `runs`, and begins new laps as soon as it has room.
fn a_stage_dies(stores: usize, capacity: usize, runs: &'static [usize], least: usize) {
    explore_unfenced(least, None, move || {
        let segment = Segment::unfenced(capacity, &[(Access::Read, &[])]);
        let (mut tx, mut first) = (segment.producer(1, 1), segment.reader(2, 0));
        let of_stage = segment.clone();
        let living = thread::spawn(move || {
            let mut seen = Seen::default();
            lives(stores, || {
                seen.lend(&mut first, 2, 1);
                seen.lend(&mut first, 2, 1);
            });
            of_stage.attach(3).seat(0).bury(2);
            let mut second = of_stage.reader(3, 0);
            seen.follow(&second);
            seen.lend(&mut second, 1, 1);
            (seen, first, second)
        });
        let published = publish_runs(&mut tx, 0, runs, runs.len() + 1);
        let (mut seen, first, mut second) = living.join().unwrap();
        for _ in 0..published {
            seen.lend(&mut second, 4, 4);
        }
        assert_eq!(seen.events, (0..published as u64).collect::<Vec<_>>(), "events were lost");
        (tx, first, second)
    });
}

#[test]
fn loom_a_stage_dies_in_a_small_ring() {
    for stores in 0..6 {
        a_stage_dies(stores, 2, &[2, 1, 1], if stores < 3 { 150 } else { 5_000 });
    }
}

#[test]
fn loom_a_stage_dies_among_several_runs() {
    (3..5).for_each(|stores| a_stage_dies(stores, 4, &[2, 1, 2, 1], 10_000));
}

#[test]
fn loom_twin_boundary_late() {
    caught(
        "processes::loom_a_stage_dies_in_a_small_ring",
        "boundary-late",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_boundary_ignored() {
    caught(
        "processes::loom_a_stage_dies_in_a_small_ring",
        "boundary-ignored",
        Caught::Message("events were lost"),
    );
}

#[test]
fn loom_twin_held_late() {
    caught("processes::loom_a_stage_dies_in_a_small_ring", "held-late", HALF_WRITTEN);
}

/// A stage dies twice, and its second process was lent fewer events than its first. The third
/// process still announces the events that the first process was lent.
#[test]
fn loom_a_stage_dies_again() {
    explore_unfenced(1, None, || {
        let segment = Segment::unfenced(4, &[(Access::Read, &[])]);
        let mut tx = segment.producer(1, 1);
        publish_runs(&mut tx, 0, &[1, 1, 1], 3);
        let mut seen = Seen::default();
        let mut readers = Vec::new();
        for (number, max) in [(2, 3), (3, 1), (4, 3)] {
            let mut reader = segment.reader(number, 0);
            seen.follow(&reader);
            seen.lend(&mut reader, max, 0);
            readers.push(reader);
            segment.attach(5).seat(0).bury(number);
        }
        (tx, readers)
    });
}

#[test]
fn loom_twin_held_back() {
    caught("processes::loom_a_stage_dies_again", "held-back", HALF_WRITTEN);
}

/// A producer publishes the runs `before`, and dies after its first `stores` stores. Its successor
/// publishes the runs `after`. Meanwhile, a line of `stages` stages reads and releases events, also
/// in the middle of a run.
fn a_producer_dies(
    stores: usize,
    (capacity, stages): (usize, usize),
    (before, after): (&'static [usize], &'static [usize]),
    least: usize,
) {
    explore_unfenced(least, None, move || {
        const SECOND: u64 = 100;
        let all = [(Access::Read, &[][..]), (Access::Read, &[0][..])];
        let segment = Segment::unfenced(capacity, &all[..stages]);
        let mut first = segment.producer(1, stages);
        let mut readers: Vec<_> =
            (0..stages).map(|stage| segment.reader(2 + stage as u32, stage)).collect();
        let reading = thread::spawn(move || {
            let mut seen: Vec<_> = readers.iter().map(|_| Seen::default()).collect();
            for _ in 0..2 {
                for (reader, seen) in readers.iter_mut().zip(&mut seen) {
                    seen.lend(reader, 4, 1);
                }
            }
            (seen, readers)
        });
        let mut published = 0;
        lives(stores, || {
            for run in before {
                published += publish_runs(&mut first, 0, &[*run], 2);
            }
        });
        segment.attach(5).seat(stages).bury(1);
        let mut second = segment.producer(5, stages);
        let begins = second.next_seq() as usize;
        let torn = before.iter().any(|run| published + run == begins);
        assert!(begins == published || torn, "a successor begins elsewhere");
        let end = begins + publish_runs(&mut second, SECOND, after, after.len() + 1);
        let (mut seen, mut readers) = reading.join().unwrap();
        let expected =
            (0..end as u64).map(|at| if (at as usize) < begins { at } else { SECOND + at });
        let expected: Vec<u64> = expected.collect();
        for (reader, seen) in readers.iter_mut().zip(&mut seen) {
            (0..end + 1).for_each(|_| seen.lend(reader, 4, 4));
            assert_eq!(seen.events, expected, "not each event once");
        }
        (first, second, readers)
    });
}

/// The ring has one slot, so a publication finds room only after the previous event's release.
#[test]
fn loom_a_producer_dies_in_a_small_ring() {
    for (stores, least) in [(0, 8), (1, 4_000), (2, 15_000)] {
        a_producer_dies(stores, (1, 1), (&[1, 1], &[1]), least);
    }
}

#[test]
fn loom_twin_boundary_late_of_a_producer() {
    caught("processes::loom_a_producer_dies_in_a_small_ring", "boundary-late", ELSEWHERE);
}

/// The stage releases only a part of the run that the dying producer has published.
#[test]
fn loom_a_producer_dies_behind_a_run() {
    for (stores, least) in [(0, 40), (1, 18_000)] {
        a_producer_dies(stores, (2, 1), (&[2], &[1, 1]), least);
    }
}

#[test]
fn loom_twin_walk_from_released() {
    caught("processes::loom_a_producer_dies_behind_a_run", "walk-from-released", ELSEWHERE);
}

/// The publication in which the producer dies has two runs.
#[test]
fn loom_a_producer_dies_between_two_stamps() {
    for (stores, least) in [(0, 40), (1, 40), (2, 10_000)] {
        a_producer_dies(stores, (4, 1), (&[4], &[3, 1]), least);
    }
}

#[test]
fn loom_twin_strays_uncleared() {
    caught("processes::loom_a_producer_dies_between_two_stamps", "strays-uncleared", Caught::Race);
}

#[test]
fn loom_a_producer_dies_before_two_stages() {
    a_producer_dies(1, (2, 2), (&[2], &[1]), 3_500);
}

#[test]
fn loom_twin_walk_from_later() {
    caught("processes::loom_a_producer_dies_before_two_stages", "walk-from-later", ELSEWHERE);
}
