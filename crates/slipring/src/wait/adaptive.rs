//! The strategy that learns: when to spin, when to sleep, and when to wake up before the next event
//! is due.
//!
//! A wait is planned once, as soon as it lasts; what the last one taught is worked out only then,
//! when there is nothing better to do.
//!
//! - *Wake*: what being woken costs here, from the ring until the waiter runs. It depends on how
//!   long the core was idle, so it is tracked.
//! - *Near*: the share of waits that end within two wakes. While it is at least half, the waiter
//!   spins, for up to four wakes: to sleep would take longer than what it waits for. Each wait that
//!   turns out otherwise lowers it by an eighth, so a waiter stays hot for a few waits after a
//!   burst and is cold after that, and one event out of turn changes nothing. A spin that is
//!   bounded by what sleeping costs takes at most a few times what one takes who knows the future
//!   (Karlin, Manasse, McGeoch, Owicki: Competitive randomized algorithms for nonuniform problems,
//!   Algorithmica 11, 1994).
//! - *Gap*: the time between arrivals. If it varies by less than a few wakes, the waiter sleeps
//!   until shortly before the next one is due, and spins from then on; *late* is how late timers go
//!   off here.
//! - *Crowds*: where threads outnumber cores, it gives its core away a few times, and then sleeps.
//! - *Contested*: it was off its core in the middle of a spin, so somebody else wants it. For a
//!   while it sleeps at once.
//!
//! Invariants
//! - I1: every plan ends with sleeping until woken, or for the bounded time that a budget takes to
//!   be earned.

use std::time::{Duration, Instant};

use super::budget::CpuBudget;
use super::moving_average::{MovingAverage, PACE, after, nanos};
use super::until::FEW;
use super::{Learner, OVERSUBSCRIBED_POLLS, OVERSUBSCRIBED_SPINS, WaitAction, WaitContext, YIELD};

/// Times in nanoseconds.
const FIRST_WAKE: f64 = 30_000.0;
const LEAST_WAKE: f64 = 1_000.0;
const MOST_WAKE: f64 = 1_000_000.0;
/// A nap shorter than this is no gain.
const LEAST_NAP: f64 = 5_000.0;
/// What a nap is shortened by besides all that was learned.
const SPARE: f64 = 2_000.0;
/// To be awake when an event comes is worth spinning for so many times what a wake costs: when
/// events come when they will, and when they come by the clock.
const SPIN: f64 = 2.0;
const SPIN_AROUND: f64 = 4.0;
/// Two readings of the clock in one spin are never so far apart, unless the thread was off its core
/// between them.
const OFF: f64 = 100_000.0;
/// A core is taken to be contested for so many times as long as its waiter was off it, within
/// limits.
const CONTESTED: f64 = 32.0;
const LONGEST_CONTESTED: f64 = 200_000_000.0;

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
    purse: Option<CpuBudget>,
    wake: MovingAverage,
    late: MovingAverage,
    gap: MovingAverage,
    lower_bound: f64,
    /// The last wait that lasted and ended with something.
    last: Option<Ended>,
    /// When something came before that.
    arrival: Option<Instant>,
    /// Something came since that was not timed.
    untimed: bool,
    /// When the waits began of which all but the last were given up for want of time.
    waiting_since: Option<Instant>,
    /// It has slept to save, and is owed a sleep from which it can be woken.
    saved: bool,
    contested_until: Option<Instant>,
    phase: Phase,
    /// The clock's last reading in this wait.
    seen: Option<Instant>,
}

impl Adaptive {
    pub(super) fn new(budget: Option<u8>) -> Adaptive {
        Adaptive {
            purse: budget.filter(|&percent| percent < 100).map(CpuBudget::new),
            wake: MovingAverage::new(FIRST_WAKE),
            late: MovingAverage::new(FIRST_WAKE),
            gap: MovingAverage::new(0.0),
            lower_bound: 0.5,
            last: None,
            arrival: None,
            untimed: false,
            waiting_since: None,
            saved: false,
            contested_until: None,
            phase: Phase::Fresh,
            seen: None,
        }
    }

