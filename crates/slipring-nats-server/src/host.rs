//! The host of servers and proxies. This module finds free ports, and repeats an attempt until it
//! succeeds.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};

/// The host that all servers and proxies listen on.
pub const HOST: &str = "127.0.0.1";

/// Time between two attempts of [`wait_for`].
const ATTEMPT: Duration = Duration::from_millis(20);

/// Returns a port of [`HOST`] that was free a moment ago, below the range of ephemeral ports.
///
/// The socket that looks for it never listens. A process that another thread forks meanwhile holds
/// that socket until it runs its program, and a socket that listens would keep the port taken for
/// as long.
pub fn free_port() -> io::Result<u16> {
    let mut last = None;
    for _ in 0..1000 {
        let port = fastrand::u16(11_000..32_000);
        match bind(port) {
            Ok(()) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free port")))
}

/// Listens on a free port. Another process may take a port that was free a moment ago, so this
/// takes the next one then.
pub(crate) fn listen() -> io::Result<TcpListener> {
    loop {
        match TcpListener::bind((HOST, free_port()?)) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
}

/// Binds a socket to `port`, and closes it.
fn bind(port: u16) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    // With this option a listener may follow at once. Windows would let it take another's port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
}

/// Calls `attempt` until it succeeds, for at most `limit`. Returns its last error as
/// [`io::ErrorKind::TimedOut`], with `what` in front.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                let text = format!("{what}: not within {limit:?}: {error}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(_) => thread::sleep(ATTEMPT),
        }
    }
}
