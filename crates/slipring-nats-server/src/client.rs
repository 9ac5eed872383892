//! A small blocking client, for tests that check a stream independently, and for faults that a
//! proper client never makes.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    api::ApiError,
    wire::{Frame, Message, block, parse, publication},
};

/// Time limit of a connection attempt, of a write, and of a request to the JetStream API.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Size of a read, in bytes.
const CHUNK: usize = 64 * 1024;
/// Id of the subscription that gets the replies.
const INBOX: u64 = 1;

/// A blocking client without reconnection and without TLS. Every call has a time limit.
///
/// The client answers the server's pings only within its calls.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// Bytes received; those before `start` are used.
    buffer: Vec<u8>,
    start: usize,
    info: String,
    /// Prefix of the reply subjects.
    inbox: String,
    next_reply: u64,
    last_sid: u64,
    /// Received messages that no call has taken, by subscription.
    waiting: HashMap<u64, VecDeque<Message>>,
    pongs: u64,
}

impl Client {
    /// Connects to a port of this machine, and returns once the server has accepted the client.
    ///
    /// # Errors
    ///
    /// No server answers, or it refuses the credentials.
    pub fn connect(port: u16, user: Option<(&str, &str)>) -> io::Result<Self> {
        Self::connect_with(
            port,
            match user {
                Some((user, pass)) => json!({ "user": user, "pass": pass }),
                None => json!({}),
            },
        )
    }

    /// Connects like [`connect`](Self::connect), but with a token.
    ///
    /// # Errors
    ///
    /// No server answers, or the server refuses the token.
    pub fn connect_with_token(port: u16, token: &str) -> io::Result<Self> {
        Self::connect_with(port, json!({ "auth_token": token }))
    }

