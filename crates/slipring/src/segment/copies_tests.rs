//! Tests of handles that copy events. Other handles lend events at the same time, and another
//! thread stores arbitrary words at any time, as a hostile process could. Miri finds no data race
//! in these tests.

use std::future::Future;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::for_tests::{Segment, stage};
use super::zeroed::Memory;
use super::*;
use crate::consumer::markers::{Reading, Updating};
use crate::errors::{BatchError, ClaimError, WaitError};
use crate::live::tap::StartAt;
use crate::processes::markers::Seated;
use crate::processes::producer::Apart;
use crate::wait::Wait;

type Ring = SegmentRing<AtomicBytes<u64>>;

fn attach(segment: &Segment, number: u32) -> Ring {
    let participant = Participant {
        number,
        proof: segment.dead.clone(),
        notice: Duration::from_millis(1),
        always_fences: true,
        wait: Wait::Blocking,
        producer_wait: Wait::Blocking,
    };
    // SAFETY: the areas are those of the declaration. All threads access the words by atomic
    // accesses of their sizes.
    unsafe { SegmentRing::over_copies(&segment.declaration, &segment.areas, &participant) }.unwrap()
}

/// Attaches a process that takes a seat of a party. Returns its ring, and the seat.
fn seated(segment: &Segment, number: u32, party: usize) -> (Ring, usize) {
    let ring = attach(segment, number);
    let seat = ring.seats_of(party).find(|&seat| ring.seat(seat).take(number).is_ok());
    (ring, seat.expect("a free seat"))
}

/// Calls a method of a ring, and wraps the returned handle as a copying handle.
macro_rules! copying {
    ($handle:ident: $ring:ident.$call:ident($($argument:expr),*)) => {
        // SAFETY: `over_copies` made the ring.
        $handle::over(unsafe { $ring.$call($($argument),*) })
    };
}

fn producer(segment: &Segment, number: u32) -> CopyingProducer<u64> {
    let (ring, _) = seated(segment, number, segment.declaration.stages.len());
    copying!(CopyingProducer: ring.producer())
}

fn shared_producer(segment: &Segment, number: u32) -> CopyingProducer<u64, Apart> {
    let (ring, seat) = seated(segment, number, segment.declaration.stages.len());
    copying!(CopyingProducer: ring.shared_producer(seat))
}

fn reader(segment: &Segment, number: u32, stage: usize) -> CopyingConsumer<u64, Reading, Seated> {
    let (ring, _) = seated(segment, number, stage);
    copying!(CopyingConsumer: ring.reader(stage))
}

fn writer(segment: &Segment, number: u32, stage: usize) -> CopyingConsumer<u64, Updating, Seated> {
    let (ring, _) = seated(segment, number, stage);
    copying!(CopyingConsumer: ring.updater(stage))
}

fn of(name: &str, delivery: StageDelivery, after: &[usize], writes: bool) -> StageDeclaration {
    StageDeclaration { delivery, writes, ..stage(name, after, OnDeath::Wait) }
}

const SHARDS: StageDelivery = StageDelivery::Shards { shards: 2, key_offset: 2, key_length: 6 };

fn soon() -> Instant {
    Instant::now() + Duration::from_micros(50)
}

/// Handles that copy and handles that lend are parties of one stream.
#[test]
fn copies_and_leases_work_together() {
    let _watched = crate::watchdog::watched();
    for start in [0, 5, u64::MAX - 3] {
        for copies in [false, true] {
            let stages = vec![
                of("add", StageDelivery::Each, &[], true),
                stage("lent", &[0], OnDeath::Wait),
                stage("copied", &[0], OnDeath::Wait),
            ];
            let segment = Segment::new(4, start, stages);
            let mut lends = (!copies).then(|| segment.producer(1));
            let mut tx = copies.then(|| producer(&segment, 1));
            let mut add = writer(&segment, 2, 0);
            let (mut lent, mut copied) = (segment.reader(3, 1), reader(&segment, 4, 2));
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for i in 0..60 {
                        if let Some(tx) = &mut lends {
                            tx.publish(|slot| *slot = i).unwrap();
                        } else if let Some(tx) = &mut tx {
                            assert_eq!(tx.publish(&i).unwrap(), start.wrapping_add(i));
                        }
                    }
                });
                scope.spawn(move || assert_eq!(add.for_each(|event, _| *event += 1).unwrap(), 60));
                scope.spawn(move || {
                    let mut next = 1;
                    let count = lent.for_each(|event, _| {
                        assert_eq!(*event, next);
                        next += 1;
                    });
                    assert_eq!(count.unwrap(), 60);
                });
                scope.spawn(move || {
                    let mut next = 0;
                    let count = copied.for_each(|event, seq| {
                        assert_eq!((event, seq), (next + 1, start.wrapping_add(next)));
                        next += 1;
                    });
                    assert_eq!(count.unwrap(), 60);
                });
            });
        }
    }
}

