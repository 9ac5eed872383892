//! Sleeping and waking in a wait queue that several processes share.
//!
//! A process may die at any step, even between two steps of a wake-up, so the queue has no lock.
//! The high half of its state word holds an *epoch*, which each wake-up raises. The sleepers sleep
//! on the epoch by futex(2): a sleep ends at once if the epoch is no longer the epoch that the
//! sleeper noted at its announcement.
//!
//! # Protocol
//!
//! A sleeper:
//!
//! 1. The sleeper announces itself by adding [`SLEEPER`] to the state word, and notes the epoch.
//! 2. If [`FENCED`] is not set, the sleeper issues a membarrier in all processes that registered
//!    for it. Then it sets `FENCED`, but only if the epoch is still the noted epoch. In that case
//!    its announcement was there before the barrier, and is still there.
//! 3. The sleeper issues a `SeqCst` fence and polls.
//! 4. If the poll finds no progress, the sleeper sleeps as long as the epoch equals the noted
//!    epoch, but no longer than a limit.
//! 5. The sleeper withdraws its announcement, but only if the epoch is still the noted epoch and
//!    the count of sleepers is not zero.
//!
//! A notifier stores its progress and loads the state word. If the word is not quiet, the notifier
//! issues a `SeqCst` fence and loads the word again. If sleepers are announced, it raises the epoch
//! and withdraws all announcements in one compare-and-exchange, and then wakes all sleepers.
//!
//! A task does steps 1 to 3 and 5 itself. A thread of the task's process does step 4 for it
//! (`reactor`).
//!
//! # Invariants
//!
//! - I1: the sleeper's membarrier takes effect at some point in the notifier's code. If that point
//!   is before the notifier's load, the load finds the announcement. If it is after the store of
//!   the progress, the sleeper's poll finds the progress. While `FENCED` is set, the two fences do
//!   the same (`announced`).
//! - I2: a wake-up raises the epoch before it wakes the sleepers. So if a wake-up withdraws the
//!   announcement of a sleeper that is not asleep yet, that sleeper does not fall asleep at all.
//! - I3: every sleep has a limit. Three things cost at most a sleep of this length, and never an
//!   event: a participant that dies after it raised the epoch and before it woke the sleepers; an
//!   announcement that a dead sleeper left; and an epoch that wraps around during one sleep.

use std::time::Duration;

use super::edge::announced;
use super::queue_state::{
    BARRIER_PAUSE, EPOCH, FENCED, LONGEST_PAUSE, QueueState, SLEEPER, SLEEPERS, quiet_after,
};
use super::sync::{Relaxed, sleep as nap, twin};
use super::system;

/// Returns the epoch in a state word.
fn epoch(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Sleeps until a notification, but for at most `limit`, unless `ready` returns `true`. A sleep can
/// end before `limit` without a notification. If a notification ended the sleep, returns the time
/// of the first notification since the sleeper fell asleep, in nanoseconds of the system's
/// monotonic clock.
pub(super) fn sleep(
    state: &QueueState,
    limit: Duration,
    ready: &mut dyn FnMut() -> bool,
) -> Option<u64> {
    let noted = announce(state);
    announced::fence_sleeper(); // The announcement comes before the poll (I1).
    let sleeps = !twin!("sleeper-blind": ready() => false);
    if sleeps {
        state.notified_at.store(0, Relaxed);
        system::futex_wait(&state.word, noted, limit);
    }
    let woken = !withdraw(state, noted) && sleeps;
    woken.then(|| state.notified_at.load(Relaxed)).filter(|&at| at != 0)
}

/// Announces a sleeper, and returns the epoch that it notes: steps 1 and 2 of the protocol.
pub(super) fn announce(state: &QueueState) -> u32 {
    let word = state.word.fetch_add(u64::from(SLEEPER), Relaxed);
    let noted = epoch(word);
    // Another sleeper's announcement does not show whether that sleeper has issued its barrier.
    if twin!("announced-trusted": word as u32 & FENCED == 0 => word as u32 == 0) {
        let began = system::monotonic_nanos();
        if announced::fence_all_processes() {
            let ended = system::monotonic_nanos();
            let latest = ended.saturating_add(LONGEST_PAUSE.as_nanos() as u64);
            state.quiet_after.store(quiet_after(began, ended).min(latest), Relaxed);
        } else {
            // The nap replaces the barrier: during the nap, the stores that notifiers made without
            // a fence reach memory.
            state.restless.store(1, Relaxed);
            nap(BARRIER_PAUSE);
        }
        set_fenced(state, noted);
    }
    noted
}

/// Returns the epoch of the queue.
pub(super) fn current_epoch(state: &QueueState) -> u32 {
    epoch(state.word.load(Relaxed))
}

/// Sleeps as long as the epoch equals `noted`, but for at most `limit`, on behalf of sleepers that
/// have announced themselves. A sleep can end early.
pub(super) fn sleep_at(state: &QueueState, noted: u32, limit: Duration) {
    system::futex_wait(&state.word, noted, limit);
}

/// Raises the epoch and wakes all sleepers, announced or not.
#[cold]
pub(super) fn interrupt(state: &QueueState) {
    let raise = |word: u64| Some(word.wrapping_add(EPOCH) & !SLEEPERS);
    let _ = state.word.fetch_update(Relaxed, Relaxed, raise);
    system::futex_wake_all(&state.word);
}

/// Sets [`FENCED`], unless a wake-up has withdrawn the announcement that the caller made before its
/// barrier. A withdrawn announcement says nothing about the notifiers that come after that wake-up.
fn set_fenced(state: &QueueState, noted: u32) {
    let set = |word| {
        let stands = twin!("fenced-late": epoch(word) == noted => true);
        stands.then_some(word | u64::from(FENCED))
    };
    let _ = state.word.fetch_update(Relaxed, Relaxed, set);
}

/// Withdraws the caller's announcement, unless a wake-up has withdrawn it. Returns `false` if the
/// epoch is no longer the noted one.
pub(super) fn withdraw(state: &QueueState, noted: u32) -> bool {
    let take = |word| {
        let own = twin!("other-epoch-withdrawn": epoch(word) == noted => true);
        // The count may be zero if the epoch has wrapped around. A subtraction would then borrow
        // from the epoch.
        let counted = twin!("withdrawn-uncounted": word & SLEEPERS != 0 => true);
        (own && counted).then(|| word.wrapping_sub(u64::from(SLEEPER)))
    };
    match state.word.fetch_update(Relaxed, Relaxed, take) {
        Ok(word) | Err(word) => epoch(word) == noted,
    }
}

/// Wakes all sleepers. The caller has stored its progress and has issued a fence.
#[cold]
pub(super) fn wake(state: &QueueState) {
    let now = system::monotonic_nanos().max(1);
    let _ = state.notified_at.compare_exchange(0, now, Relaxed, Relaxed);
    let raise = |word: u64| {
        let next = twin!("same-epoch": word.wrapping_add(EPOCH) => word) & !SLEEPERS;
        (word & SLEEPERS != 0).then_some(twin!("fenced-by-waker": next => next | u64::from(FENCED)))
    };
    if state.word.fetch_update(Relaxed, Relaxed, raise).is_ok() {
        system::futex_wake_all(&state.word);
    }
}
