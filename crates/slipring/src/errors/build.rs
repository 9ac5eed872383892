//! Why a graph could not be built.

use std::error::Error as StdError;
use std::fmt;

use crate::base::name::PRODUCER;

/// The most workers, shards or readers that one stage can have room for at a time: 65,536. It
/// bounds what a number given by mistake can cost.
pub const MAX_STAGE_HANDLES: usize = 1 << 16;

/// Why a graph could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The capacity is zero or not a power of two.
    Capacity {
        /// What was asked for.
        asked: usize,
    },
    /// So many slots do not fit into this machine's memory; or so many lines of 128 bytes, of which
    /// each worker, shard, reader and stage takes a few.
    Memory {
        /// Slots asked for.
        capacity: usize,
        /// Bytes a slot takes.
        bytes_per_slot: usize,
    },
    /// The factory panicked while making this event.
    Factory {
        /// Index of the event, from 0.
        index: usize,
        /// The panic's message.
        panic: String,
    },
    /// A worker's factory panicked.
    WorkerFactory {
        /// The pool.
        stage: String,
        /// Index of the worker, from 0.
        worker: usize,
        /// The panic's message.
        panic: String,
    },
    /// A waiting strategy panicked when the build asked it how it waits.
    Strategy {
        /// The panic's message.
        panic: String,
    },
    /// A stage (or a thread) needs a name that is not empty, has no zero byte, and is not
    /// [`PRODUCER`].
    Name {
        /// What was given.
        given: String,
    },
    /// Two stages have the same name.
    Twice {
        /// That name.
        stage: String,
    },
    /// A pool (or a stage of shards) needs at least one worker, and no more than the ring has
    /// slots, nor than [`MAX_STAGE_HANDLES`](crate::MAX_STAGE_HANDLES).
    Workers {
        /// The pool.
        stage: String,
        /// What was asked for.
        asked: usize,
        /// What the ring has.
        capacity: usize,
    },
    /// The soundness rule: a stage that may write must come before or after every other stage, and
    /// these two stand side by side.
    SideBySide {
        /// The stage that may write.
        writer: String,
        /// The other one.
        other: String,
    },
    /// These stages wait for each other.
    Cycle {
        /// One stage of the cycle.
        stage: String,
    },
    /// A stage was put after a stage of another graph.
    Foreign {
        /// The stage that follows.
        stage: String,
        /// What it was to follow.
        after: String,
    },
    /// A key was dropped before the graph was built, so nobody could ever attach to this stage.
    Abandoned {
        /// That stage.
        stage: String,
    },
    /// A setting that must come before the first stage (or applies to the last stage) stood where
    /// it has no meaning.
    Misplaced {
        /// The setting and what to do.
        what: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Capacity { asked: 0 } => {
                f.write_str("a ring needs at least one slot: capacity 0 was asked for")
            }
            BuildError::Capacity { asked } => {
                write!(f, "the capacity must be a power of two, and {asked} is not; ")?;
                match asked.checked_next_power_of_two() {
                    Some(next) => write!(f, "the next ones are {} and {next}", next / 2),
                    None => f.write_str("it is larger than any that this machine can count"),
                }
            }
            BuildError::Memory { capacity, bytes_per_slot } => {
                write!(
                    f,
                    "no memory for {capacity} slots of {bytes_per_slot} bytes; ask for a smaller capacity or for smaller events"
                )
            }
            BuildError::Factory { index, panic } => {
                write!(f, "the factory of events panicked at event {index}: {panic}")
            }
            BuildError::Strategy { panic } => {
                write!(f, "a waiting strategy panicked when it was asked how it waits: {panic}")
            }
            BuildError::WorkerFactory { stage, worker, panic } => {
                write!(f, "the factory of pool `{stage}` panicked at worker {worker}: {panic}")
            }
            BuildError::Name { given } => {
                write!(
                    f,
                    "{given:?} cannot name a stage or a thread: no empty name, no zero byte, and `{PRODUCER}` is taken"
                )
            }
            BuildError::Twice { stage } => {
                write!(f, "two stages are named `{stage}`; a report could not tell them apart")
            }
            BuildError::Workers { stage, asked, capacity } => {
                write!(
                    f,
                    "pool `{stage}` cannot have {asked} workers: a ring of {capacity} slots serves 1 to {}",
                    MAX_STAGE_HANDLES.min(*capacity)
                )
            }
            BuildError::SideBySide { writer, other } => write!(
                f,
                "stage `{writer}` may write and stands beside `{other}`: let one follow the other (`after`), or let `{writer}` only read"
            ),
            BuildError::Cycle { stage } => {
                write!(f, "stage `{stage}` waits for itself, through the stages it comes after")
            }
            BuildError::Foreign { stage, after } => {
                write!(
                    f,
                    "stage `{stage}` cannot come after `{after}`, which belongs to another graph"
                )
            }
            BuildError::Abandoned { stage } => write!(
                f,
                "the key of stage `{stage}` was dropped, so nobody can attach to it and the ring would fill up and stay full; keep the key"
            ),
            BuildError::Misplaced { what } => f.write_str(what),
        }
    }
}

impl StdError for BuildError {}