/// Pools, shards, taps and several producers all copy. Each event comes once, and keys select the
/// shards as they do for handles that lend.
#[test]
fn copies_pass_each_kind_of_stage() {
    let _watched = crate::watchdog::watched();
    let stages = vec![
        of("pool", StageDelivery::Pool(2), &[], true),
        of("shards", SHARDS, &[0], false),
        of("tap", StageDelivery::Tap(2), &[1], false),
        stage("end", &[2], OnDeath::Wait),
    ];
    let segment = Segment::shared(8, 3, stages, 2, OnDeath::Wait);
    let producers = [1, 2].map(|number| shared_producer(&segment, number));
    let mut workers = [3, 4].map(|number| {
        let (ring, seat) = seated(&segment, number, 0);
        copying!(CopyingConsumer: ring.pool_updater(0, seat))
    });
    let mut shards = [0, 1].map(|shard| {
        let (ring, _) = seated(&segment, 5 + shard as u32, 1);
        copying!(CopyingConsumer: ring.shard_reader(1, shard))
    });
    let member = attach(&segment, 7).subscribe(2, StartAt::Oldest).unwrap();
    let mut member = CopyingConsumer::over(member);
    let mut end = reader(&segment, 8, 3);
    let key = |event: u64| shard_of_bytes(&event.to_ne_bytes()[2..], 2) as usize;
    std::thread::scope(|scope| {
        for (mut tx, number) in producers.into_iter().zip(0u64..) {
            scope.spawn(move || {
                for i in 0..12 {
                    let event = (number << 32 | i) << 8;
                    tx.publish_batch(&[event, event]).unwrap();
                }
            });
        }
        for worker in &mut workers {
            scope.spawn(move || worker.for_each(|event, _| *event |= 1).unwrap());
        }
        let (mut sums, mut counts) = ([0; 2], [0; 2]);
        let shards = scope.spawn(move || {
            loop {
                let mut ended = 0;
                for (number, shard) in shards.iter_mut().enumerate() {
                    match shard.next_by(soon()) {
                        Ok((event, _)) => {
                            assert_eq!((event & 1, key(event)), (1, number));
                            (sums[number], counts[number]) =
                                (sums[number] + event, counts[number] + 1);
                        }
                        Err(BatchError::Wait(WaitError::Closed)) => ended += 1,
                        Err(error) => assert!(matches!(error, BatchError::TimedOut(_)), "{error}"),
                    }
                }
                if ended == 2 {
                    break (sums[0] + sums[1], counts[0] + counts[1]);
                }
            }
        });
        let member = scope.spawn(move || {
            let (mut sum, mut next) = (0, 3);
            let count = member.for_each(|event, seq| {
                assert_eq!(seq, next);
                (sum, next) = (sum + event, next + 1);
            });
            (sum, count.unwrap())
        });
        let end = scope.spawn(move || {
            let mut sum = 0;
            let count = end.for_each(|event, _| sum += event).unwrap();
            (sum, count)
        });
        let sum = (0..2u64).flat_map(|number| (0..12).map(move |i| number << 32 | i));
        let sum = 2 * sum.map(|event| event << 8 | 1).sum::<u64>();
        assert_eq!(end.join().unwrap(), (sum, 48));
        assert_eq!(member.join().unwrap(), (sum, 48));
        assert_eq!(shards.join().unwrap(), (sum, 48));
    });
}

