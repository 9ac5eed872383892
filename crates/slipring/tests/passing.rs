//! Waits until a stage has passed a position: each form, each delivery, and each end.

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{PURPOSE, Unpark, block_on, ends};
use slipring::{
    Graph, Monitor, OnFault, Producer, Reader, Tap, Wait,
    errors::{PassError, WaitError},
    handles::StartAt,
    markers::Layout,
    stages::PRODUCER,
    tasks::PassAsync,
};

/// Time until a thread that waits in a test has probably gone to sleep.
const PAUSE: Duration = Duration::from_millis(20);

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(5)
}

#[track_caller]
fn waits_for_itself(result: Result<(), PassError>, stage: &str) {
    assert!(
        matches!(&result, Err(PassError::Wait(WaitError::WaitsForItself(name))) if &**name == stage),
        "{result:?}"
    );
}

fn poll_once(future: &mut PassAsync<'_>) -> Poll<Result<(), PassError>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn two_stages() -> (Producer<u64>, Reader<u64>, Reader<u64>, Monitor) {
    let graph = Graph::new(8, || 0u64);
    let journal = graph.reader("journal");
    let execute = graph.reader("execute").after(&journal);
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(journal), ring.reader(execute), ring.monitor())
}

fn in_both_layouts<L: Layout>(
    lay: impl Fn(slipring::Chain<'static, u64>) -> slipring::Chain<'static, u64, L>,
) {
    for wait in Wait::all() {
        let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let (first, second) = (done.clone(), done.clone());
        let monitor = Monitor::new();
        let chain = lay(slipring::ring(16, || 0u64).wait(wait.clone()).monitor(&monitor));
        let chain = chain
            .read("first", move |value, _| first[0].store(*value, SeqCst))
            .read("second", move |value, _| second[1].store(*value, SeqCst));
        let (mut tx, pipeline) = chain.spawn().unwrap();
        for i in 1..=20 {
            let seq = tx.publish(|slot| *slot = i).unwrap();
            match i % 4 {
                0 => tx.wait_for("first", seq).unwrap(),
                1 => tx.flush().unwrap(),
                2 => block_on(tx.wait_for_async("second", seq)).unwrap(),
                _ => monitor.flush().unwrap(),
            }
            assert_eq!(done[0].load(SeqCst), i, "{wait}");
            assert!(done[1].load(SeqCst) == i || i % 4 == 0, "{wait}");
        }
        tx.flush().unwrap();
        monitor.wait_for("second", 19).unwrap();
        block_on(monitor.wait_for_async("first", 19)).unwrap();
        block_on(monitor.flush_async()).unwrap();
        block_on(tx.flush_async()).unwrap();
        drop(tx);
        pipeline.join().unwrap();
        assert!(matches!(monitor.flush(), Err(PassError::NotRunning)));
    }
}

#[test]
fn every_strategy_waits_for_a_stage_and_for_all() {
    let _watched = common::watched();
    in_both_layouts(|chain| chain);
    in_both_layouts(|chain| chain.contiguous());
}

#[test]
fn a_sleeper_wakes_at_the_release() {
    let _watched = common::watched();
    for as_task in [false, true] {
        let (mut tx, mut journal, mut execute, monitor) = two_stages();
        let seq = tx.publish(|slot| *slot = 1).unwrap();
        let sleeper = thread::spawn(move || {
            let result = match as_task {
                true => block_on(monitor.wait_for_async("journal", seq)),
                false => monitor.wait_for("journal", seq),
            };
            result.map(|()| monitor)
        });
        thread::sleep(PAUSE);
        journal.poll(8, |_, _| ()).unwrap();
        let monitor = sleeper.join().unwrap().unwrap();
        let flushes = thread::spawn(move || match as_task {
            true => block_on(tx.flush_async()).map(|()| tx),
            false => tx.flush().map(|()| tx),
        });
        thread::sleep(PAUSE);
        execute.poll(8, |_, _| ()).unwrap();
        monitor.flush().unwrap();
        flushes.join().unwrap().unwrap();
    }
}

#[test]
fn an_unknown_name_lists_the_stages() {
    let _watched = common::watched();
    let (mut tx, _journal, _execute, monitor) = two_stages();
    let seq = tx.publish(|_| ()).unwrap();
    for error in [
        tx.wait_for("jornal", seq).unwrap_err(),
        tx.wait_for_by("jornal", seq, soon()).unwrap_err(),
        block_on(tx.wait_for_async("jornal", seq)).unwrap_err(),
        monitor.wait_for("jornal", seq).unwrap_err(),
        block_on(monitor.wait_for_async("jornal", seq)).unwrap_err(),
        // The producers are no stage.
        monitor.wait_for(PRODUCER, seq).unwrap_err(),
    ] {
        assert!(matches!(error, PassError::UnknownStage { .. }), "{error:?}");
        assert!(error.to_string().ends_with("are `journal`, `execute`: name one of these"));
    }
}

#[test]
fn a_deadline_ends_the_wait_and_names_the_stage() {
    let _watched = common::watched();
    let (mut tx, mut journal, _execute, monitor) = two_stages();
    let seq = tx.publish(|_| ()).unwrap();
    journal.poll(8, |_, _| ()).unwrap();
    tx.wait_for_by("journal", seq, soon()).unwrap();
    for result in [
        tx.wait_for_by("execute", seq, soon()),
        tx.flush_by(soon()),
        tx.flush_by(Instant::now()),
        monitor.wait_for_by("execute", seq, soon()),
        monitor.flush_by(soon()),
    ] {
        assert!(
            matches!(&result, Err(PassError::TimedOut(stage)) if &**stage == "execute"),
            "{result:?}"
        );
    }
    // The strategy's own timeout.
    let graph = Graph::new(8, || 0u64).wait(Wait::Blocking.or_timeout(Duration::from_millis(1)));
    let key = graph.reader("slow");
    let ring = graph.build().unwrap();
    let (mut tx, _rx) = (ring.producer(), ring.reader(key));
    tx.publish(|_| ()).unwrap();
    assert!(matches!(tx.flush(), Err(PassError::TimedOut(_))));
}

#[test]
fn the_graphs_deadline_ends_the_wait() {
    let _watched = common::watched();
    for as_task in [false, true] {
        let graph = Graph::new(8, || 0u64).deadline(Duration::from_millis(20));
        let key = graph.reader("slow");
        let ring = graph.build().unwrap();
        let (mut tx, _rx) = (ring.producer(), ring.reader(key));
        tx.publish(|_| ()).unwrap();
        let result = if as_task {
            let mut flushed = tx.flush_async();
            loop {
                match poll_once(&mut flushed) {
                    Poll::Ready(result) => break result,
                    Poll::Pending => thread::sleep(Duration::from_millis(1)),
                }
            }
        } else {
            tx.flush()
        };
        assert!(matches!(result, Err(PassError::Wait(WaitError::Failed(_)))), "{result:?}");
    }
}

/// How a graph ends under a waiter.
#[derive(Clone, Copy, Debug)]
enum End {
    Halt,
    Fail,
    Close,
}

#[test]
fn every_end_of_the_graph_ends_the_wait() {
    let _watched = common::watched();
    for end in [End::Halt, End::Fail, End::Close] {
        for as_task in [false, true] {
            let (mut tx, mut journal, mut execute, monitor) = two_stages();
            tx.publish(|_| ()).unwrap();
            // Position 1 is not published yet, so a close ends the wait, too.
            let sleeper = thread::spawn(move || match as_task {
                true => block_on(monitor.wait_for_async("execute", 1)),
                false => monitor.wait_for("execute", 1),
            });
            thread::sleep(PAUSE);
            match end {
                End::Halt => tx.halt(),
                End::Fail => drop(journal),
                End::Close => {
                    tx.close();
                    journal.for_each(|_, _| ()).unwrap();
                    execute.for_each(|_, _| ()).unwrap();
                }
            }
            let result = sleeper.join().unwrap();
            let fits = match (end, &result) {
                (End::Halt, Err(PassError::Wait(WaitError::Halted))) => true,
                (End::Fail, Err(PassError::Wait(WaitError::Failed(why)))) => {
                    &**why.stage() == "journal"
                }
                (End::Close, Err(error @ PassError::NotPublished { seq: 1, end: 1 })) => {
                    error.to_string().contains("position 1 is never published")
                }
                _ => false,
            };
            assert!(fits, "{end:?}, {as_task}: {result:?}");
        }
    }
}

#[test]
fn a_closed_ring_is_flushed_to_its_last_event() {
    let _watched = common::watched();
    let (mut tx, mut journal, mut execute, monitor) = two_stages();
    tx.publish(|_| ()).unwrap();
    tx.close();
    let flushes = {
        let monitor = monitor.clone();
        thread::spawn(move || monitor.flush())
    };
    assert!(matches!(monitor.wait_for("journal", 1), Err(PassError::NotPublished { .. })));
    journal.for_each(|_, _| ()).unwrap();
    monitor.wait_for("journal", 0).unwrap();
    execute.for_each(|_, _| ()).unwrap();
    flushes.join().unwrap().unwrap();
    drop((journal, execute));
    assert!(matches!(monitor.wait_for("journal", 0), Err(PassError::NotRunning)));
}

#[test]
fn a_monitor_without_a_graph_says_so() {
    let _watched = common::watched();
    let monitor = Monitor::new();
    assert!(matches!(monitor.flush(), Err(PassError::NotRunning)));
    assert!(matches!(block_on(monitor.flush_async()), Err(PassError::NotRunning)));
    let (tx, journal, execute, bound) = two_stages();
    let mut future = bound.wait_for_async("journal", 0);
    assert!(poll_once(&mut future).is_pending());
    drop((tx, journal, execute));
    assert!(matches!(poll_once(&mut future), Poll::Ready(Err(PassError::NotRunning))));
    // The waiter of a graph whose last handle goes away.
    let (tx, journal, execute, bound) = two_stages();
    let sleeper = thread::spawn(move || bound.wait_for("journal", 7));
    thread::sleep(PAUSE);
    drop((tx, journal, execute));
    assert!(sleeper.join().unwrap().is_err());
}

#[test]
fn a_dropped_future_leaves_no_waker() {
    let _watched = common::watched();
    let (mut tx, mut journal, mut execute, monitor) = two_stages();
    tx.publish(|_| ()).unwrap();
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut context = Context::from_waker(&waker);
    for mut future in [tx.flush_async(), monitor.flush_async()] {
        assert!(Pin::new(&mut future).poll(&mut context).is_pending());
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&unpark), 1);
    journal.poll(8, |_, _| ()).unwrap();
    execute.poll(8, |_, _| ()).unwrap();
    assert_eq!(unpark.wakes(), 0);
}

