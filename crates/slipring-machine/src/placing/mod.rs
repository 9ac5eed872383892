//! Placements of threads: wishes, the CPUs that fulfil them, and the errors of impossible ones.

mod assign;
pub(crate) mod assignment;
pub(crate) mod binding;
pub(crate) mod pair;
pub(crate) mod placement;
