//! The half of a promise that waits for the value.
//!
//! Invariants
//! - I1: a shared reference to an [`Awaited`] only loads the word of the handover. All that
//!   registers a sleeper, or takes the value, has a mutable reference.
//! - I2: a sleeper that is registered between two calls is a task's. A thread that waits takes its
//!   registration back before its call returns.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::handover::{Outcome, Sleep, WaiterHalf};
use super::sleeper::Sleeper;
use crate::base::panics::{Contained, drop_contained};
use crate::errors::AwaitError;
use crate::wait::{HandleLearner, WAIT_ON, Wait, WaitOptions, WaitStrategy, wait_until};

/// The half of a promise that waits for the value. [`promise`](crate::promise()) makes it.
///
/// Threads wait by [`wait`](Awaited::wait) and the calls beside it. Tasks of any runtime await the
/// handle, which is a future: `(&mut answer).await` leaves the handle usable. One program may mix
/// both. The value is returned once; each later call returns [`AwaitError::Taken`].
///
/// Dropping the handle abandons the promise: the other half gets its value back, or the value is
/// dropped with the handle if it was handed over already.
///
/// Example: [`Awaited::wait`].
#[must_use = "the promise is abandoned if this half is dropped"]
pub struct Awaited<T> {
    /// `None`: the value was taken.
    half: Option<WaiterHalf<T>>,
    /// `None`: [`Wait::Blocking`].
    wait: Option<Contained<Wait>>,
}

// SAFETY: the value is moved from the thread that fulfils the promise. All other parts of the
// handover may be used by any thread that owns a half; a sleeper may be dropped anywhere.
unsafe impl<T: Send> Send for Awaited<T> {}
// SAFETY: a shared reference only loads an atomic word (I1). Strategies are `Sync`.
unsafe impl<T: Send> Sync for Awaited<T> {}

impl<T> Awaited<T> {
    pub(super) fn new(half: WaiterHalf<T>) -> Awaited<T> {
        Awaited { half: Some(half), wait: None }
    }

    /// Chooses how threads wait for the value; [`Wait::Blocking`] unless stated. A promise has one
    /// wait, from which a strategy could learn nothing: no learner is made, and
    /// [`Wait::Adaptive`] acts as [`Wait::Blocking`].
    ///
    /// ```
    /// use slipring::Wait;
    /// let (promise, answer) = slipring::promise();
    /// let mut answer = answer.with_wait(Wait::BusySpin);
    /// std::thread::spawn(move || promise.fulfil("soon"));
    /// assert_eq!(answer.wait()?, "soon");
    /// # Ok::<(), slipring::AwaitError>(())
    /// ```
    pub fn with_wait(self, wait: Wait) -> Awaited<T> {
        Awaited { wait: Some(Contained::new(wait)), ..self }
    }

    /// Waits for the value, and returns it.
    ///
    /// ```
    /// let (promise, mut answer) = slipring::promise();
    /// std::thread::spawn(move || promise.fulfil(42));
    /// assert_eq!(answer.wait(), Ok(42));
    /// ```
    ///
    /// A thread that owns the promise's other half, too, waits for ever, unless the strategy has a
    /// timeout: the library does not know which thread owns a half. So does the waiter of a promise
    /// that was forgotten (`std::mem::forget`).
    ///
    /// # Errors
    /// [`AwaitError::Broken`], if the promise was dropped; [`AwaitError::Taken`];
    /// [`AwaitError::TimedOut`] with a strategy that has a timeout.
    ///
    /// # Cost
    /// A load and a move if the value is there. A waiter that sleeps costs the promise's owner one
    /// wake-up.
    #[inline]
    pub fn wait(&mut self) -> Result<T, AwaitError> {
        match self.try_take()? {
            Some(value) => Ok(value),
            None => self.wait_on(None),
        }
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most for the given time.
    ///
    /// ```
    /// use slipring::AwaitError;
    /// use std::time::Duration;
    ///
    /// let (promise, mut answer) = slipring::promise();
    /// assert_eq!(answer.wait_for(Duration::from_millis(1)), Err(AwaitError::TimedOut));
    /// promise.fulfil(7).unwrap();
    /// assert_eq!(answer.wait_for(Duration::from_millis(1)), Ok(7));
    /// ```
    ///
    /// # Errors
    /// As for [`wait`](Awaited::wait). [`AwaitError::TimedOut`] at the end of the time, which
    /// replaces the strategy's timeout; the call may be repeated. A time beyond the clock's range
    /// never ends.
    ///
    /// # Cost
    /// As for [`wait`](Awaited::wait); the clock is read if the value is not there.
    #[inline]
    pub fn wait_for(&mut self, time: Duration) -> Result<T, AwaitError> {
        match self.try_take()? {
            Some(value) => Ok(value),
            None => match Instant::now().checked_add(time) {
                Some(deadline) => self.wait_on(Some(deadline)),
                None => self.wait_on(None),
            },
        }
    }

    /// Waits for the value as [`wait`](Awaited::wait) does, at most until `deadline`.
    ///
    /// Example: [`wait_for`](Awaited::wait_for).
    ///
    /// # Errors
    /// As for [`wait_for`](Awaited::wait_for).
    ///
    /// # Cost
    /// As for [`wait_for`](Awaited::wait_for).
    #[inline]
    pub fn wait_until(&mut self, deadline: Instant) -> Result<T, AwaitError> {
        match self.try_take()? {
            Some(value) => Ok(value),
            None => self.wait_on(Some(deadline)),
        }
    }

    /// Returns the value if it is there; `None`: the promise is not settled yet. Never waits.
    ///
    /// ```
    /// let (promise, mut answer) = slipring::promise();
    /// assert_eq!(answer.try_take()?, None);
    /// promise.fulfil(7).unwrap();
    /// assert_eq!(answer.try_take()?, Some(7));
    /// assert_eq!(answer.try_take(), Err(slipring::AwaitError::Taken));
    /// # Ok::<(), slipring::AwaitError>(())
    /// ```
    ///
    /// # Errors
    /// [`AwaitError::Broken`]; [`AwaitError::Taken`].
    ///
    /// # Cost
    /// A load, and a move if the value is there.
    #[inline]
    pub fn try_take(&mut self) -> Result<Option<T>, AwaitError> {
        let half = self.half.as_ref().ok_or(AwaitError::Taken)?;
        match half.outcome() {
            None => Ok(None),
            Some(Outcome::Broken) => Err(AwaitError::Broken),
            Some(Outcome::Fulfilled) => Ok(self.half.take().and_then(WaiterHalf::leave)),
        }
    }

    /// Returns whether a call would return at once: the value is there or was taken, or the promise
    /// is broken. `true` is final.
    ///
    /// ```
    /// let (promise, answer) = slipring::promise::<u64>();
    /// assert!(!answer.is_settled());
    /// drop(promise);
    /// assert!(answer.is_settled());
    /// ```
    ///
    /// # Cost
    /// One load.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.half.as_ref().is_none_or(|half| half.outcome().is_some())
    }

