//! The modules on which all other modules depend: atomics and locks, ordering edges, system calls,
//! available memory and cores, names, user errors, and the containment of panics.

pub(crate) mod atomic_bytes;
pub(crate) mod available_memory;
pub(crate) mod control_group;
pub(crate) mod core_set;
pub(crate) mod direct;
pub(crate) mod edge;
pub(crate) mod fault;
pub(crate) mod guarded;
pub(crate) mod line;
pub(crate) mod maybe_mapped;
#[cfg(all(test, slipring_loom))]
pub(crate) mod model_hooks;
pub(crate) mod name;
pub(crate) mod name_lost;
pub(crate) mod panics;
pub(crate) mod prefetch;
pub(crate) mod sync;
pub(crate) mod system;
pub(crate) mod thread_number;
pub(crate) mod turn;
