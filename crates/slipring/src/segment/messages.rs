//! Messages of any length over a segment's ring of cells. The module
//! [`message_batch`](super::message_batch) says how a message lies in its cells.
//!
//! Invariants
//! - I1: a message is one publication of at most `MAX_RUN` cells, so a stage sees it as a whole or
//!   not at all. A stage releases only whole messages, so each handle starts at a header.

use std::fmt;
use std::time::{Duration, Instant};

use super::block_batch::BlockBatch;
use super::blocks::{BlockConsumer, BlockProducer};
use super::message_batch::{
    CELL, Count, HEADER, MAX_MESSAGE, Message, MessageBatch, PADDING, cells_of, checked,
    store_header,
};
use super::passes::passes;
use super::raw_blocks::{BlockStart, RawBlockProducer};
use crate::base::fault::debug_is_message;
use crate::consumer::markers::{Reading, sealed as lease};
use crate::errors::{BatchError, ClaimError, WaitError, error::Error};
use crate::processes::layout::InSegment;
use crate::processes::markers::Succeeds;
use crate::producer::{Producer, Single, sealed as sharing};
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Strided;

/// Number of failed claims after which a call that does not wait gives up. A claim fails if its
/// cells would lie on both sides of the ring's end.
const TRIES: usize = 8;

/// Reason why a message was not published.
#[derive(Clone)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is longer than the ring has room for.
    TooLong {
        /// Length of the message, in bytes.
        bytes: usize,
        /// Maximum length of a message in this ring, in bytes.
        most: usize,
    },
    /// The cells could not be claimed.
    Claim(ClaimError),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::TooLong { bytes, most } => write!(
                f,
                "a message of {bytes} bytes is too long for this ring, which takes {most} at most: make the segment with a larger capacity, or send the message in parts"
            ),
            MessageError::Claim(reason) => reason.fmt(f),
        }
    }
}

debug_is_message!(MessageError);

impl std::error::Error for MessageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MessageError::TooLong { .. } => None,
            MessageError::Claim(reason) => reason.source(),
        }
    }
}

impl From<ClaimError> for MessageError {
    fn from(reason: ClaimError) -> Self {
        MessageError::Claim(reason)
    }
}

impl From<MessageError> for Error {
    fn from(error: MessageError) -> Error {
        match error {
            MessageError::Claim(ClaimError::Wait(reason @ WaitError::Failed(_))) => reason.into(),
            error => Error::call(error),
        }
    }
}

/// The handle with which a process publishes messages. If `S` is [`Apart`](crate::segment::Apart),
/// the ring has several such handles.
pub struct MessageProducer<S: sharing::Sharing = Single> {
    tx: RawBlockProducer<S>,
}

/// The time at which a claim gives up waiting.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(Option<Instant>),
}

impl<S: sharing::Sharing> MessageProducer<S> {
    /// Wraps the handle of the ring's cells as a handle of messages.
    ///
    /// # Panics
    /// The blocks are no cells.
    #[doc(hidden)]
    pub fn over(tx: BlockProducer<S>) -> Self {
        assert_eq!(tx.block_size(), CELL, "messages lie in cells");
        let mut tx = tx.into_raw();
        tx.stop_at_end();
        MessageProducer { tx }
    }

    /// Returns the length of the longest message that this ring takes, in bytes.
    ///
    /// Example: [`MessageProducer::publish`].
    pub fn max_len(&self) -> usize {
        (self.tx.capacity() * CELL - HEADER).min(MAX_MESSAGE)
    }

