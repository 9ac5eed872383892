//! An observer is a reader that no stage and no producer waits for.
//!
//! The files are, in this order: `words`, the memory that a writer shares with observers; `mirror`,
//! the writer; `observer`, the observers; and `task`, their futures. Each file uses only earlier
//! ones.

pub(crate) mod mirror;
pub(crate) mod observer;
pub(crate) mod task;
pub(crate) mod words;
