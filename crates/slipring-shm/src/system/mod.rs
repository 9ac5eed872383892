//! The lowest layer: the limits of segments, locks, and facts from the kernel. No file in this
//! folder knows the contents of a segment.
//!
//! Invariants
//! - I1: only `sys` names `libc`. Every other file makes its system calls through `rustix` or
//!   `std`.

#[macro_use]
pub(crate) mod step;

pub(crate) mod fork;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod machine;
mod sys;
