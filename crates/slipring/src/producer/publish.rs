//! Publishing in one call: fill in place, and it is visible.
//!
//! Invariants
//! - I1: while user code fills a claim, or makes what it is to be filled with, a guard stands by:
//!   if that code panics, the claim is given up and the graph fails.

use std::time::Instant;

use crate::errors::{Cause, ClaimError, WaitError};
use crate::producer::{Producer, sealed};
use crate::ring::slots::{Layout, Storage as _};

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Fills the next slot in place and publishes it; waits, by the graph's strategy, while the
    /// ring is full. Returns its position.
    ///
    /// If `fill` panics, nothing is published, and the graph fails.
    ///
    /// # Errors
    /// When the ring was closed, halted, or has failed. [`WaitError::TimedOut`] if the strategy has a
    /// timeout: then `fill` was not called.
    #[inline]
    pub fn publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        let seq = match self.reserve(1) {
            Ok(seq) => seq,
            Err(refusal) => self.wait_for_room(1, refusal)?,
        };
        self.fill(seq, fill);
        Ok(seq)
    }

    /// As [`Producer::publish`], but without waiting.
    ///
    /// # Errors
    /// [`ClaimError::Gated`] when the ring is full, [`ClaimError::Contended`] when another producer
    /// was faster, [`ClaimError::Wait`].
    #[inline]
    pub fn try_publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, ClaimError> {
        let seq = self.try_reserve(1)?;
        self.fill(seq, fill);
        Ok(seq)
    }

    /// As [`Producer::publish`], but waits no longer than until `deadline`.
    ///
    /// # Errors
    /// [`ClaimError::TimedOut`], [`ClaimError::Wait`].
    pub fn publish_by(
        &mut self,
        deadline: Instant,
        fill: impl FnOnce(&mut E),
    ) -> Result<u64, ClaimError> {
        let seq = self.reserve_by(1, Some(deadline))?;
        self.fill(seq, fill);
        Ok(seq)
    }

    /// As [`Producer::publish`], but when the ring is full the event is dropped: `fill` is not
    /// called, the event is counted ([`StageReport::dropped`](crate::StageReport::dropped)), and
    /// `None` comes back. Never waits.
    ///
    /// ```
    /// let (mut tx, _rx) = slipring::unicast(2, || 0)?;
    /// let sent: Vec<_> = (0..4).map(|i| tx.publish_or_drop(|slot| *slot = i).unwrap()).collect();
    /// assert_eq!(sent, [Some(0), Some(1), None, None]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the ring was closed, halted, or has failed.
    #[inline]
    pub fn publish_or_drop(&mut self, fill: impl FnOnce(&mut E)) -> Result<Option<u64>, WaitError> {
        let seq = self.reserve_now()?;
        match seq {
            Some(seq) => self.fill(seq, fill),
            None => self.dropped(),
        }
        Ok(seq)
    }

    #[inline(always)]
    pub(crate) fn fill(&mut self, seq: u64, fill: impl FnOnce(&mut E)) {
        let filling = Filling { producer: self, seq, len: 1 };
        // SAFETY: claimed by this handle (I2), which the guard borrows.
        fill(unsafe { &mut *filling.producer.cell(seq) });
        std::mem::forget(filling);
        self.commit(seq, 1);
    }

    /// Publishes every item of an iterator, one by one, waiting while the ring is full; returns how
    /// many.
    ///
    /// Each event is visible at once, however long the next item takes to come;
    /// [`Producer::publish_batches`] publishes many at a time. If the iterator or `fill` panics,
    /// what came before is published, and the graph fails.
    ///
    /// # Errors
    /// As [`Producer::publish`], but no timeout of the strategy's ends it: an item that was taken
    /// is published.
    pub fn publish_all<I: IntoIterator>(
        &mut self,
        items: I,
        mut fill: impl FnMut(&mut E, I::Item),
    ) -> Result<u64, WaitError> {
        let mut count = 0;
        let mut items = items.into_iter();
        while let Some(item) = self.next_item(&mut items) {
            // The item is out of the iterator, so it is not given up at a strategy's timeout.
            let seq = self.reserve_patiently(1)?;
            self.fill(seq, |slot| fill(slot, item));
            count += 1;
        }
        Ok(count)
    }

    /// Publishes the items of an iterator `len` at a time, each batch as a whole; returns how many
    /// items. The last batch may be shorter. `len` is at most the capacity.
    ///
    /// Costs less per event than one by one, but an item is seen only when its batch is full. With
    /// many producers, what a last batch claimed and did not need is given up. If the iterator or
    /// `fill` panics, the batch it was in is given up, and the graph fails.
    ///
    /// # Errors
    /// [`ClaimError::Length`], [`ClaimError::Wait`].
    pub fn publish_batches<I: IntoIterator>(
        &mut self,
        len: usize,
        items: I,
        mut fill: impl FnMut(&mut E, I::Item),
    ) -> Result<u64, ClaimError> {
        self.check_length(len)?;
        let mut count = 0;
        let mut items = items.into_iter();
        let mut item = self.next_item(&mut items);
        while let Some(first) = item.take() {
            let seq = self.reserve_patiently(len as u64)?;
            let slots = self.view();
            let batch = Filling { producer: self, seq, len: len as u64 };
            let mut filled = 0;
            let mut next = Some(first);
            while let Some(this) = next {
                // SAFETY: claimed by this handle (I2), which the guard borrows; `filled < len`
                // here.
                fill(unsafe { &mut *slots.event(seq.wrapping_add(filled)) }, this);
                filled += 1;
                if filled == len as u64 {
                    break;
                }
                next = items.next();
            }
            let full = filled == len as u64;
            batch.done(filled);
            count += filled;
            if full {
                item = self.next_item(&mut items);
            }
        }
        Ok(count)
    }

    /// The iterator is the user's code too: if it panics between two claims, the graph fails all
    /// the same.
    pub(crate) fn next_item<I: Iterator>(&mut self, items: &mut I) -> Option<I::Item> {
        let seq = self.next_seq();
        let filling = Filling { producer: self, seq, len: 0 };
        let item = items.next();
        std::mem::forget(filling);
        item
    }
}

/// While user code fills a claim: if it panics, the claim is given up and the graph fails.
struct Filling<'p, E, L: Layout, S: sealed::Sharing> {
    producer: &'p mut Producer<E, L, S>,
    seq: u64,
    len: u64,
}

impl<E, L: Layout, S: sealed::Sharing> Filling<'_, E, L, S> {
    /// Publishes the first `filled` slots and gives the others up.
    #[inline(always)]
    fn done(self, filled: u64) {
        let (seq, len) = (self.seq, self.len);
        self.producer.commit(seq, filled);
        if filled != len {
            self.producer.give_up(seq.wrapping_add(filled), len - filled);
        }
        std::mem::forget(self);
    }
}

impl<E, L: Layout, S: sealed::Sharing> Drop for Filling<'_, E, L, S> {
    #[cold]
    fn drop(&mut self) {
        let control = &self.producer.core().control;
        control.fail(control.producer_party(), Some(self.seq), Cause::Panic(FILL_PANIC.into()));
        self.producer.give_up(self.seq, self.len);
    }
}

/// What is reported when the closure that fills a slot panics and nobody of ours sees the payload.
pub(crate) const FILL_PANIC: &str =
    "the closure that fills an event, or the iterator it is filled from, panicked";
