//! Handles that change or watch a graph while it runs: taps, pools, monitors.
//!
//! Each handle finds its graph by a `StageRef`, and works on the atomic words of the module `ring`.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
pub(crate) mod pool;
mod stage_ref;
pub(crate) mod tap;
