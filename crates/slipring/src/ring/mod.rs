//! The ring: its slots and stamps, the graph over it as planned, and the words that its handles
//! share.

pub(crate) mod control;
pub(crate) mod core;
pub(crate) mod counters;
pub(crate) mod events;
pub(crate) mod owner;
pub(crate) mod partition;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod self_wait;
pub(crate) mod slots;
pub(crate) mod spinning;
pub(crate) mod stamp;
pub(crate) mod task_number;
