//! Handles that do nothing cost nothing: the counts of a shape do not grow when such handles exist.

use crate::measure::{Draining, Paced, Regime, count, hot_lines};
use crate::shapes::{AdaptivePool, Diamond, Line, Pool, Producers, Readers, Shape, Shards, Tap};

/// Compares the counts of a shape alone and beside idle handles of each of its kinds.
fn costs_nothing(shape: Shape, regime: Regime) {
    // Handles count as threads. If threads outnumber the cores, producers claim by
    // compare-and-swap, and workers draw no tickets.
    let many = if let Producers(_) | Pool(_) = shape { 8 } else { 24 };
    let [alone, beside] = [0, many].map(|idle| count(shape, regime, "2x6", idle));
    let counts = [
        ("transfers", alone.transfers, beside.transfers),
        ("read-modify-writes", alone.rmws, beside.rmws),
        ("fences", alone.fences, beside.fences),
    ];
    for (what, alone, beside) in counts {
        println!("{shape:?}, {regime:?}: {alone:.3?} {what}, {beside:.3?} beside idle handles");
        assert!(
            beside[1] <= alone[1] * 1.02 + 0.02,
            "{shape:?}, {regime:?}: {alone:.3?} {what} an event, and {beside:.3?} beside idle \
             handles: a step visits all handles, though some of them do nothing\n{}",
            hot_lines(shape, regime, "2x6", many)
        );
    }
}

#[test]
fn monitors() {
    for shape in [Readers(5), Shards(3), Line(3), Diamond] {
        costs_nothing(shape, Paced);
    }
    costs_nothing(Readers(1), Draining);
}

#[test]
fn producers_that_do_not_publish() {
    costs_nothing(Producers(3), Paced);
    costs_nothing(Producers(3), Draining);
}

#[test]
fn seats_of_a_tap_without_members() {
    costs_nothing(Tap(0), Paced);
    costs_nothing(Tap(1), Paced);
    costs_nothing(Tap(1), Draining);
}

#[test]
fn workers_that_do_not_work() {
    costs_nothing(Pool(3), Paced);
    costs_nothing(Pool(3), Draining);
    costs_nothing(AdaptivePool(3), Draining);
}
