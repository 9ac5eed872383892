//! What every room stands on: atomics and locks, system calls, names, and containment of panics.

pub(crate) mod edge;
pub(crate) mod fault;
pub(crate) mod name;
pub(crate) mod panics;
pub(crate) mod sync;
pub(crate) mod system;
