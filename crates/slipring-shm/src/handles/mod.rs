//! The values that users hold: a segment that is declared, made or opened; an attached process and
//! its handles; and promises between processes.
//!
//! Invariants
//! - I1: a handle is made only by a call that took the handle's seat (I1 of `places`).

pub(crate) mod attached;
pub(crate) mod awaited;
pub(crate) mod builder;
pub(crate) mod copies;
mod graph;
pub(crate) mod promise;
pub(crate) mod segment;
mod taking;
