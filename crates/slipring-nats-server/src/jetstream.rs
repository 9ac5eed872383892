//! Requests of the JetStream API: streams and their messages.

use std::{collections::BTreeMap, error, fmt, io, time::Instant};

use serde_json::{Value, json};

use crate::{
    Client,
    client::{LIMIT, answered},
    wire::{decode_base64, header},
};

/// Number of requests for messages that are on their way at once.
const WINDOW: usize = 256;
/// Number of attempts to read a stream that changes meanwhile.
const ATTEMPTS: usize = 10;
/// Error code of a message that does not exist.
const NO_MESSAGE: u64 = 10_037;

/// A message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Sequence number in the stream.
    pub seq: u64,
    /// Subject that the message was published to.
    pub subject: String,
    /// The header block with its first line; empty without headers.
    pub headers: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// Time of storing, as RFC 3339.
    pub time: String,
}

impl Stored {
    /// Returns the first value of a header. Names are compared without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// The messages that a purge removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All messages.
    All,
    /// All but the last ones, of this number.
    Keep(u64),
    /// Those before this sequence number.
    Below(u64),
}

/// An error that the JetStream API has answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Status, as of HTTP.
    pub code: u64,
    /// The server's number of the error, e.g. 10059 for a missing stream.
    pub err_code: u64,
    /// The server's text.
    pub description: String,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, err_code, description } = self;
        write!(f, "JetStream: {description} (code {code}, error {err_code})")
    }
}

impl error::Error for ApiError {}

impl ApiError {
    /// Returns the API's error within an error of a [`Client`].
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    /// Returns a response of the API, or the error in it.
    pub(crate) fn check(payload: &[u8]) -> io::Result<Value> {
        let response: Value = serde_json::from_slice(payload)?;
        let Some(error) = response.get("error") else { return Ok(response) };
        let number = |key: &str| error[key].as_u64().unwrap_or_default();
        let description = error["description"].as_str().unwrap_or_default().to_owned();
        let (code, err_code) = (number("code"), number("err_code"));
        Err(io::Error::other(Self { code, err_code, description }))
    }
}

