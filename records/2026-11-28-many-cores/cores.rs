//! Two versions of the library (`old`, `new`) and crossbeam's `ArrayQueue` in turns, on two cores.
//! Each row is measured in rounds; in every second round the order is reversed. Printed are the
//! median of the rounds' ratios with its quartiles, and the medians in nanoseconds.
//!
//! Arguments: the number of rounds.

use std::hint::{black_box, spin_loop};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Binds the calling thread to one of the two cores, or to both.
fn bind(core: Option<usize>) {
    // SAFETY: the set is zeroed, and the call gets its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match core {
            Some(core) => libc::CPU_SET(core, &mut set),
            None => (0..2).for_each(|core| libc::CPU_SET(core, &mut set)),
        }
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// Runs the bodies on threads that begin together. Returns the time from the first begin to the
/// last end, in nanoseconds.
fn time(bodies: Vec<Body>, pinned: bool) -> f64 {
    let barrier = Arc::new(Barrier::new(bodies.len()));
    let start = |(number, body): (usize, Body)| {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            bind(pinned.then_some(number % 2));
            barrier.wait();
            let begin = Instant::now();
            body();
            (begin, Instant::now())
        })
    };
    let threads: Vec<_> = bodies.into_iter().enumerate().map(start).collect();
    let times: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let (first, last) = (times.iter().map(|t| t.0).min(), times.iter().map(|t| t.1).max());
    (last.unwrap() - first.unwrap()).as_nanos() as f64
}

/// Works for about so many nanoseconds.
fn work(nanos: u64) {
    (0..nanos).for_each(|i| _ = black_box(i));
}

