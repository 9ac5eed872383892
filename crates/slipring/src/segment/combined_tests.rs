//! Tests of rings that combine several producers, pools and taps between processes.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::for_tests::{Segment, stage};
use super::handles_for_tests::{
    SegmentPoolWriter, SegmentSharedProducer, SegmentSubscription, SegmentWriter,
};
use super::zeroed::Memory;
use super::*;
use crate::errors::{BatchError, WaitError};
use crate::live::tap::StartAt;
use crate::ring::words::SeatedClaim;

fn tap(name: &str, room: usize, after: &[usize]) -> StageDeclaration {
    let delivery = StageDelivery::Tap(room);
    StageDeclaration { delivery, ..stage(name, after, OnDeath::Wait) }
}

fn writer(name: &str, after: &[usize]) -> StageDeclaration {
    StageDeclaration { writes: true, ..stage(name, after, OnDeath::Wait) }
}

fn pool(name: &str, workers: usize, after: &[usize]) -> StageDeclaration {
    let delivery = StageDelivery::Pool(workers);
    StageDeclaration { delivery, writes: true, ..stage(name, after, OnDeath::Wait) }
}

fn two(capacity: usize, stages: Vec<StageDeclaration>) -> Segment {
    Segment::shared(capacity, 0, stages, 2, OnDeath::Wait)
}

fn worker(segment: &Segment, number: u32, pool: usize) -> SegmentPoolWriter<u64> {
    let ring = segment.attach(number);
    let mut seats = ring.seats_of(pool);
    let seat = seats.find(|&seat| ring.seat(seat).take(number).is_ok()).expect("a free seat");
    // SAFETY: the seat was taken.
    unsafe { ring.pool_updater(pool, seat) }
}

fn written(segment: &Segment, number: u32, stage: usize) -> SegmentWriter<u64> {
    let ring = segment.attach(number);
    ring.seat(ring.seats_of(stage).start).take(number).unwrap();
    // SAFETY: the seat was taken.
    unsafe { ring.updater(stage) }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(200)
}

/// Publishes a run of `len` events, and closes the ring.
fn run_and_close(segment: &Segment, len: usize) {
    let mut tx = segment.shared_producer(1);
    let mut claim = tx.claim_n(len).unwrap();
    claim.iter_mut().zip(0..).for_each(|(slot, seq)| *slot = seq);
    claim.publish();
    drop(tx);
}

/// A stage waits in the middle of a run that the previous stage has released in part. It does not
/// mistake its position for the end of a closing ring.
#[test]
fn the_middle_of_a_run_is_no_end_behind_a_stage() {
    let _watched = crate::watchdog::watched();
    let stages = vec![
        tap("tap", 2, &[]),
        stage("first", &[], OnDeath::Wait),
        stage("later", &[1], OnDeath::Wait),
    ];
    let segment = two(8, stages);
    let (mut first, mut later) = (segment.reader(3, 1), segment.reader(4, 2));
    run_and_close(&segment, 5);
    assert_eq!(first.poll(2, |_, _| ()).unwrap(), 2);
    assert_eq!(later.poll(8, |_, _| ()).unwrap(), 2);
    let waits = later.try_batch(1).map(drop);
    assert!(matches!(waits, Err(BatchError::Unavailable)), "{waits:?}");
    assert_eq!(first.for_each(|_, _| ()).unwrap(), 3);
    assert_eq!(later.for_each(|_, _| ()).unwrap(), 3);
}

/// A stage behind a tap waits in the middle of a run that the tap's member has released in part. It
/// does not mistake its position for the end of a closing ring.
#[test]
fn the_middle_of_a_run_is_no_end_behind_a_tap() {
    let _watched = crate::watchdog::watched();
    let segment = two(8, vec![tap("tap", 2, &[]), writer("writer", &[0])]);
    let mut writer = written(&segment, 3, 1);
    let mut member: SegmentSubscription<u64> =
        segment.attach(4).subscribe(0, StartAt::Now).unwrap();
    run_and_close(&segment, 5);
    assert_eq!(member.poll(2, |_, _| ()).unwrap(), 2);
    assert_eq!(writer.poll(8, |_, _| ()).unwrap(), 2);
    let waits = writer.try_batch(1).map(drop);
    assert!(matches!(waits, Err(BatchError::Unavailable)), "{waits:?}");
    assert_eq!(member.for_each(|_, _| ()).unwrap(), 3);
    assert_eq!(writer.for_each(|_, _| ()).unwrap(), 3);
}

