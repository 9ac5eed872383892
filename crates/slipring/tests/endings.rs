//! Endings: closed and drained, halted, out of time, failed; and what is told about it.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{Fragile, LIMIT, Oops, PURPOSE, ends};
use slipring::{
    BatchError, Cause, ClaimError, Error, ErrorKind, Failure, Fault, Graph, JoinError, PRODUCER,
    Report, Wait, WaitError,
};

const SOON: Duration = Duration::from_millis(60);

/// A wait that ends only because everything else does.
fn long() -> Instant {
    Instant::now() + LIMIT
}

#[test]
fn closing_drains() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        for slow in [false, true] {
            let wait = wait.clone();
            ends(&format!("draining, {wait}, slow: {slow}"), move || {
                let graph = Graph::new(8, || 0u64).wait(wait);
                let first = graph.pool_writer("first", 2);
                let last = graph.reader("last").after(&first);
                let ring = graph.build().unwrap();
                let (mut tx, workers, mut last) =
                    (ring.producer(), ring.pool_writers(first), ring.reader(last));
                drop(ring);
                assert_eq!(tx.publish_all(0..8, |slot, i| *slot = i).unwrap(), 8);
                tx.close();
                thread::scope(|scope| {
                    for mut worker in workers {
                        scope.spawn(move || {
                            let handled = worker.for_each(|v, _| {
                                if slow {
                                    thread::sleep(Duration::from_millis(2));
                                }
                                *v += 1;
                            });
                            handled.unwrap();
                            // Later calls say the same.
                            assert!(matches!(worker.batch(1), Err(WaitError::Closed)));
                            assert!(matches!(worker.poll(1, |_, _| ()), Err(WaitError::Closed)));
                        });
                    }
                    let mut sum = 0;
                    assert_eq!(last.for_each(|v, _| sum += v).unwrap(), 8);
                    assert_eq!(sum, 36);
                    assert!(matches!(
                        last.batch_by(1, long()),
                        Err(BatchError::Wait(WaitError::Closed))
                    ));
                    assert_eq!(last.for_each(|_, _| ()).unwrap(), 0);
                });
            });
        }
    }
}

#[test]
fn the_last_producer_closes() {
    let _watched = crate::common::watched();
    ends("last producer", || {
        let graph = Graph::new(4, || 0u64).shared();
        let key = graph.reader("r");
        let ring = graph.build().unwrap();
        let mut rx = ring.reader(key);
        let a = ring.producer();
        let mut b = a.clone();
        drop(a);
        assert!(matches!(rx.try_batch(1), Err(BatchError::Unavailable)));
        b.publish(|v| *v = 1).unwrap();
        b.close();
        assert_eq!(rx.for_each(|v, _| assert_eq!(*v, 1)).unwrap(), 1);
        // Closed is closed.
        assert!(matches!(ring.producer().publish(|_| ()), Err(WaitError::Closed)));
    });
}

#[test]
fn close_all_refuses_the_others_and_loses_nothing() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("close_all, {wait}"), move || {
            let graph = Graph::new(4, || 0u64).shared().wait(wait);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let mut rx = ring.reader(key);
            let (mut held, closer) = (ring.producer(), ring.producer());
            let accepted = AtomicU64::new(0);
            let started = AtomicBool::new(false);
            thread::scope(|scope| {
                let mut slot = held.claim().unwrap();
                *slot = 100;
                for mut tx in [ring.producer(), ring.producer()] {
                    let (accepted, started) = (&accepted, &started);
                    scope.spawn(move || {
                        let closed = loop {
                            match tx.publish(|v| *v = 1) {
                                Ok(_) => accepted.fetch_add(1, SeqCst),
                                Err(closed) => break closed,
                            };
                            started.store(true, SeqCst);
                        };
                        assert!(matches!(closed, WaitError::Closed), "{closed}");
                        assert!(matches!(tx.try_claim(), Err(ClaimError::Wait(WaitError::Closed))));
                    });
                }
                while !started.load(SeqCst) {
                    thread::yield_now();
                }
                closer.close_all();
                // Claimed before the close: still published, and seen.
                slot.publish();
                let mut sum = 0;
                let seen = rx.for_each(|v, _| sum += *v).unwrap();
                assert_eq!((seen - 1, sum - 100), (sum - 100, accepted.load(SeqCst)));
            });
        });
    }
}

