//! Queries about the previous process at a handle's place: which events are lent again and, if the
//! stage writes, which of these events may be half-written.
//!
//! Invariants
//! - I1: the events that a stage was lent and has not released are `[released, held)`. They are the
//!   first events that the stage's successor is lent (`seat::I2`). No later stage has seen them.
//! - I2: an event cannot be taken back: earlier stages may have handled it, and later stages follow
//!   only this stage's frontier. So a handle that passes over an event releases the event as it is.

use crate::consumer::batch::Batch;
use crate::consumer::handle::Consumer;
use crate::consumer::markers::{Updating, sealed};
use crate::consumer::position::ConsumerPosition as _;
use crate::errors::WaitError;
use crate::processes::markers::{BeginsAgain, SeatedWorker, Succeeds};
use crate::ring::seq_range::SeqRange;
use crate::ring::slots::Layout;
use crate::ring::words::ahead;

impl<E, A: sealed::Access, C: Succeeds, L: Layout> Consumer<E, A, C, L> {
    /// Returns the positions of the events that this handle lends again: they were lent to another
    /// process before, and that process died or left without releasing them. An event outside of
    /// the range is lent for the first time. In a stage that updates events, use
    /// [`suspects`](Consumer::suspects).
    ///
    /// - A stage's handle lends these events first.
    /// - A shard's handle first lends the shard's own events in the range. The range also covers
    ///   events of other shards.
    /// - A worker may at any time finish chunks that other workers left. So the range covers only
    ///   events of the worker's current chunk, and
    ///   [`Batch::redelivered`](crate::Batch::redelivered) returns the range for one batch. If the
    ///   pool writes, each event in the range may be half-written.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .reader("sum")
    ///     .pool_reader("print", 2)
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// tx.publish(|slot| *slot = 7)?;
    /// assert!(sum.redelivered().is_empty());
    /// drop(sum.batch(8)?); // not released
    /// drop(sum);
    /// assert_eq!(attached.reader("sum")?.redelivered(), (0..1).into());
    ///
    /// let mut one = attached.pool_reader("print")?;
    /// drop(one.batch(8)?); // not released
    /// assert!(one.redelivered().is_empty());
    /// drop(one);
    /// let mut other = attached.pool_reader("print")?;
    /// assert_eq!(other.poll(8, |event, _| assert_eq!(*event, 7))?, 1);
    /// assert_eq!(other.redelivered(), (0..1).into());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn redelivered(&self) -> SeqRange {
        C::again(&self.position)
    }
}

