//! Tests every call that does not wait and may be refused, on each handle of a ring between
//! processes. While the test repeats the call, another process dies, and the call must notice. The
//! table in PROTOCOL.md, "Calls that do not wait", lists these calls.

mod rows;
mod table;

use std::thread::sleep;
use std::time::{Duration, Instant};

use self::rows::*;
use super::for_tests::{Segment, stage};
use super::zeroed::blocks_on_heap;
use super::*;
use crate::consumer::markers::{Joined, Reading};
use crate::live::tap::StartAt;
use crate::processes::markers::{Seated, SeatedShard, SeatedWorker};
use crate::processes::producer::Apart;
use crate::producer::Single;
use crate::ring::slots::Interleaved;
use crate::wait::Wait;
use crate::{Conflator, handles::Sent};

/// The participant that owns the tested handle.
const ME: u32 = 1;
/// The participant that dies.
const VICTIM: u32 = 2;
/// A participant that lives.
const OTHER: u32 = 3;
/// A participant whose wait strategy never parks, so the library starts no thread that sleeps on
/// behalf of its tasks.
const SPINNER: u32 = 4;

/// How the stage of the tested handle divides its events among handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestedStage {
    Each,
    Pool,
    Shard,
    Tap,
}

fn declared(kind: TestedStage, after: &[usize], on_death: OnDeath) -> StageDeclaration {
    let delivery = match kind {
        TestedStage::Each => StageDelivery::Each,
        TestedStage::Pool => StageDelivery::Pool(2),
        TestedStage::Shard => StageDelivery::Shards { shards: 1, key_offset: 0, key_length: 8 },
        TestedStage::Tap => StageDelivery::Tap(2),
    };
    StageDeclaration { delivery, ..stage(&format!("{kind:?}-{}", after.len()), after, on_death) }
}

/// How the slots lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slots {
    /// Each event follows its stamp.
    Events,
    /// The events lie side by side.
    Cells,
}

/// Notice of the segments: the time between two checks for dead processes.
const NOTICE: Duration = Duration::from_millis(1);

impl Segment {
    /// Makes a segment of four slots, either for events, which are also used as blocks, or for
    /// cells.
    fn for_all(
        slots: Slots,
        stages: Vec<StageDeclaration>,
        producers: usize,
        producer_on_death: OnDeath,
    ) -> Segment {
        let declaration =
            Declaration { capacity: 4, start: 0, stages, producers, producer_on_death };
        let inside = slots == Slots::Events;
        let areas = blocks_on_heap(&declaration, size_of::<Event>(), inside).unwrap();
        Segment { declaration, areas, dead: Default::default(), dead_handles: Default::default() }
    }

    fn participant(&self, number: u32) -> Participant {
        let wait = if number == SPINNER { Wait::BusySpin } else { Wait::Blocking };
        Participant {
            number,
            proof: self.dead.clone(),
            notice: NOTICE,
            always_fences: true,
            wait: wait.clone(),
            producer_wait: wait,
        }
    }

