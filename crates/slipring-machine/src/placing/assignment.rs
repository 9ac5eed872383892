//! The CPUs of a graph's threads, and the error for a placement that is impossible.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::placement::Placement;
use crate::description::cpu_set::CpuSet;
use crate::description::machine::Machine;
use crate::description::parts::Quota;
use crate::printing::summary::plural;

/// The CPUs of a graph's threads. [`Machine::assign`] finds them.
///
/// The text of an assignment is a small table.
///
/// ```
/// use slipring_machine::{Machine, Placement, Snapshot};
///
/// let snapshot: Snapshot = "sys/devices/system/cpu/online: 0-3".parse()?;
/// let machine = Machine::from_snapshot(&snapshot)?;
/// let assignment = machine.assign(&Placement::Spread, &["producer", "parse"])?;
/// assert_eq!(assignment.to_string(), "thread    CPU\nproducer    0\nparse       1\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    threads: Vec<AssignedThread>,
    node: Option<usize>,
    memory_cpus: CpuSet,
    exceeds_quota: bool,
}

/// A thread and its CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AssignedThread {
    /// Name of the thread.
    pub name: String,
    /// CPU of the thread.
    pub cpu: usize,
}

impl Assignment {
    pub(crate) fn new(machine: &Machine, names: &[&str], cpus: &[usize]) -> Assignment {
        let node_of = |cpu: usize| machine.nodes().iter().find(|node| node.cpus.contains(cpu));
        let nodes: Vec<_> = cpus.iter().filter_map(|&cpu| node_of(cpu)).collect();
        let mut threads_on: BTreeMap<usize, usize> = BTreeMap::new();
        for node in &nodes {
            *threads_on.entry(node.number).or_default() += 1;
        }
        let most = threads_on.values().max().copied();
        // The producer is the first thread, so its node is the first among nodes with equally many
        // threads.
        let node = nodes.iter().find(|node| threads_on.get(&node.number).copied() == most);
        let memory_cpus = match node {
            Some(node) => node.cpus.intersection(machine.allowed()),
            None => machine.allowed().clone(),
        };
        let busy = cpus.iter().copied().collect::<CpuSet>().len();
        let thread = |(name, &cpu): (&&str, &usize)| AssignedThread { name: (*name).into(), cpu };
        Assignment {
            threads: names.iter().zip(cpus).map(thread).collect(),
            node: node.map(|node| node.number),
            memory_cpus,
            exceeds_quota: machine.quota().is_some_and(|quota: &Quota| quota.is_exceeded_by(busy)),
        }
    }

    /// Returns the threads in the order in which they were named.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    ///
    /// let machine = Machine::this()?;
    /// let assignment = machine.assign(&Placement::SameCore, &["producer"])?;
    /// assert_eq!(assignment.threads()[0].name, "producer");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn threads(&self) -> &[AssignedThread] {
        &self.threads
    }

    /// Returns the CPU of a thread; `None` if there is no thread of that name. If several threads
    /// have the name, the first counts.
    ///
    /// Example: [`Machine::assign`].
    pub fn cpu(&self, thread: &str) -> Option<usize> {
        self.threads.iter().find(|known| known.name == thread).map(|known| known.cpu)
    }

    /// Returns the number of the memory node that has the most threads. If several nodes have
    /// equally many, the producer's node comes first. A ring's memory lies on that node if a thread
    /// on the node is the first to write to it.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    ///
    /// let machine = Machine::this()?;
    /// let assignment = machine.assign(&Placement::SameCore, &["producer", "parse"])?;
    /// assert!(!assignment.memory_cpus().is_empty());
    /// assert!(assignment.node().is_none_or(|node| node < 1024));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn node(&self) -> Option<usize> {
        self.node
    }

    /// Returns the allowed CPUs of the node that [`node`](Self::node) returns: a thread on one of
    /// these CPUs writes the ring's memory first.
    ///
    /// Example: [`Assignment::node`].
    pub fn memory_cpus(&self) -> &CpuSet {
        &self.memory_cpus
    }

    /// Returns whether the threads' CPUs, if all of them were busy, would use more time than the
    /// quota of this process's control group allows. The system then stops the threads in each
    /// period.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement, Snapshot};
    ///
    /// let container: Snapshot = "sys/devices/system/cpu/online: 0-3\n\
    ///     proc/self/cgroup: 0::/\n\
    ///     sys/fs/cgroup/cpu.max: 150000 100000\n".parse()?;
    /// let machine = Machine::from_snapshot(&container)?;
    /// let threads = ["producer", "parse"];
    /// assert!(machine.assign(&Placement::Spread, &threads)?.exceeds_quota());
    /// assert!(!machine.assign(&Placement::SameCore, &threads)?.exceeds_quota());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn exceeds_quota(&self) -> bool {
        self.exceeds_quota
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.threads.iter().map(|thread| thread.name.chars().count());
        // `format!` panics at a width beyond 2^16 - 1.
        let width = names.chain(["thread".len()]).max().unwrap_or(0).min(60);
        writeln!(f, "{:width$}  {:>3}", "thread", "CPU")?;
        for AssignedThread { name, cpu } in &self.threads {
            writeln!(f, "{name:width$}  {cpu:>3}")?;
        }
        Ok(())
    }
}

/// The error of a placement that is impossible on a machine.
///
/// The error's text has several lines: the reason, the placements that are possible, and the
/// machine's cores, caches and nodes.
///
/// ```
/// use slipring_machine::{Machine, Placement, Snapshot};
///
/// let snapshot: Snapshot = "sys/devices/system/cpu/online: 0-3".parse()?;
/// let machine = Machine::from_snapshot(&snapshot)?;
/// let error = machine.assign(&Placement::Siblings, &["producer", "parse"]).unwrap_err();
/// assert_eq!(error.reason(), "a core has at most 1 allowed CPU");
/// assert_eq!(error.possible(), [Placement::SameCore, Placement::SameNode, Placement::Spread]);
/// assert!(error.to_string().contains("4 cores: 0-3"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementError {
    placement: Placement,
    threads: usize,
    reason: String,
    possible: Vec<Placement>,
    summary: String,
}

impl PlacementError {
    pub(crate) fn new(
        machine: &Machine,
        placement: &Placement,
        threads: usize,
        reason: String,
        possible: Vec<Placement>,
    ) -> PlacementError {
        let (placement, summary) = (placement.clone(), machine.summary());
        PlacementError { placement, threads, reason, possible, summary }
    }

    /// Returns why the placement is impossible, in one line.
    ///
    /// Example: [`PlacementError`].
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the named placements that are possible for these threads.
    ///
    /// Example: [`PlacementError`].
    pub fn possible(&self) -> &[Placement] {
        &self.possible
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { placement, threads, reason, possible, summary } = self;
        let threads = plural(*threads, "thread");
        write!(f, "placement {placement} is impossible for {threads}: {reason}")?;
        if !possible.is_empty() {
            let possible: Vec<String> = possible.iter().map(Placement::to_string).collect();
            write!(f, "; possible are {}", possible.join(", "))?;
        }
        write!(f, "; the machine has\n{}", summary.trim_end())
    }
}

impl std::error::Error for PlacementError {}
