//! Rows of MIGRATING.md on the LMAX Disruptor: endings, many producers, and waiting.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    At, Graph, Wait,
    errors::{BatchError, Cause, ClaimError, JoinError, WaitError},
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

use crate::common::LIMIT;
use crate::{chain, graph, pair, until};

/// Returns a deadline of a few milliseconds, for calls that must time out.
fn short_deadline() -> Instant {
    Instant::now() + Duration::from_millis(5)
}
// Endings.

#[test]
fn halting_wakes_whoever_waits() {
    let _watched = crate::common::watched();
    for full in [false, true] {
        let graph = graph(4);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let closed = thread::scope(|scope| {
            let (tx, rx) = (&mut tx, &mut rx);
            let waits = scope.spawn(move || {
                if full {
                    tx.publish_all(0.., |_, _| ()).unwrap_err()
                } else {
                    rx.batch(1).map(drop).unwrap_err()
                }
            });
            ring.halt();
            waits.join().unwrap()
        });
        assert!(matches!(closed, WaitError::Halted));
        // The graph stays halted for every handle, and published events stay unseen.
        assert!(matches!(tx.publish(|_| ()), Err(WaitError::Halted)));
        assert!(matches!(rx.for_each(|_, _| ()), Err(WaitError::Halted)));
        assert!(ring.report().halted());
    }
}

#[test]
fn closing_drains() {
    let _watched = crate::common::watched();
    let seen = Arc::new(AtomicU64::new(0));
    let count = seen.clone();
    let (mut tx, pipeline) = chain(4)
        .update_pool("pool", 2, |_| |v, _| *v += 1)
        .read("last", move |v, _| _ = count.fetch_add(*v, SeqCst))
        .spawn()
        .unwrap();
    tx.publish_all(0..100, |slot, i| *slot = i).unwrap();
    tx.close();
    let report = pipeline.join().unwrap();
    assert_eq!((seen.load(SeqCst), report.halted()), (5050, false));
    assert!(report.stages().iter().all(|stage| stage.events == 100));
}

#[test]
fn a_slow_shutdown_says_who_runs() {
    let _watched = crate::common::watched();
    let (open, gate) = mpsc::channel::<()>();
    let (mut tx, pipeline) =
        chain(4).read("slow", move |_, _| gate.recv_timeout(LIMIT)).spawn().unwrap();
    tx.publish(|_| ()).unwrap();
    tx.close();
    let error = pipeline.join_within(Duration::from_millis(1)).unwrap_err();
    assert!(
        matches!(&error, JoinError::StillRunning { stage, .. } if &**stage == "slow"),
        "{error}"
    );
    open.send(()).unwrap();
    assert_eq!(pipeline.join_within(LIMIT).unwrap().stage("slow").unwrap().events, 1);
}

#[test]
fn a_drain_halts_at_its_limit() {
    let _watched = crate::common::watched();
    let (mut tx, pipeline) = chain(4).read("r", |_, _| ()).spawn().unwrap();
    tx.publish(|_| ()).unwrap();
    // The producer is still open. On a busy machine, the stage may not hear of the halt in time.
    let (JoinError::Halted { stage, .. } | JoinError::StillRunning { stage, .. }) =
        pipeline.drain(Duration::from_millis(1)).unwrap_err()
    else {
        panic!("no failure")
    };
    assert_eq!(&*stage, "r");
    assert!(pipeline.join().unwrap().halted());
}

#[test]
fn a_handler_comes_back() {
    let _watched = crate::common::watched();
    let (mut sum, mut back) = slipring::lend(0);
    let (mut tx, pipeline) = chain(4).read("r", move |v, _| *sum += v).spawn().unwrap();
    tx.publish_all(0..10, |slot, i| *slot = i).unwrap();
    tx.close();
    pipeline.join().unwrap();
    assert_eq!(back.wait(), Ok(45));
}

#[test]
fn a_wait_for_events_times_out() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let graph = graph(4).wait(wait);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let by = short_deadline();
        assert!(matches!(rx.batch_by(1, by), Err(BatchError::TimedOut(_))) && Instant::now() >= by);
        tx.publish(|v| *v = 5).unwrap();
        assert_eq!(rx.batch_by(1, short_deadline()).unwrap()[0], 5);
    }
}

