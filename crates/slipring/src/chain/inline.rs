//! Runs a whole chain on the calling thread. A run on one thread is deterministic, and suits tests
//! and programs with a single thread.

use super::declare::Chain;
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained};
use crate::errors::{Cause, ClaimError, Error, WaitError};
use crate::producer::Producer;
use crate::ring::owner::Owner;
use crate::ring::self_wait::enter;
use crate::ring::slots::{Interleaved, Layout};
use crate::run::groups::{PlannedThread, Work};
use crate::run::launch::{Built, Done, finish, produce_contained};
use crate::run::thread::StageThread;
use crate::run::threads::Caller;

/// The producer that [`Chain::run_inline`] lends to its closure. While the ring is full, a
/// publication first gives each stage a turn.
pub struct Inline<'env, E, L: Layout = Interleaved> {
    producer: Producer<E, L>,
    core: Owner<E, L>,
    /// The stages, grouped as [`Chain::run`] groups them on threads.
    threads: Vec<StageThread<'env>>,
}

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L> {
    /// Runs the producer and all stages in turn on this thread.
    ///
    /// The stages take turns in the order of their declaration, and each handles its available
    /// events. Stages that share a thread ([`Chain::on`]) take their turns together, when the first
    /// of them has its turn. The same input gives the same order of calls in every run. The hook of
    /// [`Chain::on_thread_start`], the placement and the handlers' `idle` are not called.
    ///
    /// ```
    /// let mut seen = Vec::new();
    /// slipring::ring(4, || 0)
    ///     .write("double", |v, _| *v *= 2)
    ///     .read("keep", |v, _| seen.push(*v))
    ///     .run_inline(|p| {
    ///         for i in 0..10 { p.publish(|slot| *slot = i)?; }
    ///         Ok(())
    ///     })?;
    /// assert_eq!(seen, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chain::run`]. A stage with a loop of its own ([`Chain::read_by`]) is refused before the
    /// start.
    pub fn run_inline<T>(
        mut self,
        produce: impl FnOnce(&mut Inline<'env, E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        self.settings_mut().timed = false;
        let stages = &mut self.declared.stages;
        if let Some(spec) = stages.specs().iter().find(|spec| spec.policy.user_loop) {
            let problem = format!(
                "stage `{}` has a loop of its own, and cannot take turns on one thread",
                spec.name
            );
            stages.reject(problem);
        }
        let produce = Contained::new(produce);
        // The calling thread runs all stages, whatever threads and places the chain asks for.
        self.declared.threads = None;
        self.declared.placement = None;
        let Built { core, threads, hooks, .. } = self.build(false, Caller::Helps)?;
        let own = |thread: PlannedThread<'env>| match thread.work {
            Work::Own(stages) => Some(stages),
            Work::Shared(_) => None,
        };
        let threads = threads.into_iter().filter_map(own).collect();
        let mut inline = Inline { producer: Producer::of_run(&core), core: core.clone(), threads };
        let started = inline.threads.iter_mut().all(|thread| thread.start(&core.control));
        let produced = if started {
            produce_contained(&core.control, &mut inline, produce.into_inner())
        } else {
            Err(None)
        };
        // If the user's closure swapped its `Inline` for another chain's, this chain's graph fails,
        // and `driven` is the other chain's ring. The loop below runs the stages of `driven` to
        // their end.
        let Inline { producer, mut threads, core: driven } = inline;
        if !driven.same(&core) {
            core.control.fail(core.control.producer_party(), None, Cause::Dropped);
        }
        // The drop of `producer` closes its ring. A panic in the drop of `producer` fails this
        // chain's graph.
        if let Some(panic) = drop_contained(producer) {
            core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
        }
        if started {
            let _within = enter(&driven.control, threads.iter().flat_map(StageThread::lines));
            // All stages may have to wait for another thread that runs a tap's reader or a joined
            // worker. A turn of all stages without progress checks the graph's deadline.
            while let Some(handled) = threads
                .iter_mut()
                .filter_map(|thread| thread.turn(&driven.control))
                .reduce(u64::wrapping_add)
            {
                if handled == 0
                    && let Some((stage, at)) = threads.iter().find_map(StageThread::first_running)
                {
                    driven.control.expire(stage, at);
                }
            }
        }
        for thread in threads {
            thread.stop(&driven.control);
        }
        if let Some(panic) = driven.take_apart() {
            core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
        }
        hooks.drop_contained(&core.control);
        finish(core, produced, false)
    }
}

