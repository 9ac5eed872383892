//! A mutex and a condition variable, made as the standard library makes them on Linux.
//!
//! - I1: `word` is 0 (unlocked), 1 (locked) or 2 (locked, and a thread may sleep). The thread that
//!   changed it from 0 has the only guard, and with it the only reference to the value.
//! - I2: A thread that sleeps for the lock has stored 2, so the unlocking thread wakes one.
//!
//! Both work outside of a simulation too, where a sleep is a real one.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use super::atomics::{
    AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use super::thread::panicking;
use super::{futex, spin_loop};
use crate::access;
use crate::waiting::Sleep;

/// A lock around a value, with the standard library's functions and poisoning.
///
/// ```
/// use slipring_coherence::sync::Mutex;
///
/// let total = Mutex::new(1);
/// *total.lock().unwrap() += 1;
/// assert_eq!(total.into_inner().unwrap(), 2);
/// ```
pub struct Mutex<T: ?Sized> {
    word: AtomicU32,
    poisoned: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: I1: the lock passes the value from thread to thread.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: the mutex owns its value.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

/// The right to use the value of a locked [`Mutex`].
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// Whether the thread was panicking already when it locked.
    panicking: bool,
    /// A guard stays with its thread.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard lends the value only shared.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// Returns an unlocked mutex.
    ///
    /// Example: [`Mutex`].
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            word: AtomicU32::new(0),
            poisoned: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    ///
    /// Example: [`Mutex`].
    ///
    /// # Errors
    ///
    /// If a thread panicked while it had the lock.
    pub fn into_inner(mut self) -> LockResult<T> {
        let poisoned = *self.poisoned.get_mut();
        result(self.value.into_inner(), poisoned)
    }
}

fn result<G>(value: G, poisoned: bool) -> LockResult<G> {
    if poisoned { Err(PoisonError::new(value)) } else { Ok(value) }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// Example: [`Mutex`].
    ///
    /// # Errors
    ///
    /// If a thread panicked while it had the lock. The error has the guard.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if self.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            self.lock_contended(Location::caller());
        }
        self.guard()
    }

    #[cold]
    fn lock_contended(&self, location: &'static Location<'static>) {
        let mut state = self.spin();
        if state == 0 {
            match self.word.compare_exchange(0, 1, Acquire, Relaxed) {
                Ok(_) => return,
                Err(found) => state = found,
            }
        }
        loop {
            if state != 2 && self.word.swap(2, Acquire) == 0 {
                return;
            }
            futex::wait(&self.word, 2, None, Sleep::Lock, location);
            state = self.spin();
        }
    }

    /// Waits a moment for the lock while no other thread sleeps for it. Returns the state.
    fn spin(&self) -> u32 {
        for _ in 0..100 {
            let state = self.word.load(Relaxed);
            if state != 1 {
                return state;
            }
            spin_loop();
        }
        self.word.load(Relaxed)
    }

    fn guard(&self) -> LockResult<MutexGuard<'_, T>> {
        // The standard library's flag shares the word's line as well.
        let poisoned = self.poisoned.load(Relaxed);
        let guard = MutexGuard { lock: self, panicking: panicking(), not_send: PhantomData };
        result(guard, poisoned)
    }

    /// Takes the lock if it is free.
    ///
    /// Example: [`Mutex`].
    ///
    /// # Errors
    ///
    /// If the lock is taken, or a thread panicked while it had it.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.word.compare_exchange(0, 1, Acquire, Relaxed) {
            Ok(_) => self.guard().map_err(TryLockError::Poisoned),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    /// Returns whether a thread panicked while it had the lock.
    ///
    /// Example: [`Mutex`].
    #[track_caller]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    /// Forgets that a thread panicked.
    ///
    /// Example: [`Mutex`].
    #[track_caller]
    pub fn clear_poison(&self) {
        self.poisoned.store(false, Relaxed);
    }

    /// Lends the value without a lock, since the caller has the only reference.
    ///
    /// Example: [`Mutex`].
    ///
    /// # Errors
    ///
    /// If a thread panicked while it had the lock.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        let poisoned = *self.poisoned.get_mut();
        result(self.value.get_mut(), poisoned)
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Bytes of the value that a use of the guard is taken to touch: its first line, at most.
    fn touched(&self) -> (usize, usize) {
        let value = self.lock.value.get();
        // SAFETY: I1: this guard has the only access to the value.
        let len = size_of_val(unsafe { &*value });
        (value.cast::<u8>().addr(), len.min(64))
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[track_caller]
    fn deref(&self) -> &T {
        let (at, len) = self.touched();
        access::read(at, len, Location::caller());
        // SAFETY: I1.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        let (at, len) = self.touched();
        access::write(at, len, Location::caller());
        // SAFETY: I1, and the guard is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if !self.panicking && panicking() {
            self.lock.poisoned.store(true, Relaxed);
        }
        if self.lock.word.swap(0, Release) == 2 {
            futex::wake(&self.lock.word, 1);
        }
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatting makes no access that a simulation would count.
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

/// A condition variable, with the standard library's functions.
///
/// ```
/// use slipring_coherence::sync::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// let guard = ready.lock().unwrap();
/// let (guard, result) = changed.wait_timeout(guard, Duration::from_millis(1)).unwrap();
/// assert!(!*guard && result.timed_out());
/// ```
#[derive(Default)]
pub struct Condvar {
    /// Number of notifications.
    word: AtomicU32,
}

/// Whether a wait with a limit ended by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the time ran out.
    ///
    /// Example: [`Condvar`].
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Returns a condition variable for which no thread waits.
    ///
    /// Example: [`Condvar`].
    pub const fn new() -> Condvar {
        Condvar { word: AtomicU32::new(0) }
    }

    /// Wakes one of the waiting threads.
    ///
    /// Example: [`Condvar`].
    #[track_caller]
    pub fn notify_one(&self) {
        self.word.fetch_add(1, Relaxed);
        futex::wake(&self.word, 1);
    }

    /// Wakes all waiting threads.
    ///
    /// Example: [`Condvar`].
    #[track_caller]
    pub fn notify_all(&self) {
        self.word.fetch_add(1, Relaxed);
        futex::wake(&self.word, usize::MAX);
    }

    fn sleep<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Option<Duration>,
        location: &'static Location<'static>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        let seen = self.word.load(Relaxed);
        let lock = guard.lock;
        drop(guard);
        let woken = futex::wait(&self.word, seen, limit, Sleep::Condvar, location);
        if lock.word.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            lock.lock_contended(location);
        }
        (lock.guard(), woken)
    }

    /// Unlocks, waits for a notification, and locks again. It may wake without one.
    ///
    /// Example: [`Condvar`].
    ///
    /// # Errors
    ///
    /// If a thread panicked while it had the lock.
    #[track_caller]
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.sleep(guard, None, Location::caller()).0
    }

    /// Waits while `condition` holds.
    ///
    /// Example: [`Condvar`].
    ///
    /// # Errors
    ///
    /// If a thread panicked while it had the lock.
    #[track_caller]
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits as [`wait`](Condvar::wait) does, for a limited time.
    ///
    /// Example: [`Condvar`].
    ///
    /// # Errors
    ///
    /// If a thread panicked while it had the lock.
    #[track_caller]
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, woken) = self.sleep(guard, Some(limit), Location::caller());
        let result = WaitTimeoutResult(!woken);
        match guard {
            Ok(guard) => Ok((guard, result)),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
