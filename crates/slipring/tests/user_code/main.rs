//! User code that panics, or moves handles away, while the library has something counted, pinned or
//! locked. Afterwards, nothing stays counted, pinned or locked.

#[path = "../common/mod.rs"]
mod common;

mod builds;
mod learners;
mod loops;
