//! Random graphs whose stages the library runs: handlers on threads of their own, and on shared
//! threads. Every handler checks each event's trail, as the threads of `threads.rs` do.

use std::sync::{Arc, Mutex};

use slipring::{
    At, Graph, OnFault, Wait,
    errors::{Cause, WaitError},
    faults::Marks,
    markers::{Contiguous, Interleaved},
    placement::Threads,
    stages::{Handlers, ReaderKey},
};

use crate::handles::{AnyKey, TestLayout, declare};
use crate::shape::{Dice, Ev, Shape, after_write, mix};

/// Number of events that the handlers of one stage have seen, and the sum over the events'
/// identities and positions.
type Seen = Arc<Mutex<(u64, u64)>>;

/// The handler of a stage, a worker or a shard.
#[derive(Clone)]
struct Watch {
    stage: usize,
    writers: Vec<usize>,
    start: u64,
    /// `true` if this handler gets all events of its stage, in order.
    in_order: bool,
    latest: Option<u64>,
    seen: Seen,
}

impl Watch {
    fn read(&mut self, event: &Ev, at: At) {
        let trail = mix(event.id);
        let trail = self.writers.iter().fold(trail, |trail, &writer| after_write(trail, writer));
        assert_eq!(event.trail, trail, "s{}: event {:x} at {}", self.stage, event.id, at.seq);
        let mut seen = self.seen.lock().unwrap();
        *seen = (seen.0 + 1, seen.1.wrapping_add(mix(event.id ^ mix(at.seq))));
        let place = at.seq.wrapping_sub(self.start);
        let before = self.latest.replace(place);
        assert!(!self.in_order || before.is_none_or(|before| before < place), "s{}", self.stage);
    }

    fn write(&mut self, event: &mut Ev, at: At) {
        self.read(event, at);
        event.trail = after_write(event.trail, self.stage);
    }
}

/// Gives each stage its handlers.
fn hand_over<L: TestLayout, S>(
    handlers: &mut Handlers<'static, Ev, L, S>,
    keys: Vec<AnyKey>,
    shape: &Shape,
    start: u64,
) -> Vec<Seen> {
    let stages = keys.into_iter().enumerate().map(|(stage, key)| {
        let seen = Seen::default();
        let mut watch = Watch {
            stage,
            writers: shape.writers_before(stage),
            start,
            in_order: !shape.0[stage].kind.is_pool(),
            latest: None,
            seen: seen.clone(),
        };
        match key {
            AnyKey::Reader(key) => handlers.read(key, move |event, at| watch.read(event, at)),
            AnyKey::Updater(key) => handlers.update(key, move |event, at| watch.write(event, at)),
            AnyKey::PoolReader(key) => handlers.read_pool(key, |_| {
                let mut watch = watch.clone();
                move |event: &Ev, at| watch.read(event, at)
            }),
            AnyKey::PoolUpdater(key) => handlers.update_pool(key, |_| {
                let mut watch = watch.clone();
                move |event: &mut Ev, at| watch.write(event, at)
            }),
            AnyKey::ShardReader(key) => handlers.read_shards(key, |_| {
                let mut watch = watch.clone();
                move |event: &Ev, at| watch.read(event, at)
            }),
            AnyKey::ShardUpdater(key) => handlers.update_shards(key, |_| {
                let mut watch = watch.clone();
                move |event: &mut Ev, at| watch.write(event, at)
            }),
        };
        seen
    });
    stages.collect()
}

fn run<L: TestLayout>(seed: u64, threads: Option<Threads>, events: u64) {
    let mut dice = Dice::new(seed);
    let capacity = [1, 2, 4, 8, 64][dice.below(5) as usize];
    let shape = Shape::random(&mut dice, 6).with_shards(&mut dice).fitting(capacity);
    let waits = &Wait::all()[1..];
    let wait = waits[dice.below(waits.len() as u64) as usize].clone();
    let start = [0, u64::MAX - 30, (1 << 48) - 20][dice.below(3) as usize];
    let mut graph = Graph::new(capacity, Ev::default).first_seq(start).wait(wait);
    if let Some(threads) = threads {
        graph = graph.threads(threads);
    }
    let graph = L::ring_of(graph);
    let keys = declare(&graph, &shape);
    let mut handlers = graph.build().unwrap().handlers();
    let seen = hand_over(&mut handlers, keys, &shape, start);
    let report = if dice.one_in(2) {
        let done = handlers.feed(0..events, |event, id| event.fill(id)).unwrap();
        assert_eq!(done.value, events);
        done.report
    } else {
        let (mut tx, pipeline) = handlers.spawn().unwrap();
        tx.publish_all(0..events, |event, id| event.fill(id)).unwrap();
        drop(tx);
        pipeline.join().unwrap()
    };
    let all =
        (0..events).fold(0u64, |sum, id| sum.wrapping_add(mix(id ^ mix(start.wrapping_add(id)))));
    for (stage, seen) in seen.iter().enumerate() {
        let seen = *seen.lock().unwrap();
        assert_eq!(seen, (events, all), "s{stage} of {shape:?}, seed {seed}\n{report}");
    }
}

