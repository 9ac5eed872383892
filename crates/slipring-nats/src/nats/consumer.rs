//! Durable consumers that deliver nothing, and whose floor records the acknowledged messages.
//!
//! Invariants
//! - I1: a reset moves the floor of a consumer that delivers nothing (nats-server 2.14). No message
//!   is ever delivered, so none is redelivered.
//! - I2: a purge never removes the stream's last message, because only that message tells a sink
//!   where to continue (`resume`, I3).

use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::{Connection, Fault};

/// Oldest server version that can reset a consumer: major and minor number.
pub const OLDEST: (u64, u64) = (2, 14);
/// The stream has no such consumer.
const NO_CONSUMER: u64 = 10014;
/// Metadata key that marks the consumers of this library.
const OURS: &str = "slipring";

/// The used part of the answer to `CONSUMER.INFO`.
#[derive(Deserialize)]
pub struct Consumer {
    config: Value,
    ack_floor: Floor,
}

#[derive(Deserialize)]
struct Floor {
    stream_seq: u64,
}

#[derive(Deserialize)]
struct Purged {
    #[serde(default)]
    purged: u64,
}

impl Consumer {
    /// Returns whether [`Connection::make_consumer`] made the consumer.
    pub fn is_ours(&self) -> bool {
        self.config["metadata"][OURS].is_string()
    }

    /// Returns whether the consumer's floor records acknowledgements.
    pub fn acknowledges(&self) -> bool {
        self.config["ack_policy"].as_str().is_some_and(|policy| policy != "none")
    }

    /// Returns the sequence up to which all messages were acknowledged.
    pub fn floor(&self) -> u64 {
        self.ack_floor.stream_seq
    }
}

impl Connection {
    /// Returns the version of the server as text, and its major and minor number if it has them.
    pub fn version(&self) -> (String, Option<(u64, u64)>) {
        let text = self.client.version();
        let mut numbers = text.split('.').map(str::parse);
        let both = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        };
        (text, both)
    }

    /// Returns a consumer of the stream, or `None` if the stream has no consumer of this name.
    pub async fn consumer(&self, stream: &str, name: &str) -> Result<Option<Consumer>, Fault> {
        match self.json(&format!("CONSUMER.INFO.{stream}.{name}"), Value::Null).await {
            Err(Fault::Refused { code: NO_CONSUMER, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Creates a consumer that has acknowledged nothing: its floor is just before the stream's
    /// oldest message.
    pub async fn make_consumer(&self, stream: &str, name: &str) -> Result<Consumer, Fault> {
        let config = json!({
            "stream_name": stream,
            "action": "create",
            "config": {
                "name": name,
                "durable_name": name,
                "description": "tells what a program has acknowledged; it delivers nothing",
                "ack_policy": "explicit",
                "deliver_policy": "all",
                "metadata": { OURS: "named consumer" },
            },
        });
        self.json(&format!("CONSUMER.CREATE.{stream}.{name}"), config).await
    }

    /// Sets the consumer's floor, so that all messages before `sequence` count as acknowledged, and
    /// none from there on (I1).
    pub async fn reset_consumer(
        &self,
        stream: &str,
        name: &str,
        sequence: u64,
    ) -> Result<(), Fault> {
        let subject = format!("CONSUMER.RESET.{stream}.{name}");
        let _: Value = self.json(&subject, json!({ "seq": sequence.max(1) })).await?;
        Ok(())
    }

    /// Removes the messages before `sequence`, but never the last one (I2). Returns their number.
    pub async fn purge_below(&self, stream: &str, sequence: u64) -> Result<u64, Fault> {
        let Some(last) = self.last(stream).await? else { return Ok(0) };
        let below = json!({ "seq": sequence.min(last.sequence).max(1) });
        let purged: Purged = self.json(&format!("STREAM.PURGE.{stream}"), below).await?;
        Ok(purged.purged)
    }
}
