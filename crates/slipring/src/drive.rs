//! The loop that runs a stage: look, handle, release, wait. One loop for the handlers of a chain and for `for_each`.
//!
//! Invariants
//! - I1: an event is released only after its handler came back from it; if the handler fails or panics at an event, exactly the events
//!   before that one are advanced over, and released by nobody else but this seat's owner.
//! - I2: nothing that was handled stays unreleased while the loop waits.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::error::{BatchError, Closed};
use crate::events::{At, Events, EventsMut};
use crate::fault::Fault;
use crate::seat::{Seat, space};
use crate::slots::{Layout, Slots, View};

/// What runs for each stretch of events of a stage.
pub(crate) trait Handler<E, L: Layout> {
    /// Whether it wants long stretches rather than soon ones.
    const GATHERS: bool = false;
    /// Handles the stretch, and keeps `handled` at the number of events it is done with, whatever happens.
    fn handle(&mut self, lent: Lent<'_, E, L>, handled: &mut u64) -> Result<(), Fault>;
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn batch_end(&mut self, _next_seq: u64) -> Result<(), Fault> {
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// A stretch of events that the protocol lends to this stage until it is released.
pub(crate) struct Lent<'a, E, L: Layout> {
    slots: &'a View<E, L>,
    pub(crate) first: u64,
    pub(crate) len: u64,
    lent: PhantomData<&'a mut E>,
}

impl<'a, E, L: Layout> Lent<'a, E, L> {
    /// # Safety
    /// The caller's seat has looked at these events (seat::I2) and releases them only when this is gone.
    #[inline(always)]
    pub(crate) unsafe fn new(slots: &'a View<E, L>, first: u64, len: u64) -> Self {
        Lent { slots, first, len, lent: PhantomData }
    }

    /// For a stage that reads.
    #[inline(always)]
    pub(crate) fn read(self) -> Events<'a, E, L> {
        // SAFETY: seat::I2 until the release, which `'a` does not outlive; by plan::I1 nobody writes meanwhile.
        unsafe { Events::new(*self.slots, self.first, self.len) }
    }

    /// For a stage that may write.
    ///
    /// # Safety
    /// The stage was declared as one that writes.
    #[inline(always)]
    pub(crate) unsafe fn write(self) -> EventsMut<'a, E, L> {
        // SAFETY: seat::I2 until the release, which `'a` does not outlive; by plan::I1 nobody else touches the events meanwhile.
        unsafe { EventsMut::new(*self.slots, self.first, self.len) }
    }

    /// Calls `f` for each event of a stage that reads.
    #[inline(always)]
    pub(crate) fn each(self, handled: &mut u64, mut f: impl FnMut(&E, At) -> Result<(), Fault>) -> Result<(), Fault> {
        // SAFETY: as in `read`.
        self.cells(handled, |event, at| f(unsafe { &*event }, at))
    }

    /// Calls `f` for each event of a stage that may write.
    ///
    /// # Safety
    /// As for [`Lent::write`].
    #[inline(always)]
    pub(crate) unsafe fn each_mut(self, handled: &mut u64, mut f: impl FnMut(&mut E, At) -> Result<(), Fault>) -> Result<(), Fault> {
        // SAFETY: as in `write`; one reference at a time.
        self.cells(handled, |event, at| f(unsafe { &mut *event }, at))
    }

    /// Steps from event to event: straight on to the ring's end, then on from its beginning.
    #[inline(always)]
    fn cells(self, handled: &mut u64, mut f: impl FnMut(*mut E, At) -> Result<(), Fault>) -> Result<(), Fault> {
        let straight = self.len.min(self.slots.mask() + 1 - (self.first & self.slots.mask()));
        for (from, to) in [(0, straight), (straight, self.len)] {
            let mut event = self.slots.event(self.first.wrapping_add(from));
            for offset in from..to {
                f(event, At { seq: self.first.wrapping_add(offset) })?;
                *handled = offset + 1;
                // Behind the last one this points nowhere, and is not used.
                event = event.wrapping_byte_add(L::Slots::<E>::STRIDE);
            }
        }
        Ok(())
    }
}

