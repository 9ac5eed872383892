//! The choice of the queue at which each stage waits.

use crate::ring::spec::StageSpec;

/// Assigns a wait queue to each stage. Stages of one thread share a queue, and stages that follow
/// the same stages share a queue. The stages of the executor share the producers' queue, whose index
/// is `producers`.
pub(super) fn assign_queues(producers: usize, specs: &[StageSpec]) -> Vec<usize> {
    let mut keys: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
    let mut queues = Vec::with_capacity(specs.len());
    for spec in specs {
        if spec.thread.is_shared() {
            queues.push(producers);
            continue;
        }
        let thread = spec.thread.label();
        let mut after = if thread.is_some() { Vec::new() } else { spec.after.clone() };
        after.sort_unstable();
        let key = (thread, after);
        let known = keys.iter().position(|known| *known == key);
        queues.push(producers + 1 + known.unwrap_or(keys.len()));
        if known.is_none() {
            keys.push(key);
        }
    }
    queues
}
