//! The loop of a wait, which polls, acts as the strategy decides, and polls again.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::built_in::Wait;
use super::full_ring::FullRing;
use super::queue::WaitQueue;
use super::strategy::{CLOCK_INTERVAL, WaitAction, WaitContext, WaitLearner, WaitStrategy};
use crate::base::panics::drop_contained;
use crate::base::sync::{self, now, spin_loop, yield_now};
use crate::base::system;
use crate::errors::WaitError;

/// The learner of one handle, if its strategy has one. A panic of the learner's drop is contained.
#[derive(Default)]
pub(crate) struct HandleLearner {
    learner: Option<Box<dyn WaitLearner>>,
    /// Number of waits that ended at their first polls and were not yet reported to the learner.
    short_waits: u32,
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
        HandleLearner { learner, short_waits: 0 }
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

    /// Called before each sleep. If the result is `false`, the waiter yields instead.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Returns whether the graph has more threads than cores. Handles join and leave while the wait
    /// lasts, so the loop asks again at each reading of the clock.
    fn is_oversubscribed(&self) -> bool {
        false
    }
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

/// Duration of the sleep that replaces [`WaitAction::Park`] if progress notifies no queue.
const UNNOTIFIED_SLEEP: Duration = Duration::from_micros(50);

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
        let spins = matches!(action, WaitAction::Spin(_));
        if context.started.is_none() && (context.polls >= CLOCK_INTERVAL || !spins) {
            let now = now();
            (context.started, context.now) = (Some(now), Some(now));
            let timeout = timeout.and_then(|after| now.checked_add(after));
            deadline = deadline.into_iter().chain(timeout).min();
            next_call = Some(now);
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
        if !is_awake && !condition.may_sleep() {
            action = WaitAction::Yield;
        }
        context.wake_latency = None;
        match action {
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
            context.now = Some(now());
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

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Returns the rules of a wait without a deadline or a timeout.
    fn endless<'a>(wait: &'a Wait, queue: Option<&'a WaitQueue>) -> WaitOptions<'a> {
        WaitOptions {
            wait,
            polls: 0,
            full_ring: None,
            queue: queue.map(|queue| queue as _),
            deadline: None,
            timeout: None,
        }
    }

    fn wait(
        wait: &Wait,
        parks: bool,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> bool,
    ) -> (bool, WaitStats) {
        let queue = WaitQueue::new();
        let queue = parks.then_some(&queue);
        let options = WaitOptions { deadline, timeout: wait.timeout(), ..endless(wait, queue) };
        let (ended, stats) = wait_until(options, &mut wait.learner().into(), &mut || ready());
        (ended.is_ok(), stats)
    }

    /// A condition of closures.
    struct Closures<R, K, O>(R, K, O);

    impl<R, K, O> Condition for Closures<R, K, O>
    where
        R: FnMut() -> bool,
        K: FnMut() -> KeepWaiting,
        O: Fn() -> bool,
    {
        fn is_ready(&mut self) -> bool {
            (self.0)()
        }
        fn keep_waiting(&mut self) -> KeepWaiting {
            (self.1)()
        }
        fn is_oversubscribed(&self) -> bool {
            (self.2)()
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            // On a busy machine the clock's first reading may come after the deadline. The time of
            // such a wait is zero, and the test waits once more.
            loop {
                let deadline = Instant::now() + Duration::from_millis(3);
                let (in_time, stats) =
                    wait(&strategy, strategy.parks(), Some(deadline), &mut || false);
                assert!(!in_time && Instant::now() >= deadline, "{strategy}");
                if !stats.time.is_zero() {
                    break;
                }
            }
        }
    }

    /// If `keep_waiting` returns `Break`, the wait ends after one more poll, and succeeds if that
    /// last poll succeeds.
    #[test]
    fn a_wait_that_must_not_go_on_polls_once_more() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            for ready_at_last in [false, true] {
                let queue = WaitQueue::new();
                let options = endless(&strategy, Some(&queue));
                let stopped = std::cell::Cell::new(false);
                let (mut before, mut after) = (0, 0);
                let keep_waiting = || {
                    stopped.set(true);
                    ControlFlow::Break(WaitError::Halted.into())
                };
                let ready = || {
                    *(if stopped.get() { &mut after } else { &mut before }) += 1;
                    stopped.get() && ready_at_last
                };
                let mut condition = Closures(ready, keep_waiting, || false);
                let (ended, stats) =
                    wait_until(options, &mut strategy.learner().into(), &mut condition);
                let in_time = match ended {
                    Ok(()) => true,
                    Err(Unmet::Ended(WaitError::Halted)) => false,
                    Err(other) => panic!("{strategy}: {other:?}"),
                };
                assert_eq!((in_time, after, stats.sleeps), (ready_at_last, 1, 0), "{strategy}");
                assert!(before <= CLOCK_INTERVAL + 1, "{strategy}: {before} polls");
            }
        }
    }

