//! Two CPUs for a measurement between two threads.

use serde::{Deserialize, Serialize};

use crate::description::cpu_set::CpuSet;
use crate::description::machine::Machine;
use crate::threads::affinity::allowed_cpus;

/// Two different CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorePair {
    /// The CPU of the producer.
    pub producer: usize,
    /// The CPU of the reader that waits for the producer.
    pub waiter: usize,
}

impl CorePair {
    /// Chooses the first two CPUs that this thread may use and that are not hardware threads of one
    /// core. If there is no such pair, chooses the first two CPUs. Returns `None` if this thread
    /// may use only one CPU, or if the system has no affinity masks.
    ///
    /// ```
    /// if let Some(pair) = slipring_machine::CorePair::choose() {
    ///     assert_ne!(pair.producer, pair.waiter);
    /// }
    /// ```
    pub fn choose() -> Option<CorePair> {
        // On a machine that cannot be described, each CPU counts as a core.
        Self::among(&allowed_cpus().into_iter().collect(), Machine::this().ok().as_ref())
    }

    /// Chooses two CPUs of a machine, as [`choose`](Self::choose) does.
    ///
    /// ```
    /// use slipring_machine::{CorePair, Machine};
    /// let pair = CorePair::of(&Machine::this()?);
    /// # Ok::<(), slipring_machine::MachineError>(())
    /// ```
    pub fn of(machine: &Machine) -> Option<CorePair> {
        Self::among(machine.allowed(), Some(machine))
    }

    fn among(allowed: &CpuSet, machine: Option<&Machine>) -> Option<CorePair> {
        let producer = allowed.first()?;
        let own = machine.and_then(|machine| machine.core_of(producer));
        let others = || allowed.iter().filter(|&cpu| cpu != producer);
        let apart = others().find(|&cpu| own.is_none_or(|core| !core.cpus.contains(cpu)));
        Some(CorePair { producer, waiter: apart.or_else(|| others().next())? })
    }
}
