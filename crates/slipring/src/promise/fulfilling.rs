//! The half of a promise that fulfils it.
//!
//! Invariants
//! - I1: a call through a shared reference to a [`Promise`] only loads the word of the handover.

use std::fmt;

use super::awaited::Awaited;
use super::handover::{self, PromiseHalf};
use crate::errors::Abandoned;

/// Makes a promise, by which one thread hands a single value to another thread, once.
///
/// The first half fulfils the promise, and the second half waits for the value. Both halves can
/// move to other threads if the value can. Dropping the first half breaks the promise, and wakes
/// the waiter with [`AwaitError::Broken`](crate::errors::AwaitError::Broken). A panic that drops
/// the half does so, too.
///
/// The promise knows no graph, so a graph's end does not end the wait. For example, a stage may
/// fail before it takes the promise out of an event. The waiter then waits until the ring's events
/// are dropped, which may never happen if the waiter itself keeps the ring alive. So if an answer
/// comes from a stage, ask through a producer ([`Producer::ask`](crate::Producer::ask)).
///
/// ```
/// use std::thread;
///
/// let (promise, mut answer) = slipring::promise();
/// let worker = thread::spawn(move || promise.fulfil(6 * 7));
/// assert_eq!(answer.wait()?, 42);
/// assert!(worker.join().unwrap().is_ok());
/// # Ok::<(), slipring::errors::AwaitError>(())
/// ```
///
/// # Cost
/// One allocation, for the value and three words. Fulfilling is wait-free: it moves the value, and
/// executes one atomic addition. If the waiter sleeps, fulfilling also costs a second addition and
/// one wake-up by the system. Taking the value costs a load, a move, and freeing the allocation.
#[must_use = "a promise that is dropped is broken"]
pub fn promise<T>() -> (Promise<T>, Awaited<T>) {
    let (promise, waiter) = handover::halves();
    (Promise(promise), Awaited::new(waiter))
}

/// The half of a promise that fulfils it. [`Producer::ask`](crate::Producer::ask) and [`promise`]
/// make it.
///
/// Dropping a promise that is not fulfilled breaks the promise. A promise that is forgotten
/// (`std::mem::forget`) is never fulfilled or broken, so its waiter waits until the waiter's
/// deadline, or for ever.
///
/// Example: [`promise`].
#[must_use = "a promise that is dropped is broken"]
pub struct Promise<T>(PromiseHalf<T>);

// SAFETY: the value is moved to the thread that takes it, or drops it. All other parts of the
// handover may be used by any thread that owns a half.
unsafe impl<T: Send> Send for Promise<T> {}
// SAFETY: a shared reference only loads an atomic word (I1).
unsafe impl<T: Send> Sync for Promise<T> {}

impl<T> Promise<T> {
    /// Hands the value over, and wakes the waiter if it sleeps. The value is moved, never cloned.
    ///
    /// Example: [`promise`].
    ///
    /// # Errors
    /// [`Abandoned`] gives the value back, if the other half was dropped. Even a value that was
    /// handed over may be dropped unseen, on the other half's thread, if that half is dropped.
    ///
    /// # Cost
    /// Costs the value's move and one atomic addition; the call never waits. If the waiter sleeps,
    /// the call also executes a second addition and one system call, or runs the executor's waker,
    /// whose panic is contained.
    #[inline]
    pub fn fulfil(self, value: T) -> Result<(), Abandoned<T>> {
        match self.0.settle(Some(value)) {
            None => Ok(()),
            Some(value) => Err(Abandoned(value)),
        }
    }

    /// Returns whether the other half was dropped. If it was, the value need not be computed. The
    /// answer `false` may be outdated at once. The answer `true` never changes.
    ///
    /// ```
    /// let (promise, answer) = slipring::promise::<u64>();
    /// assert!(!promise.is_abandoned());
    /// drop(answer);
    /// assert!(promise.is_abandoned());
    /// ```
    ///
    /// # Cost
    /// One load.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("is_abandoned", &self.is_abandoned()).finish()
    }
}
