//! Handles that change or watch a graph while it runs: taps, pools, monitors.
//!
//! The module `place` records the graph and the stage to which a tap, a pool handle or a monitor
//! refers. The module `ring` holds the atomic words that taps, pool handles and monitors share with
//! a graph.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
mod place;
pub(crate) mod pool;
pub(crate) mod tap;