#[test]
fn a_wait_for_room_times_out() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(2);
    tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
    let by = short_deadline();
    assert!(
        matches!(tx.publish_by(by, |_| ()), Err(ClaimError::TimedOut(stage)) if &*stage == "r")
            && Instant::now() >= by
    );
    assert!(matches!(tx.claim_by(short_deadline()), Err(ClaimError::TimedOut(_))));
    assert!(matches!(tx.claim_n_by(2, short_deadline()), Err(ClaimError::TimedOut(_))));
    assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
    assert_eq!(tx.publish_by(Instant::now() + LIMIT, |_| ()).unwrap(), 2);
}

#[test]
fn a_deadline_ends_the_graph() {
    let _watched = crate::common::watched();
    let after = Duration::from_millis(20);
    let graph = Graph::new(4, || 0u64).deadline(after);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let closed = rx.batch(1).map(drop).unwrap_err();
    let failure = closed.failure().unwrap();
    assert_eq!((&**failure.stage(), failure.seq()), ("r", Some(0)));
    assert!(matches!(failure.cause(), Cause::Deadline(limit) if *limit == after));
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::Failed(_))));
}

// Many producers, and waiting.

#[test]
fn many_producers_keep_their_order() {
    let _watched = crate::common::watched();
    let mut next = [0; 3];
    let mut count = 0;
    let check = |v: &u64, at: At| {
        let (producer, i) = (*v / 1000, *v % 1000);
        assert_eq!((i, at.seq), (next[producer as usize], count));
        next[producer as usize] += 1;
        count += 1;
    };
    let produce = |p: &mut slipring::SharedProducer<u64>| {
        thread::scope(|scope| {
            for producer in 0..3 {
                let mut p = p.clone();
                scope.spawn(move || {
                    p.publish_all(0..200, |slot, i| *slot = producer * 1000 + i).unwrap()
                });
            }
        });
        Ok(())
    };
    chain(8).read("r", check).run_shared(produce).unwrap();
    assert_eq!((next, count), ([200; 3], 600));
}

#[test]
fn every_wait_strategy_delivers() {
    let _watched = crate::common::watched();
    let names = Wait::all().map(|wait| wait.to_string());
    assert_eq!(names.each_ref().map(|name| name.parse::<Wait>().unwrap().to_string()), names);
    assert!("naps".parse::<Wait>().is_err());
    // The strategy that never yields needs cores of its own.
    for name in names.iter().filter(|name| *name != "busy-spin") {
        let mut sum = 0;
        chain(4)
            .wait(name.parse().unwrap())
            .update("a", |v, _| *v += 1)
            .read("b", |v, _| sum += v)
            .feed(0..50, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(sum, 50 * 51 / 2, "{name}");
    }
}

#[test]
fn a_strategy_may_time_out() {
    let _watched = crate::common::watched();
    let graph = graph(1).wait(Wait::Blocking.or_timeout(Duration::from_millis(1)));
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    assert!(matches!(rx.batch(1), Err(WaitError::TimedOut(_))));
    tx.publish(|slot| *slot = 1).unwrap();
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::TimedOut(_))));
    // No event is lost.
    assert_eq!(rx.batch(1).unwrap()[0], 1);
}

#[test]
fn each_stage_waits_in_its_own_way() {
    let _watched = crate::common::watched();
    let mut sum = 0;
    chain(4)
        .producer_wait(Wait::YIELDING)
        .update("a", |v, _| *v += 1)
        .stage_wait(Wait::SLEEPING)
        .read("b", |v, _| sum += v)
        .stage_wait(Wait::Blocking)
        .feed(0..50, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(sum, 50 * 51 / 2);
}

/// A strategy that spins, then yields, then parks. It counts the calls of `next_action`.
#[derive(Debug, Default)]
struct Phased(AtomicU64);

impl WaitStrategy for Phased {
    fn next_action(&self, waited: &WaitContext) -> WaitAction {
        self.0.fetch_add(1, SeqCst);
        match waited.polls {
            0..4 => WaitAction::Spin(1),
            4..8 => WaitAction::Yield,
            _ => WaitAction::Park,
        }
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "phased".into()
    }
}

#[test]
fn a_strategy_of_ones_own_is_asked() {
    let _watched = crate::common::watched();
    let phased = Arc::new(Phased::default());
    let graph = graph(4).wait(Wait::Custom(phased.clone()));
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    thread::scope(|scope| {
        let reads = scope.spawn(|| rx.for_each(|_, _| ()).unwrap());
        for round in 1..=3 {
            until("the reader parks", || phased.0.load(SeqCst) >= 9 * round);
            tx.publish(|_| ()).unwrap();
        }
        tx.close();
        assert_eq!(reads.join().unwrap(), 3);
    });
    assert!(ring.to_string().contains("phased"));
}
