//! Taps: positions to join at, gating, leaving, endings.

use std::thread;
use std::time::Duration;

use slipring::{
    Graph, Tap, Wait,
    errors::{BatchError, SubscribeError, WaitError},
    handles::StartAt,
};

use crate::far_deadline;

#[test]
fn a_reader_that_joins_now_sees_later_events() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 2));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    (0..3).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    assert_eq!(late.next_seq(), 3);
    assert!(matches!(late.try_batch(8), Err(BatchError::Unavailable)));
    (3..5).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let mut seen = Vec::new();
    late.poll(8, |v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [3, 4]);
    end.poll(8, |_, _| ()).unwrap();
    tx.close();
    assert!(matches!(late.try_batch(8), Err(BatchError::Wait(WaitError::Closed))));
    assert!(matches!(end.try_batch(8), Err(BatchError::Wait(WaitError::Closed))));
}

#[test]
fn a_reader_joins_at_the_oldest_or_at_a_held_position() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 4));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    for i in 0..10 {
        tx.publish(|slot| *slot = i).unwrap();
        end.poll(1, |_, _| ()).unwrap();
    }
    let mut oldest = tap.subscribe(StartAt::Oldest).unwrap();
    let first = oldest.next_seq();
    assert!((6..=10).contains(&first), "{first}");
    let mut seen = Vec::new();
    oldest.poll(8, |v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, (first..10).collect::<Vec<_>>());
    assert_eq!(tap.subscribe(StartAt::At(first)).unwrap().next_seq(), first);
    assert!(
        matches!(tap.subscribe(StartAt::At(first - 1)), Err(SubscribeError::Overwritten { asked, oldest }) if asked == first - 1 && oldest == first)
    );
    assert!(matches!(
        tap.subscribe(StartAt::At(11)),
        Err(SubscribeError::NotYet { asked: 11, newest: 10 })
    ));
    assert_eq!(tap.subscribe(StartAt::At(10)).unwrap().next_seq(), 10);
    assert_eq!(
        tap.subscribe(StartAt::At(1)).unwrap_err().to_string(),
        format!(
            "position 1 is overwritten: begin at {first}, the oldest that the ring holds, or later"
        )
    );
}

#[test]
fn a_position_that_is_not_held_is_refused_at_any_distance() {
    let _watched = crate::common::watched();
    // With nothing published, the oldest held position equals the newest.
    for (start, published) in
        [(0, 0), (u64::MAX, 0), (1 << 63, 0), (0, 10), (u64::MAX - 1, 10), (1 << 63, 10)]
    {
        let graph = Graph::new(4, || 0u64).first_seq(start);
        let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
        let ring = graph.build().unwrap();
        let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
        for i in 0..published {
            tx.publish(|slot| *slot = i).unwrap();
            end.poll(1, |_, _| ()).unwrap();
        }
        let newest = start.wrapping_add(published);
        for away in [
            5,
            6,
            1 << 32,
            (1 << 62) - 1,
            1 << 62,
            (1 << 63) - 1,
            1 << 63,
            (1 << 63) + 1,
            (3 << 62) + 1,
            u64::MAX - 4,
            u64::MAX,
        ] {
            for asked in [newest.wrapping_add(away), newest.wrapping_sub(away)] {
                if newest.wrapping_sub(asked) <= 4 {
                    continue;
                }
                match tap.subscribe(StartAt::At(asked)) {
                    Err(
                        SubscribeError::NotYet { asked: reported, .. }
                        | SubscribeError::Overwritten { asked: reported, .. },
                    ) => {
                        assert_eq!(reported, asked)
                    }
                    other => panic!("asked for {asked} where {newest} is the newest: {other:?}"),
                }
            }
        }
        assert!(matches!(
            tap.subscribe(StartAt::At(newest.wrapping_add(1))),
            Err(SubscribeError::NotYet { .. })
        ));
        assert!(matches!(
            tap.subscribe(StartAt::At(newest.wrapping_sub(5))),
            Err(SubscribeError::Overwritten { .. })
        ));
        // No refused reader was counted as a member: the tap's only seat is free, and nothing holds
        // the producer back.
        tap.subscribe(StartAt::Now).unwrap().leave();
        for i in 0..10 {
            tx.try_publish(|slot| *slot = i).unwrap();
            end.poll(1, |_, _| ()).unwrap();
        }
    }
}

