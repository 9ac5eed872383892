//! How to wait: strategies trade latency for CPU as the user chooses.
//!
//! Invariants
//! - I1: a strategy only decides what its waiter does next ([`strategy`]); looking, announcing and
//!   sleeping are done in [`until`] and in `queue.rs`.
//! - I2: a wait ends at progress, at the end of the graph, and at its deadline, whatever its
//!   strategy decides.

mod adaptive;
mod alias;
mod budget;
mod machine;
mod moving_average;
pub(crate) mod queue;
#[cfg(all(test, not(slipring_loom)))]
mod queue_model;
#[cfg(all(test, not(slipring_loom)))]
mod queue_tests;
mod strategy;
mod until;
pub(crate) mod warning;

use std::sync::Arc;
use std::time::Duration;

use crate::base::{edge, sync, system};
use adaptive::Adaptive;
pub use alias::UnknownWait;
pub(crate) use machine::{cores, spacing};
pub use strategy::{Learner, WaitAction, WaitContext, WaitStrategy};
pub(crate) use until::{Learned, Site, WaitStats, wait_until};

/// How stages wait for events and producers wait for room.
///
/// | strategy | latency | cost while idle | for |
/// |---|---|---|---|
/// | `BusySpin` | lowest | a whole core per waiter | fewer threads than cores, nothing else to run |
/// | `Yielding` | low | a whole core, but given away when somebody else wants it | threads that share cores |
/// | `AlternatingSpinBlock`, `AlternatingYieldBlock` | low, or one wake of the system | as the windows are to each other | latency of most events at part of the cost |
/// | `AlternatingSpinSleep`, `AlternatingYieldSleep` | low, or up to the sleep | as the windows are to each other | as above, and publishing costs nothing extra |
/// | `Sleeping` | up to its pause | some percent of a core | logs, telemetry |
/// | `PhasedBackoff` | low at first, then its fallback's | its fallback's | bursts |
/// | `Blocking` | one wake of the system, 10 to 70 µs | nothing | everything that is mostly quiet |
/// | `Adaptive` | low where events are near or regular, else one wake | nothing | everything, and whoever does not want to choose |
///
/// `slipring lab waits` measures them all on your machine. For the same strategy with its usual
/// parameters there are constants ([`Wait::YIELDING`], [`Wait::SLEEPING`], [`Wait::ADAPTIVE`]), and
/// each has an alias that parses and prints, with parameters behind a colon; times are whole
/// numbers of `ns`, `us`, `ms` or `s`:
///
/// ```
/// use slipring::Wait;
/// for alias in [
///     "busy-spin", "yielding", "yielding:500", "sleeping", "sleeping:100,100,50us", "blocking", "phased-backoff:10us,100us,blocking",
///     "alternating-yield-block:50us,200us", "alternating-spin-block", "alternating-yield-sleep", "alternating-spin-sleep",
///     "adaptive", "adaptive:25%", "timeout:10ms,blocking",
/// ] {
///     let wait: Wait = alias.parse()?;
///     assert_eq!(wait.to_string().parse::<Wait>()?.to_string(), wait.to_string());
/// }
/// assert!("sleepy".parse::<Wait>().unwrap_err().to_string().contains("blocking"));
/// # Ok::<(), slipring::UnknownWait>(())
/// ```
///
/// Where a graph has more threads than there are cores, whoever is waited for may need the spinning
/// waiter's core. So there all spins are a tenth of what is said here; and the alternating
/// strategies yield where they would spin, for about as much time of their own core as their window
/// says.
///
/// A thread that sleeps for a time in such a wait has sharp timers from then on (on Linux its timer
/// slack is 1 ns instead of 50 µs).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// Look again at once, for ever. A spinning thread needs a core of its own.
    BusySpin,
    /// Look so many times, then give the core away between looks.
    Yielding {
        /// Looks before the first yield.
        spins: u32,
    },
    /// Look so many times, then give the core away so many times, then sleep between looks. Nobody
    /// has to wake a sleeper, so publishing costs nothing extra.
    Sleeping {
        /// Looks before the first yield.
        spins: u32,
        /// Yields before the first sleep.
        yields: u32,
        /// The length of a sleep; what the system needs to wake the thread comes on top.
        pause: Duration,
    },
    /// Look 200 times, a few µs, then sleep until woken. Where there are more threads than cores:
    /// look 5 times, then give the core away 55 times, then sleep. Who publishes and releases pays
    /// a load for it while nobody sleeps, where the system helps (Linux's membarrier); elsewhere,
    /// and while somebody sleeps now and then, a full memory fence.
    Blocking,
    /// Spin for a time, yield for a time, then wait as another strategy does. Looks and time go on
    /// counting, so a fallback that spins or yields itself is through with that. A fallback that
    /// learns only parks.
    PhasedBackoff {
        /// How long to spin.
        spin: Duration,
        /// How long to yield after that.
        yields: Duration,
        /// What comes then.
        fallback: Arc<Wait>,
    },
    /// Yield for a time, then sleep until woken or for a time, in turn.
    ///
    /// The four alternating strategies are Kaser's, from the Disruptor's wait strategies that he
    /// wrote because spinning waiters starved the other processes of a machine with too few cores.
    AlternatingYieldBlock {
        /// How long to yield.
        yields: Duration,
        /// How long to sleep, if nobody wakes it earlier.
        block: Duration,
    },
    /// Spin for a time, then sleep until woken or for a time, in turn.
    AlternatingSpinBlock {
        /// How long to spin.
        spin: Duration,
        /// How long to sleep, if nobody wakes it earlier.
        block: Duration,
    },
    /// Yield for a time, then sleep for a time, in turn. Nobody has to wake it.
    AlternatingYieldSleep {
        /// How long to yield.
        yields: Duration,
        /// How long to sleep.
        sleep: Duration,
    },
    /// Spin for a time, then sleep for a time, in turn. Nobody has to wake it.
    AlternatingSpinSleep {
        /// How long to spin.
        spin: Duration,
        /// How long to sleep.
        sleep: Duration,
    },
    /// Learn, each waiter for itself, the gaps between arrivals and what a wake costs here; then
    /// spin when the next event is nearer than that, sleep when it is far, and sleep until shortly
    /// before it is due when events come regularly.
    ///
    /// It stays hot for a while when a burst is over, forgets slowly, and does not spin where
    /// threads outnumber cores or somebody else wants its core.
    Adaptive {
        /// Percent of a core that a waiter may spend on waiting, spinning and waking up together;
        /// kept within two points over any second. `None` and all from 100 on: no limit; 0 counts
        /// as 1. Where even waking up for every event takes more, events wait.
        budget: Option<u8>,
    },
    /// As another strategy, but a wait that lasts longer than this comes back: handlers of a chain
    /// are told that they are [`idle`](crate::ReadHandler::idle), and then wait again; calls that
    /// wait without a deadline of their own come back with
    /// [`WaitError::TimedOut`](crate::WaitError::TimedOut), having done nothing, and may be called again.
    Timeout {
        /// How long a wait may last.
        after: Duration,
        /// How to wait meanwhile.
        wait: Arc<Wait>,
    },
    /// A strategy of the user's own.
    Custom(Arc<dyn WaitStrategy>),
}

