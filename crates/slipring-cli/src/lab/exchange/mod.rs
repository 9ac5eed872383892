//! `slipring lab exchange`: the cost of handing a block of numbers to another thread or process.
//!
//! The experiment is that of Dokulil and Benkner: a writer fills a block with ones, a reader sums
//! it, and one of several ways informs the reader that the block is written. Two times are
//! measured: the time that reading takes, and the time from the end of writing to the start of
//! reading. All setups run once in random order, and then all run again, so a disturbance of the
//! machine hits all of them alike.

mod about;
mod experiment;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod command;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod convert;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod figures;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod measure;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod measured;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod measurement;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod picture;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod placement;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod plan;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod reader;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod record;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod report;

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
#[path = "elsewhere.rs"]
mod measurement;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use command::{Args, run};
pub use experiment::Exchange;
