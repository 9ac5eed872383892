//! Publishing through a shared reference: from any thread, inside of other calls, while threads
//! end, and at each end of a graph.
#![cfg(not(slipring_loom))]

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{PURPOSE, ends, quiet, watched};
use slipring::errors::{ClaimError, PassError, WaitError};
use slipring::markers::{Contiguous, Interleaved, Layout};
use slipring::stages::PRODUCER;
use slipring::{Graph, Publisher, Reader, Wait};

/// Number of events that each thread publishes.
const EVENTS: u64 = if cfg!(miri) { 20 } else { 2_000 };

fn interleaved(capacity: usize) -> (Publisher<u64>, Reader<u64>) {
    let graph = Graph::new(capacity, || 0).shared();
    let key = graph.reader("log");
    let ring = graph.build().unwrap();
    (ring.producer().into_publisher(), ring.reader(key))
}

fn contiguous(capacity: usize) -> (Publisher<u64, Contiguous>, Reader<u64, Contiguous>) {
    let graph = Graph::new(capacity, || 0).contiguous().shared();
    let key = graph.reader("log");
    let ring = graph.build().unwrap();
    (ring.producer().into_publisher(), ring.reader(key))
}

/// Threads publish numbers in order, and each thread's numbers arrive in this order.
fn many_threads<L: Layout>((publisher, mut reader): (Publisher<u64, L>, Reader<u64, L>)) {
    const THREADS: u64 = 4;
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut next = BTreeMap::new();
            let seen = reader.for_each(|event, _| {
                let next = next.entry(event / EVENTS).or_insert(0);
                assert_eq!(event % EVENTS, *next);
                *next += 1;
            });
            assert_eq!(seen.unwrap(), THREADS * EVENTS);
        });
        let publisher = Arc::new(publisher);
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let publisher = publisher.clone();
                scope.spawn(move || {
                    for i in 0..EVENTS {
                        publisher.publish(|slot| *slot = thread * EVENTS + i).unwrap();
                    }
                })
            })
            .collect();
        drop(publisher);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        reading.join().unwrap();
    });
}

#[test]
fn each_threads_events_arrive_in_order() {
    let _watched = watched();
    many_threads::<Interleaved>(interleaved(64));
    many_threads::<Contiguous>(contiguous(64));
    many_threads::<Interleaved>(interleaved(1));
}

/// Threads that run side by side have cells in several buckets.
#[test]
fn a_hundred_threads_publish_at_once() {
    let _watched = watched();
    const THREADS: usize = if cfg!(miri) { 12 } else { 100 };
    let (publisher, mut reader) = interleaved(256);
    let all = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                publisher.publish(|slot| *slot = 1).unwrap();
                all.wait();
                publisher.publish(|slot| *slot = 1).unwrap();
            });
        }
    });
    publisher.close();
    assert_eq!(reader.for_each(|_, _| ()).unwrap(), 2 * THREADS as u64);
}

static LOG: OnceLock<Publisher<String>> = OnceLock::new();

fn log(text: &str) -> Result<u64, WaitError> {
    LOG.get().expect("set").publish(|line| text.clone_into(line))
}

thread_local! {
    static LAST_WORDS: RefCell<Option<LastWords>> = const { RefCell::new(None) };
}

struct LastWords;

impl Drop for LastWords {
    fn drop(&mut self) {
        log("last words").unwrap();
    }
}

