//! Readers that join and leave while the graph runs.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{BatchError, Graph, Pool, StartAt, SubscribeError, Tap, Wait, WaitError};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn a_reader_joins_now_and_sees_what_comes_from_then_on() {
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
fn a_reader_joins_at_the_oldest_or_at_a_position_or_is_told_that_it_is_overwritten() {
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
        format!("position 1 is overwritten; the oldest that is still held is {first}")
    );
}

#[test]
fn no_position_far_away_is_taken_for_one_that_is_there() {
    let _watched = crate::common::watched();
    // With nothing published, the oldest position that is held is the newest one, too.
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
                        SubscribeError::NotYet { asked: said, .. }
                        | SubscribeError::Overwritten { asked: said, .. },
                    ) => {
                        assert_eq!(said, asked)
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
        // No member was counted in, so none holds the producer, and the tap's only place is free.
        tap.subscribe(StartAt::Now).unwrap().leave();
        for i in 0..10 {
            tx.try_publish(|slot| *slot = i).unwrap();
            end.poll(1, |_, _| ()).unwrap();
        }
    }
}

#[test]
fn a_reader_that_joined_gates_the_producer_until_it_leaves() {
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
    assert_eq!(refused, "the ring is full: stage `taps` is 2 events behind");
    late.leave();
    tx.try_publish(|slot| *slot = 2).unwrap();
}

#[test]
fn with_nobody_there_a_tap_holds_nobody_and_is_not_blamed() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64);
    let tap = graph.tap("tap", 1);
    let end = graph.writer("end").after(&tap);
    let ring = graph.build().unwrap();
    let (mut tx, mut end) = (ring.producer(), ring.writer(end));
    for i in 0..2 {
        tx.publish(|slot| *slot = i).unwrap();
    }
    assert_eq!(
        tx.try_publish(|_| ()).unwrap_err().to_string(),
        "the ring is full: stage `end` is 2 events behind"
    );
    assert_eq!(end.poll(8, |_, _| ()).unwrap(), 2);
    tx.try_publish(|slot| *slot = 2).unwrap();
    drop(ring.tap(tap));
}

/// Each member holds the producer, and a member that leaves holds it no longer, whatever the other
/// one does.
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

/// A writer has changed an event that the reader behind it has not seen. A new member does not see
/// it either, whichever of the two stages was declared first; and who asks for it is refused, and
/// leaves nothing behind.
#[test]
fn a_reader_joins_behind_the_stage_that_is_furthest() {
    let _watched = crate::common::watched();
    for reader_first in [true, false] {
        let graph = Graph::new(4, || 0u64);
        let tap = graph.tap("tap", 2);
        let (spoil, end) = if reader_first {
            let end = graph.reader("end").after(&tap);
            let spoil = graph.writer("spoil").after(&tap);
            let end = end.after(&spoil);
            (spoil, end)
        } else {
            let spoil = graph.writer("spoil").after(&tap);
            let end = graph.reader("end").after(&tap).after(&spoil);
            (spoil, end)
        };
        let ring = graph.build().unwrap();
        let (mut tx, mut spoil, mut end, tap) =
            (ring.producer(), ring.writer(spoil), ring.reader(end), ring.tap(tap));
        tx.publish(|slot| *slot = 7).unwrap();
        assert_eq!(spoil.poll(8, |v, _| *v = 0).unwrap(), 1);
        for _ in 0..3 {
            let refused = tap.subscribe(StartAt::At(0));
            assert!(
                matches!(refused, Err(SubscribeError::Overwritten { asked: 0, oldest: 1 })),
                "{refused:?}"
            );
        }
        assert_eq!(tap.subscribe(StartAt::Oldest).unwrap().next_seq(), 1);
        // Not one of them holds anything.
        for i in 1..9 {
            assert_eq!(end.poll(8, |_, _| ()).unwrap(), 1);
            tx.try_publish(|slot| *slot = i).unwrap();
            assert_eq!(spoil.poll(8, |_, _| ()).unwrap(), 1);
        }
    }
}