/// A pool behind a tap finds the end of a closing ring, even if the tap has no member.
#[test]
fn a_pool_behind_a_tap_finds_the_end() {
    let _watched = crate::watchdog::watched();
    for joins in [true, false] {
        let segment = two(8, vec![tap("tap", 2, &[]), pool("pool", 2, &[0])]);
        let mut worker = worker(&segment, 3, 1);
        let mut member: Option<SegmentSubscription<u64>> =
            joins.then(|| segment.attach(4).subscribe(0, StartAt::Now).unwrap());
        run_and_close(&segment, 5);
        if let Some(member) = &mut member {
            assert_eq!(member.for_each(|_, _| ()).unwrap(), 5);
        }
        let mut seen = 0;
        let end = loop {
            match worker.batch_by(8, soon()) {
                Ok(batch) => {
                    seen += batch.len();
                    batch.release();
                }
                Err(end) => break end,
            }
        };
        assert_eq!(seen, 5);
        assert!(matches!(end, BatchError::Wait(WaitError::Closed)), "{joins}: {end:?}");
    }
}

/// A pool next to a tap, both directly behind the producers, finds the end, and so does a stage
/// behind the pool.
#[test]
fn a_pool_beside_a_tap_finds_the_end() {
    let _watched = crate::watchdog::watched();
    let reads = StageDeclaration { writes: false, ..pool("pool", 2, &[]) };
    let segment = two(8, vec![tap("tap", 2, &[]), reads, stage("later", &[1], OnDeath::Wait)]);
    let ring = segment.attach(3);
    let seat = ring.seats_of(1).start;
    ring.seat(seat).take(3).unwrap();
    // SAFETY: the seat was taken.
    let mut worker = unsafe { ring.pool_reader(1, seat) };
    let mut later = segment.reader(4, 2);
    run_and_close(&segment, 5);
    worker.batch(1).unwrap().release();
    later.poll(8, |_, _| ()).unwrap();
    let waits = later.try_batch(1).map(drop);
    assert!(matches!(waits, Err(BatchError::Unavailable)), "{waits:?}");
    let mut seen = 1;
    while let Ok(batch) = worker.batch_by(8, soon()) {
        seen += batch.len();
        batch.release();
    }
    assert_eq!(seen, 5);
    assert_eq!(later.for_each(|_, _| ()).unwrap(), 4);
}

/// The last producer has announced that it leaves, and dies before the ring begins to close. Its
/// death is no failure, because the stream is complete.
#[test]
fn the_death_of_a_leaving_producer_closes() {
    let _watched = crate::watchdog::watched();
    for on_death in [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail] {
        let segment = Segment::shared(8, 0, vec![stage("only", &[], OnDeath::Wait)], 2, on_death);
        let mut tx = segment.shared_producer(1);
        let mut reader = segment.reader(3, 0);
        tx.publish(|slot| *slot = 7).unwrap();
        let ring = segment.attach(9);
        ring.seat(ring.seats_of(ring.producer_party()).start).leave();
        segment.kill(1, tx);
        assert_eq!(reader.batch(1).unwrap()[0], 7);
        reader.poll(1, |_, _| ()).unwrap();
        let end = reader.batch_by(1, soon()).map(drop);
        assert!(matches!(end, Err(BatchError::Wait(WaitError::Closed))), "{on_death:?}: {end:?}");
    }
}

/// A task that waits at the claim of a dead producer gives the claim up.
#[test]
fn a_task_gives_up_the_claim_of_a_dead_producer() {
    let _watched = crate::watchdog::watched();
    let segment = two(8, vec![stage("only", &[], OnDeath::Wait)]);
    let (mut dying, mut other) = (segment.shared_producer(1), segment.shared_producer(2));
    let mut reader = segment.reader(3, 0);
    std::mem::forget(dying.claim().unwrap());
    other.publish(|slot| *slot = 7).unwrap();
    segment.kill(1, dying);
    let mut context = Context::from_waker(Waker::noop());
    let end = soon() + Duration::from_secs(1);
    let mut batch = std::pin::pin!(reader.batch_async(1));
    loop {
        match std::future::Future::poll(batch.as_mut(), &mut context) {
            Poll::Ready(batch) => break assert_eq!(batch.unwrap()[0], 7),
            Poll::Pending => assert!(Instant::now() < end, "the claim stays"),
        }
    }
}

