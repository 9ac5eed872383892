//! The loop of a wait, which polls, acts as the strategy decides, and polls again.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::built_in::Wait;
use super::full_ring::FullRing;
use super::queue::WaitQueue;
use super::strategy::{CLOCK_INTERVAL, WaitAction, WaitContext, WaitLearner, WaitStrategy};
use crate::base::panics::drop_contained;
use crate::base::sync::{self, now, per_thread, spin_loop, yield_now};
use crate::base::system;
use crate::errors::WaitError;

/// The learner of one handle, if its strategy has one. A panic of the learner's drop is contained.
#[derive(Default)]
pub(crate) struct HandleLearner {
    learner: Option<Box<dyn WaitLearner>>,
    /// Number of waits that ended at their first polls and were not yet reported to the learner.
    short_waits: u32,
    /// The thread that was noted as the handle's.
    pub(crate) noted: NotedThread,
}

/// The thread that a graph knows to hold a handle, or none.
#[derive(Clone, Copy, Default)]
pub(crate) struct NotedThread(usize);

impl NotedThread {
    /// Returns the current thread.
    #[inline]
    pub(crate) fn this() -> NotedThread {
        per_thread! {
            /// Each living thread has its own at an address of its own.
            static MARK: u8 = const { 0 };
        }
        NotedThread(MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or(0))
    }

    /// Returns whether the current thread is another one.
    #[inline]
    pub(crate) fn is_another(self) -> bool {
        self.0 != NotedThread::this().0
    }
}

/// Largest number of short waits that the loop reports to a learner before a longer wait. After
/// this number of short waits in a row, an average over the waits has forgotten all earlier waits.
const MOST_SHORT_WAITS: u32 = 32;

impl HandleLearner {
    /// Notes a wait that ended at its first polls (see [`Wait::first_polls`]). The loop reports
    /// this wait to the learner before the next longer wait, so that learning delays no event.
    #[inline(always)]
    pub(crate) fn note_short_wait(&mut self) {
        self.short_waits = self.short_waits.saturating_add(1);
    }

    /// Returns the state of a wait of the same handle from which no learner learns.
    pub(crate) fn without_learner(&self) -> HandleLearner {
        HandleLearner { learner: None, short_waits: 0, noted: self.noted }
    }

    /// Reports to the learner the short waits since the last longer wait.
    fn learn_short_waits(&mut self, oversubscribed: bool) {
        let waits = std::mem::take(&mut self.short_waits).min(MOST_SHORT_WAITS);
        if let (1.., Some(learner)) = (waits, &mut self.learner) {
            let context = WaitContext::new(oversubscribed);
            (0..waits).for_each(|_| learner.wait_ended(&context, true));
        }
    }
}

impl From<Option<Box<dyn WaitLearner>>> for HandleLearner {
    fn from(learner: Option<Box<dyn WaitLearner>>) -> HandleLearner {
        HandleLearner { learner, short_waits: 0, noted: NotedThread::default() }
    }
}

impl Drop for HandleLearner {
    fn drop(&mut self) {
        if self.learner.is_some() {
            drop_contained(self.learner.take());
        }
    }
}

/// A place where waiters sleep until progress notifies them.
pub(crate) trait SleepPlace {
    /// Sleeps until a notification, but for at most `limit`, unless `ready` returns `true`. A sleep
    /// can end before `limit` without a notification. If a notification is known to have ended the
    /// sleep, returns the time since that notification.
    fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration>;
}

impl SleepPlace for WaitQueue {
    fn sleep(&self, limit: Option<Duration>, ready: &mut dyn FnMut() -> bool) -> Option<Duration> {
        WaitQueue::sleep(self, limit, ready)
    }
}

/// The rules of one wait.
pub(crate) struct WaitOptions<'a> {
    pub(crate) wait: &'a Wait,
    /// Number of polls that the waiter has made since the wait began.
    pub(crate) polls: u64,
    /// The full ring in which the waiter waits for room, if the waiter's thread has nothing else to
    /// do.
    pub(crate) full_ring: Option<FullRing>,
    /// The place where the waiter sleeps until a notification; `None` if progress notifies no
    /// sleeper, so that the waiter must wake up by a timer.
    pub(crate) queue: Option<&'a dyn SleepPlace>,
    pub(crate) deadline: Option<Instant>,
    /// Longest duration of the wait, from the clock's first reading on.
    pub(crate) timeout: Option<Duration>,
}

