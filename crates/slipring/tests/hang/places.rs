//! A chain with a failure at each place where it calls user code.

use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use slipring::{
    At, Chain, Error, Pipeline, Producer, Wait,
    errors::{BuildError, ErrorKind},
    faults::Fault,
    handles::{Events, EventsMut},
    stages::{Handlers, PRODUCER, ReadHandler, UpdateHandler},
};

use crate::common::{Bomb, Fragile, Oops, PURPOSE, ends};
use crate::graph_places;
use crate::{CAPACITY, message};

/// A place where user code runs and can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    Factory,
    WorkerFactory,
    Hook,
    Closure,
    Fill,
    Items,
    Read,
    Write,
    ReadPool,
    WritePool,
    ReadBatch,
    WriteBatch,
    ReadStart,
    ReadEvent,
    ReadBatchEnd,
    ReadStop,
    WriteStart,
    WriteEvent,
    WriteBatchEnd,
    WriteStop,
    HandlerDrop,
    WorkerDrop,
    EventDrop,
}
use Spot::*;

const SPOTS: [Spot; 23] = [
    Factory,
    WorkerFactory,
    Hook,
    Closure,
    Fill,
    Items,
    Read,
    Write,
    ReadPool,
    WritePool,
    ReadBatch,
    WriteBatch,
    ReadStart,
    ReadEvent,
    ReadBatchEnd,
    ReadStop,
    WriteStart,
    WriteEvent,
    WriteBatchEnd,
    WriteStop,
    HandlerDrop,
    WorkerDrop,
    EventDrop,
];

/// The way in which user code fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultKind {
    Panic,
    /// A panic whose payload panics on drop.
    Bomb,
    Error,
}

impl FaultKind {
    fn raise(self) -> Result<(), Oops> {
        match self {
            FaultKind::Panic => panic!("out of cheese {PURPOSE}"),
            FaultKind::Bomb => panic_any(Bomb),
            FaultKind::Error => Err(Oops(7)),
        }
    }
}

/// The call that runs the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Feed,
    Shared,
    Inline,
    Spawn,
    /// The chain's `feed`. All stages that allow it run on one thread.
    OneThread,
    /// The chain's `feed`, with all stages on two shared threads, one of which produces.
    SharedThreads,
    /// The chain's `spawn`, with all stages on two shared threads.
    SpawnSharedThreads,
    /// A graph's `feed`, with the same stages as the chain.
    Graph,
    /// A graph's `feed`, with all stages on two shared threads, one of which produces.
    GraphSharedThreads,
    /// A graph's `spawn`, with all stages on two shared threads.
    GraphSpawnSharedThreads,
}

impl Front {
    fn shares_threads(self) -> bool {
        matches!(
            self,
            Front::SharedThreads
                | Front::SpawnSharedThreads
                | Front::GraphSharedThreads
                | Front::GraphSpawnSharedThreads
        )
    }
    fn spawns(self) -> bool {
        matches!(self, Front::Spawn | Front::SpawnSharedThreads | Front::GraphSpawnSharedThreads)
    }
}

#[derive(Clone, Debug)]
struct Case {
    spot: Spot,
    kind: FaultKind,
    wait: Wait,
    front: Front,
    /// If `true`, the stage fails at event 0 while the ring is full. If `false`, it fails at event
    /// 3, and no further event is published. A producer that fails always does so after the ring
    /// was full.
    full: bool,
}

/// State that the parties of one scenario share.
pub struct Scenario {
    case: Case,
    /// Number of events filled.
    filled: AtomicU64,
    /// Whether the failure has happened.
    failed: AtomicBool,
    /// The position that the error must name; `u64::MAX` if it must name none.
    expected: AtomicU64,
}

impl Scenario {
    pub fn spot(&self) -> Spot {
        self.case.spot
    }

    pub fn wait(&self) -> Wait {
        self.case.wait.clone()
    }

    pub fn shares_threads(&self) -> bool {
        self.case.front.shares_threads()
    }

    fn target(&self) -> u64 {
        if self.case.full { 0 } else { 3 }
    }