/// An event that was returned and not released is delivered again. After a drop or a death of the
/// handle, the next handle gets the event. After a panic of the user's closure, the same handle
/// gets it.
#[test]
fn what_is_not_released_comes_again() {
    let _watched = crate::watchdog::watched();
    for dies in [false, true] {
        let segment = Segment::new(8, 0, vec![stage("only", &[], OnDeath::Wait)]);
        let mut tx = producer(&segment, 1);
        tx.publish_batch(&[0, 10, 20, 30, 40]).unwrap();
        let mut first = reader(&segment, 2, 0);
        assert_eq!((first.redelivered(), first.next().unwrap()), ((0..0).into(), (0, 0)));
        let mut events = [0; 3];
        assert_eq!(first.read_batch(&mut events).unwrap(), (1, 3));
        assert_eq!((events, tx.remaining()), ([10, 20, 30], 4));
        if dies {
            segment.kill(2, first);
            segment.bury(2);
        } else {
            drop(first);
        }
        let mut second = reader(&segment, 3, 0);
        assert_eq!((second.redelivered(), second.next().unwrap()), ((1..4).into(), (10, 1)));
        let panics = std::panic::AssertUnwindSafe(|| {
            second.for_each(|_, seq| {
                if seq == 3 {
                    std::panic::resume_unwind(Box::new("the user's"))
                }
            })
        });
        std::panic::catch_unwind(panics).unwrap_err();
        assert_eq!((tx.remaining(), second.try_next().unwrap()), (6, (30, 3)));
        assert_eq!(second.next_by(soon()).unwrap(), (40, 4));
        second.release();
        second.release();
        assert_eq!(tx.remaining(), 8);
        assert!(matches!(second.try_next(), Err(BatchError::Unavailable)));
        assert!(matches!(second.next_by(soon()), Err(BatchError::TimedOut(_))));
        assert_eq!(second.try_read_batch(&mut []).unwrap().1, 0);
    }
}

#[test]
fn a_writer_changes_only_what_it_has_got() {
    let _watched = crate::watchdog::watched();
    let stages =
        vec![of("writer", StageDelivery::Each, &[], true), stage("reader", &[0], OnDeath::Wait)];
    let segment = Segment::new(4, u64::MAX, stages);
    let mut tx = producer(&segment, 1);
    let mut writer = writer(&segment, 2, 0);
    let mut last = reader(&segment, 3, 1);
    tx.publish_batch(&[1, 2, 3]).unwrap();
    let mut events = [0; 2];
    assert_eq!(writer.read_batch(&mut events).unwrap(), (u64::MAX, 2));
    assert!(writer.write_back(u64::MAX, &10) && writer.write_back(0, &20));
    assert!(!writer.write_back(1, &30) && !writer.write_back(u64::MAX - 1, &30));
    writer.release();
    assert!(!writer.write_back(0, &40));
    let mut seen = [0; 4];
    assert_eq!(last.read_batch(&mut seen).unwrap(), (u64::MAX, 2));
    assert_eq!(seen, [10, 20, 0, 0]);
    let text = format!("{writer:?} {tx:?}");
    assert!(text.contains("next_seq: 1") && text.contains("next_seq: 2"), "{text}");
}

#[test]
fn a_batch_that_can_never_fit_is_refused() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let mut tx = producer(&segment, 1);
    for len in [0, 3] {
        let length =
            |error| matches!(error, ClaimError::Length { asked, capacity: 2 } if asked == len);
        assert!(length(tx.publish_batch(&vec![0; len]).unwrap_err()));
        assert!(length(tx.try_publish_batch(&vec![0; len]).unwrap_err()));
        assert!(length(tx.publish_batch_by(soon(), &vec![0; len]).unwrap_err()));
    }
    tx.publish_batch(&[1, 2]).unwrap();
    assert!(matches!(tx.try_publish(&3), Err(ClaimError::Gated { lag: 2, .. })));
    assert!(matches!(tx.publish_by(soon(), &3), Err(ClaimError::TimedOut(_))));
}

