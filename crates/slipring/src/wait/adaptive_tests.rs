//! Tests of the adaptive strategy on a simulated clock.

use std::time::{Duration, Instant};

use super::adaptive::Adaptive;
use super::full_ring::FullRing;
use super::strategy::{CLOCK_INTERVAL, WaitAction, WaitContext, WaitLearner};

/// One waiter on a simulated machine. All times of the machine are in nanoseconds.
struct Machine {
    waiter: Adaptive,
    /// The clock's reading at time 0.
    epoch: Instant,
    now: u64,
    /// Time from a notification until the waiter runs.
    wake_latency: u64,
    /// Time from when a timer is due until the waiter runs.
    timer_lateness: u64,
    /// CPU time of a poll, in nanoseconds.
    poll_cost: u64,
    /// CPU time of a sleep and its wake-up, in nanoseconds.
    sleep_cost: u64,
    /// CPU time of a yield, in nanoseconds.
    yield_cost: u64,
    /// Time that another thread uses at each yield, in nanoseconds.
    lent: u64,
    /// CPU time spent spinning and yielding, in nanoseconds.
    spun: u64,
    sleeps: u64,
    /// Number of sleeps that a notification ended.
    woken: u64,
    /// The full ring for which the waiter waits.
    full_ring: Option<FullRing>,
}

impl Machine {
    fn new(budget: Option<u8>) -> Machine {
        let mut waiter = Adaptive::new(budget);
        if let Some(budget) = &mut waiter.budget {
            // No sleep is measured, so the budget keeps its assumed cost of a sleep, which equals
            // `sleep_cost` below.
            budget.cpu_time = || None;
        }
        Machine {
            waiter,
            epoch: Instant::now(),
            now: 0,
            wake_latency: 10_000,
            timer_lateness: 7_000,
            poll_cost: 25,
            sleep_cost: 8_000,
            yield_cost: 200,
            lent: 0,
            spun: 0,
            sleeps: 0,
            woken: 0,
            full_ring: None,
        }
    }

    /// Returns the share of the core's time that the waiter used since `from`.
    fn share(&self, from: u64) -> f64 {
        (self.spun + self.sleeps * self.sleep_cost) as f64 / (self.now - from) as f64
    }

    /// Waits for the event that arrives at `arrival`. Each item of `notifies` is the time of a
    /// notification without progress. Returns the waiter's lateness in nanoseconds, or `None` if
    /// the wait timed out at `until`.
    fn wait(
        &mut self,
        arrival: u64,
        until: u64,
        mut notifies: impl Iterator<Item = u64>,
    ) -> Option<u64> {
        let mut context = WaitContext { full_ring: self.full_ring, ..WaitContext::new(false) };
        let mut notify = notifies.next();
        loop {
            if self.now >= arrival {
                self.waiter.wait_ended(&context, true);
                return Some(self.now - arrival);
            }
            let action = self.waiter.next_action(&context);
            let spins = matches!(action, WaitAction::Spin(_) | WaitAction::SpinOn);
            let clock = self.epoch + Duration::from_nanos(self.now);
            if context.started.is_none() && (context.polls == CLOCK_INTERVAL || !spins) {
                (context.started, context.now) = (Some(clock), Some(clock));
            }
            if context.now.is_some() && self.now >= until {
                self.waiter.wait_ended(&context, false);
                return None;
            }
            context.wake_latency = None;
            let mut sleep = |limit: u64| {
                self.sleeps += 1;
                while notify.is_some_and(|notify| notify <= self.now) {
                    notify = notifies.next();
                }
                let notified_at = notify.map_or(arrival, |notify| notify.min(arrival));
                let end = self.now.saturating_add(limit).min(until);
                if notified_at <= end {
                    self.woken += 1;
                    self.now = notified_at + self.wake_latency;
                    context.wake_latency = Some(Duration::from_nanos(self.wake_latency));
                } else {
                    self.now = end + self.timer_lateness;
                }
            };
            match action {
                WaitAction::Spin(_) | WaitAction::SpinOn => {
                    (self.now, self.spun) = (self.now + self.poll_cost, self.spun + self.poll_cost)
                }
                WaitAction::Park => sleep(u64::MAX / 2),
                WaitAction::ParkFor(time) => sleep(time.as_nanos() as u64),
                WaitAction::Sleep(time) => {
                    (self.now, self.sleeps) =
                        (self.now + time.as_nanos() as u64 + self.timer_lateness, self.sleeps + 1)
                }
                WaitAction::Clock => {}
                WaitAction::Yield => {
                    self.now += self.yield_cost + self.lent;
                    self.spun += self.yield_cost;
                }
            }
            context.polls += 1;
            if context.started.is_some() && (!spins || context.polls.is_multiple_of(CLOCK_INTERVAL))
            {
                context.now = Some(self.epoch + Duration::from_nanos(self.now));
            }
        }
    }

