//! A wait: look, idle as the strategy says, look again; until there is something, or time is up.

use std::time::{Duration, Instant};

use super::{Learner, Wait, WaitAction, WaitContext, WaitStrategy};
use crate::base::panics::let_go;
use crate::base::sync::{spin_loop, yield_now};
use crate::base::system;
use crate::wait::queue::WaitQueue;

/// What a waiter has learned, if its strategy learns. A panic of the learner's drop goes no
/// further.
#[derive(Default)]
pub(crate) struct Learned(Option<Box<dyn Learner>>);

impl From<Option<Box<dyn Learner>>> for Learned {
    fn from(learner: Option<Box<dyn Learner>>) -> Learned {
        Learned(learner)
    }
}

impl Drop for Learned {
    fn drop(&mut self) {
        if self.0.is_some() {
            let_go(self.0.take());
        }
    }
}

/// Where somebody waits, and by which rules.
pub(crate) struct Site<'a> {
    pub(crate) wait: &'a Wait,
    /// Whether there are more threads than cores.
    pub(crate) oversubscribed: bool,
    /// Whether somebody rings the bell.
    pub(crate) parks: bool,
    pub(crate) queue: &'a WaitQueue,
    pub(crate) deadline: Option<Instant>,
    /// After how long it is given up at the latest.
    pub(crate) timeout: Option<Duration>,
}

/// What a wait was.
pub(crate) struct WaitStats {
    /// How long it took, up to the clock's last reading; a wait of a few looks counts as no time,
    /// because reading the clock would take longer.
    pub(crate) time: Duration,
    /// How often the waiter slept.
    pub(crate) sleeps: u64,
}

/// So many looks take about as long as reading the clock ten times. Before them it is not read at
/// all, after them at every so-many-th.
pub(super) const FEW: u64 = 16;

/// How long one sleeps that would like to be woken, where nobody rings.
const UNRUNG: Duration = Duration::from_micros(50);

/// A sleeper that nobody wakes must see a close or a failure in time.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Looks until `ready`, idling as the strategy says. Comes back with whether it became so before
/// the deadline and the timeout. Calls `lasts` once, if it takes more than a few looks, or more
/// than spinning between them; if that says that it is in vain, comes back after one more look.
/// `ready` runs no user code.
#[cold]
pub(crate) fn wait_until(
    site: Site<'_>,
    learned: &mut Learned,
    lasts: &mut dyn FnMut() -> bool,
    ready: &mut dyn FnMut() -> bool,
) -> (bool, WaitStats) {
    let Site { wait, oversubscribed, parks, queue, mut deadline, timeout } = site;
    let mut waited = WaitContext::none(oversubscribed);
    let mut sleeps = 0;
    let in_time = loop {
        // What there is, is handled before anybody reads a clock.
        if ready() {
            break true;
        }
        let idle = match &mut learned.0 {
            Some(learner) => learner.idle(&waited),
            None => wait.idle(&waited),
        };
        let spins = matches!(idle, WaitAction::Spin(_));
        if waited.began.is_none() && (waited.polls == FEW || !spins) {
            let now = Instant::now();
            (waited.began, waited.now) = (Some(now), Some(now));
            let timeout = timeout.and_then(|after| now.checked_add(after));
            deadline = deadline.into_iter().chain(timeout).min();
            if !lasts() {
                break ready();
            }
        }
        let left =
            deadline.zip(waited.now).map(|(deadline, now)| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            break ready();
        }
        waited.wake = None;
        match idle {
            WaitAction::Spin(pauses) => (0..pauses.clamp(1, 1 << 16)).for_each(|_| pause()),
            WaitAction::Park if parks => {
                sleeps += 1;
                waited.wake = queue.sleep(left, ready);
            }
            WaitAction::ParkFor(time) if parks => {
                sleeps += 1;
                let limit = left.unwrap_or(time).min(time);
                system::sharpen_timers();
                waited.wake = queue.sleep(Some(limit), ready);
            }
            WaitAction::Clock => {}
            WaitAction::Yield => yield_now(),
            // Nobody would wake it.
            WaitAction::Park | WaitAction::ParkFor(_) => {
                sleeps += 1;
                let time =
                    if let WaitAction::ParkFor(time) = idle { time.min(UNRUNG) } else { UNRUNG };
                system::sharpen_timers();
                sleep(left.unwrap_or(time).min(time));
            }
            WaitAction::Sleep(time) => {
                sleeps += 1;
                let time = left.unwrap_or(LONGEST_SLEEP).min(time).min(LONGEST_SLEEP);
                system::sharpen_timers();
                sleep(time);
            }
        }
        waited.polls += 1;
        if waited.began.is_some() && (!spins || waited.polls.is_multiple_of(FEW)) {
            waited.now = Some(Instant::now());
        }
    };
    if let Some(learner) = &mut learned.0 {
        learner.over(&waited, in_time);
    }
    (in_time, WaitStats { time: waited.time(), sleeps })
}

fn pause() {
    if cfg!(slipring_loom) { yield_now() } else { spin_loop() }
}