/// The log lies in a static. Threads come and go, log from a formatter, and log from a destructor
/// of a thread-local, which may run before or after their numbers have gone back.
#[test]
fn a_static_log() {
    let _watched = watched();
    let graph = Graph::new(16, String::new).shared();
    let key = graph.reader("lines");
    let ring = graph.build().unwrap();
    assert!(LOG.set(ring.producer().into_publisher()).is_ok());
    let mut lines = ring.reader(key);
    drop(ring);
    let reading = thread::spawn(move || {
        let mut counts = BTreeMap::<String, usize>::new();
        lines.for_each(|line, _| *counts.entry(line.clone()).or_default() += 1).unwrap();
        counts
    });
    const THREADS: usize = 16;
    for round in 0..THREADS / 4 {
        let threads = [0, 1, 2, 3].map(|thread| {
            thread::spawn(move || {
                let speaks_last = || LAST_WORDS.set(Some(LastWords));
                if (round + thread) % 2 == 0 {
                    speaks_last(); // dropped after the thread's number
                }
                log("line").unwrap();
                LOG.get().unwrap().publish(|line| {
                    log("inner").unwrap();
                    "outer".clone_into(line);
                })?;
                if (round + thread) % 2 != 0 {
                    speaks_last();
                }
                Ok::<_, WaitError>(())
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    }
    LOG.get().unwrap().close_all();
    assert!(matches!(log("late"), Err(WaitError::Closed)));
    let counts = reading.join().unwrap();
    let expected = ["inner", "last words", "line", "outer"];
    assert_eq!(counts, expected.map(|line| (line.to_owned(), THREADS)).into());
}

/// A thread publishes by two publishers in turns.
#[test]
fn publishers_do_not_mix_up_their_handles() {
    let _watched = watched();
    let [(one, mut ones), (two, mut twos)] = [interleaved(64), interleaved(64)];
    for i in 0..20 {
        one.publish(|slot| *slot = 100 + i).unwrap();
        two.publish(|slot| *slot = 200 + i).unwrap();
    }
    drop(one);
    // Another publisher may come to the place of the dropped one.
    let (three, mut threes) = interleaved(64);
    three.publish(|slot| *slot = 300).unwrap();
    two.publish(|slot| *slot = 220).unwrap();
    drop((two, three));
    for (reader, first, count) in
        [(&mut ones, 100, 20), (&mut twos, 200, 21), (&mut threes, 300, 1)]
    {
        let mut next = first;
        let seen = reader.for_each(|event, _| {
            assert_eq!(*event, next);
            next += 1;
        });
        assert_eq!(seen.unwrap(), count);
    }
}

/// The ring is full up to the slot that the calling thread fills: only that thread could go on.
#[test]
fn a_full_ring_refuses_a_call_inside_of_a_fill() {
    let _watched = watched();
    ends("a call waits for its own claim", || {
        let (publisher, mut reader) = interleaved(2);
        let is_own = |error: &WaitError| {
            assert!(error.to_string().contains("a slot that the calling thread fills"), "{error}");
            matches!(error, WaitError::WaitsForItself(name) if **name == *PRODUCER)
        };
        for _ in 0..3 {
            let first = publisher.publish(|slot| {
                *slot = 1;
                publisher
                    .publish(|slot| {
                        *slot = 2;
                        // The third level needs the slot of the first one.
                        assert!(is_own(&publisher.publish(|_| ()).unwrap_err()));
                        let late = publisher.publish_by(Instant::now() + common::LIMIT, |_| ());
                        assert!(matches!(late, Err(ClaimError::Wait(error)) if is_own(&error)));
                        let now = publisher.try_publish(|_| ());
                        assert!(matches!(now, Err(ClaimError::Gated { .. })));
                        assert_eq!(publisher.publish_or_drop(|_| ()).unwrap(), None);
                    })
                    .unwrap();
                assert!(is_own(&publisher.publish(|_| ()).unwrap_err()));
            });
            assert!(first.is_ok());
            let mut seen = Vec::new();
            reader.poll(4, |event, _| seen.push(*event)).unwrap();
            assert_eq!(seen, [1, 2]);
        }
    });
}

/// While a closure fills a slot, others fill the ring up to it. The closure's own call is refused
/// in the middle of its wait, and then all go on.
#[test]
fn a_ring_that_others_fill_refuses_a_call_inside_of_a_fill() {
    let _watched = watched();
    ends("a call waits for its own claim behind others", || {
        let (publisher, mut reader) = interleaved(4);
        thread::scope(|scope| {
            publisher
                .publish(|slot| {
                    *slot = 1;
                    let others = scope.spawn(|| {
                        (0..6).for_each(|_| _ = publisher.publish(|slot| *slot = 2).unwrap());
                    });
                    while publisher.with(|producer| producer.remaining()) != 0 {
                        thread::yield_now();
                    }
                    let refused = publisher.publish(|slot| *slot = 3);
                    assert!(matches!(refused, Err(WaitError::WaitsForItself(_))), "{refused:?}");
                    assert!(!others.is_finished());
                })
                .unwrap();
            let mut seen = 0;
            while seen < 7 {
                seen += reader.poll(4, |_, _| ()).unwrap();
                thread::yield_now();
            }
        });
    });
}

#[test]
fn a_call_inside_of_a_fill_waits_for_a_stage() {
    let _watched = watched();
    ends("a call waits for a stage", || {
        let (publisher, mut reader) = interleaved(2);
        publisher.publish(|slot| *slot = 1).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                publisher
                    .publish(|slot| {
                        *slot = 2;
                        publisher.publish(|slot| *slot = 3).unwrap(); // needs the first slot
                    })
                    .unwrap();
            });
            let mut seen = Vec::new();
            while seen.len() < 3 {
                reader.poll(4, |event, _| seen.push(*event)).unwrap();
                thread::yield_now();
            }
            assert_eq!(seen, [1, 2, 3]);
        });
    });
}

