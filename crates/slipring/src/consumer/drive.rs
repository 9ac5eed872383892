//! The loop that runs a stage: poll, handle, release, wait. One loop serves the handlers of a chain
//! and [`Consumer::for_each`](crate::Consumer::for_each).
//!
//! Invariants
//! - I1: a stage releases an event only after its handler has handled it, or after a failure that
//!   its policy skips. If the handler fails or panics at an event, the position advances over
//!   exactly the earlier ones.
//! - I2: the loop releases every handled event before each wait.

use std::marker::PhantomData;
use std::time::Instant;

use crate::base::fault::Fault;
use crate::base::sync::twin;
use crate::consumer::handler::{Handler, LentEvents, Progress};
use crate::consumer::pace::Pace;
use crate::consumer::position::{Availability, ConsumerPosition, ConsumerState, Runs};
use crate::consumer::spacing::{Spacing, pause};
use crate::consumer::waiting::{Counting, Waiting};
use crate::errors::WaitError;
use crate::ring::control::Control;
use crate::ring::slots::{Layout, Storage};
use crate::ring::stage::Stage;
use crate::ring::waits::Unmet;

/// Number of events that the loop gathers from short runs before the call of the handler.
pub(crate) const GATHER_AT_LEAST: u64 = 32;
/// Length of a pass, in events, below which the events count as sparse.
pub(crate) const SPARSE: u64 = 8;
/// Least length of a long run, in bytes of events: a few cache lines.
const LONG_RUN: u64 = 192;

/// The outcome of a stage's loop.
pub(crate) enum End {
    /// The stage's loop ended because no event will come any more, or because a wait failed.
    Wait(WaitError),
    /// The handler returned an error.
    Fault(Fault),
    /// The handler panicked with this message. Only the loop's caller, which catches the panic,
    /// creates this variant.
    Panic(String),
}

/// Events for a handler, as found by [`find_next`].
pub(crate) struct Upcoming {
    /// Number of polled events; 0 if no event is available.
    pub(crate) len: u64,
    /// Largest number of events to handle. If `max` exceeds `len`, the handler may handle up to
    /// `max - len` further events after the `len` polled events.
    max: u64,
    /// Whether the poll showed that no more events are available.
    pub(crate) exhausted: bool,
}

impl Upcoming {
    fn gathered(len: u64, least: u64) -> Upcoming {
        Upcoming { len, max: len, exhausted: len < least }
    }
}

/// Finds the next events to handle, at most `max`.
///
/// - If the next run is long, the function polls only that run, and the handler continues with the
///   runs behind it. So memory is read in address order.
/// - If the runs are short, the function first gathers `least` events, or all that are available. A
///   short run often lies in a cache line that the producer is still writing. A consumer that
///   loaded stamps and events from this line in turn would wait for the line at each event.
/// - If `least` is 0, the handler goes from run to run in any case; see [`Pace::is_sparse`].
#[inline(always)]
pub(crate) fn find_next<E, L: Layout, P: Availability<E, L>>(
    position: &mut P,
    least: u64,
    max: u64,
) -> Upcoming {
    let runs = position.runs();
    if runs == Runs::Hidden {
        return Upcoming::gathered(position.gather(max, max), max);
    }
    let len = position.poll(max);
    let is_long = len.saturating_mul(position.state().slots.stride() as u64) >= LONG_RUN;
    if len == 0 || is_long || least == 0 {
        let max = if runs == Runs::Walked { max } else { len };
        return Upcoming { len, max, exhausted: false };
    }
    let found = if len < least.min(max) { position.gather(least, max) } else { len };
    // If `least` is 1, `exhausted` is `false`, because `find_next` does not look for a second run.
    Upcoming { len: found, max: found, exhausted: found < least.min(max) }
}

/// Lends the upcoming events to the handler, and advances the position over the handled events.
#[inline(always)]
pub(crate) fn handle_next<E, L: Layout, P: Availability<E, L>, H: Handler<E, L>>(
    position: &mut P,
    handler: &mut H,
    upcoming: &Upcoming,
) -> (Progress, Result<(), Fault>) {
    let first = position.next();
    let mut guard = AdvanceOnDrop {
        position,
        progress: Progress { found: upcoming.len, ..Progress::default() },
        ring: PhantomData,
    };
    if H::GATHERS {
        guard.position.state_mut().batch_len = upcoming.len;
    }
    // SAFETY: the events were just polled (position::I2).
    // The position releases nothing while `guard` borrows the position.
    // `find_next` returns a `max` beyond `len` only for `Runs::Walked`.
    let lent =
        unsafe { LentEvents::new(guard.position.state(), first, upcoming.len, upcoming.max) };
    let outcome = handler.handle(lent, &mut guard.progress);
    let progress = guard.progress;
    drop(guard);
    debug_assert!(outcome.is_err() || progress.handled >= upcoming.len);
    (progress, outcome)
}

