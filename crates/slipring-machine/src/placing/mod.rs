//! Placements of threads: the wishes, the CPUs that fulfil them, and the errors for wishes that
//! cannot be fulfilled.

mod assign;
pub(crate) mod assignment;
pub(crate) mod binding;
pub(crate) mod pair;
pub(crate) mod placement;
