//! The watchdog, and the check by which a test skips itself if there is no server program.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../../../slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::{fmt::Display, io::Write as _, time::Duration};

use slipring_nats_server::{Options, Server, binary};

pub use watchdog::watched;

/// Time limit of a wait for something that usually happens at once.
pub const SOON: Duration = Duration::from_secs(30);

/// Says on stderr, which the harness does not hold back, that a test could not run.
pub fn skip(why: impl Display) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why}");
}

/// Returns whether there is a server program. Without one the test does not run and says so.
pub fn has_server() -> bool {
    binary::find().inspect_err(|error| skip(error)).is_ok()
}

/// Starts a server with the default settings; `None` where there is no program.
pub fn server() -> Option<Server> {
    has_server().then(|| Server::start(Options::new()).unwrap())
}
