//! The built-in strategies, and the enum that names each of them.
//!
//! Invariants
//! - I1: every window and count of a [`Wait`] may have any value, including zero and the maximum.
//!   Sums saturate, and the code never divides by zero.

use std::sync::Arc;
use std::time::Duration;

use super::adaptive::Adaptive;
use super::strategy::{
    OVERSUBSCRIBED_POLLS, OVERSUBSCRIBED_SPINS, WaitAction, WaitContext, WaitLearner, WaitStrategy,
    YIELD_COST,
};
use crate::base::sync::shortened;

/// The waiting strategy of a stage that has no event, or of a producer whose ring is full.
///
/// | strategy | latency of a wake-up | CPU while idle | for |
/// |---|---|---|---|
/// | `BusySpin` | lowest | one core per waiter | fewer threads than cores, and no other programs |
/// | `Yielding` | low | one core per waiter, yielded to other threads | threads that share cores |
/// | `AlternatingSpinBlock`, `AlternatingYieldBlock` | low, or one wake-up by the system | the awake window's share of a long wait | low latency of most events at part of the CPU |
/// | `AlternatingSpinSleep`, `AlternatingYieldSleep` | low, or up to the sleep | the awake window's share of a long wait | the same, with publications that check for no sleepers |
/// | `Sleeping` | up to its pause | some percent of a core | logs, telemetry |
/// | `PhasedBackoff` | low at first, then its fallback's | its fallback's | bursts |
/// | `Blocking` | one wake-up by the system, 10 to 70 µs | none | streams that are mostly quiet |
/// | `Adaptive` | low for frequent or regular events, else one wake-up by the system | little | everything; it is the default |
///
/// `slipring lab waits` measures each strategy on your machine. The constants [`Wait::YIELDING`],
/// [`Wait::SLEEPING`] and [`Wait::ADAPTIVE`] have the usual parameters.
///
/// A built-in strategy prints as an alias, which parses to the same strategy. Parameters follow a
/// colon; a duration is a whole number of `ns`, `us`, `ms` or `s`:
///
/// ```
/// use slipring::Wait;
/// for alias in [
///     "busy-spin", "yielding", "yielding:500", "sleeping", "sleeping:100,100,50us", "blocking",
///     "phased-backoff:10us,100us,blocking", "alternating-yield-block:50us,200us",
///     "alternating-spin-block", "alternating-yield-sleep", "alternating-spin-sleep",
///     "adaptive", "adaptive:25%", "timeout:10ms,blocking",
/// ] {
///     let wait: Wait = alias.parse()?;
///     assert_eq!(wait.to_string().parse::<Wait>()?.to_string(), wait.to_string());
/// }
/// assert!("sleepy".parse::<Wait>().unwrap_err().to_string().contains("blocking"));
/// # Ok::<(), slipring::errors::UnknownWait>(())
/// ```
///
/// If a graph has more threads than cores, a spinning waiter may hold the core that the awaited
/// thread needs. In such a graph, a strategy spins for only a tenth of the given count or window.
/// The awake window of an alternating strategy then has no spins, and one yield per microsecond of
/// its length.
///
/// On Linux, the first timed sleep of a thread lowers the thread's timer slack from the usual 50 µs
/// to 1 ns, for the rest of the thread's life.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// Polls without a pause. Each waiter needs a core of its own.
    BusySpin,
    /// Polls `spins` times, then yields the core between polls. In a long wait, it sleeps for 50 µs
    /// after each 32,768 polls, which take about ten milliseconds. It needs these sleeps because a
    /// thread with a real-time priority lets no ordinary thread run when it yields.
    Yielding {
        /// Number of polls before the first yield.
        spins: u32,
    },
    /// Polls `spins` times, yields `yields` times, then sleeps between polls. No notification ends
    /// the sleep, so publications do not check for sleepers.
    Sleeping {
        /// Number of polls before the first yield.
        spins: u32,
        /// Number of yields before the first sleep.
        yields: u32,
        /// Duration of each sleep, without the time that the system takes to wake the thread.
        pause: Duration,
    },
    /// Polls 200 times (a few µs), then sleeps until notified. If threads outnumber cores, it polls
    /// 5 times, yields 55 times, and then sleeps.
    ///
    /// While no waiter sleeps, `Blocking` adds one load to each publication and each release. While
    /// waiters sleep from time to time, it adds a full memory fence instead. On a system without
    /// membarrier(2) (Linux has it), it always adds the fence.
    Blocking,
    /// Spins for a time, yields for a time, then follows another strategy.
    ///
    /// The fallback counts polls and time from the start of the wait, not from its own first
    /// action. For example, the fallback [`Wait::SLEEPING`] sleeps at once if the earlier phases
    /// polled 200 times or more. A fallback does not learn: as a fallback, [`Wait::Adaptive`] acts
    /// as [`Wait::Blocking`].
    PhasedBackoff {
        /// Duration of spinning.
        spin: Duration,
        /// Duration of yielding after the spins.
        yields: Duration,
        /// The strategy after the yields.
        fallback: Arc<Wait>,
    },
    /// Alternates between yielding for a time and sleeping for a time. A notification ends the
    /// sleep.
    ///
    /// Kaser wrote the four `Alternating...` strategies for the Disruptor. On machines with few
    /// cores, the Disruptor's spinning waiters had starved other processes.
    AlternatingYieldBlock {
        /// Duration of yielding.
        yields: Duration,
        /// Longest duration of a sleep.
        block: Duration,
    },
    /// Alternates between spinning for a time and sleeping for a time. A notification ends the
    /// sleep.
    AlternatingSpinBlock {
        /// Duration of spinning.
        spin: Duration,
        /// Longest duration of a sleep.
        block: Duration,
    },
    /// Alternates between yielding for a time and sleeping for a time. No notification ends the
    /// sleep, so publications do not check for sleepers.
    AlternatingYieldSleep {
        /// Duration of yielding.
        yields: Duration,
        /// Duration of a sleep.
        sleep: Duration,
    },
    /// Alternates between spinning for a time and sleeping for a time. No notification ends the
    /// sleep, so publications do not check for sleepers.
    AlternatingSpinSleep {
        /// Duration of spinning.
        spin: Duration,
        /// Duration of a sleep.
        sleep: Duration,
    },
    /// Learns, in each handle, the gaps between arrivals and the cost of a wake-up.
    ///
    /// The waiter spins if the next event is likely to come sooner than a wake-up takes, and sleeps
    /// otherwise. If events come at regular times that are further apart than a wake-up takes, the
    /// waiter sleeps until shortly before the next event. After a burst of events it stops spinning
    /// only after several waits that each last longer than two wake-ups. While it spins, it yields
    /// now and then, so that a thread of another graph gets the core if it needs a core: after a
    /// microsecond of spinning, and up to 32 microseconds apart as long as no thread takes the
    /// core. If the graph's threads outnumber the cores, or while another thread keeps the core for
    /// long, the waiter polls a few times and does not spin further.
    ///
    /// A producer that often waits for room in a full ring learns how fast the stages release
    /// events. If releasing half of the ring takes 60 µs or more at the usual rate, the producer
    /// sleeps by a timer for that time, up to a millisecond, and no release has to wake it. If a
    /// handler is much faster than usual during such a sleep, its stage runs out of events. The
    /// producer then makes such sleeps more rarely. A waiting call notices a close or a failure
    /// only after the sleep. All this applies only to graphs in which no stage follows another
    /// stage.
    Adaptive {
        /// Largest share of a core that one waiter spends on spinning and on waking up, in percent.
        /// In any second, the waiter exceeds this budget by at most two percentage points. `None`
        /// and values from 100 on mean no limit; 0 counts as 1.
        ///
        /// If the budget cannot pay for a wake-up per event, the waiter sleeps until the budget
        /// refills, and handles events later.
        budget: Option<u8>,
    },
    /// Follows another strategy, and ends a wait that lasts longer than `after`.
    ///
    /// After a timeout, a chain calls its handler's [`idle`](crate::stages::ReadHandler::idle) and
    /// waits again. A handle's call without a deadline of its own returns
    /// [`WaitError::TimedOut`](crate::errors::WaitError::TimedOut). A call that timed out has
    /// changed nothing and may be repeated.
    Timeout {
        /// Longest duration of a wait.
        after: Duration,
        /// The strategy during the wait.
        wait: Arc<Wait>,
    },
    /// Follows a strategy that the user wrote.
    Custom(Arc<dyn WaitStrategy>),
}

