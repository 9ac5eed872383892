//! The real sinks and sources against a simulated server that lies by seed.
//!
//! # How
//!
//! A run has one thread, and a clock that moves only while every task waits. So an outage of
//! minutes takes no time, and a case always runs in the same way. The simulation takes the place of
//! the client library (`nats::client`): everything above it, the requests and their answers, the
//! loops of the sink and the source, is the code that programs run. The rings are simulated as
//! well, because they must survive the sinks and sources at them (`ring`).
//!
//! A case names the steps of a run and the lies about single messages. It comes from a seed.
//! The oracle checks each message that the server stores, each event that a sink releases or a
//! source publishes, and each end. A case that fails is made smaller, and printed as a line for
//! `simulation/regressions.jsonl`, whose cases each test run repeats.
//!
//! | call | does |
//! |---|---|
//! | `cargo test -p slipring-nats --lib simulation` | repeats the files' cases, and runs some seeds |
//! | with `SLIPRING_SEEDS=100000` | runs so many other seeds, from a random one on |
//! | with `SLIPRING_SEED=59` | runs this seed, or so many from it on |
//! | with `SLIPRING_TWIN=begin-alone` | plants a defect, and looks for a seed that fails with it |
//!
//! # Twins
//!
//! A twin (`twin!`) is a wrong variant of a single step. `simulation/twins.jsonl` has a case for
//! each twin, which fails with the twin and holds without it.
//!
//! No seed finds a sink that accepts the answers of an earlier attempt, or answers out of order,
//! because each of these checks makes up for the others. A sink that reuses the incarnation or the
//! number of a lost journal, or that begins behind a loss or begins anew with too few messages,
//! fails only if several messages come late at the right moments. The model of the resume rule
//! finds those, so they have no twin here.
//!
//! # Outside the simulation
//!
//! - The client library: its parser, its buffers' limits, TLS, and a connection that ends within a
//!   message. Tests with real servers cut connections at any byte.
//! - Clusters: leaders, elections, and servers that answer from an old state.
//! - A stream whose last sequence goes back. No rule finds that for every sink (`Durability`).
//! - The memory of the real rings. A real ring is only read in one test here.

mod case;
mod client;
mod network;
mod oracle;
mod play;
mod ring;
mod server;
mod shrink;
mod tests;

use std::sync::Arc;

use self::network::Network;
use crate::nats::NETWORK;
use crate::twin;

/// Ends the thread's simulation when it is dropped.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        NETWORK.set(None);
        twin::plant(None);
    }
}

/// Begins a simulation on this thread, with a planted twin or without.
fn enter(planted: Option<String>, network: Network) -> Running {
    NETWORK.set(Some(Arc::new(network)));
    twin::plant(planted);
    Running
}
