//! User code where the library counts, pins or locks: whatever it does there, nothing stays
//! counted, pinned or locked.

mod common;

use std::mem::{replace, swap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::{Bomb, PURPOSE, ends};
use slipring::{
    BatchError, BuildError, Cause, ErrorKind, Graph, Learner, PRODUCER, Pool, Reader, ReaderKey,
    StartAt, Tap, Wait, WaitAction, WaitContext, WaitError, WaitStrategy,
};

// A build that fails when readers and workers have joined already.

/// Taps and pools can be joined as soon as they are bound, and a later stage may still be refused.
#[test]
fn members_that_joined_during_a_build_that_fails_are_told() {
    let _watched = crate::common::watched();
    ends("a reader", || {
        let (tap, kept) = (Tap::new(), Mutex::new(None));
        let refused = slipring::ring(4, || 0u64)
            .tap(&tap)
            .read_pool("pool", 1, |_| -> fn(&u64, slipring::At) {
                *kept.lock().unwrap() = Some(tap.subscribe(StartAt::Now).unwrap());
                panic!("{PURPOSE}")
            })
            .run(|_| Ok(()));
        assert!(matches!(
            refused.unwrap_err().kind(),
            ErrorKind::Build(BuildError::WorkerFactory { .. })
        ));
        let mut member = kept.into_inner().unwrap().unwrap();
        assert!(matches!(member.batch(1), Err(WaitError::Halted)));
        // The tap is free for the next run while the reader lives.
        let done = slipring::ring(4, || 0u64).tap(&tap).feed(0..8, |slot, i| *slot = i).unwrap();
        assert_eq!(done.report.producer().events, 8);
    });
    ends("a worker", || {
        let (pool, kept) = (Pool::reading(3), Mutex::new(None));
        let refused = slipring::ring(4, || 0u64)
            .read_pool("pool", 2, |_| |_: &u64, _| ())
            .open(&pool)
            .read_pool("late", 1, |_| -> fn(&u64, slipring::At) {
                *kept.lock().unwrap() = Some(pool.join().unwrap());
                panic!("{PURPOSE}")
            })
            .run(|_| Ok(()));
        assert!(matches!(
            refused.unwrap_err().kind(),
            ErrorKind::Build(BuildError::WorkerFactory { .. })
        ));
        let mut worker = kept.into_inner().unwrap().unwrap();
        assert!(matches!(worker.batch(1), Err(WaitError::Halted)));
        let done = slipring::ring(4, || 0u64)
            .read_pool("pool", 2, |_| |_: &u64, _| ())
            .open(&pool)
            .feed(0..8, |slot, i| *slot = i);
        assert_eq!(done.unwrap().report.producer().events, 8);
    });
}

// Strategies that panic when they are asked how they wait.

/// Panics at one of the questions that a build asks.
#[derive(Debug)]
struct Rude(&'static str);

impl Rude {
    fn asked<T>(&self, question: &str, answer: T) -> T {
        assert!(self.0 != question, "asked {question} {PURPOSE}");
        answer
    }
}

impl WaitStrategy for Rude {
    fn idle(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        self.asked("parks", false)
    }
    fn spins(&self) -> bool {
        self.asked("spins", false)
    }
    fn alias(&self) -> String {
        self.asked("alias", "rude".into())
    }
}

#[test]
fn a_strategy_that_panics_while_a_graph_is_built_refuses_it() {
    let _watched = crate::common::watched();
    for question in ["parks", "spins", "alias"] {
        let wait = || Wait::Custom(Arc::new(Rude(question)));
        let chain = || {
            let chain = slipring::ring(4, || 0u64).read("a", |_, _| ()).on("t").stage_wait(wait());
            chain.read("b", |_, _| ()).on("t").stage_wait(wait())
        };
        let graph = || {
            let graph = Graph::new(4, || 0u64).wait(wait());
            let key = graph.reader("r").wait(Wait::Custom(Arc::new(Rude(question))));
            let built = graph.build().map(drop);
            drop(key);
            built
        };
        let mut calls: Vec<Box<dyn FnOnce() -> Result<(), slipring::Error>>> = vec![
            Box::new(move || chain().feed(0..3, |slot, i| *slot = i).map(drop)),
            Box::new(move || chain().run_inline(|_| Ok(())).map(drop)),
            Box::new(move || chain().spawn().map(drop)),
        ];
        if question != "alias" {
            calls.push(Box::new(graph)); // it has no two strategies to tell apart
        }
        for call in calls {
            let error = catch_unwind(AssertUnwindSafe(call))
                .expect("no panic leaves the build")
                .unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Build(BuildError::Strategy { panic }) if panic.contains(question)),
                "{error}"
            );
        }
    }
}