#[test]
fn many_monitors_of_different_rings_stand_in_one_list() {
    let _watched = common::watched();
    let bytes = Graph::new(4, || 0u8);
    let key = bytes.reader("bytes");
    let bytes = bytes.build().unwrap();
    let words = Graph::new(4, String::new).contiguous();
    let other = words.reader("words");
    let words = words.build().unwrap();
    let _handles = (bytes.reader(key), words.reader(other));
    let monitors: Vec<Monitor> = vec![bytes.monitor(), words.monitor()];
    let names = |it: &Monitor| it.report().unwrap().stages()[0].name.to_string();
    assert_eq!(monitors.iter().map(names).collect::<Vec<_>>(), ["bytes", "words"]);
}

// Deliveries.

#[test]
fn a_pool_passes_when_all_its_workers_have_released() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64);
    let pool = graph.pool_reader("pool", 2);
    let ring = graph.build().unwrap();
    let (mut tx, monitor) = (ring.producer(), ring.monitor());
    let mut workers = ring.pool_readers(pool).into_iter();
    let (mut one, mut other) = (workers.next().unwrap(), workers.next().unwrap());
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    let first = one.batch(1).unwrap();
    let second = other.batch(1).unwrap();
    let sleeper = {
        let monitor = monitor.clone();
        thread::spawn(move || monitor.wait_for("pool", 1))
    };
    second.release(); // out of order
    assert!(matches!(tx.wait_for_by("pool", 1, soon()), Err(PassError::TimedOut(_))));
    assert!(matches!(tx.wait_for_by("pool", 0, soon()), Err(PassError::TimedOut(_))));
    first.release();
    sleeper.join().unwrap().unwrap();
    tx.flush().unwrap();
}

