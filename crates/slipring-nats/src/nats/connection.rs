//! The connection to a server.
//!
//! Invariants
//! - I1: the client library reconnects by itself, and may then send messages that it has buffered.
//!   A late message does no harm, because it carries its condition.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{
    ConnectErrorKind, ConnectOptions, Event, ReconnectToServer, ServerAddr, ServerError,
};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::client::Client;
use super::server::{Login, Server};
use crate::errors::Error;

/// Time limit of a request.
pub const REQUEST: Duration = Duration::from_secs(2);
/// Interval of pings while the server sends nothing. If two pings are unanswered when a third is
/// due (after 6 s), the client library gives up the connection. It then connects again, to this
/// server or another one.
const PING: Duration = Duration::from_secs(2);
/// Time limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for a stream's leader while a sink or source is being opened. The servers elect one
/// in 4 to 9 s.
const ELECTION: Duration = Duration::from_secs(15);
/// Time without success after which a client leaves a server that it is connected to. Such a server
/// may be cut off from its cluster, and then it cannot serve the stream.
const LEAVE: Duration = Duration::from_secs(4);

/// Longest pause between two attempts to reach the engine.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// First words of faults and errors about a stream without a leader.
pub const LEADERLESS: &str = "the stream has no leader at present";

/// How long a call waits for a server that does not answer yet.
pub struct Patience {
    /// End of the wait; `None` if it never ends.
    until: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub fn new(time: Duration) -> Patience {
        Patience { until: Instant::now().checked_add(time), pause: Duration::from_millis(10) }
    }

    /// Returns the remaining time.
    pub fn left(&self) -> Duration {
        self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))
    }

    /// If a later attempt may succeed after `error`, waits a little and returns `true`: the caller
    /// should try again. Otherwise returns `false`.
    pub async fn lasts(&mut self, error: &Error) -> bool {
        let may_pass = match error {
            // A server that is starting, or has just joined its cluster, has no JetStream yet.
            Error::Unreachable { .. } | Error::NoJetStream { .. } | Error::Away { .. } => true,
            Error::Server { why } => why.starts_with(LEADERLESS),
            _ => false,
        };
        let left = self.left();
        if !may_pass || left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(left)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// A notice of the client library about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The connection is lost, and the library is trying to replace it.
    Disconnected,
    /// The client is connected again.
    Connected,
    /// The library has given up.
    Closed,
}

/// A connection to a server, which the client library replaces after a loss.
pub struct Connection {
    pub(super) client: Client,
    /// Notices since the connection was made.
    pub notices: UnboundedReceiver<Notice>,
    /// Prefix of the subjects of JetStream's requests.
    pub(super) prefix: String,
    pub(super) address: String,
    /// Last permission that the server has denied the user.
    denied: Arc<Mutex<Option<String>>>,
    /// Server for the client's next connection attempt.
    next: Arc<Mutex<Option<ServerAddr>>>,
    /// Time at which the client first connected, or last left a server.
    left: Instant,
}

/// The reason why a request has no usable answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No answer came, or the connection is lost. A later request may succeed.
    Away(String),
    /// JetStream refuses the request.
    Refused {
        /// Error code.
        code: u64,
        /// Whether the request itself is at fault, so that the same request would be refused again.
        is_bad: bool,
        /// Text of the error.
        why: String,
    },
}

