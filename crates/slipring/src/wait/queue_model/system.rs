//! This module replaces `base::system` on the simulated machine.

use std::cell::Cell;

use super::machine::{Seen, Sleep, access, choose, twin_is};
use super::sync::AtomicU64;
use std::time::Duration;

thread_local! {
    /// Whether the simulated system can refuse barriers.
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether the simulated system can refuse barriers.
pub(super) fn set_refuses(refuses: bool) {
    REFUSES.set(refuses);
}

pub(crate) fn membarrier_available() -> bool {
    true
}

/// Executes a full barrier in all threads. If the simulated system can refuse barriers, the
/// exploration tries a refusal, too.
pub(crate) fn membarrier() -> bool {
    let refused = REFUSES.get() && choose(2) == 1;
    access(true, |step| {
        if refused {
            step.thread().refused = true;
        } else if twin_is("barrier-late") {
            step.thread().postponed = true;
        } else {
            step.state.membarrier();
        }
        Some(Seen::Nothing)
    });
    !refused
}

/// Executes a full barrier in all threads: the simulated processes share one machine.
pub(crate) fn membarrier_in_processes() -> bool {
    membarrier()
}

pub(crate) fn monotonic_nanos() -> u64 {
    1
}

/// Sleeps at a word while the high half of the word is `epoch`. The comparison and the beginning of
/// the sleep are one step, as the kernel's lock of a futex makes them.
pub(crate) fn futex_wait(word: &AtomicU64, epoch: u32, _limit: Duration) {
    access(true, |step| {
        if (step.state.read(word.address(), word.initial()) >> 32) as u32 == epoch {
            step.thread().sleep = Sleep::Asleep { condvar: word.address(), limited: true };
        }
        Some(Seen::Nothing)
    });
    access(true, |step| {
        let asleep = matches!(step.thread().sleep, Sleep::Asleep { .. });
        (!asleep).then(|| {
            step.thread().sleep = Sleep::Awake;
            Seen::Nothing
        })
    });
}

pub(crate) fn futex_wake_all(word: &AtomicU64) {
    access(true, |step| {
        for thread in &mut step.state.threads {
            if matches!(thread.sleep, Sleep::Asleep { condvar, .. } if condvar == word.address()) {
                thread.sleep = Sleep::Woken;
            }
        }
        Some(Seen::Nothing)
    });
}
