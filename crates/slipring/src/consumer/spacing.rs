//! The spacing of a stage's loop decides when the loop pauses before its next poll, and how long.
//!
//! At the end of the available events, an immediate poll would load the cache line that the
//! upstream is writing. The upstream would have to fetch it back for its next event. A pause avoids
//! that, but delays the events that come meanwhile.

use crate::base::sync::{planted, spin_loop};

/// Least length of a dense pass, in events. If a pass finds 32 events after a pause of one spacing
/// (about 250 ns), then an event comes about every ten nanoseconds.
const DENSE: u64 = 32;
/// Upper limit of [`Spacing::density`] while a loop pauses after short passes. If all earlier
/// pauses have gathered events, the loop begins to pause at this density.
const DENSEST: u32 = 8;
/// Density with which a loop begins to pause: so low that the first two pauses show whether pauses
/// gather events.
const FIRST_DENSITY: u32 = DENSEST / 2;
/// Upper bound of [`Spacing::patience`]. With this patience, a loop whose pauses gather nothing
/// loses half a microsecond in four thousand events.
const MOST_PATIENCE: u32 = 4096;
/// Least number of events that make a pause worth its delay. A pause that gathers a single event
/// delays it and saves nothing.
const GATHERED: u64 = 3;
/// Longest pause after a dense pass, in spacings. If the upstream publishes an event every three
/// nanoseconds, then after a shorter pause the loop would still poll the lines that the upstream is
/// writing.
const LONGEST_PAUSE: u32 = 4;

/// The spacing of a stage's loop. The loop pauses only after a pass that has reached the end of the
/// available events:
/// - After a *short* pass, the loop pauses for one spacing if events come so densely that several
///   come within a spacing; see [`Spacing::density`]. Where events come less densely, a pause would
///   delay an event and save nothing.
/// - After a *dense* pass, the loop pauses for up to four spacings. During a pass of `DENSE` or
///   more events, the upstream writes about as many events as the loop handles. After a pause of
///   only one spacing, the loop would poll the line that the upstream is still writing. The loop
///   also pauses after the next short pass.
/// - After a pass of `long` or more events, the loop does not pause, because the upstream might
///   fill the ring during a pause. For the same reason, the loop in a small ring does not pause
///   after a pass of `short` to `DENSE - 1` events.
pub(crate) struct Spacing {
    /// One spacing, in spin hints.
    spacing: u32,
    /// Length of a pass, in events, below which the pass is short.
    short: u64,
    /// Least length of a pass, in events, after which the loop never pauses.
    long: u64,
    /// Number of events that the stage may hold: a quarter of the ring, or an eighth. If so many
    /// events come during a pause, the upstream may fill the ring during a few pauses.
    max_held: u64,
    /// Number of empty polls of the last wait; `None` if the loop has not waited since the last
    /// pass.
    polls: Option<u32>,
    /// A measure of how densely events come. Its rule depends on `pauses`:
    /// - While `pauses` is `false`, a wait of at most a quarter of a spacing raises the measure,
    ///   and a longer wait lowers it. A pass without a wait before it changes nothing, because its
    ///   events may have come while the handler worked.
    /// - While `pauses` is `true`, a pause that gathers `GATHERED` events raises the measure, up to
    ///   `DENSEST`, and a pause that gathers fewer events lowers it.
    density: u32,
    /// Whether the loop pauses after short passes. The loop begins to pause when `density` reaches
    /// `patience`, and stops when `density` reaches 0.
    pauses: bool,
    /// The density at which the loop begins to pause. It doubles each time the loop stops pausing,
    /// and returns to `DENSEST` when pauses have gathered events several times in a row. Without
    /// the doubling, a stage that waits for the answers of a fast thread would pause again and
    /// again, because its waits are short, too. But there, each pause only delays an answer.
    patience: u32,
    /// Length of the pause after a dense pass, in spin hints. The length grows slowly, and halves
    /// when `max_held` events came during a pause.
    dense_pause: u32,
    /// Whether the last pass was dense, and the loop has paused after it.
    paused_densely: bool,
}

impl Spacing {
    /// Creates the spacing of a loop over a ring of `capacity` slots. The loop's stage holds at
    /// most `max_held` events. `spacing` is one spacing, in spin hints. If `timed` is `false`, the
    /// loop never pauses.
    pub(crate) fn new(capacity: u64, max_held: u64, spacing: u32, timed: bool) -> Spacing {
        let quarter = capacity / 4;
        Spacing {
            spacing,
            short: if timed { quarter.min(DENSE) } else { 0 },
            long: if timed { quarter.min(256) } else { 0 },
            max_held,
            polls: None,
            density: 0,
            pauses: false,
            patience: DENSEST,
            dense_pause: LONGEST_PAUSE * spacing,
            paused_densely: false,
        }
    }

