//! Producers that race for the claim word by compare-and-swaps: two producers of a segment, whose
//! threads are in one process, and two of a shared ring whose calls have deadlines. Two versions of
//! the library in turns; the ratio is that of a round.
//!
//! Arguments: the number of rounds.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

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

macro_rules! versions {
    ($name:ident, $library:ident, $shm:ident) => {
        mod $name {
            use super::*;

            /// Producers of a segment of `capacity` slots; a reader if `reads`.
            pub fn segment(
                producers: usize,
                n: u64,
                capacity: usize,
                reads: bool,
                pinned: bool,
            ) -> f64 {
                let segment = $shm::Segment::<u64>::create_memfd("bench")
                    .capacity(capacity as u64)
                    .producers(producers as u32)
                    .reader("r")
                    .build()
                    .unwrap();
                // SAFETY: no other process has the memfd.
                let attached = unsafe { segment.attach() }.unwrap();
                let mut reader = attached.reader("r").unwrap();
                let each = n / producers as u64;
                let mut bodies: Vec<Body> = Vec::new();
                for _ in 0..producers {
                    let mut tx = attached.shared_producer().unwrap();
                    bodies.push(Box::new(move || {
                        (0..each).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
                        // The end of the last producer ends the reader.
                        if !reads {
                            std::mem::forget(tx);
                        }
                    }));
                }
                if reads {
                    bodies.push(Box::new(move || {
                        assert_eq!(reader.for_each(|_, _| ()).unwrap(), each * producers as u64);
                    }));
                }
                time(bodies, pinned) / n as f64
            }

            /// Producers of a shared ring whose calls have a deadline, and a reader.
            pub fn by_deadline(producers: usize, n: u64, pinned: bool) -> f64 {
                let graph = $library::Graph::new(1024, || 0u64).shared();
                let key = graph.reader("r");
                let ring = graph.build().unwrap();
                let handles: Vec<_> = (0..producers).map(|_| ring.producer()).collect();
                let mut rx = ring.reader(key);
                drop(ring);
                let each = n / producers as u64;
                let late = Instant::now() + Duration::from_secs(600);
                let mut bodies: Vec<Body> = vec![Box::new(move || {
                    assert_eq!(rx.for_each(|_, _| ()).unwrap(), each * producers as u64);
                })];
                for mut tx in handles {
                    bodies.push(Box::new(move || {
                        (0..each).for_each(|i| _ = tx.publish_by(late, |slot| *slot = i).unwrap());
                    }));
                }
                time(bodies, pinned) / n as f64
            }
        }
    };
}
versions!(before, old, old_shm);
versions!(after, new, new_shm);

fn median(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    (all[all.len() / 4], all[all.len() / 2], all[all.len() * 3 / 4])
}

fn row(name: &str, rounds: usize, before: impl Fn() -> f64, after: impl Fn() -> f64) {
    let (mut a, mut b, mut ratios) = (vec![], vec![], vec![]);
    for round in 0..rounds {
        let (x, y) = if round % 2 == 0 {
            let x = before();
            (x, after())
        } else {
            let y = after();
            (before(), y)
        };
        (a.push(x), b.push(y), ratios.push(y / x));
    }
    let (low, middle, high) = median(ratios);
    let (a, b) = (median(a).1, median(b).1);
    println!("| {name} | {middle:.2} | {low:.2} to {high:.2} | {a:.1} | {b:.1} |");
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(31, |text| text.parse().expect("a number"));
    const N: u64 = 1 << 16;
    for pinned in [true, false] {
        println!("\n{} threads.\n", if pinned { "Pinned" } else { "Free" });
        println!("| row | new/old | quartiles | old, ns | new, ns |\n|---|---|---|---|---|");
        for producers in [2] {
            let name = format!("{producers} of a segment only publish");
            let run = |f: fn(usize, u64, usize, bool, bool) -> f64| {
                move || f(producers, N, N as usize, false, pinned)
            };
            row(&name, rounds, run(before::segment), run(after::segment));
        }
        for producers in [2, 4] {
            let name = format!("{producers} of a segment, one reader");
            let run = |f: fn(usize, u64, usize, bool, bool) -> f64| {
                move || f(producers, N, 1024, true, pinned)
            };
            row(&name, rounds, run(before::segment), run(after::segment));
        }
        for producers in [2, 4] {
            let name = format!("{producers} of a shared ring by a deadline, one reader");
            let run = |f: fn(usize, u64, bool) -> f64| move || f(producers, N, pinned);
            row(&name, rounds, run(before::by_deadline), run(after::by_deadline));
        }
    }
}
