//! Sleeping on a word, in virtual time or for real.
//!
//! - I1: Between the last look at the word and the sleep no other thread can wake the sleeper in
//!   vain: in a simulation because no other thread runs between, outside because both sides hold
//!   `Outside::lock`.
//! - I2: A sleeper may wake without reason. All callers look again.

use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::atomics::{AtomicU32, Ordering::Relaxed};
use crate::waiting::{self, Sleep};

/// Sleeps while `word` is `expected`, until [`futex_wake`] or the end of `limit`. Returns whether
/// it was woken, or did not sleep. It may wake without a reason.
///
/// ```
/// use slipring_coherence::sync::{self, AtomicU32};
/// use std::time::Duration;
///
/// let word = AtomicU32::new(1);
/// assert!(sync::futex_wait(&word, 0, None));
/// assert!(!sync::futex_wait(&word, 1, Some(Duration::from_millis(1))));
/// ```
#[track_caller]
pub fn futex_wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) -> bool {
    wait(word, expected, limit, Sleep::Futex, Location::caller())
}

/// Wakes at most `most` of the threads that sleep on `word`. Returns the number of threads woken in
/// a simulation, and 0 outside of one.
///
/// ```
/// use slipring_coherence::sync::{self, AtomicU32};
///
/// assert_eq!(sync::futex_wake(&AtomicU32::new(0), 1), 0);
/// ```
#[track_caller]
pub fn futex_wake(word: &AtomicU32, most: usize) -> usize {
    wake(word, most)
}

/// Wakes all threads that sleep on `word`.
///
/// ```
/// use slipring_coherence::sync::{self, AtomicU32};
///
/// sync::futex_wake_all(&AtomicU32::new(0));
/// ```
#[track_caller]
pub fn futex_wake_all(word: &AtomicU32) -> usize {
    wake(word, usize::MAX)
}

pub(super) fn wait(
    word: &AtomicU32,
    expected: u32,
    limit: Option<Duration>,
    sleep: Sleep,
    location: &'static Location<'static>,
) -> bool {
    let changed = || word.load(Relaxed) != expected;
    let at = word.as_ptr().addr();
    match waiting::futex_wait(at, changed, limit, sleep, location) {
        Some(woken) => woken,
        None => OUTSIDE.wait(changed, limit),
    }
}

#[track_caller]
pub(super) fn wake(word: &AtomicU32, most: usize) -> usize {
    match waiting::futex_wake(word.as_ptr().addr(), most, Location::caller()) {
        Some(woken) => woken,
        None => {
            OUTSIDE.wake();
            0
        }
    }
}

/// All sleeps outside of simulations: one queue for all words, since few threads ever wait there.
struct Outside {
    lock: Mutex<()>,
    woken: Condvar,
}

static OUTSIDE: Outside = Outside { lock: Mutex::new(()), woken: Condvar::new() };

impl Outside {
    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, changed: impl Fn() -> bool, limit: Option<Duration>) -> bool {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let guard = self.locked();
        if changed() {
            return true;
        }
        // I2: one wake-up is enough, whichever word it was for.
        match until {
            None => {
                drop(self.woken.wait(guard).unwrap_or_else(PoisonError::into_inner));
                true
            }
            Some(until) => {
                let mut guard = guard;
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.woken.wait_timeout(guard, left);
                    let (locked, result) = waited.unwrap_or_else(PoisonError::into_inner);
                    if !result.timed_out() {
                        return true;
                    }
                    guard = locked;
                }
            }
        }
    }

    fn wake(&self) {
        let _guard = self.locked();
        self.woken.notify_all();
    }
}
