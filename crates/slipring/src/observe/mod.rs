//! An observer is a reader that no stage and no producer waits for.
//!
//! The module `words` defines the memory that a writer shares with observers. The module `mirror`
//! defines the writer, and the module `observer` defines the observers. In the order `words`,
//! `mirror`, `observer`, each file uses only earlier files.

pub(crate) mod mirror;
pub(crate) mod observer;
pub(crate) mod words;
