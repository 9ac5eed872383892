//! What is settled for the stage declared last: policies, batch sizes, idle calls, threads.

use std::time::Duration;

use super::{Chain, sealed};
use crate::base::panics::Contained;
use crate::errors::BuildError;
use crate::ring::policy::{Marks, OnFault, Policy};
use crate::ring::slots::Layout;
use crate::ring::spec::{Delivery, StageSpec};
use crate::wait::Wait;

impl<'env, E: Send + 'env, L: Layout, P: sealed::Place> Chain<'env, E, L, P> {
    /// Settles something for the stage declared last.
    fn settle(mut self, what: &str, change: impl FnOnce(&mut Policy)) -> Self {
        let problem = match self.parts.specs.last_mut() {
            Some(StageSpec { delivery: Delivery::Tap(_), name, .. }) => {
                Some(format!("`{what}` follows tap `{name}`, whose readers are not the chain's"))
            }
            Some(StageSpec { policy: Policy { own_loop: true, .. }, name, .. }) => Some(format!(
                "`{what}` follows `{name}`, which has a loop of its own: what becomes of a failure there is the loop's to say"
            )),
            Some(StageSpec { policy, .. }) => {
                change(policy);
                None
            }
            None => Some(format!("`{what}` must follow the stage that it is for")),
        };
        if let Some(what) = problem {
            self.parts.problem.get_or_insert(BuildError::Misplaced { what });
        }
        self
    }

    /// What becomes of the stage declared last when its handler returns an error. Default:
    /// [`OnFault::stop`]. Also when `batch_end` or `idle` of a handler with a life does; then
    /// nothing is skipped, for no event was at fault: what the handler was told is let go.
    pub fn on_error(self, on: OnFault) -> Self {
        self.settle("on_error", |policy| policy.error = on)
    }

    /// What becomes of the stage declared last when its handler panics. Default: [`OnFault::stop`].
    /// The handler is called again after its panic, so what it keeps should be whole at any time.
    #[doc(alias = "ExceptionHandler")]
    pub fn on_panic(self, on: OnFault) -> Self {
        self.settle("on_panic", |policy| policy.panic = on)
    }

    /// Notes which events the stage declared last skips, for later stages to ask.
    pub fn marks(self, marks: &Marks) -> Self {
        self.settle("marks", |policy| policy.marks = Some(marks.clone()))
    }

    /// The stage declared last (each worker of a pool) handles no more than so many events at a
    /// time before it releases them.
    pub fn max_batch(self, events: usize) -> Self {
        self.settle("max_batch", |policy| policy.max_batch = (events as u64).max(1))
    }

    /// Calls [`ReadHandler::idle`](crate::ReadHandler::idle) of the stage declared last again each
    /// time it has waited so long. Without this it is called once before each wait.
    #[doc(alias = "onTimeout")]
    pub fn idle_every(self, time: Duration) -> Self {
        self.settle("idle_every", |policy| policy.idle_every = Some(time))
    }

    /// How the stage declared last waits for events (each worker or shard of it), whatever the
    /// others do. Default: as [`Chain::wait`] says. Stages that share a thread wait together, so
    /// only one of them need say how, and two must say the same.
    ///
    /// ```
    /// use slipring::Wait;
    /// let mut sum = 0;
    /// slipring::ring(64, || 0u64)
    ///     .producer_wait(Wait::YIELDING)
    ///     .read("trade", |value, _| sum += value).stage_wait(Wait::BusySpin)
    ///     .read("journal", |_, _| ()).stage_wait(Wait::SLEEPING)
    ///     .feed(0..100, |slot, i| *slot = i)?;
    /// assert_eq!(sum, 4950);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn stage_wait(mut self, wait: Wait) -> Self {
        let wait = Contained::new(wait);
        let problem = match self.parts.specs.last_mut() {
            Some(spec) => {
                spec.wait = Some(wait);
                None
            }
            None => Some(
                "`stage_wait` must follow the stage that it is for; `wait` is for all".to_owned(),
            ),
        };
        if let Some(what) = problem {
            self.parts.problem.get_or_insert(BuildError::Misplaced { what });
        }
        self
    }

    /// Puts the stage declared last on the thread of this name. Stages with the same name take
    /// turns on one thread: often faster than threads that outnumber the cores.
    pub fn on(mut self, thread: &str) -> Self {
        let problem = match self.parts.specs.last_mut() {
            Some(StageSpec { name, policy: Policy { own_loop: true, .. }, .. }) => Some(format!(
                "`on({thread:?})` follows `{name}`, which has a loop of its own and cannot take turns"
            )),
            Some(StageSpec { delivery: Delivery::Each, thread: on, .. }) => {
                *on = Some(thread.to_owned());
                None
            }
            Some(StageSpec { name, delivery: Delivery::Tap(_), .. }) => Some(format!(
                "`on({thread:?})` follows tap `{name}`, whose readers come with threads of their own"
            )),
            Some(StageSpec { name, delivery: Delivery::Shards(_), .. }) => Some(format!(
                "`on({thread:?})` follows shards `{name}`, which have threads of their own"
            )),
            Some(StageSpec { name, .. }) => Some(format!(
                "`on({thread:?})` follows pool `{name}`, whose workers have threads of their own"
            )),
            None => {
                Some(format!("`on({thread:?})` must follow the stage that it puts on that thread"))
            }
        };
        if let Some(what) = problem {
            self.parts.problem.get_or_insert(BuildError::Misplaced { what });
        }
        self
    }
}
