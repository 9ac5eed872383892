//! Soundness from safe code: lengths out of range, handles of other rings, and handles forgotten or
//! dropped in any order. The tests are small enough for Miri, which checks every access.

// The tests forget and drop batches on purpose.
#![allow(clippy::forget_non_drop, clippy::drop_non_drop)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod foreign;
mod released;
mod traffic;

const CAPACITY: usize = 4;
