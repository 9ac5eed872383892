//! A whole graph on the calling thread: deterministic, for tests, and for programs with one thread
//! to spare.

use super::Chain;
use super::launch::{Built, finish, produce_contained};
use super::runner::Delivery;
use crate::base::fault::Fault;
use crate::base::panics::{Contained, drop_contained};
use crate::errors::{BuildError, Cause, ClaimError, Error, WaitError};
use crate::producer::Producer;
use crate::ring::owner::Owner;
use crate::ring::self_wait::enter;
use crate::ring::slots::{Interleaved, Layout};

use super::launch::Done;

/// The producer of a chain that runs on this thread: instead of waiting for room it lets the stages
/// work.
pub struct Inline<'env, E, L: Layout = Interleaved> {
    producer: Producer<E, L>,
    core: Owner<E, L>,
    crews: Vec<Delivery<'env>>,
}

impl<'env, E: Send + 'env, L: Layout> Chain<'env, E, L> {
    /// Runs producer and stages in turn on this thread. The same input gives the same order of
    /// calls every time: stages in the order of their declaration, each with what is there. Threads
    /// named by [`Chain::on`] and [`Chain::on_thread_start`] do not apply.
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
    /// As [`Chain::run`].
    pub fn run_inline<T>(
        mut self,
        produce: impl FnOnce(&mut Inline<'env, E, L>) -> Result<T, Fault>,
    ) -> Result<Done<T>, Error> {
        self.parts.settings.timed = false;
        if let Some(spec) = self.parts.specs.iter().find(|spec| spec.policy.own_loop) {
            let what = format!(
                "stage `{}` has a loop of its own, and cannot take turns on one thread",
                spec.name
            );
            self.parts.problem.get_or_insert(BuildError::Misplaced { what });
        }
        let produce = Contained::new(produce);
        let Built { core, threads, hooks } = self.build(false)?;
        let crews = threads.into_iter().map(|seating| seating.delivery).collect();
        let mut inline = Inline { producer: Producer::of_chain(&core), core: core.clone(), crews };
        let started = inline.crews.iter_mut().all(|delivery| delivery.start(&core.control));
        let produced = if started {
            produce_contained(&core.control, &mut inline, produce.into_inner())
        } else {
            Err(None)
        };
        // The closure may have swapped its handle for that of another ring: then this ring has
        // failed, and the other one ends here.
        let Inline { producer, mut crews, core: driven } = inline;
        if !driven.same(&core) {
            core.control.fail(core.control.producer_party(), None, Cause::Dropped);
        }
        // It may be the last owner of that other ring, whose events are the user's.
        if let Some(panic) = drop_contained(producer) {
            core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
        }
        if started {
            let _within = enter(&driven.control, crews.iter().flat_map(Delivery::lines));
            // A round may move nothing: members of taps and workers that joined are elsewhere.
            while let Some(handled) = crews
                .iter_mut()
                .filter_map(|delivery| delivery.turn(&driven.control))
                .reduce(u64::wrapping_add)
            {
                if handled == 0
                    && let Some((stage, at)) = crews.iter().find_map(Delivery::first_waiting)
                {
                    driven.control.expire(stage, at);
                }
            }
        }
        for delivery in crews {
            delivery.stop(&driven.control);
        }
        if let Some(panic) = driven.take_apart() {
            core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
        }
        hooks.drop_contained(&core.control);
        finish(core, produced)
    }
}

impl<E: Send, L: Layout> Inline<'_, E, L> {
    /// Fills the next slot and publishes it; while the ring is full, lets the stages work. Returns
    /// its position.
    ///
    /// # Errors
    /// When a stage has failed, or the ring was halted.
    pub fn publish(&mut self, fill: impl FnOnce(&mut E)) -> Result<u64, WaitError> {
        loop {
            match self.producer.is_full() {
                Ok(false) => return self.producer.publish(fill),
                Ok(true) => {
                    // A stage may let go without handling: what it skipped last.
                    if self.work() == 0 && matches!(self.producer.is_full(), Ok(true)) {
                        let control = &self.core.control;
                        control.expire(control.producer_party(), self.producer.next_seq());
                    }
                }
                Err(closed) => return Err(closed),
            }
        }
    }

    /// Publishes every item of an iterator; returns how many.
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

    /// Gives every stage one turn; returns how many events were handled in all.
    pub fn work(&mut self) -> u64 {
        let control = &self.core.control;
        let _within = enter(control, self.crews.iter().flat_map(Delivery::lines));
        self.crews.iter_mut().filter_map(|delivery| delivery.turn(control)).sum()
    }

    /// Ends the graph at once; what was published and not yet seen stays unseen.
    pub fn halt(&self) {
        self.producer.halt();
    }
}

impl<E, L: Layout> Producer<E, L> {
    /// Whether a claim would have to wait.
    fn is_full(&mut self) -> Result<bool, WaitError> {
        match self.try_claim() {
            Ok(slot) => {
                drop(slot); // taken back: nothing was claimed
                Ok(false)
            }
            Err(ClaimError::Wait(closed)) => Err(closed),
            Err(_) => Ok(true),
        }
    }
}
