//! Futures by which tasks of any runtime wait for a mirror's values.
//!
//! Invariants
//! - I1: a pending future has registered its waker in the mirror's wait queue, or has woken its
//!   task (observer::I3). Its drop removes the waker.
//! - I2: a future that is dropped before it is done has skipped no value that its observer does not
//!   count as missed later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::errors::ObserveError;
use crate::observe::observer::{Look, Observed, Observer};
use crate::observe::words::Plain;

impl<T: Plain> Observer<T> {
    /// Like [`next`](Iterator::next), but for a task instead of a thread. The future yields the
    /// next value, or [`ObserveError::Closed`] at the end.
    ///
    /// A put, or the mirror's end, wakes the task, whatever [`Observer::wait`] says. Dropping the
    /// future before it is done loses no value. If values always come, a future lets the other
    /// tasks of its thread run from time to time, as [`Consumer::batch_async`] does.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use slipring::errors::ObserveError;
    /// let mut mirror = slipring::Mirror::new(2)?;
    /// let mut observer = mirror.handle().observe();
    /// let observing = async {
    ///     let (mut seen, mut missed) = (0, 0);
    ///     loop {
    ///         match observer.next_async().await {
    ///             Ok(next) => (seen, missed) = (seen + 1, missed + next.missed),
    ///             Err(end) => return (seen, missed, end),
    ///         }
    ///     }
    /// };
    /// # let mut observing = pin!(observing);
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// # assert!(observing.as_mut().poll(&mut cx).is_pending());
    /// for price in 0..10u64 { mirror.put(price, &price); } // wakes the task once
    /// drop(mirror);
    /// # let Poll::Ready(found) = observing.poll(&mut cx) else { panic!("the mirror is closed") };
    /// # /*
    /// let found = observing.await;
    /// # */
    /// assert_eq!(found, (1, 9, ObserveError::Closed));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
    ///
    /// # Cost
    /// A task that waits costs the next put the call of its waker.
    ///
    /// [`Consumer::batch_async`]: crate::Consumer::batch_async
    pub fn next_async(&mut self) -> ObserveAsync<'_, T> {
        ObserveAsync { observer: Some(self), look: Observer::try_next }
    }

    /// Like [`latest`](Observer::latest), but for a task instead of a thread. The future yields the
    /// newest value, as soon as there is one that this observer has not returned.
    ///
    /// [`Observer::next_async`] documents when a task is woken, and what that costs.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut observer = mirror.handle().observe();
    /// for price in [10, 11, 12u64] { mirror.put(0, &price); }
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// # let Poll::Ready(newest) = pin!(observer.latest_async()).poll(&mut cx) else { panic!() };
    /// # /*
    /// let newest = observer.latest_async().await;
    /// # */
    /// assert_eq!(newest.map(|it| (it.value, it.missed)), Ok((12, 2)));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ObserveError::Closed`]: the mirror is closed, and has no value left.
    pub fn latest_async(&mut self) -> ObserveAsync<'_, T> {
        ObserveAsync { observer: Some(self), look: Observer::try_latest }
    }

    /// Turns this observer into a stream of the values that it does not miss. The stream ends when
    /// the mirror is closed and drained.
    ///
    /// ```
    /// use futures_core::Stream;
    /// # use std::task::{Context, Poll, Waker};
    /// let mut mirror = slipring::Mirror::new(4)?;
    /// let mut prices = std::pin::pin!(mirror.handle().observe().into_stream());
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// assert!(prices.as_mut().poll_next(&mut cx).is_pending());
    /// mirror.put(0, &10u64);
    /// let Poll::Ready(Some(seen)) = prices.as_mut().poll_next(&mut cx) else { panic!("a value") };
    /// assert_eq!((seen.value, seen.missed), (10, 0));
    /// drop(mirror);
    /// assert_eq!(prices.poll_next(&mut cx), Poll::Ready(None));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[cfg(feature = "stream")]
    pub fn into_stream(self) -> ObserverStream<T> {
        ObserverStream(self)
    }
}

/// The future of [`Observer::next_async`] and [`Observer::latest_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct ObserveAsync<'o, T> {
    /// `None` once the future is done.
    observer: Option<&'o mut Observer<T>>,
    look: Look<T>,
}

impl<T: Plain> Future for ObserveAsync<'_, T> {
    type Output = Result<Observed<T>, ObserveError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let look = self.look;
        let observer = self.observer.as_mut().expect("the future was polled after it was done");
        let found = ready!(observer.look_or_arm(look, cx.waker()));
        self.observer = None;
        Poll::Ready(found)
    }
}

impl<T> Drop for ObserveAsync<'_, T> {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.disarm();
        }
    }
}

impl<T> fmt::Debug for ObserveAsync<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserveAsync").field("observer", &self.observer).finish_non_exhaustive()
    }
}

/// The stream of [`Observer::into_stream`].
#[cfg(feature = "stream")]
#[derive(Debug)]
pub struct ObserverStream<T>(Observer<T>);

#[cfg(feature = "stream")]
impl<T: Plain> futures_core::Stream for ObserverStream<T> {
    type Item = Observed<T>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Observed<T>>> {
        self.0.look_or_arm(Observer::try_next, cx.waker()).map(Result::ok)
    }
}
