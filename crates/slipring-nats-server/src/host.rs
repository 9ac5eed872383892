//! The host of servers and proxies. This module finds free ports, and repeats an attempt until it
//! succeeds.

use std::{
    io,
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

/// The host that all servers and proxies listen on.
pub const HOST: &str = "127.0.0.1";

/// Time between two attempts of [`wait_for`].
const ATTEMPT: Duration = Duration::from_millis(20);

/// Returns a port of [`HOST`] that was free a moment ago, below the range of ephemeral ports.
pub fn free_port() -> io::Result<u16> {
    let mut last = None;
    for _ in 0..1000 {
        let port = fastrand::u16(11_000..32_000);
        match TcpListener::bind((HOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free port")))
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
