//! Reading a stream in order.
//!
//! Invariants
//! - I1: a fetch returns each message of the stream from its first sequence on, once and in order, or
//!   an error. A message that the server counts and that did not arrive is an error.
//! - I2: at most [`PULLS`] requests are open, of which all but one are half answered. So at most
//!   `(PULLS + 1) / 2` times [`PULL_BYTES`] are on the way.

use std::time::{Duration, Instant};

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::{Connection, Fault, Notice};
use crate::message::DESCRIPTION;

/// Messages that one request asks for.
const PULL_MESSAGES: u64 = 1024;
/// Bytes that one request asks for: four frames. The client reads all that has come before the source
/// has its turn. With more on the way, it needs new memory for each message, because the source
/// still has the one before.
const PULL_BYTES: u64 = 2 << 20;
/// Greatest number of open requests.
const PULLS: usize = 4;
/// Time after which the server answers a request that found too few messages.
const EXPIRES: Duration = Duration::from_secs(20);
/// Time between two signs of life while no message comes.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time after which the server forgets the consumer of a source that is gone.
const INACTIVE: Duration = Duration::from_secs(60);

/// A message of the stream.
pub struct Fetched {
    pub sequence: u64,
    /// The header [`DESCRIPTION`].
    pub description: Option<String>,
    pub payload: Bytes,
}

/// An open request for messages.
struct Pull {
    number: u64,
    messages: u64,
    bytes: u64,
}

/// A consumer of a stream, without acknowledgements: the ring's position says how far it is.
pub struct Fetch {
    inbox: String,
    answers: Subscriber,
    stream: String,
    consumer: String,
    pulls: Vec<Pull>,
    next_pull: u64,
    /// Number of messages that the consumer has delivered.
    delivered: u64,
    heard: Instant,
}

impl Fetch {
    /// Begins at the first message from `sequence` on.
    pub async fn new(connection: &Connection, stream: &str, sequence: u64) -> Result<Fetch, Fault> {
        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(format!("{inbox}.>")).await;
        let answers = answers.map_err(|error| Fault::Away(error.to_string()))?;
        let consumer = format!("slipring-{:016x}", fastrand::u64(..));
        let nanos = |time: Duration| time.as_nanos() as u64;
        let config = json!({
            "stream_name": stream,
            "config": {
                "name": consumer,
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": sequence.max(1),
                "ack_policy": "none",
                "replay_policy": "instant",
                "mem_storage": true,
                "num_replicas": 1,
                "inactive_threshold": nanos(INACTIVE),
            },
        });
        let subject = format!("CONSUMER.CREATE.{stream}.{consumer}");
        let _: Value = connection.json(&subject, config).await?;
        let stream = stream.to_string();
        let (pulls, heard) = (Vec::new(), Instant::now());
        Ok(Fetch { inbox, answers, stream, consumer, pulls, next_pull: 0, delivered: 0, heard })
    }

    /// Returns the next message. Waits for one as long as it takes.
    pub async fn next(&mut self, connection: &mut Connection) -> Result<Fetched, Fault> {
        // While the ring was full, no one listened.
        self.heard = Instant::now();
        loop {
            self.ask(connection).await?;
            let silence = (self.heard + HEARTBEAT * 3).saturating_duration_since(Instant::now());
            let message = tokio::select! {
                biased;
                notice = connection.notices.recv() => match notice {
                    Some(Notice::Connected) => continue,
                    _ => return Err(Fault::Away("the connection is lost".into())),
                },
                message = self.answers.next() => message,
                () = tokio::time::sleep(silence) => {
                    return Err(Fault::Away("the server gives no sign of life".into()));
                }
            };
            let Some(message) = message else {
                return Err(Fault::Away("the connection is closed".into()));
            };
            self.heard = Instant::now();
            if let Some(fetched) = self.read(message)? {
                return Ok(fetched);
            }
        }
    }

    /// Opens another request if none has much left (I2).
    async fn ask(&mut self, connection: &Connection) -> Result<(), Fault> {
        let enough = |pull: &Pull| pull.messages > PULL_MESSAGES / 2 && pull.bytes > PULL_BYTES / 2;
        if self.pulls.len() >= PULLS || self.pulls.iter().any(enough) {
            return Ok(());
        }
        let body = json!({
            "batch": PULL_MESSAGES,
            // A message that does not fit would never come.
            "max_bytes": PULL_BYTES.max(2 * connection.max_payload() as u64),
            "expires": EXPIRES.as_nanos() as u64,
            "idle_heartbeat": HEARTBEAT.as_nanos() as u64,
        });
        let subject =
            format!("{}.CONSUMER.MSG.NEXT.{}.{}", connection.prefix, self.stream, self.consumer);
        let number = self.next_pull;
        self.next_pull += 1;
        let reply = format!("{}.{number}", self.inbox);
        let sent = connection.client.publish_with_reply(subject, reply, body.to_string().into());
        sent.await.map_err(|error| Fault::Away(error.to_string()))?;
        self.pulls.push(Pull { number, messages: PULL_MESSAGES, bytes: PULL_BYTES });
        Ok(())
    }

    /// Reads what came for a request. `None`: no message of the stream.
    fn read(&mut self, message: Message) -> Result<Option<Fetched>, Fault> {
        let number = message.subject.as_str().rsplit('.').next().and_then(|n| n.parse().ok());
        let pull = self.pulls.iter_mut().find(|pull| Some(pull.number) == number);
        if let Some(status) = message.status {
            match status.as_u16() {
                100 => {}
                // The request has ended: by its time, its bytes or its messages.
                404 | 408 => self.pulls.retain(|pull| Some(pull.number) != number),
                409 => {
                    let why = message.description.unwrap_or_default();
                    if !why.contains("Message Size Exceeds") && !why.contains("Batch Completed") {
                        return Err(Fault::Away(why));
                    }
                    self.pulls.retain(|pull| Some(pull.number) != number);
                }
                status => {
                    let why = message.description.unwrap_or_default();
                    return Err(Fault::Away(format!("status {status} {why}")));
                }
            }
            return Ok(None);
        }
        let Some((sequence, delivered)) = message.reply.as_ref().and_then(|r| place(r.as_str()))
        else {
            return Ok(None);
        };
        self.delivered += 1;
        if delivered != self.delivered {
            return Err(Fault::Away("a message is lost on the way".into())); // I1
        }
        if let Some(pull) = pull {
            pull.messages = pull.messages.saturating_sub(1);
            pull.bytes = pull.bytes.saturating_sub(message.length as u64);
            if pull.messages == 0 || pull.bytes == 0 {
                self.pulls.retain(|pull| Some(pull.number) != number);
            }
        }
        let description = message.headers.as_ref().and_then(|headers| headers.get(DESCRIPTION));
        let description = description.map(|value| value.as_str().to_string());
        Ok(Some(Fetched { sequence, description, payload: message.payload }))
    }
}

/// Returns a message's sequence in its stream, and its number among the consumer's messages, which
/// its reply subject has.
fn place(reply: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    // stream.consumer.deliveries.sequence.number.time.pending, with domain and account in front in
    // the newer form.
    let front = if words.len() == 7 { 0 } else { 2 };
    Some((words.get(front + 3)?.parse().ok()?, words.get(front + 4)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn both_forms_of_a_reply_subject_are_read() {
        assert_eq!(place("$JS.ACK.ORDERS.c.1.17.5.1700000000.3"), Some((17, 5)));
        assert_eq!(place("$JS.ACK.hub.hash.ORDERS.c.1.17.5.1700000000.3.x"), Some((17, 5)));
        assert_eq!(place("_INBOX.1"), None);
    }
}
