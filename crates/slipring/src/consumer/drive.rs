//! The loop that runs a stage: look, handle, release, wait. One loop for the handlers of a chain
//! and for `for_each`.
//!
//! Invariants
//! - I1: an event is released only after its handler came back from it; if the handler fails or
//!   panics at an event, exactly the events before that one are advanced over, and released by
//!   nobody else but this seat's owner.
//! - I2: nothing that was handled stays unreleased while the loop waits.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::base::fault::Fault;
use crate::consumer::position::{ConsumerPosition, ConsumerState, space};
use crate::errors::{BatchError, WaitError};
use crate::ring::events::{At, Events, EventsMut, straight};
use crate::ring::policy::Policy;
use crate::ring::slots::{Layout, Storage};
use crate::ring::stamp::Run;

/// What runs for each stretch of events of a stage.
pub(crate) trait Handler<E, L: Layout> {
    /// Whether it wants long stretches rather than soon ones.
    const GATHERS: bool = false;
    /// Handles the stretch, and keeps `walked.handled` at the number of events it is done with,
    /// whatever happens.
    fn handle(&mut self, lent: Lent<'_, E, L>, walked: &mut Walked) -> Result<(), Fault>;
    fn start(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn batch_end(&mut self, _next_seq: u64) -> Result<(), Fault> {
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

/// How far a handler came.
#[derive(Clone, Copy, Default)]
pub(crate) struct Walked {
    /// So many events are handled.
    pub(crate) handled: u64,
    /// So many are known to be published from the first on: at least as many.
    pub(crate) found: u64,
    /// The position after them was looked at, and nothing is published there.
    pub(crate) ended: bool,
}

/// A stretch of events that the protocol lends to this stage until it is released.
pub(crate) struct Lent<'a, E, L: Layout> {
    state: &'a ConsumerState<E, L>,
    pub(crate) first: u64,
    pub(crate) len: u64,
    /// Up to how many events may be handled, if more runs are found behind these.
    max: u64,
    lent: PhantomData<&'a mut E>,
}

impl<'a, E, L: Layout> Lent<'a, E, L> {
    /// # Safety
    /// The seat of this desk has looked at these events (position::I2) and releases them only when this
    /// is gone. `max` is more than `len` only where whatever is published is this seat's to look
    /// at.
    #[inline(always)]
    unsafe fn new(state: &'a ConsumerState<E, L>, first: u64, len: u64, max: u64) -> Self {
        state.touch(first, len);
        Lent { state, first, len, max, lent: PhantomData }
    }

    /// For a stage that reads.
    #[inline(always)]
    pub(crate) fn read(self) -> Events<'a, E, L> {
        // SAFETY: position::I2 until the release, which `'a` does not outlive; by plan::I1 nobody
        // writes meanwhile.
        unsafe { Events::new(self.state.slots, self.first, self.len) }
    }

    /// For a stage that may write.
    ///
    /// # Safety
    /// The stage was declared as one that writes.
    #[inline(always)]
    pub(crate) unsafe fn write(self) -> EventsMut<'a, E, L> {
        // SAFETY: position::I2 until the release, which `'a` does not outlive; by plan::I1 nobody else
        // touches the events meanwhile.
        unsafe { EventsMut::new(self.state.slots, self.first, self.len) }
    }

    /// Calls `f` for each event of a stage that reads.
    #[inline(always)]
    pub(crate) fn each(
        self,
        walked: &mut Walked,
        mut f: impl FnMut(&E, At) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // SAFETY: as in `read`.
        self.cells(walked, |event, at| f(unsafe { &*event }, at))
    }

    /// Calls `f` for each event of a stage that may write.
    ///
    /// # Safety
    /// As for [`Lent::write`].
    #[inline(always)]
    pub(crate) unsafe fn each_mut(
        self,
        walked: &mut Walked,
        mut f: impl FnMut(&mut E, At) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // SAFETY: as in `write`; one reference at a time.
        self.cells(walked, |event, at| f(unsafe { &mut *event }, at))
    }

    /// Steps from event to event, and from run to run while there are runs and `max` is not
    /// reached. One walk: stamps and events are fetched in the order in which they lie.
    #[inline(always)]
    fn cells(
        self,
        walked: &mut Walked,
        mut f: impl FnMut(*mut E, At) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Lent { state, first, len, max, .. } = self;
        let slots = state.slots;
        let (mut from, mut to, mut run) = (0, len, len);
        loop {
            // Straight on to the ring's end, then on from its beginning.
            let bend =
                from + straight(&*slots, first.wrapping_add(from), (to - from) as usize) as u64;
            for (from, to) in [(from, bend), (bend, to)] {
                let mut event = slots.event(first.wrapping_add(from));
                for offset in from..to {
                    f(event, At { seq: first.wrapping_add(offset) })?;
                    walked.handled = offset + 1;
                    // Behind the last one this points nowhere, and is not used.
                    event = event.wrapping_byte_add(L::Storage::<E>::STRIDE);
                }
            }
            if to >= max {
                return Ok(());
            }
            // Runs are often as long as the one before. While they are, nothing waits for the
            // stamp's arrival.
            let next = first.wrapping_add(to);
            if !slots.is_run_of(next, run) {
                match slots.run_at(next) {
                    Run::Live(other) => run = other,
                    Run::Tombstone(_) => return Ok(()),
                    Run::Unpublished => {
                        walked.ended = true;
                        return Ok(());
                    }
                }
            }
            walked.found = to + run;
            (from, to) = (to, (to + run).min(max));
            state.touch(next, to - from);
        }
    }
}

/// How a stage's loop ended.
pub(crate) enum End {
    Wait(WaitError),
    Fault(Fault),
    /// Only where somebody catches panics.
    Panic(String),
}

/// How much a loop handles before it tells the others: about a microsecond's worth, and no more
/// than an eighth of the ring.
pub(crate) struct Pace {
    most: u64,
    /// How much a handler of batches is given at most.
    gather: u64,
    idle_every: Option<Duration>,
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
/// So many short runs are enough to go on with.
pub(crate) const ENOUGH: u64 = 32;
/// Bytes of events that make a run long: a few lines.
const LONG_RUN: u64 = 192;
/// A pass of so many events that came to the end of what there was says that they come faster than
/// one in ten nanoseconds or so.
const DENSE: u64 = 32;

impl Pace {
    pub(crate) fn new<E, L: Layout>(state: &ConsumerState<E, L>) -> Pace {
        let capacity = state.core.capacity();
        let Policy { max_batch, idle_every, .. } = state.plan().policy;
        let gather = (capacity / 4).max(1).min(max_batch);
        match state.control().timed {
            true => Pace {
                most: (capacity / 8).clamp(1, 1024).min(max_batch),
                gather,
                idle_every,
                stretch: 1,
                timed: true,
                keeps_up: false,
                short: (capacity / 8).min(DENSE),
                long: (capacity / 4).min(256),
            },
            false => Pace {
                most: capacity.min(max_batch),
                gather,
                idle_every,
                stretch: capacity,
                timed: false,
                keeps_up: false,
                short: 0,
                long: 0,
            },
        }
    }