impl Default for Wait {
    /// Returns [`Wait::ADAPTIVE`].
    fn default() -> Wait {
        Wait::ADAPTIVE
    }
}

/// Number of polls with which a blocking waiter begins.
const BLOCKING_SPINS: u32 = 200;
/// Default duration of the alternating strategies' awake window.
pub(super) const AWAKE: Duration = Duration::from_micros(50);
/// Number of polls after which a yielding waiter sleeps once. Until it sleeps, a waiter with a
/// real-time priority keeps ordinary threads off its core.
///
/// In a measurement, a real-time thread and an ordinary thread passed 3,000 events on one core
/// (`records/2026-11-28-priorities`). With this number of polls, the events take 0.5 to 1.8 s.
/// Without the sleep, 1,344 events took 20 s. With a sleep after 2,048 polls, the 3,000 events take
/// 0.1 s, but the p99 of ordinary threads at 1,000 events per second triples.
const YIELDS_IN_A_ROW: u64 = 1 << 15;
/// Duration of the sleep after [`YIELDS_IN_A_ROW`] polls.
const BREATHER: Duration = Duration::from_micros(50);
/// Default duration of the alternating strategies' sleep.
pub(super) const ASLEEP: Duration = Duration::from_micros(200);

impl Wait {
    /// A [`Wait::Yielding`] that begins to yield after 100 polls.
    pub const YIELDING: Wait = Wait::Yielding { spins: 100 };
    /// A [`Wait::Sleeping`] that sleeps for 50 µs at a time, after 100 polls and 100 yields.
    pub const SLEEPING: Wait =
        Wait::Sleeping { spins: 100, yields: 100, pause: Duration::from_micros(50) };
    /// [`Wait::Adaptive`] without a budget.
    pub const ADAPTIVE: Wait = Wait::Adaptive { budget: None };