    /// What is worth as much as being woken: the time it takes, and as much again for what it costs
    /// the two cores.
    fn worth(&self) -> f64 {
        2.0 * self.wake.mean.max(LEAST_WAKE)
    }

    fn is_near(&mut self, lower_bound: bool) {
        self.lower_bound += PACE * (f64::from(u8::from(lower_bound)) - self.lower_bound);
    }

    /// Learns from the wait before.
    fn learn(&mut self) {
        let Some(Ended { began, arrival }) = self.last.take() else { return };
        self.is_near(nanos(arrival.saturating_duration_since(began)) < self.worth());
        if let Some(before) = self.arrival.replace(arrival)
            && !std::mem::take(&mut self.untimed)
        {
            // A pause among regular arrivals is no reason to forget what they are.
            let most =
                if self.gap.samples < 8 { f64::INFINITY } else { 4.0 * self.gap.mean + LEAST_NAP };
            self.gap.learn(nanos(arrival.saturating_duration_since(before)).min(most));
        }
    }

    /// How the wait that lasts since now is to go on.
    fn plan(&mut self, now: Instant, oversubscribed: bool) -> Phase {
        self.learn();
        if let Some(purse) = &mut self.purse {
            purse.earn(now);
        }
        if oversubscribed {
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
            let MovingAverage { mean: late, deviation: scatter, .. } = self.late;
            let left = nanos(due - now);
            let around = SPIN_AROUND * worth;
            let learned = late + 4.0 * scatter + 2.0 * self.gap.deviation + SPARE;
            // As long as little is known of the timers here, there is room for the worst.
            let early = if self.late.samples < 8 {
                learned.min(left / 2.0).min(around / 2.0)
            } else {
                learned
            };
            let spread = 3.0 * self.gap.deviation;
            if left - early >= LEAST_NAP && early + spread <= around && afford(early) {
                return Phase::Nap(after(now, left - early), after(due, spread + worth));
            }
            // It may have been learned when the machine was busy, and nothing new is learned
            // without a nap.
            self.late.forget();
        }
        if self.lower_bound >= 0.5 && afford(worth) {
            Phase::Spin(after(now, SPIN * worth))
        } else {
            Phase::Park
        }
    }
}

