//! How to wait: strategies trade latency for CPU as the user chooses.
//!
//! A strategy only decides what a waiter does next; looking, announcing and sleeping are done here and in `bell.rs`, so no strategy,
//! not even a user's own, can lose a wake-up or outlast a deadline.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::sync::{spin_loop, yield_now};

/// How stages wait for events and producers wait for room.
///
/// | strategy | latency | cost while idle | for |
/// |---|---|---|---|
/// | `BusySpin` | lowest | a whole core per waiter | fewer threads than cores, nothing else to run |
/// | `Yielding` | low | a whole core, but given away when somebody else wants it | threads that share cores |
/// | `Sleeping` | up to about 100 µs | about 1 % of a core | logs, telemetry |
/// | `Blocking` | one wake of the system, about 30 to 70 µs | nothing | everything that is mostly quiet |
///
/// ```
/// use slipring::Wait;
/// let wait: Wait = "busy-spin".parse().unwrap();
/// assert_eq!(wait.to_string(), "busy-spin");
/// assert!("sleepy".parse::<Wait>().unwrap_err().to_string().contains("blocking"));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Look again at once, for ever. A spinning thread needs a core of its own.
    BusySpin,
    /// Look 100 times (10 times, where the graph's threads outnumber the cores), then give the core away between looks.
    Yielding,
    /// Look 100 times (or 10, as above), then give the core away 100 times, then sleep 50 µs between looks. Nobody has to wake a sleeper,
    /// so publishing costs nothing extra.
    Sleeping,
    /// Look 50 times (or 5), give the core away 10 times, then sleep until woken. Publishing and releasing pay one full memory fence for it.
    #[default]
    Blocking,
    /// A strategy of the user's own.
    Custom(Arc<dyn WaitStrategy>),
}

/// How long a waiter has been waiting, as its strategy is told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waited {
    /// How often this waiter has looked in vain since it began to wait.
    pub looks: u64,
    /// Whether the graph has more threads than there are cores, as far as the graph knows: one for each stage or worker that does not
    /// share its thread, one for a producer. Then whoever is waited for may need this very core, and spinning keeps it from coming.
    pub crowded: bool,
}

impl Waited {
    /// Whether `looks` are still below `spins`, or below a tenth of it where threads are crowded.
    fn below(self, spins: u64) -> bool {
        self.looks < if self.crowded { spins / 10 } else { spins }
    }
}

/// What a waiter does before it looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Pause so many times (the processor's own spin hint, 10 to 60 ns each), holding the core.
    Spin(u32),
    /// Give the core to another runnable thread, if there is one.
    Yield,
    /// Sleep for this long, at most 100 ms; nobody wakes the sleeper earlier.
    Sleep(Duration),
    /// Sleep until woken by progress, close or failure. Only strategies whose [`WaitStrategy::parks`] says so are woken; others yield.
    Park,
}

/// A way to wait. Implement it for a strategy of your own and pass it as [`Wait::Custom`].
///
/// ```
/// use slipring::{Idle, Wait, WaitStrategy, Waited};
/// use std::sync::Arc;
///
/// /// Spins a thousand times, then sleeps until woken.
/// #[derive(Debug)]
/// struct SpinThenPark;
/// impl WaitStrategy for SpinThenPark {
///     fn idle(&self, waited: Waited) -> Idle {
///         if waited.looks < 1000 { Idle::Spin(1) } else { Idle::Park }
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
    /// What to do after a look in vain. Called often and from many threads at once; it must not block or panic.
    fn idle(&self, waited: Waited) -> Idle;
    /// Whether [`WaitStrategy::idle`] ever answers [`Idle::Park`]. Asked once, when the graph is built: only then do publishers look
    /// for sleepers.
    fn parks(&self) -> bool;
    /// The name for reports.
    fn alias(&self) -> String;
}

impl Wait {
    /// The strategies that need no parameters, in order of rising latency.
    pub const ALL: [Wait; 4] = [Wait::BusySpin, Wait::Yielding, Wait::Sleeping, Wait::Blocking];
}

impl WaitStrategy for Wait {
    fn idle(&self, waited: Waited) -> Idle {
        let looks = waited.looks;
        match self {
            Wait::BusySpin => Idle::Spin(1),
            Wait::Yielding if waited.below(100) => Idle::Spin(1),
            Wait::Yielding => Idle::Yield,
            Wait::Sleeping if waited.below(100) => Idle::Spin(1),
            Wait::Sleeping if looks < 200 => Idle::Yield,
            Wait::Sleeping => Idle::Sleep(Duration::from_micros(50)),
            // The model checker has no use for looks that change nothing.
            Wait::Blocking if cfg!(slipring_loom) => Idle::Park,
            Wait::Blocking if waited.below(50) => Idle::Spin(1),
            Wait::Blocking if looks < 60 => Idle::Yield,
            Wait::Blocking => Idle::Park,
            Wait::Custom(strategy) => strategy.idle(waited),
        }
    }
    fn parks(&self) -> bool {
        match self {
            Wait::Blocking => true,
            Wait::Custom(strategy) => strategy.parks(),
            _ => false,
        }
    }
    fn alias(&self) -> String {
        match self {
            Wait::BusySpin => "busy-spin".into(),
            Wait::Yielding => "yielding".into(),
            Wait::Sleeping => "sleeping".into(),
            Wait::Blocking => "blocking".into(),
            Wait::Custom(strategy) => strategy.alias(),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.alias())
    }
}