macro_rules! versions {
    ($library:ident) => {
        mod $library {
            use super::*;
            use ::$library::{Graph, Wait};

            pub fn wait(spins: bool) -> Wait {
                if spins { Wait::BusySpin } else { Wait::ADAPTIVE }
            }

            /// Producers that only claim and publish, into a ring that has room for everything.
            pub fn fill(producers: usize, n: u64, pinned: bool) -> f64 {
                let graph = Graph::new(n as usize, || 0u64).shared().wait(Wait::BusySpin);
                let key = graph.reader("r");
                let ring = graph.build().unwrap();
                let handles: Vec<_> = (0..producers).map(|_| ring.producer()).collect();
                let _rx = ring.reader(key);
                let body = |mut tx: ::$library::SharedProducer<u64>| {
                    Box::new(move || {
                        (0..n / producers as u64).for_each(|i| _ = tx.publish(|s| *s = i).unwrap());
                        std::mem::forget(tx);
                    }) as Body
                };
                time(handles.into_iter().map(body).collect(), pinned) / n as f64
            }

            /// One producer and one reader.
            pub fn one(n: u64, batch: usize, spins: bool, pinned: bool) -> f64 {
                let graph = Graph::new(1024, || 0u64).wait(wait(spins));
                let key = graph.reader("r");
                let ring = graph.build().unwrap();
                let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
                drop(ring);
                let read: Body = Box::new(move || {
                    let mut seen = 0;
                    rx.for_each(|_, _| seen += 1).unwrap();
                    assert_eq!(seen, n);
                });
                let publish: Body = Box::new(move || match batch {
                    1 => (0..n).for_each(|i| _ = tx.publish(|s| *s = i).unwrap()),
                    _ => _ = tx.publish_batches(batch, 0..n, |s, i| *s = i).unwrap(),
                });
                time(vec![read, publish], pinned) / n as f64
            }

            /// Producers of a shared ring, and one reader.
            pub fn shared(
                producers: usize,
                n: u64,
                batch: usize,
                spins: bool,
                pinned: bool,
            ) -> f64 {
                let graph = Graph::new(1024, || 0u64).shared().wait(wait(spins));
                let key = graph.reader("r");
                let ring = graph.build().unwrap();
                let handles: Vec<_> = (0..producers).map(|_| ring.producer()).collect();
                let mut rx = ring.reader(key);
                drop(ring);
                let each = n / producers as u64;
                let mut bodies: Vec<Body> = vec![Box::new(move || {
                    let mut seen = 0;
                    rx.for_each(|_, _| seen += 1).unwrap();
                    assert_eq!(seen, each * producers as u64);
                })];
                for mut tx in handles {
                    bodies.push(Box::new(move || match batch {
                        1 => (0..each).for_each(|i| _ = tx.publish(|s| *s = i).unwrap()),
                        _ => _ = tx.publish_batches(batch, 0..each, |s, i| *s = i).unwrap(),
                    }));
                }
                time(bodies, pinned) / n as f64
            }

            /// One producer and a pool with room for two more workers than it has. The producer
            /// works for `pace`, and a worker for `handling` at each event. Returns the time of an
            /// event, or the median latency if the events are paced.
            pub fn pool(
                workers: usize,
                n: u64,
                (batch, pace, handling): (usize, u64, u64),
                spins: bool,
                pinned: bool,
            ) -> f64 {
                let zero = Instant::now();
                let graph = Graph::new(1024, move || zero).wait(wait(spins));
                let key = graph.pool_reader("work", workers).room(workers + 2);
                let ring = graph.build().unwrap();
                let (mut tx, pool) = (ring.producer(), ring.pool_readers(key));
                drop(ring);
                let latencies = Arc::new(std::sync::Mutex::new(Vec::with_capacity(n as usize)));
                let mut bodies: Vec<Body> = vec![Box::new(move || {
                    let publish = |tx: &mut ::$library::Producer<Instant>| match batch {
                        1 => {
                            _ = tx
                                .publish(|s| *s = if pace > 0 { Instant::now() } else { zero })
                                .unwrap()
                        }
                        _ => {
                            let mut slots = tx.claim_n(batch).unwrap();
                            slots.iter_mut().for_each(|s| *s = zero);
                            slots.publish();
                        }
                    };
                    for _ in 0..n / batch as u64 {
                        work(pace);
                        publish(&mut tx);
                    }
                })];
                for mut worker in pool {
                    let latencies = latencies.clone();
                    bodies.push(Box::new(move || {
                        let mut own = Vec::with_capacity(if pace > 0 { n as usize } else { 0 });
                        let mut seen = 0u64;
                        worker
                            .for_each(|sent, _| {
                                if pace > 0 {
                                    own.push(sent.elapsed().as_nanos() as f64);
                                }
                                seen += 1;
                                work(handling);
                            })
                            .unwrap();
                        black_box(seen);
                        latencies.lock().unwrap().append(&mut own);
                    }));
                }
                let took = time(bodies, pinned) / n as f64;
                let all = std::mem::take(&mut *latencies.lock().unwrap());
                if pace > 0 { median(all) } else { took }
            }
        }
    };
}
versions!(old);
versions!(new);

fn fill_queue(producers: usize, n: u64, pinned: bool) -> f64 {
    let queue = Arc::new(crossbeam_queue::ArrayQueue::new(n as usize));
    let body = |_| {
        let queue = queue.clone();
        Box::new(move || (0..n / producers as u64).for_each(|i| queue.push(i).unwrap())) as Body
    };
    time((0..producers).map(body).collect(), pinned) / n as f64
}