    fn fail(&self, seq: Option<u64>) -> Result<(), Oops> {
        if self.failed.swap(true, SeqCst) {
            return Ok(());
        }
        self.expected.store(seq.unwrap_or(u64::MAX), SeqCst);
        self.case.kind.raise()
    }

    /// Fails if `spot` is the place, and `seq` the event, that the case selects.
    pub fn event(&self, spot: Spot, seq: u64) -> Result<(), Oops> {
        self.events(spot, seq, 1)
    }

    /// Fails if `spot` is the place that the case selects, and the case's event is in `[first,
    /// first + len)`.
    pub fn events(&self, spot: Spot, first: u64, len: u64) -> Result<(), Oops> {
        if spot != self.case.spot
            || self.failed.load(SeqCst)
            || !(first..first + len).contains(&self.target())
        {
            return Ok(());
        }
        // On one thread the producer waits for the stages, so the ring does not fill up.
        while self.case.full
            && self.case.front != Front::Inline
            && self.filled.load(SeqCst) < CAPACITY as u64
        {
            thread::yield_now();
        }
        self.fail(Some(first))
    }

    fn without_event(&self, spot: Spot) -> Result<(), Oops> {
        if spot == self.case.spot { self.fail(None) } else { Ok(()) }
    }

    /// Called when the handler of a worker is made. Returns what the handler captures.
    pub fn makes_worker(&self, worker: usize) -> Fragile {
        if self.case.spot == WorkerFactory && worker == 1 {
            let _ = self.case.kind.raise();
        }
        Fragile(self.case.spot == WorkerDrop && worker == 1)
    }

    /// Returns whether the failure comes only after the last event, so that the producer must stop
    /// publishing.
    fn fails_at_the_end(&self) -> bool {
        matches!(self.case.spot, ReadStop | WriteStop | HandlerDrop | WorkerDrop | EventDrop)
    }
}

pub struct FailingHandler(pub Arc<Scenario>);

impl ReadHandler<Ev> for FailingHandler {
    fn start(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(ReadStart)?)
    }
    fn event(&mut self, _: &Ev, at: At) -> Result<(), Fault> {
        Ok(self.0.event(ReadEvent, at.seq)?)
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        if self.0.case.spot == ReadBatchEnd && next_seq > self.0.target() {
            Ok(self.0.fail(None)?)
        } else {
            Ok(())
        }
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(ReadStop)?)
    }
}

impl UpdateHandler<Ev> for FailingHandler {
    fn start(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(WriteStart)?)
    }
    fn event(&mut self, _: &mut Ev, at: At) -> Result<(), Fault> {
        Ok(self.0.event(WriteEvent, at.seq)?)
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        if self.0.case.spot == WriteBatchEnd && next_seq > self.0.target() {
            Ok(self.0.fail(None)?)
        } else {
            Ok(())
        }
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(WriteStop)?)
    }
}

pub struct Ev {
    pub value: u64,
    _fragile: Fragile,
}

/// Returns the factory of the ring's events.
pub fn factory(scenario: &Arc<Scenario>) -> impl FnMut() -> Ev + use<> {
    let (s, mut made) = (scenario.clone(), 0);
    move || {
        made += 1;
        if s.case.spot == Factory && made == 3 {
            let _ = s.case.kind.raise();
        }
        Ev { value: 0, _fragile: Fragile(s.case.spot == EventDrop) }
    }
}

/// Returns the hook of the threads' start.
pub fn hook(scenario: &Arc<Scenario>) -> impl Fn(&str) + Send + Sync + use<> {
    let s = scenario.clone();
    move |name| {
        // The hook fails on one thread only: two threads would race for the first failure.
        let names = match s.case.front {
            Front::OneThread => ["together"; 2],
            front if front.shares_threads() => ["stages-0"; 2],
            _ => ["x", "x-1"],
        };
        if names.contains(&name) {
            let _ = s.without_event(Hook);
        }
    }
}

