//! Models of rings between processes. Each process of a model has a `SegmentRing`, and so a `Control`,
//! of its own; all of them have one board, which lies on the heap. A process dies as
//! [`mortal`](super::mortal) says.
//!
//! The kernel orders what a process did before its death before what a process does that found the
//! proof of the death. Therefore most models let one thread live twice: as the process that dies, and
//! as its successor. The models have up to three threads, on rings of 1 to 4 slots.

use std::ops::Range;
use std::time::Duration;

use loom::thread;

use super::mortal::lives;
use super::*;
use crate::base::sync::{Acquire, AtomicU64, Release, twin};
use crate::errors::{Cause, WaitError};
use crate::segment::heap::HeapSegment;
use crate::segment::{
    Declaration, OnDeath, Proof, SegmentProducer, SegmentReader, SegmentRing, SegmentWriter,
    StageDeclaration,
};

const ELSEWHERE: Caught = Caught::Message("a successor begins elsewhere");
const COUNTED_ONCE: Caught = Caught::Message("a death is counted once");
const PART_OF_A_FAILURE: Caught = Caught::Message("a part of a failure");
const HALF_WRITTEN: Caught = Caught::Message("a half-written event is not announced");
const NO_REASON: Caught = Caught::Message("failed without a reason");
const LEFT_ASLEEP: Caught = Caught::Deadlock(&["s1"]);

/// States of the lock byte of a participant.
const FREE: u64 = 0;
const HELD: u64 = 1;

/// The lock bytes of the participants. The kernel frees the byte of a process that dies.
struct Bytes([AtomicU64; 8]);

impl Bytes {
    fn byte(&self, number: u32) -> &AtomicU64 {
        &self.0[number as usize]
    }

    /// Takes the byte of a dead participant, which proves its death and excludes other recoverers.
    fn claim_dead(&self, number: u32) -> bool {
        let byte = self.byte(number);
        twin!("recovered-unlocked":
            byte.compare_exchange(FREE, HELD, Acquire, Acquire).is_ok() =>
            byte.load(Acquire) == FREE
        )
    }

    /// Frees a byte: by the death of its holder, or at the end of a recovery.
    fn unlock(&self, number: u32) {
        self.byte(number).store(FREE, Release);
    }
}

impl Proof for Bytes {
    fn is_dead(&self, number: u32) -> bool {
        self.byte(number).load(Acquire) == FREE
    }

    fn pid(&self, number: u32) -> u32 {
        1000 + number
    }
}

/// A segment, and the lock bytes of its participants. All of them are held at first.
struct Segment {
    memory: HeapSegment,
    bytes: Arc<Bytes>,
    wait: Wait,
}

type Stage<'a> = (Access, &'a [usize], OnDeath);

impl Segment {
    fn new(capacity: usize, stages: &[Stage], wait: Wait) -> Arc<Segment> {
        let stage = |(i, &(access, after, on_death)): (usize, &Stage)| StageDeclaration {
            name: format!("s{i}"),
            writes: access == Access::Write,
            after: after.to_vec(),
            on_death,
        };
        let declaration = Declaration {
            capacity,
            start: 0,
            stages: stages.iter().enumerate().map(stage).collect(),
            producer_on_death: OnDeath::Tell,
        };
        Arc::new(Segment {
            memory: HeapSegment::new(declaration),
            bytes: Arc::new(Bytes(std::array::from_fn(|_| AtomicU64::new(HELD)))),
            wait,
        })
    }

    /// A segment whose processes never sleep, and so issue no fence.
    fn unfenced(capacity: usize, stages: &[(Access, &[usize])]) -> Arc<Segment> {
        let stages: Vec<Stage> =
            stages.iter().map(|&(access, after)| (access, after, OnDeath::Wait)).collect();
        Segment::new(capacity, &stages, Wait::BusySpin)
    }

    fn attach_with(&self, number: u32, notice: Duration) -> SegmentRing<u64> {
        self.memory.attach(number, self.bytes.clone(), notice, &self.wait)
    }

    fn attach(&self, number: u32) -> SegmentRing<u64> {
        self.attach_with(number, futex::UNTIMED * 2)
    }

    /// Takes the seat of a party for `number`. `None`: it has an owner.
    fn seated(&self, number: u32, party: usize) -> Option<SegmentRing<u64>> {
        let ring = self.attach(number);
        ring.seat(party).take(number).is_ok().then_some(ring)
    }

