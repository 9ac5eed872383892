//! Rows of MIGRATING.md on a running graph: full rings, readers and workers that join and leave,
//! shards, observers.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;

use slipring::{
    At, Mirror, Tap,
    errors::{ClaimError, ConflateError, ObserveError, SubscribeError, WaitError},
    handles::{Sent, StartAt},
};

use crate::{chain, graph, pair, shared};

// Full rings.

#[test]
fn room_is_told() {
    let _watched = crate::common::watched();
    let graph = graph(4).publish_cursor();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
    let reported = || monitor.report().unwrap().remaining();
    assert_eq!((tx.remaining(), reported()), (4, Some(4)));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    assert_eq!((tx.remaining(), reported()), (1, Some(1)));
    assert!(tx.try_claim_n(1).is_ok() && tx.try_claim_n(2).is_err());
    assert_eq!(rx.poll(2, |_, _| ()).unwrap(), 2);
    assert_eq!((tx.remaining(), reported()), (3, Some(3)));
    tx.claim_n(3).unwrap().publish();
    assert_eq!((tx.remaining(), reported()), (0, Some(0)));
    // Another producer's claim takes up room, whether it is published or not.
    let graph = shared(4);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut a, mut b, _rx) = (ring.producer(), ring.producer(), ring.reader(key));
    let claim = a.claim_n(3).unwrap();
    assert_eq!(b.remaining(), 1);
    claim.publish();
    assert_eq!((a.remaining(), b.remaining()), (1, 1));
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let _watched = crate::common::watched();
    let graph = graph(2);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let sent = [(); 4].map(|()| tx.publish_or_drop(|_| ()).unwrap());
    assert_eq!(sent, [Some(0), Some(1), None, None]);
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 2);
    assert_eq!(tx.publish_or_drop(|_| ()).unwrap(), Some(2));
    tx.close();
    let report = ring.report();
    assert_eq!((report.producer().events, report.producer().dropped), (3, 2));
}

#[test]
fn what_finds_no_room_goes_elsewhere() {
    let _watched = crate::common::watched();
    let ((mut first, mut left), (mut second, mut right)) = (pair(2), pair(4));
    for i in 0..6 {
        match first.try_publish(|slot| *slot = i) {
            Ok(_) => {}
            // A refused call does not run its closure.
            Err(ClaimError::Gated { stage, lag: 2 }) if &*stage == "r" => {
                _ = second.publish(|slot| *slot = i).unwrap()
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(left.try_batch(9).unwrap().iter().copied().eq(0..2));
    assert!(right.try_batch(9).unwrap().iter().copied().eq(2..6));
}

#[test]
fn the_newest_for_each_key_is_kept() {
    let _watched = crate::common::watched();
    let (tx, mut rx) = pair(2);
    let mut tx = tx.conflate(2, |slot, key: &u64, value: u64| *slot = key * 100 + value).unwrap();
    assert_eq!(
        (tx.send(1, 1).unwrap(), tx.send(2, 1).unwrap()),
        (Sent::Published(0), Sent::Published(1))
    );
    assert_eq!(
        (tx.send(1, 2).unwrap(), tx.send(2, 2).unwrap(), tx.send(1, 3).unwrap()),
        (Sent::Kept, Sent::Kept, Sent::Replaced(2))
    );
    assert!(matches!(tx.send(3, 7), Err(ConflateError::Full { room: 2, value: 7 })));
    let mut seen = Vec::new();
    assert_eq!(rx.poll(9, |v, _| seen.push(*v)).unwrap(), 2);
    tx.finish().unwrap();
    rx.for_each(|v, _| seen.push(*v)).unwrap();
    assert_eq!(seen, [101, 201, 103, 202]);
}

#[test]
fn publishing_into_ones_own_full_ring_is_an_error() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(2);
    tx.publish(|_| ()).unwrap();
    let (mut tx, mut error) = (Some(tx), None);
    let handled = rx.for_each(|_, _| {
        if let Some(mut tx) = tx.take() {
            while error.is_none() {
                error = tx.publish(|_| ()).err();
            }
        }
    });
    assert!(matches!(error, Some(WaitError::WaitsForItself(stage)) if stage.as_str() == "r"));
    // The refused publication loses no event.
    assert_eq!(handled.unwrap(), 2);
}

// Joining and leaving.

#[test]
fn a_reader_joins_a_running_ring() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (key, tap) = (graph.reader("r"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::Full { room: 1 })));
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 3);
    assert!((3..7).all(|i| tx.try_publish(|slot| *slot = i).is_ok()));
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 4);
    // The member gates the producer like any other stage.
    assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { stage, lag: 4 }) if &*stage == "tap"));
    let batch = late.try_batch(9).unwrap();
    assert!(batch.first_seq() == 3 && batch.iter().copied().eq(3..7));
    batch.release();
    assert!(tx.try_claim().is_ok());
    tx.close();
    assert!(matches!(late.batch(1), Err(WaitError::Closed)));
}