    fn ring<E: Send + Sync + 'static, L: SegmentLayout>(&self, number: u32) -> SegmentRing<E, L> {
        let participant = self.participant(number);
        // SAFETY: the areas are laid out for the declaration, and all rings follow the protocol.
        unsafe { SegmentRing::over(&self.declaration, &self.areas, &participant) }.unwrap()
    }

    fn copies(&self, number: u32) -> SegmentRing<AtomicBytes<Event>> {
        let participant = self.participant(number);
        // SAFETY: as in `ring`.
        unsafe { SegmentRing::over_copies(&self.declaration, &self.areas, &participant) }.unwrap()
    }

    /// Takes a seat of a party. Returns its index.
    fn seat(&self, number: u32, party: usize) -> usize {
        let ring = self.ring::<Event, Interleaved>(number);
        let mut seats = ring.seats_of(party);
        seats.find(|&seat| ring.seat(seat).take(number).is_ok()).expect("a free seat")
    }

    fn single<E: Send + Sync + 'static, L: SegmentLayout>(
        &self,
        number: u32,
    ) -> SegmentProducer<E, L> {
        self.seat(number, self.declaration.stages.len());
        // SAFETY: the seat was taken.
        unsafe { self.ring(number).producer() }
    }

    fn claiming<E: Send + Sync + 'static, L: SegmentLayout>(
        &self,
        number: u32,
    ) -> SegmentProducer<E, L, Apart> {
        let seat = self.seat(number, self.declaration.stages.len());
        // SAFETY: the seat was taken.
        unsafe { self.ring(number).shared_producer(seat) }
    }

    /// Attaches a reader, or joins a tap.
    fn each<E: Send + Sync + 'static, L: SegmentLayout>(
        &self,
        number: u32,
        stage: usize,
    ) -> SegmentConsumer<E, Reading, Seated, L> {
        self.seat(number, stage);
        // SAFETY: the seat was taken.
        unsafe { self.ring(number).reader(stage) }
    }

    fn joined<E: Send + Sync + 'static, L: SegmentLayout>(
        &self,
        number: u32,
        tap: usize,
    ) -> SegmentConsumer<E, Reading, Joined, L> {
        self.ring(number).subscribe(tap, StartAt::Oldest).unwrap()
    }

    fn pooled<E: Send + Sync + 'static, L: SegmentLayout>(
        &self,
        number: u32,
        pool: usize,
    ) -> SegmentConsumer<E, Reading, SeatedWorker, L> {
        let seat = self.seat(number, pool);
        // SAFETY: the seat was taken.
        unsafe { self.ring(number).pool_reader(pool, seat) }
    }
}

/// Repeats a call until it sees `expected`. Until then, the call must see nothing.
fn expect(poll: &mut dyn FnMut() -> Seen, expected: Seen, what: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = poll();
        if seen == expected {
            return;
        }
        assert_eq!(seen, Nothing, "{what}, which waits for {expected:?}");
        assert!(Instant::now() < end, "{what}: the call never sees {expected:?}");
        sleep(Duration::from_micros(200));
    }
}

/// Runs each row of calls that are refused because the ring is full.
fn refused_for_room<H>(
    slots: Slots,
    producers: usize,
    rows: &[Row<H>],
    make: impl Fn(&Segment) -> H,
) {
    for &(handle, call, tells, poller) in rows {
        for (kind, on_death, expected) in [
            (TestedStage::Tap, OnDeath::Wait, Done),
            (TestedStage::Each, OnDeath::Tell, Told),
            (TestedStage::Each, OnDeath::Fail, Failed),
        ] {
            if expected == Told && !tells {
                continue;
            }
            let stages = vec![declared(kind, &[], on_death)];
            let segment = Segment::for_all(slots, stages, producers, OnDeath::Wait);
            let what = format!("{handle}::{call} of {producers}, {expected:?}");
            let mut poll = poller(make(&segment));
            let mut fill = |victim: Box<dyn std::any::Any + Send>| {
                // After so many refused calls in a tight loop, the handle skips the greatest number
                // of readings of the clock.
                let mut refused = 0;
                while refused < 40 {
                    match poll() {
                        Nothing => refused += 1,
                        seen => assert_eq!(seen, Done, "{what}"),
                    }
                }
                segment.kill(VICTIM, victim);
                if expected == Failed && !tells {
                    let ring = segment.ring::<BlockStart, Strided>(OTHER);
                    let mut runs = || ring.control().status.is_running().then(&mut poll);
                    return expect(&mut || runs().unwrap_or(Failed), expected, &what);
                }
                expect(&mut poll, expected, &what);
            };
            match kind {
                TestedStage::Tap => {
                    fill(Box::new(segment.joined::<BlockStart, Strided>(VICTIM, 0)))
                }
                _ => fill(Box::new(segment.each::<BlockStart, Strided>(VICTIM, 0))),
            }
        }
    }
}