/// Requests of the JetStream API. Their errors are those of [`api`](Client::api).
impl Client {
    /// Creates a stream from its configuration, which has its name.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn create_stream(&mut self, config: Value) -> io::Result<Value> {
        let name = config["name"].as_str().unwrap_or_default().to_owned();
        self.api(&format!("STREAM.CREATE.{name}"), config)
    }

    /// Deletes a stream.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn delete_stream(&mut self, name: &str) -> io::Result<()> {
        self.api(&format!("STREAM.DELETE.{name}"), Value::Null).map(|_| ())
    }

    /// Returns a stream's configuration and state.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn stream_info(&mut self, name: &str) -> io::Result<Value> {
        self.api(&format!("STREAM.INFO.{name}"), Value::Null)
    }

    /// Removes messages of a stream, and returns their number.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn purge(&mut self, name: &str, purge: Purge) -> io::Result<u64> {
        let request = match purge {
            Purge::All => Value::Null,
            Purge::Keep(count) => json!({ "keep": count }),
            Purge::Below(seq) => json!({ "seq": seq }),
        };
        let response = self.api(&format!("STREAM.PURGE.{name}"), request)?;
        Ok(response["purged"].as_u64().unwrap_or_default())
    }

    /// Removes one message of a stream.
    ///
    /// # Errors
    ///
    /// The API refuses, e.g. because there is no such message, or does not answer.
    pub fn delete_message(&mut self, name: &str, seq: u64) -> io::Result<()> {
        self.api(&format!("STREAM.MSG.DELETE.{name}"), json!({ "seq": seq })).map(|_| ())
    }

    /// Makes the leader of a stream with several replicas give way to another server.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn step_down(&mut self, name: &str) -> io::Result<()> {
        self.api(&format!("STREAM.LEADER.STEPDOWN.{name}"), Value::Null).map(|_| ())
    }

    /// Publishes a message to a stream and waits for the acknowledgement. Returns the sequence
    /// number, and whether the stream had the message before.
    ///
    /// # Errors
    ///
    /// The stream refuses, no stream has the subject, or there is no answer within 10 s.
    pub fn publish_acknowledged(
        &mut self,
        subject: &str,
        headers: Option<&[(&str, &str)]>,
        payload: &[u8],
    ) -> io::Result<(u64, bool)> {
        let reply = self.request_with(subject, headers, payload, LIMIT)?;
        let response = ApiError::check(&reply.payload)?;
        let seq = response["seq"].as_u64().ok_or_else(|| unexpected(&response))?;
        Ok((seq, response["duplicate"].as_bool().unwrap_or_default()))
    }

    /// Returns the message with a sequence number; `None` if it does not exist (any more).
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn get_message(&mut self, name: &str, seq: u64) -> io::Result<Option<Stored>> {
        stored(self.api(&format!("STREAM.MSG.GET.{name}"), json!({ "seq": seq })))
    }

    /// Returns all messages of a stream, in order. It makes no consumer, so it neither needs one
    /// nor changes what a stream keeps.
    ///
    /// The state of the stream before and after says whether they are all; a stream that changes
    /// meanwhile is read again.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer, or the stream changes all the time.
    pub fn messages(&mut self, name: &str) -> io::Result<Vec<Stored>> {
        let mut state = State::of(&self.stream_info(name)?)?;
        for _ in 0..ATTEMPTS {
            let messages = self.messages_between(name, state.first, state.last)?;
            let after = State::of(&self.stream_info(name)?)?;
            if after == state && messages.len() as u64 == state.messages {
                return Ok(messages);
            }
            state = after;
        }
        Err(io::Error::other(format!("stream {name} changes while it is read: {state:?}")))
    }

    /// Returns the messages with sequence numbers from `first` to `last`.
    fn messages_between(&mut self, name: &str, first: u64, last: u64) -> io::Result<Vec<Stored>> {
        let subject = format!("$JS.API.STREAM.MSG.GET.{name}");
        // The replies that are expected, by their subject.
        let mut expected = BTreeMap::new();
        let mut found = BTreeMap::new();
        let mut next = first.max(1);
        while next <= last || !expected.is_empty() {
            while next <= last && expected.len() < WINDOW {
                let request = json!({ "seq": next }).to_string();
                expected.insert(self.send_request(&subject, None, request.as_bytes())?, next);
                next += 1;
            }
            let message = self.next_reply(Instant::now() + LIMIT)?;
            let Some(seq) = expected.remove(&message.subject) else { continue };
            let response = ApiError::check(&answered(&subject, message)?.payload);
            if let Some(message) = stored(response)? {
                found.insert(seq, message);
            }
        }
        Ok(found.into_values().collect())
    }
}

/// The state of a stream.
#[derive(Debug, PartialEq, Eq)]
struct State {
    messages: u64,
    first: u64,
    last: u64,
}

impl State {
    fn of(info: &Value) -> io::Result<Self> {
        let number = |key: &str| info["state"][key].as_u64().ok_or_else(|| unexpected(info));
        let (first, last) = (number("first_seq")?, number("last_seq")?);
        Ok(Self { messages: number("messages")?, first, last })
    }
}

/// The message in a response; `None` if the response says that there is none.
fn stored(response: io::Result<Value>) -> io::Result<Option<Stored>> {
    let response = match response {
        Err(error) if ApiError::of(&error).is_some_and(|error| error.err_code == NO_MESSAGE) => {
            return Ok(None);
        }
        response => response?,
    };
    let message = &response["message"];
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    Ok(Some(Stored {
        seq: message["seq"].as_u64().ok_or_else(|| unexpected(&response))?,
        subject: text("subject").to_owned(),
        headers: String::from_utf8_lossy(&decode_base64(text("hdrs"))?).into_owned(),
        payload: decode_base64(text("data"))?,
        time: text("time").to_owned(),
    }))
}

fn unexpected(response: &Value) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected response {response}"))
}
