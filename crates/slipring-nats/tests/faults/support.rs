//! What the tests of faults share: seeds, numbers of faults, and rings that are fed again.
#![allow(dead_code, reason = "each test file uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;
use slipring_nats_server::Client;

use crate::common::*;

/// Returns how many faults of a kind a test makes: `few`, or `SLIPRING_FAULTS`, or 200 where
/// `SLIPRING_SOAK` asks for long runs.
pub fn faults(few: u64) -> u64 {
    let stated = std::env::var("SLIPRING_FAULTS").ok().and_then(|number| number.parse().ok());
    let soaks = std::env::var_os("SLIPRING_SOAK").is_some();
    stated.unwrap_or(if soaks { 200.max(few) } else { few })
}

/// Runs a test with random numbers, whose seed is that of `SLIPRING_SEED`, or another each time. A
/// failure prints the seed.
pub fn seeded(test: impl FnOnce(&mut Rng)) {
    let stated = std::env::var("SLIPRING_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = stated.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&mut rng))) {
        eprintln!("SLIPRING_SEED={seed}");
        resume_unwind(panic);
    }
}

/// Polls until `reached`, for at most [`SOON`].
#[track_caller]
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !reached() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Checks the whole stream, and that it ends at position `end`.
#[track_caller]
pub fn assert_stored(client: &mut Client, first: u64, end: u64) -> Vec<Frame> {
    let frames = scan(client);
    assert_eq!(frames.first().map(|frame| frame.after), Some(first));
    assert_eq!(frames.last().map(Frame::end), Some(end));
    frames
}
