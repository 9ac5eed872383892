//! Futures and streams by which tasks gather batches: a number of events, or after some time.
//!
//! A task has no clock, so the caller passes the function by which its runtime sleeps.
//!
//! Invariants
//! - I1: a pending future has registered its waker in the wait queue, and its sleep has the waker,
//!   too. So the task is woken by progress and by the end of the time.
//! - I2: a future that is dropped before it is done was lent no event. The time of the oldest event
//!   goes on in the handle (`gather::I1`).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::base::sync::now;
use crate::consumer::batch::Batch;
use crate::consumer::gather::{Gather, has_nothing_to_wait_for};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::sealed as lease;
use crate::consumer::position::{Availability, ConsumerPosition};
use crate::consumer::waiting::Waiting;
use crate::errors::WaitError;
use crate::ring::slots::{Interleaved, Layout};

/// A batch that a task gathers, and its sleep.
struct Gathering<S> {
    max: usize,
    time: Duration,
    /// The batch, and the sleep until its time is over; `None` before the first event.
    growing: Option<(Gather, Pin<Box<S>>)>,
}

impl<S: Future> Gathering<S> {
    fn new(max: usize, time: Duration) -> Self {
        Gathering { max, time, growing: None }
    }

    /// Returns the number of events of the batch, or registers the task. `sleep` is called once for
    /// a batch that waits.
    fn poll<E, A: lease::Access, C: lease::Delivery, L: Layout>(
        &mut self,
        consumer: &mut Consumer<E, A, C, L>,
        sleep: &mut impl FnMut(Duration) -> S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<u64, WaitError>> {
        let len = ready!(consumer.available_or_arm(self.max, cx.waker()))?;
        let max = self.max as u64;
        if len == max || self.time.is_zero() {
            return Poll::Ready(Ok(len));
        }
        let (gather, sleeping) = self.growing.get_or_insert_with(|| {
            let gather = consumer.gather((max, self.time));
            let left = gather.deadline.saturating_duration_since(now());
            (gather, Box::pin(sleep(left)))
        });
        loop {
            let position = consumer.position();
            position.check()?;
            let len = position.grow(max);
            let is_over = len == max || has_nothing_to_wait_for(position, gather, len)?;
            if is_over || sleeping.as_mut().poll(cx).is_ready() {
                position.disarm();
                return Poll::Ready(Ok(len));
            }
            // As a thread does, a task hears of a dead process at the next call without an event.
            let dead = consumer.refused_at(gather.end);
            let position = consumer.position();
            if dead.is_some() {
                position.disarm();
                position.check()?; // the death may have failed the graph
                return Poll::Ready(Ok(len));
            }
            if !position.arm_for(cx.waker(), Some(gather)) {
                position.state_mut().budget.refill();
                return Poll::Pending;
            }
        }
    }
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Like [`Consumer::batch_within`], but for a task instead of a thread. `sleep` makes a future
    /// that is done after the given time. It is the `sleep` of the task's runtime, such as
    /// `tokio::time::sleep`, and is called only if the batch waits for more events.
    ///
    /// Dropping the future before it is done loses no event, and the time of the oldest event goes
    /// on: the next call sleeps only for the rest. A sleep that ends early ends the batch early.
    ///
    /// A batch that waits for more events allocates one box for its sleep, and each publication
    /// wakes its task. [`Consumer::batch_async`] documents when a task is woken, and when it lets
    /// other tasks run.
    ///
    /// ```
    /// # use std::{future::{Future, pending}, pin::pin, task::{Context, Poll, Waker}};
    /// use std::time::Duration;
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// # let sleep = |_: Duration| pending::<()>();
    /// let mut gathering = pin!(rx.batch_within_async(2, Duration::from_millis(50), sleep));
    /// tx.publish(|v| *v = 1)?;
    /// assert!(gathering.as_mut().poll(&mut cx).is_pending());
    /// tx.publish(|v| *v = 2)?;
    /// let Poll::Ready(batch) = gathering.poll(&mut cx) else { panic!("two events") };
    /// assert!(batch?.iter().eq(&[1, 2]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    pub fn batch_within_async<S: Future, F: FnMut(Duration) -> S>(
        &mut self,
        max: usize,
        time: Duration,
        sleep: F,
    ) -> BatchWithinAsync<'_, E, A, C, S, F, L> {
        BatchWithinAsync { consumer: Some(self), gathering: Gathering::new(max, time), sleep }
    }
}

/// The future of [`Consumer::batch_within_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct BatchWithinAsync<
    'c,
    E,
    A: lease::Access,
    C: lease::Delivery,
    S,
    F,
    L: Layout = Interleaved,
> {
    /// `None` once the future is done.
    consumer: Option<&'c mut Consumer<E, A, C, L>>,
    gathering: Gathering<S>,
    sleep: F,
}

/// The future pins none of its fields; its sleep is in a box.
impl<E, A: lease::Access, C: lease::Delivery, S, F, L: Layout> Unpin
    for BatchWithinAsync<'_, E, A, C, S, F, L>
{
}

