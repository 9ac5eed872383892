//! Nothing hangs: user code that panics or fails at every place where it is called, under every
//! strategy, on full rings and on empty ones. Each scenario ends, and its error names the stage,
//! the event and the reason.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use common::{Bomb, Fragile, Oops, PURPOSE, ends};
use slipring::{
    At, BuildError, Cause, Chain, Error, ErrorKind, Events, EventsMut, Failure, Fault, Graph,
    JoinError, PRODUCER, ReadHandler, Wait, WaitAction, WaitContext, WaitError, WaitStrategy,
    WriteHandler,
};

/// Where something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
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

/// What goes wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Panic,
    /// The payload panics when it is dropped.
    Bomb,
    Error,
}

impl Wrong {
    fn now(self) -> Result<(), Oops> {
        match self {
            Wrong::Panic => panic!("out of cheese {PURPOSE}"),
            Wrong::Bomb => panic_any(Bomb),
            Wrong::Error => Err(Oops(7)),
        }
    }
}

/// How the chain is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Feed,
    Shared,
    Inline,
    Spawn,
    /// `feed`, with all stages that can be on one thread.
    OneThread,
}

#[derive(Clone, Debug)]
struct Case {
    spot: Spot,
    wrong: Wrong,
    wait: Wait,
    front: Front,
    /// Full: it goes wrong at event 0 while the ring is full (or, at the producer, after the ring
    /// was full). Empty: at event 3 when nothing else is published.
    full: bool,
}

const CAPACITY: usize = 4;

/// What a scenario's parties know of each other.
struct Scene {
    case: Case,
    filled: AtomicU64,
    /// It has gone wrong.
    over: AtomicBool,
    /// The position that the error should name; `u64::MAX`: none.
    expected: AtomicU64,
}

impl Scene {
    fn target(&self) -> u64 {
        if self.case.full { 0 } else { 3 }
    }

    fn go_wrong(&self, seq: Option<u64>) -> Result<(), Oops> {
        if self.over.swap(true, SeqCst) {
            return Ok(());
        }
        self.expected.store(seq.unwrap_or(u64::MAX), SeqCst);
        self.case.wrong.now()
    }

    /// At `spot`, at event `seq`.
    fn event(&self, spot: Spot, seq: u64) -> Result<(), Oops> {
        self.stretch(spot, seq, 1)
    }

    /// At `spot`, with events `[first, first + len)`.
    fn stretch(&self, spot: Spot, first: u64, len: u64) -> Result<(), Oops> {
        if spot != self.case.spot
            || self.over.load(SeqCst)
            || !(first..first + len).contains(&self.target())
        {
            return Ok(());
        }
        // On one thread the producer waits for the stages, so that nothing more comes.
        while self.case.full
            && self.case.front != Front::Inline
            && self.filled.load(SeqCst) < CAPACITY as u64
        {
            thread::yield_now();
        }
        self.go_wrong(Some(first))
    }

    fn without_event(&self, spot: Spot) -> Result<(), Oops> {
        if spot == self.case.spot { self.go_wrong(None) } else { Ok(()) }
    }

    /// Whether the stream ends by itself, because nothing goes wrong before.
    fn ends_well(&self) -> bool {
        matches!(self.case.spot, ReadStop | WriteStop | HandlerDrop | WorkerDrop | EventDrop)
    }
}

struct Life(Arc<Scene>);

impl ReadHandler<Ev> for Life {
    fn start(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(ReadStart)?)
    }
    fn event(&mut self, _: &Ev, at: At) -> Result<(), Fault> {
        Ok(self.0.event(ReadEvent, at.seq)?)
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        if self.0.case.spot == ReadBatchEnd && next_seq > self.0.target() {
            Ok(self.0.go_wrong(None)?)
        } else {
            Ok(())
        }
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(ReadStop)?)
    }
}

impl WriteHandler<Ev> for Life {
    fn start(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(WriteStart)?)
    }
    fn event(&mut self, _: &mut Ev, at: At) -> Result<(), Fault> {
        Ok(self.0.event(WriteEvent, at.seq)?)
    }
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        if self.0.case.spot == WriteBatchEnd && next_seq > self.0.target() {
            Ok(self.0.go_wrong(None)?)
        } else {
            Ok(())
        }
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(self.0.without_event(WriteStop)?)
    }
}

struct Ev {
    value: u64,
    _fragile: Fragile,
}

