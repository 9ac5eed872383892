//! Functions that check the texts of errors, and functions that wait for other threads.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses a part")]

use std::fmt::Display;
use std::time::{Duration, Instant};

use slipring::Producer;
use slipring_nats::{Error, RunningSink, RunningSource, State};
use slipring_nats_server::{Direction, Proxy, Server};

use crate::common::{SOON, STREAM, client, feed, frame, numbers, sink, start};

/// Checks that an error's text is one line that has all of `words`.
#[track_caller]
pub fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    println!("{text}");
    assert!(!text.contains(char::is_control) && text.len() < 500, "{text:?}");
    for word in words {
        assert!(text.contains(word), "{word:?} is missing: {text}");
    }
}

/// Checks an error's variant and its text.
macro_rules! refused {
    ($error:expr, $variant:pat, $($word:expr),+ $(,)?) => {{
        let error: slipring_nats::Error = $error;
        assert!(matches!(&error, $variant), "{error:?}");
        $crate::checks::says(&error, &[$($word.as_ref()),+]);
    }};
}
pub(crate) use refused;

/// Waits until `reached` is true. `what` is formatted only if the time runs out.
#[track_caller]
pub fn until(what: impl Display, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !reached() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the sink has this state.
#[track_caller]
pub fn until_state(sink: &RunningSink, state: State) {
    until(format_args!("{state:?}: {sink:?}"), || sink.counters().state == state);
}

/// Waits until the ring behind the source has all positions before `next`.
#[track_caller]
pub fn until_next(source: &RunningSource, next: u64) {
    let what = format_args!("the positions to {next}: {source:?}");
    until(what, || source.progress().next == next);
}

/// A sink that has stored a frame with the events of positions 10 to 19, but does not get the
/// acknowledgement.
pub struct Unanswered {
    door: Proxy,
    running: RunningSink,
    /// Keeps the ring open.
    _tx: Producer<u64>,
}

impl Unanswered {
    #[track_caller]
    pub fn start(server: &Server) -> Unanswered {
        let door = Proxy::to(server.port()).unwrap();
        let (mut tx, running) = start(sink(&door.url()).open(numbers()).unwrap(), 64);
        feed(&mut tx, 10).unwrap();
        until("the events", || running.counters().acknowledged == 10);
        door.swallow(Direction::ToClient, true);
        feed(&mut tx, 20).unwrap();
        let mut client = client(server);
        until("a frame", || {
            client.messages(STREAM).unwrap().iter().map(frame).any(|frame| frame.end() == 20)
        });
        Unanswered { door, running, _tx: tx }
    }

    /// Cuts the connection, which puts the sink in doubt, and returns the error with which the sink
    /// ends.
    #[track_caller]
    pub fn failure(self) -> Error {
        self.door.swallow(Direction::ToClient, false);
        self.door.cut_now();
        until("the end", || self.running.is_finished());
        self.running.join().unwrap_err()
    }
}
