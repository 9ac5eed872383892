//! Graphs whose threads a placement binds.
#![cfg(target_os = "linux")]

#[path = "../../slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::sync::Mutex;

use slipring_machine::{Explicit, Machine, Placement, allowed_cpus};
use watchdog::watched;

/// Each thread runs on its CPU while the graph runs, and afterwards the caller has its own mask
/// again.
#[test]
fn the_threads_of_a_chain_are_bound() {
    let _watched = watched();
    let before = allowed_cpus();
    let (first, last) = (before[0], before[before.len() - 1]);
    let explicit = Explicit::named([("producer", first), ("parse", last), ("store", first)]);
    let masks = [const { Mutex::new(Vec::new()) }; 2];
    slipring::ring(8, || 0u64)
        .placement(Machine::this().unwrap().at(Placement::Explicit(explicit)))
        .read("parse", |_, _| *masks[0].lock().unwrap() = allowed_cpus())
        .read("store", |_, _| *masks[1].lock().unwrap() = allowed_cpus())
        .feed(0..3, |slot, i| *slot = i)
        .unwrap();
    assert_eq!(*masks[0].lock().unwrap(), [last]);
    assert_eq!(*masks[1].lock().unwrap(), [first]);
    assert_eq!(allowed_cpus(), before);
}

/// The error for an impossible placement says why the placement is impossible, and lists the
/// machine.
#[test]
fn an_impossible_placement_is_an_error_of_the_build() {
    let _watched = watched();
    let placed = Machine::this().unwrap().at("cpus:0".parse().unwrap());
    let ran = slipring::ring(8, || 0u64)
        .placement(placed)
        .read("parse", |_, _| ())
        .feed(0..3, |slot, i| *slot = i);
    let error = ran.err().unwrap().to_string();
    for said in ["it names 1 CPU, and the threads are producer, parse", "the machine has\n"] {
        assert!(error.contains(said), "{error}");
    }
}
