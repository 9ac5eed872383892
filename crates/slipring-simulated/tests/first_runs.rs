//! Each front runs on the simulated machine, in order and without a loss, with the same counts in
//! each run.
//!
//! A graph asks the machine for its cores when it is built, so it is built inside of the run.

use std::cell::RefCell;
use std::fmt::Debug;
use std::time::Duration;

use slipring_coherence::sync::{Builder, scope, sleep};
use slipring_coherence::{Counts, Lines, Machine, Simulation};
use slipring_simulated::{Graph, Promise, Wait, ring, unicast};

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
    assert!(counts.rmws >= 2 * EVENTS, "each claim is a read-modify-write");
}

#[test]
fn a_chain_on_two_threads() {
    let (read, _) = twice(|| {
        let mut read = Vec::new();
        ring(64, || 0u64)
            .threads(2)
            .write("double", |number, _| *number *= 2)
            .write("increment", |number, _| *number += 1)
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
            .write("square", |request, _| {
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
