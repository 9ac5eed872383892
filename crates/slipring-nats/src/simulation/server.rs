//! A server with one stream, as far as sinks and sources use it.
//!
//! Invariants
//! - I1: a message is stored if its condition holds, and a batch as a whole or not at all.
//! - I2: a consumer sends each message once, in order, and numbers them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{HeaderMap, Message, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::oracle::Oracle;
use super::ring::lock;
use crate::frame::Header;
use crate::message;
use crate::nats::Outgoing;
use crate::nats::api::{
    INCOMPLETE_BATCH, NO_MESSAGE, NO_STREAM, STORE_FAILED, WRONG_LAST_SEQUENCE,
};

/// Prefix of the subjects of requests.
const API: &str = "$JS.API.";
/// The server is cut off, or elects a leader.
const UNAVAILABLE: u64 = 10008;
/// The code of a missing answer: nothing takes the subject.
pub const NO_RESPONDERS: u64 = 503;
/// The message is longer than the stream allows.
const TOO_LONG: u64 = 10054;

/// A message for a client's subscription `to`.
pub struct Delivery {
    pub to: String,
    pub message: Message,
}

/// A server.
pub struct Server {
    stream: Option<Stream>,
    consumers: BTreeMap<String, Consumer>,
    /// Batches that are not committed.
    batches: BTreeMap<String, Vec<Outgoing>>,
    pub full_until: Option<Instant>,
    oracle: Arc<Mutex<Oracle>>,
}

struct Stream {
    config: Value,
    messages: BTreeMap<u64, Stored>,
    last: u64,
}

struct Stored {
    subject: String,
    headers: HeaderMap,
    payload: Bytes,
    header: Header,
}

struct Consumer {
    pulls: VecDeque<Pull>,
    next: u64,
    delivered: u64,
    stalled: bool,
}

struct Pull {
    reply: String,
    left: u64,
    expires: Instant,
}

impl Server {
    pub fn new(oracle: Arc<Mutex<Oracle>>) -> Server {
        let (consumers, batches) = (BTreeMap::new(), BTreeMap::new());
        Server { stream: None, consumers, batches, full_until: None, oracle }
    }

    /// Forgets everything but the stream.
    pub fn restart(&mut self) {
        self.consumers.clear();
        self.batches.clear();
    }

    pub fn forget(&mut self) {
        self.consumers.clear();
    }

    pub fn stall(&mut self) {
        self.consumers.values_mut().for_each(|consumer| consumer.stalled = true);
    }

    /// Sets the stream's size limit for messages.
    pub fn limit(&mut self, bytes: usize) {
        if let Some(stream) = &mut self.stream {
            stream.config["max_msg_size"] = bytes.into();
        }
    }

    /// Removes the messages whose events have positions below `position`, except for the last one.
    pub fn retain(&mut self, position: u64) {
        if let Some(stream) = &mut self.stream {
            let last = stream.last;
            let first = stream.messages.iter().find(|(_, stored)| stored.header.end() > position);
            let first = first.map_or(last, |(sequence, _)| *sequence).min(last);
            stream.messages = stream.messages.split_off(&first);
        }
    }

    /// Removes the stream's last messages.
    pub fn remove_last(&mut self, messages: usize) {
        for _ in 0..messages {
            if let Some(stream) = &mut self.stream
                && stream.messages.pop_last().is_some()
            {
                lock(&self.oracle).removed = true;
            }
        }
    }

    /// Removes the message in front of the last `behind` ones.
    pub fn remove_one(&mut self, behind: usize) {
        if let Some(stream) = &mut self.stream
            && let Some(sequence) = stream.messages.keys().rev().nth(behind).copied()
        {
            stream.messages.remove(&sequence);
            lock(&self.oracle).holed = true;
        }
    }

    /// Returns the position behind the stream's last event.
    pub fn end(&self) -> Option<u64> {
        Some(self.stream.as_ref()?.messages.last_key_value()?.1.header.end())
    }

    /// Sends heartbeats, and ends old pulls.
    pub fn beat(&mut self, now: Instant) -> Vec<Delivery> {
        let mut all = Vec::new();
        for consumer in self.consumers.values_mut() {
            let old = consumer.pulls.iter().filter(|pull| pull.expires <= now);
            all.extend(old.map(|pull| status(&pull.reply, 408, "Request Timeout")));
            consumer.pulls.retain(|pull| pull.expires > now);
            all.extend(consumer.pulls.front().map(|pull| status(&pull.reply, 100, "Idle")));
        }
        all
    }