/// What a member holds is still there for a reader that joins at the oldest event: the stages
/// behind the tap announce no more than the members let them pass.
#[test]
fn a_reader_joins_at_what_another_member_holds() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64);
    let tap = graph.tap("tap", 2);
    let spoil = graph.writer("spoil").after(&tap);
    let ring = graph.build().unwrap();
    let (mut tx, mut spoil, tap) = (ring.producer(), ring.writer(spoil), ring.tap(tap));
    let holds = tap.subscribe(StartAt::Now).unwrap();
    tx.publish(|slot| *slot = 7).unwrap();
    assert_eq!(spoil.poll(8, |v, _| *v = 0).unwrap(), 0);
    let mut oldest = tap.subscribe(StartAt::Oldest).unwrap();
    let mut seen = Vec::new();
    oldest.poll(8, |v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [7]);
    drop((holds, oldest));
    assert_eq!(spoil.poll(8, |v, _| *v = 0).unwrap(), 1);
}

#[test]
fn a_writer_behind_a_tap_waits_for_those_who_joined() {
    let _watched = crate::common::watched();
    let tap = Tap::new();
    slipring::ring(64, || 0u64)
        .tap(&tap)
        .write("spoil", |v, _| *v = u64::MAX)
        .run(|p| {
            for round in 0..50 {
                let mut sub = tap.subscribe(StartAt::Now)?;
                let first = p.publish(|v| *v = round)?;
                assert_eq!(sub.next_seq(), first);
                let batch = sub.batch(1)?;
                thread::yield_now();
                assert_eq!(batch[0], round, "the stage behind the tap had it first");
                batch.release();
            }
            Ok(())
        })
        .unwrap();
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::NotRunning)));
}

#[test]
fn a_reader_that_waits_is_told_to_leave() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let graph = Graph::new(8, || 0u64).wait(wait);
        let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
        let ring = graph.build().unwrap();
        let (tx, end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
        let mut sub = tap.subscribe(StartAt::Now).unwrap();
        let leaver = sub.leaver();
        let waiting = thread::spawn(move || sub.batch(1).map(|batch| batch.len()));
        thread::sleep(Duration::from_millis(2));
        assert!(leaver.leave());
        assert!(matches!(waiting.join().unwrap(), Err(WaitError::Left)));
        assert!(!leaver.leave(), "gone already");
        // The seat is free again, and the old leaver means nothing to whoever takes it.
        let mut next = tap.subscribe(StartAt::Now).unwrap();
        assert!(!leaver.leave());
        assert!(matches!(next.try_batch(1), Err(BatchError::Unavailable)));
        drop((tx, end));
    }
}

/// A leaver is told that its reader has gone, and the reader that takes the seat obeys a leaver of
/// its own.
#[test]
fn a_leaver_is_of_one_reader() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (tx, end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let first = tap.subscribe(StartAt::Now).unwrap();
    let old = first.leaver();
    first.leave();
    assert!(!old.leave(), "gone of its own accord");
    let mut second = tap.subscribe(StartAt::Now).unwrap();
    assert!(!old.leave());
    assert!(matches!(second.try_batch(1), Err(BatchError::Unavailable)));
    assert!(second.leaver().leave());
    assert!(matches!(second.try_batch(1), Err(BatchError::Wait(WaitError::Left))));
    drop((tx, end));
}

#[test]
fn a_reader_holds_what_it_was_lent_until_its_next_call() {
    let _watched = crate::common::watched();
    let graph = Graph::new(2, || 0u64);
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let mut sub = tap.subscribe(StartAt::Now).unwrap();
    let leaver = sub.leaver();
    (0..2).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    end.poll(8, |_, _| ()).unwrap();
    let batch = sub.batch(2).unwrap();
    assert!(leaver.leave());
    assert!(tx.try_publish(|slot| *slot = 7).is_err(), "what is lent is held");
    assert_eq!((batch[0], batch[1]), (0, 1));
    batch.release();
    assert!(matches!(sub.try_batch(1), Err(BatchError::Wait(WaitError::Left))));
    tx.try_publish(|slot| *slot = 2).unwrap();
    drop(sub);
}