// Strategies that learn, and panic when they are asked for a learner.

/// Its learners cannot be had while `bad` is set.
#[derive(Debug)]
struct Moody {
    bad: Arc<AtomicBool>,
    asked: AtomicU64,
    /// The first so many learners can be had all the same.
    good: u64,
}

impl WaitStrategy for Moody {
    fn idle(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Park
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "moody".into()
    }
    fn learner(&self) -> Option<Box<dyn Learner>> {
        let asked = self.asked.fetch_add(1, SeqCst);
        assert!(asked < self.good || !self.bad.load(SeqCst), "no learner {PURPOSE}");
        None
    }
}

fn moody(bad: bool, good: u64) -> (Arc<AtomicBool>, Wait) {
    let bad = Arc::new(AtomicBool::new(bad));
    (bad.clone(), Wait::Custom(Arc::new(Moody { bad, asked: AtomicU64::new(0), good })))
}

/// Runs what panics because no learner can be had.
fn refused<T>(bad: &AtomicBool, call: impl FnOnce() -> T) {
    bad.store(true, SeqCst);
    let caught = catch_unwind(AssertUnwindSafe(|| drop(call()))).unwrap_err();
    bad.store(false, SeqCst);
    assert!(caught.downcast_ref::<String>().is_some_and(|said| said.contains("no learner")));
}

#[test]
fn a_clone_without_a_learner_is_not_counted() {
    let _watched = crate::common::watched();
    ends("a producer's clone", || {
        let (bad, wait) = moody(false, 0);
        let graph = Graph::new(4, || 0u64).producer_wait(wait).shared();
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        refused(&bad, || tx.clone());
        refused(&bad, || ring.producer());
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
        let (bad, wait) = moody(false, 0);
        let graph = Graph::new(4, || 0u64).producer_wait(wait);
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let mut rx = ring.reader(key);
        refused(&bad, || ring.producer());
        refused(&bad, || ring.try_producer());
        assert!(ring.try_producer().is_some() && ring.try_producer().is_none());
        assert_eq!(rx.for_each(|_, _| ()).unwrap(), 0);
    });
}

