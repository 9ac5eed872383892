//! Publishing makes a claim's events visible to the stages. A call such as [`Producer::publish`]
//! claims a slot, fills it and publishes the event.
//!
//! Invariants
//! - I1: A `FillGuard` is alive while a user's closure fills a claim, and while a user's iterator
//!   yields an item to publish. If a panic of user code drops the guard, the guard gives the claim
//!   up and, in a ring of one process, fails the graph.

use std::time::Instant;

use crate::base::edge;
use crate::base::sync::{planted, twin};
use crate::errors::{Cause, ClaimError, WaitError};
use crate::producer::handle::{Producer, sealed};
use crate::ring::counters::FLUSH_EVERY;
use crate::ring::slots::{Layout, Storage as _, View};
use crate::ring::words::ahead;
use crate::ring::world::World;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Publishes the positions `[seq, seq + len)`, which this handle has claimed and filled. A
    /// single producer publishes its positions in order, so `seq` is its `next`.
    #[inline(always)]
    pub(crate) fn commit(&mut self, seq: u64, len: u64) {
        let (slots, is_plain) = (self.slots, self.is_plain(seq, len));
        self.commit_known(slots, seq, len, is_plain);
    }

    /// Like [`Producer::commit`], for a caller that has read the handle's `slots`, and whether the
    /// publication is plain, before it filled the events. The compiler does not know that the
    /// handle's fields are still the same.
    #[inline(always)]
    fn commit_known(&mut self, slots: View<E, L>, seq: u64, len: u64, is_plain: bool) {
        debug_assert!(S::MANY || seq == self.next, "a claim is published out of order");
        self.core.touch(seq, len, true);
        S::begin_front(self, seq, len);
        if !is_plain {
            return self.commit_slow(seq, len);
        }
        if View::<E, L>::CURSOR && !S::MANY {
            // SAFETY: direct::I1; the core is alive.
            edge::cursor_moved::move_to(unsafe { self.word.get() }, seq.wrapping_add(len));
        } else {
            let lap = if S::MANY { slots.lap(seq) } else { self.lap };
            debug_assert!(lap == slots.lap(seq), "the handle's lap is outdated");
            self.core.publish_in(&slots, lap, seq, len);
        }
        if !S::MANY {
            self.fetch_ahead(self.fetches, seq);
        }
        self.advance(seq, len);
        self.notify(seq, len);
    }

    /// Like [`Producer::commit`], for a publication that is not plain (producer::I5).
    #[cold]
    #[inline(never)]
    fn commit_slow(&mut self, seq: u64, len: u64) {
        let before = if S::MANY { self.counts.events } else { seq };
        self.store_all(seq, len);
        if self.fetching(seq) > 0 {
            self.fetch_ahead(self.fetch, seq);
        }
        self.advance(seq, len);
        self.plan_ahead(); // before the notification, in which a waker may panic
        self.notify(seq, len);
        if (before ^ before.wrapping_add(len)) >= FLUSH_EVERY {
            self.flush_regularly();
        }
    }

    /// Publishes a claim by its stamps, or by the cursor. Also records latency samples, assigns
    /// shard ids, refreshes stamps, and stores a cursor beside the stamps, if the graph needs that.
    fn store_all(&self, seq: u64, len: u64) {
        let core = &*self.core;
        let plan = &core.control.plan;
        let partition = || {
            if !plan.producer_partitions.is_empty() {
                let party = core.control.plan.producer_party();
                core.partition(&plan.producer_partitions, party, seq, len);
            }
        };
        twin!("partitioned-late": partition() => ());
        if let Some(samples) = &self.core.control.counters.samples {
            samples.publishing(seq, len, true);
        }
        if S::MANY || !View::<E, L>::CURSOR {
            if self.refreshes {
                core.stamp_runs(seq, len);
            } else {
                core.publish(seq, len);
            }
        }
        if !S::MANY && (View::<E, L>::CURSOR || plan.cursor) {
            core.control.positions.move_cursor(seq.wrapping_add(len));
        }
        twin!("partitioned-late": () => partition());
    }

    /// Counts the publication of the positions `[seq, seq + len)`.
    #[inline(always)]
    fn advance(&mut self, seq: u64, len: u64) {
        S::end_front(self, seq, len);
        if S::MANY {
            self.counts.events = self.counts.events.wrapping_add(len);
        } else {
            self.next = seq.wrapping_add(len);
            debug_assert!(
                ahead(self.limit, self.next) >= 0,
                "the published claim ends after the limit"
            );
        }
        if len != 1 {
            self.coalesced = self.coalesced.wrapping_add(len.wrapping_sub(1));
        }
    }

    /// Wakes the stages that sleep until the publication of the positions `[seq, seq + len)`.
    #[inline(always)]
    fn notify(&mut self, seq: u64, len: u64) {
        // The defect: a word that the producer writes lies on the line of a frontier.
        planted!("shared-line": () => self.core.touch_frontier());
        use edge::announced::order_quiet_check;
        // publication before the check (queue::I4)
        planted!("fenced-publication": order_quiet_check() => edge::announced::fence_notifier());
        // SAFETY: queue::I5; the core is alive.
        if !unsafe { self.quiet_check.is_quiet() } {
            self.core.notify_publication(seq, len, &mut self.taken);
        }
    }

    /// Fills the next slot in place and publishes the event. Returns the event's position.
    ///
    /// While the ring is full, the call waits as the graph's wait strategy says. If `fill` panics,
    /// nothing is published, and the graph fails.
    ///
    /// Costs a claim and one store. A claim costs an addition; while several handles may claim, it
    /// is a locked addition to a word that they share. With a wait strategy that parks, the call
    /// also loads the wait queue's state. Each stage thread that reads the event fetches the
    /// event's cache line.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, String::new)?;
    /// let seq = tx.publish(|slot| { slot.clear(); slot.push_str("first") })?;
    /// assert_eq!(seq, 0);
    /// rx.poll(8, |text, at| assert_eq!((at.seq, text.as_str()), (0, "first")))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - [`WaitError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`WaitError::PeerDead`], in segments: a process that holds the call up has died.
    /// - [`WaitError::NameLost`], in segments: the name no longer refers to the segment's file.
    /// - [`WaitError::Damaged`], in segments: its words contradict each other.
    ///
    /// A call that returns an error has not called `fill`.
    #[doc(alias = "send")]
    #[doc(alias = "publishEvent")]
    #[inline]
    pub fn publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        let seq = self.reserve_waiting()?;
        self.fill(seq, fill);
        Ok(seq)
    }

    /// Like [`Producer::publish`], but never waits.
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// let (mut tx, _rx) = slipring::unicast(2, || 0u64)?;
    /// tx.try_publish(|slot| *slot = 1)?;
    /// tx.try_publish(|slot| *slot = 2)?;
    /// let full = tx.try_publish(|slot| *slot = 3);
    /// assert!(matches!(full, Err(ClaimError::Gated { lag: 2, .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Gated`]: the ring is full.
    /// - [`ClaimError::Contended`]: another producer claimed slots during the call.
    /// - [`ClaimError::Wait`]: the graph has ended.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    #[inline]
    pub fn try_publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, ClaimError> {
        let seq = self.try_reserve(1)?;
        self.fill(seq, fill);
        Ok(seq)
    }

    /// Like [`Producer::publish`], but waits at most until `deadline`.
    ///
    /// Inside a handler on shared threads, the waiting thread runs other stages. So the call may
    /// return after `deadline`, when such a stage has ended its turn; see
    /// [`Chain::threads`](crate::Chain::threads).
    ///
    /// ```
    /// use slipring::errors::ClaimError;
    /// use std::time::{Duration, Instant};
    /// let (mut tx, _rx) = slipring::unicast(1, || 0u64)?;
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// tx.publish_by(soon, |slot| *slot = 1)?;
    /// let late = tx.publish_by(soon, |slot| *slot = 2);
    /// assert!(matches!(late, Err(ClaimError::TimedOut(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::TimedOut`]: `deadline` passed.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free a slot.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
    ///
    /// A call that returns an error has not called `fill`.
    pub fn publish_by(
        &mut self,
        deadline: Instant,
        fill: impl FnOnce(&mut E),
    ) -> Result<u64, ClaimError> {
        let seq = self.reserve_by(1, Some(deadline))?;
        self.fill(seq, fill);
        Ok(seq)
    }

    /// Like [`Producer::publish`], but drops the event instead of waiting when the ring is full.
    ///
    /// Returns the event's position, or `None` if the event was dropped, in which case `fill` was
    /// not called. [`StageReport::dropped`](crate::reports::StageReport::dropped) counts the
    /// dropped events.
    ///
    /// In a ring between processes, a call that finds the ring full also checks for dead processes,
    /// unless the handle's last check was less than a *notice* ago. (A notice is the longest time
    /// between two checks.) If only a dead reader of a tap keeps the ring full, the check removes
    /// that reader, and the next call finds room.
    ///
    /// ```
    /// let (mut tx, _rx) = slipring::unicast(2, || 0)?;
    /// let sent: Vec<_> = (0..4).map(|i| tx.publish_or_drop(|slot| *slot = i).unwrap()).collect();
    /// assert_eq!(sent, [Some(0), Some(1), None, None]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::PeerDead`], in segments: a dead process keeps the ring full, and its stage
    ///   was declared to report that.
    /// - [`WaitError::NameLost`], in segments: the name no longer refers to the segment's file.
    /// - [`WaitError::Damaged`], in segments: its words contradict each other.
    ///
    /// A call that returns an error counts no dropped event. If a call has returned `PeerDead` and
    /// the ring is still full, the next call drops its event again.
    #[inline]
    pub fn publish_or_drop(&mut self, fill: impl FnOnce(&mut E)) -> Result<Option<u64>, WaitError> {
        let seq = self.reserve_now()?;
        match seq {
            Some(seq) => self.fill(seq, fill),
            None => self.count_dropped(),
        }
        Ok(seq)
    }

    /// Fills and publishes one claimed slot.
    #[inline(always)]
    pub(crate) fn fill(&mut self, seq: u64, fill: impl FnOnce(&mut E)) {
        let (slots, is_plain) = (self.slots, self.is_plain(seq, 1));
        let guard = FillGuard { producer: self, seq, len: 1 };
        // SAFETY: this handle has claimed the slot (producer::I2), and `guard` borrows the handle.
        fill(unsafe { &mut *slots.event(seq) });
        std::mem::forget(guard);
        self.commit_known(slots, seq, 1, is_plain);
    }

    /// Publishes every item of an iterator, one by one. Returns the number of published items.
    ///
    /// Waits while the ring is full. Each event is visible before the call takes the next item.
    /// [`Producer::publish_batches`] publishes several items at a time. A panic of the iterator or
    /// of `fill` fails the graph; the earlier items stay published.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0)?;
    /// assert_eq!(tx.publish_all(1..=3, |slot, i| *slot = i)?, 3);
    /// let mut seen = Vec::new();
    /// rx.poll(8, |value, _| seen.push(*value))?;
    /// assert_eq!(seen, [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Closed`], [`WaitError::Halted`], [`WaitError::Failed`]: the graph has ended.
    /// - [`WaitError::WaitsForItself`]: only this thread could free a slot.
    /// - In segments: [`WaitError::PeerDead`], [`WaitError::NameLost`], [`WaitError::Damaged`].
    ///
    /// No timeout of the wait strategy ends a wait: it would lose the item that the call has taken
    /// from the iterator. A call that returns an error drops the item that it took last.
    pub fn publish_all<I: IntoIterator>(
        &mut self,
        items: I,
        mut fill: impl FnMut(&mut E, I::Item),
    ) -> Result<u64, WaitError> {
        let mut count = 0;
        let mut items = items.into_iter();
        while let Some(item) = self.next_item(&mut items) {
            // A timeout would lose `item`, because the iterator cannot take it back.
            let seq = self.reserve_past_timeouts(1)?;
            self.fill(seq, |slot| fill(slot, item));
            count += 1;
        }
        Ok(count)
    }

    /// Publishes an iterator's items in batches of `len`, each batch as a whole. Returns the number
    /// of published items.
    ///
    /// The last batch may be shorter than `len`. `len` must be between 1 and the ring's capacity. A
    /// batch costs less per event than single publications, but stages see an item only when its
    /// batch is published. With many producers, the unused slots of the last batch are given up. A
    /// panic of the iterator or of `fill` gives up the unpublished batch, and fails the graph.
    ///
    /// ```
    /// let (mut tx, mut rx) = slipring::unicast(8, || 0)?;
    /// assert_eq!(tx.publish_batches(2, 1..=5, |slot, i| *slot = i)?, 5);
    /// assert_eq!(rx.poll(8, |_, _| ())?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`ClaimError::Length`]: `len` is 0 or exceeds the ring's capacity.
    /// - [`ClaimError::Wait`]: the graph has ended, or only this thread could free the slots.
    /// - [`ClaimError::Wait`], in segments: `PeerDead`, `NameLost` or `Damaged` of a [`WaitError`].
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
            let seq = self.reserve_past_timeouts(len as u64)?;
            let slots = self.view();
            let batch = FillGuard { producer: self, seq, len: len as u64 };
            let mut filled = 0;
            let mut next = Some(first);
            while let Some(this) = next {
                // SAFETY: this handle has claimed the slots (producer::I2).
                // `batch` borrows the handle.
                // The loop ends once `filled` reaches `len`, so `filled < len` here.
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

    /// Takes the next item of a user's iterator. A panic of the iterator fails the graph, even
    /// while no claim is open.
    pub(crate) fn next_item<I: Iterator>(&mut self, items: &mut I) -> Option<I::Item> {
        let seq = self.next_seq();
        let guard = FillGuard { producer: self, seq, len: 0 };
        let item = items.next();
        std::mem::forget(guard);
        item
    }
}

/// A claim that user code is filling. If a panic drops the guard, the guard gives the claim up and,
/// in a ring of one process, fails the graph.
struct FillGuard<'p, E, L: Layout, S: sealed::Sharing> {
    producer: &'p mut Producer<E, L, S>,
    seq: u64,
    len: u64,
}

impl<E, L: Layout, S: sealed::Sharing> FillGuard<'_, E, L, S> {
    /// Publishes the claim's first `filled` slots and gives up the other slots.
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

impl<E, L: Layout, S: sealed::Sharing> Drop for FillGuard<'_, E, L, S> {
    #[cold]
    fn drop(&mut self) {
        let control = &self.producer.core().control;
        // In a segment, another process may take over as the producer, and then claims the slots
        // again.
        if !L::World::SHARED {
            control.fail(
                control.plan.producer_party(),
                Some(self.seq),
                Cause::Panic(FILL_PANIC.into()),
            );
        }
        self.producer.give_up(self.seq, self.len);
    }
}

/// Failure message for a panic in a closure that fills an event, or in an iterator of items: the
/// library does not see the panic's payload.
pub(crate) const FILL_PANIC: &str =
    "the closure that fills an event, or the iterator it is filled from, panicked";
