//! Handles that change or watch a graph while it runs: taps, pools, monitors.
//!
//! `place` is the stage that each of them stands for. Their words lie in `ring`.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
mod place;
pub(crate) mod pool;
pub(crate) mod tap;
