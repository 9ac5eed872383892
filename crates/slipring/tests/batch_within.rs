//! Batches of a number of events, or after some time: `batch_within` of handles, of stages and of
//! tasks.
#![cfg(not(slipring_loom))]

mod common;

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use slipring::errors::{BatchError, WaitError};

use common::Unpark;
use slipring::handles::StartAt;
use slipring::markers::{Contiguous, Layout};
use slipring::{Graph, OnFault, Wait, ring};

/// A time that passes soon.
const SOON: Duration = Duration::from_millis(15);
/// A time that never passes.
const NEVER: Duration = Duration::MAX;

/// Runs a scenario in both layouts.
macro_rules! both_layouts {
    ($($(#[$doc:meta])* $test:ident($graph:ident) $scenario:block)+) => { $(
        $(#[$doc])*
        #[test]
        fn $test() {
            let _watched = common::watched();
            fn scenario<L: Layout + 'static>($graph: impl Fn(usize) -> Graph<'static, u64, L>) $scenario
            scenario(|capacity| Graph::new(capacity, || 0u64));
            scenario::<Contiguous>(|capacity| Graph::new(capacity, || 0u64).contiguous());
        }
    )+ };
}

both_layouts! {
    a_backlog_is_lent_at_once(graph) {
        let graph = graph(16);
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        (0..10).for_each(|i| drop(tx.publish(|slot| *slot = i)));
        let batch = rx.batch_within(4, NEVER).unwrap();
        assert!(batch.iter().eq(&[0, 1, 2, 3]));
        batch.release();
        assert_eq!(rx.batch_within(6, NEVER).unwrap().len(), 6);
    }

    events_that_trickle_fill_a_batch(graph) {
        for wait in Wait::all() {
            let graph = graph(16).wait(wait);
            let key = graph.reader("log");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            let publishing = thread::spawn(move || {
                for i in 0..11 {
                    tx.publish(|slot| *slot = i).unwrap();
                    thread::sleep(Duration::from_micros(300));
                }
            });
            for first in [0, 4] {
                let batch = rx.batch_within(4, NEVER).unwrap();
                assert!(batch.iter().copied().eq(first..first + 4));
                batch.release();
            }
            let batch = rx.batch_within(4, NEVER).unwrap();
            assert!(batch.iter().copied().eq(8..11), "the rest comes at the end");
            batch.release();
            assert!(matches!(rx.batch_within(4, NEVER), Err(WaitError::Closed)));
            publishing.join().unwrap();
        }
    }

    a_batch_waits_for_its_time(graph) {
        for wait in [Wait::ADAPTIVE, Wait::SLEEPING, Wait::Blocking.or_timeout(SOON / 5)] {
            let graph = graph(16).wait(wait);
            let key = graph.reader("log");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            let began = Instant::now();
            let publishing = thread::spawn(move || {
                thread::sleep(2 * SOON);
                let published = Instant::now();
                tx.publish(|slot| *slot = 7).unwrap();
                (published, tx)
            });
            let batch = loop {
                match rx.batch_within(2, SOON) {
                    Ok(batch) => break batch.len(),
                    Err(error) => assert!(matches!(error, WaitError::TimedOut(_)), "{error}"),
                }
            };
            assert_eq!(batch, 1);
            assert!(began.elapsed() >= 3 * SOON);
            // The time counts from the oldest event.
            let (published, _tx) = publishing.join().unwrap();
            assert!(published.elapsed() >= SOON);
        }
    }

    a_full_ring_ends_a_batch(graph) {
        let graph = graph(4);
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let publishing = thread::spawn(move || tx.publish_all(0..10, |slot, i| *slot = i).map(drop));
        for len in [4, 4, 2] {
            let batch = rx.batch_within(100, NEVER).unwrap();
            assert_eq!(batch.len(), len);
            batch.release();
        }
        assert!(matches!(rx.batch_within(100, NEVER), Err(WaitError::Closed)));
        publishing.join().unwrap().unwrap();
    }

    /// The stage behind holds the rest of the ring, and waits for the events of the batch.
    a_full_ring_ends_a_batch_of_a_stage_before_another(graph) {
        for shared in [false, true] {
            let graph = graph(8);
            let first = graph.reader("first");
            let second = graph.reader("second").after(&first);
            let (mut publish, mut first, mut second): (Box<dyn FnMut(u64)>, _, _) = match shared {
                false => {
                    let ring = graph.build().unwrap();
                    let mut tx = ring.producer();
                    let publish = move |i| _ = tx.publish(|slot| *slot = i).unwrap();
                    (Box::new(publish), ring.reader(first), ring.reader(second))
                }
                true => {
                    let ring = graph.shared().build().unwrap();
                    let mut tx = ring.producer();
                    let publish = move |i| _ = tx.publish(|slot| *slot = i).unwrap();
                    (Box::new(publish), ring.reader(first), ring.reader(second))
                }
            };
            (0..6).for_each(&mut publish);
            first.poll(6, |_, _| ()).unwrap();
            (6..8).for_each(&mut publish);
            let mut cx = Context::from_waker(Waker::noop());
            {
                let mut gathering = pin!(first.batch_within_async(3, NEVER, |_| pending::<()>()));
                assert!(matches!(gathering.as_mut().poll(&mut cx), Poll::Ready(Ok(batch)) if batch.len() == 2));
            }
            let batch = first.batch_within(3, NEVER).unwrap();
            assert!(batch.iter().eq(&[6, 7]));
            batch.release();
            let batch = second.batch_within(9, NEVER).unwrap();
            assert_eq!(batch.len(), 8);
            batch.release();
            (8..11).for_each(&mut publish);
            assert_eq!(first.batch_within(3, NEVER).unwrap().len(), 3, "a ring with room");
        }
    }

    held_events_count_as_a_part_of_the_ring(graph) {
        let graph = graph(4);
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        (0..4).for_each(|i| drop(tx.publish(|slot| *slot = i)));
        rx.batch_within(3, NEVER).unwrap().hold();
        let batch = rx.batch_within(3, NEVER).unwrap();
        assert!(batch.iter().eq(&[3]));
        batch.hold();
        assert!(matches!(rx.batch_within(3, NEVER), Err(WaitError::WaitsForItself(_))));
        rx.release_until(1);
        tx.publish(|slot| *slot = 4).unwrap();
        assert!(rx.batch_within(3, NEVER).unwrap().iter().eq(&[4]));
    }

    small_numbers_and_times(graph) {
        let graph = graph(4);
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        assert!(rx.batch_within(0, NEVER).unwrap().is_empty());
        let soon = || Instant::now() + SOON;
        assert!(matches!(rx.batch_within_by(1, NEVER, soon()), Err(BatchError::TimedOut(_))));
        (0..3).for_each(|i| drop(tx.publish(|slot| *slot = i)));
        assert_eq!(rx.batch_within(1, NEVER).unwrap().len(), 1);
        assert_eq!(rx.batch_within(4, Duration::ZERO).unwrap().len(), 3);
        assert_eq!(rx.batch_within_by(4, NEVER, soon()).unwrap().len(), 3);
        let past = Instant::now() - Duration::from_nanos(1);
        assert_eq!(rx.batch_within_by(4, NEVER, past).unwrap().len(), 3);
    }

    /// The end of the graph reaches a handle that gathers.
    ends_reach_a_batch_that_grows(graph) {
        for end in ["close", "halt", "fail", "deadline"] {
            for wait in [Wait::Blocking, Wait::YIELDING] {
                let mut graph = graph(16).wait(wait);
                if end == "deadline" {
                    graph = graph.deadline(2 * SOON);
                }
                let (key, other) = (graph.reader("log"), graph.reader("other"));
                let ring = graph.build().unwrap();
                let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
                let other = ring.reader(other);
                tx.publish(|slot| *slot = 7).unwrap();
                let ending = thread::spawn(move || {
                    thread::sleep(SOON);
                    match end {
                        "close" => return (tx.close(), Some(other)).1,
                        "halt" => tx.halt(),
                        "fail" => {
                            drop(other); // before the producer, which closes the ring
                            return None;
                        }
                        _ => thread::sleep(3 * SOON),
                    }
                    Some(other)
                });
                let gathered = rx.batch_within(2, NEVER).map(|batch| batch.len());
                match (end, gathered) {
                    ("close", Ok(1)) | ("halt", Err(WaitError::Halted)) => {}
                    ("fail" | "deadline", Err(WaitError::Failed(_))) => {}
                    (_, other) => panic!("{end}: {other:?}"),
                }
                drop(ending.join().unwrap());
            }
        }
    }

    an_unpublished_claim_ends_no_batch(graph) {
        let graph = graph(8).shared();
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (mut one, mut two, mut rx) = (ring.producer(), ring.producer(), ring.reader(key));
        one.publish(|slot| *slot = 0).unwrap();
        let mut slot = two.claim().unwrap();
        one.publish(|slot| *slot = 2).unwrap();
        let began = Instant::now();
        assert_eq!(rx.batch_within(3, SOON).unwrap().len(), 1);
        assert!(began.elapsed() >= SOON);
        *slot = 1;
        slot.publish();
        let batch = rx.batch_within(3, NEVER).unwrap();
        assert!(batch.iter().eq(&[0, 1, 2]));
        batch.release();
        one.publish(|slot| *slot = 3).unwrap();
        drop(two.claim().unwrap()); // given up: no event can follow directly
        one.publish(|slot| *slot = 5).unwrap();
        for event in [3, 5] {
            let batch = rx.batch_within(if event == 3 { 2 } else { 1 }, NEVER).unwrap();
            assert!(batch.iter().eq(&[event]));
            batch.release();
        }
    }

    a_follower_gathers(graph) {
        for shared in [false, true] {
            let mut tx: Box<dyn FnMut(u64) + Send>;
            let graph = graph(16);
            let first = graph.updater("first");
            let second = graph.reader("second").after(&first);
            let (mut first, mut second) = match shared {
                false => {
                    let ring = graph.build().unwrap();
                    let mut producer = ring.producer();
                    tx = Box::new(move |i| _ = producer.publish(|slot| *slot = i).unwrap());
                    (ring.updater(first), ring.reader(second))
                }
                true => {
                    let ring = graph.shared().build().unwrap();
                    let mut producer = ring.producer();
                    tx = Box::new(move |i| _ = producer.publish(|slot| *slot = i).unwrap());
                    (ring.updater(first), ring.reader(second))
                }
            };
            let working = thread::spawn(move || first.for_each(|event, _| *event += 1));
            let publishing = thread::spawn(move || {
                (0..6).for_each(|i| {
                    tx(i);
                    thread::sleep(Duration::from_micros(300));
                });
            });
            for (first, len) in [(1, 4), (5, 2)] {
                let batch = second.batch_within(4, NEVER).unwrap();
                assert!(batch.iter().copied().eq(first..first + len));
                batch.release();
            }
            publishing.join().unwrap();
            assert_eq!(working.join().unwrap().unwrap(), 6);
        }
    }
}

#[test]
fn a_worker_takes_its_chunk_and_waits_for_no_more() {
    let _watched = common::watched();
    let graph = Graph::new(16, || 0u64);
    let key = graph.pool_reader("pool", 2);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    let mut workers = ring.pool_readers(key);
    tx.publish(|slot| *slot = 7).unwrap();
    let batch = workers[0].batch_within(4, NEVER).unwrap();
    assert!(batch.iter().eq(&[7]));
    batch.release();
}

#[test]
fn an_event_of_another_shard_ends_a_batch() {
    let _watched = common::watched();
    let graph = Graph::new(16, || 0u64);
    let key = graph.shard_reader("by half", 2, |value| value / 100);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    let mut shards = ring.shard_readers(key);
    // Finds out which shard owns the events below 100.
    tx.publish(|slot| *slot = 1).unwrap();
    let own = shards.iter_mut().position(|shard| shard.try_batch(1).is_ok()).unwrap();
    let other = (1..).map(|i| i * 100).find(|&key| {
        tx.publish(|slot| *slot = key).unwrap();
        let found = shards[1 - own].try_batch(1).is_ok();
        (0..2).for_each(|shard| _ = shards[shard].poll(16, |_, _| ()).unwrap());
        found
    });
    let shard = &mut shards[own];
    tx.publish(|slot| *slot = 1).unwrap();
    let publishing = thread::spawn(move || {
        thread::sleep(SOON);
        for event in [2, 3, other.unwrap(), 4, 5] {
            tx.publish(|slot| *slot = event).unwrap();
        }
        tx
    });
    for events in [&[1, 2, 3][..], &[4, 5]] {
        let batch = shard.batch_within(events.len().max(3) - usize::from(events.len() == 2), NEVER);
        let batch = batch.unwrap();
        assert!(batch.iter().eq(events), "{batch:?}");
        batch.release();
    }
    drop(publishing.join().unwrap());
}

#[test]
fn a_subscription_gathers_and_is_asked_to_leave() {
    let _watched = common::watched();
    let graph = Graph::new(16, || 0u64);
    let tap = graph.tap("tap", 1);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    let tap = ring.tap(tap);
    let mut rx = tap.subscribe(StartAt::Now).unwrap();
    let leave = rx.leave_handle();
    (0..3).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let batch = rx.batch_within(3, NEVER).unwrap();
    assert!(batch.iter().eq(&[0, 1, 2]));
    batch.release();
    tx.publish(|slot| *slot = 3).unwrap();
    let leaving = thread::spawn(move || {
        thread::sleep(SOON);
        leave.leave();
    });
    assert!(matches!(rx.batch_within(3, NEVER), Err(WaitError::Left)));
    leaving.join().unwrap();
}

/// Only the waiting thread itself could bring the batch's next event.
#[test]
fn a_batch_that_waits_for_its_own_thread_ends() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64);
    let first = graph.reader("first");
    let second = graph.reader("second").after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut second) =
        (ring.producer(), ring.reader(first), ring.reader(second));
    (0..2).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    tx.close();
    assert_eq!(first.poll(1, |_, _| ()).unwrap(), 1);
    let mut lens = Vec::new();
    first
        .for_each(|_, at| {
            assert_eq!(at.seq, 1);
            lens.push(second.batch_within(2, NEVER).unwrap().len());
        })
        .unwrap();
    assert_eq!(lens, [1]);
    assert_eq!(second.batch_within(2, NEVER).unwrap().len(), 2);
}

