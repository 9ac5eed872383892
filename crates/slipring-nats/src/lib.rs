//! A durable engine behind a ring of `slipring`: NATS JetStream, exactly once by position.
//!
//! ```text
//! cargo add slipring-nats
//! # until it is published:
//! cargo add --path PATH/TO/crates/slipring-nats
//! ```
//!
//! For programs whose events must survive their machine's reboot, or reach another machine.
//!
//! ```text
//!   ring ──> sink (a stage) ──> stream on a NATS server ──> source ──> ring, on any machine
//! ```
//!
//! A [`Sink`] is a stage that publishes each event of a ring to a stream of a NATS server, and a
//! [`Source`] fills a ring from such a stream, on any machine. Events keep their order and their
//! positions. None is lost or repeated, whichever process is killed.
//!
//! ```
//! # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
//! # let nats = slipring_nats_server::Server::start(Default::default())?;
//! # let url = nats.url();
//! use slipring_nats::{Decoding, Encoding, Server, Sink, Source, StreamSettings};
//!
//! let server = Server::at(url); // "nats://127.0.0.1:4222", for instance
//!
//! // One program.
//! let sink = Sink::to(server.clone(), "ORDERS")
//!     .create(StreamSettings::new("orders"))
//!     .open(Encoding::<u64>::plain("order", 1))?;
//! let graph = slipring::Graph::new(1024, || 0u64).first_seq(sink.next_seq());
//! let key = graph.reader("journal");
//! let ring = graph.build()?;
//! let sink = sink.start(ring.reader(key))?;
//! let mut tx = ring.producer();
//! tx.publish(|slot| *slot = 7)?;
//! tx.close();
//! sink.join()?;
//!
//! // Another program, on another machine.
//! let source = Source::of(server, "ORDERS").until_end().open()?;
//! let first = source.oldest().unwrap_or(0);
//! let graph = slipring::Graph::new(1024, || 0u64).shared().first_seq(first);
//! let key = graph.reader("count");
//! let ring = graph.build()?;
//! let mut count = ring.reader(key);
//! let source = source.start(Decoding::<u64>::plain("order", 1), ring.producer())?;
//! assert_eq!(count.for_each(|order, at| assert_eq!((*order, at.seq), (7, 0)))?, 1);
//! source.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How
//!
//! A message of the stream, a *frame*, carries a run of events with their positions. The sink
//! appends it on the condition that the stream's last sequence is the one that the sink expects. So
//! a frame is stored once, directly behind its predecessor, or not at all. That holds however often
//! it is sent and however late it arrives.
//!
//! After any doubt the sink asks the stream's leader for the last frame, and continues behind it. A
//! new sink first appends empty frames of the next *incarnation*, which make every condition of an
//! earlier sink false.
//!
//! A sink has several frames in flight, and predicts the sequences that their conditions name. Its
//! successor therefore begins with as many empty frames as may be in flight, in one atomic batch.
//!
//! Nothing relies on message ids or on the server's deduplication window. [`frames`] describes the
//! bytes for programs in other languages.
//!
//! # Reading positions, and trimming
//!
//! A source keeps no record of its own: the ring's position says where it continues, and
//! [`Progress`] how far it lags. A [`NamedConsumer`] records at the server which events a program
//! has finished with, and [`trim`] removes those that all named consumers have acknowledged.
//!
//! # Durability
//!
//! [`Durability`] lists which failures an acknowledged event survives. By default JetStream
//! acknowledges before it syncs to disk.
//!
//! # Memory and outages
//!
//! The sink holds the frames in flight ([`Sink::window`]) and two more. All other events wait in
//! the ring. During an outage of the engine the ring fills, and its producers wait by their own
//! strategy unless [`Sink::outage`] says otherwise.
//!
//! A server that is cut off from its cluster may keep its clients connected although it can store
//! nothing. After 4 s without success, a sink or source moves to another server, which it knows
//! from [`Server::or_at`] or from the first server. A server that is cut off also reports no new
//! messages. So a source that gets no message for 10 s asks the stream's leader for the next one.
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![forbid(unsafe_code)]

#[macro_use]
mod step;
#[macro_use]
mod twin;

/// The bytes of frames and messages, for programs in other languages.
#[doc = include_str!("../FRAMES.md")]
pub mod frames {}

mod consumer;
mod counters;
mod encoding;
mod errors;
#[cfg(feature = "metrics")]
mod export;
mod find;
mod frame;
mod message;
mod nats;
mod resume;
mod runtime;
#[cfg(test)]
mod simulation;
mod sink;
mod source;

#[cfg(feature = "steps")]
#[doc(hidden)]
pub use step::on_each_step;

pub use consumer::{NamedConsumer, Trim, trim};
pub use counters::{Counters, State};
pub use encoding::{Decoding, Encoding};
pub use errors::Error;
pub use nats::Server;
pub use nats::stream::StreamSettings;
pub use sink::{Durability, OpenSink, Outage, RunningSink, Sink, Stage, Watch};
pub use source::{Feed, OpenSource, Progress, RunningSource, Source};
