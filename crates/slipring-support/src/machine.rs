//! A clock, cores to pin threads to, processor time of threads, and a description of the machine.
//!
//! On systems other than Linux, pinning does nothing and most readings are absent.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use system::{allowed_cores, bind, process_cpu, set_fine_timer, thread_cpu, thread_id};

/// A clock that threads share: nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    timer: system::Timer,
}

impl Clock {
    /// Starts a clock at zero.
    pub fn start() -> Self {
        Self { origin: Instant::now(), timer: system::Timer::start() }
    }

    /// Returns the nanoseconds since the start.
    pub fn ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Spins until the clock shows `at` or more, and returns the clock's time then.
    ///
    /// It leaves out the processor's spin hint: a hint makes the steps coarser, and some
    /// hypervisors take the core from a thread that hints for long.
    pub fn spin_until(&self, at: u64) -> u64 {
        loop {
            let now = self.ns();
            if now >= at {
                return now;
            }
        }
    }

    /// Sleeps until the clock shows `at`, as exactly as the system can, and returns the clock's
    /// time then.
    pub fn sleep_until(&self, at: u64) -> u64 {
        let now = self.ns();
        if now >= at {
            return now;
        }
        self.timer.sleep_until(at, Duration::from_nanos(at - now));
        self.ns()
    }

    /// Measures how long reading a clock takes, in nanoseconds: the shortest of nine tries, because
    /// an interrupt only makes a try longer.
    pub fn cost() -> f64 {
        const READINGS: u32 = 1000;
        let tries = (0..9).map(|_| {
            let clock = Self::start();
            for _ in 0..READINGS {
                std::hint::black_box(clock.ns());
            }
            clock.ns()
        });
        tries.min().unwrap_or(0) as f64 / f64::from(READINGS)
    }
}

/// The scheduler's account of one thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTimes {
    /// Time on a core.
    pub on_core: u64,
    /// Time in which the thread was runnable and had no core.
    pub waiting_for_core: u64,
}

impl ThreadTimes {
    /// Reads the times of a thread of this process, given by its [`thread_id`].
    pub fn of(thread: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        Some(Self { on_core: fields.next()??, waiting_for_core: fields.next()?? })
    }
}

/// Processor time that the whole machine and this process have used until a moment.
#[derive(Clone, Copy, Debug)]
pub struct MachineUsage {
    at: Instant,
    all: Duration,
    own: Duration,
}

impl MachineUsage {
    /// Reads the times used since the machine started.
    pub fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let fields: Vec<u64> = text
            .lines()
            .next()?
            .split_ascii_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        // User, nice, system, idle, waiting for a disk, two kinds of interrupts, and time stolen by
        // a hypervisor. The fields after these are contained in them.
        let busy: u64 = fields
            .iter()
            .take(8)
            .enumerate()
            .filter(|(i, _)| ![3, 4].contains(i))
            .map(|(_, ticks)| ticks)
            .sum();
        // A tick of this file is a hundredth of a second on every Linux of today.
        Some(Self {
            at: Instant::now(),
            all: Duration::from_millis(10 * busy),
            own: process_cpu()?,
        })
    }

    /// Returns how many cores other processes have used on average since `before`. It is right to
    /// about a tick per core, so it is absent for less than 200 ms.
    pub fn others_since(before: Self) -> Option<f64> {
        let now = Self::now().filter(|now| now.at - before.at > Duration::from_millis(200))?;
        // Some hypervisors take stolen time back, so a sum can become smaller.
        let own = now.own.saturating_sub(before.own);
        let others = now.all.saturating_sub(before.all).saturating_sub(own);
        Some(others.as_secs_f64() / (now.at - before.at).as_secs_f64())
    }
}

/// Returns how many cores this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Binds the calling thread, and threads that it starts, to one core.
pub fn pin(core: usize) {
    bind([core]);
}

/// Lets the calling thread, and threads that it starts, run on every core again.
pub fn unpin() {
    bind(0..MAX_CORES);
}

/// The number of cores that a thread's affinity can name.
const MAX_CORES: usize = 1024;

/// Two different cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CorePair {
    /// The core of the producer.
    pub producer: usize,
    /// The core of the reader that waits for the producer.
    pub waiter: usize,
}

