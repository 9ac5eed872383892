//! Builds that fail after members have joined, and strategies that panic in a build or own a key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use slipring::{
    Graph, Pool, Tap, Wait,
    errors::{BuildError, ErrorKind, WaitError},
    handles::StartAt,
    stages::ReaderKey,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

use crate::common::{PURPOSE, ends};

/// A tap or a pool can be joined before the build is complete, and the build may still fail at a
/// later stage.
#[test]
fn a_member_that_joined_during_a_failed_build_is_halted() {
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
        // Although the reader still lives, the tap is free for the next run.
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

/// A strategy that panics in the named method; a build calls each method.
#[derive(Debug)]
struct PanicsAt(&'static str);

impl PanicsAt {
    fn answer<T>(&self, question: &str, value: T) -> T {
        assert!(self.0 != question, "asked {question} {PURPOSE}");
        value
    }
}

impl WaitStrategy for PanicsAt {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        self.answer("parks", false)
    }
    fn spins(&self) -> bool {
        self.answer("spins", false)
    }
    fn alias(&self) -> String {
        self.answer("alias", "panics at".into())
    }
}

#[test]
fn a_strategy_that_panics_during_a_build_is_a_build_error() {
    let _watched = crate::common::watched();
    for question in ["parks", "spins", "alias"] {
        let wait = || Wait::Custom(Arc::new(PanicsAt(question)));
        let chain = || {
            let chain = slipring::ring(4, || 0u64).read("a", |_, _| ()).on("t").stage_wait(wait());
            chain.read("b", |_, _| ()).on("t").stage_wait(wait())
        };
        let graph = || {
            let graph = Graph::new(4, || 0u64).wait(wait());
            let key = graph.reader("r").wait(Wait::Custom(Arc::new(PanicsAt(question))));
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
            calls.push(Box::new(graph)); // a graph does not compare its stages' strategies
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

/// A strategy that owns a key of its own graph.
struct OwnsKey(#[allow(dead_code)] Mutex<Option<ReaderKey>>);

impl std::fmt::Debug for OwnsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("owns key")
    }
}

impl WaitStrategy for OwnsKey {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "owns key".into()
    }
}

#[test]
fn a_replaced_strategy_may_own_a_key_of_its_graph() {
    let _watched = crate::common::watched();
    let error = ends("a key in a strategy", || {
        let graph = Graph::new(4, || 0u64);
        let gone = graph.reader("gone");
        let key = graph.reader("r").wait(Wait::Custom(Arc::new(OwnsKey(Mutex::new(Some(gone))))));
        let key = key.wait(Wait::Blocking);
        let error = graph.build().err().unwrap();
        drop(key);
        error
    });
    assert!(error.to_string().contains("gone"), "{error}");
    // A built graph refuses the strategy by a panic, and drops the strategy outside of its lock.
    ends("a key in a strategy, too late", || {
        let graph = Graph::new(4, || 0u64);
        let (gone, key) = (graph.reader("gone"), graph.reader("r"));
        let ring = graph.build().unwrap();
        let wait = Wait::Custom(Arc::new(OwnsKey(Mutex::new(Some(gone)))));
        let caught = catch_unwind(AssertUnwindSafe(|| drop(key.wait(wait)))).unwrap_err();
        assert!(
            caught
                .downcast_ref::<String>()
                .is_some_and(|message| message.contains("built already"))
        );
        assert!(ring.producer().publish(|_| ()).is_err());
    });
}