#[test]
fn closing_drains_for_those_who_joined_and_a_failure_reaches_them() {
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
    // The run is over; what was published is still there for the one who joined.
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
                match sub.batch_by(8, soon()) {
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
fn misplaced_taps_are_refused() {
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
        "what was declared at `tap-2` stands in a graph already; make one for each place"
    );
    let none = Tap::<u64>::new().room(0);
    let none = slipring::ring(8, || 0u64)
        .tap(&none)
        .read("r", |_, _| ())
        .feed(0..3, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(
        none.to_string(),
        "tap `tap` has room for nobody; give it room for one reader at least"
    );
    let graph = Graph::new(8, || 0u64);
    let one = graph.tap("one", 1);
    let _two = graph.tap("two", 1).after(&one);
    let behind = graph.build().err().unwrap().to_string();
    assert_eq!(
        behind,
        "tap `two` cannot come after tap `one`: put it after what `one` comes after"
    );
    let graph = Graph::new(8, || 0u64);
    let (_tap, _writer) = (graph.tap("tap", 1), graph.writer("spoil"));
    assert!(
        graph
            .build()
            .err()
            .unwrap()
            .to_string()
            .starts_with("stage `spoil` may write and stands beside `tap`")
    );
}

/// What a reader was lent between joining and leaving: so many events of these positions.
struct Stay {
    first: u64,
    next: u64,
    events: u64,
}

/// What a reader may rely on between joining and leaving, whoever publishes and whatever stands
/// before the tap: each event that was not given up, once, in order, as the stages before left it.
fn churn(shared: bool, behind_a_stage: bool, capacity: usize) {
    const READERS: u64 = 2;
    let stop = AtomicBool::new(false);
    let (seen_upto, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stays, mut given_up) = (Mutex::new(Vec::new()), Vec::new());
    let tap = Tap::new().room(READERS as usize);
    // An event is its position, and how many stages have seen it.
    let before = u64::from(behind_a_stage);
    let read = |seed: u64| {
        let (tap, stop, seen_upto, seen, stays) = (&tap, &stop, &seen_upto, &seen, &stays);
        let mut random = seed + 1;
        move || {
            while !stop.load(Relaxed) {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let from = match random >> 60 {
                    0..5 => StartAt::Oldest,
                    5..8 => StartAt::At(seen_upto.load(Relaxed)),
                    _ => StartAt::Now,
                };
                let mut sub = match tap.subscribe(from) {
                    Ok(sub) => sub,
                    Err(SubscribeError::Overwritten { .. } | SubscribeError::NotYet { .. }) => {
                        continue;
                    }
                    Err(other) => panic!("{other}"),
                };
                let mut stay = Stay { first: sub.next_seq(), next: sub.next_seq(), events: 0 };
                for _ in 0..random >> 32 & 7 {
                    let max = 1 + (random >> 40 & 15) as usize;
                    sub.poll(max, |&event, at| {
                        assert!(at.seq >= stay.next, "{} after {}", at.seq, stay.next);
                        assert_eq!(event, (at.seq, before), "the event at {}", at.seq);
                        (stay.next, stay.events) = (at.seq + 1, stay.events + 1);
                    })
                    .unwrap();
                    thread::yield_now();
                }
                // Past what was given up, too.
                stay.next = sub.next_seq();
                seen_upto.store(stay.next, Relaxed);
                seen.fetch_add(stay.events, Relaxed);
                stays.lock().unwrap().push(stay);
            }
        }
    };
    let mut last = 0;
    let end = Instant::now() + Duration::from_millis(if cfg!(miri) { 1 } else { 250 });
    let readers = || (0..READERS).map(read).collect::<Vec<_>>();
    macro_rules! produce {
        ($p:ident) => {
            thread::scope(|s| {
                readers().into_iter().for_each(|reader| drop(s.spawn(reader)));
                let mut fill = |len: usize, publish: bool| {
                    let mut slots = $p.claim_n(len)?;
                    let first = slots.first_seq();
                    (0..len).for_each(|i| slots[i] = (first + i as u64, 0));
                    if publish {
                        slots.publish();
                    } else {
                        given_up.push(first..first + len as u64)
                    }
                    Ok::<_, slipring::ClaimError>(())
                };
                let mut round = 0;
                let mut published = Ok(());
                // On a busy machine the readers may come late.
                while published.is_ok() && (Instant::now() < end || seen.load(Relaxed) == 0) {
                    round += 1;
                    published = fill(1 + round % capacity.min(7), !(shared && round % 5 == 0));
                }
                stop.store(true, Relaxed);
                Ok(published?)
            })
        };
    }
    let mut chain = slipring::ring(capacity, || (0u64, 0u64))
        .wait(Wait::YIELDING)
        .deadline(Duration::from_secs(60));
    if behind_a_stage {
        chain = chain.write("mark", |event, _| event.1 += 1);
    }
    let chain =
        chain.tap(&tap).write("spoil", |event, _| event.1 += 1).read("end", |&event, at| {
            assert_eq!(event, (at.seq, before + 1));
            last = at.seq;
        });
    let done = if shared { chain.run_shared(|p| produce!(p)) } else { chain.run(|p| produce!(p)) };
    done.unwrap();
    let stays = stays.into_inner().unwrap();
    let mut events = 0;
    for Stay { first, next, events: seen } in &stays {
        let overlap = |dead: &std::ops::Range<u64>| {
            dead.end.min(*next).saturating_sub(dead.start.max(*first))
        };
        let dead: u64 = given_up.iter().map(overlap).sum();
        assert_eq!(next - first - dead, *seen, "between {first} and {next}");
        events += seen;
    }
    assert!(events > 0 && last > 0, "nothing was seen by {} stays", stays.len());
}

#[test]
fn readers_come_and_go_beside_one_producer() {
    let _watched = crate::common::watched();
    for capacity in [1, 2, 64, 1024] {
        churn(false, false, capacity);
        churn(false, true, capacity);
    }
}

#[test]
fn readers_come_and_go_beside_many_producers_that_give_up() {
    let _watched = crate::common::watched();
    for capacity in [2, 64, 1024] {
        churn(true, false, capacity);
        churn(true, true, capacity);
    }
}

/// Workers that come and go beside full traffic: each event is handled by one of them, once, and
/// seen in order behind.
#[test]
fn workers_come_and_go() {
    let _watched = crate::common::watched();
    for capacity in [4, 64, 1024] {
        let pool = Pool::writing(3);
        let stop = AtomicBool::new(false);
        let (mut last, joined) = (None, AtomicU64::new(0));
        let end = Instant::now() + Duration::from_millis(if cfg!(miri) { 1 } else { 300 });
        slipring::ring(capacity, || (0u64, 0u64))
            .wait(Wait::YIELDING)
            .deadline(Duration::from_secs(60))
            .write_pool("work", 1, |_| |event, _| event.1 += 1)
            .open(&pool)
            .read("end", |&event, at| {
                assert_eq!(event, (at.seq, 1), "not handled once");
                assert_eq!(last.replace(at.seq).map_or(0, |last| last + 1), at.seq, "out of order");
            })
            .run(|p| {
                thread::scope(|s| {
                    for seed in 0..2u64 {
                        let (pool, stop, joined) = (&pool, &stop, &joined);
                        s.spawn(move || {
                            let mut random = seed;
                            while !stop.load(Relaxed) {
                                random = random
                                    .wrapping_mul(6364136223846793005)
                                    .wrapping_add(1442695040888963407);
                                let mut worker = match pool.join() {
                                    Ok(worker) => worker,
                                    // Somebody left a chunk that nobody has finished yet.
                                    Err(SubscribeError::Full { .. }) => {
                                        thread::yield_now();
                                        continue;
                                    }
                                    Err(other) => panic!("{other}"),
                                };
                                for _ in 0..random >> 60 {
                                    worker
                                        .poll(1 + (random >> 50 & 7) as usize, |event, _| {
                                            event.1 += 1
                                        })
                                        .unwrap();
                                }
                                // It may have a chunk in its hands.
                                if random >> 40 & 1 == 1 {
                                    drop(worker.try_batch(3).map(|batch| batch.len()));
                                }
                                joined.fetch_add(1, Relaxed);
                            }
                        });
                    }
                    let published = (|| {
                        // On a busy machine the workers may come late.
                        while Instant::now() < end || joined.load(Relaxed) <= 10 {
                            for _ in 0..50 {
                                let mut slot = p.claim()?;
                                *slot = (slot.seq(), 0);
                                slot.publish();
                            }
                        }
                        Ok(())
                    })();
                    stop.store(true, Relaxed);
                    published
                })
            })
            .unwrap();
        assert!(joined.into_inner() > 10 && last.is_some());
        assert!(matches!(pool.join(), Err(SubscribeError::NotRunning)));
    }
}

#[test]
fn a_pool_has_room_for_so_many_and_ends_with_its_last_worker() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let work = graph.pool_reader("work", 1).room(2);
    let ring = graph.build().unwrap();
    let (mut tx, mut first) = (ring.producer(), ring.pool_readers(work).pop().unwrap());
    let pool = first.pool();
    let mut second = pool.join().unwrap();
    assert!(matches!(pool.join(), Err(SubscribeError::Full { room: 2 })));
    (0..4).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    assert_eq!(first.poll(1, |_, _| ()).unwrap(), 1);
    drop(first);
    let mut rest = Vec::new();
    while rest.len() < 3 {
        second.poll(8, |v, _| rest.push(*v)).unwrap();
    }
    assert_eq!(rest, [1, 2, 3]);
    drop(pool.join().unwrap());
    drop(second);
    assert!(matches!(pool.join(), Err(SubscribeError::Ended(WaitError::Failed(_)))));
    assert!(tx.publish(|_| ()).is_err());
}

#[test]
fn misplaced_pools_are_refused() {
    let _watched = crate::common::watched();
    let wrong = Pool::reading(2);
    let wrong = slipring::ring(8, || 0u64)
        .write_pool("p", 1, |_| |_: &mut u64, _| ())
        .open(&wrong)
        .feed(0..1, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(wrong.to_string(), "pool `p` may write: open it with `Pool::writing`");
    let small = Pool::reading(1);
    let small = slipring::ring(8, || 0u64)
        .read_pool("p", 2, |_| |_: &u64, _| ())
        .open(&small)
        .feed(0..1, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(
        small.to_string(),
        "pool `p` begins with 2 workers and has room for 1; give it room for all"
    );
    let none = Pool::reading(1);
    let none = slipring::ring(8, || 0u64)
        .read("r", |_, _| ())
        .open(&none)
        .feed(0..1, |s, i| *s = i)
        .unwrap_err();
    assert_eq!(none.to_string(), "`open` follows `r`, which is no pool");
}

#[test]
fn a_tap_over_contiguous_events() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).contiguous();
    let (end, tap) = (graph.reader("end"), graph.tap("tap", 2));
    let ring = graph.build().unwrap();
    let (mut tx, mut end, tap) = (ring.producer(), ring.reader(end), ring.tap(tap));
    let mut all = tap.subscribe(StartAt::Oldest).unwrap();
    for i in 0..10 {
        tx.publish(|slot| *slot = i).unwrap();
        assert_eq!(end.poll(8, |_, _| ()).unwrap(), 1);
        let batch = all.batch_by(8, soon()).unwrap();
        assert_eq!(batch.as_slices().0, [i]);
        batch.release();
    }
    assert_eq!(tap.subscribe(StartAt::Now).unwrap().next_seq(), 10);
}