/// A pool's queue wakes one worker for each event. A waiter beside the workers takes no wake-up.
#[test]
fn waiters_beside_a_sleeping_pool_take_no_wake_up() {
    let _watched = common::watched();
    let handled = AtomicU64::new(0);
    let monitor = Monitor::new();
    slipring::ring(64, || 0u64)
        .wait(Wait::Blocking)
        .monitor(&monitor)
        .read("first", |_, _| ())
        .read_pool("pool", 3, |_| |_: &u64, _| _ = handled.fetch_add(1, SeqCst))
        .run(|tx| {
            for i in 0..200 {
                let seq = tx.publish(|slot| *slot = i)?;
                if i % 10 == 0 {
                    thread::sleep(Duration::from_millis(1)); // the workers go to sleep
                }
                match i % 3 {
                    0 => tx.wait_for("first", seq)?,
                    1 => block_on(monitor.wait_for_async("first", seq))?,
                    _ => tx.flush()?,
                }
            }
            tx.flush()?;
            assert_eq!(handled.load(SeqCst), 200);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_sharded_stage_passes_when_each_shard_has() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64);
    let shards = graph.shard_reader("shards", 2, |value: &u64| *value);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    let mut shards = ring.shard_readers(shards).into_iter();
    let (mut one, mut other) = (shards.next().unwrap(), shards.next().unwrap());
    (0..4).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    while one.poll(8, |_, _| ()).unwrap() != 0 {}
    assert!(matches!(tx.flush_by(soon()), Err(PassError::TimedOut(_))));
    while other.poll(8, |_, _| ()).unwrap() != 0 {}
    tx.wait_for("shards", 3).unwrap();
    tx.flush().unwrap();
}

/// The waits for a tap, by a producer of either kind.
macro_rules! taps {
    ($tx:expr, $tap:expr, $monitor:expr) => {{
        let (mut tx, tap, monitor): (_, Tap<u64>, Monitor) = ($tx, $tap, $monitor);
        let seq = tx.publish(|_| ()).unwrap();
        tx.wait_for("tap", seq).unwrap();
        tx.flush().unwrap();
        monitor.flush().unwrap();
        let mut member = tap.subscribe(StartAt::Now).unwrap();
        let seq = tx.publish(|_| ()).unwrap();
        assert!(matches!(tx.wait_for_by("tap", seq, soon()), Err(PassError::TimedOut(_))));
        let sleeper = thread::spawn(move || monitor.wait_for("tap", seq));
        thread::sleep(PAUSE);
        member.poll(8, |_, _| ()).unwrap();
        sleeper.join().unwrap().unwrap();
        let seq = tx.publish(|_| ()).unwrap();
        let leaves = thread::spawn(move || {
            thread::sleep(PAUSE);
            drop(member);
        });
        tx.wait_for("tap", seq).unwrap();
        leaves.join().unwrap();
    }};
}

#[test]
fn a_tap_passes_at_once_without_members_and_with_them_when_all_have() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64);
    let tap = graph.tap("tap", 2);
    let ring = graph.build().unwrap();
    taps!(ring.producer(), ring.tap(tap), ring.monitor());
    let graph = Graph::new(8, || 0u64).shared();
    let tap = graph.tap("tap", 2);
    let ring = graph.build().unwrap();
    taps!(ring.producer(), ring.tap(tap), ring.monitor());
}

