//! The CPUs that the threads of a run are bound to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use slipring_machine::{allowed_cpus, pin};

use crate::lab::machine::MeasuredMachine;

/// Number of threads on the first NUMA node: the producer and five consumers, as in the study.
const ON_FIRST_NODE: usize = 6;

/// Returns the CPUs that this process may use, one for each physical core, by NUMA node. Without a
/// description of the machine, each CPU is a core of the first node.
pub fn nodes(machine: &MeasuredMachine) -> Vec<Vec<usize>> {
    let Some(machine) = &machine.description else {
        let all = allowed_cpus();
        return if all.is_empty() { Vec::new() } else { vec![all] };
    };
    let mut nodes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for core in machine.cores() {
        if let Some(cpu) = core.cpus.intersection(machine.allowed()).first() {
            nodes.entry(core.node.unwrap_or(0)).or_default().push(cpu);
        }
    }
    nodes.into_values().collect()
}

/// Chooses a CPU for each thread, the producer first: one thread on each physical core. From the
/// sixth consumer on, threads go to the other nodes, if there are any; the first node's other cores
/// come last. Returns no CPUs if the threads outnumber the physical cores; then the system places
/// all threads.
pub fn choose(nodes: &[Vec<usize>], threads: usize) -> Vec<usize> {
    let Some((first, others)) = nodes.split_first() else { return Vec::new() };
    let (near, rest) = first.split_at(first.len().min(ON_FIRST_NODE));
    let all = near.iter().chain(others.iter().flatten()).chain(rest);
    let chosen: Vec<usize> = all.copied().take(threads).collect();
    if chosen.len() == threads { chosen } else { Vec::new() }
}

/// The CPUs of a run: the first for the producer, and the others for the consumers in the order in
/// which they start.
#[derive(Debug)]
pub struct Places<'a> {
    cpus: &'a [usize],
    /// Number of consumers that have asked for a CPU.
    consumers: AtomicUsize,
}

impl<'a> Places<'a> {
    /// Creates places on these CPUs. If `cpus` is empty, the system places the threads.
    pub fn new(cpus: &'a [usize]) -> Places<'a> {
        Places { cpus, consumers: AtomicUsize::new(0) }
    }

    /// Binds the calling thread, the producer.
    ///
    /// The library calls this after it has built the ring. Earlier would be wrong: the build counts
    /// the cores that its thread may use, and a bound thread may use only one.
    pub fn bind_producer(&self) {
        self.bind(0);
    }

    /// Binds the calling thread, a consumer.
    pub fn bind_consumer(&self) {
        self.bind(1 + self.consumers.fetch_add(1, Relaxed));
    }

    fn bind(&self, thread: usize) {
        if let Some(&cpu) = self.cpus.get(thread) {
            pin(cpu);
        }
    }

    /// Returns the number of consumers that have asked for a CPU.
    #[cfg(test)]
    pub fn consumers(&self) -> usize {
        self.consumers.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_sixth_consumer_on_threads_are_on_the_second_node() {
        // The machine of the study: two nodes of six cores.
        let nodes = [vec![0, 2, 4, 6, 8, 10], vec![1, 3, 5, 7, 9, 11]];
        assert_eq!(choose(&nodes, 2), [0, 2]);
        assert_eq!(choose(&nodes, 6), [0, 2, 4, 6, 8, 10]);
        assert_eq!(choose(&nodes, 7), [0, 2, 4, 6, 8, 10, 1]);
        assert_eq!(choose(&nodes, 12), [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]);
        assert_eq!(choose(&nodes, 13), [0; 0]);
    }

    #[test]
    fn larger_and_smaller_nodes() {
        let large = [(0..8).collect(), (8..16).collect::<Vec<_>>()];
        assert_eq!(choose(&large, 7), [0, 1, 2, 3, 4, 5, 8]);
        assert_eq!(choose(&large, 16)[13..], [15, 6, 7]);
        let one = [(0..12).collect::<Vec<_>>()];
        assert_eq!(choose(&one, 12), (0..12).collect::<Vec<_>>());
        let small = [vec![0, 1], vec![2, 3], vec![4, 5]];
        assert_eq!(choose(&small, 5), [0, 1, 2, 3, 4]);
        assert_eq!(choose(&small, 7), [0; 0]);
        assert_eq!(choose(&[], 1), [0; 0]);
    }

    #[test]
    fn the_cpus_of_this_machine_are_distinct_and_allowed() {
        let nodes = nodes(&MeasuredMachine::this());
        let mut cpus = nodes.concat();
        assert!(cpus.iter().all(|cpu| allowed_cpus().contains(cpu)));
        cpus.sort_unstable();
        cpus.dedup();
        assert_eq!(cpus.len(), nodes.concat().len());
        assert!(nodes.iter().all(|node| !node.is_empty()));
    }
}