#[test]
fn each_call_that_is_refused_for_room_hears_of_a_death() {
    let _watched = crate::watchdog::watched();
    const SIZE: usize = size_of::<Event>();
    // SAFETY: the ring is one of copies.
    let copying = |segment: &Segment, seat| unsafe { segment.copies(ME).shared_producer(seat) };
    refused_for_room(Slots::Events, 1, &producers::<Single>(), |segment| segment.single(ME));
    refused_for_room(Slots::Events, 2, &producers::<Apart>(), |segment| segment.claiming(ME));
    refused_for_room(Slots::Events, 1, &producers::<Single>(), |segment| segment.single(SPINNER));
    // SAFETY: each slot has a block of this size, and all handles follow the protocol.
    let single = |segment: &Segment| unsafe { BlockProducer::over(segment.single(ME), SIZE) };
    // SAFETY: as above.
    let shared = |segment: &Segment| unsafe { BlockProducer::over(segment.claiming(ME), SIZE) };
    refused_for_room(Slots::Events, 1, &block_producers(), single);
    refused_for_room(Slots::Events, 2, &block_producers(), shared);
    refused_for_room(Slots::Cells, 1, &message_producers(), |segment| {
        MessageProducer::over(single(segment))
    });
    refused_for_room(Slots::Cells, 2, &message_producers(), |segment| {
        MessageProducer::over(shared(segment))
    });
    refused_for_room(Slots::Events, 1, &copying_producers(), |segment| {
        segment.seat(ME, 1);
        // SAFETY: the ring is one of copies.
        CopyingProducer::over(unsafe { segment.copies(ME).producer() })
    });
    refused_for_room(Slots::Events, 2, &copying_producers(), |segment| {
        CopyingProducer::over(copying(segment, segment.seat(ME, 1)))
    });
}

/// Runs each row of calls that are refused because no event is available, for a stage of this kind.
fn refused_for_an_event<H>(
    slots: Slots,
    kind: TestedStage,
    rows: &[Row<H>],
    make: impl Fn(&Segment, usize) -> H,
) {
    for &(handle, call, _, poller) in rows {
        let run = |what: &str, segment: Segment, stage, victim: &dyn Fn(&Segment), expected| {
            let what = format!("{handle}::{call} of {kind:?}, {what}, {expected:?}");
            let mut poll = poller(make(&segment, stage));
            victim(&segment);
            expect(&mut poll, expected, &what);
        };
        let mine = |after: &[usize]| declared(kind, after, OnDeath::Wait);
        let publish = |segment: &Segment| {
            let mut other = segment.single::<BlockStart, Strided>(OTHER);
            other.publish(|_| ()).unwrap();
            std::mem::forget(other);
        };
        for (on_death, expected) in
            [(OnDeath::Tell, Told), (OnDeath::Fail, Failed), (OnDeath::Close, Closed)]
        {
            let segment = Segment::for_all(slots, vec![mine(&[])], 1, on_death);
            let dies = |segment: &Segment| {
                let victim = segment.single::<BlockStart, Strided>(VICTIM);
                segment.kill(VICTIM, victim);
            };
            run("the producer dies", segment, 0, &dies, expected);
            if on_death == OnDeath::Close {
                continue;
            }
            let stages = vec![declared(TestedStage::Each, &[], on_death), mine(&[0])];
            let dies = |segment: &Segment| {
                publish(segment);
                segment.kill(VICTIM, segment.each::<BlockStart, Strided>(VICTIM, 0));
            };
            let segment = Segment::for_all(slots, stages, 1, OnDeath::Wait);
            run("the stage before dies", segment, 1, &dies, expected);
        }
        let dies = |segment: &Segment| {
            let mut victim = segment.claiming::<BlockStart, Strided>(VICTIM);
            let mut other = segment.claiming::<BlockStart, Strided>(OTHER);
            std::mem::forget(victim.claim().unwrap());
            other.publish(|_| ()).unwrap();
            std::mem::forget(other);
            segment.kill(VICTIM, victim);
        };
        let segment = Segment::for_all(slots, vec![mine(&[])], 2, OnDeath::Wait);
        run("a producer dies with a claim", segment, 0, &dies, Done);
        if kind != TestedStage::Tap {
            let dies = |segment: &Segment| {
                let victim = segment.joined::<BlockStart, Strided>(VICTIM, 0);
                publish(segment);
                segment.kill(VICTIM, victim);
            };
            let stages = vec![declared(TestedStage::Tap, &[], OnDeath::Wait), mine(&[0])];
            let segment = Segment::for_all(slots, stages, 1, OnDeath::Wait);
            run("a member of the tap before dies", segment, 1, &dies, Done);
        }
        if kind == TestedStage::Pool {
            let dies = |segment: &Segment| {
                let mut victim = segment.pooled::<BlockStart, Strided>(VICTIM, 0);
                publish(segment);
                let _chunk = victim.batch(1).unwrap();
                segment.kill(VICTIM, victim);
            };
            let segment = Segment::for_all(slots, vec![mine(&[])], 1, OnDeath::Wait);
            run("a worker dies with a chunk", segment, 0, &dies, Done);
        }
    }
}

