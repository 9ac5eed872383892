//! Stages that share threads (`Chain::threads`): the threads that run them, the producer that waits
//! for room, and waits that may not hold up other stages.
#![cfg(not(slipring_loom))]

mod common;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use slipring::{
    At, Graph, OnFault, Pool, Reader, Wait,
    errors::{BatchError, ClaimError},
    faults::Fault,
    ring,
    stages::ReadHandler,
};

/// Every strategy that suits a graph with more threads than cores: all but busy spin.
fn waits() -> impl Iterator<Item = Wait> {
    Wait::all().into_iter().skip(1)
}

#[test]
fn zero_threads_are_an_error_that_says_what_to_do() {
    let _watched = common::watched();
    let chain = ring(8, || 0u64).threads(0).read("r", |_, _| ());
    let error = chain.feed(0..1, |slot, i| *slot = i).unwrap_err();
    assert!(error.is_build(), "{error}");
    assert!(error.to_string().contains("state at least 1, or `Threads::Auto`"), "{error}");
    // `run_inline` runs all stages on one thread, whatever number the chain states.
    let chain = ring(8, || 0u64).threads(0).read("r", |_, _| ());
    chain.run_inline(|p| Ok(p.publish(|_| ()).map(drop)?)).unwrap();
}

/// The library starts no more threads than the stages can use. The calling thread counts as one of
/// them.
#[test]
fn no_more_threads_are_started_than_stages_can_use() {
    let _watched = common::watched();
    for (threads, stages, started) in [(1, 3, 1), (2, 3, 1), (3, 3, 2), (9, 3, 2), (9, 1, 1)] {
        let names = Mutex::new(HashSet::new());
        let mut chain = ring(8, || 0u64)
            .threads(threads)
            .on_thread_start(|name| assert!(names.lock().unwrap().insert(name.to_owned())));
        for stage in 0..stages {
            chain = chain.read(&format!("s{stage}"), |_, _| ());
        }
        chain.feed(0..100, |slot, i| *slot = i).unwrap();
        let expected = (0..started).map(|number| format!("stages-{number}")).collect();
        assert_eq!(names.into_inner().unwrap(), expected, "threads({threads}), {stages} stages");
    }
}