    /// Waits for `events` events; `gap` returns the distance of each event from the previous event,
    /// in nanoseconds. Returns the lateness of each event in the second half of the run, in
    /// nanoseconds, in ascending order.
    fn run(&mut self, events: u64, mut gap: impl FnMut(u64) -> u64) -> Vec<u64> {
        let (mut arrival, mut latenesses) = (self.now, Vec::new());
        for event in 0..events {
            arrival += gap(event);
            if event == events / 2 {
                (self.spun, self.sleeps) = (0, 0);
            }
            let lateness =
                self.wait(arrival, u64::MAX, std::iter::empty()).expect("the wait has no timeout");
            latenesses.extend((event >= events / 2).then_some(lateness));
            self.now += 200;
        }
        latenesses.sort_unstable();
        latenesses
    }
}

/// Returns exponentially distributed gaps in nanoseconds, from a fixed seed.
fn random(mean: f64) -> impl FnMut(u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(7);
    move |_| (-(1.0 - random.f64()).ln() * mean) as u64
}

#[test]
fn a_waiter_is_awake_when_regular_events_arrive() {
    for gap in [100_000, 1_000_000, 50_000_000] {
        let mut machine = Machine::new(None);
        let latenesses = machine.run(200, |_| gap);
        assert!(latenesses[latenesses.len() / 2] < 500, "{gap}: {latenesses:?}");
        let used = machine.share(machine.now - 100 * gap);
        assert!(used < 0.35, "{gap}: {used}");
    }
}

/// If an event is due before a sleeper could run, a sleep is not worth its cost.
#[test]
fn a_waiter_spins_for_regular_events_that_come_sooner_than_a_wake_up() {
    for gap in [2_000, 12_000, 25_000] {
        let mut machine = Machine::new(None);
        let latenesses = machine.run(2_000, |_| gap);
        assert_eq!(machine.sleeps, 0, "{gap}");
        let last = latenesses.last();
        assert!(last <= Some(&machine.poll_cost.max(machine.yield_cost)), "{gap}: {last:?}");
    }
}

/// To be awake when a roughly regular event arrives, a waiter would have to spin for so long that a
/// sleep and a wake-up cost less CPU time.
#[test]
fn a_waiter_sleeps_for_events_that_are_only_roughly_regular() {
    for gap in [10_000_000, 100_000_000, 1_000_000_000] {
        for spread in [0.01, 0.05, 0.15] {
            let mut random = fastrand::Rng::with_seed(1);
            let mut machine = Machine::new(None);
            machine.run(200, |_| (gap as f64 * (1.0 + spread * (2.0 * random.f64() - 1.0))) as u64);
            let used = machine.share(machine.now - 100 * gap);
            assert!(used < 0.01, "{gap} {spread}: {used}");
        }
    }
}

