//! The pace of a stage's loop decides when the loop releases events.

use std::time::{Duration, Instant};

use crate::base::sync::{now, twin};
use crate::consumer::gather::{Gather, has_nothing_to_wait_for};
use crate::consumer::position::{Availability, ConsumerState};
use crate::errors::WaitError;
use crate::ring::policy::Policy;
use crate::ring::slots::Layout;
use crate::ring::stage::Stage;

/// Target of the longest time between two releases that wake no sleeper. The loop exceeds the
/// target by up to one interval between two readings of the clock. A release and the readings
/// before it cost about 200 ns under a backlog, which is less than two percent of the target.
const RELEASE_AFTER: Duration = Duration::from_micros(32);
/// Least time between two releases, in multiples of the time that a release takes. A release that
/// wakes a sleeper takes 1 to 15 µs.
const RELEASE_SHARE: u32 = 50;
/// Upper bound of [`Pace::release_after`], the target of the longest time between two releases.
const LONGEST_HOLD: Duration = Duration::from_millis(1);
/// Target time between two readings of the clock. A reading takes 20 to 40 ns, and costs up to 80
/// ns, because it holds up the processor's work on the next event.
const CLOCK_INTERVAL: Duration = Duration::from_micros(16);
/// Target time of a stride, for a stage that may retry events, and for a stage with followers in a
/// graph that has enough cores. A stride of any other stage takes as long as the interval between
/// two readings of the clock.
const STRIDE: Duration = Duration::from_micros(1);
/// Length of a stride, in events, before the loop has learned from the clock how long a stride is.
/// Random events often come in small groups, and reading the clock in the middle of a group delays
/// the rest of the group.
const FIRST_STRIDE: u64 = 8;
/// Number of strides before the clock's first reading, for a loop whose strides grow. These strides
/// have 1, 2, 4 and 8 events.
const FIRST_STRIDES: u64 = 4;
/// Upper bound of a stride's length, in events.
const LONGEST_STRIDE: u64 = 256;
/// Upper bound of the number of strides between two readings of the clock.
const MOST_STRIDES: u64 = 64;

