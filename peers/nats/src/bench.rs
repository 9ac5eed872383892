//! The server of a run, its amounts, and its events.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions};
use slipring_nats::Server as At;
use slipring_nats_server::{Options, Server};
use tokio::runtime::Runtime;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The error of a measurement that failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type BenchResult<T> = Result<T, Failure>;

/// Name and version of the events' type.
pub const TYPE: (&str, u32) = ("measured event", 1);
/// Length of a frame's header, in bytes.
pub const HEADER: usize = 104;
/// Length of an event, in bytes.
pub const EVENT: usize = size_of::<Event>();

/// An event of 64 bytes that is made from its position, and holds it in each word.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Event([u64; 8]);

impl Event {
    /// Returns the event of a position.
    #[inline(always)]
    pub fn at(seq: u64) -> Event {
        Event([seq; 8])
    }

    /// Returns whether this is the complete event of a position.
    #[inline(always)]
    pub fn is_at(&self, seq: u64) -> bool {
        self.0.iter().fold(0, |wrong, word| wrong | (word ^ seq)) == 0
    }

    /// Returns the event's first word.
    pub fn word(&self) -> u64 {
        self.0[0]
    }
}

/// Amounts of one run.
#[derive(Clone, Copy)]
pub struct Amounts {
    /// Number of events that one repetition sends in frames.
    pub framed: u64,
    /// Number of events that one repetition sends as one message each.
    pub single: u64,
    /// Number of events in the stream that is read.
    pub replayed: u64,
    /// Time of a paced run.
    pub paced: Duration,
    /// Duration of the server's outage.
    pub away: Duration,
}

impl Amounts {
    pub fn full() -> Amounts {
        Amounts {
            framed: 4 << 20,
            single: 200_000,
            replayed: 8 << 20,
            paced: Duration::from_secs(2),
            away: Duration::from_secs(10),
        }
    }

    pub fn smoke() -> Amounts {
        Amounts {
            framed: 100_000,
            single: 10_000,
            replayed: 100_000,
            paced: Duration::from_millis(100),
            away: Duration::from_millis(500),
        }
    }
}

/// Number of frames in flight, and the greatest length of a frame.
#[derive(Clone, Copy)]
pub struct Flight {
    pub window: usize,
    pub frame: usize,
}

impl Flight {
    /// Returns the number of events that are in flight together.
    pub fn events(&self) -> usize {
        self.window * ((self.frame - HEADER) / EVENT)
    }
}

/// One server, which all contenders of a run share.
pub struct Bench {
    pub server: Server,
    pub amounts: Amounts,
    pub flight: Flight,
    streams: u64,
}

impl Bench {
    /// Starts a server with file storage and default settings.
    pub fn start(amounts: Amounts, flight: Flight) -> BenchResult<Bench> {
        Ok(Bench { server: Server::start(Options::new())?, amounts, flight, streams: 0 })
    }

    /// Returns the name of a new stream, which is also its subject.
    pub fn name(&mut self) -> String {
        self.streams += 1;
        format!("S{}", self.streams)
    }

    /// Returns the server's address for sinks and sources.
    pub fn at(&self) -> At {
        At::at(self.server.url())
    }
}

/// Returns a runtime with two threads, so that the client of a hand-written loop can run beside the
/// loop on a second core.
pub fn runtime() -> BenchResult<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

/// Returns a runtime that uses only the calling thread, for loops to which another thread would
/// cost more than it gains.
pub fn lone_runtime() -> BenchResult<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Connects with room for many messages in the client's channels.
pub async fn connect(url: &str) -> BenchResult<Client> {
    let options = ConnectOptions::new().client_capacity(8192).subscription_capacity(1 << 17);
    Ok(options.connect(url).await?)
}

/// Returns a context in which `in_flight` messages may wait for acknowledgements.
pub fn context(client: &Client, in_flight: usize) -> Context {
    ContextBuilder::new()
        .timeout(Duration::from_secs(30))
        .max_ack_inflight(in_flight)
        .build(client.clone())
}