fn chain(scene: &Arc<Scene>) -> Chain<'static, Ev> {
    let scene = scene.clone();
    let case = scene.case.clone();
    let spot = case.spot;
    let together = case.front == Front::OneThread;
    let on = |chain: Chain<'static, Ev>| if together { chain.on("together") } else { chain };
    let of = || scene.clone();

    let s = of();
    let mut made = 0;
    let factory = move || {
        made += 1;
        if s.case.spot == Factory && made == 3 {
            let _ = s.case.wrong.now();
        }
        Ev { value: 0, _fragile: Fragile(s.case.spot == EventDrop) }
    };
    let s = of();
    let hook = move |name: &str| {
        // One thread's only, or two would race for being the first to fail.
        if if together { name == "together" } else { matches!(name, "x" | "x-1") } {
            let _ = s.without_event(Hook);
        }
    };
    let chain = slipring::ring(CAPACITY, factory).wait(case.wait.clone()).on_thread_start(hook);
    let mut chain = on(chain.write("before", |ev, at| assert_eq!(ev.value, at.seq)));
    let s = of();
    chain = match spot {
        Write | WriteBatch | WritePool | WorkerFactory | WorkerDrop | WriteStart | WriteEvent
        | WriteBatchEnd | WriteStop => chain,
        ReadBatch => chain.fan_out(|side| {
            let side = side.read("beside", |ev, at| assert_eq!(ev.value, at.seq));
            side.read_batch("x", move |events: &Events<'_, Ev>, first| {
                s.stretch(ReadBatch, first, events.len() as u64)
            })
        }),
        ReadPool => chain.fan_out(|side| {
            let side = side.read("beside", |ev, at| assert_eq!(ev.value, at.seq));
            side.read_pool("x", 3, move |_| {
                let s = s.clone();
                move |_, at| s.event(ReadPool, at.seq)
            })
        }),
        ReadStart | ReadEvent | ReadBatchEnd | ReadStop => chain.fan_out(|side| {
            let side = side.read_with("x", Life(s));
            side.read("beside", |ev, at| assert_eq!(ev.value, at.seq))
        }),
        _ => chain.fan_out(|side| {
            let fragile = Fragile(spot == HandlerDrop);
            let side = side.read("x", move |_, at| {
                let _captured = &fragile;
                s.event(Read, at.seq)
            });
            side.read("beside", |ev, at| assert_eq!(ev.value, at.seq))
        }),
    };
    let s = of();
    chain = match spot {
        Write => chain.write("x", move |_, at| s.event(Write, at.seq)),
        WriteBatch => chain.write_batch("x", move |events: &mut EventsMut<'_, Ev>, first| {
            s.stretch(WriteBatch, first, events.len() as u64)
        }),
        WritePool | WorkerFactory | WorkerDrop => chain.write_pool("x", 3, move |worker| {
            if s.case.spot == WorkerFactory && worker == 1 {
                let _ = s.case.wrong.now();
            }
            let fragile = Fragile(s.case.spot == WorkerDrop && worker == 1);
            let s = s.clone();
            move |_, at| {
                let _captured = &fragile;
                s.event(WritePool, at.seq)
            }
        }),
        WriteStart | WriteEvent | WriteBatchEnd | WriteStop => chain.write_with("x", Life(s)),
        _ => chain,
    };
    if together && !matches!(spot, WritePool | WorkerFactory | WorkerDrop | ReadPool) {
        chain = on(chain);
    }
    on(chain.read("after", |ev, at| assert_eq!(ev.value, at.seq)))
}

/// What the producer does: fills the ring up, or publishes up to the event that goes wrong and
/// waits until it has; then goes on until it is told that the graph has ended.
fn items(scene: &Arc<Scene>) -> impl Iterator<Item = u64> + use<> {
    let scene = scene.clone();
    let mut next = 0;
    std::iter::from_fn(move || {
        let seq = next;
        next += 1;
        if scene.case.spot == Items && seq == scene.target() + CAPACITY as u64 {
            let _ = scene.go_wrong(Some(seq));
        }
        if scene.ends_well() {
            return (seq < if scene.case.full { 3 * CAPACITY as u64 } else { 0 }).then_some(seq);
        }
        if !scene.case.full
            && scene.case.front != Front::Inline
            && !matches!(scene.case.spot, Closure | Fill | Items)
        {
            while seq > scene.target() && !scene.over.load(SeqCst) {
                thread::yield_now();
            }
        }
        Some(seq)
    })
}

fn fill(scene: &Arc<Scene>) -> impl FnMut(&mut Ev, u64) + use<> {
    let scene = scene.clone();
    move |ev, item| {
        if scene.case.spot == Fill && item == scene.target() + CAPACITY as u64 {
            let _ = scene.go_wrong(Some(item));
        }
        ev.value = item;
        scene.filled.store(item + 1, SeqCst);
    }
}

