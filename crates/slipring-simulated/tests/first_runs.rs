//! Each front runs on the simulated machine, in order and without a loss, with the same counts in
//! each run.
//!
//! A graph asks the machine for its cores when it is built, so it is built inside of the run.

use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use slipring_coherence::sync::{Builder, Mutex, Thread, current, now, park, scope, sleep};
use slipring_coherence::{Counts, Lines, Machine, Simulation};
use slipring_simulated::{
    Graph, Promise, Tap, Wait, errors::BatchError, handles::StartAt, ring, unicast,
};

#[global_allocator]
static LINES: Lines = Lines;

const EVENTS: u64 = 500;

fn machine() -> Machine {
    Machine::server("2x6".parse().unwrap())
}

/// Runs `body` twice on two sockets of six cores, as the first thread of the simulation. Returns
/// its result and the counts, which are the same in both runs.
fn twice<T: PartialEq + Debug>(body: impl Fn() -> T) -> (T, Counts) {
    let run = || {
        let result = RefCell::new(None);
        let keep = || *result.borrow_mut() = Some(body());
        let report = Simulation::new(&machine()).thread("main", keep).run();
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        (result.into_inner().expect("the thread has ended"), report)
    };
    let [(first, report), (second, again)] = [run(), run()];
    assert_eq!(first, second);
    assert_eq!(report.to_string(), again.to_string());
    println!("{report}");
    (first, *report.counts())
}

#[test]
fn one_producer_and_one_reader() {
    let (read, counts) = twice(|| {
        let (mut tx, mut rx) = unicast(64, || 0u64).unwrap();
        let mut read = Vec::new();
        scope(|scope| {
            scope.spawn(move || {
                for number in 0..EVENTS {
                    tx.publish(|slot| *slot = number).unwrap();
                }
            });
            rx.for_each(|number, at| read.push((*number, at.seq))).unwrap();
        });
        read
    });
    assert!(read.into_iter().eq((0..EVENTS).map(|number| (number, number))));
    assert!(counts.transfers() > 0 && counts.per_event(EVENTS).transfers < 8.0, "{counts:?}");
}

#[test]
fn a_pool_of_three() {
    let (read, _) = twice(|| {
        let graph = Graph::new(64, || 0u64);
        let pool = graph.pool_reader("work", 3);
        let ring = graph.build().unwrap();
        let (mut tx, workers) = (ring.producer(), ring.pool_readers(pool));
        drop(ring);
        scope(|scope| {
            let threads: Vec<_> = workers
                .into_iter()
                .map(|mut worker| {
                    scope.spawn(move || {
                        let mut own = Vec::new();
                        worker.for_each(|number, _| own.push(*number)).unwrap();
                        own
                    })
                })
                .collect();
            for number in 0..EVENTS {
                tx.publish(|slot| *slot = number).unwrap();
            }
            drop(tx);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    });
    assert!(read.iter().all(|own| own.is_sorted()), "each worker sees its events in order");
    let mut all = read.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..EVENTS));
}

#[test]
fn two_producers() {
    let (read, counts) = twice(|| {
        let graph = Graph::new(64, || (0u64, 0u64)).shared();
        let reader = graph.reader("read");
        let ring = graph.build().unwrap();
        let (producers, mut rx) = ([ring.producer(), ring.producer()], ring.reader(reader));
        drop(ring);
        let mut read = Vec::new();
        scope(|scope| {
            for (producer, mut tx) in (0..).zip(producers) {
                scope.spawn(move || {
                    for number in 0..EVENTS {
                        tx.publish(|slot| *slot = (producer, number)).unwrap();
                    }
                });
            }
            rx.for_each(|event, _| read.push(*event)).unwrap();
        });
        read
    });
    for producer in 0..2 {
        let own = read.iter().filter(|(by, _)| *by == producer).map(|(_, number)| *number);
        assert!(own.eq(0..EVENTS), "producer {producer}");
    }
    assert!(counts.rmws >= EVENTS, "each claim in company is a read-modify-write");
}

#[test]
fn a_chain_on_two_threads() {
    let (read, _) = twice(|| {
        let mut read = Vec::new();
        ring(64, || 0u64)
            .threads(2)
            .update("double", |number, _| *number *= 2)
            .update("increment", |number, _| *number += 1)
            .read("read", |number, _| read.push(*number))
            .feed(0..EVENTS, |slot, number| *slot = number)
            .unwrap();
        read
    });
    assert!(read.into_iter().eq((0..EVENTS).map(|number| 2 * number + 1)));
}

#[test]
fn a_blocking_wait_sleeps_and_is_woken() {
    let (read, counts) = twice(|| {
        let graph = Graph::new(64, || 0u64).wait(Wait::Blocking);
        let reader = graph.reader("read");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(reader));
        drop(ring);
        let mut read = Vec::new();
        scope(|scope| {
            scope.spawn(move || {
                for number in 0..20 {
                    sleep(Duration::from_micros(100));
                    tx.publish(|slot| *slot = number).unwrap();
                }
            });
            rx.for_each(|number, _| read.push(*number)).unwrap();
        });
        read
    });
    assert!(read.into_iter().eq(0..20));
    assert!(counts.wakes >= 20, "{counts:?}");
}