    /// Takes a message, and returns the messages that follow from it. If the request is refused, a
    /// refusal takes the place of its answer.
    pub fn take(
        &mut self,
        message: Outgoing,
        refused: Option<(u64, bool)>,
        now: Instant,
    ) -> Vec<Delivery> {
        let (reply, is_request) = (message.reply.clone(), message.subject.starts_with(API));
        let obeyed = refused.is_none_or(|(_, obeyed)| obeyed);
        let mut all = match message.subject.strip_prefix(API) {
            _ if !obeyed => Vec::new(),
            Some(subject) => self.request(subject, &message, now),
            None => self.publish(message, now),
        };
        if let (Some((code, _)), Some(reply)) = (refused, reply) {
            all.retain(|delivery| delivery.to != reply);
            all.push(match code {
                NO_RESPONDERS => status(&reply, 503, "No Responders"),
                _ if is_request => failed(&reply, UNAVAILABLE),
                code => failed(&reply, code),
            });
        }
        all
    }

    fn request(&mut self, subject: &str, message: &Outgoing, now: Instant) -> Vec<Delivery> {
        let Some(reply) = &message.reply else { return Vec::new() };
        let body: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
        let words: Vec<&str> = subject.split('.').collect();
        if let ["STREAM", "CREATE", _] = words.as_slice() {
            let (messages, last) = (BTreeMap::new(), 0);
            self.stream.get_or_insert(Stream { config: body, messages, last });
            return self.info(reply);
        }
        let Some(stream) = &self.stream else { return vec![failed(reply, NO_STREAM)] };
        match words.as_slice() {
            ["STREAM", "INFO", _] => self.info(reply),
            ["STREAM", "MSG", "GET", _] => {
                let found = match body["seq"].as_u64() {
                    Some(from) => stream.messages.range(from..).next(),
                    None => stream.messages.get_key_value(&stream.last),
                };
                let Some((sequence, stored)) = found else {
                    return vec![failed(reply, NO_MESSAGE)];
                };
                let message = json!({
                    "seq": sequence,
                    "hdrs": STANDARD.encode(block(&stored.headers)),
                    "data": STANDARD.encode(&stored.payload),
                });
                vec![answer(reply, &json!({ "message": message }))]
            }
            ["CONSUMER", "CREATE", _, name] => {
                let next = body["config"]["opt_start_seq"].as_u64().unwrap_or(1);
                let (pulls, delivered, stalled) = (VecDeque::new(), 0, false);
                let consumer = Consumer { pulls, next, delivered, stalled };
                self.consumers.insert((*name).to_owned(), consumer);
                vec![answer(reply, &json!({ "name": name }))]
            }
            ["CONSUMER", "DELETE", _, name] => {
                self.consumers.remove(*name);
                vec![answer(reply, &json!({ "success": true }))]
            }
            ["CONSUMER", "MSG", "NEXT", _, name] => {
                let Some(consumer) = self.consumers.get_mut(*name) else {
                    return vec![status(reply, 503, "No Responders")];
                };
                let left = body["batch"].as_u64().unwrap_or(1);
                let expires = Duration::from_nanos(body["expires"].as_u64().unwrap_or(0));
                let pull = Pull { reply: reply.clone(), left, expires: now + expires };
                consumer.pulls.push_back(pull);
                self.deliver()
            }
            _ => vec![status(reply, 503, "No Responders")],
        }
    }

    fn info(&self, reply: &str) -> Vec<Delivery> {
        let Some(stream) = &self.stream else { return Vec::new() };
        let first = stream.messages.first_key_value().map_or(stream.last + 1, |(first, _)| *first);
        let stored = if stream.last > 0 { "2026-01-01T00:00:00Z" } else { "0001-01-01T00:00:00Z" };
        let state = json!({
            "messages": stream.messages.len(),
            "first_seq": first,
            "last_seq": stream.last,
            "last_ts": stored,
        });
        let info = json!({ "config": stream.config, "state": state, "created": "once" });
        vec![answer(reply, &info)]
    }

    fn publish(&mut self, message: Outgoing, now: Instant) -> Vec<Delivery> {
        let reply = message.reply.clone();
        let refuse = |code| reply.iter().map(|reply| failed(reply, code)).collect();
        if self.stream.is_none() {
            return reply.iter().map(|reply| status(reply, 503, "No Responders")).collect();
        }
        let text = |name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
        let (id, place) = (text("Nats-Batch-Id"), text("Nats-Batch-Sequence"));
        let commits = text("Nats-Batch-Commit").is_some();
        let all = match (id, place.and_then(|place| place.parse::<usize>().ok())) {
            (Some(id), Some(place)) => {
                let batch = self.batches.entry(id.clone()).or_default();
                if batch.len() + 1 != place {
                    self.batches.remove(&id);
                    return refuse(INCOMPLETE_BATCH);
                }
                batch.push(message);
                if !commits {
                    let first = reply.iter().filter(|_| place == 1);
                    return first.map(|reply| body(reply, Bytes::new())).collect();
                }
                self.batches.remove(&id).unwrap_or_default()
            }
            _ => vec![message],
        };
        match self.store(all, now) {
            Ok(sequence) => {
                let stored = json!({ "stream": "S", "seq": sequence });
                let mut all: Vec<Delivery> =
                    reply.iter().map(|reply| answer(reply, &stored)).collect();
                all.extend(self.deliver());
                all
            }
            Err(code) => refuse(code),
        }
    }

