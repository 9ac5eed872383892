//! Shared parts of slipring's own programs: the command line tool, the comparison with other crates
//! (`peers`) and the example `readings`.
//!
//! The library does not use this crate, which is not published. It is a crate because `peers` is a
//! workspace of its own and still has to print figures as the other programs do.
#![forbid(unsafe_code)]

pub mod numbers;
pub mod pictures;
pub mod streams;
pub mod tables;
