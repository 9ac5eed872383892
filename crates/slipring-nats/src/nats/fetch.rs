//! Reading a stream in order.
//!
//! Invariants
//! - I1: a fetch returns each message of the stream from its first sequence on, once and in order,
//!   or an error. A message that the server counts and that did not arrive is an error.
//! - I2: about [`AHEAD`] bytes are asked for and not yet read, by the length of the messages so
//!   far. If longer ones follow, it is at most the bytes that [`PULLS`] requests may bring.

use std::time::{Duration, Instant};

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::connection::{Connection, Fault, Notice};
use crate::message::DESCRIPTION;

/// Bytes that are asked for ahead of the source: four frames. The client reads all that has come
/// before the source has its turn. With more on the way, it needs new memory for each message,
/// because the source still has the one before.
const AHEAD: u64 = 2 << 20;
/// Bytes that one request asks for: a frame. The server gathers what one request asks for before it
/// sends it. So it is at work on one frame while another is on the way.
const PULL: u64 = AHEAD / 4;
/// Greatest number of messages that one request asks for.
const PULL_MESSAGES: u64 = 1024;
/// Greatest number of open requests.
const PULLS: usize = 4;
/// Time after which the server answers a request that found too few messages.
const EXPIRES: Duration = Duration::from_secs(20);
/// Time between two signs of life while no message comes.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time without a message after which the stream's leader is asked whether there are more: the
/// server that has the consumer may have lost the others, and gives signs of life all the same.
const QUIET: Duration = Duration::from_secs(10);
/// Time after which the server forgets the consumer of a source that is gone.
const INACTIVE: Duration = Duration::from_secs(60);

/// A message of the stream.
pub struct Fetched {
    pub sequence: u64,
    /// The header [`DESCRIPTION`].
    pub description: Option<String>,
    pub payload: Bytes,
    /// Number of messages behind it, when the server sent it.
    pub behind: u64,
}

/// An open request for messages.
struct Pull {
    number: u64,
    /// Messages that are still to come.
    messages: u64,
}

/// Returns how many messages another request should ask for, if messages have `length` bytes.
/// `None`: enough is asked for (I2).
fn another(pulls: &[Pull], length: u64) -> Option<u64> {
    let messages = (PULL / length).clamp(1, PULL_MESSAGES);
    let asked: u64 = pulls.iter().map(|pull| pull.messages).sum();
    let fits = asked == 0 || (asked + messages) * length <= AHEAD;
    (fits && pulls.len() < PULLS).then_some(messages)
}

/// Where a fetch begins.
pub struct FetchStart<'a> {
    pub stream: &'a str,
    /// Name of the consumer, which is made anew.
    pub consumer: &'a str,
    /// Sequence of the first message, or of the first that is left behind it.
    pub sequence: u64,
    /// Longest time for which the stream keeps an unused consumer. `None`: any.
    pub inactive_limit: Option<Duration>,
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
    /// Length of the messages so far, in bytes, of which the last count most.
    length: u64,
    heard: Instant,
    /// Sequence of the last message, or of that before the first one. Behind it the stream may have
    /// more.
    last: u64,
}

impl Fetch {
    /// Begins with a new consumer.
    pub async fn new(connection: &Connection, start: FetchStart<'_>) -> Result<Fetch, Fault> {
        let FetchStart { stream, consumer, sequence, inactive_limit } = start;
        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(format!("{inbox}.>")).await;
        let answers = answers.map_err(|error| Fault::Away(error.to_string()))?;
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
            length: PULL, // until one has come, each request is for one
            heard,
            last: sequence.max(1) - 1,
        })
    }

    /// Returns the next message. Waits for one as long as it takes, unless the stream `ends`: then
    /// it has one that is still to come.
    pub async fn next(
        &mut self,
        connection: &mut Connection,
        ends: bool,
    ) -> Result<Fetched, Fault> {
        // While the ring was full, no one listened.
        self.heard = Instant::now();
        let (mut checked, mut quiet, mut undelivered) = (self.heard, QUIET, None);
        loop {
            if checked.elapsed() >= quiet {
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
                // A message that has just been stored may be on its way.
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

    /// Opens requests until enough is asked for (I2).
    async fn ask(&mut self, connection: &Connection) -> Result<(), Fault> {
        while let Some(messages) = another(&self.pulls, self.length) {
            self.pull(connection, messages).await?;
        }
        Ok(())
    }

    /// Opens a request for so many messages.
    async fn pull(&mut self, connection: &Connection, messages: u64) -> Result<(), Fault> {
        let body = json!({
            "batch": messages,
            // A message that does not fit would never come.
            "max_bytes": PULL.max(2 * connection.max_payload() as u64),
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
        self.pulls.push(Pull { number, messages });
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

/// Returns a message's sequence in its stream, its number among the consumer's messages, and the
/// number of messages behind it, which its reply subject has.
fn place(reply: &str) -> Option<(u64, u64, u64)> {
    let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    // stream.consumer.deliveries.sequence.number.time.pending, with domain and account in front in
    // the newer form.
    let front = if words.len() == 7 { 0 } else { 2 };
    let number = |at: usize| words.get(front + at)?.parse().ok();
    Some((number(3)?, number(4)?, number(6)?))
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, PULL_MESSAGES, PULLS, Pull, another, place};

    /// Returns the messages that each open request asks for, of messages of `length` bytes.
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
        // Longer messages than those so far: what is asked for is enough already.
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