/// A task that waits for room learns that the awaited stage has died. A task that waits for an
/// event learns that the segment is damaged.
#[test]
fn a_task_hears_of_a_dead_stage_and_of_damage() {
    fn hears<T>(future: impl Future<Output = Result<T, WaitError>>) -> WaitError {
        let mut context = Context::from_waker(Waker::noop());
        let end = soon() + Duration::from_secs(10);
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(result) => break result.map(drop).unwrap_err(),
                Poll::Pending => assert!(Instant::now() < end, "the task hears of nothing"),
            }
        }
    }
    let _watched = crate::watchdog::watched();
    let segment = two(2, vec![stage("only", &[], OnDeath::Tell)]);
    let mut tx = segment.shared_producer(1);
    (0..2).for_each(|at| _ = tx.publish(|slot| *slot = at).unwrap());
    segment.kill(3, segment.reader(3, 0));
    let error = hears(tx.publish_async(|_| ()));
    assert!(matches!(&error, WaitError::PeerDead(dead) if dead.pid == 1003), "{error}");

    let segment = two(8, vec![stage("only", &[], OnDeath::Wait)]);
    let (mut tx, mut reader) = (segment.shared_producer(1), segment.reader(3, 0));
    tx.core().control.positions.claim().store(SeatedClaim::new(3, 0).0, Ordering::Relaxed);
    assert_eq!(segment.shared_producer(2).publish(|_| ()).unwrap(), 3);
    assert!(matches!(hears(reader.batch_async(1)), WaitError::Damaged));
    tx.publish(|_| ()).unwrap();
}

/// A claim word that no producer stored counts as damage, even if only a pool, or the sentinel,
/// gates the producers.
#[test]
fn a_false_claim_word_is_damage_before_a_pool() {
    let _watched = crate::watchdog::watched();
    for first in [stage("only", &[], OnDeath::Wait), pool("pool", 2, &[]), tap("tap", 2, &[])] {
        let segment = two(4, vec![first]);
        let mut tx = segment.shared_producer(1);
        tx.publish(|slot| *slot = 7).unwrap();
        tx.core().control.positions.claim().store(SeatedClaim::new(1000, 0).0, Ordering::Relaxed);
        let late = tx.publish_by(soon(), |slot| *slot = 8);
        assert!(
            matches!(late, Err(crate::errors::ClaimError::Wait(WaitError::Damaged))),
            "{late:?}"
        );
    }
}

/// A false claim word within reach makes a producer skip positions. If a stage, a pool or a reader
/// of a tap waits at such a position, its calls return an error, whether they wait or not.
#[test]
fn a_false_claim_word_within_reach_is_damage_to_those_that_wait() {
    fn assert_damaged<T>(kind: usize, mut call: impl FnMut(bool) -> Result<T, BatchError>) {
        let end = soon() + Duration::from_secs(10);
        let first = loop {
            match call(kind == 0).map(drop) {
                Err(BatchError::Unavailable) if Instant::now() < end => {}
                other => break other,
            }
        };
        for ended in [first, call(true).map(drop), call(false).map(drop)] {
            assert!(matches!(ended, Err(BatchError::Wait(WaitError::Damaged))), "{ended:?}");
        }
    }
    let _watched = crate::watchdog::watched();
    for first in [stage("only", &[], OnDeath::Wait), pool("pool", 2, &[]), tap("tap", 2, &[])] {
        for kind in 0..2 {
            let segment = two(8, vec![first.clone()]);
            let mut one = segment.shared_producer(1);
            let mut stage = (first.delivery == StageDelivery::Each).then(|| segment.reader(3, 0));
            let mut member: Option<SegmentSubscription<u64>> =
                matches!(first.delivery, StageDelivery::Tap(_))
                    .then(|| segment.attach(3).subscribe(0, StartAt::Now).unwrap());
            let mut pool =
                matches!(first.delivery, StageDelivery::Pool(_)).then(|| worker(&segment, 3, 0));
            let mut other = segment.shared_producer(2);
            one.publish(|slot| *slot = 0).unwrap();
            one.core().control.positions.claim().store(SeatedClaim::new(3, 0).0, Ordering::Relaxed);
            assert_eq!(other.publish(|slot| *slot = 1).unwrap(), 3);
            macro_rules! ends {
                ($reader:ident) => {
                    if let Some($reader) = &mut $reader {
                        assert_eq!($reader.poll(8, |_, _| ()).unwrap(), 1);
                        assert_damaged(kind, |waits| match waits {
                            true => $reader.batch_by(1, soon()).map(drop),
                            false => $reader.try_batch(1).map(drop),
                        });
                    }
                };
            }
            ends!(stage);
            ends!(member);
            ends!(pool);
        }
    }
}