/// The pace of a stage's loop. The loop releases events at the earliest of these times:
/// - the loop has handled all available events;
/// - a stride (about a microsecond) has passed, and a later stage waits for the next event of this
///   stage;
/// - the loop has handled 1,024 events, or holds a quarter of the ring (an eighth if the stage
///   follows a stage or is followed by one), or has handled the chunk of a pool's worker;
/// - too much time has passed since the last release. The limit is about `RELEASE_AFTER`; but after
///   a release in this backlog that was due by time, the limit is fifty times the time that this
///   release took. In a stage that may retry events, the limit is about a microsecond.
///
/// A release under a backlog costs much more than a store: it takes a cache line away from the
/// threads that poll the line, and they then take cache lines away from this thread. So a stage
/// with a backlog in front of it releases rarely, unless another stage starves. Producers do not
/// starve while a quarter of the ring is held, because most of the ring's events are still in front
/// of the stage.
///
/// In a graph with more threads than cores, a stride takes 16 microseconds, and a stage may hold a
/// quarter of the ring even if stages follow each other. If a later stage received only a few
/// events at a time, it would occupy a core only briefly, and the two thread switches would cost
/// more than handling the events.
pub(crate) struct Pace {
    /// Whether the graph had more threads than cores when this pace began.
    oversubscribed: bool,
    /// Largest number of events that one pass hands to a handler of single events.
    max_pass: u64,
    /// Largest number of events that one pass hands to a batch handler.
    max_batch: u64,
    /// Largest number of events of a batch that the stage gathers, and the time for which the
    /// oldest of them waits.
    gathers: Option<(u64, Duration)>,
    /// The batch that the stage gathers, if it has events and waits for more.
    pub(crate) gathering: Option<Gather>,
    /// Time between two calls of the handler's `idle` during one wait.
    idle_every: Option<Duration>,
    /// Number of held positions at which a stage releases them: a quarter of the ring, or an eighth
    /// in a graph of several levels that has enough cores.
    pub(crate) max_held: u64,
    /// Number of held positions that ends a pass. It is `max_held`, or 1 in a stage that gathers,
    /// whose every batch must be due ([`Pace::is_batch_due`]).
    pub(crate) longest_pass: u64,
    /// Length of the current stride, in events. At the end of each stride, the loop checks whether
    /// a later stage starves.
    stride: u64,
    /// Length of a stride that takes about `stride_time`, as learned from the clock.
    learned_stride: u64,
    stride_time: Duration,
    /// Whether the first stride after a wait has one event, and each later stride has twice as many
    /// as the stride before, up to `learned_stride`. A loop that always keeps up reads no clock, so
    /// its `learned_stride` may be too long for the current events.
    grows: bool,
    /// Number of events since the end of the last stride.
    since_stride: u64,
    /// Number of strides between two readings of the clock.
    strides: u64,
    /// Number of strides and of events since the clock's last reading.
    since_reading: (u64, u64),
    /// The latest reading of the clock, and the reading from which the time since the last release
    /// is measured. The second one is the last reading before that release, or the first reading
    /// after a wait, whichever is later. `None` if the clock was not read since the loop last
    /// handled all available events.
    readings: Option<(Instant, Instant)>,
    /// Target of the longest time between two releases.
    release_after: Duration,
    /// Whether the next release is due because `release_after` has passed. The loop measures how
    /// long such releases take.
    is_release_timed: bool,
    /// Whether the loop releases at the end of each stride.
    after_each_stride: bool,
    /// Whether the loop reads the clock.
    timed: bool,
    /// Whether the last pass reached the end of the available events.
    pub(crate) keeps_up: bool,
    /// Whether the last pass found few events, and handled all of them. Loading a stamp that the
    /// producer is about to write takes as long as the hand-over of an event, and events that the
    /// loop has already gathered would wait for that load. So the loop handles sparse events one by
    /// one, each before it loads the next stamp.
    pub(crate) is_sparse: bool,
}

impl Pace {
    /// Creates the pace of a stage's loop. If the graph's `timed` is `false`, the stage's passes
    /// read no clock, and the stage's loop never pauses.
    pub(crate) fn new<E, L: Layout>(state: &ConsumerState<E, L>) -> Pace {
        Pace::on_cores(state, state.control().is_oversubscribed())
    }

    /// Begins anew if the graph now has more threads than cores, or no longer has. Returns whether
    /// it did. Called before the wait that follows a long one, in which other threads of the graph
    /// may have been noted.
    pub(crate) fn adapt<E, L: Layout>(&mut self, state: &ConsumerState<E, L>) -> bool {
        let oversubscribed = state.control().is_oversubscribed();
        let changed = oversubscribed != self.oversubscribed;
        if changed {
            *self = Pace::on_cores(state, oversubscribed);
        }
        changed
    }