    /// `keep_waiting` returns a time. When this time has passed, the loop calls `keep_waiting`
    /// again, even if the strategy sleeps for ever. The new answer can end the wait.
    #[test]
    fn a_wait_asks_again_whether_to_go_on() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            let queue = WaitQueue::new();
            let options = endless(&strategy, Some(&queue));
            let mut calls = 0;
            let keep_waiting = || {
                calls += 1;
                if calls < 3 {
                    ControlFlow::Continue(Some(Duration::from_millis(1)))
                } else {
                    ControlFlow::Break(WaitError::Halted.into())
                }
            };
            let mut condition = Closures(|| false, keep_waiting, || false);
            let (ended, _) = wait_until(options, &mut strategy.learner().into(), &mut condition);
            assert_eq!((ended.is_ok(), calls), (false, 3), "{strategy}");
        }
    }

    /// Handles that join while a wait lasts may make the graph oversubscribed.
    #[test]
    fn a_wait_asks_again_whether_the_graph_is_oversubscribed() {
        let _watched = crate::watchdog::watched();
        #[derive(Debug)]
        struct Told(std::sync::mpsc::Sender<bool>);
        impl WaitStrategy for Told {
            fn next_action(&self, context: &WaitContext) -> WaitAction {
                self.0.send(context.oversubscribed).unwrap();
                WaitAction::Yield
            }
            fn parks(&self) -> bool {
                false
            }
            fn alias(&self) -> String {
                "told".to_owned()
            }
        }
        let (sender, told) = std::sync::mpsc::channel();
        let strategy = Wait::Custom(std::sync::Arc::new(Told(sender)));
        let joined = std::cell::Cell::new(false);
        let mut polls = 0;
        let ready = || {
            polls += 1;
            joined.set(polls > 2);
            polls > 4
        };
        let mut condition = Closures(ready, || ControlFlow::Continue(None), || joined.get());
        let (ended, _) =
            wait_until(endless(&strategy, None), &mut HandleLearner::default(), &mut condition);
        assert!(ended.is_ok());
        assert_eq!(told.into_iter().take(4).collect::<Vec<_>>(), [false, false, false, true]);
    }

    /// A wait flushes once: before its first sleep, or when the time of `flush_after` has passed.
    #[test]
    fn a_long_wait_flushes_once() {
        let _watched = crate::watchdog::watched();
        /// The time of `flush_after`, and the numbers of flushes and of polls.
        struct Flushes(Duration, u32, u32);
        impl Condition for Flushes {
            fn is_ready(&mut self) -> bool {
                self.2 += u32::from(self.0 == Duration::MAX || self.1 != 0);
                self.2 > 40
            }
            fn flush_after(&self) -> Option<Duration> {
                Some(self.0)
            }
            fn flush(&mut self) {
                self.1 += 1;
            }
        }
        let flushes = |strategy: &Wait, after| {
            let (mut condition, mut learner) = (Flushes(after, 0, 0), strategy.learner().into());
            assert!(wait_until(endless(strategy, None), &mut learner, &mut condition).0.is_ok());
            condition.1
        };
        for strategy in Wait::all() {
            assert_eq!(flushes(&strategy, Duration::from_millis(1)), 1, "{strategy}");
        }
        assert_eq!(flushes(&Wait::BusySpin, Duration::MAX), 0);
    }

    #[test]
    fn a_wait_ends_at_its_timeout() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            let strategy = strategy.or_timeout(Duration::from_millis(3));
            let began = Instant::now();
            let never = began + Duration::from_secs(3600);
            assert!(!wait(&strategy, strategy.parks(), Some(never), &mut || false).0, "{strategy}");
            assert!(began.elapsed() >= Duration::from_millis(3), "{strategy}");
        }
    }

    #[test]
    fn the_shortest_of_nested_timeouts_counts() {
        let _watched = crate::watchdog::watched();
        let timeout = |alias: &str| alias.parse::<Wait>().unwrap().timeout();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(timeout("phased-backoff:1us,1us,timeout:5ms,blocking"), millis(5));
        assert_eq!(timeout("timeout:7ms,timeout:3ms,blocking"), millis(3));
        assert_eq!(timeout("timeout:2ms,phased-backoff:1us,1us,timeout:5ms,blocking"), millis(2));
        assert_eq!(timeout("blocking"), None);
    }

    #[test]
    fn a_wait_succeeds_after_its_deadline_if_the_first_poll_does() {
        let _watched = crate::watchdog::watched();
        let past = Instant::now();
        for strategy in Wait::all() {
            assert!(wait(&strategy.or_timeout(Duration::ZERO), false, Some(past), &mut || true).0);
        }
    }

    #[test]
    fn alternating_strategies_follow_their_windows() {
        let _watched = crate::watchdog::watched();
        let micros = Duration::from_micros;
        let at = |time: Duration| {
            let now = Instant::now();
            WaitContext {
                polls: 20,
                started: Some(now),
                now: Some(now + time),
                ..WaitContext::new(false)
            }
        };
        let spin_block = Wait::AlternatingSpinBlock { spin: micros(50), block: micros(200) };
        let yield_sleep = Wait::AlternatingYieldSleep { yields: micros(50), sleep: micros(200) };
        for lap in [0, 250, 25_000] {
            for time in [0, 49] {
                assert_eq!(spin_block.next_action(&at(micros(lap + time))), WaitAction::Spin(1));
                assert_eq!(yield_sleep.next_action(&at(micros(lap + time))), WaitAction::Yield);
            }
            for time in [50, 249] {
                assert_eq!(
                    spin_block.next_action(&at(micros(lap + time))),
                    WaitAction::ParkFor(micros(250 - time))
                );
                assert_eq!(
                    yield_sleep.next_action(&at(micros(lap + time))),
                    WaitAction::Sleep(micros(250 - time))
                );
            }
        }
        for (polls, expected) in [
            (0, WaitAction::Yield),
            (49, WaitAction::Yield),
            (50, WaitAction::ParkFor(micros(200))),
            (51, WaitAction::Yield),
        ] {
            let oversubscribed =
                WaitContext { polls, oversubscribed: true, ..at(micros(1_000_000)) };
            assert_eq!(spin_block.next_action(&oversubscribed), expected, "yields are counted");
        }
        let phased: Wait = "phased-backoff:1us,5us,sleeping:0,0,7us".parse().unwrap();
        let actions = [0, 1, 5, 6].map(|time| phased.next_action(&at(micros(time))));
        assert_eq!(
            actions,
            [
                WaitAction::Spin(1),
                WaitAction::Yield,
                WaitAction::Yield,
                WaitAction::Sleep(micros(7))
            ]
        );
    }

    #[test]
    fn the_least_and_the_longest_windows_keep_the_deadline() {
        let _watched = crate::watchdog::watched();
        for window in [Duration::ZERO, Duration::MAX] {
            for strategy in [
                Wait::Sleeping { spins: 0, yields: u32::MAX, pause: window },
                Wait::Sleeping { spins: 0, yields: 0, pause: window },
                Wait::PhasedBackoff {
                    spin: window,
                    yields: window,
                    fallback: Arc::new(Wait::Blocking),
                },
                Wait::AlternatingYieldBlock { yields: window, block: window },
                Wait::AlternatingSpinBlock { spin: window, block: window },
                Wait::AlternatingYieldSleep { yields: window, sleep: window },
                Wait::AlternatingSpinSleep { spin: window, sleep: window },
                Wait::Blocking.or_timeout(Duration::MAX),
                Wait::Adaptive { budget: Some(0) },
                Wait::Adaptive { budget: Some(255) },
            ] {
                let deadline = Instant::now() + Duration::from_millis(1);
                assert!(
                    !wait(&strategy, strategy.parks(), Some(deadline), &mut || false).0,
                    "{strategy:?}"
                );
            }
        }
    }

    #[test]
    fn a_strategy_that_parks_although_it_denies_that_wakes_by_itself() {
        let _watched = crate::watchdog::watched();
        #[derive(Debug)]
        struct Denies(WaitAction);
        impl WaitStrategy for Denies {
            fn next_action(&self, _: &WaitContext) -> WaitAction {
                self.0
            }
            fn parks(&self) -> bool {
                false
            }
            fn alias(&self) -> String {
                "denies".into()
            }
        }
        for action in
            [WaitAction::Park, WaitAction::ParkFor(Duration::MAX), WaitAction::Sleep(Duration::MAX)]
        {
            let mut polls = 0;
            let mut ready = || {
                polls += 1;
                polls > 3
            };
            assert!(wait(&Wait::Custom(Arc::new(Denies(action))), false, None, &mut ready).0);
        }
    }
}
