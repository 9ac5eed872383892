//! The faults, counts, connections and queues of a proxy, behind one lock.
//!
//! The condition variable is notified after each change, so a thread that waits for a change misses
//! none.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Shutdown, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::traffic::{Counts, Direction, Traffic};

/// The state of a proxy, which all of its threads share.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    state: Mutex<State>,
    /// Notified after each change of the state.
    pub(crate) changed: Condvar,
}

impl SharedState {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or for at most `limit`.
    pub(crate) fn wait<'s>(
        &'s self,
        state: MutexGuard<'s, State>,
        limit: Option<Duration>,
    ) -> MutexGuard<'s, State> {
        match limit {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.changed.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

/// The faults, the counts and the open connections of a proxy.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Faults and counts by direction.
    pub(crate) directions: [DirectionState; 2],
    pub(crate) delay: Duration,
    pub(crate) refuse: bool,
    /// Whether the proxy is being dropped.
    pub(crate) stop: bool,
    /// Number of cuts so far.
    pub(crate) cuts: u64,
    pub(crate) connections: u64,
    pub(crate) refused: u64,
    /// The open connections by id.
    pub(crate) open: BTreeMap<u64, Connection>,
}

impl State {
    /// Returns the counts, including the numbers of bytes that are held.
    pub(crate) fn counts(&self) -> Counts {
        let [to_server, to_client] = Direction::BOTH.map(|direction| {
            let state = &self.directions[direction.index()];
            let held = self.open.values().map(|open| open.held(direction)).sum();
            Traffic { passed: state.passed, swallowed: state.swallowed, held }
        });
        let (connections, refused) = (self.connections, self.refused);
        Counts { connections, refused, open: self.open.len() as u64, to_server, to_client }
    }

    /// Closes all connections.
    pub(crate) fn cut(&mut self) {
        self.cuts += 1;
        std::mem::take(&mut self.open).values().for_each(Connection::close);
    }

    /// Closes one connection.
    pub(crate) fn close(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id) {
            open.close();
        }
    }
}

/// Faults and counts of a direction.
#[derive(Debug, Default)]
pub(crate) struct DirectionState {
    pub(crate) swallow: bool,
    pub(crate) hold: bool,
    /// Number of bytes that still pass before all connections are closed.
    pub(crate) cut_after: Option<u64>,
    pub(crate) passed: u64,
    pub(crate) swallowed: u64,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Arc<TcpStream>,
    server: Arc<TcpStream>,
    pub(crate) queues: [Queue; 2],
}

impl Connection {
    pub(crate) fn new(client: Arc<TcpStream>, server: Arc<TcpStream>) -> Self {
        Self { client, server, queues: Default::default() }
    }

    /// Closes both sides.
    pub(crate) fn close(&self) {
        let _ = self.server.shutdown(Shutdown::Both);
        self.close_client();
    }

    pub(crate) fn close_client(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
    }

    /// Returns the number of bytes that were received in a direction and are not forwarded yet.
    pub(crate) fn held(&self, direction: Direction) -> u64 {
        self.queues[direction.index()].bytes
    }
}

/// The bytes between the reader and the writer of a direction.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Bytes, each chunk with the time of its arrival.
    pub(crate) chunks: VecDeque<(Instant, Vec<u8>)>,
    /// Number of bytes in the chunks, and of bytes that the writer has taken and not written yet.
    pub(crate) bytes: u64,
    /// Whether the sender has closed the connection.
    pub(crate) ended: bool,
    /// Whether the receiver has closed the connection, so that the bytes are thrown away.
    pub(crate) broken: bool,
    /// Whether the writer has forwarded the sender's end.
    pub(crate) done: bool,
}
