//! Readers that join and leave a tap, and workers that join and leave a pool, while the graph runs;
//! pools whose workers sleep.

#[path = "../common/mod.rs"]
mod common;

mod pools;
mod sleepers;
mod taps;
mod threads;
mod traffic;

use std::time::{Duration, Instant};

/// Returns a deadline that no passing test reaches.
fn far_deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