#[test]
fn each_call_that_is_refused_for_an_event_hears_of_a_death() {
    let _watched = crate::watchdog::watched();
    const SIZE: usize = size_of::<Event>();
    refused_for_an_event(
        Slots::Events,
        TestedStage::Each,
        &consumers::<Seated>(),
        |segment, stage| segment.each(ME, stage),
    );
    refused_for_an_event(
        Slots::Events,
        TestedStage::Pool,
        &consumers::<SeatedWorker>(),
        |segment, stage| segment.pooled(ME, stage),
    );
    refused_for_an_event(
        Slots::Events,
        TestedStage::Tap,
        &consumers::<Joined>(),
        |segment, stage| segment.joined(ME, stage),
    );
    refused_for_an_event(
        Slots::Events,
        TestedStage::Shard,
        &consumers::<SeatedShard>(),
        |segment, stage| {
            segment.seat(ME, stage);
            // SAFETY: the seat was taken.
            unsafe { segment.ring(ME).shard_reader(stage, 0) }
        },
    );
    let each = |segment: &Segment, stage| {
        segment.seat(ME, stage);
        // SAFETY: the seat was taken, and each slot has a block of this size.
        unsafe { BlockConsumer::over(segment.ring(ME).reader(stage), SIZE) }
    };
    // SAFETY: as above.
    let pooled = |segment: &Segment, stage| unsafe {
        BlockConsumer::<Reading, _>::over(segment.pooled(ME, stage), SIZE)
    };
    refused_for_an_event(Slots::Events, TestedStage::Each, &block_consumers(), each);
    refused_for_an_event(Slots::Events, TestedStage::Pool, &block_consumers(), pooled);
    refused_for_an_event(
        Slots::Cells,
        TestedStage::Each,
        &message_consumers(),
        |segment, stage| MessageConsumer::over(each(segment, stage)),
    );
    refused_for_an_event(Slots::Cells, TestedStage::Tap, &message_consumers(), |segment, stage| {
        // SAFETY: as above.
        MessageConsumer::over(unsafe { BlockConsumer::over(segment.joined(ME, stage), SIZE) })
    });
    refused_for_an_event(
        Slots::Events,
        TestedStage::Each,
        &copying_consumers(),
        |segment, stage| {
            segment.seat(ME, stage);
            // SAFETY: the ring is one of copies.
            CopyingConsumer::over(unsafe { segment.copies(ME).reader(stage) })
        },
    );
}

#[test]
fn a_spinning_process_hears_of_a_death_through_its_wakers() {
    let _watched = crate::watchdog::watched();
    refused_for_an_event(
        Slots::Events,
        TestedStage::Each,
        &consumers::<Seated>(),
        |segment, stage| segment.each(SPINNER, stage),
    );
}

/// One process polls two handles in turn, with a pause after each round. Each handle counts its own
/// checks for deaths, so the calls of the first handle, which find nothing, do not count as checks
/// of the second.
#[test]
fn handles_that_are_polled_in_turn_all_hear_of_a_death() {
    let _watched = crate::watchdog::watched();
    let stages = vec![
        declared(TestedStage::Each, &[], OnDeath::Wait),
        declared(TestedStage::Tap, &[], OnDeath::Wait),
    ];
    let segment = Segment::for_all(Slots::Events, stages, 1, OnDeath::Wait);
    let ring = segment.ring::<Event, Interleaved>(ME);
    ring.seat(segment.seat(ME, 0)).owner().expect("the reader's seat");
    segment.seat(ME, 2);
    // SAFETY: the seats were taken.
    let (mut tx, mut reader) = unsafe { (ring.producer(), ring.reader(0)) };
    let victim = segment.joined::<Event, Interleaved>(VICTIM, 1);
    let mut both: Poller = Box::new(move || {
        reader.poll(8, |_, _| ()).unwrap();
        done(tx.try_publish(|_| ()))
    });
    while both() == Done {}
    segment.kill(VICTIM, victim);
    let mut paused: Poller = Box::new(move || {
        sleep(Duration::from_millis(1));
        both()
    });
    expect(&mut paused, Done, "two handles in turn");
}

