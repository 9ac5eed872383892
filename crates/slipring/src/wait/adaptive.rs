//! The strategy that learns: when to spin, when to sleep, and when to wake up before the next event is due.
//!
//! A wait is planned once, as soon as it lasts; what the last one taught is worked out only then, when there is nothing better to do.
//!
//! - *Wake*: what being woken costs here, from the ring until the waiter runs. It depends on how long the core was idle, so it is tracked.
//! - *Near*: the share of waits that end within two wakes. While it is at least half, the waiter spins, for up to four wakes: to sleep would take
//!   longer than what it waits for. Each wait that turns out otherwise lowers it by an eighth, so a waiter stays hot for a few waits after a burst and
//!   is cold after that, and one event out of turn changes nothing. To spin for as long as sleeping costs and then sleep is never worse than twice the
//!   best that one who knows the future could do (Karlin, Manasse, McGeoch, Owicki: Competitive randomized algorithms for nonuniform problems, 1994).
//! - *Gap*: the time between arrivals. If it hardly varies, the waiter sleeps until shortly before the next one is due, and spins from then on;
//!   *late* is how late timers go off here.
//! - *Crowds*: where threads outnumber cores, it gives its core away a few times, and then sleeps.
//! - *Contested*: it was off its core in the middle of a spin, so somebody else wants it. For a while it sleeps at once.
//!
//! Invariants
//! - I1: every plan ends with sleeping until woken, or for the bounded time that a budget takes to be earned.

use std::time::{Duration, Instant};

use super::{Idle, Learner, Waited};
use crate::system;

/// Learned values move by this fraction of the difference at each sample.
const PACE: f64 = 1.0 / 8.0;

/// Times in nanoseconds.
const FIRST_WAKE: f64 = 30_000.0;
const LEAST_WAKE: f64 = 1_000.0;
const MOST_WAKE: f64 = 1_000_000.0;
/// A nap shorter than this is no gain.
const LEAST_NAP: f64 = 5_000.0;
/// What a nap is shortened by besides all that was learned.
const SPARE: f64 = 2_000.0;
/// Two readings of the clock in one spin are never so far apart, unless the thread was off its core between them.
const OFF: f64 = 100_000.0;
/// A core is taken to be contested for so many times as long as its waiter was off it, within limits.
const CONTESTED: f64 = 32.0;
const LONGEST_CONTESTED: f64 = 200_000_000.0;
/// What a yield takes of the own core, about; and how often a waiter in a crowd looks before it sleeps.
const YIELD: f64 = 1_000.0;
const YIELDS: u64 = 60;

/// A value that is tracked, and how far samples lie from it.
#[derive(Clone, Copy, Debug)]
struct Track {
    mean: f64,
    deviation: f64,
    samples: u32,
}

impl Track {
    fn new(mean: f64) -> Track {
        Track { mean, deviation: mean, samples: 0 }
    }
    fn learn(&mut self, sample: f64) {
        // The first samples count in full, so that nothing is left of the guess.
        let pace = PACE.max(1.0 / f64::from(self.samples + 1));
        let off = (sample - self.mean).abs();
        self.deviation = if self.samples == 0 { sample } else { self.deviation + pace * (off - self.deviation) };
        self.mean += pace * (sample - self.mean);
        self.samples = self.samples.saturating_add(1);
    }
    /// Makes it a little less, for want of samples.
    fn forget(&mut self) {
        self.mean *= 0.99;
        self.deviation *= 0.99;
    }
    /// Samples hardly differ.
    fn is_steady(&self) -> bool {
        self.samples >= 8 && self.deviation < self.mean / 10.0
    }
}

/// What the rest of a wait is to be.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Not planned yet.
    Fresh,
    /// Sleep until the time, then spin until the other.
    Nap(Instant, Instant),
    /// It slept until the time.
    Napped(Instant, Instant),
    Spin(Instant),
    /// Give the core away a few times, then sleep.
    Yield,
    /// Sleep, deaf, until the budget has been earned that waking up takes.
    Save(Duration),
    Park,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    began: Instant,
    arrival: Instant,
}

/// One waiter that learns.
#[derive(Debug)]
pub(super) struct Adaptive {
    purse: Option<Purse>,
    wake: Track,
    late: Track,
    gap: Track,
    near: f64,
    /// The last wait that lasted and ended with something.
    last: Option<Ended>,
    /// When something came before that.
    arrival: Option<Instant>,
    /// Something came since that was not timed.
    untimed: bool,
    contested_until: Option<Instant>,
    phase: Phase,
    /// The clock's last reading in this wait.
    seen: Option<Instant>,
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn duration(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.clamp(0.0, 1e18) as u64)
}

