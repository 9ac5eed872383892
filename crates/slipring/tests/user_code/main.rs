//! User code that panics or moves handles away where the library counts, pins or locks: afterwards
//! nothing stays counted, pinned or locked.

#[path = "../common/mod.rs"]
mod common;

mod builds;
mod learners;
mod loops;
