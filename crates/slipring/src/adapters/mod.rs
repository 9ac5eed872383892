//! Adapters are further ways to use handles. The raw handles take and return positions. The futures
//! let a task wait for a handle. The selector lets one thread wait for several handles.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
