//! The pace of a stage's loop decides when the loop releases events and when the loop pauses.

use std::time::{Duration, Instant};

use crate::consumer::position::ConsumerState;
use crate::ring::control::Control;
use crate::ring::policy::Policy;
use crate::ring::slots::Layout;

/// Target time between two releases. A shorter time between releases would cost more, because each
/// release is a store to a line that other threads poll.
pub(crate) const RELEASE_AFTER: Duration = Duration::from_micros(1);
/// Least time between two readings of the clock. A reading of the clock takes 20 to 40 ns.
const CLOCK_INTERVAL: Duration = Duration::from_nanos(250);
/// Upper bound of the number of events between two readings of the clock.
const LONGEST_STRETCH: u64 = 256;
/// Least length of a dense pass, in events. If a pass finds 32 events after a pause of one spacing
/// (about 250 ns), then an event comes about every ten nanoseconds.
const DENSE: u64 = 32;

/// The pace of a stage's loop. A stage whose loop reads a clock, and whose handler takes single
/// events, releases after about a microsecond of work. With a clock and a handler of single events,
/// one pass handles at most 1,024 events, and at most an eighth of the ring's capacity.
pub(crate) struct Pace {
    /// Largest number of events that one pass hands to a handler of single events.
    max_pass: u64,
    /// Largest number of events that one pass hands to a batch handler.
    max_batch: u64,
    /// Time between two calls of the handler's `idle` during one wait.
    idle_every: Option<Duration>,
    /// Number of events between two readings of the clock. The loop doubles `stretch` if the time
    /// between two readings is less than `CLOCK_INTERVAL`. The loop halves `stretch` if the time
    /// between two readings exceeds `RELEASE_AFTER`.
    stretch: u64,
    /// Whether the loop reads the clock.
    pub(crate) timed: bool,
    /// Whether the last pass reached the end of the available events.
    pub(crate) keeps_up: bool,
    /// Length of a pass, in events, below which the loop pauses for one spacing; see
    /// [`Pace::spacings`].
    short: u64,
    /// Length of a pass, in events. After a pass of `long` or more events, the loop never pauses.
    long: u64,
}

impl Pace {
    /// Creates the pace of a stage's loop. If the graph's `timed` is `false`, the stage's passes
    /// read no clock, and the stage's loop never pauses.
    pub(crate) fn new<E, L: Layout>(state: &ConsumerState<E, L>) -> Pace {
        let capacity = state.core.capacity();
        let Policy { max_batch, idle_every, .. } = state.plan().policy;
        let gather = (capacity / 4).max(1).min(max_batch);
        match state.control().timed {
            true => Pace {
                max_pass: (capacity / 8).clamp(1, 1024).min(max_batch),
                max_batch: gather,
                idle_every,
                stretch: 1,
                timed: true,
                keeps_up: false,
                short: (capacity / 8).min(DENSE),
                long: (capacity / 4).min(256),
            },
            false => Pace {
                max_pass: capacity.min(max_batch),
                max_batch: gather,
                idle_every,
                stretch: capacity,
                timed: false,
                keeps_up: false,
                short: 0,
                long: 0,
            },
        }
    }

    /// Returns the largest number of events that one pass may handle. `batches`: whether the
    /// handler takes batches.
    #[inline(always)]
    pub(crate) fn max_pass(&self, batches: bool) -> u64 {
        if batches { self.max_batch } else { self.max_pass }
    }

    /// Returns the number of events between two readings of the clock.
    #[inline(always)]
    pub(crate) fn stretch(&self) -> u64 {
        self.stretch
    }

    /// Returns the length of the pause after a pass of `handled` events, in spacings (see
    /// [`space`]). The loop pauses only after a pass that reached the end of the available events.
    /// At the end of the available events, an immediate poll would load the cache line that the
    /// upstream is writing, and slow down the upstream.
    ///
    /// - After a pass of fewer than `short` events, the loop pauses for one spacing. The pause
    ///   delays the handling of an event by at most one spacing.
    /// - After a pass of at least `DENSE` and fewer than `long` events, the loop pauses for four
    ///   spacings. During a pass of `DENSE` or more events, the upstream writes about as many
    ///   events as the loop handles. If the loop paused for only one spacing, the loop would then
    ///   poll the line that the upstream is still writing.
    /// - After a pass of `long` or more events, the loop does not pause. In a small ring, the loop
    ///   also does not pause after a pass of `short` to `DENSE - 1` events. The upstream might fill
    ///   the ring during a pause.
    pub(crate) fn spacings(&self, handled: u64) -> u32 {
        if !self.keeps_up || handled == 0 {
            0
        } else if handled < self.short {
            1
        } else if handled >= DENSE && handled < self.long {
            4
        } else {
            0
        }
    }

    /// Returns the time at which the handler's `idle` is called again, if a wait starts now.
    pub(crate) fn idles_until(&self) -> Option<Instant> {
        self.idle_every.and_then(|every| Instant::now().checked_add(every))
    }

    /// Adapts the number of events between two readings of the clock. `took` is the time between
    /// the last two readings of the clock.
    pub(crate) fn adapt(&mut self, took: Duration) {
        if took < CLOCK_INTERVAL {
            self.stretch = (self.stretch * 2).min(LONGEST_STRETCH);
        } else if took > RELEASE_AFTER {
            self.stretch = (self.stretch / 2).max(1);
        }
    }
}

/// Pauses for `times` spacings. The pause keeps the consumer from polling the cache line that the
/// upstream is writing.
#[inline]
pub(crate) fn space(control: &Control, times: u32) {
    (0..control.spacing * times).for_each(|_| crate::base::sync::spin_loop());
}