/// The reason why a wait ended before its condition held. A call that returns the reason to a user
/// adds the name of the party for which it was waiting at that time.
#[derive(Debug)]
pub(crate) enum Unmet {
    /// The deadline of the call, or the timeout of the waiting strategy, passed.
    TimedOut,
    /// The graph has ended, or the wait would never end.
    Ended(WaitError),
}

impl From<WaitError> for Unmet {
    fn from(reason: WaitError) -> Unmet {
        Unmet::Ended(reason)
    }
}

/// Whether a wait continues. If it does, the value is the time after which the loop asks again, or
/// `None` if the loop need not ask again.
pub(crate) type KeepWaiting = ControlFlow<Unmet, Option<Duration>>;

/// The condition that a waiter waits for, and the questions that the wait loop asks about it.
pub(crate) trait Condition {
    /// Polls. The call may run under a wait queue's lock, so an implementation runs no user code.
    fn is_ready(&mut self) -> bool;

    /// Returns whether the wait continues. The loop calls this function at the clock's first
    /// reading, and again whenever the returned time has passed; no sleep lasts longer than that
    /// time. If it returns `Break`, the wait ends after one more poll.
    fn keep_waiting(&mut self) -> KeepWaiting {
        ControlFlow::Continue(None)
    }

    /// Returns the time from the clock's first reading until a flush is due; `None` if the waiter
    /// has no counts. The loop asks once in a wait, at that first reading.
    fn flush_after(&self) -> Option<Duration> {
        None
    }

    /// Flushes the waiter's counts. The loop calls this function at most once in a wait: before its
    /// first sleep, or when the time of [`Condition::flush_after`] has passed.
    fn flush(&mut self) {}

    /// Called before each sleep. If the result is a time, the waiter sleeps by a timer for that
    /// time instead, and no notification ends this sleep.
    fn nap(&mut self) -> Option<Duration> {
        None
    }

    /// Returns whether the graph has more threads than cores. Handles join and leave while the wait
    /// lasts, so the loop asks again at each reading of the clock.
    fn is_oversubscribed(&self) -> bool {
        false
    }

    /// Notes the waiting thread, unless `noted` says that it is noted, and looks at the cores of
    /// the graph's threads, if that is due. The loop calls this function at each reading of the
    /// clock.
    fn look_at_cores(&self, _noted: &mut NotedThread, _now: Instant) {}
}

/// The condition of a wait that ends only at a successful poll, at its deadline or at its timeout.
impl<F: FnMut() -> bool> Condition for F {
    fn is_ready(&mut self) -> bool {
        self()
    }
}

/// Measurements of one wait.
pub(crate) struct WaitStats {
    /// Time between the clock's first and last readings in the wait. Zero if the wait ended before
    /// the clock's first reading ([`WaitContext::now`]).
    pub(crate) time: Duration,
    /// Number of sleeps.
    pub(crate) sleeps: u64,
    /// Number of polls that found nothing and were followed by an action.
    pub(crate) polls: u64,
}

/// Duration of the sleep that replaces [`WaitAction::Park`] if progress notifies no queue, or if
/// the waiter may not sleep until a notification.
pub(crate) const UNNOTIFIED_SLEEP: Duration = Duration::from_micros(50);

