//! A machine as data, and what follows from the data alone.
//!
//! In a description that the reader makes, each online CPU belongs to exactly one core, every
//! allowed CPU is online, and there is at least one allowed CPU and at least one node. A
//! description that was read from a record holds whatever the record says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cpu_set::CpuSet;
use super::parts::{Cache, CacheHolds, Core, CoreKind, Memory, Node, Package, Quota};

/// A description of a machine: its CPUs, cores, caches, memory nodes, and how much of them this
/// process may use.
///
/// A *CPU* is a logical CPU, by the number that the system gives it: one hardware thread of a
/// *core*. A *package* is a processor in its socket. A *node* is a part of the memory, with the
/// CPUs that are near to it (NUMA).
///
/// A description shows one moment: it does not follow CPUs that go online or offline later, or a
/// mask or a quota that changes.
///
/// Parts that the system does not describe are absent, or take the simplest form: a CPU without a
/// folder for its topology is a core of its own, and without nodes there is one node with all CPUs.
/// Without a cache folder there are no caches, and without `/proc` a process may use all CPUs that
/// are online. A file that this process may not read counts as missing.
///
/// On systems other than Linux, [`Machine::this`] describes only the number of cores.
///
/// In records (`serde`), the keys are the names of the methods below and of the public fields, and
/// sets of CPUs are texts such as `0-3,8`. Later versions may add keys, but will keep these.
///
/// ```
/// use slipring_machine::Machine;
///
/// let machine = Machine::this()?;
/// for core in machine.cores() {
///     println!("core {} has CPUs {}", core.number, core.cpus);
/// }
/// # Ok::<(), slipring_machine::MachineError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub(crate) model: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) hypervisor: Option<String>,
    pub(crate) online: CpuSet,
    pub(crate) offline: CpuSet,
    pub(crate) allowed: CpuSet,
    pub(crate) quota: Option<Quota>,
    pub(crate) usable_cores: usize,
    pub(crate) packages: Vec<Package>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) kinds: Vec<CoreKind>,
    pub(crate) cores: Vec<Core>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) memory: Memory,
}

impl Machine {
    /// Returns the processor's name.
    ///
    /// ```
    /// let model = slipring_machine::Machine::this()?.model().unwrap_or("unknown").to_owned();
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the name and release of the operating system.
    ///
    /// ```
    /// let kernel = slipring_machine::Machine::this()?.kernel().unwrap_or("unknown").to_owned();
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn kernel(&self) -> Option<&str> {
        self.kernel.as_deref()
    }

    /// Returns the name of the hypervisor that runs this machine, if a hypervisor identifies
    /// itself.
    ///
    /// ```
    /// let is_virtual = slipring_machine::Machine::this()?.hypervisor().is_some();
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn hypervisor(&self) -> Option<&str> {
        self.hypervisor.as_deref()
    }

    /// Returns the CPUs that run.
    ///
    /// ```
    /// let machine = slipring_machine::Machine::this()?;
    /// assert!(machine.allowed().is_subset(machine.online()));
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Returns the CPUs of the machine that are offline. The system says nothing else about them.
    ///
    /// ```
    /// let machine = slipring_machine::Machine::this()?;
    /// assert!(machine.offline().intersection(machine.online()).is_empty());
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn offline(&self) -> &CpuSet {
        &self.offline
    }

    /// Returns the online CPUs that this thread's affinity mask allows. The set is never empty.
    ///
    /// Example: [`Machine::online`].
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// Returns the smallest limit of processor time among the control groups of this process.
    ///
    /// Example: [`Quota::cpus`].
    pub fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// Returns how many threads of this process can run all the time: its allowed CPUs, or the
    /// whole CPUs of its quota if that is less, and at least 1.
    ///
    /// A quota of 1.5 CPUs counts as 1, because two threads that spin under it are stopped in each
    /// period. [`std::thread::available_parallelism`] counts in the same way.
    ///
    /// Example: [`Quota::cpus`].
    pub fn usable_cores(&self) -> usize {
        self.usable_cores
    }

    /// Returns the packages, by number; empty if the system names none.
    ///
    /// ```
    /// let packages = slipring_machine::Machine::this()?.packages().len();
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Returns the memory nodes, by number. There is at least one.
    ///
    /// ```
    /// assert!(!slipring_machine::Machine::this()?.nodes().is_empty());
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the kinds of cores, the fastest first; empty if all cores are alike.
    ///
    /// ```
    /// for kind in slipring_machine::Machine::this()?.kinds() {
    ///     println!("{}: CPUs {}", kind.name, kind.cpus);
    /// }
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn kinds(&self) -> &[CoreKind] {
        &self.kinds
    }

    /// Returns the cores, by number. Each CPU that is online belongs to one of them.
    ///
    /// Example: [`Machine`].
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// Returns the core of a CPU that is online.
    ///
    /// ```
    /// let machine = slipring_machine::Machine::this()?;
    /// let first = machine.online().first().unwrap();
    /// assert!(machine.core_of(first).unwrap().cpus.contains(first));
    /// assert!(machine.core_of(usize::MAX).is_none());
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn core_of(&self, cpu: usize) -> Option<&Core> {
        self.cores.iter().find(|core| core.cpus.contains(cpu))
    }

    /// Returns the caches, the highest level first, then by their first CPU; empty if the system
    /// does not describe caches.
    ///
    /// ```
    /// let machine = slipring_machine::Machine::this()?;
    /// if let Some(last) = machine.caches().first() {
    ///     println!("level {}, shared by CPUs {}", last.level, last.cpus);
    /// }
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// Returns the sizes of pages, and the system's use of huge ones.
    ///
    /// ```
    /// let huge = slipring_machine::Machine::this()?.memory().huge_pages.len();
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the data caches that several cores share, the highest level first.
    pub(crate) fn shared_caches(&self) -> Vec<&Cache> {
        let mut core_of = BTreeMap::new();
        for core in &self.cores {
            core_of.extend(core.cpus.iter().map(|cpu| (cpu, core.number)));
        }
        let is_shared = |cache: &&Cache| {
            let mut cores = cache.cpus.iter().filter_map(|cpu| core_of.get(&cpu));
            let first = cores.next();
            cache.holds != CacheHolds::Instructions && cores.any(|core| Some(core) != first)
        };
        self.caches.iter().filter(is_shared).collect()
    }
}