    /// Copies a message into the ring and publishes it, with a number that says its kind. Returns
    /// the message's position, which is the position of its first cell. Waits while there is no
    /// room.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Segment, messages::Messages};
    /// let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
    /// let segment = segment.type_name("log/line", 1).reader("print").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut print) = (attached.producer()?, attached.reader("print")?);
    /// assert_eq!(tx.max_len(), 64 * 64 - 8);
    /// tx.publish(1, b"short")?;
    /// tx.publish(2, &[b'-'; 200])?;
    /// drop(tx); // closes the ring
    /// let mut seen = Vec::new();
    /// print.for_each(|message| seen.push((message.seq, message.kind, message.bytes.len())))?;
    /// assert_eq!(seen, [(0, 1, 5), (1, 2, 200)]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`MessageError::TooLong`]: the message exceeds [`max_len`](MessageProducer::max_len).
    /// - [`MessageError::Claim`]: the claim ended by [`ClaimError::TimedOut`] or
    ///   [`ClaimError::Wait`].
    ///
    /// # Cost
    /// A call costs a claim of the message's cells, the copy, and a store. A message that does not
    /// fit before the ring's end also uses up the cells up to that end.
    pub fn publish(&mut self, kind: u32, message: &[u8]) -> Result<u64, MessageError> {
        let mut claim = self.claim(message.len())?;
        claim.copy_from_slice(message);
        Ok(claim.publish(kind))
    }

    /// Like [`MessageProducer::publish`], but never waits.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// - [`MessageError::TooLong`]: the message exceeds [`max_len`](MessageProducer::max_len).
    /// - [`MessageError::Claim`]: the claim ended by [`ClaimError::Gated`],
    ///   [`ClaimError::Contended`] or [`ClaimError::Wait`].
    pub fn try_publish(&mut self, kind: u32, message: &[u8]) -> Result<u64, MessageError> {
        let mut claim = self.claimed(message.len(), Patience::None)?;
        claim.copy_from_slice(message);
        Ok(claim.publish(kind))
    }

    /// Like [`MessageProducer::publish`], but waits at most until `deadline`.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// - [`MessageError::TooLong`]: the message exceeds [`max_len`](MessageProducer::max_len).
    /// - [`MessageError::Claim`]: the claim ended by [`ClaimError::TimedOut`] or
    ///   [`ClaimError::Wait`].
    pub fn publish_by(
        &mut self,
        deadline: Instant,
        kind: u32,
        message: &[u8],
    ) -> Result<u64, MessageError> {
        let mut claim = self.claimed(message.len(), Patience::Until(Some(deadline)))?;
        claim.copy_from_slice(message);
        Ok(claim.publish(kind))
    }

    /// Claims room for a message of `len` bytes, to write the message in place. Waits while there
    /// is no room.
    ///
    /// Example: [`MessageClaim`].
    ///
    /// # Errors
    /// Those of [`MessageProducer::publish`].
    pub fn claim(&mut self, len: usize) -> Result<MessageClaim<'_, S>, MessageError> {
        self.claimed(len, Patience::Until(None))
    }

    /// Returns the producer of cells, which has no open claim.
    pub(super) fn producer(&mut self) -> &mut Producer<BlockStart, InSegment<Strided>, S> {
        self.tx.without_claim()
    }

    fn claim_cells(&mut self, cells: usize, patience: Patience) -> Result<u64, ClaimError> {
        match patience {
            Patience::None => self.tx.try_claim(cells),
            Patience::Until(deadline) => self.tx.claim_by(cells, deadline),
        }
    }

    /// If fewer than `cells` cells are left before the ring's end, publishes them as padding. The
    /// producer must be the ring's only one: only then does its next claim begin at the position
    /// that it knows.
    fn pad_to_end(&mut self, cells: usize, patience: Patience) -> Result<(), MessageError> {
        let at = self.tx.next_seq() as usize & (self.tx.capacity() - 1);
        let before_end = self.tx.capacity() - at;
        if cells > before_end {
            let seq = self.claim_cells(before_end, patience)?;
            if let Some((_, bytes)) = self.tx.joined_mut() {
                store_header(bytes, PADDING, before_end as u32);
            }
            let done = self.tx.done(seq.wrapping_add(before_end as u64 - 1));
            debug_assert!(done.is_ok());
        }
        Ok(())
    }

    fn claimed(
        &mut self,
        len: usize,
        patience: Patience,
    ) -> Result<MessageClaim<'_, S>, MessageError> {
        self.tx.give_up(); // of a claim that was forgotten
        let (most, cells) = (self.max_len(), cells_of(len));
        if len > most {
            return Err(MessageError::TooLong { bytes: len, most });
        }
        for tries in 0.. {
            if !S::MANY {
                self.pad_to_end(cells, patience)?;
            }
            // With several producers, a claim begins where the previous claim of any of them ended.
            // If fewer than `cells` cells are left before the ring's end, the call claims only
            // these.
            self.claim_cells(cells, patience)?;
            if self.tx.claimed() == cells {
                break;
            }
            // The stages pass over given-up cells.
            self.tx.give_up();
            if tries == TRIES && matches!(patience, Patience::None) {
                return Err(ClaimError::Contended.into());
            }
        }
        Ok(MessageClaim { tx: &mut self.tx, len })
    }
}

