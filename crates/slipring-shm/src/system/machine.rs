//! Facts from the kernel about the boot, the time and processes.
//!
//! Invariants
//! - I1: nothing here proves a death. Only a byte lock does (I1 of `lock`).
//! - I2: a [`Pinned`] process is the recorded one. First its pidfd was opened, then the start time
//!   of the process with its pid was read, and after that the pinned process had not ended yet. The
//!   start time is the recorded one.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal, test_kill_process,
};

/// Returns the number of this boot, or `None` if `/proc` is missing or does not show it. If the
/// call fails, a later call may succeed.
pub fn boot_id() -> io::Result<Option<[u8; 16]>> {
    let text = match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(text) => text,
        Err(error) => return if is_hidden(&error) { Ok(None) } else { Err(error) },
    };
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    Ok(Some(id).filter(|id| digits.len() == 32 && *id != [0; 16]))
}

/// Returns whether `error`, from reading a file of `/proc`, means that this process can never see
/// that file. Other errors, such as a lack of descriptors, may be temporary.
fn is_hidden(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// Returns the time, in ns since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A process, as a participant's record names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Pid of the process, in its own pid namespace.
    pub pid: u32,
    /// Start time, in clock ticks since the boot (0: unknown).
    pub start_time: u64,
    /// Inode of the process's pid namespace (0: unknown).
    pub namespace: u64,
}

/// State of a process that a record names. It does not prove a death, because pids are reused, and
/// records may be old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// A process with that pid and start time exists.
    Running,
    /// No such process exists, or it is a zombie.
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

    /// Returns whether this is the calling process. If a start time is unknown, pid and namespace
    /// are enough, because no other living process of the namespace has the same pid.
    pub(crate) fn is_this(&self) -> bool {
        let own = Process::this();
        let differ = self.start_time != own.start_time;
        let known = self.start_time != 0 && own.start_time != 0;
        (self.pid, self.namespace) == (own.pid, own.namespace) && !(differ && known)
    }

    /// Returns whether the process still exists, as far as the calling process can see.
    pub fn look(&self) -> ProcessState {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return ProcessState::Unknown;
        };
        if self.namespace == 0 || self.namespace != namespace() {
            return ProcessState::Unknown;
        }
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return ProcessState::Gone;
        }
        match stat(self.pid) {
            Ok(('Z' | 'X', _)) => ProcessState::Gone,
            Ok((_, start)) if self.start_time != 0 && start != self.start_time => {
                ProcessState::Gone
            }
            Ok(_) => ProcessState::Running,
            Err(_) => ProcessState::Unknown,
        }
    }

    /// Returns whether the process is stopped, by a signal or a debugger, as far as the calling
    /// process can see.
    pub fn is_stopped(&self) -> bool {
        self.look() == ProcessState::Running && matches!(stat(self.pid), Ok(('T' | 't', _)))
    }
}

/// A process that is held by a descriptor (pidfd), which never refers to a later process with the
/// same pid.
#[derive(Debug)]
pub(crate) struct Pinned(OwnedFd);

/// Reason why a process was not pinned.
#[derive(Debug)]
pub(crate) enum Unpinned {
    /// The process belongs to another pid namespace.
    OtherNamespace,
    /// The process cannot be identified, because its record or `/proc` lacks its start time or pid
    /// namespace.
    Unidentified,
    /// The process has ended. Another process may now have its pid.
    Gone,
    /// The system has no pidfds.
    Unsupported,
    /// The system refused a step.
    System(&'static str, io::Error),
}

impl Process {
    /// Opens a pidfd. Then checks by the start time that the pidfd refers to the recorded process,
    /// and not to a later process with the same pid.
    pub(crate) fn pin(&self) -> Result<Pinned, Unpinned> {
        let here = namespace();
        if self.namespace == 0 || self.start_time == 0 || here == 0 {
            return Err(Unpinned::Unidentified);
        }
        if self.namespace != here {
            return Err(Unpinned::OtherNamespace);
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pinned = match pidfd_open(pid.ok_or(Unpinned::Gone)?, PidfdFlags::empty()) {
            Ok(fd) => Pinned(fd),
            // INVAL and NOENT mean that the number now belongs to a thread, and no longer to a
            // process.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Err(Unpinned::Gone),
            Err(Errno::NOSYS) => return Err(Unpinned::Unsupported),
            Err(error) => return Err(Unpinned::System("opening a pidfd", error.into())),
        };
        let started = stat(self.pid).map(|(_, start)| start);
        // No other process gets the same pid until the pinned process has ended. So if it has not
        // ended yet, the start time that was read is that of the pinned process.
        let asking = |error| Unpinned::System("asking whether the process has ended", error);
        if pinned.has_ended().map_err(asking)? {
            return Err(Unpinned::Gone);
        }
        match started {
            Ok(start) if start == self.start_time => Ok(pinned),
            Ok(_) => Err(Unpinned::Gone),
            Err(error) if is_hidden(&error) => Err(Unpinned::Unidentified),
            Err(error) => Err(Unpinned::System("reading the start time of the process", error)),
        }
    }
}

impl Pinned {
    /// Sends SIGKILL to the process. If the process has already ended, the call succeeds, too.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether all threads of the process have ended. The process may still be a zombie.
    pub(crate) fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&Timespec::default())) {
                Ok(ready) => return Ok(ready != 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the state of a process, and its start time.
fn stat(pid: u32) -> io::Result<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let parse = || {
        // The program's name stands in parentheses, and may itself contain spaces and parentheses.
        let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // The state was field 3 of the line. The start time is field 22, so 18 fields lie between
        // the two.
        Some((state, fields.nth(18)?.parse().ok()?))
    };
    parse().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the name of the running program, which the kernel may have shortened. If `/proc` does
/// not show it, returns the file name by which the program was called.
pub fn program() -> String {
    if let Ok(name) = fs::read_to_string("/proc/self/comm") {
        return name.trim_end().to_owned();
    }
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name();
    name.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}
