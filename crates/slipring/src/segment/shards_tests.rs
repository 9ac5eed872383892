//! Tests of shards between processes. Keys are bytes of the event, and shards die, leave and get
//! successors.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::for_tests::{Segment, stage};
use super::handles_for_tests::{SegmentShardWriter, SegmentWriter};
use super::zeroed::Memory;
use super::*;
use crate::errors::{BatchError, ClaimError, WaitError};
use crate::errors::{BuildError, Cause};

type Shard = SegmentShardWriter<u64>;

/// Returns a stage whose shards are selected by the whole event.
fn shards(name: &str, shards: usize, after: &[usize], on_death: OnDeath) -> StageDeclaration {
    let delivery = StageDelivery::Shards { shards, key_offset: 0, key_length: 8 };
    StageDeclaration { delivery, writes: true, ..stage(name, after, on_death) }
}

fn writer(name: &str, after: &[usize]) -> StageDeclaration {
    StageDeclaration { writes: true, ..stage(name, after, OnDeath::Wait) }
}

/// Returns the shard of an event.
fn of(event: u64, shards: usize) -> usize {
    shard_of_bytes(&event.to_ne_bytes(), shards) as usize
}

impl Segment {
    fn shard(&self, number: u32, stage: usize, shard: usize) -> Shard {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(stage).start + shard).take(number).unwrap();
        // SAFETY: the seat was taken.
        unsafe { ring.shard_updater(stage, shard) }
    }

    fn written(&self, number: u32, stage: usize) -> SegmentWriter<u64> {
        let ring = self.attach(number);
        ring.seat(ring.seats_of(stage).start).take(number).unwrap();
        // SAFETY: the seat was taken.
        unsafe { ring.updater(stage) }
    }
}

/// Returns the smallest event from `from` on that belongs to `shard` when there are two shards.
fn event_of(shard: usize, from: u64) -> u64 {
    (from..).find(|&event| of(event, 2) == shard).unwrap()
}

fn publish(tx: &mut SegmentProducer<u64>, events: &[u64]) {
    events.iter().for_each(|&event| _ = tx.publish(|slot| *slot = event).unwrap());
}

/// Handles all available events, and returns their positions.
fn work(shard: &mut Shard) -> Vec<u64> {
    let mut seen = Vec::new();
    shard.poll(usize::MAX, |_, at| seen.push(at.seq)).unwrap();
    seen
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(200)
}

