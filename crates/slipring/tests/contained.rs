//! If the drop of a user's value panics, the library call that dropped it still returns its error,
//! and the process does not abort.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{Fragile, Oops, PURPOSE, ends};
use slipring::{
    Error, Graph, OnFault, Pool, Tap, Wait,
    errors::BuildError,
    faults::Marks,
    stages::PRODUCER,
    waiting::{WaitAction, WaitContext, WaitLearner, WaitStrategy},
};

/// Returns the result of a call that must not panic.
fn contained<T>(name: &str, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| panic!("a panic left the call: {name}"))
}

/// Asserts that the graph failed by a panic that was made on purpose.
fn failed(name: &str, call: impl FnOnce() -> Result<(), Error>) {
    let error = contained(name, call).expect_err(name);
    assert!(error.to_string().contains(PURPOSE), "{name}: {error}");
    assert!(error.failure().is_some(), "{name}: {error}");
}

/// Asserts that the build failed, and returns its error.
fn refused(name: &str, call: impl FnOnce() -> Result<(), Error>) -> BuildError {
    let error = contained(name, call).expect_err(name);
    match error.kind() {
        slipring::errors::ErrorKind::Build(problem) => problem.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_hook_whose_drop_panics_fails_the_graph() {
    let _watched = crate::common::watched();
    ends("hooks", || {
        let hook = |own: Fragile| move |_: &slipring::faults::Faulted| _ = &own;
        let start = |own: Fragile| move |_: &str| _ = &own;
        for stages in [false, true] {
            let chain = || {
                let chain = slipring::ring(4, || 0u64);
                if stages { chain.read("a", |_, _| ()).read("b", |_, _| ()) } else { chain }
            };
            failed("on_faults, run", || {
                chain().on_faults(hook(Fragile(true))).run(|_| Ok(())).map(drop)
            });
            failed("on_faults, run with events", || {
                let chain = chain().on_faults(hook(Fragile(true)));
                chain.run(|tx| Ok(tx.publish_all(0..8, |slot, i| *slot = i)?)).map(drop)
            });
            failed("on_faults, inline", || {
                chain().on_faults(hook(Fragile(true))).run_inline(|_| Ok(())).map(drop)
            });
            failed("on_thread_start, run", || {
                chain().on_thread_start(start(Fragile(true))).run(|_| Ok(())).map(drop)
            });
            failed("on_thread_start, inline", || {
                chain().on_thread_start(start(Fragile(true))).run_inline(|_| Ok(())).map(drop)
            });
            failed("both, shared", || {
                chain()
                    .on_thread_start(start(Fragile(true)))
                    .on_faults(hook(Fragile(true)))
                    .run_shared(|_| Ok(()))
                    .map(drop)
            });
            failed("both, spawned", || {
                let both =
                    chain().on_thread_start(start(Fragile(true))).on_faults(hook(Fragile(true)));
                let (tx, pipeline) = both.spawn()?;
                drop(tx);
                pipeline.join().map(drop)
            });
        }
    });
}

#[test]
fn a_refused_graph_contains_panics_of_dropped_parts() {
    let _watched = crate::common::watched();
    ends("refused", || {
        let key = |own: Fragile| move |event: &u64| (*event, _ = &own).0;
        for count in 1..=3 {
            let problem = refused("keys of a graph", || {
                let graph = Graph::new(3, || 0u64);
                let keys: Vec<_> = (0..count)
                    .map(|i| graph.shard_reader(&format!("s{i}"), 2, key(Fragile(true))))
                    .collect();
                graph.build().map(drop).inspect_err(|_| drop(keys))
            });
            assert_eq!(problem, BuildError::Capacity { asked: 3 });
            let problem = refused("keys of a graph with a problem", || {
                let (graph, other) = (Graph::new(4, || 0u64), Graph::new(4, || 0u64));
                let strange = other.reader("strange");
                let keys: Vec<_> = (0..count)
                    .map(|i| {
                        graph.shard_reader(&format!("s{i}"), 2, key(Fragile(true))).after(&strange)
                    })
                    .collect();
                graph.build().map(drop).inspect_err(|_| drop(keys))
            });
            assert!(matches!(problem, BuildError::Foreign { .. }));
            for capacity in [3, 1 << 50, 4] {
                let refusal = refused("a chain", || {
                    let mut chain = slipring::ring(capacity, || 0u64).on_error(OnFault::skip());
                    for i in 0..count {
                        let own = Fragile(true);
                        chain = chain.read(&format!("r{i}"), move |_, _| _ = &own).read_shards(
                            &format!("s{i}"),
                            2,
                            key(Fragile(true)),
                            |_| |_: &u64, _| (),
                        );
                    }
                    let (produce, factory) = (Fragile(true), Fragile(true));
                    let chain = chain.read_pool("p", 2, move |_| (|_: &u64, _| (), _ = &factory).0);
                    chain
                        .run(move |_| {
                            let _own = produce;
                            Ok(())
                        })
                        .map(drop)
                });
                assert!(matches!(refusal, BuildError::Declaration { .. }), "{refusal}");
            }
        }
        let problem = refused("the items of a refused chain", || {
            let items = (0..4).map(|_| Fragile(true)).collect::<Vec<_>>();
            slipring::ring(3, || 0u64)
                .read("none", |_, _| ())
                .feed(items.into_iter().skip(3), |_, _| ())
                .map(drop)
        });
        assert_eq!(problem, BuildError::Capacity { asked: 3 });
        contained("a chain that is not started", || {
            let (a, b, c) = (Fragile(true), Fragile(true), Fragile(true));
            drop(
                slipring::ring(4, || 0u64)
                    .read("a", move |_, _| _ = &a)
                    .read("b", move |_, _| _ = &b)
                    .read_shards("c", 2, move |v| (*v, _ = &c).0, |_| |_: &u64, _| ()),
            )
        });
        contained("`contiguous` too late", || {
            let (a, b) = (Fragile(true), Fragile(true));
            slipring::ring(4, || 0u64)
                .read("a", move |_, _| _ = &a)
                .read("b", move |_, _| _ = &b)
                .contiguous()
                .run(|_| Ok(()))
                .unwrap_err();
        });
    });
}

#[test]
fn a_build_that_fails_late_contains_panics_of_dropped_events() {
    let _watched = crate::common::watched();
    ends("filled", || {
        let problem = refused("a worker's factory", || {
            let make = |_| -> fn(&Fragile, slipring::At) { panic!("{PURPOSE}") };
            slipring::ring(4, || Fragile(true)).read_pool("p", 2, make).run(|_| Ok(())).map(drop)
        });
        assert!(matches!(problem, BuildError::WorkerFactory { worker: 0, .. }));
        let problem = refused("marks of two stages", || {
            let marks = Marks::new();
            let chain = slipring::ring(4, || Fragile(true))
                .update("a", |_, _| ())
                .marks(&marks)
                .update("b", |_, _| ())
                .marks(&marks);
            chain.run(|_| Ok(())).map(drop)
        });
        assert!(matches!(problem, BuildError::Declaration { .. }));
        let problem = refused("a tap in two places", || {
            let tap = Tap::new();
            slipring::ring(4, || Fragile(true))
                .tap(&tap)
                .update("a", |_, _| ())
                .tap(&tap)
                .run(|_| Ok(()))
                .map(drop)
        });
        assert!(matches!(problem, BuildError::Declaration { .. }), "{problem}");
        let problem = refused("a pool that is opened as another kind", || {
            let make = Fragile(true);
            let pool = Pool::updating(4);
            let make = move |_| (|_: &Fragile, _| (), _ = &make).0;
            slipring::ring(4, || Fragile(true))
                .read_pool("p", 2, make)
                .open(&pool_of(pool))
                .run(|_| Ok(()))
                .map(drop)
        });
        assert!(matches!(problem, BuildError::Declaration { .. }), "{problem}");
        let problem = refused("a key that is gone", || {
            let graph = Graph::new(4, || Fragile(true));
            drop(graph.reader("gone"));
            graph.build().map(drop)
        });
        assert!(matches!(problem, BuildError::DroppedKey { .. }));
    });
}

/// Returns the pool, with its event type fixed.
fn pool_of(
    pool: Pool<Fragile, slipring::markers::Updating>,
) -> Pool<Fragile, slipring::markers::Updating> {
    pool
}

#[test]
fn a_factory_whose_drop_panics_fails_the_graph() {
    let _watched = crate::common::watched();
    ends("factories", || {
        let factory = |own: Fragile| move || (0u64, _ = &own).0;
        failed("a chain", || slipring::ring(4, factory(Fragile(true))).run(|_| Ok(())).map(drop));
        contained("a graph", || {
            let graph = Graph::new(4, factory(Fragile(true)));
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let mut tx = ring.producer();
            let closed = tx.publish(|_| ()).unwrap_err();
            assert!(closed.to_string().contains(PURPOSE), "{closed}");
            drop(ring.reader(key));
        });
        contained("unicast", || {
            let (mut tx, _rx) = slipring::unicast(4, factory(Fragile(true))).unwrap();
            assert!(tx.publish(|_| ()).unwrap_err().to_string().contains(PURPOSE));
        });
        contained("a refused unicast", || {
            slipring::unicast(3, factory(Fragile(true))).map(drop).unwrap_err()
        });
        contained("a refused graph", || {
            Graph::new(3, factory(Fragile(true))).build().map(drop).unwrap_err()
        });
    });
}

/// A strategy whose drop panics. It also serves as a learner whose drop panics.
#[derive(Debug)]
struct Brittle(#[expect(dead_code)] Own, bool);
#[derive(Debug)]
struct BrittleLearner(#[expect(dead_code)] Own);
struct Own(Fragile);
impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.0)
    }
}
impl WaitStrategy for Brittle {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn parks(&self) -> bool {
        false
    }
    fn alias(&self) -> String {
        "brittle".into()
    }
    fn learner(&self) -> Option<Box<dyn WaitLearner>> {
        self.1.then(|| Box::new(BrittleLearner(Own(Fragile(true)))) as _)
    }
}
impl WaitLearner for BrittleLearner {
    fn next_action(&mut self, _: &WaitContext) -> WaitAction {
        WaitAction::Yield
    }
    fn wait_ended(&mut self, _: &WaitContext, _: bool) {}
}

#[test]
fn panics_of_dropped_strategies_and_learners_are_contained() {
    let _watched = crate::common::watched();
    ends("strategies", || {
        let strategy = |learns| Wait::Custom(Arc::new(Brittle(Own(Fragile(true)), learns)));
        for learns in [false, true] {
            for capacity in [3, 4] {
                let chain = || {
                    let chain = slipring::ring(capacity, || 0u64)
                        .wait(strategy(learns))
                        .producer_wait(strategy(learns));
                    chain.read("a", |_, _| ()).stage_wait(strategy(learns)).read_pool(
                        "b",
                        2,
                        |_| |_: &u64, _| (),
                    )
                };
                let ended = contained("run", || {
                    chain().run(|p| Ok(p.publish_all(0..20, |slot, i| *slot = i)?)).map(drop)
                });
                assert_eq!(ended.is_err_and(|error| error.is_build()), capacity == 3);
                drop(contained("inline", || {
                    chain().run_inline(|p| Ok(p.publish_all(0..20, |slot, i| *slot = i)?)).map(drop)
                }));
                let shared = || chain().read("c", |_, _| ()).on("t").read("d", |_, _| ()).on("t");
                drop(contained("one thread", || {
                    shared().feed(0..20, |slot, i| *slot = i).map(drop)
                }));
                contained("a graph", || {
                    let graph = Graph::new(capacity, || 0u64)
                        .wait(strategy(learns))
                        .producer_wait(strategy(learns));
                    let key = graph.reader("r").wait(strategy(learns));
                    let Ok(ring) = graph.build() else { return assert_eq!(capacity, 3) };
                    let handles = (ring.reader(key), ring.producer());
                    drop(handles);
                });
            }
        }
    });
}

#[test]
fn a_panic_of_an_uncalled_closures_drop_is_contained() {
    let _watched = crate::common::watched();
    ends("not called", || {
        struct NoStart;
        impl slipring::stages::ReadHandler<u64> for NoStart {
            fn start(&mut self) -> Result<(), slipring::faults::Fault> {
                Err(Oops(1).into())
            }
            fn event(&mut self, _: &u64, _: slipring::At) -> Result<(), slipring::faults::Fault> {
                Ok(())
            }
        }
        let own = Fragile(true);
        let error = contained("inline", || {
            slipring::ring(4, || 0u64)
                .read_with("r", NoStart)
                .run_inline(move |_| {
                    let _own = own;
                    Ok(())
                })
                .map(drop)
        });
        assert_eq!(error.unwrap_err().downcast_ref(), Some(&Oops(1)));
        assert_ne!(PRODUCER, "r");
    });
}