impl<E, C: BeginsAgain, L: Layout> Consumer<E, Updating, C, L> {
    /// Returns the positions of the next events that may be half-written: the previous process of
    /// this stage was lent these events, and died or left before it released them. They are the
    /// first events that this handle lends. Every later event is as the earlier stages have left
    /// it, and an event that this handle has released is no longer a suspect. A shard lends and
    /// touches only its own events.
    ///
    /// A handler should repair such an event, or mark it for the later stages. If it can do
    /// neither, call [`pass_over_suspects`](Consumer::pass_over_suspects) to leave the suspects
    /// out. [`Batch::suspects`](crate::Batch::suspects) returns the number of suspects in a batch.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    /// # impl slipring_shm::Event for Pair {
    /// #     const NAME: &'static str = "Pair";
    /// #     const VERSION: u32 = 1;
    /// # }
    /// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// #[repr(C)]
    /// struct Pair { one: u64, two: u64 }
    ///
    /// let segment = slipring_shm::Segment::<Pair>::create_memfd("pairs")
    ///     .capacity(8)
    ///     .updater("twice")
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// for n in 0..3 { tx.publish(|pair| *pair = Pair { one: n, two: 0 })?; }
    /// let mut twice = attached.updater("twice")?;
    /// assert!(twice.suspects().is_empty());
    /// twice.batch(1)?[0].two = 666; // half-written, and not released
    /// drop(twice);
    ///
    /// let mut twice = attached.updater("twice")?;
    /// let suspects = twice.suspects();
    /// assert_eq!(suspects.len(), 1);
    /// twice.poll(8, |pair, at| {
    ///     assert_eq!(pair.two != 0, suspects.contains(at.seq));
    ///     pair.two = 2 * pair.one; // repairs what may be half-written
    /// })?;
    /// assert!(twice.suspects().is_empty());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn suspects(&self) -> SeqRange {
        (self.position.first_unreleased()..C::again(&self.position).end_seq()).into()
    }

    /// Passes over the [`suspects`](Consumer::suspects): releases these events as they are, without
    /// lending them. Returns the number of these events, which [`StageReport::skipped`] counts,
    /// too. Call the method before this handle lends its first event: a later call finds no suspect
    /// to pass over.
    ///
    /// Later stages see the events as the previous process left them. A published event cannot be
    /// taken back, because earlier stages may have handled it. If later stages must be able to
    /// recognise the suspects, mark these events in a handler instead. If the previous process took
    /// large batches, most of the suspects are untouched or complete.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .updater("add")
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// for n in 0..5 { tx.publish(|slot| *slot = n)?; }
    /// let mut add = attached.updater("add")?;
    /// add.batch(2)?[0] += 1; // not released
    /// drop(add);
    ///
    /// let mut add = attached.updater("add")?;
    /// assert_eq!(add.pass_over_suspects()?, 2); // whether 1 was added is not known
    /// assert_eq!(add.poll(8, |number, _| *number += 1)?, 3);
    /// assert_eq!(attached.report().unwrap().stages()[0].skipped, 2);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    /// - [`WaitError::Damaged`]: the words of the segment contradict each other.
    ///
    /// A call that returns an error releases no event.
    ///
    /// # Cost
    /// Costs one release, which also releases the events that a [`hold`](crate::Batch::hold) kept.
    ///
    /// [`StageReport::skipped`]: crate::reports::StageReport::skipped
    pub fn pass_over_suspects(&mut self) -> Result<u64, WaitError> {
        C::pass_over(&mut self.position)
    }
}

impl<E, A: sealed::Access, L: Layout> Batch<'_, E, A, SeatedWorker, L> {
    /// Returns the positions of the batch's events that may have been lent before, to a worker that
    /// died or left without a release; see
    /// [`Consumer::redelivered`](crate::Consumer::redelivered).
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .pool_updater("add", 2)
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// tx.publish(|slot| *slot = 7)?;
    /// let mut one = attached.pool_updater("add")?;
    /// one.batch(8)?[0] += 1; // not released
    /// drop(one);
    /// let mut other = attached.pool_updater("add")?;
    /// assert_eq!(other.batch(8)?.redelivered(), (0..1).into()); // whether 1 was added is not known
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn redelivered(&self) -> SeqRange {
        // A batch lies within one chunk. If a chunk is lent again, all of its events are lent
        // again.
        let len = if self.position.again().is_empty() { 0 } else { self.len };
        SeqRange::new(self.view.first_seq(), len as usize)
    }
}

impl<E, C: BeginsAgain, L: Layout> Batch<'_, E, Updating, C, L> {
    /// Returns how many of the batch's first events may be half-written, as
    /// [`Consumer::suspects`](crate::Consumer::suspects) explains. The other events of the batch
    /// are whole.
    ///
    /// ```
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// let segment = slipring_shm::Segment::<u64>::create_memfd("numbers")
    ///     .capacity(8)
    ///     .updater("add")
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// for n in 0..5 { tx.publish(|slot| *slot = n)?; }
    /// let mut add = attached.updater("add")?;
    /// assert_eq!(add.batch(2)?.suspects(), 0);
    /// drop(add); // nothing was released
    ///
    /// let mut add = attached.updater("add")?;
    /// let batch = add.batch(8)?;
    /// assert_eq!((batch.len(), batch.suspects()), (5, 2));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn suspects(&self) -> usize {
        let end = C::again(self.position).end_seq();
        let suspects = ahead(end, self.view.first_seq()).max(0) as u64;
        suspects.min(self.len) as usize
    }
}
