//! Futures by which tasks of any runtime claim slots, publish events and take batches.
//!
//! The futures lend slots in place, without a copy. A waiting task blocks no thread.
//!
//! Invariants
//! - I1: a pending future has registered its waker in the wait queue, by the same steps as a thread
//!   that goes to sleep there (queue::I1, reactor::I1); its drop removes the waker. If the handle
//!   had spent its budget, the future has woken its task instead, and the handle's next poll finds
//!   a new budget. So the task runs again even if this future is dropped.
//! - I2: a future that is dropped before it is done has claimed no slot and was lent no event.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::consumer::batch::Batch;
use crate::consumer::handle::Consumer;
use crate::consumer::markers::sealed as lease;
#[cfg(feature = "stream")]
use crate::consumer::position::ConsumerPosition;
#[cfg(feature = "stream")]
use crate::consumer::waiting::Counting;
use crate::consumer::waiting::Waiting;
use crate::errors::{ClaimError, WaitError};
use crate::producer::claim::Slots;
use crate::producer::{Producer, sealed as producer};
use crate::promise::{Awaited, Promise};
use crate::ring::slots::{Interleaved, Layout};

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Like [`Consumer::batch`], but for a task instead of a thread. The future yields up to `max`
    /// events as soon as at least one is available.
    ///
    /// Dropping the future before it is done loses no event. Progress, a close or a failure wakes
    /// the task if the graph's wait strategy parks, as [`Wait::Blocking`](crate::Wait::Blocking)
    /// and the default [`Wait::ADAPTIVE`](crate::Wait::ADAPTIVE) do. If the strategy does not park,
    /// the task asks to be polled again at once, and so keeps its executor busy.
    ///
    /// At a ring between processes, the first task that waits starts a thread (`slipring-tasks`),
    /// one per ring and wait queue. This thread sleeps in the kernel on behalf of all tasks that
    /// wait in its queue, and runs their wakers, so a waker that blocks holds up the other tasks of
    /// the queue. The thread checks for dead processes once in each notice interval, and ends with
    /// the ring's last handle. If the system refuses the thread, the task asks to be polled again
    /// at once.
    ///
    /// The graph's own [`deadline`](crate::Graph::deadline) wakes no task. A task notices only at
    /// its next poll that the deadline has passed, so use the runtime's timeouts.
    ///
    /// A task lets the other tasks of its thread run, even if its ring always has events: from time
    /// to time, a future of the handle wakes its task and returns *pending* once. That happens once
    /// at least 15 results in a row have taken about 100 µs, and after 511 results in any case. The
    /// future has taken no event, and its next poll succeeds. After a wait, the count of results
    /// starts again at 0.
    ///
    /// So if a program polls the futures itself, with a waker that does nothing, at least 15 polls
    /// in a row find an available event; a later poll may be pending once. Counting the results
    /// adds about a nanosecond to each of them.
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output {
    /// #     let mut f = std::pin::pin!(f);
    /// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop { if let std::task::Poll::Ready(v) = f.as_mut().poll(&mut cx) { return v } }
    /// # }
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let sum = block_on(async {
    ///     for i in 0..8 { tx.publish_async(|v| *v = i).await?; }
    ///     tx.close();
    ///     let mut sum = 0;
    ///     while let Ok(batch) = rx.batch_async(4).await {
    ///         sum += batch.iter().sum::<u64>();
    ///         batch.release();
    ///     }
    ///     Ok::<_, slipring::errors::WaitError>(sum)
    /// });
    /// assert_eq!(sum?, 28);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    pub fn batch_async(&mut self, max: usize) -> BatchAsync<'_, E, A, C, L> {
        BatchAsync { consumer: Some(self), max }
    }
}

impl<E, L: Layout, S: producer::Sharing> Producer<E, L, S> {
    /// Like [`Producer::publish`], but for a task instead of a thread. `fill` runs when a slot is
    /// free. A future that is dropped before it is done publishes nothing.
    ///
    /// [`Consumer::batch_async`] documents when a task is woken, and when it lets other tasks run
    /// although the ring has room.
    ///
    /// Example: [`Consumer::batch_async`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    pub fn publish_async<F: FnOnce(&mut E)>(&mut self, fill: F) -> PublishAsync<'_, E, F, L, S> {
        PublishAsync { producer: self, fill: Some(fill) }
    }

    /// Like [`Producer::ask`], but for a task instead of a thread. The future yields the answer's
    /// handle, which is itself a future. A future that is dropped before it is done publishes no
    /// request.
    ///
    /// [`Consumer::batch_async`] documents when a task is woken.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// use slipring::{Promise, errors::AwaitError};
    /// let (mut tx, rx) = slipring::unicast(8, || None::<Promise<u64>>)?;
    /// let asking = async {
    ///     let answer = tx.ask_async(|event, answer| *event = Some(answer)).await?;
    ///     Ok::<u64, Box<dyn std::error::Error>>(answer.await?)
    /// };
    /// # let mut asking = pin!(asking);
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// # assert!(asking.as_mut().poll(&mut cx).is_pending());
    /// drop(rx); // ends the graph, so the answer never comes
    /// # let Poll::Ready(result) = asking.poll(&mut cx) else { panic!("ended") };
    /// # let error = result.unwrap_err();
    /// assert!(matches!(error.downcast_ref(), Some(AwaitError::Wait(_))));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    pub fn ask_async<T, F: FnOnce(&mut E, Promise<T>)>(
        &mut self,
        fill: F,
    ) -> AskAsync<'_, E, T, F, L, S> {
        AskAsync { producer: self, fill: Some(fill), answer: PhantomData }
    }

    /// Like [`Producer::claim_n`], but for a task instead of a thread. A future that is dropped
    /// before it is done claims no slot.
    ///
    /// [`Consumer::batch_async`] documents when a task is woken, and when it lets other tasks run
    /// although the ring has room.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0)?;
    /// let claimed = async {
    ///     let mut claim = tx.claim_n_async(2).await?;
    ///     claim[0] = 1;
    ///     claim[1] = 2;
    ///     Ok::<_, slipring::errors::ClaimError>(claim.publish())
    /// };
    /// # let polled = pin!(claimed).poll(&mut Context::from_waker(Waker::noop()));
    /// # assert!(matches!(polled, Poll::Ready(Ok(0))));
    /// assert_eq!(rx.poll(8, |_, _| ())?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn claim_n_async(&mut self, len: usize) -> ClaimAsync<'_, E, L, S> {
        ClaimAsync { producer: Some(self), len }
    }
}

