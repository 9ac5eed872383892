//! [`Consumer::batch_within`]: a batch of a number of events, or after some time.
//!
//! The module [`gather`](crate::consumer::gather) states the invariants.

use std::time::{Duration, Instant};

use crate::base::sync::now;
use crate::consumer::batch::Batch;
use crate::consumer::gather::{Gather, has_nothing_to_wait_for};
use crate::consumer::handle::Consumer;
use crate::consumer::markers::sealed;
use crate::consumer::position::{Availability, ConsumerPosition};
use crate::consumer::waiting::Waiting;
use crate::errors::{BatchError, WaitError};
use crate::ring::slots::Layout;
use crate::ring::waits::Unmet;

impl<E, A: sealed::Access, C: sealed::Delivery, L: Layout> Consumer<E, A, C, L> {
    /// Lends a batch of `max` events or, once its oldest event has waited for `time`, the events
    /// that are there, at least one. It suits a program that sends "up to 1,000 records, or what
    /// came in 50 ms".
    ///
    /// The call waits for a first event as [`Consumer::batch`] does. Then it waits for more events,
    /// and returns at the first of these moments:
    /// - `max` events are there. With a backlog, the call returns at once, and reads no clock.
    /// - `time` has passed since a call of this handle first found the oldest event. If a batch was
    ///   dropped without a release, the time of its first event goes on.
    /// - The stream ends. The call returns the rest, and the next call the error.
    /// - No event can be added: the events of the batch, and the events that this handle
    ///   [holds](Batch::hold) or that later stages have not released, fill the ring; or the next
    ///   position was given up.
    /// - Only the waiting thread itself could bring the next event, or, between processes, a
    ///   process that has died. The next call that finds no event returns the error.
    ///
    /// If `max` is 0, the call returns an empty batch at once. If `max` is 1 or `time` is zero, the
    /// call returns what [`Consumer::batch`] would. The wait strategy's timeout ends only the wait
    /// for the first event. A graph's [deadline](crate::Graph::deadline) ends both waits.
    ///
    /// | handle | a batch ends |
    /// |---|---|
    /// | [`Reader`](crate::Reader), [`Updater`](crate::Updater), [`Subscription`](crate::handles::Subscription) | as above |
    /// | shard | also before the next event of another shard, because a batch has consecutive positions |
    /// | pool's worker | at the end of its chunk: the workers share the events, so the call waits for no second event, whatever `time` is |
    ///
    /// While the batch grows, its events stay unreleased. So the ring should be a few times as
    /// large as `max`: a producer that claims several slots at once may find fewer free, and then
    /// waits until the batch is released. If several stages in a row gather, the sum of their
    /// batches counts: in a ring that is too small for that sum, or that a slow later stage keeps
    /// full, an earlier stage gets shorter batches.
    ///
    /// A strategy that would sleep until the next publication takes naps by a timer instead, each
    /// as long as the rest of the batch should take to come, but no longer than a millisecond or an
    /// eighth of `time`. So in a steady stream no publication has to wake the reader, and a full
    /// batch, or the end of the stream, may be noticed late by a nap. After a nap without an event,
    /// the next publication wakes the reader.
    ///
    /// ```
    /// use std::time::Duration;
    /// let (mut tx, mut rx) = slipring::unicast(64, || 0u64)?;
    /// std::thread::spawn(move || tx.publish_all(0..100, |slot, i| *slot = i)); // and closes
    /// let mut batches = Vec::new();
    /// while let Ok(batch) = rx.batch_within(16, Duration::from_secs(60)) {
    ///     batches.push(batch.len());
    ///     batch.release();
    /// }
    /// assert_eq!(batches, [16, 16, 16, 16, 16, 16, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: no more events come.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited event.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// After a halt, a failure, or a request to leave, the call returns no events, even if some
    /// were there.
    pub fn batch_within(
        &mut self,
        max: usize,
        time: Duration,
    ) -> Result<Batch<'_, E, A, C, L>, WaitError> {
        match self.wait_within(max, time, None) {
            Ok(len) => Ok(self.lend(len)),
            Err(Unmet::Ended(closed)) => Err(closed),
            Err(Unmet::TimedOut) => Err(WaitError::TimedOut(self.awaited())),
        }
    }

    /// Like [`Consumer::batch_within`], but waits at most until `deadline`. If events are there at
    /// the deadline, the call lends them. The wait strategy's own timeout does not apply to this
    /// call.
    ///
    /// ```
    /// use slipring::errors::BatchError;
    /// use std::time::{Duration, Instant};
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0u64)?;
    /// let (hour, soon) = (Duration::from_secs(3600), Instant::now() + Duration::from_millis(1));
    /// assert!(matches!(rx.batch_within_by(8, hour, soon), Err(BatchError::TimedOut(_))));
    /// tx.publish(|v| *v = 7)?;
    /// assert_eq!(rx.batch_within_by(8, hour, soon)?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed, and no event was there.
    /// - [`BatchError::Wait`]: no event will come any more, or only this thread could release it.
    /// - [`BatchError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    pub fn batch_within_by(
        &mut self,
        max: usize,
        time: Duration,
        deadline: Instant,
    ) -> Result<Batch<'_, E, A, C, L>, BatchError> {
        match self.wait_within(max, time, Some(deadline)) {
            Ok(len) => Ok(self.lend(len)),
            Err(Unmet::Ended(closed)) => Err(closed.into()),
            Err(Unmet::TimedOut) => Err(BatchError::TimedOut(self.awaited())),
        }
    }

    /// Waits for a first event, and for more events for at most `time`. Returns the number of
    /// available events, at most `max`.
    #[inline]
    fn wait_within(
        &mut self,
        max: usize,
        time: Duration,
        deadline: Option<Instant>,
    ) -> Result<u64, Unmet> {
        let len = self.wait_for(max, deadline)?;
        if len == max as u64 || time.is_zero() {
            return Ok(len);
        }
        self.wait_for_more((max as u64, time), deadline)
    }

    #[cold]
    fn wait_for_more(
        &mut self,
        (max, time): (u64, Duration),
        deadline: Option<Instant>,
    ) -> Result<u64, Unmet> {
        let mut gather = self.gather((max, time));
        let until = deadline.into_iter().fold(gather.deadline, Instant::min);
        loop {
            let len = self.position.grow(max);
            let is_full = len == max;
            if is_full || has_nothing_to_wait_for(&mut self.position, &mut gather, len)? {
                return Ok(len);
            }
            if now() >= until {
                return Ok(len);
            }
            let waited = self.position.wait_gathering(&mut gather, until);
            self.position.check()?;
            // The wait would not end in time, because of this thread or of a dead process. The next
            // call that finds no event returns the reason.
            if let Err(Unmet::Ended(_)) = waited {
                return Ok(self.position.grow(max));
            }
        }
    }

    /// Begins to gather a batch, of which the handle has found at least one event.
    pub(crate) fn gather(&mut self, option: (u64, Duration)) -> Gather {
        let events = (self.position.next(), self.position.known_until());
        Gather::begin(&mut self.position.state_mut().oldest, option, events)
    }
}