    /// Returns whether a waiter neither sleeps nor gives up, so that it handles an event as soon as
    /// the event is there.
    pub(crate) fn stays_awake(&self) -> bool {
        matches!(self, Wait::BusySpin | Wait::Yielding { .. })
    }

    /// Returns whether the strategy, or a strategy that it follows, is user code.
    pub(crate) fn is_custom(&self) -> bool {
        match self {
            Wait::PhasedBackoff { fallback: wait, .. } | Wait::Timeout { wait, .. } => {
                wait.is_custom()
            }
            Wait::Custom(_) => true,
            _ => false,
        }
    }

    /// Returns one strategy of each kind, with its usual parameters, except [`Wait::Timeout`] and
    /// [`Wait::Custom`].
    ///
    /// ```
    /// for wait in slipring::Wait::all() {
    ///     let mut sum = 0;
    ///     slipring::ring(8, || 0u64)
    ///         .wait(wait)
    ///         .read("sum", |v, _| sum += v)
    ///         .feed(0..10, |slot, i| *slot = i)?;
    ///     assert_eq!(sum, 45);
    /// }
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn all() -> [Wait; 10] {
        let fallback = Arc::new(Wait::Blocking);
        [
            Wait::BusySpin,
            Wait::YIELDING,
            Wait::SLEEPING,
            Wait::Blocking,
            Wait::PhasedBackoff {
                spin: Duration::from_micros(10),
                yields: Duration::from_micros(100),
                fallback,
            },
            Wait::AlternatingYieldBlock { yields: AWAKE, block: ASLEEP },
            Wait::AlternatingSpinBlock { spin: AWAKE, block: ASLEEP },
            Wait::AlternatingYieldSleep { yields: AWAKE, sleep: ASLEEP },
            Wait::AlternatingSpinSleep { spin: AWAKE, sleep: ASLEEP },
            Wait::ADAPTIVE,
        ]
    }

    /// Returns this strategy with a timeout: a wait lasts no longer than `after`. See
    /// [`Wait::Timeout`].
    ///
    /// ```
    /// # use slipring::{Graph, Wait, errors::WaitError};
    /// # use std::time::Duration;
    /// let wait = Wait::Blocking.or_timeout(Duration::from_millis(1));
    /// let graph = Graph::new(8, || 0u64).wait(wait);
    /// let key = graph.reader("log");
    /// let ring = graph.build()?;
    /// let (_tx, mut log) = (ring.producer(), ring.reader(key));
    /// match log.batch(8) {
    ///     Err(WaitError::TimedOut(upstream)) => assert_eq!(upstream.as_str(), "producer"),
    ///     other => panic!("nothing was published: {other:?}"),
    /// };
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn or_timeout(self, after: Duration) -> Wait {
        Wait::Timeout { after, wait: Arc::new(self) }
    }