// Stages.

/// Publishes an event, and waits until the handler has reported its batch, `rounds` times.
fn one_by_one(
    rounds: u64,
    start: impl FnOnce(mpsc::Sender<Vec<u64>>, Box<dyn Fn(&mut dyn FnMut(u64))>),
) {
    let (sender, batches) = mpsc::channel::<Vec<u64>>();
    start(
        sender,
        Box::new(move |publish| {
            for i in 0..rounds {
                publish(i);
                assert_eq!(batches.recv().unwrap(), [i], "a batch that has waited long enough");
            }
        }),
    );
}

#[test]
fn a_stage_hands_a_batch_over_in_time() {
    let _watched = common::watched();
    for wait in Wait::all() {
        for threads in [0, 1, 2, 3] {
            one_by_one(3, |sender, publish_all| {
                let mut chain = ring(16, || 0u64).wait(wait.clone());
                if threads != 0 && !matches!(wait, Wait::BusySpin) {
                    chain = chain.threads(threads);
                }
                chain
                    .read_batch("send", move |events, _| {
                        sender.send(events.iter().copied().collect()).unwrap();
                    })
                    .batch_within(8, SOON / 5)
                    .read("other", |_, _| ())
                    .run(|tx| {
                        publish_all(&mut |i| _ = tx.publish(|slot| *slot = i).unwrap());
                        Ok(())
                    })
                    .unwrap();
            });
        }
    }
}