    #[cold]
    #[inline(never)]
    fn wait_on(&mut self, deadline: Option<Instant>) -> Result<T, AwaitError> {
        let half = self.half.as_mut().ok_or(AwaitError::Taken)?;
        let wait = self.wait.as_deref().unwrap_or(&Wait::Blocking);
        let sleep = Sleep(half);
        let options = WaitOptions {
            wait,
            polls: 0,
            oversubscribed: &|| false,
            full_ring: None,
            queue: wait.parks().then_some(&sleep as _),
            deadline,
            // A caller's own deadline replaces the strategy's timeout.
            timeout: if deadline.is_none() { wait.timeout() } else { None },
        };
        let ready = &mut || sleep.0.outcome().is_some();
        wait_until(options, &mut HandleLearner::default(), &mut || WAIT_ON, ready);
        self.try_take()?.ok_or(AwaitError::TimedOut)
    }

    /// Registers a task, unless the promise is settled.
    fn arm(&mut self, context: &Context<'_>) {
        let Some(half) = &self.half else { return };
        // SAFETY: the mutable reference excludes other uses of the half.
        let before = unsafe { half.withdraw() };
        let (own, replaced) = match before {
            Some(Sleeper::Task(waker)) if waker.will_wake(context.waker()) => (waker, None),
            before => (context.waker().clone(), before),
        };
        // SAFETY: as above, and the registered sleeper was taken back, or the promise is settled.
        unsafe { half.register(Sleeper::Task(own)) };
        // The drop of a waker is user code.
        drop_contained(replaced);
    }
}

/// The task is woken when the promise is fulfilled or broken. A later poll may bring another waker,
/// which replaces the one before; only the last one is woken. The value is ready once, so unlike a
/// ring's futures this one needs no budget: a poll of a settled promise is always ready.
///
/// ```
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
/// let (promise, answer) = slipring::promise::<u64>();
/// let mut task = pin!(async { Ok::<u64, slipring::AwaitError>(answer.await? + 1) });
/// # let mut context = Context::from_waker(Waker::noop());
/// assert!(task.as_mut().poll(&mut context).is_pending());
/// promise.fulfil(41).unwrap();
/// assert_eq!(task.poll(&mut context), Poll::Ready(Ok(42)));
/// ```
impl<T> Future for Awaited<T> {
    type Output = Result<T, AwaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(taken) = self.try_take().transpose() {
            return Poll::Ready(taken);
        }
        self.arm(context);
        self.try_take().transpose().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Awaited<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.half.as_ref().map(WaiterHalf::outcome);
        let state = match outcome {
            None => "taken",
            Some(None) => "pending",
            Some(Some(Outcome::Fulfilled)) => "fulfilled",
            Some(Some(Outcome::Broken)) => "broken",
        };
        f.debug_struct("Awaited").field("state", &state).finish()
    }
}