/// How a stage's loop ended.
pub(crate) enum End {
    Closed(Closed),
    Fault(Fault),
    /// Only where somebody catches panics.
    Panic(String),
}

/// How much a loop handles before it tells the others: about a microsecond's worth, and no more than an eighth of the ring.
pub(crate) struct Pace {
    most: u64,
    /// How many events are handled between two looks at the clock; learned.
    stretch: u64,
    timed: bool,
    /// Whether the last pass came to the end of what there was.
    keeps_up: bool,
    /// A pass of fewer events than this is short, see [`Pace::spaces`].
    short: u64,
    /// A pass of as many events as this leaves no time for pauses.
    long: u64,
}

const RELEASE_AFTER: Duration = Duration::from_micros(1);
/// Reading the clock takes 20 to 40 ns, so stretches are to be longer than a few times that.
const STRETCH_TIME: Duration = Duration::from_nanos(250);
const LONGEST_STRETCH: u64 = 256;
/// So many published events are enough to go on with: more would have to be fetched twice.
pub(crate) const ENOUGH: u64 = 32;
/// A pass of so many events that came to the end of what there was says that they come faster than one in ten nanoseconds or so.
const DENSE: u64 = 32;

impl Pace {
    pub(crate) fn new<E, L: Layout>(core: &Core<E, L>) -> Pace {
        let capacity = core.capacity();
        match core.control.timed {
            true => Pace {
                most: (capacity / 8).clamp(1, 1024),
                stretch: 1,
                timed: true,
                keeps_up: false,
                short: (capacity / 8).min(DENSE),
                long: (capacity / 4).min(256),
            },
            false => Pace { most: capacity, stretch: capacity, timed: false, keeps_up: false, short: 0, long: 0 },
        }
    }

    /// How many times to pause, in units of the spacing, after a pass of `had` events that came to the end of what there was: the upstream
    /// writes just there, and looking again at once would fight with it over the line. Once after a short pass, so that a single event is
    /// late by no more than that. Longer where events come densely: a pass of many costs a miss per line, and while it lasts the upstream
    /// goes on to about the same place again, so only a longer pause gets away from it. Not at all where the ring may fill up meanwhile.
    fn spaces(&self, had: u64) -> u32 {
        if !self.keeps_up || had == 0 {
            0
        } else if had < self.short {
            1
        } else if had >= DENSE && had < self.long {
            4
        } else {
            0
        }
    }

    /// Learns from a stretch that was as long as it could be.
    fn adapt(&mut self, took: Duration) {
        if took < STRETCH_TIME {
            self.stretch = (self.stretch * 2).min(LONGEST_STRETCH);
        } else if took > RELEASE_AFTER {
            self.stretch = (self.stretch / 2).max(1);
        }
    }
}

/// Advances over what was handled, even if the handler panics (I1).
struct Pass<'a, E, L: Layout, S: Seat<E, L>> {
    seat: &'a mut S,
    handled: u64,
    ring: PhantomData<(E, L)>,
}

/// Hands the next `len` events over, which the seat has just looked at, and advances over those that were handled. Says how many.
#[inline(always)]
pub(crate) fn hand_over<E, L: Layout, S: Seat<E, L>, H: Handler<E, L>>(
    seat: &mut S,
    handler: &mut H,
    len: u64,
) -> (u64, Result<(), Fault>) {
    let first = seat.next();
    seat.desk().touch(first, len);
    let slots = seat.desk().slots;
    let mut pass = Pass { seat, handled: 0, ring: PhantomData };
    // SAFETY: just looked at (seat::I2), and `seat` releases nothing while it is borrowed here.
    let lent = unsafe { Lent::new(&slots, first, len) };
    let outcome = handler.handle(lent, &mut pass.handled);
    debug_assert!(outcome.is_err() || pass.handled == len);
    (pass.handled, outcome)
}

