//! The descriptions of machines, measured and simulated, in the records of experiments.

use serde::{Deserialize, Serialize};
use slipring_machine::{Clock, Machine, usable_cores};

/// The machine that was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredMachine {
    /// Number of threads of this process that can run at the same time.
    pub cores: usize,
    /// Model name of the processor.
    pub cpu: Option<String>,
    /// Name and release of the operating system.
    pub kernel: Option<String>,
    /// Time of one reading of the clock, in nanoseconds.
    pub clock_ns: f64,
    /// Cores, caches and memory nodes, where the system describes them. Old records have none.
    #[serde(default)]
    pub description: Option<Machine>,
}

/// A simulated machine, and the parameters of its model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Name of the simulated machine.
    pub name: String,
    /// Number of virtual cores.
    pub cores: usize,
    /// Every parameter with its value.
    pub parameters: Vec<(String, String)>,
}

impl MeasuredMachine {
    /// Describes the machine that this process runs on.
    pub fn this() -> MeasuredMachine {
        // The description may be missing, because no experiment depends on it.
        let description = Machine::this().ok();
        let text = |of: fn(&Machine) -> Option<&str>| -> Option<String> {
            description.as_ref().and_then(of).map(str::to_owned)
        };
        MeasuredMachine {
            cores: usable_cores(),
            cpu: text(Machine::model),
            kernel: text(Machine::kernel),
            clock_ns: Clock::cost(),
            description,
        }
    }

    /// Describes a simulated machine.
    pub fn simulated(model: &Model) -> MeasuredMachine {
        MeasuredMachine {
            cores: model.cores,
            cpu: Some(format!("simulated: {}", model.name)),
            kernel: None,
            clock_ns: 0.0,
            description: None,
        }
    }
}
