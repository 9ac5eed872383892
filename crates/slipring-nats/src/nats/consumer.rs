//! Durable consumers of a stream that deliver nothing: their floor says what was acknowledged.
//!
//! Invariants
//! - I1: the server moves such a floor by a reset (nats-server 2.14). No message is delivered, so
//!   that none is redelivered.
//! - I2: a purge never removes the stream's last message: it alone tells a sink where to go on
//!   (`resume`, I3).

use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::{Connection, Fault};

/// The oldest server that can reset a consumer: major and minor number.
pub const OLDEST: (u64, u64) = (2, 14);
/// There is no such consumer.
const NO_CONSUMER: u64 = 10014;
/// The key of the consumers' metadata that tells ours from others.
const OURS: &str = "slipring";

/// A consumer, as far as it is used.
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
    /// Whether it was made by [`Connection::make_consumer`].
    pub fn is_ours(&self) -> bool {
        self.config["metadata"][OURS].is_string()
    }

    /// Whether its floor tells what was acknowledged.
    pub fn acknowledges(&self) -> bool {
        self.config["ack_policy"].as_str().is_some_and(|policy| policy != "none")
    }

    /// The sequence up to which all messages were acknowledged.
    pub fn floor(&self) -> u64 {
        self.ack_floor.stream_seq
    }
}

impl Connection {
    /// Returns the version of the server, as far as it has two numbers.
    pub fn version(&self) -> (String, Option<(u64, u64)>) {
        let text = self.client.server_info().version;
        let mut numbers = text.split('.').map(str::parse);
        let both = match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        };
        (text, both)
    }

    /// Returns a consumer of the stream. `None`: there is none of this name.
    pub async fn consumer(&self, stream: &str, name: &str) -> Result<Option<Consumer>, Fault> {
        match self.json(&format!("CONSUMER.INFO.{stream}.{name}"), Value::Null).await {
            Err(Fault::Refused { code: NO_CONSUMER, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Makes a consumer whose floor is in front of the stream's oldest message.
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

    /// Has the consumer acknowledge all messages before `sequence`, and none from there on (I1).
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