#[test]
fn a_stage_with_a_thread_of_its_own_keeps_it() {
    let _watched = common::watched();
    let here = || thread::current().name().map(str::to_owned);
    let (own, shared) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
    let text = ring(8, || 0u64).threads(2).read("a", |_, _| ()).read("b", |_, _| ()).on("io");
    assert!(text.to_string().contains("on thread io"), "{text}");
    ring(8, || 0u64)
        .threads(3)
        .read("a", |_, _| _ = shared.lock().unwrap().insert(here()))
        .read("journal", |_, _| _ = own.lock().unwrap().insert(here()))
        .on("io")
        .read_by("loop", |rx| {
            rx.for_each(|_, _| assert_eq!(here().as_deref(), Some("loop"))).map(drop)
        })
        .read("b", |_, _| _ = shared.lock().unwrap().insert(here()))
        .feed(0..1000, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(own.into_inner().unwrap(), HashSet::from([Some("io".to_owned())]));
    assert!(!shared.into_inner().unwrap().contains(&Some("io".to_owned())));
}

/// Any thread may run a handler, but only one thread at a time uses its state, and no event is
/// lost.
#[test]
fn any_thread_runs_any_stage_one_at_a_time() {
    let _watched = common::watched();
    const EVENTS: u64 = if cfg!(miri) { 30 } else { 20_000 };
    for wait in waits() {
        let threads: Mutex<HashSet<ThreadId>> = Mutex::default();
        let busy = [const { AtomicBool::new(false) }; 4];
        let mut sums = [0u64; 4];
        let [a, b, c, d] = &mut sums;
        let turn = |stage: usize| {
            assert!(!busy[stage].swap(true, SeqCst), "two threads at once");
            threads.lock().unwrap().insert(thread::current().id());
            busy[stage].store(false, SeqCst);
        };
        let done = ring(64, || 0u64)
            .wait(wait.clone())
            .threads(3)
            .update("a", |value, at| {
                turn(0);
                assert_eq!(*value, at.seq);
                (*value, *a) = (*value + 1, *a + 1);
            })
            .fan_out(|side| {
                side.read("b", |value, at| {
                    turn(1);
                    assert_eq!(*value, at.seq + 1);
                    *b += 1;
                })
                .read("c", |value, _| {
                    turn(2);
                    *c += value;
                })
            })
            .read("d", |value, _| {
                turn(3);
                *d += value;
            })
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        let sum = EVENTS * (EVENTS + 1) / 2;
        assert_eq!(sums, [EVENTS, EVENTS, sum, sum], "{wait}");
        assert!(done.report.stages().iter().all(|stage| stage.events == EVENTS), "{wait}");
        assert!(threads.into_inner().unwrap().len() <= 3);
    }
}

/// A producer that waits for room runs stages meanwhile. Otherwise this run would never end,
/// because the only other thread is busy until the producer's thread has run a stage.
#[test]
fn a_producer_that_waits_for_room_runs_stages() {
    let _watched = common::watched();
    for wait in waits() {
        let caller = thread::current().id();
        let (helped, asked) = mpsc::channel::<()>();
        let (mut first, seen) = (true, AtomicU64::new(0));
        ring(4, || 0u64)
            .wait(wait)
            .threads(2)
            .fan_out(|side| {
                let seen = &seen;
                let blocks = move |_: &u64, at: At| {
                    // The other thread may already have run `helps` for all events of the full
                    // ring.
                    let has_help = seen.load(SeqCst) < at.seq + 4;
                    let is_other = thread::current().id() != caller;
                    if is_other && has_help && std::mem::take(&mut first) {
                        asked.recv().unwrap();
                    }
                };
                let helps = move |_: &u64, _| {
                    seen.fetch_add(1, SeqCst);
                    if thread::current().id() == caller {
                        helped.send(()).ok();
                    }
                };
                side.read("blocks", blocks).read("helps", helps)
            })
            // If the producer's thread runs `blocks` for the first event, that call does not block.
            .feed(0..100, |slot, i| *slot = i)
            .unwrap();
    }
}

/// A handler that blocks occupies one thread, and the other stages run on the other threads.
#[test]
fn a_stage_that_blocks_does_not_hold_up_the_others() {
    let _watched = common::watched();
    for wait in waits() {
        let seen = AtomicU64::new(0);
        let (open, gate) = mpsc::channel::<()>();
        let (mut tx, pipeline) = {
            let seen: &'static AtomicU64 = Box::leak(Box::new(seen));
            let chain = ring(64, || 0u64).wait(wait).threads(2).fan_out(|side| {
                side.read("blocks", move |_, _| gate.recv().unwrap())
                    .read("goes on", move |value, _| seen.store(*value, SeqCst))
            });
            let (mut tx, pipeline) = chain.spawn().unwrap();
            for i in 1..=20 {
                tx.publish(|slot| *slot = i).unwrap();
                while seen.load(SeqCst) != i {
                    thread::sleep(Duration::from_micros(50));
                }
            }
            (tx, pipeline)
        };
        (0..21).for_each(|_| open.send(()).unwrap());
        tx.publish(|slot| *slot = 21).unwrap();
        tx.close();
        assert_eq!(pipeline.join().unwrap().stage("blocks").unwrap().events, 21);
    }
}

/// Workers and shards run on several threads at once.
#[test]
fn workers_of_a_pool_meet_on_two_threads() {
    let _watched = common::watched();
    let meet = Barrier::new(2);
    let mut chain = ring(8, || 0u64).threads(2).wait(Wait::Blocking);
    chain = chain.read_pool("pool", 2, |_| {
        |_: &u64, _| {
            meet.wait();
        }
    });
    // A worker's first chunk has one event, so each worker gets one of the two.
    chain.feed(0..2, |slot, i| *slot = i).unwrap();
    // The two keys belong to different shards, and each pair of events has one of each key. Each
    // shard's handler waits for the other shard's, so the producer's thread must not run a stage.
    let (keys, meet) = (shard_keys(), Arc::new(Barrier::new(2)));
    let (mut tx, pipeline) = ring(2, || 0u64)
        .threads(2)
        .wait(Wait::Blocking)
        .read_shards(
            "shards",
            2,
            |key| *key,
            move |_| {
                let meet = meet.clone();
                move |_: &u64, _| _ = meet.wait()
            },
        )
        .spawn()
        .unwrap();
    for i in 0..20 {
        tx.publish(|slot| *slot = keys[i % 2]).unwrap();
    }
    tx.close();
    assert_eq!(pipeline.join().unwrap().stage("shards").unwrap().events, 20);
}

/// Returns two keys of different shards.
fn shard_keys() -> [u64; 2] {
    let owners = Mutex::new(Vec::new());
    ring(64, || 0u64)
        .read_shards(
            "find",
            2,
            |key| *key,
            |shard| {
                let owners = &owners;
                move |key: &u64, _| owners.lock().unwrap().push((shard, *key))
            },
        )
        .feed(0..64, |slot, i| *slot = i)
        .unwrap();
    let owners = owners.into_inner().unwrap();
    [0, 1].map(|shard| owners.iter().find(|owner| owner.0 == shard).unwrap().1)
}

/// A handler publishes into its own ring. If the ring is full, the handler's thread runs the stages
/// behind it, or gets the error that it waits for itself.
#[test]
fn a_handler_that_waits_for_room_runs_other_stages() {
    let _watched = common::watched();
    for threads in [1, 2] {
        for wait in waits() {
            let own: &Mutex<Option<slipring::SharedProducer<u64>>> = Box::leak(Box::default());
            let chain = ring(4, || 0u64).wait(wait).threads(threads);
            let (mut tx, pipeline) = chain
                .read_batch("echo", |events, _| {
                    for &value in events.iter().filter(|value| **value > 0) {
                        let mut own = own.lock().unwrap();
                        own.as_mut().unwrap().publish(|slot| *slot = value - 1)?;
                    }
                    Ok::<_, slipring::errors::WaitError>(())
                })
                .max_batch(1)
                .read("behind", |_, _| ())
                .spawn_shared()
                .unwrap();
            *own.lock().unwrap() = Some(tx.clone());
            for _ in 0..30 {
                tx.publish(|slot| *slot = 1).ok();
            }
            drop(tx);
            own.lock().unwrap().take();
            // Either the chain ends without an error, or the stage fails because only its own
            // thread could make room.
            if let Err(error) = pipeline.join() {
                assert_eq!(error.stage(), Some("echo"), "{error}");
            }
        }
    }
}

#[test]
fn failures_follow_their_policies() {
    let _watched = common::watched();
    common::quiet();
    for threads in [1, 2, 3] {
        // A retry repeats all events that the stage holds, and their number varies. So the handler
        // remembers which event failed last, and lets each event fail only once.
        let (mut seen, mut failed) = (Vec::new(), None);
        let done = ring(16, || 0u64)
            .threads(threads)
            .read("tries", |value, _| {
                let fails = *value % 5 == 3 && failed.is_none_or(|before| before < *value);
                if fails {
                    failed = Some(*value);
                    return Err("not yet");
                }
                Ok(())
            })
            .on_error(OnFault::retry(1))
            .read("skips", |value, _| assert_ne!(*value, 7, "{}", common::PURPOSE))
            .on_panic(OnFault::skip())
            .read("behind", |value, _| seen.push(*value))
            .feed(0..50, |slot, i| *slot = i)
            .unwrap();
        assert!(seen.into_iter().eq(0..50));
        let skips = done.report.stage("skips").unwrap();
        assert_eq!((skips.skipped, skips.events), (1, 50), "{threads} threads");
        assert_eq!(done.report.stage("tries").unwrap().retries, 10, "{threads} threads");
    }
}

#[test]
fn strategies_of_stages_that_share_threads_must_be_the_same() {
    let _watched = common::watched();
    let chain = ring(8, || 0u64).threads(2);
    let chain = chain.read("a", |_, _| ()).stage_wait(Wait::YIELDING);
    let chain = chain.read("b", |_, _| ()).stage_wait(Wait::Blocking);
    let error = chain.feed(0..1, |slot, i| *slot = i).unwrap_err().to_string();
    assert!(
        error.contains("`a` (yielding) and `b` (blocking) share the executor's threads"),
        "{error}"
    );
}

/// A handler that counts events, and reports at `idle` how many it has handled.
struct Flushes<'a>(u64, &'a AtomicU64);

