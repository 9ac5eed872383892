//! Each planted defect of the library leaves a budget.

use std::panic::catch_unwind;

use crate::measure::{Draining, Filling, Paced, Regime, check};
use crate::shapes::{Contiguous, Readers, Shape};
use crate::table::ROWS;

/// Plants the defect into the runs of a row, which must then leave its budget for `count`.
fn caught(name: &'static str, shape: Shape, regime: Regime, count: &str) {
    let row = *ROWS
        .iter()
        .find(|row| (row.shape, row.regime) == (shape, regime))
        .expect("the table has the row");
    let planted = slipring_coherence::plant(name);
    let failure = catch_unwind(|| check(&[row]));
    drop(planted);
    let failure = failure.expect_err("no budget was left, so the defect is not caught");
    let text = failure.downcast_ref::<String>().expect("the failure has a text");
    assert!(text.contains(&format!("{count} an event, budget")), "{text}");
}

#[test]
fn false_sharing() {
    caught("shared-line", Readers(1), Paced, "transfers");
}

#[test]
fn a_needless_read_modify_write() {
    caught("claim-by-rmw", Readers(1), Paced, "read-modify-writes");
}

#[test]
fn a_fence_at_each_publication() {
    caught("fenced-publication", Readers(1), Paced, "fences");
}

#[test]
fn a_frontier_looked_at_for_each_claim() {
    caught("frontier-per-claim", Readers(1), Paced, "transfers");
}

#[test]
fn polls_without_spacing() {
    caught("polls-unspaced", Contiguous(1), Filling, "transfers");
}

#[test]
fn one_slot_to_a_line() {
    caught("slot-per-line", Readers(1), Draining, "transfers");
}

#[test]
fn a_queue_that_is_never_quiet() {
    caught("queue-never-quiet", Readers(1), Draining, "fences");
}
