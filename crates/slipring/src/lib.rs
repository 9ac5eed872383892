//! Slipring.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
mod bell;
mod chain;
mod control;
mod core;
mod drive;
mod error;
mod events;
mod fault;
mod graph;
mod lease;
mod plan;
mod pool;
mod producer;
mod report;
mod seat;
mod slots;
mod stamp;
mod sync;
mod wait;

pub use chain::*;
pub use error::*;
pub use events::*;
pub use fault::*;
pub use graph::*;
pub use lease::*;
pub use producer::*;
pub use report::*;
pub use slots::{Contiguous, Inside, Layout};
pub use wait::{Idle, UnknownWait, Wait, WaitStrategy, Waited};
