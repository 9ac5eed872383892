//! Closures that decide what follows a failure: `on_error_with` and `on_panic_with`.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use common::{Bomb, Fragile, LIMIT, Oops, PURPOSE, ends, quiet, watched};
use slipring::errors::WaitError;
use slipring::faults::{Failed, Fault, Verdict};
use slipring::markers::Layout;
use slipring::placement::Threads;
use slipring::stages::ReadHandler;
use slipring::{At, Chain, Graph, OnFault};

/// A failure as a closure saw it: position, event, number of events, tries, and the error.
type Seen = (Option<u64>, Option<u64>, usize, u32, Option<u64>);

fn seen<L: Layout>(failed: &Failed<'_, u64, L>) -> Seen {
    let error = failed.error().downcast_ref::<Oops>().map(|oops| oops.0);
    (failed.seq(), failed.event().copied(), failed.events().len(), failed.tries(), error)
}

/// Starts a chain in each way, with the events 10, 11, 12 and 13 at the positions 0 to 3.
fn in_each_way(run: impl Fn(&dyn Fn(Chain<'_, u64>) -> Result<(), slipring::Error>)) {
    let items = || 10..14;
    run(&|chain| chain.feed(items(), |slot, i| *slot = i).map(drop));
    run(&|chain| chain.threads(2).feed(items(), |slot, i| *slot = i).map(drop));
    run(&|chain| chain.threads(Threads::Auto).feed(items(), |slot, i| *slot = i).map(drop));
    run(&|chain| chain.run_inline(|p| Ok(p.publish_all(items(), |slot, i| *slot = i)?)).map(drop));
}

#[test]
fn the_closure_gets_the_event_the_error_and_the_tries() {
    let _watched = watched();
    in_each_way(|start| {
        let mut found = Vec::new();
        let chain = slipring::ring(8, || 0u64)
            .read("r", |v, _| if *v == 12 { Err(Oops(*v)) } else { Ok(()) })
            .on_error_with(|failed| {
                assert_eq!(failed.stage().as_str(), "r");
                let told = format!("stage `r` failed at event 2 (try {}): oops 12", failed.tries());
                assert_eq!(failed.to_string(), told);
                found.push(seen(failed));
                if failed.tries() < 3 { OnFault::retry(9) } else { OnFault::skip() }
            });
        start(chain).unwrap();
        let at = |tries| (Some(2), Some(12), 1, tries, Some(12));
        assert_eq!(found, [at(1), at(2), at(3)]);
    });
}

#[test]
fn a_writing_stage_shows_the_event_as_its_handler_left_it() {
    let _watched = watched();
    in_each_way(|start| {
        let (mut found, mut behind) = (Vec::new(), Vec::new());
        let chain = slipring::ring(8, || 0u64)
            .update("w", |v, _| {
                *v *= 2;
                if *v == 22 { Err(Oops(*v)) } else { Ok(()) }
            })
            .on_error_with(|failed| {
                found.push(seen(failed));
                OnFault::skip()
            })
            .read("behind", |v, _| behind.push(*v));
        start(chain).unwrap();
        assert_eq!(found, [(Some(1), Some(22), 1, 1, Some(22))]);
        assert_eq!(behind, [20, 22, 24, 26]);
    });
}

#[test]
fn a_failed_batch_is_shown_whole() {
    let _watched = watched();
    quiet();
    for writes in [false, true] {
        for panics in [false, true] {
            let (mut found, mut error) = (Vec::new(), None);
            let judge = |failed: &Failed<'_, u64, slipring::markers::Contiguous>| {
                let (one, two) = failed.events().as_slices();
                assert_eq!(failed.seq(), Some(failed.events().first_seq()));
                found.extend([one, two].concat());
                error = Some(failed.error().to_string());
                OnFault::skip()
            };
            let fail = move || if panics { panic!("{PURPOSE}") } else { Err(Oops(1)) };
            let chain = slipring::ring(8, || 0u64).contiguous();
            let chain = match writes {
                false => chain.read_batch("b", move |_, _| fail()),
                true => chain.update_batch("b", move |events, _| {
                    events.iter_mut().for_each(|event| *event += 1);
                    fail()
                }),
            };
            let chain = match panics {
                false => chain.on_error_with(judge),
                true => chain.on_panic_with(judge),
            };
            // The ring wraps.
            let report = chain.feed(0..20, |slot, i| *slot = i).unwrap().report;
            let add = u64::from(writes);
            assert_eq!(found, (add..20 + add).collect::<Vec<_>>());
            assert_eq!(report.stage("b").unwrap().skipped, 20);
            assert_eq!(error.unwrap(), if panics { PURPOSE } else { "oops 1" });
        }
    }
}

/// Fails between events.
struct Between {
    at_end: bool,
    left: u32,
}

impl ReadHandler<u64> for Between {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        Ok(())
    }
    fn batch_end(&mut self, _: u64) -> Result<(), Fault> {
        self.fail(self.at_end)
    }
    fn idle(&mut self) -> Result<(), Fault> {
        self.fail(!self.at_end)
    }
}

