//! Taking part in a segment: attaching, taking seats of its ring, recovering and evicting
//! participants, and removing a segment that no process uses.
//!
//! Invariants
//! - I1: a process takes a participant's place, or recovers it, only while it holds the
//!   participant's byte alone (`participant`, `recover`).

pub(crate) mod evict;
pub(crate) mod participant;
pub(crate) mod places;
pub(crate) mod recover;
pub(crate) mod remove;
pub(crate) mod ring;
