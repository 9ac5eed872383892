//! The adaptive strategy, which learns when to spin, when to sleep, and when the next event is due.
//!
//! A waiter plans each wait once, at the clock's first reading. It also learns from the previous
//! wait at that moment, because it has no event yet that the learning could delay. It tracks these
//! values:
//!
//! - The *wake latency* is the time from a notification until the waiter runs. The wake latency
//!   grows with the time for which the core was idle.
//! - The share of *short waits*, which end within two wake latencies. While this share is at least
//!   a half, the waiter spins, for up to four wake latencies. Each wait moves the share an eighth
//!   of the way towards 0 or 1, so after a burst of events the waiter stops spinning only after
//!   several long waits. If a waiter spins for about as long as a sleep costs, and then sleeps, it
//!   spends at most a constant factor more than the optimum (Karlin et al., Algorithmica 11, 1994:
//!   "Competitive randomized algorithms for nonuniform problems").
//! - The average wait. While it is at most 15 µs, events are *dense*: a sleep would delay more of
//!   them than its CPU time is worth, even where a wake-up is quick. The waiter then spins until 99
//!   of 100 waits for events at random times have ended.
//! - The *gap* between two arrivals of events. If the gaps are regular, the waiter sleeps until
//!   shortly before the next event is due, and then spins; if the event is due before a sleeper
//!   could run, it spins until the event comes. Gaps are regular if they vary by less than a tenth
//!   of their mean, and by less than a few wake latencies.
//! - The *timer lateness* is the time from the moment at which a timer should go off until the
//!   waiter runs.
//! - *Contention* means that another thread keeps the waiter's core for long. If two readings of
//!   the clock in one spin lie far apart, the waiter assumes contention. For a while after that,
//!   the waiter sleeps without spinning.
//!
//! A waiter that spins yields now and then, because a thread of another graph or of the program may
//! need the core: the more seldom, the longer no yield has lent the core to anybody. *Lent time* is
//! the time that other threads use during these yields. Lent time costs the waiter nothing. So it
//! counts neither as spinning, nor as part of the duration that makes a wait short or long, nor as
//! use of the CPU budget. Therefore, if the threads of several graphs outnumber the cores, and each
//! thread soon yields or sleeps, no waiter sleeps merely because its partner waits for a core.
//!
//! If the graph has more threads than cores, the waiter yields a few times and then sleeps.
//!
//! While a producer waits for room in a full ring, the stages still have events to handle. If
//! handling them takes long enough, the producer sleeps until a timer expires
//! ([`full_ring`](super::full_ring)).
//!
//! Invariants
//! - I1: the sleep at the end of a plan ends at a notification, or after the bounded time that the
//!   budget needs to refill.

use std::time::{Duration, Instant};

use super::budget::CpuBudget;
use super::full_ring::{FullRing, ReleaseRate};
use super::moving_average::{MovingAverage, WEIGHT, after, nanos};
use super::strategy::{
    OVERSUBSCRIBED_POLLS, OVERSUBSCRIBED_SPINS, WaitAction, WaitContext, WaitLearner, YIELD_COST,
};
use crate::base::sync::shortened;

