//! Reads descriptions of machines from the system's files, or from a snapshot of them.

pub(crate) mod files;
mod machine;
mod memory;
mod model;
mod quota;
pub(crate) mod snapshot;
mod topology;
