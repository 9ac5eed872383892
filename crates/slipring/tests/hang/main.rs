//! Nothing hangs: user code panics or fails at every place where the library calls it, under every
//! strategy, on full rings and on empty ones. Each scenario ends, and its error names the stage,
//! the event and the reason.

#[path = "../common/mod.rs"]
mod common;

mod drops;
mod graph_places;
mod leases;
mod moving;
mod places;
mod promises;
mod requests;
mod self_wait;
mod strategies;
mod threads;

use slipring::errors::{Cause, Failure};

const CAPACITY: usize = 4;

fn message(failure: &Failure) -> &str {
    match failure.cause() {
        Cause::Panic(message) => message,
        other => panic!("{other:?} is no panic"),
    }
}