#[test]
fn a_member_gates_the_producer_until_it_leaves() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("taps", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let late = tap.subscribe(StartAt::Now).unwrap();
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::Full { room: 1 })));
    for i in 0..2 {
        tx.publish(|slot| *slot = i).unwrap();
        end.poll(1, |_, _| ()).unwrap();
    }
    let refused = tx.try_publish(|_| ()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the ring is full, because stage `taps` is 2 events behind: try again when it has released some"
    );
    late.leave();
    tx.try_publish(|slot| *slot = 2).unwrap();
}

#[test]
fn a_tap_without_members_does_not_gate() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64);
    let tap = graph.tap("tap", 1);
    let end = graph.updater("end").after(&tap);
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.updater(end));
    for i in 0..2 {
        tx.publish(|slot| *slot = i).unwrap();
    }
    assert_eq!(
        tx.try_publish(|_| ()).unwrap_err().to_string(),
        "the ring is full, because stage `end` is 2 events behind: try again when it has released some"
    );
    assert_eq!(end.poll(8, |_, _| ()).unwrap(), 2);
    tx.try_publish(|slot| *slot = 2).unwrap();
    drop(ring.tap(tap));
}

/// Each member gates the producer until the member leaves.
#[test]
fn the_slowest_member_holds_the_producer_until_it_leaves() {
    let _watched = crate::common::watched();
    for slow_first in [true, false] {
        let graph = Graph::new(2, || 0u64);
        let (end, tap) = (graph.reader("end"), graph.tap("tap", 2));
        let ring = graph.build().unwrap();
        let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
        let (one, two) =
            (tap.subscribe(StartAt::Now).unwrap(), tap.subscribe(StartAt::Now).unwrap());
        let (mut slow, mut quick) = if slow_first { (one, two) } else { (two, one) };
        for i in 0..2 {
            tx.publish(|slot| *slot = i).unwrap();
        }
        assert_eq!((end.poll(8, |_, _| ()).unwrap(), quick.poll(8, |_, _| ()).unwrap()), (2, 2));
        assert!(tx.try_publish(|_| ()).is_err(), "the slow member holds both events");
        assert_eq!(slow.poll(1, |_, _| ()).unwrap(), 1);
        tx.try_publish(|slot| *slot = 2).unwrap();
        assert!(tx.try_publish(|_| ()).is_err(), "the slow member holds an event");
        assert_eq!(end.poll(8, |_, _| ()).unwrap(), 1);
        drop(slow);
        tx.try_publish(|slot| *slot = 3).unwrap();
        assert!(tx.try_publish(|_| ()).is_err(), "the quick member holds an event");
        let mut seen = Vec::new();
        quick.poll(8, |v, _| seen.push(*v)).unwrap();
        assert_eq!(seen, [2, 3]);
    }
}

/// A writer behind the tap has changed an event that the reader behind the writer has not seen. A
/// joining reader begins behind the writer, whichever of the two stages was declared first. A
/// reader that asks for the changed event is refused, and holds up no stage.
#[test]
fn a_reader_joins_behind_the_furthest_stage() {
    let _watched = crate::common::watched();
    for reader_first in [true, false] {
        let graph = Graph::new(4, || 0u64);
        let tap = graph.tap("tap", 2);
        let (overwrite, end) = if reader_first {
            let end = graph.reader("end").after(&tap);
            let overwrite = graph.updater("overwrite").after(&tap);
            let end = end.after(&overwrite);
            (overwrite, end)
        } else {
            let overwrite = graph.updater("overwrite").after(&tap);
            let end = graph.reader("end").after(&tap).after(&overwrite);
            (overwrite, end)
        };
        let ring = graph.build().unwrap();
        let (mut tx, mut overwrite, mut end, tap) =
            (ring.producer(), ring.updater(overwrite), ring.reader(end), ring.tap(tap));
        tx.publish(|slot| *slot = 7).unwrap();
        assert_eq!(overwrite.poll(8, |v, _| *v = 0).unwrap(), 1);
        for _ in 0..3 {
            let refused = tap.subscribe(StartAt::At(0));
            assert!(
                matches!(refused, Err(SubscribeError::Overwritten { asked: 0, oldest: 1 })),
                "{refused:?}"
            );
        }
        assert_eq!(tap.subscribe(StartAt::Oldest).unwrap().next_seq(), 1);
        // The refused readers hold nothing.
        for i in 1..9 {
            assert_eq!(end.poll(8, |_, _| ()).unwrap(), 1);
            tx.try_publish(|slot| *slot = i).unwrap();
            assert_eq!(overwrite.poll(8, |_, _| ()).unwrap(), 1);
        }
    }
}

