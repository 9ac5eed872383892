//! A limit on the number of results that a task gets from one handle before it yields its thread.
//!
//! A runtime cannot interrupt a task. A task whose ring always has events, or always has room,
//! would never return *pending*, so timers and other tasks of its thread would starve. The library
//! depends on no runtime, and does not see when a runtime polls the task. So each handle counts its
//! own results, and a task with several handles yields its thread when the first of their budgets
//! is spent.

use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::base::sync::{elapsed, now};

/// A streak of results ends at its call with this number. The number is so large that, per result,
/// the readings of the clock and the wake-up cost less than a nanosecond. A streak of slow results
/// ends earlier, after [`LONGEST`].
const MOST: u32 = 512;

/// Number of the call from which the time of a streak is measured. A task that gets a few results
/// between two waits reads no clock.
const TIMED_FROM: u32 = 8;

/// Time after which a streak of results ends early. Runtimes ask tasks to yield the thread after 10
/// to 100 µs.
const LONGEST: Duration = Duration::from_micros(100);

/// The streak of results that a handle's futures have returned since one of them was last pending.
#[derive(Default)]
pub(crate) struct TaskBudget {
    /// Number of calls since a future of the handle was last pending.
    calls: u32,
    /// Time of call [`TIMED_FROM`].
    since: Option<Instant>,
}

impl TaskBudget {
    /// Counts a poll of one of the handle's futures. If the budget is spent, wakes the task and
    /// returns *pending*; the next call begins a new streak, so it succeeds.
    ///
    /// The clock is read at the calls 8, 16, 32, 64, 128 and 256 of a streak. So a streak has at
    /// least 15 results, however slow the task is. A streak with more results takes at most about
    /// twice [`LONGEST`].
    #[inline(always)]
    pub(crate) fn spend(&mut self, waker: &Waker) -> Poll<()> {
        self.calls += 1;
        if self.calls >= TIMED_FROM && self.calls.is_power_of_two() {
            return self.check(waker);
        }
        Poll::Ready(())
    }

    /// Begins a new streak, because a future of the handle is pending.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        self.calls = 0;
    }

    #[cold]
    #[inline(never)]
    fn check(&mut self, waker: &Waker) -> Poll<()> {
        let is_spent = match self.calls {
            TIMED_FROM => {
                self.since = Some(now());
                false
            }
            MOST.. => true,
            _ => self.since.is_some_and(|since| elapsed(since) >= LONGEST),
        };
        if !is_spent {
            return Poll::Ready(());
        }
        self.refill();
        waker.wake_by_ref();
        Poll::Pending
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    fn row(budget: &mut TaskBudget, pause: Duration) -> u32 {
        let results = (0..).take_while(|_| {
            std::thread::sleep(pause);
            budget.spend(Waker::noop()).is_ready()
        });
        results.count() as u32
    }

    /// Checks the length of each streak. If the system interrupts this thread, a streak is shorter,
    /// but never shorter than 15 results.
    #[test]
    fn a_row_ends_by_its_length_or_by_its_time() {
        let mut budget = TaskBudget::default();
        for _ in 0..10 {
            assert!([15, 31, 63, 127, 255, 511].contains(&row(&mut budget, Duration::ZERO)));
        }
        for _ in 0..3 {
            assert_eq!(row(&mut budget, LONGEST / 4), 15, "8 pauses exceed the time");
        }
        for _ in 0..1000 {
            assert!(budget.spend(Waker::noop()).is_ready());
            budget.refill();
        }
    }
}
