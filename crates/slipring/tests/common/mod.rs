//! Shared by the integration tests: a watchdog, scenarios with a time limit or in a child process,
//! and values that fail on purpose.
#![allow(dead_code, unused_imports)] // each test program uses a part of this module

mod child;
mod tasks;
mod watchdog;

use std::any::Any;
use std::fmt;
use std::panic::{panic_any, resume_unwind};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

pub use child::{child, ends_well, plays};
pub use tasks::{Unpark, block_on, block_on_counting};
pub use watchdog::watched;

/// Time after which a scenario counts as hanging, also on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 900 } else { 60 });

/// Text in the message of every deliberate panic; [`quiet`] does not print such panics.
pub const PURPOSE: &str = "on purpose";

/// Runs a scenario on its own thread, and returns its result. If the scenario does not end within
/// [`LIMIT`], panics with `name`.
pub fn ends<T: Send + 'static>(name: &str, scenario: impl FnOnce() -> T + Send + 'static) -> T {
    quiet();
    let (sender, result) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // After a timeout the receiver is gone, and the result is dropped.
            let _ = sender.send(scenario());
        })
        .unwrap();
    match result.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("did not end: {name}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => {
                eprintln!("in: {name}");
                resume_unwind(panic)
            }
            Ok(()) => unreachable!("a scenario that ends sends its result"),
        },
    }
}

/// Keeps deliberate panics out of the output.
pub fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload: &dyn Any = info.payload();
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or(payload.downcast_ref::<String>().map(String::as_str));
            if !payload.is::<Bomb>() && !text.is_some_and(|text| text.contains(PURPOSE)) {
                usual(info);
            }
        }));
    });
}

/// A panic payload whose drop panics with another `Bomb`.
pub struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic_any(Bomb);
        }
    }
}

/// A value whose drop panics if the flag is set, unless the thread is panicking.
pub struct Fragile(pub bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.0 && !thread::panicking() {
            panic!("dropped {PURPOSE}");
        }
    }
}

/// A user's error type.
#[derive(Debug, PartialEq, Eq)]
pub struct Oops(pub u64);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oops {}", self.0)
    }
}

impl std::error::Error for Oops {}
