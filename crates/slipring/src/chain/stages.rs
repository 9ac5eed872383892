//! Stages with a single handler that sees every event.

use super::declare::Chain;
use super::scope::{MayUpdate, sealed};
use crate::base::fault::Outcome;
use crate::consumer::handle::{Reader, Updater};
use crate::observe::mirror::Mirror;
use crate::observe::words::Plain;
use crate::ring::events::{At, Events, EventsMut};
use crate::ring::slots::Layout;
use crate::ring::spec::Access;
use crate::run::handlers::{
    ReadBatch, ReadEach, ReadHandler, ReadWith, UpdateHandler, WriteBatch, WriteEach, WriteWith,
};

impl<'env, E: Send + 'env, L: Layout, P: sealed::ChainScope> Chain<'env, E, L, P> {
    /// Adds a stage whose handler reads every event. The handler also gets each event's position.
    ///
    /// ```
    /// let mut lines = Vec::new();
    /// slipring::ring(64, || 0u64)
    ///     .read("print", |value, at| lines.push(format!("{}: {value}", at.seq)))
    ///     .feed([7, 8], |slot, value| *slot = value)?;
    /// assert_eq!(lines, ["0: 7", "1: 8"]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// A handler that uses `?` ends with [`slipring::ok()`](crate::ok()).
    #[doc(alias = "EventHandler")]
    pub fn read<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&E, At) -> R + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.stage(name, Access::Read, ReadEach::new(handler))
    }

    /// Adds a stage whose handler may change every event. Later stages see the changed event.
    ///
    /// ```
    /// let mut seen = Vec::new();
    /// slipring::ring(64, || 0u64)
    ///     .update("double", |value, _| *value *= 2)
    ///     .read("keep", |value, _| seen.push(*value))
    ///     .feed([7, 8], |slot, value| *slot = value)?;
    /// assert_eq!(seen, [14, 16]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    #[doc(alias = "write")]
    #[doc(alias = "map")]
    pub fn update<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&mut E, At) -> R + Send + 'env,
    ) -> Self
    where
        P: MayUpdate,
    {
        self.stage(name, Access::Write, WriteEach::new(handler))
    }

    /// Adds a stage whose handler reads whole batches. The handler also gets the position of each
    /// batch's first event.
    ///
    /// A batch holds the available events, at most as many as a quarter of the ring's slots;
    /// [`Chain::max_batch`] sets a smaller maximum, and [`Chain::batch_within`] lets a batch wait
    /// for more events. The stage releases the batch when the handler returns.
    ///
    /// ```
    /// let mut sum = 0;
    /// slipring::ring(64, || 0u64)
    ///     .read_batch("sum", |events, _first_seq| sum += events.iter().sum::<u64>())
    ///     .feed(1..=4, |slot, value| *slot = value)?;
    /// assert_eq!(sum, 10);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn read_batch<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&Events<'_, E, L>, u64) -> R + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.stage(name, Access::Read, ReadBatch::new(handler))
    }

    /// Adds a stage whose handler may change whole batches.
    ///
    /// Example: [`Chain::read_batch`].
    #[doc(alias = "write_batch")]
    pub fn update_batch<R: Outcome + 'env>(
        self,
        name: &str,
        handler: impl FnMut(&mut EventsMut<'_, E, L>, u64) -> R + Send + 'env,
    ) -> Self
    where
        P: MayUpdate,
    {
        self.stage(name, Access::Write, WriteBatch::new(handler))
    }

    /// Adds a stage whose handler is also called at the start, after each batch, before a wait, and
    /// at the end. Takes a [`ReadHandler`], or `&mut` of one if the caller needs its state
    /// afterwards.
    ///
    /// Example: [`ReadHandler`].
    pub fn read_with(self, name: &str, handler: impl ReadHandler<E> + Send + 'env) -> Self
    where
        E: Sync,
    {
        self.stage(name, Access::Read, ReadWith(handler))
    }

    /// Adds a stage as [`Chain::read_with`] does, for a handler that may change events.
    ///
    /// Example: [`UpdateHandler`].
    #[doc(alias = "write_with")]
    pub fn update_with(self, name: &str, handler: impl UpdateHandler<E> + Send + 'env) -> Self
    where
        P: MayUpdate,
    {
        self.stage(name, Access::Write, WriteWith(handler))
    }

    /// Adds a stage with a loop of its own: `run` is called with the stage's handle, on the stage's
    /// thread.
    ///
    /// The loop may release the first events of a batch early
    /// ([`Batch::release_front`](crate::Batch::release_front)), or hold events over several batches
    /// ([`Batch::hold`](crate::Batch::hold)). Between two batches it may also wait, for instance
    /// for a socket. `run` must return when the handle reports the end of the stream; if it returns
    /// earlier, the graph fails. Such a stage takes no options for handlers, such as
    /// [`Chain::on_error`] and [`Chain::max_batch`], and cannot share a thread ([`Chain::on`]) or
    /// run in [`Chain::run_inline`].
    ///
    /// ```
    /// let mut lines = Vec::new();
    /// slipring::ring(8, || 0u64)
    ///     .read_by("journal", |rx| {
    ///         while let Ok(mut batch) = rx.batch(4) {
    ///             lines.push(batch[0]);
    ///             batch.release_front(1); // the others are still held
    ///             lines.extend(batch.iter().copied());
    ///             batch.release();
    ///         }
    ///     })
    ///     .feed(0..20, |slot, i| *slot = i)?;
    /// assert_eq!(lines, (0..20).collect::<Vec<_>>());
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn read_by<R: Outcome + 'env>(
        self,
        name: &str,
        run: impl FnOnce(&mut Reader<E, L>) -> R + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.looping(name, Access::Read, run)
    }

    /// Adds a stage as [`Chain::read_by`] does, with a handle that may change events.
    ///
    /// Example: [`Chain::read_by`].
    #[doc(alias = "write_by")]
    pub fn update_by<R: Outcome + 'env>(
        self,
        name: &str,
        run: impl FnOnce(&mut Updater<E, L>) -> R + Send + 'env,
    ) -> Self
    where
        P: MayUpdate,
    {
        self.looping(name, Access::Write, run)
    }

    /// Adds a stage that copies a value of each event into a mirror, for observers that delay no
    /// other thread: see [`Mirror`].
    ///
    /// ```
    /// let mirror = slipring::Mirror::new(8)?;
    /// let mut observer = mirror.handle().observe();
    /// slipring::ring(8, || ("", 0))
    ///     .observe("prices", mirror, |(_symbol, price)| *price)
    ///     .feed([("A", 1), ("B", 7)], |slot, order| *slot = order)?;
    /// assert_eq!(observer.latest()?.value, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Later stages and the producer wait for this stage as for any other. The stage copies a value
    /// of each event once, and again if it handles the event again
    /// ([`OnFault::retry`](crate::OnFault::retry)). The mirror closes when the stage ends.
    pub fn observe<T: Plain>(
        self,
        name: &str,
        mirror: Mirror<T>,
        project: impl FnMut(&E) -> T + Send + 'env,
    ) -> Self
    where
        E: Sync,
    {
        self.read(name, mirror.put_each(project))
    }
}