    /// Creates the pace of a stage's loop. `oversubscribed` says whether the graph has more threads
    /// than cores.
    pub(crate) fn on_cores<E, L: Layout>(
        state: &ConsumerState<E, L>,
        oversubscribed: bool,
    ) -> Pace {
        let capacity = state.core.capacity();
        let Stage { followers, after, policy, .. } = state.plan();
        let Policy { max_batch, batch_within, idle_every, .. } = *policy;
        let retries = state.rewinds;
        // In a graph of several levels, each level holds a part of the ring.
        let is_alone = followers.is_empty() && after.is_empty();
        let share = if is_alone || oversubscribed { 4 } else { 8 };
        let starves_soon = !followers.is_empty() && !oversubscribed;
        let max_held = (capacity / share).max(1);
        let timed = state.control().timed;
        // A stage that gathers batches may hold the whole ring, because its user says so.
        let longest = batch_within.map_or((capacity / 4).max(1), |(max, _)| max.min(capacity));
        let gather = longest.min(max_batch);
        let grows = timed && starves_soon;
        // A retry repeats a whole stride, so a stage that may retry begins with one event.
        let first_stride = if retries { 1 } else { FIRST_STRIDE };
        let first_stride = if timed { first_stride } else { capacity };
        let max_pass = if timed { max_held.min(1024) } else { capacity };
        let max_held = if timed { max_held } else { capacity };
        // Without a clock, a batch's time counts as passed.
        let gathers = batch_within.filter(|_| timed).map(|(_, time)| (gather, time));
        Pace {
            oversubscribed,
            max_pass: max_pass.min(max_batch),
            max_batch: gather,
            longest_pass: if gathers.is_some() { 1 } else { max_held },
            gathers,
            gathering: None,
            idle_every,
            max_held,
            stride: if grows { 1 } else { first_stride },
            learned_stride: first_stride,
            grows,
            stride_time: if starves_soon || retries { STRIDE } else { CLOCK_INTERVAL },
            since_stride: 0,
            strides: if grows { FIRST_STRIDES } else { 1 },
            since_reading: (0, 0),
            readings: None,
            release_after: RELEASE_AFTER,
            is_release_timed: false,
            // A retry repeats all unreleased events, so a stage that may retry releases often.
            after_each_stride: retries,
            timed,
            keeps_up: false,
            is_sparse: false,
        }
    }

    /// Returns the largest number of events that one pass may handle. `batches` says whether the
    /// handler takes batches.
    #[inline(always)]
    pub(crate) fn max_pass(&self, batches: bool) -> u64 {
        if batches { self.max_batch } else { self.max_pass }
    }

    /// Returns the length of a stride, in events.
    #[inline(always)]
    pub(crate) fn stride(&self) -> u64 {
        self.stride
    }

    /// Counts handled events. Returns whether the events handled since the last release must be
    /// released now. `starves` returns whether a later stage waits for these events.
    #[inline(always)]
    pub(crate) fn is_release_due(&mut self, handled: u64, starves: impl FnOnce() -> bool) -> bool {
        self.since_stride += handled;
        self.timed && self.since_stride >= self.stride && self.end_stride(starves)
    }

    #[inline]
    fn end_stride(&mut self, starves: impl FnOnce() -> bool) -> bool {
        let (strides, events) = &mut self.since_reading;
        *strides += 1;
        *events += std::mem::take(&mut self.since_stride);
        self.stride = (self.stride * 2).min(self.learned_stride);
        let is_due = *strides >= self.strides && self.read_clock();
        is_due || self.after_each_stride || starves()
    }

    /// Reads the clock, and learns how many events make a stride. Returns whether a release is due
    /// because `release_after` has passed since the last one.
    #[cold]
    #[inline(never)]
    fn read_clock(&mut self) -> bool {
        let (_, events) = std::mem::take(&mut self.since_reading);
        let now = now();
        let Some((last, released)) = self.readings else {
            self.readings = Some((now, now));
            return false;
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let took = nanos(now.saturating_duration_since(last)).max(1);
        self.learned_stride = (nanos(self.stride_time) * events / took).clamp(1, LONGEST_STRIDE);
        self.stride = self.learned_stride;
        let strides = nanos(CLOCK_INTERVAL).saturating_mul(events) / took / self.stride;
        self.strides = strides.clamp(1, MOST_STRIDES);
        self.readings = Some((now, released));
        self.is_release_timed = now.saturating_duration_since(released) >= self.release_after;
        self.is_release_timed
    }

    /// Sets the learned length of a stride, in events.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn learn_stride(&mut self, events: u64) {
        (self.stride, self.learned_stride, self.strides) = (events, events, u64::MAX);
    }