/// Stores random words in a ring with several producers, pools, taps and a stage that follows them.
#[test]
fn random_words_of_combined_rings_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 400 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let stages = match seed % 3 {
            0 => vec![tap("tap", 3, &[]), pool("pool", 2, &[0]), stage("end", &[1], OnDeath::Fail)],
            1 => vec![pool("pool", 2, &[]), tap("tap", 3, &[0]), writer("end", &[0, 1])],
            _ => vec![
                tap("one", 2, &[]),
                tap("two", 2, &[]),
                pool("pool", 3, &[0, 1]),
                tap("end", 2, &[2]),
            ],
        };
        let of = |is: fn(&StageDelivery) -> bool| -> Vec<usize> {
            (0..stages.len()).filter(|&number| is(&stages[number].delivery)).collect()
        };
        let pools = of(|delivery| matches!(delivery, StageDelivery::Pool(_)));
        let taps = of(|delivery| matches!(delivery, StageDelivery::Tap(_)));
        let plain = of(|delivery| matches!(delivery, StageDelivery::Each));
        let on_death = [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail][seed as usize / 3 % 3];
        let segment = Segment::shared(4, 0, stages, 3, on_death);
        let ring = segment.attach(1);
        let mut producers = [2, 3].map(|number| segment.shared_producer(number));
        let mut workers = [4, 5].map(|number| worker(&segment, number, pools[0]));
        let mut readers: Vec<_> = plain.iter().map(|&number| segment.reader(6, number)).collect();
        let mut members: Vec<SegmentSubscription<u64>> = taps
            .iter()
            .map(|&tap| segment.attach(7).subscribe(tap, StartAt::Now).unwrap())
            .collect();
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let words = memory.bytes.size() / 8;
        let near = random.bool();
        for _ in 0..20 {
            for _ in 0..random.usize(1..if near { 6 } else { words }) {
                let value = match random.u32(..4) {
                    0 => random.u64(..12) << random.u32(..20),
                    1 => {
                        (random.u64(..20) / 4 + 1) << 18
                            | [0, random.u64(..5), 1 << 17 | random.u64(..4), 1 << 16 | 1]
                                [random.usize(..4)]
                    }
                    2 => random.u64(..20),
                    _ => random.u64(..) >> random.u32(..64),
                };
                // SAFETY: the word lies in the memory.
                let at = unsafe { memory.first.cast::<AtomicU64>().add(random.usize(..words)) };
                // SAFETY: all threads use the word by atomic accesses of this size, or have no
                // reference to the event that it belongs to. The status bits have 32 bits.
                unsafe {
                    if at.cast() == segment.areas.status {
                        let bits = if near { value & 8 } else { value };
                        at.cast::<AtomicU32>().as_ref().store(bits as u32, Ordering::Relaxed);
                    } else {
                        at.as_ref().store(value, Ordering::Relaxed);
                    }
                }
            }
            let now = Instant::now();
            for tx in &mut producers {
                let _ = tx.try_publish(|slot| *slot = 1);
                let _ = tx.publish_by(now, |slot| *slot = 1);
                let _ = tx.try_claim_n(3).map(drop);
                let _ = tx.try_claim_n(2).map(std::mem::forget);
                let _ = (tx.remaining(), tx.publish_or_drop(|_| ()));
                if random.u8(..40) == 0 {
                    ring.control().begin_closing();
                }
            }
            for worker in &mut workers {
                let _ = worker
                    .try_batch(9)
                    .map(|batch| (batch.iter().sum::<u64>(), batch.redelivered()));
                let _ = worker.poll(3, |event, _| *event = 3);
                let _ = worker.batch_by(1, now).map(|batch| batch.release());
            }
            for reader in &mut readers {
                let _ = reader.try_batch(9).map(|batch| batch.iter().sum::<u64>());
                let _ = reader.poll(2, |_, _| ());
                let _ = reader.batch_by(1, now).map(|batch| batch.release());
            }
            for member in &mut members {
                let _ = member.try_batch(9).map(|batch| batch.iter().sum::<u64>());
                let _ = member.poll(2, |_, _| ());
                let _ = member.batch_by(1, now).map(|batch| batch.release());
            }
            let start = [StartAt::Now, StartAt::Oldest, StartAt::At(random.u64(..9))];
            let tap = taps[random.usize(..taps.len())];
            let joined: Result<SegmentSubscription<u64>, _> =
                segment.attach(8).subscribe(tap, start[random.usize(..3)]);
            let _ = joined.map(|mut member| member.poll(3, |_, _| ()).is_ok());
            let _ = (ring.report(), ring.position(0), ring.position(1), ring.is_over());
            let dead = random.u32(..9);
            segment.dead.set.fetch_or(1 << random.u32(..9), Ordering::Relaxed);
            (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, dead));
            let number = 9 + random.u32(..40);
            let ring = segment.attach(number);
            for seat in ring.seats_of(pools[0]) {
                if ring.seat(seat).take(number).is_ok() || ring.seat(seat).adopt_chunk(number) {
                    // SAFETY: the seat was taken.
                    let mut another = unsafe { ring.pool_updater(pools[0], seat) };
                    let _ = another.poll(2, |_, _| ());
                }
            }
            let seat = ring.seats_of(ring.producer_party()).start + 2;
            // SAFETY: the other handle of the seat is not used meanwhile.
            let mut another = unsafe { ring.shared_producer(seat) };
            let _ = another.try_publish(|slot| *slot = 2);
        }
    }
}

