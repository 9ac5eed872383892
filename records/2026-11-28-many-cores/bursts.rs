//! How long one producer's runs of consecutive positions are, while two producers fill a ring or a
//! queue as fast as they can, with some private work before each event.
//!
//! Arguments: the number of rounds.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use new::{Graph, Wait};

const N: u64 = 1 << 18;

fn work(nanos: u64) {
    (0..nanos).for_each(|i| _ = black_box(i));
}

fn bind(core: usize) {
    // SAFETY: the set is zeroed, and the call gets its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

fn time(bodies: Vec<Box<dyn FnOnce() + Send>>) -> f64 {
    let barrier = Arc::new(Barrier::new(bodies.len()));
    let start = |(core, body): (usize, Box<dyn FnOnce() + Send>)| {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            bind(core);
            barrier.wait();
            let begin = Instant::now();
            body();
            (begin, Instant::now())
        })
    };
    let threads: Vec<_> = bodies.into_iter().enumerate().map(start).collect();
    let times: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let (first, last) = (times.iter().map(|t| t.0).min(), times.iter().map(|t| t.1).max());
    (last.unwrap() - first.unwrap()).as_nanos() as f64 / N as f64
}

/// Mean length of the runs of equal values.
fn runs(ids: &[u64]) -> f64 {
    ids.len() as f64 / (1 + ids.windows(2).filter(|pair| pair[0] != pair[1]).count()) as f64
}

fn ring(nanos: u64) -> (f64, f64) {
    let graph = Graph::new(N as usize, || 0u64).shared().wait(Wait::BusySpin);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let handles = [ring.producer(), ring.producer()];
    let mut rx = ring.reader(key);
    drop(ring);
    let bodies = handles.into_iter().enumerate().map(|(id, mut tx)| {
        Box::new(move || {
            for _ in 0..N / 2 {
                work(nanos);
                tx.publish(|slot| *slot = id as u64).unwrap();
            }
        }) as Box<dyn FnOnce() + Send>
    });
    let took = time(bodies.collect());
    let mut ids = vec![];
    rx.for_each(|&id, _| ids.push(id)).unwrap();
    assert_eq!(ids.len() as u64, N);
    (took, runs(&ids))
}

fn queue(nanos: u64) -> (f64, f64) {
    let queue = Arc::new(crossbeam_queue::ArrayQueue::new(N as usize));
    let bodies = (0..2u64).map(|id| {
        let queue = queue.clone();
        Box::new(move || {
            for _ in 0..N / 2 {
                work(nanos);
                queue.push(id).unwrap();
            }
        }) as Box<dyn FnOnce() + Send>
    });
    let took = time(bodies.collect());
    let ids: Vec<u64> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(ids.len() as u64, N);
    (took, runs(&ids))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(31, |rounds| rounds.parse().unwrap());
    println!(
        "| private work | ring, ns; run | `ArrayQueue`, ns; run | ring/queue by round |\n|---|---|---|---|"
    );
    for nanos in [0, 20, 50, 100, 200, 500] {
        let (mut a, mut b, mut ra, mut rb) = (vec![], vec![], vec![], vec![]);
        for round in 0..rounds {
            let (r, q) = if round % 2 == 0 {
                let r = ring(nanos);
                (r, queue(nanos))
            } else {
                let q = queue(nanos);
                (ring(nanos), q)
            };
            a.push(r.0);
            ra.push(r.1);
            b.push(q.0);
            rb.push(q.1);
        }
        let ratio = median(a.iter().zip(&b).map(|(a, b)| a / b).collect());
        println!(
            "| {nanos} | {:.1}; {:.1} | {:.1}; {:.1} | {ratio:.2} |",
            median(a),
            median(ra),
            median(b),
            median(rb)
        );
    }
}
