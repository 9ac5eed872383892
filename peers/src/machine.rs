//! What the measurements need of the machine: cores to pin to, and how long a pause takes.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::Instant;

/// Binds the calling thread, and threads it starts, to these cores. Those that are not there do not
/// count; where none is, or there is no such call, nothing happens, and the report says how many
/// cores there were.
#[cfg(target_os = "linux")]
pub fn bind(cores: impl IntoIterator<Item = usize>) {
    // SAFETY: a zeroed set is an empty set, and the call reads it only. Where it fails it changes
    // nothing.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cores.into_iter().for_each(|core| libc::CPU_SET(core, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Binds the calling thread, and threads it starts, to these cores, where that is possible.
#[cfg(not(target_os = "linux"))]
pub fn bind(_cores: impl IntoIterator<Item = usize>) {}

/// Binds the calling thread to one core.
pub fn pin(core: usize) {
    bind([core]);
}

/// Lets the calling thread, and threads it starts, run on every core again.
pub fn unpin() {
    // As many as a set of cores can name.
    bind(0..1024);
}

/// How many cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pauses that take about 200 ns here: what a spaced consumer does after a look that found
/// something.
pub fn spacing() -> u32 {
    static PAUSES: OnceLock<u32> = OnceLock::new();
    *PAUSES.get_or_init(|| {
        let probe = (0..5).map(|_| {
            let begin = Instant::now();
            (0..1000).for_each(|_| spin_loop());
            begin.elapsed().as_nanos()
        });
        (200_000 / probe.min().unwrap_or(0).max(1)).clamp(1, 1000) as u32
    })
}
