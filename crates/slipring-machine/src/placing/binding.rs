//! The places of a graph's threads on a machine, found by the threads' names.

use std::sync::Arc;

use slipring::{
    faults::Fault,
    placement::{Bound, Places},
};

use super::assignment::Assignment;
use super::placement::Placement;
use crate::description::cpu_set::CpuSet;
use crate::description::machine::Machine;
use crate::threads::affinity::bind_thread;

/// A placement on a machine, as a graph takes it. [`Machine::at`] makes one.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use slipring_machine::{Machine, Placement};
///
/// let done = slipring::ring(1024, || 0u64)
///     .placement(Machine::this()?.at(Placement::SameCore))
///     .read("log", |_, _| ())
///     .feed(0..3, |slot, i| *slot = i)?;
/// assert_eq!(done.report.stages()[0].name.as_str(), "log");
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    machine: Machine,
    placement: Placement,
}

impl Machine {
    /// Makes a placement that a graph takes.
    ///
    /// Example: [`Placed`].
    pub fn at(self, placement: Placement) -> Placed {
        Placed { machine: self, placement }
    }
}

impl Placed {
    /// Returns the machine.
    ///
    /// ```
    /// use slipring_machine::{Machine, Placement};
    ///
    /// let placed = Machine::this()?.at(Placement::Spread);
    /// assert!(!placed.machine().cores().is_empty());
    /// assert_eq!(placed.placement(), &Placement::Spread);
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the placement.
    ///
    /// Example: [`Placed::machine`].
    pub fn placement(&self) -> &Placement {
        &self.placement
    }
}

impl slipring::placement::Placement for Placed {
    fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault> {
        let assignment = self.machine.assign(&self.placement, threads)?;
        Ok(Arc::new(assignment))
    }
}

impl Places for Assignment {
    fn cores(&self) -> usize {
        self.threads().iter().map(|thread| thread.cpu).collect::<CpuSet>().len()
    }

    fn bind(&self, thread: &str) -> Result<Bound, Fault> {
        let cpu = self.cpu(thread);
        let cpu = cpu.ok_or_else(|| Fault::msg(format!("no CPU was assigned to {thread}")))?;
        bound(&CpuSet::from_iter([cpu]))
    }

    fn bind_to_memory(&self) -> Result<Bound, Fault> {
        bound(self.memory_cpus())
    }
}

fn bound(cpus: &CpuSet) -> Result<Bound, Fault> {
    let bound = bind_thread(cpus)?;
    Ok(Bound::new(move || drop(bound)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use slipring::placement::Placement as _;

    use super::*;
    use crate::placing::placement::Explicit;
    use crate::threads::affinity::allowed_cpus;

    #[test]
    fn threads_are_bound_by_name_and_get_their_masks_back() {
        let before = allowed_cpus();
        let machine = Machine::this().unwrap();
        assert_eq!(machine.allowed().iter().collect::<Vec<_>>(), before);
        let last = *before.last().unwrap();
        let explicit = Explicit::named([("producer", before[0]), ("parse", last)]);
        let placed = machine.at(Placement::Explicit(explicit));
        let places = placed.assign(&["producer".into(), "parse".into()]).unwrap();
        let bound = places.bind("parse").unwrap();
        assert_eq!(allowed_cpus(), [last]);
        drop(bound);
        assert_eq!(allowed_cpus(), before);
        let bound = places.bind_to_memory().unwrap();
        assert!(allowed_cpus().contains(&before[0]));
        drop(bound);
        assert!(places.bind("store").unwrap_err().to_string().contains("store"));
        assert!(placed.assign(&["producer".into()]).is_err());
    }
}
