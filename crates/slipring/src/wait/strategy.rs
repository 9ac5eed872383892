//! What a strategy is: it decides what a waiter does next, and nothing else. Looking, announcing
//! and sleeping are done elsewhere, so no strategy, not even a user's own, can lose a wake-up or
//! outlast a deadline.

use std::fmt;
use std::time::{Duration, Instant};

/// How long a waiter has been waiting, as its strategy is told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WaitContext {
    /// How often this waiter has looked in vain since it began to wait.
    pub polls: u64,
    /// Whether the graph has more threads than there are cores, as far as the graph knows: one for
    /// each stage or worker that does not share its thread, one for a producer. Then whoever is
    /// waited for may need this very core, and spinning keeps it from coming.
    pub oversubscribed: bool,
    /// The time; `None` during the first looks, for reading the clock takes longer than they do.
    /// While a waiter spins it is read at every sixteenth look, otherwise at every one.
    pub now: Option<Instant>,
    /// When the wait began, as far as the clock was read.
    pub began: Option<Instant>,
    /// If the waiter was asleep just now and was woken: how long that took, from the ring until it
    /// ran.
    pub wake: Option<Duration>,
}

impl WaitContext {
    pub(crate) fn none(oversubscribed: bool) -> WaitContext {
        WaitContext { polls: 0, oversubscribed, now: None, began: None, wake: None }
    }

    /// How long the wait has lasted, by the clock's last reading.
    pub fn time(&self) -> Duration {
        self.now
            .zip(self.began)
            .map_or(Duration::ZERO, |(now, began)| now.saturating_duration_since(began))
    }

    /// Whether `polls` are still below `spins`, or below a tenth of it where threads are crowded.
    pub(super) fn below(&self, spins: u32) -> bool {
        self.polls < u64::from(if self.oversubscribed { spins / 10 } else { spins })
    }

    /// A window for spinning: a tenth of it where threads are crowded.
    pub(super) fn window(&self, spin: Duration) -> Duration {
        if self.oversubscribed { spin / 10 } else { spin }
    }
}

/// What a waiter does before it looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitAction {
    /// Pause so many times (the processor's own spin hint, 5 to 60 ns each), holding the core.
    Spin(u32),
    /// Read the clock: [`WaitContext::now`] says at the next look what it is, however few looks there
    /// were.
    Clock,
    /// Give the core to another runnable thread, if there is one.
    Yield,
    /// Sleep for this long, at most 100 ms; nobody wakes the sleeper earlier.
    Sleep(Duration),
    /// Sleep until woken by progress, close or failure. Only strategies whose
    /// [`WaitStrategy::parks`] says so are woken; others sleep for 50 µs.
    Park,
    /// As [`WaitAction::Park`], but for no longer than this; with a timer that is as sharp as the
    /// system's can be.
    ParkFor(Duration),
}

/// A way to wait. Implement it for a strategy of your own and pass it as
/// [`Wait::Custom`](crate::Wait::Custom).
///
/// ```
/// use slipring::{WaitAction, Wait, WaitStrategy, WaitContext};
/// use std::sync::Arc;
///
/// /// Spins a thousand times, then sleeps until woken.
/// #[derive(Debug)]
/// struct SpinThenPark;
/// impl WaitStrategy for SpinThenPark {
///     fn idle(&self, waited: &WaitContext) -> WaitAction {
///         if waited.polls < 1000 { WaitAction::Spin(1) } else { WaitAction::Park }
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
    /// What to do after a look in vain. Called often and from many threads at once; it must not
    /// block or panic.
    fn idle(&self, waited: &WaitContext) -> WaitAction;
    /// Whether [`WaitStrategy::idle`] ever answers [`WaitAction::Park`] or [`WaitAction::ParkFor`]. Asked once,
    /// when the graph is built: only then do publishers look for sleepers.
    fn parks(&self) -> bool;
    /// The name for reports.
    fn alias(&self) -> String;
    /// Whether it holds its core for long, whoever else wants it: then a graph that has too few
    /// cores for it warns.
    fn spins(&self) -> bool {
        false
    }
    /// After how long a wait is given up; see [`Wait::Timeout`](crate::Wait::Timeout). Asked at
    /// each wait.
    fn timeout(&self) -> Option<Duration> {
        None
    }
    /// For one that learns: what a single waiter remembers from one wait to the next. Asked once
    /// for each handle; the learner's [`idle`](Learner::idle) is called from then on, instead of
    /// the strategy's.
    fn learner(&self) -> Option<Box<dyn Learner>> {
        None
    }
}

/// One waiter's side of a strategy that learns. See [`WaitStrategy::learner`].
///
/// ```
/// use slipring::{WaitAction, Learner, Wait, WaitStrategy, WaitContext};
/// use std::sync::Arc;
///
/// /// Spins for twice as long as the last wait took, then sleeps until woken.
/// #[derive(Debug)]
/// struct AsLastTime;
/// #[derive(Debug)]
/// struct Looks { last: u64 }
/// impl Learner for Looks {
///     fn idle(&mut self, waited: &WaitContext) -> WaitAction {
///         if waited.polls < 2 * self.last { WaitAction::Spin(1) } else { WaitAction::Park }
///     }
///     fn over(&mut self, waited: &WaitContext, _progress: bool) {
///         self.last = waited.polls.clamp(1, 10_000);
///     }
/// }
/// impl WaitStrategy for AsLastTime {
///     fn idle(&self, _: &WaitContext) -> WaitAction { WaitAction::Park }
///     fn parks(&self) -> bool { true }
///     fn alias(&self) -> String { "as-last-time".into() }
///     fn learner(&self) -> Option<Box<dyn Learner>> { Some(Box::new(Looks { last: 100 })) }
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
pub trait Learner: fmt::Debug + Send + Sync {
    /// What to do after a look in vain. It must not block or panic.
    fn idle(&mut self, waited: &WaitContext) -> WaitAction;
    /// The wait is over; `progress`: because there was something, or the end, and not because time
    /// was up, or because the wait would have had no end
    /// ([`WaitError::WaitsForItself`](crate::WaitError::WaitsForItself)). What was waited for is about to
    /// be handled, so this should note what is to be learned, and leave the rest to the next wait.
    fn over(&mut self, waited: &WaitContext, progress: bool);
}
