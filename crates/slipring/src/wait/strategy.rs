//! Defines the contract of a waiting strategy. The strategy gets the context of a wait, and returns
//! the next action.

use std::fmt;
use std::time::{Duration, Instant};

use super::full_ring::FullRing;
use crate::base::sync::shortened;

/// Number of polls before the clock's first reading in a wait, and between two readings while the
/// strategy decides after each poll. Sixteen polls take about as long as ten readings of the clock.
pub(super) const CLOCK_INTERVAL: u64 = 16;

/// Estimated CPU time of one yield.
pub(super) const YIELD_COST: Duration = Duration::from_micros(1);

/// In a graph with more threads than cores, a blocking or adaptive waiter makes this many polls
/// before it first yields.
pub(super) const OVERSUBSCRIBED_SPINS: u64 = 5;

/// In a graph with more threads than cores, a blocking or adaptive waiter makes this many polls
/// before it first sleeps.
pub(super) const OVERSUBSCRIBED_POLLS: u64 = 60;

/// The state of a wait, as its strategy sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitContext {
    /// Number of polls in this wait that found nothing and were followed by an action.
    pub polls: u64,
    /// Whether the graph has more threads than cores. A spinning waiter may then hold the core that
    /// the awaited thread needs.
    ///
    /// The cores are those on which the threads that hold the graph's handles may run, each thread
    /// on one of its own, within the quota of the process's control group. A thread is noted when
    /// one of its waits first lasts long, when it begins a loop over events, and after some
    /// thousand calls; until then it counts with the cores of the thread that built the graph, or
    /// with those of the graph's [`Placement`](crate::placement::Placement). While threads wait,
    /// the system is asked again for the cores of one thread every 100 ms.
    ///
    /// The number of threads is an estimate. Each stage's handle counts as one thread, all stages
    /// that share a thread count as one, a single producer counts as one, and many producers count
    /// as two. Members of taps, and workers that joined a pool, count until they leave. Handles
    /// that one thread holds count as one, once they are noted. Threads of other graphs do not
    /// count.
    pub oversubscribed: bool,
    /// The clock's last reading in this wait; `None` before the first reading. The first reading
    /// comes after 16 polls, or before the first action other than [`WaitAction::Spin`] and
    /// [`WaitAction::SpinOn`], whichever is earlier. The clock is read again after every sixteenth
    /// poll, after each further [`WaitAction::SpinOn`], and after each action other than a spin.
    pub now: Option<Instant>,
    /// The clock's first reading in this wait; `None` before the first reading.
    pub started: Option<Instant>,
    /// Time from the notification that ended the wait's last action until the waiter ran; `None` if
    /// no notification ended that action.
    pub wake_latency: Option<Duration>,
    /// The ring in which the waiter waits for room. `None` if the waiter waits for something else,
    /// or if its thread may have to run a stage meanwhile.
    pub(crate) full_ring: Option<FullRing>,
}

impl WaitContext {
    /// Returns the context of a wait that begins.
    pub(crate) fn new(oversubscribed: bool) -> WaitContext {
        WaitContext {
            polls: 0,
            oversubscribed,
            now: None,
            started: None,
            wake_latency: None,
            full_ring: None,
        }
    }

    /// Returns the duration of this wait up to the clock's last reading; zero before the first
    /// reading.
    ///
    /// ```
    /// use slipring::waiting::{WaitAction, WaitContext};
    /// use std::time::Duration;
    ///
    /// fn spin_then_park(context: &WaitContext) -> WaitAction {
    ///     match context.elapsed() < Duration::from_micros(20) {
    ///         true => WaitAction::Spin(1),
    ///         false => WaitAction::Park,
    ///     }
    /// }
    /// # let _ = spin_then_park;
    /// ```
    pub fn elapsed(&self) -> Duration {
        self.now
            .zip(self.started)
            .map_or(Duration::ZERO, |(now, started)| now.saturating_duration_since(started))
    }

    /// Returns whether fewer than `spins` polls were made or, where threads outnumber cores, fewer
    /// than a tenth of `spins`.
    pub(super) fn polls_below(&self, spins: u32) -> bool {
        self.polls < shortened(u64::from(if self.oversubscribed { spins / 10 } else { spins }))
    }

    /// Returns `spin`, or a tenth of `spin` where threads outnumber cores.
    pub(super) fn spin_window(&self, spin: Duration) -> Duration {
        if self.oversubscribed { spin / 10 } else { spin }
    }
}

/// The action of a waiter between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitAction {
    /// Execute the given number of the processor's spin hints (5 to 60 ns each), at least 1 and at
    /// most 65,536. The waiter keeps its core while it spins.
    Spin(u32),
    /// Poll, with one spin hint between two polls, and ask the strategy again when the clock is
    /// read the next time: after at most 16 polls for the first reading, and after about a
    /// microsecond later on. Meanwhile nothing else is done, so an event is seen sooner than with
    /// [`WaitAction::Spin`].
    SpinOn,
    /// Read the clock, so that [`WaitContext::now`] is set at the next decision.
    Clock,
    /// Yield the core to another runnable thread, if there is one.
    Yield,
    /// Sleep for the given duration, at most 100 ms. No notification ends the sleep.
    Sleep(Duration),
    /// Sleep until a notification of progress, close or failure. If the strategy's
    /// [`WaitStrategy::parks`] returns `false`, the waiter sleeps for 50 µs instead.
    Park,
    /// Sleep as with [`WaitAction::Park`], but for at most the given duration, which the system's
    /// most exact timer measures.
    ParkFor(Duration),
}