fn sleep(time: Duration) {
    if cfg!(slipring_loom) { yield_now() } else { std::thread::sleep(time) }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn wait(
        wait: &Wait,
        parks: bool,
        deadline: Option<Instant>,
        ready: &mut dyn FnMut() -> bool,
    ) -> (bool, WaitStats) {
        let queue = WaitQueue::new();
        let site = Site {
            wait,
            oversubscribed: false,
            parks,
            queue: &queue,
            deadline,
            timeout: wait.timeout(),
        };
        wait_until(site, &mut wait.learner().into(), &mut || true, ready)
    }

    #[test]
    fn every_strategy_keeps_a_deadline() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            let deadline = Instant::now() + Duration::from_millis(3);
            let (in_time, stats) = wait(&strategy, strategy.parks(), Some(deadline), &mut || false);
            assert!(!in_time && Instant::now() >= deadline, "{strategy}");
            assert!(!stats.time.is_zero(), "{strategy}");
        }
    }

    /// A wait that is found to be in vain ends, unless what it waits for comes at the last moment.
    #[test]
    fn a_wait_in_vain_ends_with_a_last_look() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            for comes in [false, true] {
                let queue = WaitQueue::new();
                let site = Site {
                    wait: &strategy,
                    oversubscribed: false,
                    parks: true,
                    queue: &queue,
                    deadline: None,
                    timeout: None,
                };
                let in_vain = std::cell::Cell::new(false);
                let (mut before, mut after) = (0, 0);
                let (in_time, stats) = wait_until(
                    site,
                    &mut strategy.learner().into(),
                    &mut || in_vain.replace(true),
                    &mut || {
                        *(if in_vain.get() { &mut after } else { &mut before }) += 1;
                        in_vain.get() && comes
                    },
                );
                assert_eq!((in_time, after, stats.sleeps), (comes, 1, 0), "{strategy}");
                assert!(before <= FEW + 1, "{strategy}: {before} looks");
            }
        }
    }

    #[test]
    fn every_strategy_keeps_its_timeout() {
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
    fn a_timeout_within_a_strategy_is_that_strategys() {
        let _watched = crate::watchdog::watched();
        let timeout = |alias: &str| alias.parse::<Wait>().unwrap().timeout();
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(timeout("phased-backoff:1us,1us,timeout:5ms,blocking"), millis(5));
        assert_eq!(timeout("timeout:7ms,timeout:3ms,blocking"), millis(3));
        assert_eq!(timeout("timeout:2ms,phased-backoff:1us,1us,timeout:5ms,blocking"), millis(2));
        assert_eq!(timeout("blocking"), None);
    }

    #[test]
    fn what_is_there_is_found_whatever_the_deadline() {
        let _watched = crate::watchdog::watched();
        let past = Instant::now();
        for strategy in Wait::all() {
            assert!(wait(&strategy.or_timeout(Duration::ZERO), false, Some(past), &mut || true).0);
        }
    }

    #[test]
    fn windows_alternate() {
        let _watched = crate::watchdog::watched();
        let micros = Duration::from_micros;
        let at = |time: Duration| {
            let now = Instant::now();
            WaitContext {
                polls: 20,
                began: Some(now),
                now: Some(now + time),
                ..WaitContext::none(false)
            }
        };
        let spin_block = Wait::AlternatingSpinBlock { spin: micros(50), block: micros(200) };
        let yield_sleep = Wait::AlternatingYieldSleep { yields: micros(50), sleep: micros(200) };
        for lap in [0, 250, 25_000] {
            for time in [0, 49] {
                assert_eq!(spin_block.idle(&at(micros(lap + time))), WaitAction::Spin(1));
                assert_eq!(yield_sleep.idle(&at(micros(lap + time))), WaitAction::Yield);
            }
            for time in [50, 249] {
                assert_eq!(
                    spin_block.idle(&at(micros(lap + time))),
                    WaitAction::ParkFor(micros(250 - time))
                );
                assert_eq!(
                    yield_sleep.idle(&at(micros(lap + time))),
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
            let crowd = WaitContext { polls, oversubscribed: true, ..at(micros(1_000_000)) };
            assert_eq!(spin_block.idle(&crowd), expected, "its own time counts");
        }
        let phased: Wait = "phased-backoff:1us,5us,sleeping:0,0,7us".parse().unwrap();
        let answers = [0, 1, 5, 6].map(|time| phased.idle(&at(micros(time))));
        assert_eq!(
            answers,
            [
                WaitAction::Spin(1),
                WaitAction::Yield,
                WaitAction::Yield,
                WaitAction::Sleep(micros(7))
            ]
        );
    }

    #[test]
    fn odd_windows_are_kept_too() {
        let _watched = crate::watchdog::watched();
        for odd in [Duration::ZERO, Duration::MAX] {
            for strategy in [
                Wait::Sleeping { spins: 0, yields: u32::MAX, pause: odd },
                Wait::Sleeping { spins: 0, yields: 0, pause: odd },
                Wait::PhasedBackoff { spin: odd, yields: odd, fallback: Arc::new(Wait::Blocking) },
                Wait::AlternatingYieldBlock { yields: odd, block: odd },
                Wait::AlternatingSpinBlock { spin: odd, block: odd },
                Wait::AlternatingYieldSleep { yields: odd, sleep: odd },
                Wait::AlternatingSpinSleep { spin: odd, sleep: odd },
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
    fn a_strategy_that_parks_without_saying_so_is_not_left_asleep() {
        let _watched = crate::watchdog::watched();
        #[derive(Debug)]
        struct Liar(WaitAction);
        impl WaitStrategy for Liar {
            fn idle(&self, _: &WaitContext) -> WaitAction {
                self.0
            }
            fn parks(&self) -> bool {
                false
            }
            fn alias(&self) -> String {
                "liar".into()
            }
        }
        for idle in
            [WaitAction::Park, WaitAction::ParkFor(Duration::MAX), WaitAction::Sleep(Duration::MAX)]
        {
            let mut polls = 0;
            let mut ready = || {
                polls += 1;
                polls > 3
            };
            assert!(wait(&Wait::Custom(Arc::new(Liar(idle))), false, None, &mut ready).0);
        }
    }
}
