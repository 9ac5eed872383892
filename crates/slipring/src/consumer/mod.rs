//! Consumers: their positions, the loop that runs a stage, and the handles that lend events.

pub(crate) mod drive;
pub(crate) mod lease;
pub(crate) mod member;
pub(crate) mod pool;
pub(crate) mod position;
pub(crate) mod shard;
pub(crate) mod skip;
