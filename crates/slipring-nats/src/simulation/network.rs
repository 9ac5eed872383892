//! The network between the clients and the server, which lies as the case says.
//!
//! Invariants
//! - I1: messages of a connection arrive in the order in which they were sent, unless a lie
//!   concerns them.
//! - I2: the answers of a lost connection are lost. Messages on their way to the server are lost or
//!   still arrive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::Message;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::case::Lie;
use super::ring::lock;
use super::server::{Delivery, Server};
use crate::nats::{Notice, Outgoing};

/// Interval of the consumers' heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Time after which a client connects again.
const RECONNECT: Duration = Duration::from_millis(5);

/// Greatest number of messages. Later ones are lost, so that a run without end becomes one that
/// waits in vain.
const MOST: u64 = 30_000;

/// The network.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
    scheduled: Arc<Notify>,
}

struct State {
    queue: BTreeMap<(Instant, u64), Event>,
    /// Number of events and inboxes so far.
    count: u64,
    /// Number of messages so far.
    messages: u64,
    lies: BTreeMap<u64, Lie>,
    latency: Duration,
    clients: Vec<ClientState>,
    server: Server,
    silent_until: Instant,
    down_until: Instant,
    begun: Instant,
    /// The run's messages and steps, if they are wanted.
    trace: Option<Vec<String>>,
}

struct ClientState {
    owner: usize,
    /// Number of the connection, or `None` while there is none.
    connection: Option<u64>,
    connects: u64,
    /// `None` once the client has given up, or its process is killed.
    notices: Option<UnboundedSender<Notice>>,
    buffered: Vec<Outgoing>,
    inboxes: Vec<(String, UnboundedSender<Message>)>,
}

/// Something that happens at a time of its own.
enum Event {
    ToServer { client: usize, message: Box<Outgoing>, refused: Option<(u64, bool)> },
    ToClient { client: usize, connection: u64, delivery: Box<Delivery> },
    Reconnect { client: usize },
    Beat,
}

impl Network {
    pub fn new(
        server: Server,
        lies: BTreeMap<u64, Lie>,
        latency: Duration,
        traced: bool,
    ) -> Network {
        let now = Instant::now();
        let mut state = State {
            queue: BTreeMap::new(),
            count: 0,
            messages: 0,
            lies,
            latency,
            clients: Vec::new(),
            server,
            silent_until: now,
            down_until: now,
            begun: now,
            trace: traced.then(Vec::new),
        };
        state.schedule(HEARTBEAT, Event::Beat);
        Network { state: Arc::new(Mutex::new(state)), scheduled: Arc::default() }
    }

