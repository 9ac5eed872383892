//! Threads and the system: affinity masks, processor times, and a clock.

pub(crate) mod affinity;
pub(crate) mod clock;
pub(crate) mod usage;
