//! Observers: readers that no stage and no producer waits for.

pub(crate) mod mirror;
pub(crate) mod observer;