/// Producers, workers, readers and members come, go and die at random. The stage `end` sees each
/// published event, in order, and then the stream's end.
#[test]
fn nothing_is_lost_in_combined_rings() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 150 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let first_tap = |name| tap(name, 3, &[]);
        let (stages, pools, taps, end) = match seed % 4 {
            0 => (
                vec![first_tap("tap"), pool("pool", 2, &[0]), stage("end", &[1], OnDeath::Wait)],
                vec![1],
                vec![0],
                2,
            ),
            1 => (
                vec![pool("pool", 2, &[]), tap("tap", 3, &[0]), writer("end", &[0, 1])],
                vec![0],
                vec![1],
                2,
            ),
            2 => (
                vec![
                    first_tap("tap"),
                    first_tap("two"),
                    pool("pool", 3, &[0, 1]),
                    writer("end", &[2]),
                    tap("last", 2, &[3]),
                ],
                vec![2],
                vec![0, 1, 4],
                3,
            ),
            _ => (
                vec![pool("one", 2, &[]), pool("two", 2, &[0]), stage("end", &[1], OnDeath::Wait)],
                vec![0, 1],
                vec![],
                2,
            ),
        };
        let start = [0, u64::MAX - 20, (1 << 46) - 9][seed as usize / 4 % 3];
        let segment = Segment::shared(8, start, stages, 3, OnDeath::Wait);
        let mut published = std::collections::BTreeMap::new();
        let mut producers: Vec<(u32, SegmentSharedProducer<u64>)> = Vec::new();
        let mut workers: Vec<(u32, SegmentPoolWriter<u64>)> = Vec::new();
        let mut members: Vec<(u32, SegmentSubscription<u64>)> = Vec::new();
        let mut reader: Option<(u32, SegmentWriter<u64>)> = None;
        let (mut seen, mut value) = (0u64, 0u64);
        let attach_worker = |pool: usize, number: u32| {
            let ring = segment.attach(number);
            let seats = || ring.seats_of(pool);
            let free = seats().find(|&seat| ring.seat(seat).take(number).is_ok());
            let seat = free.or_else(|| seats().find(|&seat| ring.seat(seat).adopt_chunk(number)));
            // SAFETY: the seat was taken.
            seat.map(|seat| unsafe { ring.pool_updater(pool, seat) })
        };
        let mut closing = false;
        let mut ended = false;
        let rounds = if cfg!(miri) { 100 } else { 400 };
        for round in 0..rounds + 4000 {
            if round == rounds {
                closing = true;
                segment.attach(58).control().begin_closing();
                for (_, tx) in &mut producers {
                    assert!(tx.try_publish(|_| ()).is_err());
                }
                producers.clear();
            }
            // The new handle gets a number that no other handle has.
            let numbers = producers.iter().map(|it| it.0).chain(workers.iter().map(|it| it.0));
            let numbers = numbers.chain(members.iter().map(|it| it.0));
            let used: Vec<u32> = numbers.chain(reader.as_ref().map(|it| it.0)).collect();
            let mut free = (1..50).filter(|number| !used.contains(number));
            let mut next_number = || free.next().unwrap();
            let dies = !closing && random.u8(..12) == 0;
            let leaves = random.u8(..12) == 0;
            match random.u8(..8) {
                0 | 1 if !closing => {
                    if producers.len() < 3 && (producers.is_empty() || random.bool()) {
                        let number = next_number();
                        producers.push((number, segment.shared_producer(number)));
                    }
                    let at = random.usize(..producers.len());
                    let len = random.usize(1..5);
                    if let Ok(mut claim) = producers[at].1.try_claim_n(len) {
                        if dies {
                            std::mem::forget(claim);
                        } else if leaves {
                            drop(claim);
                        } else {
                            for offset in 0..len {
                                value += 1;
                                claim[offset] = value;
                                let seq = claim.first_seq().wrapping_add(offset as u64);
                                published.insert(seq.wrapping_sub(start), value);
                            }
                            claim.publish();
                        }
                    }
                    if dies {
                        let (number, tx) = producers.swap_remove(at);
                        segment.kill(number, tx);
                        segment.bury(number);
                    } else if leaves && producers.len() > 1 {
                        producers.swap_remove(at);
                    }
                }
                2..=4 => {
                    for &pool in &pools {
                        if workers.len() < 4 {
                            let number = next_number();
                            workers.extend(attach_worker(pool, number).map(|it| (number, it)));
                        }
                    }
                    if workers.is_empty() {
                        continue;
                    }
                    let at = random.usize(..workers.len());
                    if let Ok(batch) = workers[at].1.try_batch(random.usize(1..5))
                        && random.u8(..4) != 0
                    {
                        batch.release();
                    }
                    if dies {
                        let (number, worker) = workers.swap_remove(at);
                        segment.kill(number, worker);
                        segment.bury(number);
                    } else if leaves {
                        workers.swap_remove(at);
                    }
                }
                5 if !taps.is_empty() => {
                    if members.len() < 4 && !closing {
                        let (tap, number) = (taps[random.usize(..taps.len())], next_number());
                        let start = [StartAt::Now, StartAt::Oldest][random.usize(..2)];
                        let joined = segment.attach(number).subscribe(tap, start);
                        members.extend(joined.ok().map(|it| (number, it)));
                    }
                    for (_, member) in &mut members {
                        let _ = member.poll(random.usize(1..4), |_, _| ());
                    }
                    if !members.is_empty() && (dies || leaves) {
                        let at = random.usize(..members.len());
                        let (number, member) = members.swap_remove(at);
                        if dies {
                            segment.kill(number, member);
                            segment.bury(number);
                        }
                    }
                }
                _ => {
                    let number = next_number();
                    let (_, end_reader) = reader.get_or_insert_with(|| {
                        let ring = segment.attach(number);
                        ring.seat(ring.seats_of(end).start).take(number).unwrap();
                        // SAFETY: the seat was taken. This test writes to no event.
                        (number, unsafe { ring.updater(end) })
                    });
                    if dies || leaves {
                        let _ = end_reader.try_batch(random.usize(1..5)).map(drop);
                        let (number, handle) = reader.take().unwrap();
                        if dies {
                            segment.kill(number, handle);
                            segment.bury(number);
                        }
                        continue;
                    }
                    match end_reader.try_batch(random.usize(1..5)) {
                        Ok(batch) => {
                            let first = batch.first_seq().wrapping_sub(start);
                            for (offset, event) in (0..).zip(batch.iter()) {
                                assert_eq!(published.get(&(first + offset)), Some(event), "{seed}");
                            }
                            let skipped = published.range(seen..first).next();
                            assert_eq!(skipped, None, "{seed}: at {first}");
                            seen = first + batch.len() as u64;
                            batch.release();
                        }
                        Err(BatchError::Wait(WaitError::Closed)) => {
                            ended = true;
                            break;
                        }
                        Err(BatchError::Wait(error)) => panic!("{seed}: {error}"),
                        Err(_) => {}
                    }
                }
            }
        }
        assert!(ended, "{seed}: no end");
        assert_eq!(published.range(seen..).next(), None, "{seed}: the stream ends early");
    }
}