fn chain(scenario: &Arc<Scenario>) -> Chain<'static, Ev> {
    let scenario = scenario.clone();
    let case = scenario.case.clone();
    let spot = case.spot;
    let together = case.front == Front::OneThread;
    /// Puts the last stage of a chain, or of a fan-out, on the thread of the others.
    macro_rules! on {
        ($chain:expr) => {{
            let chain = $chain;
            if together { chain.on("together") } else { chain }
        }};
    }
    let of = || scenario.clone();

    let chain = slipring::ring(CAPACITY, factory(&scenario))
        .wait(case.wait.clone())
        .on_thread_start(hook(&scenario));
    let chain = if case.front.shares_threads() { chain.threads(2) } else { chain };
    let mut chain = on!(chain.update("before", |ev, at| assert_eq!(ev.value, at.seq)));
    let s = of();
    chain = match spot {
        Write | WriteBatch | WritePool | WorkerFactory | WorkerDrop | WriteStart | WriteEvent
        | WriteBatchEnd | WriteStop => chain,
        ReadBatch => chain.fan_out(|side| {
            let side = on!(side.read("beside", |ev, at| assert_eq!(ev.value, at.seq)));
            on!(side.read_batch("x", move |events: &Events<'_, Ev>, first| {
                s.events(ReadBatch, first, events.len() as u64)
            }))
        }),
        ReadPool => chain.fan_out(|side| {
            let side = on!(side.read("beside", |ev, at| assert_eq!(ev.value, at.seq)));
            side.read_pool("x", 3, move |_| {
                let s = s.clone();
                move |_, at| s.event(ReadPool, at.seq)
            })
        }),
        ReadStart | ReadEvent | ReadBatchEnd | ReadStop => chain.fan_out(|side| {
            let side = on!(side.read_with("x", FailingHandler(s)));
            on!(side.read("beside", |ev, at| assert_eq!(ev.value, at.seq)))
        }),
        _ => chain.fan_out(|side| {
            let fragile = Fragile(spot == HandlerDrop);
            let side = on!(side.read("x", move |_, at| {
                let _captured = &fragile;
                s.event(Read, at.seq)
            }));
            on!(side.read("beside", |ev, at| assert_eq!(ev.value, at.seq)))
        }),
    };
    let s = of();
    chain = match spot {
        Write => on!(chain.update("x", move |_, at| s.event(Write, at.seq))),
        WriteBatch => on!(chain.update_batch("x", move |events: &mut EventsMut<'_, Ev>, first| {
            s.events(WriteBatch, first, events.len() as u64)
        })),
        WritePool | WorkerFactory | WorkerDrop => chain.update_pool("x", 3, move |worker| {
            let fragile = s.makes_worker(worker);
            let s = s.clone();
            move |_, at| {
                let _captured = &fragile;
                s.event(WritePool, at.seq)
            }
        }),
        WriteStart | WriteEvent | WriteBatchEnd | WriteStop => {
            on!(chain.update_with("x", FailingHandler(s)))
        }
        _ => chain,
    };
    on!(chain.read("after", |ev, at| assert_eq!(ev.value, at.seq)))
}

/// Returns an iterator over the producer's items. It yields items until the ring is full, or until
/// the failing event is published; then it waits for the failure. After that, it yields more items
/// until the graph has ended.
fn items(scenario: &Arc<Scenario>) -> impl Iterator<Item = u64> + use<> {
    let scenario = scenario.clone();
    let mut next = 0;
    std::iter::from_fn(move || {
        let seq = next;
        next += 1;
        if scenario.case.spot == Items && seq == scenario.target() + CAPACITY as u64 {
            let _ = scenario.fail(Some(seq));
        }
        if scenario.fails_at_the_end() {
            return (seq < if scenario.case.full { 3 * CAPACITY as u64 } else { 0 }).then_some(seq);
        }
        if !scenario.case.full
            && scenario.case.front != Front::Inline
            && !matches!(scenario.case.spot, Closure | Fill | Items)
        {
            while seq > scenario.target() && !scenario.failed.load(SeqCst) {
                thread::yield_now();
            }
        }
        Some(seq)
    })
}

fn fill(scenario: &Arc<Scenario>) -> impl FnMut(&mut Ev, u64) + use<> {
    let scenario = scenario.clone();
    move |ev, item| {
        if scenario.case.spot == Fill && item == scenario.target() + CAPACITY as u64 {
            let _ = scenario.fail(Some(item));
        }
        ev.value = item;
        scenario.filled.store(item + 1, SeqCst);
    }
}

