//! NATS servers, clusters and a faulty proxy for tests and benchmarks.
//!
//! - [`binary`] finds the program `nats-server`, or installs it below the workspace's target
//!   folder.
//! - [`Server`] runs one server, which a test kills, restarts and pauses.
//! - [`Cluster`] runs three of them.
//! - [`Client`] is a blocking client that shares no code with the library under test.
//! - [`Proxy`] stands between a client and a server, and cuts, holds or swallows what passes.
//!
//! No part of this crate is published. All waits have limits. Ports are taken below the range of
//! the system's ephemeral ports: otherwise a client that tries to reconnect to a stopped server may
//! take the server's port, or even connect to itself.
#![forbid(unsafe_code)]

pub mod binary;
mod client;
mod cluster;
mod forward;
mod jetstream;
mod options;
mod proxy;
mod server;
mod wire;

use std::{
    io,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

pub use client::Client;
pub use cluster::Cluster;
pub use jetstream::{ApiError, Purge, Stored};
pub use options::Options;
pub use proxy::{Counts, Direction, Proxy, Traffic};
pub use server::{Server, has_namespaces};
pub use wire::Message;

/// The host that all servers and proxies listen on.
pub const HOST: &str = "127.0.0.1";

/// Time between two attempts of [`wait_for`].
const ATTEMPT: Duration = Duration::from_millis(20);

/// Returns a port of [`HOST`] that was free a moment ago, below the range of ephemeral ports.
pub fn free_port() -> io::Result<u16> {
    let mut last = None;
    for _ in 0..1000 {
        let port = fastrand::u16(11_000..32_000);
        match TcpListener::bind((HOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free port")))
}

/// Calls `attempt` until it succeeds, for at most `limit`. Returns its last error as
/// [`io::ErrorKind::TimedOut`], with `what` in front.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                let text = format!("{what}: not within {limit:?}: {error}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(_) => thread::sleep(ATTEMPT),
        }
    }
}
