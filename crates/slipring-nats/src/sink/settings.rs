//! The options of a sink.

use std::time::Duration;

use crate::errors::Error;
use crate::frame::{Id, MAX_WINDOW};
use crate::nats::Server;
use crate::nats::stream::StreamSettings;
use crate::nats::subject::is_subject;

/// Policy of a sink while the engine is away or the stream is full.
///
/// The time of an outage counts from the moment at which the sink notices it. That is at once if
/// the connection ends or the server refuses, and otherwise when an acknowledgement is late
/// ([`Sink::ack_timeout`](crate::Sink::ack_timeout)). A server whose disk is full answers requests
/// but acknowledges nothing, and counts as away. In a cluster, the sink keeps asking for 12 s
/// before it reports a loss. If this time is shorter, the sink ends with [`Error::Away`] before
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outage {
    /// The sink waits. The ring fills, and its producers then wait by their own strategy.
    #[default]
    Wait,
    /// The sink waits this long, and then ends with [`Error::Away`] or [`Error::Full`], which fails
    /// the graph.
    FailAfter(Duration),
    /// The sink waits this long. Then it drops the ring's events, and counts them, until the engine
    /// is back. The next frame declares the hole. Frames that were in flight are kept.
    ///
    /// If the sink of a ring of processes dies after it has dropped events, its successor needs
    /// [`Sink::accept_loss`](crate::Sink::accept_loss).
    DropAfter(Duration),
}

/// Failures that an acknowledged event survives. Each level includes the lower ones.
///
/// | failure | `Memory` | `Process` | `Power` |
/// |---|---|---|---|
/// | the sink's process is killed | kept | kept | kept |
/// | the server's process is killed, one replica | **lost** | kept | kept |
/// | the machine crashes or loses power, one replica | **lost** | **up to 2 minutes lost** | kept |
/// | one of three replicas' machines loses power | kept | kept, unless it becomes the leader before it has caught up | kept |
/// | all replicas' machines lose power at once | **lost** | **up to 2 minutes lost** | kept |
/// | the only replica's disk is lost | **lost** | **lost** | **lost** |
/// | the stream's last messages are damaged, cut off or deleted | **lost**, and reported | **lost**, and reported | **lost**, and reported |
/// | the server comes back with an earlier state: a copy of its disk, an index rebuilt from the rest | **lost** | **lost** | **lost** |
///
/// If the server comes back with an earlier state, its last sequence goes back as well, so a new
/// sink cannot know that the stream had more events. The loss is noticed, and reported as
/// [`Error::LostAcknowledged`], by a running sink, a sink that continues a surviving ring
/// ([`Sink::attach`](crate::Sink::attach)), a source whose ring has more positions than the stream,
/// and a new sink whose program has recorded the position
/// ([`Sink::resume_at`](crate::Sink::resume_at)). Otherwise, a new ring begins where the stream
/// ends, and its events get the positions of the lost ones.
///
/// JetStream acknowledges before it syncs to disk, and by default it syncs every 2 minutes
/// (`sync_interval`). Sources: the server's documentation of `sync_interval`; Jepsen, "NATS 2.12.1"
/// (2025); nats-server issue 7564.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The stream is kept in memory, or the server writes events only after it has acknowledged
    /// them (`persist_mode: async`).
    Memory,
    /// The server has handed the event to its operating system.
    #[default]
    Process,
    /// The server has synced the event to disk (`sync_interval: always`).
    Power,
}

/// The options of a sink.
#[derive(Clone)]
pub struct SinkSettings {
    pub server: Server,
    pub stream: String,
    pub subject: Option<String>,
    pub create: Option<StreamSettings>,
    pub outage: Outage,
    pub durability: Durability,
    pub confirmed: bool,
    pub system: Option<Server>,
    pub window: usize,
    pub max_frame: usize,
    pub linger: Duration,
    pub ack_timeout: Duration,
    pub resume_at: Option<u64>,
    pub journal: Option<Id>,
    pub accept_loss: bool,
    pub wait: Duration,
}

impl SinkSettings {
    /// Refuses options that make no sense.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |what: &str| Err(Error::Option { what: what.into() });
        if !(1..=MAX_WINDOW as usize).contains(&self.window) {
            return refused("the window has 1 to 256 frames: choose such a number (Sink::window)");
        }
        if self.ack_timeout.is_zero() || self.ack_timeout > Duration::from_secs(3600) {
            return refused(
                "an acknowledgement takes time, and an hour at most: choose that time \
                 (Sink::ack_timeout)",
            );
        }
        if self.resume_at.is_some_and(|at| at > u64::MAX / 2) {
            return refused(
                "no ring gets as far as 2^63: choose a lower position (Sink::resume_at)",
            );
        }
        if let Some(subject) = self.subject.as_deref().filter(|name| !is_subject(name)) {
            return refused(&format!(
                "{subject:?} is no subject that a message can have: name one without blanks, empty \
                 parts, * and > (Sink::subject)"
            ));
        }
        if let Some(create) = &self.create {
            create.check()?;
        }
        if self.linger > Duration::from_secs(60) {
            return refused("events wait a minute at most: choose less (Sink::linger)");
        }
        Ok(())
    }
}
