//! Strategies whose learner factory, learner or wait panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipring::{
    Graph, Tap, Wait,
    errors::{Cause, WaitError},
    handles::StartAt,
    stages::PRODUCER,
    waiting::{WaitAction, WaitContext, WaitLearner, WaitStrategy},
};

use crate::common::{Bomb, PURPOSE, ends};

/// A strategy whose learner factory panics while `bad` is set.
#[derive(Debug)]
struct NoLearner {
    bad: Arc<AtomicBool>,
    /// Number of learners asked for.
    asked: AtomicU64,
    /// The first `good` learners are made even if `bad` is set.
    good: u64,
}

impl WaitStrategy for NoLearner {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Park
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "no learner".into()
    }
    fn learner(&self) -> Option<Box<dyn WaitLearner>> {
        let asked = self.asked.fetch_add(1, SeqCst);
        assert!(asked < self.good || !self.bad.load(SeqCst), "no learner {PURPOSE}");
        None
    }
}

fn no_learner(bad: bool, good: u64) -> (Arc<AtomicBool>, Wait) {
    let bad = Arc::new(AtomicBool::new(bad));
    (bad.clone(), Wait::Custom(Arc::new(NoLearner { bad, asked: AtomicU64::new(0), good })))
}

/// Asserts that `call` panics because no learner can be made.
fn panics<T>(bad: &AtomicBool, call: impl FnOnce() -> T) {
    bad.store(true, SeqCst);
    let caught = catch_unwind(AssertUnwindSafe(|| drop(call()))).unwrap_err();
    bad.store(false, SeqCst);
    assert!(caught.downcast_ref::<String>().is_some_and(|message| message.contains("no learner")));
}

#[test]
fn a_clone_without_a_learner_is_not_counted() {
    let _watched = crate::common::watched();
    ends("a producer's clone", || {
        let (bad, wait) = no_learner(false, 0);
        let graph = Graph::new(4, || 0u64).producer_wait(wait).shared();
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        panics(&bad, || tx.clone());
        panics(&bad, || ring.producer());
        drop(ring);
        tx.publish(|_| ()).unwrap();
        drop(tx); // the last one closes
        assert_eq!(rx.for_each(|_, _| ()).unwrap(), 1);
    });
}

#[test]
fn a_single_producer_without_a_learner_is_not_taken() {
    let _watched = crate::common::watched();
    ends("a single producer", || {
        let (bad, wait) = no_learner(false, 0);
        let graph = Graph::new(4, || 0u64).producer_wait(wait);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let mut rx = ring.reader(key);
        panics(&bad, || ring.producer());
        panics(&bad, || ring.try_producer());
        assert!(ring.try_producer().is_some() && ring.try_producer().is_none());
        assert_eq!(rx.for_each(|_, _| ()).unwrap(), 0);
    });
}

#[test]
fn a_member_without_a_learner_is_not_pinned() {
    let _watched = crate::common::watched();
    ends("a member of a tap", || {
        let (bad, wait) = no_learner(false, 0);
        let graph = Graph::new(2, || 0u64);
        let (tap, end) = (graph.tap("tap", 1).wait(wait), graph.reader("end"));
        let ring = graph.build().unwrap();
        let (mut tx, tap, mut end) = (ring.producer(), ring.tap(tap), ring.reader(end));
        panics(&bad, || tap.subscribe(StartAt::Now));
        for _ in 0..3 {
            tx.try_publish(|_| ()).unwrap();
            end.poll(9, |_, _| ()).unwrap();
        }
        // Its seat is free.
        let mut member = tap.subscribe(StartAt::Now).unwrap();
        tx.publish(|_| ()).unwrap();
        assert_eq!(member.poll(9, |_, _| ()).unwrap(), 1);
    });
}

#[test]
fn a_worker_without_a_learner_does_not_join() {
    let _watched = crate::common::watched();
    ends("a worker that joins", || {
        let (bad, wait) = no_learner(false, 0);
        let graph = Graph::new(2, || 0u64);
        let pool = graph.pool_reader("pool", 1).room(2).wait(wait);
        let ring = graph.build().unwrap();
        let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
        let pool = workers[0].pool();
        panics(&bad, || pool.join());
        drop(pool.join().unwrap()); // its seat is free
        drop(workers.pop());
        let closed = tx.publish(|_| ()).unwrap_err();
        assert_eq!(
            closed.failure().map(|failure| failure.stage().to_string()),
            Some("pool".into())
        );
    });
}

