//! The choice of the queue at which each stage waits.

use crate::base::panics::Contained;
use crate::ring::spec::{Delivery, StageSpec, ThreadChoice};
use crate::wait::Wait;

/// Returns for each stage whether it is a pool with a queue of its own, which wakes one worker for
/// each event (queue::I6). `may_wake_one` returns whether a stage sleeps, in a ring of one process.
///
/// Such a wake-up needs a worker that polls after it. A user's strategy may panic or block instead,
/// so the pool then wakes all of its workers.
pub(super) fn wakes_one(
    specs: &[StageSpec],
    waits: &[Contained<Wait>],
    may_wake_one: impl Fn(usize) -> bool,
) -> Vec<bool> {
    let wakes_one = |(stage, spec): (usize, &StageSpec)| {
        matches!(spec.delivery, Delivery::Pool { .. })
            && spec.thread == ThreadChoice::Own
            && may_wake_one(stage)
            && waits[stage].is_built_in()
    };
    specs.iter().enumerate().map(wakes_one).collect()
}

/// Assigns a wait queue to each stage. A pool that `wakes_one` has a queue of its own. Other stages
/// of one thread share a queue, and other stages that follow the same stages share a queue. The
/// stages of the executor share the producers' queue, whose index is `producers`.
pub(super) fn assign_queues(
    producers: usize,
    specs: &[StageSpec],
    wakes_one: &[bool],
) -> Vec<usize> {
    let mut keys: Vec<Option<(Option<&str>, Vec<usize>)>> = Vec::new();
    let mut queues = Vec::with_capacity(specs.len());
    for (spec, wakes_one) in specs.iter().zip(wakes_one) {
        if spec.thread.is_shared() {
            queues.push(producers);
            continue;
        }
        let thread = spec.thread.label();
        let mut after = if thread.is_some() { Vec::new() } else { spec.after.clone() };
        after.sort_unstable();
        let key = (!wakes_one).then_some((thread, after));
        let known = keys.iter().position(|known| key.is_some() && *known == key);
        queues.push(producers + 1 + known.unwrap_or(keys.len()));
        if known.is_none() {
            keys.push(key);
        }
    }
    queues
}
