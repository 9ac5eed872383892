//! Exports atomics, locks, fences, pauses, threads, thread-locals and the clock. They come from the
//! standard library. Under `--cfg slipring_loom`, those that models cover come from the model
//! checker.
//!
//! Outside of tests, no other file but `base/system.rs` names these parts of the standard library,
//! so that a backend can replace all of them.

/// An atomic counter that the models do not cover. Apart from the count of owners
/// (`ring/owner_count.rs`), no such counter orders other accesses.
pub(crate) use std::sync::atomic::AtomicU64 as Statistic;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
pub(crate) use std::sync::atomic::compiler_fence;
/// The machine's own atomics, even in models, for
/// [`AtomicBytes`](super::atomic_bytes::AtomicBytes). In a model, the checker watches stand-ins for
/// the events instead.
pub(crate) mod machine {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
}
pub(crate) use super::line::Line;
#[cfg(all(test, slipring_loom))]
pub(crate) use super::model_hooks::panicking;
pub(crate) use std::sync::{Arc, Weak};
use std::sync::{LockResult, PoisonError};
#[cfg(not(all(test, slipring_loom)))]
pub(crate) use std::thread::panicking;
pub(crate) use std::thread::{available_parallelism, sleep};
use std::time::Duration;
pub(crate) use std::time::Instant;
/// The standard library's locks and threads, even in models: those with which a graph is built,
/// starts and ends, which no model covers.
pub(crate) mod unmodelled {
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{
        Builder as ThreadBuilder, JoinHandle, ThreadId, current as this_thread, scope,
    };
}

#[cfg(not(slipring_loom))]
mod chosen {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread::{Thread, current as this_thread, park, park_timeout, yield_now};

    /// Starts a thread. Returns `false` if the system refuses the thread.
    pub(crate) fn start_thread(name: &str, life: impl FnOnce() + Send + 'static) -> bool {
        std::thread::Builder::new().name(name.into()).spawn(life).is_ok()
    }
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

    /// Starts a thread of the model. These threads have no names.
    pub(crate) fn start_thread(_name: &str, life: impl FnOnce() + Send + 'static) -> bool {
        loom::thread::spawn(life);
        true
    }

    /// Issues a fence of the model checker. A model counts the threads that issue `SeqCst` fences.
    #[track_caller]
    pub(crate) fn fence(order: std::sync::atomic::Ordering) {
        #[cfg(test)]
        if !matches!(order, super::Acquire | super::Release | super::AcqRel) {
            crate::base::model_hooks::note_fence();
        }
        loom::sync::atomic::fence(order);
    }
}

pub(crate) use chosen::*;

/// Returns the time of the clock by which the library waits and measures.
#[inline(always)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Reads the clock, and returns the time since `begin`.
#[inline(always)]
pub(crate) fn elapsed(begin: Instant) -> Duration {
    now().saturating_duration_since(begin)
}

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

/// Declares variables of which each thread has its own, as `thread_local!` of the standard library
/// does. The threads of a model share these variables, because they run on one system thread.
macro_rules! per_thread {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const { $init:expr };)+) => {
        ::std::thread_local! {
            $($(#[$attribute])* static $name: $type = const { $init };)+
        }
    };
}
pub(crate) use per_thread;

/// `twin!("name": right => wrong)` evaluates to `wrong` in a model that chose the twin `name`, and
/// to `right` everywhere else.
///
/// A *twin* is a weakened variant of one step: a weaker ordering, a missing fence, or a missing
/// notification. A model that runs with a twin must fail. This shows that the protocol needs the
/// original step, and that the model covers that step.
///
/// - A model chooses at most one twin by its name, with `choose_twin`.
/// - PROTOCOL.md lists each twin, the model that catches the twin, and how that model fails.
/// - Outside of models, only `right` is compiled.
/// - The model of the wait queue compiles `queue.rs` against a macro of the same name and
///   arguments.
macro_rules! twin {
    ($name:literal: $right:expr => $wrong:expr) => {{
        #[cfg(all(test, slipring_loom))]
        {
            if crate::base::model_hooks::twin_is($name) { $wrong } else { $right }
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
        crate::base::model_hooks::marked_store();
    };
}
pub(crate) use may_die;
