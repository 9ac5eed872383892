//! A promise hands one value once from one thread to another.
//!
//! A promise is no ring. A [`Promise`] and its [`Awaited`] share one allocation with room for the
//! value, for one sleeper, and a word that both change. [`handover`] holds the protocol and its
//! invariants.

mod awaited;
mod fulfilling;
mod handover;
mod sleep;
mod sleeper;
#[cfg(all(test, not(slipring_loom)))]
mod tests;

pub use awaited::Awaited;
pub use fulfilling::{Promise, promise};
