//! Handles that change or watch a graph while it runs: taps, pools, monitors.
//!
//! `place` holds the stage that such a handle stands for. The words that these handles share with a
//! graph lie in `ring`.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
mod place;
pub(crate) mod pool;
pub(crate) mod tap;
