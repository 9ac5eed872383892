//! The user's closures that decide what follows a failure of a stage.
//!
//! Invariants
//! - I1: a closure runs on one thread at a time. The workers of a pool and the shards of a stage
//!   share one closure, and wait for each other.
//! - I2: the events of a [`Failed`] were found by a poll of the failed stage's position, and the
//!   stage releases none of them while the `Failed` lives.
//! - I3: while a thread runs a closure, it runs no other worker or shard of the stage, and a wait
//!   of the closure for any of them returns an error. They may fail, and then wait for the closure.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use crate::base::fault::Fault;
use crate::base::name::Name;
use crate::base::panics::drop_contained;
use crate::base::sync::panicking;
use crate::base::turn::InTurns;
use crate::errors::WaitError;
use crate::ring::control::Control;
use crate::ring::events::Events;
use crate::ring::policy::OnFault;
use crate::ring::self_wait;
use crate::ring::slots::{Interleaved, Layout};

/// Time between two checks whether another thread has left the closure.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A failure of a stage's handler, as passed to the closure of
/// [`Chain::on_error_with`](crate::Chain::on_error_with) or
/// [`Chain::on_panic_with`](crate::Chain::on_panic_with).
///
/// The closure runs on the stage's thread, behind the failed call of the handler. So the stage
/// still holds the failed event, and the closure may read it.
///
/// Example: [`Chain::on_error_with`](crate::Chain::on_error_with).
#[doc(alias = "ExceptionHandler")]
pub struct Failed<'a, E, L: Layout = Interleaved> {
    pub(super) stage: Name,
    pub(super) seq: Option<u64>,
    pub(super) error: &'a Fault,
    pub(super) tries: u32,
    pub(super) events: Events<'a, E, L>,
}

impl<E, L: Layout> Failed<'_, E, L> {
    /// Returns the stage's name.
    ///
    /// Example: [`Failed::events`].
    pub fn stage(&self) -> &Name {
        &self.stage
    }

    /// Returns the position of the event at which the handler failed, or of the first event of the
    /// failed batch. Returns `None` if the handler failed between events, in `batch_end` or `idle`.
    ///
    /// Example: [`Chain::on_error_with`](crate::Chain::on_error_with).
    pub fn seq(&self) -> Option<u64> {
        self.seq
    }

    /// Returns the error that the handler returned. After a panic, returns the panic's message.
    ///
    /// ```
    /// use slipring::OnFault;
    /// use std::num::ParseIntError;
    /// let mut numbers = 0;
    /// slipring::ring(8, String::new)
    ///     .read("parse", |text: &String, _| text.parse::<u64>().map(|_| numbers += 1))
    ///     .on_error_with(|failed| match failed.error().downcast_ref::<ParseIntError>() {
    ///         Some(_) => OnFault::skip(),
    ///         None => OnFault::stop(),
    ///     })
    ///     .feed(["1", "x", "3"], |slot, text| *slot = text.into())?;
    /// assert_eq!(numbers, 2);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn error(&self) -> &Fault {
        self.error
    }

    /// Returns how often the handler has failed since the stage's last release, this failure
    /// included: 1 for the first failure. [`OnFault::retry`] counts the same failures.
    ///
    /// ```
    /// use slipring::OnFault;
    /// let mut tries = Vec::new();
    /// slipring::ring(8, || 0u64)
    ///     .read("send", |v, _| if *v == 2 { Err("refused") } else { Ok(()) })
    ///     .on_error_with(|failed| {
    ///         tries.push(failed.tries());
    ///         OnFault::retry(2).then_skip()
    ///     })
    ///     .feed(0..4, |slot, i| *slot = i)?;
    /// assert_eq!(tries, [1, 2, 3]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the event at which the handler failed, or the first event of the failed batch.
    /// Returns `None` if the handler failed between events. A handler that may write has perhaps
    /// changed the event.
    ///
    /// Example: [`Chain::on_error_with`](crate::Chain::on_error_with).
    pub fn event(&self) -> Option<&E> {
        self.events.get(0)
    }

    /// Returns the events that a skip would skip: the events of the failed batch, or the single
    /// event at which a handler of single events failed. Returns no event if the handler failed
    /// between events.
    ///
    /// ```
    /// use slipring::OnFault;
    /// let mut lost = Vec::new();
    /// slipring::ring(8, || 0u64)
    ///     .read_batch("send", |_, _| Err("refused"))
    ///     .on_error_with(|failed| {
    ///         assert_eq!(failed.stage().as_str(), "send");
    ///         lost.extend(failed.events().iter().copied());
    ///         OnFault::skip()
    ///     })
    ///     .feed(0..4, |slot, i| *slot = i)?;
    /// assert_eq!(lost, [0, 1, 2, 3]);
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn events(&self) -> &Events<'_, E, L> {
        &self.events
    }
}