/// If a stage's handles cannot be made, the stage fails its graph.
#[test]
fn a_stage_without_a_learner_fails_its_graph() {
    let _watched = crate::common::watched();
    type Attach = fn(&AtomicBool, Wait, u64) -> WaitError;
    let ways: [(&str, Attach); 6] = [
        ("reader", |bad, wait, _| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.reader("x").wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            panics(bad, || ring.reader(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("writer", |bad, wait, _| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.updater("x").wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            panics(bad, || ring.updater(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("pool that reads", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.pool_reader("x", 1 + few as usize).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            panics(bad, || ring.pool_readers(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("pool that writes", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.pool_updater("x", 1 + few as usize).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            panics(bad, || ring.pool_updaters(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("shards that read", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.shard_reader("x", 1 + few as usize, |v| *v).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            panics(bad, || ring.shard_readers(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("shards that write", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.shard_updater("x", 1 + few as usize, |v| *v).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            panics(bad, || ring.shard_updaters(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
    ];
    for (kind, attach) in ways {
        for good in [0, 2] {
            if good != 0 && matches!(kind, "reader" | "writer") {
                continue;
            }
            let closed = ends(&format!("{kind}, {good} good"), move || {
                let (bad, wait) = no_learner(false, good);
                attach(&bad, wait, good)
            });
            assert_eq!(
                closed.failure().map(|failure| failure.stage().to_string()),
                Some("x".into()),
                "{kind}: {closed}"
            );
        }
    }
}

/// The error of a chain names the stage (or the producer) whose learner was not made.
#[test]
fn a_chain_whose_strategy_has_no_learner_fails() {
    let _watched = crate::common::watched();
    for good in 0..4 {
        for front in ["feed", "shared", "inline", "spawn", "together"] {
            let error = ends(&format!("{front}, {good} good"), move || {
                let (_bad, wait) = no_learner(true, good);
                let chain = slipring::ring(4, || 0u64).wait(wait).update("a", |_, _| ());
                let chain = if front == "together" {
                    chain.on("t").read("b", |_, _| ()).on("t")
                } else {
                    chain.read_pool("b", 2, |_| |_, _| ())
                };
                match front {
                    "shared" => chain
                        .run_shared(|p| Ok(p.clone().publish_all(0..9, |slot, i| *slot = i)?))
                        .map(drop),
                    "inline" => chain
                        .run_inline(|p| Ok(p.publish_all(0..9, |slot, i| *slot = i)?))
                        .map(drop),
                    "spawn" => chain.spawn().and_then(|(mut tx, pipeline)| {
                        let _ = tx.publish_all(0..9, |slot, i| *slot = i);
                        drop(tx);
                        pipeline.join().map(drop)
                    }),
                    _ => chain.feed(0..9, |slot, i| *slot = i).map(drop),
                }
                .unwrap_err()
            });
            let failure = error.failure().unwrap_or_else(|| panic!("{error}"));
            assert!(
                matches!(failure.cause(), Cause::Panic(message) if message.contains("no learner")),
                "{front}, {good}: {error}"
            );
            let party: &[&str] = match (front, good) {
                (_, 0) => &["a"],
                ("together", 1) => &["b"],
                ("together", 2) => &[PRODUCER],
                ("together", _) => &["a"],
                (_, 1 | 2) => &["b"],
                _ => &[PRODUCER],
            };
            assert!(party.contains(&&**failure.stage()), "{front}, {good}: {error}");
        }
    }
}

/// A handle's events and batches are counted once although its strategy panics during a wait,
/// whether or not the wait has flushed the counts, as it does before it sleeps.
#[test]
fn a_wait_that_panics_counts_each_event_once() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct PanicsAfterFive(WaitAction);
    impl WaitStrategy for PanicsAfterFive {
        fn next_action(&self, waited: &WaitContext) -> WaitAction {
            assert!(waited.polls < 5, "tired {PURPOSE}");
            self.0
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "panics after five".into()
        }
    }
    ends("counts", || {
        for action in [WaitAction::Yield, WaitAction::Sleep(Duration::from_micros(1))] {
            let wait = Wait::Custom(Arc::new(PanicsAfterFive(action)));
            let graph = Graph::new(1, || 0u64).wait(wait);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            for _ in 0..3 {
                tx.publish(|_| ()).unwrap();
                assert!(catch_unwind(AssertUnwindSafe(|| tx.publish(|_| ()))).is_err());
                assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
                assert!(catch_unwind(AssertUnwindSafe(|| drop(rx.batch(1)))).is_err());
            }
            drop((tx, rx));
            for party in ["r", PRODUCER] {
                let report = ring.report();
                let counts = report.stage(party).map(|party| (party.events, party.batches));
                assert_eq!(counts, Some((3, 3)), "{party}, {action:?}");
            }
        }
    });
}

/// A learner panics in `idle` and again on drop. Two panics at once would abort the process.
#[test]
fn a_learner_that_panics_again_on_drop_does_not_abort() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct PanicsTwice;
    impl WaitLearner for PanicsTwice {
        fn next_action(&mut self, _: &WaitContext) -> WaitAction {
            panic!("learned nothing {PURPOSE}")
        }
        fn wait_ended(&mut self, _: &WaitContext, _: bool) {}
    }
    impl Drop for PanicsTwice {
        fn drop(&mut self) {
            panic!("and worse {PURPOSE}")
        }
    }
    #[derive(Debug)]
    struct HasLearner;
    impl WaitStrategy for HasLearner {
        fn next_action(&self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "panics twice".into()
        }
        fn learner(&self) -> Option<Box<dyn WaitLearner>> {
            Some(Box::new(PanicsTwice))
        }
    }
    ends("a learner that panics twice", || {
        let graph = Graph::new(1, || 0u64).wait(Wait::Custom(Arc::new(HasLearner)));
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let caught = catch_unwind(AssertUnwindSafe(|| drop(rx.batch(1)))).unwrap_err();
        assert!(
            caught
                .downcast_ref::<String>()
                .is_some_and(|message| message.contains("learned nothing"))
        );
        tx.publish(|_| ()).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(move || {
            // The ring is full, so the producer waits. Its handle is dropped during the unwinding.
            let _ = tx.publish(|_| ());
        }))
        .unwrap_err();
        assert!(
            caught
                .downcast_ref::<String>()
                .is_some_and(|message| message.contains("learned nothing"))
        );
        assert!(
            matches!(rx.batch(1).err(), Some(WaitError::Failed(failure)) if &**failure.stage() == PRODUCER)
        );
        drop(rx); // the library catches the panic of its learner's drop
    });
}

/// The library holds none of its locks while it makes or drops a learner, so the code that makes or
/// drops one may use the ring.
#[test]
fn a_learner_may_ask_the_ring_for_a_producer() {
    let _watched = crate::common::watched();
    type SharedRing = Arc<Mutex<Option<Arc<slipring::Ring<u64>>>>>;
    struct AsksRing(SharedRing);
    impl std::fmt::Debug for AsksRing {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("asks ring")
        }
    }
    #[derive(Debug)]
    struct AsksOnDrop(Option<Box<AsksRing>>);
    impl WaitLearner for AsksOnDrop {
        fn next_action(&mut self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn wait_ended(&mut self, _: &WaitContext, _: bool) {}
    }
    impl Drop for AsksOnDrop {
        fn drop(&mut self) {
            if let Some(asking) = self.0.take() {
                asking.ask();
            }
        }
    }
    impl AsksRing {
        fn ask(&self) {
            let ring = self.0.try_lock().ok().and_then(|mut ring| ring.take());
            if let Some(ring) = ring {
                drop(ring.try_producer());
                *self.0.lock().unwrap() = Some(ring);
            }
        }
    }
    impl WaitStrategy for AsksRing {
        fn next_action(&self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "asks ring".into()
        }
        fn learner(&self) -> Option<Box<dyn WaitLearner>> {
            self.ask();
            Some(Box::new(AsksOnDrop(Some(Box::new(AsksRing(self.0.clone()))))))
        }
    }
    ends("a learner that asks for a producer", || {
        let ring: SharedRing = Arc::default();
        let graph =
            Graph::new(4, || 0u64).producer_wait(Wait::Custom(Arc::new(AsksRing(ring.clone()))));
        let built = Arc::new(graph.build().unwrap());
        *ring.lock().unwrap() = Some(built.clone());
        let first = built.try_producer();
        assert!(built.try_producer().is_none());
        *ring.lock().unwrap() = None;
        drop(first);
    });
}

/// A learner factory panics with a payload that panics on drop.
#[test]
fn a_learner_factory_whose_panic_payload_panics_on_drop_fails_its_stage() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct LearnerPanics;
    impl WaitStrategy for LearnerPanics {
        fn next_action(&self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "learner panics".into()
        }
        fn learner(&self) -> Option<Box<dyn WaitLearner>> {
            std::panic::panic_any(Bomb)
        }
    }
    let error = ends("learner factories that panic", || {
        let tap = Tap::<u64>::new();
        let wait = Wait::Custom(Arc::new(LearnerPanics));
        slipring::ring(4, || 0u64)
            .deadline(Duration::from_secs(30))
            .wait(wait)
            .read("r", |_, _| ())
            .tap(&tap)
            .feed(0..9, |slot, i| *slot = i)
            .unwrap_err()
    });
    assert_eq!(error.stage(), Some("r"), "{error}");
}
