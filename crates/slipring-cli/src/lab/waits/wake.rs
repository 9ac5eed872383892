//! What it takes on this machine to wake a thread that sleeps: the price that strategies which
//! sleep pay, and the measure of their gain.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;

use super::figures::median;
use crate::machine::{self, Clock, Pair};

/// For how long the thread sleeps before it is woken.
const ASLEEP: Duration = Duration::from_millis(1);
/// What says that there will be no more.
const OVER: u64 = u64::MAX;

/// What waking took, medians.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wake {
    /// How often it was done.
    pub times: u32,
    /// From before the call that wakes until the woken thread runs.
    pub one_way_ns: f64,
    /// The call itself, for the one who makes it.
    pub call_ns: f64,
}

impl Wake {
    /// Wakes a thread so many times.
    pub fn measure(times: u32, pair: Option<Pair>) -> Result<Self> {
        let clock = Clock::start();
        // When the call was made; 0 while there is none. Parking and unparking order what is before
        // and after them.
        let called = AtomicU64::new(0);
        thread::scope(|scope| {
            let (clock, called) = (&clock, &called);
            let sleeper = thread::Builder::new().spawn_scoped(scope, move || {
                pair.inspect(|pair| machine::pin(pair.waiter));
                let mut delays = Vec::with_capacity(times as usize);
                loop {
                    thread::park();
                    match called.swap(0, Ordering::AcqRel) {
                        0 => {} // woken by nobody
                        OVER => return delays,
                        call => delays.push((clock.ns() - call) as f64),
                    }
                }
            });
            let sleeper = sleeper.context("cannot start a thread")?;
            let waker = thread::Builder::new().spawn_scoped(scope, {
                let sleeper = sleeper.thread().clone();
                move || {
                    pair.inspect(|pair| machine::pin(pair.producer));
                    let calls = (0..times).map(|_| {
                        // Awake, as a producer is that has something to publish.
                        let begin = clock.spin_until(clock.ns() + ASLEEP.as_nanos() as u64);
                        called.store(begin, Ordering::Release);
                        sleeper.unpark();
                        (clock.ns() - begin) as f64
                    });
                    let calls: Vec<f64> = calls.collect();
                    clock.spin_until(clock.ns() + ASLEEP.as_nanos() as u64);
                    called.store(OVER, Ordering::Release);
                    sleeper.unpark();
                    calls
                }
            });
            let waker = waker.inspect_err(|_| {
                called.store(OVER, Ordering::Release);
                sleeper.thread().unpark();
            });
            let waker = waker.context("cannot start a thread")?;
            let panicked = |_| anyhow!("a thread that measures waking panicked");
            let (calls, delays) =
                (waker.join().map_err(panicked)?, sleeper.join().map_err(panicked)?);
            Ok(Self { times, one_way_ns: median(delays), call_ns: median(calls) })
        })
    }
}
