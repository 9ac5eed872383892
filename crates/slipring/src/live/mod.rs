//! Handles that change or watch a graph while it runs: taps, pools, monitors.
//!
//! Each of them finds its graph by a `StageRef`, and works on the atomic words of the room `ring`.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
pub(crate) mod pool;
mod stage_ref;
pub(crate) mod tap;
