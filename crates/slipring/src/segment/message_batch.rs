//! Messages that are lent together, and how a message lies in its cells.
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
//! - I1: each header is checked against the lent cells before it is trusted.

use super::block_batch::BlockBatch;
use crate::consumer::markers::{Reading, sealed as lease};
use crate::errors::WaitError;
use crate::ring::stamp::MAX_RUN;

/// Size of a cell, in bytes.
#[doc(hidden)]
pub const CELL: usize = 64;
/// Length of a message's header, in bytes.
pub(super) const HEADER: usize = 8;
/// Value of the length field in the header of padding.
pub(super) const PADDING: u32 = u32::MAX;
/// Length of the longest message in a ring that is large enough, in bytes: 2 MiB minus the header.
pub const MAX_MESSAGE: usize = MAX_RUN as usize * CELL - HEADER;

/// Returns the number of cells of a message.
pub(super) fn cells_of(len: usize) -> usize {
    (HEADER + len).div_ceil(CELL)
}

/// Stores a header in a run's first cell.
pub(super) fn store_header(cells: &mut [u8], len: u32, kind: u32) {
    cells[..4].copy_from_slice(&len.to_ne_bytes());
    cells[4..HEADER].copy_from_slice(&kind.to_ne_bytes());
}

/// Returns the length and the kind in a run's first cell.
fn header(cell: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| cell[at + byte]));
    (word(0), word(4))
}

/// A lent message.
///
/// Example: [`MessageProducer::publish`](super::MessageProducer::publish).
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

/// A run of cells: the number of cells and, if the run is a message and not padding, the message's
/// kind and bytes.
type RunOfCells<'b> = (usize, Option<(u32, &'b [u8])>);

/// Returns the run at `offset` of a batch of cells. Returns `None` if there is no run, or if its
/// header contradicts the cells (I1).
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

/// Checks all headers of a batch (I1). Returns the number of cells, or `None` if the batch contains
/// only padding.
pub(super) fn checked<C: lease::Delivery>(
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

/// A count of the messages at the beginning of a handle's available cells.
#[derive(Default)]
pub(super) struct Count {
    pub(super) messages: usize,
    /// Number of cells of these messages, and of the padding between them.
    pub(super) cells: usize,
}

impl Count {
    /// Continues to count in a batch that begins where the earlier ones began, up to `max`
    /// messages. Checks the headers (I1).
    pub(super) fn extend<C: lease::Delivery>(
        &mut self,
        batch: &BlockBatch<'_, Reading, C>,
        max: usize,
    ) -> Result<(), WaitError> {
        while self.messages < max && self.cells < batch.len() {
            let (cells, message) = at(batch, self.cells).ok_or(WaitError::Damaged)?;
            self.messages += usize::from(message.is_some());
            self.cells += cells;
        }
        Ok(())
    }
}

/// Messages lent together, in their order. If the batch is dropped without a release,
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
    pub(super) batch: BlockBatch<'c, Reading, C>,
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
    pub(super) fn handle(self, handle: &mut impl FnMut(Message<'_>)) -> u64 {
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