fn after(time: Instant, nanos: f64) -> Instant {
    time.checked_add(duration(nanos)).unwrap_or(time)
}

impl Adaptive {
    pub(super) fn new(budget: Option<u8>) -> Adaptive {
        Adaptive {
            purse: budget.filter(|&percent| percent < 100).map(Purse::new),
            wake: Track::new(FIRST_WAKE),
            late: Track::new(FIRST_WAKE),
            gap: Track::new(0.0),
            near: 0.5,
            last: None,
            arrival: None,
            untimed: false,
            contested_until: None,
            phase: Phase::Fresh,
            seen: None,
        }
    }

    /// What is worth as much as being woken: the time it takes, and as much again for what it costs the two cores.
    fn worth(&self) -> f64 {
        2.0 * self.wake.mean.clamp(LEAST_WAKE, MOST_WAKE)
    }

    fn is_near(&mut self, near: bool) {
        self.near += PACE * (f64::from(u8::from(near)) - self.near);
    }

    /// Learns from the wait before.
    fn learn(&mut self) {
        let Some(Ended { began, arrival }) = self.last.take() else { return };
        self.is_near(nanos(arrival.saturating_duration_since(began)) < self.worth());
        if let Some(before) = self.arrival.replace(arrival)
            && !std::mem::take(&mut self.untimed)
        {
            self.gap.learn(nanos(arrival.saturating_duration_since(before)));
        }
    }

    /// How the wait that lasts since now is to go on.
    fn plan(&mut self, now: Instant, crowded: bool) -> Phase {
        self.learn();
        if let Some(purse) = &mut self.purse {
            purse.earn(now);
            if let Some(time) = purse.wants() {
                return Phase::Save(time);
            }
        }
        if crowded {
            return Phase::Yield;
        }
        if self.contested_until.is_some_and(|until| now < until) {
            return Phase::Park;
        }
        let worth = self.worth();
        let afford = |nanos: f64| self.purse.as_ref().is_none_or(|purse| purse.holds(nanos));
        if self.gap.is_steady()
            && let Some(due) = self.arrival.map(|arrival| after(arrival, self.gap.mean))
            && due > now
        {
            let Track { mean: late, deviation: scatter, .. } = self.late;
            let left = nanos(due - now);
            let learned = late + 4.0 * scatter + 2.0 * self.gap.deviation + SPARE;
            // As long as little is known of the timers here, there is room for the worst.
            let early = if self.late.samples < 8 { learned.min(left / 2.0) } else { learned };
            let until = after(due, 3.0 * self.gap.deviation + worth);
            if left - early >= LEAST_NAP && afford(early) {
                return Phase::Nap(after(now, left - early), until);
            }
            // It may have been learned when the machine was busy, and nothing new is learned without a nap.
            self.late.forget();
        }
        if self.near >= 0.5 && afford(worth) { Phase::Spin(after(now, 2.0 * worth)) } else { Phase::Park }
    }
}

impl Learner for Adaptive {
    fn idle(&mut self, waited: &Waited) -> Idle {
        let Some(now) = waited.now else {
            // In a crowd whoever is waited for may need this core.
            return if waited.crowded && waited.looks >= 5 { Idle::Yield } else { Idle::Spin(1) };
        };
        if let Phase::Fresh = self.phase {
            if let Some(purse) = &mut self.purse {
                purse.looked(waited.looks);
            }
            self.phase = self.plan(now, waited.crowded);
        } else if let Phase::Yield = self.phase {
            // The time that others took of this core meanwhile is theirs.
            let paid = self.purse.as_mut().is_none_or(|purse| purse.spend(now, YIELD));
            if !paid || waited.looks >= YIELDS {
                self.phase = Phase::Park;
            }
        } else if let Some(seen) = self.seen
            && let Phase::Spin(_) = self.phase
        {
            let since = nanos(now.saturating_duration_since(seen));
            if since > OFF {
                self.contested_until = Some(after(now, (since * CONTESTED).min(LONGEST_CONTESTED)));
                self.phase = Phase::Park;
            } else if let Some(purse) = &mut self.purse
                && since != 0.0
            {
                purse.looks_took(since);
                if !purse.spend(now, since) {
                    self.phase = Phase::Park;
                }
            }
        }
        self.seen = Some(now);
        if let Phase::Napped(until, spin) = self.phase {
            // Woken early by nobody, or by what was no progress: then it is still to come.
            if waited.wake.is_none() && now >= until {
                self.late.learn(nanos(now - until));
            }
            self.phase = Phase::Spin(spin);
        }
        if let Phase::Spin(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Park;
        }
        match self.phase {
            Phase::Spin(_) => return Idle::Spin(1),
            Phase::Yield => return Idle::Yield,
            Phase::Save(time) => {
                self.phase = Phase::Park;
                self.parks();
                return Idle::Sleep(time);
            }
            Phase::Nap(until, spin) => {
                self.phase = Phase::Napped(until, spin);
                self.parks();
                return Idle::ParkFor(until.saturating_duration_since(now));
            }
            _ => {}
        }
        self.parks();
        Idle::Park
    }

