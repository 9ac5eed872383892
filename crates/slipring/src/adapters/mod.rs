//! Adapters are further ways to use handles. Calls of raw handles take and return positions, tasks
//! wait for handles by futures, and one thread waits for several handles.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