#[test]
fn halting_does_not_drain() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        let w = wait.clone();
        ends(&format!("halt, leases, {wait}"), move || {
            let graph = Graph::new(4, || 0u64).wait(w);
            let key = graph.reader("r");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            tx.publish(|_| ()).unwrap();
            thread::scope(|scope| {
                let blocked =
                    scope.spawn(move || tx.publish_all(0.., |slot, i| *slot = i).unwrap_err());
                ring.halt();
                assert!(matches!(blocked.join().unwrap(), WaitError::Halted));
                assert!(matches!(rx.batch(1), Err(WaitError::Halted)));
                assert!(matches!(rx.for_each(|_, _| ()), Err(WaitError::Halted)));
                assert!(matches!(rx.try_batch(1), Err(BatchError::Wait(WaitError::Halted))));
                assert!(matches!(rx.poll(1, |_, _| ()), Err(WaitError::Halted)));
            });
            drop(rx); // harms nobody any more
            assert!(ring.report().halted());
        });
        ends(&format!("halt, chains, {wait}"), move || {
            let done = slipring::ring(4, || 0u64)
                .wait(wait.clone())
                .read("r", |_, _| ())
                .run(|p| {
                    p.publish(|_| ())?;
                    p.halt();
                    assert!(matches!(p.publish(|_| ()), Err(WaitError::Halted)));
                    Ok(5)
                })
                .unwrap();
            assert!(done.report.halted() && done.value == 5);
            assert!(done.report.to_string().contains("halted"));
            let done = slipring::ring(4, || 0u64)
                .run_inline(|p| {
                    p.halt();
                    Ok(())
                })
                .unwrap();
            assert!(done.report.halted());
            let (mut tx, pipeline) =
                slipring::ring(4, || 0u64).wait(wait).read("r", |_, _| ()).spawn().unwrap();
            pipeline.halt();
            assert!(pipeline.join().unwrap().halted());
            assert!(matches!(tx.publish(|_| ()), Err(WaitError::Halted)));
        });
    }
}

#[test]
fn deadlines_of_single_calls() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("by, {wait}"), move || {
            let graph = Graph::new(2, || 0u64).wait(wait).shared();
            let (a, b) = (graph.pool_reader("a", 2), graph.reader("b"));
            let b = b.after(&a);
            let ring = graph.build().unwrap();
            let (mut tx, mut a, mut b) = (ring.producer(), ring.pool_readers(a), ring.reader(b));
            let by = Instant::now() + Duration::from_millis(5);
            assert!(matches!(a[0].batch_by(1, by), Err(BatchError::TimedOut)));
            assert!(matches!(b.batch_by(1, by), Err(BatchError::TimedOut)));
            assert!(Instant::now() >= by);
            tx.publish_all(0..2, |slot, i| *slot = i).unwrap();
            let by = Instant::now() + Duration::from_millis(5);
            let error = tx.publish_by(by, |_| ()).unwrap_err();
            assert!(matches!(&error, ClaimError::TimedOut { stage } if &**stage == "b"), "{error}");
            assert!(Instant::now() >= by);
            assert!(matches!(tx.claim_n_by(2, Instant::now()), Err(ClaimError::TimedOut { .. })));
            // Nothing is lost by it: everything goes on.
            a[1].batch_by(1, long()).unwrap().release();
            a[0].poll(2, |_, _| ()).unwrap();
            assert_eq!(b.batch_by(5, long()).unwrap().len(), 2);
            b.poll(2, |_, _| ()).unwrap();
            assert_eq!(tx.publish_by(long(), |_| ()).unwrap(), 2);
        });
    }
}

