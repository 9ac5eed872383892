//! The cost of what a review of correctness changed: the same calls in two versions of the library.
//!
//! A package of its own: dependencies `slipring` (a path to a checkout, feature `stream`), `tokio`
//! 1 (`rt`, `time`, `sync`) and `futures-core` 0.3. `review` prints a line `name value` for each
//! case, in nanoseconds; `review tasks`, `review calls` and `review yielding` print a part of them.
//! `review timer KIND` prints when a timer of 20 ms fires beside a task that is always ready, in
//! milliseconds.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use slipring::{Graph, Producer, Reader, Wait};

/// Number of events of each case.
const EVENTS: u64 = 2_000_000;
/// Number of events between two readings of the clock, where one thread publishes and reads.
const PART: u64 = 512;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(task: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut task, mut context) = (pin!(task), Context::from_waker(&waker));
    loop {
        if let Poll::Ready(output) = task.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

fn print(name: &str, time: Duration, events: u64) {
    println!("{name} {:.3}", time.as_nanos() as f64 / events as f64);
}

/// Calls `part` until all events have passed; `part` returns the time that counts of [`PART`].
fn parts(name: &str, mut part: impl FnMut() -> Duration) {
    let time: Duration = (0..EVENTS / PART).map(|_| part()).sum();
    print(name, time, EVENTS / PART * PART);
}

fn timed(calls: impl FnOnce()) -> Duration {
    let began = Instant::now();
    calls();
    began.elapsed()
}

/// Results of futures and streams that are always ready.
fn tasks() {
    let (mut tx, mut rx) = slipring::unicast(1024, || 0u64).unwrap();
    let mut read = Duration::ZERO;
    parts("publish_async", || {
        let published = timed(|| {
            block_on(async {
                for i in 0..PART {
                    tx.publish_async(|slot| *slot = i).await.unwrap();
                }
            });
        });
        read += timed(|| {
            block_on(async {
                for _ in 0..PART {
                    rx.batch_async(1).await.unwrap().release();
                }
            });
        });
        published
    });
    print("batch_async", read, EVENTS / PART * PART);
    let (mut tx, rx) = slipring::unicast(1024, || 0u64).unwrap();
    let mut stream = pin!(rx.into_stream(|value, _| *value));
    let mut sum = 0;
    parts("stream", || {
        tx.publish_all(0..PART, |slot, i| *slot = i).unwrap();
        timed(|| {
            block_on(async {
                for _ in 0..PART {
                    let item = poll_fn(|context| stream.as_mut().poll_next(context)).await;
                    sum += item.unwrap().unwrap();
                }
            });
        })
    });
    assert_eq!(sum, EVENTS / PART * (PART * (PART - 1) / 2));
}

fn drain<S>(rx: &mut Reader<u64>, _tx: &S) {
    while rx.poll(usize::MAX, |_, _| ()).unwrap() != 0 {}
}

/// Calls of one thread, without contention.
fn calls() {
    let (mut tx, mut rx) = slipring::unicast(1024, || 0u64).unwrap();
    parts("publish", || {
        let time = timed(|| (0..PART).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap()));
        drain(&mut rx, &tx);
        time
    });
    parts("claim of 8, per event", || {
        let time = timed(|| {
            for _ in 0..PART / 8 {
                let mut claim = tx.claim_n(8).unwrap();
                claim.iter_mut().for_each(|slot| *slot = 1);
                claim.publish();
            }
        });
        drain(&mut rx, &tx);
        time
    });
    parts("empty poll", || {
        timed(|| (0..PART).for_each(|_| _ = black_box(rx.poll(8, |_, _| ()).unwrap())))
    });
    parts("publish and poll", || {
        timed(|| {
            for i in 0..PART {
                tx.publish(|slot| *slot = i).unwrap();
                assert_eq!(rx.poll(8, |_, _| ()).unwrap(), 1);
            }
        })
    });
    parts("publish, poll, empty poll", || {
        timed(|| {
            for i in 0..PART {
                tx.publish(|slot| *slot = i).unwrap();
                assert_eq!(rx.poll(8, |_, _| ()).unwrap(), 1);
                assert_eq!(rx.poll(8, |_, _| ()).unwrap(), 0);
            }
        })
    });
    let graph = Graph::new(1024, || 0u64).shared();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let _other = ring.producer();
    parts("publish beside another handle", || {
        let time = timed(|| (0..PART).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap()));
        drain(&mut rx, &tx);
        time
    });
}

