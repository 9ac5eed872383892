//! Notes for the oracle's checks of single calls.
//!
//! - I1: A count is noted when the call has returned, so the library has counted at least as much.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::RingPlan;

/// Notes for the checks of single calls.
#[derive(Debug, Default)]
pub struct Calls {
    /// Number of each stage's workers that have a place, or may have one, of those that join also
    /// while they try.
    pub workers: Vec<usize>,
    /// For each try to join: the stage, and the most workers of it meanwhile.
    pub joins: Vec<(usize, usize)>,
    /// Stages of which a call has told that their stream has ended.
    pub ended: BTreeSet<String>,
    /// Whether stores become visible late, so that a release may be seen long after it.
    pub stores_late: bool,
    /// Whether the ring's handle was dropped.
    pub ring_dropped: bool,
    /// The core of the producer that makes a call with a deadline.
    pub calling: Option<usize>,
    /// For each stage, how many events it has released at least, and how many accesses the calling
    /// producer had made then.
    pub released: Vec<(u64, u64)>,
    /// Number of publications that each producer has made at least, by its core, and how many of
    /// them a report has to count.
    pub batches: BTreeMap<usize, (u64, u64)>,
    /// Number of futures of each producer, by its core, that were ready since one was pending.
    pub rows: BTreeMap<usize, u64>,
    /// Number of producers that there have been, but for those of handlers.
    pub producers: usize,
    /// Whether handlers have had producers of their own.
    pub publish_inside: bool,
    /// Number of waits that tasks of producers have made at least.
    pub waits: u64,
}

impl Calls {
    pub fn new(plan: &RingPlan) -> Calls {
        Calls {
            workers: plan.stages.iter().map(|stage| stage.drives.len()).collect(),
            released: vec![(0, 0); plan.stages.len()],
            ..Calls::default()
        }
    }
}