/// The future of [`Consumer::batch_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct BatchAsync<'c, E, A: lease::Access, C: lease::Delivery, L: Layout = Interleaved> {
    /// `None` once the future is done.
    consumer: Option<&'c mut Consumer<E, A, C, L>>,
    max: usize,
}

impl<'c, E, A: lease::Access, C: lease::Delivery, L: Layout> Future for BatchAsync<'c, E, A, C, L> {
    type Output = Result<Batch<'c, E, A, C, L>, WaitError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let max = self.max;
        let consumer = self.consumer.as_mut().expect("the future was polled after it was done");
        let len = ready!(consumer.available_or_arm(max, cx.waker()))?;
        let consumer = self.consumer.take().expect("the future held its handle a moment ago");
        Poll::Ready(Ok(consumer.lend(len)))
    }
}

impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Drop for BatchAsync<'_, E, A, C, L> {
    fn drop(&mut self) {
        if let Some(consumer) = &mut self.consumer {
            consumer.position().disarm();
        }
    }
}

/// The future of [`Producer::publish_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct PublishAsync<
    'p,
    E,
    F,
    L: Layout = Interleaved,
    S: producer::Sharing = crate::markers::Single,
> {
    producer: &'p mut Producer<E, L, S>,
    /// `None` once the future is done.
    fill: Option<F>,
}

/// The future pins none of its fields.
impl<E, F, L: Layout, S: producer::Sharing> Unpin for PublishAsync<'_, E, F, L, S> {}

impl<E, F: FnOnce(&mut E), L: Layout, S: producer::Sharing> Future
    for PublishAsync<'_, E, F, L, S>
{
    type Output = Result<u64, WaitError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.fill.is_some(), "the future was polled after it was done");
        let seq = ready!(self.producer.reserve_or_arm(1, cx.waker()))?;
        if let Some(fill) = self.fill.take() {
            self.producer.fill(seq, fill);
        }
        Poll::Ready(Ok(seq))
    }
}

impl<E, F, L: Layout, S: producer::Sharing> Drop for PublishAsync<'_, E, F, L, S> {
    fn drop(&mut self) {
        if self.fill.is_some() {
            self.producer.disarm();
        }
    }
}

/// The future of [`Producer::ask_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct AskAsync<
    'p,
    E,
    T,
    F,
    L: Layout = Interleaved,
    S: producer::Sharing = crate::markers::Single,
> {
    producer: &'p mut Producer<E, L, S>,
    /// `None` once the future is done.
    fill: Option<F>,
    answer: PhantomData<fn() -> T>,
}

/// The future pins none of its fields.
impl<E, T, F, L: Layout, S: producer::Sharing> Unpin for AskAsync<'_, E, T, F, L, S> {}

impl<E, T, F: FnOnce(&mut E, Promise<T>), L: Layout, S: producer::Sharing> Future
    for AskAsync<'_, E, T, F, L, S>
{
    type Output = Result<Awaited<T>, WaitError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.fill.is_some(), "the future was polled after it was done");
        let seq = ready!(self.producer.reserve_or_arm(1, cx.waker()))?;
        let fill = self.fill.take().expect("the future held its closure a moment ago");
        Poll::Ready(Ok(self.producer.fill_request(seq, fill)))
    }
}