/// Three shards, each in a process of its own, share the events by key, and a stage behind them
/// sees all events in order.
#[test]
fn shards_of_several_processes_share_the_events() {
    let _watched = crate::watchdog::watched();
    for (start, producers) in [(0, 1), (u64::MAX - 40, 1), (7, 2)] {
        let stages =
            vec![shards("books", 3, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
        let segment = Segment::shared(16, start, stages, producers, OnDeath::Wait);
        let events = if cfg!(miri) { 60 } else { 5_000 };
        let workers = [2, 3, 4].map(|number| segment.shard(number, 0, number as usize - 2));
        let mut reader = segment.reader(5, 1);
        std::thread::scope(|scope| {
            let handled = workers.map(|mut worker| {
                scope.spawn(move || {
                    let (mut own, mut last) = (None, None);
                    let handled = worker.for_each(|event, at| {
                        assert_eq!(*own.get_or_insert(of(*event, 3)), of(*event, 3));
                        assert!(last.is_none_or(|last: u64| at.seq.wrapping_sub(last) as i64 > 0));
                        last = Some(at.seq);
                        *event += 1_000_000;
                    });
                    (own, handled.unwrap())
                })
            });
            let segment = &segment;
            scope.spawn(move || {
                if producers == 1 {
                    let mut tx = segment.producer(1);
                    return (0..events).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
                }
                let mut tx = segment.shared_producer(1);
                for i in 0..events {
                    if i % 7 == 3 {
                        drop(tx.claim_n(2).unwrap()); // tombstones
                    }
                    tx.publish(|slot| *slot = i).unwrap();
                }
            });
            let mut next = 0;
            let seen = reader.for_each(|event, _| {
                assert_eq!(*event, 1_000_000 + next);
                next += 1;
            });
            assert_eq!(seen.unwrap(), events);
            let handled = handled.map(|handled| handled.join().unwrap());
            assert_eq!(handled.iter().map(|(_, count)| count).sum::<u64>(), events);
        });
        let report = segment.attach(6).report();
        assert_eq!(report.stages()[0].events, events);
        let tombstones = if producers == 1 { 0 } else { report.stages()[0].tombstones };
        assert_eq!(report.stages()[0].seq, start.wrapping_add(events + tombstones));
    }
}

/// After a shard dies, its successor with the same number sees that shard's events and no others,
/// and knows which of them may be half-written. The other shard is not disturbed.
#[test]
fn the_next_of_a_shard_goes_on_where_the_dead_one_stopped() {
    let _watched = crate::watchdog::watched();
    for start in [0, u64::MAX - 2] {
        let at = |offset: u64| start.wrapping_add(offset);
        let stages =
            vec![shards("books", 2, &[], OnDeath::Wait), stage("end", &[0], OnDeath::Wait)];
        let segment = Segment::new(16, start, stages);
        let (mut tx, mut end) = (segment.producer(1), segment.reader(9, 1));
        let (mut one, mut other) = (segment.shard(2, 0, 0), segment.shard(3, 0, 1));
        // The six events belong to the shards 0, 1, 0, 1, 0 and 0.
        let events = [0, 1, 0, 1, 0, 0].map(|shard| event_of(shard, 0));
        publish(&mut tx, &events);
        assert!(one.suspects().is_empty());
        one.poll(1, |_, _| ()).unwrap();
        one.batch(1).unwrap()[0] = 666; // of `at(2)`, half-written
        segment.kill(2, one);
        segment.bury(2);
        assert_eq!(work(&mut other), [at(1), at(3)]);
        // The dead shard has passed over the event at 1, which is not its own.
        assert_eq!(end.poll(8, |_, _| ()).unwrap(), 2, "the dead shard holds up what is behind");

        let mut next = segment.shard(4, 0, 0);
        let suspects = next.suspects();
        assert_eq!((next.redelivered(), next.next_seq()), ((at(2)..at(3)).into(), at(2)));
        assert_eq!(
            [0, 1, 2, 3, 4].map(|offset| suspects.contains(at(offset))),
            [false, false, true, false, false]
        );
        let batch = next.batch(1).unwrap();
        assert_eq!((batch.first_seq(), batch[0], batch.suspects()), (at(2), 666, 1));
        batch.release();
        let batch = next.batch(8).unwrap();
        assert_eq!((batch.first_seq(), batch.len(), batch.suspects()), (at(4), 2, 0));
        batch.release();
        assert!(next.suspects().is_empty());
        drop(tx);
        assert_eq!(end.for_each(|_, _| ()).unwrap(), 4);
        assert!(matches!(next.batch(1), Err(WaitError::Closed)));
        assert!(matches!(other.batch(1), Err(WaitError::Closed)));
    }
}

/// A shard passes over its own half-written events, and over no other events.
#[test]
fn a_shard_passes_over_its_own_suspects() {
    let _watched = crate::watchdog::watched();
    let stages = vec![
        shards("first", 2, &[], OnDeath::Wait),
        shards("second", 2, &[0], OnDeath::Wait),
        stage("end", &[1], OnDeath::Wait),
    ];
    let segment = Segment::new(16, 0, stages);
    let mut tx = segment.producer(1);
    let mut first = [segment.shard(2, 0, 0), segment.shard(3, 0, 1)];
    publish(&mut tx, &[0, 1, 0, 0, 1, 0].map(|shard| event_of(shard, 0)));
    // The events at 0, 2 and 3 are lent. The process changes the key of the last event, which
    // selects the shard of the second stage, and dies.
    first[0].poll(1, |_, _| ()).unwrap();
    first[0].batch(2).unwrap().iter_mut().for_each(|event| *event = event_of(1, 100));
    let [dying, mut other] = first;
    segment.kill(2, dying);
    assert_eq!(work(&mut other), [1, 4]);
    segment.bury(2);
    let mut next = segment.shard(4, 0, 0);
    assert_eq!(next.pass_over_suspects().unwrap(), 2);
    assert_eq!(next.pass_over_suspects().unwrap(), 0);
    assert_eq!(work(&mut next), [5]);
    assert_eq!(segment.attach(6).report().stages()[0].skipped, 2);
    // The passed-over events go to the shards of the keys that they have now.
    let mut second = [segment.shard(7, 1, 0), segment.shard(8, 1, 1)];
    assert_eq!(work(&mut second[0]), [0, 5]);
    assert_eq!(work(&mut second[1]), [1, 2, 3, 4]);
    drop(tx);
    assert_eq!(segment.reader(9, 2).for_each(|_, _| ()).unwrap(), 6);
}

/// The successor of a shard is lent again only those events that the shard was lent. Events of
/// other shards that it merely passed over, between or behind its own, do not count as lent.
#[test]
fn a_shard_is_lent_its_own_events_only() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(16, 0, vec![shards("books", 2, &[], OnDeath::Wait)]);
    let mut tx = segment.producer(1);
    let mut one = segment.shard(2, 0, 0);
    publish(&mut tx, &[1, 0, 1, 1, 0, 1, 1].map(|shard| event_of(shard, 0)));
    assert_eq!(one.batch(1).unwrap().len(), 1); // not released
    drop(one);
    let one = segment.shard(3, 0, 0);
    assert_eq!(one.redelivered(), (0..2).into());
    drop(one);
    let mut one = segment.shard(4, 0, 0);
    assert_eq!(work(&mut one), [1, 4]);
    drop(one);
    let one = segment.shard(5, 0, 0);
    assert!(one.redelivered().is_empty(), "all was released, and the rest is another shard's");
}

/// If a dead shard holds up a waiting party, the party's call returns the death and the shard's
/// number, even if other shards live.
#[test]
fn a_dead_shard_is_told_or_fails_as_declared() {
    let _watched = crate::watchdog::watched();
    for on_death in [OnDeath::Tell, OnDeath::Fail] {
        let segment = Segment::new(4, 0, vec![shards("books", 3, &[], on_death)]);
        let mut tx = segment.producer(1);
        let mut living = segment.shard(2, 0, 0);
        let (mut ahead, dying) = (segment.shard(3, 0, 1), segment.shard(4, 0, 2));
        publish(&mut tx, &[0, 1, 2, 3]);
        work(&mut ahead);
        segment.kill(3, ahead);
        segment.kill(4, dying);
        work(&mut living);
        let error = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
        match (on_death, &error) {
            (OnDeath::Tell, WaitError::PeerDead(dead)) => {
                assert_eq!((dead.stage.as_str(), dead.shard, dead.pid), ("books", Some(2), 1004));
                let text = error.to_string();
                assert!(text.contains("1004") && text.contains("shard 2 of `books`"), "{text}");
                segment.bury(4);
                let mut next = segment.shard(5, 0, 2);
                work(&mut next);
                // Now all shards have passed all events.
                publish(&mut tx, &[4, 5, 6, 7]);
                work(&mut next);
                work(&mut living);
                let again = tx.publish(|_| unreachable!("the ring is full")).unwrap_err();
                let WaitError::PeerDead(dead) = &again else { panic!("{again}") };
                assert_eq!((dead.shard, dead.pid), (Some(1), 1003));
            }
            (OnDeath::Fail, WaitError::Failed(failure)) => {
                assert!(matches!(failure.cause(), Cause::Died { pid: 1004 }), "{failure}");
            }
            _ => panic!("{on_death:?}: {error}"),
        }
    }
}

/// While a living shard is the slowest, no call returns the death of a shard that is further ahead.
#[test]
fn a_slow_living_shard_is_waited_for() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(2, 0, vec![shards("books", 2, &[], OnDeath::Tell)]);
    let mut tx = segment.producer(1);
    let (_living, mut dying) = (segment.shard(2, 0, 0), segment.shard(3, 0, 1));
    publish(&mut tx, &[0, 1]);
    work(&mut dying);
    segment.kill(3, dying);
    let late = tx.publish_by(soon(), |_| unreachable!("the ring is full"));
    assert!(matches!(late, Err(ClaimError::TimedOut(_))), "{late:?}");
}