/// Assumed wake latency, and assumed timer lateness, before the first measurement, in nanoseconds.
const FIRST_WAKE_LATENCY: f64 = 30_000.0;
/// Smallest wake latency that a plan assumes, in nanoseconds.
const LEAST_WAKE_LATENCY: f64 = 1_000.0;
/// Largest wake latency that is learned, in nanoseconds.
const MOST_WAKE_LATENCY: f64 = 1_000_000.0;
/// Shortest nap that a plan contains, in nanoseconds. A *nap* is a timed sleep that ends shortly
/// before an event is due.
const LEAST_NAP: f64 = 5_000.0;
/// Constant part of a nap's margin, in nanoseconds. The *margin* is the time from a nap's planned
/// end until the event is due.
const NAP_MARGIN: f64 = 2_000.0;
/// Shortest nap of a producer while its ring is full, in nanoseconds. During the nap, the stages
/// release half of the ring's events. Then they handle the other half, which takes about as long as
/// the nap. The producer must run before that is done, so the nap must be long compared with two
/// delays: timers are late by some ten microseconds, and if other processes keep the other cores
/// busy, the producer wakes up on the stage's core, which took 30 µs per nap
/// (records/2026-11-24-default-wait).
const LEAST_HALF_RING: f64 = 60_000.0;
/// Longest nap of a producer while its ring is full, in nanoseconds. No close and no failure ends
/// such a nap early.
const LONGEST_NAP_WHILE_FULL: f64 = 1_000_000.0;
/// Longest spin of a plan without a nap, in multiples of [`Adaptive::spin_worth`].
const SPIN: f64 = 2.0;
/// Longest spin around the due time of a regular event, in multiples of [`Adaptive::spin_worth`].
const SPIN_AROUND: f64 = 4.0;
/// Longest time between two consecutive readings of the clock in an undisturbed spin, in
/// nanoseconds. If two readings are further apart, the waiter assumes that another thread ran on
/// the core.
const PREEMPTED: f64 = 100_000.0;
/// Time of spinning after which a waiter yields, in nanoseconds, if its last yield lent the core.
/// Each further yield that lends nothing doubles the time.
const LEAST_YIELD_INTERVAL: f64 = 1_000.0;
/// Longest time of spinning after which a waiter yields, in nanoseconds. If no other thread needs
/// the core, a yield takes half a microsecond, and an event that comes meanwhile waits. A waiter
/// that yielded after each microsecond spent a third of its time on yields, and the median latency
/// of events at random times doubled (records/2026-11-30-default-strategy).
const MOST_YIELD_INTERVAL: f64 = 32_000.0;
/// Longest duration of a yield that lent the core to no other thread, in nanoseconds, from the
/// clock reading before the yield to the one after it. If the yield did lend the core, the two
/// thread switches alone take longer.
const UNLENT: f64 = 3_000.0;
/// If another thread runs for `t` on a spinning waiter's core, the core then counts as contended
/// for `CONTENDED * t`. If that happens again soon after, the multiple doubles, up to
/// [`MOST_CONTENDED`]: a host that takes the core once, or a system that begins two threads on one
/// core, must not keep the waiter from spinning for long. At first, such a beginning of 8 ms was
/// followed by 100 ms in which four events in five found the waiter asleep.
const CONTENDED: f64 = 2.0;
/// See [`CONTENDED`].
const MOST_CONTENDED: f64 = 32.0;
/// Longest time for which a core counts as contended, in nanoseconds.
const LONGEST_CONTENDED: f64 = 200_000_000.0;

/// Longest average wait with which events count as dense, in nanoseconds. With 100,000 events a
/// second at random times, waits take 10 µs on average.
const DENSE: f64 = 15_000.0;
/// Longest spin while events are dense, in nanoseconds. Of the waits for events at random times,
/// 99 % end within five times their average, so at most one event in a hundred finds its waiter
/// asleep.
const SPIN_WHILE_DENSE: f64 = 5.0 * DENSE;
/// Weight of a wait in the average by which events count as dense. The average of so many waits
/// for events at random times is seldom wrong by a fifth.
const DENSE_WEIGHT: f64 = 1.0 / 64.0;

/// The plan for the rest of a wait.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The wait has no plan yet.
    Unplanned,
    /// Sleep until `wake`, then spin until `give_up`.
    Nap { wake: Instant, give_up: Instant },
    /// The sleep of [`Phase::Nap`] has begun.
    Napping { wake: Instant, give_up: Instant },
    /// Sleep until the given time. If the ring is still full then, sleep until notified.
    NapWhileFull(Instant),
    /// The first sleep of [`Phase::NapWhileFull`] has begun.
    NappingWhileFull(Instant),
    /// Spin until the given time.
    Spin(Instant),
    /// Yield a few times, then sleep.
    Yield,
    /// Sleep until notified.
    Park,
}