/// A reader that joins at the oldest event gets an event that another member still holds. No stage
/// behind the tap has passed that event, because these stages pass only events that all members
/// have released.
#[test]
fn a_reader_joins_at_an_event_that_another_member_holds() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64);
    let tap = graph.tap("tap", 2);
    let overwrite = graph.updater("overwrite").after(&tap);
    let ring = graph.build().unwrap();
    let (mut tx, mut overwrite, tap) = (ring.producer(), ring.updater(overwrite), ring.tap(tap));
    let holds = tap.subscribe(StartAt::Now).unwrap();
    tx.publish(|slot| *slot = 7).unwrap();
    assert_eq!(overwrite.poll(8, |v, _| *v = 0).unwrap(), 0);
    let mut oldest = tap.subscribe(StartAt::Oldest).unwrap();
    let mut seen = Vec::new();
    oldest.poll(8, |v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [7]);
    drop((holds, oldest));
    assert_eq!(overwrite.poll(8, |v, _| *v = 0).unwrap(), 1);
}

#[test]
fn a_writer_behind_a_tap_waits_for_members() {
    let _watched = crate::common::watched();
    let tap = Tap::new();
    slipring::ring(64, || 0u64)
        .tap(&tap)
        .update("overwrite", |v, _| *v = u64::MAX)
        .run(|p| {
            for round in 0..50 {
                let mut sub = tap.subscribe(StartAt::Now)?;
                let first = p.publish(|v| *v = round)?;
                assert_eq!(sub.next_seq(), first);
                let batch = sub.batch(1)?;
                thread::yield_now();
                assert_eq!(batch[0], round, "the stage behind the tap got the event first");
                batch.release();
            }
            Ok(())
        })
        .unwrap();
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::NotRunning)));
}

#[test]
fn a_leaver_wakes_a_waiting_member() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let graph = Graph::new(8, || 0u64).wait(wait);
        let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
        let ring = graph.build().unwrap();
        let (tx, end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
        let mut sub = tap.subscribe(StartAt::Now).unwrap();
        let leaver = sub.leave_handle();
        let waiting = thread::spawn(move || sub.batch(1).map(|batch| batch.len()));
        thread::sleep(Duration::from_millis(2));
        assert!(leaver.leave());
        assert!(matches!(waiting.join().unwrap(), Err(WaitError::Left)));
        assert!(!leaver.leave(), "its member has left");
        // The seat is free again, and the old leaver does not affect its next member.
        let mut next = tap.subscribe(StartAt::Now).unwrap();
        assert!(!leaver.leave());
        assert!(matches!(next.try_batch(1), Err(BatchError::Unavailable)));
        drop((tx, end));
    }
}

/// A leaver reports that its member has left. The next member in the same seat has a leaver of its
/// own.
#[test]
fn a_leaver_belongs_to_one_member() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (tx, end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let first = tap.subscribe(StartAt::Now).unwrap();
    let old = first.leave_handle();
    first.leave();
    assert!(!old.leave(), "its member has left by itself");
    let mut second = tap.subscribe(StartAt::Now).unwrap();
    assert!(!old.leave());
    assert!(matches!(second.try_batch(1), Err(BatchError::Unavailable)));
    assert!(second.leave_handle().leave());
    assert!(matches!(second.try_batch(1), Err(BatchError::Wait(WaitError::Left))));
    drop((tx, end));
}

