//! The metrics of a simulation: counts of an event, and times relative to other simulated times.

use super::super::super::metric::{Better, Metric};

pub static TRANSFERS: Metric = Metric { name: "transfers", unit: "an event", better: Better::Less };
pub static CROSS: Metric =
    Metric { name: "transfers between sockets", unit: "an event", better: Better::Less };
pub static RMWS: Metric =
    Metric { name: "read-modify-writes", unit: "an event", better: Better::Less };
pub static RELATIVE: Metric =
    Metric { name: "relative time", unit: "of one consumer's", better: Better::Less };
pub static AGAINST_ONE_THREAD: Metric =
    Metric { name: "time against one thread", unit: "of its", better: Better::Less };
pub static BUSY: Metric = Metric { name: "busy cores", unit: "cores", better: Better::Neither };
