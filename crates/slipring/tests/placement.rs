//! Placements: which threads the library binds and when, and what it does if a placement fails.

mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use slipring::{
    Error, Graph,
    errors::{BuildError, Cause, ErrorKind},
    faults::Fault,
    placement::{Placement, Places, Threads},
    stages::PRODUCER,
};

use common::{PURPOSE, ends, quiet};

/// Name of the place that stands for the ring's memory.
const MEMORY: &str = "(memory)";

thread_local! {
    /// Place to which the fake has bound this thread.
    static AT: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// A placement that notes the library's calls, and binds nothing.
#[derive(Clone, Default)]
struct Fake(Arc<State>);

#[derive(Default)]
struct State {
    /// Names of the threads for which the build asked for places.
    asked: Mutex<Vec<String>>,
    /// Threads that were bound, by place.
    bound: Mutex<BTreeMap<String, Vec<ThreadId>>>,
    /// Threads that were released again, by place.
    undone: Mutex<BTreeMap<String, Vec<ThreadId>>>,
    /// The call that fails, and the kind of failure.
    fails: Option<(&'static str, Misbehaviour)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Misbehaviour {
    Errs,
    Panics,
}

/// Names of the fake's calls that can fail, besides the binding to a place.
const ASSIGN: &str = "(assign)";
const CORES: &str = "(cores)";
const UNDO: &str = "(undo)";

impl Fake {
    fn that_fails(at: &'static str, how: Misbehaviour) -> Fake {
        Fake(Arc::new(State { fails: Some((at, how)), ..State::default() }))
    }

    fn asked(&self) -> Vec<String> {
        self.0.asked.lock().unwrap().clone()
    }

    /// Returns the places to which threads were bound.
    fn bound(&self) -> Vec<String> {
        self.0.bound.lock().unwrap().keys().cloned().collect()
    }

    fn threads_at(&self, place: &str) -> Vec<ThreadId> {
        self.0.bound.lock().unwrap().get(place).cloned().unwrap_or_default()
    }

    /// Asserts that every binding was undone. Each thread undoes its own.
    fn all_undone(&self) {
        assert_eq!(*self.0.bound.lock().unwrap(), *self.0.undone.lock().unwrap());
    }

    fn fail(&self, at: &str) -> Result<(), Fault> {
        match self.0.fails {
            Some((failing, Misbehaviour::Errs)) if failing == at => {
                Err(Fault::msg(format!("no place for {at}, {PURPOSE}")))
            }
            Some((failing, Misbehaviour::Panics)) if failing == at => panic!("{at}, {PURPOSE}"),
            _ => Ok(()),
        }
    }

    fn bound_to(&self, place: &str) -> Result<slipring::placement::Bound, Fault> {
        self.fail(place)?;
        let own = thread::current().id();
        self.0.bound.lock().unwrap().entry(place.to_owned()).or_default().push(own);
        let before = AT.replace(Some(String::leak(place.to_owned())));
        let (state, place) = (self.clone(), place.to_owned());
        Ok(slipring::placement::Bound::new(move || {
            assert_eq!(thread::current().id(), own, "undone by another thread");
            state.0.undone.lock().unwrap().entry(place).or_default().push(own);
            AT.set(before);
            state.fail(UNDO).unwrap();
        }))
    }
}

impl Placement for Fake {
    fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault> {
        self.fail(ASSIGN)?;
        threads.clone_into(&mut self.0.asked.lock().unwrap());
        Ok(Arc::new(self.clone()))
    }
}

impl Places for Fake {
    fn cores(&self) -> usize {
        self.fail(CORES).unwrap();
        1
    }

    fn bind(&self, thread: &str) -> Result<slipring::placement::Bound, Fault> {
        if !self.asked().iter().any(|name| name == thread) {
            return Err(Fault::msg(format!("the graph has no thread `{thread}`")));
        }
        self.bound_to(thread)
    }

    fn bind_to_memory(&self) -> Result<slipring::placement::Bound, Fault> {
        self.bound_to(MEMORY)
    }
}

fn problem(error: &Error) -> &str {
    match error.kind() {
        ErrorKind::Build(BuildError::Placement { problem }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_thread_of_a_chain_is_bound_before_its_first_event_and_the_slots_are_made_in_their_place() {
    let _watched = crate::common::watched();
    let (fake, own) = (Fake::default(), thread::current().id());
    let made_at = Mutex::new(Vec::new());
    let hook_at = Mutex::new(Vec::new());
    let factory = || made_at.lock().unwrap().push(AT.get());
    let done = slipring::ring(4, factory)
        .placement(fake.clone())
        .on_thread_start(|thread| hook_at.lock().unwrap().push((thread.to_owned(), AT.get())))
        .update("parse", |(), _| assert_eq!(AT.get(), Some("parse")))
        .read_pool("pool", 2, |worker| {
            move |(), _| assert_eq!(AT.get(), Some(["pool-0", "pool-1"][worker]))
        })
        .update("one", |(), _| assert_eq!(AT.get(), Some("both")))
        .on("both")
        .read("two", |(), _| assert_eq!(AT.get(), Some("both")))
        .on("both")
        .run(|tx| {
            assert_eq!(AT.get(), Some(PRODUCER));
            (0..20).try_for_each(|_| tx.publish(|()| ()).map(drop))?;
            Ok(())
        });
    done.unwrap();
    assert_eq!(AT.get(), None, "the calling thread is free again");
    assert_eq!(fake.asked(), [PRODUCER, "parse", "pool-0", "pool-1", "both"]);
    assert_eq!(*made_at.lock().unwrap(), [Some(MEMORY); 4]);
    assert_eq!((fake.threads_at(MEMORY), fake.threads_at(PRODUCER)), (vec![own], vec![own]));
    let mut hooks = hook_at.into_inner().unwrap();
    hooks.sort();
    let threads = ["both", "parse", "pool-0", "pool-1"];
    assert_eq!(hooks, threads.map(|name| (name.to_owned(), Some(name))), "after the placement");
    for name in threads {
        assert_eq!(fake.threads_at(name).len(), 1, "{name}");
        assert_ne!(fake.threads_at(name), [own], "{name}");
    }
    fake.all_undone();
}

#[test]
fn shared_threads_have_places_and_the_calling_thread_is_the_last_of_them() {
    let _watched = crate::common::watched();
    for threads in [1, 2, 3] {
        let fake = Fake::default();
        let chain = slipring::ring(4, || 0)
            .threads(threads)
            .placement(fake.clone())
            .update("one", |_, _| ())
            .update("two", |_, _| ())
            .read("three", |_, _| ());
        chain.feed(0..50, |slot, i| *slot = i).unwrap();
        let shared: &[&str] = match threads {
            3 => &["stages-0", "stages-1"],
            _ => &["stages-0"],
        };
        assert_eq!(fake.asked(), [&[PRODUCER], shared].concat(), "{threads}");
        assert_eq!(fake.bound(), [&[MEMORY, PRODUCER], shared].concat(), "{threads}");
        fake.all_undone();
    }
}

#[test]
fn spawned_threads_are_bound_and_the_producers_thread_binds_itself() {
    let _watched = crate::common::watched();
    let fake = Fake::default();
    let (mut tx, pipeline) = slipring::ring(4, || 0)
        .threads(2)
        .placement(fake.clone())
        .update("one", |_, _| ())
        .read("two", |_, _| assert!(AT.get().is_some()))
        .spawn()
        .unwrap();
    assert_eq!(AT.get(), None, "`spawn` binds no thread of the caller's");
    let bound = pipeline.bind_thread(PRODUCER).unwrap();
    assert!(bound.is_some() && AT.get() == Some(PRODUCER));
    tx.publish(|slot| *slot = 1).unwrap();
    tx.close();
    drop(bound);
    assert_eq!(AT.get(), None);
    let error = pipeline.bind_thread("three").unwrap_err();
    assert!(error.to_string().contains("no thread `three`"), "{error}");
    pipeline.join().unwrap();
    assert_eq!(fake.bound(), [MEMORY, PRODUCER, "stages-0", "stages-1"]);
    fake.all_undone();
}

#[test]
fn a_graph_places_its_handlers_and_lets_other_threads_bind_themselves() {
    let _watched = crate::common::watched();
    let fake = Fake::default();
    let graph = Graph::new(4, || 0).placement(fake.clone()).contiguous();
    let (double, sum) = (graph.updater("double"), graph.reader("sum"));
    let sum = sum.after(&double);
    let tap = graph.tap("tap", 2).after(&double);
    let ring = graph.build().unwrap();
    assert_eq!(fake.bound(), [MEMORY]);
    let mut sum = ring.reader(sum);
    drop(ring.tap(tap));
    thread::scope(|scope| {
        let bound = ring.bind_thread("sum").unwrap();
        assert_eq!(AT.get(), Some("sum"));
        drop(bound);
        let mut handlers = ring.handlers();
        handlers.update(double, |_, _| assert_eq!(AT.get(), Some("double")));
        scope.spawn(move || sum.for_each(|_, _| ()).unwrap());
        handlers.feed(0..50, |slot, i| *slot = i).unwrap();
    });
    assert_eq!(fake.asked(), [PRODUCER, "double", "sum"], "a tap's readers are not placed");
    assert_eq!(fake.bound(), [MEMORY, "double", PRODUCER, "sum"]);
    fake.all_undone();
}

#[test]
fn a_spawned_graph_gives_the_producers_place_to_the_thread_that_stands_in_for_the_caller() {
    let _watched = crate::common::watched();
    for (count, bound) in [
        (Threads::Count(1), vec![MEMORY, "stages-0"]),
        (Threads::Count(2), vec![MEMORY, PRODUCER, "stages-0"]),
    ] {
        let fake = Fake::default();
        let graph = Graph::new(4, || 0).threads(count).placement(fake.clone());
        let (one, two) = (graph.updater("one"), graph.reader("two"));
        let two = two.after(&one);
        let mut handlers = graph.build().unwrap().handlers();
        handlers.update(one, |_, _| ()).read(two, |_, _| ());
        let (mut tx, pipeline) = handlers.spawn().unwrap();
        tx.publish(|slot| *slot = 1).unwrap();
        tx.close();
        pipeline.join().unwrap();
        assert_eq!(fake.bound(), bound, "{count:?}");
        fake.all_undone();
    }
}

/// The build checks the graph before it asks for places. Otherwise a wrong, huge number of workers
/// would require as many thread names.
#[test]
fn mistakes_of_the_graph_come_before_those_of_its_placement() {
    let _watched = crate::common::watched();
    for count in [0, 9, usize::MAX] {
        let fake = Fake::that_fails(ASSIGN, Misbehaviour::Errs);
        let chain = slipring::ring(8, || 0).placement(fake.clone());
        let sharded = chain.read_shards("s", count, |value| *value, |_| |_: &u64, _| ());
        let error = sharded.run(|_| Ok(())).unwrap_err();
        let workers =
            |error: &Error| matches!(error.kind(), ErrorKind::Build(BuildError::Workers { .. }));
        assert!(workers(&error), "{error}");
        let graph = Graph::new(8, || 0).placement(fake);
        let pool = graph.pool_reader("p", count);
        assert!(workers(&graph.build().unwrap_err()));
        drop(pool);
    }
    let chain = slipring::ring(8, || 0).placement(Fake::default()).read("a", |_, _| ());
    let error = chain.read("a", |_, _| ()).run(|_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("two stages are named `a`"), "{error}");
}

#[test]
fn threads_that_a_placement_could_not_tell_apart_are_a_mistake() {
    let _watched = crate::common::watched();
    let chain = || slipring::ring(8, || 0);
    let on_a_stages_name = |chain: slipring::Chain<'static, i32>| {
        let chain = chain.read("a", |_, _| ()).read("b", |_, _| ()).on("a");
        chain.run(|_| Ok(())).map(drop)
    };
    on_a_stages_name(chain()).unwrap();
    let error = on_a_stages_name(chain().placement(Fake::default())).unwrap_err();
    assert!(error.to_string().contains("two threads of the graph are named `a`"), "{error}");
    let chain = chain().placement(Fake::default()).read("a", |_, _| ()).on(PRODUCER);
    let error = chain.run(|_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("two threads of the graph are named `producer`"), "{error}");
}

/// Several producers run on threads that the closure starts. If the calling thread were bound,
/// these threads would inherit its place.
#[test]
fn several_producers_are_not_bound() {
    let _watched = crate::common::watched();
    let fake = Fake::default();
    let chain = slipring::ring(8, || 0).placement(fake.clone()).read("stage", |_, _| ());
    chain
        .run_shared(|tx| {
            assert_eq!(AT.get(), None);
            tx.publish(|slot| *slot = 1)?;
            Ok(())
        })
        .unwrap();
    assert_eq!(fake.asked(), [PRODUCER, "stage"]);
    assert_eq!(fake.bound(), [MEMORY, "stage"]);
}

/// Both the text and the drop of an error panic. The drop must not panic while the first panic
/// unwinds.
#[test]
fn an_error_that_panics_in_its_text_and_its_drop_is_contained() {
    let _watched = crate::common::watched();
    #[derive(Debug)]
    struct Twice;
    impl std::fmt::Display for Twice {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("text, {PURPOSE}")
        }
    }
    impl std::error::Error for Twice {}
    impl Drop for Twice {
        fn drop(&mut self) {
            panic!("drop, {PURPOSE}")
        }
    }
    struct Failing;
    impl Placement for Failing {
        fn assign(&self, _: &[String]) -> Result<Arc<dyn Places>, Fault> {
            Err(Twice.into())
        }
    }
    quiet();
    let chain = slipring::ring(4, || 0).placement(Failing).read("stage", |_, _| ());
    let error = chain.run(|_| Ok(())).unwrap_err();
    assert!(problem(&error).contains("the text of the placement's error panicked"), "{error}");
}

/// On a machine of any number of cores, the graph's threads outnumber the cores of the placement.
#[test]
fn waits_and_warnings_count_the_cores_of_the_placement() {
    let _watched = crate::common::watched();
    static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    slipring::waiting::on_warning(|warning| WARNINGS.lock().unwrap().push(warning.to_string()));
    let fake = Fake::default();
    let chain = slipring::ring(4, || 0).wait(slipring::Wait::BusySpin).placement(fake);
    chain.read("stage", |_, _| ()).feed(0..1, |slot, i| *slot = i).unwrap();
    let warnings = WARNINGS.lock().unwrap();
    assert!(warnings[0].contains("2 threads") && warnings[0].contains("1 core"), "{warnings:?}");
}

#[test]
fn without_a_placement_binding_does_nothing_and_inline_runs_ask_for_none() {
    let _watched = crate::common::watched();
    let ring = Graph::new(4, || 0).build().unwrap();
    assert!(ring.bind_thread("any").unwrap().is_none());
    let fake = Fake::default();
    let chain = slipring::ring(4, || 0).placement(fake.clone()).read("stage", |_, _| ());
    chain.run_inline(|tx| Ok(tx.publish(|slot| *slot = 1).map(drop)?)).unwrap();
    assert!(fake.asked().is_empty() && fake.bound().is_empty());
}

#[test]
fn an_impossible_placement_is_an_error_of_the_build_with_its_own_words() {
    let _watched = crate::common::watched();
    quiet();
    for (at, how) in [
        (ASSIGN, Misbehaviour::Errs),
        (ASSIGN, Misbehaviour::Panics),
        (CORES, Misbehaviour::Panics),
        (MEMORY, Misbehaviour::Errs),
        (MEMORY, Misbehaviour::Panics),
    ] {
        let fake = Fake::that_fails(at, how);
        let chain = slipring::ring(4, || 0).placement(fake.clone()).read("stage", |_, _| ());
        let error = chain.feed(0..3, |slot, i| *slot = i).unwrap_err();
        assert!(problem(&error).contains(at), "{error}");
        assert_eq!(problem(&error).contains("the placement panicked"), how == Misbehaviour::Panics);
        assert!(error.to_string().contains("cannot be placed"), "{error}");
        let graph = Graph::new(4, || 0).placement(fake);
        let stage = graph.reader("stage");
        let error = graph.build().unwrap_err();
        assert!(problem(&error).contains(at), "{error}");
        drop(stage);
    }
}

#[test]
fn a_thread_that_cannot_be_bound_fails_the_graph_by_its_stage() {
    let _watched = crate::common::watched();
    quiet();
    for at in ["stage", PRODUCER] {
        for how in [Misbehaviour::Errs, Misbehaviour::Panics] {
            let error = ends("bind", move || {
                let chain = slipring::ring(4, || 0)
                    .placement(Fake::that_fails(at, how))
                    .read("stage", |_, _| ());
                chain.run(|tx| {
                    assert_eq!(at, "stage", "the producer is not called");
                    loop {
                        tx.publish(|slot| *slot = 1)?;
                    }
                    #[expect(unreachable_code)]
                    Ok(())
                })
            })
            .unwrap_err();
            let failure = error.failure().unwrap();
            assert_eq!(&**failure.stage(), at);
            match failure.cause() {
                Cause::Error(fault) => {
                    assert!(how == Misbehaviour::Errs && fault.to_string().contains(at))
                }
                Cause::Panic(message) => {
                    assert!(how == Misbehaviour::Panics && message.contains(at))
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_panic_of_the_undoing_is_contained_and_fails_the_graph_where_it_can() {
    let _watched = crate::common::watched();
    quiet();
    let fake = Fake::that_fails(UNDO, Misbehaviour::Panics);
    let chain = slipring::ring(4, || 0).placement(fake).read("stage", |_, _| ());
    let error = chain.feed(0..3, |slot, i| *slot = i).unwrap_err();
    let failure = error.failure().unwrap();
    assert!(matches!(failure.cause(), Cause::Panic(message) if message.contains(UNDO)), "{error}");
    assert_eq!(&**failure.stage(), PRODUCER);
}

#[test]
fn huge_pages_change_no_result() {
    let _watched = crate::common::watched();
    for capacity in [1, 64, 1 << 16] {
        let mut sum = 0;
        let chain = slipring::ring(capacity, || [0_u64; 8]).huge_pages();
        chain
            .read("sum", |block, _| sum += block[7])
            .feed(0..1000, |slot, i| *slot = [i; 8])
            .unwrap();
        let mut slices = 0;
        let chain = slipring::ring(capacity, || 0_u64).huge_pages().contiguous();
        chain
            .read_batch("sum", |events, _| slices += events.iter().sum::<u64>())
            .feed(0..1000, |slot, i| *slot = i)
            .unwrap();
        assert_eq!((sum, slices), (499_500, 499_500), "{capacity}");
    }
    let error = slipring::ring(1 << 62, || [0_u64; 8])
        .huge_pages()
        .allow_overcommit()
        .read("none", |_, _| ())
        .feed(0..1, |slot, i| *slot = [i; 8])
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Memory { .. })), "{error}");
}