/// A stage beside the one that gathers keeps a thread busy until the batch is handed over. The
/// other thread may have fallen asleep before the batch had an event, so it must hear of the time.
#[test]
fn another_thread_keeps_the_time_of_a_batch() {
    let _watched = common::watched();
    for wait in [Wait::ADAPTIVE, Wait::Blocking] {
        for round in 0..if cfg!(miri) { 2 } else { 60 } {
            let (sender, sent) = mpsc::channel();
            let (sent, (handles, handled)) = (Mutex::new(sent), mpsc::channel());
            let (mut tx, pipeline) = ring(16, || 0u64)
                .wait(wait.clone())
                .threads(2)
                .fan_out(|side| {
                    side.read_batch("send", move |events, _| _ = sender.send(events.len()))
                        .batch_within(8, Duration::from_millis(3))
                        .read("blocks", move |_, at| {
                            if at.seq == round % 2 {
                                sent.lock().unwrap().recv().unwrap();
                            }
                            handles.send(at.seq).unwrap();
                        })
                })
                .spawn()
                .unwrap();
            for i in 0..2 {
                tx.publish(|slot| *slot = i).unwrap();
                thread::sleep(Duration::from_micros(100 * (round % 7)));
            }
            assert_eq!(handled.iter().take(2).collect::<Vec<_>>(), [0, 1]);
            drop(tx); // closes the ring
            pipeline.join().unwrap();
        }
    }
}