    fn producer(&self, number: u32, party: usize) -> SegmentProducer<u64> {
        let ring = self.seated(number, party).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.producer() }
    }

    /// Makes a producer that asks for deaths between any two polls of a wait.
    fn hasty_producer(&self, number: u32, party: usize) -> SegmentProducer<u64> {
        let ring = self.attach_with(number, Duration::ZERO);
        ring.seat(party).take(number).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.producer() }
    }

    fn reader(&self, number: u32, stage: usize) -> SegmentReader<u64> {
        let ring = self.seated(number, stage).expect("a free seat");
        // SAFETY: the seat was taken.
        unsafe { ring.reader(stage) }
    }

    fn writer(&self, number: u32, stage: usize) -> Option<SegmentWriter<u64>> {
        // SAFETY: the seat was taken.
        self.seated(number, stage).map(|ring| unsafe { ring.writer(stage) })
    }
}

/// What a stage has seen, in all of its lives.
#[derive(Default)]
struct Seen {
    /// The event at each position.
    events: Vec<u64>,
    /// The next position that the present process is lent.
    next: usize,
    /// The position before which the stage has released all events.
    released: usize,
    /// Positions that an earlier process of the stage may have been lent.
    again: Range<usize>,
    /// Number of positions that earlier processes of the stage were lent.
    touched: usize,
}

