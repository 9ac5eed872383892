//! A handler is a stage's user code, which the library's loop calls.
//!
//! Invariants
//! - I1: only a stage that was declared as writing has a `WriteEach`, a `WriteBatch` or a
//!   `WriteWith`.

use std::marker::PhantomData;

use crate::base::fault::{Fault, Outcome};
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::promise::Lent;
use crate::ring::events::{At, Events, EventsMut};
use crate::ring::slots::Layout;

/// A handler that reads events, and is also called at the start of its stage, after each batch,
/// before a wait, and at the end. [`Chain::read_with`](crate::Chain::read_with) takes it.
///
/// The threads that run the stage make all calls of its handler, one at a time. A panic or an error
/// in any of them ends the graph, unless a policy of the stage applies
/// ([`Chain::on_error`](crate::Chain::on_error)). The graph's error names the stage.
///
/// ```
/// use slipring::{At, faults::Fault, stages::ReadHandler};
///
/// #[derive(Default)]
/// struct Journal { buffer: Vec<u64>, written: Vec<u64> }
///
/// impl ReadHandler<u64> for Journal {
///     fn event(&mut self, event: &u64, _at: At) -> Result<(), Fault> {
///         self.buffer.push(*event);
///         Ok(())
///     }
///     fn batch_end(&mut self, _next_seq: u64) -> Result<(), Fault> {
///         self.written.append(&mut self.buffer); // one write for the whole batch
///         Ok(())
///     }
/// }
///
/// let mut journal = Journal::default();
/// slipring::ring(64, || 0u64)
///     .read_with("journal", &mut journal)
///     .feed(1..=3, |slot, i| *slot = i)?;
/// assert_eq!(journal.written, [1, 2, 3]);
/// # Ok::<(), slipring::Error>(())
/// ```
#[doc(alias = "EventHandler")]
pub trait ReadHandler<E> {
    /// Called before the first event.
    ///
    /// Example: [`ReadHandler`].
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// Called for each event, in order.
    ///
    /// Example: [`ReadHandler`].
    fn event(&mut self, event: &E, at: At) -> Result<(), Fault>;
    /// Called after each batch, before its release. `next_seq` is the position after the batch.
    ///
    /// Example: [`ReadHandler`].
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        let _ = next_seq;
        Ok(())
    }
    /// Called before each wait, when no event is available. It is a good place to flush a buffer.
    ///
    /// With [`Chain::idle_every`](crate::Chain::idle_every), a waiting stage calls `idle`
    /// repeatedly. [`Chain::run_inline`](crate::Chain::run_inline) never waits, and never calls
    /// `idle`.
    ///
    /// Example: [`ReadHandler`].
    fn idle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// Called at the stage's end if `start` returned `Ok`, even if the stage has failed.
    ///
    /// Example: [`ReadHandler`].
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A handler that may change events. It is called like a [`ReadHandler`].
/// [`Chain::update_with`](crate::Chain::update_with) takes it.
///
/// ```
/// use slipring::{At, faults::Fault, stages::UpdateHandler};
///
/// struct RunningTotal { total: u64 }
///
/// impl UpdateHandler<u64> for RunningTotal {
///     fn event(&mut self, event: &mut u64, _at: At) -> Result<(), Fault> {
///         self.total += *event;
///         *event = self.total; // later stages see the total
///         Ok(())
///     }
///     fn stop(&mut self) -> Result<(), Fault> {
///         println!("total {}", self.total);
///         Ok(())
///     }
/// }
///
/// let mut running = RunningTotal { total: 0 };
/// let mut seen = Vec::new();
/// slipring::ring(64, || 0u64)
///     .update_with("running", &mut running)
///     .read("collect", |value, _| seen.push(*value))
///     .feed(1..=3, |slot, i| *slot = i)?;
/// assert_eq!((running.total, seen), (6, vec![1, 3, 6]));
/// # Ok::<(), slipring::Error>(())
/// ```
pub trait UpdateHandler<E> {
    /// Called before the first event.
    ///
    /// Example: [`UpdateHandler`].
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// Called for each event, in order.
    ///
    /// Example: [`UpdateHandler`].
    fn event(&mut self, event: &mut E, at: At) -> Result<(), Fault>;
    /// Called after each batch, before its release. `next_seq` is the position after the batch.
    ///
    /// Example: [`UpdateHandler`].
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        let _ = next_seq;
        Ok(())
    }
    /// Called before each wait, when no event is available. See [`ReadHandler::idle`].
    ///
    /// Example: [`UpdateHandler`].
    fn idle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// Called at the stage's end if `start` returned `Ok`, even if the stage has failed.
    ///
    /// Example: [`UpdateHandler`].
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Implements a handler trait for `&mut H`, so that the caller can keep the handler, and for
/// [`Lent<H>`](Lent), so that the caller gets it back.
macro_rules! by_reference {
    ($handler:ident, $event:ty) => {
        by_reference!($handler, $event, &mut H, ?Sized);
        by_reference!($handler, $event, Lent<H>, Sized);
    };
    ($handler:ident, $event:ty, $reference:ty, $($size:tt)+) => {
        impl<E, H: $handler<E> + $($size)+> $handler<E> for $reference {
            fn start(&mut self) -> Result<(), Fault> {
                (**self).start()
            }
            #[inline]
            fn event(&mut self, event: $event, at: At) -> Result<(), Fault> {
                (**self).event(event, at)
            }
            fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
                (**self).batch_end(next_seq)
            }
            fn idle(&mut self) -> Result<(), Fault> {
                (**self).idle()
            }
            fn stop(&mut self) -> Result<(), Fault> {
                (**self).stop()
            }
        }
    };
}
by_reference!(ReadHandler, &E);
by_reference!(UpdateHandler, &mut E);