impl Default for Wait {
    /// [`Wait::ADAPTIVE`]: nobody has to choose.
    fn default() -> Wait {
        Wait::ADAPTIVE
    }
}

/// What a window of the alternating strategies is, unless one is said.
const AWAKE: Duration = Duration::from_micros(50);
const ASLEEP: Duration = Duration::from_micros(200);
/// About what a yield takes of the own core.
const YIELD: Duration = Duration::from_micros(1);
/// How often one who sleeps until woken looks in a crowd before it gives its core away, and how
/// often in all before it sleeps.
const OVERSUBSCRIBED_SPINS: u64 = 5;
const OVERSUBSCRIBED_POLLS: u64 = 60;

impl Wait {
    /// [`Wait::Yielding`] after 100 looks.
    pub const YIELDING: Wait = Wait::Yielding { spins: 100 };
    /// [`Wait::Sleeping`] for 50 µs after 100 looks and 100 yields.
    pub const SLEEPING: Wait =
        Wait::Sleeping { spins: 100, yields: 100, pause: Duration::from_micros(50) };
    /// [`Wait::Adaptive`] without a budget.
    pub const ADAPTIVE: Wait = Wait::Adaptive { budget: None };

    /// One of each kind, with its usual parameters.
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

    /// This strategy, but with waits that last no longer than `after`. See [`Wait::Timeout`].
    ///
    /// ```
    /// # use slipring::{WaitError, Wait};
    /// # use std::time::Duration;
    /// let graph = slipring::Graph::new(8, || 0u64).wait(Wait::Blocking.or_timeout(Duration::from_millis(1)));
    /// let key = graph.reader("log");
    /// let ring = graph.build()?;
    /// let (_tx, mut log) = (ring.producer(), ring.reader(key));
    /// assert!(matches!(log.batch(8), Err(WaitError::TimedOut(upstream)) if upstream.as_str() == "producer"));
    /// # Ok::<(), slipring::Error>(())
    /// ```
    pub fn or_timeout(self, after: Duration) -> Wait {
        Wait::Timeout { after, wait: Arc::new(self) }
    }

