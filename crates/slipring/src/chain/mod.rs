//! A chain declares a ring and its stages in one expression, and runs the stages on named threads.
//!
//! Invariants
//! - I1: an updating stage can be declared only outside of fan-outs. The types of a chain enforce
//!   the soundness rule (plan::I1), and the plan checks the rule again.
//! - I2: the call that starts the chain, for instance `run`, returns the first mistake of the
//!   declarations as an error.

// rustdoc shows methods in the order of these lines: a page begins with those that most users call.
mod stages;

mod start;

mod pools;

mod fan_out;

mod declare;

mod options;

mod inline;
mod scope;

pub use declare::{Chain, ring};
pub use inline::Inline;
pub use scope::{Branch, FanOut, MayUpdate, Sequential};
