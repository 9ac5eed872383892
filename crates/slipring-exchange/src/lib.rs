//! Ways to hand a block of numbers to another thread or process: the contenders of
//! `slipring lab exchange`.
//!
//! A *writer* fills a block, and a *reader* reads the same block before the writer fills it again.
//! The writer notes the time right before it lets the reader proceed, and the reader notes the time
//! at which it starts to read. Both use the same clock, even in two processes.
//!
//! Invariants
//! - I1: at any time, one end of an exchange has the turn, and only that end uses the block.
//! - I2: an end passes the turn with release ordering, and the other end takes it with acquire
//!   ordering. So the end that takes the turn sees all that the other end did.
//! - I3: no wait lasts longer than [`PATIENCE`]. An end that waits for a dead end gets an error.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod block;
mod ends;
mod file;
mod memory;
mod promise;
mod ring;
mod semaphore;
mod spin;
mod way;

pub use ends::{Ends, PATIENCE, Reader, Writer, now};
pub use way::Way;
