//! Facts from the kernel: the boot, the time, processes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

/// Returns the number of this boot. Zeros: there is no `/proc`.
pub fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let mut id = [0; 16];
    if digits.len() == 32 {
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (pair[0] << 4 | pair[1]) as u8;
        }
    }
    id
}

/// Returns the time, in ns since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A process, as a participant's record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Number in its pid namespace.
    pub pid: u32,
    /// Start time, in clock ticks since the boot (0: unknown).
    pub start_time: u64,
    /// Inode of its pid namespace (0: unknown).
    pub namespace: u64,
}

/// State of a process that a record names. It proves no death: numbers are reused, and records may
/// be old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A process of that number and start time exists.
    Running,
    /// None exists, or it is a zombie.
    Gone,
    /// The process belongs to another pid namespace, or cannot be seen.
    Unknown,
}

impl Process {
    /// Returns the calling process.
    pub fn this() -> Process {
        let pid = getpid().as_raw_nonzero().get() as u32;
        let start_time = stat(pid).map_or(0, |(_, start)| start);
        Process { pid, start_time, namespace: namespace() }
    }

    /// Looks whether the process exists.
    pub fn look(&self) -> Seen {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Seen::Unknown;
        };
        if self.namespace == 0 || self.namespace != namespace() {
            return Seen::Unknown;
        }
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Seen::Gone;
        }
        match stat(self.pid) {
            Some(('Z' | 'X', _)) => Seen::Gone,
            Some((_, start)) if self.start_time != 0 && start != self.start_time => Seen::Gone,
            Some(_) => Seen::Running,
            None => Seen::Unknown,
        }
    }

    /// Returns whether the process is stopped, by a signal or a debugger, as far as this process
    /// sees.
    pub fn is_stopped(&self) -> bool {
        self.look() == Seen::Running && matches!(stat(self.pid), Some(('T' | 't', _)))
    }
}

/// Returns state and start time of a process.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses, and may have spaces and parentheses itself.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // The start time is field 22, and the state was field 3.
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the name of the running program, as far as the kernel keeps it.
pub fn program() -> String {
    fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned()
}