impl<E, L: Layout, S: Seat<E, L>> Drop for Pass<'_, E, L, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.seat.advance(self.handled);
    }
}

/// Handles what is there now, as far as the pace lets it. Does not release.
#[inline(always)]
fn pass<E, L: Layout, S: Seat<E, L>, H: Handler<E, L>>(seat: &mut S, handler: &mut H, pace: &mut Pace) -> (u64, Result<(), Fault>) {
    let most = if H::GATHERS { (seat.desk().core.capacity() / 4).max(1) } else { pace.most };
    let mut done = 0;
    let usual = if H::GATHERS { (most, most) } else { (pace.stretch.min(ENOUGH), pace.stretch) };
    // The first event is handled before anybody looks for a second, and without looking at the clock: often it is alone.
    let (mut least, mut max) = if seat.looks_at_each() && !H::GATHERS { (1, 1) } else { usual };
    let mut clock = None;
    let mut since_clock = 0;
    pace.keeps_up = false;
    while done < most {
        let len = seat.gather(least.min(most - done), max.min(most - done));
        if len == 0 {
            pace.keeps_up = true;
            break;
        }
        let full = len >= least;
        if full && done > 0 && clock.is_none() && pace.timed {
            clock = Some((Instant::now(), Duration::ZERO));
        }
        let (handled, outcome) = hand_over(seat, handler, len);
        done += handled;
        if outcome.is_err() {
            return (done, outcome);
        }
        if !full {
            // Gathering came to the end of what there was. Looking again so soon would only find what the producer is writing.
            pace.keeps_up = done < most;
            break;
        }
        since_clock += len;
        if let Some((began, before)) = clock
            && since_clock >= pace.stretch
        {
            let took = began.elapsed();
            pace.adapt(took - before);
            if took > RELEASE_AFTER {
                break;
            }
            clock = Some((began, took));
            since_clock = 0;
        }
        if !H::GATHERS {
            (least, max) = (pace.stretch.min(ENOUGH), pace.stretch);
        }
    }
    (done, Ok(()))
}

/// One round of a stage: what is there, up to a pace, then release. Comes back with how many events it handled.
#[inline(always)]
pub(crate) fn step<E, L: Layout, S: Seat<E, L>, H: Handler<E, L>>(seat: &mut S, handler: &mut H, pace: &mut Pace) -> Result<u64, End> {
    if !seat.desk().core.control.is_running()
        && let Some(closed) = seat.desk().core.control.stopped()
    {
        return Err(End::Closed(closed));
    }
    let (done, outcome) = pass(seat, handler, pace);
    let outcome = match outcome {
        Ok(()) if done > 0 => {
            // If this panics, nobody comes back to say that no event was at fault.
            seat.desk_mut().between = true;
            let outcome = handler.batch_end(seat.next());
            seat.desk_mut().between = outcome.is_err();
            outcome
        }
        outcome => outcome,
    };
    match outcome {
        Ok(()) => {
            if done > 0 {
                seat.desk_mut().counts.batches += 1;
                seat.release();
            }
            Ok(done)
        }
        Err(fault) => Err(End::Fault(fault)),
    }
}

/// Runs a stage until the stream ends or its handler fails. Inlined, so that what the handler's closure adds up stays in registers.
#[inline(always)]
pub(crate) fn drive<E, L: Layout, S: Seat<E, L>, H: Handler<E, L>>(seat: &mut S, handler: &mut H) -> End {
    let mut pace = Pace::new(&seat.desk().core);
    loop {
        match step(seat, handler, &mut pace) {
            Ok(0) => {
                if let Some(closed) = seat.ended() {
                    return End::Closed(closed);
                }
                match seat.wait(None) {
                    Ok(()) | Err(BatchError::TimedOut | BatchError::Unavailable | BatchError::Contended) => {}
                    Err(BatchError::Closed(closed)) => return End::Closed(closed),
                }
            }
            Ok(had) if S::GATHERS_ALL => space(&seat.desk().core.control, pace.spaces(had)),
            Ok(_) => {}
            Err(end) => return end,
        }
    }
}
