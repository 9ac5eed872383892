//! Requests to JetStream, and their answers.

use std::ops::RangeInclusive;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::connection::{Connection, Fault, LEADERLESS};
use crate::errors::Error;
use crate::frame::Header;
use crate::message;
use crate::resume::Tail;

/// The stream does not exist.
pub const NO_STREAM: u64 = 10059;
/// The stream has no such message.
pub const NO_MESSAGE: u64 = 10037;
/// The last sequence that the condition names is not the last sequence of the stream.
pub const WRONG_LAST_SEQUENCE: u64 = 10071;
/// The code that a cluster returns instead of [`WRONG_LAST_SEQUENCE`] while another publication of
/// the same subject is in flight.
pub const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10164;
/// The store refuses the message, because a limit of messages or bytes is reached.
pub const STORE_FAILED: u64 = 10077;
/// The server or the account has no room left.
pub const NO_RESOURCES: [u64; 4] = [10023, 10047, 10002, 10028];
/// The server has not received all messages of an atomic batch.
pub const INCOMPLETE_BATCH: u64 = 10176;
/// JetStream is disabled for the server or for the account.
pub const NOT_ENABLED: [u64; 2] = [10076, 10039];
/// Status of an answer to a bad request.
const BAD_REQUEST: u64 = 400;
/// The stream or the account has reached its maximum number of consumers.
const MAX_CONSUMERS: u64 = 10026;
/// The server is cut off from its cluster, or an election is under way.
const UNAVAILABLE: u64 = 10008;
/// The stream is sealed.
pub const SEALED: u64 = 10109;
/// The message names one stream, but its subject belongs to another.
pub const OTHER_STREAM: u64 = 10060;

/// The part of an answer that describes a refusal.
#[derive(Deserialize)]
pub struct Refusal {
    #[serde(default)]
    pub code: u64,
    #[serde(default)]
    pub err_code: u64,
    #[serde(default)]
    pub description: String,
}

#[derive(Deserialize)]
struct Failed {
    error: Option<Refusal>,
}

/// The used part of the answer to `STREAM.INFO`.
#[derive(Clone, Debug, Deserialize)]
pub struct Info {
    pub config: Value,
    pub state: StreamState,
    /// Creation time, which differs if the stream is recreated under the same name.
    pub created: String,
    cluster: Option<Group>,
}

impl Info {
    /// Returns the longest time for which the stream keeps an unused consumer, or `None` if there
    /// is no limit.
    pub fn inactive_limit(&self) -> Option<Duration> {
        let nanos = self.config["consumer_limits"]["inactive_threshold"].as_u64();
        nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// Returns the stream's size limit for messages, in bytes, or 0 if only the server's limit
    /// applies.
    pub fn max_message(&self) -> u64 {
        self.config["max_msg_size"].as_i64().map_or(0, |size| size.max(0) as u64)
    }

    /// Returns whether the stream is known never to have had a message. Its last sequence is then
    /// one less than its first (`first_seq`). An unused stream is not recognised if an update or a
    /// purge has moved its first sequence.
    pub fn is_unused(&self) -> bool {
        let first = self.config["first_seq"].as_u64().unwrap_or(1).max(1);
        let state = &self.state;
        state.messages == 0 && !state.has_stored && state.last_seq == first - 1
    }

    /// Returns whether the stream has a leader. Without one, a replica answers from its own state.
    pub fn has_leader(&self) -> bool {
        self.cluster.as_ref().is_none_or(|group| !group.leader.is_empty())
    }
}

/// The replicas of a stream, according to the answering server.
#[derive(Clone, Debug, Deserialize)]
struct Group {
    #[serde(default)]
    leader: String,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct StreamState {
    pub messages: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    /// Whether the server knows the time at which a last message was stored, even if that message
    /// is gone.
    #[serde(rename = "last_ts", default, deserialize_with = "is_moment")]
    pub has_stored: bool,
}

impl StreamState {
    /// Returns the sequence of the last message that the stream ever had, or 0 if it had none.
    pub fn last_stored(&self) -> u64 {
        if self.has_stored || self.messages > 0 { self.last_seq } else { 0 }
    }
}

/// Returns whether a time is set. The server's zero time is in the year 1.
fn is_moment<'de, D: serde::Deserializer<'de>>(time: D) -> Result<bool, D::Error> {
    Ok(!String::deserialize(time)?.starts_with("0001-"))
}

#[derive(Deserialize)]
struct Got {
    message: Raw,
}

#[derive(Deserialize)]
struct Raw {
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
}

/// A message of the stream.
pub struct Stored {
    pub sequence: u64,
    pub headers: String,
    pub payload: Vec<u8>,
}

impl Stored {
    /// Returns the header that describes the message's events.
    pub fn header(&self) -> Result<Header, Error> {
        let read = message::read(message::description(&self.headers), &self.payload);
        read.map(|(header, _)| header).map_err(|bad| Error::of_message(bad, self.sequence))
    }

