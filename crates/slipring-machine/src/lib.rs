//! The cores, caches and memory nodes of a machine, placements of threads on them, and pinning.
//!
//! [`Machine`] describes a machine: this one, one whose files lie below a folder, or one of a
//! [`Snapshot`]. [`Placement`] is a wish where the threads of a graph run, and [`Machine::assign`]
//! finds the CPUs, or says why there are none:
//!
//! ```
//! use slipring_machine::{Machine, Placement};
//!
//! let machine = Machine::this()?;
//! match machine.assign(&Placement::SharedCache, &["producer", "parse", "store"]) {
//!     Ok(assignment) => print!("{assignment}"),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), slipring_machine::MachineError>(())
//! ```
//!
//! [`Machine::at`] makes a placement that a chain or graph of slipring takes; [`Placed`] has an
//! example.
//!
//! [`pin`], [`bind_thread`] and the functions beside them bind threads that the caller owns.
//! [`Clock`], [`ThreadTimes`] and [`MachineUsage`] are for measurements.
//!
//! On systems other than Linux, a machine is a number of cores. Threads are not bound there: a
//! placement of a graph is an error of its build.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![forbid(unsafe_code)]

mod affinity;
mod assign;
mod assignment;
mod binding;
mod clock;
mod cpu_set;
mod drawing;
mod files;
mod machine;
mod memory;
mod model;
mod pair;
mod placement;
mod quota;
mod snapshot;
mod summary;
mod topology;
mod usage;

pub use affinity::{
    BindError, BoundThread, allowed_cpus, bind, bind_thread, pin, unpin, usable_cores,
};
pub use assignment::{AssignedThread, Assignment, PlacementError};
pub use binding::Placed;
pub use clock::{Clock, set_fine_timer};
pub use cpu_set::{CpuListError, CpuSet};
pub use files::MachineError;
pub use machine::{
    Cache, CacheHolds, Core, HugePages, Kind, Machine, Memory, Node, Package, Quota,
};
pub use pair::CorePair;
pub use placement::{Explicit, Placement, PlacementTextError};
pub use snapshot::{Snapshot, SnapshotError};
pub use usage::{MachineUsage, ThreadTimes, process_cpu, thread_cpu, thread_id};