impl<E, L: Layout> fmt::Display for Failed<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage `{}` failed", self.stage)?;
        if let Some(seq) = self.seq {
            write!(f, " at event {seq}")?;
        }
        write!(f, " (try {}): {}", self.tries, self.error)
    }
}

impl<E, L: Layout> fmt::Debug for Failed<'_, E, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("stage", &self.stage)
            .field("seq", &self.seq)
            .field("error", &self.error)
            .field("tries", &self.tries)
            .field("events", &self.events.len())
            .finish()
    }
}

type Decide<'env, E, L> = Box<dyn FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env>;

/// A user's closure, which all handlers of a stage share.
pub(crate) struct Judge<'env, E, L: Layout>(Arc<InTurns<Decide<'env, E, L>>>);

impl<'env, E, L: Layout> Judge<'env, E, L> {
    pub(crate) fn new(decide: impl FnMut(&Failed<'_, E, L>) -> OnFault + Send + 'env) -> Self {
        Judge(Arc::new(InTurns::new(Box::new(decide))))
    }

    /// Calls the closure. Returns an error if another thread is calling it, and the graph was
    /// halted or has failed meanwhile.
    pub(super) fn decide(
        &self,
        control: &Control,
        stage: usize,
        failed: &Failed<'_, E, L>,
    ) -> Result<OnFault, WaitError> {
        debug_assert!(!self_wait::is_judging(control, stage), "I3");
        let mut turn = loop {
            if let Some(turn) = self.0.take() {
                break turn;
            }
            control.status.check_running()?;
            control.pause(LOOK_AGAIN, stage, failed.events.first_seq());
        };
        let _inside = self_wait::enter_judge(control, stage);
        Ok((*turn)(failed))
    }
}

impl<E, L: Layout> Clone for Judge<'_, E, L> {
    fn clone(&self) -> Self {
        Judge(self.0.clone())
    }
}

/// The closures of one stage. Its drop contains a panic of a closure's drop, and resumes it unless
/// the thread is unwinding already.
pub(crate) struct Judges<'env, E, L: Layout> {
    /// Decides about errors that the handler returns.
    pub(crate) on_error: Option<Judge<'env, E, L>>,
    /// Decides about panics of the handler.
    pub(crate) on_panic: Option<Judge<'env, E, L>>,
}

impl<E, L: Layout> Judges<'_, E, L> {
    pub(super) fn is_empty(&self) -> bool {
        self.on_error.is_none() && self.on_panic.is_none()
    }
}

impl<E, L: Layout> Default for Judges<'_, E, L> {
    fn default() -> Self {
        Judges { on_error: None, on_panic: None }
    }
}

impl<E, L: Layout> Clone for Judges<'_, E, L> {
    fn clone(&self) -> Self {
        Judges { on_error: self.on_error.clone(), on_panic: self.on_panic.clone() }
    }
}

impl<E, L: Layout> Drop for Judges<'_, E, L> {
    fn drop(&mut self) {
        let panics = [self.on_error.take(), self.on_panic.take()].map(drop_contained);
        if let Some(panic) = panics.into_iter().flatten().next()
            && !panicking()
        {
            resume_unwind(Box::new(panic));
        }
    }
}
