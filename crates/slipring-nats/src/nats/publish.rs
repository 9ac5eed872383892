//! Conditional appends, and their acknowledgements.
//!
//! Invariants
//! - I1: an acknowledgement counts only for the attempt that sent its message. The reply subject
//!   contains the attempt's number, so answers to an earlier attempt are recognised and skipped.
//! - I2: the first message of an append names the stream's last sequence as the condition.

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use serde::Deserialize;

use super::api::{
    INCOMPLETE_BATCH, NO_RESOURCES, OTHER_STREAM, Refusal, SEALED, STORE_FAILED,
    WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT,
};
use super::client::{Answers, Outgoing};
use super::connection::{Connection, Fault};
use crate::message::{DESCRIPTION, POSITION};

/// Reason for a doubt about an append that was neither acknowledged nor refused. A server whose
/// disk is full sends no answer to a message, and refuses a batch as incomplete. Such a server
/// stores nothing until it is restarted (nats-server 2.15.1).
pub const UNACKNOWLEDGED: &str = "an acknowledgement is missing; if the server's disk is full, as \
                                  its log then says, make room there and restart it";

/// The content of an append.
#[derive(Clone, Debug)]
pub enum Body {
    /// One message: a frame.
    Frame(Bytes),
    /// Messages that the server stores together or not at all: one for each event, or messages
    /// without events.
    Batch(Vec<Single>),
}

/// A message of a batch, with a single event or without events.
#[derive(Clone, Debug)]
pub struct Single {
    pub subject: String,
    /// Values of the headers [`DESCRIPTION`] and [`POSITION`]; `None` if the payload is a frame.
    pub description: Option<(String, u64)>,
    pub payload: Bytes,
}

impl Body {
    /// Returns the number of messages.
    pub fn messages(&self) -> u64 {
        match self {
            Body::Frame(_) => 1,
            Body::Batch(list) => list.len() as u64,
        }
    }

    /// Returns the length of the payloads, in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Frame(frame) => frame.len() as u64,
            Body::Batch(list) => list.iter().map(|single| single.payload.len() as u64).sum(),
        }
    }
}

/// The server's answer to an append.
#[derive(Clone, Debug)]
pub enum AppendAnswer {
    /// The append is stored.
    Stored {
        /// Sequence of its last message.
        sequence: u64,
    },
    /// The condition does not hold.
    WrongLastSequence,
    /// The stream or the server has no room.
    Full(String),
    /// No later attempt can succeed.
    Never(String),
    /// A later attempt may succeed.
    Later(String),
}

#[derive(Deserialize)]
struct AnswerBody {
    error: Option<Refusal>,
    #[serde(default)]
    seq: u64,
}

/// Publishes to one stream.
pub struct Publisher {
    inbox: String,
    answers: Answers,
    /// Number of the attempt, which rises with each doubt.
    attempt: u64,
    stream: String,
    subject: String,
    /// Random number of the sink, for the names of batches.
    writer: u64,
}

impl Publisher {
    /// Makes a publisher to `subject` of the stream `stream`.
    pub async fn new(
        connection: &Connection,
        stream: &str,
        subject: &str,
        writer: u64,
    ) -> Result<Publisher, Fault> {
        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(format!("{inbox}.>")).await;
        let answers = answers.map_err(Fault::Away)?;
        let (stream, subject) = (stream.to_string(), subject.to_string());
        Ok(Publisher { inbox, answers, attempt: 0, stream, subject, writer })
    }

    /// Lets this publisher continue the count of attempts of the publisher `before`, so that no
    /// name of a batch is used twice.
    pub fn after(mut self, before: &Publisher) -> Publisher {
        self.attempt = before.attempt;
        self
    }

    /// Begins an attempt, which skips the answers to all earlier messages (I1).
    pub fn begin_attempt(&mut self) {
        self.attempt += 1;
    }