/// Longest duration of a [`WaitAction::Sleep`], which no notification can end early. After at most
/// this time the waiter polls again, and sees a close or a failure.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Polls until the condition holds, or until the deadline or timeout. Between two polls, acts as
/// the strategy decides. Returns why the wait ended, and its measurements.
#[cold]
pub(crate) fn wait_until(
    options: WaitOptions<'_>,
    learner: &mut HandleLearner,
    condition: &mut dyn Condition,
) -> (Result<(), Unmet>, WaitStats) {
    let WaitOptions { wait, polls, full_ring, queue, timeout, .. } = options;
    let mut deadline = options.deadline;
    let oversubscribed = condition.is_oversubscribed();
    let mut context = WaitContext { polls, full_ring, ..WaitContext::new(oversubscribed) };
    let (mut sleeps, mut next_call, mut flush_at) = (0, None, None);
    // If the wait must end, one last poll decides whether its condition held in time.
    let end = |condition: &mut dyn Condition, why| {
        if condition.is_ready() { Ok(()) } else { Err(why) }
    };
    let ended = loop {
        // The first poll comes before any reading of the clock, so that an event that is available
        // is not delayed.
        if condition.is_ready() {
            break Ok(());
        }
        learner.learn_short_waits(context.oversubscribed);
        let mut action = match &mut learner.learner {
            Some(learner) => learner.next_action(&context),
            None => wait.next_action(&context),
        };
        let spins = matches!(action, WaitAction::Spin(_) | WaitAction::SpinOn);
        if context.started.is_none() && (context.polls >= CLOCK_INTERVAL || !spins) {
            let now = now();
            (context.started, context.now) = (Some(now), Some(now));
            let timeout = timeout.and_then(|after| now.checked_add(after));
            deadline = deadline.into_iter().chain(timeout).min();
            next_call = Some(now);
            condition.look_at_cores(&mut learner.noted, now);
            context.oversubscribed = condition.is_oversubscribed();
            flush_at = condition.flush_after().and_then(|after| now.checked_add(after));
        }
        if next_call.zip(context.now).is_some_and(|(next, now)| next <= now) {
            let again = match condition.keep_waiting() {
                ControlFlow::Continue(again) => again,
                ControlFlow::Break(why) => break end(condition, why),
            };
            next_call = again.zip(context.now).and_then(|(again, now)| now.checked_add(again));
        }
        let until = |time: Option<Instant>| {
            time.zip(context.now).map(|(time, now)| time.saturating_duration_since(now))
        };
        if until(deadline) == Some(Duration::ZERO) {
            break end(condition, Unmet::TimedOut);
        }
        let left = until(deadline.into_iter().chain(next_call).min());
        let is_awake = spins || matches!(action, WaitAction::Clock | WaitAction::Yield);
        if flush_at.zip(context.now).is_some_and(|(at, now)| at <= now || !is_awake) {
            condition.flush();
            flush_at = None;
        }
        if !is_awake && let Some(nap) = condition.nap() {
            action = WaitAction::Sleep(nap);
        }
        context.wake_latency = None;
        match action {
            WaitAction::SpinOn => {
                // The last poll before the clock's reading is that of the outer loop.
                let last = context.polls - context.polls % CLOCK_INTERVAL + CLOCK_INTERVAL - 1;
                let found = loop {
                    pause();
                    if context.polls >= last {
                        break false;
                    }
                    context.polls += 1;
                    if condition.is_ready() {
                        break true;
                    }
                };
                if found {
                    break Ok(());
                }
            }
            WaitAction::Spin(pauses) => (0..pauses.clamp(1, 1 << 16)).for_each(|_| pause()),
            WaitAction::Clock => {}
            WaitAction::Yield => yield_now(),
            WaitAction::Park | WaitAction::ParkFor(_) => {
                sleeps += 1;
                let longest =
                    if let WaitAction::ParkFor(time) = action { Some(time) } else { None };
                let limit = left.into_iter().chain(longest).min();
                match queue {
                    Some(queue) => {
                        if longest.is_some() {
                            system::sharpen_timers();
                        }
                        context.wake_latency = queue.sleep(limit, &mut || condition.is_ready());
                    }
                    // If progress notifies no queue, the waiter must wake by a timer.
                    None => {
                        system::sharpen_timers();
                        sleep(limit.map_or(UNNOTIFIED_SLEEP, |limit| limit.min(UNNOTIFIED_SLEEP)));
                    }
                }
            }
            WaitAction::Sleep(time) => {
                sleeps += 1;
                let time = left.unwrap_or(LONGEST_SLEEP).min(time).min(LONGEST_SLEEP);
                system::sharpen_timers();
                sleep(time);
            }
        }
        context.polls += 1;
        if context.started.is_some() && (!spins || context.polls.is_multiple_of(CLOCK_INTERVAL)) {
            let now = now();
            context.now = Some(now);
            condition.look_at_cores(&mut learner.noted, now);
            context.oversubscribed = condition.is_oversubscribed();
        }
    };
    if let Some(learner) = &mut learner.learner {
        learner.wait_ended(&context, ended.is_ok());
    }
    (ended, WaitStats { time: context.elapsed(), sleeps, polls: context.polls })
}

fn pause() {
    if cfg!(slipring_loom) { yield_now() } else { spin_loop() }
}

fn sleep(time: Duration) {
    if cfg!(slipring_loom) { yield_now() } else { sync::sleep(time) }
}
