//! The task of a process: its role, the work of the run, and its relation to the measuring process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contenders::StreamSpec;

/// Name of the environment variable that holds a process's task.
pub const TASK: &str = "SLIPRING_PEERS_TASK";
/// Name of the environment variable with which a test names the role that kills itself at its
/// start.
const DIES: &str = "SLIPRING_PEERS_DIES";

/// Result of a role or of a run.
pub type RoleResult<T> = Result<T, Box<dyn std::error::Error>>;

/// A process's part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Sends events, on core 0.
    Writer,
    /// Receives events, on core 1.
    Reader,
    /// Takes a dead reader's place.
    Successor,
    /// Sends events beside the writer.
    SecondWriter,
    /// Waits at a tap before the stream begins.
    Sleeper,
    /// Plays the writers and the reader in one process, each on its own thread.
    Threads,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Writer => "writer",
            Role::Reader => "reader",
            Role::Successor => "successor",
            Role::SecondWriter => "second writer",
            Role::Sleeper => "sleeper",
            Role::Threads => "run",
        }
    }
}

/// The fate of the tap's reader before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    Leaves,
    Killed,
}

/// The work of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Work {
    /// A stream in one direction.
    Stream(StreamSpec),
    /// Streams from two writers to one reader, with all of them on two cores.
    FanIn(StreamSpec),
    /// Round trips of one event through two rings.
    RoundTrip { rounds: usize },
    /// Each event is sent to a reader that is asleep.
    Wake { rounds: usize },
    /// A reader whose only event comes after `time`.
    Idle { time: Duration },
    /// The reader is killed while the writer waits for it.
    Death { successor: bool },
    /// A stream that begins after a tap's reader has left or was killed.
    Sleeper { spec: StreamSpec, fate: Fate },
}

impl Work {
    /// Returns the capacity of each ring, in events.
    pub fn ring(&self) -> usize {
        match self {
            Work::Stream(spec) | Work::FanIn(spec) | Work::Sleeper { spec, .. } => spec.ring,
            Work::RoundTrip { .. } | Work::Wake { .. } | Work::Idle { .. } => 1024,
            Work::Death { .. } => 64,
        }
    }
    /// Returns the roles of a run without deaths.
    pub fn roles(&self) -> &'static [Role] {
        match self {
            Work::FanIn(_) => &[Role::Reader, Role::Writer, Role::SecondWriter],
            _ => &[Role::Reader, Role::Writer],
        }
    }
    /// Returns the number of roles that write.
    pub fn writers(&self) -> u32 {
        if let Work::FanIn(_) = self { 2 } else { 1 }
    }
    /// Returns the number of events in a publication.
    pub fn batch(&self) -> usize {
        if let Work::Stream(spec) = self { spec.batch as usize } else { 1 }
    }
}

/// The task of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    pub role: Role,
    /// Name of the link, as in [`links::ends`](super::links::ends).
    pub link: String,
    /// Bytes of an event.
    pub bytes: usize,
    pub work: Work,
    /// Time within which slipring notices a dead process, in milliseconds.
    pub notice_ms: u64,
    /// Folder of the run, in shared memory.
    pub folder: PathBuf,
    /// The measuring process.
    pub parent: u32,
}

/// Returns the task of this process, if the measuring process has started it for a role.
pub fn own_task() -> Option<RoleResult<Task>> {
    let task = std::env::var(TASK).ok()?;
    Some(serde_json::from_str(&task).map_err(Into::into))
}

/// Makes the kernel kill this process when the measuring process ends. In a test, kills the process
/// now if its role is the one that dies.
pub fn bind_to_parent(task: &Task) -> RoleResult<()> {
    use rustix::process::*;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid().map(|pid| pid.as_raw_nonzero().get() as u32) != Some(task.parent) {
        return Err("the measuring process has ended".into());
    }
    if std::env::var(DIES).is_ok_and(|role| role == task.role.name()) {
        kill_process(getpid(), Signal::KILL)?;
    }
    Ok(())
}

/// Returns the time of a clock that all processes share, in nanoseconds.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the prefix of the names that iceoryx2 gives its files in shared memory for a run.
pub fn iceoryx_prefix(folder: &Path) -> String {
    format!("{}_", folder.file_name().unwrap_or_default().to_string_lossy())
}
