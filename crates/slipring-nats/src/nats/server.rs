//! The addresses of servers, and the login.

use std::path::PathBuf;

/// The servers of one cluster, with the login.
///
/// An address may have the login in front of its host, as for the `nats` program:
/// `nats://user:password@host` or `nats://token@host`. Characters with a meaning in URLs are
/// percent-encoded (`%40` for `@`). [`user`](Server::user) and the other logins replace the login
/// in an address. Errors and logs show no password.
///
/// ```
/// let server = slipring_nats::Server::at("nats://one:4222")
///     .or_at("nats://two:4222")
///     .user("orders", "secret")
///     .root_certificates("ca.pem");
/// assert_eq!(server.address(), "nats://one:4222, nats://two:4222");
///
/// // A server that asks for certificates and expects TLS at once, with the JetStream of a domain.
/// // The last login counts.
/// let leaf = slipring_nats::Server::at("tls://leaf:4222")
///     .client_certificate("orders.pem", "orders-key.pem")
///     .require_tls()
///     .tls_first()
///     .domain("hub")
///     .name("orders")
///     .token("secret")
///     .nkey("SU...")
///     .credentials("orders.creds");
/// assert_eq!(leaf.address(), "tls://leaf:4222");
/// ```
#[derive(Clone)]
pub struct Server {
    /// Addresses, without logins.
    pub(super) urls: Vec<String>,
    pub(super) login: Login,
    pub(super) root_certificates: Vec<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(super) require_tls: bool,
    pub(super) tls_first: bool,
    pub(super) domain: Option<String>,
    pub(super) name: Option<String>,
    /// Whether the login was set by a call, rather than found in an address.
    chosen: bool,
    /// Mistake in the logins of the addresses.
    pub(super) wrong: Option<&'static str>,
}

/// A login.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    None,
    User { user: String, password: String },
    Token(String),
    Nkey(String),
    Credentials(PathBuf),
}

impl Server {
    /// Names a server by its URL: `nats://host:port`, or `tls://host:port`. The host may have a
    /// login in front.
    ///
    /// Example: [`Server`].
    pub fn at(url: impl Into<String>) -> Server {
        let none = Server {
            urls: Vec::new(),
            login: Login::None,
            root_certificates: Vec::new(),
            client_certificate: None,
            require_tls: false,
            tls_first: false,
            domain: None,
            name: None,
            chosen: false,
            wrong: None,
        };
        none.or_at(url)
    }

    /// Adds another server of the same cluster. The client connects to any of the servers. It moves
    /// to another one if the current server is gone, or has been of no use for 4 s. All servers
    /// share one login: addresses with different logins are refused.
    ///
    /// Example: [`Server`].
    pub fn or_at(mut self, url: impl Into<String>) -> Server {
        let (url, login) = split(&url.into());
        match login {
            _ if self.chosen => {}
            Ok(Login::None) => {}
            Ok(login) if self.login == Login::None || self.login == login => self.login = login,
            Ok(_) => self.wrong = Some("two addresses have different logins"),
            Err(wrong) => self.wrong = Some(wrong),
        }
        self.urls.push(url);
        self
    }

    /// Logs in with a name and a password.
    ///
    /// Example: [`Server`].
    pub fn user(self, user: impl Into<String>, password: impl Into<String>) -> Server {
        self.log_in(Login::User { user: user.into(), password: password.into() })
    }

    /// Logs in with a token.
    ///
    /// Example: [`Server`].
    pub fn token(self, token: impl Into<String>) -> Server {
        self.log_in(Login::Token(token.into()))
    }

    /// Logs in with the seed of an nkey.
    ///
    /// Example: [`Server`].
    pub fn nkey(self, seed: impl Into<String>) -> Server {
        self.log_in(Login::Nkey(seed.into()))
    }

    /// Logs in with a credentials file (a user's JWT and seed). The file is read for each new
    /// connection that a sink or a source makes.
    ///
    /// Example: [`Server`].
    pub fn credentials(self, file: impl Into<PathBuf>) -> Server {
        self.log_in(Login::Credentials(file.into()))
    }

    /// Trusts the certificate authorities of a PEM file, in addition to those of the system.
    ///
    /// Example: [`Server`].
    pub fn root_certificates(mut self, file: impl Into<PathBuf>) -> Server {
        self.root_certificates.push(file.into());
        self
    }

