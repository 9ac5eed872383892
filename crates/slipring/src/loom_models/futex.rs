//! A futex for models. The comparison and the beginning of the sleep are one step, as the kernel's
//! lock makes them. A sleep with a limit ends at once, as its timer may; a longer one never ends by
//! time, so that a lost wake-up is a deadlock.

use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::base::sync::{AtomicU64, Relaxed, lock, whole, yield_now};

/// Sleeps of this length and more do not end by time.
pub(super) const UNTIMED: Duration = Duration::from_secs(1);

loom::lazy_static! {
    /// The lock of all futexes, and the queue of their sleepers. A sleeper that was not meant finds
    /// its epoch unchanged, and sleeps again.
    static ref FUTEX: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

pub(crate) fn futex_wait(word: &AtomicU64, epoch: u32, limit: Duration) {
    if limit < UNTIMED {
        return yield_now();
    }
    let (mutex, condvar) = &*FUTEX;
    let mut guard = lock(mutex);
    while (word.load(Relaxed) >> 32) as u32 == epoch {
        guard = whole(condvar.wait(guard));
    }
}

pub(crate) fn futex_wake_all(_: &AtomicU64) {
    let (mutex, condvar) = &*FUTEX;
    drop(lock(mutex));
    condvar.notify_all();
}
