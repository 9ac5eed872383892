//! Requests of the JetStream API: streams and their messages.

use std::{collections::BTreeMap, io, time::Instant};

use serde_json::{Value, json};

use crate::{
    api::{ApiError, Purge, State, Stored, stored, unexpected},
    client::{Client, LIMIT, answered},
};

/// Number of requests for messages that are on their way at once.
const WINDOW: usize = 256;
/// Number of attempts to read a stream that changes meanwhile.
const ATTEMPTS: usize = 10;

/// Requests of the JetStream API. Their errors are those of [`api`](Client::api).
impl Client {
    /// Creates a stream from its configuration, which contains the stream's name.
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

    /// Removes messages from a stream. Returns the number of removed messages.
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
    /// number, and whether the stream already had the message.
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

    /// Returns the message with a sequence number, or `None` if there is no such message.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer.
    pub fn get_message(&mut self, name: &str, seq: u64) -> io::Result<Option<Stored>> {
        stored(self.api(&format!("STREAM.MSG.GET.{name}"), json!({ "seq": seq })))
    }

    /// Returns all messages of a stream, in order. The call creates no consumer, so it does not
    /// influence which messages the stream keeps.
    ///
    /// The call compares the stream's state before and after the reading. If the state has changed,
    /// messages may be missing, and the stream is read again.
    ///
    /// # Errors
    ///
    /// The API refuses or does not answer, or the stream changes during each of ten attempts.
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
