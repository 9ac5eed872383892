//! Contenders that several experiments measure beside the ring.

pub mod blocking_queue;
pub mod queue;
