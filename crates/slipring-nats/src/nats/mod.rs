//! The engine: everything that is particular to NATS.
//!
//! Only this module and its parts use the client library, so that another engine can replace this
//! one.
//!
//! Invariants
//! - I1: requests for the end of a stream go to the stream's leader (`STREAM.INFO`,
//!   `STREAM.MSG.GET`), and never to a replica (no direct get). A replica without a leader answers
//!   `STREAM.INFO`, and such an answer does not count.

pub mod api;
mod client;
mod connection;
pub mod consumer;
pub mod fetch;
pub mod power;
pub mod publish;
mod server;
pub mod stream;
pub mod subject;

#[cfg(test)]
pub use self::client::{NETWORK, Outgoing, Simulated, SimulatedNetwork};
pub use self::connection::{Connection, Fault, LONGEST_PAUSE, Notice, Patience, REQUEST};
pub use self::server::Server;