    /// Returns whether no part of the strategy is a user's code.
    pub(crate) fn is_built_in(&self) -> bool {
        match self {
            Wait::PhasedBackoff { fallback: wait, .. } | Wait::Timeout { wait, .. } => {
                wait.is_built_in()
            }
            wait => !matches!(wait, Wait::Custom(_)),
        }
    }

    /// Returns the number of polls with which each wait begins. Between these polls, the waiter
    /// spins and does not ask the strategy. The number is at most `most`. It is 0 for a user's
    /// strategy, and for a strategy that may do something else first.
    pub(crate) fn first_polls(&self, most: u32) -> u32 {
        match *self {
            Wait::BusySpin | Wait::Adaptive { budget: None } => most,
            Wait::Blocking => most.min(BLOCKING_SPINS),
            Wait::Yielding { spins } | Wait::Sleeping { spins, .. } => most.min(spins),
            Wait::Timeout { ref wait, .. } => wait.first_polls(most),
            _ => 0,
        }
    }
}

/// An alternating strategy, in which an awake window and a sleep follow each other again and again.
struct Alternation {
    /// Duration of the awake window.
    awake: Duration,
    /// Action of each poll in the awake window.
    action: WaitAction,
    /// Duration of the sleep.
    asleep: Duration,
    /// Returns the action that sleeps for this duration.
    sleep_for: fn(Duration) -> WaitAction,
}

impl Alternation {
    /// Returns the next action.
    fn next_action(self, context: &WaitContext) -> WaitAction {
        let Alternation { awake, action, asleep, sleep_for } = self;
        if context.oversubscribed {
            // In a graph with more threads than cores, the awake window ends after a number of
            // yields, because the clock would also count the time for which other threads use the
            // core.
            let polls =
                u64::try_from(awake.as_nanos() / YIELD_COST.as_nanos()).unwrap_or(u64::MAX).max(1);
            return if context.polls % polls.saturating_add(1) < polls {
                WaitAction::Yield
            } else {
                sleep_for(asleep)
            };
        }
        let period = awake.saturating_add(asleep);
        let in_period = context.elapsed().as_nanos() % period.as_nanos().max(1);
        let in_period = Duration::from_nanos(u64::try_from(in_period).unwrap_or(u64::MAX));
        if context.started.is_none() || in_period < awake {
            action
        } else {
            sleep_for(period.saturating_sub(in_period))
        }
    }
}