impl<E, T, F, L: Layout, S: producer::Sharing> Drop for AskAsync<'_, E, T, F, L, S> {
    fn drop(&mut self) {
        if self.fill.is_some() {
            self.producer.disarm();
        }
    }
}

/// The future of [`Producer::claim_n_async`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct ClaimAsync<'p, E, L: Layout = Interleaved, S: producer::Sharing = crate::markers::Single>
{
    /// `None` once the future is done.
    producer: Option<&'p mut Producer<E, L, S>>,
    len: usize,
}

impl<'p, E, L: Layout, S: producer::Sharing> Future for ClaimAsync<'p, E, L, S> {
    type Output = Result<Slots<'p, E, L, S>, ClaimError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let len = self.len;
        let producer = self.producer.as_mut().expect("the future was polled after it was done");
        producer.check_length(len)?;
        let seq = ready!(producer.reserve_or_arm(len as u64, cx.waker()))?;
        let producer = self.producer.take().expect("the future held its handle a moment ago");
        Poll::Ready(Ok(producer.lend(seq, len)))
    }
}

impl<E, L: Layout, S: producer::Sharing> Drop for ClaimAsync<'_, E, L, S> {
    fn drop(&mut self) {
        if let Some(producer) = &mut self.producer {
            producer.disarm();
        }
    }
}

/// A `Stream` of values that are cloned or mapped from events. Needs the feature `stream`.
///
/// [`Consumer::into_stream`] returns it. The stream ends when the ring is closed and drained; after
/// a halt or a failure, its last item is an `Err`. It releases events in batches of up to an eighth
/// of the ring (at most 64 events), and always before it is pending. A stream that is no longer
/// polled may hold up to one batch. Even if it always has items, it lets other tasks run, as
/// [`Consumer::batch_async`] does; each item counts as a result.
///
/// Example: [`Consumer::into_stream`].
#[cfg(feature = "stream")]
#[must_use = "streams do nothing unless they are polled"]
pub struct EventStream<E, A: lease::Access, C: lease::Delivery, F, L: Layout = Interleaved> {
    consumer: Consumer<E, A, C, L>,
    map: F,
    /// Number of found events that the stream has not yielded.
    left: u64,
    ended: bool,
}

#[cfg(feature = "stream")]
impl<E, A: lease::Access, C: lease::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Turns this consumer into a stream of values. `map` makes each value from an event, for
    /// example `|event, _| event.clone()`.
    ///
    /// ```
    /// use futures_core::Stream;
    /// let (mut tx, rx) = slipring::unicast(8, String::new)?;
    /// let mut lengths = std::pin::pin!(rx.into_stream(|text, _| text.len()));
    /// tx.publish(|text| text.push_str("four"))?;
    /// let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    /// assert!(matches!(lengths.as_mut().poll_next(&mut cx), std::task::Poll::Ready(Some(Ok(4)))));
    /// assert!(lengths.as_mut().poll_next(&mut cx).is_pending());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_stream<T, F: FnMut(&E, crate::At) -> T>(
        self,
        map: F,
    ) -> EventStream<E, A, C, F, L> {
        EventStream { consumer: self, map, left: 0, ended: false }
    }
}

#[cfg(feature = "stream")]
impl<E, A: lease::Access, C: lease::Delivery, F, L: Layout> Unpin for EventStream<E, A, C, F, L> {}

#[cfg(feature = "stream")]
impl<E, A: lease::Access, C: lease::Delivery, T, F: FnMut(&E, crate::At) -> T, L: Layout>
    futures_core::Stream for EventStream<E, A, C, F, L>
{
    type Item = Result<T, WaitError>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if this.left == 0 {
            let most = (this.consumer.position().state().core.capacity() / 8).clamp(1, 64) as usize;
            match ready!(this.consumer.available_or_arm(most, cx.waker())) {
                Ok(len) => this.left = len,
                Err(error) => {
                    this.ended = true;
                    return Poll::Ready(if matches!(error, WaitError::Closed) {
                        None
                    } else {
                        Some(Err(error))
                    });
                }
            }
        } else if this.consumer.position().state_mut().budget.spend(cx.waker()).is_pending() {
            // The release lets producers continue while the other tasks run.
            this.consumer.position().release();
            return Poll::Pending;
        }
        let value = {
            let batch = this.consumer.lend(1);
            (this.map)(&batch[0], crate::At { seq: batch.first_seq() })
        };
        this.left -= 1;
        let position = this.consumer.position();
        position.advance(1, 1);
        if this.left == 0 {
            position.count_batch();
            position.release();
        }
        Poll::Ready(Some(Ok(value)))
    }
}

#[cfg(feature = "stream")]
impl<E, A: lease::Access, C: lease::Delivery, F, L: Layout> Drop for EventStream<E, A, C, F, L> {
    fn drop(&mut self) {
        // A forked child must not touch the memory of a segment, because it is not mapped there.
        if self.consumer.state().control().is_own_process() {
            self.consumer.position().release();
            self.consumer.position().disarm();
        }
    }
}