#[test]
fn a_waiter_spins_through_short_waits_and_sleeps_through_long_ones() {
    let mut machine = Machine::new(None);
    let latenesses = machine.run(2_000, random(5_000.0));
    assert!(latenesses[latenesses.len() / 2] < 500, "{latenesses:?}");
    machine.run(200, random(1_000_000.0));
    assert_eq!(
        machine.spun / (100 * CLOCK_INTERVAL * machine.poll_cost),
        1,
        "the polls before the first plan of each wait, and no more"
    );
    // One late event among many does not stop the spinning.
    machine.run(1_000, random(5_000.0));
    machine.run(1, |_| 10_000_000);
    let latenesses = machine.run(20, random(5_000.0));
    assert!(latenesses[latenesses.len() / 2] < 500, "{latenesses:?}");
}

/// At each yield, a thread of another graph takes the core for a moment. Shows that the waiter does
/// not count this time as its own: it spins through a long wait if it lent the core meanwhile, and
/// sleeps through an equally long wait if it kept the core.
#[test]
fn a_waiter_spins_while_it_lends_its_core() {
    for (lent, sleeps) in [(50_000, false), (0, true)] {
        for budget in [None, Some(50)] {
            let mut machine = Machine::new(budget);
            machine.lent = lent;
            let latenesses = machine.run(400, random(150_000.0));
            assert_eq!(machine.sleeps > 100, sleeps, "{lent}: {} sleeps", machine.sleeps);
            let last = latenesses.last();
            assert!(sleeps || last <= Some(&(lent + machine.yield_cost)), "{lent}: {last:?}");
        }
    }
}

/// Another thread keeps the core for milliseconds whenever the waiter yields. Shows that the waiter
/// then stops yielding for a while.
#[test]
fn a_waiter_does_not_lend_its_core_to_a_thread_that_keeps_it() {
    let mut machine = Machine::new(None);
    machine.lent = 3_000_000;
    let latenesses = machine.run(20_000, random(20_000.0));
    let late = latenesses.iter().filter(|&&lateness| lateness > 1_000_000).count();
    assert!(late < latenesses.len() / 10, "{late} of {} events are late", latenesses.len());
}

/// If the machine is suspended during a wake-up, the waiter measures the time of the suspension as
/// its wake latency.
#[test]
fn a_waiter_forgets_one_very_slow_wake_up() {
    for slow in [5_000_000, 100_000_000, 10_000_000_000] {
        let mut machine = Machine::new(None);
        machine.run(100, random(500_000.0));
        machine.wake_latency = slow;
        machine.run(2, |_| 500_000);
        machine.wake_latency = 10_000;
        let from = machine.now;
        machine.run(2_000, random(500_000.0));
        let used = machine.share(from + (machine.now - from) / 2);
        assert!(used < 0.1, "{slow}: {used}");
    }
}

#[test]
fn notifications_without_progress_do_not_keep_a_waiter_awake() {
    let mut machine = Machine::new(None);
    machine.run(100, |_| 10_000_000);
    (machine.spun, machine.sleeps) = (0, 0);
    let from = machine.now;
    for event in 1..=100 {
        let (arrival, now) = (from + event * 10_000_000, machine.now);
        machine
            .wait(arrival, u64::MAX, (1..).map(|i| now + i * 3_700_000))
            .expect("the wait has no timeout");
    }
    assert!(machine.share(from) < 0.03, "{}", machine.share(from));
}

#[test]
fn waits_that_time_out_and_begin_again_count_as_one() {
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
fn a_budget_is_kept_at_every_rate_of_events() {
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
                    .expect("the wait has no timeout");
                machine.now += 50;
                let used = machine.spun + machine.sleeps * machine.sleep_cost;
                if machine.now - second.0 >= 1_000_000_000 {
                    seconds.push((used - second.1) as f64 / (machine.now - second.0) as f64);
                    second = (machine.now, used);
                }
            }
            for share in seconds {
                assert!(share < f64::from(percent) / 100.0 + 0.02, "{percent} %, {name}: {share}");
            }
        }
    }
}

/// An overdrawn budget delays events, but only for a bounded time.
#[test]
fn an_overdrawn_budget_recovers() {
    let mut machine = Machine::new(Some(1));
    machine.run(2_000_000, |_| 600);
    let latenesses = machine.run(200, |_| 40_000_000);
    assert!(latenesses[latenesses.len() / 2] < 100_000, "{latenesses:?}");
}

