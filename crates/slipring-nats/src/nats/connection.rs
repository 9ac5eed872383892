//! The connection to a server, which is replaced while the server is away.
//!
//! Invariants
//! - I1: the client library reconnects by itself, and may send afterwards what it had buffered
//!   before. Nothing here rests on the contrary: each message carries its condition.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{
    ConnectErrorKind, ConnectOptions, Event, ReconnectToServer, ServerAddr, ServerError,
};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::server::{Login, Server};
use crate::errors::Error;

/// Time that one request may take.
pub const REQUEST: Duration = Duration::from_secs(2);
/// Time between two pings while the server sends nothing. The client library gives a connection up
/// after three pings without an answer, and tries the next server.
const PING: Duration = Duration::from_secs(2);
/// Time that a connection attempt may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Time that a stream may be without a leader before a sink or source begins. The servers elect one
/// in 4 to 9 s.
const ELECTION: Duration = Duration::from_secs(15);
/// Time without success after which a client leaves a server that is there. It may have lost the
/// others of its cluster, and then it has no stream.
const LEAVE: Duration = Duration::from_secs(4);

/// Begin of the text of a fault or an error that says that the stream has no leader.
pub const LEADERLESS: &str = "the stream has no leader at present";

/// How long a call waits for a server that is not there yet.
pub struct Patience {
    /// `None`: for ever.
    until: Option<Instant>,
    pause: Duration,
}

impl Patience {
    pub fn new(time: Duration) -> Patience {
        Patience { until: Instant::now().checked_add(time), pause: Duration::from_millis(10) }
    }

    /// Returns the time that is left.
    pub fn left(&self) -> Duration {
        self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits a little if a later attempt may do without `error`. Returns whether to try again.
    pub async fn lasts(&mut self, error: &Error) -> bool {
        let may_pass = match error {
            // A server that starts, or that reaches its cluster only now, has no JetStream yet.
            Error::Unreachable { .. } | Error::NoJetStream { .. } | Error::Away { .. } => true,
            Error::Server { why } => why.starts_with(LEADERLESS),
            _ => false,
        };
        let left = self.left();
        if !may_pass || left.is_zero() {
            return false;
        }
        tokio::time::sleep(self.pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(left)).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(1));
        true
    }
}

/// What the client library tells of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The connection is gone; the library tries to get another one.
    Disconnected,
    /// There is a connection again.
    Connected,
    /// The library has given up.
    Closed,
}

/// A connection to a server, which is replaced while it is away.
pub struct Connection {
    pub(super) client: async_nats::Client,
    /// What happened to the connection since it was made.
    pub notices: UnboundedReceiver<Notice>,
    /// Prefix of the subjects of JetStream's requests.
    pub(super) prefix: String,
    pub(super) address: String,
    /// The last thing that the server said the user may not do.
    denied: Arc<Mutex<Option<String>>>,
    /// The server that the client's next attempt goes to.
    next: Arc<Mutex<Option<ServerAddr>>>,
    /// When the client came, or last left a server.
    left: Instant,
}

/// Why a request has no answer that it could use.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No answer came, or the connection is gone. A later request may succeed.
    Away(String),
    /// JetStream refuses the request.
    Refused {
        /// Number of the error.
        code: u64,
        /// Whether it is the request's fault, so that the next one like it is refused as well.
        is_bad: bool,
        /// The error's text.
        why: String,
    },
}