    /// Runs the network's events.
    pub async fn run(self) {
        loop {
            let first = lock(&self.state).queue.keys().next().map(|(time, _)| *time);
            let due = async {
                match first {
                    Some(time) => tokio::time::sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.scheduled.notified() => continue,
                () = due => {}
            }
            let mut state = lock(&self.state);
            let now = Instant::now();
            while let Some(entry) = state.queue.first_entry()
                && entry.key().0 <= now
            {
                let event = entry.remove();
                state.happen(event, now);
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut lock(&self.state));
        self.scheduled.notify_one();
        changed
    }

    pub fn count(&self) -> u64 {
        self.change(|state| state.number())
    }

    /// Returns the number of messages so far.
    pub fn messages(&self) -> u64 {
        lock(&self.state).messages
    }

    pub fn is_silent(&self) -> bool {
        Instant::now() < lock(&self.state).silent_until
    }

    pub fn is_down(&self) -> bool {
        Instant::now() < lock(&self.state).down_until
    }

    /// Connects a client of a process. Returns the client's number.
    pub fn connected(&self, owner: usize, notices: UnboundedSender<Notice>) -> usize {
        self.change(|state| {
            let _ = notices.send(Notice::Connected);
            let (connection, notices) = (Some(state.number()), Some(notices));
            let (buffered, inboxes) = (Vec::new(), Vec::new());
            let connects = 1;
            let client = ClientState { owner, connection, connects, notices, buffered, inboxes };
            state.clients.push(client);
            state.clients.len() - 1
        })
    }

    pub fn subscribe(&self, client: usize, prefix: String, sender: UnboundedSender<Message>) {
        self.change(|state| {
            let client = &mut state.clients[client];
            if client.notices.is_some() {
                client.inboxes.retain(|(_, sender)| !sender.is_closed());
                client.inboxes.push((prefix, sender));
            }
        });
    }

    pub fn send(&self, client: usize, message: Outgoing) {
        self.change(|state| state.send(client, message));
    }

    pub fn is_connected(&self, client: usize) -> bool {
        lock(&self.state).clients[client].connection.is_some()
    }

    pub fn connects(&self, client: usize) -> u64 {
        lock(&self.state).clients[client].connects
    }

    /// Ends the clients of a killed process. Messages on their way still arrive.
    pub fn kill(&self, owner: usize) {
        self.change(|state| {
            for client in state.owned(owner) {
                state.clients[client].end();
            }
        });
    }

    /// Cuts the connections of a process.
    pub fn cut(&self, owner: usize, lost: bool) {
        self.change(|state| {
            for client in state.owned(owner) {
                state.cut(client, lost);
            }
        });
    }

    /// Lets the clients of a process give up.
    pub fn give_up(&self, owner: usize) {
        self.change(|state| {
            for client in state.owned(owner) {
                state.cut(client, false);
                if let Some(notices) = &state.clients[client].notices {
                    let _ = notices.send(Notice::Closed);
                }
                state.clients[client].end();
            }
        });
    }

    pub fn restart(&self, down: Duration) {
        self.change(|state| {
            state.down_until = Instant::now() + down;
            for client in 0..state.clients.len() {
                state.cut(client, true);
            }
            state.server.restart();
        });
    }

    pub fn silence(&self, time: Duration) {
        self.change(|state| state.silent_until = Instant::now() + time);
    }

    /// Ends all faults.
    pub fn be_honest(&self) {
        let now = Instant::now();
        self.change(|state| {
            state.lies.clear();
            (state.silent_until, state.down_until) = (now, now);
            state.server.full_until = None;
        });
    }

    pub fn server<T>(&self, change: impl FnOnce(&mut Server) -> T) -> T {
        self.change(|state| change(&mut state.server))
    }

    /// Adds a line to the trace.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        lock(&self.state).trace(line);
    }

    /// Returns the trace.
    pub fn traced(&self) -> Vec<String> {
        lock(&self.state).trace.take().unwrap_or_default()
    }
}

impl ClientState {
    fn end(&mut self) {
        (self.connection, self.notices) = (None, None);
        self.buffered.clear();
        self.inboxes.clear();
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn owned(&self, owner: usize) -> Vec<usize> {
        let is_owned = |client: &usize| self.clients[*client].owner == owner;
        (0..self.clients.len()).filter(is_owned).collect()
    }

    fn trace(&mut self, line: impl FnOnce() -> String) {
        let time = self.begun.elapsed().as_millis();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{time:>7} {}", line()));
        }
    }

    fn schedule(&mut self, delay: Duration, event: Event) {
        let number = self.number();
        self.queue.insert((Instant::now() + delay, number), event);
    }

    /// Returns the lie about the next message.
    fn lie(&mut self) -> Option<Lie> {
        self.messages += 1;
        let lie = self.lies.remove(&self.messages);
        let number = self.messages;
        if let Some(lie) = lie {
            self.trace(|| format!("lie about message {number}: {lie:?}"));
        }
        lie
    }

    fn cut(&mut self, client: usize, lost: bool) {
        if self.clients[client].connection.take().is_none() {
            return;
        }
        self.trace(|| format!("client {client} is cut"));
        if lost {
            self.queue.retain(
                |_, event| !matches!(event, Event::ToServer { client: of, .. } if *of == client),
            );
        }
        if let Some(notices) = &self.clients[client].notices {
            let _ = notices.send(Notice::Disconnected);
            self.schedule(RECONNECT, Event::Reconnect { client });
        }
    }