/// The start of a wait, and the arrival of the event that ended the wait.
#[derive(Clone, Copy, Debug)]
struct EndedWait {
    began: Instant,
    arrival: Instant,
}

/// The part of an ended wait's context that the learner learns from.
#[derive(Clone, Copy, Debug)]
struct Ended {
    started: Option<Instant>,
    now: Option<Instant>,
    wake_latency: Option<Duration>,
    /// Number of polls since the clock's last reading, or in the whole wait.
    last_polls: u64,
    progress: bool,
}

/// The learner of one waiter.
#[derive(Debug)]
pub(super) struct Adaptive {
    pub(super) budget: Option<CpuBudget>,
    wake_latency: MovingAverage,
    timer_lateness: MovingAverage,
    gap: MovingAverage,
    release_rate: ReleaseRate,
    /// Share of waits that ended within two wake latencies, from 0 to 1.
    short_waits: f64,
    /// The end of the previous wait, if nothing was learned from it yet. An event then waits for
    /// its handler, so it is only stored here.
    ended: Option<Ended>,
    /// Average duration of a wait, in nanoseconds, and the number of waits that were counted.
    usual_wait: f64,
    waits: u32,
    /// The previous timed wait; `None` after the learner has learned from that wait.
    last: Option<EndedWait>,
    /// Time of the last arrival that was learned.
    last_arrival: Option<Instant>,
    /// Whether an arrival after `last_arrival` was not timed, so that the gap is unknown.
    gap_unknown: bool,
    /// Start of the first wait that timed out since the last progress; `None` if no wait timed out
    /// since the last progress.
    streak_began: Option<Instant>,
    /// Whether the waiter's last sleep, not counting naps, waited for the CPU budget to refill. If
    /// so, the waiter's next sleep is one that a notification can end (I1).
    slept_for_budget: bool,
    contended_until: Option<Instant>,
    /// Time for which the core counted as contended at the last time, in nanoseconds, and the
    /// multiple that led to it.
    contended_for: f64,
    contended: f64,
    phase: Phase,
    /// The clock's last reading in this wait, and the number of polls before it.
    last_reading: Option<Instant>,
    polls: u64,
    /// Whether the spinning waiter yielded after the clock's last reading.
    yielded: bool,
    /// Time of spinning since the last yield, in this wait and the waits before it, in nanoseconds.
    since_yield: f64,
    /// Time of spinning after which the waiter yields, in nanoseconds.
    yield_interval: f64,
    /// Lent time of this wait, in nanoseconds: the time that other threads used during the waiter's
    /// yields.
    lent: f64,
}

impl Adaptive {
    /// Returns a learner that spends at most `budget` percent of a core.
    pub(super) fn new(budget: Option<u8>) -> Adaptive {
        Adaptive {
            budget: budget.filter(|&percent| percent < 100).map(CpuBudget::new),
            wake_latency: MovingAverage::new(FIRST_WAKE_LATENCY),
            timer_lateness: MovingAverage::new(FIRST_WAKE_LATENCY),
            gap: MovingAverage::new(0.0),
            release_rate: ReleaseRate::new(),
            short_waits: 0.5,
            usual_wait: 0.0,
            waits: 0,
            ended: None,
            last: None,
            last_arrival: None,
            gap_unknown: false,
            streak_began: None,
            slept_for_budget: false,
            contended_until: None,
            contended_for: 0.0,
            contended: CONTENDED,
            phase: Phase::Unplanned,
            last_reading: None,
            polls: 0,
            yielded: false,
            since_yield: 0.0,
            yield_interval: LEAST_YIELD_INTERVAL,
            lent: 0.0,
        }
    }

