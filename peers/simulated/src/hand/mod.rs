//! Contenders that are written by hand after published algorithms.
//!
//! This module is compiled twice: over the simulator's atomics and over the machine's, which are
//! `super::sync`. Events are relaxed atomics, which cost what plain words cost, so no contender
//! needs unsafe code.
//!
//! - I1: All contenders take the same parameters, and none has state outside of its threads.

mod lmax;
mod parts;
mod queues;
mod single;

use peers_unchanged::Build;

/// The contenders by name.
pub const CONTENDERS: [(&str, Build); 8] = [
    ("hand-written: LMAX 4's sequencer, fetch-and-add", lmax::fetch_and_add),
    ("hand-written: LMAX 3's sequencer, compare-and-swap", lmax::compare_and_swap),
    ("hand-written: LMAX's single producer", lmax::single_producer),
    ("hand-written: LMAX 3's worker pool", lmax::worker_pool),
    ("hand-written: Vyukov's queue", queues::vyukov),
    ("hand-written: lock with two conditions", queues::lock),
    ("hand-written: cached indices", single::cached_indices),
    ("hand-written: lap flags", single::lap_flags),
];