    /// Notes the number of empty polls of a wait. `polls` is `u32::MAX` if the wait lasted longer
    /// than its first polls.
    #[inline(always)]
    pub(crate) fn waited(&mut self, polls: u32) {
        self.polls = Some(polls);
    }

    /// Returns the length of the pause after a pass of `handled` events, in spin hints. `keeps_up`
    /// says whether the pass reached the end of the available events.
    #[inline(always)]
    pub(crate) fn pause_after(&mut self, handled: u64, keeps_up: bool) -> u32 {
        let polls = self.polls.take();
        let paused_densely = std::mem::take(&mut self.paused_densely);
        if paused_densely && handled >= self.max_held {
            self.dense_pause /= 2;
        }
        if !keeps_up || handled == 0 {
            return 0;
        }
        if handled >= DENSE {
            (self.density, self.pauses, self.patience) = (DENSEST, true, DENSEST);
            let pause = if handled < self.long { self.pause_densely(handled) } else { 0 };
            return planted!("polls-unspaced": pause => 0);
        }
        if handled >= self.short {
            return 0;
        }
        let dense = match self.pauses {
            true => Some(handled >= GATHERED),
            false => polls.map(|polls| polls <= self.spacing / 4),
        };
        match dense {
            Some(true) => self.density += 1,
            Some(false) => self.density = self.density.saturating_sub(2),
            None => {}
        }
        match self.pauses {
            false if self.density >= self.patience => {
                (self.density, self.pauses) = (FIRST_DENSITY, true);
            }
            true if self.density == 0 => {
                (self.pauses, self.patience) = (false, (2 * self.patience).min(MOST_PATIENCE));
            }
            true if self.density >= DENSEST => {
                (self.density, self.patience) = (DENSEST, DENSEST);
            }
            _ => {}
        }
        planted!("polls-unspaced": if self.pauses { self.spacing } else { 0 } => 0)
    }

    /// Returns the length of the pause after a dense pass of `handled` events, in spin hints.
    #[inline]
    fn pause_densely(&mut self, handled: u64) -> u32 {
        self.paused_densely = true;
        if handled < self.max_held / 2 {
            let longest = LONGEST_PAUSE * self.spacing;
            self.dense_pause = (self.dense_pause + self.spacing.div_ceil(8)).min(longest);
        }
        self.dense_pause
    }
}

/// The spacing of the user's own loop, for a handle that follows a cursor. Each call that takes
/// events decides whether the next call pauses before it loads the cursor. The loop's own work
/// between two calls adds to the pause.
pub(crate) struct CallSpacing {
    spacing: Spacing,
    /// Number of calls without an event since the last call that found events.
    empty: u32,
    /// Length of the next call's pause, in spin hints.
    hints: u32,
}

impl CallSpacing {
    /// Creates the spacing of calls over a ring of `capacity` slots; see [`Spacing::new`].
    pub(crate) fn new(capacity: u64, spacing: u32, timed: bool) -> CallSpacing {
        let spacing = Spacing::new(capacity, (capacity / 4).max(1), spacing, timed);
        CallSpacing { spacing, empty: 0, hints: 0 }
    }

    /// Pauses as the last call decided.
    #[inline(always)]
    pub(crate) fn pause(&mut self) {
        pause(std::mem::take(&mut self.hints));
    }

    /// Notes the number of empty polls of a wait, inside of a call; see [`Spacing::waited`].
    #[inline(always)]
    pub(crate) fn waited(&mut self, polls: u32) {
        self.empty = self.empty.saturating_add(polls);
    }

    /// Notes that a call, which asked for at most `max` events, found `len`. The call has begun
    /// with [`CallSpacing::pause`].
    #[inline(always)]
    pub(crate) fn found(&mut self, len: u64, max: u64) {
        // No pause follows a call that got as many events as it asked for.
        if len == max && !self.spacing.paused_densely {
            self.empty = 0;
        } else {
            self.learn(len, max);
        }
    }

    #[inline(never)]
    fn learn(&mut self, len: u64, max: u64) {
        if len == 0 {
            self.empty = self.empty.saturating_add(1);
            return;
        }
        if let Some(polls) = std::mem::take(&mut self.empty).checked_sub(1) {
            self.spacing.waited(polls);
        }
        self.hints = self.spacing.pause_after(len, len < max);
    }
}