fn play(case: Case) -> (Arc<Scene>, Result<(), Error>) {
    let scene = Arc::new(Scene {
        case,
        filled: AtomicU64::new(0),
        over: AtomicBool::new(false),
        expected: AtomicU64::new(u64::MAX),
    });
    let chain = chain(&scene);
    let (items, fill) = (items(&scene), fill(&scene));
    let few = scene.target() as usize + CAPACITY;
    let s = scene.clone();
    let closure = scene.case.spot == Closure;
    let outcome = match scene.case.front {
        Front::Feed | Front::OneThread if !closure => chain.feed(items, fill).map(drop),
        Front::Feed | Front::OneThread => chain
            .run(|producer| {
                producer.publish_all(items.take(few), fill)?;
                Ok(s.go_wrong(None)?)
            })
            .map(drop),
        Front::Shared => chain
            .run_shared(|producer| {
                let mut clone = producer.clone();
                if closure {
                    clone.publish_all(items.take(few), fill)?;
                    return Ok(s.go_wrong(None)?);
                }
                clone.publish_all(items, fill)?;
                Ok(())
            })
            .map(drop),
        Front::Inline => chain
            .run_inline(|inline| {
                if closure {
                    inline.publish_all(items.take(few), fill)?;
                    return Ok(s.go_wrong(None)?);
                }
                inline.publish_all(items, fill)?;
                Ok(())
            })
            .map(drop),
        Front::Spawn => match chain.spawn() {
            Err(error) => Err(error),
            Ok((mut producer, pipeline)) => {
                let user = thread::spawn(move || {
                    if closure {
                        let _ = producer.publish_all(items.take(few), fill);
                        s.go_wrong(None)
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
        },
    };
    (scene, outcome)
}

fn message(failure: &Failure) -> &str {
    match failure.cause() {
        Cause::Panic(message) => message,
        other => panic!("{other:?} is no panic"),
    }
}

/// The right error: stage, position, reason.
fn judge(scene: &Scene, outcome: Result<(), Error>) {
    let Case { spot, wrong, front, .. } = scene.case;
    let panic = match wrong {
        Wrong::Bomb => "a payload that is no text",
        _ => "out of cheese on purpose",
    };
    if front == Front::Spawn && spot == Closure && wrong == Wrong::Error {
        return outcome.unwrap(); // nobody sees what the user's own thread ends with
    }
    let error = outcome.expect_err("it went wrong");
    match (spot, error.kind()) {
        (Factory, ErrorKind::Build(BuildError::Factory { index: 2, panic: said })) => {
            return assert_eq!(said, panic);
        }
        (
            WorkerFactory,
            ErrorKind::Build(BuildError::WorkerFactory { stage, worker: 1, panic: said }),
        ) => {
            return assert_eq!((&**stage, &**said), ("x", panic));
        }
        (EventDrop, ErrorKind::EventDrop(said)) => return assert_eq!(said, "dropped on purpose"),
        (Factory | WorkerFactory | EventDrop, other) => panic!("{other:?}"),
        _ => {}
    }
    let failure = error.failure().unwrap_or_else(|| panic!("{error:?}"));
    let stage = match spot {
        Closure | Fill | Items => PRODUCER,
        Hook if front == Front::OneThread => "before",
        _ => "x",
    };
    assert_eq!(error.stage(), Some(stage), "{error}");
    let expected = Some(scene.expected.load(SeqCst)).filter(|&seq| seq != u64::MAX);
    // a dropped handle tells where it stood
    let any_position = matches!(front, Front::Spawn | Front::Shared) && spot == Closure;
    assert!(any_position || error.seq() == expected, "{error}: expected {expected:?}");
    match (wrong, spot) {
        (_, HandlerDrop | WorkerDrop) => assert_eq!(message(failure), "dropped on purpose"),
        (Wrong::Error, Hook | Fill | Items) => unreachable!("these return nothing"),
        (Wrong::Error, _) => assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(7))),
        // A producer that was moved away unwinds where nobody of ours looks.
        _ if front == Front::Spawn && stage == PRODUCER => {
            assert!(message(failure).contains("panicked"), "{error}")
        }
        _ => assert_eq!(message(failure), panic),
    }
    assert!(error.report().is_some());
}

fn applies(case: &Case) -> bool {
    let returns = !matches!(case.spot, Factory | WorkerFactory | Hook | Fill | Items);
    let once = matches!(case.spot, HandlerDrop | WorkerDrop | EventDrop); // these panic in one way
    (returns || case.wrong != Wrong::Error)
        && (!once || case.wrong == Wrong::Panic)
        && (case.spot != Hook || case.front != Front::Inline)
        && (case.spot != Hook || !matches!(case.spot, WritePool | ReadPool))
}

fn all(waits: &[Wait], fronts: &[Front], wrongs: &[Wrong]) {
    for spot in SPOTS {
        for wait in waits {
            for &front in fronts {
                for &wrong in wrongs {
                    for full in [true, false] {
                        let case = Case { spot, wrong, wait: wait.clone(), front, full };
                        if applies(&case) {
                            ends(&format!("{case:?}"), move || {
                                let (scene, outcome) = play(case);
                                judge(&scene, outcome);
                            });
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_place_under_every_strategy() {
    let _watched = crate::common::watched();
    all(&Wait::all(), &[Front::Feed], &[Wrong::Panic, Wrong::Error]);
}

#[test]
fn every_place_in_every_front() {
    let _watched = crate::common::watched();
    let fronts = [Front::Shared, Front::Inline, Front::Spawn, Front::OneThread];
    all(&[Wait::Blocking], &fronts, &[Wrong::Panic, Wrong::Error]);
}

#[test]
fn payloads_that_panic_in_their_turn() {
    let _watched = crate::common::watched();
    all(
        &[Wait::Blocking],
        &[Front::Feed, Front::Inline, Front::Spawn, Front::OneThread],
        &[Wrong::Bomb],
    );
}

#[test]
fn two_at_once() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for producer_too in [false, true] {
            let what = format!("two at once, {wait}, producer too: {producer_too}");
            let wait = wait.clone();
            let error = ends(&what, move || {
                let (a, b) = (Fragile(true), Fragile(true));
                let met = Arc::new(AtomicU64::new(0));
                let meet = move || {
                    met.fetch_add(1, SeqCst);
                    while met.load(SeqCst) < 2 {
                        thread::yield_now();
                    }
                };
                let (one, other) = (meet.clone(), meet);
                slipring::ring(CAPACITY, || (0u64, Fragile(true)))
                    .wait(wait)
                    .fan_out(|side| {
                        let side = side.read("one", move |_, _| {
                            let _captured = &a;
                            one();
                            panic_any(Bomb)
                        });
                        side.read("other", move |_, _| {
                            let _captured = &b;
                            other();
                            panic!("too {PURPOSE}")
                        })
                    })
                    .run(|producer| {
                        while producer.publish(|_| ()).is_ok() {}
                        if producer_too {
                            panic_any(Bomb);
                        }
                        Ok(Fragile(true))
                    })
                    .map(drop)
                    .unwrap_err()
            });
            assert!(matches!(error.stage(), Some("one" | "other")), "{error}");
            assert_eq!(error.seq(), Some(0));
        }
    }
}

/// What never starts is let go of in one piece, whatever it captured.
#[test]
fn fragile_handlers_of_a_chain_that_cannot_be_built() {
    let _watched = crate::common::watched();
    let capacity = |capacity| {
        let (a, b, c, d) = (Fragile(true), Fragile(true), Fragile(true), Fragile(true));
        let factory = move || {
            let _ = &a;
        };
        slipring::ring(capacity, factory)
            .on_thread_start(move |_| {
                let _ = &d;
            })
            .write("b", move |_, _| {
                let _ = &b;
            })
            .write_pool("p", 2, |worker| {
                let own = Fragile(true);
                assert!(worker == 0, "no second worker {PURPOSE}");
                move |_, _| {
                    let _ = &own;
                }
            })
            .write("c", move |_, _| {
                let _ = &c;
            })
    };
    let error =
        ends("fragile, bad capacity", move || capacity(3).feed(0..1, |_, _| ()).unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Capacity { asked: 3 })), "{error}");
    let error = ends("fragile, bad worker", move || capacity(4).feed(0..1, |_, _| ()).unwrap_err());
    assert!(
        matches!(error.kind(), ErrorKind::Build(BuildError::WorkerFactory { worker: 1, .. })),
        "{error}"
    );
}

#[test]
fn a_factory_that_panics_over_fragile_events_with_a_bomb() {
    let _watched = crate::common::watched();
    let error = ends("bombs in the factory", || {
        struct Worse;
        impl Drop for Worse {
            fn drop(&mut self) {
                panic_any(Bomb);
            }
        }
        let mut made = 0;
        let factory = move || {
            made += 1;
            if made == 4 {
                panic_any(Bomb);
            }
            Worse
        };
        slipring::unicast(8, factory).err().unwrap()
    });
    assert!(
        matches!(error.kind(), ErrorKind::Build(BuildError::Factory { index: 3, .. })),
        "{error}"
    );
}

/// Several events whose drop panics, dropped wherever the last handle goes: no abort, and one panic
/// at most.
#[test]
fn fragile_events_wherever_the_ring_ends() {
    let _watched = crate::common::watched();
    ends("fragile events, leases", || {
        let (tx, mut rx) = slipring::unicast(8, || Fragile(true)).unwrap();
        drop(tx);
        assert!(matches!(rx.try_batch(1), Err(slipring::BatchError::Wait(WaitError::Closed))));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(rx))).is_err());
    });
    ends("fragile events, while unwinding", || {
        let caught = catch_unwind(|| {
            let _ends = slipring::unicast(8, || Fragile(true)).unwrap();
            panic!("first {PURPOSE}");
        });
        assert!(caught.is_err());
    });
    ends("fragile events, a pipeline that nobody joins", || {
        struct Worse(std::sync::mpsc::Sender<()>);
        impl Drop for Worse {
            fn drop(&mut self) {
                let _ = self.0.send(());
                panic_any(Bomb);
            }
        }
        let (tell, told) = std::sync::mpsc::channel();
        let (tx, pipeline) = slipring::ring(4, move || std::sync::Mutex::new(Worse(tell.clone())))
            .read("r", |_, _| ())
            .spawn()
            .unwrap();
        drop(pipeline);
        drop(tx);
        assert_eq!(told.iter().count(), 4);
        thread::sleep(Duration::from_millis(20)); // an abort would come now
    });
    ends("fragile events and a fragile error", || {
        #[derive(Debug)]
        struct Grudge;
        impl std::fmt::Display for Grudge {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("grudge")
            }
        }
        impl std::error::Error for Grudge {}
        impl Drop for Grudge {
            fn drop(&mut self) {
                panic!("grudge {PURPOSE}");
            }
        }
        let (mut tx, pipeline) =
            slipring::ring(4, || Fragile(true)).read("r", |_, _| Err(Grudge)).spawn().unwrap();
        tx.publish(|_| ()).unwrap();
        while tx.publish(|_| ()).is_ok() {}
        drop(pipeline);
        // Whoever goes last drops the events: this thread, or the stage's, where nobody is told. An
        // abort would come now.
        drop(catch_unwind(AssertUnwindSafe(|| drop(tx))));
        thread::sleep(Duration::from_millis(20));
    });
}

// Leases.

/// How a lease-holder goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    ForEach,
    Poll,
    Batch,
    DropHandle,
}