#[test]
fn a_member_without_a_learner_is_not_pinned() {
    let _watched = crate::common::watched();
    ends("a member of a tap", || {
        let (bad, wait) = moody(false, 0);
        let graph = Graph::new(2, || 0u64);
        let (tap, end) = (graph.tap("tap", 1).wait(wait), graph.reader("end"));
        let ring = graph.build().unwrap();
        let (mut tx, tap, mut end) = (ring.producer(), ring.tap(tap), ring.reader(end));
        refused(&bad, || tap.subscribe(StartAt::Now));
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
fn a_worker_without_a_learner_is_not_hired() {
    let _watched = crate::common::watched();
    ends("a worker that joins", || {
        let (bad, wait) = moody(false, 0);
        let graph = Graph::new(2, || 0u64);
        let pool = graph.pool_reader("pool", 1).room(2).wait(wait);
        let ring = graph.build().unwrap();
        let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
        let pool = workers[0].pool();
        refused(&bad, || pool.join());
        drop(pool.join().unwrap()); // its seat is free
        drop(workers.pop());
        let closed = tx.publish(|_| ()).unwrap_err();
        assert_eq!(
            closed.failure().map(|failure| failure.stage().to_string()),
            Some("pool".into())
        );
    });
}

/// The stage can never be attached to, and the graph says so.
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
            refused(bad, || ring.reader(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("writer", |bad, wait, _| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.writer("x").wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            refused(bad, || ring.writer(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("pool that reads", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.pool_reader("x", 1 + few as usize).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            refused(bad, || ring.pool_readers(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("pool that writes", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.pool_writer("x", 1 + few as usize).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            refused(bad, || ring.pool_writers(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("shards that read", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.shard_reader("x", 1 + few as usize, |v| *v).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            refused(bad, || ring.shard_readers(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
        ("shards that write", |bad, wait, few| {
            let graph = Graph::new(8, || 0u64);
            let key = graph.shard_writer("x", 1 + few as usize, |v| *v).wait(wait);
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            refused(bad, || ring.shard_writers(key));
            tx.publish_all(0..20, |slot, i| *slot = i).unwrap_err()
        }),
    ];
    for (what, attach) in ways {
        for good in [0, 2] {
            if good != 0 && matches!(what, "reader" | "writer") {
                continue;
            }
            let closed = ends(&format!("{what}, {good} good"), move || {
                let (bad, wait) = moody(false, good);
                attach(&bad, wait, good)
            });
            assert_eq!(
                closed.failure().map(|failure| failure.stage().to_string()),
                Some("x".into()),
                "{what}: {closed}"
            );
        }
    }
}

/// In a chain it fails the graph, and the error names whom it was for.
#[test]
fn a_chain_whose_strategy_has_no_learner_fails() {
    let _watched = crate::common::watched();
    for good in 0..4 {
        for front in ["feed", "shared", "inline", "spawn", "together"] {
            let error = ends(&format!("{front}, {good} good"), move || {
                let (_bad, wait) = moody(true, good);
                let chain = slipring::ring(4, || 0u64).wait(wait).write("a", |_, _| ());
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
                matches!(failure.cause(), Cause::Panic(said) if said.contains("no learner")),
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

/// What a handle has counted is counted once, though its strategy panics in the middle of a wait.
#[test]
fn a_wait_that_panics_counts_nothing_twice() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct Tired;
    impl WaitStrategy for Tired {
        fn idle(&self, waited: &WaitContext) -> WaitAction {
            assert!(waited.polls < 5, "tired {PURPOSE}");
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "tired".into()
        }
    }
    ends("counts", || {
        let graph = Graph::new(2, || 0u64).wait(Wait::Custom(Arc::new(Tired)));
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        for _ in 0..3 {
            tx.publish(|_| ()).unwrap();
            assert_eq!(rx.poll(1, |_, _| ()).unwrap(), 1);
            assert!(catch_unwind(AssertUnwindSafe(|| drop(rx.batch(1)))).is_err());
        }
        drop((tx, rx));
        assert_eq!(
            ring.report().stage("r").map(|stage| (stage.events, stage.batches)),
            Some((3, 3))
        );
    });
}

/// A learner that panics, and panics again when it goes: two panics at once would be an abort.
#[test]
fn a_learner_that_panics_twice() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct Worse;
    impl Learner for Worse {
        fn idle(&mut self, _: &WaitContext) -> WaitAction {
            panic!("learned nothing {PURPOSE}")
        }
        fn over(&mut self, _: &WaitContext, _: bool) {}
    }
    impl Drop for Worse {
        fn drop(&mut self) {
            panic!("and worse {PURPOSE}")
        }
    }
    #[derive(Debug)]
    struct Teaches;
    impl WaitStrategy for Teaches {
        fn idle(&self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "worse".into()
        }
        fn learner(&self) -> Option<Box<dyn Learner>> {
            Some(Box::new(Worse))
        }
    }
    ends("a learner that panics twice", || {
        let graph = Graph::new(1, || 0u64).wait(Wait::Custom(Arc::new(Teaches)));
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        let caught = catch_unwind(AssertUnwindSafe(|| drop(rx.batch(1)))).unwrap_err();
        assert!(
            caught.downcast_ref::<String>().is_some_and(|said| said.contains("learned nothing"))
        );
        tx.publish(|_| ()).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(move || {
            // full: it waits, and its handle goes while the thread unwinds
            let _ = tx.publish(|_| ());
        }))
        .unwrap_err();
        assert!(
            caught.downcast_ref::<String>().is_some_and(|said| said.contains("learned nothing"))
        );
        assert!(
            matches!(rx.batch(1).err(), Some(WaitError::Failed(failure)) if &**failure.stage() == PRODUCER)
        );
        drop(rx); // its learner's panic goes no further
    });
}

// Handles that user code has as `&mut`, and moves away.

fn another() -> (slipring::Producer<u64>, Reader<u64>) {
    slipring::unicast(4, || 0u64).unwrap()
}

/// The failure that a chain ends with whose stage `own` has a loop of this kind.
fn with_a_loop(run: impl FnOnce(&mut Reader<u64>) + Send + 'static) -> slipring::Error {
    ends("a loop of its own", move || {
        slipring::ring(4, || 0u64)
            .read("before", |_, _| ())
            .read_by("own", run)
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err()
    })
}

#[track_caller]
fn dropped(error: &slipring::Error, stage: &str) {
    assert!(
        error.stage() == Some(stage) && matches!(error.failure().unwrap().cause(), Cause::Dropped),
        "{error}"
    );
}

#[test]
fn a_reader_that_is_moved_out_of_its_loop_fails_the_graph() {
    let _watched = crate::common::watched();
    // It lives on in another thread, which never looks at it.
    let (keep, kept) = mpsc::channel::<Reader<u64>>();
    let error = with_a_loop(move |rx| {
        let (_, other) = another();
        keep.send(replace(rx, other)).unwrap();
    });
    dropped(&error, "own");
    assert!(matches!(
        kept.recv().unwrap().try_batch(1),
        Err(BatchError::Wait(WaitError::Failed(_)))
    ));
    // It is read to its end elsewhere: all is well.
    ends("read elsewhere", || {
        let done = slipring::ring(4, || 0u64)
            .read_by("own", |rx| {
                let (_, other) = another();
                let mut own = replace(rx, other);
                thread::spawn(move || own.for_each(|_, _| ())).join().unwrap().unwrap();
            })
            .read("behind", |_, _| ())
            .feed(0..100, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(done.report.stage("behind").unwrap().events, 100);
    });
}

/// The other reader is of a stage with a larger number, which this graph does not have.
#[test]
fn a_reader_of_a_larger_graph_in_a_loop() {
    let _watched = crate::common::watched();
    for panics in [false, true] {
        let graph = Graph::new(4, || 0u64);
        let keys: Vec<ReaderKey> = (0..5).map(|i| graph.reader(&format!("s{i}"))).collect();
        let ring = graph.build().unwrap();
        let mut readers: Vec<Reader<u64>> = keys.into_iter().map(|key| ring.reader(key)).collect();
        let mut last = readers.pop().unwrap();
        let (keep, kept) = mpsc::channel();
        let error = with_a_loop(move |rx| {
            swap(rx, &mut last);
            keep.send(last).unwrap();
            assert!(!panics, "swapped {PURPOSE}");
        });
        assert_eq!(error.stage(), Some("own"), "{error}");
        if panics {
            assert!(matches!(error.failure().unwrap().cause(), Cause::Panic(_)), "{error}");
            assert_eq!(error.seq(), None, "{error}");
        } else {
            dropped(&error, "own");
        }
        drop(kept);
        // The loop's end was the end of the other one, too.
        assert_eq!(
            ring.producer()
                .publish(|_| ())
                .unwrap_err()
                .failure()
                .map(|failure| failure.stage().to_string()),
            Some("s4".into())
        );
    }
}

/// The handle of a stage that may skip what fails: its policy is not this stage's.
#[test]
fn a_failure_in_a_loop_with_a_strange_reader_is_its_own() {
    let _watched = crate::common::watched();
    for panics in [false, true] {
        ends(&format!("a strange reader and a policy, panics: {panics}"), move || {
            let (keep, kept) = mpsc::channel();
            let skip = slipring::OnFault::skip();
            let error = slipring::ring(4, || 0u64)
                .read("lenient", |_, _| ())
                .on_error(skip)
                .on_panic(skip)
                .read_by("own", move |rx| {
                    // Its stage has the number that the lenient one has here.
                    keep.send(replace(rx, another().1)).unwrap();
                    assert!(!panics, "swapped {PURPOSE}");
                    Err(common::Oops(3))
                })
                .feed(0..100, |slot, i| *slot = i)
                .unwrap_err();
            assert_eq!(error.stage(), Some("own"), "{error}");
            assert!(
                panics || error.downcast_ref::<common::Oops>() == Some(&common::Oops(3)),
                "{error}"
            );
            drop(kept);
        });
    }
    // Nested: the inner chain's first stage may skip, and has the number of the outer chain's loop.
    ends("a strange reader of an inner chain", || {
        let error = slipring::ring(4, || 0u64)
            .read_by("outer", |outer| {
                let inner = slipring::ring(4, || 0u64)
                    .read_by("inner", |inner| {
                        swap(outer, inner);
                        Err(common::Oops(4))
                    })
                    .feed(0..100, |slot, i| *slot = i);
                let inner = inner.unwrap_err();
                assert_eq!(
                    (inner.stage(), inner.downcast_ref()),
                    (Some("inner"), Some(&common::Oops(4))),
                    "{inner}"
                );
            })
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err();
        dropped(&error, "outer");
    });
}

#[test]
fn two_loops_that_exchange_their_readers() {
    let _watched = crate::common::watched();
    for close in [false, true] {
        let error = ends(&format!("exchanged, read: {close}"), move || {
            let (to_b, from_a) = mpsc::channel::<Reader<u64>>();
            let (to_a, from_b) = mpsc::channel::<Reader<u64>>();
            let exchange = move |rx: &mut Reader<u64>,
                                 give: mpsc::Sender<Reader<u64>>,
                                 take: mpsc::Receiver<Reader<u64>>| {
                give.send(replace(rx, another().1)).unwrap();
                *rx = take.recv().unwrap();
                if close {
                    let _ = rx.for_each(|_, _| ());
                }
            };
            slipring::ring(4, || 0u64)
                .fan_out(|side| {
                    side.read_by("a", move |rx| exchange(rx, to_b, from_b))
                        .read_by("b", move |rx| exchange(rx, to_a, from_a))
                })
                .feed(0..100, |slot, i| *slot = i)
                .map(drop)
        });
        // Read to the end, or seen as gone while the other loop still reads: never a hang, never a
        // wrong stage.
        match error {
            Ok(()) => assert!(close),
            Err(error) => assert!(matches!(error.stage(), Some("a" | "b")), "{error}"),
        }
    }
}

/// Forgotten, and put back: only where the handle is when the loop comes back counts.
#[test]
fn a_reader_that_is_put_back_is_fine() {
    let _watched = crate::common::watched();
    ends("swapped to and fro", || {
        slipring::ring(4, || 0u64)
            .read_by("own", |rx| {
                let (_other_tx, mut other) = another();
                swap(rx, &mut other);
                let _ = other.for_each(|_, _| ());
                swap(rx, &mut other);
            })
            .feed(0..100, |slot, i| *slot = i)
            .unwrap();
    });
    let error = ends("forgotten", || {
        slipring::ring(4, || 0u64)
            .write_by("own", |rx| {
                let graph = Graph::new(4, || 0u64);
                let key = graph.writer("w");
                let ring = graph.build().unwrap();
                static LOST: Mutex<Vec<Box<dyn std::any::Any + Send>>> = Mutex::new(Vec::new());
                LOST.lock().unwrap().push(Box::new(replace(rx, ring.writer(key))));
            })
            .feed(0..100, |slot, i| *slot = i)
            .unwrap_err()
    });
    dropped(&error, "own");
}

// User code and locks.

/// A strategy that has a key of the graph that it is a strategy of.
struct Keeper(#[allow(dead_code)] Mutex<Option<ReaderKey>>);

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("keeper")
    }
}

impl WaitStrategy for Keeper {
    fn idle(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "keeper".into()
    }
}

#[test]
fn a_strategy_that_is_replaced_may_have_a_key_of_the_graph() {
    let _watched = crate::common::watched();
    let error = ends("a key in a strategy", || {
        let graph = Graph::new(4, || 0u64);
        let gone = graph.reader("gone");
        let key = graph.reader("r").wait(Wait::Custom(Arc::new(Keeper(Mutex::new(Some(gone))))));
        let key = key.wait(Wait::Blocking);
        let error = graph.build().err().unwrap();
        drop(key);
        error
    });
    assert!(error.to_string().contains("gone"), "{error}");
    // Refused, because the graph was built: it goes with the panic, and the lock is free.
    ends("a key in a strategy, too late", || {
        let graph = Graph::new(4, || 0u64);
        let (gone, key) = (graph.reader("gone"), graph.reader("r"));
        let ring = graph.build().unwrap();
        let wait = Wait::Custom(Arc::new(Keeper(Mutex::new(Some(gone)))));
        let caught = catch_unwind(AssertUnwindSafe(|| drop(key.wait(wait)))).unwrap_err();
        assert!(caught.downcast_ref::<String>().is_some_and(|said| said.contains("built already")));
        assert!(ring.producer().publish(|_| ()).is_err());
    });
}

/// A learner is asked for, and let go, where the ring may be asked for anything.
#[test]
fn a_learner_may_ask_the_ring_for_a_producer() {
    let _watched = crate::common::watched();
    type Asks = Arc<Mutex<Option<Arc<slipring::Ring<u64>>>>>;
    struct Asking(Asks);
    impl std::fmt::Debug for Asking {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("asking")
        }
    }
    #[derive(Debug)]
    struct Goes(Option<Box<Asking>>);
    impl Learner for Goes {
        fn idle(&mut self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn over(&mut self, _: &WaitContext, _: bool) {}
    }
    impl Drop for Goes {
        fn drop(&mut self) {
            if let Some(asking) = self.0.take() {
                asking.ask();
            }
        }
    }
    impl Asking {
        fn ask(&self) {
            let ring = self.0.try_lock().ok().and_then(|mut ring| ring.take());
            if let Some(ring) = ring {
                drop(ring.try_producer());
                *self.0.lock().unwrap() = Some(ring);
            }
        }
    }
    impl WaitStrategy for Asking {
        fn idle(&self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "asking".into()
        }
        fn learner(&self) -> Option<Box<dyn Learner>> {
            self.ask();
            Some(Box::new(Goes(Some(Box::new(Asking(self.0.clone()))))))
        }
    }
    ends("a learner that asks for a producer", || {
        let ring: Asks = Arc::default();
        let graph =
            Graph::new(4, || 0u64).producer_wait(Wait::Custom(Arc::new(Asking(ring.clone()))));
        let built = Arc::new(graph.build().unwrap());
        *ring.lock().unwrap() = Some(built.clone());
        let first = built.try_producer();
        assert!(built.try_producer().is_none());
        *ring.lock().unwrap() = None;
        drop(first);
    });
}

/// Payloads that panic when they are dropped, thrown by a learner's maker.
#[test]
fn a_learner_that_throws_a_bomb() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct Throws;
    impl WaitStrategy for Throws {
        fn idle(&self, _: &WaitContext) -> WaitAction {
            WaitAction::Yield
        }
        fn parks(&self) -> bool {
            false
        }
        fn alias(&self) -> String {
            "throws".into()
        }
        fn learner(&self) -> Option<Box<dyn Learner>> {
            std::panic::panic_any(Bomb)
        }
    }
    let error = ends("bombs instead of learners", || {
        let tap = Tap::<u64>::new();
        let wait = Wait::Custom(Arc::new(Throws));
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
