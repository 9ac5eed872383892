//! The time that waking a sleeping thread takes on this machine: the price of every strategy that
//! sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use slipring_machine::{self as machine, Clock, CorePair};
use slipring_support::numbers::median;

/// Time that the thread sleeps before it is woken.
const ASLEEP: Duration = Duration::from_millis(1);
/// Call time that stands for the end of the measurement.
const END: u64 = u64::MAX;

/// Median times of waking a thread.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// Number of wake-ups.
    pub times: u32,
    /// Time from before the waking call until the woken thread runs, in nanoseconds.
    pub one_way_ns: f64,
    /// Time of the waking call in the calling thread, in nanoseconds.
    pub call_ns: f64,
}

impl Wake {
    /// Wakes a thread `times` times.
    pub fn measure(times: u32, pair: Option<CorePair>) -> Result<Self> {
        let clock = Clock::start();
        // Clock time of the latest waking call; 0 after the sleeper has taken it.
        let called = AtomicU64::new(0);
        thread::scope(|scope| {
            let (clock, called) = (&clock, &called);
            let sleeper = thread::Builder::new().spawn_scoped(scope, move || {
                pair.inspect(|pair| machine::pin(pair.waiter));
                let mut delays = Vec::with_capacity(times as usize);
                loop {
                    thread::park();
                    match called.swap(0, Ordering::AcqRel) {
                        0 => {} // a spurious wake-up
                        END => return delays,
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
                        // The waker spins, because a producer that publishes is awake, too.
                        let begin = clock.spin_until(clock.ns() + ASLEEP.as_nanos() as u64);
                        called.store(begin, Ordering::Release);
                        sleeper.unpark();
                        (clock.ns() - begin) as f64
                    });
                    let calls: Vec<f64> = calls.collect();
                    clock.spin_until(clock.ns() + ASLEEP.as_nanos() as u64);
                    called.store(END, Ordering::Release);
                    sleeper.unpark();
                    calls
                }
            });
            let waker = waker.inspect_err(|_| {
                called.store(END, Ordering::Release);
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
