//! Parsed responses of the JetStream API: stored messages, a stream's state, errors.

use std::{error, fmt, io};

use serde_json::Value;

use crate::wire::{decode_base64, header};

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
    /// All messages except for the last ones; the number says how many of these are kept.
    Keep(u64),
    /// All messages before this sequence number.
    Below(u64),
}

/// An error in an answer of the JetStream API.
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
    /// Returns the API's error that an error of a [`Client`](crate::Client) contains, if any.
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

/// The state of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) messages: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl State {
    pub(crate) fn of(info: &Value) -> io::Result<Self> {
        let number = |key: &str| info["state"][key].as_u64().ok_or_else(|| unexpected(info));
        let (first, last) = (number("first_seq")?, number("last_seq")?);
        Ok(Self { messages: number("messages")?, first, last })
    }
}

/// Returns the message in a response; `None` if the response says that there is none.
pub(crate) fn stored(response: io::Result<Value>) -> io::Result<Option<Stored>> {
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

/// Returns the error for a response of an unexpected form.
pub(crate) fn unexpected(response: &Value) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected response {response}"))
}