#[test]
fn a_member_that_was_asked_to_leave_keeps_its_batch_until_its_next_call() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let mut sub = tap.subscribe(StartAt::Now).unwrap();
    let leaver = sub.leave_handle();
    (0..2).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    end.poll(8, |_, _| ()).unwrap();
    let batch = sub.batch(2).unwrap();
    assert!(leaver.leave());
    assert!(tx.try_publish(|slot| *slot = 7).is_err(), "lent events are held");
    assert_eq!((batch[0], batch[1]), (0, 1));
    batch.release();
    assert!(matches!(sub.try_batch(1), Err(BatchError::Wait(WaitError::Left))));
    tx.try_publish(|slot| *slot = 2).unwrap();
    drop(sub);
}

#[test]
fn a_close_drains_members_and_a_failure_reaches_them() {
    let _watched = crate::common::watched();
    let tap = Tap::named("late");
    let mut late = None;
    slipring::ring(8, || 0u64)
        .read("end", |_, _| ())
        .tap(&tap)
        .run(|p| {
            late = Some(tap.subscribe(StartAt::Now)?);
            (0..5).try_for_each(|i| p.publish(|v| *v = i).map(drop))?;
            Ok(())
        })
        .unwrap();
    // The run has ended; the member still gets every published event.
    let mut seen = Vec::new();
    let counted = late.unwrap().for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!((counted, seen), (5, vec![0, 1, 2, 3, 4]));

    let failed = slipring::ring(8, || 0u64)
        .read("end", |v, _| assert!(*v < 3, "three"))
        .tap(&tap)
        .run(|p| {
            let mut sub = tap.subscribe(StartAt::Now)?;
            (0..5).try_for_each(|i| p.publish(|v| *v = i).map(drop))?;
            let end = loop {
                match sub.batch_by(8, far_deadline()) {
                    Ok(batch) => batch.release(),
                    Err(end) => break end,
                }
            };
            assert!(matches!(end, BatchError::Wait(WaitError::Failed(_))), "{end}");
            Ok(())
        })
        .unwrap_err();
    assert_eq!(failed.stage(), Some("end"));
}

#[test]
fn a_misplaced_tap_is_a_build_error() {
    let _watched = crate::common::watched();
    let tap = Tap::<u64>::new();
    let twice = slipring::ring(8, || 0u64)
        .tap(&tap)
        .read("r", |_, _| ())
        .tap(&tap)
        .feed(0..3, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(
        twice.to_string(),
        "the handle declared at `tap-2` already stands in a running graph; create one for each place"
    );
    let none = Tap::<u64>::new().room(0);
    let none = slipring::ring(8, || 0u64)
        .tap(&none)
        .read("r", |_, _| ())
        .feed(0..3, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(none.to_string(), "tap `tap` has no room; give it room for at least one reader");
    let graph = Graph::new(8, || 0u64);
    let one = graph.tap("one", 1);
    let _two = graph.tap("two", 1).after(&one);
    let behind = graph.build().err().unwrap().to_string();
    assert_eq!(
        behind,
        "tap `two` cannot come after tap `one`: put it after what `one` comes after"
    );
    let graph = Graph::new(8, || 0u64);
    let (_tap, _writer) = (graph.tap("tap", 1), graph.updater("overwrite"));
    assert!(
        graph
            .build()
            .err()
            .unwrap()
            .to_string()
            .starts_with("stage `overwrite` may update events and is not ordered with stage `tap`")
    );
}

#[test]
fn a_member_reads_contiguous_events() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).contiguous();
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 2));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let mut all = tap.subscribe(StartAt::Oldest).unwrap();
    for i in 0..10 {
        tx.publish(|slot| *slot = i).unwrap();
        assert_eq!(end.poll(8, |_, _| ()).unwrap(), 1);
        let batch = all.batch_by(8, far_deadline()).unwrap();
        assert_eq!(batch.as_slices().0, [i]);
        batch.release();
    }
    assert_eq!(tap.subscribe(StartAt::Now).unwrap().next_seq(), 10);
}
