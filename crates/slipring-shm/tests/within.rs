//! Tests of batches of messages and of copies that end by number or by time.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::time::{Duration, Instant};

use common::{Name, Role, listen, play, say, until, value, watched};
use slipring::errors::{BatchError, WaitError};
use slipring_shm::{
    Attached, Builder, Contents, OnDeath, Segment, blocks::Blocks, messages::Messages,
};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("messages", role_messages), ("events", role_events)]);
}

fn attach<C: Contents>(segment: &Segment<C>) -> Attached<C> {
    // SAFETY: only these tests know the segment.
    unsafe { segment.attach().unwrap() }
}

fn role_messages() {
    let me = attach(&Segment::<Messages>::open(value("NAME")).unwrap());
    let mut tx = me.producer().unwrap();
    (0..3).for_each(|kind| _ = tx.publish(kind, &[7; 100]).unwrap());
    say("published");
    listen();
}

fn role_events() {
    let me = attach(&Segment::<u64>::open(value("NAME")).unwrap());
    let mut tx = me.producer().unwrap();
    (0..3).for_each(|value| _ = tx.publish(|slot| *slot = value).unwrap());
    say("published");
    listen();
}

fn messages(capacity: u64) -> Builder<Messages> {
    Segment::<Messages>::create_memfd("messages").capacity(capacity).reader("all")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

/// Messages of any length come in batches of the number that was asked for, across the ring's end
/// and its padding, and the stream's end ends the last batch.
#[test]
fn a_batch_has_the_number_of_messages_that_was_asked_for() {
    let _watched = watched();
    for (producers, max) in [(1, 1), (1, 3), (2, 3), (1, 7)] {
        const COUNT: u32 = 500;
        let attached = attach(&messages(128).producers(producers).build().unwrap());
        let mut all = attached.reader("all").unwrap();
        let bytes = |kind: u32| vec![kind as u8; kind as usize * 37 % 300];
        std::thread::scope(|scope| {
            if producers == 1 {
                let mut tx = attached.producer().unwrap();
                scope.spawn(move || {
                    (0..COUNT).for_each(|kind| _ = tx.publish(kind, &bytes(kind)).unwrap());
                });
            } else {
                let mut tx = attached.shared_producer().unwrap();
                scope.spawn(move || {
                    for kind in 0..COUNT {
                        tx.publish(kind, &bytes(kind)).unwrap();
                    }
                });
            }
            let mut next = 0;
            loop {
                let batch = match all.batch_within(max, HOUR) {
                    Ok(batch) => batch,
                    Err(WaitError::Closed) => break,
                    Err(error) => panic!("{error}"),
                };
                let seen = batch.iter().count();
                for message in batch.iter() {
                    assert_eq!((message.kind, message.bytes), (next, &bytes(next)[..]));
                    next += 1;
                }
                // A tombstone of several producers ends a batch, too.
                assert!(seen == max || next == COUNT || producers > 1, "{seen} of {max}");
                assert!(1 <= seen && seen <= max);
                batch.release();
            }
            assert_eq!(next, COUNT);
        });
    }
}

/// The time, the deadline and a ring that is half full end a batch.
#[test]
fn a_batch_of_messages_ends_early() {
    let _watched = watched();
    let attached = attach(&messages(16).build().unwrap());
    let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
    let late = all.batch_within_by(4, HOUR, soon()).map(drop);
    assert!(matches!(late, Err(BatchError::TimedOut(_))), "{late:?}");
    assert_eq!(all.batch_within(0, HOUR).unwrap().iter().count(), 0);
    for kind in 0..2 {
        tx.publish(kind, &[7; 100]).unwrap();
    }
    for _ in 0..2 {
        // A batch that is not released comes again.
        let batch = all.batch_within_by(4, HOUR, soon()).unwrap();
        assert!(batch.iter().map(|it| it.kind).eq(0..2));
    }
    assert_eq!(all.batch_within(4, Duration::ZERO).unwrap().iter().count(), 2);
    assert_eq!(all.batch_within(4, Duration::from_millis(20)).unwrap().iter().count(), 2);
    assert_eq!(all.batch_within(1, HOUR).unwrap().iter().count(), 1);
    // Eight cells are taken, of 16.
    for kind in 2..4 {
        tx.publish(kind, &[7; 100]).unwrap();
    }
    let batch = all.batch_within(100, HOUR).unwrap();
    assert!(batch.iter().map(|it| it.kind).eq(0..4));
    batch.release();
    // The ten cells of the next message do not fit before the ring's end, so eight cells of padding
    // come first, and the message has room once they are released.
    std::thread::scope(|scope| {
        scope.spawn(|| tx.publish(4, &[7; 600]).unwrap());
        let batch = all.batch_within(2, HOUR).unwrap();
        assert!(batch.iter().map(|it| (it.kind, it.bytes.len())).eq([(4, 600)]));
        batch.release();
    });
}

/// The death of the producer ends a batch, and the next call tells of it.
#[test]
fn a_death_ends_a_batch() {
    let _watched = watched();
    let name = Name::new();
    let builder = Segment::<Messages>::create(&name.0).capacity(64).reader("all");
    let me = attach(&builder.producer_on_death(OnDeath::Tell).build().unwrap());
    let mut all = me.reader("all").unwrap();
    let mut victim = Role::start("messages", &[("NAME", name.0.as_str())]);
    assert_eq!(victim.hear(), "published");
    let (waits, pid) = (
        std::thread::spawn(move || {
            let batch = all.batch_within(8, HOUR).unwrap();
            assert!(batch.iter().map(|it| it.kind).eq(0..3));
            batch.release();
            all.batch_within(8, HOUR).map(drop).unwrap_err()
        }),
        victim.pid(),
    );
    std::thread::sleep(Duration::from_millis(20));
    victim.kill();
    let error = waits.join().unwrap();
    assert!(matches!(&error, WaitError::PeerDead(dead) if dead.pid == pid), "{error:?}");

    let name = Name::new();
    let builder = Segment::<u64>::create(&name.0).capacity(64).reader("all");
    let copies = builder.producer_on_death(OnDeath::Tell).build().unwrap();
    let mut all = copies.attach_copies().unwrap().reader("all").unwrap();
    let mut victim = Role::start("events", &[("NAME", name.0.as_str())]);
    assert_eq!(victim.hear(), "published");
    let (waits, pid) = (
        std::thread::spawn(move || {
            let mut events = [9; 8];
            assert_eq!(all.read_batch_within(HOUR, &mut events).unwrap(), (0, 3));
            assert_eq!(events[..4], [0, 1, 2, 9]);
            all.read_batch_within(HOUR, &mut events).unwrap_err()
        }),
        victim.pid(),
    );
    std::thread::sleep(Duration::from_millis(20));
    victim.kill();
    let error = waits.join().unwrap();
    assert!(matches!(&error, WaitError::PeerDead(dead) if dead.pid == pid), "{error:?}");
}

/// Copies come in batches of the slice's length, and time, deadline, close and halt end a batch.
#[test]
fn a_batch_of_copies_ends_by_number_or_time() {
    let _watched = watched();
    let make = || Segment::<u64>::create_memfd("n").capacity(8).reader("all").build().unwrap();
    let copies = make().attach_copies().unwrap();
    let (mut tx, mut all) = (copies.producer().unwrap(), copies.reader("all").unwrap());
    let mut events = [0; 3];
    let late = all.read_batch_within_by(HOUR, soon(), &mut events);
    assert!(matches!(late, Err(BatchError::TimedOut(_))), "{late:?}");
    assert_eq!(all.read_batch_within(HOUR, &mut []).unwrap(), (0, 0));
    tx.publish_batch(&[1, 2]).unwrap();
    assert_eq!(all.read_batch_within(Duration::from_millis(5), &mut events).unwrap(), (0, 2));
    tx.publish(&3).unwrap();
    assert_eq!(all.read_batch_within_by(HOUR, soon(), &mut events).unwrap(), (2, 1));
    assert_eq!(events[0], 3);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (3..40).for_each(|value| _ = tx.publish(&value).unwrap());
            tx.close();
        });
        for first in (3..39).step_by(3) {
            assert_eq!(all.read_batch_within(HOUR, &mut events).unwrap(), (first, 3));
            assert_eq!(events, [first, first + 1, first + 2]);
        }
        assert_eq!(all.read_batch_within(HOUR, &mut events).unwrap(), (39, 1));
        let end = all.read_batch_within(HOUR, &mut events);
        assert!(matches!(end, Err(WaitError::Closed)), "{end:?}");
    });

    let copies = make().attach_copies().unwrap();
    let (mut tx, mut all) = (copies.producer().unwrap(), copies.reader("all").unwrap());
    tx.publish(&1).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || all.read_batch_within(HOUR, &mut [0; 3]));
        std::thread::sleep(Duration::from_millis(20));
        tx.halt();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(WaitError::Halted)), "{ended:?}");
    });
}

/// A deadline ends a batch of blocks.
#[test]
fn a_deadline_ends_a_batch_of_blocks() {
    let _watched = watched();
    let builder = Segment::<Blocks>::create_memfd("rows").capacity(8).block(24, 8).reader("all");
    let attached = attach(&builder.build().unwrap());
    let (mut tx, mut all) = (attached.producer().unwrap(), attached.reader("all").unwrap());
    let late = all.batch_within_by(2, HOUR, soon()).map(drop);
    assert!(matches!(late, Err(BatchError::TimedOut(_))), "{late:?}");
    tx.publish(|block| block.fill(7)).unwrap();
    let batch = all.batch_within_by(2, HOUR, soon()).unwrap();
    assert_eq!((batch.len(), batch.get(0).unwrap()[23]), (1, 7));
    batch.release();
    until(|| tx.remaining() == 8);
}