impl<E: Send, L: Layout> Inline<'_, E, L> {
    /// Fills the next slot and publishes the event; returns the event's position. While the ring is
    /// full, gives each stage a turn.
    ///
    /// Example: [`Chain::run_inline`].
    ///
    /// # Errors
    /// Returns a [`WaitError`] if the graph has failed or was halted.
    pub fn publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        while is_full(&mut self.producer)? {
            // After a skip, `work` may return 0 although a stage has released slots.
            if self.work() == 0 && matches!(is_full(&mut self.producer), Ok(true)) {
                let control = &self.core.control;
                control.expire(control.producer_party(), self.producer.next_seq());
            }
        }
        self.producer.publish(fill)
    }

    /// Publishes every item of an iterator; `fill` writes an item into a slot. Returns the number
    /// of items.
    ///
    /// ```
    /// let mut sum = 0;
    /// let done = slipring::ring(4, || 0)
    ///     .read("sum", |value, _| sum += value)
    ///     .run_inline(|p| Ok(p.publish_all(1..=10, |slot, i| *slot = i)?))?;
    /// assert_eq!((done.value, sum), (10, 55));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Inline::publish`].
    pub fn publish_all<I: IntoIterator>(
        &mut self,
        items: I,
        mut fill: impl FnMut(&mut E, I::Item),
    ) -> Result<u64, WaitError> {
        let mut count = 0;
        let mut items = items.into_iter();
        while let Some(item) = self.producer.next_item(&mut items) {
            self.publish(|slot| fill(slot, item))?;
            count += 1;
        }
        Ok(count)
    }

    /// Gives every stage one turn. Returns the number of events handled, summed over the stages.
    /// If a handler fails, `work` returns at least 1, and the result may leave out some handled
    /// events. A loop `while p.work() > 0 {}` does not end at a failure that the stage retries.
    ///
    /// ```
    /// slipring::ring(4, || 0)
    ///     .read("first", |_, _| ())
    ///     .read("second", |_, _| ())
    ///     .run_inline(|p| {
    ///         p.publish(|slot| *slot = 1)?;
    ///         assert_eq!(p.work(), 2); // one event, handled by two stages
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn work(&mut self) -> u64 {
        let control = &self.core.control;
        let _within = enter(control, self.threads.iter().flat_map(StageThread::lines));
        self.threads.iter_mut().filter_map(|thread| thread.turn(control)).sum()
    }

    /// Ends the graph without draining the ring: the stages do not get the events that they have
    /// not seen.
    ///
    /// ```
    /// let mut seen = 0;
    /// slipring::ring(4, || 0).read("count", |_, _| seen += 1).run_inline(|p| {
    ///     p.publish(|slot| *slot = 1)?;
    ///     p.halt();
    ///     Ok(())
    /// })?;
    /// assert_eq!(seen, 0);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn halt(&self) {
        self.producer.halt();
    }
}

/// Returns whether a claim would have to wait.
fn is_full<E, L: Layout>(producer: &mut Producer<E, L>) -> Result<bool, WaitError> {
    match producer.try_claim() {
        Ok(slot) => {
            drop(slot); // A single producer's unpublished claim has no effect.
            Ok(false)
        }
        Err(ClaimError::Wait(ended)) => Err(ended),
        Err(_) => Ok(true),
    }
}
