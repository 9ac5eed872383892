//! This module replaces `base::sync` and the standard library's locks on the simulated machine.
//!
//! The items of this module have the names of the items that they replace, so that the unchanged
//! `queue.rs` compiles against this module.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
pub(crate) use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

use super::machine::{
    Lock, LockData, Seen, Sleep, Store, Thread, access, access_word, choose, is_over, with_step,
};
pub(crate) use crate::base::sync::{Line, shortened, whole};

macro_rules! twin {
    ($name:literal: $right:expr => $wrong:expr) => {
        if crate::wait::queue_model::machine::twin_is($name) { $wrong } else { $right }
    };
}
pub(crate) use twin;

/// A word, identified by its address. The field is the word's initial value.
pub(crate) struct AtomicU64(u64);

impl AtomicU64 {
    pub(crate) const fn new(value: u64) -> AtomicU64 {
        AtomicU64(value)
    }

    /// Returns the word's initial value.
    pub(super) fn initial(&self) -> u64 {
        self.0
    }

    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn update(&self, change: impl FnOnce(u64) -> Option<u64>) -> u64 {
        access_word(|step| {
            let empty = step.has_no_stores();
            empty.then(|| {
                let value = step.state.read(self.address(), self.0);
                if let Some(value) = change(value) {
                    step.state.write(self.address(), value);
                }
                value
            })
        })
    }

    pub(crate) fn load(&self, _: Ordering) -> u64 {
        access_word(|step| {
            let own = step
                .thread()
                .buffer
                .iter()
                .rfind(|store| store.word == self.address())
                .map(|store| store.value);
            Some(own.unwrap_or_else(|| step.state.read(self.address(), self.0)))
        })
    }

    pub(crate) fn store(&self, value: u64, _: Ordering) {
        access(true, |step| {
            let store = Store { word: self.address(), value, emitted: false };
            step.thread_mut().buffer.push(store);
            Some(Seen::Nothing)
        });
    }

    pub(crate) fn fetch_add(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| Some(old.wrapping_add(value)))
    }

    pub(crate) fn fetch_sub(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| Some(old.wrapping_sub(value)))
    }

    pub(crate) fn fetch_or(&self, value: u64, _: Ordering) -> u64 {
        self.update(|old| Some(old | value))
    }

    /// Changes the word by a load and a compare-and-exchange. Each of the two is a separate step.
    pub(crate) fn fetch_update(
        &self,
        _: Ordering,
        _: Ordering,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let mut seen = self.load(Relaxed);
        while let Some(next) = change(seen) {
            match self.compare_exchange(seen, next, Relaxed, Relaxed) {
                Ok(found) => return Ok(found),
                Err(found) => seen = found,
            }
        }
        Err(seen)
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        let found = self.update(|found| (found == old).then_some(new));
        if found == old { Ok(found) } else { Err(found) }
    }

    /// Waits until this word is not zero in memory.
    pub(crate) fn wait(&self) {
        access(true, |step| {
            (step.state.read(self.address(), self.0) != 0).then_some(Seen::Nothing)
        });
    }

    /// Returns the word's value in memory. The exploration does not count `peek` as an access.
    pub(crate) fn peek(&self) -> u64 {
        with_step(|step| step.state.read(self.address(), self.0))
    }
}

/// A number that serves measurements or thresholds; no protocol depends on its value. If `queue.rs`
/// branches on the value of a statistic, the exploration takes both branches.
pub(crate) struct Statistic;

impl Statistic {
    pub(crate) const fn new(_: u64) -> Statistic {
        Statistic
    }

    pub(crate) fn load(&self, _: Ordering) -> u64 {
        [super::queue::NOTIFIES_BEFORE_QUIET - 1, 0][choose(2) as usize]
    }

    pub(crate) fn store(&self, _: u64, _: Ordering) {}

    pub(crate) fn compare_exchange(
        &self,
        _: u64,
        _: u64,
        _: Ordering,
        _: Ordering,
    ) -> Result<u64, u64> {
        Err(0)
    }
}

pub(crate) fn fence(_: Ordering) {
    access(false, |step| step.has_no_stores().then_some(Seen::Nothing));
}

pub(crate) fn compiler_fence(_: Ordering) {
    access(false, |step| {
        step.thread_mut().buffer.iter_mut().for_each(|store| store.emitted = true);
        Some(Seen::Nothing)
    });
}

/// Simulates a sleep during which all stores in the cores' store buffers reach memory.
pub(crate) fn sleep(_: Duration) {
    access(true, |step| {
        step.state.membarrier();
        Some(Seen::Nothing)
    });
}

/// A clock that always shows one second.
#[derive(Clone, Copy)]
pub(crate) struct Instant;

