//! The one place that names atomics, locks and pauses. Under `--cfg slipring_loom` all of them are
//! the model checker's.
//!
//! Nothing else in the crate may import `std::sync::atomic`: what is not named here is not
//! modelled.

/// Counts that no protocol rests on, and that the model checker need not see.
pub(crate) use std::sync::atomic::AtomicU64 as Statistic;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
pub(crate) use std::sync::atomic::compiler_fence;
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
    pub(crate) use std::thread::yield_now;
}

#[cfg(slipring_loom)]
mod chosen {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    /// A fence of the model checker's. Notes which thread issues a `SeqCst` one: see
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

/// What a lock guards, whether or not a panic passed through it before: every critical section of
/// this crate leaves its data whole.
pub(crate) fn whole<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// An array of so many values; `None`: there is no memory for it. What the caller's numbers size is
/// allocated by this, or by [`try_reserve_exact`](Vec::try_reserve_exact).
pub(crate) fn array<T>(len: usize, make: impl FnMut(usize) -> T) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).ok()?;
    all.extend((0..len).map(make));
    Some(all.into_boxed_slice())
}

/// One shared word on a line of its own: 128 bytes, because neighbouring 64-byte lines are fetched
/// in pairs on x86 and a line is 128 bytes on some aarch64 (Intel's optimisation manual, "spatial
/// prefetcher"; Apple's M1).
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// Known-wrong variants of single steps, for the models: `twin!("name": right => wrong)` is
/// `right`, except in a model that asked for the wrong variant by name and expects to catch it.
/// Outside of models it is `right` and nothing else.
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

#[cfg(all(test, slipring_loom))]
thread_local! {
    /// The model checker runs all threads of a model on the thread of its test, so this is the
    /// model's own.
    static TWIN: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

#[cfg(all(test, slipring_loom))]
pub(crate) fn twin_is(name: &str) -> bool {
    TWIN.get() == name
}

/// Runs the model that follows on this thread with one step weakened.
#[cfg(all(test, slipring_loom))]
pub(crate) fn choose_twin(name: &'static str) {
    TWIN.set(name);
}

#[cfg(all(test, slipring_loom))]
thread_local! {
    /// The model's threads that issued a `SeqCst` fence in the present execution. As [`TWIN`], the
    /// model's own.
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

/// How many threads issued a `SeqCst` fence since the last call. The model checker lets two such
/// fences synchronise, whatever the threads load and store; the fences of a single thread order
/// nothing between threads.
#[cfg(all(test, slipring_loom))]
pub(crate) fn fencing_threads() -> usize {
    FENCING.take().len()
}

#[cfg(all(test, slipring_loom))]
loom::thread_local! {
    /// Whether this thread of a model unwinds. All of them run on one of the system's threads, so
    /// each says it for itself.
    static UNWINDS: std::cell::Cell<bool> = std::cell::Cell::new(false);
}

/// Whether the present thread unwinds.
#[cfg(all(test, slipring_loom))]
pub(crate) fn panicking() -> bool {
    UNWINDS.with(std::cell::Cell::get)
}

/// The present thread of a model unwinds from now on.
#[cfg(all(test, slipring_loom))]
pub(crate) fn unwind() {
    UNWINDS.with(|unwinds| unwinds.set(true));
}
