//! Adapters let a program use handles by positions or as futures, and wait for several handles on
//! one thread.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
