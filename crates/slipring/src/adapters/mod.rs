//! Adapters: handles by positions, handles as futures, several handles on one thread.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
