//! The fetch: it reads a stream in order.
//!
//! Invariants
//! - I1: a fetch returns each message of the stream from its first sequence on, once and in order,
//!   or an error. A message that the server has counted but that did not arrive is an error.
//! - I2: about [`AHEAD`] bytes are requested and not yet read, estimated by the length of earlier
//!   messages. If longer messages follow, more bytes may arrive, but never more than [`PULLS`]
//!   requests ask for.

use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Answers, Outgoing};
use super::connection::{Connection, Fault, Notice};
use crate::message::DESCRIPTION;

/// Bytes that are requested ahead of the source: four frames. The client reads everything that has
/// arrived before the source gets its turn. With more bytes on the way, it would need new memory
/// for each message, because the source still holds the previous one.
const AHEAD: u64 = 2 << 20;
/// Bytes of one request: the length of a frame. The server gathers all messages of a request before
/// it sends them, so with requests of this size it prepares one frame while another is on the way.
const PULL: u64 = AHEAD / 4;
/// Greatest number of messages of one request.
const PULL_MESSAGES: u64 = 1024;
/// Greatest number of open requests.
const PULLS: usize = 4;
/// Time after which the server ends a request even if it has too few messages for it.
const EXPIRES: Duration = Duration::from_secs(20);
/// Interval of the server's heartbeats while no message comes.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time without a message after which the fetch asks the stream's leader whether the stream has
/// more. The server that has the consumer may be cut off from the other servers, and sends
/// heartbeats all the same.
const QUIET: Duration = Duration::from_secs(10);
/// Time after which the server removes the consumer of a source that is gone.
const INACTIVE: Duration = Duration::from_secs(60);

/// A message of the stream.
pub struct Fetched {
    pub sequence: u64,
    /// Value of the header [`DESCRIPTION`].
    pub description: Option<String>,
    pub payload: Bytes,
    /// Number of messages that the stream had after this one when the server sent it.
    pub behind: u64,
}

/// An open request for messages.
struct Pull {
    number: u64,
    /// Number of messages that are still expected.
    messages: u64,
}

/// Returns how many messages of `length` bytes the next request should ask for, or `None` if the
/// open requests already ask for enough (I2).
fn another(pulls: &[Pull], length: u64) -> Option<u64> {
    let messages = (PULL / length).clamp(1, PULL_MESSAGES);
    let asked: u64 = pulls.iter().map(|pull| pull.messages).sum();
    let fits = asked == 0 || (asked + messages) * length <= AHEAD;
    (fits && pulls.len() < PULLS).then_some(messages)
}

/// Options of a fetch.
pub struct FetchStart<'a> {
    pub stream: &'a str,
    /// Name of the consumer, which the fetch creates.
    pub consumer: &'a str,
    /// Sequence of the first message. If that message is gone, the fetch begins behind it.
    pub sequence: u64,
    /// Longest time for which the stream keeps an unused consumer; `None` if there is no limit.
    pub inactive_limit: Option<Duration>,
}

/// A consumer of a stream. It acknowledges nothing, because the ring's position records its
/// progress.
pub struct Fetch {
    inbox: String,
    answers: Answers,
    stream: String,
    consumer: String,
    pulls: Vec<Pull>,
    next_pull: u64,
    /// Number of messages that the consumer has delivered.
    delivered: u64,
    /// Moving average of the messages' lengths, in bytes.
    length: u64,
    heard: Instant,
    /// Sequence of the last message that was fetched. Before the first fetch, it is one less than
    /// the first message's sequence. The stream may have later messages.
    last: u64,
}

