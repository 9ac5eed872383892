//! A wait: look, idle as the strategy says, look again; until there is something, or time is up.

use std::time::{Duration, Instant};

use super::{Idle, Learner, Wait, WaitStrategy, Waited};
use crate::wait::queue::Bell;
use crate::base::panics::let_go;
use crate::base::sync::{spin_loop, yield_now};
use crate::base::system;

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
    pub(crate) crowded: bool,
    /// Whether somebody rings the bell.
    pub(crate) parks: bool,
    pub(crate) bell: &'a Bell,
    pub(crate) deadline: Option<Instant>,
    /// After how long it is given up at the latest.
    pub(crate) timeout: Option<Duration>,
}

/// What a wait was.
pub(crate) struct Spell {
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
) -> (bool, Spell) {
    let Site { wait, crowded, parks, bell, mut deadline, timeout } = site;
    let mut waited = Waited::none(crowded);
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
        let spins = matches!(idle, Idle::Spin(_));
        if waited.began.is_none() && (waited.looks == FEW || !spins) {
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
            Idle::Spin(pauses) => (0..pauses.clamp(1, 1 << 16)).for_each(|_| pause()),
            Idle::Park if parks => {
                sleeps += 1;
                waited.wake = bell.sleep(left, ready);
            }
            Idle::ParkFor(time) if parks => {
                sleeps += 1;
                let limit = left.unwrap_or(time).min(time);
                system::sharpen_timers();
                waited.wake = bell.sleep(Some(limit), ready);
            }
            Idle::Clock => {}
            Idle::Yield => yield_now(),
            // Nobody would wake it.
            Idle::Park | Idle::ParkFor(_) => {
                sleeps += 1;
                let time = if let Idle::ParkFor(time) = idle { time.min(UNRUNG) } else { UNRUNG };
                system::sharpen_timers();
                sleep(left.unwrap_or(time).min(time));
            }
            Idle::Sleep(time) => {
                sleeps += 1;
                let time = left.unwrap_or(LONGEST_SLEEP).min(time).min(LONGEST_SLEEP);
                system::sharpen_timers();
                sleep(time);
            }
        }
        waited.looks += 1;
        if waited.began.is_some() && (!spins || waited.looks.is_multiple_of(FEW)) {
            waited.now = Some(Instant::now());
        }
    };
    if let Some(learner) = &mut learned.0 {
        learner.over(&waited, in_time);
    }
    (in_time, Spell { time: waited.time(), sleeps })
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
    ) -> (bool, Spell) {
        let bell = Bell::new();
        let site =
            Site { wait, crowded: false, parks, bell: &bell, deadline, timeout: wait.timeout() };
        wait_until(site, &mut wait.learner().into(), &mut || true, ready)
    }

    #[test]
    fn every_strategy_keeps_a_deadline() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            let deadline = Instant::now() + Duration::from_millis(3);
            let (in_time, spell) = wait(&strategy, strategy.parks(), Some(deadline), &mut || false);
            assert!(!in_time && Instant::now() >= deadline, "{strategy}");
            assert!(!spell.time.is_zero(), "{strategy}");
        }
    }

    /// A wait that is found to be in vain ends, unless what it waits for comes at the last moment.
    #[test]
    fn a_wait_in_vain_ends_with_a_last_look() {
        let _watched = crate::watchdog::watched();
        for strategy in Wait::all() {
            for comes in [false, true] {
                let bell = Bell::new();
                let site = Site {
                    wait: &strategy,
                    crowded: false,
                    parks: true,
                    bell: &bell,
                    deadline: None,
                    timeout: None,
                };
                let in_vain = std::cell::Cell::new(false);
                let (mut before, mut after) = (0, 0);
                let (in_time, spell) = wait_until(
                    site,
                    &mut strategy.learner().into(),
                    &mut || in_vain.replace(true),
                    &mut || {
                        *(if in_vain.get() { &mut after } else { &mut before }) += 1;
                        in_vain.get() && comes
                    },
                );
                assert_eq!((in_time, after, spell.sleeps), (comes, 1, 0), "{strategy}");
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
            Waited { looks: 20, began: Some(now), now: Some(now + time), ..Waited::none(false) }
        };
        let spin_block = Wait::AlternatingSpinBlock { spin: micros(50), block: micros(200) };
        let yield_sleep = Wait::AlternatingYieldSleep { yields: micros(50), sleep: micros(200) };
        for lap in [0, 250, 25_000] {
            for time in [0, 49] {
                assert_eq!(spin_block.idle(&at(micros(lap + time))), Idle::Spin(1));
                assert_eq!(yield_sleep.idle(&at(micros(lap + time))), Idle::Yield);
            }
            for time in [50, 249] {
                assert_eq!(
                    spin_block.idle(&at(micros(lap + time))),
                    Idle::ParkFor(micros(250 - time))
                );
                assert_eq!(
                    yield_sleep.idle(&at(micros(lap + time))),
                    Idle::Sleep(micros(250 - time))
                );
            }
        }
        for (looks, expected) in [
            (0, Idle::Yield),
            (49, Idle::Yield),
            (50, Idle::ParkFor(micros(200))),
            (51, Idle::Yield),
        ] {
            let crowd = Waited { looks, crowded: true, ..at(micros(1_000_000)) };
            assert_eq!(spin_block.idle(&crowd), expected, "its own time counts");
        }
        let phased: Wait = "phased-backoff:1us,5us,sleeping:0,0,7us".parse().unwrap();
        let answers = [0, 1, 5, 6].map(|time| phased.idle(&at(micros(time))));
        assert_eq!(answers, [Idle::Spin(1), Idle::Yield, Idle::Yield, Idle::Sleep(micros(7))]);
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
        struct Liar(Idle);
        impl WaitStrategy for Liar {
            fn idle(&self, _: &Waited) -> Idle {
                self.0
            }
            fn parks(&self) -> bool {
                false
            }
            fn alias(&self) -> String {
                "liar".into()
            }
        }
        for idle in [Idle::Park, Idle::ParkFor(Duration::MAX), Idle::Sleep(Duration::MAX)] {
            let mut looks = 0;
            let mut ready = || {
                looks += 1;
                looks > 3
            };
            assert!(wait(&Wait::Custom(Arc::new(Liar(idle))), false, None, &mut ready).0);
        }
    }
}
