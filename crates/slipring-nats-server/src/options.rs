//! Settings of a server, and the configuration file that they become.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use crate::host::HOST;

/// Settings of a server. The default has JetStream and no authentication.
///
/// ```
/// use slipring_nats_server::Options;
///
/// let options = Options::new().user("writer", "secret").max_payload(64 * 1024);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    jetstream: bool,
    sync_always: bool,
    max_file_store: Option<u64>,
    max_memory_store: Option<u64>,
    max_payload: Option<u64>,
    user: Option<(String, String)>,
    token: Option<String>,
    system_account: bool,
    tls: Option<Tls>,
    extra: String,
    pub(crate) name: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) keep_dir: bool,
    pub(crate) detached: bool,
    pub(crate) disk: Option<u64>,
    pub(crate) cluster: Option<Routes>,
}

/// Files and modes of a server's TLS.
#[derive(Clone, Debug)]
struct Tls {
    cert: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    verify: bool,
    first: bool,
}

/// Name and ports by which a server takes part in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    pub(crate) name: String,
    /// Port for the other servers of the cluster.
    pub(crate) port: u16,
    /// Ports that lead to the other servers.
    pub(crate) to: Vec<u16>,
    /// Whether the server advertises a port at which nothing listens, so that the other servers
    /// reach it only through the ports in their own `to`.
    pub(crate) hides: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jetstream: true,
            sync_always: false,
            max_file_store: None,
            max_memory_store: None,
            max_payload: None,
            user: None,
            token: None,
            system_account: false,
            tls: None,
            extra: String::new(),
            name: None,
            port: None,
            dir: None,
            keep_dir: false,
            detached: false,
            disk: None,
            cluster: None,
        }
    }
}

impl Options {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Turns JetStream on or off. The default is on.
    pub fn jetstream(mut self, on: bool) -> Self {
        self.jetstream = on;
        self
    }

    /// Makes the server write each message to the disk before it acknowledges the message.
    pub fn sync_always(mut self) -> Self {
        self.sync_always = true;
        self
    }

    /// Limits the disk space of all streams, in bytes.
    pub fn max_file_store(mut self, bytes: u64) -> Self {
        self.max_file_store = Some(bytes);
        self
    }

    /// Limits the total size of all streams that are stored in memory, in bytes.
    pub fn max_memory_store(mut self, bytes: u64) -> Self {
        self.max_memory_store = Some(bytes);
        self
    }

    /// Limits the length of a message's header and payload, in bytes.
    pub fn max_payload(mut self, bytes: u64) -> Self {
        self.max_payload = Some(bytes);
        self
    }