    /// Returns the message's sequence and header.
    pub fn sequenced(&self) -> Result<(u64, Header), Error> {
        Ok((self.sequence, self.header()?))
    }
}

impl Connection {
    /// Sends a request with a JSON body, and returns its answer.
    pub async fn json<T: DeserializeOwned>(&self, subject: &str, body: Value) -> Result<T, Fault> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.call(subject, body).await?;
        if let Ok(Failed { error: Some(error) }) = serde_json::from_slice(&answer) {
            let code = if error.err_code == 0 { error.code } else { error.err_code };
            return Err(match code {
                UNAVAILABLE => Fault::Away(format!("{LEADERLESS}: {}", error.description)),
                _ => {
                    let may_pass = code == MAX_CONSUMERS || NO_RESOURCES.contains(&code);
                    let is_bad = error.code == BAD_REQUEST && !may_pass;
                    Fault::Refused { code, is_bad, why: error.description }
                }
            });
        }
        serde_json::from_slice(&answer)
            .map_err(|error| Fault::Away(format!("an answer that is none: {error}")))
    }

    /// Returns the settings and the state of a stream, according to its leader.
    pub async fn info(&self, stream: &str) -> Result<Info, Fault> {
        let info: Info = self.json(&format!("STREAM.INFO.{stream}"), Value::Null).await?;
        if info.has_leader() { Ok(info) } else { Err(Fault::Away(LEADERLESS.into())) }
    }

    /// Returns whether the stream never had a message and still has the last sequence `last`.
    pub async fn is_unused(&self, stream: &str, last: u64) -> Result<bool, Fault> {
        let info = self.info(stream).await?;
        Ok(info.is_unused() && info.state.last_seq == last)
    }

    /// Removes a consumer of a stream, if the client is connected. Returns `false` if the user
    /// lacks the permission.
    pub async fn delete_consumer(&self, stream: &str, consumer: &str) -> bool {
        if self.is_away() {
            return true;
        }
        let subject = format!("CONSUMER.DELETE.{stream}.{consumer}");
        let answer: Result<Value, Fault> = self.json(&subject, Value::Null).await;
        answer.is_ok() || self.denied().is_none()
    }

    /// Returns the message that `asked` describes, according to the stream's leader, or `None` if
    /// the stream has no such message.
    async fn get(&self, stream: &str, asked: Value) -> Result<Option<Stored>, Fault> {
        let got: Result<Got, Fault> = self.json(&format!("STREAM.MSG.GET.{stream}"), asked).await;
        let raw = match got {
            Ok(got) => got.message,
            Err(Fault::Refused { code: NO_MESSAGE, .. }) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let bytes = |text: &str| {
            STANDARD.decode(text).map_err(|error| Fault::Away(format!("no base64: {error}")))
        };
        Ok(Some(Stored {
            sequence: raw.seq,
            headers: String::from_utf8_lossy(&bytes(&raw.hdrs)?).into_owned(),
            payload: bytes(&raw.data)?,
        }))
    }

    /// Returns the first message from `sequence` on.
    pub async fn next_from(&self, stream: &str, sequence: u64) -> Result<Option<Stored>, Fault> {
        self.get(stream, json!({ "seq": sequence, "next_by_subj": ">" })).await
    }

    /// Returns the stream's last message.
    pub async fn last(&self, stream: &str) -> Result<Option<Stored>, Fault> {
        let asked = json!({ "last_by_subj": ">" });
        if let Some(last) = self.get(stream, asked).await? {
            return Ok(Some(last));
        }
        // The server also finds no message if the message of the last sequence was deleted.
        let state = self.info(stream).await?.state;
        let (mut low, mut high, mut last) = (state.first_seq.max(1), state.last_seq + 1, None);
        // `last` is the last message before `low`, and the stream has no message from `high` on.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next_from(stream, middle).await? {
                Some(message) => {
                    low = message.sequence + 1;
                    last = Some(message);
                }
                None => high = middle,
            }
        }
        Ok(last)
    }

