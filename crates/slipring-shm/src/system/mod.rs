//! The ground: the limits of segments, and facts and locks from the kernel. Nothing here knows what
//! is in a segment.
//!
//! Invariants
//! - I1: only `sys` names `libc`.

#[macro_use]
pub(crate) mod step;

pub(crate) mod fork;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod machine;
mod sys;