    /// Hands an append to the client library. The answer to the append will contain `number`.
    pub async fn send(
        &self,
        connection: &Connection,
        number: u64,
        body: &Body,
        expected: u64,
    ) -> Result<(), Fault> {
        let reply = || format!("{}.{}.{number}", self.inbox, self.attempt);
        let condition = |headers: &mut HeaderMap| {
            twin!("unconditional": headers.insert("Nats-Expected-Last-Sequence", expected.to_string()) => ()); // I2
            headers.insert("Nats-Expected-Stream", self.stream.as_str());
        };
        match body {
            Body::Frame(frame) => {
                let mut headers = HeaderMap::new();
                condition(&mut headers);
                publish(connection, self.subject.clone(), Some(reply()), headers, frame.clone())
                    .await
            }
            Body::Batch(list) => {
                let id = format!("{:016x}-{}-{number}", self.writer, self.attempt);
                for (at, single) in list.iter().enumerate() {
                    let mut headers = HeaderMap::new();
                    if let Some((description, seq)) = &single.description {
                        headers.insert(DESCRIPTION, description.as_str());
                        headers.insert(POSITION, seq.to_string());
                    }
                    let (first, last) = (at == 0, at + 1 == list.len());
                    if first {
                        condition(&mut headers);
                    }
                    if list.len() > 1 {
                        headers.insert("Nats-Batch-Id", id.as_str());
                        headers.insert("Nats-Batch-Sequence", (at + 1).to_string());
                        if last {
                            headers.insert("Nats-Batch-Commit", "1");
                        }
                    }
                    // The server also answers the first message, with an empty body or an error.
                    let reply = (first || last).then(reply);
                    let payload = single.payload.clone();
                    publish(connection, single.subject.clone(), reply, headers, payload).await?;
                    step!("single-sent");
                }
                Ok(())
            }
        }
    }

    /// Waits for the next answer of this attempt. Returns the answer and the number of its append,
    /// or `None` if the connection has ended.
    pub async fn answer(&mut self) -> Option<(u64, AppendAnswer)> {
        loop {
            let message = self.answers.next().await?;
            if let Some(answer) = self.read(&message) {
                return Some(answer);
            }
        }
    }

    fn read(&self, message: &Message) -> Option<(u64, AppendAnswer)> {
        let tags = message.subject.as_str().strip_prefix(self.inbox.as_str())?.strip_prefix('.')?;
        let (attempt, number) = tags.split_once('.')?;
        if attempt.parse() != Ok(self.attempt) {
            return None;
        }
        let number = number.parse().ok()?;
        if message.status == Some(async_nats::StatusCode::NO_RESPONDERS) {
            return Some((number, AppendAnswer::Later("no stream takes the subject".into())));
        }
        if message.payload.is_empty() {
            return None; // the answer to the first message of a batch
        }
        let outcome = match serde_json::from_slice::<AnswerBody>(&message.payload) {
            Ok(AnswerBody { error: None, seq }) => AppendAnswer::Stored { sequence: seq },
            Ok(AnswerBody { error: Some(error), .. }) => refusal(error),
            Err(error) => AppendAnswer::Later(format!("an answer that is none: {error}")),
        };
        Some((number, outcome))
    }
}

fn refusal(error: Refusal) -> AppendAnswer {
    let why = error.description;
    match error.err_code {
        WRONG_LAST_SEQUENCE | WRONG_LAST_SEQUENCE_CONSTANT => AppendAnswer::WrongLastSequence,
        STORE_FAILED => AppendAnswer::Full(why),
        code if NO_RESOURCES.contains(&code) => AppendAnswer::Full(why),
        INCOMPLETE_BATCH => AppendAnswer::Later(UNACKNOWLEDGED.into()),
        SEALED | OTHER_STREAM => AppendAnswer::Never(why),
        code => AppendAnswer::Later(format!("{why} ({code})")),
    }
}

async fn publish(
    connection: &Connection,
    subject: String,
    reply: Option<String>,
    headers: HeaderMap,
    payload: Bytes,
) -> Result<(), Fault> {
    let message = Outgoing { subject, reply, headers, payload };
    connection.client.publish(message).await.map_err(Fault::Away)
}
