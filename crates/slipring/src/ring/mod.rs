//! The ring: the slots and stamps, the plan of the graph, and the words that handles share.

pub(crate) mod asked;
pub(crate) mod askers;
pub(crate) mod board;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod control;
pub(crate) mod core;
pub(crate) mod cores;
#[cfg(all(test, not(slipring_loom)))]
mod cores_tests;
pub(crate) mod counters;
mod draft;
pub(crate) mod early_claims;
pub(crate) mod events;
pub(crate) mod helper;
pub(crate) mod membership;
pub(crate) mod memory;
pub(crate) mod owner;
pub(crate) mod owner_count;
pub(crate) mod partition;
pub(crate) mod passing;
pub(crate) mod plan;
#[cfg(all(test, not(slipring_loom)))]
mod plan_tests;
pub(crate) mod policy;
pub(crate) mod positions;
pub(crate) mod seat;
pub(crate) mod self_wait;
pub(crate) mod seq_range;
pub(crate) mod settings;
pub(crate) mod slots;
pub(crate) mod snapshot;
pub(crate) mod spec;
pub(crate) mod stage;
pub(crate) mod stamp;
pub(crate) mod status;
pub(crate) mod task_budget;
pub(crate) mod task_number;
pub(crate) mod waits;
pub(crate) mod words;
pub(crate) mod world;
