//! What users give a stage: closures for one event or a batch, or a handler with a life of its own.

use std::marker::PhantomData;

use crate::base::fault::{Fault, Outcome};
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::ring::events::{At, Events, EventsMut};
use crate::ring::slots::Layout;

/// A reading stage with a life: told when it starts, after each batch, and when it stops. All calls
/// come from the stage's thread.
///
/// A panic or an error in any of them ends the graph and names the stage.
#[doc(alias = "EventHandler")]
pub trait ReadHandler<E> {
    /// Before the first event.
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// For each event, in order.
    fn event(&mut self, event: &E, at: At) -> Result<(), Fault>;
    /// After each batch, before it is released: a good place to flush. `next_seq` is the position
    /// after the batch.
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        let _ = next_seq;
        Ok(())
    }
    /// When there is nothing to handle, before the stage waits: a good place to flush what is
    /// buffered. Again while it waits, if [`Chain::idle_every`](crate::Chain::idle_every) says so.
    /// Not called by [`Chain::run_inline`](crate::Chain::run_inline), where nobody waits.
    fn idle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// At the end, however it came about, if `start` went well.
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A writing stage with a life; see [`ReadHandler`].
pub trait WriteHandler<E> {
    /// Before the first event.
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// For each event, in order.
    fn event(&mut self, event: &mut E, at: At) -> Result<(), Fault>;
    /// After each batch, before it is released. `next_seq` is the position after the batch.
    fn batch_end(&mut self, next_seq: u64) -> Result<(), Fault> {
        let _ = next_seq;
        Ok(())
    }
    /// When there is nothing to handle, before the stage waits: a good place to flush what is
    /// buffered. Again while it waits, if [`Chain::idle_every`](crate::Chain::idle_every) says so.
    /// Not called by [`Chain::run_inline`](crate::Chain::run_inline), where nobody waits.
    fn idle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// At the end, however it came about, if `start` went well.
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

macro_rules! by_reference {
    ($handler:ident, $event:ty) => {
        impl<E, H: $handler<E> + ?Sized> $handler<E> for &mut H {
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
by_reference!(WriteHandler, &mut E);

/// `|&E, At|`
pub(super) struct ReadEach<F, R>(F, PhantomData<fn() -> R>);
/// `|&mut E, At|`; made only by stages declared as writing.
pub(super) struct WriteEach<F, R>(F, PhantomData<fn() -> R>);
/// `|&Events, first_seq|`
pub(super) struct ReadBatch<F, R>(F, PhantomData<fn() -> R>);
/// `|&mut EventsMut, first_seq|`; made only by stages declared as writing.
pub(super) struct WriteBatch<F, R>(F, PhantomData<fn() -> R>);
/// A [`ReadHandler`].
pub(super) struct ReadWith<H>(pub(super) H);
/// A [`WriteHandler`]; made only by stages declared as writing.
pub(super) struct WriteWith<H>(pub(super) H);

macro_rules! holder {
    ($($name:ident)*) => { $(
        impl<F, R> $name<F, R> {
            pub(super) fn new(f: F) -> Self { $name(f, PhantomData) }
        }
    )* };
}
holder!(ReadEach WriteEach ReadBatch WriteBatch);

impl<E, L: Layout, R: Outcome, F: FnMut(&E, At) -> R> Handler<E, L> for ReadEach<F, R> {
    #[inline(always)]
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        lent.each(progress, |event, at| (self.0)(event, at).outcome())
    }
}

impl<E, L: Layout, R: Outcome, F: FnMut(&mut E, At) -> R> Handler<E, L> for WriteEach<F, R> {
    #[inline(always)]
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        // SAFETY: see the type.
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
        // SAFETY: see the type.
        let mut events = unsafe { lent.write() };
        let first = events.first_seq();
        (self.0)(&mut events, first).outcome()?;
        progress.handled = events.len() as u64;
        Ok(())
    }
}

macro_rules! with_life {
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

with_life!(
    ReadWith,
    ReadHandler,
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        lent.each(progress, |event, at| self.0.event(event, at))
    }
);
with_life!(
    WriteWith,
    WriteHandler,
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault> {
        // SAFETY: see the type.
        unsafe { lent.each_mut(progress, |event, at| self.0.event(event, at)) }
    }
);
