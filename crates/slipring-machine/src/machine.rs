//! The description of a machine.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{Files, MachineError, Source};
use crate::{CpuSet, Snapshot, memory, model, quota, topology};

/// A description of a machine: its CPUs, cores, caches, memory nodes, and how much of them this
/// process may use.
///
/// A *CPU* is a logical CPU, by the number that the system gives it: one hardware thread of a
/// *core*. A *package* is a processor in its socket. A *node* is a part of the memory, with the
/// CPUs that are near to it (NUMA).
///
/// A description is of one moment: it does not see CPUs that go online or offline later, or a mask
/// or quota that changes.
///
/// What the system does not say is absent. Without a folder for a CPU's topology, the CPU is a core
/// of its own. Without nodes, there is one node with all CPUs. Without a cache folder, there are no
/// caches. Without `/proc`, a process may use all CPUs that are online. A file that this process
/// may not read counts as missing.
///
/// On systems other than Linux, [`Machine::this`] has a number of cores and no more.
///
/// In records (`serde`), the keys are the names of the methods below and of the public fields, and
/// sets of CPUs are texts such as `0-3,8`. Later versions may add keys, and keep these.
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
    model: Option<String>,
    kernel: Option<String>,
    hypervisor: Option<String>,
    online: CpuSet,
    offline: CpuSet,
    allowed: CpuSet,
    quota: Option<Quota>,
    usable_cores: usize,
    packages: Vec<Package>,
    nodes: Vec<Node>,
    kinds: Vec<Kind>,
    cores: Vec<Core>,
    caches: Vec<Cache>,
    memory: Memory,
}

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
    /// CPUs of the node that are online. A node may have memory alone.
    pub cpus: CpuSet,
    /// Size of the node's memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Distances to all nodes, in their order; 10 is the distance of a node to itself. Empty: the
    /// system states none.
    pub distances: Vec<u32>,
}

/// A kind of core, on a machine that has several. Machines with one kind of core name none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kind {
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
    /// Number of the core's package, if the system says.
    pub package: Option<usize>,
    /// Number of the core's node, if a node has it.
    pub node: Option<usize>,
    /// Place of the core's kind in [`Machine::kinds`], if the machine has several.
    pub kind: Option<usize>,
}

/// A cache, and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cache {
    /// Level of the cache; 1 is the nearest to the core.
    pub level: u32,
    /// What the cache holds.
    pub holds: CacheHolds,
    /// Size, in KiB.
    pub size_kib: Option<u64>,
    /// Size of a line, in bytes.
    pub line_bytes: Option<u32>,
    /// CPUs that share the cache and are online.
    pub cpus: CpuSet,
}

/// What a cache holds.
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

/// A limit of processor time, which a control group of this process has. A container may hide
/// groups around it that have smaller ones.
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

/// Sizes of pages, and what the system does with huge ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Memory {
    /// Size of a page, in KiB.
    pub page_kib: Option<u64>,
    /// Whether the system gives huge pages to memory that did not ask: `always`, `madvise` or
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

impl Machine {
    /// Describes the machine that this process runs on, as the calling thread may use it.
    ///
    /// Reading takes some system calls for each core and each cache.
    ///
    /// # Errors
    /// A file of the system cannot be read, or says what no system says.
    ///
    /// Example: [`Machine`].
    pub fn this() -> Result<Machine, MachineError> {
        #[cfg(target_os = "linux")]
        {
            Self::below(Path::new("/"))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let cpus: CpuSet = (0..crate::usable_cores()).collect();
            let text = format!("sys/devices/system/cpu/online: {cpus}\n");
            let snapshot: Snapshot = text.parse().unwrap_or_default();
            let mut machine = Self::from_snapshot(&snapshot)?;
            machine.kernel = Some(std::env::consts::OS.to_owned());
            Ok(machine)
        }
    }

    /// Describes the machine whose files lie below `root`: `sys` and `proc`.
    ///
    /// # Errors
    /// There is no such folder, it has no CPUs, a file cannot be read, or says what no system says.
    /// The error names the file.
    ///
    /// Example: [`Snapshot::unpack`].
    pub fn below(root: &Path) -> Result<Machine, MachineError> {
        std::fs::read_dir(root).map_err(|error| MachineError::unreadable(root, error))?;
        Self::read(&Files::new(Source::Root(root)))
    }

    /// Describes the machine whose files are in a snapshot.
    ///
    /// # Errors
    /// The snapshot has no CPUs, or a file says what no system says. The error names the file.
    ///
    /// Example: [`Snapshot`].
    pub fn from_snapshot(snapshot: &Snapshot) -> Result<Machine, MachineError> {
        Self::read(&Files::new(Source::Snapshot(snapshot)))
    }

    /// Describes a machine as [`below`](Self::below), and returns what was read, too.
    ///
    /// # Errors
    /// As [`below`](Self::below).
    ///
    /// ```
    /// # if cfg!(target_os = "linux") {
    /// use std::path::Path;
    /// use slipring_machine::Machine;
    ///
    /// let (machine, snapshot) = Machine::below_with_snapshot(Path::new("/"))?;
    /// assert_eq!(Machine::from_snapshot(&snapshot)?, machine);
    /// # }
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn below_with_snapshot(root: &Path) -> Result<(Machine, Snapshot), MachineError> {
        std::fs::read_dir(root).map_err(|error| MachineError::unreadable(root, error))?;
        let files = Files::new(Source::Root(root));
        let machine = Self::read(&files)?;
        Ok((machine, files.into_snapshot()))
    }

    fn read(files: &Files<'_>) -> Result<Machine, MachineError> {
        let (online, offline) = topology::online(files)?;
        let allowed = topology::allowed(files, &online)?;
        let nodes = topology::nodes(files, &online)?;
        let kinds = topology::kinds(files, &online)?;
        let (cores, packages) = topology::cores(files, &online, &nodes, &kinds)?;
        let quota = quota::read(files)?;
        let usable_cores = match &quota {
            Some(quota) => {
                let whole = usize::try_from(quota.time_us / quota.period_us).unwrap_or(usize::MAX);
                allowed.len().min(whole).max(1)
            }
            None => allowed.len(),
        };
        Ok(Machine {
            model: model::processor(files)?,
            kernel: files.text("proc/sys/kernel/osrelease")?.map(|text| format!("Linux {text}")),
            hypervisor: model::hypervisor(files)?,
            caches: topology::caches(files, &online)?,
            memory: memory::read(files)?,
            online,
            offline,
            allowed,
            quota,
            usable_cores,
            packages,
            nodes,
            kinds,
            cores,
        })
    }

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

    /// Returns the name of the hypervisor that runs this machine, if one says that it does.
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

    /// Returns the CPUs that the machine has and that do not run. The system says nothing else of
    /// these.
    ///
    /// ```
    /// let machine = slipring_machine::Machine::this()?;
    /// assert!(machine.offline().intersection(machine.online()).is_empty());
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn offline(&self) -> &CpuSet {
        &self.offline
    }

    /// Returns the CPUs that run and that the affinity mask allows to this thread. It is never
    /// empty.
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

    /// Returns the packages, by number. Empty: the system names none.
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

    /// Returns the kinds of cores, the fastest first. Empty: all cores are alike.
    ///
    /// ```
    /// for kind in slipring_machine::Machine::this()?.kinds() {
    ///     println!("{}: CPUs {}", kind.name, kind.cpus);
    /// }
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn kinds(&self) -> &[Kind] {
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

    /// Returns the caches, the highest level first, then by their first CPU. Empty: the system says
    /// nothing of caches.
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

    /// Returns the sizes of pages, and what the system does with huge ones.
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
