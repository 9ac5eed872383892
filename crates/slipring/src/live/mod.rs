//! What changes or watches a graph while it runs: taps, pools, monitors.

#[cfg(feature = "metrics")]
mod export;
pub(crate) mod monitor;
pub(crate) mod pool;
pub(crate) mod tap;