impl Learner for Adaptive {
    fn idle(&mut self, waited: &WaitContext) -> WaitAction {
        let Some(now) = waited.now else {
            // Where all waits are short nobody asks the budget, unless it is overdrawn.
            if self.purse.as_ref().is_some_and(CpuBudget::is_overdrawn) {
                return WaitAction::Clock;
            }
            // In a crowd whoever is waited for may need this core.
            return if waited.oversubscribed && waited.polls >= OVERSUBSCRIBED_SPINS {
                WaitAction::Yield
            } else {
                WaitAction::Spin(1)
            };
        };
        if let Phase::Fresh = self.phase {
            if let Some(purse) = &mut self.purse {
                purse.looked(waited.polls);
            }
            self.phase = self.plan(now, waited.oversubscribed);
        } else if let Phase::Yield = self.phase {
            // The time that others took of this core meanwhile is theirs.
            let paid = self.purse.as_mut().is_none_or(|purse| purse.spend(now, nanos(YIELD)));
            if !paid || waited.polls >= OVERSUBSCRIBED_POLLS {
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
            // Woken early by what is no progress for this one, it has still to come.
            if nanos(until.saturating_duration_since(now)) >= LEAST_NAP {
                self.phase = Phase::Nap(until, spin);
            } else {
                self.learn_late(waited, until);
                self.phase = Phase::Spin(spin);
            }
        }
        if let Phase::Spin(until) = self.phase
            && now >= until
        {
            self.phase = Phase::Park;
        }
        match self.phase {
            Phase::Spin(_) => return WaitAction::Spin(1),
            Phase::Yield => return WaitAction::Yield,
            Phase::Nap(until, spin) => {
                self.phase = Phase::Napped(until, spin);
                self.parks();
                return WaitAction::ParkFor(until.saturating_duration_since(now));
            }
            _ => {}
        }
        if !self.saved
            && let Some(time) = self.purse.as_mut().and_then(|purse| purse.wants(now))
        {
            return self.save(time);
        }
        self.saved = false;
        self.parks();
        WaitAction::Park
    }

    fn over(&mut self, waited: &WaitContext, progress: bool) {
        let seen = self.seen.take();
        if let Some(purse) = &mut self.purse {
            let spins = matches!(self.phase, Phase::Fresh | Phase::Spin(_));
            if let (true, Some(seen), Some(now)) = (spins, seen, waited.now) {
                purse.spend(now, nanos(now.saturating_duration_since(seen)));
            }
            if spins {
                // Those before the clock was read first, or since it was read last.
                purse.looked(waited.polls % FEW);
            }
            purse.woke();
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Fresh);
        let (Some(began), Some(now)) = (waited.began, waited.now) else {
            if self.waiting_since.take().is_none() {
                self.is_near(true);
            }
            self.untimed = true;
            return;
        };
        if let Phase::Napped(until, _) = phase {
            self.learn_late(waited, until);
        }
        if let Some(wake) = waited.wake {
            self.wake.learn_usual(nanos(wake).min(MOST_WAKE));
        } else if self.wake.mean > FIRST_WAKE {
            // Who believes that to be woken takes for ever, never sleeps, and never learns better.
            self.wake.forget();
        }
        if progress {
            let began = self.waiting_since.take().unwrap_or(began);
            let arrival = waited.wake.and_then(|wake| now.checked_sub(wake)).unwrap_or(now);
            self.last = Some(Ended { began, arrival: arrival.max(began) });
        } else {
            // The next wait goes on with this one.
            let since = *self.waiting_since.get_or_insert(began);
            if nanos(now.saturating_duration_since(since)) >= self.worth() {
                self.is_near(false);
            }
        }
    }
}

impl Adaptive {
    fn parks(&mut self) {
        if let Some(purse) = &mut self.purse {
            purse.parks();
        }
    }

    /// Sleeps, deaf, until waking up is paid for.
    fn save(&mut self, time: Duration) -> WaitAction {
        self.saved = true;
        self.parks();
        WaitAction::Sleep(time)
    }

