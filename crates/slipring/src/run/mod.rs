//! Runs the stages of a front. Each handler is supervised, and runs on a thread of its own, on
//! threads that all stages share, or in turn with others on one thread.
//!
//! Invariants
//! - I1: a stage's runner is on one thread at a time, and is dropped once.
//! - I2: when [`launch`] returns a result, every stage that the library runs has ended.

pub(crate) mod entry;
pub(crate) mod executor;
pub(crate) mod groups;
pub(crate) mod handlers;
mod history;
pub(crate) mod hooks;
pub(crate) mod judge;
pub(crate) mod launch;
mod pipeline;
pub(crate) mod placement;
pub(crate) mod runner;
mod running;
pub(crate) mod thread;
pub(crate) mod threads;
mod turn_clock;

pub use handlers::{ReadHandler, UpdateHandler};
pub use judge::Failed;
pub use launch::Done;
pub use pipeline::{Joining, Pipeline};
pub use placement::{Bound, Placement, Places};
pub use threads::Threads;
