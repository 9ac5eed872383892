//! Rows of MIGRATING.md on QuestDB's `io.questdb.mp`.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use slipring::{
    Graph, Wait,
    errors::{BatchError, ClaimError, WaitError},
};

use crate::common::{LIMIT, Oops};
use crate::{Patience, chain, each_once, graph, pair, shared, until};

// Sequences.

#[test]
fn minus_one_is_unavailable() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let (one, pool) = (graph.reader("one"), graph.pool_reader("pool", 2));
    let ring = graph.build().unwrap();
    let (mut tx, mut one, mut pool) = (ring.producer(), ring.reader(one), ring.pool_readers(pool));
    let [a, b] = &mut pool[..] else { unreachable!() };
    for seq in 0..3 {
        assert!(matches!(one.try_batch(1), Err(BatchError::Unavailable)));
        assert!(matches!(a.try_batch(1), Err(BatchError::Unavailable)));
        tx.publish(|v| *v = seq).unwrap();
        one.try_batch(1).unwrap().release();
        // An event that one worker holds is not available to the other.
        let held = a.try_batch(1).unwrap();
        assert!(matches!(b.try_batch(1), Err(BatchError::Unavailable)));
        held.release();
    }
}

#[test]
fn minus_two_is_contended() {
    let _watched = crate::common::watched();
    let graph = shared(4);
    let key = graph.pool_reader("pool", 2);
    let ring = graph.build().unwrap();
    let (producers, workers) = ([ring.producer(), ring.producer()], ring.pool_readers(key));
    let (seen, patience) = (Mutex::new(Vec::new()), Patience::new());
    thread::scope(|scope| {
        for (from, mut tx) in [0, 300].into_iter().zip(producers) {
            let patience = &patience;
            scope.spawn(move || {
                let mut next = from;
                while next < from + 300 {
                    match tx.try_publish(|v| *v = next) {
                        Ok(_) => next += 1,
                        Err(ClaimError::Gated { .. }) => patience.pause("room"),
                        Err(ClaimError::Contended) => patience.pause("a turn"),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        for mut worker in workers {
            let (seen, patience) = (&seen, &patience);
            scope.spawn(move || {
                loop {
                    match worker.try_batch(1) {
                        Ok(batch) => {
                            seen.lock().unwrap().push(batch[0]);
                            batch.release();
                        }
                        Err(BatchError::Unavailable) => patience.pause("events"),
                        Err(BatchError::Contended) => patience.pause("a turn"),
                        Err(BatchError::Wait(WaitError::Closed)) => break,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert!(each_once(seen.into_inner().unwrap(), 600));
}

#[test]
fn a_worker_takes_no_more_than_it_asks_for() {
    let _watched = crate::common::watched();
    let graph = graph(16);
    let key = graph.pool_reader("pool", 2);
    let ring = graph.build().unwrap();
    let (mut tx, mut pool) = (ring.producer(), ring.pool_readers(key));
    let [a, b] = &mut pool[..] else { unreachable!() };
    for round in 0..200 {
        tx.publish_all(round * 3..round * 3 + 3, |slot, i| *slot = i).unwrap();
        assert_eq!(a.poll(1, |v, _| assert_eq!(*v, round * 3)).unwrap(), 1);
        // An event that is lent and not released stays with its worker.
        assert_eq!(a.try_batch(1).unwrap()[0], round * 3 + 1);
        assert_eq!(b.poll(1, |v, _| assert_eq!(*v, round * 3 + 2)).unwrap(), 1);
        assert!(matches!(b.try_batch(9), Err(BatchError::Unavailable)));
        assert_eq!(a.poll(9, |v, _| assert_eq!(*v, round * 3 + 1)).unwrap(), 1);
    }
}

#[test]
fn done_of_a_consumer_frees_the_slot() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(1);
    for i in 0..5 {
        tx.try_publish(|v| *v = i).unwrap();
        let batch = rx.try_batch(1).unwrap();
        assert!(matches!(tx.try_claim(), Err(ClaimError::Gated { .. })));
        assert_eq!((batch.first_seq(), batch[0]), (i, i));
        batch.release();
    }
    assert_eq!(tx.publish(|_| ()).unwrap(), 5);
}

#[test]
fn what_is_available_is_a_batch() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(16);
    for len in [3, 16, 1, 7] {
        let first = rx.next_seq();
        tx.publish_all(first..first + len, |slot, i| *slot = i).unwrap();
        let batch = rx.try_batch(usize::MAX).unwrap();
        assert_eq!((batch.first_seq(), batch.len() as u64), (first, len));
        assert!(batch.iter().copied().eq(first..first + len));
        batch.release();
    }
}

#[test]
fn wait_for_next_waits() {
    let _watched = crate::common::watched();
    for wait in [Wait::YIELDING, Wait::SLEEPING, Wait::Blocking] {
        let graph = graph(4).wait(wait);
        let (one, pool) = (graph.reader("one"), graph.pool_reader("pool", 1));
        let ring = graph.build().unwrap();
        let (mut tx, mut one, mut pool) =
            (ring.producer(), ring.reader(one), ring.pool_readers(pool));
        let waiting = AtomicU64::new(0);
        thread::scope(|scope| {
            let one = scope.spawn(|| {
                waiting.fetch_add(1, SeqCst);
                one.batch(9).unwrap()[0]
            });
            let pool = scope.spawn(|| {
                waiting.fetch_add(1, SeqCst);
                pool[0].batch(9).unwrap()[0]
            });
            until("both are about to wait", || waiting.load(SeqCst) == 2);
            tx.publish(|v| *v = 7).unwrap();
            assert_eq!((one.join().unwrap(), pool.join().unwrap()), (7, 7));
        });
    }
}

// Shapes.

#[test]
fn one_to_one_busy() {
    let _watched = crate::common::watched();
    let graph = graph(16).wait(Wait::YIELDING);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let patience = Patience::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..1000 {
                while tx.try_publish(|v| *v = i).is_err() {
                    patience.pause("room");
                }
            }
        });
        let mut next = 0;
        while next < 1000 {
            match rx.poll(1, |v, _| assert_eq!(*v, next)) {
                Ok(0) => patience.pause("events"),
                Ok(_) => next += 1,
                Err(closed) => panic!("{closed}"),
            }
        }
    });
}

#[test]
fn one_to_one_in_batches() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = pair(64);
    thread::scope(|scope| {
        scope.spawn(move || {
            assert_eq!(tx.publish_batches(48, 0..1000, |slot, i| *slot = i).unwrap(), 1000)
        });
        let mut next = 0;
        let closed = loop {
            match rx.batch(usize::MAX) {
                Ok(batch) => {
                    assert!(
                        batch.len() <= 64
                            && batch.iter().copied().eq(next..next + batch.len() as u64)
                    );
                    next += batch.len() as u64;
                    batch.release();
                }
                Err(closed) => break closed,
            }
        };
        assert!(matches!(closed, WaitError::Closed) && next == 1000);
    });
}

#[test]
fn one_to_many_shares_out() {
    let _watched = crate::common::watched();
    for wait in [Wait::YIELDING, Wait::Blocking] {
        let seen = Mutex::new(Vec::new());
        let pool =
            chain(64).wait(wait).read_pool("pool", 2, |_| |v, _| seen.lock().unwrap().push(*v));
        let done = pool.feed(0..1000, |slot, i| *slot = i).unwrap();
        assert_eq!(done.report.stage("pool").unwrap().events, 1000);
        assert!(each_once(seen.into_inner().unwrap(), 1000));
    }
}

#[test]
fn many_to_many_loses_nothing() {
    let _watched = crate::common::watched();
    let seen = Mutex::new(Vec::new());
    let pool = chain(16).read_pool("pool", 2, |_| |v, _| seen.lock().unwrap().push(*v));
    pool.run_shared(|p| {
        thread::scope(|scope| {
            for from in [0, 500] {
                let mut p = p.clone();
                scope.spawn(move || p.publish_all(from..from + 500, |slot, i| *slot = i).unwrap());
            }
        });
        Ok(())
    })
    .unwrap();
    assert!(each_once(seen.into_inner().unwrap(), 1000));
}

#[test]
fn a_thread_may_produce_and_consume() {
    let _watched = crate::common::watched();
    let graph = shared(4);
    let key = graph.pool_updater("pool", 3);
    let ring = graph.build().unwrap();
    let producers = [ring.producer(), ring.producer(), ring.producer()];
    let (workers, patience, consumed) =
        (ring.pool_updaters(key), Patience::new(), AtomicU64::new(0));
    thread::scope(|scope| {
        for (mut tx, mut worker) in producers.into_iter().zip(workers) {
            let (patience, consumed) = (&patience, &consumed);
            let mut consume = |v: &mut u64, _| {
                assert_eq!(std::mem::take(v), 42);
                consumed.fetch_add(1, SeqCst);
            };
            scope.spawn(move || {
                for _ in 0..200 {
                    while let Err(error) =
                        tx.try_publish(|v| assert_eq!(std::mem::replace(v, 42), 0))
                    {
                        assert!(
                            matches!(error, ClaimError::Gated { .. } | ClaimError::Contended),
                            "{error}"
                        );
                        worker.poll(usize::MAX, &mut consume).unwrap();
                        patience.pause("room");
                    }
                }
                tx.close();
                worker.for_each(&mut consume).unwrap();
            });
        }
    });
    assert_eq!(consumed.into_inner(), 600);
}

#[test]
fn an_event_is_seen_whole() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, || [0u64; 4]).shared().deadline(LIMIT);
    let key = graph.pool_reader("pool", 3);
    let ring = graph.build().unwrap();
    let (mut tx, workers) = (ring.producer(), ring.pool_readers(key));
    thread::scope(|scope| {
        for mut worker in workers {
            scope.spawn(move || {
                worker
                    .for_each(|event, at| {
                        assert_eq!(*event, [at.seq, at.seq + 1, at.seq + 2, at.seq + 3])
                    })
                    .unwrap()
            });
        }
        tx.publish_all(0..2000, |slot, i| *slot = [i, i + 1, i + 2, i + 3]).unwrap();
        tx.close();
    });
}

#[test]
fn fan_outs_nest() {
    let _watched = crate::common::watched();
    // a.then(FanOut.to(FanOut.to(d).and(e)).and(b.then(c))).then(f)
    let at: [AtomicU64; 5] = Default::default();
    let [b, c, d, e, f] = &at;
    chain(8)
        .fan_out(|x| {
            x.fan_out(|y| {
                y.read("d", |_, at| d.store(at.seq + 1, SeqCst))
                    .read("e", |_, at| e.store(at.seq + 1, SeqCst))
            })
            .branch(|y| {
                y.read("b", |_, at| b.store(at.seq + 1, SeqCst)).read("c", |_, at| {
                    assert!(b.load(SeqCst) > at.seq);
                    c.store(at.seq + 1, SeqCst);
                })
            })
        })
        .read("f", |_, at| {
            assert!([c, d, e].iter().all(|stage| stage.load(SeqCst) > at.seq));
            f.store(at.seq + 1, SeqCst);
        })
        .feed(0..300, |slot, i| *slot = i)
        .unwrap();
    assert!(at.into_iter().all(|stage| stage.into_inner() == 300));
}

#[test]
fn a_barrier_holds_back() {
    let _watched = crate::common::watched();
    let graph = shared(8);
    let a = graph.pool_reader("a", 2);
    let b = graph.reader("b").after(&a);
    let c = graph.reader("c").after(&b);
    let ring = graph.build().unwrap();
    let (mut tx, mut a, mut b, mut c) =
        (ring.producer(), ring.pool_readers(a), ring.reader(b), ring.reader(c));
    tx.publish_all(0..5, |slot, i| *slot = i).unwrap();
    for round in 0..5 {
        assert!(b.try_batch(9).is_err() && c.try_batch(9).is_err());
        assert_eq!(a[round % 2].poll(1, |v, _| assert_eq!(*v, round as u64)).unwrap(), 1);
        assert!(c.try_batch(9).is_err());
        assert_eq!(b.poll(9, |_, _| ()).unwrap(), 1);
        assert_eq!(c.poll(9, |_, _| ()).unwrap(), 1);
    }
}

#[test]
fn the_last_stages_gate_unasked() {
    let _watched = crate::common::watched();
    let graph = graph(4);
    let a = graph.reader("a");
    let (b, c) = (graph.reader("b").after(&a), graph.pool_reader("c", 1).after(&a));
    let ring = graph.build().unwrap();
    assert!(ring.to_string().contains("gating the producer: b and c"), "{ring}");
    let (mut tx, mut a, mut b, mut c) =
        (ring.producer(), ring.reader(a), ring.reader(b), ring.pool_readers(c));
    tx.claim_n(4).unwrap().publish();
    let holds = |error: Option<ClaimError>, name: &str| matches!(error, Some(ClaimError::Gated { stage, .. }) if &*stage == name);
    assert_eq!((a.poll(9, |_, _| ()).unwrap(), b.poll(9, |_, _| ()).unwrap()), (4, 4));
    assert!(holds(tx.try_claim().err(), "c"));
    c[0].batch(1).unwrap().release();
    assert!(tx.try_claim().is_ok());
}

#[test]
fn a_pool_may_be_a_branch() {
    let _watched = crate::common::watched();
    let reduced = AtomicU64::new(0);
    let (mut journal, mut collected) = (Vec::new(), Vec::new());
    chain(16)
        .fan_out(|x| {
            x.read("journal", |v, _| journal.push(*v)).branch(|y| {
                y.read_pool("reduce", 2, |_| |v, _| _ = reduced.fetch_add(*v, SeqCst))
                    .read("collect", |v, _| collected.push(*v))
            })
        })
        .feed(0..500, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(reduced.into_inner(), 499 * 500 / 2);
    assert!(journal.into_iter().eq(0..500) && collected.into_iter().eq(0..500));
}

#[test]
fn requests_get_answers() {
    let _watched = crate::common::watched();
    let (ping, pong) = (shared(2), graph(2));
    let inbox = ping.reader("inbox");
    let answers = [pong.reader("first"), pong.reader("second")];
    let (ping, pong) = (ping.build().unwrap(), pong.build().unwrap());
    let requests = [ping.producer(), ping.producer()];
    let (mut inbox, mut answer, answers) =
        (ping.reader(inbox), pong.producer(), answers.map(|key| pong.reader(key)));
    thread::scope(|scope| {
        scope.spawn(move || {
            inbox
                .for_each(|id, _| assert!(answer.publish(|slot| *slot = *id + 1000).is_ok()))
                .unwrap()
        });
        for (me, (mut requests, mut answers)) in requests.into_iter().zip(answers).enumerate() {
            scope.spawn(move || {
                for id in (me as u64..60).step_by(2) {
                    requests.publish(|slot| *slot = id).unwrap();
                    let mut answered = false;
                    while !answered {
                        let batch = answers.batch(1).unwrap();
                        answered = batch[0] == id + 1000;
                        batch.release();
                    }
                }
                drop(requests);
                answers.for_each(|_, _| ()).unwrap();
            });
        }
    });
    drop((ping, pong));
}

// Worker pools.

#[test]
fn a_job_says_whether_it_did_anything() {
    let _watched = crate::common::watched();
    // The user's own thread runs two stages in turn.
    let graph = graph(8);
    let a = graph.updater("a");
    let b = graph.reader("b").after(&a);
    let ring = graph.build().unwrap();
    let (mut tx, mut a, mut b) = (ring.producer(), ring.updater(a), ring.reader(b));
    let mut sum = 0;
    let mut run = || a.poll(4, |v, _| *v *= 2).unwrap() + b.poll(4, |v, _| sum += v).unwrap() > 0;
    assert!(!run());
    tx.publish_all(0..8, |slot, i| *slot = i).unwrap();
    assert!(run() && run() && !run());
    assert_eq!(sum, 56);
}

#[test]
fn each_worker_has_its_state() {
    let _watched = crate::common::watched();
    let made = Mutex::new(Vec::new());
    let total = AtomicU64::new(0);
    let worker = |worker| {
        made.lock().unwrap().push(worker);
        let mut own = 0;
        let total = &total;
        move |_: &u64, _| {
            own += 1; // needs neither lock nor atomic
            total.fetch_max(own, SeqCst);
        }
    };
    let done = chain(16).read_pool("pool", 3, worker).feed(0..300, |slot, i| *slot = i).unwrap();
    assert_eq!(
        (made.into_inner().unwrap(), done.report.stage("pool").unwrap().events),
        (vec![0, 1, 2], 300)
    );
    assert!((100..=300).contains(&total.into_inner()));
}

#[test]
fn halting_frees_the_workers() {
    let _watched = crate::common::watched();
    let (freed, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    struct Cleaner(Arc<AtomicU64>);
    impl Drop for Cleaner {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let (cleaners, count) = (freed.clone(), seen.clone());
    let worker = move |_| {
        let (cleaner, count) = (Cleaner(cleaners.clone()), count.clone());
        move |_: &u64, _| {
            let _ = &cleaner;
            count.fetch_add(1, SeqCst);
        }
    };
    let (mut tx, pipeline) = chain(8).read_pool("pool", 2, worker).spawn().unwrap();
    tx.publish(|_| ()).unwrap();
    until("the worker handles an event", || seen.load(SeqCst) == 1);
    assert_eq!(freed.load(SeqCst), 0);
    pipeline.halt();
    assert!(pipeline.join().unwrap().halted());
    assert_eq!(freed.load(SeqCst), 2);
    assert!(matches!(tx.publish(|_| ()), Err(WaitError::Halted)));
}

#[test]
fn an_error_in_a_worker_ends_all() {
    let _watched = crate::common::watched();
    let worker = |_| |v: &u64, _| if *v == 20 { Err(Oops(20)) } else { Ok(()) };
    let error = chain(8).read_pool("pool", 2, worker).feed(0.., |slot, i| *slot = i).unwrap_err();
    assert_eq!(
        (error.stage(), error.seq(), error.downcast_ref()),
        (Some("pool"), Some(20), Some(&Oops(20)))
    );
}