#[test]
fn leases_whose_holders_panic_or_go() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for way in [Lease::ForEach, Lease::Poll, Lease::Batch, Lease::DropHandle] {
            for pool in [false, true] {
                for full in [true, false] {
                    let wait = wait.clone();
                    ends(&format!("{way:?}, {wait}, pool: {pool}, full: {full}"), move || {
                        lease(wait, way, pool, full)
                    });
                }
            }
        }
    }
}

macro_rules! hold {
    ($handle:ident, $way:ident, $filled:ident, $full:ident) => {{
        let ready = || {
            while $full && $filled.load(SeqCst) < CAPACITY as u64 {
                thread::yield_now()
            }
        };
        match $way {
            Lease::ForEach => drop($handle.for_each(|_, at| {
                ready();
                assert!($full || at.seq < 3, "seen enough {PURPOSE}");
                if $full {
                    panic!("seen enough {PURPOSE}");
                }
            })),
            Lease::Poll => loop {
                let polled = $handle.poll(1, |_, at| {
                    ready();
                    assert!(!$full && at.seq < 3, "seen enough {PURPOSE}");
                });
                if polled.is_err() {
                    break;
                }
                thread::yield_now();
            },
            Lease::Batch => {
                while let Ok(batch) = $handle.batch(2) {
                    ready();
                    assert!(
                        !$full && batch.first_seq() + (batch.len() as u64) <= 3,
                        "seen enough {PURPOSE}"
                    );
                    batch.release();
                }
            }
            Lease::DropHandle => {
                while let Ok(batch) = $handle.batch(1) {
                    ready();
                    if $full || batch.first_seq() == 3 {
                        break;
                    }
                    batch.release();
                }
            }
        }
    }};
}