impl ReadHandler<u64> for Flushes<'_> {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        self.0 += 1;
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        self.1.store(self.0, SeqCst);
        Ok(())
    }
}

/// `idle` is called after the last event, whichever thread has handled that event. It may even be
/// the producer's thread.
#[test]
fn idle_is_called_behind_the_last_event() {
    let _watched = common::watched();
    for wait in waits() {
        for _ in 0..5 {
            let flushed = AtomicU64::new(0);
            let gate = |_: &u64, at: At| {
                // The ring stays full until all events that it holds were flushed.
                while at.seq == 0 && flushed.load(SeqCst) < 4 {
                    thread::sleep(Duration::from_micros(100));
                }
            };
            ring(4, || 0u64)
                .wait(wait.clone())
                .threads(2)
                .fan_out(|side| {
                    let side = side.read("gate", gate).on("gate").read("beside", |_, _| ());
                    side.branch(|branch| {
                        let slow = |_: &u64, _| thread::sleep(Duration::from_micros(500));
                        let branch = branch.read("slow", slow).on("slow");
                        branch.read_with("flushes", Flushes(0, &flushed))
                    })
                })
                .feed(0..5, |slot, i| *slot = i)
                .unwrap();
        }
    }
}

/// A journal whose first `idle` makes a stage behind the gate ready, while the other thread sleeps.
struct OpensGate {
    gate: Reader<u64>,
    idled: mpsc::Sender<()>,
}

