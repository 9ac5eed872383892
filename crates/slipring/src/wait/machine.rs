//! What waiting needs to know of the machine.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::base::sync::spin_loop;

/// Number of cores on which the calling thread may run. Asked at each build: the answer of one
/// thread, kept for the process, would be wrong for graphs that other threads build.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pauses that fill about the time after which a line that two cores fought over has come to rest;
/// measured once per process.
///
/// See ARCHITECTURE.md ("Spacing") for why a consumer that keeps up should look less often.
pub(crate) fn spacing() -> u32 {
    if cfg!(any(slipring_loom, miri)) {
        return 0;
    }
    static PAUSES: OnceLock<u32> = OnceLock::new();
    *PAUSES.get_or_init(|| {
        const PROBE: u32 = 64;
        // The shortest of a few probes: an interrupt only ever makes one longer.
        let probe = (0..5).map(|_| {
            let begin = Instant::now();
            (0..PROBE).for_each(|_| spin_loop());
            begin.elapsed().as_nanos()
        });
        let nanos = probe.min().unwrap_or(0).max(1);
        ((SPACING.as_nanos() * u128::from(PROBE)).div_ceil(nanos)).clamp(1, 1000) as u32
    })
}

/// How long a consumer looks away after a short batch.
const SPACING: Duration = Duration::from_nanos(250);
