//! Requests: events that carry the promise of an answer. If the graph ends without an answer, the
//! asker's wait ends, too.

use std::time::Instant;

use crate::errors::{ClaimError, WaitError};
use crate::producer::handle::{Producer, sealed};
use crate::promise::{Awaited, Promise, promise};
use crate::ring::asked::Asked;
use crate::ring::slots::Layout;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Publishes a request. Like [`Producer::publish`], but `fill` also gets the promise of the
    /// answer, and puts it into the event. Returns the handle that waits for the answer.
    ///
    /// Unlike the halves of a [`promise`](crate::promise()), the answer knows its graph. A wait for
    /// it also ends if no stage can answer any more:
    ///
    /// - If the graph fails or is halted, the wait ends at once, with
    ///   [`AwaitError::Wait`](crate::errors::AwaitError::Wait).
    /// - If the ring is closed, the wait ends with [`WaitError::Closed`] once every stage has
    ///   passed the request. Before that, the answer may still come, because the stages drain a
    ///   closed ring.
    /// - If a stage fails at the request and skips it by its policy, the wait ends with
    ///   [`AwaitError::Skipped`](crate::errors::AwaitError::Skipped) once every other stage has
    ///   passed the request.
    ///
    /// The stage that answers takes the promise out of the event. It may hand the promise to
    /// another thread and release the event, and the answer may come later. If the graph ends
    /// meanwhile, the wait ends, but a later call still gets the value once the promise is
    /// fulfilled. If a promise must outlive its graph, use a bare [`promise`](crate::promise()).
    ///
    /// A handler may publish a request into its own ring. If only stages that wait for this handler
    /// could answer, a wait for the answer returns [`WaitError::WaitsForItself`]. The check assumes
    /// that a stage does not answer any more once it has passed the request. If such a stage has
    /// handed the promise to another thread, wait again.
    ///
    /// ```
    /// use slipring::{Promise, errors::{AwaitError, WaitError}};
    ///
    /// #[derive(Default)]
    /// struct Request {
    ///     number: i64,
    ///     answer: Option<Promise<i64>>,
    /// }
    ///
    /// let result = slipring::ring(8, Request::default)
    ///     .update("root", |request, _| {
    ///         if request.number < 0 {
    ///             return Err("a negative number");
    ///         }
    ///         if let Some(answer) = request.answer.take() {
    ///             // An error gives the value back: the asker has gone.
    ///             let _ = answer.fulfil(request.number.isqrt());
    ///         }
    ///         Ok(())
    ///     })
    ///     .run(|producer| {
    ///         let mut ask = |number| {
    ///             producer.ask(|request, answer| {
    ///                 *request = Request { number, answer: Some(answer) };
    ///             })
    ///         };
    ///         assert_eq!(ask(49)?.wait(), Ok(7));
    ///         // The stage fails before it takes the promise.
    ///         let failed = ask(-1)?.wait();
    ///         assert!(matches!(failed, Err(AwaitError::Wait(WaitError::Failed(_)))));
    ///         Ok(())
    ///     });
    /// assert_eq!(result.unwrap_err().stage(), Some("root"));
    /// ```
    ///
    /// A promise cannot be sent to another process. Between processes, a request names a
    /// `slipring_shm::promises::PromiseSegment` instead.
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// A call that returns an error has not called `fill`.
    ///
    /// # Panics
    /// A panic of `fill` fails the graph, as for [`Producer::publish`].
    ///
    /// # Cost
    /// A call costs a publication, an allocation for the value and its promise, and an increment of
    /// a reference count. Once a ring has had a request, its end wakes all sleeping askers. After
    /// the close, the end of each handle wakes them, too.
    #[doc(alias = "request")]
    pub fn ask<T>(
        &mut self,
        fill: impl FnOnce(&mut E, Promise<T>),
    ) -> Result<Awaited<T>, WaitError> {
        let seq = self.reserve_waiting()?;
        Ok(self.fill_request(seq, fill))
    }

    /// Like [`Producer::ask`], but never waits for room.
    ///
    /// ```
    /// use slipring::{Promise, errors::ClaimError};
    /// let (mut tx, mut rx) = slipring::unicast(1, || None::<Promise<u64>>)?;
    /// let mut answer = tx.try_ask(|event, answer| *event = Some(answer))?;
    /// let full = tx.try_ask(|event, answer: Promise<u64>| *event = Some(answer));
    /// assert!(matches!(full, Err(ClaimError::Gated { .. })));
    /// # let _ = rx.poll(1, |_, _| ())?;
    /// # drop((tx, rx)); // drops the promise that lies in the event
    /// assert_eq!(answer.wait(), Err(slipring::errors::AwaitError::Broken));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// # Panics
    /// A panic of `fill` fails the graph, as for [`Producer::ask`].
    pub fn try_ask<T>(
        &mut self,
        fill: impl FnOnce(&mut E, Promise<T>),
    ) -> Result<Awaited<T>, ClaimError> {
        let seq = self.try_reserve(1)?;
        Ok(self.fill_request(seq, fill))
    }

    /// Like [`Producer::ask`], but waits for room at most until `deadline`. The wait for the answer
    /// has its own deadline ([`Awaited::wait_until`]).
    ///
    /// ```
    /// use slipring::Promise;
    /// use std::time::{Duration, Instant};
    /// let (mut tx, _rx) = slipring::unicast(1, || None::<Promise<u64>>)?;
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// let mut answer = tx.ask_by(soon, |event, answer| *event = Some(answer))?;
    /// assert_eq!(answer.wait_until(soon), Err(slipring::errors::AwaitError::TimedOut));
    /// assert!(tx.ask_by(soon, |_, _: Promise<u64>| ()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free a slot.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// # Panics
    /// A panic of `fill` fails the graph, as for [`Producer::ask`].
    pub fn ask_by<T>(
        &mut self,
        deadline: Instant,
        fill: impl FnOnce(&mut E, Promise<T>),
    ) -> Result<Awaited<T>, ClaimError> {
        let seq = self.reserve_by(1, Some(deadline))?;
        Ok(self.fill_request(seq, fill))
    }

    /// Fills and publishes one claimed slot with a request.
    pub(crate) fn fill_request<T>(
        &mut self,
        seq: u64,
        fill: impl FnOnce(&mut E, Promise<T>),
    ) -> Awaited<T> {
        let (promise, awaited) = promise();
        // The asker is registered with the graph before the stages can see the request.
        let asked = Asked::of(&self.core().control, seq);
        self.fill(seq, |event| fill(event, promise));
        awaited.of_request(asked)
    }
}