/// A guard whose drop advances the position over the handled events, even if the handler panics
/// (I1).
struct AdvanceOnDrop<'a, E, L: Layout, P: ConsumerPosition<E, L>> {
    position: &'a mut P,
    progress: Progress,
    ring: PhantomData<(E, L)>,
}

impl<E, L: Layout, P: ConsumerPosition<E, L>> Drop for AdvanceOnDrop<'_, E, L, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.position.advance(self.progress.handled, self.progress.found);
    }
}

/// Handles available events, at most as many as `pace` allows, and releases none. Returns the
/// number of handled events.
#[inline(always)]
fn pass<E, L: Layout, P: Availability<E, L>, H: Handler<E, L>>(
    position: &mut P,
    handler: &mut H,
    pace: &mut Pace,
) -> (u64, Result<(), Fault>) {
    let max_pass = pace.max_pass(H::GATHERS);
    let mut handled = 0;
    let gathered = if pace.is_sparse { 0 } else { GATHER_AT_LEAST };
    let mut least = if pace.keeps_up { gathered.min(1) } else { gathered };
    pace.keeps_up = false;
    while handled < max_pass {
        let remaining = max_pass - handled;
        let max = if H::GATHERS { remaining } else { pace.stride().min(remaining) };
        // The first event often comes alone, so the loop handles it before polling for a second
        // one.
        let upcoming = if H::GATHERS {
            Upcoming::gathered(position.gather(max, max), max)
        } else {
            find_next(position, least, max)
        };
        least = gathered;
        if upcoming.len == 0 {
            pace.keeps_up = true;
            break;
        }
        let (progress, outcome) = handle_next(position, handler, &upcoming);
        handled += progress.handled;
        if outcome.is_err() {
            return (handled, outcome);
        }
        // An immediate second poll would find only the event that the producer is writing now.
        if position.is_exhausted(upcoming.exhausted || progress.exhausted) {
            pace.keeps_up = true;
            break;
        }
        // The pace counts the events before the loop ends the pass, because it also learns from a
        // stride that ends with the pass.
        let starves = || position.state().has_starving_follower(position.first_unreleased());
        let is_due = pace.is_release_due(progress.handled, starves);
        // A shard's unreleased events include the events of other shards that it has passed over.
        let held = position.next().wrapping_sub(position.first_unreleased());
        if is_due || position.is_at_end_of_chunk() || held >= pace.longest_pass {
            break;
        }
    }
    if pace.keeps_up {
        pace.pause();
    }
    (handled, Ok(()))
}

/// Runs one round of a stage's loop: handles available events, at most as many as `pace` allows,
/// and then releases them. Returns their number; 0 if no event was available, or if the stage waits
/// for more events of a batch ([`Pace::gathering`]).
#[inline(always)]
pub(crate) fn step<E, L: Layout, P: Availability<E, L>, H: Handler<E, L>>(
    position: &mut P,
    handler: &mut H,
    pace: &mut Pace,
) -> Result<u64, End> {
    position.check().map_err(End::Wait)?;
    // If the handler failed at an event and the stage skipped it, the batch up to this event is
    // still unreleased. A retry goes back to the last release, so the skipped event is released
    // before the next pass, and no later retry goes back to it.
    if position.has_unreleased() {
        end_batch(position, handler, P::release)?;
    }
    if H::GATHERS && !pace.is_batch_due(position).map_err(End::Wait)? {
        return Ok(0);
    }
    // While `between_events` is false, a failure is attributed to the event at `position.next()`. A
    // failure outside of `pass` is attributed to no event, so the stage skips no event.
    position.state_mut().between_events = false;
    let (handled, outcome) = pass(position, handler, pace);
    outcome.map_err(End::Fault)?;
    position.state_mut().between_events = true;
    if handled > 0 {
        end_batch(position, handler, |position| pace.release(|| position.release()))?;
    }
    Ok(handled)
}