    /// A timer went off that was set for `until`, unless somebody rang before.
    fn learn_late(&mut self, waited: &WaitContext, until: Instant) {
        if let Some(now) = waited.now.filter(|&now| waited.wake.is_none() && now >= until) {
            self.late.learn_usual(nanos(now - until));
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// A waiter on a machine whose clock stands still unless it is told to move. Times in
    /// nanoseconds.
    struct Machine {
        waiter: Adaptive,
        epoch: Instant,
        now: u64,
        /// What a wake takes, how late timers go off, what a look takes, what a sleep takes of the
        /// core.
        wake: u64,
        late: u64,
        look: u64,
        park: u64,
        spun: u64,
        sleeps: u64,
    }

    impl Machine {
        fn new(budget: Option<u8>) -> Machine {
            let mut waiter = Adaptive::new(budget);
            if let Some(purse) = &mut waiter.purse {
                // This machine's threads take what is said below.
                purse.cpu_time = || None;
            }
            Machine {
                waiter,
                epoch: Instant::now(),
                now: 0,
                wake: 10_000,
                late: 7_000,
                look: 25,
                park: 8_000,
                spun: 0,
                sleeps: 0,
            }
        }

        /// What of the time since `from` it used of its core.
        fn share(&self, from: u64) -> f64 {
            (self.spun + self.sleeps * self.park) as f64 / (self.now - from) as f64
        }

        /// Waits for what comes at `arrival`, rung for nothing at each of `notifies` on the way. Comes
        /// back with how late it was; `None`: it gave up at `until`.
        fn wait(
            &mut self,
            arrival: u64,
            until: u64,
            mut notifies: impl Iterator<Item = u64>,
        ) -> Option<u64> {
            let mut waited = WaitContext::none(false);
            let mut ring = notifies.next();
            loop {
                if self.now >= arrival {
                    self.waiter.over(&waited, true);
                    return Some(self.now - arrival);
                }
                let idle = self.waiter.idle(&waited);
                let spins = matches!(idle, WaitAction::Spin(_));
                let clock = self.epoch + Duration::from_nanos(self.now);
                if waited.began.is_none() && (waited.polls == FEW || !spins) {
                    (waited.began, waited.now) = (Some(clock), Some(clock));
                }
                if waited.now.is_some() && self.now >= until {
                    self.waiter.over(&waited, false);
                    return None;
                }
                waited.wake = None;
                let mut sleep = |limit: u64| {
                    self.sleeps += 1;
                    while ring.is_some_and(|ring| ring <= self.now) {
                        ring = notifies.next();
                    }
                    let notified_at = ring.map_or(arrival, |ring| ring.min(arrival));
                    let end = self.now.saturating_add(limit).min(until);
                    if notified_at <= end {
                        self.now = notified_at + self.wake;
                        waited.wake = Some(Duration::from_nanos(self.wake));
                    } else {
                        self.now = end + self.late;
                    }
                };
                match idle {
                    WaitAction::Spin(_) => {
                        (self.now, self.spun) = (self.now + self.look, self.spun + self.look)
                    }
                    WaitAction::Park => sleep(u64::MAX / 2),
                    WaitAction::ParkFor(time) => sleep(time.as_nanos() as u64),
                    WaitAction::Sleep(time) => {
                        (self.now, self.sleeps) =
                            (self.now + time.as_nanos() as u64 + self.late, self.sleeps + 1)
                    }
                    WaitAction::Clock => {}
                    other => panic!("there is no crowd: {other:?}"),
                }
                waited.polls += 1;
                if waited.began.is_some() && (!spins || waited.polls.is_multiple_of(FEW)) {
                    waited.now = Some(self.epoch + Duration::from_nanos(self.now));
                }
            }
        }

        /// Lets so many events come, each so long after the one before. How late the last half of
        /// them were, in order of that.
        fn run(&mut self, events: u64, mut gap: impl FnMut(u64) -> u64) -> Vec<u64> {
            let (mut arrival, mut late) = (self.now, Vec::new());
            for event in 0..events {
                arrival += gap(event);
                if event == events / 2 {
                    (self.spun, self.sleeps) = (0, 0);
                }
                let was =
                    self.wait(arrival, u64::MAX, std::iter::empty()).expect("it does not give up");
                late.extend((event >= events / 2).then_some(was));
                self.now += 200;
            }
            late.sort_unstable();
            late
        }
    }

    /// Exponential gaps from a fixed seed.
    fn random(mean: f64) -> impl FnMut(u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(7);
        move |_| (-(1.0 - random.f64()).ln() * mean) as u64
    }

    #[test]
    fn regular_events_find_it_awake() {
        for gap in [100_000, 1_000_000, 50_000_000] {
            let mut machine = Machine::new(None);
            let late = machine.run(200, |_| gap);
            assert!(late[late.len() / 2] < 500, "{gap}: {late:?}");
            let used = machine.share(machine.now - 100 * gap);
            assert!(used < 0.35, "{gap}: {used}");
        }
    }

    /// To be awake at an uncertain time would take more than a wake is worth.
    #[test]
    fn events_that_come_at_about_a_time_are_slept_for() {
        for gap in [10_000_000, 100_000_000, 1_000_000_000] {
            for spread in [0.01, 0.05, 0.15] {
                let mut random = fastrand::Rng::with_seed(1);
                let mut machine = Machine::new(None);
                machine.run(200, |_| {
                    (gap as f64 * (1.0 + spread * (2.0 * random.f64() - 1.0))) as u64
                });
                let used = machine.share(machine.now - 100 * gap);
                assert!(used < 0.01, "{gap} {spread}: {used}");
            }
        }
    }

    #[test]
    fn it_spins_for_what_is_near_and_sleeps_for_what_is_far() {
        let mut machine = Machine::new(None);
        let lower_bound = machine.run(2_000, random(5_000.0));
        assert!(lower_bound[lower_bound.len() / 2] < 500, "{lower_bound:?}");
        machine.run(200, random(1_000_000.0));
        assert_eq!(
            machine.spun / (100 * FEW * machine.look),
            1,
            "no more than the first looks of each wait"
        );
        // One that is out of turn among many does not change that.
        machine.run(1_000, random(5_000.0));
        machine.run(1, |_| 10_000_000);
        let lower_bound = machine.run(20, random(5_000.0));
        assert!(lower_bound[lower_bound.len() / 2] < 500, "{lower_bound:?}");
    }

    /// A machine that was suspended during a wake says that to be woken takes for ever.
    #[test]
    fn a_wake_that_took_for_ever_is_forgotten() {
        for slow in [5_000_000, 100_000_000, 10_000_000_000] {
            let mut machine = Machine::new(None);
            machine.run(100, random(500_000.0));
            machine.wake = slow;
            machine.run(2, |_| 500_000);
            machine.wake = 10_000;
            let from = machine.now;
            machine.run(2_000, random(500_000.0));
            let used = machine.share(from + (machine.now - from) / 2);
            assert!(used < 0.1, "{slow}: {used}");
        }
    }

    #[test]
    fn rings_for_nothing_do_not_keep_it_awake() {
        let mut machine = Machine::new(None);
        machine.run(100, |_| 10_000_000);
        (machine.spun, machine.sleeps) = (0, 0);
        let from = machine.now;
        for event in 1..=100 {
            let (arrival, now) = (from + event * 10_000_000, machine.now);
            machine
                .wait(arrival, u64::MAX, (1..).map(|ring| now + ring * 3_700_000))
                .expect("it does not give up");
        }
        assert!(machine.share(from) < 0.03, "{}", machine.share(from));
    }

    #[test]
    fn waits_that_are_given_up_and_begun_again_are_one() {
        for timeout in [50_000, 200_000, 1_000_000] {
            let mut machine = Machine::new(None);
            let (mut gaps, mut arrival) = (random(20_000_000.0), 0);
            for event in 0..200 {
                arrival += gaps(event) + 1_000_000;
                while machine.wait(arrival, machine.now + timeout, std::iter::empty()).is_none() {}
            }
            let spun = machine.spun as f64 / machine.now as f64;
            assert!(spun < 0.02, "{timeout}: {spun}");
        }
    }

    #[test]
    fn a_budget_is_kept_whatever_comes() {
        for percent in [1, 5, 25, 50] {
            for (name, gap) in [
                ("dense", 400.0),
                ("close", 1_200.0),
                ("near", 5_000.0),
                ("middle", 30_000.0),
                ("far", 300_000.0),
            ] {
                let mut machine = Machine::new(Some(percent));
                let events = (1.1e9 / gap) as u64;
                let mut gaps = random(gap);
                let (mut arrival, mut seconds, mut second) = (0, Vec::new(), (0, 0));
                for event in 0..events {
                    arrival += gaps(event);
                    machine
                        .wait(arrival, u64::MAX, std::iter::empty())
                        .expect("it does not give up");
                    machine.now += 50;
                    let used = machine.spun + machine.sleeps * machine.park;
                    if machine.now - second.0 >= 1_000_000_000 {
                        seconds.push((used - second.1) as f64 / (machine.now - second.0) as f64);
                        second = (machine.now, used);
                    }
                }
                for share in seconds {
                    assert!(
                        share < f64::from(percent) / 100.0 + 0.02,
                        "{percent} %, {name}: {share}"
                    );
                }
            }
        }
    }

    /// What was overdrawn does not make it late for ever after.
    #[test]
    fn a_debt_has_an_end() {
        let mut machine = Machine::new(Some(1));
        machine.run(2_000_000, |_| 600);
        let late = machine.run(200, |_| 40_000_000);
        assert!(late[late.len() / 2] < 100_000, "{late:?}");
    }
}
