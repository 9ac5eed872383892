//! Reads the description of a machine, part by part.

use std::path::Path;

use super::files::{Files, MachineError, Source};
use super::snapshot::Snapshot;
use super::{memory, model, quota, topology};
#[cfg(not(target_os = "linux"))]
use crate::description::cpu_set::CpuSet;
use crate::description::machine::Machine;
#[cfg(not(target_os = "linux"))]
use crate::threads::affinity;

impl Machine {
    /// Describes the machine that this process runs on, as the calling thread may use it.
    ///
    /// Reading takes some system calls for each core and each cache.
    ///
    /// # Errors
    /// A file of the system cannot be read, or its content is impossible.
    ///
    /// Example: [`Machine`].
    pub fn this() -> Result<Machine, MachineError> {
        #[cfg(target_os = "linux")]
        {
            Self::below(Path::new("/"))
        }
        #[cfg(not(target_os = "linux"))]
        {
            let cpus: CpuSet = (0..affinity::usable_cores()).collect();
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
    /// The folder does not exist or describes no CPU, or one of its files cannot be read or has
    /// impossible content. The error names the file.
    ///
    /// Example: [`Snapshot::unpack`].
    pub fn below(root: &Path) -> Result<Machine, MachineError> {
        std::fs::read_dir(root).map_err(|error| MachineError::unreadable(root, error))?;
        Self::read(&Files::new(Source::Root(root)))
    }

    /// Describes the machine whose files are in a snapshot.
    ///
    /// # Errors
    /// The snapshot has no CPUs, or the content of a file is impossible. The error names the file.
    ///
    /// Example: [`Snapshot`].
    pub fn from_snapshot(snapshot: &Snapshot) -> Result<Machine, MachineError> {
        Self::read(&Files::new(Source::Snapshot(snapshot)))
    }

    /// Describes a machine as [`below`](Self::below) does, and also returns the files that were
    /// read.
    ///
    /// # Errors
    /// The errors of [`below`](Self::below).
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
}