/// A closure `|&E, At|`.
pub(crate) struct ReadEach<F, R>(F, PhantomData<fn() -> R>);
/// A closure `|&mut E, At|` (I1).
pub(crate) struct WriteEach<F, R>(F, PhantomData<fn() -> R>);
/// A closure `|&Events, first_seq|`.
pub(crate) struct ReadBatch<F, R>(F, PhantomData<fn() -> R>);
/// A closure `|&mut EventsMut, first_seq|` (I1).
pub(crate) struct WriteBatch<F, R>(F, PhantomData<fn() -> R>);
/// A [`ReadHandler`].
pub(crate) struct ReadWith<H>(pub(crate) H);
/// A [`UpdateHandler`] (I1).
pub(crate) struct WriteWith<H>(pub(crate) H);

macro_rules! of_closure {
    ($($name:ident)*) => { $(
        impl<F, R> $name<F, R> {
            pub(crate) fn new(f: F) -> Self { $name(f, PhantomData) }
        }
    )* };
}
of_closure!(ReadEach WriteEach ReadBatch WriteBatch);

impl<E, L: Layout, R: Outcome, F: FnMut(&E, At) -> R> Handler<E, L> for ReadEach<F, R> {
    #[inline(always)]
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        lent.each(progress, |event, at| (self.0)(event, at).outcome())
    }
}

impl<E, L: Layout, R: Outcome, F: FnMut(&mut E, At) -> R> Handler<E, L> for WriteEach<F, R> {
    #[inline(always)]
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        // SAFETY: only a stage that was declared as writing has this handler (I1).
        unsafe { lent.each_mut(progress, |event, at| (self.0)(event, at).outcome()) }
    }
}

impl<E, L: Layout, R: Outcome, F: FnMut(&Events<'_, E, L>, u64) -> R> Handler<E, L>
    for ReadBatch<F, R>
{
    const GATHERS: bool = true;
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        let events = lent.read();
        (self.0)(&events, events.first_seq()).outcome()?;
        progress.handled = events.len() as u64;
        Ok(())
    }
}

impl<E, L: Layout, R: Outcome, F: FnMut(&mut EventsMut<'_, E, L>, u64) -> R> Handler<E, L>
    for WriteBatch<F, R>
{
    const GATHERS: bool = true;
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        // SAFETY: only a stage that was declared as writing has this handler (I1).
        let mut events = unsafe { lent.write() };
        let first = events.first_seq();
        (self.0)(&mut events, first).outcome()?;
        progress.handled = events.len() as u64;
        Ok(())
    }
}

/// Implements [`Handler`] for a user's [`ReadHandler`] or [`UpdateHandler`]. `$handle` is the
/// function that calls the user's `event` for each lent event; `start`, `batch_end`, `idle` and
/// `stop` are the same for both.
macro_rules! user_handler {
    ($name:ident, $handler:ident, $handle:item) => {
        impl<E, L: Layout, H: $handler<E>> Handler<E, L> for $name<H> {
            #[inline(always)]
            $handle
            fn start(&mut self) -> Result<(), Fault> {
                self.0.start()
            }
            fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
                self.0.batch_end(next_seq)
            }
            fn idle(&mut self) -> Result<(), Fault> {
                self.0.idle()
            }
            fn stop(&mut self) -> Result<(), Fault> {
                self.0.stop()
            }
        }
    };
}

user_handler!(
    ReadWith,
    ReadHandler,
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        lent.each(progress, |event, at| self.0.event(event, at))
    }
);
user_handler!(
    WriteWith,
    UpdateHandler,
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        // SAFETY: only a stage that was declared as writing has this handler (I1).
        unsafe { lent.each_mut(progress, |event, at| self.0.event(event, at)) }
    }
);