#[test]
fn the_deadline_of_a_graph() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("graph deadline, {wait}"), move || {
            // A producer that is stuck in user code: a stage is what waits.
            let release = Arc::new(AtomicBool::new(false));
            let theirs = release.clone();
            let error = slipring::ring(4, || 0u64)
                .wait(wait.clone())
                .deadline(SOON)
                .write("a", |_, _| ())
                .read_with("b", Flag(theirs))
                .run(|p| {
                    p.publish(|_| ())?;
                    while !release.load(SeqCst) {
                        thread::yield_now();
                    }
                    Ok(())
                })
                .unwrap_err();
            let failure = error.failure().unwrap();
            assert!(matches!(failure.cause(), Cause::Deadline(after) if *after == SOON), "{error}");
            assert!(matches!(error.stage(), Some("a" | "b")), "{error}");
            // It stands behind the only event; or, on a busy machine, where that has not come to it
            // yet.
            let handled = error.report().unwrap().stage(error.stage().unwrap()).unwrap().events;
            assert_eq!((error.seq(), handled.min(1)), (Some(handled), handled), "{error}");
            assert!(error.to_string().contains("60ms"), "{error}");
            // Deadlines that nobody will live to see.
            for never in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
                let graph = slipring::ring(4, || 0u64)
                    .wait(wait.clone())
                    .deadline(never)
                    .read("r", |_, _| ());
                graph.feed(0..9, |slot, i| *slot = i).unwrap();
            }
            // One that has passed before the start.
            let late = slipring::ring(4, || 0u64)
                .wait(wait)
                .deadline(Duration::ZERO)
                .read("r", |_, _| ())
                .run(|p| {
                    loop {
                        p.publish(|_| ())?;
                        thread::sleep(Duration::from_millis(5));
                    }
                    #[allow(unreachable_code)]
                    Ok(())
                });
            assert_eq!(late.unwrap_err().stage(), Some("r"));
        });
    }
}

/// Set when the stage stops.
struct Flag(Arc<AtomicBool>);

impl slipring::ReadHandler<u64> for Flag {
    fn event(&mut self, _: &u64, _: slipring::At) -> Result<(), Fault> {
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.0.store(true, SeqCst);
        Ok(())
    }
}

#[test]
fn a_dropped_reader_fails_the_graph() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("dropped reader, {wait}"), move || {
            let graph = Graph::new(4, || 0u64).wait(wait);
            let (a, b) = (graph.reader("a"), graph.reader("b"));
            let ring = graph.build().unwrap();
            let (mut tx, mut a, mut b) = (ring.producer(), ring.reader(a), ring.reader(b));
            tx.publish(|_| ()).unwrap();
            b.poll(1, |_, _| ()).unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(move || a.for_each(|_, _| ()).unwrap_err());
                let full =
                    scope.spawn(move || tx.publish_all(0.., |slot, i| *slot = i).unwrap_err());
                drop(b);
                for closed in [waiting.join().unwrap(), full.join().unwrap()] {
                    let failure = closed.failure().unwrap();
                    assert_eq!((&**failure.stage(), failure.seq()), ("b", Some(1)));
                    assert!(matches!(failure.cause(), Cause::Dropped));
                }
            });
        });
    }
    // After the end it is free to go.
    let (mut tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
    tx.publish(|_| ()).unwrap();
    tx.close();
    rx.for_each(|_, _| ()).unwrap();
}