#[test]
fn a_reader_begins_where_it_says() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (key, tap) = (graph.reader("r"), graph.tap("tap", 4));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
    for (from, first) in
        [(StartAt::Now, 3), (StartAt::Oldest, 0), (StartAt::At(1), 1), (StartAt::At(3), 3)]
    {
        let mut joined = tap.subscribe(from).unwrap();
        assert_eq!(joined.next_seq(), first);
        let mut next = first;
        joined
            .poll(9, |v, at| {
                assert_eq!((*v, at.seq), (next, std::mem::replace(&mut next, at.seq + 1)))
            })
            .unwrap();
        assert_eq!(next, 3);
    }
    assert!(matches!(
        tap.subscribe(StartAt::At(4)),
        Err(SubscribeError::NotYet { asked: 4, newest: 3 })
    ));
    // A needed stage cannot jump: it skips events by releasing them unread.
    assert_eq!(rx.poll(usize::MAX, |_, _| ()).unwrap(), 3);
    assert_eq!(rx.next_seq(), 3);
    // An overwritten position is refused.
    tx.publish_all(3..7, |slot, i| *slot = i).unwrap();
    assert!(matches!(
        tap.subscribe(StartAt::At(0)),
        Err(SubscribeError::Overwritten { asked: 0, oldest: 1.. })
    ));
}

#[test]
fn a_reader_leaves_a_running_ring() {
    let _watched = crate::common::watched();
    let graph = graph(2);
    let (key, tap) = (graph.reader("r"), graph.tap("tap", 1));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    let late = tap.subscribe(StartAt::Now).unwrap();
    tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 2);
    assert!(tx.try_claim().is_err());
    drop(late);
    assert!(tx.try_claim().is_ok());
    // A leaver asks a member that waits on another thread to leave.
    let mut late = tap.subscribe(StartAt::Now).unwrap();
    let leaver = late.leave_handle();
    thread::scope(|scope| {
        let waits = scope.spawn(|| late.batch(1).map(drop));
        assert!(leaver.leave());
        assert!(matches!(waits.join().unwrap(), Err(WaitError::Left)));
    });
    assert!(!leaver.leave());
    drop(late);
    // The graph continues, and the seat is free again.
    tx.publish(|_| ()).unwrap();
    assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 1);
    assert!(tap.subscribe(StartAt::Now).is_ok());
}