#[test]
fn a_spawned_chain_with_shards_and_a_tap() {
    let (read, _) = twice(|| {
        let (tap, read) = (Tap::new(), Arc::new(Mutex::new([const { Vec::new() }; 2])));
        let (kept, other) = (read.clone(), tap.clone());
        let (mut tx, pipeline) = ring(64, || 0u64)
            .update("double", |number, _| *number *= 2)
            .tap(&tap)
            .read_shards(
                "by-half",
                2,
                |number| *number / 2,
                move |shard| {
                    let kept = kept.clone();
                    move |number: &u64, _| kept.lock().unwrap()[shard].push(*number)
                },
            )
            .spawn()
            .unwrap();
        let mut late = other.subscribe(StartAt::Now).unwrap();
        let tapped = scope(|scope| {
            let tapped = scope.spawn(move || late.for_each(|_, _| ()).unwrap());
            for number in 0..EVENTS {
                tx.publish(|slot| *slot = number).unwrap();
            }
            drop(tx);
            tapped.join().unwrap()
        });
        pipeline.join().unwrap();
        let mut read = read.lock().unwrap();
        (std::mem::take(&mut *read), tapped)
    });
    let (shards, tapped) = read;
    assert_eq!(tapped, EVENTS);
    assert!(shards.iter().all(|own| own.is_sorted() && !own.is_empty()));
    let mut all = shards.concat();
    all.sort_unstable();
    assert!(all.into_iter().eq((0..EVENTS).map(|number| 2 * number)));
}

#[test]
fn tasks_wake_each_other() {
    let (read, counts) = twice(|| {
        let (mut tx, mut rx) = unicast(8, || 0u64).unwrap();
        let mut read = Vec::new();
        scope(|scope| {
            scope.spawn(move || {
                block_on(async {
                    for number in 0..EVENTS {
                        tx.publish_async(|slot| *slot = number).await.unwrap();
                    }
                });
            });
            block_on(async {
                while let Ok(batch) = rx.batch_async(4).await {
                    read.extend(batch.iter().copied());
                    batch.release();
                }
            });
        });
        read
    });
    assert!(read.into_iter().eq(0..EVENTS));
    assert!(counts.sleeps > 0, "{counts:?}");
}

/// Runs a future on the current virtual thread, which parks while the future is pending.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        park();
    }
}

#[test]
fn a_handler_that_panics_fails_its_graph() {
    let (error, _) = twice(|| {
        ring(64, || 0u64)
            .read_pool("work", 3, |_| {
                |number: &u64, _| {
                    if *number == 100 {
                        resume_unwind(Box::new("at 100"));
                    }
                }
            })
            .read("read", |_, _| ())
            .feed(0..EVENTS, |slot, number| *slot = number)
            .unwrap_err()
            .to_string()
    });
    assert_eq!(error, "stage `work` panicked at event 100: at 100");
}

#[test]
fn deadlines_pass_in_virtual_time() {
    let (waited, _) = twice(|| {
        let (_tx, mut rx) = unicast(8, || 0u64).unwrap();
        let (began, limit) = (now(), Duration::from_millis(5));
        let ended = rx.batch_by(1, began + limit).map(drop);
        assert!(matches!(ended, Err(BatchError::TimedOut(_))));
        now() - began
    });
    let range = Duration::from_millis(5)..Duration::from_millis(6);
    assert!(range.contains(&waited), "{waited:?}");
}

/// A reader waits for a producer that waits for the reader's end.
#[test]
fn a_deadlock_is_reported_with_its_waits() {
    let body = || {
        let graph = Graph::new(64, || 0u64).wait(Wait::Blocking);
        let reader = graph.reader("read");
        let ring = graph.build().unwrap();
        let (_tx, mut rx) = (ring.producer(), ring.reader(reader));
        drop(ring);
        scope(|scope| {
            let reading = Builder::new().name("reading".to_owned());
            reading.spawn_scoped(scope, move || rx.for_each(|_, _| ())).unwrap();
        });
    };
    let error = Simulation::new(&machine()).thread("main", body).run().unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("reading") && error.contains("wait/queue.rs"), "{error}");
}

#[derive(Default)]
struct Request {
    number: u64,
    answer: Option<Promise<u64>>,
}

#[test]
fn a_request_and_its_answer() {
    let (answers, _) = twice(|| {
        let mut answers = Vec::new();
        ring(8, Request::default)
            .update("square", |request, _| {
                if let Some(answer) = request.answer.take() {
                    let _ = answer.fulfil(request.number * request.number);
                }
            })
            .run(|producer| {
                for number in 0..20 {
                    let mut answer = producer.ask(|request, answer| {
                        *request = Request { number, answer: Some(answer) };
                    })?;
                    answers.push(answer.wait()?);
                }
                Ok(())
            })
            .unwrap();
        answers
    });
    assert!(answers.into_iter().eq((0..20).map(|number| number * number)));
}