    /// Returns the time for which spinning costs as much as a sleep, in nanoseconds. A sleep costs
    /// twice the wake latency: once as delay, and once as CPU time of the sleeper and the notifier.
    fn spin_worth(&self) -> f64 {
        2.0 * self.wake_latency.mean.max(LEAST_WAKE_LATENCY)
    }

    /// Counts a wait of `nanos` nanoseconds.
    fn count_wait(&mut self, nanos: f64) {
        let short = nanos < self.spin_worth();
        self.short_waits += WEIGHT * (f64::from(u8::from(short)) - self.short_waits);
        // The first waits weigh as in an arithmetic mean. Later, one long wait counts as four.
        self.waits = self.waits.saturating_add(1);
        let weight = DENSE_WEIGHT.max(1.0 / f64::from(self.waits));
        let most =
            if weight > DENSE_WEIGHT { f64::INFINITY } else { 4.0 * self.usual_wait.max(DENSE) };
        self.usual_wait += weight * (nanos.min(most) - self.usual_wait);
    }

    /// Returns whether events are dense.
    fn is_dense(&self) -> bool {
        self.waits >= 8 && self.usual_wait <= DENSE
    }

    /// Learns from the previous wait.
    fn learn(&mut self) {
        let Some(EndedWait { began, arrival }) = self.last.take() else { return };
        self.count_wait(nanos(arrival.saturating_duration_since(began)));
        if let Some(before) = self.last_arrival.replace(arrival)
            && !std::mem::take(&mut self.gap_unknown)
        {
            // From the ninth sample on, a gap is limited to about four times the mean gap, so that
            // one long gap does not spoil the mean.
            let most =
                if self.gap.samples < 8 { f64::INFINITY } else { 4.0 * self.gap.mean + LEAST_NAP };
            self.gap.learn(nanos(arrival.saturating_duration_since(before)).min(most));
        }
    }

    /// Learns from the previous wait, and returns the plan for the current wait.
    fn plan(&mut self, now: Instant, context: &WaitContext) -> Phase {
        self.learn();
        if let Some(budget) = &mut self.budget {
            budget.refill(now);
        }
        if let Some(wake) = context.full_ring.and_then(|ring| self.plan_nap_while_full(now, &ring))
        {
            return Phase::NapWhileFull(wake);
        }
        if context.oversubscribed {
            return Phase::Yield;
        }
        if self.contended_until.is_some_and(|until| now < until) {
            return Phase::Park;
        }
        let worth = self.spin_worth();
        if self.gap.is_steady()
            && let Some(due) = self.last_arrival.map(|arrival| after(arrival, self.gap.mean))
            && due > now
        {
            let spread = 3.0 * self.gap.deviation;
            // If the event is due before a sleeper could run, a spin uses less CPU time than a nap,
            // and the notifier need not wake the waiter.
            if nanos(due - now) < self.wake_latency.mean && self.affords(worth) {
                return Phase::Spin(after(due, spread + worth));
            }
            let MovingAverage { mean: lateness, deviation, .. } = self.timer_lateness;
            let left = nanos(due - now);
            let around = SPIN_AROUND * worth;
            let learned = lateness + 4.0 * deviation + 2.0 * self.gap.deviation + NAP_MARGIN;
            // Until the waiter has measured eight timer latenesses, the margin of a nap has an
            // upper limit. A large assumed lateness could otherwise rule out every nap, and without
            // naps the waiter would never measure it. Meanwhile the waiter may wake up after the
            // next event is due.
            let early = if self.timer_lateness.samples < 8 {
                learned.min(left / 2.0).min(around / 2.0)
            } else {
                learned
            };
            if left - early >= LEAST_NAP && early + spread <= around && self.affords(early) {
                let (wake, give_up) = (after(now, left - early), after(due, spread + worth));
                return Phase::Nap { wake, give_up };
            }
            // Each plan that rejects a nap lowers the average timer lateness by one percent. An
            // average that is too high could otherwise rule out naps for ever, because without naps
            // the waiter does not measure it.
            self.timer_lateness.decay(0.01);
        }
        if self.is_dense() && self.affords(SPIN_WHILE_DENSE) {
            Phase::Spin(after(now, SPIN_WHILE_DENSE.max(SPIN * worth)))
        } else if self.short_waits >= 0.5 && self.affords(worth) {
            Phase::Spin(after(now, SPIN * worth))
        } else {
            Phase::Park
        }
    }

