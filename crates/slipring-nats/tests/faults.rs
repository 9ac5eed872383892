//! Faults: whatever is killed, cut, held back or removed, each position is stored once and in order.

mod common;
#[path = "faults/support.rs"]
mod support;

#[path = "faults/takeovers.rs"]
mod takeovers;
