//! A watchdog for each test: a test that hangs prints its name and ends its process. The tests of
//! all crates of the workspace share this file.

use std::io::Write;
use std::panic::Location;
use std::process;
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Returns the time after which a test counts as hanging: five minutes, or `SLIPRING_TEST_LIMIT` in
/// seconds.
fn limit() -> Duration {
    let stated = std::env::var("SLIPRING_TEST_LIMIT").ok().and_then(|seconds| seconds.parse().ok());
    let soaks = std::env::var_os("SLIPRING_SOAK").is_some();
    let usual = if cfg!(miri) || soaks { 2 * 60 * 60 } else { 5 * 60 };
    Duration::from_secs(stated.unwrap_or(usual))
}

/// State shared by a test and its watchdog.
struct TestState {
    /// Holds the test back until the watchdog has started, so that a test that counts allocations
    /// does not count those of the watchdog.
    started: Barrier,
    /// Whether the test has ended.
    over: Mutex<bool>,
    changed: Condvar,
}

/// A running watchdog, which ends on drop.
pub struct Watched {
    state: Arc<TestState>,
    watchdog: Option<JoinHandle<()>>,
}

/// Starts a watchdog for the calling test. Dropping the result ends the watchdog. The first line of
/// each test is `let _watched = crate::common::watched();`.
#[track_caller]
#[must_use = "the watchdog ends when this is dropped"]
pub fn watched() -> Watched {
    let (name, at) = (thread::current().name().unwrap_or("a test").to_owned(), Location::caller());
    let state = Arc::new(TestState {
        started: Barrier::new(2),
        over: Mutex::new(false),
        changed: Condvar::new(),
    });
    let watchdog = thread::Builder::new().spawn({
        let state = state.clone();
        move || {
            let limit = limit();
            let over = state.over.lock().unwrap_or_else(PoisonError::into_inner);
            state.started.wait();
            let waited = state.changed.wait_timeout_while(over, limit, |over| !*over);
            if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                // The text goes directly to stderr, because the test harness holds back printed
                // text until the test ends.
                let _ = writeln!(
                    std::io::stderr(),
                    "\ntest {name} ({at}) hangs: it did not end within {limit:?}"
                );
                process::exit(101);
            }
        }
    });
    // A child process in which the system refuses threads has no watchdog; its parent has one.
    let watchdog = watchdog.ok();
    if watchdog.is_some() {
        state.started.wait();
    }
    Watched { state, watchdog }
}

impl Drop for Watched {
    fn drop(&mut self) {
        *self.state.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.changed.notify_one();
        let _ = self.watchdog.take().map(JoinHandle::join);
    }
}