fn lease(wait: Wait, way: Lease, pool: bool, full: bool) {
    let graph = Graph::new(CAPACITY, || 0u64).wait(wait);
    let filled = AtomicU64::new(0);
    let filled = &filled;
    let first = graph.writer("first");
    let (one, many, after) = if pool {
        let key = graph.pool_writer("x", 2).after(&first);
        let after = graph.reader("after").after(&key);
        (None, Some(key), after)
    } else {
        let key = graph.writer("x").after(&first);
        let after = graph.reader("after").after(&key);
        (Some(key), None, after)
    };
    let ring = graph.build().unwrap();
    let (mut tx, mut first, mut after) = (ring.producer(), ring.writer(first), ring.reader(after));
    let closed = thread::scope(|scope| {
        scope.spawn(move || drop(first.for_each(|_, _| ())));
        if let Some(key) = one {
            let mut x = ring.writer(key);
            scope.spawn(move || {
                catch_unwind(AssertUnwindSafe(move || hold!(x, way, filled, full))).is_ok()
            });
        }
        if let Some(key) = many {
            for mut x in ring.pool_writers(key) {
                scope.spawn(move || {
                    catch_unwind(AssertUnwindSafe(move || hold!(x, way, filled, full))).is_ok()
                });
            }
        }
        let after = scope.spawn(move || after.for_each(|_, _| ()).unwrap_err());
        let closed = loop {
            match tx.publish(|_| ()) {
                Ok(seq) => filled.store(seq + 1, SeqCst),
                Err(closed) => break closed,
            }
        };
        let seen = after.join().unwrap();
        assert_eq!(
            seen.failure().map(|failure| failure.stage().clone()),
            closed.failure().map(|failure| failure.stage().clone())
        );
        closed
    });
    let failure = closed.failure().expect("it failed").clone();
    assert_eq!(&**failure.stage(), "x", "{failure}");
    let dropped = way == Lease::DropHandle;
    assert!(
        if dropped {
            matches!(failure.cause(), Cause::Dropped)
        } else {
            message(&failure).contains("panicked")
        },
        "{failure}"
    );
    let seq = failure.seq().unwrap();
    match (pool, full) {
        (false, true) => assert_eq!(seq, 0, "{failure}"),
        (false, false) => assert!((2..=3).contains(&seq), "{failure}"),
        (true, _) => {} // either worker may be the first to go
    }
}

