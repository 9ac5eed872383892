//! Observers: readers that no stage and no producer waits for.
//!
//! `words` holds the memory that they share with a writer, `mirror` the writer, and `observer` the
//! readers. Each file uses those above it.

pub(crate) mod mirror;
pub(crate) mod observer;
pub(crate) mod words;