    /// Returns whether the budget has `nanos` nanoseconds of CPU time.
    fn affords(&self, nanos: f64) -> bool {
        self.budget.as_ref().is_none_or(|budget| budget.has(nanos))
    }

    /// Plans a nap of a producer that lasts until half of a full ring's events are released.
    /// Returns the nap's end, or `None` if that time is unknown, or too short for a nap that may
    /// end late.
    fn plan_nap_while_full(&mut self, now: Instant, ring: &FullRing) -> Option<Instant> {
        let left = self.release_rate.learn(now, ring)?.min(LONGEST_NAP_WHILE_FULL);
        if left < LEAST_HALF_RING {
            return None;
        }
        let MovingAverage { mean, deviation, samples } = self.timer_lateness;
        // An assumed lateness must not rule out the naps by which the lateness is measured.
        let late = |nanos: f64| if samples < 8 { nanos.min(left / 2.0) } else { nanos };
        let nap = left - late(mean);
        if nap >= LEAST_NAP && late(4.0 * deviation) <= left / 2.0 && self.affords(LEAST_NAP) {
            self.release_rate.naps();
            return Some(after(now, nap));
        }
        // The decay is slower than in [`Adaptive::plan`], because a nap that ends late costs the
        // stage's time.
        self.timer_lateness.decay(0.001);
        None
    }
}

impl WaitLearner for Adaptive {
    fn next_action(&mut self, context: &WaitContext) -> WaitAction {
        self.settle();
        let Some(now) = context.now else {
            // If the CPU budget is overdrawn, the waiter reads the clock at once, because the first
            // reading in a wait refills the budget. Without readings of the clock, a series of
            // short waits would overdraw the budget without limit.
            if self.budget.as_ref().is_some_and(CpuBudget::is_overdrawn) {
                return WaitAction::Clock;
            }
            // In a graph with more threads than cores, the waiter soon yields, because the awaited
            // thread may need the waiter's core.
            return match context.oversubscribed {
                false => WaitAction::SpinOn,
                true if context.polls < OVERSUBSCRIBED_SPINS => WaitAction::Spin(1),
                true => WaitAction::Yield,
            };
        };
        if let Phase::Unplanned = self.phase {
            if let Some(budget) = &mut self.budget {
                budget.charge_polls(context.polls);
            }
            self.phase = self.plan(now, context);
        } else if let Phase::Yield = self.phase {
            // The budget is charged the estimated cost of a yield and not the elapsed time, because
            // other threads use the core during the yield.
            let paid =
                self.budget.as_mut().is_none_or(|budget| budget.charge(now, nanos(YIELD_COST)));
            if !paid || context.polls >= shortened(OVERSUBSCRIBED_POLLS) {
                self.phase = Phase::Park;
            }
        } else if let Some(last_reading) = self.last_reading
            && let Phase::Spin(until) = self.phase
        {
            self.spend(now, last_reading, until, context.polls);
        }
        if self.last_reading != Some(now) {
            (self.last_reading, self.polls) = (Some(now), context.polls);
        }
        if let Phase::Napping { wake, give_up } = self.phase {
            // If the waiter wakes up at least `LEAST_NAP` before a nap's planned end, and its poll
            // finds nothing, the waiter continues the nap.
            if nanos(wake.saturating_duration_since(now)) >= LEAST_NAP {
                self.phase = Phase::Nap { wake, give_up };
            } else {
                self.learn_lateness(context.wake_latency, now, wake);
                self.phase = Phase::Spin(give_up);
            }
        }
        if let Phase::NappingWhileFull(wake) = self.phase {
            self.learn_lateness(context.wake_latency, now, wake);
            self.phase = Phase::Park;
        }
        if let Phase::Spin(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Park;
        }
        match self.phase {
            Phase::Spin(_) if self.since_yield >= self.yield_interval => {
                self.yielded = true;
                return WaitAction::Yield;
            }
            Phase::Spin(_) => return WaitAction::SpinOn,
            Phase::Yield => return WaitAction::Yield,
            Phase::Nap { wake, give_up } => {
                self.phase = Phase::Napping { wake, give_up };
                self.charge_sleep();
                return WaitAction::ParkFor(wake.saturating_duration_since(now));
            }
            Phase::NapWhileFull(wake) => {
                self.phase = Phase::NappingWhileFull(wake);
                self.charge_sleep();
                // The timer wakes the producer, so no release has to.
                return WaitAction::Sleep(wake.saturating_duration_since(now));
            }
            _ => {}
        }
        if !self.slept_for_budget
            && let Some(time) =
                self.budget.as_mut().and_then(|budget| budget.time_to_afford_sleep(now))
        {
            return self.sleep_for_budget(time);
        }
        self.slept_for_budget = false;
        self.charge_sleep();
        WaitAction::Park
    }