/// An event's shard is selected by the bytes that the last writer before the shards left in the
/// event, even if that writer died while it held the event.
#[test]
fn the_bytes_that_the_writer_left_select_the_shard() {
    let _watched = crate::watchdog::watched();
    let stages = vec![writer("change", &[]), shards("books", 2, &[0], OnDeath::Wait)];
    let segment = Segment::new(16, 0, stages);
    let mut tx = segment.producer(1);
    let mut change = segment.written(2, 0);
    publish(&mut tx, &[event_of(0, 0); 6]);
    let (zero, one) = (event_of(0, 50), event_of(1, 50));
    change.poll(2, |event, at| *event = if at.seq == 0 { zero } else { one }).unwrap();
    // The writer holds its batch, which stores the events' shard ids and releases no event.
    let mut batch = change.batch(2).unwrap();
    batch.iter_mut().for_each(|event| *event = one);
    batch.hold();
    segment.kill(2, change);
    segment.bury(2);
    let mut change = segment.written(3, 0);
    assert_eq!(change.suspects().len(), 2);
    change.poll(1, |event, _| *event = zero).unwrap();
    assert_eq!(change.pass_over_suspects().unwrap(), 1);
    change.poll(8, |event, _| *event = zero).unwrap();
    let mut books = [segment.shard(4, 1, 0), segment.shard(5, 1, 1)];
    assert_eq!(work(&mut books[0]), [0, 2, 4, 5]);
    assert_eq!(work(&mut books[1]), [1, 3]);
}