/// A producer that fills a ring, and a stage that handles the events one after the other. The stage
/// releases each quarter of the ring, or about every 40 microseconds.
struct Filling {
    producer: Machine,
    capacity: u64,
    /// Number of published events.
    published: u64,
    /// Time at which the stage has handled all published events.
    done: u64,
    /// Time in which the stage had no event to handle.
    idle: u64,
}

impl Filling {
    fn new(capacity: u64) -> Filling {
        let producer = Machine::new(None);
        Filling { producer, capacity, published: 0, done: 0, idle: 0 }
    }

    /// Fills the ring `times` times, and waits for room each time. The stage handles an event in
    /// `work` nanoseconds.
    fn fill(&mut self, times: u64, work: u64) {
        let Filling { producer, capacity, published, done, idle } = self;
        let batch = (40_000 / work).clamp(1, *capacity / 4);
        for _ in 0..times {
            let now = producer.now;
            let unhandled = done.saturating_sub(now).div_ceil(work);
            let released = match *published - unhandled {
                handled if unhandled == 0 => handled,
                handled => handled / batch * batch,
            };
            let room = (released + *capacity).saturating_sub(*published);
            *idle += now.saturating_sub(*done);
            *done = now.max(*done) + room * work;
            *published += room;
            producer.now += 5 * room;
            producer.full_ring = Some(FullRing { at: *published, len: 1, capacity: *capacity });
            let next_release = *done - (*capacity - batch) * work;
            producer.wait(next_release, u64::MAX, std::iter::empty()).expect("no timeout");
        }
    }
}

/// A producer waits for room again and again. Shows that no release has to wake it, that it hardly
/// spins, and that the stage never runs out of events.
#[test]
fn a_producer_naps_while_half_of_a_full_ring_is_released() {
    for (capacity, work) in [(1024, 170), (1024, 700), (1024, 100_000), (65_536, 700), (64, 2_000)]
    {
        let mut filling = Filling::new(capacity);
        filling.fill(100, work);
        let from = filling.producer.now;
        (filling.idle, filling.producer.woken, filling.producer.spun) = (0, 0, 0);
        filling.fill(1_000, work);
        let Filling { producer: Machine { now, woken, spun, .. }, idle, .. } = filling;
        assert_eq!((idle, woken), (0, 0), "{capacity}, {work}");
        assert!(spun < (now - from) / 20, "{capacity}, {work}: {spun} of {}", now - from);
    }
}

/// If a timer is late by the time that the stage needs for all events of the ring, the stage runs
/// out of events during a nap. Shows that the producer hardly ever tries such a nap.
#[test]
fn a_producer_does_not_nap_behind_a_ring_that_is_soon_empty() {
    for (capacity, work, timer_lateness) in [
        (64, 170, 7_000),
        (1024, 20, 7_000),
        (1024, 50, 60_000),
        (1024, 150, 170_000),
        (4096, 20, 90_000),
    ] {
        let mut filling = Filling::new(capacity);
        filling.producer.timer_lateness = timer_lateness;
        filling.fill(100, work);
        let from = filling.producer.now;
        filling.idle = 0;
        filling.fill(10_000, work);
        let Filling { producer: Machine { now, .. }, idle, .. } = filling;
        assert!(idle < (now - from) / 50, "{capacity}, {work}: {idle} of {}", now - from);
    }
}

/// If a handler becomes faster while the producer naps, the nap ends too late: the handler runs out
/// of events. That happens only once, and lasts at most a millisecond.
#[test]
fn a_nap_that_was_too_long_is_the_last() {
    let mut filling = Filling::new(1024);
    filling.fill(100, 20_000);
    // The stage handles its current events, and all later events, in less time.
    let Filling { producer: Machine { now, .. }, done, .. } = filling;
    filling.done = now + (done - now) / 20_000 * 500;
    filling.idle = 0;
    filling.fill(1_000, 500);
    assert!((1..=1_010_000).contains(&filling.idle), "{}", filling.idle);
}