    fn over(&mut self, waited: &Waited, progress: bool) {
        self.seen = None;
        if let Some(purse) = &mut self.purse {
            purse.woke();
        }
        let (Some(began), Some(now)) = (waited.began, waited.now) else {
            if let Some(purse) = &mut self.purse {
                purse.looked(waited.looks);
            }
            self.is_near(true);
            self.untimed = true;
            return;
        };
        if let (Phase::Napped(until, _), None) = (self.phase, waited.wake)
            && now >= until
        {
            self.late.learn(nanos(now - until));
        }
        self.phase = Phase::Fresh;
        if let Some(wake) = waited.wake {
            self.wake.learn(nanos(wake));
        }
        if progress {
            let arrival = waited.wake.and_then(|wake| now.checked_sub(wake)).unwrap_or(now);
            self.last = Some(Ended { began, arrival: arrival.max(began) });
        }
    }
}

impl Adaptive {
    fn parks(&mut self) {
        if let Some(purse) = &mut self.purse {
            purse.parks();
        }
    }
}

/// A budget: a share of a core, earned by the clock and spent on spinning and on being woken.
#[derive(Debug)]
struct Purse {
    share: f64,
    /// Nanoseconds of a core; never more than [`Purse::MOST`], so that over any second no more than that is spent beyond the share.
    held: f64,
    earned_at: Option<Instant>,
    /// What a sleep and a wake take of this core.
    park: Track,
    parked: u32,
    /// The thread's time on its core before a sleep that is measured.
    before: Option<Duration>,
    /// What a look takes.
    look: Track,
}

impl Purse {
    /// One hundredth of a second, so of a core over a second.
    const MOST: f64 = 10_000_000.0;
    /// Asking for the thread's time takes long, so one sleep of so many is measured.
    const MEASURED: u32 = 16;
    const FIRST_PARK: f64 = 8_000.0;
    const FIRST_LOOK: f64 = 15.0;
    /// So many looks lie between two readings of the clock, which takes part of that time too.
    const LOOKS: f64 = 16.0;

    fn new(percent: u8) -> Purse {
        let share = f64::from(percent.max(1)) / 100.0;
        Purse {
            share,
            held: 0.0,
            earned_at: None,
            park: Track::new(Self::FIRST_PARK),
            parked: 0,
            before: None,
            look: Track::new(Self::FIRST_LOOK),
        }
    }

    fn earn(&mut self, now: Instant) {
        if let Some(before) = self.earned_at.replace(now) {
            self.held = (self.held + nanos(now.saturating_duration_since(before)) * self.share).min(Self::MOST);
        }
    }

    fn holds(&self, nanos: f64) -> bool {
        self.held >= nanos
    }

    /// So many looks were made before anybody read a clock.
    fn looked(&mut self, looks: u64) {
        self.held -= self.look.mean * looks as f64;
    }

    /// What the looks between two readings of the clock took.
    fn looks_took(&mut self, nanos: f64) {
        self.look.learn(nanos / Self::LOOKS);
    }

    /// It spent so much on looking or yielding. `false`: nothing is left.
    fn spend(&mut self, now: Instant, nanos: f64) -> bool {
        self.earn(now);
        self.held -= nanos;
        self.held > 0.0
    }

    /// How long it takes to earn what is owed, and what it takes to sleep for so long.
    fn wants(&self) -> Option<Duration> {
        let wants = self.park.mean - self.held;
        (wants > 0.0).then(|| duration(wants / self.share))
    }

    fn parks(&mut self) {
        self.held -= self.park.mean;
        self.parked = self.parked.wrapping_add(1);
        if self.parked.is_multiple_of(Self::MEASURED) {
            self.before = system::cpu_time();
        }
    }

    fn woke(&mut self) {
        if let Some(before) = self.before.take()
            && let Some(now) = system::cpu_time()
        {
            self.park.learn(nanos(now.saturating_sub(before)));
        }
    }
}
