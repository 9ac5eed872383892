//! The time of a spin hint, and the pauses of threads that race for a cache line.

#[cfg(not(slipring_coherence))]
use std::sync::OnceLock;
use std::time::Duration;

use crate::base::sync::spin_loop;
#[cfg(not(slipring_coherence))]
use crate::base::sync::{elapsed, now};

/// Returns the number of spin hints that take about [`SPACING`], measured once per process. A
/// simulated machine knows the number.
///
/// `consumer/spacing.rs` says why a consumer pauses before it polls again.
pub(crate) fn spacing() -> u32 {
    if cfg!(any(slipring_loom, miri)) {
        return 0;
    }
    #[cfg(slipring_coherence)]
    let spin_hints = slipring_coherence::hints_in(SPACING);
    #[cfg(not(slipring_coherence))]
    let spin_hints = measured();
    spin_hints
}

#[cfg(not(slipring_coherence))]
fn measured() -> u32 {
    static SPIN_HINTS: OnceLock<u32> = OnceLock::new();
    *SPIN_HINTS.get_or_init(|| {
        const PROBE: u32 = 64;
        // The number of spin hints comes from the shortest of five probes, because an interrupt can
        // only lengthen a probe.
        let probe = (0..5).map(|_| {
            let begin = now();
            (0..PROBE).for_each(|_| spin_loop());
            elapsed(begin).as_nanos()
        });
        let nanos = probe.min().unwrap_or(0).max(1);
        ((SPACING.as_nanos() * u128::from(PROBE)).div_ceil(nanos)).clamp(1, 1000) as u32
    })
}

/// Returns the number of spin hints that take about a microsecond.
///
/// Each wait of a spinning strategy begins with this number of polls, without any other work. The
/// answer to a request often comes within a microsecond, and other work would delay it.
pub(crate) fn first_polls() -> u32 {
    4 * spacing()
}

/// The spacing: a consumer's pause after a short batch, before the consumer polls again. A consumer
/// that polled without a pause would fetch the cache line that the producer is about to write.
const SPACING: Duration = Duration::from_nanos(250);

/// The pauses of a thread that races with others for a word, and has lost.
///
/// A compare-and-swap succeeds only if no other thread has moved the word since the thread loaded
/// it. Between the two, the thread often waits for two or three lines of other cores. If all losers
/// tried again at once, each success would cost as many fetches of the line as there are losers:
/// simulated, 31 workers with a backlog got an event in 2 µs instead of 100 ns.
#[derive(Default)]
pub(crate) struct BackOff {
    losses: u32,
}

impl BackOff {
    /// Pauses after a lost race: for half a [spacing](spacing) first, and each time for twice as
    /// long as before, but at most for one spacing for each rival.
    #[cold]
    pub(crate) fn pause(&mut self, spacing: u32, rivals: usize) {
        let first = u64::from(spacing / 2).max(1);
        let longest = u64::from(spacing).saturating_mul(rivals as u64).max(1);
        let hints = (first << self.losses.min(16)).min(longest);
        self.losses += 1;
        // A model has one hint: time is not in it.
        let hints = if cfg!(slipring_loom) { 1 } else { hints };
        (0..hints).for_each(|_| spin_loop());
    }
}