fn run(case: Case) -> (Arc<Scenario>, Result<(), Error>) {
    let scenario = Arc::new(Scenario {
        case,
        filled: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        expected: AtomicU64::new(u64::MAX),
    });
    let outcome = match scenario.case.front {
        Front::Graph | Front::GraphSharedThreads | Front::GraphSpawnSharedThreads => {
            graph_places::handlers(&scenario).and_then(|handlers| run_graph(&scenario, handlers))
        }
        _ => run_chain(&scenario, chain(&scenario)),
    };
    (scenario, outcome)
}

fn run_graph(scenario: &Arc<Scenario>, handlers: Handlers<'static, Ev>) -> Result<(), Error> {
    let (items, fill) = (items(scenario), fill(scenario));
    let until_full = scenario.target() as usize + CAPACITY;
    let closure = scenario.case.spot == Closure;
    if scenario.case.front.spawns() {
        return end_spawned(scenario, handlers.spawn());
    }
    if !closure {
        return handlers.feed(items, fill).map(drop);
    }
    let done = handlers.run(|producer| {
        producer.publish_all(items.take(until_full), fill)?;
        Ok(scenario.fail(None)?)
    });
    done.map(drop)
}

/// Produces on a thread of the test's own, and joins.
fn end_spawned(
    scenario: &Arc<Scenario>,
    spawned: Result<(Producer<Ev>, Pipeline), Error>,
) -> Result<(), Error> {
    let (mut producer, pipeline) = spawned?;
    let (items, fill) = (items(scenario), fill(scenario));
    let (until_full, s) = (scenario.target() as usize + CAPACITY, scenario.clone());
    let user = thread::spawn(move || {
        if s.case.spot == Closure {
            let _ = producer.publish_all(items.take(until_full), fill);
            s.fail(None)
        } else {
            let _ = producer.publish_all(items, fill);
            Ok(())
        }
    });
    let outcome = pipeline.join().map(drop);
    if let Err(payload) = user.join() {
        std::mem::forget(payload); // it may be a bomb
    }
    outcome
}

fn run_chain(scenario: &Arc<Scenario>, chain: Chain<'static, Ev>) -> Result<(), Error> {
    let (items, fill) = (items(scenario), fill(scenario));
    let until_full = scenario.target() as usize + CAPACITY;
    let s = scenario.clone();
    let closure = scenario.case.spot == Closure;
    match scenario.case.front {
        Front::Feed | Front::OneThread | Front::SharedThreads if !closure => {
            chain.feed(items, fill).map(drop)
        }
        Front::Feed | Front::OneThread | Front::SharedThreads => chain
            .run(|producer| {
                producer.publish_all(items.take(until_full), fill)?;
                Ok(s.fail(None)?)
            })
            .map(drop),
        Front::Shared => chain
            .run_shared(|producer| {
                let mut clone = producer.clone();
                if closure {
                    clone.publish_all(items.take(until_full), fill)?;
                    return Ok(s.fail(None)?);
                }
                clone.publish_all(items, fill)?;
                Ok(())
            })
            .map(drop),
        Front::Inline => chain
            .run_inline(|inline| {
                if closure {
                    inline.publish_all(items.take(until_full), fill)?;
                    return Ok(s.fail(None)?);
                }
                inline.publish_all(items, fill)?;
                Ok(())
            })
            .map(drop),
        _ => end_spawned(scenario, chain.spawn()),
    }
}