impl ReadHandler<u64> for OpensGate {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        thread::sleep(Duration::from_millis(20));
        _ = self.gate.poll(1, |_, _| ());
        Ok(self.idled.send(())?)
    }
}

/// A thread that knows when a stage's `idle` is due finds an event of another stage, and stays in
/// that stage's handler. The other thread sleeps, and must learn the time.
#[test]
fn another_thread_keeps_the_time_of_idle() {
    let _watched = common::watched();
    for wait in [Wait::ADAPTIVE, Wait::Blocking] {
        for _ in 0..if cfg!(miri) { 1 } else { 10 } {
            let graph = Graph::new(8, || 0u64).wait(wait.clone()).threads(2);
            let gate = graph.reader("gate").own_loop();
            let journal = graph.reader("journal").idle_every(Duration::from_millis(1));
            let blocks = graph.reader("blocks").after(&gate);
            let ring = graph.build().unwrap();
            let ((idled, idles), (handles, handled)) = (mpsc::channel(), mpsc::channel());
            let gate = ring.reader(gate);
            let mut handlers = ring.handlers();
            handlers.read_with(journal, OpensGate { gate, idled });
            // The call of `idle` that opened the gate, and a later one.
            handlers.read(blocks, move |_, _| handles.send(idles.iter().take(2).count()));
            let (mut tx, pipeline) = handlers.spawn().unwrap();
            tx.publish(|event| *event = 7).unwrap();
            assert_eq!(handled.recv(), Ok(2));
            drop(tx); // closes the ring
            _ = pipeline.join();
        }
    }
}

