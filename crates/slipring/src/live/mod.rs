//! Handles that change or watch a graph while it runs: taps, pools, monitors.
//!
//! `place` holds the stage that a tap, a pool handle or a monitor stands for. The words that taps,
//! pool handles and monitors share with a graph lie in `ring`.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
mod place;
pub(crate) mod pool;
pub(crate) mod tap;