/// Asserts that the error names the right stage, position and reason.
fn check_error(scenario: &Scenario, outcome: Result<(), Error>) {
    let Case { spot, kind, front, .. } = scenario.case;
    let panic = match kind {
        FaultKind::Bomb => "a payload that is not a string",
        _ => "out of cheese on purpose",
    };
    if front.spawns() && spot == Closure && kind == FaultKind::Error {
        return outcome.unwrap(); // the library does not see the result of the user's own thread
    }
    let error = outcome.expect_err("user code failed");
    match (spot, error.kind()) {
        (Factory, ErrorKind::Build(BuildError::Factory { index: 2, panic: message })) => {
            return assert_eq!(message, panic);
        }
        (
            WorkerFactory,
            ErrorKind::Build(BuildError::WorkerFactory { stage, worker: 1, panic: message }),
        ) => {
            return assert_eq!((&**stage, &**message), ("x", panic));
        }
        (EventDrop, ErrorKind::EventDrop(message)) => {
            return assert_eq!(message, "dropped on purpose");
        }
        (Factory | WorkerFactory | EventDrop, other) => panic!("{other:?}"),
        _ => {}
    }
    let failure = error.failure().unwrap_or_else(|| panic!("{error:?}"));
    let stage = match spot {
        Closure | Fill | Items => PRODUCER,
        Hook if front == Front::OneThread || front.shares_threads() => "before",
        _ => "x",
    };
    assert_eq!(error.stage(), Some(stage), "{error}");
    let expected = Some(scenario.expected.load(SeqCst)).filter(|&seq| seq != u64::MAX);
    // A dropped handle's error names the handle's own position.
    let any_position = (front.spawns() || front == Front::Shared) && spot == Closure;
    assert!(any_position || error.seq() == expected, "{error}: expected {expected:?}");
    match (kind, spot) {
        (_, HandlerDrop | WorkerDrop) => assert_eq!(message(failure), "dropped on purpose"),
        (FaultKind::Error, Hook | Fill | Items) => unreachable!("these return nothing"),
        (FaultKind::Error, _) => assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(7))),
        // Here the producer was moved to the user's own thread. The library sees only that this
        // thread unwinds, and not the message of its panic.
        _ if front.spawns() && stage == PRODUCER => {
            assert!(message(failure).contains("panicked"), "{error}")
        }
        _ => assert_eq!(message(failure), panic),
    }
    assert!(error.report().is_some());
}

/// Returns whether user code can fail in this way at this place in this front.
fn applies(case: &Case) -> bool {
    let returns = !matches!(case.spot, Factory | WorkerFactory | Hook | Fill | Items);
    let once = matches!(case.spot, HandlerDrop | WorkerDrop | EventDrop); // `Fragile` only panics
    (returns || case.kind != FaultKind::Error)
        && (!once || case.kind == FaultKind::Panic)
        && (case.spot != Hook || case.front != Front::Inline)
        && (case.spot != Hook || !matches!(case.spot, WritePool | ReadPool))
}

fn all(waits: &[Wait], fronts: &[Front], kinds: &[FaultKind]) {
    for spot in SPOTS {
        for wait in waits {
            for &front in fronts {
                for &kind in kinds {
                    for full in [true, false] {
                        let case = Case { spot, kind, wait: wait.clone(), front, full };
                        if applies(&case) {
                            ends(&format!("{case:?}"), move || {
                                let (scenario, outcome) = run(case);
                                check_error(&scenario, outcome);
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_failure_at_every_place_is_reported_under_every_strategy() {
    let _watched = crate::common::watched();
    let fronts = [Front::Feed, Front::SharedThreads, Front::GraphSharedThreads];
    all(&Wait::all(), &fronts, &[FaultKind::Panic, FaultKind::Error]);
}

#[test]
fn a_failure_at_every_place_is_reported_in_every_front() {
    let _watched = crate::common::watched();
    let fronts = [
        Front::Shared,
        Front::Inline,
        Front::Spawn,
        Front::OneThread,
        Front::SpawnSharedThreads,
        Front::Graph,
        Front::GraphSpawnSharedThreads,
    ];
    all(&[Wait::Blocking], &fronts, &[FaultKind::Panic, FaultKind::Error]);
}

#[test]
fn a_panic_payload_that_panics_on_drop_is_reported() {
    let _watched = crate::common::watched();
    all(
        &[Wait::Blocking],
        &[
            Front::Feed,
            Front::Inline,
            Front::Spawn,
            Front::OneThread,
            Front::SharedThreads,
            Front::Graph,
            Front::GraphSharedThreads,
        ],
        &[FaultKind::Bomb],
    );
}