#[test]
fn producers_that_panic_while_they_fill() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for full in [true, false] {
            for claim in [true, false] {
                let wait = wait.clone();
                ends(&format!("filling, {wait}, full: {full}, claim: {claim}"), move || {
                    let graph = Graph::new(CAPACITY, || 0u64).wait(wait).shared();
                    let key = graph.reader("r");
                    let ring = graph.build().unwrap();
                    let (tx, mut rx) = (ring.producer(), ring.reader(key));
                    let bystander = tx.clone();
                    let at = if full { 9 } else { 0 };
                    let user = thread::spawn(move || {
                        let mut tx = tx;
                        loop {
                            if claim {
                                let mut slots = tx.claim_n(2).unwrap();
                                slots[0] = 1;
                                assert!(slots.first_seq() < at, "filling {PURPOSE}");
                                slots.publish();
                            } else {
                                let mut seq = 0;
                                tx.publish(|slot| {
                                    *slot = 1;
                                    assert!(seq < at, "filling {PURPOSE}");
                                })
                                .map(|at| seq = at + 1)
                                .unwrap();
                                tx.publish_all(seq..at, |slot, _| *slot = 1).unwrap();
                                tx.publish(|_| panic!("filling {PURPOSE}")).unwrap();
                            }
                        }
                    });
                    let closed = rx.for_each(|_, _| ()).unwrap_err();
                    assert!(user.join().is_err());
                    let failure = closed.failure().unwrap();
                    assert_eq!(&**failure.stage(), PRODUCER);
                    assert!(message(failure).contains("panicked"), "{failure}");
                    assert!(failure.seq().unwrap() >= at, "{failure}");
                    drop(bystander);
                });
            }
        }
    }
}

#[test]
fn a_panic_is_survived_by_whoever_catches_it() {
    let _watched = crate::common::watched();
    ends("caught panics", || {
        let (mut tx, mut rx) = slipring::unicast(CAPACITY, || 0u64).unwrap();
        tx.publish_all(0..3, |slot, i| *slot = i).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                rx.poll(8, |v, _| {
                    assert!(*v < 1 || seen.len() > 1, "caught {PURPOSE}");
                    seen.push(*v);
                    assert!(*v < 2, "caught {PURPOSE}");
                })
            }));
            assert!(caught.is_err());
            seen.push(100);
        }
        tx.publish(|slot| *slot = 3).unwrap();
        tx.close();
        // Event 2 was pushed before its handler panicked, and comes again.
        assert!(
            catch_unwind(AssertUnwindSafe(|| rx.for_each(|v, _| panic!("{v} {PURPOSE}")))).is_err()
        );
        assert_eq!(rx.for_each(|v, _| seen.push(*v)).unwrap(), 2);
        assert_eq!(seen, [0, 100, 1, 2, 100, 2, 3]);
    });
}

// Strategies of the user's own.

/// Says whatever it is told to say.
struct Odd {
    idle: fn(u64) -> WaitAction,
    parks: fn(u64) -> bool,
    asked: AtomicU64,
}

impl std::fmt::Debug for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("odd")
    }
}

impl WaitStrategy for Odd {
    fn idle(&self, waited: &WaitContext) -> WaitAction {
        (self.idle)(waited.polls)
    }
    fn parks(&self) -> bool {
        (self.parks)(self.asked.fetch_add(1, SeqCst))
    }
    fn alias(&self) -> String {
        String::new()
    }
}

