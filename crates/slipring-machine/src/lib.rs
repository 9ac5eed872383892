//! The cores, caches and memory nodes of a machine, placements of threads on them, and pinning.
//!
//! ```text
//! cargo add slipring-machine
//! # until it is published:
//! cargo add --path PATH/TO/crates/slipring-machine
//! ```
//!
//! For programs that choose the cores of their threads, and for measurements that say where they
//! ran.
//!
//! [`Machine`] describes a machine: the current machine, a machine whose files lie below a folder,
//! or the machine of a [`Snapshot`]. A [`Placement`] is a wish for where the threads of a graph
//! run, and [`Machine::assign`] finds the CPUs for it, or says why there are none:
//!
//! ```
//! use slipring_machine::{Machine, Placement};
//!
//! let machine = Machine::this()?;
//! match machine.assign(&Placement::SharedCache, &["producer", "parse", "store"]) {
//!     Ok(assignment) => print!("{assignment}"),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), slipring::Error>(())
//! ```
//!
//! [`Machine::at`] makes a placement that a chain or graph of slipring takes; [`Placed`] has an
//! example.
//!
//! [`pin`], [`bind_thread`] and the functions beside them bind threads that the caller owns.
//! [`Clock`], [`ThreadTimes`] and [`MachineUsage`] are for measurements.
//!
//! On systems other than Linux, the crate knows only the number of cores and binds no threads. A
//! graph with a placement does not build there.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![forbid(unsafe_code)]

mod description;
mod placing;
mod printing;
mod reading;
mod threads;

pub use description::cpu_set::{CpuListError, CpuSet};
pub use description::machine::Machine;
pub use description::parts::{
    Cache, CacheHolds, Core, CoreKind, HugePages, Memory, Node, Package, Quota,
};
pub use placing::assignment::{AssignedThread, Assignment, PlacementError};
pub use placing::binding::Placed;
pub use placing::pair::CorePair;
pub use placing::placement::{Explicit, Placement, PlacementTextError};
pub use reading::files::MachineError;
pub use reading::snapshot::{Snapshot, SnapshotError};
pub use threads::affinity::{
    BindError, BoundThread, allowed_cpus, bind, bind_thread, pin, unpin, usable_cores,
};
pub use threads::clock::{Clock, set_fine_timer};
pub use threads::usage::{MachineUsage, ThreadTimes, process_cpu, thread_cpu, thread_id};

/// Lets `?` convert errors of this crate into the library's.
macro_rules! into_errors_of_slipring {
    ($($error:ty),*) => {
        $(impl From<$error> for slipring::Error {
            fn from(error: $error) -> slipring::Error {
                slipring::Error::call(error)
            }
        })*
    };
}

into_errors_of_slipring!(
    BindError,
    CpuListError,
    MachineError,
    PlacementError,
    PlacementTextError,
    SnapshotError
);
