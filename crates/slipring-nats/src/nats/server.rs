//! Where the server is, and how a user logs in.

use std::path::PathBuf;

/// The servers of one cluster, and how to log in there.
///
/// ```
/// let server = slipring_nats::Server::at("nats://one:4222")
///     .or_at("nats://two:4222")
///     .user("orders", "secret")
///     .root_certificates("ca.pem");
/// assert_eq!(server.address(), "nats://one:4222, nats://two:4222");
/// ```
#[derive(Clone)]
pub struct Server {
    pub(super) urls: Vec<String>,
    pub(super) login: Login,
    pub(super) root_certificates: Vec<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(super) require_tls: bool,
    pub(super) tls_first: bool,
    pub(super) domain: Option<String>,
    pub(super) name: Option<String>,
}

/// How a user logs in.
#[derive(Clone)]
pub(super) enum Login {
    None,
    User { user: String, password: String },
    Token(String),
    Nkey(String),
    Credentials(PathBuf),
}

impl Server {
    /// Names a server by its URL: `nats://host:port`, or `tls://host:port`.
    ///
    /// Example: [`Server`].
    pub fn at(url: impl Into<String>) -> Server {
        Server {
            urls: vec![url.into()],
            login: Login::None,
            root_certificates: Vec::new(),
            client_certificate: None,
            require_tls: false,
            tls_first: false,
            domain: None,
            name: None,
        }
    }

    /// Adds another server of the same cluster. The connection goes to any of them, and to the next
    /// one where that one is gone, or of no use for 4 s.
    ///
    /// Example: [`Server`].
    pub fn or_at(mut self, url: impl Into<String>) -> Server {
        self.urls.push(url.into());
        self
    }

    /// Logs in by a name and a password.
    ///
    /// Example: [`Server`].
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Server {
        self.login = Login::User { user: user.into(), password: password.into() };
        self
    }

    /// Logs in by a token.
    ///
    /// Example: [`Server::user`] of [`Server`].
    pub fn token(mut self, token: impl Into<String>) -> Server {
        self.login = Login::Token(token.into());
        self
    }

    /// Logs in by the seed of an nkey.
    ///
    /// Example: [`Server::user`] of [`Server`].
    pub fn nkey(mut self, seed: impl Into<String>) -> Server {
        self.login = Login::Nkey(seed.into());
        self
    }

    /// Logs in by a credentials file (a user's JWT and seed), which is read at each new connection
    /// that the sink or source makes.
    ///
    /// Example: [`Server::user`] of [`Server`].
    pub fn credentials(mut self, file: impl Into<PathBuf>) -> Server {
        self.login = Login::Credentials(file.into());
        self
    }

    /// Trusts the certificate authorities in a PEM file, beside those of the system.
    ///
    /// Example: [`Server`].
    pub fn root_certificates(mut self, file: impl Into<PathBuf>) -> Server {
        self.root_certificates.push(file.into());
        self
    }

    /// Shows a certificate to the server. Both files are PEM.
    ///
    /// Example: [`Server::root_certificates`] of [`Server`].
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Server {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Refuses a connection without TLS.
    ///
    /// Example: [`Server::root_certificates`] of [`Server`].
    pub fn require_tls(mut self) -> Server {
        self.require_tls = true;
        self
    }

    /// Begins TLS before the server's greeting, as a server with `handshake_first` expects.
    ///
    /// Example: [`Server::root_certificates`] of [`Server`].
    pub fn tls_first(mut self) -> Server {
        self.tls_first = true;
        self
    }

    /// Uses the JetStream of a domain, behind a leaf node for instance.
    ///
    /// Example: [`Server::user`] of [`Server`].
    pub fn domain(mut self, domain: impl Into<String>) -> Server {
        self.domain = Some(domain.into());
        self
    }

    /// Names this program in the server's list of connections.
    ///
    /// Example: [`Server::user`] of [`Server`].
    pub fn name(mut self, name: impl Into<String>) -> Server {
        self.name = Some(name.into());
        self
    }

    /// Returns the addresses, as errors show them: without a password.
    ///
    /// Example: [`Server`].
    pub fn address(&self) -> String {
        let shown = |url: &String| match (url.find("://"), url.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => {
                format!("{}{}", &url[..scheme + 3], &url[at + 1..])
            }
            (None, Some(at)) => url[at + 1..].to_string(),
            _ => url.clone(),
        };
        self.urls.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Debug for Server {
    /// Shows no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.address()).finish()
    }
}
