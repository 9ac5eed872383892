//! The calls of a builder that depend on the segment's contents: events of a type, blocks, or
//! messages.
//!
//! Invariants
//! - I1: the key of shards is one range of bytes for all events. For events of a type, it is the
//!   range of a field. For blocks, it is the given range, which [`Builder::build`] checks.

use std::ops::Range;

use zerocopy::{Immutable, IntoBytes};

use super::Builder;
use crate::contents::{Blocks, Event, Messages, event};
use crate::layout::Stamps;

impl<E: Event> Builder<E> {
    /// Adds a stage of `shards` shards that read: 1 to 64, and at most as many as the ring has
    /// slots. The key of each event selects its shard. Each shard is a separate handle, in any
    /// process ([`Attached::shard_reader`](crate::Attached::shard_reader)), and sees all events of
    /// its keys, in their order. No slot is overwritten before every shard has passed it, even
    /// while a shard has no process.
    ///
    /// `key` returns a reference to a field of the event, or to a part of one. The builder calls it
    /// once, with an event of zeros, because only the field's offset counts: programs in other
    /// languages find the key at the same offset. Keys are equal if their bytes are equal.
    ///
    /// ```
    /// use slipring_shm::{Event, Segment};
    /// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    ///
    /// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// #[repr(C)]
    /// struct Order { account: u32, volume: u32 }
    ///
    /// impl Event for Order {
    ///     const NAME: &'static str = "desk/Order";
    ///     const VERSION: u32 = 1;
    /// }
    ///
    /// let segment = Segment::<Order>::create_memfd("orders")
    ///     .capacity(8)
    ///     .shard_reader("risk", 2, |order| &order.account)
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// for account in [7, 8, 7, 9, 7] {
    ///     tx.publish(|order| *order = Order { account, volume: 1 })?;
    /// }
    /// drop(tx);
    /// let mut volumes = [0; 10];
    /// for shard in 0..2 {
    ///     // Usually in two processes.
    ///     let mut risk = attached.shard_reader("risk", shard)?;
    ///     let mut own = [0; 10];
    ///     risk.for_each(|order, _| own[order.account as usize] += order.volume)?;
    ///     assert!(own[7] == 0 || own[7] == 3); // one shard sees all orders of an account
    ///     for (all, own) in volumes.iter_mut().zip(own) { *all += own }
    /// }
    /// assert_eq!(volumes[7..], [3, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shard_reader<K: IntoBytes + Immutable + ?Sized>(
        mut self,
        name: impl Into<String>,
        shards: usize,
        key: impl FnOnce(&E) -> &K,
    ) -> Builder<E> {
        self.graph_mut(|graph| graph.add_shards(name.into(), false, shards, event::part(key)));
        self
    }

    /// Adds shards like [`shard_reader`](Builder::shard_reader), but they may change their own
    /// events. A shard may even change an event's key, because an event's shard is chosen by the
    /// key that the event had when it reached the shards.
    ///
    /// ```
    /// use slipring_shm::Segment;
    /// let segment = Segment::<u64>::create_memfd("squared")
    ///     .capacity(8)
    ///     .shard_updater("square", 2, |number| number)
    ///     .reader("sum")
    ///     .after(["square"])
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// for n in 1..=4 { tx.publish(|slot| *slot = n)?; }
    /// for shard in 0..2 {
    ///     attached.shard_updater("square", shard)?.poll(8, |number, _| *number *= *number)?;
    /// }
    /// let mut total = 0;
    /// sum.poll(8, |number, _| total += number)?;
    /// assert_eq!(total, 1 + 4 + 9 + 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shard_updater<K: IntoBytes + Immutable + ?Sized>(
        mut self,
        name: impl Into<String>,
        shards: usize,
        key: impl FnOnce(&E) -> &K,
    ) -> Builder<E> {
        self.graph_mut(|graph| graph.add_shards(name.into(), true, shards, event::part(key)));
        self
    }
}

impl Builder<Blocks> {
    /// Sets the size of a block and its alignment, in bytes. The size is a multiple of the
    /// alignment, which is a power of two up to 4,096.
    ///
    /// Example: [`Blocks`].
    pub fn block(mut self, size: usize, align: usize) -> Builder<Blocks> {
        let shape = &mut self.declaration.shape;
        (shape.event_size, shape.event_align) = (size as u64, align as u64);
        self
    }

