//! Compares loops over `Consumer::batch`, `Consumer::batch_within` and `Consumer::batch_by`; see
//! `batch-within.md`. Build it in a package that depends on `slipring`. The argument is the number
//! of rounds.

use slipring::{Graph, Reader, Wait};
use std::time::{Duration, Instant};

/// Returns the CPU time of this thread, in nanoseconds.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
/// Returns how often this thread has slept.
fn switches() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("voluntary_ctxt")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// A loop that takes batches of up to so many events within so much time. Returns the sum of the
/// events and the number of batches.
type Consume = fn(&mut Reader<u64>, usize, Duration) -> (u64, u64);

fn plain(rx: &mut Reader<u64>, n: usize, _: Duration) -> (u64, u64) {
    let (mut sum, mut batches) = (0u64, 0);
    while let Ok(batch) = rx.batch(n) {
        sum = sum.wrapping_add(batch.iter().sum());
        batches += 1;
        batch.release();
    }
    (sum, batches)
}
fn within(rx: &mut Reader<u64>, n: usize, time: Duration) -> (u64, u64) {
    let (mut sum, mut batches) = (0u64, 0);
    while let Ok(batch) = rx.batch_within(n, time) {
        sum = sum.wrapping_add(batch.iter().sum());
        batches += 1;
        batch.release();
    }
    (sum, batches)
}
/// The loop that users write today: it copies, because a batch cannot grow.
fn by_hand(rx: &mut Reader<u64>, n: usize, time: Duration) -> (u64, u64) {
    let (mut sum, mut batches) = (0u64, 0);
    let mut gathered = Vec::with_capacity(n);
    'all: loop {
        match rx.batch(n) {
            Ok(batch) => {
                gathered.extend(batch.iter().copied());
                batch.release();
            }
            Err(_) => break 'all,
        }
        let deadline = Instant::now() + time;
        let mut ended = false;
        while gathered.len() < n {
            match rx.batch_by(n - gathered.len(), deadline) {
                Ok(batch) => {
                    gathered.extend(batch.iter().copied());
                    batch.release();
                }
                Err(slipring::errors::BatchError::TimedOut(_)) => break,
                Err(_) => {
                    ended = true;
                    break;
                }
            }
        }
        sum = sum.wrapping_add(gathered.iter().sum());
        batches += 1;
        gathered.clear();
        if ended {
            break;
        }
    }
    (sum, batches)
}

/// Returns the time per event, in nanoseconds, beside a producer that never waits but for room.
fn saturated(consume: Consume, n: usize, events: u64, wait: &Wait) -> f64 {
    let graph = Graph::new(4096, || 0u64).wait(wait.clone());
    let key = graph.reader("log");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let began = Instant::now();
    let consuming = std::thread::spawn(move || consume(&mut rx, n, Duration::from_secs(5)));
    for i in 0..events {
        tx.publish(|slot| *slot = i).unwrap();
    }
    tx.close();
    let (sum, _) = consuming.join().unwrap();
    assert_eq!(sum, events * (events - 1) / 2);
    began.elapsed().as_nanos() as f64 / events as f64
}

/// Returns the CPU time of the reader and of the producer, in µs per second, and the reader's
/// sleeps and batches per second.
fn trickle(consume: Consume, rate: u64, seconds: f64, wait: &Wait) -> [f64; 4] {
    let graph = Graph::new(4096, || 0u64).wait(wait.clone());
    let key = graph.reader("log");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let consuming = std::thread::spawn(move || {
        let (cpu0, sw0) = (cpu(), switches());
        let (_, batches) = consume(&mut rx, 1000, Duration::from_millis(50));
        (cpu() - cpu0, switches() - sw0, batches)
    });
    let began = Instant::now();
    let cpu0 = cpu();
    let mut published = 0u64;
    loop {
        let elapsed = began.elapsed().as_secs_f64();
        if elapsed >= seconds {
            break;
        }
        while published < (elapsed * rate as f64) as u64 {
            tx.publish(|slot| *slot = published).unwrap();
            published += 1;
        }
        std::thread::sleep(Duration::from_nanos(1_000_000_000 / rate));
    }
    let mine = cpu() - cpu0;
    tx.close();
    let (theirs, switches, batches) = consuming.join().unwrap();
    [
        theirs as f64 / 1e3 / seconds,
        mine as f64 / 1e3 / seconds,
        switches as f64 / seconds,
        batches as f64 / seconds,
    ]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(7, |r| r.parse().unwrap());
    for wait in [Wait::ADAPTIVE, Wait::YIELDING, Wait::Blocking] {
        for n in [64, 1000] {
            for round in 0..rounds {
                let mut ns = [0.0; 3];
                for i in 0..3 {
                    let i = (i + round) % 3;
                    ns[i] = saturated([plain, within, by_hand][i], n, 4_000_000, &wait);
                }
                println!(
                    "saturated {wait} n={n} round {round}: batch {:.1} within {:.1} by-hand {:.1} ns/event; within/batch {:.3}",
                    ns[0],
                    ns[1],
                    ns[2],
                    ns[1] / ns[0]
                );
            }
        }
    }
    for wait in [Wait::ADAPTIVE, Wait::Blocking] {
        for rate in [200, 2_000, 10_000] {
            for round in 0..rounds {
                let mut all = [[0.0; 4]; 2];
                for i in 0..2 {
                    let i = (i + round) % 2;
                    all[i] = trickle([by_hand, within][i], rate, 1.0, &wait);
                }
                let [hand, with] = all;
                println!(
                    "trickle {wait} {rate}/s round {round}: reader by-hand {:.0} within {:.0} us/s ({:.2}); producer {:.0} {:.0} us/s ({:.2}); reader sleeps {:.0} {:.0}; batches {:.0} {:.0}",
                    hand[0],
                    with[0],
                    with[0] / hand[0],
                    hand[1],
                    with[1],
                    with[1] / hand[1],
                    hand[2],
                    with[2],
                    hand[3],
                    with[3]
                );
            }
        }
    }
}
