//! A TCP proxy between clients and a server, whose faults a test turns on and off.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    forward::forward,
    host::{HOST, listen},
    proxy_state::{Connection, SharedState, State},
    traffic::{Counts, Direction},
};

/// Time limit of a connection to the server.
const CONNECT: Duration = Duration::from_secs(5);

/// A TCP proxy in front of one port of this machine. Each fault applies to all connections.
///
/// The proxy passes on the end of a connection only after the last byte. If a client closes its
/// connection, the proxy first delivers all bytes of the client, however long it holds them.
/// Dropping the proxy closes everything.
///
/// ```no_run
/// use std::time::Duration;
/// use slipring_nats_server::{Client, Direction, Options, Proxy, Server};
///
/// # fn main() -> std::io::Result<()> {
/// let server = Server::start(Options::new())?;
/// let proxy = Proxy::to(server.port())?;
/// let mut client = Client::connect(proxy.port(), None)?;
/// proxy.hold(Direction::ToServer, true);
/// client.publish("late", None, b"x")?;
/// proxy.wait_until(Duration::from_secs(10), |counts| counts.to_server.held > 0)?;
/// drop(client);
/// proxy.hold(Direction::ToServer, false); // Now the server gets the message.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    target: Arc<AtomicU16>,
    shared: Arc<SharedState>,
    acceptor: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `port`.
    ///
    /// # Errors
    ///
    /// The system has no port or thread left.
    pub fn to(port: u16) -> io::Result<Self> {
        let listener = listen()?;
        let own = listener.local_addr()?.port();
        let (target, shared) = (Arc::new(AtomicU16::new(port)), Arc::new(SharedState::default()));
        let acceptor = thread::Builder::new().name("proxy-accept".to_owned()).spawn({
            let (target, shared) = (target.clone(), shared.clone());
            move || accept(&listener, &target, &shared)
        })?;
        Ok(Self { port: own, target, shared, acceptor: Some(acceptor) })
    }

    /// Returns the port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL that clients connect to.
    pub fn url(&self) -> String {
        format!("nats://{HOST}:{}", self.port)
    }

    /// Connects new clients to another port. Open connections stay.
    pub fn retarget(&self, port: u16) {
        self.target.store(port, Relaxed);
    }

    /// Returns the counts now.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts()
    }

    /// Waits until `reached` is true of the counts, and returns them.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`], with the last counts, if no count satisfies `reached` within
    /// `limit`.
    pub fn wait_until(
        &self,
        limit: Duration,
        reached: impl Fn(&Counts) -> bool,
    ) -> io::Result<Counts> {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.state();
        loop {
            let counts = state.counts();
            if reached(&counts) {
                return Ok(counts);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("not within {limit:?}: {counts:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            state = self.shared.wait(state, Some(left));
        }
    }

    /// Closes all connections once `bytes` more bytes have passed in one direction, summed over the
    /// connections. The cut can fall into the middle of a frame, and the bytes behind it are lost.
    /// Each call causes one cut. With 0, the cut comes at the next byte. If the cut of an earlier
    /// call is still to come, this call replaces it.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.change(|state| state.directions[direction.index()].cut_after = Some(bytes));
    }

    /// Closes all connections now. Held bytes are lost.
    pub fn cut_now(&self) {
        self.change(State::cut);
    }

    /// Closes all connections now, but only towards the clients. Bytes that are held for the server
    /// are still delivered, as if they were in the network.
    pub fn cut_clients(&self) {
        self.change(|state| {
            state.cuts += 1;
            state.open.values().for_each(Connection::close_client);
        });
    }

    /// As long as `on` is set, throws away the bytes that arrive in one direction. If that begins
    /// or ends in the middle of a frame, the receiver gets only a part of the frame.
    pub fn swallow(&self, direction: Direction, on: bool) {
        self.change(|state| state.directions[direction.index()].swallow = on);
    }

    /// As long as `on` is set, holds back the bytes that arrive in one direction, up to 256 MiB a
    /// connection. They are forwarded afterwards, even if their sender has closed the connection
    /// meanwhile.
    pub fn hold(&self, direction: Direction, on: bool) {
        self.change(|state| state.directions[direction.index()].hold = on);
    }

    /// As long as `on` is set, closes new connections at once. Open connections stay.
    pub fn refuse(&self, on: bool) {
        self.change(|state| state.refuse = on);
    }

    /// Forwards bytes this long after they arrived, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|state| {
            state.stop = true;
            state.cut();
        });
        // This connection wakes the accepting thread, which may be waiting for one.
        let woken = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, self.port).into(), CONNECT);
        if let (Ok(_), Some(acceptor)) = (woken, self.acceptor.take()) {
            let _ = acceptor.join();
        }
    }
}

/// Accepts connections until the proxy is dropped, then waits for the end of their threads.
fn accept(listener: &TcpListener, target: &AtomicU16, shared: &Arc<SharedState>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for id in 0.. {
        let accepted = listener.accept();
        let (stop, refuse, cuts) = {
            let state = shared.state();
            (state.stop, state.refuse, state.cuts)
        };
        if stop {
            break;
        }
        threads.retain(|thread| !thread.is_finished());
        let made = accepted.and_then(|(client, _)| match refuse {
            true => Err(io::Error::other("refused")),
            false => connect(id, client, target.load(Relaxed), cuts, shared),
        });
        match made {
            Ok(forward) => threads.extend(forward),
            Err(_) => shared.state().refused += 1,
        }
        shared.changed.notify_all();
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Connects a client to the server. `cuts` is the number of cuts when the client was accepted: if
/// another cut comes while the connection is made, the connection is closed, too.
fn connect(
    id: u64,
    client: TcpStream,
    target: u16,
    cuts: u64,
    shared: &Arc<SharedState>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let server = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, target).into(), CONNECT)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client, server) = (Arc::new(client), Arc::new(server));
    {
        let mut state = shared.state();
        state.connections += 1;
        if state.cuts != cuts {
            return Ok(Vec::new());
        }
        state.open.insert(id, Connection::new(client.clone(), server.clone()));
    }
    let threads = forward(id, &client, &server, shared);
    if threads.is_err() {
        shared.state().close(id);
    }
    threads
}