// Threads that run stages.

#[test]
fn shared_threads_run_the_stages_that_a_waiter_waits_for() {
    let _watched = common::watched();
    ends("a handler and the producer of shared threads wait", || {
        for threads in [1, 2] {
            let monitor = Monitor::new();
            let asks = monitor.clone();
            let mut waits = Vec::new();
            slipring::ring(16, || 0u64)
                .threads(threads)
                .monitor(&monitor)
                .read("first", |_, _| ())
                .read("second", |_, at| {
                    // An earlier stage has passed. The own stage, and a later one, cannot.
                    asks.wait_for("first", at.seq).unwrap();
                    waits_for_itself(asks.wait_for("second", at.seq), "second");
                    waits_for_itself(asks.wait_for("third", at.seq), "second");
                    waits_for_itself(asks.flush(), "second");
                    waits_for_itself(block_on(asks.flush_async()), "second");
                    waits.push(at.seq);
                })
                .read("third", |_, _| ())
                .run(|tx| {
                    for i in 0..40 {
                        let seq = tx.publish(|slot| *slot = i)?;
                        match i % 4 {
                            0 => tx.flush()?,
                            1 => tx.wait_for("second", seq)?,
                            2 => block_on(tx.wait_for_async("third", seq))?,
                            _ => {}
                        }
                    }
                    tx.flush().map_err(Into::into)
                })
                .unwrap();
            assert_eq!(waits.len(), 40);
        }
    });
}

