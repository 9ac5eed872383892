//! Members and workers that come and go under full traffic.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{Pool, Tap, Wait, errors::SubscribeError, handles::StartAt};

/// A member's stay between joining and leaving.
struct Stay {
    /// First position.
    first: u64,
    /// Position behind the last one.
    next: u64,
    /// Number of events received.
    events: u64,
}

/// Members come and go while producers publish. Between joining and leaving, a member gets each
/// published event once and in order. With `behind_a_stage`, a stage before the tap has handled the
/// event first. With `shared`, some claims become tombstones.
fn members_come_and_go(shared: bool, behind_a_stage: bool, capacity: usize) {
    const READERS: u64 = 2;
    let stop = AtomicBool::new(false);
    let (seen_until, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let (stays, mut buried) = (Mutex::new(Vec::new()), Vec::new());
    let tap = Tap::new().room(READERS as usize);
    // An event contains its position, and the number of stages that have written to it.
    let before = u64::from(behind_a_stage);
    let read = |seed: u64| {
        let (tap, stop, seen_until, seen, stays) = (&tap, &stop, &seen_until, &seen, &stays);
        let mut random = seed + 1;
        move || {
            while !stop.load(Relaxed) {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let from = match random >> 60 {
                    0..5 => StartAt::Oldest,
                    5..8 => StartAt::At(seen_until.load(Relaxed)),
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
                // At the end, the member's next position lies behind any tombstones, too.
                stay.next = sub.next_seq();
                seen_until.store(stay.next, Relaxed);
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
                        buried.push(first..first + len as u64)
                    }
                    Ok::<_, slipring::errors::ClaimError>(())
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
        chain = chain.update("mark", |event, _| event.1 += 1);
    }
    let chain =
        chain.tap(&tap).update("overwrite", |event, _| event.1 += 1).read("end", |&event, at| {
            assert_eq!(event, (at.seq, before + 1));
            last = at.seq;
        });
    let done = if shared { chain.run_shared(|p| produce!(p)) } else { chain.run(|p| produce!(p)) };
    done.unwrap();
    let stays = stays.into_inner().unwrap();
    let mut events = 0;
    for Stay { first, next, events: seen } in &stays {
        let overlap = |tombstone: &std::ops::Range<u64>| {
            tombstone.end.min(*next).saturating_sub(tombstone.start.max(*first))
        };
        let tombstones: u64 = buried.iter().map(overlap).sum();
        assert_eq!(next - first - tombstones, *seen, "between {first} and {next}");
        events += seen;
    }
    assert!(events > 0 && last > 0, "no event was received in {} stays", stays.len());
}

#[test]
fn members_that_come_and_go_miss_nothing_with_one_producer() {
    let _watched = crate::common::watched();
    for capacity in [1, 2, 64, 1024] {
        members_come_and_go(false, false, capacity);
        members_come_and_go(false, true, capacity);
    }
}

#[test]
fn members_that_come_and_go_miss_nothing_with_many_producers_and_tombstones() {
    let _watched = crate::common::watched();
    for capacity in [2, 64, 1024] {
        members_come_and_go(true, false, capacity);
        members_come_and_go(true, true, capacity);
    }
}

/// Workers come and go under full traffic: the reader behind the pool gets each event handled once,
/// and in order.
#[test]
fn workers_that_come_and_go_handle_each_event_once() {
    let _watched = crate::common::watched();
    for capacity in [4, 64, 1024] {
        let pool = Pool::updating(3);
        let stop = AtomicBool::new(false);
        let (mut last, joined) = (None, AtomicU64::new(0));
        let end = Instant::now() + Duration::from_millis(if cfg!(miri) { 1 } else { 300 });
        slipring::ring(capacity, || (0u64, 0u64))
            .wait(Wait::YIELDING)
            .deadline(Duration::from_secs(60))
            .update_pool("work", 1, |_| |event, _| event.1 += 1)
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
                                    // An unfinished orphaned chunk still occupies its seat.
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
                                // Half of the workers leave with an unfinished chunk.
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
