//! How much a loop handles between two releases, and how long it pauses when it keeps up.

use std::time::{Duration, Instant};

use crate::consumer::position::ConsumerState;
use crate::ring::control::Control;
use crate::ring::policy::Policy;
use crate::ring::slots::Layout;

/// Target time between two releases. Each release is a store to a line that other threads poll.
pub(crate) const RELEASE_AFTER: Duration = Duration::from_micros(1);
/// Least time between two readings of the clock. A reading takes 20 to 40 ns.
const CLOCK_INTERVAL: Duration = Duration::from_nanos(250);
/// Most events between two readings of the clock.
const LONGEST_STRETCH: u64 = 256;
/// Least length, in events, of a pass that shows dense events: about one in ten nanoseconds, if the
/// pass reached the end of the available ones.
const DENSE: u64 = 32;

/// The pace of a stage's loop: about a microsecond's work between two releases, and at most an
/// eighth of the ring.
pub(crate) struct Pace {
    /// Most events of a pass of single events.
    max_pass: u64,
    /// Most events of a batch for a batch handler.
    max_batch: u64,
    /// Time after which a waiting handler is called again.
    idle_every: Option<Duration>,
    /// Events between two readings of the clock; learned.
    stretch: u64,
    /// Whether the loop reads the clock.
    pub(crate) timed: bool,
    /// Whether the last pass reached the end of the available events.
    pub(crate) keeps_up: bool,
    /// Length below which a pass is short, in events; see [`Pace::spacings`].
    short: u64,
    /// Length from which on a pass leaves no time for pauses, in events.
    long: u64,
}

impl Pace {
    /// Creates the pace of a stage. Where the ring does not read the clock, every run is paced
    /// alike.
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

    /// Returns the most events of one pass, for a handler of batches or of single events.
    #[inline(always)]
    pub(crate) fn max_pass(&self, batches: bool) -> u64 {
        if batches { self.max_batch } else { self.max_pass }
    }

    /// Returns the number of events between two readings of the clock.
    #[inline(always)]
    pub(crate) fn stretch(&self) -> u64 {
        self.stretch
    }

    /// Returns how often to pause by [`space`] after a pass of `handled` events. Only a pass that
    /// reached the end of the available events pauses: the upstream writes just there, and a poll
    /// at once would contend for the line being written.
    ///
    /// - After a short pass: once, so that a single event is late by one pause at most.
    /// - Where events are dense: longer. A long pass costs a miss per line, and meanwhile the
    ///   upstream writes about as many events again, so one pause would not get away from it.
    /// - Where the ring may fill up meanwhile: never.
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

    /// Returns the time at which a handler that starts to wait now is called again.
    pub(crate) fn idles_until(&self) -> Option<Instant> {
        self.idle_every.and_then(|every| Instant::now().checked_add(every))
    }

    /// Learns the stretch from the time that a full one took.
    pub(crate) fn adapt(&mut self, took: Duration) {
        if took < CLOCK_INTERVAL {
            self.stretch = (self.stretch * 2).min(LONGEST_STRETCH);
        } else if took > RELEASE_AFTER {
            self.stretch = (self.stretch / 2).max(1);
        }
    }
}

/// Pauses a consumer that keeps up for `times` spacings, so that it does not contend with its
/// upstream for the line being written.
#[inline]
pub(crate) fn space(control: &Control, times: u32) {
    (0..control.spacing * times).for_each(|_| crate::base::sync::spin_loop());
}