#[test]
fn pipelines_are_joined() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("join, {wait}"), move || {
            let (go, gate) = mpsc::channel::<()>();
            let (mut tx, mut pipeline) = slipring::ring(4, || 0u64)
                .wait(wait.clone())
                .write("quick", |v, _| *v += 1)
                .read("slow", move |_, _| gate.recv())
                .spawn()
                .unwrap();
            assert_eq!(format!("{pipeline:?}"), r#"["quick", "slow"]"#);
            let still = |error: JoinError, name: &str| {
                assert!(
                    matches!(&error, JoinError::StillRunning { stage } if &**stage == name),
                    "{error}"
                );
                assert!(error.to_string().contains("still running"));
            };
            still(pipeline.join_within(Duration::ZERO).unwrap_err(), "quick");
            tx.publish(|_| ()).unwrap();
            tx.close();
            // `quick` is done in a while, `slow` is not.
            loop {
                match pipeline.join_within(Duration::from_millis(1)).unwrap_err() {
                    JoinError::StillRunning { stage } if &*stage == "quick" => {}
                    other => break still(other, "slow"),
                }
            }
            go.send(()).unwrap();
            let report = pipeline.join_within(Duration::MAX).unwrap();
            assert_eq!(report.stage("slow").unwrap().events, 1);
            // It can be called again, and says the same.
            assert_eq!(
                pipeline.join_within(Duration::ZERO).unwrap().stage("quick").unwrap().events,
                1
            );
            assert_eq!(pipeline.join().unwrap().producer().events, 1);

            let (tx, mut pipeline) = slipring::ring(4, || 0u64)
                .wait(wait)
                .read("r", |_, _| Err(Oops(3)))
                .spawn()
                .unwrap();
            let mut tx = tx;
            while tx.publish(|_| ()).is_ok() {}
            let error = pipeline.join_within(LIMIT).unwrap_err();
            let JoinError::Failed(error) = error else { panic!("{error}") };
            assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(3)));
            assert_eq!(pipeline.join().unwrap_err().seq(), Some(0));
        });
    }
    // A destructor of a thread's own value is not waited for. It ends when this scenario does.
    ends("a slow destructor", || {
        struct Slow(mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv_timeout(LIMIT);
            }
        }
        thread_local!(static SLOW: std::cell::Cell<Option<Slow>> = const { std::cell::Cell::new(None) });
        let (go, gate) = mpsc::channel();
        let mut gate = Some(Slow(gate));
        let (mut tx, mut pipeline) = slipring::ring(4, || 0u64)
            .read("r", move |_, _| SLOW.set(gate.take()))
            .spawn()
            .unwrap();
        tx.publish(|_| ()).unwrap();
        tx.close();
        assert_eq!(pipeline.join_within(Duration::MAX).unwrap().stage("r").unwrap().events, 1);
        drop(go);
        pipeline.join().unwrap();
    });
    // Not joined: the stages go on by themselves.
    ends("a dropped pipeline", || {
        let (tell, told) = mpsc::channel();
        let (mut tx, pipeline) =
            slipring::ring(4, || 0u64).read("r", move |v, _| tell.send(*v)).spawn().unwrap();
        drop(pipeline);
        tx.publish_all(0..20, |slot, i| *slot = i).unwrap();
        drop(tx);
        assert_eq!(told.iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_report_counts_events_batches_and_tombstones() {
    let _watched = crate::common::watched();
    let graph = Graph::new(16, || 0u64).shared();
    let pool = graph.pool_reader("pool", 2);
    let last = graph.reader("last").after(&pool);
    let ring = graph.build().unwrap();
    let (mut tx, mut pool, mut last) =
        (ring.producer(), ring.pool_readers(pool), ring.reader(last));
    tx.publish(|_| ()).unwrap();
    drop(tx.claim_n(3).unwrap());
    tx.claim_n(4).unwrap().publish();
    tx.publish_batches(4, 0..5, |_, _| ()).unwrap();
    tx.close();
    for worker in pool.iter_mut() {
        worker.poll(2, |_, _| ()).unwrap();
    }
    while pool[0].poll(9, |_, _| ()).is_ok() {
        pool[1].poll(9, |_, _| ()).ok();
    }
    last.batch(1).unwrap().release();
    last.batch(9).unwrap().release();
    last.for_each(|_, _| ()).unwrap();
    drop((pool, last));
    let report = ring.report();
    let names: Vec<&str> = report.stages().iter().map(|stage| &*stage.name).collect();
    assert_eq!(names, ["pool", "last", PRODUCER]);
    let of = |name: &str| report.stage(name).map(|stage| (stage.events, stage.tombstones)).unwrap();
    assert_eq!((of("pool"), of("last"), of(PRODUCER)), ((10, 6), (10, 6), (10, 6)));
    assert_eq!(report.producer().batches, 4);
    let last = report.stage("last").unwrap();
    assert!((2..=10).contains(&last.batches), "{}", last.batches);
    assert!(report.stage("nobody").is_none() && !report.halted());

    let shown = report.to_string();
    for expected in ["stage", "events", "batches", "tombstones", "pool", "last", PRODUCER] {
        assert!(shown.contains(expected), "{shown}");
    }
    assert_eq!(shown.lines().count(), 4 + usize::from(report.bottleneck().is_some()), "{shown}");
}

#[test]
fn the_bottleneck_is_the_slow_one() {
    let _watched = crate::common::watched();
    for slow in ["a", "b", "c", PRODUCER] {
        let report = ends(&format!("bottleneck {slow}"), move || {
            let work = move |name| {
                if name == slow {
                    // Far longer than a busy machine, or an interpreter, holds up the others.
                    thread::sleep(Duration::from_millis(if cfg!(miri) { 1_000 } else { 20 }));
                }
            };
            let done = slipring::ring(4, || 0u64)
                .write("a", move |_, _| work("a"))
                .write_pool("b", 1, move |_| move |_, _| work("b"))
                .read("c", move |_, _| work("c"))
                .feed(0..10, |_, _| work(PRODUCER))
                .unwrap();
            done.report
        });
        assert_eq!(&*report.bottleneck().unwrap().name, slow, "{report}");
        assert!(report.to_string().contains(&format!("`{slow}`")), "{report}");
    }
}

#[test]
fn rings_and_chains_print_themselves() {
    let _watched = crate::common::watched();
    let graph = Graph::new(64, || 0u64);
    let parse = graph.pool_writer("parse", 3);
    let (a, b) = (graph.reader("journal").after(&parse), graph.reader("ui").after(&parse));
    let last = graph.writer("last").after(&a).after(&b);
    let ring = graph.build().unwrap();
    let shown = ring.to_string();
    for expected in [
        "64 slots",
        "16 bytes",
        "one producer",
        "adaptive",
        "pool of 3, writes, after producer",
        "writes, after journal and ui",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(shown.contains("gating the producer: last"), "{shown}");
    assert_eq!(format!("{ring:?}"), shown);
    assert_eq!(
        ring.stages().map(|name| name.to_string()).collect::<Vec<_>>(),
        ["parse", "journal", "ui", "last"]
    );
    drop((parse, a, b, last));

    let shown = slipring::ring(8, || 0u64)
        .contiguous()
        .wait(Wait::SLEEPING)
        .write("w", |_, _| ())
        .on("io")
        .fan_out(|side| side.read("a", |_, _| ()).read_pool("b", 2, |_| |_, _| ()))
        .to_string();
    for expected in [
        "8 slots",
        "contiguous",
        "sleeping",
        "on thread io",
        "pool of 2, reads, after w",
        "gating the producer: a and b",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(slipring::ring(8, || 0u64).to_string().contains("overwritten unseen"));
}

/// `format!` panics at a width beyond 2^16 - 1.
#[test]
fn names_of_any_length_are_printed() {
    let _watched = crate::common::watched();
    let long = "n".repeat(70_000);
    let chain = || slipring::ring(8, || 0u64).read(&long, |_, _| ()).read("short", |_, _| ());
    let shown = chain().to_string();
    let done = chain().feed(0..8, |slot, i| *slot = i).unwrap();
    let graph = Graph::new(8, || 0u64);
    let _key = graph.reader(&long);
    for text in [shown, done.report.to_string(), graph.build().unwrap().to_string()] {
        assert!(
            text.contains(&long)
                && text.lines().filter(|line| !line.contains(&long)).all(|line| line.len() < 200)
        );
    }
}

#[test]
fn the_users_own_error_comes_back() {
    let _watched = crate::common::watched();
    fn carried<T: std::error::Error + Send + Sync + 'static>() {}
    carried::<Error>();
    carried::<WaitError>();
    carried::<ClaimError>();
    carried::<BatchError>();
    carried::<JoinError>();
    carried::<slipring::BuildError>();
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Fault>();
    shared::<Failure>();
    shared::<Report>();

    let failed = || {
        slipring::ring(8, || 0u64)
            .read("r", |_, at| if at.seq == 5 { Err(Oops(5)) } else { Ok(()) })
    };
    let error = failed().feed(0..9, |slot, i| *slot = i).unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref::<Oops>()),
        (Some("r"), Some(5), Some(&Oops(5)))
    );
    assert!(error.downcast_ref::<std::fmt::Error>().is_none());
    let said = error.to_string();
    assert!(said.contains("`r`") && said.contains("event 5"), "{said}");
    assert_eq!(error.report().unwrap().stage("r").unwrap().events, 5);
    // The message says it all; there is nothing behind the user's error.
    assert!(said.contains("oops 5") && std::error::Error::source(&error).is_none(), "{said}");
    // Boxed, as a `main` returns it, and through `?` in another chain's producer.
    let boxed: Box<dyn std::error::Error + Send + Sync> = error.into();
    assert!(boxed.downcast_ref::<Error>().is_some());
    let outer = slipring::ring(8, || 0u64)
        .run(|_| {
            failed().feed(0..9, |slot, i| *slot = i)?;
            Ok(())
        })
        .unwrap_err();
    assert_eq!(outer.stage(), Some(PRODUCER));
    let inner: &Error = outer.downcast_ref().unwrap();
    assert_eq!(inner.downcast_ref::<Oops>(), Some(&Oops(5)));
    // An error that is boxed already, and one that is only text.
    let boxed = |text: &'static str| {
        slipring::ring(8, || 0u64).run(move |_| Err::<(), _>(Fault::msg(text))).unwrap_err()
    };
    assert!(
        boxed("plain").failure().unwrap().to_string().contains("plain")
            || boxed("plain").to_string().contains("plain")
    );
    let error = slipring::ring(8, || 0u64)
        .read("r", |_, _| Err::<(), Box<dyn std::error::Error + Send + Sync>>(Box::new(Oops(1))))
        .feed(0..1, |_, _| ())
        .unwrap_err();
    assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(1)));
}

