//! Tests of the wait loop.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::built_in::Wait;
use super::queue::WaitQueue;
use super::strategy::{CLOCK_INTERVAL, WaitAction, WaitContext, WaitStrategy};
use super::wait_loop::{
    Condition, HandleLearner, KeepWaiting, Unmet, WaitOptions, WaitRun, wait_until,
};
use crate::errors::WaitError;

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
) -> (bool, WaitRun) {
    let queue = WaitQueue::new();
    let queue = parks.then_some(&queue);
    let options = WaitOptions { deadline, timeout: wait.timeout(), ..endless(wait, queue) };
    ended(options, &mut wait.learner().into(), &mut || ready())
}

/// Waits, and returns whether the condition holds, and the run of the loop.
fn ended(
    options: WaitOptions<'_>,
    learner: &mut HandleLearner,
    condition: &mut dyn Condition,
) -> (bool, WaitRun) {
    let run = wait_until(options, learner, condition);
    (run.unmet.is_none(), run)
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
            let (in_time, run) = wait(&strategy, strategy.parks(), Some(deadline), &mut || false);
            assert!(!in_time && Instant::now() >= deadline, "{strategy}");
            if !run.time().is_zero() {
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
            let (_, run) = ended(options, &mut strategy.learner().into(), &mut condition);
            let in_time = match run.unmet {
                None => true,
                Some(Unmet::Ended(WaitError::Halted)) => false,
                Some(other) => panic!("{strategy}: {other:?}"),
            };
            assert_eq!((in_time, after, run.sleeps), (ready_at_last, 1, 0), "{strategy}");
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
        let (is_ready, _) = ended(options, &mut strategy.learner().into(), &mut condition);
        assert_eq!((is_ready, calls), (false, 3), "{strategy}");
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
    let options = endless(&strategy, None);
    assert!(ended(options, &mut HandleLearner::default(), &mut condition).0);
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
        assert!(ended(endless(strategy, None), &mut learner, &mut condition).0);
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
        let oversubscribed = WaitContext { polls, oversubscribed: true, ..at(micros(1_000_000)) };
        assert_eq!(spin_block.next_action(&oversubscribed), expected, "yields are counted");
    }
    let phased: Wait = "phased-backoff:1us,5us,sleeping:0,0,7us".parse().unwrap();
    let actions = [0, 1, 5, 6].map(|time| phased.next_action(&at(micros(time))));
    assert_eq!(
        actions,
        [WaitAction::Spin(1), WaitAction::Yield, WaitAction::Yield, WaitAction::Sleep(micros(7))]
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