/// Pauses for `hints` spin hints.
#[inline]
pub(crate) fn pause(hints: u32) {
    (0..hints).for_each(|_| spin_loop());
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// Spin hints of one spacing.
    const HINTS: u32 = 8;

    /// Returns the spacing of a loop that holds at most a quarter of its ring of 64 slots.
    fn spacing() -> Spacing {
        Spacing::new(64, 16, HINTS, true)
    }

    /// Returns the pause after a wait of `polls` polls and a pass of `handled` events, in spacings.
    fn after_wait(spacing: &mut Spacing, polls: u32, handled: u64) -> u32 {
        spacing.waited(polls);
        spacing.pause_after(handled, true) / HINTS
    }

    #[test]
    fn a_loop_pauses_only_where_a_pause_gathers_events() {
        let mut spacing = spacing();
        // Events that come while the handler works do not show that events are dense.
        assert!((0..100).all(|_| spacing.pause_after(1, true) == 0));
        // Waits that outlast their first polls are no sign of dense events.
        assert!((0..100).all(|_| after_wait(&mut spacing, u32::MAX, 1) == 0));
        let pauses: u32 = (0..8).map(|_| after_wait(&mut spacing, 0, 1)).sum();
        assert_eq!(pauses, 1, "after eight short waits");
        let mut gathers = || after_wait(&mut spacing, u32::MAX, GATHERED) == 1;
        assert!((0..100).all(|_| gathers()), "pauses gather enough");
        // The fourth pause that gathers too few events is the last.
        let pauses = [1, 2, 1, 2, 1].map(|handled| after_wait(&mut spacing, 0, handled));
        assert_eq!(pauses, [1, 1, 1, 0, 0]);
        // After a dense pass, the loop pauses after passes of less than a quarter of the ring.
        let pauses = [40, 1, 15, 16].map(|handled| after_wait(&mut spacing, u32::MAX, handled));
        assert_eq!(pauses, [0, 1, 1, 0]);
    }

    /// A fast thread's answers come one by one, each after a short wait. Each time the loop stops
    /// pausing because its pauses gathered nothing, it waits twice as long before it tries again.
    #[test]
    fn a_loop_that_pauses_in_vain_tries_ever_more_rarely() {
        let mut spacing = spacing();
        let mut until_pause = || {
            let waits = (1..).find(|_| after_wait(&mut spacing, 0, 1) != 0);
            assert_eq!(after_wait(&mut spacing, 0, 1), 1, "a second pause");
            assert_eq!(after_wait(&mut spacing, 0, 1), 0, "and no third");
            waits
        };
        for shift in 0..9 {
            assert_eq!(until_pause(), Some(8 << shift));
        }
        assert_eq!([until_pause(), until_pause()], [Some(MOST_PATIENCE); 2]);
        // Once events come densely again, the loop pauses as readily as at first.
        assert_eq!((0..MOST_PATIENCE).filter(|_| after_wait(&mut spacing, 0, 1) != 0).count(), 1);
        assert!((0..8).all(|_| after_wait(&mut spacing, 0, GATHERED) == 1));
        assert_eq!((0..5).map(|_| after_wait(&mut spacing, 0, 1)).sum::<u32>(), 3);
        assert_eq!((0..15).map(|_| after_wait(&mut spacing, 0, 1)).sum::<u32>(), 1, "after 16");
    }

    #[test]
    fn a_loop_of_calls_pauses_where_calls_find_few_dense_events() {
        let mut calls = CallSpacing::new(64, HINTS, true);
        let mut call = |empty: u32, len, max| {
            (0..empty).for_each(|_| calls.found(0, max));
            calls.found(len, max);
            std::mem::take(&mut calls.hints) / HINTS
        };
        assert_eq!((0..100).map(|_| call(0, 1, 8)).sum::<u32>(), 0, "no call was empty");
        assert_eq!((0..100).map(|_| call(100, 1, 8)).sum::<u32>(), 0, "long waits");
        assert_eq!((0..8).map(|_| call(1, 1, 8)).sum::<u32>(), 1, "after eight short waits");
        assert_eq!(
            (0..100).map(|_| call(0, GATHERED, 8)).sum::<u32>(),
            100,
            "pauses gather events"
        );
        assert_eq!(call(0, 8, 8), 0, "more events may be there");
        let mut untimed = CallSpacing::new(64, HINTS, false);
        (0..100).for_each(|_| {
            untimed.found(0, 8);
            untimed.found(1, 8);
            assert_eq!(untimed.hints, 0);
        });
    }

    /// If the upstream filled the ring during a pause, the upstream would have to wait.
    #[test]
    fn a_dense_pause_is_shorter_than_the_upstream_needs_to_fill_the_ring() {
        let mut spacing = Spacing::new(1024, 256, HINTS, true);
        assert_eq!(spacing.pause_after(100, true), 4 * HINTS);
        let halves = [4, 2, 1].map(|times| {
            assert_eq!(spacing.pause_after(256, false), 0, "events are left");
            assert_eq!(spacing.pause_after(256, false), 0, "no pause came before");
            assert_eq!(spacing.dense_pause, times * HINTS / 2);
            spacing.pause_after(200, true)
        });
        assert_eq!(halves, [2 * HINTS, HINTS, HINTS / 2]);
        // While few events come, the pause grows again, up to four spacings.
        assert_eq!(spacing.pause_after(100, true), HINTS / 2 + 1);
        assert!((0..100).map(|_| spacing.pause_after(100, true)).is_sorted());
        assert_eq!(spacing.pause_after(100, true), 4 * HINTS);
    }
}
