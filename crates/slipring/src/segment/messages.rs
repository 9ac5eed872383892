//! Messages of any length over a segment's ring of cells.
//!
//! A message occupies a run of adjacent 64-byte cells: an 8-byte header, then the content. A run
//! does not wrap around, so a message that does not fit before the ring's end begins at the ring's
//! first slot instead.
//!
//! | bytes of the first cell | meaning |
//! |---|---|
//! | 0..4 | length of the message, in bytes; all ones: padding up to the ring's end |
//! | 4..8 | kind that the producer chose; of padding: the number of its cells |
//! | 8.. | the message |
//!
//! Invariants
//! - I1: a message is one publication of at most `MAX_RUN` cells, so a stage sees it as a whole or
//!   not at all. A stage releases only whole messages, so each handle starts at a header.
//! - I2: each header is checked against the lent cells before it is trusted.

use std::fmt;
use std::time::Instant;

use super::block_batch::BlockBatch;
use super::blocks::{BlockConsumer, BlockProducer};
use super::passes::passes;
use super::raw_blocks::{BlockStart, RawBlockProducer};
use crate::base::fault::debug_is_message;
use crate::consumer::markers::{Reading, sealed as lease};
use crate::errors::{BatchError, ClaimError, WaitError};
use crate::processes::layout::InSegment;
use crate::processes::markers::Succeeds;
use crate::producer::{Producer, Single, sealed as sharing};
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Strided;
use crate::ring::stamp::MAX_RUN;

/// Size of a cell, in bytes.
#[doc(hidden)]
pub const CELL: usize = 64;
/// Length of a message's header, in bytes.
const HEADER: usize = 8;
/// Value of the length field in the header of padding.
const PADDING: u32 = u32::MAX;
/// Length of the longest message in a ring that is large enough, in bytes: 2 MiB minus the header.
pub const MAX_MESSAGE: usize = MAX_RUN as usize * CELL - HEADER;
/// Number of failed claims after which a call that does not wait gives up. A claim fails if its
/// cells would lie on both sides of the ring's end.
const TRIES: usize = 8;

/// Returns the number of cells of a message.
fn cells_of(len: usize) -> usize {
    (HEADER + len).div_ceil(CELL)
}

/// Stores a header in a run's first cell.
fn store_header(cells: &mut [u8], len: u32, kind: u32) {
    cells[..4].copy_from_slice(&len.to_ne_bytes());
    cells[4..HEADER].copy_from_slice(&kind.to_ne_bytes());
}

/// Returns the length and the kind in a run's first cell.
fn header(cell: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| cell[at + byte]));
    (word(0), word(4))
}

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

/// A lent message.
///
/// Example: [`MessageProducer::publish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'b> {
    /// Position of the message, which is the position of its first cell. From one message to the
    /// next, positions grow by the message's number of cells.
    pub seq: u64,
    /// A number that the producer passed with the message, to say its kind.
    pub kind: u32,
    /// The message.
    pub bytes: &'b [u8],
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

/// A run of cells: the number of cells and, if the run is a message and not padding, the message's
/// kind and bytes.
type RunOfCells<'b> = (usize, Option<(u32, &'b [u8])>);

/// Returns the run at `offset` of a batch of cells. Returns `None` if there is no run, or if its
/// header contradicts the cells (I2).
fn at<'b, C: lease::Delivery>(
    batch: &'b BlockBatch<'_, Reading, C>,
    offset: usize,
) -> Option<RunOfCells<'b>> {
    let (len, kind) = header(batch.get(offset)?);
    if len == PADDING {
        let cells = kind as usize;
        let fits = cells != 0 && cells <= batch.len() - offset;
        return fits.then_some((cells, None));
    }
    let len = len as usize;
    if len > MAX_MESSAGE {
        return None;
    }
    let bytes = batch.joined(offset, cells_of(len))?;
    Some((cells_of(len), Some((kind, &bytes[HEADER..HEADER + len]))))
}

/// Checks all headers of a batch (I2). Returns the number of cells, or `None` if the batch contains
/// only padding.
fn checked<C: lease::Delivery>(
    batch: &BlockBatch<'_, Reading, C>,
) -> Result<Option<usize>, WaitError> {
    let (mut offset, mut messages) = (0, false);
    while offset < batch.len() {
        let (cells, message) = at(batch, offset).ok_or(WaitError::Damaged)?;
        messages |= message.is_some();
        offset += cells;
    }
    Ok(messages.then_some(offset))
}

/// Messages lent together, in their order, at least one. If the batch is dropped without a release,
/// its messages are lent again.
///
/// ```
/// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
/// use slipring_shm::{Segment, messages::Messages};
/// let segment = Segment::<Messages>::create_memfd("lines").capacity(64);
/// let segment = segment.type_name("log/line", 1).reader("print").build()?;
/// // SAFETY: no other process has the memfd.
/// let attached = unsafe { segment.attach()? };
/// let (mut tx, mut print) = (attached.producer()?, attached.reader("print")?);
/// for text in ["one", "two", "three"] { tx.publish(0, text.as_bytes())?; }
/// let batch = print.try_batch()?;
/// assert!(batch.iter().map(|message| message.bytes.len()).eq([3, 3, 5]));
/// batch.release();
/// assert_eq!(print.next_seq(), 3);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MessageBatch<'c, C: lease::Delivery> {
    batch: BlockBatch<'c, Reading, C>,
}

impl<C: lease::Delivery> MessageBatch<'_, C> {
    /// Iterates over the messages, in the order of their positions.
    ///
    /// Example: [`MessageBatch`].
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            while offset < self.batch.len() {
                let seq = self.batch.first_seq().wrapping_add(offset as u64);
                // The headers were checked, and the cells are lent.
                let (cells, message) = at(&self.batch, offset)?;
                offset += cells;
                if let Some((kind, bytes)) = message {
                    return Some(Message { seq, kind, bytes });
                }
            }
            None
        })
    }

    /// Releases all messages of the batch.
    ///
    /// Example: [`MessageBatch`].
    pub fn release(self) {
        self.batch.release();
    }

    /// Handles all messages, and releases those for which `handle` returned.
    fn handle(self, handle: &mut impl FnMut(Message<'_>)) -> u64 {
        /// Releases the handled cells when it is dropped, even by a panic.
        struct Handled<'c, C: lease::Delivery>(BlockBatch<'c, Reading, C>, usize);
        impl<C: lease::Delivery> Drop for Handled<'_, C> {
            fn drop(&mut self) {
                self.0.release_front(self.1);
            }
        }
        let mut handled = Handled(self.batch, 0);
        let mut count = 0;
        while let Some((cells, message)) = at(&handled.0, handled.1) {
            let seq = handled.0.first_seq().wrapping_add(handled.1 as u64);
            if let Some((kind, bytes)) = message {
                handle(Message { seq, kind, bytes });
                count += 1;
            }
            handled.1 += cells;
        }
        count
    }
}
