//! The positions of consumers, the loop that runs a stage, and the handles that lend events.

// rustdoc shows methods in the order of these lines: a page begins with those that most users call.
pub(crate) mod handle;

mod closures;

pub(crate) mod batch;
pub(crate) mod chunk_pace;
pub(crate) mod drive;
pub(crate) mod gather;
pub(crate) mod handler;
pub(crate) mod local_worker;
pub(crate) mod markers;
pub(crate) mod pace;
#[cfg(all(test, not(slipring_loom)))]
mod pace_tests;
pub(crate) mod position;
pub(crate) mod role;
pub(crate) mod sequential;
pub(crate) mod shard;
pub(crate) mod spacing;
pub(crate) mod waiting;
mod within;
pub(crate) mod worker;
#[cfg(all(test, not(slipring_loom)))]
mod worker_tests;