#[test]
fn one_thread_runs_all_stages_while_it_flushes() {
    let _watched = common::watched();
    let sum = AtomicU64::new(0);
    slipring::ring(16, || 0u64)
        .read("sum", |value, _| _ = sum.fetch_add(*value, SeqCst))
        .run_inline(|tx| {
            for i in 1..=100 {
                tx.publish(|slot| *slot = i)?;
                if i % 2 == 0 {
                    tx.flush()?
                } else {
                    tx.wait_for("sum", i - 1)?
                }
                assert_eq!(sum.load(SeqCst), i * (i + 1) / 2);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_handler_that_waits_for_itself_gets_an_error() {
    let _watched = common::watched();
    let monitor = Monitor::new();
    let asks = &monitor;
    slipring::ring(4, || 0u64)
        .monitor(&monitor)
        .read("first", |_, at| {
            waits_for_itself(asks.wait_for("first", at.seq), "first");
            waits_for_itself(asks.wait_for("last", at.seq), "first");
            waits_for_itself(asks.flush(), "first");
            waits_for_itself(block_on(asks.flush_async()), "first");
            if at.seq > 0 {
                asks.wait_for("first", at.seq - 1).unwrap();
                asks.wait_for("last", at.seq - 1).unwrap();
            }
            // The event's slot holds this handler's event.
            if at.seq < 16 {
                waits_for_itself(asks.wait_for("last", at.seq + 4), "first");
            }
        })
        .read("last", |_, at| asks.wait_for("first", at.seq).unwrap())
        .run(|tx| {
            for i in 0..20 {
                tx.publish(|slot| *slot = i)?;
                tx.flush()?; // so that each batch has one event
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn the_only_producer_does_not_wait_for_what_it_has_not_published() {
    let _watched = common::watched();
    let (mut tx, _journal, _execute, _monitor) = two_stages();
    let next = tx.next_seq();
    waits_for_itself(tx.wait_for("journal", next), PRODUCER);
    waits_for_itself(block_on(tx.wait_for_async("journal", next)), PRODUCER);
    tx.flush().unwrap(); // nothing was published
}

/// Positions wrap, so a position that is too far ahead lies before the first one.
#[test]
fn a_position_before_the_first_one_is_never_published() {
    let _watched = common::watched();
    let never = |result: Result<(), PassError>, position: u64, first: u64| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, PassError::NotPublished { seq, end } if (seq, end) == (position, first)),
            "{error}"
        );
        let text = format!(
            "{position} is never published: positions wrap, and it lies before the ring's first position, {first};"
        );
        assert!(error.to_string().contains(&text), "{error}");
    };
    for (first, shared) in [(0, false), (0, true), (u64::MAX - 1, true), (5, false)] {
        let graph = Graph::new(8, || 0u64).first_seq(first);
        let key = graph.reader("r");
        let beyond = [u64::MAX, 1 << 63, (1 << 63) + 1].map(|far| first.wrapping_add(far));
        let furthest = first.wrapping_add(u64::MAX >> 1);
        if shared {
            let ring = graph.shared().build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            let seqs = [(); 3].map(|()| tx.publish(|_| ()).unwrap());
            rx.poll(8, |_, _| ()).unwrap();
            for seq in beyond {
                never(tx.wait_for("r", seq), seq, first);
                never(block_on(tx.wait_for_async("r", seq)), seq, first);
            }
            seqs.iter().for_each(|&seq| tx.wait_for("r", seq).unwrap());
            assert!(matches!(tx.wait_for_by("r", furthest, soon()), Err(PassError::TimedOut(_))));
        } else {
            let ring = graph.build().unwrap();
            let (mut tx, mut rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
            let seqs = [(); 3].map(|()| tx.publish(|_| ()).unwrap());
            rx.poll(8, |_, _| ()).unwrap();
            for seq in beyond {
                never(tx.wait_for("r", seq), seq, first);
                never(tx.wait_for_by("r", seq, soon()), seq, first);
                never(monitor.wait_for("r", seq), seq, first);
            }
            seqs.iter().for_each(|&seq| tx.wait_for("r", seq).unwrap());
            waits_for_itself(tx.wait_for("r", furthest), PRODUCER);
            let late = monitor.wait_for_by("r", furthest, soon());
            assert!(matches!(late, Err(PassError::TimedOut(_))));
        }
    }
}

// Several producers, claims, failures.

#[test]
fn a_flush_waits_for_other_producers_and_not_for_claims_given_up() {
    let _watched = common::watched();
    let graph = Graph::new(8, || 0u64).shared();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
    let mut other = tx.clone();
    other.publish(|_| ()).unwrap();
    assert!(matches!(tx.flush_by(soon()), Err(PassError::TimedOut(_))));
    rx.poll(8, |_, _| ()).unwrap();
    tx.flush().unwrap();
    monitor.flush().unwrap();
    // A forgotten claim is given up by the next call.
    std::mem::forget(tx.claim().unwrap());
    assert!(matches!(tx.flush_by(soon()), Err(PassError::TimedOut(_))));
    rx.poll(8, |_, _| ()).unwrap();
    tx.flush().unwrap();
    // Another producer may publish the position.
    let seq = other.next_seq() + 1;
    let sleeper = thread::spawn(move || tx.wait_for("r", seq).map(|()| tx));
    thread::sleep(PAUSE);
    while other.publish(|_| ()).unwrap() < seq {}
    rx.poll(8, |_, _| ()).unwrap();
    sleeper.join().unwrap().unwrap();
}

#[test]
fn a_skipped_event_counts_as_passed_and_a_failed_stage_ends_the_wait() {
    let _watched = common::watched();
    let error = slipring::ring(8, || 0u64)
        .read("picky", |value, _| match value {
            1 => Err(format!("skipped {PURPOSE}")),
            2 => panic!("{PURPOSE}"),
            _ => Ok(()),
        })
        .on_error(OnFault::skip())
        .run(|tx| {
            for i in 0..2 {
                tx.publish(|slot| *slot = i)?;
                tx.flush()?;
            }
            let seq = tx.publish(|slot| *slot = 2)?;
            let result = tx.wait_for("picky", seq);
            assert!(
                matches!(&result, Err(PassError::Wait(WaitError::Failed(why))) if why.seq() == Some(2)),
                "{result:?}"
            );
            Ok(())
        })
        .unwrap_err();
    assert_eq!((error.stage(), error.seq()), (Some("picky"), Some(2)));
}

#[test]
fn positions_wrap() {
    let _watched = common::watched();
    let graph = Graph::new(4, || 0u64).first_seq(u64::MAX - 2);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, monitor) = (ring.producer(), ring.reader(key), ring.monitor());
    tx.flush().unwrap();
    monitor.flush().unwrap();
    for i in 0..6 {
        let seq = tx.publish(|slot| *slot = i).unwrap();
        assert!(matches!(monitor.flush_by(soon()), Err(PassError::TimedOut(_))));
        rx.poll(4, |_, _| ()).unwrap();
        tx.wait_for("r", seq).unwrap();
        tx.flush().unwrap();
        monitor.flush().unwrap();
    }
    let stage = rx;
    drop(stage);
    assert!(tx.flush().is_ok(), "everything was handled before the handle was dropped");
}

#[test]
fn a_graph_without_stages_has_nothing_to_flush() {
    let _watched = common::watched();
    let ring = Graph::new(4, || 0u64).build().unwrap();
    let (mut tx, monitor) = (ring.producer(), ring.monitor());
    (0..9).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
    tx.flush().unwrap();
    monitor.flush().unwrap();
    let error = tx.wait_for("x", 0).unwrap_err().to_string();
    assert_eq!(error, "the graph has no stage `x`; its stages are none");
}