impl WaitStrategy for Wait {
    fn next_action(&self, context: &WaitContext) -> WaitAction {
        let polls = context.polls;
        match *self {
            // In a model the waiter sleeps at once, because polls before the sleep only add states.
            Wait::Blocking | Wait::Adaptive { .. } if cfg!(slipring_loom) => WaitAction::Park,
            Wait::BusySpin if cfg!(slipring_loom) => WaitAction::Spin(1),
            Wait::BusySpin => WaitAction::SpinOn,
            Wait::Yielding { spins } if context.polls_below(spins) => WaitAction::Spin(1),
            Wait::Yielding { .. } if (polls + 1).is_multiple_of(shortened(YIELDS_IN_A_ROW)) => {
                WaitAction::Sleep(BREATHER)
            }
            Wait::Yielding { .. } => WaitAction::Yield,
            Wait::Sleeping { spins, .. } if context.polls_below(spins) => WaitAction::Spin(1),
            Wait::Sleeping { spins, yields, .. }
                if polls < u64::from(spins) + u64::from(yields) =>
            {
                WaitAction::Yield
            }
            Wait::Sleeping { pause, .. } => WaitAction::Sleep(pause),
            // The number of yields is bounded, because a yield to another program may last for that
            // program's time slice.
            Wait::Blocking | Wait::Adaptive { .. } if context.oversubscribed => match polls {
                ..OVERSUBSCRIBED_SPINS => WaitAction::Spin(1),
                polls if polls < shortened(OVERSUBSCRIBED_POLLS) => WaitAction::Yield,
                _ => WaitAction::Park,
            },
            Wait::Blocking | Wait::Adaptive { .. } if context.polls_below(BLOCKING_SPINS) => {
                WaitAction::Spin(1)
            }
            Wait::Blocking | Wait::Adaptive { .. } => WaitAction::Park,
            Wait::PhasedBackoff { spin, yields, ref fallback } => match context.elapsed() {
                time if time < context.spin_window(spin) => WaitAction::Spin(1),
                time if time < spin.saturating_add(yields) => WaitAction::Yield,
                _ => fallback.next_action(context),
            },
            Wait::AlternatingYieldBlock { yields: awake, block: asleep } => Alternation {
                awake,
                asleep,
                action: WaitAction::Yield,
                sleep_for: WaitAction::ParkFor,
            }
            .next_action(context),
            Wait::AlternatingSpinBlock { spin: awake, block: asleep } => Alternation {
                awake,
                asleep,
                action: WaitAction::Spin(1),
                sleep_for: WaitAction::ParkFor,
            }
            .next_action(context),
            Wait::AlternatingYieldSleep { yields: awake, sleep: asleep } => Alternation {
                awake,
                asleep,
                action: WaitAction::Yield,
                sleep_for: WaitAction::Sleep,
            }
            .next_action(context),
            Wait::AlternatingSpinSleep { spin: awake, sleep: asleep } => Alternation {
                awake,
                asleep,
                action: WaitAction::Spin(1),
                sleep_for: WaitAction::Sleep,
            }
            .next_action(context),
            Wait::Timeout { ref wait, .. } => wait.next_action(context),
            Wait::Custom(ref strategy) => strategy.next_action(context),
        }
    }
    fn parks(&self) -> bool {
        match self {
            Wait::Blocking
            | Wait::AlternatingYieldBlock { .. }
            | Wait::AlternatingSpinBlock { .. }
            | Wait::Adaptive { .. } => true,
            Wait::BusySpin | Wait::Yielding { .. } | Wait::Sleeping { .. } => false,
            Wait::AlternatingYieldSleep { .. } | Wait::AlternatingSpinSleep { .. } => false,
            Wait::PhasedBackoff { fallback: wait, .. } | Wait::Timeout { wait, .. } => wait.parks(),
            Wait::Custom(strategy) => strategy.parks(),
        }
    }
    fn alias(&self) -> String {
        self.to_string()
    }
    fn spins(&self) -> bool {
        match self {
            Wait::BusySpin
            | Wait::AlternatingSpinBlock { .. }
            | Wait::AlternatingSpinSleep { .. } => true,
            Wait::PhasedBackoff { fallback: wait, .. } | Wait::Timeout { wait, .. } => wait.spins(),
            Wait::Custom(strategy) => strategy.spins(),
            _ => false,
        }
    }
    fn timeout(&self) -> Option<Duration> {
        match self {
            Wait::Timeout { after, wait } => {
                Some(wait.timeout().map_or(*after, |inner| inner.min(*after)))
            }
            Wait::PhasedBackoff { fallback, .. } => fallback.timeout(),
            Wait::Custom(strategy) => strategy.timeout(),
            _ => None,
        }
    }
    fn learner(&self) -> Option<Box<dyn WaitLearner>> {
        match self {
            Wait::Adaptive { .. } if cfg!(slipring_loom) => None,
            Wait::Adaptive { budget } => Some(Box::new(Adaptive::new(*budget))),
            Wait::Timeout { wait, .. } => wait.learner(),
            Wait::Custom(strategy) => strategy.learner(),
            _ => None,
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// A thread with a real-time priority keeps ordinary threads off its core until it sleeps, even
    /// if it yields. So in a long wait, every strategy except busy spin must sleep now and then.
    #[test]
    fn a_wait_that_lasts_gives_ordinary_threads_the_core() {
        let yielding = Wait::YIELDING;
        let fallback = std::sync::Arc::new(yielding.clone());
        let (spin, yields) = (Duration::from_micros(10), Duration::from_micros(100));
        let backoff = Wait::PhasedBackoff { spin, yields, fallback };
        for wait in Wait::all().into_iter().chain([backoff, yielding.or_timeout(ASLEEP)]) {
            let began = std::time::Instant::now();
            let mut learner = wait.learner();
            let sleeps = |polls: &u64| {
                let now = began + Duration::from_nanos(300) * *polls as u32;
                let mut context = WaitContext { polls: *polls, ..WaitContext::new(false) };
                (context.started, context.now) = (Some(began), Some(now));
                let action = match &mut learner {
                    Some(learner) => learner.next_action(&context),
                    None => wait.next_action(&context),
                };
                use WaitAction::{Clock, Spin, SpinOn, Yield};
                !matches!(action, Spin(_) | SpinOn | Yield | Clock)
            };
            let most = 2 * YIELDS_IN_A_ROW;
            let first = (0..most).find(sleeps);
            assert_eq!(first.is_none(), matches!(wait, Wait::BusySpin), "{wait}: {first:?}");
        }
    }
}
