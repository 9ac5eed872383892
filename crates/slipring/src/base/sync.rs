//! Exports atomics, locks, fences, pauses, threads, thread-locals and the clock. They come from the
//! standard library, or from one of two other backends:
//!
//! - Under `--cfg slipring_loom`, those that models cover come from the model checker.
//! - Under `--cfg slipring_coherence`, all of them come from the simulator of cache coherence. Its
//!   virtual threads run on virtual cores, in virtual time, and it counts their accesses. Only
//!   `crates/slipring-simulated` sets this `cfg`.
//!
//! Outside of tests, no other file but `base/system.rs` names these parts of the standard library,
//! so that a backend can replace all of them.

use std::sync::{LockResult, PoisonError};
use std::time::Duration;

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
pub(crate) use std::sync::atomic::compiler_fence;
pub(crate) use std::sync::{Arc, Weak};
pub(crate) use std::time::Instant;

pub(crate) use super::line::Line;
#[cfg(all(test, slipring_loom))]
pub(crate) use super::model_hooks::panicking;

/// Atomics, locks, threads and the clock that models do not cover. Even in models they are those of
/// the standard library.
#[cfg(not(slipring_coherence))]
mod uncovered {
    /// An atomic counter that the models do not cover. Apart from the count of owners
    /// (`ring/owner_count.rs`), no such counter orders other accesses.
    pub(crate) use std::sync::atomic::AtomicU64 as Statistic;
    #[cfg(not(all(test, slipring_loom)))]
    pub(crate) use std::thread::panicking;
    pub(crate) use std::thread::sleep;
    use std::time::Instant;

    /// The machine's own atomics, even in models, for
    /// [`AtomicBytes`](crate::base::atomic_bytes::AtomicBytes). In a model, the checker watches
    /// stand-ins for the events instead.
    pub(crate) mod machine {
        pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
    }

    /// The standard library's locks and threads, even in models: those with which a graph is
    /// built, starts and ends, which no model covers.
    pub(crate) mod unmodelled {
        pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
        pub(crate) use std::thread::{
            Builder as ThreadBuilder, JoinHandle, ThreadId, current as this_thread, scope,
        };
    }

    /// Returns the number of cores on which the calling thread may run, as far as the system says.
    pub(crate) fn available_cores() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Returns the time of the clock by which the library waits and measures.
    #[inline(always)]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Returns `number`. In simulated runs by a schedule, the result is a small number instead, so
    /// that a short run has sleeps, and whatever else begins after many repetitions.
    #[inline(always)]
    pub(crate) const fn shortened(number: u64) -> u64 {
        number
    }

    /// Returns `slots`. In simulated runs by some schedules, the result is 3 instead, so that a
    /// publication in a small ring has several runs.
    #[inline(always)]
    pub(crate) const fn longest_run(slots: u64) -> u64 {
        slots
    }