/// A frontier that another process stores beyond the published position of a single producer counts
/// as damage. If the producer believed it, the producer would never wait again.
#[test]
fn a_release_of_unpublished_events_is_damage() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(4, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let mut tx = producer(&segment, 1);
    tx.publish_batch(&[1, 2, 3, 4]).unwrap();
    let line = segment.declaration.needs::<u64>().unwrap().stages[0].line;
    // SAFETY: each line begins with an atomic word.
    let word = unsafe { segment.areas.lines.cast::<AtomicU64>().add(line * 16).as_ref() };
    let released = word.swap(1 << 40, Relaxed);
    assert!(matches!(tx.try_publish(&5), Err(ClaimError::Wait(WaitError::Damaged))));
    assert!(matches!(tx.publish(&5), Err(WaitError::Damaged)));
    word.store(released, Relaxed);
    assert!(matches!(tx.try_publish(&5), Err(ClaimError::Gated { .. })), "the gate still holds");
}

/// A range of redelivered events that is longer than the ring counts as damage, and no loop runs
/// over it.
#[test]
fn a_false_range_of_redelivered_events_is_damage() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(4, 0, vec![stage("only", &[], OnDeath::Wait)]);
    let ring = attach(&segment, 9);
    ring.seat(0).hold(1 << 50);
    let mut reader = reader(&segment, 2, 0);
    assert!(reader.redelivered().is_empty());
    assert!(matches!(reader.try_next(), Err(BatchError::Wait(WaitError::Damaged))));
}

/// The words of a segment, as another process can store them.
struct Scribbler<'a> {
    segment: &'a Segment,
    words: usize,
    /// Values of the words when the segment was new.
    first: Vec<u64>,
    random: fastrand::Rng,
}

impl Scribbler<'_> {
    fn new(segment: &Segment, seed: u64) -> Scribbler<'_> {
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let (random, words) = (fastrand::Rng::with_seed(seed), memory.bytes.size() / 8);
        // SAFETY: the words lie in the memory.
        let word = |at| unsafe { memory.first.cast::<u64>().add(at).read() };
        Scribbler { segment, words, first: (0..words).map(word).collect(), random }
    }

    /// Stores the words of the new segment again, so that handles made after this call get further.
    fn heal(&self) {
        let memory: &Memory = self.segment.areas.mapping.downcast_ref().unwrap();
        for (at, &value) in self.first.iter().enumerate() {
            // SAFETY: the word lies in the memory.
            self.store(unsafe { memory.first.cast::<AtomicU64>().add(at) }, value);
        }
    }

    /// Stores a word. All threads access each word by atomic accesses of one size: the status has
    /// 32 bits, and so has a shard id.
    fn store(&self, at: NonNull<AtomicU64>, value: u64) {
        let areas = &self.segment.areas;
        let ids = areas.shard_ids.addr().get()..areas.stamps.addr().get();
        if at.cast() == areas.status {
            // SAFETY: the caller's word lies in the memory.
            unsafe { at.cast::<AtomicU32>().as_ref() }.store(value as u32, Relaxed);
        } else if ids.contains(&at.addr().get()) {
            for (half, value) in [(0, value as u32), (1, (value >> 32) as u32)] {
                // SAFETY: the caller's word lies in the memory, and both halves lie in the word.
                unsafe { at.cast::<AtomicU32>().add(half).as_ref() }.store(value, Relaxed);
            }
        } else {
            // SAFETY: as above.
            unsafe { at.as_ref() }.store(value, Relaxed);
        }
    }

    /// Stores an arbitrary value to a random word.
    fn scribble(&mut self) {
        let areas = &self.segment.areas;
        let random = &mut self.random;
        let memory: &Memory = areas.mapping.downcast_ref().unwrap();
        // SAFETY: the word lies in the memory.
        let mut at = unsafe { memory.first.cast::<AtomicU64>().add(random.usize(..self.words)) };
        if random.u8(..3) == 0 {
            // Picks one of the first 64 words of an area: the lines of positions, the slots, the
            // seats, or the cells.
            let area = [areas.lines, areas.stamps, areas.seats, areas.cells][random.usize(..4)];
            let first = (area.addr().get() - memory.first.addr().get()) / 8;
            let word = (first + random.usize(..64)).min(self.words - 1);
            // SAFETY: as above.
            at = unsafe { memory.first.cast::<AtomicU64>().add(word) };
        }
        let has_ids = at >= areas.shard_ids.cast() && at < areas.stamps.cast();
        let mut value = match random.u32(..6) {
            0 => random.u64(..12) << random.u32(..20),
            1 => {
                let rest = [random.u64(..5), 1 << 17 | random.u64(..4), 1 << 16 | 1];
                (random.u64(..20) / 4 + 1) << 18 | rest[random.usize(..3)]
            }
            2 => random.u64(..20),
            3 if at.cast() != areas.status && !has_ids => {
                // SAFETY: as above.
                let now = unsafe { at.as_ref() }.load(Relaxed);
                now.wrapping_add(random.u64(..9)).wrapping_sub(4)
            }
            _ => random.u64(..) >> random.u32(..64),
        };
        // Stores to the status only now and then: once the graph has failed, it refuses all later
        // calls.
        if random.u8(..32) == 0 {
            at = areas.status.cast();
        }
        if at.cast() == areas.status {
            value = [0, 0, 0, 0, 0, 8, 1, 2, 4, 16][random.usize(..10)];
        }
        self.store(at, value);
        if self.random.u8(..100) == 0 {
            self.heal();
        }
        if self.random.u8(..16) == 0 {
            self.segment.dead.set.store(self.random.u64(..) & self.random.u64(..), Relaxed);
        }
    }
}