impl Fetch {
    /// Creates the consumer, and begins to fetch.
    pub async fn new(connection: &Connection, start: FetchStart<'_>) -> Result<Fetch, Fault> {
        let FetchStart { stream, consumer, sequence, inactive_limit } = start;
        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(format!("{inbox}.>")).await;
        let answers = answers.map_err(Fault::Away)?;
        let inactive = inactive_limit.map_or(INACTIVE, |limit| INACTIVE.min(limit));
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
                "inactive_threshold": nanos(inactive),
            },
        });
        let subject = format!("CONSUMER.CREATE.{stream}.{consumer}");
        let _: Value = connection.json(&subject, config).await?;
        let (stream, consumer) = (stream.to_string(), consumer.to_string());
        let (pulls, heard) = (Vec::new(), Instant::now());
        Ok(Fetch {
            inbox,
            answers,
            stream,
            consumer,
            pulls,
            next_pull: 0,
            delivered: 0,
            length: PULL, // until one has come, each request asks for one message
            heard,
            last: sequence.max(1) - 1,
        })
    }

    /// Returns the next message, and waits for it as long as it takes. If `ends` is set, the caller
    /// stops at the stream's end. The call then fails if the stream has no further message, because
    /// the wait would never end.
    pub async fn next(
        &mut self,
        connection: &mut Connection,
        ends: bool,
    ) -> Result<Fetched, Fault> {
        // While the ring was full, the fetch did not listen.
        self.heard = Instant::now();
        let (mut checked, mut quiet, mut undelivered) = (self.heard, QUIET, None);
        loop {
            if twin!("quiet-unasked": checked.elapsed() >= quiet => false) {
                let last = connection.info(&self.stream).await?.state.last_seq;
                let has_more = last > self.last;
                let next = match has_more {
                    true => connection.next_from(&self.stream, self.last + 1).await?,
                    false => None,
                };
                let next = next.map(|message| message.sequence);
                match next {
                    Some(sequence) if undelivered == next => {
                        return Err(Fault::Away(format!("message {sequence} was not delivered")));
                    }
                    None if ends || has_more => {
                        return Err(Fault::Away("the messages to come are gone".into()));
                    }
                    _ => {}
                }
                // A message that was just stored may be on its way to this client.
                quiet = if next.is_some() { HEARTBEAT } else { QUIET };
                (checked, undelivered) = (Instant::now(), next);
            }
            self.ask(connection).await?;
            let silence = (self.heard + HEARTBEAT * 3).saturating_duration_since(Instant::now());
            let message = tokio::select! {
                biased;
                notice = connection.notices.recv() => match notice {
                    Some(Notice::Connected) => continue,
                    _ => return Err(Fault::Away("the connection is lost".into())),
                },
                message = self.answers.next() => message,
                () = tokio::time::sleep(silence), if twin!("silence-endured": true => false) => {
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

    /// Opens requests until enough messages are requested (I2).
    async fn ask(&mut self, connection: &Connection) -> Result<(), Fault> {
        while let Some(messages) = another(&self.pulls, self.length) {
            self.pull(connection, messages).await?;
        }
        Ok(())
    }

    /// Opens a request for `messages` messages.
    async fn pull(&mut self, connection: &Connection, messages: u64) -> Result<(), Fault> {
        let body = json!({
            "batch": messages,
            // The server would never deliver a message that is longer than this limit.
            "max_bytes": PULL.max(2 * connection.max_payload() as u64),
            "expires": EXPIRES.as_nanos() as u64,
            "idle_heartbeat": HEARTBEAT.as_nanos() as u64,
        });
        let subject =
            format!("{}.CONSUMER.MSG.NEXT.{}.{}", connection.prefix, self.stream, self.consumer);
        let number = self.next_pull;
        self.next_pull += 1;
        let reply = format!("{}.{number}", self.inbox);
        let (headers, payload) = (HeaderMap::new(), body.to_string().into());
        let message = Outgoing { subject, reply: Some(reply), headers, payload };
        connection.client.publish(message).await.map_err(Fault::Away)?;
        self.pulls.push(Pull { number, messages });
        Ok(())
    }

    /// Reads an answer to a request. Returns `None` if the answer is no message of the stream.
    fn read(&mut self, message: Message) -> Result<Option<Fetched>, Fault> {
        let number = message.subject.as_str().rsplit('.').next().and_then(|n| n.parse().ok());
        let pull = self.pulls.iter_mut().find(|pull| Some(pull.number) == number);
        if let Some(status) = message.status {
            match status.as_u16() {
                100 => {}
                // The request has reached its limit of time, bytes or messages.
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
        let Some((sequence, delivered, behind)) =
            message.reply.as_ref().and_then(|r| place(r.as_str()))
        else {
            return Ok(None);
        };
        self.delivered += 1;
        self.length = (3 * self.length + message.length as u64).div_ceil(4);
        if delivered != self.delivered {
            return Err(Fault::Away("a message is lost on the way".into())); // I1
        }
        self.last = sequence;
        if let Some(pull) = pull {
            pull.messages = pull.messages.saturating_sub(1);
            if pull.messages == 0 {
                self.pulls.retain(|pull| Some(pull.number) != number);
            }
        }
        let description = message.headers.as_ref().and_then(|headers| headers.get(DESCRIPTION));
        let description = description.map(|value| value.as_str().to_string());
        Ok(Some(Fetched { sequence, description, payload: message.payload, behind }))
    }
}

/// Returns three numbers from a message's reply subject: its sequence in the stream, its number
/// among the consumer's messages, and how many messages the stream has after it.
fn place(reply: &str) -> Option<(u64, u64, u64)> {
    let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    // The form is stream.consumer.deliveries.sequence.number.time.pending; the newer form has
    // domain and account in front.
    let front = if words.len() == 7 { 0 } else { 2 };
    let number = |at: usize| words.get(front + at)?.parse().ok();
    Some((number(3)?, number(4)?, number(6)?))
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, PULL_MESSAGES, PULLS, Pull, another, place};

    /// Returns how many messages of `length` bytes each open request asks for.
    fn asked(length: u64) -> Vec<u64> {
        let mut pulls = Vec::new();
        while let Some(messages) = another(&pulls, length) {
            pulls.push(Pull { number: pulls.len() as u64, messages });
        }
        pulls.iter().map(|pull| pull.messages).collect()
    }

    #[test]
    fn requests_ask_for_a_little_each_and_for_enough_together() {
        assert_eq!(asked(511 * 1024 + 150), [1; 4], "frames of the usual length");
        assert_eq!(asked(512 * 1024 + 150), [1; 3], "frames of the greatest length");
        assert_eq!(asked(100 * 1024), [5; 4]);
        assert_eq!(asked(150), [PULL_MESSAGES; PULLS], "single events");
        assert_eq!(asked(AHEAD * 2), [1], "a message is always asked for");
        assert_eq!(asked(1), [PULL_MESSAGES; PULLS]);
    }

    #[test]
    fn another_request_follows_once_what_is_left_has_room_for_it() {
        let open = [2, 5, 5, 5].map(|messages| Pull { number: 0, messages });
        assert_eq!(another(&open, 100 * 1024), None);
        let open = [5, 5, 5].map(|messages| Pull { number: 0, messages });
        assert_eq!(another(&open, 100 * 1024), Some(5));
        // The messages have become longer, so the open requests already ask for enough bytes.
        assert_eq!(another(&open, 500 * 1024), None);
        assert_eq!(another(&[], 500 * 1024), Some(1));
    }

    #[test]
    fn both_forms_of_a_reply_subject_are_read() {
        assert_eq!(place("$JS.ACK.ORDERS.c.1.17.5.1700000000.3"), Some((17, 5, 3)));
        assert_eq!(place("$JS.ACK.hub.hash.ORDERS.c.1.17.5.1700000000.3.x"), Some((17, 5, 3)));
        assert_eq!(place("_INBOX.1"), None);
    }
}
