//! The atomics, locks and threads that a program imports in place of the standard library's.
//!
//! While a [simulation](crate::Simulation) runs on the calling system thread, each function works
//! on its virtual core and in virtual time. Outside of one, it does what the standard library's
//! function of this name does, so a structure can be built before a run and read after it.
//!
//! - I1: A word keeps its value across the border: the simulation's stores have all been made when
//!   a run ends well. A lock that is taken when a run begins stays so.
//!
//! ```
//! use slipring_coherence::sync::{AtomicU64, Ordering};
//!
//! let count = AtomicU64::new(1);
//! count.fetch_add(1, Ordering::Relaxed);
//! assert_eq!(count.load(Ordering::Relaxed), 2);
//! ```

mod atomics;
mod futex;
mod local;
mod lock;
mod spawn;
mod thread;

use std::panic::Location;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use atomics::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8,
    AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
pub use futex::{futex_wait, futex_wake, futex_wake_all};
pub use local::{CoreLocal, Payload};
pub use lock::{
    Condvar, LockResult, Mutex, MutexGuard, PoisonError, TryLockError, TryLockResult,
    WaitTimeoutResult,
};
pub use spawn::{Builder, JoinHandle, Scope, ScopedJoinHandle, scope, spawn};
pub use thread::{Panics, Thread, ThreadId, current, panicking, park, park_timeout};

use crate::{access, waiting};

/// Tells the core that the calling thread spins.
///
/// ```
/// slipring_coherence::sync::spin_loop();
/// ```
#[inline]
#[track_caller]
pub fn spin_loop() {
    if !access::pause(Location::caller()) {
        std::hint::spin_loop();
    }
}

/// Yields to the system. In a simulation no other thread wants the core, so only time passes.
///
/// ```
/// slipring_coherence::sync::yield_now();
/// ```
#[track_caller]
pub fn yield_now() {
    if !access::yield_now(Location::caller()) {
        std::thread::yield_now();
    }
}

/// Sleeps.
///
/// ```
/// use slipring_coherence::sync;
/// use std::time::Duration;
///
/// let began = sync::now();
/// sync::sleep(Duration::from_micros(1));
/// assert!(sync::now() - began >= Duration::from_micros(1));
/// ```
#[track_caller]
pub fn sleep(time: Duration) {
    if !waiting::sleep(time, Location::caller()) {
        std::thread::sleep(time);
    }
}

/// Reads the clock: that of the virtual core, or the real one.
///
/// A reading within a run is earlier than all readings outside of it. So the age of a structure
/// that was built before the run is zero within it, in every run.
///
/// ```
/// use slipring_coherence::sync;
///
/// let began = sync::now();
/// assert!(sync::now() >= began);
/// ```
#[track_caller]
pub fn now() -> Instant {
    // A run needs the epoch to be before all other readings.
    let epoch = epoch();
    match access::read_clock(Location::caller()) {
        Some(picos) => epoch + Duration::from_nanos(picos / 1_000),
        None => Instant::now(),
    }
}

/// Returns the virtual nanoseconds since the start of the run, or `None` outside of one. Costs
/// nothing, unlike [`now`].
///
/// ```
/// assert_eq!(slipring_coherence::sync::virtual_nanos(), None);
/// ```
pub fn virtual_nanos() -> Option<u64> {
    access::clock().map(|picos| picos / 1_000)
}

/// Returns the number of cores: those of the simulated machine, or the real one's.
///
/// ```
/// assert!(slipring_coherence::sync::available_parallelism() >= 1);
/// ```
pub fn available_parallelism() -> usize {
    waiting::cores().unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into))
}

/// The instant at which each virtual clock is zero: a day before the first reading, where the
/// system's clock goes back that far.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_secs(86_400)).unwrap_or(now)
    })
}
