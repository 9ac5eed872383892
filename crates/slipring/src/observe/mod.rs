//! Observers: readers that no stage and no producer waits for.
//!
//! `words` holds the memory that observers share with a writer, `mirror` the writer, and `observer`
//! the readers. In this order, each file uses only earlier files.

pub(crate) mod mirror;
pub(crate) mod observer;
pub(crate) mod words;
