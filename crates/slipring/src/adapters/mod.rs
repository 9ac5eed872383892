//! Adapters of handles: use by positions, use as futures, and waits for several handles on one
//! thread.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