impl Connection {
    /// Connects to `server`. Fails at once if no server answers. Requests tell whether there is
    /// JetStream: another server may have it, of the cluster or behind a leaf node.
    pub async fn open(server: &Server) -> Result<Connection, Error> {
        if let Some(wrong) = server.wrong {
            let what = format!("{wrong}: give one name and password (Server::at, Server::user)");
            return Err(Error::Option { what });
        }
        let (sender, notices) = unbounded_channel();
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
        // The client tries one address after the other.
        let time = CONNECT * (server.urls.len() as u32 + 1);
        let connected = tokio::time::timeout(time, options.connect(&server.urls)).await;
        let client = match connected {
            Ok(Ok(client)) => client,
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

    /// Returns a handle of the same connection, which makes requests and has no notices.
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

    /// Whether the server belongs to a cluster.
    pub fn is_in_cluster(&self) -> bool {
        self.client.server_info().cluster.is_some()
    }

    /// Returns how often the client had to connect again.
    pub fn reconnects(&self) -> u64 {
        connects(&self.client).saturating_sub(1)
    }

    /// Whether the client has no connection at present.
    pub(super) fn is_away(&self) -> bool {
        self.client.connection_state() != State::Connected
    }

    /// Whether it is time to [`leave`](Self::leave) the server, which was of no use since `since`.
    /// It is not for a while after this has returned true.
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

    /// Goes to another server of the cluster, if the client knows of one. A client by itself leaves
    /// only a server that is gone, and comes back to it rather than to one that was gone before.
    pub async fn leave(&self) {
        let client = &self.client;
        let going = async {
            let mut pool = client.server_pool().await.unwrap_or_default();
            if pool.len() < 2 {
                return;
            }
            fastrand::shuffle(&mut pool);
            let left = client.server_info().server_id;
            // Which of the addresses leads to the present server is not known.
            for server in pool {
                if self.is_away() || client.server_info().server_id != left {
                    return; // it looks for a server by itself, or has found another one
                }
                let before = connects(client);
                *lock(&self.next) = Some(server.addr);
                if client.force_reconnect().await.is_err() {
                    return; // it has given up
                }
                while connects(client) == before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await; // the client counts first
            }
        };
        let _ = tokio::time::timeout(REQUEST, going).await;
    }

    /// Returns what the server said that the user may not do, once. The server answers no request
    /// that it denies.
    pub fn denied(&self) -> Option<Error> {
        let why = lock(&self.denied).take()?;
        Some(Error::Denied { address: self.address.clone(), why })
    }

    /// Waits a little if a request failed because the stream has no leader, or none that this
    /// server knows. The replicas do not answer until they know that the leader is gone. Returns
    /// whether to ask again: for [`ELECTION`] from `since` on.
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

    /// Returns the greatest message that the server takes, in bytes, headers included.
    pub fn max_payload(&self) -> usize {
        self.client.max_payload()
    }

    /// Sends a request, and returns its answer.
    async fn ask(&self, subject: String, body: Bytes) -> Result<async_nats::Message, Fault> {
        // The client's own limit does not cover the time that it waits for room in its buffer.
        match tokio::time::timeout(REQUEST * 2, self.client.request(subject, body)).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) => Err(Fault::Away(error.to_string())),
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

/// Returns how often the client has connected. The client library counts it with relaxed additions,
/// and the number orders nothing.
fn connects(client: &async_nats::Client) -> u64 {
    client.statistics().connects.load(Relaxed)
}

/// Returns how long the library waits before its attempt `attempt`: at once, then twice as long
/// each time, up to 2 s, and randomly up to a half more, so that not all clients come at once.
fn reconnect_delay(attempt: usize) -> Duration {
    if attempt <= 1 {
        return Duration::ZERO;
    }
    let base = Duration::from_millis(20 << attempt.min(8)).min(Duration::from_secs(2));
    base.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// Refuses a file without the PEM block `what`, which the option `call` names.
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

/// Names the reason for which there is no connection.
fn refused(address: String, error: &async_nats::ConnectError) -> Error {
    // The library's errors have their reasons as sources.
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        let text = reason.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = reason.source();
    }
    // The server's greeting may be anything, if it is none.
    let why: String = why.chars().take(200).collect();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Error::Denied { address, why }
        }
        ConnectErrorKind::Tls => Error::Tls { address, why },
        // The library counts most failures of TLS among those of input and output.
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