impl Seen {
    /// Begins the life of another process of the stage.
    fn follow(&mut self, reader: &SegmentReader<u64>) {
        let again = reader.redelivered();
        self.again = again.start as usize..again.end as usize;
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

/// Publishes runs of these lengths, with at most `tries` attempts in total. Each event is `first` plus
/// its position. Returns the number of published events.
fn publish_runs(tx: &mut SegmentProducer<u64>, first: u64, runs: &[usize], tries: usize) -> usize {
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

/// A stage dies after `stores` stores, while the producer publishes `runs`, and laps where it can.
/// Its successor goes on. The first process asks for two events and releases one, and so on.
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

/// A stage dies twice, and the second process was lent less than the first. The third one still
/// announces what the first one was lent.
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

/// A producer dies after `stores` stores, while the stages read and release, also inside of a run. Its
/// successor goes on, and publishes `after`. `stages` says how many stages follow each other.
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

/// Each publication needs the release of the one before.
#[test]
fn loom_a_producer_dies_in_a_small_ring() {
    for (stores, least) in [(0, 8), (1, 9_000), (2, 15_000)] {
        a_producer_dies(stores, (1, 1), (&[1, 1], &[1]), least);
    }
}

#[test]
fn loom_twin_boundary_late_of_a_producer() {
    caught("processes::loom_a_producer_dies_in_a_small_ring", "boundary-late", ELSEWHERE);
}

/// The stage releases a part of the run that the producer leaves.
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
    for (stores, least) in [(0, 40), (1, 40), (2, 12_000)] {
        a_producer_dies(stores, (4, 1), (&[4], &[3, 1]), least);
    }
}

#[test]
fn loom_twin_strays_uncleared() {
    caught("processes::loom_a_producer_dies_between_two_stamps", "strays-uncleared", Caught::Race);
}

#[test]
fn loom_a_producer_dies_before_two_stages() {
    a_producer_dies(1, (2, 2), (&[2], &[1]), 4_000);
}

#[test]
fn loom_twin_walk_from_later() {
    caught("processes::loom_a_producer_dies_before_two_stages", "walk-from-later", ELSEWHERE);
}

/// A process leaves its seat, and another process takes it. Both write to the same event.
#[test]
fn loom_a_seat_changes_its_owner() {
    explore_unfenced(8, None, || {
        let segment = Segment::unfenced(1, &[(Access::Write, &[])]);
        let (mut tx, mut first) =
            (segment.producer(1, 1), segment.writer(2, 0).expect("a free seat"));
        publish_runs(&mut tx, 0, &[1], 1);
        let taking = thread::spawn(move || {
            let mut second = (0..2).find_map(|_| segment.writer(3, 0))?;
            assert_eq!(available(second.try_batch(1)).map(|batch| batch.len()), Some(1));
            Some(second)
        });
        drop(available(first.try_batch(1)));
        drop(first);
        (tx, taking.join().unwrap())
    });
}

#[test]
fn loom_twin_seat_taken_relaxed() {
    caught("processes::loom_a_seat_changes_its_owner", "seat-taken-relaxed", Caught::Race);
}

#[test]
fn loom_twin_seat_freed_relaxed() {
    caught("processes::loom_a_seat_changes_its_owner", "seat-freed-relaxed", Caught::Race);
}

/// Takes the seat of a stage as a process does that finds it taken: recovers the owner if it is dead.
/// The recoverer dies after `stores` stores.
fn take_over(segment: &Segment, number: u32, stores: usize) -> Option<SegmentWriter<u64>> {
    let ring = segment.attach(number);
    for _ in 0..2 {
        let Err(owner) = ring.seat(0).take(number) else {
            // SAFETY: the seat was taken.
            let mut writer = unsafe { ring.writer(0) };
            assert_eq!(available(writer.try_batch(1)).map(|batch| batch.len()), Some(1));
            return Some(writer);
        };
        if segment.bytes.claim_dead(owner) {
            let mut whole = false;
            lives(stores, || {
                ring.seat(0).bury(owner);
                whole = true;
            });
            // A recovery that ends and a recoverer that dies both free the byte.
            segment.bytes.unlock(owner);
            if !whole {
                return None;
            }
        }
    }
    None
}

/// Two processes find a dead one in a seat, and take the seat. One of them may die meanwhile.
#[test]
fn loom_two_processes_recover_a_dead_one() {
    for stores in [0, 1, usize::MAX] {
        explore_unfenced(250, Some(3), move || {
            let segment = Segment::unfenced(1, &[(Access::Write, &[])]);
            let (mut tx, mut dead) =
                (segment.producer(1, 1), segment.writer(2, 0).expect("a free seat"));
            publish_runs(&mut tx, 0, &[1], 1);
            let taking = [(3, stores), (4, usize::MAX)].map(|(number, stores)| {
                let segment = segment.clone();
                thread::spawn(move || take_over(&segment, number, stores))
            });
            let _ = available(dead.try_batch(1));
            segment.bytes.unlock(2);
            let [one, other] = taking.map(|taking| taking.join().unwrap());
            assert!(one.is_none() || other.is_none(), "a seat has two owners");
            let ring = segment.attach(5);
            ring.seat(0).bury(2);
            assert_eq!(ring.seat(0).deaths(), 1, "a death is counted once");
            (tx, dead, one, other)
        });
    }
}

#[test]
fn loom_twin_recovered_unlocked() {
    caught("processes::loom_two_processes_recover_a_dead_one", "recovered-unlocked", Caught::Race);
}

#[test]
fn loom_twin_freed_before_counted() {
    caught(
        "processes::loom_two_processes_recover_a_dead_one",
        "freed-before-counted",
        COUNTED_ONCE,
    );
}

#[test]
fn loom_twin_generation_uncompared() {
    caught(
        "processes::loom_two_processes_recover_a_dead_one",
        "generation-uncompared",
        COUNTED_ONCE,
    );
}

/// One process fails the graph, and another one reads why.
#[test]
fn loom_a_failure_is_read_elsewhere() {
    explore_unfenced(5, None, || {
        let segment = Segment::unfenced(1, &[(Access::Read, &[])]);
        let (one, other) = (segment.attach(1), segment.attach(2));
        let failing = thread::spawn(move || {
            one.control().fail(0, Some(7), Cause::Panic("a model's text".into()));
            one
        });
        let early = other.control().status.failure().map(|failure| failure.to_string());
        let one = failing.join().unwrap();
        let late = other.control().status.failure().expect("the failure").to_string();
        assert!(late.contains("s0") && late.contains("a model's text"), "{late}");
        assert!(early.is_none_or(|early| early == late), "a part of a failure");
        (one, other)
    });
}

#[test]
fn loom_twin_record_unreleased() {
    caught("processes::loom_a_failure_is_read_elsewhere", "record-unreleased", PART_OF_A_FAILURE);
}

#[test]
fn loom_twin_record_seen_relaxed() {
    caught("processes::loom_a_failure_is_read_elsewhere", "record-seen-relaxed", PART_OF_A_FAILURE);
}

/// One process fails the graph. Another one that sees the failed bit finds the reason.
#[test]
fn loom_a_failed_bit_is_seen_elsewhere() {
    explore_unfenced(5, None, || {
        let segment = Segment::unfenced(1, &[(Access::Read, &[])]);
        let (one, other) = (segment.attach(1), segment.attach(2));
        let failing = thread::spawn(move || {
            one.control().fail(0, None, Cause::Panic("model".into()));
            one
        });
        if !other.control().is_running() {
            let stopped = other.control().stopped();
            assert!(matches!(stopped, Some(WaitError::Failed(_))), "failed without a reason");
        }
        (failing.join().unwrap(), other)
    });
}

#[test]
fn loom_twin_failed_unreleased() {
    caught("processes::loom_a_failed_bit_is_seen_elsewhere", "failed-unreleased", NO_REASON);
}

#[test]
fn loom_twin_failed_seen_relaxed() {
    caught("processes::loom_a_failed_bit_is_seen_elsewhere", "failed-seen-relaxed", NO_REASON);
}

/// The stage for which the producer waits dies. The producer's wait ends as it was declared.
#[test]
fn loom_a_producer_learns_of_a_death() {
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        explore(10, None, move || {
            let segment = Segment::new(1, &[(Access::Read, &[], on_death)], Wait::Blocking);
            let mut tx = segment.hasty_producer(1, 1);
            let reader = segment.reader(2, 0);
            tx.publish(|event| *event = 0).unwrap();
            let dying = segment.clone();
            let dying = thread::spawn(move || dying.bytes.unlock(2));
            let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
            match (on_death, error) {
                (OnDeath::Tell, WaitError::PeerDead(dead)) => {
                    assert_eq!((dead.stage.as_str(), dead.pid, dead.seq), ("s0", 1002, 0))
                }
                (OnDeath::Fail, WaitError::Failed(failure)) => {
                    assert!(matches!(failure.cause(), Cause::Died { pid: 1002 }), "{failure}")
                }
                (_, error) => panic!("{error}"),
            }
            dying.join().unwrap();
            drop((tx, reader));
        });
    }
}

/// The stage for which the producer waits leaves, and another process takes its seat. The producer
/// takes no process for dead.
#[test]
fn loom_a_process_that_leaves_is_not_dead() {
    explore(400, Some(3), || {
        let segment = Segment::new(1, &[(Access::Read, &[], OnDeath::Tell)], Wait::Blocking);
        let (mut tx, first) = (segment.hasty_producer(1, 1), segment.reader(2, 0));
        tx.publish(|event| *event = 0).unwrap();
        let leaving = segment.clone();
        let leaving = thread::spawn(move || {
            drop(first);
            leaving.bytes.unlock(2);
            let mut second = leaving.reader(3, 0);
            second.try_batch(1).unwrap().release();
            second
        });
        assert!(tx.publish(|event| *event = 1).is_ok(), "a living process is taken for dead");
        drop((leaving.join().unwrap(), tx));
    });
}

#[test]
fn loom_twin_owner_unchecked() {
    caught(
        "processes::loom_a_process_that_leaves_is_not_dead",
        "owner-unchecked",
        Caught::Message("a living process is taken for dead"),
    );
}

/// A stage of one process sleeps, and only a notification ends its sleep. The producer of another
/// process finds that a third one has died, and fails the graph.
#[test]
fn loom_a_death_wakes_a_sleeper_elsewhere() {
    explore(50, Some(3), || {
        let stages = [(Access::Read, &[][..], OnDeath::Fail), (Access::Read, &[], OnDeath::Wait)];
        let segment = Segment::new(1, &stages, Wait::Blocking);
        let (mut tx, dead) = (segment.hasty_producer(1, 2), segment.reader(2, 0));
        let mut sleeper = segment.reader(3, 1);
        tx.publish(|event| *event = 0).unwrap();
        sleeper.batch(1).unwrap().release();
        segment.bytes.unlock(2);
        let sleeping = thread::spawn(move || {
            let error = sleeper.batch(1).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("process 1002"), "{error}");
            sleeper
        });
        assert!(matches!(tx.publish(|_| ()), Err(WaitError::Failed(_))));
        drop((sleeping.join().unwrap(), tx, dead));
    });
}

#[test]
fn loom_twin_failed_unnotified_elsewhere() {
    caught("processes::loom_a_death_wakes_a_sleeper_elsewhere", "failed-unnotified", LEFT_ASLEEP);
}

#[test]
fn loom_twin_sleeper_unfenced_elsewhere() {
    caught("processes::loom_a_death_wakes_a_sleeper_elsewhere", "sleeper-unfenced", LEFT_ASLEEP);
}

#[test]
fn loom_twin_ending_unfenced() {
    caught("processes::loom_a_death_wakes_a_sleeper_elsewhere", "ending-unfenced", LEFT_ASLEEP);
}

#[test]
fn loom_twin_same_epoch_elsewhere() {
    caught("processes::loom_a_death_wakes_a_sleeper_elsewhere", "same-epoch", LEFT_ASLEEP);
}