    /// How many times to pause, in units of the spacing, after a pass of `had` events that came to
    /// the end of what there was: the upstream writes just there, and looking again at once would
    /// fight with it over the line. Once after a short pass, so that a single event is late by no
    /// more than that. Longer where events come densely: a pass of many costs a miss per line, and
    /// while it lasts the upstream goes on to about the same place again, so only a longer pause
    /// gets away from it. Not at all where the ring may fill up meanwhile.
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

    /// When a handler that waits is to be told again.
    pub(crate) fn idles_until(&self) -> Option<Instant> {
        self.idle_every.and_then(|every| Instant::now().checked_add(every))
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
struct Pass<'a, E, L: Layout, S: ConsumerPosition<E, L>> {
    position: &'a mut S,
    walked: Walked,
    ring: PhantomData<(E, L)>,
}

/// What a look found for a seat to hand over.
pub(crate) struct Found {
    /// So many events, if any.
    pub(crate) len: u64,
    /// Up to how many may be handed over, if there are more runs behind.
    to: u64,
    /// That is all there is, as far as it tells.
    pub(crate) all: bool,
}

impl Found {
    fn gathered(len: u64, least: u64) -> Found {
        Found { len, to: len, all: len < least }
    }
}

/// Looks for what to hand over next: at most `max` events.
///
/// Long runs are walked while they are handled, so that memory is fetched in the order in which it
/// lies. Of short runs, about `enough` are looked at before: the producer may be writing to the
/// very same line, and a consumer that went to and fro between stamps and events there would wait
/// for that line event by event.
#[inline(always)]
pub(crate) fn find<E, L: Layout, S: ConsumerPosition<E, L>>(
    position: &mut S,
    enough: u64,
    max: u64,
) -> Found {
    if !position.walks_runs() {
        return Found::gathered(position.gather(max, max), max);
    }
    let len = position.poll(max);
    if len == 0 || len.saturating_mul(L::Storage::<E>::STRIDE as u64) >= LONG_RUN {
        return Found { len, to: max, all: false };
    }
    let enough = enough.min(max);
    // Of a single event it is not known whether it is all: nobody looked for a second.
    Found::gathered(if len < enough { position.gather(enough, max) } else { len }, enough)
}

/// Hands over what was found; advances over what was handled of it.
#[inline(always)]
pub(crate) fn hand_over<E, L: Layout, S: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut S,
    handler: &mut H,
    found: &Found,
) -> (Walked, Result<(), Fault>) {
    let first = position.next();
    let mut pass = Pass {
        position,
        walked: Walked { found: found.len, ..Walked::default() },
        ring: PhantomData,
    };
    if H::GATHERS {
        pass.position.state_mut().stretch = found.len;
    }
    // SAFETY: just looked at (position::I2); the seat releases nothing while the pass borrows it. Only
    // for one that walks runs there are more.
    let lent = unsafe { Lent::new(pass.position.state(), first, found.len, found.to) };
    let outcome = handler.handle(lent, &mut pass.walked);
    let walked = pass.walked;
    drop(pass);
    debug_assert!(outcome.is_err() || walked.handled >= found.len);
    (walked, outcome)
}

impl<E, L: Layout, S: ConsumerPosition<E, L>> Drop for Pass<'_, E, L, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.position.advance(self.walked.handled, self.walked.found);
    }
}

