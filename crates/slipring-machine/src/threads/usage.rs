//! Processor time of threads, of this process, and of the whole machine.
//!
//! On systems other than Linux, every function here returns `None`.

use std::time::{Duration, Instant};

pub use system::{process_cpu, thread_cpu, thread_id};

/// The scheduler's account of one thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a CPU.
    pub on_core: u64,
    /// Time in which the thread was runnable and had no CPU.
    pub waiting_for_core: u64,
}

impl ThreadTimes {
    /// Reads the times of a thread of this process, given by its [`thread_id`]. Returns `None` if
    /// the system keeps no such account.
    ///
    /// ```
    /// use slipring_machine::{ThreadTimes, thread_id};
    ///
    /// if let Some(times) = thread_id().and_then(ThreadTimes::of) {
    ///     println!("waited {} ns for a CPU", times.waiting_for_core);
    /// }
    /// ```
    pub fn of(thread: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok());
        Some(Self { on_core: fields.next()??, waiting_for_core: fields.next()?? })
    }
}

/// Returns the processor time of the processes that this process has started and waited for.
fn children_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain spaces and parentheses.
    let (_, fields) = text.rsplit_once(')')?;
    // Fields 16 and 17 of proc_pid_stat(5); the first field behind the name is field 3.
    let ticks = fields.split_ascii_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * ticks))
}

/// The processor time used so far, at one moment, by the whole machine and by this process. The
/// time of this process includes that of the processes that it has started and waited for.
///
/// ```
/// use slipring_machine::MachineUsage;
///
/// let before = MachineUsage::now();
/// // ... something that takes longer than 200 ms ...
/// if let Some(cores) = before.and_then(MachineUsage::others_since) {
///     println!("other processes used {cores:.1} cores");
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MachineUsage {
    at: Instant,
    all: Duration,
    own: Duration,
}

impl MachineUsage {
    /// Reads the times used since the machine started.
    ///
    /// Example: [`MachineUsage`].
    pub fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let fields: Vec<u64> = text
            .lines()
            .next()?
            .split_ascii_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        // The first eight fields are user, nice, system, idle, waiting for a disk, two kinds of
        // interrupts, and time stolen by a hypervisor. The later fields repeat parts of these
        // times.
        let busy: u64 = fields
            .iter()
            .take(8)
            .enumerate()
            .filter(|(i, _)| ![3, 4].contains(i))
            .map(|(_, ticks)| ticks)
            .sum();
        // On every Linux of today, a tick in this file is a hundredth of a second.
        Some(Self {
            at: Instant::now(),
            all: Duration::from_millis(10 * busy),
            own: process_cpu()? + children_cpu().unwrap_or_default(),
        })
    }

    /// Returns how many cores other processes have used on average since `before`. The result has
    /// an error of about a tick per core, so it is `None` within the first 200 ms.
    ///
    /// Example: [`MachineUsage`].
    pub fn others_since(before: Self) -> Option<f64> {
        let now = Self::now().filter(|now| now.at - before.at > Duration::from_millis(200))?;
        // Some hypervisors correct the stolen time downwards, so a sum can become smaller.
        let own = now.own.saturating_sub(before.own);
        let others = now.all.saturating_sub(before.all).saturating_sub(own);
        Some(others.as_secs_f64() / (now.at - before.at).as_secs_f64())
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::time::Duration;

    use rustix::{thread, time};

    /// Returns the number that the system has given to the calling thread. Returns `None` on
    /// systems other than Linux.
    ///
    /// Example: [`ThreadTimes::of`](super::ThreadTimes::of).
    pub fn thread_id() -> Option<u32> {
        u32::try_from(thread::gettid().as_raw_nonzero().get()).ok()
    }

    /// Returns the processor time of the calling thread, in nanoseconds. Returns `None` on systems
    /// other than Linux.
    ///
    /// ```
    /// let before = slipring_machine::thread_cpu();
    /// let used = slipring_machine::thread_cpu().zip(before).map(|(after, before)| after - before);
    /// # let _ = used;
    /// ```
    pub fn thread_cpu() -> Option<u64> {
        let used = time::clock_gettime(time::ClockId::ThreadCPUTime);
        Duration::try_from(used).ok().map(|used| used.as_nanos() as u64)
    }

    /// Returns the processor time of all threads of this process. Returns `None` on systems other
    /// than Linux.
    ///
    /// ```
    /// let used = slipring_machine::process_cpu();
    /// # let _ = used;
    /// ```
    pub fn process_cpu() -> Option<Duration> {
        Duration::try_from(time::clock_gettime(time::ClockId::ProcessCPUTime)).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::Duration;

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
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_worked_is_no_other_process() {
        let before = children_cpu().unwrap();
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let done = std::process::Command::new("sh").args(["-c", work]).status().unwrap();
        assert!(done.success() && children_cpu().unwrap() > before);
    }
}