fn ring(wait: &Wait, capacity: usize) -> (Producer<u64>, Reader<u64>) {
    let graph = Graph::new(capacity, || 0u64).wait(wait.clone());
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(key))
}

/// Two threads, by the strategy `wait`.
fn threads(wait: &Wait) {
    let (mut tx, mut rx) = ring(wait, 1024);
    let reader = std::thread::spawn(move || {
        let mut sum = 0u64;
        rx.for_each(|value, _| sum += value).unwrap();
        sum
    });
    let time = timed(|| {
        (0..EVENTS).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        tx.close();
        assert_eq!(reader.join().unwrap(), EVENTS * (EVENTS - 1) / 2);
    });
    print(&format!("{wait}: dense"), time, EVENTS);

    let ((mut there, mut rx), (mut back, mut answers)) = (ring(wait, 64), ring(wait, 64));
    let other = std::thread::spawn(move || {
        rx.for_each(|&value, _| _ = back.publish(|slot| *slot = value).unwrap()).unwrap();
    });
    let trips = 20_000;
    let time = timed(|| {
        for i in 0..trips {
            there.publish(|slot| *slot = i).unwrap();
            answers.batch(1).unwrap().release();
        }
    });
    print(&format!("{wait}: round trip"), time, trips);
    there.close();
    other.join().unwrap();

    let (mut tx, mut rx) = ring(wait, 1024);
    let base = Instant::now();
    let reader = std::thread::spawn(move || {
        let mut latencies = Vec::new();
        rx.for_each(|&sent, _| latencies.push(base.elapsed().as_nanos() as u64 - sent)).unwrap();
        latencies.sort_unstable();
        latencies
    });
    for i in 0..500u64 {
        let (due, now) = (Duration::from_millis(i), base.elapsed());
        std::thread::sleep(due.saturating_sub(now));
        tx.publish(|slot| *slot = base.elapsed().as_nanos() as u64).unwrap();
    }
    tx.close();
    let latencies = reader.join().unwrap();
    for (name, part) in [("p50", 50), ("p90", 90), ("p99", 99)] {
        let latency = latencies[latencies.len() * part / 100];
        println!("{wait}: 1,000 a second, {name} {latency}");
    }
}

/// A task that is always ready, beside a timer of 20 ms, on a runtime of one thread.
fn timer(kind: &str) {
    let began = Instant::now();
    let goes_on = move || began.elapsed() < Duration::from_secs(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let kind = kind.to_owned();
    let fired = runtime.block_on(async {
        let timer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            began.elapsed()
        });
        tokio::task::yield_now().await;
        tokio::spawn(async move {
            let (mut tx, mut rx) = slipring::unicast(1024, || 0u64).unwrap();
            let (to, mut from) = tokio::sync::mpsc::channel(1024);
            while goes_on() {
                match &*kind {
                    "reader" => {
                        while tx.try_publish(|slot| *slot = 1).is_ok() {}
                        rx.batch_async(1).await.unwrap().release();
                    }
                    "producer" => {
                        tx.publish_async(|slot| *slot = 1).await.unwrap();
                        rx.poll(1024, |_, _| ()).unwrap();
                    }
                    _ => {
                        while to.try_send(1u64).is_ok() {}
                        from.recv().await.unwrap();
                    }
                }
            }
        });
        timer.await.unwrap()
    });
    println!("{:.1}", fired.as_secs_f64() * 1e3);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, command, kind] = &args[..] {
        assert_eq!(command, "timer");
        return timer(kind);
    }
    match args.get(1).map(String::as_str) {
        None => {}
        Some("tasks") => return tasks(),
        Some("calls") => return calls(),
        Some(wait) => return threads(&wait.parse().unwrap()),
    }
    tasks();
    calls();
    threads(&Wait::ADAPTIVE);
    threads(&Wait::YIELDING);
}
