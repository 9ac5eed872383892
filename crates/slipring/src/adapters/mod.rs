//! Adapters: handles that are used by positions, handles as futures, and several handles on one
//! thread.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
