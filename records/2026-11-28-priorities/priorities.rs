//! A thread with a real-time priority and an ordinary one share a core, and hand events over.
//!
//! A package of its own: dependencies `slipring` (a path to this checkout) and `libc` 0.2.
//! `cargo run --release`, as a user that may set real-time priorities.

use std::time::{Duration, Instant};

use slipring::{Graph, Wait};

/// Number of events of each run.
const EVENTS: u64 = 3000;
/// Time after which a run gives up.
const LIMIT: Duration = Duration::from_secs(20);

/// Binds the current thread to the first processor.
fn bind() {
    // SAFETY: `set` is a set of processors that this function owns.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Gives the current thread a real-time priority.
fn raise() {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: `priority` outlives the call.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn run(wait: Wait, raised_producer: bool) {
    let graph = Graph::new(64, || 0u64).wait(wait.clone());
    let key = graph.reader("reader");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let began = Instant::now();
    let end = began + LIMIT;
    let reader = std::thread::spawn(move || {
        bind();
        if !raised_producer {
            raise();
        }
        let mut seen = 0;
        while seen < EVENTS {
            let Ok(batch) = rx.batch_by(8, end) else { break };
            batch.iter().for_each(|&event| {
                assert_eq!(event, seen);
                seen += 1;
            });
            batch.release();
        }
        seen
    });
    let producer = std::thread::spawn(move || {
        bind();
        if raised_producer {
            raise();
        }
        for event in 0..EVENTS {
            if tx.publish_by(end, |slot| *slot = event).is_err() {
                return;
            }
            // A microsecond of the producer's own work.
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(1) {}
        }
    });
    producer.join().unwrap();
    let (seen, raised) = (reader.join().unwrap(), if raised_producer { "producer" } else { "reader" });
    println!("{wait:<40} real-time {raised:8} {seen:4} events in {:5.2} s", began.elapsed().as_secs_f64());
}

fn main() {
    for raised_producer in [false, true] {
        for wait in Wait::all() {
            run(wait, raised_producer);
        }
    }
}