/// A panic in `fill` gives the slot up and fails the graph. One in the closure of `with` does
/// neither.
/// A call inside of a fill never waits for the stages to pass the event that is being filled.
#[test]
fn a_flush_inside_of_a_fill_is_refused() {
    let _watched = watched();
    ends("a flush inside of a fill", || {
        let graph = Graph::new(8, || 0u64).shared();
        let key = graph.reader("log");
        let ring = graph.build().unwrap();
        let (log, mut reader) = (ring.producer().into_publisher(), ring.reader(key));
        drop(ring);
        let first = log.publish(|_| ()).unwrap();
        let reading = thread::spawn(move || reader.for_each(|_, _| ()));
        let is_refused = |result: Result<(), PassError>| match result {
            Err(PassError::Wait(WaitError::WaitsForItself(name))) => assert_eq!(&*name, PRODUCER),
            other => panic!("{other:?}"),
        };
        log.publish(|_| {
            let seq = log.publish(|_| ()).unwrap();
            is_refused(log.flush());
            is_refused(log.wait_for("log", seq));
            is_refused(log.wait_for("log", seq - 1)); // the event that is being filled
            log.wait_for("log", first).unwrap();
        })
        .unwrap();
        log.flush().unwrap();
        log.close();
        assert_eq!(reading.join().unwrap().unwrap(), 3);
    });
}

/// A handle of another ring, swapped in by a closure of `with`, goes.
#[test]
fn a_swapped_handle_is_dropped() {
    let _watched = watched();
    let ((a, mut reader), (b, mut other)) = (interleaved(8), interleaved(8));
    a.with(|first| {
        b.with(|second| {
            std::mem::swap(first, second);
            first.publish(|slot| *slot = 1).unwrap();
        });
    });
    a.publish(|slot| *slot = 2).unwrap();
    b.publish(|slot| *slot = 3).unwrap();
    a.wait_for_by("log", 0, Instant::now()).unwrap_err();
    let mut seen = Vec::new();
    reader.poll(8, |value, _| seen.push(*value)).unwrap();
    other.poll(8, |value, _| seen.push(*value)).unwrap();
    assert_eq!(seen, [2, 1, 3]);
    drop((a, b));
    assert!(matches!(
        reader.try_batch(1),
        Err(slipring::errors::BatchError::Wait(WaitError::Closed))
    ));
    assert!(other.try_batch(1).is_err());
}

#[test]
fn a_panic_leaves_the_publisher_usable() {
    let _watched = watched();
    quiet();
    let (publisher, mut reader) = interleaved(4);
    let panics = |call: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    panics(&|| publisher.with(|_| panic!("{PURPOSE}")));
    panics(&|| {
        publisher.with(|_| {
            publisher.with(|_| panic!("{PURPOSE}")) // on a clone
        })
    });
    publisher.publish(|slot| *slot = 1).unwrap();
    panics(&|| {
        publisher.with(|producer| {
            let _claim = producer.claim().unwrap();
            panic!("{PURPOSE}") // drops the claim
        })
    });
    publisher.publish(|slot| *slot = 2).unwrap();
    let mut seen = Vec::new();
    reader.poll(4, |event, _| seen.push(*event)).unwrap();
    assert_eq!(seen, [1, 2]);
    panics(&|| drop(publisher.publish(|_| panic!("{PURPOSE}"))));
    for _ in 0..2 {
        assert!(matches!(publisher.publish(|_| ()), Err(WaitError::Failed(_))));
    }
    assert!(matches!(reader.batch(1), Err(WaitError::Failed(_))));
}

#[test]
fn each_end_reaches_each_call() {
    let _watched = watched();
    quiet();
    type End = fn(&Publisher<u64>);
    type IsIt = fn(&WaitError) -> bool;
    let ends: [(End, IsIt); 3] = [
        (Publisher::close_all, |error| matches!(error, WaitError::Closed)),
        (Publisher::halt, |error| matches!(error, WaitError::Halted)),
        (
            |publisher| {
                let fails = || publisher.publish(|_| panic!("{PURPOSE}"));
                assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
            },
            |error| matches!(error, WaitError::Failed(_)),
        ),
    ];
    for (end, is_it) in ends {
        let (publisher, _reader) = interleaved(4);
        publisher.publish(|_| ()).unwrap();
        end(&publisher);
        assert!(is_it(&publisher.publish(|_| ()).unwrap_err()));
        assert!(is_it(&publisher.publish_or_drop(|_| ()).unwrap_err()));
        let soon = Instant::now() + Duration::from_millis(1);
        for error in [publisher.try_publish(|_| ()), publisher.publish_by(soon, |_| ())] {
            assert!(matches!(error, Err(ClaimError::Wait(error)) if is_it(&error)));
        }
        let Poll::Ready(result) = polled(publisher.publish_async(|_| ())) else { panic!("pends") };
        assert!(is_it(&result.unwrap_err()));
        thread::scope(|scope| {
            scope.spawn(|| assert!(is_it(&publisher.publish(|_| ()).unwrap_err())));
        });
    }
}

