//! Further ways to use handles: raw handles take and return positions, futures let a task wait for
//! a handle, and the selector lets one thread wait for several.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
pub(crate) mod task_within;