    fn wait_ended(&mut self, context: &WaitContext, progress: bool) {
        self.settle();
        let WaitContext { polls, started, now, wake_latency, .. } = *context;
        let last_polls = match self.last_reading {
            None => polls,
            last_reading if last_reading == now => polls.wrapping_sub(self.polls),
            _ => 0, // The poll after the clock's last reading has ended the wait.
        };
        let ended = Ended { started, now, wake_latency, last_polls, progress };
        match &self.budget {
            // The CPU time of a sleep is measured up to here, without that of the handler.
            Some(_) => self.note_end(ended),
            None => self.ended = Some(ended),
        }
    }
}

impl Adaptive {
    /// Learns from the end of the previous wait, unless that was done before.
    fn settle(&mut self) {
        if let Some(ended) = self.ended.take() {
            self.note_end(ended);
        }
    }

    /// Learns from the end of a wait.
    fn note_end(&mut self, ended: Ended) {
        let Ended { started, now, wake_latency, last_polls, progress } = ended;
        let last_reading = self.last_reading.take();
        let spun = matches!(self.phase, Phase::Unplanned | Phase::Spin(_));
        if let (true, Some(last_reading), Some(now)) = (spun, last_reading, now) {
            let (own, ..) = self.divide(now, last_reading);
            if let Some(budget) = &mut self.budget {
                budget.charge(now, own);
            }
        }
        let lent = std::mem::take(&mut self.lent);
        if let Some(budget) = &mut self.budget {
            if spun {
                // The clock has not timed the last polls of the wait, so the budget charges these
                // polls at the average cost of a poll.
                budget.charge_polls(last_polls);
            }
            budget.finish_sleep();
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Unplanned);
        let (Some(began), Some(now)) = (started, now) else {
            if self.streak_began.take().is_none() {
                self.count_wait(0.0);
            }
            self.gap_unknown = true;
            return;
        };
        if let Phase::NappingWhileFull(wake) = phase {
            // The nap determined the length of the wait, which says nothing about waits without
            // such a nap.
            self.learn_lateness(wake_latency, now, wake);
            (self.streak_began, self.gap_unknown) = (None, true);
            return;
        }
        if let Phase::Napping { wake, .. } = phase {
            self.learn_lateness(wake_latency, now, wake);
        }
        if let Some(latency) = wake_latency {
            self.wake_latency.learn_clamped(nanos(latency).min(MOST_WAKE_LATENCY));
        } else if self.wake_latency.mean > FIRST_WAKE_LATENCY {
            // If the average wake latency is above `FIRST_WAKE_LATENCY`, each wait without a
            // wake-up lowers it by one percent. An average that is too high could otherwise make
            // the waiter spin in every wait, and a waiter that never sleeps measures no wake
            // latency.
            self.wake_latency.decay(0.01);
        }
        if progress {
            let began = after(self.streak_began.take().unwrap_or(began), lent);
            let arrival = wake_latency.and_then(|latency| now.checked_sub(latency)).unwrap_or(now);
            self.last = Some(EndedWait { began, arrival: arrival.max(began) });
        } else {
            // If several waits time out one after the other, the duration of each is measured from
            // the start of the first wait.
            let since = after(self.streak_began.unwrap_or(began), lent);
            self.streak_began = Some(since);
            let waited = nanos(now.saturating_duration_since(since));
            if waited >= self.spin_worth() {
                self.count_wait(waited);
            }
        }
    }