/// Polls a future once.
fn polled<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A call that waits at a full ring hears of the end, and of its deadline.
#[test]
fn a_waiting_call_ends() {
    let _watched = watched();
    for end in [Publisher::close_all, Publisher::halt] as [fn(&Publisher<u64>); 2] {
        let (publisher, _reader) = interleaved(1);
        publisher.publish(|_| ()).unwrap();
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(matches!(publisher.publish_by(soon, |_| ()), Err(ClaimError::TimedOut(_))));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| publisher.publish(|_| ()));
            thread::sleep(Duration::from_millis(5));
            end(&publisher);
            assert!(waiting.join().unwrap().is_err());
        });
    }
}

/// Tasks of one thread wait side by side, and each is woken.
#[test]
fn tasks_of_one_thread_wait_side_by_side() {
    let _watched = watched();
    struct Wakes(AtomicU64);
    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let graph = Graph::new(1, || 0).shared().wait(Wait::Blocking);
    let key = graph.reader("slow");
    let ring = graph.build().unwrap();
    let (publisher, mut reader) = (ring.producer().into_publisher(), ring.reader(key));
    drop(ring);
    publisher.publish(|slot| *slot = 0).unwrap();
    let wakes = [(); 2].map(|()| Arc::new(Wakes(AtomicU64::new(0))));
    let mut tasks = [1, 2].map(|i| Box::pin(publisher.publish_async(move |slot| *slot = i)));
    let mut poll = |task: usize| {
        let waker = Waker::from(wakes[task].clone());
        tasks[task].as_mut().poll(&mut Context::from_waker(&waker))
    };
    assert!(poll(0).is_pending() && poll(1).is_pending());
    let mut seen = Vec::new();
    reader.poll(1, |event, _| seen.push(*event)).unwrap();
    assert_eq!(wakes.each_ref().map(|wakes| wakes.0.load(Ordering::Relaxed)), [1, 1]);
    assert!(poll(1).is_ready() && poll(0).is_pending());
    reader.poll(1, |event, _| seen.push(*event)).unwrap();
    assert!(poll(0).is_ready());
    reader.poll(1, |event, _| seen.push(*event)).unwrap();
    assert_eq!(seen, [0, 2, 1]);
}

/// Reports are complete once the publisher has been dropped.
#[test]
fn a_dropped_publisher_has_counted_everything() {
    let _watched = watched();
    let graph = Graph::new(64, || 0).shared();
    let key = graph.reader("log");
    let ring = graph.build().unwrap();
    let (publisher, mut reader) = (ring.producer().into_publisher(), ring.reader(key));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                publisher.publish(|_| drop(publisher.publish(|_| ()))).unwrap();
                publisher.with(|producer| producer.publish_batches(4, 0..4, |_, _| ())).unwrap();
            });
        }
    });
    publisher.close();
    let report = ring.report();
    assert_eq!((report.producer().events, report.producer().batches), (18, 9));
    assert_eq!(reader.poll(64, |_, _| ()).unwrap(), 18);
}

/// The handler of a stage publishes into its own ring by the publisher that feeds it.
#[test]
fn a_handler_publishes_into_its_own_ring() {
    let _watched = watched();
    let (publisher, mut reader) = interleaved(4);
    publisher.publish(|slot| *slot = 3).unwrap();
    let seen = Mutex::new(Vec::new());
    reader
        .for_each(|event, _| {
            seen.lock().unwrap().push(*event);
            match event.checked_sub(1) {
                Some(less) => _ = publisher.publish(|slot| *slot = less).unwrap(),
                None => {
                    let mut published = 0;
                    while publisher.publish(|_| ()).is_ok() {
                        published += 1;
                    }
                    assert_eq!(published, 3, "the ring is full with this event in it");
                    publisher.halt();
                }
            }
        })
        .unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [3, 2, 1, 0]);
}
