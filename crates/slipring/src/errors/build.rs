//! This module holds the reasons why a graph cannot be built.

use std::error::Error as StdError;
use std::fmt;

use crate::base::available_memory::MemoryShortage;
use crate::base::fault::debug_is_message;
use crate::base::name::PRODUCER;

/// Largest number of workers, shards or readers that one stage has room for: 65,536. The limit
/// bounds the memory that a build takes if the user states too large a number by mistake.
pub const MAX_STAGE_HANDLES: usize = 1 << 16;

/// The reason why a graph could not be built.
///
/// ```
/// use slipring::{Graph, errors::{BuildError, ErrorKind}};
///
/// let error = Graph::new(12, || 0u64).build().err().unwrap();
/// assert!(matches!(error.kind(), ErrorKind::Build(BuildError::Capacity { asked: 12 })));
/// assert_eq!(error.to_string(), "the capacity 12 is not a power of two: take 8 or 16");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The capacity is zero or not a power of two.
    Capacity {
        /// Number of slots that the user asked for.
        asked: usize,
    },
    /// The build found no memory for the slots, for a table with one entry per slot, or for the
    /// shared cache lines. Each worker, shard, reader and stage takes one to three lines of 128
    /// bytes.
    Memory {
        /// Number of items that the build asked for: slots, entries of a table, or cache lines.
        capacity: usize,
        /// Size of one item (a slot, an entry, or a cache line), in bytes.
        bytes_per_slot: usize,
    },
    /// The ring takes more memory than is available. Nothing was allocated.
    MemoryShortage(MemoryShortage),
    /// The factory of events panicked.
    Factory {
        /// Index of the event at which the factory panicked, counted from 0.
        index: usize,
        /// The panic's message.
        panic: String,
    },
    /// The factory of a pool's workers panicked.
    WorkerFactory {
        /// Name of the pool.
        stage: String,
        /// Index of the worker at which the factory panicked, counted from 0.
        worker: usize,
        /// The panic's message.
        panic: String,
    },
    /// A method of a waiting strategy panicked during the build.
    Strategy {
        /// The panic's message.
        panic: String,
    },
    /// The name of a stage or a thread is empty or has a zero byte, or the name of a stage is
    /// [`PRODUCER`].
    InvalidName {
        /// The name.
        given: String,
    },
    /// Two stages have the same name.
    DuplicateName {
        /// The name.
        stage: String,
    },
    /// The number of a pool's workers, or of a stage's shards, is zero or too large. The number
    /// must not exceed the ring's capacity, nor [`MAX_STAGE_HANDLES`].
    Workers {
        /// Name of the stage.
        stage: String,
        /// Number of workers or shards that the user asked for.
        asked: usize,
        /// Number of slots of the ring.
        capacity: usize,
    },
    /// A stage that may update events is not ordered with another stage: neither of the two comes
    /// after the other, so they could access the same event at once.
    UnorderedUpdater {
        /// Name of the stage that may update events.
        updater: String,
        /// Name of a stage that is not ordered with `updater`.
        other: String,
    },
    /// Several stages wait for each other in a cycle.
    Cycle {
        /// Name of a stage in the cycle.
        stage: String,
    },
    /// A stage follows a stage of another graph.
    Foreign {
        /// Name of the stage that follows a stage of another graph.
        stage: String,
        /// Name of the followed stage, which belongs to another graph.
        after: String,
    },
    /// The key of a stage was dropped before the build, so no handle could ever attach to the
    /// stage.
    DroppedKey {
        /// Name of the stage.
        stage: String,
    },
    /// The placement of the graph's threads is impossible on this machine, or the placement's code
    /// failed.
    Placement {
        /// The placement's own message, which says what is impossible and why.
        problem: String,
    },
    /// A declaration cannot apply at the place where it was made, or it contradicts another
    /// declaration.
    Declaration {
        /// A sentence that names the declaration and says how to correct the mistake.
        problem: String,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Capacity { asked: 0 } => {
                f.write_str("the capacity is 0: take a power of two, at least 1")
            }
            BuildError::Capacity { asked } => {
                write!(f, "the capacity {asked} is not a power of two: ")?;
                match asked.checked_next_power_of_two() {
                    Some(next) => write!(f, "take {} or {next}", next / 2),
                    None => f.write_str("take a smaller one"),
                }
            }
            BuildError::Memory { capacity, bytes_per_slot } => {
                write!(
                    f,
                    "no memory for {capacity} slots, table entries or cache lines of {bytes_per_slot} bytes each: take a smaller capacity, smaller events, or fewer workers and readers"
                )
            }
            BuildError::MemoryShortage(shortage) => write!(f, "the ring is too large: {shortage}"),
            BuildError::Factory { index, panic } => {
                write!(
                    f,
                    "the factory of events panicked at event {index}: {panic}; return an event there, and fill it when it is published"
                )
            }
            BuildError::Strategy { panic } => {
                write!(f, "a method of a waiting strategy panicked during the build: {panic}")
            }
            BuildError::WorkerFactory { stage, worker, panic } => {
                write!(f, "the factory of `{stage}` panicked at worker or shard {worker}: {panic}")
            }
            BuildError::InvalidName { given } => {
                write!(
                    f,
                    "{given:?} cannot name a stage or a thread: take a name that is not empty, has no zero byte and is not `{PRODUCER}`"
                )
            }
            BuildError::DuplicateName { stage } => {
                write!(
                    f,
                    "two stages are named `{stage}`: rename one, so that reports can tell them apart"
                )
            }
            BuildError::Workers { stage, asked, capacity } => {
                write!(
                    f,
                    "stage `{stage}` cannot have {asked} workers or shards: take 1 to {} on a ring of {capacity} slots",
                    MAX_STAGE_HANDLES.min(*capacity)
                )
            }
            BuildError::UnorderedUpdater { updater, other } => write!(
                f,
                "stage `{updater}` may update events and is not ordered with stage `{other}`: let one follow the other (`after`), or let `{updater}` only read"
            ),
            BuildError::Cycle { stage } => {
                write!(
                    f,
                    "stage `{stage}` waits for itself through the stages that it follows: remove one of those dependencies"
                )
            }
            BuildError::Foreign { stage, after } => {
                write!(
                    f,
                    "stage `{stage}` cannot follow `{after}`, which belongs to another graph: use a key of the same graph"
                )
            }
            BuildError::DroppedKey { stage } => write!(
                f,
                "the key of stage `{stage}` was dropped, so no handle can attach and the ring would stay full: keep the key, and attach with it"
            ),
            BuildError::Placement { problem } => {
                write!(f, "the threads of the graph cannot be placed: {problem}")
            }
            BuildError::Declaration { problem } => f.write_str(problem),
        }
    }
}

debug_is_message!(BuildError);

impl StdError for BuildError {}

impl From<MemoryShortage> for BuildError {
    fn from(shortage: MemoryShortage) -> BuildError {
        BuildError::MemoryShortage(shortage)
    }
}