impl CorePair {
    /// Chooses the first two cores that this process may use and that are no hyperthreads of one
    /// physical core; without such a pair, the first two.
    pub fn choose() -> Option<Self> {
        let allowed = allowed_cores();
        let (&producer, others) = allowed.split_first()?;
        let siblings = |core: usize| {
            std::fs::read_to_string(format!(
                "/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
            ))
            .ok()
        };
        let own = siblings(producer);
        let apart = others.iter().find(|&&core| own.is_none() || siblings(core) != own);
        Some(Self { producer, waiter: *apart.or(others.first())? })
    }
}

/// A description of a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Model name of the processor.
    pub cpu: Option<String>,
    /// Name and release of the operating system.
    pub kernel: Option<String>,
    /// Time that one reading of the clock takes, in nanoseconds.
    pub clock_ns: f64,
}

impl Machine {
    /// Describes the machine that this process runs on.
    pub fn this() -> Self {
        let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = about
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == "model name");
        let cpu = model.map(|(_, name)| name.trim().to_owned());
        Self { cores: cores(), cpu, kernel: system::kernel(), clock_ns: Clock::cost() }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use rustix::thread::{self, CpuSet};
    use rustix::time::{self, Timespec};

    /// The start of a clock, in the time of the system's timers.
    #[derive(Clone, Copy, Debug)]
    pub struct Timer(Timespec);

    impl Timer {
        pub fn start() -> Self {
            Self(time::clock_gettime(time::ClockId::Monotonic))
        }

        /// Sleeps until `at` nanoseconds after the start.
        pub fn sleep_until(self, at: u64, _left: Duration) {
            let at = Timespec::try_from(Duration::from_nanos(at)).ok();
            if let Some(at) = at.and_then(|at| self.0.checked_add(at)) {
                // A signal would end the sleep early; these programs send none.
                let _ = thread::clock_nanosleep_absolute(thread::ClockId::Monotonic, &at);
            }
        }
    }

    /// Makes the calling thread's sleeps end when they are due; by default Linux may end them 50 µs
    /// later.
    pub fn set_fine_timer() {
        let _ = thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    /// Binds the calling thread, and threads that it starts, to these cores. Cores that the machine
    /// does not have are ignored; where no core is left or binding is not allowed, nothing changes.
    pub fn bind(cores: impl IntoIterator<Item = usize>) {
        let mut set = CpuSet::new();
        // `CpuSet` panics on a core beyond its size.
        let cores = cores.into_iter().filter(|&core| core < CpuSet::MAX_CPU);
        cores.for_each(|core| set.set(core));
        let _ = thread::sched_setaffinity(None, &set);
    }

    /// Returns the cores that this process may use.
    pub fn allowed_cores() -> Vec<usize> {
        let set = thread::sched_getaffinity(None).unwrap_or_default();
        (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
    }

    /// Returns the system's number of the calling thread.
    pub fn thread_id() -> Option<u32> {
        u32::try_from(thread::gettid().as_raw_nonzero().get()).ok()
    }

    /// Returns the processor time of the calling thread, in nanoseconds.
    pub fn thread_cpu() -> Option<u64> {
        let used = time::clock_gettime(time::ClockId::ThreadCPUTime);
        Duration::try_from(used).ok().map(|used| used.as_nanos() as u64)
    }

    /// Returns the processor time of all threads of this process.
    pub fn process_cpu() -> Option<Duration> {
        Duration::try_from(time::clock_gettime(time::ClockId::ProcessCPUTime)).ok()
    }

    pub fn kernel() -> Option<String> {
        let name = rustix::system::uname();
        Some(format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::Duration;

    /// No state: the caller passes the length of each sleep.
    #[derive(Clone, Copy, Debug)]
    pub struct Timer;

    impl Timer {
        pub fn start() -> Self {
            Self
        }

        pub fn sleep_until(self, _at: u64, left: Duration) {
            std::thread::sleep(left);
        }
    }

    /// Does nothing on this system.
    pub fn set_fine_timer() {}

    /// Does nothing on this system.
    pub fn bind(_cores: impl IntoIterator<Item = usize>) {}

    /// Returns no cores on this system.
    pub fn allowed_cores() -> Vec<usize> {
        Vec::new()
    }

    /// Absent on this system.
    pub fn thread_id() -> Option<u32> {
        None
    }

    /// Absent on this system.
    pub fn thread_cpu() -> Option<u64> {
        None
    }

    /// Absent on this system.
    pub fn process_cpu() -> Option<Duration> {
        None
    }

    pub fn kernel() -> Option<String> {
        Some(std::env::consts::OS.to_owned())
    }
}
