//! Runs a whole chain on the calling thread. Such a run is deterministic, and suits tests and
//! programs with a single thread.

use std::mem::take;
use std::time::Instant;

use super::declare::Chain;
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained};
use crate::base::sync::{Arc, yield_now};
use crate::base::turn::InTurns;
use crate::errors::{Cause, ClaimError, Error, PassError, WaitError};
use crate::producer::Producer;
use crate::promise::{Awaited, Promise};
use crate::ring::control::Control;
use crate::ring::helper::{self, Help};
use crate::ring::owner::Owner;
use crate::ring::self_wait::enter;
use crate::ring::slots::{Interleaved, Layout};
use crate::run::groups::{PlannedThread, Work};
use crate::run::launch::{Built, Done, finish, produce_contained};
use crate::run::thread::StageThread;
use crate::run::threads::Caller;

/// The producer that [`Chain::run_inline`] lends to its closure. While the ring is full, a
/// publication first gives each stage a turn. The stages also get turns while the closure waits for
/// the answer to a request, or for an event of a handle.
pub struct Inline<'env, E, L: Layout = Interleaved> {
    producer: Producer<E, L>,
    core: Owner<E, L>,
    stages: Arc<Stages<'env>>,
}

/// The stages of a chain that runs on one thread, grouped as [`Chain::run`] groups them on threads.
/// A running handler holds the turn, so the stages do not run again inside that handler.
struct Stages<'env>(InTurns<Vec<StageThread<'env>>>);

impl<'env> Stages<'env> {
    /// Gives every stage one turn. Returns the number of handled events.
    fn work(&self, control: &Control) -> u64 {
        let Some(mut threads) = self.0.take() else { return 0 };
        let _within = enter(control, threads.iter().flat_map(StageThread::lines));
        threads.iter_mut().filter_map(|thread| thread.turn(control)).sum()
    }
}

/// The calling thread, which runs the stages while it waits for their ring.
struct Helping<'a, 'env> {
    stages: &'a Stages<'env>,
    control: &'a Control,
}

