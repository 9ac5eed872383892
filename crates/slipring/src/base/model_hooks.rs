//! Functions by which models steer and watch the library's code.
//!
//! The models depend on all modules of the library, so the library cannot call the models. When it
//! is compiled for models, it calls the functions of this module instead, and the models set and
//! read their state.
//!
//! The model checker runs all threads of a model on one thread of the system. So all threads of a
//! model share a `thread_local!` of the standard library, and each thread has its own
//! `loom::thread_local!`.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use loom::sync::atomic::AtomicU64;
use loom::sync::{Condvar, Mutex};
use loom::thread::{ThreadId, current, yield_now};

// Twins.

thread_local! {
    /// Name of the chosen twin; empty if no twin is chosen.
    static TWIN: Cell<&'static str> = const { Cell::new("") };
}

/// Returns whether the running model chose the twin `name`.
pub(crate) fn twin_is(name: &str) -> bool {
    TWIN.get() == name
}

/// Chooses the twin for all models that the calling thread runs after this call.
pub(crate) fn choose_twin(name: &'static str) {
    TWIN.set(name);
}

// Fences.

thread_local! {
    /// Threads of the model that issued a `SeqCst` fence since the last call of `fencing_threads`.
    static FENCING: RefCell<Vec<ThreadId>> = const { RefCell::new(Vec::new()) };
}

/// Records that the current thread issues a `SeqCst` fence.
pub(super) fn note_fence() {
    let thread = current().id();
    FENCING.with_borrow_mut(|threads| {
        if !threads.contains(&thread) {
            threads.push(thread);
        }
    });
}

/// Returns the number of threads that issued a `SeqCst` fence since the last call.
///
/// In the model checker any two `SeqCst` fences synchronise, even if no load sees the other
/// thread's store. The `SeqCst` fences of a single thread order nothing between threads.
pub(crate) fn fencing_threads() -> usize {
    FENCING.take().len()
}

// Panics.

loom::thread_local! {
    /// Whether the current thread of the model is unwinding. The standard library knows only the
    /// system's thread.
    static UNWINDS: Cell<bool> = Cell::new(false);
}

/// Returns whether the current thread is unwinding.
pub(crate) fn panicking() -> bool {
    UNWINDS.with(Cell::get)
}

/// Makes [`panicking`] return `true` on the current thread.
pub(crate) fn unwind() {
    UNWINDS.with(|unwinds| unwinds.set(true));
}

// Deaths.

loom::thread_local! {
    /// Number of marked stores that the current thread makes before it dies; `None` if it does not
    /// die.
    static LEFT: Cell<Option<usize>> = Cell::new(None);
}

/// Payload of the unwinding that ends a dying thread.
pub(crate) struct Died;

/// Sets the number of marked stores that the current thread makes before it dies.
pub(crate) fn set_stores_left(stores: Option<usize>) {
    LEFT.with(|left| left.set(stores));
}

/// Ends the current thread's life if it has made its last store. `may_die!` calls this before each
/// marked store.
pub(crate) fn marked_store() {
    LEFT.with(|left| match left.get() {
        // Unwinding drops no handle, and the values that it drops touch none of the atomic words.
        Some(0) => resume_unwind(Box::new(Died)),
        Some(stores) => left.set(Some(stores - 1)),
        None => {}
    });
}

// Sleepers.

thread_local! {
    /// Names of the stages and producers that sleep, one entry for each sleeping thread. Threads of
    /// one party have the same name.
    static PARTIES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A party's entry in the list of sleepers. Dropping the value removes the entry.
pub(crate) struct Asleep(String);

/// Lists `party` (a stage's name, or `producer`) as asleep. Each wait of a party calls this; a
/// model calls it for a sleeping task.
pub(crate) fn asleep(party: &str) -> Asleep {
    PARTIES.with_borrow_mut(|parties| parties.push(party.to_owned()));
    Asleep(party.to_owned())
}

impl Drop for Asleep {
    fn drop(&mut self) {
        PARTIES.with_borrow_mut(|parties| {
            let at = parties.iter().position(|party| *party == self.0).expect("a listed party");
            parties.swap_remove(at);
        });
    }
}

/// Returns the names of the parties that sleep.
pub(crate) fn sleeping_parties() -> Vec<String> {
    PARTIES.with_borrow(Vec::clone)
}

// The futex.

/// A sleep whose limit is at least this long never times out.
pub(crate) const UNTIMED: Duration = Duration::from_secs(1);

loom::lazy_static! {
    /// The lock of all futexes, and the queue of their sleepers. A wake-up wakes the sleepers of
    /// all words; a sleeper whose epoch is unchanged falls asleep again.
    static ref FUTEX: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

/// Stands in for `system::futex_wait`. The comparison and the beginning of the sleep are one step,
/// as under the kernel's lock. A sleep with a limit below [`UNTIMED`] ends at once, as if its timer
/// had expired. A sleep with a limit of [`UNTIMED`] or more never times out, so that a lost wake-up
/// is a deadlock.
pub(super) fn futex_wait(word: &AtomicU64, epoch: u32, limit: Duration) {
    if limit < UNTIMED {
        return yield_now();
    }
    let (mutex, condvar) = &*FUTEX;
    let mut guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    while (word.load(Relaxed) >> 32) as u32 == epoch {
        guard = condvar.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Stands in for `system::futex_wake_all`.
pub(super) fn futex_wake_all(_: &AtomicU64) {
    let (mutex, condvar) = &*FUTEX;
    drop(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    condvar.notify_all();
}