    fn send(&mut self, client: usize, message: Outgoing) {
        if self.clients[client].notices.is_none() || self.messages > MOST {
            return;
        }
        let lie = self.lie();
        if let Some(Lie::Cut { lost }) = lie {
            self.cut(client, lost);
        }
        if self.clients[client].connection.is_none() {
            self.clients[client].buffered.push(message);
            return;
        }
        self.trace(|| {
            let expected = message.headers.get("Nats-Expected-Last-Sequence");
            let expected = expected.map_or("", |expected| expected.as_str());
            format!("client {client} sends {} {expected}", message.subject)
        });
        let (mut refused, latency) = (None, self.latency);
        let mut delay = latency;
        match lie {
            Some(Lie::Lost) => return,
            Some(Lie::Late(ms)) => delay += Duration::from_millis(ms),
            Some(Lie::Twice(ms)) => {
                let message = Box::new(Outgoing {
                    subject: message.subject.clone(),
                    reply: message.reply.clone(),
                    headers: message.headers.clone(),
                    payload: message.payload.clone(),
                });
                let again = Event::ToServer { client, message, refused };
                self.schedule(latency + Duration::from_millis(ms), again);
            }
            Some(Lie::Refused { code, obeyed }) => refused = Some((code, obeyed)),
            Some(Lie::Cut { .. }) | None => {}
        }
        self.schedule(delay, Event::ToServer { client, message: Box::new(message), refused });
    }

    fn answer(&mut self, delivery: Delivery) {
        let client = delivery.to.split('.').nth(1).and_then(|client| client.parse().ok());
        let Some(client) = client.filter(|client| *client < self.clients.len()) else { return };
        let lie = self.lie();
        if let Some(Lie::Cut { lost }) = lie {
            self.cut(client, lost);
        }
        let Some(connection) = self.clients[client].connection else { return };
        let latency = self.latency;
        let mut delay = latency;
        match lie {
            Some(Lie::Lost) => return,
            Some(Lie::Late(ms)) => delay += Duration::from_millis(ms),
            Some(Lie::Twice(ms)) => {
                let (to, message) = (delivery.to.clone(), delivery.message.clone());
                let again = Box::new(Delivery { to, message });
                let again = Event::ToClient { client, connection, delivery: again };
                self.schedule(latency + Duration::from_millis(ms), again);
            }
            Some(Lie::Cut { .. } | Lie::Refused { .. }) | None => {}
        }
        let delivery = Box::new(delivery);
        self.schedule(delay, Event::ToClient { client, connection, delivery });
    }

    fn happen(&mut self, event: Event, now: Instant) {
        let is_silent = now < self.silent_until;
        let is_down = now < self.down_until;
        match event {
            Event::ToServer { message, refused, .. } if !is_silent && !is_down => {
                for delivery in self.server.take(*message, refused, now) {
                    self.answer(delivery);
                }
            }
            Event::ToClient { client, connection, delivery } if !is_silent => {
                if self.clients[client].connection != Some(connection) {
                    return;
                }
                let Delivery { to, message } = *delivery;
                self.trace(|| {
                    let text = String::from_utf8_lossy(&message.payload);
                    let text: String = match message.payload.first() {
                        Some(b'{') => text.chars().take(120).collect(),
                        _ => format!("{} bytes", message.payload.len()),
                    };
                    let status = message.status.map_or(0, |status| status.as_u16());
                    format!("client {client} receives {to} {status} {text}")
                });
                let mut inboxes = self.clients[client].inboxes.iter();
                if let Some((_, sender)) = inboxes.find(|(inbox, _)| is_for(&to, inbox)) {
                    let _ = sender.send(message);
                }
            }
            Event::ToServer { .. } | Event::ToClient { .. } => {}
            Event::Reconnect { client } if is_silent || is_down => {
                let until = self.silent_until.max(self.down_until);
                self.schedule(until - now + RECONNECT, Event::Reconnect { client });
            }
            Event::Reconnect { client } => {
                let connection = self.number();
                let state = &mut self.clients[client];
                let Some(notices) = &state.notices else { return };
                let _ = notices.send(Notice::Connected);
                state.connection = Some(connection);
                state.connects += 1;
                for message in std::mem::take(&mut state.buffered) {
                    self.send(client, message);
                }
            }
            Event::Beat => {
                for delivery in self.server.beat(now) {
                    self.answer(delivery);
                }
                self.schedule(HEARTBEAT, Event::Beat);
            }
        }
    }
}

/// Returns whether a subscription to `inbox` gets the messages for `to`. The inbox of several
/// subjects ends with a dot.
fn is_for(to: &str, inbox: &str) -> bool {
    if inbox.ends_with('.') { to.starts_with(inbox) } else { to == inbox }
}