impl<'c, E, A, C, S, F, L> Future for BatchWithinAsync<'c, E, A, C, S, F, L>
where
    A: lease::Access,
    C: lease::Delivery,
    S: Future,
    F: FnMut(Duration) -> S,
    L: Layout,
{
    type Output = Result<Batch<'c, E, A, C, L>, WaitError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let BatchWithinAsync { consumer, gathering, sleep } = &mut *self;
        let handle = consumer.as_mut().expect("the future was polled after it was done");
        let len = ready!(gathering.poll(handle, sleep, cx))?;
        let handle = consumer.take().expect("the future held its handle a moment ago");
        Poll::Ready(Ok(handle.lend(len)))
    }
}

impl<E, A: lease::Access, C: lease::Delivery, S, F, L: Layout> Drop
    for BatchWithinAsync<'_, E, A, C, S, F, L>
{
    fn drop(&mut self) {
        if let Some(consumer) = &mut self.consumer {
            consumer.position().disarm();
        }
    }
}

/// A `Stream` of vectors of values that are cloned or mapped from events. Needs the feature
/// `stream`.
///
/// [`Consumer::into_chunks_within`] returns it. The stream ends when the ring is closed and
/// drained; after a halt or a failure, its last item is an `Err`.
#[cfg(feature = "stream")]
#[must_use = "streams do nothing unless they are polled"]
pub struct ChunkStream<E, A: lease::Access, C: lease::Delivery, S, F, M, L: Layout = Interleaved> {
    consumer: Consumer<E, A, C, L>,
    gathering: Gathering<S>,
    sleep: F,
    map: M,
    ended: bool,
}

#[cfg(feature = "stream")]
impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Turns this consumer into a stream of vectors, each of which has the values of one batch of
    /// [`Consumer::batch_within_async`]. `map` makes each value from an event, for example
    /// `|event, _| event.clone()`. The stream releases a batch when its values are made, because a
    /// stream's items cannot lend events.
    ///
    /// If `max` is 0, the vectors are empty, and the stream never ends. If `map` panics, the stream
    /// releases no event of the batch.
    ///
    /// ```
    /// use futures_core::Stream;
    /// use std::time::Duration;
    /// # use std::{future::pending, pin::pin, task::{Context, Poll, Waker}};
    /// let (mut tx, rx) = slipring::unicast(8, String::new)?;
    /// # let sleep = |_: Duration| pending::<()>();
    /// let time = Duration::from_millis(50);
    /// let mut lengths = pin!(rx.into_chunks_within(2, time, sleep, |text, _| text.len()));
    /// for text in ["one", "three", "five"] { tx.publish(|slot| slot.push_str(text))?; }
    /// drop(tx); // closes the ring
    /// let mut cx = Context::from_waker(Waker::noop());
    /// for lengths_of_batch in [vec![3, 5], vec![4]] {
    ///     let Poll::Ready(Some(next)) = lengths.as_mut().poll_next(&mut cx) else { panic!() };
    ///     assert_eq!(next?, lengths_of_batch);
    /// }
    /// assert!(matches!(lengths.as_mut().poll_next(&mut cx), Poll::Ready(None)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_chunks_within<T, S, F, M>(
        self,
        max: usize,
        time: Duration,
        sleep: F,
        map: M,
    ) -> ChunkStream<E, A, C, S, F, M, L>
    where
        S: Future,
        F: FnMut(Duration) -> S,
        M: FnMut(&E, crate::At) -> T,
    {
        let gathering = Gathering::new(max, time);
        ChunkStream { consumer: self, gathering, sleep, map, ended: false }
    }
}

#[cfg(feature = "stream")]
impl<E, A: lease::Access, C: lease::Delivery, S, F, M, L: Layout> Unpin
    for ChunkStream<E, A, C, S, F, M, L>
{
}

#[cfg(feature = "stream")]
impl<E, A, C, S, F, M, T, L> futures_core::Stream for ChunkStream<E, A, C, S, F, M, L>
where
    A: lease::Access,
    C: lease::Delivery,
    S: Future,
    F: FnMut(Duration) -> S,
    M: FnMut(&E, crate::At) -> T,
    L: Layout,
{
    type Item = Result<Vec<T>, WaitError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let ChunkStream { consumer, gathering, sleep, map, ended } = &mut *self;
        if *ended {
            return Poll::Ready(None);
        }
        let polled = ready!(gathering.poll(consumer, sleep, cx));
        gathering.growing = None;
        match polled {
            Ok(len) => {
                let batch = consumer.lend(len);
                let at = |offset| crate::At { seq: batch.first_seq().wrapping_add(offset) };
                let values = batch.iter().zip(0..).map(|(event, offset)| map(event, at(offset)));
                let values = values.collect();
                batch.release();
                Poll::Ready(Some(Ok(values)))
            }
            Err(error) => {
                *ended = true;
                Poll::Ready((!matches!(error, WaitError::Closed)).then_some(Err(error)))
            }
        }
    }
}