    /// Declares variables of which each thread has its own, as `thread_local!` of the standard
    /// library does. The threads of a model share these variables, because they run on one system
    /// thread.
    macro_rules! per_thread {
        ($($(#[$attribute:meta])* static $name:ident: $type:ty = const { $init:expr };)+) => {
            ::std::thread_local! {
                $($(#[$attribute])* static $name: $type = const { $init };)+
            }
        };
    }
    pub(crate) use per_thread;
}

#[cfg(not(any(slipring_loom, slipring_coherence)))]
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

    macro_rules! per_modelled_thread {
        ($($(#[$attribute:meta])* static $name:ident: $type:ty = const { $init:expr };)+) => {
            loom::thread_local! {
                $($(#[$attribute])* static $name: $type = $init;)+
            }
        };
    }
    pub(crate) use per_modelled_thread;

    /// A value that all threads of a model share. A thread may use it after the model's statics are
    /// gone.
    pub(crate) type Static<T> = std::sync::Arc<T>;

    macro_rules! modelled_static {
        ($type:ty = $init:expr) => {{
            loom::lazy_static! {
                static ref SHARED: std::sync::Arc<$type> = std::sync::Arc::new($init);
            }
            SHARED.clone()
        }};
    }
    pub(crate) use modelled_static;

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

/// The simulated machine.
#[cfg(slipring_coherence)]
mod chosen {
    use std::cell::{Cell, RefCell};

    use slipring_coherence::sync::CoreLocal;
    pub(crate) use slipring_coherence::sync::{
        AtomicU32, AtomicU64, AtomicU64 as Statistic, AtomicUsize, Condvar, Mutex, MutexGuard,
        Thread, available_parallelism as available_cores, current as this_thread, fence, now,
        panicking, park, park_timeout, sleep, spin_loop, yield_now,
    };
    pub(crate) use slipring_coherence::{longest_run, shortened};

    pub(crate) mod machine {
        pub(crate) use slipring_coherence::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
    }

    pub(crate) mod unmodelled {
        pub(crate) use slipring_coherence::sync::{
            Builder as ThreadBuilder, Condvar, JoinHandle, Mutex, MutexGuard, ThreadId,
            current as this_thread, scope,
        };
    }

    /// Starts a virtual thread. Returns `false` if the machine has no core left for it.
    pub(crate) fn start_thread(name: &str, life: impl FnOnce() + Send + 'static) -> bool {
        unmodelled::ThreadBuilder::new().name(name.into()).spawn(life).is_ok()
    }

    /// A variable of which each virtual thread has its own, with the methods of the standard
    /// library's `LocalKey` that the library calls.
    pub(crate) struct PerThread<T: 'static>(CoreLocal<T>);

    impl<T: 'static> PerThread<T> {
        pub(crate) const fn new(init: fn() -> T) -> PerThread<T> {
            PerThread(CoreLocal::new(init))
        }
        pub(crate) fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> R {
            self.0.with(look)
        }
        pub(crate) fn try_with<R>(&'static self, look: impl FnOnce(&T) -> R) -> Option<R> {
            Some(self.0.with(look))
        }
    }

    impl<T: Copy> PerThread<Cell<T>> {
        pub(crate) fn get(&'static self) -> T {
            self.0.with(Cell::get)
        }
        pub(crate) fn set(&'static self, value: T) {
            self.0.with(|cell| cell.set(value));
        }
    }

    impl<T: Default> PerThread<RefCell<T>> {
        pub(crate) fn set(&'static self, value: T) {
            self.0.with(|cell| cell.replace(value));
        }
        pub(crate) fn take(&'static self) -> T {
            self.0.with(RefCell::take)
        }
    }

    macro_rules! per_thread {
        ($($(#[$attribute:meta])* static $name:ident: $type:ty = const { $init:expr };)+) => {
            $(
                $(#[$attribute])*
                static $name: $crate::base::sync::PerThread<$type> =
                    $crate::base::sync::PerThread::new(|| $init);
            )+
        };
    }
    pub(crate) use per_thread;
}

/// Declares variables as `per_thread!` does. In a model, each thread of the model has its own.
#[cfg(not(slipring_loom))]
pub(crate) use per_thread as per_modelled_thread;

#[cfg(not(slipring_loom))]
mod statics {
    /// A reference to a value that all threads share.
    pub(crate) type Static<T> = &'static T;

    /// Returns the [`Static`] of a value that all threads share. Each model has its own.
    macro_rules! modelled_static {
        ($type:ty = $init:expr) => {{
            static SHARED: $type = $init;
            &SHARED
        }};
    }
    pub(crate) use modelled_static;
}

#[cfg(not(slipring_loom))]
pub(crate) use statics::*;

pub(crate) use chosen::*;
#[cfg(not(slipring_coherence))]
pub(crate) use uncovered::*;

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
#[cfg_attr(slipring_coherence, track_caller)]
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

/// `twin!("name": right => wrong)` evaluates to `wrong` in a model or a simulated run that chose
/// the twin `name`, and to `right` everywhere else.
///
/// A *twin* is a weakened variant of one step: a weaker ordering, a missing fence, or a missing
/// notification. A model that runs with a twin must fail. This shows that the protocol needs the
/// original step, and that the model covers that step.
///
/// - A model chooses at most one twin by its name, with `choose_twin`. A simulated run has the twin
///   that its test has planted, and `cargo xtask explore --twin NAME` looks for a program that
///   fails with it.
/// - PROTOCOL.md lists each twin, the model that catches the twin, and how that model fails.
/// - Outside of models and simulations, only `right` is compiled.
/// - The model of the wait queue compiles `queue.rs` against a macro of the same name and
///   arguments.
macro_rules! twin {
    ($name:literal: $right:expr => $wrong:expr) => {{
        #[cfg(all(test, slipring_loom))]
        {
            if crate::base::model_hooks::twin_is($name) { $wrong } else { $right }
        }
        #[cfg(slipring_coherence)]
        {
            if slipring_coherence::is_planted($name) { $wrong } else { $right }
        }
        #[cfg(not(any(all(test, slipring_loom), slipring_coherence)))]
        {
            $right
        }
    }};
}
pub(crate) use twin;

/// `planted!("name": right => wrong)` evaluates to `wrong` in a simulated run into which a test
/// planted the defect `name`, and to `right` everywhere else.
///
/// A *planted defect* leaves all results as they are, and only costs more transfers,
/// read-modify-writes or fences. The budgets of `crates/slipring-simulated` must catch each of
/// them, in rings on the heap. Without the simulator, only `right` is compiled.
macro_rules! planted {
    ($name:literal: $right:expr => $wrong:expr) => {{
        #[cfg(slipring_coherence)]
        {
            if slipring_coherence::is_planted($name) { $wrong } else { $right }
        }
        #[cfg(not(slipring_coherence))]
        {
            $right
        }
    }};
}
pub(crate) use planted;

/// `may_die!()` marks a store that other processes read. In a model, the current thread may end
/// right before the store, as if its process had died there. Outside of models the macro is empty.
macro_rules! may_die {
    () => {
        #[cfg(all(test, slipring_loom))]
        crate::base::model_hooks::marked_store();
    };
}
pub(crate) use may_die;