/// Calls all methods of a handle, except those that may wait for ever.
macro_rules! read {
    ($handle:expr, $random:expr, $done:expr) => {{
        let (handle, random) = (&mut $handle, &mut $random);
        let mut events = [0; 6];
        let time = Duration::from_micros(random.u64(..90));
        let done = match random.u8(..7) {
            0 => handle.try_next().is_ok(),
            1 => handle.next_by(soon()).is_ok(),
            2 => handle.try_read_batch(&mut events[..random.usize(1..6)]).is_ok(),
            3 => handle.read_batch_by(soon(), &mut events).is_ok(),
            4 => handle.read_batch_within_by(time, soon(), &mut events).is_ok(),
            5 => (handle.release(), false).1,
            _ => format!("{:?} {}", handle, handle.stage()).is_empty(),
        };
        $done.fetch_add(u64::from(done), Relaxed);
    }};
}

fn write<S: crate::producer::sealed::Sharing>(
    tx: &mut CopyingProducer<u64, S>,
    random: &mut fastrand::Rng,
    done: &AtomicU64,
) {
    let mut context = Context::from_waker(Waker::noop());
    let published = match random.u8(..9) {
        0 => tx.try_publish(&1).is_ok(),
        1 => tx.publish_by(soon(), &2).is_ok(),
        2 => tx.try_publish_batch(&[3, 4]).is_ok(),
        3 => tx.publish_batch_by(soon(), &[5, 6, 7]).is_ok(),
        4 => (tx.wait_for_by("end", random.u64(..9), soon()), false).1,
        5 => (tx.flush_by(soon()), false).1,
        6 => (pin!(tx.wait_for_async("end", random.u64(..9))).poll(&mut context), false).1,
        7 => (pin!(tx.flush_async()).poll(&mut context), false).1,
        _ => (tx.remaining(), format!("{tx:?}").is_empty()).1,
    };
    done.fetch_add(u64::from(published), Relaxed);
}

