//! The two ends of an exchange, the clock that they share, and their patience.

use std::io;
use std::time::Duration;

/// Longest time that an end waits for the other one.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The end that fills blocks.
pub trait Writer: Send {
    /// Waits until the block is free, calls `fill` on it, and hands it over. Returns the time at
    /// which the block was written, in nanoseconds of [`now`].
    ///
    /// # Errors
    /// The other end did not take the previous block within [`PATIENCE`], or the system failed.
    fn write(&mut self, fill: &mut dyn FnMut(&mut [u64])) -> io::Result<u64>;
}

/// The end that reads blocks.
pub trait Reader: Send {
    /// Waits for a block, calls `read` on it, and gives the block back. Returns the times at which
    /// reading began and ended, in nanoseconds of [`now`].
    ///
    /// # Errors
    /// No block came within [`PATIENCE`], or the system failed.
    fn read(&mut self, read: &mut dyn FnMut(&[u64])) -> io::Result<(u64, u64)>;
}

/// The two ends of an exchange within one process.
pub type Ends = (Box<dyn Writer>, Box<dyn Reader>);

/// Returns the time of the monotonic clock, in nanoseconds. All processes of a machine share this
/// clock.
#[must_use]
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the error for an end that has waited longer than its patience lasts.
pub(crate) fn impatient() -> io::Error {
    let text = format!("the other end of the exchange did nothing for {PATIENCE:?}");
    io::Error::new(io::ErrorKind::TimedOut, text)
}
