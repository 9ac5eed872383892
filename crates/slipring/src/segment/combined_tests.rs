//! Tests of rings that combine several producers, pools and taps between processes.

use std::time::{Duration, Instant};

use super::tests::{Segment, stage};
use super::*;
use crate::errors::{BatchError, WaitError};
use crate::live::tap::StartAt;

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
    unsafe { ring.pool_writer(pool, seat) }
}

fn written(segment: &Segment, number: u32, stage: usize) -> SegmentWriter<u64> {
    let ring = segment.attach(number);
    ring.seat(ring.seats_of(stage).start).take(number).unwrap();
    // SAFETY: the seat was taken.
    unsafe { ring.writer(stage) }
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

/// A stage that waits in the middle of a run, which the stage before has released in part, takes
/// its position for no end of a closing ring.
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

/// As above, for a stage behind a tap whose member has released a part of a run.
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

/// A pool behind a tap finds the end of a closing ring, also where the tap has no member.
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

/// A pool next to a first tap, and a stage behind the pool, find the end.
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