/// A name that is no strategy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWait(String);

impl fmt::Display for UnknownWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no wait strategy; there are ", self.0)?;
        for (i, wait) in Wait::ALL.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            write!(f, "{wait}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownWait {}

impl FromStr for Wait {
    type Err = UnknownWait;
    fn from_str(name: &str) -> Result<Wait, UnknownWait> {
        Wait::ALL.into_iter().find(|wait| wait.alias() == name).ok_or_else(|| UnknownWait(name.into()))
    }
}

/// What a wait was.
pub(crate) struct Spell {
    /// How long it took; a wait of a few looks counts as no time, because reading the clock would take longer.
    pub(crate) time: Duration,
    /// How often the waiter slept.
    pub(crate) sleeps: u64,
}

/// Looks until `ready`, idling as the strategy says. Comes back with whether it became so before the deadline. Calls `lasts` once, if it takes more
/// than a few looks. `ready` runs no user code.
#[cold]
pub(crate) fn wait_until(
    wait: &Wait,
    crowded: bool,
    parks: bool,
    bell: &Bell,
    deadline: Option<Instant>,
    lasts: &mut dyn FnMut(),
    ready: &mut dyn FnMut() -> bool,
) -> (bool, Spell) {
    let (mut looks, mut sleeps) = (0, 0);
    let mut since = None;
    let spell = |since: Option<Instant>, sleeps| Spell { time: since.map_or(Duration::ZERO, |since| since.elapsed()), sleeps };
    loop {
        if ready() {
            return (true, spell(since, sleeps));
        }
        let idle = wait.idle(Waited { looks, crowded });
        if since.is_none() && (looks == 16 || !matches!(idle, Idle::Spin(_))) {
            since = Some(Instant::now());
            lasts();
        }
        // Reading the clock costs as much as a spin, so spinning waiters read it rarely.
        let left = match deadline {
            Some(deadline) if looks % 64 == 0 || !matches!(idle, Idle::Spin(_)) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return (ready(), spell(since, sleeps));
                }
                Some(left)
            }
            _ => None,
        };
        match idle {
            Idle::Spin(pauses) => (0..pauses.clamp(1, 1 << 16)).for_each(|_| pause()),
            Idle::Park if parks => {
                sleeps += 1;
                bell.sleep(left, ready);
            }
            Idle::Yield | Idle::Park => yield_now(),
            Idle::Sleep(time) => {
                sleeps += 1;
                sleep(left.unwrap_or(LONGEST_SLEEP).min(time).min(LONGEST_SLEEP));
            }
        }
        looks += 1;
    }
}

/// A sleeper that nobody wakes must see a close or a failure in time.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

fn pause() {
    if cfg!(slipring_loom) { yield_now() } else { spin_loop() }
}

fn sleep(time: Duration) {
    if cfg!(slipring_loom) { yield_now() } else { std::thread::sleep(time) }
}

/// How many cores this process may use; asked once.
pub(crate) fn cores() -> usize {
    static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Pauses that fill about the time after which a line that two cores fought over has come to rest; measured once per process.
///
/// See ARCHITECTURE.md ("Spacing") for why a consumer that keeps up should look less often.
pub(crate) fn spacing() -> u32 {
    if cfg!(any(slipring_loom, miri)) {
        return 0;
    }
    static PAUSES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *PAUSES.get_or_init(|| {
        const PROBE: u32 = 64;
        // The shortest of a few probes: an interrupt only ever makes one longer.
        let probe = (0..5).map(|_| {
            let begin = Instant::now();
            (0..PROBE).for_each(|_| spin_loop());
            begin.elapsed().as_nanos()
        });
        let nanos = probe.min().unwrap_or(0).max(1);
        ((SPACING.as_nanos() * u128::from(PROBE)).div_ceil(nanos)).clamp(1, 1000) as u32
    })
}

/// How long a consumer looks away after a short batch.
const SPACING: Duration = Duration::from_nanos(250);

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_alias_parses_back() {
        for wait in Wait::ALL {
            assert_eq!(wait.alias().parse::<Wait>().unwrap().alias(), wait.alias());
        }
        assert_eq!(
            "naps".parse::<Wait>().unwrap_err().to_string(),
            "`naps` is no wait strategy; there are busy-spin, yielding, sleeping, blocking"
        );
    }

    #[test]
    fn every_strategy_keeps_a_deadline() {
        for wait in Wait::ALL {
            let deadline = Instant::now() + Duration::from_millis(3);
            assert!(!wait_until(&wait, false, wait.parks(), &Bell::new(), Some(deadline), &mut || (), &mut || false).0, "{wait}");
            assert!(Instant::now() >= deadline, "{wait}");
        }
    }

    #[test]
    fn a_strategy_that_parks_without_saying_so_is_not_left_asleep() {
        #[derive(Debug)]
        struct Liar;
        impl WaitStrategy for Liar {
            fn idle(&self, _: Waited) -> Idle {
                Idle::Park
            }
            fn parks(&self) -> bool {
                false
            }
            fn alias(&self) -> String {
                "liar".into()
            }
        }
        let mut looks = 0;
        let mut ready = || {
            looks += 1;
            looks > 10
        };
        assert!(wait_until(&Wait::Custom(Arc::new(Liar)), false, false, &Bell::new(), None, &mut || (), &mut ready).0);
    }
}
