//! What measurements need of the machine: a clock, cores to pin to, the processor time of threads,
//! and what kind of machine it is.
//!
//! Where the system is not Linux, what only Linux tells is absent, and pinning does nothing.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

pub use system::{allowed, finest_timer, pin, process_cpu, thread_cpu, thread_id};

/// Nanoseconds since it was started, for threads that share it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    alarm: system::Alarm,
}

impl Clock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self { origin: Instant::now(), alarm: system::Alarm::new() }
    }

    /// What it shows.
    pub fn ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Holds the core until the clock shows `at` or more, and says what it shows then.
    ///
    /// Without the processor's spin hint: it would make the steps coarser, and some hypervisors
    /// take the core from whoever hints for long.
    pub fn spin_until(&self, at: u64) -> u64 {
        loop {
            let now = self.ns();
            if now >= at {
                return now;
            }
        }
    }

    /// Sleeps until the clock shows `at`, as exactly as the system can, and says what it shows
    /// then.
    pub fn sleep_until(&self, at: u64) -> u64 {
        let now = self.ns();
        if now >= at {
            return now;
        }
        self.alarm.sleep_until(at, Duration::from_nanos(at - now));
        self.ns()
    }

    /// What reading a clock takes, in nanoseconds: the shortest of a few tries, since an interrupt
    /// only ever makes one longer.
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

/// How long a thread has run, and how long it had to wait for a core while it could have run;
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    /// On a core.
    pub on_core: u64,
    /// Kept from it by others.
    pub kept_waiting: u64,
}

/// What the system counts for a thread of this process.
pub fn ran(thread: u32) -> Option<Ran> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
    Some(Ran { on_core: fields.next()??, kept_waiting: fields.next()?? })
}

/// How busy the whole machine has been, and this process with it: two looks tell what others did in
/// between.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    at: Instant,
    all: Duration,
    own: Duration,
}

impl Busy {
    /// Since the machine started.
    pub fn look() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let fields: Vec<u64> = text
            .lines()
            .next()?
            .split_ascii_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        // User, nice, system, idle, waiting for a disk, two kinds of interrupts, stolen by a
        // hypervisor; what follows is counted already.
        let busy: u64 = fields
            .iter()
            .take(8)
            .enumerate()
            .filter(|(i, _)| ![3, 4].contains(i))
            .map(|(_, ticks)| ticks)
            .sum();
        // A tick of this file is a hundredth of a second wherever Linux runs today.
        Some(Self {
            at: Instant::now(),
            all: Duration::from_millis(10 * busy),
            own: process_cpu()?,
        })
    }

    /// What others have used since then, in cores. Right to a tick and core or so, so nothing where
    /// that is not long enough ago.
    pub fn others_since(before: Self) -> Option<f64> {
        let now = Self::look().filter(|now| now.at - before.at > Duration::from_millis(200))?;
        // Some hypervisors take stolen time back, so a sum may have become less.
        let own = now.own.saturating_sub(before.own);
        let others = now.all.saturating_sub(before.all).saturating_sub(own);
        Some(others.as_secs_f64() / (now.at - before.at).as_secs_f64())
    }
}

/// How many cores this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Two different cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Where the producer runs.
    pub producer: usize,
    /// Where the reader runs that waits for it.
    pub waiter: usize,
}

impl Pair {
    /// The first two cores that this process may use and that do not share one core of the
    /// hardware, if there are such; else the first two.
    pub fn choose() -> Option<Self> {
        let allowed = system::allowed();
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

/// What kind of machine it is.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// How many cores this process may use.
    pub cores: usize,
    /// What the processor calls itself.
    pub cpu: Option<String>,
    /// The system and its release.
    pub kernel: Option<String>,
    /// What reading the clock takes.
    pub clock_ns: f64,
}

impl Machine {
    /// This one.
    pub fn look() -> Self {
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

    /// The moment from which a clock counts, as the system's timers name it.
    #[derive(Clone, Copy, Debug)]
    pub struct Alarm(Timespec);

    impl Alarm {
        pub fn new() -> Self {
            Self(time::clock_gettime(time::ClockId::Monotonic))
        }

        pub fn sleep_until(self, at: u64, _left: Duration) {
            if let Some(at) = Timespec::try_from(Duration::from_nanos(at))
                .ok()
                .and_then(|at| self.0.checked_add(at))
            {
                // Woken by a signal it comes back early, and the event is early by as much: nobody
                // sends one.
                let _ = thread::clock_nanosleep_absolute(thread::ClockId::Monotonic, &at);
            }
        }
    }

    /// Has the calling thread's sleeps end when they are due, not up to 50 µs later.
    pub fn finest_timer() {
        let _ = thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    /// Binds the calling thread to a core. Where that is not allowed nothing happens.
    pub fn pin(core: usize) {
        // `CpuSet` panics on a core that it has no place for.
        if core < CpuSet::MAX_CPU {
            let mut set = CpuSet::new();
            set.set(core);
            let _ = thread::sched_setaffinity(None, &set);
        }
    }

    /// The cores that this process may use.
    pub fn allowed() -> Vec<usize> {
        let set = thread::sched_getaffinity(None).unwrap_or_default();
        (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
    }

    /// The number of the calling thread, to ask others about it.
    pub fn thread_id() -> Option<u32> {
        u32::try_from(thread::gettid().as_raw_nonzero().get()).ok()
    }

    /// Nanoseconds that the calling thread has run.
    pub fn thread_cpu() -> Option<u64> {
        let ran = time::clock_gettime(time::ClockId::ThreadCPUTime);
        Duration::try_from(ran).ok().map(|ran| ran.as_nanos() as u64)
    }

    /// How long the threads of this process have run, together.
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

    /// Nothing: a sleep is as long as it has to be from now on.
    #[derive(Clone, Copy, Debug)]
    pub struct Alarm;

    impl Alarm {
        pub fn new() -> Self {
            Self
        }

        pub fn sleep_until(self, _at: u64, left: Duration) {
            std::thread::sleep(left);
        }
    }

    /// Nothing.
    pub fn finest_timer() {}

    /// Nothing.
    pub fn pin(_core: usize) {}

    /// None that could be named.
    pub fn allowed() -> Vec<usize> {
        Vec::new()
    }

    /// Unknown.
    pub fn thread_id() -> Option<u32> {
        None
    }

    /// Unknown.
    pub fn thread_cpu() -> Option<u64> {
        None
    }

    /// Unknown.
    pub fn process_cpu() -> Option<Duration> {
        None
    }

    pub fn kernel() -> Option<String> {
        Some(std::env::consts::OS.to_owned())
    }
}