#[test]
fn the_smaller_number_wins() {
    let _watched = common::watched();
    for (max_batch, max, expected) in [(4, 8, 4), (8, 4, 4), (64, 64, 16), (3, 0, 1)] {
        let mut lens = Vec::new();
        ring(16, || 0u64)
            .read_batch("send", |events, _| lens.push(events.len()))
            .max_batch(max_batch)
            .batch_within(max, NEVER)
            .feed(0..48, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(lens, vec![expected; 48 / expected], "{max_batch}, {max}");
    }
}

#[test]
fn a_writing_stage_gathers_behind_another_stage() {
    let _watched = common::watched();
    for threads in [0, 2] {
        let (mut lens, mut sum) = (Vec::new(), 0);
        let mut chain = ring(64, || 0u64);
        if threads != 0 {
            chain = chain.threads(threads);
        }
        chain
            .update("first", |value, _| *value += 1)
            .update_batch("double", |events, _| {
                lens.push(events.len());
                events.iter_mut().for_each(|event| *event *= 2);
            })
            .batch_within(10, NEVER)
            .read("sum", |value, _| sum += value)
            .feed(0..25, |slot, i| *slot = i)
            .unwrap();
        assert_eq!((lens, sum), (vec![10, 10, 5], 2 * (1..=25).sum::<u64>()));
    }
}

/// The stages hold the whole ring between them, and neither has a full batch.
#[test]
fn gathering_stages_in_a_row_do_not_wait_for_each_other() {
    let _watched = common::watched();
    for wait in Wait::all() {
        for threads in [0, 1, 2] {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            let mut chain = ring(8, || 0u64).wait(wait.clone());
            if threads != 0 && !matches!(wait, Wait::BusySpin) {
                chain = chain.threads(threads);
            }
            chain
                .read_batch("first", |events, _| first.push(events.len()))
                .batch_within(3, NEVER)
                .read_batch("second", |events, _| second.push(events.len()))
                .batch_within(8, NEVER)
                .feed(0..200, |slot, i| *slot = i)
                .unwrap();
            assert!(first.iter().all(|len| (1..=3).contains(len)), "{first:?}");
            assert!(second.iter().all(|len| *len == 8), "{second:?}");
            assert_eq!((first.iter().sum(), second.len()), (200, 25), "{wait}, {threads}");
        }
    }
}

/// A member of a tap holds the rest of the ring.
#[test]
fn a_full_ring_ends_a_batch_before_a_tap() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64);
    let first = graph.reader("first");
    let tap = graph.tap("tap", 1).after(&first);
    let ring = graph.build().unwrap();
    let (mut tx, mut first) = (ring.producer(), ring.reader(first));
    let mut member = ring.tap(tap).subscribe(StartAt::Now).unwrap();
    (0..6).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    first.poll(6, |_, _| ()).unwrap();
    (6..8).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let batch = first.batch_within(3, NEVER).unwrap();
    assert_eq!(batch.len(), 2);
    batch.release();
    assert_eq!(member.batch_within(9, NEVER).unwrap().len(), 8);
}

