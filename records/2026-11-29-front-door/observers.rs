//! Costs of a mirror's `put` before and after observers are notified, and the latency from a put to
//! an observer that sleeps.
//!
//! A round measures every contender once, in an order that changes. The summary has the median of
//! the rounds, the 10th and the 90th percentile, and the median of the ratios by round.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROUNDS: usize = 201;
const PUTS: u64 = 100_000;
/// Number of puts beside an observer: about 10 ms, so that the two threads run at once.
const WATCHED: u64 = 5_000_000;

#[derive(Clone, Copy, PartialEq)]
enum Watch {
    Polls,
    Naps,
    Sleeps,
}

macro_rules! contender {
    ($name:ident, $lib:ident) => {
        mod $name {
            use super::*;
            use $lib::{Mirror, Wait};

            /// ns per put of a value of `N` words.
            #[inline(never)]
            pub fn put<const N: usize>(mirror: &mut Mirror<[u64; N]>, puts: u64) -> f64 {
                let began = Instant::now();
                for i in 0..puts {
                    mirror.put(i, black_box(&[i; N]));
                }
                began.elapsed().as_nanos() as f64 / puts as f64
            }

            pub fn alone<const N: usize>() -> Box<dyn FnMut() -> f64> {
                let mut mirror = Mirror::<[u64; N]>::new(1024).unwrap();
                put(&mut mirror, 10_000); // a new queue becomes quiet after 512 puts
                Box::new(move || put(&mut mirror, PUTS))
            }

            /// ns per put while one observer reads each value, in the given way.
            pub fn watched(how: Watch) -> f64 {
                let mut mirror = Mirror::<[u64; 1]>::new(1024).unwrap();
                put(&mut mirror, 10_000);
                let over = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    let observer = mirror.handle().observe();
                    scope.spawn(|| match how {
                        Watch::Polls => {
                            let mut observer = observer;
                            while !over.load(SeqCst) {
                                let _ = black_box(observer.try_next());
                            }
                        }
                        Watch::Naps => {
                            black_box(observer.wait(Wait::SLEEPING).count());
                        }
                        Watch::Sleeps => {
                            black_box(observer.wait(Wait::Blocking).count());
                        }
                    });
                    let cost = put(&mut mirror, WATCHED);
                    over.store(true, SeqCst);
                    drop(mirror);
                    cost
                })
            }

            /// ns per put for the writer, and ns until the observer has the value, for puts that
            /// are 500 us apart.
            pub fn seldom(wait: Wait, observers: usize) -> (f64, f64) {
                let mut mirror = Mirror::<[u64; 1]>::new(1024).unwrap();
                put(&mut mirror, 10_000);
                let base = Instant::now();
                let latency = AtomicU64::new(0);
                const SELDOM: u64 = 50;
                let mut cost = 0.0;
                std::thread::scope(|scope| {
                    for _ in 0..observers {
                        let observer = mirror.handle().observe().wait(wait.clone());
                        let latency = &latency;
                        scope.spawn(move || {
                            for seen in observer {
                                let at = base.elapsed().as_nanos() as u64;
                                latency.fetch_add(at - seen.value[0], SeqCst);
                            }
                        });
                    }
                    for i in 0..SELDOM {
                        std::thread::sleep(Duration::from_micros(500));
                        let at = base.elapsed().as_nanos() as u64;
                        mirror.put(i, &[at]);
                        cost += base.elapsed().as_nanos() as f64 - at as f64;
                    }
                    drop(mirror);
                });
                let n = SELDOM as f64;
                (cost / n, latency.load(SeqCst) as f64 / n / observers as f64)
            }
        }
    };
}
contender!(old, before);
contender!(new, after);

fn median(mut of: Vec<f64>) -> (f64, f64, f64) {
    of.sort_by(f64::total_cmp);
    let at = |part: f64| of[((of.len() - 1) as f64 * part) as usize];
    (at(0.5), at(0.1), at(0.9))
}

fn compare(name: &str, rounds: usize, mut old: impl FnMut() -> f64, mut new: impl FnMut() -> f64) {
    let (mut olds, mut news) = (vec![], vec![]);
    for round in 0..rounds {
        if round % 2 == 0 {
            olds.push(old());
            news.push(new());
        } else {
            news.push(new());
            olds.push(old());
        }
    }
    let ratios = olds.iter().zip(&news).map(|(old, new)| new / old).collect();
    let (o, n, r) = (median(olds), median(news), median(ratios));
    println!(
        "| {name} | {:.2} ({:.2} to {:.2}) | {:.2} ({:.2} to {:.2}) | {:.3} ({:.3} to {:.3}) |",
        o.0, o.1, o.2, n.0, n.1, n.2, r.0, r.1, r.2
    );
}

fn main() {
    println!("| ns per put | before | after | ratio by round |\n|---|---|---|---|");
    compare("no observer, 8 bytes", ROUNDS, old::alone::<1>(), new::alone::<1>());
    compare("no observer, 64 bytes", ROUNDS, old::alone::<8>(), new::alone::<8>());
    compare("the same binary twice, 8 bytes", ROUNDS, old::alone::<1>(), old::alone::<1>());
    compare("an observer polls", 41, || old::watched(Watch::Polls), || new::watched(Watch::Polls));
    compare(
        "an observer naps (`SLEEPING`)",
        41,
        || old::watched(Watch::Naps),
        || new::watched(Watch::Naps),
    );
    compare(
        "an observer sleeps (`Blocking`)",
        41,
        || old::watched(Watch::Sleeps),
        || new::watched(Watch::Sleeps),
    );
    println!(
        "\n| puts 500 us apart | ns of a put | ns until an observer has the value |\n|---|---|---|"
    );
    let mut rows: Vec<(&str, Box<dyn FnMut() -> (f64, f64)>, Vec<f64>, Vec<f64>)> = vec![
        (
            "before, `Sleeping` (its default)",
            Box::new(|| old::seldom(before::Wait::SLEEPING, 1)),
            vec![],
            vec![],
        ),
        (
            "before, `Blocking` (naps of 50 us)",
            Box::new(|| old::seldom(before::Wait::Blocking, 1)),
            vec![],
            vec![],
        ),
        ("after, `Sleeping`", Box::new(|| new::seldom(after::Wait::SLEEPING, 1)), vec![], vec![]),
        ("after, `Blocking`", Box::new(|| new::seldom(after::Wait::Blocking, 1)), vec![], vec![]),
        (
            "after, `Adaptive` (the default)",
            Box::new(|| new::seldom(after::Wait::ADAPTIVE, 1)),
            vec![],
            vec![],
        ),
        (
            "after, `Blocking`, three observers",
            Box::new(|| new::seldom(after::Wait::Blocking, 3)),
            vec![],
            vec![],
        ),
    ];
    for _ in 0..31 {
        for (_, run, costs, latencies) in &mut rows {
            let (cost, latency) = run();
            costs.push(cost);
            latencies.push(latency);
        }
    }
    for (name, _, costs, latencies) in rows {
        let (c, l) = (median(costs), median(latencies));
        println!(
            "| {name} | {:.0} ({:.0} to {:.0}) | {:.0} ({:.0} to {:.0}) |",
            c.0, c.1, c.2, l.0, l.1, l.2
        );
    }
}
