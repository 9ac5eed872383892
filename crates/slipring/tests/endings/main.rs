//! Endings: closed and drained, halted, timed out, or failed; and the report of each.

#[path = "../common/mod.rs"]
mod common;

mod closing;
mod deadlines;
mod drains;
mod dropped_events;
mod failures;
mod joined_drops;
mod pipelines;
mod reports;

use std::time::Instant;

use common::LIMIT;

/// Returns a deadline that no passing test reaches.
fn far_deadline() -> Instant {
    Instant::now() + LIMIT
}