impl Between {
    fn fail(&mut self, may: bool) -> Result<(), Fault> {
        if may && self.left > 0 {
            self.left -= 1;
            return Err(Oops(0).into());
        }
        Ok(())
    }
}

#[test]
fn a_failure_between_events_has_no_event() {
    let _watched = watched();
    for at_end in [false, true] {
        for on in [OnFault::skip(), OnFault::retry(1)] {
            let mut found = Vec::new();
            let done = slipring::ring(8, || 0u64)
                .read_with("between", Between { at_end, left: 1 })
                .on_error_with(|failed| {
                    found.push(seen(failed));
                    on
                })
                .run(|tx| {
                    tx.publish(|v| *v = 1)?;
                    if !at_end {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Ok(())
                })
                .unwrap();
            let idled = !at_end && found.is_empty(); // The stage has never waited.
            assert!(idled || found == [(None, None, 0, 1, Some(0))], "{found:?}");
            let stage = done.report.stage("between").unwrap();
            assert_eq!((stage.events, stage.skipped), (1, 0));
        }
    }
}

#[test]
fn a_stop_fails_the_graph_with_the_whole_error() {
    let _watched = watched();
    for on in [OnFault::stop(), OnFault::retry(2)] {
        in_each_way(|start| {
            let mut tries = 0;
            let chain = slipring::ring(8, || 0u64)
                .read("r", |v, _| if *v == 11 { Err(Oops(*v)) } else { Ok(()) })
                .on_error(OnFault::skip()) // The closure takes its place.
                .on_error_with(|failed| {
                    tries = failed.tries();
                    on
                })
                .on_error(OnFault::skip());
            let error = start(chain).unwrap_err();
            assert_eq!((error.stage(), error.seq()), (Some("r"), Some(1)));
            assert_eq!(error.downcast_ref::<Oops>(), Some(&Oops(11)));
            assert_eq!(tries, if on == OnFault::stop() { 1 } else { 3 });
        });
    }
}

#[test]
fn the_last_closure_counts_and_panics_have_their_own() {
    let _watched = watched();
    quiet();
    let (mut errors, mut panics) = (0, 0);
    let told = std::sync::Mutex::new(Vec::new());
    slipring::ring(8, || 0u64)
        .on_faults(|fault| told.lock().unwrap().push((fault.seq, fault.verdict)))
        .read("r", |v, _| match v {
            1 => Err(Oops(1)),
            2 => panic!("{PURPOSE}"),
            _ => Ok(()),
        })
        .on_error_with(|_| unreachable!("replaced"))
        .on_error_with(|_| {
            errors += 1;
            OnFault::skip()
        })
        .on_panic_with(|failed| {
            assert_eq!((failed.error().to_string(), failed.event()), (PURPOSE.into(), Some(&2)));
            panics += 1;
            if panics == 1 { OnFault::retry(1) } else { OnFault::skip() }
        })
        .feed(0..4, |slot, i| *slot = i)
        .unwrap();
    assert_eq!((errors, panics), (1, 2));
    let told = told.into_inner().unwrap();
    let expected = [(1, Verdict::Skipped), (2, Verdict::Retried), (2, Verdict::Skipped)];
    assert_eq!(told, expected.map(|(seq, verdict)| (Some(seq), verdict)));
}

/// A retry that only a closure asks for repeats no released event, also behind tombstones.
#[test]
fn a_retry_begins_at_the_last_release() {
    let _watched = watched();
    let (mut handled, mut fails, mut behind) = (Vec::new(), 1, Vec::new());
    slipring::ring(16, || 0u64)
        .read("tries", |v, _| {
            handled.push(*v);
            if *v == 6 && fails > 0 {
                fails -= 1;
                return Err("not yet");
            }
            Ok(())
        })
        .on_error_with(|_| OnFault::retry(1))
        .max_batch(4)
        .read("behind", |v, _| behind.push(*v))
        .run_inline(|p| Ok(p.publish_all(0..8, |slot, i| *slot = i)?))
        .unwrap();
    assert_eq!(handled, [0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7]);
    assert_eq!(behind, (0..8).collect::<Vec<_>>());
}

#[test]
fn workers_and_shards_share_a_closure_and_call_it_one_at_a_time() {
    let _watched = watched();
    let events = 200;
    for shards in [false, true] {
        for threads in [None, Some(2)] {
            let inside = AtomicBool::new(false);
            let mut dead = Vec::new();
            let chain = slipring::ring(16, || 0u64);
            let chain = match threads {
                None => chain,
                Some(threads) => chain.threads(threads),
            };
            let fail = |_: usize| |v: &u64, _: At| Err::<(), _>(Oops(*v));
            let chain = match shards {
                false => chain.read_pool("p", 3, fail),
                true => chain.read_shards("p", 3, |v| *v, fail),
            };
            let done = chain
                .on_error_with(|failed| {
                    assert!(!inside.swap(true, Relaxed), "one at a time");
                    std::thread::yield_now();
                    let &event = failed.event().expect("an event");
                    assert_eq!(failed.error().downcast_ref(), Some(&Oops(event)));
                    assert_eq!(failed.seq(), Some(event));
                    dead.push(event);
                    inside.store(false, Relaxed);
                    OnFault::skip()
                })
                .feed(0..events, |slot, i| *slot = i)
                .unwrap();
            dead.sort_unstable();
            assert_eq!(dead, (0..events).collect::<Vec<_>>());
            assert_eq!(done.report.stage("p").unwrap().skipped, events);
        }
    }
}

#[test]
fn graphs_have_the_same_closures() {
    let _watched = watched();
    quiet();
    for threads in [0, 2] {
        let graph = Graph::new(8, || 0u64);
        let graph = if threads == 0 { graph } else { graph.threads(threads) };
        let write = graph.updater("write");
        let pool = graph.pool_reader("pool", 2).after(&write);
        let shards = graph.shard_reader("shards", 2, |v| *v).after(&pool);
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        let mut handlers = graph.build().unwrap().handlers();
        let [of_write, of_pool, of_shards] = &mut found;
        handlers
            .on_error_with(&write, |failed| {
                of_write.extend(failed.event().copied());
                OnFault::skip()
            })
            .update(write, |v, _| if *v == 1 { Err(Oops(1)) } else { Ok(()) })
            .on_error_with(&pool, |failed| {
                of_pool.extend(failed.event().copied());
                OnFault::skip()
            })
            .read_pool(pool, |_| |v, _| if *v == 2 { Err(Oops(2)) } else { Ok(()) })
            .on_error_with(&shards, |_| unreachable!("no error"))
            .on_panic_with(&shards, |failed| {
                of_shards.extend(failed.event().copied());
                OnFault::skip()
            })
            .read_shards(shards, |_| |v, _| assert_ne!(*v, 3, "{PURPOSE}"));
        handlers.feed(0..5, |slot, i| *slot = i).unwrap();
        assert_eq!(found, [[1], [2], [3]]);
    }
    // A graph whose stage never gets its handler drops the closure.
    let graph = Graph::new(8, || 0u64);
    let read = graph.reader("read");
    let mut handlers = graph.build().unwrap().handlers();
    let fragile = Fragile(true);
    handlers.on_error_with(&read, move |_| {
        let _ = &fragile;
        OnFault::stop()
    });
    drop(read);
    assert!(handlers.feed(0..5, |slot, i| *slot = i).is_err());
}

#[test]
fn a_panic_of_the_closure_ends_the_graph() {
    let _watched = watched();
    quiet();
    in_each_way(|start| {
        let chain = slipring::ring(8, || 0u64)
            .read("r", |_, _| Err(Oops(1)))
            .on_error_with(|_| panic!("judged {PURPOSE}"));
        let error = start(chain).unwrap_err();
        assert_eq!((error.stage(), error.seq()), (Some("r"), Some(0)));
        assert!(error.to_string().contains("judged on purpose"), "{error}");
    });
    // The handler's panic, the closure's panic with a payload that panics, and both drops.
    in_each_way(|start| {
        let (of_handler, of_closure) = (Fragile(true), Fragile(true));
        let chain = slipring::ring(8, || 0u64)
            .read("r", move |_, _| {
                let _ = &of_handler;
                std::panic::panic_any(Bomb)
            })
            .on_panic_with(move |_| {
                let _ = &of_closure;
                std::panic::panic_any(Bomb)
            });
        assert_eq!(start(chain).unwrap_err().stage(), Some("r"));
    });
    // The closure's drop alone.
    in_each_way(|start| {
        let fragile = Fragile(true);
        let chain = slipring::ring(8, || 0u64).read("r", |_, _| ()).on_error_with(move |_| {
            let _ = &fragile;
            OnFault::skip()
        });
        let error = start(chain).unwrap_err();
        assert!(error.to_string().contains("dropped on purpose"), "{error}");
    });
}

#[test]
fn a_misplaced_closure_is_an_error_and_is_dropped() {
    let _watched = watched();
    quiet();
    let fragile = Fragile(true);
    let first = slipring::ring(8, || 0u64).on_error_with(move |_| {
        let _ = &fragile;
        OnFault::stop()
    });
    let error = first.read("r", |_, _| ()).feed(0..1, |slot, i| *slot = i).unwrap_err().to_string();
    assert!(error.contains("`on_error_with` must follow the stage that it is for"), "{error}");
    let error = slipring::ring(8, || 0u64)
        .read_by("own", |rx| rx.for_each(|_, _| ()).map(drop))
        .on_panic_with(|_| OnFault::stop())
        .feed(0..1, |slot, i| *slot = i)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`on_panic_with` follows `own`, which has a loop"), "{error}");
}

/// The factory of a pool fails, and the closure's drop panics: the call returns the first error.
#[test]
fn a_closure_of_a_pool_that_is_not_built_is_dropped() {
    let _watched = watched();
    quiet();
    let fragile = Fragile(true);
    let error = slipring::ring(8, || 0u64)
        .read_pool("p", 2, |worker| {
            assert_eq!(worker, 0, "made {PURPOSE}");
            |_: &u64, _: At| ()
        })
        .on_error_with(move |_| {
            let _ = &fragile;
            OnFault::skip()
        })
        .feed(0..1, |slot, i| *slot = i)
        .unwrap_err();
    assert!(error.is_build() && error.to_string().contains("made on purpose"), "{error}");
}

/// A closure owns the producer of a ring of dead letters. That ring closes when the stage has
/// ended, because the closure is dropped then.
#[test]
fn dead_letters_go_into_a_ring_of_their_own() {
    let _watched = watched();
    ends("dead letters", || {
        let (sender, receiver) = mpsc::channel();
        let (mut dead, letters) = slipring::ring(4, || (0u64, 0u64))
            .read("store", move |letter, _| sender.send(*letter))
            .spawn()
            .unwrap();
        let (mut tx, pipeline) = slipring::ring(4, || 0u64)
            .read("odd", |v, _| if *v % 2 == 0 { Err("even") } else { Ok(()) })
            .on_error_with(move |failed| {
                let (Some(seq), Some(&event)) = (failed.seq(), failed.event()) else {
                    return OnFault::stop();
                };
                match dead.publish(|letter| *letter = (seq, event)) {
                    Ok(_) => OnFault::skip(),
                    Err(_) => OnFault::stop(),
                }
            })
            .spawn()
            .unwrap();
        tx.publish_all(10..30, |slot, i| *slot = i).unwrap();
        drop(tx);
        assert_eq!(pipeline.join().unwrap().stage("odd").unwrap().skipped, 10);
        assert_eq!(letters.join().unwrap().stage("store").unwrap().events, 10);
        let expected: Vec<_> = (0..10).map(|i| (2 * i, 10 + 2 * i)).collect();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), expected);
    });
}