    /// Lets in only clients that present this user and password.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.to_owned(), password.to_owned()));
        self
    }

    /// Lets in only clients that present this token. Cannot be combined with [`user`](Self::user)
    /// and [`system_account`](Self::system_account).
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Adds a system account with the user `sys` and the password `sys`. All other clients belong
    /// to the account `APP`: they name the [`user`](Self::user) or, if none is set, have no
    /// credentials.
    pub fn system_account(mut self) -> Self {
        self.system_account = true;
        self
    }

    /// Requires TLS, with these PEM files of a certificate and its key.
    pub fn tls(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (cert, key) = (cert.into(), key.into());
        self.tls = Some(Tls { cert, key, ca: None, verify: false, first: false });
        self
    }

    /// Names the PEM file of the authority that signs clients' certificates; with `verify`, clients
    /// must have one. Call it after [`tls`](Self::tls); without TLS it has no effect.
    pub fn tls_clients(mut self, ca: impl Into<PathBuf>, verify: bool) -> Self {
        if let Some(tls) = &mut self.tls {
            tls.ca = Some(ca.into());
            tls.verify = verify;
        }
        self
    }

    /// Makes TLS begin before the server's first line. Call it after [`tls`](Self::tls); without
    /// TLS it has no effect.
    pub fn tls_first(mut self) -> Self {
        if let Some(tls) = &mut self.tls {
            tls.first = true;
        }
        self
    }

    /// Appends text to the configuration file.
    pub fn extra(mut self, text: &str) -> Self {
        self.extra.push_str(text);
        self.extra.push('\n');
        self
    }

    /// Sets the server's name. The default is random.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the port. The default is a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the folder of the store, the log and the configuration. The folder is not deleted when
    /// the server is dropped. The default is a new folder below the system's folder of temporary
    /// files, which is deleted.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self.keep_dir = true;
        self
    }

    /// Keeps the folder when the server is dropped.
    pub fn keep_dir(mut self) -> Self {
        self.keep_dir = true;
        self
    }

    /// Lets the server and its folder outlive the handle and the process that starts the server,
    /// however that process ends: not even an interrupt from the terminal reaches the server.
    pub fn detached(mut self) -> Self {
        (self.detached, self.keep_dir) = (true, true);
        self
    }

    /// Gives the store a disk of this many bytes. The disk is a file system in memory, which only
    /// this server sees and which is empty after each start. The call needs Linux, and namespaces
    /// for users ([`has_namespaces`](crate::has_namespaces)).
    pub fn disk(mut self, bytes: u64) -> Self {
        self.disk = Some(bytes);
        self
    }

    /// Returns whether clients get the server's first line without TLS.
    pub(crate) fn sends_plain_info(&self) -> bool {
        !self.tls.as_ref().is_some_and(|tls| tls.first)
    }

    /// Returns the scheme of the server's URL.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "tls" } else { "nats" }
    }

    /// Returns the text of the configuration for a server with these settings and a store below
    /// `dir`.
    pub(crate) fn config(&self, dir: &Path) -> io::Result<String> {
        let mut text = String::new();
        self.write(dir, &mut text).map_err(io::Error::other)?;
        if self.token.is_some() && (self.user.is_some() || self.system_account) {
            let error = "a server with a token has neither users nor a system account";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        Ok(text)
    }

    fn write(&self, dir: &Path, text: &mut String) -> std::fmt::Result {
        if self.jetstream {
            writeln!(text, "jetstream {{\n  store_dir: {}", path(&dir.join("store")))?;
            if self.sync_always {
                writeln!(text, "  sync_interval: always")?;
            }
            if let Some(bytes) = self.max_file_store {
                writeln!(text, "  max_file_store: {bytes}")?;
            }
            if let Some(bytes) = self.max_memory_store {
                writeln!(text, "  max_memory_store: {bytes}")?;
            }
            writeln!(text, "}}")?;
        }
        if let Some(bytes) = self.max_payload {
            writeln!(text, "max_payload: {bytes}")?;
            // The default of 64 MB is too small for a larger payload.
            writeln!(text, "max_pending: {}", (64 << 20).max(bytes))?;
        }
        self.write_users(text)?;
        if let Some(tls) = &self.tls {
            let (cert, key) = (path(&tls.cert), path(&tls.key));
            writeln!(text, "tls {{\n  cert_file: {cert}\n  key_file: {key}")?;
            if let Some(ca) = &tls.ca {
                writeln!(text, "  ca_file: {}\n  verify: {}", path(ca), tls.verify)?;
            }
            if tls.first {
                writeln!(text, "  handshake_first: true")?;
            }
            writeln!(text, "}}")?;
        }
        if let Some(Routes { name, port, to, hides }) = &self.cluster {
            writeln!(text, "cluster {{\n  name: {}\n  listen: \"{HOST}:{port}\"", quoted(name))?;
            if *hides {
                writeln!(text, "  advertise: \"{HOST}:1\"")?;
            }
            writeln!(text, "  routes: [")?;
            for port in to {
                writeln!(text, "    \"nats://{HOST}:{port}\"")?;
            }
            writeln!(text, "  ]\n}}")?;
        }
        text.push_str(&self.extra);
        Ok(())
    }

    /// Writes the users that may connect.
    fn write_users(&self, text: &mut String) -> std::fmt::Result {
        let user = |(name, password): &(String, String)| {
            format!("{{ user: {}, password: {} }}", quoted(name), quoted(password))
        };
        if self.system_account {
            let (sys, app) = (("sys".to_owned(), "sys".to_owned()), ("app".into(), "app".into()));
            let jetstream = if self.jetstream { "jetstream: enabled, " } else { "" };
            let account = user(self.user.as_ref().unwrap_or(&app));
            writeln!(text, "accounts {{\n  SYS {{ users: [{}] }}", user(&sys))?;
            writeln!(text, "  APP {{ {jetstream}users: [{account}] }}\n}}")?;
            writeln!(text, "system_account: SYS")?;
            if self.user.is_none() {
                writeln!(text, "no_auth_user: app")?;
            }
        } else if let Some((name, password)) = &self.user {
            let (name, password) = (quoted(name), quoted(password));
            writeln!(text, "authorization {{ user: {name}, password: {password} }}")?;
        } else if let Some(token) = &self.token {
            writeln!(text, "authorization {{ token: {} }}", quoted(token))?;
        }
        Ok(())
    }
}

fn path(path: &Path) -> String {
    quoted(path.as_os_str().as_encoded_bytes())
}

/// Quotes a string for the server's configuration. Of the escapes there, `\"`, `\\` and `\xNN`
/// suffice: the last one stands for any byte.
fn quoted(text: impl AsRef<[u8]>) -> String {
    let mut quoted = String::from("\"");
    for &byte in text.as_ref() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => _ = write!(quoted, "\\x{byte:02x}"),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_a_configuration() {
        let options = Options::new().sync_always().max_payload(1 << 27).extra("debug: true");
        let text = options.config(Path::new("/a \"b\"")).unwrap();
        assert_eq!(
            text,
            "jetstream {\n  store_dir: \"/a \\\"b\\\"/store\"\n  sync_interval: always\n}\n\
             max_payload: 134217728\nmax_pending: 134217728\ndebug: true\n"
        );
        let text = Options::new().jetstream(false).token("\u{8}é\n").config(Path::new("d"));
        assert_eq!(text.unwrap(), "authorization { token: \"\\x08\\xc3\\xa9\\x0a\" }\n");
        assert_eq!(Options::new().jetstream(false).config(Path::new("d")).unwrap(), "");
        let both = Options::new().token("t").user("a", "b").config(Path::new("d"));
        assert_eq!(both.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_scheme_follows_tls() {
        let options = Options::new().tls_first();
        assert!(options.sends_plain_info() && options.scheme() == "nats", "there is no TLS yet");
        let options = options.tls("c", "k").tls_first();
        assert!(!options.sends_plain_info() && options.scheme() == "tls");
    }
}