    /// `first` for a window, `second` for the other, in turn, by the clock.
    fn alternate(
        waited: &WaitContext,
        first: (Duration, WaitAction),
        second: (Duration, fn(Duration) -> WaitAction),
    ) -> WaitAction {
        let ((awake, idle), (asleep, rest)) = (first, second);
        if waited.oversubscribed {
            // While it is off its core the clock goes on, and what it waits for comes about.
            let polls =
                u64::try_from(awake.as_nanos() / YIELD.as_nanos()).unwrap_or(u64::MAX).max(1);
            return if waited.polls % polls.saturating_add(1) < polls {
                WaitAction::Yield
            } else {
                rest(asleep)
            };
        }
        let period = awake.saturating_add(asleep);
        let into = Duration::from_nanos(
            u64::try_from(waited.time().as_nanos() % period.as_nanos().max(1)).unwrap_or(u64::MAX),
        );
        if waited.began.is_none() || into < awake {
            idle
        } else {
            rest(period.saturating_sub(into))
        }
    }
}

impl WaitStrategy for Wait {
    fn idle(&self, waited: &WaitContext) -> WaitAction {
        let polls = waited.polls;
        match *self {
            // The model checker has no use for looks that change nothing.
            Wait::Blocking | Wait::Adaptive { .. } if cfg!(slipring_loom) => WaitAction::Park,
            Wait::BusySpin => WaitAction::Spin(1),
            Wait::Yielding { spins } if waited.below(spins) => WaitAction::Spin(1),
            Wait::Yielding { .. } => WaitAction::Yield,
            Wait::Sleeping { spins, .. } if waited.below(spins) => WaitAction::Spin(1),
            Wait::Sleeping { spins, yields, .. }
                if polls < u64::from(spins) + u64::from(yields) =>
            {
                WaitAction::Yield
            }
            Wait::Sleeping { pause, .. } => WaitAction::Sleep(pause),
            // To yield to a program that is no part of this would be to wait for the end of its
            // time slice.
            Wait::Blocking | Wait::Adaptive { .. } if waited.oversubscribed => match polls {
                ..OVERSUBSCRIBED_SPINS => WaitAction::Spin(1),
                OVERSUBSCRIBED_SPINS..OVERSUBSCRIBED_POLLS => WaitAction::Yield,
                _ => WaitAction::Park,
            },
            Wait::Blocking | Wait::Adaptive { .. } if polls < 200 => WaitAction::Spin(1),
            Wait::Blocking | Wait::Adaptive { .. } => WaitAction::Park,
            Wait::PhasedBackoff { spin, yields, ref fallback } => match waited.time() {
                time if time < waited.window(spin) => WaitAction::Spin(1),
                time if time < spin.saturating_add(yields) => WaitAction::Yield,
                _ => fallback.idle(waited),
            },
            Wait::AlternatingYieldBlock { yields, block } => {
                Wait::alternate(waited, (yields, WaitAction::Yield), (block, WaitAction::ParkFor))
            }
            Wait::AlternatingSpinBlock { spin, block } => {
                Wait::alternate(waited, (spin, WaitAction::Spin(1)), (block, WaitAction::ParkFor))
            }
            Wait::AlternatingYieldSleep { yields, sleep } => {
                Wait::alternate(waited, (yields, WaitAction::Yield), (sleep, WaitAction::Sleep))
            }
            Wait::AlternatingSpinSleep { spin, sleep } => {
                Wait::alternate(waited, (spin, WaitAction::Spin(1)), (sleep, WaitAction::Sleep))
            }
            Wait::Timeout { ref wait, .. } => wait.idle(waited),
            Wait::Custom(ref strategy) => strategy.idle(waited),
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
    fn learner(&self) -> Option<Box<dyn Learner>> {
        match self {
            Wait::Adaptive { .. } if cfg!(slipring_loom) => None,
            Wait::Adaptive { budget } => Some(Box::new(Adaptive::new(*budget))),
            Wait::Timeout { wait, .. } => wait.learner(),
            Wait::Custom(strategy) => strategy.learner(),
            _ => None,
        }
    }
}
