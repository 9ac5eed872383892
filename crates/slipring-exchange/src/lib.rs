//! Ways to hand a block of numbers to another thread or process: the contenders of
//! `slipring lab exchange`.
//!
//! A *writer* fills a block, and a *reader* reads the same block before the writer fills it again.
//! The writer notes the time right before it lets the reader go, and the reader notes the time at
//! which it begins. Both clocks are the same, also in two processes.
//!
//! Invariants
//! - I1: at any time, one end of an exchange has the turn, and only that end uses the block.
//! - I2: a turn passes with release and is taken with acquire. So the end that takes the turn sees
//!   all that the other end did.
//! - I3: no wait lasts longer than [`PATIENCE`]. An end that waits for a dead one gets an error.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod block;
mod file;
mod memory;
mod promise;
mod ring;
mod semaphore;
mod spin;
mod way;

use std::io;
use std::time::Duration;

pub use way::{Ends, Way};

/// Longest time that an end waits for the other one.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The end that fills blocks.
pub trait Writer: Send {
    /// Waits until the block is free, has `fill` fill it, and hands it over. Returns the time at
    /// which the block was written, in nanoseconds of [`now`].
    ///
    /// # Errors
    /// The other end did not take the block before within [`PATIENCE`], or the system failed.
    fn write(&mut self, fill: &mut dyn FnMut(&mut [u64])) -> io::Result<u64>;
}

/// The end that reads blocks.
pub trait Reader: Send {
    /// Waits for a block, has `read` read it, and gives it back. Returns the times at which the
    /// reading began and ended, in nanoseconds of [`now`].
    ///
    /// # Errors
    /// No block came within [`PATIENCE`], or the system failed.
    fn read(&mut self, read: &mut dyn FnMut(&[u64])) -> io::Result<(u64, u64)>;
}

/// Returns the time of the monotonic clock in nanoseconds, which all processes of a machine share.
#[must_use]
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The error of an end whose patience is over.
fn impatient() -> io::Error {
    let text = format!("the other end of the exchange did nothing for {PATIENCE:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}