/// If the first stage is sharded, the next producer can find its place from the position of any
/// shard.
#[test]
fn a_producer_before_shards_goes_on_where_the_one_before_died() {
    let _watched = crate::watchdog::watched();
    for (seed, shared) in
        (0..if cfg!(miri) { 2 } else { 100 }).flat_map(|s| [(s, false), (s, true)])
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let stages = vec![shards("books", 2, &[], OnDeath::Wait)];
        let producers = if shared { 2 } else { 1 };
        let segment = Segment::shared(8, 0, stages, producers, OnDeath::Wait);
        let (mut sent, mut expected) = (0, [0, 1].map(|_| Vec::new()));
        let mut books = [0, 1].map(|shard| segment.shard(2 + shard, 0, shard as usize));
        let mut seen = [0, 1].map(|_| Vec::new());
        for number in 10..40 {
            let mut single = (!shared).then(|| segment.producer(number));
            let mut several = shared.then(|| segment.shared_producer(number));
            for _ in 0..random.usize(..5) {
                let event = sent;
                let published = match (&mut single, &mut several) {
                    (Some(tx), _) => tx.try_publish(|slot| *slot = event).is_ok(),
                    (_, Some(tx)) => tx.try_publish(|slot| *slot = event).is_ok(),
                    _ => unreachable!(),
                };
                if published {
                    expected[of(event, 2)].push(event);
                    sent += 1;
                }
            }
            segment.kill(number, (single, several));
            segment.bury(number);
            let (shard, count) = (random.usize(..2), random.usize(..4));
            books[shard].poll(count, |event, _| seen[shard].push(*event)).unwrap();
        }
        for (shard, seen) in books.iter_mut().zip(&mut seen) {
            while shard.poll(8, |event, _| seen.push(*event)).unwrap() != 0 {}
        }
        assert_eq!(seen, expected, "{seed} {shared}");
    }
}

/// When the last producer leaves, each shard finds the end of the stream, even a shard that has had
/// no event for long or never had one.
#[test]
fn each_shard_finds_the_end() {
    let _watched = crate::watchdog::watched();
    for producers in [1, 2] {
        let stages = vec![shards("books", 3, &[], OnDeath::Wait)];
        let segment = Segment::shared(8, 0, stages, producers, OnDeath::Wait);
        let mut books = [0, 1, 2].map(|shard| segment.shard(2 + shard as u32, 0, shard));
        let event = (0..).find(|&event| of(event, 3) == 0).unwrap();
        if producers == 1 {
            publish(&mut segment.producer(9), &[event; 5]);
        } else {
            let mut tx = segment.shared_producer(9);
            (0..5).for_each(|_| _ = tx.publish(|slot| *slot = event).unwrap());
        }
        let seen = books.each_mut().map(|shard| {
            let mut seen = 0;
            let end = loop {
                match shard.batch_by(2, soon()) {
                    Ok(batch) => {
                        seen += batch.len();
                        batch.release();
                    }
                    Err(end) => break end,
                }
            };
            assert!(matches!(end, BatchError::Wait(WaitError::Closed)), "{end:?}");
            seen
        });
        assert_eq!(seen, [5, 0, 0]);
    }
}

/// A key that does not lie in the event is refused.
#[test]
fn a_key_lies_in_the_event() {
    for (key_offset, key_length) in [(0, 0), (0, 9), (8, 1), (usize::MAX, 2), (3, 6)] {
        let delivery = StageDelivery::Shards { shards: 2, key_offset, key_length };
        let stages = vec![StageDeclaration { delivery, ..stage("books", &[], OnDeath::Wait) }];
        let producer_on_death = OnDeath::Wait;
        let declaration =
            Declaration { capacity: 4, start: 0, stages, producers: 1, producer_on_death };
        let Err(BuildError::Declaration { problem }) = declaration.needs::<u64>() else {
            panic!("{key_offset} {key_length} is accepted")
        };
        assert!(problem.contains("books") && problem.contains("8 bytes"), "{problem}");
    }
}

