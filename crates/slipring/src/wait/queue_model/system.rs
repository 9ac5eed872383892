//! This module replaces `base::system` on the simulated machine.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::machine::{Seen, Sleep, access, choose, twin_is, with_step};
use super::queue::LONGEST_SHARED_SLEEP;
use super::sync::AtomicU64;

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
            step.thread_mut().refused = true;
        } else if twin_is("barrier-late") {
            step.thread_mut().postponed = true;
        } else {
            step.state.membarrier();
        }
        Some(Seen::Nothing)
    });
    !refused
}

/// Executes a full barrier in all other threads, one after the other: the simulated processes share
/// one machine. The caller's own buffer is empty, because the caller has just announced itself by a
/// read-modify-write operation. Each thread's barrier is a separate step. If the simulated system
/// can refuse barriers, the exploration tries a refusal, too.
///
/// A real barrier reaches the threads in any order. The fixed order hides no outcome, because the
/// notifiers of a model have the same program.
pub(crate) fn membarrier_in_processes() -> bool {
    let refused = REFUSES.get() && choose(2) == 1;
    let (own, threads) = with_step(|step| (step.index(), step.state.threads.len()));
    for thread in (0..threads).filter(|&thread| thread != own && !refused) {
        access(true, |step| {
            step.state.barrier(thread);
            Some(Seen::Nothing)
        });
    }
    !refused
}

pub(crate) fn monotonic_nanos() -> u64 {
    1
}

/// Sleeps at a word while its high half is `epoch`. Comparing the epoch and falling asleep are one
/// step, as in the kernel, where both happen under the futex's lock. If the limit is shorter than
/// [`LONGEST_SHARED_SLEEP`], it can end the sleep at any time. A longer limit can end the sleep
/// only if the model allows it.
pub(crate) fn futex_wait(word: &AtomicU64, epoch: u32, limit: Duration) {
    let limited = limit < LONGEST_SHARED_SLEEP;
    access(true, |step| {
        step.has_no_stores().then(|| {
            if (step.state.read(word.address(), word.initial()) >> 32) as u32 == epoch {
                step.thread_mut().sleep = Sleep::Asleep { condvar: word.address(), limited };
            }
            Seen::Nothing
        })
    });
    access(true, |step| {
        let asleep = matches!(step.thread().sleep, Sleep::Asleep { .. });
        (!asleep).then(|| {
            step.thread_mut().sleep = Sleep::Awake;
            Seen::Nothing
        })
    });
}

pub(crate) fn futex_wake_all(word: &AtomicU64) {
    access(true, |step| {
        for thread in &mut step.state.threads {
            if matches!(thread.sleep, Sleep::Asleep { condvar, .. } if condvar == word.address()) {
                Rc::make_mut(thread).sleep = Sleep::Woken;
            }
        }
        Some(Seen::Nothing)
    });
}