fn shared_queue(producers: usize, n: u64, pinned: bool) -> f64 {
    let queue = Arc::new(crossbeam_queue::ArrayQueue::new(1024));
    let each = n / producers as u64;
    let read = queue.clone();
    let mut bodies: Vec<Body> = vec![Box::new(move || {
        let mut seen = 0;
        while seen < each * producers as u64 {
            if read.pop().is_some() { seen += 1 } else { spin_loop() }
        }
    })];
    for _ in 0..producers {
        let queue = queue.clone();
        bodies.push(Box::new(move || {
            for i in 0..each {
                while queue.push(i).is_err() {
                    spin_loop();
                }
            }
        }));
    }
    time(bodies, pinned) / n as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(name: &str, rounds: usize, contenders: &mut [&mut dyn FnMut() -> f64]) {
    let mut all = vec![vec![]; contenders.len()];
    for round in 0..rounds {
        for k in 0..contenders.len() {
            let k = if round % 2 == 0 { k } else { contenders.len() - 1 - k };
            let value = contenders[k]();
            all[k].push(value);
        }
    }
    let mut ratios: Vec<f64> = all[1].iter().zip(&all[0]).map(|(new, old)| new / old).collect();
    ratios.sort_by(f64::total_cmp);
    let [low, middle, high] = [1, 2, 3].map(|q| ratios[ratios.len() * q / 4]);
    print!(
        "| {name} | {middle:.2} | {low:.2} to {high:.2} | {:.1} | {:.1} |",
        median(all[0].clone()),
        median(all[1].clone())
    );
    match all.get(2) {
        Some(queue) => println!(" {:.1} |", median(queue.clone())),
        None => println!(" |"),
    }
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(21, |rounds| rounds.parse().unwrap());
    let began = Instant::now();
    for pinned in [true, false] {
        println!("\n{}\n", if pinned { "Pinned threads." } else { "Free threads." });
        println!(
            "| row | new/old | quartiles | old, ns | new, ns | `ArrayQueue`, ns |\n|---|---|---|---|---|---|"
        );
        let n = 1 << 18;
        for p in [1, 2] {
            row(
                &format!("{p} of a shared ring only publish"),
                rounds,
                &mut [
                    &mut || old::fill(p, n, pinned),
                    &mut || new::fill(p, n, pinned),
                    &mut || fill_queue(p, n, pinned),
                ],
            );
        }
        let n = 200_000;
        for (name, batch, spins) in
            [("spin", 1, true), ("default", 1, false), ("default, batches of 10", 10, false)]
        {
            row(
                &format!("one producer, one reader; {name}"),
                rounds,
                &mut [&mut || old::one(n, batch, spins, pinned), &mut || {
                    new::one(n, batch, spins, pinned)
                }],
            );
        }
        for (p, name, batch, spins) in [
            (1, "spin", 1, true),
            (1, "default", 1, false),
            (2, "default", 1, false),
            (2, "default, batches of 10", 10, false),
        ] {
            row(
                &format!("{p} of a shared ring, one reader; {name}"),
                rounds,
                &mut [
                    &mut || old::shared(p, n, batch, spins, pinned),
                    &mut || new::shared(p, n, batch, spins, pinned),
                    &mut || {
                        if batch == 1 { shared_queue(p, n, pinned) } else { f64::NAN }
                    },
                ],
            );
        }
        let n = 100_000;
        for (workers, name, load, spins) in [
            (1, "full ring, spin", (1, 0, 0), true),
            (1, "full ring, batches of 8, spin", (8, 0, 0), true),
            (1, "full ring, default", (1, 0, 0), false),
            (2, "full ring, default", (1, 0, 0), false),
            (2, "full ring, 1 µs an event, default", (1, 0, 1_000), false),
        ] {
            row(
                &format!("pool of {workers}; {name}"),
                rounds,
                &mut [&mut || old::pool(workers, n, load, spins, pinned), &mut || {
                    new::pool(workers, n, load, spins, pinned)
                }],
            );
        }
        let n = 10_000;
        for (workers, name, spins) in
            [(1, "spin", true), (1, "default", false), (2, "default", false), (4, "default", false)]
        {
            row(
                &format!("pool of {workers}, paced; p50 of the latency; {name}"),
                rounds,
                &mut [&mut || old::pool(workers, n, (1, 3_000, 0), spins, pinned), &mut || {
                    new::pool(workers, n, (1, 3_000, 0), spins, pinned)
                }],
            );
        }
    }
    let took: Duration = began.elapsed();
    eprintln!("{took:.0?}");
}
