//! Services of the operating system that the standard library does not offer: membarrier, sharp
//! timers, CPU time, CPU affinity, and huge pages.
//!
//! Each service is optional, and its callers also work without it. A service is absent if the
//! system lacks it or a sandbox refuses it. All services are absent under Miri and in models. The
//! simulator of cache coherence has a membarrier, futexes and clocks.
//!
//! Invariants
//! - I1: this process loads and stores a state word as a whole. A reference to half of it goes only
//!   to the kernel, or to the simulator in its place, which loads the half and stores nothing.
//! - I2: advice for a range of memory changes none of its bytes.

use std::ptr::NonNull;
use std::time::Duration;

use crate::base::core_set::CoreSet;
use crate::base::sync::AtomicU64;

#[cfg(all(target_os = "linux", not(any(miri, slipring_loom, slipring_coherence))))]
mod chosen {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::ptr::NonNull;
    use std::sync::OnceLock;
    use std::time::Duration;

    use rustix::mm;
    use rustix::thread::{self, MembarrierCommand, futex};
    use rustix::time::{ClockId, Timespec, clock_gettime};

    use crate::base::core_set::CoreSet;
    use crate::base::sync::{AtomicU32, AtomicU64};

    pub(crate) fn membarrier_available() -> bool {
        static AVAILABLE: OnceLock<bool> = OnceLock::new();
        *AVAILABLE.get_or_init(|| {
            thread::membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
                && thread::membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        })
    }

    pub(crate) fn membarrier() -> bool {
        let barrier = || thread::membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // After a fork, the child process must register for membarrier again.
        barrier()
            || (thread::membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && barrier())
    }

    pub(crate) fn register_for_barriers_of_processes() -> bool {
        thread::membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && thread::membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    }

    pub(crate) fn membarrier_in_processes() -> bool {
        thread::membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    }

    /// Returns the high half of a state word, for the kernel.
    fn epoch_half(word: &AtomicU64) -> &AtomicU32 {
        let halves: *const AtomicU32 = std::ptr::from_ref(word).cast();
        let high = if cfg!(target_endian = "little") { 1 } else { 0 };
        // SAFETY: the half lies inside of the word, and lives as long as the word. Only the kernel
        // loads it (I1).
        unsafe { &*halves.add(high) }
    }

    pub(crate) fn futex_wait(word: &AtomicU64, epoch: u32, limit: Duration) {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // Each error ends the sleep, and the caller polls again.
        let _ = futex::wait(epoch_half(word), futex::Flags::empty(), epoch, Some(&limit));
    }

    pub(crate) fn futex_wake_all(word: &AtomicU64) {
        let _ = futex::wake(epoch_half(word), futex::Flags::empty(), i32::MAX as u32);
    }

    pub(crate) fn monotonic_nanos() -> u64 {
        nanos(clock_gettime(ClockId::Monotonic))
    }

    fn nanos(time: Timespec) -> u64 {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    }

    thread_local! {
        /// Whether [`sharpen_timers`] was called on this thread.
        static SHARP: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn sharpen_timers() {
        if !SHARP.replace(true) {
            // If the system refuses the call of prctl(2), the thread's timers keep their slack.
            let _ = thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        }
    }

    pub(crate) fn coarse_nanos() -> u64 {
        nanos(clock_gettime(ClockId::MonotonicCoarse))
    }

    pub(crate) fn cpu_time() -> Option<Duration> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
    }

    pub(crate) unsafe fn advise_huge_pages(begin: NonNull<u8>, bytes: usize) {
        // SAFETY: the range is the caller's, and keeps its content (I2).
        let _ = unsafe { mm::madvise(begin.as_ptr().cast(), bytes, mm::Advice::LinuxHugepage) };
    }

    pub(crate) fn thread_id() -> u32 {
        thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    pub(crate) fn cores_of(thread: u32) -> Option<CoreSet> {
        let thread = thread::Pid::from_raw(i32::try_from(thread).ok()?)?;
        let cores = thread::sched_getaffinity(Some(thread)).ok()?;
        let set = (0..thread::CpuSet::MAX_CPU).filter(|&core| cores.is_set(core));
        Some(set.take(cores.count() as usize).collect())
    }
}

#[cfg(slipring_coherence)]
mod chosen {
    use std::ptr::NonNull;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    use slipring_coherence::sync::{self, virtual_nanos};

    use crate::base::core_set::CoreSet;
    use crate::base::sync::{AtomicU32, AtomicU64, now};

    /// The interval between two ticks of the coarse clock, in nanoseconds.
    const TICK: u64 = 4_000_000;