pub(crate) fn now() -> Instant {
    Instant
}

pub(crate) fn elapsed(_: Instant) -> Duration {
    Duration::from_secs(1)
}

/// A lock, identified by its address. The field is the initial value of the lock's data.
pub(crate) struct Mutex<T>(T);

/// A guard that holds a lock and a copy of its data. A drop stores the copy as the lock's data, and
/// releases the lock.
pub(crate) struct MutexGuard<'a, T: Clone + Debug + 'static> {
    mutex: &'a Mutex<T>,
    value: Option<T>,
}

impl<T: Clone + Debug + 'static> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(value)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes the lock. The simulated thread waits while another thread holds the lock, and while
    /// its own store buffer is not empty. A thread that sleeps on a condition variable must first
    /// be woken.
    fn take(&self) -> MutexGuard<'_, T> {
        let seen = access(true, |step| {
            let me = step.index();
            let asleep = matches!(step.thread().sleep, Sleep::Asleep { .. });
            let ready =
                step.has_no_stores() && !asleep && step.state.lock(self.address()).holder.is_none();
            ready.then(|| {
                step.thread_mut().sleep = Sleep::Awake;
                let lock = step.state.lock(self.address());
                lock.holder = Some(me);
                Seen::Locked(lock.value.clone().unwrap_or_else(|| LockData::new(self.0.clone())))
            })
        });
        let Seen::Locked(guarded) = seen else {
            panic!("a replayed call made another access: expected a lock")
        };
        let value: &T = guarded.value.downcast_ref().expect("a lock keeps the type of its data");
        MutexGuard { mutex: self, value: Some(value.clone()) }
    }

    /// Returns the `Debug` text of the lock's data. The exploration does not count `peek` as an
    /// access.
    pub(crate) fn peek(&self) -> String {
        let value = with_step(|step| step.state.lock(self.address()).value.clone());
        value.unwrap_or_else(|| LockData::new(self.0.clone())).text.to_string()
    }
}

pub(crate) fn lock<T: Clone + Debug + 'static>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.take()
}

impl<T: Clone + Debug + 'static> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("the lock is held")
    }
}

impl<T: Clone + Debug + 'static> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the lock is held")
    }
}

impl<T: Clone + Debug + 'static> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take()
            && !is_over()
            && !std::thread::panicking()
        {
            access(true, |step| {
                step.has_no_stores().then(|| {
                    *step.state.lock(self.mutex.address()) = Lock {
                        address: self.mutex.address(),
                        holder: None,
                        value: Some(LockData::new(value)),
                    };
                    Seen::Nothing
                })
            });
        }
    }
}

/// A condition variable, identified by its address.
pub(crate) struct Condvar(#[expect(dead_code, reason = "an address of its own")] u8);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(0)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn sleep<'a, T: Clone + Debug + 'static>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limited: bool,
    ) -> MutexGuard<'a, T> {
        let (mutex, value) = (guard.mutex, guard.value.take());
        // A thread falls asleep and releases the lock in one access.
        access(true, |step| {
            assert!(
                !step.thread().refused,
                "a thread falls asleep although its barrier was refused"
            );
            step.thread_mut().sleep = Sleep::Asleep { condvar: self.address(), limited };
            if std::mem::take(&mut step.thread_mut().postponed) {
                step.state.membarrier();
            }
            *step.state.lock(mutex.address()) =
                Lock { address: mutex.address(), holder: None, value: value.map(LockData::new) };
            Some(Seen::Nothing)
        });
        mutex.take()
    }

    pub(crate) fn wait<'a, T: Clone + Debug + 'static>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> LockResult<MutexGuard<'a, T>> {
        Ok::<_, PoisonError<_>>(self.sleep(guard, false))
    }

    pub(crate) fn wait_timeout<'a, T: Clone + Debug + 'static>(
        &self,
        guard: MutexGuard<'a, T>,
        _: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        Ok((self.sleep(guard, true), ()))
    }

    fn wake(&self, most: usize) {
        access(true, |step| {
            let here = |thread: &&mut Rc<Thread>| match thread.sleep {
                Sleep::Asleep { condvar, .. } => condvar == self.address(),
                Sleep::Awake | Sleep::Woken => false,
            };
            step.state
                .threads
                .iter_mut()
                .filter(here)
                .take(most)
                .for_each(|thread| Rc::make_mut(thread).sleep = Sleep::Woken);
            Some(Seen::Nothing)
        });
    }

    pub(crate) fn notify_all(&self) {
        self.wake(usize::MAX);
    }

    pub(crate) fn notify_one(&self) {
        self.wake(1);
    }
}