passes!(MessageProducer<S>, S: sharing::Sharing);

/// Claimed room for a message. It dereferences to the message's bytes, which at first are left over
/// from earlier messages. A claim that is dropped without a publication gives up the room.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{Segment, messages::Messages};
/// let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
/// let segment = segment.type_name("log/line", 1).reader("print").build()?;
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut print) = (attached.producer()?, attached.reader("print")?);
/// let mut claim = tx.claim(100)?;
/// claim.fill(b'x');
/// assert_eq!(claim.publish(7), 0);
/// drop(tx.claim(1_000)?); // no stage sees it
/// let batch = print.batch()?;
/// assert!(batch.iter().all(|message| message.kind == 7 && message.bytes == [b'x'; 100]));
/// batch.release();
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a claim that is dropped publishes nothing"]
pub struct MessageClaim<'p, S: sharing::Sharing = Single> {
    tx: &'p mut RawBlockProducer<S>,
    len: usize,
}

impl<S: sharing::Sharing> MessageClaim<'_, S> {
    /// Publishes the message. Returns its position.
    ///
    /// Example: [`MessageClaim`].
    pub fn publish(self, kind: u32) -> u64 {
        let len = self.len;
        let seq = match self.tx.joined_mut() {
            Some((seq, cells)) => {
                store_header(cells, len as u32, kind);
                seq
            }
            None => unreachable!("the cells of a claim lie side by side"),
        };
        let done = self.tx.done(seq.wrapping_add(cells_of(len) as u64 - 1));
        debug_assert!(done.is_ok());
        seq
    }
}

impl<S: sharing::Sharing> std::ops::Deref for MessageClaim<'_, S> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let cells = self.tx.joined().unwrap_or_default();
        &cells[HEADER..HEADER + self.len]
    }
}

impl<S: sharing::Sharing> std::ops::DerefMut for MessageClaim<'_, S> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let cells = self.tx.joined_mut().map(|(_, cells)| cells).unwrap_or_default();
        &mut cells[HEADER..HEADER + self.len]
    }
}

impl<S: sharing::Sharing> Drop for MessageClaim<'_, S> {
    fn drop(&mut self) {
        self.tx.give_up();
    }
}

/// The handle with which a stage of a segment, or a tap's member, is lent messages.
pub struct MessageConsumer<C: lease::Delivery> {
    rx: BlockConsumer<Reading, C>,
}

impl<C: lease::Delivery> MessageConsumer<C> {
    /// Wraps the handle of the ring's cells as a handle of messages.
    ///
    /// # Panics
    /// The blocks are no cells.
    #[doc(hidden)]
    pub fn over(rx: BlockConsumer<Reading, C>) -> Self {
        assert_eq!(rx.block_size(), CELL, "messages lie in cells");
        MessageConsumer { rx }
    }

    /// Returns the position of the next message that this handle lends, or of padding before it.
    ///
    /// Example: [`MessageBatch`].
    pub fn next_seq(&self) -> u64 {
        self.rx.next_seq()
    }