/// Handles what is there now, as far as the pace lets it. Does not release.
#[inline(always)]
fn pass<E, L: Layout, S: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut S,
    handler: &mut H,
    pace: &mut Pace,
) -> (u64, Result<(), Fault>) {
    let most = if H::GATHERS { pace.gather } else { pace.most };
    let mut done = 0;
    let mut clock = None;
    let mut since_clock = 0;
    pace.keeps_up = false;
    while done < most {
        let left = most - done;
        let max = if H::GATHERS { left } else { pace.stretch.min(left) };
        // The first event is handled before anybody looks for a second, unless both come at once:
        // often it is alone.
        let found = if H::GATHERS {
            Found::gathered(position.gather(max, max), max)
        } else {
            find(position, if done == 0 { 1 } else { ENOUGH }, max)
        };
        if found.len == 0 {
            pace.keeps_up = true;
            break;
        }
        let (walked, outcome) = hand_over(position, handler, &found);
        done += walked.handled;
        since_clock += walked.handled;
        if outcome.is_err() {
            return (done, outcome);
        }
        // It came to the end of what there was. Looking again so soon would only find what the
        // producer is writing.
        if S::GATHERS_ALL && (found.all || walked.ended) {
            pace.keeps_up = true;
            break;
        }
        if pace.timed && since_clock >= pace.stretch {
            since_clock = 0;
            match &mut clock {
                // The first stretch goes without: often it is all there is.
                None => clock = Some((Instant::now(), Duration::ZERO)),
                Some((began, before)) => {
                    let took = began.elapsed();
                    pace.adapt(took - *before);
                    if took > RELEASE_AFTER {
                        break;
                    }
                    *before = took;
                }
            }
        }
    }
    (done, Ok(()))
}

/// One round of a stage: what is there, up to a pace, then release. Comes back with how many events
/// it handled.
#[inline(always)]
pub(crate) fn step<E, L: Layout, S: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut S,
    handler: &mut H,
    pace: &mut Pace,
) -> Result<u64, End> {
    position.check().map_err(End::Wait)?;
    // What was skipped, and what came before it, is a batch of its own: whoever starts again later
    // starts behind it.
    if position.holds() {
        end_batch(position, handler)?;
    }
    // Only here is an event at fault if something fails; everywhere else it is nobody's, and
    // nothing can be skipped.
    position.state_mut().between = false;
    let (done, outcome) = pass(position, handler, pace);
    outcome.map_err(End::Fault)?;
    position.state_mut().between = true;
    if done > 0 {
        end_batch(position, handler)?;
    }
    Ok(done)
}

#[inline(always)]
fn end_batch<E, L: Layout, S: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut S,
    handler: &mut H,
) -> Result<(), End> {
    handler.batch_end(position.next()).map_err(End::Fault)?;
    position.count_batch();
    position.release();
    position.state_mut().skipped = false;
    Ok(())
}

/// Tells a handler that there is nothing.
#[inline(always)]
pub(crate) fn idle<E, L: Layout, S: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &S,
    handler: &mut H,
) -> Result<(), End> {
    debug_assert!(position.state().between);
    handler.idle().map_err(End::Fault)
}

/// Runs a stage until the stream ends or its handler fails. Inlined, so that what the handler's
/// closure adds up stays in registers.
#[inline(always)]
pub(crate) fn drive<E, L: Layout, S: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut S,
    handler: &mut H,
) -> End {
    let mut pace = Pace::new(position.state());
    loop {
        match step(position, handler, &mut pace) {
            Ok(0) => {
                if let Some(closed) = position.ended() {
                    return End::Wait(closed);
                }
                if let Err(end) = idle(position, handler) {
                    return end;
                }
                match position.wait(pace.idles_until()) {
                    Ok(())
                    | Err(
                        BatchError::TimedOut
                        | BatchError::Unavailable
                        | BatchError::Contended
                        | BatchError::Gated { .. },
                    ) => {}
                    Err(BatchError::Wait(closed)) => return End::Wait(closed),
                }
            }
            Ok(had) if S::GATHERS_ALL => space(&position.state().core.control, pace.spaces(had)),
            Ok(_) => {}
            Err(end) => return end,
        }
    }
}
