//! The file of a segment: its location, the checks before it is trusted, and how it is made, read
//! and mapped.
//!
//! Invariants
//! - I1: a file is mapped only after its head was copied and checked (`open`), or by the process
//!   that made it.

pub(crate) mod create;
pub(crate) mod descriptor;
pub(crate) mod location;
pub(crate) mod mapping;
pub(crate) mod name;
pub(crate) mod open;
