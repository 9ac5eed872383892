//! Atomics, locks, fences and pauses come from the standard library, or from the model checker
//! under `--cfg slipring_loom`.
//!
//! Outside of tests, only `sync.rs` imports `std::sync::atomic`, because the models do not cover
//! accesses through `std::sync::atomic`.

/// An atomic counter that the models do not cover. No protocol depends on the value of a
/// `Statistic`, except the count of owners (`ring/owner_count.rs`).
pub(crate) use std::sync::atomic::AtomicU64 as Statistic;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
pub(crate) use std::sync::atomic::compiler_fence;
/// Atomics of the machine, also in models, for [`AtomicBytes`](super::atomic_bytes::AtomicBytes).
/// A model watches the accesses to events by stand-ins instead.
pub(crate) mod machine {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
}
pub(crate) use super::line::Line;
pub(crate) use std::sync::{Arc, Weak};
use std::sync::{LockResult, PoisonError};
#[cfg(not(all(test, slipring_loom)))]
pub(crate) use std::thread::panicking;
pub(crate) use std::thread::sleep;
pub(crate) use std::time::Instant;

#[cfg(not(slipring_loom))]
mod chosen {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{Thread, current as this_thread, park, park_timeout, yield_now};
}

#[cfg(slipring_loom)]
mod chosen {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::{Thread, current as this_thread, park, yield_now};

    /// Parks without a limit, because the model checker has no time.
    pub(crate) fn park_timeout(_limit: std::time::Duration) {
        park();
    }

    /// Issues a fence of the model checker. If the fence is `SeqCst`, records the thread for
    /// [`super::fencing_threads`].
    #[track_caller]
    pub(crate) fn fence(order: std::sync::atomic::Ordering) {
        #[cfg(test)]
        if !matches!(order, super::Acquire | super::Release | super::AcqRel) {
            super::note_fence(loom::thread::current().id());
        }
        loom::sync::atomic::fence(order);
    }
}

pub(crate) use chosen::*;

/// Returns the guard of a lock, poisoned or not. A critical section of this crate leaves the lock's
/// data consistent, even if the section panics.
pub(crate) fn whole<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`, poisoned or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// Returns an array of `len` values, or `None` if there is no memory for the values. All
/// allocations of a user-chosen size go through `array` or
/// [`try_reserve_exact`](Vec::try_reserve_exact).
pub(crate) fn array<T>(len: usize, make: impl FnMut(usize) -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).ok()?;
    all.extend((0..len).map(make));
    Some(all.into_boxed_slice())
}

/// `twin!("name": right => wrong)` evaluates to `wrong` in a model that chose the twin `name`, and
/// to `right` everywhere else.
///
/// A *twin* is a weakened variant of one step: a weaker ordering, a missing fence, or a missing
/// notification. When a model runs with a twin instead of the original step, the model must fail. A
/// model's failure with a twin shows that the protocol needs the original step, and that the model
/// covers that step.
///
/// - A model chooses at most one twin by its name, with `choose_twin`.
/// - PROTOCOL.md lists each twin, the model that catches the twin, and how that model fails.
/// - Outside of models, only `right` is compiled.
/// - `queue_model::sync` has a macro of the same name and arguments, because the queue model
///   compiles `queue.rs` against that macro.
macro_rules! twin {
    ($name:literal: $right:expr => $wrong:expr) => {{
        #[cfg(all(test, slipring_loom))]
        {
            if crate::base::sync::twin_is($name) { $wrong } else { $right }
        }
        #[cfg(not(all(test, slipring_loom)))]
        {
            $right
        }
    }};
}
pub(crate) use twin;

/// `may_die!()` marks a store that other processes read. In a model, the current thread may end
/// right before the store, as if its process had died there. Outside of models the macro is empty.
macro_rules! may_die {
    () => {
        #[cfg(all(test, slipring_loom))]
        crate::loom_models::mortal::step();
    };
}
pub(crate) use may_die;

#[cfg(all(test, slipring_loom))]
thread_local! {
    /// Name of the chosen twin; empty: none. All threads of a model share this value, because all
    /// of them run on one system thread.
    static TWIN: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

#[cfg(all(test, slipring_loom))]
/// Returns whether the running model chose the twin `name`.
pub(crate) fn twin_is(name: &str) -> bool {
    TWIN.get() == name
}

/// Chooses the twin for all models that the calling thread runs after this call.
#[cfg(all(test, slipring_loom))]
pub(crate) fn choose_twin(name: &'static str) {
    TWIN.set(name);
}

#[cfg(all(test, slipring_loom))]
thread_local! {
    /// Threads of the model that issued a `SeqCst` fence since the last call of `fencing_threads`.
    /// All threads of a model share this value, because all of them run on one system thread.
    static FENCING: std::cell::RefCell<Vec<loom::thread::ThreadId>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(all(test, slipring_loom))]
fn note_fence(thread: loom::thread::ThreadId) {
    FENCING.with_borrow_mut(|threads| {
        if !threads.contains(&thread) {
            threads.push(thread);
        }
    });
}

/// Returns the number of threads that issued a `SeqCst` fence since the last call.
/// In the model checker any two `SeqCst` fences synchronise, even if no load sees the other
/// thread's store. The `SeqCst` fences of a single thread order nothing between threads.
#[cfg(all(test, slipring_loom))]
pub(crate) fn fencing_threads() -> usize {
    FENCING.take().len()
}

#[cfg(all(test, slipring_loom))]
loom::thread_local! {
    /// Whether the current thread of the model is unwinding. The standard library does not know
    /// whether a model's thread unwinds, because all threads of a model run on one thread of the
    /// system.
    static UNWINDS: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

/// Returns whether the current thread of the model is unwinding.
#[cfg(all(test, slipring_loom))]
pub(crate) fn panicking() -> bool {
    UNWINDS.with(std::cell::Cell::get)
}

/// Makes [`panicking`] return `true` on the current thread of the model.
#[cfg(all(test, slipring_loom))]
pub(crate) fn unwind() {
    UNWINDS.with(|unwinds| unwinds.set(true));
}