/// A worker that waits for a closure ends with the graph.
#[test]
fn a_wait_for_the_closure_ends_with_the_graph() {
    let _watched = watched();
    ends("a halt", || {
        let (entered, inside) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let failed = std::sync::Arc::new(AtomicU64::new(0));
        let failures = failed.clone();
        let (mut tx, pipeline) = slipring::ring(8, || 0u64)
            .read_shards(
                "s",
                2,
                |v| *v,
                move |_| {
                    let failures = failures.clone();
                    move |v: &u64, _: At| {
                        failures.fetch_add(1, Relaxed);
                        Err::<(), _>(Oops(*v))
                    }
                },
            )
            .max_batch(1)
            .on_error_with(move |_| {
                let _ = entered.send(());
                let _ = gate.recv();
                OnFault::skip()
            })
            .spawn()
            .unwrap();
        tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
        inside.recv().unwrap();
        while failed.load(Relaxed) < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        pipeline.halt();
        drop(open);
        // The failure of the waiting shard is final, unless the closure is free by then.
        match pipeline.join() {
            Err(error) => assert!(error.downcast_ref::<Oops>().is_some(), "{error}"),
            Ok(report) => assert!(report.halted()),
        }
    });
}

/// A named function decides, too.
#[test]
fn a_function_may_decide() {
    let _watched = watched();
    fn skip(failed: &Failed<'_, u64>) -> OnFault {
        assert!(format!("{failed:?}").contains("Oops(1)"));
        OnFault::skip()
    }
    slipring::ring(8, || 0u64)
        .fan_out(|side| {
            side.read("a", |_, _| Err(Oops(1))).on_error_with(skip).read("b", |_, _| ())
        })
        .feed(0..3, |slot, i| *slot = i)
        .unwrap();
}

