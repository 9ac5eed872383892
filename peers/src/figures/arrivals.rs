//! Events that arrive at random times, and the percentiles of their latencies.

use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use crate::measure::Values;
use crate::work::steps;

/// Returns the nanoseconds since the first call of this function.
#[inline(always)]
pub fn now() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_nanos() as u64
}

/// Returns the times of `events` events of a Poisson process with a mean gap of `gap` nanoseconds.
/// Every call with these arguments returns the same times, which are never freed.
pub fn schedule(gap: u32, events: usize) -> &'static [u64] {
    static KNOWN: Mutex<Vec<(u32, &'static [u64])>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().expect("no thread panics with the lock");
    if let Some((_, due)) = known.iter().find(|(other, due)| *other == gap && due.len() == events) {
        return due;
    }
    let (mut state, mut at) = (u64::from(gap), 0.0);
    let due = (0..events).map(|_| {
        // Takes the high bits of a pseudorandom sequence as a number in (0, 1].
        steps(1, &mut state);
        let uniform = ((state >> 11) + 1) as f64 / (1u64 << 53) as f64;
        at -= f64::from(gap) * uniform.ln();
        at as u64
    });
    let due: &'static [u64] = Vec::leak(due.collect());
    known.push((gap, due));
    due
}

/// Returns the percentiles of latencies, in nanoseconds.
pub fn percentiles(mut latencies: Vec<u64>) -> Values {
    latencies.sort_unstable();
    let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64;
    vec![("p50", quantile(0.5)), ("p90", quantile(0.9)), ("p99", quantile(0.99))]
}
