//! The chain front: stages on named threads, declared in one expression.
//!
//! Invariants
//! - I1: a writing stage can be declared only outside of fan-outs. By I1, the soundness rule
//!   (plan::I1) holds by construction, and the plan checks the rule again.
//! - I2: no mistake in a declaration is lost: the start of the chain reports the first mistake.

mod declare;
mod fan_out;
mod handlers;
mod hooks;
mod inline;
mod launch;
mod options;
mod pipeline;
mod place;
mod pools;
mod runner;
mod stages;
mod thread;

pub use declare::{Chain, ring};
pub use handlers::{ReadHandler, WriteHandler};
pub use inline::Inline;
pub use launch::Done;
pub use pipeline::{JoinError, Pipeline};
pub use place::{Branch, FanOut, MayWrite, Sequential};
