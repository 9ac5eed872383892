//! The helpers of the tests of faults: seeds, numbers of faults, followers and waits.
#![allow(dead_code, reason = "each test file uses a part")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;
use slipring::{Producer, errors::WaitError, markers::Layout};
use slipring_nats::{Decoding, Error, Progress, RunningSink, RunningSource, Server as At, Source};
use slipring_nats_server::Client;

use crate::common::*;

/// Returns how many faults of a kind a test makes: the number in `SLIPRING_FAULTS`, if it is set,
/// or else `few`. If `SLIPRING_SOAK` is set instead, the number is at least 200.
pub fn faults(few: u64) -> u64 {
    let stated = std::env::var("SLIPRING_FAULTS").ok().and_then(|number| number.parse().ok());
    let soaks = std::env::var_os("SLIPRING_SOAK").is_some();
    stated.unwrap_or(if soaks { 200.max(few) } else { few })
}

/// Runs a test with random numbers. The seed is the one in `SLIPRING_SEED`, if that is set, or else
/// a new one for each run. If the test fails, the seed is printed.
pub fn seeded(test: impl FnOnce(&mut Rng)) {
    let stated = std::env::var("SLIPRING_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = stated.unwrap_or_else(|| fastrand::u64(..));
    let mut rng = Rng::with_seed(seed);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(&mut rng))) {
        eprintln!("SLIPRING_SEED={seed}");
        resume_unwind(panic);
    }
}

/// Polls until `reached`, for at most a minute and a half, because elections of leaders take time.
#[track_caller]
pub fn until(what: impl std::fmt::Display, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON * 3;
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

/// A source that follows the stream into a ring of threads, and a reader that checks the events
/// against the oracle: all positions from the first on, each once and in order.
pub struct Follower {
    source: RunningSource,
    reader: Option<JoinHandle<u64>>,
    next: Arc<AtomicU64>,
}

impl Follower {
    /// Begins at position `first`.
    pub fn start(at: At, first: u64) -> Follower {
        let open = Source::of(at, STREAM).open().unwrap();
        let (tx, mut rx) = ring(first, 256);
        let source = open.start(Decoding::plain("number", 1), tx).unwrap();
        let next = Arc::new(AtomicU64::new(first));
        let shown = next.clone();
        let reader = std::thread::spawn(move || {
            let mut next = first;
            let ended = rx.for_each(|value, at| {
                assert_eq!((*value, at.seq), (event(next), next));
                next += 1;
                shown.store(next, Release);
            });
            assert!(matches!(ended, Ok(_) | Err(WaitError::Halted)), "{ended:?}");
            next
        });
        Follower { source, reader: Some(reader), next }
    }

    pub fn progress(&self) -> Progress {
        self.source.progress()
    }

    /// Waits until the ring has all events before `end`.
    #[track_caller]
    pub fn wait_for(&self, end: u64) {
        let from = std::panic::Location::caller();
        until(format_args!("the ring has {end} ({from}): {self:?}"), || {
            assert!(!self.source.is_finished(), "the source ended");
            self.next.load(Acquire) >= end
        });
        assert_eq!(self.next.load(Acquire), end);
    }

    /// Waits until the ring has all events before `end`, and ends the source.
    #[track_caller]
    pub fn finish(mut self, end: u64) -> Progress {
        self.wait_for(end);
        self.source.stop();
        assert_eq!(self.reader.take().unwrap().join().unwrap(), end);
        self.source.join().unwrap()
    }

    /// Waits for the source's failure. Returns it with the position up to which the ring has
    /// events.
    #[track_caller]
    pub fn failure(mut self) -> (Error, u64) {
        until("the source's end", || self.source.is_finished());
        let end = self.reader.take().unwrap().join().unwrap();
        (self.source.join().unwrap_err(), end)
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.source.fmt(f)
    }
}

/// Waits until all events before `end` are acknowledged.
#[track_caller]
pub fn acknowledged(sink: &RunningSink, end: u64) {
    let from = std::panic::Location::caller();
    until(format_args!("acknowledgement of {end} ({from}): {sink:?}"), || {
        assert!(!sink.is_finished(), "the sink ended: {sink:?}");
        sink.counters().acknowledged >= end
    });
    assert_eq!(sink.counters().acknowledged, end);
}

/// Waits for a sink's failure.
#[track_caller]
pub fn failure(sink: RunningSink) -> Error {
    until(format_args!("the sink's end: {sink:?}"), || sink.is_finished());
    sink.join().unwrap_err()
}

/// Feeds a random number of events, up to `most`.
pub fn feed_some<L: Layout>(tx: &mut Producer<u64, L>, rng: &mut Rng, most: u64) {
    let end = tx.next_seq() + rng.u64(1..=most);
    feed(tx, end).unwrap();
}

/// Spins for a random time of up to `most` microseconds.
pub fn spin(rng: &mut Rng, most: u64) {
    std::thread::sleep(Duration::from_micros(rng.u64(..most)));
}

/// Checks that an error's text names these numbers.
#[track_caller]
pub fn assert_numbers(error: &Error, numbers: &[u64]) {
    let text = error.to_string();
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_digit()).collect();
    for number in numbers {
        assert!(words.contains(&number.to_string().as_str()), "{number} is not in: {text}");
    }
}

/// Feeds like [`feed_some`], but only as many events as the ring has room for. It never waits for
/// room, because acknowledgements may be held up.
pub fn feed_room<L: Layout>(tx: &mut Producer<u64, L>, rng: &mut Rng, most: u64) {
    match tx.remaining() as u64 {
        0 => {}
        room => feed_some(tx, rng, most.min(room)),
    }
}