/// A handler whose `idle` publishes into its own full ring gets the error that it waits for itself.
#[test]
fn an_idle_handler_that_waits_for_itself_is_told() {
    let _watched = common::watched();
    type Own = Mutex<Option<slipring::SharedProducer<u64>>>;
    struct Publishes(&'static Own);
    impl ReadHandler<u64> for Publishes {
        fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
            Ok(())
        }
        fn idle(&mut self) -> Result<(), Fault> {
            let Some(mut tx) = self.0.lock().unwrap().take() else { return Ok(()) };
            for i in 0..6 {
                tx.publish(|slot| *slot = i)?;
            }
            Ok(())
        }
    }
    for threads in [1, 2] {
        let own: &Own = Box::leak(Box::default());
        let chain = ring(4, || 0u64).wait(Wait::Blocking).threads(threads);
        let chain = chain.read_with("publishes", Publishes(own)).read("beside", |_, _| ());
        let (mut tx, pipeline) = chain.spawn_shared().unwrap();
        *own.lock().unwrap() = Some(tx.clone());
        // A call of `idle` before the first event may already have failed the graph.
        tx.publish(|slot| *slot = 1).ok();
        drop(tx);
        let error = pipeline.join().unwrap_err();
        assert_eq!(error.stage(), Some("publishes"), "{error}");
        assert!(error.to_string().contains("only the calling thread can make"), "{error}");
    }
}

/// A stage releases a skipped event at once, even if no further event is available.
#[test]
fn a_skipped_event_is_released_at_once() {
    let _watched = common::watched();
    for threads in [1, 2] {
        let mut seen = 0;
        ring(1, || 0u64)
            .wait(Wait::Blocking)
            .threads(threads)
            .read("fails", |value, _| if *value == 0 { Err("no") } else { Ok(()) })
            .on_error(OnFault::skip())
            .read("behind", |_, _| seen += 1)
            .max_batch(1)
            .feed(0..40, |slot, i| *slot = i)
            .unwrap();
        assert_eq!(seen, 40);
    }
}

/// A pool shares threads with other stages, and a worker on another thread joins it. The stage
/// before the pool wakes that worker.
#[test]
fn a_worker_that_joined_a_shared_pool_is_woken() {
    let _watched = common::watched();
    for threads in [1, 2] {
        let pool = Pool::reading(2);
        let (joined, arrived) = mpsc::channel::<()>();
        let arrived = Mutex::new(Some(arrived));
        let make = move |_| {
            let mut first = arrived.lock().unwrap().take();
            // The shared worker stays in its first event until the worker that joined has handled
            // an event.
            move |_: &u64, _| _ = first.take().map(|arrived| arrived.recv().unwrap())
        };
        let chain = ring(16, || 0u64).wait(Wait::Blocking).threads(threads).read("a", |_, _| ());
        let (mut tx, pipeline) = chain.read_pool("pool", 1, make).open(&pool).spawn().unwrap();
        let mut worker = pool.join().unwrap();
        let other = thread::spawn(move || {
            let _ = worker.for_each(|_, _| _ = joined.send(()));
        });
        thread::sleep(Duration::from_millis(20));
        let mut claim = tx.claim_n(8).unwrap();
        claim.iter_mut().for_each(|slot| *slot = 1);
        claim.publish();
        tx.close();
        pipeline.join().unwrap();
        other.join().unwrap();
    }
}

/// When turns take long, a thread sometimes chooses its next stage by fairness. It must still find
/// the only stage that is ready. Here, the chain's only thread waits in a handler for room, and
/// only the other stage can make room.
#[test]
fn a_fair_choice_finds_the_only_stage_that_is_ready() {
    let _watched = common::watched();
    for wait in [Wait::Blocking, Wait::YIELDING] {
        let own: &Mutex<Option<slipring::SharedProducer<u64>>> = Box::leak(Box::default());
        let (mut tx, pipeline) = ring(64, || 0u64)
            .wait(wait)
            .threads(1)
            .read("echo", |value, _| -> Result<(), slipring::errors::WaitError> {
                if *value > 0 {
                    let mut own = own.lock().unwrap().take().unwrap();
                    for _ in 0..*value {
                        own.publish(|slot| *slot = 0)?;
                    }
                }
                Ok(())
            })
            .max_batch(1)
            .read("behind", |_, _| thread::sleep(Duration::from_millis(6)))
            .max_batch(1)
            .spawn_shared()
            .unwrap();
        *own.lock().unwrap() = Some(tx.clone());
        // The ring is still full when the handler publishes the echoes of the last event.
        tx.publish_all(0..64, |slot, i| *slot = if i == 63 { 20 } else { 0 }).unwrap();
        drop(tx); // The echo drops the other handle.
        assert_eq!(pipeline.join().unwrap().stage("behind").unwrap().events, 84);
    }
}