fn odd(idle: fn(u64) -> WaitAction, parks: fn(u64) -> bool) -> Wait {
    Wait::Custom(Arc::new(Odd { idle, parks, asked: AtomicU64::new(0) }))
}

#[test]
fn strategies_with_odd_answers() {
    let _watched = crate::common::watched();
    let odds: [(&str, Wait); 6] = [
        ("parks unannounced", odd(|_| WaitAction::Park, |_| false)),
        ("parks later than asked", odd(|_| WaitAction::Park, |asked| asked > 0)),
        ("parks no longer", odd(|_| WaitAction::Park, |asked| asked == 0)),
        ("sleeps for ever", odd(|_| WaitAction::Sleep(Duration::MAX), |_| false)),
        (
            "never pauses",
            odd(
                |polls| if polls % 8 == 0 { WaitAction::Yield } else { WaitAction::Spin(0) },
                |_| true,
            ),
        ),
        ("pauses long", odd(|_| WaitAction::Spin(u32::MAX), |_| false)),
    ];
    for (what, wait) in odds {
        ends(what, move || {
            let mut sum = 0;
            let few = if what.contains("sleeps") { 3 } else { 20 };
            slipring::ring(2, || 0u64)
                .wait(wait)
                .write("a", |v, _| *v += 1)
                .read("b", |v, _| sum += v)
                .feed(0..few, |slot, i| *slot = i)
                .unwrap();
            assert_eq!(sum, few * (few + 1) / 2);
        });
    }
}

#[test]
fn strategies_that_panic() {
    let _watched = crate::common::watched();
    for together in [false, true] {
        let error = ends(&format!("a strategy that panics, together: {together}"), move || {
            let wait = odd(
                |polls| if polls < 5 { WaitAction::Yield } else { panic!("tired {PURPOSE}") },
                |_| true,
            );
            let chain = slipring::ring(2, || 0u64).wait(wait).write("a", |_, _| ());
            let chain = if together {
                chain.on("t").read("b", |_, _| ()).on("t")
            } else {
                chain.read("b", |_, _| ())
            };
            chain
                .run(|producer| {
                    producer.publish(|_| ())?;
                    thread::sleep(Duration::from_millis(50));
                    while producer.publish(|_| ()).is_ok() {}
                    Ok(())
                })
                .unwrap_err()
        });
        assert_eq!(message(error.failure().unwrap()), "tired on purpose");
    }
    ends("a strategy that panics, leases", || {
        let graph = Graph::new(2, || 0u64).wait(odd(|_| panic!("tired {PURPOSE}"), |_| true));
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| rx.batch(1).map(drop))).unwrap_err();
            assert_eq!(caught.downcast_ref::<String>().unwrap(), "tired on purpose");
        }
        tx.publish(|v| *v = 5).unwrap();
        let batch = rx.batch(1).unwrap();
        assert_eq!(batch[0], 5);
        batch.release();
        drop((tx, rx));
        assert_eq!(ring.report().stage("r").unwrap().events, 1);
    });
}

// Waiting on oneself: documented to wait for ever without a deadline, and healed by one.

const SOON: Duration = Duration::from_millis(60);

fn is_deadline(failure: &Failure) -> bool {
    matches!(failure.cause(), Cause::Deadline(after) if *after == SOON)
}