    pub(crate) fn membarrier_available() -> bool {
        slipring_coherence::has_membarrier()
    }
    pub(crate) fn membarrier() -> bool {
        if membarrier_available() {
            slipring_coherence::membarrier();
        }
        membarrier_available()
    }
    pub(crate) fn register_for_barriers_of_processes() -> bool {
        membarrier_available()
    }
    pub(crate) fn membarrier_in_processes() -> bool {
        membarrier()
    }

    /// Returns the high half of a state word, for the simulator's futex.
    fn epoch_half(word: &AtomicU64) -> &AtomicU32 {
        let high = if cfg!(target_endian = "little") { 1 } else { 0 };
        // SAFETY: the half lies inside of the word, and lives as long as the word. The simulator's
        // futex loads it, and stores nothing (I1).
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast::<u32>().add(high)) }
    }
    #[track_caller]
    pub(crate) fn futex_wait(word: &AtomicU64, epoch: u32, limit: Duration) {
        sync::futex_wait(epoch_half(word), epoch, Some(limit));
    }
    pub(crate) fn futex_wake_all(word: &AtomicU64) {
        sync::futex_wake_all(epoch_half(word));
    }

    /// Returns the nanoseconds since the first reading outside of simulations.
    fn real_nanos() -> u64 {
        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        FIRST.elapsed().as_nanos() as u64
    }

    pub(crate) fn monotonic_nanos() -> u64 {
        now(); // takes the time of a reading
        virtual_nanos().unwrap_or_else(real_nanos)
    }
    pub(crate) fn coarse_nanos() -> u64 {
        virtual_nanos().unwrap_or_else(real_nanos) / TICK * TICK
    }
    pub(crate) fn sharpen_timers() {}
    pub(crate) fn cpu_time() -> Option<Duration> {
        None
    }
    pub(crate) unsafe fn advise_huge_pages(_: NonNull<u8>, _: usize) {}
    pub(crate) fn thread_id() -> u32 {
        1
    }
    pub(crate) fn cores_of(_: u32) -> Option<CoreSet> {
        None
    }
}

#[cfg(not(any(all(target_os = "linux", not(any(miri, slipring_loom))), slipring_coherence)))]
mod chosen {
    use std::ptr::NonNull;
    use std::time::Duration;

    use crate::base::core_set::CoreSet;
    #[cfg(not(all(test, slipring_loom)))]
    use crate::base::sync::AtomicU64;

    pub(crate) fn membarrier_available() -> bool {
        false
    }
    pub(crate) fn membarrier() -> bool {
        false
    }
    pub(crate) fn register_for_barriers_of_processes() -> bool {
        false
    }
    pub(crate) fn membarrier_in_processes() -> bool {
        false
    }
    #[cfg(all(test, slipring_loom))]
    pub(super) use crate::base::model_hooks::{futex_wait, futex_wake_all};
    #[cfg(not(all(test, slipring_loom)))]
    pub(crate) fn futex_wait(_: &AtomicU64, _: u32, limit: Duration) {
        std::thread::sleep(limit.min(Duration::from_millis(1)));
    }
    #[cfg(not(all(test, slipring_loom)))]
    pub(crate) fn futex_wake_all(_: &AtomicU64) {}

    pub(crate) fn monotonic_nanos() -> u64 {
        use std::sync::LazyLock;
        use std::time::Instant;
        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        FIRST.elapsed().as_nanos() as u64
    }
    pub(crate) fn coarse_nanos() -> u64 {
        monotonic_nanos()
    }
    pub(crate) fn sharpen_timers() {}
    pub(crate) fn cpu_time() -> Option<Duration> {
        None
    }
    pub(crate) unsafe fn advise_huge_pages(_: NonNull<u8>, _: usize) {}
    pub(crate) fn thread_id() -> u32 {
        1
    }
    pub(crate) fn cores_of(_: u32) -> Option<CoreSet> {
        None
    }
}

/// Returns the nanoseconds of a clock that never goes back. On Linux, this clock advances in ticks
/// of 1 to 10 ms (`CLOCK_MONOTONIC_COARSE` of clock_gettime(2)). Reading it takes a third as long
/// as reading an exact clock, and does not hold up the processor's other instructions. On other
/// systems the clock is exact.
pub(crate) fn coarse_nanos() -> u64 {
    chosen::coarse_nanos()
}

/// Returns whether [`membarrier`] is available. The first call registers the process for
/// membarrier.
pub(crate) fn membarrier_available() -> bool {
    chosen::membarrier_available()
}