#[inline(always)]
fn end_batch<E, L: Layout, P: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut P,
    handler: &mut H,
    release: impl FnOnce(&mut P),
) -> Result<(), End> {
    handler.batch_end(position.next()).map_err(End::Fault)?;
    position.count_batch();
    release(position);
    position.state_mut().skipped = false;
    Ok(())
}

/// Calls the handler's `idle`, unless the last call has failed and was skipped. The stage's loop
/// waits after this call.
#[inline(always)]
pub(crate) fn idle<E, L: Layout, P: ConsumerPosition<E, L>, H: Handler<E, L>>(
    position: &mut P,
    handler: &mut H,
) -> Result<(), End> {
    debug_assert!(position.state().between_events);
    let at = Some(position.next());
    if std::mem::replace(&mut position.state_mut().idle_failed, at) != at {
        handler.idle().map_err(End::Fault)?;
    }
    position.state_mut().idle_failed = None;
    Ok(())
}

/// Returns the pauses of a stage's loop.
fn spacing_of<E, L: Layout>(state: &ConsumerState<E, L>, pace: &Pace) -> Spacing {
    let Control { spacing, timed, .. } = *state.control();
    Spacing::new(state.core.capacity(), pace.max_held, spacing, timed)
}

/// Runs a stage until the stream ends or its handler fails. The function is inlined so that sums in
/// the handler's closure stay in registers.
#[inline(always)]
pub(crate) fn drive<E, L: Layout, P: Availability<E, L>, H: Handler<E, L>>(
    position: &mut P,
    handler: &mut H,
) -> End {
    position.state_mut().note_thread();
    let mut pace = Pace::new(position.state());
    let mut spacing = spacing_of(position.state(), &pace);
    let mut was_long = false;
    loop {
        let first = position.next();
        match step(position, handler, &mut pace) {
            Ok(0) => {
                if let Some(closed) = position.ended() {
                    position.flush_if_new(); // The handle may live on.
                    return End::Wait(closed);
                }
                if let Err(end) = idle(position, handler) {
                    return end;
                }
                // Asked here, where no event waits: the last wait may have noted further threads.
                if std::mem::take(&mut was_long) && pace.adapt(position.state()) {
                    spacing = spacing_of(position.state(), &pace);
                }
                let until = pace.idles_until();
                let waited = match &mut pace.gathering {
                    Some(gather) if H::GATHERS => {
                        let until = until.into_iter().fold(gather.deadline, Instant::min);
                        position.wait_gathering(gather, until)
                    }
                    _ => {
                        let waited = position.wait(until);
                        let polls = position.state().polls;
                        spacing.waited(polls);
                        was_long = polls == u32::MAX;
                        waited
                    }
                };
                match waited {
                    Ok(()) | Err(Unmet::TimedOut) => {}
                    Err(Unmet::Ended(closed)) => {
                        position.flush_if_new();
                        return End::Wait(closed);
                    }
                }
            }
            Ok(_) if P::MAY_PAUSE => {
                let passed = position.next().wrapping_sub(first);
                let hints = spacing.pause_after(passed, pace.keeps_up);
                pace.is_sparse = pace.keeps_up && hints == 0 && passed < SPARSE;
                pause(hints);
            }
            Ok(_) => {}
            Err(end) => return end,
        }
    }
}

/// Passes over `len` events at which the handler failed, and marks them as skipped before the
/// release (policy::I2).
pub(crate) fn skip<E, L: Layout>(position: &mut impl ConsumerPosition<E, L>, len: u64) {
    let first = position.next();
    let mark = |stage: &Stage| stage.policy.marks.iter().for_each(|marks| marks.mark(first, len));
    twin!("marked-before-release": mark(position.state().plan()) => ());
    let state = position.state();
    state.control().askers.note_skip(state.stage, first, len);
    position.advance(len, len);
    let state = position.state_mut();
    // The count of skipped events wraps at 2^64, as positions do. Each flush adds the difference of
    // two counts, modulo 2^64, so a wrap does not distort the graph's counters.
    state.counts.skipped = state.counts.skipped.wrapping_add(len);
    state.skipped = true;
    twin!("marked-before-release": () => {
        position.release();
        mark(position.state().plan());
    });
}
