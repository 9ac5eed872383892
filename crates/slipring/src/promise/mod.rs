//! A promise hands one value once from one thread to another.
//!
//! A promise does not use a ring. A [`Promise`] and its [`Awaited`] share one allocation, which
//! holds the value, one sleeper, and a word that both of them change. [`handover`] holds the
//! protocol and its invariants.

mod awaited;
mod fulfilling;
mod handover;
mod lent;
mod sleep;
mod sleeper;
#[cfg(all(test, not(slipring_loom)))]
mod tests;

pub use awaited::Awaited;
pub use fulfilling::{Promise, promise};
pub use lent::{Lent, lend};