    /// Stores messages if the condition of the first one holds (I1). Returns the last sequence.
    fn store(&mut self, all: Vec<Outgoing>, now: Instant) -> Result<u64, u64> {
        let Some(stream) = &mut self.stream else { return Err(NO_STREAM) };
        let limit = stream.config["max_msg_size"].as_u64().unwrap_or(u64::MAX);
        let length = |one: &Outgoing| (block(&one.headers).len() + one.payload.len()) as u64;
        if all.iter().any(|one| length(one) > limit) {
            return Err(TOO_LONG);
        }
        if self.full_until.is_some_and(|until| now < until) {
            return Err(STORE_FAILED);
        }
        let expected = all.first().and_then(|one| one.headers.get("Nats-Expected-Last-Sequence"));
        let expected = expected.and_then(|expected| expected.as_str().parse().ok());
        if expected.is_some_and(|expected: u64| expected != stream.last) {
            return Err(WRONG_LAST_SEQUENCE);
        }
        for Outgoing { subject, headers, payload, .. } in all {
            let description = headers.get(message::DESCRIPTION).map(|value| value.as_str());
            let mut oracle = lock(&self.oracle);
            let header = match message::read(description, &payload) {
                Ok((header, events)) => {
                    let events: Vec<u64> = events.flatten().map(super::play::value).collect();
                    let before = stream.messages.get(&stream.last).map(|stored| stored.header);
                    oracle.stored(&header, &events, before.as_ref());
                    header
                }
                Err(bad) => {
                    oracle.breaks(format!("a message that cannot be read is stored: {bad:?}"));
                    continue;
                }
            };
            drop(oracle);
            stream.last += 1;
            let stored = Stored { subject, headers, payload, header };
            stream.messages.insert(stream.last, stored);
        }
        Ok(stream.last)
    }

    /// Sends the consumers what they have asked for (I2).
    fn deliver(&mut self) -> Vec<Delivery> {
        let Some(stream) = &self.stream else { return Vec::new() };
        let mut all = Vec::new();
        for consumer in self.consumers.values_mut().filter(|consumer| !consumer.stalled) {
            while let Some(pull) = consumer.pulls.front_mut()
                && let Some((sequence, stored)) = stream.messages.range(consumer.next..).next()
            {
                consumer.next = sequence + 1;
                consumer.delivered += 1;
                pull.left -= 1;
                let behind = stream.messages.range(consumer.next..).count();
                let place = format!("$JS.ACK.S.c.1.{sequence}.{}.0.{behind}", consumer.delivered);
                let message = Message {
                    subject: stored.subject.as_str().into(),
                    reply: Some(place.into()),
                    payload: stored.payload.clone(),
                    headers: Some(stored.headers.clone()),
                    status: None,
                    description: None,
                    length: stored.payload.len(),
                };
                all.push(Delivery { to: pull.reply.clone(), message });
                if pull.left == 0 {
                    all.push(status(&pull.reply, 409, "Batch Completed"));
                    consumer.pulls.pop_front();
                }
            }
        }
        all
    }
}

/// Returns a block of headers, as the server stores it.
fn block(headers: &HeaderMap) -> String {
    let lines = headers.iter().flat_map(|(name, values)| {
        values.iter().map(move |value| format!("{name}: {}\r\n", value.as_str()))
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort(); // the map has no order of its own
    format!("NATS/1.0\r\n{}\r\n", lines.concat())
}

fn body(to: &str, payload: Bytes) -> Delivery {
    let (length, subject) = (payload.len(), to.into());
    let (reply, headers, status, description) = (None, None, None, None);
    let message = Message { subject, reply, payload, headers, status, description, length };
    Delivery { to: to.to_owned(), message }
}

fn answer(to: &str, value: &Value) -> Delivery {
    body(to, value.to_string().into())
}

fn failed(to: &str, code: u64) -> Delivery {
    let error = json!({ "code": 500, "err_code": code, "description": format!("error {code}") });
    answer(to, &json!({ "error": error }))
}

fn status(to: &str, code: u16, description: &str) -> Delivery {
    let Delivery { to, mut message } = body(to, Bytes::new());
    message.status = StatusCode::from_u16(code).ok();
    message.description = Some(description.to_owned());
    Delivery { to, message }
}