#[test]
fn a_full_ring_ends_a_batch_of_a_shard_before_another_stage() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64);
    let shards = graph.shard_reader("shards", 1, |value| *value);
    let second = graph.reader("second").after(&shards);
    let ring = graph.build().unwrap();
    let (mut tx, mut shards, mut second) =
        (ring.producer(), ring.shard_readers(shards), ring.reader(second));
    (0..6).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    shards[0].poll(6, |_, _| ()).unwrap();
    (6..8).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let batch = shards[0].batch_within(3, NEVER).unwrap();
    assert_eq!(batch.len(), 2);
    batch.release();
    assert_eq!(second.batch_within(9, NEVER).unwrap().len(), 8);
}

#[test]
fn failures_of_a_gathered_batch_follow_the_policy() {
    let _watched = common::watched();
    for threads in [0, 2] {
        for (on, expected) in
            [(OnFault::retry(3), vec![4, 4, 4, 4, 2]), (OnFault::skip(), vec![4, 4, 2])]
        {
            let (mut lens, mut failures) = (Vec::new(), 0);
            let mut chain = ring(16, || 0u64);
            if threads != 0 {
                chain = chain.threads(threads);
            }
            let done = chain
                .read_batch("send", |events, first| {
                    lens.push(events.len());
                    let fails = first == 4 && failures < 2;
                    failures += u64::from(fails);
                    if fails { Err("busy") } else { Ok(()) }
                })
                .batch_within(4, NEVER)
                .on_error(on)
                .feed(0..10, |slot, i| *slot = i)
                .unwrap();
            assert_eq!(lens, expected);
            let report = done.report.stage("send").unwrap();
            assert_eq!(report.skipped, if on == OnFault::skip() { 4 } else { 0 });
        }
    }
}