#[test]
fn later_stages_see_what_came_before_a_failure_or_nothing_but_never_out_of_order() {
    let _watched = crate::common::watched();
    for wait in Wait::all() {
        ends(&format!("after a failure, {wait}"), move || {
            let mut seen = Vec::new();
            let error = slipring::ring(8, || 0u64)
                .wait(wait)
                .write_pool("pool", 2, |_| {
                    |v, at| {
                        *v += 1;
                        if at.seq == 20 { Err(Oops(20)) } else { Ok(()) }
                    }
                })
                .read("r", |v, _| seen.push(*v))
                .feed(0.., |slot, i| *slot = i)
                .unwrap_err();
            assert_eq!((error.stage(), error.seq()), (Some("pool"), Some(20)));
            assert!(seen.len() <= 20 && seen.iter().copied().eq(1..=seen.len() as u64), "{seen:?}");
        });
    }
}

#[test]
fn fragile_events_are_an_error_of_their_own() {
    let _watched = crate::common::watched();
    let dropped = |error: Error| {
        assert!(
            matches!(error.kind(), ErrorKind::EventDrop(said) if said.contains(PURPOSE)),
            "{error}"
        );
        assert!(error.report().is_some() && error.stage().is_none());
    };
    let ring = || slipring::ring(4, || Fragile(true)).write("w", |_, _| ());
    ends("fragile events", move || {
        dropped(ring().feed(0..9, |_, _| ()).unwrap_err());
        dropped(ring().run_shared(|p| Ok(p.clone().capacity())).unwrap_err());
        dropped(ring().run_inline(|_| Ok(Fragile(true))).map(drop).unwrap_err());
        let (tx, pipeline) = ring().spawn().unwrap();
        tx.close();
        dropped(pipeline.join().unwrap_err());
        // A failure comes first.
        let error = slipring::ring(4, || Fragile(true))
            .read_pool("p", 1, |_| |_: &Fragile, _| Err(Oops(0)));
        assert_eq!(error.feed(0..9, |_, _| ()).unwrap_err().stage(), Some("p"));
    });
}