    /// Divides the time of a spin since the clock's last reading into the waiter's own time and
    /// lent time, adds the lent time to the wait's total, and notes contention. Returns both times,
    /// in nanoseconds, and whether the core is contended.
    fn divide(&mut self, now: Instant, last_reading: Instant) -> (f64, f64, bool) {
        let since = nanos(now.saturating_duration_since(last_reading));
        let yielded = std::mem::take(&mut self.yielded);
        let lent = if yielded && since > UNLENT { since - nanos(YIELD_COST) } else { 0.0 };
        self.lent += lent;
        self.since_yield += since;
        if yielded {
            self.since_yield = 0.0;
            self.yield_interval = match lent {
                0.0 => (2.0 * self.yield_interval).min(MOST_YIELD_INTERVAL),
                _ => LEAST_YIELD_INTERVAL,
            };
        }
        let contended = since > PREEMPTED;
        if contended {
            let is_soon = |until| now <= after(until, 4.0 * self.contended_for);
            self.contended = match self.contended_until.is_some_and(is_soon) {
                true => (2.0 * self.contended).min(MOST_CONTENDED),
                false => CONTENDED,
            };
            self.contended_for = (since * self.contended).min(LONGEST_CONTENDED);
            self.contended_until = Some(after(now, self.contended_for));
        }
        (since - lent, lent, contended)
    }

    /// Accounts for the time since the clock's last reading, during a spin that is due to end at
    /// `until`. Time for which the waiter lent its core moves that end. Ends the spin at once if
    /// the core is contended or the budget is spent.
    fn spend(&mut self, now: Instant, last_reading: Instant, until: Instant, polls: u64) {
        let yielded = self.yielded;
        let (own, lent, contended) = self.divide(now, last_reading);
        self.phase = if contended { Phase::Park } else { Phase::Spin(after(until, lent)) };
        if let Some(budget) = &mut self.budget
            && !contended
            && own != 0.0
        {
            if !yielded {
                budget.learn_poll_cost(own, polls.wrapping_sub(self.polls));
            }
            if !budget.charge(now, own) {
                self.phase = Phase::Park;
            }
        }
    }

    fn charge_sleep(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.charge_sleep();
        }
    }

    /// Returns the action that sleeps for `time` while the CPU budget refills. No notification ends
    /// this sleep.
    fn sleep_for_budget(&mut self, time: Duration) -> WaitAction {
        self.slept_for_budget = true;
        self.charge_sleep();
        WaitAction::Sleep(time)
    }

    /// Learns the lateness of the timer that was set for `due`, unless a notification ended the
    /// sleep.
    fn learn_lateness(&mut self, wake_latency: Option<Duration>, now: Instant, due: Instant) {
        if wake_latency.is_none() && now >= due {
            self.timer_lateness.learn_clamped(nanos(now - due));
        }
    }
}