#[test]
fn a_halt_ends_a_stage_that_gathers() {
    let _watched = common::watched();
    for threads in [0, 1, 2] {
        let batches = AtomicU64::new(0);
        let mut chain = ring(16, || 0u64);
        if threads != 0 {
            chain = chain.threads(threads);
        }
        chain
            .read_batch("send", |_, _| _ = batches.fetch_add(1, SeqCst))
            .batch_within(4, NEVER)
            .run(|tx| {
                tx.publish(|slot| *slot = 1)?;
                thread::sleep(SOON);
                tx.halt();
                Ok(())
            })
            .unwrap();
        assert_eq!(batches.into_inner(), 0, "{threads}");
    }
}

#[test]
fn a_run_on_one_thread_reads_no_clock() {
    let _watched = common::watched();
    let mut lens = Vec::new();
    ring(8, || 0u64)
        .read_batch("send", |events, _| lens.push(events.len()))
        .batch_within(4, NEVER)
        .run_inline(|p| {
            p.publish(|slot| *slot = 1)?;
            assert_eq!(p.work(), 1);
            p.publish_all(0..10, |slot, i| *slot = i).map(drop)?;
            Ok(())
        })
        .unwrap();
    assert!(lens.iter().all(|len| (1..=4).contains(len)), "{lens:?}");
    assert_eq!(lens.iter().sum::<usize>(), 11);
}