#[test]
fn random_graphs_run_their_handlers_on_any_threads() {
    let _watched = crate::common::watched();
    let (runs, events) = if cfg!(miri) { (1, 12) } else { (25, 300) };
    for seed in 0..runs {
        let counts = [1, 2, 3].map(|count| Some(Threads::from(count)));
        for threads in [None, Some(Threads::Auto)].into_iter().chain(counts) {
            run::<Interleaved>(seed, threads, events);
            run::<Contiguous>(seed, threads, events);
        }
    }
}

#[test]
fn mistakes_with_handlers_are_told() {
    let _watched = crate::common::watched();
    let graph = || Graph::new(8, || 0u64);
    let declared = graph();
    let (a, b) = (declared.reader("a"), declared.reader("b"));
    let mut handlers = declared.build().unwrap().handlers();
    handlers.read(a, |_, _| ());
    let error = handlers.feed(0..1, |slot, i| *slot = i).unwrap_err().to_string();
    assert!(error.contains("stage `b` has no handler"), "{error}");
    drop(b);

    let declared = graph();
    let a = declared.reader("a");
    let ring = declared.build().unwrap();
    let mut tx = ring.producer();
    let mut handlers = ring.handlers();
    handlers.read(a, |_, _| ());
    let error = handlers.run(|_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("the producer was taken"), "{error}");
    assert!(tx.publish(|slot| *slot = 1).is_err(), "the graph has failed");

    let declared = graph();
    let pool = declared.pool_reader("pool", 2);
    let mut handlers = declared.build().unwrap().handlers();
    handlers.read_pool(pool, |worker| {
        assert_eq!(worker, 0, "no second worker");
        |_: &u64, _| ()
    });
    let error = handlers.feed(0..1, |slot, i| *slot = i).unwrap_err().to_string();
    assert!(error.contains("no second worker"), "{error}");

    assert!(graph().threads(0).build().unwrap_err().to_string().contains("threads(0)"));
}

#[test]
#[should_panic(expected = "stage `a` runs on the graph's shared threads")]
fn a_stage_on_shared_threads_lends_no_handle() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64).threads(2);
    let a = graph.reader("a");
    graph.build().unwrap().reader(a);
}

#[test]
#[should_panic(expected = "was declared with `max_batch`, which only applies to a handler")]
fn a_stage_with_an_option_for_handlers_lends_no_handle() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || 0u64);
    let a = graph.reader("a").max_batch(4);
    graph.build().unwrap().reader(a);
}

/// A run that cannot start returns an error that names the mistake. Handles that were taken before
/// return the error that the graph was halted.
#[test]
fn a_run_that_cannot_start_says_why() {
    let _watched = crate::common::watched();
    let graph = || Graph::new(8, || 0u64);
    let declared = graph();
    let (a, b, own) = (declared.reader("a"), declared.reader("b"), declared.reader("own"));
    let ring = declared.build().unwrap();
    let mut own = ring.reader(own);
    let mut handlers = ring.handlers();
    handlers.read(a, |_, _| ());
    let error = handlers.feed(0..1, |slot, i| *slot = i).unwrap_err().to_string();
    assert!(error.contains("stage `b` has no handler"), "{error}");
    assert!(matches!(own.for_each(|_, _| ()), Err(WaitError::Halted)));
    drop(b);

    let declared = graph();
    let (a, b) = (declared.reader("a"), declared.reader("b"));
    let mut handlers = declared.build().unwrap().handlers();
    handlers.read(a, |_, _| ());
    drop(b);
    let error = handlers.feed(0..1, |slot, i| *slot = i).unwrap_err();
    assert_eq!(error.stage(), Some("b"), "{error}");
    assert!(matches!(error.failure().unwrap().cause(), Cause::Dropped), "{error}");

    let declared = graph().shared();
    let a = declared.reader("a");
    let ring = declared.build().unwrap();
    drop(ring.producer());
    let mut handlers = ring.handlers();
    handlers.read(a, |_, _| ());
    let error = handlers.feed(0..1, |slot, i| *slot = i).unwrap_err().to_string();
    assert!(error.contains("all producers that were taken from it before were dropped"), "{error}");

    for too_many in [usize::MAX, usize::MAX - 1] {
        let declared = graph().threads(2);
        let (_pool, _a) = (declared.pool_reader("pool", too_many), declared.reader("a"));
        let error = declared.build().unwrap_err().to_string();
        assert!(error.contains("`pool`"), "{error}");
    }
}