/// A time longer than a notice, and longer than a tick of the coarse clock.
const PAUSE: Duration = Duration::from_millis(15);

/// A loop that pauses between its calls learns of a death within a notice, as a waiting call does.
#[test]
fn the_first_call_after_a_pause_hears_of_a_death() {
    let _watched = crate::watchdog::watched();
    let stages = vec![declared(TestedStage::Each, &[], OnDeath::Tell)];
    let segment = Segment::for_all(Slots::Events, stages, 1, OnDeath::Tell);
    let mut tx = segment.single::<Event, Interleaved>(ME);
    let victim = segment.each::<Event, Interleaved>(VICTIM, 0);
    while tx.try_publish(|_| ()).is_ok() {}
    sleep(PAUSE);
    assert_eq!(done(tx.try_publish(|_| ())), Nothing);
    segment.kill(VICTIM, victim);
    for _ in 0..3 {
        sleep(PAUSE);
        assert_eq!(done(tx.try_publish(|_| ())), Told);
    }
    // The successor of the dead reader has read all events, and its call returns the death of the
    // producer.
    segment.bury(VICTIM);
    let mut reader = segment.each::<Event, Interleaved>(OTHER, 0);
    reader.poll(8, |_, _| ()).unwrap();
    assert_eq!(some(reader.poll(8, |_, _| ()).map(|it| it as u64)), Nothing);
    segment.kill(ME, tx);
    for _ in 0..3 {
        sleep(PAUSE);
        assert_eq!(some(reader.poll(8, |_, _| ()).map(|it| it as u64)), Told);
    }
}

/// A call that returns a number cannot report a death, so the next call does.
#[test]
fn the_call_after_a_report_of_room_tells_of_a_death() {
    let _watched = crate::watchdog::watched();
    let stages = vec![declared(TestedStage::Each, &[], OnDeath::Tell)];
    let segment = Segment::for_all(Slots::Events, stages, 1, OnDeath::Wait);
    let mut tx = segment.single::<Event, Interleaved>(ME);
    while tx.try_publish(|_| ()).is_ok() {}
    segment.kill(VICTIM, segment.each::<Event, Interleaved>(VICTIM, 0));
    for _ in 0..3 {
        sleep(PAUSE);
        assert_eq!(tx.remaining(), 0);
        assert_eq!(done(tx.try_publish(|_| ())), Told);
    }
}

/// When a conflator's call returns a death, the conflator still keeps the value that was passed to
/// the call.
#[test]
fn a_conflator_that_tells_of_a_death_keeps_the_value() {
    let _watched = crate::watchdog::watched();
    let stages = vec![declared(TestedStage::Each, &[], OnDeath::Tell)];
    let segment = Segment::for_all(Slots::Events, stages, 1, OnDeath::Wait);
    let tx = segment.single::<Event, Interleaved>(ME);
    let fill = |event: &mut Event, _: &u64, value| event[0] = value;
    let mut conflator = Conflator::new(tx, 1, fill).unwrap();
    let victim = segment.each::<Event, Interleaved>(VICTIM, 0);
    while matches!(conflator.send(7, 0).unwrap(), Sent::Published(_)) {}
    segment.kill(VICTIM, victim);
    sleep(PAUSE);
    let told = (1..).find_map(|value| conflator.send(7, value).err().map(|error| (error, value)));
    let (error, value) = told.unwrap();
    assert_eq!((Seen::from(error), conflator.kept()), (Told, 1));
    // A successor makes room for the kept value.
    segment.bury(VICTIM);
    let mut reader = segment.each::<Event, Interleaved>(OTHER, 0);
    assert_eq!(reader.poll(8, |_, _| ()).unwrap(), 4);
    assert_eq!(conflator.flush().unwrap(), 0);
    assert_eq!(reader.try_batch(1).unwrap()[0][0], value);
}