/// Copying handles of all kinds work while another thread stores arbitrary words. Each call ends,
/// and at worst returns an error or a wrong event.
#[test]
fn words_that_change_under_the_hands_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    let (seeds, calls) = if cfg!(miri) { (4, 12) } else { (160, 150) };
    let (reads, writes) = (&AtomicU64::new(0), &AtomicU64::new(0));
    for seed in 0..seeds {
        let each = |name, after: &[usize]| stage(name, after, OnDeath::Tell);
        let stages = match seed % 4 {
            0 => vec![each("one", &[]), of("end", StageDelivery::Each, &[0], true)],
            1 => vec![of("pool", StageDelivery::Pool(2), &[], true), each("end", &[0])],
            2 => vec![of("shards", SHARDS, &[], true), each("end", &[0])],
            _ => vec![of("tap", StageDelivery::Tap(3), &[], false), each("end", &[0])],
        };
        let producers = if seed / 4 % 2 == 0 { 1 } else { 3 };
        let start = [0, u64::MAX - 3][seed as usize / 8 % 2];
        let segment = Segment::shared(4, start, stages, producers, OnDeath::Fail);
        let (segment, stop) = (&segment, &AtomicBool::new(false));
        let mut scribbler = Scribbler::new(segment, seed);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // In some rounds, the pause is long, so that handles get further.
                let pause = Duration::from_micros([0, 0, 20, 100][seed as usize / 2 % 4]);
                while !stop.load(Relaxed) {
                    scribbler.scribble();
                    if cfg!(miri) {
                        std::thread::yield_now();
                    } else if !pause.is_zero() {
                        std::thread::sleep(pause);
                    }
                }
            });
            struct Stops<'a>(&'a AtomicBool);
            impl Drop for Stops<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Relaxed);
                }
            }
            let _stops = Stops(stop);
            let one = scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + 1000);
                let ring = attach(segment, 1);
                let seat = ring.seats_of(2).start;
                if producers == 1 {
                    let mut tx = copying!(CopyingProducer: ring.producer());
                    for call in 0..calls {
                        write(&mut tx, &mut random, writes);
                        if call % 16 == 15 {
                            tx = copying!(CopyingProducer: ring.producer());
                        }
                    }
                } else {
                    let mut all = [0, 1]
                        .map(|other| copying!(CopyingProducer: ring.shared_producer(seat + other)));
                    for call in 0..calls {
                        write(&mut all[random.usize(..2)], &mut random, writes);
                        if call % 16 == 15 {
                            let ring = attach(segment, 11);
                            all[1] = copying!(CopyingProducer: ring.shared_producer(seat + 2));
                        }
                    }
                }
            });
            let mut random = fastrand::Rng::with_seed(seed + 2000);
            let ring = attach(segment, 2);
            let (seats, mut last) = (ring.seats_of(0), copying!(CopyingConsumer: ring.reader(1)));
            match seed % 4 {
                0 => {
                    let mut first = copying!(CopyingConsumer: ring.reader(0));
                    let mut second = copying!(CopyingConsumer: ring.updater(1));
                    for call in 0..calls {
                        read!(first, random, reads);
                        read!(second, random, reads);
                        second.write_back(random.u64(..9), &8);
                        if call % 8 == 7 {
                            first = copying!(CopyingConsumer: ring.reader(0));
                            assert!(first.redelivered().count() <= 4);
                        }
                    }
                }
                1 => {
                    let mut workers = [0, 1]
                        .map(|n| copying!(CopyingConsumer: ring.pool_updater(0, seats.start + n)));
                    for call in 0..calls {
                        let worker = &mut workers[random.usize(..2)];
                        read!(*worker, random, reads);
                        worker.write_back(random.u64(..9), &8);
                        assert!(worker.redelivered().count() <= 4);
                        if call % 8 == 7 {
                            workers[0] =
                                copying!(CopyingConsumer: ring.pool_updater(0, seats.start));
                        }
                    }
                }
                2 => {
                    let mut shards =
                        [0, 1].map(|shard| copying!(CopyingConsumer: ring.shard_updater(0, shard)));
                    for call in 0..calls {
                        let shard = &mut shards[random.usize(..2)];
                        read!(*shard, random, reads);
                        shard.write_back(random.u64(..9), &8);
                        if call % 8 == 7 {
                            shards[0] = copying!(CopyingConsumer: ring.shard_updater(0, 0));
                            assert!(shards[0].redelivered().count() <= 4);
                        }
                    }
                }
                _ => {
                    let mut members = Vec::new();
                    for _ in 0..calls {
                        let start = [StartAt::Now, StartAt::Oldest, StartAt::At(random.u64(..9))];
                        let member = ring.subscribe(0, start[random.usize(..3)]);
                        members.extend(member.map(CopyingConsumer::over));
                        members.iter_mut().for_each(|member| read!(*member, random, reads));
                        members.truncate(2);
                    }
                }
            }
            for _ in 0..calls {
                read!(last, random, reads);
                let dead = random.u32(..9);
                (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
            }
            let _ = format!("{} {}", ring.report(), ring.position(0));
            one.join().unwrap();
        });
    }
    let done = (reads.load(Relaxed), writes.load(Relaxed));
    eprintln!("calls that gave or took events: {done:?}");
    assert!(
        cfg!(miri) || done.0 > 500 && done.1 > 500,
        "the handles did next to nothing: {done:?}"
    );
}