/// Lets the stages share `threads` threads, or gives each handler its own if there are 0.
fn with_threads(chain: Chain<'static, u64>, threads: usize) -> Chain<'static, u64> {
    if threads == 0 { chain } else { chain.threads(threads) }
}

/// A closure of a pool or of shards counts as inside all handlers of its stage: while it waits for
/// room that another worker has to make, that worker may fail, and wait for the closure.
#[test]
fn a_closure_does_not_wait_for_another_worker_of_its_stage() {
    let _watched = watched();
    for threads in 0..3 {
        ends("a closure that waits for its stage", move || {
            let (tx, rx) = mpsc::channel::<slipring::SharedProducer<u64>>();
            let (failing, others) = (Arc::new(Barrier::new(2)), Mutex::new(None));
            let both = failing.clone();
            let alone = threads == 1;
            let refused = Arc::new(AtomicU64::new(0));
            let (counted, mut calls) = (refused.clone(), 0);
            let (mut producer, pipeline) = with_threads(slipring::ring(2, || 0u64), threads)
                .read_pool("p", 2, move |_| {
                    let both = both.clone();
                    move |v: &u64, _| {
                        if *v < 2 && !alone {
                            both.wait(); // both workers fail at the same time
                        }
                        if *v < 2 { Err(Oops(*v)) } else { Ok(()) }
                    }
                })
                .on_error_with(move |_| {
                    let mut held = others.lock().unwrap();
                    let tx = held.get_or_insert_with(|| rx.recv_timeout(LIMIT).unwrap());
                    match tx.publish(|slot| *slot = 2) {
                        Ok(_) => {}
                        Err(WaitError::WaitsForItself(name)) if &*name == "p" => {
                            counted.fetch_add(1, Relaxed);
                        }
                        Err(error) => panic!("{error}"),
                    }
                    calls += 1;
                    if calls == 2 {
                        *held = None; // the ring may close
                    }
                    OnFault::skip()
                })
                .spawn_shared()
                .unwrap();
            (0..2).for_each(|i| _ = producer.publish(|slot| *slot = i).unwrap());
            tx.send(producer.clone()).unwrap();
            drop((producer, tx));
            let report = pipeline.join().unwrap();
            assert!(refused.load(Relaxed) >= 1, "{threads}: {report}");
        });
    }
}

/// In a closure that waits, its thread runs other stages, but no other worker of the closure's own.
#[test]
fn a_thread_runs_no_worker_of_the_stage_whose_closure_waits() {
    let _watched = watched();
    ends("a closure that waits for a mirror", || {
        let mirror = slipring::Mirror::<u64>::new(4).unwrap();
        let mut observer = mirror.handle().observe();
        let (mut producer, pipeline) = slipring::ring(8, || 0u64)
            .threads(1)
            .read_pool("p", 2, |_| |v: &u64, _| Err::<(), _>(Oops(*v)))
            .on_error_with(move |_| {
                let soon = std::time::Instant::now() + Duration::from_millis(2);
                assert!(observer.latest_by(soon).is_err(), "nothing was put");
                OnFault::skip()
            })
            .spawn()
            .unwrap();
        (0..8).for_each(|i| _ = producer.publish(|slot| *slot = i).unwrap());
        producer.close();
        assert_eq!(pipeline.join().unwrap().stage("p").unwrap().skipped, 8);
        drop(mirror);
    });
}

/// A failure that would be retried is not final because the graph was halted meanwhile.
#[test]
fn a_halt_ends_a_stage_that_would_try_again() {
    let _watched = watched();
    for round in 0..if cfg!(miri) { 2 } else { 40 } {
        ends("a halt between tries", move || {
            let (told, tries) = mpsc::channel();
            let chain = slipring::ring(8, || 0u64);
            let chain = match round % 2 {
                0 => chain
                    .read("r", move |_, _| told.send(()).map_err(|_| "gone").and(Err("again")))
                    .on_error(OnFault::retry(u32::MAX)),
                _ => chain.read_pool("r", 3, |_| |_: &u64, _| Err::<(), _>("again")).on_error_with(
                    move |_| {
                        _ = told.send(());
                        OnFault::skip()
                    },
                ),
            };
            let (mut producer, pipeline) = chain.spawn().unwrap();
            (0..8).for_each(|i| _ = producer.publish(|slot| *slot = i).unwrap());
            tries.recv().unwrap();
            pipeline.halt();
            assert!(pipeline.join().unwrap().halted());
        });
    }
}

/// After a skipped failure of `idle`, the stage waits before it calls `idle` again.
#[test]
fn an_idle_that_fails_is_called_once_for_each_wait() {
    let _watched = watched();
    struct Idles(Arc<AtomicU64>);
    impl ReadHandler<u64> for Idles {
        fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
            Ok(())
        }
        fn idle(&mut self) -> Result<(), Fault> {
            self.0.fetch_add(1, Relaxed);
            Err(Fault::msg("idle"))
        }
    }
    for threads in 0..2 {
        ends("an idle that fails", move || {
            let calls = Arc::new(AtomicU64::new(0));
            let (mut producer, pipeline) = with_threads(slipring::ring(8, || 0u64), threads)
                .read_with("r", Idles(calls.clone()))
                .on_error(OnFault::skip())
                .spawn()
                .unwrap();
            for i in 0..3 {
                producer.publish(|slot| *slot = i).unwrap();
                producer.flush().unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            producer.close();
            pipeline.join().unwrap();
            // Once at the start, once after each event, and once more for each wait that ended
            // without an event.
            assert!(calls.load(Relaxed) <= 20, "{calls:?} calls");
        });
    }
}
