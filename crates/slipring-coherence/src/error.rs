//! The ways in which a run fails, as texts that say where each thread was.
//!
//! - I1: A text has no address in it: lines have their numbers and labels.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use thiserror::Error;

use crate::costs::CostsError;

/// Why a run has no report.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// There is nothing to run.
    #[error("the simulation has no threads: add some with `thread`")]
    NoThreads,
    /// Each thread needs a core of its own.
    #[error("{threads} threads need a core each, and the topology {topology} has {cores}")]
    TooManyThreads {
        /// Threads of the simulation.
        threads: usize,
        /// Cores of the machine.
        cores: usize,
        /// The machine's topology.
        topology: crate::Topology,
    },
    /// The machine's costs make no model.
    #[error(transparent)]
    Costs(#[from] CostsError),
    /// The jitter would make latencies negative.
    #[error("a jitter of {0} percent: latencies vary by at most 100 percent")]
    Jitter(u64),
    /// A simulation within a simulation.
    #[error("a virtual thread cannot run a simulation of its own")]
    Nested,
    /// Late stores and repeatable counts need [`Lines`](crate::Lines).
    #[error(
        "the program's global allocator is not `slipring_coherence::Lines`, which a simulation \
         needs: write `#[global_allocator] static LINES: Lines = Lines;`"
    )]
    Allocator,
    /// The system refused memory for the stack of a thread.
    #[error("no stack for a virtual thread: {0}")]
    Stack(#[from] std::io::Error),
    /// All threads sleep, and no timer would wake one.
    #[error("{0}")]
    Deadlock(Deadlock),
    /// The run took longer than its [`Limit`](crate::Limit): most likely a livelock.
    #[error("{0}")]
    Limit(LimitReached),
    /// The program gave up: [`give_up`](crate::give_up).
    #[error("{0}")]
    GivenUp(String),
    /// A thread panicked.
    #[error("the virtual thread `{thread}` panicked: {message}")]
    Panicked {
        /// The thread's name.
        thread: String,
        /// The text of its panic.
        message: String,
    },
}

/// All threads sleep, and no timer would wake one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Virtual time at which the last thread went to sleep.
    pub at: Duration,
    /// The threads that sleep, by their cores.
    pub waits: Vec<Position>,
}

/// The limit that a run reached, and where its threads were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The limit, in words.
    pub limit: String,
    /// The threads that have not ended, by their cores.
    pub threads: Vec<Position>,
}

/// Where a thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The thread's name.
    pub thread: String,
    /// Number of the thread's core.
    pub core: usize,
    /// The thread's virtual time.
    pub time: Duration,
    /// The wait that the thread is in, if it sleeps.
    pub wait: Option<Wait>,
    /// The source line of the wait, or else of the thread's last access.
    pub location: &'static Location<'static>,
}

/// A sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For what the thread waits.
    pub cause: Cause,
    /// Virtual time at which the sleep began.
    pub since: Duration,
    /// Whether a timer will end the sleep.
    pub timed: bool,
}

/// For what a thread waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A futex word to change.
    Futex(Word),
    /// A mutex to be unlocked.
    Lock(Word),
    /// A condition variable to be notified.
    Condvar(Word),
    /// An unpark.
    Park,
    /// The end of a thread.
    Join(String),
    /// The end of a scope's threads.
    Scope,
    /// The time to pass.
    Sleep,
}

/// A word in memory, as a place in a numbered line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Number of the line, in the order of the first accesses.
    pub line: usize,
    /// Offset in the line, in bytes.
    pub offset: usize,
    /// The name that [`label`](crate::label) gave the line.
    pub label: Option<String>,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, byte {}", self.line, self.offset)?;
        self.label.iter().try_for_each(|label| write!(f, ", {label}"))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Futex(word) => write!(f, "a futex word ({word})"),
            Cause::Lock(word) => write!(f, "a lock ({word})"),
            Cause::Condvar(word) => write!(f, "a condition ({word})"),
            Cause::Park => f.write_str("an unpark"),
            Cause::Join(name) => write!(f, "the end of `{name}`"),
            Cause::Scope => f.write_str("the end of its scope's threads"),
            Cause::Sleep => f.write_str("the time to pass"),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on core {}", self.thread, self.core)?;
        match &self.wait {
            Some(wait) => {
                write!(f, " waits for {} since {} ns", wait.cause, wait.since.as_nanos())?;
                if wait.timed {
                    f.write_str(", with a timer")?;
                }
            }
            None => write!(f, " runs at {} ns", self.time.as_nanos())?,
        }
        write!(f, ", at {}:{}", self.location.file(), self.location.line())
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock: at {} ns all virtual threads sleep", self.at.as_nanos())?;
        self.waits.iter().try_for_each(|wait| write!(f, "\n  {wait}"))
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run reached its limit of {} (a livelock?)", self.limit)?;
        self.threads.iter().try_for_each(|thread| write!(f, "\n  {thread}"))
    }
}

/// Returns the text of a panic.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a payload that is no text".to_owned(),
    }
}