#[test]
fn options_of_handlers_contradict_a_loop_of_ones_own() {
    let _watched = crate::common::watched();
    let contradicts = |declare: fn(ReaderKey) -> ReaderKey| {
        let graph = Graph::new(8, || 0u64);
        let _key = declare(graph.reader("a"));
        let error = graph.build().unwrap_err().to_string();
        assert!(error.contains("stage `a` has both `own_loop` and `"), "{error}");
    };
    contradicts(|key| key.on("io").own_loop());
    contradicts(|key| key.own_loop().on("io"));
    contradicts(|key| key.own_loop().max_batch(3));
    contradicts(|key| key.on_error(OnFault::skip()).own_loop());
}

/// Stages whose handles the user holds continue after the run, and observers find their ring.
#[test]
fn handles_go_on_after_the_run_and_are_observed() {
    let _watched = crate::common::watched();
    for spawns in [false, true] {
        let graph = Graph::new(64, || 0u64);
        let (a, pool) = (graph.reader("a"), graph.pool_reader("pool", 1).room(2));
        let ring = graph.build().unwrap();
        let (joining, monitor) = (ring.pool(&pool), ring.monitor());
        let mut worker = ring.pool_readers(pool).remove(0);
        let mut handlers = ring.handlers();
        handlers.read(a, |_, _| ());
        if spawns {
            let (mut tx, pipeline) = handlers.spawn().unwrap();
            tx.publish_all(0..50, |slot, i| *slot = i).unwrap();
            drop(tx);
            pipeline.join().unwrap();
        } else {
            handlers.feed(0..50, |slot, i| *slot = i).unwrap();
        }
        assert_eq!(monitor.report().expect("it runs").stage("pool").unwrap().lag, 50);
        let mut second = joining.join().expect("it runs");
        let own = worker.for_each(|_, _| ()).unwrap() + second.for_each(|_, _| ()).unwrap();
        assert_eq!(own, 50);
        drop((worker, second));
        assert!(monitor.report().is_none() && joining.join().is_err());
    }
}

/// A handler waits for an event of a handle of its own. Its thread then runs the stages that the
/// event depends on, if no other thread does.
#[test]
fn a_handler_that_waits_for_a_handle_runs_other_stages() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for threads in [1, 2] {
            let graph = Graph::new(8, || 0u64).wait(wait.clone()).threads(threads);
            let (b, a) = (graph.reader("b"), graph.reader("a"));
            let own = graph.reader("own").after(&a).own_loop();
            let ring = graph.build().unwrap();
            let (mut own, mut seen) = (ring.reader(own), 0);
            let mut handlers = ring.handlers();
            handlers.read(a, |_, _| ());
            handlers.read(b, |value, _| -> Result<(), WaitError> {
                let batch = own.batch(1)?;
                assert_eq!(batch[0], *value);
                batch.release();
                seen += 1;
                Ok(())
            });
            let events = if matches!(wait, Wait::BusySpin) { 30 } else { 300 };
            handlers.feed(0..events, |slot, i| *slot = i).unwrap();
            assert_eq!(seen, events, "{wait}, {threads} threads");
        }
    }
}

#[test]
fn marks_of_a_build_that_failed_are_free() {
    let _watched = crate::common::watched();
    let marks = Marks::new();
    let graph = Graph::new(8, || 0u64);
    let keys = ["a", "b"].map(|name| graph.reader(name).marks(&marks));
    let error = graph.build().unwrap_err().to_string();
    assert!(error.contains("the marks of `b`"), "{error}");
    drop(keys);
    let graph = Graph::new(8, || 0u64);
    let a = graph.reader("a").on_error(OnFault::skip()).marks(&marks);
    let mut handlers = graph.build().unwrap().handlers();
    handlers.read(a, |value, _| if *value == 3 { Err("three") } else { Ok(()) });
    handlers.feed(0..8, |slot, i| *slot = i).unwrap();
    assert!(marks.skipped(3) && !marks.skipped(4));
}
