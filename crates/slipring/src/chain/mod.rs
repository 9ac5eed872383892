//! A chain declares a ring and its stages in one expression, and runs the stages on named threads.
//!
//! Invariants
//! - I1: a writing stage can be declared only outside of fan-outs. The types of a chain enforce the
//!   soundness rule (plan::I1), and the plan checks the rule again.
//! - I2: the call that starts the chain, for instance `run`, returns the first mistake of the
//!   declarations as an error.

mod declare;
pub(crate) mod entry;
pub(crate) mod executor;
mod fan_out;
pub(crate) mod handlers;
pub(crate) mod hooks;
mod inline;
mod launch;
mod options;
mod pipeline;
mod place;
mod pools;
pub(crate) mod runner;
mod stages;
mod thread;
mod threads;

pub use declare::{Chain, ring};
pub use handlers::{ReadHandler, WriteHandler};
pub use inline::Inline;
pub use launch::Done;
pub use pipeline::{JoinError, Pipeline};
pub use place::{Branch, FanOut, MayWrite, Sequential};
pub use threads::Threads;
