//! A watchdog for each test: a test that hangs ends its process, and its name is printed. The tests
//! of all crates of the workspace share this file.

use std::io::Write;
use std::panic::Location;
use std::process;
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A test takes longer than this only if it hangs. `SLIPRING_TEST_LIMIT` states another limit, in
/// seconds.
fn limit() -> Duration {
    let stated = std::env::var("SLIPRING_TEST_LIMIT").ok().and_then(|seconds| seconds.parse().ok());
    let soaks = std::env::var_os("SLIPRING_SOAK").is_some();
    let usual = if cfg!(miri) || soaks { 2 * 60 * 60 } else { 5 * 60 };
    Duration::from_secs(stated.unwrap_or(usual))
}

/// What a test and its watchdog share.
struct Shared {
    /// The test does not begin before its watchdog waits: a test that counts allocations must not
    /// count the watchdog's.
    started: Barrier,
    over: Mutex<bool>,
    changed: Condvar,
}

/// Ends the watch over a test when it is dropped.
pub struct Watched {
    shared: Arc<Shared>,
    watchdog: Option<JoinHandle<()>>,
}

/// Watches the test that calls this, until the result is dropped: the first line of a test is `let
/// _watched = crate::common::watched();`.
#[track_caller]
#[must_use = "the watch ends when this is dropped"]
pub fn watched() -> Watched {
    let (name, at) = (thread::current().name().unwrap_or("a test").to_owned(), Location::caller());
    let shared = Arc::new(Shared {
        started: Barrier::new(2),
        over: Mutex::new(false),
        changed: Condvar::new(),
    });
    let watchdog = thread::Builder::new().spawn({
        let shared = shared.clone();
        move || {
            let limit = limit();
            let over = shared.over.lock().unwrap_or_else(PoisonError::into_inner);
            shared.started.wait();
            let waited = shared.changed.wait_timeout_while(over, limit, |over| !*over);
            if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                // Past the harness, which would keep this for the end of the test.
                let _ = writeln!(
                    std::io::stderr(),
                    "\ntest {name} ({at}) hangs: it did not end within {limit:?}"
                );
                process::exit(101);
            }
        }
    });
    // A test of a system that refuses threads is not watched; the test that has started it is.
    let watchdog = watchdog.ok();
    if watchdog.is_some() {
        shared.started.wait();
    }
    Watched { shared, watchdog }
}

impl Drop for Watched {
    fn drop(&mut self) {
        *self.shared.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_one();
        let _ = self.watchdog.take().map(JoinHandle::join);
    }
}