    /// Adds a stage of `shards` shards that read: 1 to 64, and at most as many as the ring has
    /// slots. The key of each block selects its shard. Each shard is a separate handle, in any
    /// process ([`Attached::shard_reader`](crate::Attached::shard_reader)), and sees all blocks of
    /// its keys, in their order. No slot is overwritten before every shard has passed it, even
    /// while a shard has no process.
    ///
    /// `key` is the range of a block's bytes that hold the key. Keys are equal if their bytes are
    /// equal. The range may be given before the size of a block. [`build`](Builder::build) fails
    /// with [`Problem::KeyRange`](crate::errors::Problem::KeyRange) unless the range has at least
    /// one byte, ends within the block, and begins in the block's first 4 GiB.
    ///
    /// # Cost
    /// For each block, the producer hashes the key, eight bytes at a time, and stores a shard id of
    /// 4 bytes. If updating stages come before the shards, the last of them does this work instead.
    ///
    /// ```
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// // Rows of a table whose columns are known at run time; the column at offset 8 is the account.
    /// let segment = Segment::<Blocks>::create_memfd("rows")
    ///     .capacity(8)
    ///     .block(24, 8)
    ///     .shard_reader("risk", 2, 8..12)
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let mut tx = attached.producer()?;
    /// for account in [7u32, 8, 7, 9, 7] {
    ///     tx.publish(|row| row[8..12].copy_from_slice(&account.to_le_bytes()))?;
    /// }
    /// drop(tx);
    /// let mut rows = 0;
    /// for shard in 0..2 {
    ///     // Usually in two processes.
    ///     let mut risk = attached.shard_reader("risk", shard)?;
    ///     let mut of_seven = 0;
    ///     rows += risk.for_each(|row, _| of_seven += u32::from(row[8] == 7))?;
    ///     assert!(of_seven == 0 || of_seven == 3); // one shard sees all rows of an account
    /// }
    /// assert_eq!(rows, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shard_reader(
        mut self,
        name: impl Into<String>,
        shards: usize,
        key: Range<usize>,
    ) -> Builder<Blocks> {
        self.graph_mut(|graph| graph.add_keyed(name.into(), false, shards, key));
        self
    }

    /// Adds shards like `shard_reader`, but they may change their own blocks. A shard may even
    /// change a block's key, because a block's shard is chosen by the key that the block had when
    /// it reached the shards.
    ///
    /// ```
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// let segment = Segment::<Blocks>::create_memfd("rows")
    ///     .capacity(8)
    ///     .block(2, 1)
    ///     .shard_updater("double", 2, 0..1)
    ///     .reader("sum")
    ///     .after(["double"])
    ///     .build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut sum) = (attached.producer()?, attached.reader("sum")?);
    /// for byte in 1..=4 { tx.publish(|row| row.fill(byte))?; }
    /// drop(tx);
    /// for shard in 0..2 {
    ///     let mut double = attached.shard_updater("double", shard)?;
    ///     while let Ok(mut batch) = double.batch(8) {
    ///         for offset in 0..batch.len() { batch.get_mut(offset).unwrap()[1] *= 2 }
    ///         batch.release();
    ///     }
    /// }
    /// let mut total = 0;
    /// sum.for_each(|row, _| total += row[1])?;
    /// assert_eq!(total, 2 * (1 + 2 + 3 + 4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shard_updater(
        mut self,
        name: impl Into<String>,
        shards: usize,
        key: Range<usize>,
    ) -> Builder<Blocks> {
        self.graph_mut(|graph| graph.add_keyed(name.into(), true, shards, key));
        self
    }

    /// Puts each block's stamp in front of the block, instead of into an array of stamps. If the
    /// blocks are small, a stage that keeps up then fetches one cache line for each block instead
    /// of two. But the blocks no longer lie side by side.
    ///
    /// ```
    /// use slipring_shm::{Segment, blocks::Blocks};
    /// let segment = Segment::<Blocks>::create_memfd("rows").capacity(8).block(24, 8);
    /// let segment = segment.stamps_inside().reader("all").build()?;
    /// // SAFETY: no other process has the memfd.
    /// let attached = unsafe { segment.attach()? };
    /// let (mut tx, mut all) = (attached.producer()?, attached.reader("all")?);
    /// tx.publish(|block| block.fill(7))?;
    /// assert_eq!(all.batch(1)?.stretches()[0].stride, 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stamps_inside(mut self) -> Builder<Blocks> {
        self.declaration.shape.stamps = Stamps::Inside;
        self
    }

    /// Sets the name and the version of the blocks' contents. The name has 1 to 64 bytes without
    /// control characters. By default, the name is `blocks` and the version 0.
    ///
    /// Example: [`Blocks`].
    pub fn type_name(mut self, name: impl Into<String>, version: u32) -> Builder<Blocks> {
        self.name_type(name.into(), version);
        self
    }
}

impl Builder<Messages> {
    /// Sets the name and the version of the messages' contents. The name has 1 to 64 bytes without
    /// control characters. By default, the name is `messages` and the version 0.
    ///
    /// Example: [`Segment::type_version`](crate::Segment::type_version).
    pub fn type_name(mut self, name: impl Into<String>, version: u32) -> Builder<Messages> {
        self.name_type(name.into(), version);
        self
    }
}