/// Whatever the words of a segment hold, each call of a shard ends, does not panic, and stays
/// within its bounds.
#[test]
fn random_words_are_an_error_at_most() {
    let _watched = crate::watchdog::watched();
    for seed in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let stages = vec![
            shards("first", 2, &[], OnDeath::Tell),
            shards("second", 3, &[0], OnDeath::Fail),
            stage("third", &[1], OnDeath::Wait),
        ];
        let producers = 1 + seed as usize % 2;
        let segment = Segment::shared(4, 0, stages, producers, OnDeath::Tell);
        let ring = segment.attach(1);
        let seat = ring.seats_of(ring.producer_party()).start;
        ring.seat(seat).take(2).unwrap();
        let (mut single, mut several) = match producers {
            // SAFETY: the seat was taken.
            1 => (Some(unsafe { ring.producer() }), None),
            // SAFETY: as above.
            _ => (None, Some(unsafe { ring.shared_producer(seat) })),
        };
        let mut books = [(3, 0, 0), (4, 0, 1), (5, 1, 0), (6, 1, 2)]
            .map(|(number, stage, shard)| segment.shard(number, stage, shard));
        let memory: &Memory = segment.areas.mapping.downcast_ref().unwrap();
        let words = memory.bytes.size() / 8;
        let ids = segment.areas.shard_ids.addr().get()..segment.areas.stamps.addr().get();
        for round in 0..20 {
            for _ in 0..random.usize(1..words) {
                let value = match random.u32(..3) {
                    // A small number, shifted by a few bits, is close to a word that a ring would
                    // store.
                    0 => random.u64(..12) << random.u32(..17),
                    _ => random.u64(..) >> random.u32(..64),
                };
                // SAFETY: the word lies in the memory.
                let at = unsafe { memory.first.cast::<AtomicU64>().add(random.usize(..words)) };
                // SAFETY: all threads access the word atomically and in this size (status bits and
                // shard ids have 32 bits), or no thread has a reference to the event that contains
                // it.
                unsafe {
                    if at.cast() == segment.areas.status || ids.contains(&at.addr().get()) {
                        at.cast::<AtomicU32>().as_ref().store(value as u32, Ordering::Relaxed);
                    } else {
                        at.as_ref().store(value, Ordering::Relaxed);
                    }
                }
            }
            let now = Instant::now();
            if let Some(tx) = &mut single {
                let _ = tx.publish_by(now, |slot| *slot = 1);
            }
            if let Some(tx) = &mut several {
                let _ = tx.publish_by(now, |slot| *slot = 1);
            }
            for shard in &mut books {
                let _ = shard.try_batch(9).map(|batch| {
                    let sum = batch.iter().sum::<u64>();
                    (sum, batch.suspects(), (batch.len() <= 4).then_some(()).unwrap())
                });
                let _ = shard.poll(3, |event, _| *event = 3);
                let _ = shard.batch_by(1, now).map(|batch| batch.release());
                let _ = (shard.redelivered(), shard.suspects());
            }
            let _ = (ring.report(), ring.position(0), ring.position(1), ring.is_over());
            segment.dead.set.fetch_or(1 << random.u32(..9), Ordering::Relaxed);
            (0..ring.seats()).for_each(|seat| ring.settle_seat(seat, random.u32(..8)));
            if round % 5 == 4 {
                let ring = segment.attach(50 + round);
                for (shard, number) in books.iter_mut().zip([0, 1]) {
                    // SAFETY: the seat's other handle makes no call meanwhile.
                    let next = unsafe { ring.shard_updater(0, number) };
                    drop(std::mem::replace(shard, next));
                    let _ = shard.pass_over_suspects();
                }
            }
        }
    }
}

/// A new segment's shard ids are used only after a publication.
#[test]
fn the_slots_of_a_ring_have_a_shard_each() {
    let _watched = crate::watchdog::watched();
    let segment = Segment::new(4, 0, vec![shards("books", 2, &[], OnDeath::Wait)]);
    let mut tx = segment.producer(1);
    let mut books = [segment.shard(2, 0, 0), segment.shard(3, 0, 1)];
    for event in 0..40 {
        publish(&mut tx, &[event]);
        let own = of(event, 2);
        assert_eq!(
            books.each_mut().map(work),
            [0, 1].map(|shard| match shard == own {
                true => vec![event],
                false => vec![],
            })
        );
    }
}
