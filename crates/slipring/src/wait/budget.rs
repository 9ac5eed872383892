//! What a waiter that learns may spend on waiting: a budget that is kept over any second.
//!
//! It is about waiting, not about work: what a handler takes is the user's. What is spent is known
//! in three ways. Spinning is what the clock says it took. Looks before the clock is read count as
//! what a look was measured to take. A sleep and its wake-up count as what they took of the
//! thread's own time on its core, which is asked for at one sleep in sixteen, because to ask takes
//! a system call.

use std::time::{Duration, Instant};

use super::moving_average::{MovingAverage, duration, nanos};
use super::until::FEW;
use crate::base::system;

/// A budget: a share of a core, earned by the clock and spent on spinning and on being woken.
#[derive(Debug)]
pub(super) struct CpuBudget {
    share: f64,
    /// Nanoseconds of a core; never more than [`CpuBudget::MOST`], so that over any second no more than
    /// that is spent beyond the share.
    held: f64,
    earned_at: Option<Instant>,
    /// What a sleep and a wake take of this core.
    pub(super) park: MovingAverage,
    parked: u32,
    /// The thread's time on its core before a sleep that is measured.
    before: Option<Duration>,
    /// What a look takes.
    look: MovingAverage,
    /// Who knows the thread's time on its core.
    pub(super) cpu_time: fn() -> Option<Duration>,
}

impl CpuBudget {
    /// One hundredth of a second, so of a core over a second.
    const MOST: f64 = 10_000_000.0;
    /// Asking for the thread's time takes long, so one sleep of so many is measured.
    const MEASURED: u32 = 16;
    const FIRST_PARK: f64 = 8_000.0;
    /// Rather too much than too little, until it is known.
    const FIRST_LOOK: f64 = 40.0;

    pub(super) fn new(percent: u8) -> CpuBudget {
        let share = f64::from(percent.max(1)) / 100.0;
        CpuBudget {
            share,
            held: 0.0,
            earned_at: None,
            park: MovingAverage::new(Self::FIRST_PARK),
            parked: 0,
            before: None,
            look: MovingAverage::new(Self::FIRST_LOOK),
            cpu_time: system::cpu_time,
        }
    }

    pub(super) fn earn(&mut self, now: Instant) {
        if let Some(before) = self.earned_at.replace(now) {
            // What was spent beyond any measure is not paid back for ever.
            let held = self.held.max(-Self::MOST);
            self.held =
                (held + nanos(now.saturating_duration_since(before)) * self.share).min(Self::MOST);
        }
    }

    pub(super) fn holds(&self, nanos: f64) -> bool {
        self.held >= nanos
    }

    /// By more than a sleep takes.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.held < -self.park.mean
    }

    /// So many looks were made of which no clock tells what they took.
    pub(super) fn looked(&mut self, polls: u64) {
        self.held -= self.look.mean * polls as f64;
    }

    /// What the looks between two readings of the clock took.
    pub(super) fn looks_took(&mut self, nanos: f64) {
        self.look.learn(nanos / FEW as f64);
    }

    /// It spent so much on looking or yielding. `false`: nothing is left.
    pub(super) fn spend(&mut self, now: Instant, nanos: f64) -> bool {
        self.earn(now);
        self.held -= nanos;
        self.held > 0.0
    }

    /// How long it takes to earn what is owed, and what it takes to sleep for so long; if anything
    /// is.
    pub(super) fn wants(&mut self, now: Instant) -> Option<Duration> {
        self.earn(now);
        let wants = self.park.mean - self.held;
        (wants > 0.0).then(|| duration(wants / self.share))
    }

    pub(super) fn parks(&mut self) {
        self.held -= self.park.mean;
        self.parked = self.parked.wrapping_add(1);
        if self.parked.is_multiple_of(Self::MEASURED) {
            self.before = (self.cpu_time)();
        }
    }

    pub(super) fn woke(&mut self) {
        if let Some(before) = self.before.take()
            && let Some(now) = (self.cpu_time)()
        {
            self.park.learn(nanos(now.saturating_sub(before)));
        }
    }
}