#[test]
fn stages_on_one_named_thread_gather() {
    let _watched = common::watched();
    one_by_one(3, |sender, publish_all| {
        ring(16, || 0u64)
            .read("other", |_, _| ())
            .on("io")
            .read_batch("send", move |events, _| {
                sender.send(events.iter().copied().collect()).unwrap();
            })
            .batch_within(8, SOON / 5)
            .on("io")
            .run(|tx| {
                publish_all(&mut |i| _ = tx.publish(|slot| *slot = i).unwrap());
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn misplaced_options_are_errors_that_say_what_to_do() {
    let _watched = common::watched();
    let chain = || ring(8, || 0u64);
    for (chain, expected) in [
        (chain().read("each", |_, _| ()).batch_within(4, SOON), "takes single events"),
        (chain().read_pool("pool", 2, |_| |_, _| ()).batch_within(4, SOON), "`read_batch`"),
        (chain().batch_within(4, SOON).read("each", |_, _| ()), "must follow the stage"),
        (
            chain().read_by("own", |rx| rx.for_each(|_, _| ()).map(drop)).batch_within(4, SOON),
            "loop",
        ),
    ] {
        let error = chain.feed(0..1, |slot, i| *slot = i).unwrap_err();
        assert!(error.is_build() && error.to_string().contains(expected), "{error}");
    }
    let graph = Graph::new(8, || 0u64);
    let key = graph.reader("each").batch_within(4, SOON);
    let mut handlers = graph.build().unwrap().handlers();
    handlers.read(key, |_, _| ());
    let error = handlers.feed(0..1, |slot, i| *slot = i).unwrap_err();
    assert!(error.is_build() && error.to_string().contains("`read_batch`"), "{error}");
}

// Tasks.

#[test]
fn a_task_gathers() {
    let _watched = common::watched();
    let (mut tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    let woken = Unpark::new();
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    {
        let mut gathering = pin!(rx.batch_within_async(3, SOON, |_| pending::<()>()));
        assert!(gathering.as_mut().poll(&mut cx).is_pending());
        for i in 0..2 {
            tx.publish(|slot| *slot = i).unwrap();
            assert!(gathering.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(woken.wakes(), 2);
    } // dropped: no event is lost
    let mut slept = Vec::new();
    {
        let mut gathering = pin!(rx.batch_within_async(3, SOON, |time| {
            slept.push(time);
            async {}
        }));
        let Poll::Ready(Ok(batch)) = gathering.as_mut().poll(&mut cx) else { panic!("slept") };
        assert!(batch.iter().eq(&[0, 1]));
        batch.release();
    }
    assert!(slept.len() == 1 && slept[0] <= SOON, "the rest of the oldest event's time");
    tx.publish(|slot| *slot = 2).unwrap();
    {
        let mut gathering = pin!(rx.batch_within_async(3, SOON, |_| pending::<()>()));
        assert!(gathering.as_mut().poll(&mut cx).is_pending());
        drop(tx); // closes the ring, and wakes the task
        assert_eq!(woken.wakes(), 3);
        let Poll::Ready(Ok(batch)) = gathering.as_mut().poll(&mut cx) else { panic!("closed") };
        assert!(batch.iter().eq(&[2]));
        batch.release();
    }
    let mut ended = pin!(rx.batch_within_async(3, SOON, |_| pending::<()>()));
    assert!(matches!(ended.as_mut().poll(&mut cx), Poll::Ready(Err(WaitError::Closed))));
}

#[test]
fn a_halt_ends_a_task_that_gathers() {
    let _watched = common::watched();
    let (mut tx, mut rx) = slipring::unicast(8, || 0u64).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    tx.publish(|slot| *slot = 2).unwrap();
    let mut gathering = pin!(rx.batch_within_async(3, SOON, |_| pending::<()>()));
    assert!(gathering.as_mut().poll(&mut cx).is_pending());
    tx.halt();
    assert!(matches!(gathering.poll(&mut cx), Poll::Ready(Err(WaitError::Halted))));
}

/// The failure names the event for which the batch waited.
#[test]
fn a_deadline_names_the_event_behind_a_gathered_batch() {
    let _watched = common::watched();
    for as_task in [false, true] {
        let graph = Graph::new(16, || 0u64).deadline(SOON);
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        (0..5).for_each(|i| drop(tx.publish(|slot| *slot = i)));
        let gathered = match as_task {
            false => rx.batch_within(16, NEVER).map(|batch| batch.len()),
            true => {
                let mut cx = Context::from_waker(Waker::noop());
                let mut gathering = pin!(rx.batch_within_async(16, NEVER, |_| pending::<()>()));
                loop {
                    match gathering.as_mut().poll(&mut cx) {
                        Poll::Pending => thread::sleep(SOON),
                        Poll::Ready(gathered) => break gathered.map(|batch| batch.len()),
                    }
                }
            }
        };
        let Err(WaitError::Failed(failure)) = gathered else { panic!("{gathered:?}") };
        assert_eq!(failure.seq(), Some(5), "as a task: {as_task}");
    }
}

/// `slipring::ok()` and the loops over batches need no types.
#[test]
fn handlers_use_question_marks_and_loops() {
    let _watched = common::watched();
    let mut sum = 0;
    let done = ring(8, String::new)
        .update_batch("trim", |texts, _| {
            for text in &mut *texts {
                *text = text.trim().to_owned();
            }
            for text in &*texts {
                text.parse::<u64>()?;
            }
            slipring::ok()
        })
        .read("sum", |text, _| {
            sum += text.parse::<u64>()?;
            std::str::from_utf8(text.as_bytes())?;
            slipring::ok()
        })
        .feed(["1", " 2"], |slot, text| text.clone_into(slot))
        .unwrap();
    assert_eq!((sum, done.value), (3, 2));
    let error = ring(8, || 0u64)
        .read("parse", |_, _| {
            "x".parse::<u64>()?;
            slipring::ok()
        })
        .feed(0..1, |slot, i| *slot = i)
        .unwrap_err();
    assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());

    let graph = Graph::new(8, || 0u64);
    let key = graph.updater("double");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.updater(key));
    (1..4).for_each(|i| drop(tx.publish(|slot| *slot = i)));
    let mut batch = rx.batch(8).unwrap();
    for event in &mut batch {
        *event *= 2;
    }
    let mut seen = Vec::new();
    for event in &batch {
        seen.push(*event);
        if *event == 4 {
            break; // releases nothing
        }
    }
    assert_eq!((seen, batch.len()), (vec![2, 4], 3));
    batch.release();
}