/// A destructor that runs while its thread unwinds may use rings of its own, and may close a
/// producer by name.
#[test]
fn destructors_of_a_panicking_thread_end_rings_well() {
    let _watched = crate::common::watched();
    struct Flush(Option<slipring::Producer<u64>>, mpsc::Sender<Result<u64, String>>);
    impl Drop for Flush {
        fn drop(&mut self) {
            assert!(thread::panicking());
            let mut sum = 0;
            let done = slipring::ring(4, || 0u64)
                .read("r", |v, _| sum += v)
                .feed(0..9, |slot, i| *slot = i);
            self.1.send(done.map(|_| sum).map_err(|error| error.to_string())).unwrap();
            let mut tx = self.0.take().unwrap();
            tx.publish(|slot| *slot = 7).unwrap();
            tx.close();
        }
    }
    ends("rings in destructors", || {
        let (tx, mut rx) = slipring::unicast(4, || 0u64).unwrap();
        let (tell, told) = mpsc::channel();
        let panicked = thread::spawn(move || {
            let _flush = Flush(Some(tx), tell);
            panic!("unwinding {PURPOSE}");
        });
        assert_eq!(told.recv().unwrap().unwrap(), 36);
        assert_eq!(rx.for_each(|v, _| assert_eq!(*v, 7)).unwrap(), 1);
        assert!(panicked.join().is_err());
    });
}