/// A waiting strategy. To use a strategy of your own, implement this trait, and pass the strategy
/// as [`Wait::Custom`](crate::Wait::Custom).
///
/// ```
/// use slipring::{Wait, waiting::{WaitAction, WaitContext, WaitStrategy}};
/// use std::sync::Arc;
///
/// /// Spins a thousand times, then sleeps until notified.
/// #[derive(Debug)]
/// struct SpinThenPark;
/// impl WaitStrategy for SpinThenPark {
///     fn next_action(&self, context: &WaitContext) -> WaitAction {
///         if context.polls < 1000 { WaitAction::Spin(1) } else { WaitAction::Park }
///     }
///     fn parks(&self) -> bool { true }
///     fn alias(&self) -> String { "spin-then-park".into() }
/// }
///
/// let mut sum = 0;
/// slipring::ring(64, || 0u64)
///     .wait(Wait::Custom(Arc::new(SpinThenPark)))
///     .read("sum", |v, _| sum += v)
///     .feed(0..100, |slot, i| *slot = i)?;
/// assert_eq!(sum, 4950);
/// # Ok::<(), slipring::Error>(())
/// ```
pub trait WaitStrategy: fmt::Debug + Send + Sync {
    /// Returns the action to take after a poll that found nothing. Every waiter calls `next_action`
    /// after each such poll, and several threads may call it at once. An implementation must not
    /// block or panic.
    ///
    /// Example: [`WaitStrategy`].
    fn next_action(&self, context: &WaitContext) -> WaitAction;
    /// Returns whether [`WaitStrategy::next_action`] ever returns [`WaitAction::Park`] or
    /// [`WaitAction::ParkFor`]. The build of a graph calls `parks` once. If it returns `false`,
    /// publications and releases do not check for sleepers.
    ///
    /// Example: [`WaitStrategy`].
    fn parks(&self) -> bool;
    /// Returns the strategy's name for reports and warnings.
    ///
    /// Example: [`WaitStrategy`].
    fn alias(&self) -> String;
    /// Returns whether a waiter holds its core for a long time, even if other threads want it. If
    /// it does, and the graph has more threads than cores, the graph's build can give a
    /// [`Warning`](crate::waiting::Warning).
    ///
    /// Example: [`WaitStrategy`].
    fn spins(&self) -> bool {
        false
    }
    /// Returns the longest duration of a wait; see [`Wait::Timeout`](crate::Wait::Timeout). Each
    /// wait without a deadline of its own calls `timeout` once.
    ///
    /// Example: [`Wait::or_timeout`](crate::Wait::or_timeout).
    fn timeout(&self) -> Option<Duration> {
        None
    }
    /// Returns the learning state of one handle, if this strategy learns. Each handle calls
    /// `learner` once. A handle that gets a learner calls [`WaitLearner::next_action`] instead of
    /// [`WaitStrategy::next_action`].
    ///
    /// Example: [`WaitLearner`].
    fn learner(&self) -> Option<Box<dyn WaitLearner>> {
        None
    }
}

/// The state that a learning strategy keeps for one handle. [`WaitStrategy::learner`] creates a
/// learner.
///
/// ```
/// use slipring::{Wait, waiting::{WaitAction, WaitContext, WaitLearner, WaitStrategy}};
/// use std::sync::Arc;
///
/// /// Spins for twice as many polls as the last wait took, then sleeps until notified.
/// #[derive(Debug)]
/// struct AsLastTime;
/// #[derive(Debug)]
/// struct LastPolls(u64);
/// impl WaitLearner for LastPolls {
///     fn next_action(&mut self, context: &WaitContext) -> WaitAction {
///         if context.polls < 2 * self.0 { WaitAction::Spin(1) } else { WaitAction::Park }
///     }
///     fn wait_ended(&mut self, context: &WaitContext, _progress: bool) {
///         self.0 = context.polls.clamp(1, 10_000);
///     }
/// }
/// impl WaitStrategy for AsLastTime {
///     fn next_action(&self, _: &WaitContext) -> WaitAction { WaitAction::Park }
///     fn parks(&self) -> bool { true }
///     fn alias(&self) -> String { "as-last-time".into() }
///     fn learner(&self) -> Option<Box<dyn WaitLearner>> { Some(Box::new(LastPolls(100))) }
/// }
///
/// let mut sum = 0;
/// slipring::ring(64, || 0u64)
///     .wait(Wait::Custom(Arc::new(AsLastTime)))
///     .read("sum", |v, _| sum += v)
///     .feed(0..100, |slot, i| *slot = i)?;
/// assert_eq!(sum, 4950);
/// # Ok::<(), slipring::Error>(())
/// ```
pub trait WaitLearner: fmt::Debug + Send + Sync {
    /// Returns the action to take after a poll that found nothing. An implementation must not block
    /// or panic.
    ///
    /// Example: [`WaitLearner`].
    fn next_action(&mut self, context: &WaitContext) -> WaitAction;
    /// Records how a wait ended. `progress` is `true` if the wait ended at progress or at the end
    /// of the graph. It is `false` if the wait ended at its deadline or timeout, or would never
    /// have ended ([`WaitError::WaitsForItself`](crate::errors::WaitError::WaitsForItself)).
    ///
    /// The waiter calls `wait_ended` before it handles its event, so a computation here delays the
    /// event. An implementation should only store values here, and leave the computation to the
    /// first call of `next_action` in the next wait.
    ///
    /// Example: [`WaitLearner`].
    fn wait_ended(&mut self, context: &WaitContext, progress: bool);
}
