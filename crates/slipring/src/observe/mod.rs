//! An observer is a reader that no stage and no producer waits for.
//!
//! `words` holds the memory that observers share with a writer, `mirror` the writer, and `observer`
//! the readers. In the order `words`, `mirror`, `observer`, each file uses only earlier files.

pub(crate) mod mirror;
pub(crate) mod observer;
pub(crate) mod words;