#[test]
fn deadlines_heal_whoever_waits_for_himself() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let w = wait.clone();
        ends(&format!("publishing into one's own full ring, {wait}"), move || {
            let graph = Graph::new(2, || 0u64).wait(w).deadline(SOON);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut tx, _rx) = (ring.producer(), ring.reader(key));
            let closed = loop {
                if let Err(closed) = tx.publish(|_| ()) {
                    break closed;
                }
            };
            let failure = closed.failure().unwrap();
            assert!(
                is_deadline(failure) && &**failure.stage() == PRODUCER && failure.seq() == Some(2),
                "{failure}"
            );
        });
        let w = wait.clone();
        ends(&format!("a second claim while holding one, {wait}"), move || {
            let graph = Graph::new(2, || 0u64).wait(w).shared();
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut a, mut b, mut rx) = (ring.producer(), ring.producer(), ring.reader(key));
            let held = a.claim_n(2).unwrap();
            let error = b.claim_by(Instant::now() + SOON).err().unwrap();
            assert!(matches!(error, slipring::ClaimError::TimedOut { .. }), "{error}");
            held.publish();
            assert_eq!(rx.poll(9, |_, _| ()).unwrap(), 2);
            b.publish_by(Instant::now() + common::LIMIT, |_| ()).unwrap();
        });
        let w = wait.clone();
        let error = ends(&format!("a stage that publishes into its own ring, {wait}"), move || {
            let own = Arc::new(std::sync::Mutex::new(None::<slipring::SharedProducer<u64>>));
            let theirs = own.clone();
            let (tx, pipeline) = slipring::ring(2, || 0u64)
                .wait(w)
                .read("echo", move |_, _| {
                    let mut own = theirs.lock().unwrap();
                    let own = own.as_mut().unwrap();
                    own.publish(|_| ())?;
                    own.publish(|_| ())?;
                    own.publish(|_| ()).map(drop)
                })
                .spawn_shared()
                .unwrap();
            let mut first = tx.clone();
            *own.lock().unwrap() = Some(tx);
            first.publish(|_| ()).unwrap();
            drop(first);
            let error = pipeline.join().unwrap_err();
            drop(own.lock().unwrap().take());
            error
        });
        let said = "stage `echo` holds what is waited for, and only the caller can move it on";
        assert!(error.stage() == Some("echo") && error.to_string().contains(said), "{error}");
        let error =
            ends(&format!("a clone that `run_shared` is to give back, {wait}"), move || {
                slipring::ring(2, || 0u64)
                    .wait(wait)
                    .deadline(SOON)
                    .read("r", |_, _| ())
                    .run_shared(|p| Ok(p.clone()))
                    .map(drop)
                    .unwrap_err()
            });
        assert!(is_deadline(error.failure().unwrap()) && error.stage() == Some("r"), "{error}");
    }
}

#[test]
fn a_stage_that_waits_for_its_own_pipeline_is_told() {
    let _watched = crate::common::watched();
    ends("joining oneself", || {
        let slot = Arc::new(std::sync::Mutex::new(None::<slipring::Pipeline>));
        let theirs = slot.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let (mut tx, pipeline) = slipring::ring(2, || 0u64)
            .read("beside", |_, _| ())
            .read("r", move |_, _| {
                let mut pipeline = theirs.lock().unwrap().take().unwrap();
                let within = pipeline.join_within(Duration::MAX);
                tell.send((
                    matches!(within, Err(JoinError::StillRunning { stage }) if &*stage == "r"),
                    pipeline.join().unwrap_err(),
                ))
            })
            .spawn()
            .unwrap();
        *slot.lock().unwrap() = Some(pipeline);
        tx.publish(|_| ()).unwrap();
        let (still, error) = told.recv().unwrap();
        assert!(
            still && error.stage() == Some("r") && error.to_string().contains("its own pipeline"),
            "{error}"
        );
        // It is only told; nothing has failed.
        tx.close();
        assert!(told.recv().is_err());
    });
}

#[test]
fn rings_that_feed_each_other_end_together() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let error = ends(&format!("nested rings, {wait}"), move || {
            let w = wait.clone();
            slipring::ring(2, || 0u64)
                .wait(wait)
                .read("inner", |v, _| if *v == 9 { Err(Oops(*v)) } else { Ok(()) })
                .run(|second| {
                    slipring::ring(2, || 0u64)
                        .wait(w)
                        .read("outer", |v, _| second.publish(|s| *s = *v).map(drop))
                        .feed(0.., |s, i| *s = i)
                        .map_err(Fault::from)
                        .map(drop)
                })
                .unwrap_err()
        });
        assert_eq!((error.stage(), error.seq()), (Some("inner"), Some(9)));
        assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(9)));
    }
}

/// In a process of its own, whose threads ask for more stack than there is memory.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn threads_that_the_system_refuses() {
    let _watched = crate::common::watched();
    if std::env::var_os("REFUSED").is_none() {
        let told = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads_that_the_system_refuses", "--test-threads=1", "--nocapture"])
            .envs([("REFUSED", "1"), ("RUST_MIN_STACK", "140737488355328")])
            .output()
            .unwrap();
        assert!(
            told.status.success(),
            "{}{}",
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr)
        );
        return;
    }
    common::quiet();
    let chain = || {
        let (a, b) = (Fragile(true), Fragile(true));
        slipring::ring(4, || 0u64)
            .write("first", move |_, _| {
                let _ = &a;
            })
            .read("second", move |_, _| {
                let _ = &b;
            })
    };
    let refused = |error: Error| {
        assert!(matches!(error.failure().unwrap().cause(), Cause::Thread(_)), "{error}");
        assert_eq!(error.stage(), Some("first"));
    };
    refused(chain().feed(0.., |slot, i| *slot = i).unwrap_err());
    refused(chain().run_shared(|p| Ok(p.publish(|_| ()).is_ok())).unwrap_err());
    refused(chain().spawn().map(drop).unwrap_err());
}