impl Connection {
    /// Connects to `server`. Fails at once if no server answers. Only requests can tell whether
    /// JetStream is available, because another server of the cluster or behind a leaf node may
    /// provide it.
    pub async fn open(server: &Server) -> Result<Connection, Error> {
        if let Some(wrong) = server.wrong {
            let what = format!("{wrong}: give one name and password (Server::at, Server::user)");
            return Err(Error::Option { what });
        }
        let (sender, notices) = unbounded_channel();
        #[cfg(test)]
        if let Some(network) = super::client::NETWORK.with_borrow(Clone::clone) {
            let connected = network.connect(&server.address(), sender);
            return Connection::simulated(connected, notices).await;
        }
        let denied = Arc::new(Mutex::new(None));
        let next = Arc::new(Mutex::new(None));
        let (note, chosen) = (denied.clone(), next.clone());
        let mut options = ConnectOptions::new()
            .name(server.name.clone().unwrap_or_else(|| "slipring".into()))
            .connection_timeout(CONNECT)
            .request_timeout(Some(REQUEST))
            .ping_interval(PING)
            .event_callback(move |event| {
                let notice = match event {
                    Event::Disconnected => Some(Notice::Disconnected),
                    Event::Connected => Some(Notice::Connected),
                    Event::Closed => Some(Notice::Closed),
                    Event::ServerError(ServerError::Other(why)) => {
                        if why.to_ascii_lowercase().starts_with("permissions violation") {
                            *lock(&note) = Some(why);
                        }
                        None
                    }
                    _ => None,
                };
                if let Some(notice) = notice {
                    let _ = sender.send(notice);
                }
                std::future::ready(())
            })
            .reconnect_delay_callback(reconnect_delay)
            .reconnect_to_server_callback(move |_, _| {
                let addr = lock(&chosen).take();
                let delay = Some(Duration::ZERO);
                std::future::ready(addr.map(|addr| ReconnectToServer { addr, delay }))
            })
            .require_tls(server.require_tls);
        if server.tls_first {
            options = options.tls_first();
        }
        for file in &server.root_certificates {
            check_pem(file, "CERTIFICATE", "Server::root_certificates")?;
            options = options.add_root_certificates(file.clone());
        }
        if let Some((certificate, key)) = &server.client_certificate {
            check_pem(certificate, "CERTIFICATE", "Server::client_certificate")?;
            check_pem(key, "PRIVATE KEY", "Server::client_certificate")?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        options = match &server.login {
            Login::None => options,
            Login::User { user, password } => {
                options.user_and_password(user.clone(), password.clone())
            }
            Login::Token(token) => options.token(token.clone()),
            Login::Nkey(seed) => options.nkey(seed.clone()),
            Login::Credentials(file) => {
                options.credentials_file(file).await.map_err(|error| Error::Option {
                    what: format!(
                        "the credentials in {} cannot be read ({error}): name a file with a user's \
                         JWT and seed (Server::credentials)",
                        file.display()
                    ),
                })?
            }
        };
        let address = server.address();
        // The client tries the addresses in turn.
        let time = CONNECT * (server.urls.len() as u32 + 1);
        let connected = tokio::time::timeout(time, options.connect(&server.urls)).await;
        let client = match connected {
            Ok(Ok(client)) => Client::Library(client),
            Ok(Err(error)) => return Err(refused(address, &error)),
            Err(_) => {
                return Err(Error::Unreachable { address, why: "no answer in time".into() });
            }
        };
        let prefix = match &server.domain {
            Some(domain) => format!("$JS.{domain}.API"),
            None => "$JS.API".into(),
        };
        let left = Instant::now();
        Ok(Connection { client, notices, prefix, address, denied, next, left })
    }

    /// Returns a connection to a simulated server, or fails after the given time.
    #[cfg(test)]
    async fn simulated(
        connected: Result<Arc<dyn super::client::Simulated>, Duration>,
        notices: UnboundedReceiver<Notice>,
    ) -> Result<Connection, Error> {
        let address = String::from("the simulation");
        let client = match connected {
            Ok(client) => Client::Simulated(client),
            Err(time) => {
                tokio::time::sleep(time).await;
                return Err(Error::Unreachable { address, why: "no answer".into() });
            }
        };
        let (denied, next, left) = (Arc::default(), Arc::default(), Instant::now());
        let prefix = "$JS.API".into();
        Ok(Connection { client, notices, prefix, address, denied, next, left })
    }

    /// Returns a handle for requests on the same connection, without notices.
    pub fn requests(&self) -> Connection {
        Connection {
            client: self.client.clone(),
            notices: unbounded_channel().1,
            prefix: self.prefix.clone(),
            address: self.address.clone(),
            denied: self.denied.clone(),
            next: self.next.clone(),
            left: self.left,
        }
    }

    /// Returns whether the server belongs to a cluster.
    pub fn is_in_cluster(&self) -> bool {
        self.client.is_in_cluster()
    }

    /// Returns how often the client has reconnected.
    pub fn reconnects(&self) -> u64 {
        self.client.connects().saturating_sub(1)
    }

    /// Returns whether the client has no connection at present.
    pub(super) fn is_away(&self) -> bool {
        !self.client.is_connected()
    }

    /// Returns whether it is time to [`leave`](Self::leave) the server. The caller says that the
    /// server has been of no use since `since`. After a call has returned `true`, further calls
    /// return `false` until [`LEAVE`] has passed again.
    pub fn is_to_leave(&mut self, since: Instant) -> bool {
        let is_long = since.max(self.left).elapsed() >= LEAVE;
        if is_long {
            self.left = Instant::now();
        }
        is_long
    }

    /// Leaves the server if [it is time](Self::is_to_leave).
    pub async fn leave_in_time(&mut self, since: Instant) {
        if self.is_to_leave(since) {
            self.leave().await;
        }
    }

    /// Moves to another server of the cluster, if the client library knows one: it reconnects to
    /// the known servers in random order, until it has reached another server or [`REQUEST`] has
    /// passed.
    ///
    /// Left to itself, the client library leaves a server only when it loses the connection. Even
    /// then it tries that server again, and only later the servers that it has failed to reach
    /// before.
    pub async fn leave(&self) {
        let client = &self.client;
        let going = async {
            let mut pool = client.pool().await;
            if pool.len() < 2 {
                return;
            }
            fastrand::shuffle(&mut pool);
            let left = client.server_id();
            // The client does not report to which of the addresses it is connected, so each is
            // tried.
            for addr in pool {
                if self.is_away() || client.server_id() != left {
                    return; // the client is searching by itself, or has found another server
                }
                let before = client.connects();
                *lock(&self.next) = Some(addr);
                if !client.reconnect().await {
                    return; // the client has given up
                }
                while client.connects() == before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await; // the client counts before it is ready
            }
        };
        let _ = tokio::time::timeout(REQUEST, going).await;
    }

    /// Returns the last denied permission as an error, and forgets it. The server does not answer a
    /// request that it denies.
    pub fn denied(&self) -> Option<Error> {
        let why = lock(&self.denied).take()?;
        Some(Error::Denied { address: self.address.clone(), why })
    }

    /// If `failed` shows that the stream has no leader, or none that this server knows, waits a
    /// little and returns `true`: the caller should ask again. Returns `false` once [`ELECTION`]
    /// has passed since `since`. The client may [leave](Self::leave_in_time) the server before the
    /// wait. Replicas do not answer until they know that the leader is gone.
    pub async fn waits_for_leader(&mut self, failed: Option<&Error>, since: Instant) -> bool {
        let is_leaderless = match failed {
            Some(Error::Server { why }) => why.starts_with(LEADERLESS),
            Some(Error::Unreachable { .. }) => self.is_in_cluster(),
            _ => false,
        };
        if !is_leaderless || since.elapsed() >= ELECTION {
            return false;
        }
        self.leave_in_time(since).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        true
    }

    /// Returns the server's size limit for messages, in bytes, headers included.
    pub fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    /// Sends a request, and returns its answer.
    async fn ask(&self, subject: String, body: Bytes) -> Result<async_nats::Message, Fault> {
        // The client's own time limit does not include its wait for room in its buffer.
        match tokio::time::timeout(REQUEST * 2, self.client.request(subject, body)).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(why)) => Err(Fault::Away(why)),
            Err(_) => Err(Fault::Away("no answer in time".into())),
        }
    }

    /// Sends a request below JetStream's prefix, and returns its answer.
    pub(super) async fn call(&self, subject: &str, body: Vec<u8>) -> Result<Bytes, Fault> {
        let subject = format!("{}.{subject}", self.prefix);
        Ok(self.ask(subject, body.into()).await?.payload)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the delay before the client library's connection attempt `attempt`. The first attempt is
/// immediate. Then the delay doubles with each attempt, up to 2 s. A random part of up to a half is
/// added, so that clients do not all reconnect at the same moment.
fn reconnect_delay(attempt: usize) -> Duration {
    if attempt <= 1 {
        return Duration::ZERO;
    }
    let base = Duration::from_millis(20 << attempt.min(8)).min(Duration::from_secs(2));
    base.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// Refuses a file without the PEM block `what`. `call` is the option that named the file.
fn check_pem(file: &Path, what: &str, call: &str) -> Result<(), Error> {
    let refused = |why: String| {
        let file = file.display();
        Err(Error::Option { what: format!("{file} {why}: name a PEM file ({call})") })
    };
    match std::fs::read(file) {
        Ok(bytes) if String::from_utf8_lossy(&bytes).contains(&format!("{what}-----")) => Ok(()),
        Ok(_) => refused(format!("has no {}", what.to_lowercase())),
        Err(error) => refused(format!("cannot be read ({error})")),
    }
}

/// Returns the error for a failed connection attempt.
fn refused(address: String, error: &async_nats::ConnectError) -> Error {
    // The causes of the library's errors are in their chains of sources.
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        let text = reason.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = reason.source();
    }
    // If the peer is not a NATS server, its greeting may be anything.
    let why: String = why.chars().take(200).collect();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Error::Denied { address, why }
        }
        ConnectErrorKind::Tls => Error::Tls { address, why },
        // The library reports most TLS failures as I/O errors.
        _ if ["certificate", "received fatal alert", "received corrupt message", "TLS"]
            .iter()
            .any(|word| why.contains(word)) =>
        {
            Error::Tls { address, why }
        }
        _ => Error::Unreachable { address, why },
    }
}

#[cfg(test)]
mod tests;