    /// Lends all available messages, at least one. Waits while none is available.
    ///
    /// Example: [`MessageBatch`].
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the stream is over.
    /// - [`WaitError::Left`]: a call asked this reader to leave its tap.
    /// - [`WaitError::WaitsForItself`]: only this thread could release the awaited message.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`], [`WaitError::NameLost`]: a death, or a lost name of the segment.
    /// - [`WaitError::Damaged`]: the segment's words, or a header and its cells, do not fit.
    pub fn batch(&mut self) -> Result<MessageBatch<'_, C>, WaitError> {
        let cells = self.cells(|rx| rx.batch(usize::MAX))?;
        Ok(MessageBatch { batch: self.rx.batch(cells)? })
    }

    /// Like [`MessageConsumer::batch`], but waits at most until `deadline`.
    ///
    /// Example: [`MessageBatch`].
    ///
    /// # Errors
    /// - [`BatchError::TimedOut`]: the deadline passed.
    /// - [`BatchError::Wait`]: another error of [`MessageConsumer::batch`].
    pub fn batch_by(&mut self, deadline: Instant) -> Result<MessageBatch<'_, C>, BatchError> {
        let cells = self.cells(|rx| rx.batch_by(usize::MAX, deadline))?;
        Ok(MessageBatch { batch: self.rx.try_batch(cells)? })
    }

    /// Lends a batch of `max` messages or, once its oldest message has waited for `time`, the
    /// messages that are there, at least one; see
    /// [`Consumer::batch_within`](crate::Consumer::batch_within), which counts events where this
    /// call counts messages. If `max` is 0, the call returns an empty batch at once.
    ///
    /// The call also stops to wait once the messages fill half of the ring's cells, so that the
    /// producers find room meanwhile. A message that takes more than a quarter of the ring may have
    /// to wait for room until `time` is over.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_shm::{Segment, messages::Messages};
    /// use std::time::Duration;
    /// let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
    /// let segment = segment.type_name("log/line", 1).reader("send").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut send) = (attached.producer()?, attached.reader("send")?);
    /// for kind in 0..5 { tx.publish(kind, &[b'-'; 200])?; }
    /// drop(tx); // closes the ring
    /// for len in [2, 2, 1] {
    ///     let batch = send.batch_within(2, Duration::from_secs(60))?;
    ///     assert_eq!(batch.iter().count(), len);
    ///     batch.release();
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The call returns the errors of [`Consumer::batch_within`](crate::Consumer::batch_within),
    /// and [`WaitError::Damaged`].
    ///
    /// # Cost
    /// Costs what [`Consumer::batch_within`](crate::Consumer::batch_within) costs. While messages
    /// take several cells each, the handle wakes once more than it does for events.
    pub fn batch_within(
        &mut self,
        max: usize,
        time: Duration,
    ) -> Result<MessageBatch<'_, C>, WaitError> {
        self.gather(max, |rx, cells| Ok(rx.batch_within(cells, time)?.len()))
    }

    /// Like [`MessageConsumer::batch_within`], but waits at most until `deadline`. If messages are
    /// there at the deadline, the call lends them.
    ///
    /// Example: [`MessageConsumer::batch_within`].
    ///
    /// # Errors
    /// The call returns the errors of
    /// [`Consumer::batch_within_by`](crate::Consumer::batch_within_by), and [`WaitError::Damaged`].
    pub fn batch_within_by(
        &mut self,
        max: usize,
        time: Duration,
        deadline: Instant,
    ) -> Result<MessageBatch<'_, C>, BatchError> {
        self.gather(max, |rx, cells| Ok(rx.batch_within_by(cells, time, deadline)?.len()))
    }

    /// Gathers a batch of `max` messages. `wait` waits for a number of cells, or for the end of the
    /// batch's time, and returns the number of available cells, at most the number asked for.
    fn gather<X: From<WaitError>>(
        &mut self,
        max: usize,
        mut wait: impl FnMut(&mut BlockConsumer<Reading, C>, usize) -> Result<usize, X>,
    ) -> Result<MessageBatch<'_, C>, X> {
        let most = (self.rx.capacity() / 2).max(1);
        let mut count = Count::default();
        while count.messages < max {
            // Each message that is missing takes a cell at least.
            let asked = count.cells.saturating_add(max - count.messages).min(most);
            let is_over = wait(&mut self.rx, asked)? < asked || asked == most;
            let cells = match self.rx.try_batch(usize::MAX) {
                Ok(cells) => cells,
                Err(BatchError::Wait(reason)) => return Err(reason.into()),
                Err(_) => continue, // another process has changed the words
            };
            count.extend(&cells, max)?;
            if count.messages == 0 {
                cells.release(); // padding
                count = Count::default();
            } else if is_over {
                break;
            }
        }
        Ok(MessageBatch { batch: self.rx.batch(count.cells)? })
    }

    /// Lends all messages that are available now, at least one.
    ///
    /// Example: [`MessageBatch`].
    ///
    /// # Errors
    /// [`BatchError::Unavailable`], [`BatchError::Contended`], or [`BatchError::Wait`] with an
    /// error of [`MessageConsumer::batch`] that needs no wait.
    pub fn try_batch(&mut self) -> Result<MessageBatch<'_, C>, BatchError> {
        let cells = self.cells(|rx| rx.try_batch(usize::MAX))?;
        Ok(MessageBatch { batch: self.rx.try_batch(cells)? })
    }

    /// Lends cells by `lend`, and passes over padding until they hold a message. Returns their
    /// number.
    fn cells<Err: From<WaitError>>(
        &mut self,
        lend: impl Fn(&mut BlockConsumer<Reading, C>) -> Result<BlockBatch<'_, Reading, C>, Err>,
    ) -> Result<usize, Err> {
        loop {
            let batch = lend(&mut self.rx)?;
            match checked(&batch)? {
                Some(cells) => return Ok(cells),
                None => batch.release(),
            }
        }
    }

    /// Handles and releases all available messages. Returns their number. Releases exactly the
    /// messages for which `handle` returned, even if `handle` panics.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// Those of [`MessageConsumer::try_batch`] in [`BatchError::Wait`].
    pub fn poll(&mut self, mut handle: impl FnMut(Message<'_>)) -> Result<u64, WaitError> {
        match self.try_batch() {
            Ok(batch) => Ok(batch.handle(&mut handle)),
            Err(BatchError::Wait(reason)) => Err(reason),
            Err(_) => Ok(0),
        }
    }

    /// Handles and releases every message until the stream's end. Returns the number of messages.
    ///
    /// Example: [`MessageProducer::publish`].
    ///
    /// # Errors
    /// Those of [`MessageConsumer::batch`], except [`WaitError::Closed`].
    pub fn for_each(&mut self, mut handle: impl FnMut(Message<'_>)) -> Result<u64, WaitError> {
        let mut handled = 0;
        loop {
            match self.batch() {
                Ok(batch) => handled += batch.handle(&mut handle),
                Err(WaitError::Closed) => return Ok(handled),
                Err(reason) => return Err(reason),
            }
        }
    }
}

impl<C: Succeeds> MessageConsumer<C> {
    /// Returns the positions of messages that were lent before and come again, as
    /// [`Consumer::redelivered`](crate::Consumer::redelivered) does. A message comes again if its
    /// [`Message::seq`] is one of these positions.
    ///
    /// Example: [`Consumer::redelivered`](crate::Consumer::redelivered).
    pub fn redelivered(&self) -> SeqRange {
        self.rx.redelivered()
    }
}

impl<C: lease::Delivery> fmt::Debug for MessageConsumer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rx.fmt(f)
    }
}

impl<S: sharing::Sharing> fmt::Debug for MessageProducer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageProducer(next {})", self.tx.next_seq())
    }
}