    fn connect_with(port: u16, credentials: Value) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut client = Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            info: String::new(),
            inbox: format!("_INBOX.{:016x}", fastrand::u64(..)),
            next_reply: 0,
            last_sid: INBOX,
            waiting: HashMap::new(),
            pongs: 0,
        };
        let deadline = Instant::now() + LIMIT;
        while client.info.is_empty() {
            client.receive(deadline)?;
        }
        let mut options = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "protocol": 1, "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
            "name": "slipring-nats-server",
        });
        if let (Some(options), Value::Object(more)) = (options.as_object_mut(), credentials) {
            options.extend(more);
        }
        let lines = format!("CONNECT {options}\r\nSUB {}.* {INBOX}\r\n", client.inbox);
        client.write_raw(lines.as_bytes())?;
        client.flush()?;
        Ok(client)
    }

    /// Returns the server's last INFO.
    ///
    /// # Errors
    ///
    /// The INFO is no JSON.
    pub fn info(&self) -> io::Result<Value> {
        Ok(serde_json::from_str(&self.info)?)
    }

    /// Writes bytes to the connection as they are.
    ///
    /// # Errors
    ///
    /// The connection is lost, or the server reads nothing for 10 s.
    pub fn write_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Publishes a message.
    ///
    /// # Errors
    ///
    /// The connection is lost. A refusal by the server is an error of a later call.
    pub fn publish(
        &mut self,
        subject: &str,
        headers: Option<&[(&str, &str)]>,
        payload: &[u8],
    ) -> io::Result<()> {
        self.publish_raw(subject, None, headers.map(block).as_deref(), payload)
    }

    /// Publishes a message with this header block, unchanged. The block includes its first line,
    /// `NATS/1.0`.
    ///
    /// # Errors
    ///
    /// The connection is lost. A refusal by the server is an error of a later call.
    pub fn publish_raw(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        block: Option<&[u8]>,
        payload: &[u8],
    ) -> io::Result<()> {
        self.write_raw(&publication(subject, reply, block, payload))
    }

    /// Waits until the server has read everything that was written. A stream may store a published
    /// message only after that.
    ///
    /// # Errors
    ///
    /// The connection is lost, or the server has sent an error or does not answer within 10 s.
    pub fn flush(&mut self) -> io::Result<()> {
        let (deadline, before) = (Instant::now() + LIMIT, self.pongs);
        self.write_raw(b"PING\r\n")?;
        while self.pongs == before {
            self.receive(deadline)?;
        }
        Ok(())
    }

    /// Publishes a request and waits for its first reply.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if nothing is subscribed to the subject, and
    /// [`io::ErrorKind::TimedOut`] if no reply comes within `timeout`. Other errors mean that the
    /// connection is lost, or that the server has sent an error.
    pub fn request(
        &mut self,
        subject: &str,
        payload: &[u8],
        timeout: Duration,
    ) -> io::Result<Message> {
        self.request_with(subject, None, payload, timeout)
    }

    /// Publishes a request like [`request`](Self::request), but with headers.
    ///
    /// # Errors
    ///
    /// The errors of [`request`](Self::request).
    pub fn request_with(
        &mut self,
        subject: &str,
        headers: Option<&[(&str, &str)]>,
        payload: &[u8],
        timeout: Duration,
    ) -> io::Result<Message> {
        let deadline = Instant::now() + timeout;
        let reply = self.send_request(subject, headers, payload)?;
        loop {
            // A reply with another subject belongs to an earlier request, whose caller has given
            // up.
            let message = self.next_reply(deadline)?;
            if message.subject == reply {
                return answered(subject, message);
            }
        }
    }

    /// Publishes a request, and returns the subject of its reply.
    pub(crate) fn send_request(
        &mut self,
        subject: &str,
        headers: Option<&[(&str, &str)]>,
        payload: &[u8],
    ) -> io::Result<String> {
        self.next_reply += 1;
        let reply = format!("{}.{}", self.inbox, self.next_reply);
        self.publish_raw(subject, Some(&reply), headers.map(block).as_deref(), payload)?;
        Ok(reply)
    }

    /// Waits for the next reply to any request.
    pub(crate) fn next_reply(&mut self, deadline: Instant) -> io::Result<Message> {
        self.next_until(INBOX, deadline)
    }

    /// Sends a request of the JetStream API, e.g. `STREAM.INFO.S`, and returns its response.
    ///
    /// # Errors
    ///
    /// An [`ApiError`] within the returned error, if the response contains an error. Otherwise the
    /// call fails as [`request`](Self::request) does, with a time limit of 10 s.
    pub fn api(&mut self, subject: &str, request: Value) -> io::Result<Value> {
        self.api_within(subject, request, LIMIT)
    }

    /// Like [`api`](Self::api), but with the time limit `timeout`.
    ///
    /// # Errors
    ///
    /// The errors of [`api`](Self::api).
    pub fn api_within(
        &mut self,
        subject: &str,
        request: Value,
        timeout: Duration,
    ) -> io::Result<Value> {
        let payload = if request.is_null() { String::new() } else { request.to_string() };
        let subject = format!("$JS.API.{subject}");
        ApiError::check(&self.request(&subject, payload.as_bytes(), timeout)?.payload)
    }

    /// Subscribes to a subject, and returns the subscription's id.
    ///
    /// # Errors
    ///
    /// The connection is lost, or the server refuses.
    pub fn subscribe(&mut self, subject: &str) -> io::Result<u64> {
        self.last_sid += 1;
        let sid = self.last_sid;
        self.write_raw(format!("SUB {subject} {sid}\r\n").as_bytes())?;
        self.flush()?;
        Ok(sid)
    }

    /// Ends a subscription and forgets its messages.
    ///
    /// # Errors
    ///
    /// The connection is lost.
    pub fn unsubscribe(&mut self, sid: u64) -> io::Result<()> {
        self.write_raw(format!("UNSUB {sid}\r\n").as_bytes())?;
        self.flush()?;
        self.waiting.remove(&sid);
        Ok(())
    }

    /// Waits for the next message of a subscription.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if no message comes within `timeout`. Other errors mean that the
    /// connection is lost, or that the server has sent an error.
    pub fn next(&mut self, sid: u64, timeout: Duration) -> io::Result<Message> {
        self.next_until(sid, Instant::now() + timeout)
    }

    fn next_until(&mut self, sid: u64, deadline: Instant) -> io::Result<Message> {
        loop {
            if let Some(message) = self.waiting.get_mut(&sid).and_then(VecDeque::pop_front) {
                return Ok(message);
            }
            self.receive(deadline)?;
        }
    }

    /// Receives and handles one frame.
    fn receive(&mut self, deadline: Instant) -> io::Result<()> {
        let frame = loop {
            if let Some((frame, length)) = parse(&self.buffer[self.start..])? {
                self.start += length;
                break frame;
            }
            self.read_more(deadline)?;
        };
        match frame {
            Frame::Info(info) => self.info = info,
            Frame::Ping => self.write_raw(b"PONG\r\n")?,
            Frame::Pong => self.pongs += 1,
            Frame::Ok => {}
            Frame::Error(error) => return Err(io::Error::other(format!("server: {error}"))),
            Frame::Message { sid, message } => {
                self.waiting.entry(sid).or_default().push_back(message);
            }
        }
        Ok(())
    }

    fn read_more(&mut self, deadline: Instant) -> io::Result<()> {
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the server did not answer in time");
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.buffer.drain(..self.start);
        self.start = 0;
        let used = self.buffer.len();
        self.buffer.resize(used + CHUNK, 0);
        let read = self.stream.read(&mut self.buffer[used..]);
        self.buffer.truncate(used + read.as_ref().map_or(0, |length| *length));
        match read {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up")),
            Ok(_) => Ok(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(late()),
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            },
        }
    }
}

/// Returns the reply, or an error if it says that nothing is subscribed to the subject.
pub(crate) fn answered(subject: &str, message: Message) -> io::Result<Message> {
    if message.status == Some(503) && message.payload.is_empty() {
        let text = format!("no responders: nothing is subscribed to {subject}");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(message)
}