/// Executes a full memory barrier in every thread of this process before it returns. Returns
/// `false` if the system refused the barrier; then no thread executed a barrier.
///
/// The system call is membarrier(2) with `PRIVATE_EXPEDITED`. A membarrier interrupts each core on
/// which a thread of the process runs.
pub(crate) fn membarrier() -> bool {
    #[cfg(test)]
    if BARRIER_OMITTED.get() {
        return true;
    }
    chosen::membarrier()
}

/// Registers this process for [`membarrier_in_processes`]. Returns `false` if the system refuses
/// the registration; the process must then execute a fence wherever other processes rely on such a
/// barrier. Each call registers anew, because exec(2) drops the registration. Costs up to some
/// milliseconds in a process of several threads.
pub(crate) fn register_for_barriers_of_processes() -> bool {
    chosen::register_for_barriers_of_processes()
}

/// Executes a full memory barrier in every thread of every registered process of this machine
/// before it returns. Returns `false` if the system refused the barrier.
///
/// The system call is membarrier(2) with `GLOBAL_EXPEDITED`. It interrupts each core on which a
/// registered process runs.
pub(crate) fn membarrier_in_processes() -> bool {
    #[cfg(test)]
    if BARRIER_OMITTED.get() {
        return true;
    }
    chosen::membarrier_in_processes()
}

/// Sleeps while the high half of `word` is `epoch`, at most for `limit`. Other processes may end
/// the sleep by [`futex_wake_all`]. A sleep can end early.
#[cfg_attr(slipring_coherence, track_caller)]
pub(crate) fn futex_wait(word: &AtomicU64, epoch: u32, limit: Duration) {
    chosen::futex_wait(word, epoch, limit);
}

/// Wakes all threads of all processes that sleep at the high half of `word`.
pub(crate) fn futex_wake_all(word: &AtomicU64) {
    chosen::futex_wake_all(word);
}

/// Returns the time of the clock that all processes of the machine share, in nanoseconds. Processes
/// in different time namespaces see different times.
pub(crate) fn monotonic_nanos() -> u64 {
    chosen::monotonic_nanos()
}

#[cfg(test)]
thread_local! {
    /// Whether this thread omits its barriers. A test does so to show that they are needed.
    pub(crate) static BARRIER_OMITTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes this thread's timers as exact as the system can, for the rest of the thread's life. By
/// default Linux may fire a timer up to 50 µs late, so that one wake-up serves several timers
/// (prctl(2), `PR_SET_TIMERSLACK`). Restoring the default timer slack after each sleep would take
/// two more system calls per sleep.
pub(crate) fn sharpen_timers() {
    chosen::sharpen_timers();
}

/// Returns the CPU time of this thread, if the system measures it. Costs a system call: a few
/// hundred nanoseconds, on some machines more than a microsecond.
pub(crate) fn cpu_time() -> Option<Duration> {
    chosen::cpu_time()
}

/// Asks for huge pages under a range of memory. The system may grant them or not; the range's
/// content stays as it is (madvise(2), `MADV_HUGEPAGE`).
///
/// # Safety
/// The range is allocated memory that belongs to the caller, and `begin` is a multiple of the page
/// size.
pub(crate) unsafe fn advise_huge_pages(begin: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { chosen::advise_huge_pages(begin, bytes) }
}

/// Returns the number by which the system knows this thread, which is not 0. Costs a system call,
/// because a forked child's thread has another number than the thread that forked. Where the system
/// does not say on which cores a thread may run, the number is the same for all threads.
pub(crate) fn thread_id() -> u32 {
    #[cfg(test)]
    if let Some(thread) = PLAYED.get() {
        return thread;
    }
    chosen::thread_id()
}

#[cfg(test)]
thread_local! {
    /// The thread that this thread plays. A test does so to have threads of a larger machine.
    pub(crate) static PLAYED: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
    /// Returns the cores of the threads that this thread may play.
    pub(crate) static PLAYED_CORES: std::cell::RefCell<std::collections::BTreeMap<u32, CoreSet>> =
        const { std::cell::RefCell::new(std::collections::BTreeMap::new()) };
}

/// Returns the cores on which a thread of this machine may run. Returns `None` if there is no such
/// thread, or if the system gives no answer. Costs a system call, some hundred nanoseconds.
pub(crate) fn cores_of(thread: u32) -> Option<CoreSet> {
    #[cfg(test)]
    if PLAYED.get().is_some() {
        return PLAYED_CORES.with_borrow(|cores| cores.get(&thread).copied());
    }
    chosen::cores_of(thread)
}