#[test]
fn readers_come_and_go_in_flight() {
    let _watched = crate::common::watched();
    let tap = Tap::new();
    let mut all = 0;
    let done = chain(8)
        .update("mark", |v, _| *v += 1000)
        .tap(&tap)
        .update("spoil", |v, _| *v = 0)
        .read("end", |_, _| all += 1)
        .run(|p| {
            thread::scope(|scope| {
                let visitor = scope.spawn(|| {
                    for stay in 0..20 {
                        let mut late = tap.subscribe(StartAt::Now).unwrap();
                        let mut next = late.next_seq();
                        for _ in 0..stay % 4 {
                            let batch = late.batch(3).unwrap();
                            assert!(
                                batch.first_seq() == next
                                    && batch
                                        .iter()
                                        .copied()
                                        .eq((next..).map(|i| i + 1000).take(batch.len()))
                            );
                            next += batch.len() as u64;
                            batch.release();
                        }
                    }
                });
                let mut sent = 0;
                while !visitor.is_finished() {
                    p.publish(|slot| *slot = sent)?;
                    sent += 1;
                    thread::yield_now();
                }
                Ok(sent)
            })
        });
    assert_eq!(all, done.unwrap().value);
    assert!(matches!(tap.subscribe(StartAt::Now), Err(SubscribeError::NotRunning)));
}

#[test]
fn workers_come_and_go() {
    let _watched = crate::common::watched();
    let graph = graph(8);
    let key = graph.pool_reader("pool", 1).room(2);
    let last = graph.reader("last").after(&key);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut last) =
        (ring.producer(), ring.pool_readers(key).pop().unwrap(), ring.reader(last));
    let pool = first.pool();
    tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
    assert_eq!(first.poll(1, |v, _| assert_eq!(*v, 0)).unwrap(), 1);
    let mut second = pool.join().unwrap();
    assert!(matches!(pool.join(), Err(SubscribeError::Full { room: 2 })));
    assert_eq!(second.poll(1, |v, _| assert_eq!(*v, 1)).unwrap(), 1);
    // The second worker leaves before it has finished an event, and the first worker adopts that
    // event.
    assert_eq!(second.try_batch(1).unwrap()[0], 2);
    drop(second);
    let mut rest = Vec::new();
    while rest.len() < 6 {
        assert!(first.poll(9, |v, _| rest.push(*v)).unwrap() > 0);
    }
    assert!(rest.into_iter().eq(2..8));
    assert_eq!(last.poll(9, |_, _| ()).unwrap(), 8);
    // The first worker may leave while another is there. The graph fails with the last worker.
    let second = pool.join().unwrap();
    drop(first);
    assert!(tx.try_publish(|_| ()).is_ok());
    drop(second);
    assert!(
        matches!(tx.publish(|_| ()), Err(WaitError::Failed(failure)) if &**failure.stage() == "pool")
    );
}

#[test]
fn each_key_has_its_shard() {
    let _watched = crate::common::watched();
    let seen = Mutex::new(HashMap::new());
    let mut behind = Vec::new();
    let make = |shard| {
        let seen = &seen;
        move |v: &u64, at: At| {
            let (owner, before) =
                seen.lock().unwrap().insert(*v % 7, (shard, at.seq)).unwrap_or((shard, 0));
            assert!(owner == shard && before <= at.seq);
        }
    };
    let sharded =
        chain(16).read_shards("books", 3, |v| *v % 7, make).read("behind", |v, _| behind.push(*v));
    assert_eq!(
        sharded.feed(0..200, |slot, i| *slot = i).unwrap().report.stage("books").unwrap().events,
        200
    );
    assert!(seen.into_inner().unwrap().len() == 7 && behind.into_iter().eq(0..200));
}

#[test]
fn an_observer_holds_nobody_up() {
    let _watched = crate::common::watched();
    let mirror = Mirror::<u64>::new(8).unwrap();
    let mut observer = mirror.handle().observe();
    assert_eq!(observer.try_next(), Err(ObserveError::Unavailable));
    // The observer does not poll while the chain runs.
    chain(4).observe("mirror", mirror, |v| v + 1).feed(0..100, |slot, i| *slot = i).unwrap();
    let mut next = 0;
    for seen in &mut observer {
        next += seen.missed;
        assert_eq!((seen.seq, seen.value), (next, next + 1));
        next += 1;
    }
    assert_eq!((next, observer.try_next()), (100, Err(ObserveError::Closed)));
}
