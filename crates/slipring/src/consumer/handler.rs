//! The interface between a stage's loop and its handler: a trait, the lent events, and the
//! handler's progress.
//!
//! Invariants
//! - I1: a [`LentEvents`] has the events that its consumer's poll has found (position::I2), and the
//!   published runs directly behind these events. The consumer releases none of them while the
//!   `LentEvents` lives.
//! - I2: a [`LentEvents`] gives each event out once, because its methods consume it.

use std::marker::PhantomData;

use crate::base::fault::Fault;
use crate::consumer::position::ConsumerState;
use crate::ring::events::{At, Events, EventsMut, straight};
use crate::ring::slots::{Layout, Storage};
use crate::ring::stamp::Stamp;

/// The code that a stage runs to handle its events.
pub(crate) trait Handler<E, L: Layout> {
    /// Whether the handler takes batches. For such a handler, the loop gathers a long batch instead
    /// of handling a short one early.
    const GATHERS: bool = false;

    /// Handles the lent events. An implementation keeps `progress.handled` correct, also if the
    /// handler fails or panics.
    fn handle(&mut self, lent: LentEvents<'_, E, L>, progress: &mut Progress) -> Result<(), Fault>;

    /// Called before the stage handles its first event.
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Called after each batch, before the release of the batch.
    fn batch_end(&mut self, _next_seq: u64) -> Result<(), Fault> {
        Ok(())
    }

    /// Called before the stage waits.
    fn idle(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Called after the stage has handled its last event.
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A handler's progress through its lent events.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Number of handled events.
    pub(crate) handled: u64,
    /// Number of lent events, from the first one on, that are known to be published; at least
    /// `handled`.
    pub(crate) found: u64,
    /// Whether the handler stopped because the next event was not published yet.
    pub(crate) exhausted: bool,
}

/// Events that the protocol lends to a stage until their release.
pub(crate) struct LentEvents<'a, E, L: Layout> {
    state: &'a ConsumerState<E, L>,
    /// Position of the first event.
    first: u64,
    /// Number of events that were polled.
    len: u64,
    /// Largest number of events to handle. If `max` exceeds `len`, the handler may handle up to
    /// `max - len` further events after the `len` polled events.
    max: u64,
    lent: PhantomData<&'a mut E>,
}

impl<'a, E, L: Layout> LentEvents<'a, E, L> {
    /// # Safety
    ///
    /// A poll by the consumer that owns `state` has found the events at `[first, first + len)`
    /// (position::I2). The consumer releases none of them while the `LentEvents` lives. `max` may
    /// exceed `len` only if `runs` of the consumer's position returns
    /// [`Runs::Walked`](crate::consumer::position::Runs::Walked).
    #[inline(always)]
    pub(crate) unsafe fn new(
        state: &'a ConsumerState<E, L>,
        first: u64,
        len: u64,
        max: u64,
    ) -> Self {
        state.touch(first, len);
        LentEvents { state, first, len, max, lent: PhantomData }
    }

    /// Returns the lent events for a batch handler that reads.
    #[inline(always)]
    pub(crate) fn read(self) -> Events<'a, E, L> {
        // SAFETY: position::I2 holds until the release, which `'a` does not outlive.
        // By plan::I1, no other stage writes to the events before the release.
        unsafe { Events::new(self.state.slots, self.first, self.len) }
    }

    /// Returns the lent events for a batch handler that may write.
    ///
    /// # Safety
    /// The stage was declared as an updating stage.
    #[inline(always)]
    pub(crate) unsafe fn write(self) -> EventsMut<'a, E, L> {
        // SAFETY: position::I2 holds until the release, which `'a` does not outlive.
        // By plan::I1, no other stage touches the events before the release.
        unsafe { EventsMut::new(self.state.slots, self.first, self.len) }
    }

    /// Calls `f` for each event of a stage that reads.
    #[inline(always)]
    pub(crate) fn each(
        self,
        progress: &mut Progress,
        mut f: impl FnMut(&E, At) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // SAFETY: as in `read`.
        self.cells(progress, |event, at| f(unsafe { &*event }, at))
    }

    /// Calls `f` for each event of a stage that may update events.
    ///
    /// # Safety
    /// As for [`LentEvents::write`].
    #[inline(always)]
    pub(crate) unsafe fn each_mut(
        self,
        progress: &mut Progress,
        mut f: impl FnMut(&mut E, At) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // SAFETY: as in `write`, no other stage touches the events before the release. Only one
        // reference exists at a time.
        self.cells(progress, |event, at| f(unsafe { &mut *event }, at))
    }

    /// Calls `f` for each event, run after run, until no run follows or `max` events are handled.
    /// The loop reads a run's stamp before its events, so memory is read in address order.
    #[inline(always)]
    fn cells(
        self,
        progress: &mut Progress,
        mut f: impl FnMut(*mut E, At) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let LentEvents { state, first, len, max, .. } = self;
        let slots = state.slots;
        let (mut from, mut to, mut run) = (0, len, len);
        loop {
            // The events up to the ring's end are adjacent in memory. The event behind them is in
            // the ring's first slot.
            let bend =
                from + straight(&*slots, first.wrapping_add(from), (to - from) as usize) as u64;
            for (from, to) in [(from, bend), (bend, to)] {
                let mut event = slots.event(first.wrapping_add(from));
                for offset in from..to {
                    f(event, At { seq: first.wrapping_add(offset) })?;
                    progress.handled = offset + 1;
                    // After the last event, `event` may point outside of the ring, but the loop
                    // ends without using `event`.
                    event = event.wrapping_byte_add(slots.stride());
                }
            }
            if to >= max {
                return Ok(());
            }
            // The loop first checks whether the next run is as long as the previous one. While runs
            // stay equally long, branch prediction lets the processor start on the next run's
            // events before the load of its stamp has finished.
            let next = first.wrapping_add(to);
            if !slots.is_run_of(next, run) {
                match slots.run_at(next) {
                    Stamp::Live(other) => run = other,
                    Stamp::Tombstone(_) => return Ok(()),
                    Stamp::Unpublished => {
                        progress.exhausted = true;
                        return Ok(());
                    }
                }
            }
            progress.found = to + run;
            (from, to) = (to, (to + run).min(max));
            state.touch(next, to - from);
        }
    }
}