impl Help for Helping<'_, '_> {
    // No other thread runs the stages, so each stage runs even if its turn may last beyond a
    // deadline.
    fn step(&self, until: Option<Instant>) -> bool {
        self.is_ready(until) && self.stages.work(self.control) != 0
    }
    fn is_ready(&self, _: Option<Instant>) -> bool {
        self.stages.0.take().is_some_and(|threads| threads.iter().any(StageThread::is_ready))
    }
    fn wait_begins(&self) {}
    fn wait_ended(&self) {}
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
    ///     .update("double", |v, _| *v *= 2)
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
    /// - [`ErrorKind::Build`](crate::errors::ErrorKind::Build): the chain has a mistake, cannot
    ///   start, or has a stage with a loop of its own ([`Chain::read_by`]). No handler has run.
    /// - [`ErrorKind::Failed`](crate::errors::ErrorKind::Failed): the first failure: an error or
    ///   panic of a handler, an error or panic of `produce`, or a passed deadline.
    /// - [`ErrorKind::EventDrop`](crate::errors::ErrorKind::EventDrop): the run has ended well, and
    ///   then the drop of an event panicked.
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
        // The calling thread runs all stages, even if the chain asks for other threads or places.
        self.declared.threads = None;
        self.declared.placement = None;
        let Built { core, threads, hooks, .. } = self.build(false, Caller::Helps)?;
        let own = |thread: PlannedThread<'env>| match thread.work {
            Work::Own(stages) => Some(stages),
            Work::Shared(_) => None,
        };
        let mut threads: Vec<_> = threads.into_iter().filter_map(own).collect();
        let started = threads.iter_mut().all(|thread| thread.start(&core.control));
        let stages = Arc::new(Stages(InTurns::new(threads)));
        let (producer, own) = (Producer::of_run(&core), stages.clone());
        let mut inline = Inline { producer, core: core.clone(), stages };
        let produced = if started {
            let helping = Helping { stages: &own, control: &core.control };
            helper::during(&core.control, &helping, || {
                produce_contained(&core.control, &mut inline, produce.into_inner())
            })
        } else {
            Err(None)
        };
        // If the user's closure swapped its `Inline` for that of another chain, this chain's graph
        // fails. Then `driven` is the other chain's ring, and the loop below runs the stages of
        // `driven` to their end.
        let Inline { producer, stages, core: driven } = inline;
        // If the closure swapped the `Inline` values of two chains, the other chain may still refer
        // to these stages. So they are taken out of the place that both share.
        let mut threads = stages.0.take().map(|mut turn| take(&mut *turn)).unwrap_or_default();
        if !driven.same(&core) {
            core.control.fail(core.control.plan.producer_party(), None, Cause::Dropped);
        }
        // Dropping `producer` closes its ring. A panic during that drop fails this chain's graph.
        if let Some(panic) = drop_contained(producer) {
            core.control.fail(core.control.plan.producer_party(), None, Cause::Panic(panic));
        }
        if started {
            let _within = enter(&driven.control, threads.iter().flat_map(StageThread::lines));
            // All stages may have to wait for another thread, which runs a tap's reader or a joined
            // worker. So if all stages have had a turn and none has made progress, the loop checks
            // the graph's deadline.
            while let Some(handled) = threads
                .iter_mut()
                .filter_map(|thread| thread.turn(&driven.control))
                .reduce(u64::wrapping_add)
            {
                if handled == 0
                    && let Some((stage, at)) = threads.iter().find_map(StageThread::first_running)
                {
                    driven.control.expire(stage, at);
                    yield_now();
                }
            }
        }
        for thread in threads {
            thread.stop(&driven.control);
        }
        if let Some(panic) = driven.take_apart() {
            core.control.fail(core.control.plan.producer_party(), None, Cause::Panic(panic));
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
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    pub fn publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        self.make_room()?;
        self.producer.publish(fill)
    }

    /// Publishes a request, as [`Producer::ask`] does. While the ring is full, the call gives each
    /// stage a turn. A wait for the answer on this thread gives each stage turns, too.
    ///
    /// ```
    /// use slipring::Promise;
    /// slipring::ring(4, || (0, None::<Promise<u64>>))
    ///     .update("square", |(number, answer), _| {
    ///         if let Some(answer) = answer.take() {
    ///             let _ = answer.fulfil(*number * *number);
    ///         }
    ///     })
    ///     .run_inline(|p| {
    ///         let mut answer = p.ask(|event, answer| *event = (7, Some(answer)))?;
    ///         assert_eq!(answer.wait()?, 49);
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
    pub fn ask<T>(
        &mut self,
        fill: impl FnOnce(&mut E, Promise<T>),
    ) -> Result<Awaited<T>, WaitError> {
        self.make_room()?;
        self.producer.ask(fill)
    }

    /// Waits until the stage named `stage` has passed the position `seq`, as
    /// [`Producer::wait_for`] does. The call gives each stage turns.
    ///
    /// Example: [`Inline::flush`].
    ///
    /// # Errors
    /// - [`PassError::UnknownStage`]: the graph has no stage of this name.
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph was halted or has failed, or `seq` is not published yet.
    pub fn wait_for(&mut self, stage: &str, seq: u64) -> Result<(), PassError> {
        self.producer.wait_for(stage, seq)
    }

    /// Waits until every last stage has passed everything that was published, as
    /// [`Producer::flush`] does. The call gives each stage turns.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// let seen = Mutex::new(Vec::new());
    /// let push = |value: &i32, _| seen.lock().unwrap().push(*value);
    /// slipring::ring(4, || 0).read("see", push).run_inline(|p| {
    ///     let seq = p.publish(|slot| *slot = 7)?;
    ///     p.wait_for("see", seq)?;
    ///     assert_eq!(*seen.lock().unwrap(), [7]);
    ///     Ok(p.flush()?)
    /// })?;
    /// # Ok::<(), slipring::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`PassError::TimedOut`]: the wait strategy's timeout passed.
    /// - [`PassError::Wait`]: the graph was halted or has failed.
    pub fn flush(&mut self) -> Result<(), PassError> {
        self.producer.flush()
    }

    /// Gives each stage turns until a slot is free.
    fn make_room(&mut self) -> Result<(), WaitError> {
        while is_full(&mut self.producer)? {
            // A shard may release events of other shards, although `work` returns 0.
            if self.work() == 0 && matches!(is_full(&mut self.producer), Ok(true)) {
                let control = &self.core.control;
                control.expire(control.plan.producer_party(), self.producer.next_seq());
                // A reader of a tap, or a joined worker, holds the ring up on another thread.
                yield_now();
            }
        }
        Ok(())
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
    /// - [`WaitError::Halted`], [`WaitError::Failed`]: the graph was halted or has failed.
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

    /// Gives every stage one turn. Returns the number of events handled by all stages. If a handler
    /// fails, the result is at least 1, and may not count some handled events. It is at least 1
    /// again in the next turn of that stage, which releases the events that the stage has skipped.
    /// So a loop `while p.work() > 0 {}` continues after a failure that the stage survives, until
    /// no stage has an event left.
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
        self.stages.work(&self.core.control)
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
