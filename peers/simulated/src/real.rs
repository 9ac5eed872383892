//! The same contenders on two real cores, whose times say which orders of the simulator are right.

use std::fmt::Write as _;
use std::hint::spin_loop;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use peers_unchanged::{Build, Host, Spec, expected};
use slipring_machine::pin;

/// The atomics of the contenders that are written by hand.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub use std::sync::{Condvar, Mutex};
}

#[path = "hand/mod.rs"]
pub mod hand;

/// Results of the threads of a run.
struct Told {
    count: u64,
    sum: u64,
    began: Option<Instant>,
    ended: Option<Instant>,
}

static TOLD: Mutex<Told> = Mutex::new(Told { count: 0, sum: 0, began: None, ended: None });

fn with_told<T>(f: impl FnOnce(&mut Told) -> T) -> T {
    f(&mut TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

const HOST: Host = Host {
    pause: spin_loop,
    work: |_| (),
    begin: || with_told(|told| told.began = Some(Instant::now())),
    done: |count, sum| {
        let now = Instant::now();
        with_told(|told| {
            told.count += count;
            told.sum = told.sum.wrapping_add(sum);
            told.ended = Some(now);
        });
    },
};

/// Runs a contender with one producer and one consumer, a core each. Returns its nanoseconds an
/// event, or `None` if it has not this shape.
fn run(spec: Spec, build: Build) -> Result<Option<f64>, String> {
    let Some(threads) = build(spec, HOST) else { return Ok(None) };
    with_told(|told| *told = Told { count: 0, sum: 0, began: None, ended: None });
    let barrier = Arc::new(Barrier::new(threads.len()));
    let threads = threads.into_iter().enumerate().map(|(core, (_, body))| {
        let barrier = barrier.clone();
        thread::spawn(move || {
            pin(core);
            barrier.wait();
            body();
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    with_told(|told| {
        if (told.count, told.sum) != expected(spec) {
            return Err("the consumer's events are not the producer's".to_owned());
        }
        let (began, ended) = (told.began.ok_or("not begun")?, told.ended.ok_or("not ended")?);
        Ok(Some((ended - began).as_nanos() as f64 / spec.measured() as f64))
    })
}

/// Measures all contenders by turns. Returns a line for each with its capacity, its name and its
/// lower quartile of `reps` runs, in nanoseconds an event, with tabs between. Other programs on the
/// machine can only make a run longer.
///
/// # Errors
///
/// If a run fails.
pub fn measure(
    contenders: &[(&str, Build)],
    specs: &[Spec],
    reps: usize,
) -> Result<String, String> {
    let mut text = String::new();
    for spec in specs {
        let mut times = vec![Vec::new(); contenders.len()];
        for _ in 0..reps {
            for ((name, build), times) in contenders.iter().zip(&mut times) {
                let time = run(*spec, *build).map_err(|error| format!("{name}: {error}"))?;
                times.extend(time);
            }
        }
        for ((name, _), mut times) in contenders.iter().zip(times) {
            times.sort_by(f64::total_cmp);
            if let Some(time) = times.get(times.len() / 4) {
                let _ = writeln!(text, "{}\t{name}\t{time:.2}", spec.capacity);
            }
        }
    }
    Ok(text)
}
