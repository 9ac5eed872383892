//! The parts of a machine, as data.

use serde::{Deserialize, Serialize};

use super::cpu_set::CpuSet;

/// A processor in its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Package {
    /// Number of the package, as the system counts.
    pub number: usize,
    /// CPUs of the package that are online.
    pub cpus: CpuSet,
}

/// A part of the memory, and the CPUs that are near to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// Number of the node, as the system counts.
    pub number: usize,
    /// CPUs of the node that are online. Empty if the node has only memory.
    pub cpus: CpuSet,
    /// Size of the node's memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Distances to all nodes, in the order of the nodes; the distance of a node to itself is 10.
    /// Empty if the system states none.
    pub distances: Vec<u32>,
}

/// A kind of core, on a machine that has several. A machine with a single kind lists none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CoreKind {
    /// Name of the kind: `performance`, `efficiency`, `low-power`, or `capacity N`.
    pub name: String,
    /// Speed of one core, in 1024ths of the machine's fastest.
    pub capacity: Option<u32>,
    /// CPUs of this kind that are online.
    pub cpus: CpuSet,
}

/// A core: one or more hardware threads that share everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Core {
    /// Number of the core: cores are counted from 0, in the order of their first CPUs.
    pub number: usize,
    /// Hardware threads of the core that are online.
    pub cpus: CpuSet,
    /// Number of the core's package, if the system states it.
    pub package: Option<usize>,
    /// Number of the core's node, if a node has it.
    pub node: Option<usize>,
    /// Index of the core's kind in [`Machine::kinds`](super::machine::Machine::kinds), if the
    /// machine has several.
    pub kind: Option<usize>,
}

/// A cache, and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cache {
    /// Level of the cache; 1 is the nearest to the core.
    pub level: u32,
    /// Contents of the cache.
    pub holds: CacheHolds,
    /// Size, in KiB.
    pub size_kib: Option<u64>,
    /// Size of a line, in bytes.
    pub line_bytes: Option<u32>,
    /// CPUs that share the cache and are online.
    pub cpus: CpuSet,
}

/// The contents of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CacheHolds {
    /// Data.
    Data,
    /// Instructions.
    Instructions,
    /// Data and instructions.
    Both,
}

/// A limit of processor time that a control group of this process has. A container may hide the
/// groups around it, which can have smaller limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Quota {
    /// Processor time that the group may use in each period, in microseconds.
    pub time_us: u64,
    /// Length of the period, in microseconds; at least 1.
    pub period_us: u64,
    /// File that states the quota.
    pub file: String,
}

impl Quota {
    /// Returns the number of CPUs that the group may use all the time; 1.5, for example.
    ///
    /// ```
    /// use slipring_machine::{Machine, Snapshot};
    ///
    /// let container: Snapshot = "sys/devices/system/cpu/online: 0-3\n\
    ///     proc/self/cgroup: 0::/\n\
    ///     sys/fs/cgroup/cpu.max: 150000 100000\n".parse()?;
    /// let machine = Machine::from_snapshot(&container)?;
    /// assert_eq!(machine.quota().unwrap().cpus(), 1.5);
    /// assert_eq!(machine.usable_cores(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cpus(&self) -> f64 {
        self.time_us as f64 / self.period_us.max(1) as f64
    }

    /// Returns whether this many busy CPUs use more than the quota.
    pub(crate) fn is_exceeded_by(&self, cpus: usize) -> bool {
        cpus as u128 * u128::from(self.period_us) > u128::from(self.time_us)
    }
}

/// Sizes of pages, and the system's use of huge ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Memory {
    /// Size of a page, in KiB.
    pub page_kib: Option<u64>,
    /// The system's mode of huge pages for memory that did not ask for them: `always`, `madvise` or
    /// `never`.
    pub transparent_huge_pages: Option<String>,
    /// Size of a transparent huge page, in KiB.
    pub transparent_huge_page_kib: Option<u64>,
    /// Huge pages that are reserved, by size.
    pub huge_pages: Vec<HugePages>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HugePages {
    /// Size of a page, in KiB.
    pub size_kib: u64,
    /// Number of pages that are reserved.
    pub reserved: u64,
    /// Number of reserved pages that are free.
    pub free: u64,
}
