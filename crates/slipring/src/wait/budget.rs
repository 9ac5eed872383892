//! The CPU budget of a learning waiter: a token bucket that the clock refills.
//!
//! The budget covers waiting, not the handler's work. The waiter computes the cost of a wait from
//! three parts:
//!
//! - The cost of a spin is the time between two consecutive readings of the clock.
//! - The clock does not time the first and last polls of a wait. Each of these polls counts as much
//!   as an average poll of earlier spins.
//! - The cost of a sleep is the average CPU time of a sleep and its wake-up. One sleep in sixteen
//!   is measured, because reading the CPU time is a system call.

use std::time::{Duration, Instant};

use super::moving_average::{MovingAverage, duration, nanos};
use crate::base::system;

/// A token bucket of CPU time, in nanoseconds. As time passes, the bucket gains a fixed share of
/// it. The waiter's spins, polls and sleeps take their CPU time from the bucket.
#[derive(Debug)]
pub(super) struct CpuBudget {
    /// Refill rate of the budget, as a fraction of one core.
    share: f64,
    /// CPU time that the waiter may still spend, in nanoseconds; negative while overdrawn. The
    /// balance never exceeds [`CpuBudget::CAPACITY`], so that a waiter cannot save up CPU time and
    /// then hold its core for long.
    balance: f64,
    refilled_at: Option<Instant>,
    /// CPU time of a sleep and its wake-up, in nanoseconds.
    sleep_cost: MovingAverage,
    /// Number of sleeps, modulo 2^32.
    sleeps: u32,
    /// The thread's CPU time before the current sleep, if the current sleep is measured.
    cpu_time_before: Option<Duration>,
    /// CPU time of a poll, in nanoseconds.
    poll_cost: MovingAverage,
    /// Source of the thread's CPU time.
    pub(super) cpu_time: fn() -> Option<Duration>,
}

impl CpuBudget {
    /// Largest balance of a budget, in nanoseconds of CPU time: one percent of one second.
    const CAPACITY: f64 = 10_000_000.0;
    /// Number of sleeps per measured sleep.
    const MEASURED: u32 = 16;
    /// Assumed CPU time of a sleep until one sleep is measured, in nanoseconds.
    const FIRST_SLEEP_COST: f64 = 8_000.0;
    /// Assumed CPU time of a poll until polls are measured, in nanoseconds. The value is more
    /// likely too high than too low.
    const FIRST_POLL_COST: f64 = 40.0;

    pub(super) fn new(percent: u8) -> CpuBudget {
        let share = f64::from(percent.max(1)) / 100.0;
        CpuBudget {
            share,
            balance: 0.0,
            refilled_at: None,
            sleep_cost: MovingAverage::new(Self::FIRST_SLEEP_COST),
            sleeps: 0,
            cpu_time_before: None,
            poll_cost: MovingAverage::new(Self::FIRST_POLL_COST),
            cpu_time: system::cpu_time,
        }
    }

    pub(super) fn refill(&mut self, now: Instant) {
        if let Some(before) = self.refilled_at.replace(now) {
            // A balance below `-CAPACITY` is raised to `-CAPACITY`, so that an overdrawn budget
            // recovers in bounded time.
            let balance = self.balance.max(-Self::CAPACITY);
            let refill = nanos(now.saturating_duration_since(before)) * self.share;
            self.balance = (balance + refill).min(Self::CAPACITY);
        }
    }

    pub(super) fn has(&self, nanos: f64) -> bool {
        self.balance >= nanos
    }

    /// Returns whether the budget is overdrawn by more than the average cost of a sleep.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.balance < -self.sleep_cost.mean
    }

    /// Subtracts the average cost of a poll from the balance, once for each of `polls` untimed
    /// polls.
    pub(super) fn charge_polls(&mut self, polls: u64) {
        self.balance -= self.poll_cost.mean * polls as f64;
    }

    /// Learns the cost of a poll from the time between two consecutive readings of the clock, and
    /// the number of polls between them.
    pub(super) fn learn_poll_cost(&mut self, nanos: f64, polls: u64) {
        self.poll_cost.learn(nanos / polls.max(1) as f64);
    }

    /// Refills the budget, then subtracts `nanos` from the balance. Returns whether a positive
    /// balance is left.
    pub(super) fn charge(&mut self, now: Instant, nanos: f64) -> bool {
        self.refill(now);
        self.balance -= nanos;
        self.balance > 0.0
    }

    /// Returns the time until the balance is at least the average cost of a sleep, or `None` if the
    /// budget affords a sleep now.
    pub(super) fn time_to_afford_sleep(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        let missing = self.sleep_cost.mean - self.balance;
        (missing > 0.0).then(|| duration(missing / self.share))
    }

    /// Called before a sleep. Subtracts the average cost of a sleep from the balance. Every
    /// sixteenth sleep is also measured ([`CpuBudget::MEASURED`]).
    pub(super) fn charge_sleep(&mut self) {
        self.balance -= self.sleep_cost.mean;
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.sleeps.is_multiple_of(Self::MEASURED) {
            self.cpu_time_before = (self.cpu_time)();
        }
    }

    /// Learns the cost of the sleep that ended, if that sleep is measured.
    pub(super) fn finish_sleep(&mut self) {
        if let Some(before) = self.cpu_time_before.take()
            && let Some(now) = (self.cpu_time)()
        {
            self.sleep_cost.learn(nanos(now.saturating_sub(before)));
        }
    }
}
