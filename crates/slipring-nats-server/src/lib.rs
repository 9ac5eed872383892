//! NATS servers, clusters and a faulty proxy for tests and benchmarks.
//!
//! - [`binary`] finds the program `nats-server`, or installs it below the workspace's target
//!   folder.
//! - [`Server`] runs one server, which a test kills, restarts and pauses.
//! - [`Cluster`] runs three of them.
//! - [`Client`] is a blocking client that shares no code with the library under test.
//! - [`Proxy`] stands between a client and a server, and cuts, holds or swallows the bytes that
//!   pass.
//!
//! No part of this crate is published. All waits have limits. Ports are taken below the range of
//! the system's ephemeral ports: otherwise a client that tries to reconnect to a stopped server may
//! take the server's port, or even connect to itself.
#![forbid(unsafe_code)]

mod api;
pub mod binary;
mod client;
mod cluster;
mod forward;
mod host;
mod jetstream;
mod options;
mod proxy;
mod proxy_state;
mod server;
mod traffic;
mod wire;

pub use api::{ApiError, Purge, Stored};
pub use client::Client;
pub use cluster::Cluster;
pub use host::{HOST, free_port, wait_for};
pub use options::Options;
pub use proxy::Proxy;
pub use server::{Server, has_namespaces};
pub use traffic::{Counts, Direction, Traffic};
pub use wire::Message;