thread_local! {
    /// Whether the thread is in a call whose deadline is near.
    static HAS_DEADLINE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `wait`, during which no slow stage may run on this thread.
fn with_deadline<T>(wait: impl FnOnce(Instant) -> T) -> T {
    HAS_DEADLINE.set(true);
    let waited = wait(Instant::now() + Duration::from_millis(1));
    HAS_DEADLINE.set(false);
    waited
}

/// Two stages take far longer for an event than the calling thread's deadlines allow. While it
/// waits, the calling thread runs neither of them. The other thread runs them.
#[test]
fn a_call_with_a_deadline_runs_no_stage_that_takes_longer() {
    let _watched = common::watched();
    let overshot = AtomicU64::new(0);
    let slow = |_: &u64, _: At| {
        if HAS_DEADLINE.get() {
            overshot.fetch_add(1, SeqCst);
        }
        thread::sleep(Duration::from_millis(20));
    };
    let graph = Graph::new(2, || 0u64).threads(2);
    let (one, two) = (graph.reader("one"), graph.reader("two"));
    let end = graph.reader("end").after(&one).after(&two).own_loop();
    let ring = graph.build().unwrap();
    let mut end = ring.reader(end);
    let mut handlers = ring.handlers();
    handlers.read(one, slow).read(two, slow);
    let timed_out = handlers
        .run(|tx| {
            let mut timed_out = [0; 2];
            while timed_out.iter().any(|&calls| calls < 10) {
                match with_deadline(|soon| tx.publish_by(soon, |_| ())) {
                    Ok(_) => {}
                    Err(ClaimError::TimedOut(_)) => timed_out[0] += 1,
                    Err(other) => return Err(other.into()),
                }
                match with_deadline(|soon| end.batch_by(2, soon).map(|batch| batch.release())) {
                    Ok(_) => {}
                    Err(BatchError::TimedOut(_)) => timed_out[1] += 1,
                    Err(other) => return Err(other.into()),
                }
            }
            Ok(timed_out)
        })
        .unwrap()
        .value;
    assert!(timed_out.iter().all(|&calls| calls >= 10), "{timed_out:?}");
    assert_eq!(overshot.into_inner(), 0, "turns on a thread whose deadline was near");
}

/// A handler that waits may occupy the only thread that is free to run stages. So its thread runs
/// slow stages, too, and the handler's repeated calls succeed in the end.
#[test]
fn a_handlers_call_with_a_deadline_runs_slow_stages() {
    let _watched = common::watched();
    for threads in [1, 2] {
        let graph = Graph::new(4, || 0u64).threads(threads);
        let slow = graph.reader("slow");
        let waits = graph.reader("waits");
        let behind = graph.reader("behind").after(&slow).own_loop();
        let ring = graph.build().unwrap();
        let mut behind = ring.reader(behind);
        let (done, is_done) = mpsc::channel();
        let mut handlers = ring.handlers();
        handlers.read(slow, |_, _| thread::sleep(Duration::from_millis(5)));
        handlers.read(waits, |_, _| {
            loop {
                match behind.batch_by(1, Instant::now() + Duration::from_millis(1)) {
                    Ok(batch) => break batch.release(),
                    Err(error) => assert!(matches!(error, BatchError::TimedOut(_)), "{error}"),
                }
            }
            done.send(()).unwrap();
        });
        handlers
            .run(|tx| {
                for _ in 0..3 {
                    tx.publish(|_| ())?;
                    // While the calling thread waits here, it runs no stage.
                    is_done.recv_timeout(Duration::from_secs(60)).expect("the handler ends");
                }
                Ok(())
            })
            .unwrap();
    }
}
