//! What the hostile tests share: a watchdog, and things that go wrong on purpose.
#![allow(dead_code, unused_imports)] // each test file uses its own part

mod child;
mod watchdog;

use std::any::Any;
use std::fmt;
use std::panic::{panic_any, resume_unwind};
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;

pub use child::{child, ends_well, plays};
pub use watchdog::watched;

/// Long enough for a loaded machine; whatever takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(if cfg!(miri) { 900 } else { 60 });

/// What every panic made on purpose says; such panics are not printed.
pub const PURPOSE: &str = "on purpose";

/// Runs a scenario on a thread of its own, and fails with its name if it does not end.
pub fn ends<T: Send + 'static>(what: &str, scenario: impl FnOnce() -> T + Send + 'static) -> T {
    quiet();
    let (tell, told) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(what.to_owned())
        .spawn(move || {
            // The receiver is gone if the watchdog has barked already.
            let _ = tell.send(scenario());
        })
        .unwrap();
    match told.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("did not end: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => {
                eprintln!("in: {what}");
                resume_unwind(panic)
            }
            Ok(()) => unreachable!("a scenario that ended sends"),
        },
    }
}

/// Keeps the panics that are made on purpose out of the output.
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

/// A panic's payload that panics when it is dropped, with another of its kind.
pub struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic_any(Bomb);
        }
    }
}

/// A value whose drop panics.
pub struct Fragile(pub bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.0 && !thread::panicking() {
            panic!("dropped {PURPOSE}");
        }
    }
}

/// The user's own error.
#[derive(Debug, PartialEq, Eq)]
pub struct Oops(pub u64);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oops {}", self.0)
    }
}

impl std::error::Error for Oops {}