    /// Presents a certificate to the server. Both files have the PEM format.
    ///
    /// Example: [`Server`].
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
    /// Example: [`Server`].
    pub fn require_tls(mut self) -> Server {
        self.require_tls = true;
        self
    }

    /// Begins TLS before the server's greeting, as a server with `handshake_first` expects.
    ///
    /// Example: [`Server`].
    pub fn tls_first(mut self) -> Server {
        self.tls_first = true;
        self
    }

    /// Uses the JetStream of a domain, for instance behind a leaf node.
    ///
    /// Example: [`Server`].
    pub fn domain(mut self, domain: impl Into<String>) -> Server {
        self.domain = Some(domain.into());
        self
    }

    /// Sets the name of this program in the server's list of connections.
    ///
    /// Example: [`Server`].
    pub fn name(mut self, name: impl Into<String>) -> Server {
        self.name = Some(name.into());
        self
    }

    /// Returns the addresses as errors show them, without passwords.
    ///
    /// Example: [`Server`].
    pub fn address(&self) -> String {
        self.urls.join(", ")
    }

    /// Replaces the login of the addresses.
    fn log_in(mut self, login: Login) -> Server {
        (self.login, self.chosen, self.wrong) = (login, true, None);
        self
    }
}

impl std::fmt::Debug for Server {
    /// Shows no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.address()).finish()
    }
}

/// Splits an address from its login.
fn split(url: &str) -> (String, Result<Login, &'static str>) {
    // A password may contain `://`.
    let scheme = url.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(0);
    let start = if scheme > 0 && url[scheme..].starts_with("://") { scheme + 3 } else { 0 };
    // A password that is not encoded may contain an `@`.
    let Some(at) = url[start..].rfind('@').map(|at| start + at) else {
        return (url.to_string(), Ok(Login::None));
    };
    let text = |part: &str| {
        decode(part).ok_or("the login in an address has a % that is no encoding of a character")
    };
    let login = match url[start..at].split_once(':') {
        _ if at == start => Ok(Login::None),
        Some((user, password)) => {
            text(user).and_then(|user| Ok(Login::User { user, password: text(password)? }))
        }
        None => text(&url[start..at]).map(Login::Token),
    };
    (format!("{}{}", &url[..start], &url[at + 1..]), login)
}

/// Decodes the percent-encoded characters of a URL.
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|two| two.bytes().all(|c| c.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_an_address_is_taken_out_and_decoded() {
        let user = |user: &str, password: &str| {
            Ok(Login::User { user: user.into(), password: password.into() })
        };
        for (url, address, login) in [
            ("nats://one:4222", "nats://one:4222", Ok(Login::None)),
            ("nats://a:b@one:4222", "nats://one:4222", user("a", "b")),
            ("a:b@one", "one", user("a", "b")),
            ("tls://a%40x:b%3A%2F%c3%a4@one", "tls://one", user("a@x", "b:/ä")),
            ("nats://a:b:c/d@e@one", "nats://one", user("a", "b:c/d@e")),
            ("nats://a:@one", "nats://one", user("a", "")),
            ("nats://t%25@one", "nats://one", Ok(Login::Token("t%".into()))),
            ("nats://@one", "nats://one", Ok(Login::None)),
            ("a:b://c@one:4222", "one:4222", user("a", "b://c")),
            ("nats://a:b://c@one", "nats://one", user("a", "b://c")),
            ("nats://a:b@://c@one", "nats://one", user("a", "b@://c")),
            ("t_1://c@one", "one", user("t_1", "//c")),
            ("://c@one", "one", user("", "//c")),
        ] {
            let (found, in_it) = split(url);
            assert_eq!(found, address, "{url}");
            assert!(in_it == login, "{url}");
        }
        for url in ["nats://a:%@one", "nats://a:%4@one", "nats://a:%+4@one", "nats://%ff:b@one"] {
            let (address, login) = split(url);
            assert!(address == "nats://one" && login.is_err(), "{url}");
        }
    }

    #[test]
    fn one_login_serves_all_addresses() {
        let one = Server::at("nats://a:b@one").or_at("nats://two").or_at("nats://a:b@three");
        assert!(one.wrong.is_none() && one.address() == "nats://one, nats://two, nats://three");
        assert!(Server::at("nats://a:b@one").or_at("nats://c:d@two").wrong.is_some());
        let chosen = Server::at("nats://a:%@one").token("t").or_at("nats://c:d@two");
        assert!(chosen.wrong.is_none() && chosen.login == Login::Token("t".into()));
    }
}