    /// Checks that the messages with these sequences are contiguous, from position `position` on if
    /// it is known. Messages that retention has removed are skipped.
    ///
    /// A program other than a sink may take the sequence that a sink has predicted for a message.
    /// The sink's next message is then stored although its predecessor is missing, because its
    /// condition names the predicted sequence.
    pub async fn check_chain(
        &self,
        stream: &str,
        sequences: RangeInclusive<u64>,
        mut position: Option<u64>,
    ) -> Result<Result<(), Error>, Fault> {
        let (first, last) = sequences.into_inner();
        let mut next = first.max(1);
        while next <= last {
            let Some(message) = self.next_from(stream, next).await? else { break };
            let sequence = message.sequence;
            if sequence > last {
                break;
            }
            let header = match message.header() {
                Ok(header) => header,
                Err(error) => return Ok(Err(error)),
            };
            // Retention may have removed the messages in front of this one, also since the last
            // request.
            if sequence > next
                && position.is_some()
                && self.info(stream).await?.state.first_seq > next
            {
                position = None;
            }
            if let Some(expected) = position.replace(header.end())
                && expected != header.after
            {
                return Ok(Err(Error::Gap { expected, found: header.after, sequence }));
            }
            next = sequence + 1;
        }
        Ok(Ok(()))
    }

    /// Returns the end of the stream after a single request, which only reads the last message. If
    /// messages were removed at the end, the result is wrong, but harmless: a condition that names
    /// the wrong sequence does not hold.
    pub async fn quick_tail(&self, stream: &str) -> Result<Result<Tail, Error>, Fault> {
        match self.get(stream, json!({ "last_by_subj": ">" })).await? {
            Some(last) => {
                Ok(last.sequenced().map(|last| Tail { last_sequence: last.0, last: Some(last) }))
            }
            None => self.tail(stream).await,
        }
    }

    /// Returns the end of the stream.
    ///
    /// The first request returns the stream's last sequence, and the second returns its last
    /// message. The answers describe one state if the message has that sequence or a later one. If
    /// its sequence is lower, messages were removed at the end. Then a third request must return
    /// the same last sequence as the first, or the requests are repeated. If a message is appended
    /// after the answers, the condition of the next append does not hold.
    pub async fn tail(&self, stream: &str) -> Result<Result<Tail, Error>, Fault> {
        loop {
            let before = self.info(stream).await?.state;
            if before.messages == 0 {
                return Ok(Ok(Tail { last_sequence: before.last_seq, last: None }));
            }
            let Some(last) = self.last(stream).await? else {
                // The stream had messages a moment ago, so it has changed between the requests.
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let last_sequence = last.sequence.max(before.last_seq);
            if last.sequence >= before.last_seq
                || self.info(stream).await?.state.last_seq == before.last_seq
            {
                return Ok(last.sequenced().map(|last| Tail { last_sequence, last: Some(last) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica without a leader answers from its own state, which may lack messages of the
    /// stream.
    #[test]
    fn an_answer_without_a_leader_does_not_count() {
        let answer = |cluster: &str| {
            let state = r#""config": {}, "state": {"messages": 1, "first_seq": 2, "last_seq": 2}"#;
            let answer = format!(r#"{{{state}, "created": "2026-11-28T09:00:00Z"{cluster}}}"#);
            serde_json::from_str::<Info>(&answer).unwrap().has_leader()
        };
        assert!(answer(""), "a server without a cluster");
        assert!(answer(r#", "cluster": {"name": "c", "leader": "one", "replicas": []}"#));
        assert!(!answer(r#", "cluster": {"name": "c", "replicas": [{"name": "two"}]}"#));
        assert!(!answer(r#", "cluster": {"leader": ""}"#));
    }
}
