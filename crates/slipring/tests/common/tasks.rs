//! Runs futures on the thread that calls, by wakers that count.
#![allow(dead_code)] // each test program uses a part of this module

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Time after which a wake-up counts as lost, also on a busy machine.
const LOST: Duration = Duration::from_secs(if cfg!(miri) { 900 } else { 60 });

/// A waker that unparks the thread that made it, and counts its wake-ups.
pub struct Unpark(Thread, AtomicUsize);

impl Unpark {
    pub fn new() -> Arc<Unpark> {
        Arc::new(Unpark(thread::current(), AtomicUsize::new(0)))
    }

    pub fn wakes(&self) -> usize {
        self.1.load(SeqCst)
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, SeqCst);
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps until the future's waker is called. A lost wake-up
/// fails the test.
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_counting(future).0
}

/// Like [`block_on`], and returns the number of polls, too.
pub fn block_on_counting<F: Future>(future: F) -> (F::Output, usize) {
    let mut future = pin!(future);
    let unpark = Unpark::new();
    let waker = Waker::from(unpark.clone());
    let mut polls = 0;
    loop {
        let woken = unpark.wakes();
        polls += 1;
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (value, polls);
        }
        let end = Instant::now() + LOST;
        while unpark.wakes() == woken {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "a lost wake-up");
            thread::park_timeout(left);
        }
    }
}