    /// Returns the longest time that should pass between two releases.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn release_after(&self) -> Duration {
        self.release_after
    }

    /// Returns whether the loop has read the clock since it last handled all available events.
    #[cfg(all(test, not(slipring_loom)))]
    pub(crate) fn has_read_clock(&self) -> bool {
        self.readings.is_some()
    }

    /// Calls `release`, which releases all handled events.
    #[inline(always)]
    pub(crate) fn release(&mut self, release: impl FnOnce()) {
        if self.is_release_timed {
            return self.release_timed(now, release);
        }
        release();
        if let Some((last, released)) = &mut self.readings {
            *released = *last;
        }
    }

    /// Like [`Pace::release`], but also measures the release, and so learns how long the stage may
    /// hold events from now on. `clock` reads the clock.
    #[cold]
    pub(super) fn release_timed(&mut self, clock: impl Fn() -> Instant, release: impl FnOnce()) {
        self.is_release_timed = false;
        let began = clock();
        release();
        let now = clock();
        let took = now.saturating_duration_since(began);
        self.release_after = took.saturating_mul(RELEASE_SHARE).clamp(RELEASE_AFTER, LONGEST_HOLD);
        // The time that the release took does not count as time of the handler.
        self.readings = Some((now, now));
    }

    /// Notes that the loop has handled all available events, so that the time until the next event
    /// does not count as time of this stage's handler.
    #[inline(always)]
    pub(crate) fn pause(&mut self) {
        self.resume(None);
    }

    /// Notes that the loop continues after a pause, in which the thread may have run other stages.
    /// `now` is the clock's reading, if the caller has read the clock. The caller has released all
    /// handled events.
    #[inline(always)]
    pub(crate) fn resume(&mut self, now: Option<Instant>) {
        self.readings = now.map(|now| (now, now));
        (self.release_after, self.is_release_timed) = (RELEASE_AFTER, false);
        (self.since_stride, self.since_reading) = (0, (0, 0));
        if self.grows {
            self.stride = 1;
        }
    }

    /// Returns the time at which the handler's `idle` is called again, if a wait starts now.
    pub(crate) fn idles_until(&self) -> Option<Instant> {
        self.idle_every.and_then(|every| now().checked_add(every))
    }

    /// Returns whether a wait that starts now ends at a time: the stage gathers a batch, or the
    /// handler's `idle` repeats.
    pub(crate) fn is_timed(&self) -> bool {
        self.gathering.is_some() || self.idle_every.is_some()
    }

    /// Returns whether the stage hands its events to the handler now: it does not gather batches,
    /// or the batch is full, or the batch has waited long enough or has nothing to wait for. Fails
    /// if the stage must stop.
    #[inline(always)]
    pub(crate) fn is_batch_due<E, L: Layout>(
        &mut self,
        position: &mut impl Availability<E, L>,
    ) -> Result<bool, WaitError> {
        match self.gathers {
            None => Ok(true),
            Some(option) => self.has_gathered(option, position),
        }
    }

    #[cold]
    fn has_gathered<E, L: Layout>(
        &mut self,
        option: (u64, Duration),
        position: &mut impl Availability<E, L>,
    ) -> Result<bool, WaitError> {
        let (max, _) = option;
        let gathering = self.gathering.take();
        let len = position.grow(max);
        if len == 0 {
            // A pass would poll again, and hand over an event that has come in between.
            twin!("empty-batch-due": () => return Ok(true));
            self.keeps_up = true;
            self.pause();
            return Ok(false);
        }
        if len == max {
            return Ok(true);
        }
        let events = (position.next(), position.known_until());
        let mut gather = gathering
            .filter(|gather| gather.is_at(events.0))
            .unwrap_or_else(|| Gather::begin(&mut position.state_mut().oldest, option, events));
        let is_due = has_nothing_to_wait_for(position, &mut gather, len)? || gather.is_over();
        if !is_due {
            self.gathering = Some(gather);
        }
        Ok(is_due)
    }
}
