//! Shared parts of slipring's own programs: the command line tool, the comparison with other crates
//! (`peers`) and the example `readings`.
//!
//! The library does not use this crate, and it is not published. The code is a crate because
//! `peers`, which is a separate workspace, has to print figures in the same way as the other
//! programs.
#![forbid(unsafe_code)]

pub mod numbers;
pub mod pictures;
pub mod streams;
pub mod tables;
