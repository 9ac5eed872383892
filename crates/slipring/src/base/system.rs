//! What is asked of the operating system beside threads, locks and clocks: a barrier in other
//! threads, sharper timers, where a thread may run.
//!
//! All of it is optional. Where the system does not have it, or refuses (a sandbox may), or under a
//! checker that does not know it, the answer is that there is none, and whoever asked does without.

use std::time::Duration;

#[cfg(all(target_os = "linux", not(miri), not(slipring_loom)))]
mod chosen {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::sync::OnceLock;
    use std::time::Duration;

    use rustix::thread::{self, MembarrierCommand};
    use rustix::time::{ClockId, clock_gettime};

    pub(crate) fn membarrier_available() -> bool {
        static CAN: OnceLock<bool> = OnceLock::new();
        *CAN.get_or_init(|| {
            thread::membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
                && thread::membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        })
    }

    pub(crate) fn membarrier() -> bool {
        let bar = || thread::membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // A child process after a fork may have to ask anew.
        bar() || (thread::membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && bar())
    }

    thread_local! {
        /// This thread's timers are sharp for good.
        static SHARP: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn sharpen_timers() {
        if !SHARP.replace(true) {
            // A thread that may not have it has its timers as they are.
            let _ = thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        }
    }

    pub(crate) fn cpu_time() -> Option<Duration> {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
    }

    pub(crate) fn only_core() -> Option<usize> {
        let cores = thread::sched_getaffinity(None).ok()?;
        let mut allowed = (0..thread::CpuSet::MAX_CPU).filter(|&core| cores.is_set(core));
        let first = allowed.next()?;
        allowed.next().is_none().then_some(first)
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(slipring_loom))))]
mod chosen {
    use std::time::Duration;

    pub(crate) fn membarrier_available() -> bool {
        false
    }
    pub(crate) fn membarrier() -> bool {
        false
    }
    pub(crate) fn sharpen_timers() {}
    pub(crate) fn cpu_time() -> Option<Duration> {
        None
    }
    pub(crate) fn only_core() -> Option<usize> {
        None
    }
}

/// Whether [`membarrier`] may be relied on. Asked once per process, and asks the system for it.
pub(crate) fn membarrier_available() -> bool {
    chosen::membarrier_available()
}

/// Every thread of this process has passed a full memory barrier between the beginning and the end
/// of this call; `false`: it was refused, and none has. membarrier(2), `PRIVATE_EXPEDITED`: an
/// interrupt to each core on which one runs.
pub(crate) fn membarrier() -> bool {
    #[cfg(test)]
    if BARRIER_LEFT_OUT.get() {
        return true;
    }
    chosen::membarrier()
}

#[cfg(test)]
thread_local! {
    /// Whether this thread's barriers are left out, for a test that must notice.
    pub(crate) static BARRIER_LEFT_OUT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Has this thread's timers go off when they are to, from now on: as a rule Linux lets them be 50
/// µs late, to save wake-ups (prctl(2), `PR_SET_TIMERSLACK`). It stays so: to go back after each
/// sleep would take two system calls more.
pub(crate) fn sharpen_timers() {
    chosen::sharpen_timers();
}

/// The time that this thread has spent on a core. A system call: some hundred nanoseconds, on some
/// machines more than one microsecond.
pub(crate) fn cpu_time() -> Option<Duration> {
    chosen::cpu_time()
}

/// The only core on which this thread may run, if it is bound to one.
pub(crate) fn only_core() -> Option<usize> {
    chosen::only_core()
}
