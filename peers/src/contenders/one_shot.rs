//! Contenders that hand over one value once. Each hand-over makes a new pair of ends, and drops it
//! afterwards.
//!
//! The asking thread makes a pair. It sends a request to a second thread: the pair's sending end,
//! and a number. The second thread sends the number back through that end. For all contenders, the
//! request goes through a ring of `rtrb`. So a round trip consists of making the pair, passing the
//! request through that ring, one hand-over, and dropping the pair.
//!
//! Invariants
//! - I1: the word of a [`Word`] is a box. The sending end stores once and does not use it
//!   afterwards; the receiving end frees it after it has seen that store, and not before.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc;

use super::{Rounds, ping_pong};
use crate::work::per_event;

/// A pair of ends for one value.
pub trait OneShot {
    /// The sending end.
    type Tx: Send + 'static;
    /// The receiving end.
    type Rx: Send;
    /// Makes both ends.
    fn new() -> (Self::Tx, Self::Rx);
    /// Sends the value.
    fn send(tx: Self::Tx, value: u64);
    /// Receives the value, unless it is not there yet.
    fn try_receive(rx: &mut Self::Rx) -> Option<u64>;
    /// Waits for the value in the contender's own way. All contenders except [`Word`] sleep if the
    /// value does not come soon.
    fn receive(rx: Self::Rx) -> u64;
}

/// Receives the value, and spins while it is not there.
#[inline(always)]
fn spin<O: OneShot>(mut rx: O::Rx) -> u64 {
    loop {
        match O::try_receive(&mut rx) {
            Some(value) => return value,
            None => spin_loop(),
        }
    }
}

/// The ring of requests. A request is a sending end and the number to send through it.
type Requests<O> = rtrb::RingBuffer<(<O as OneShot>::Tx, u64)>;

fn ask<O: OneShot>(requests: &mut rtrb::Producer<(O::Tx, u64)>, mut request: (O::Tx, u64)) {
    while let Err(rtrb::PushError::Full(back)) = requests.push(request) {
        request = back;
        spin_loop();
    }
}

fn asked<O: OneShot>(requests: &mut rtrb::Consumer<(O::Tx, u64)>) -> (O::Tx, u64) {
    loop {
        match requests.pop() {
            Ok(request) => return request,
            Err(_) => spin_loop(),
        }
    }
}

/// Measures round trips. The asking thread spins with `SPINS`, otherwise it waits in the
/// contender's own way.
pub fn round_trip<O: OneShot, const SPINS: bool>(rounds: Rounds) -> Vec<u64> {
    let (mut asks, mut answers) = Requests::<O>::new(64);
    ping_pong(
        rounds,
        move || {
            for _ in 0..rounds.count {
                let (tx, number) = asked::<O>(&mut answers);
                O::send(tx, number);
            }
        },
        move |number| {
            let (tx, rx) = O::new();
            ask::<O>(&mut asks, (tx, number));
            if SPINS { spin::<O>(rx) } else { O::receive(rx) }
        },
    )
}

/// Number of pairs that are under way at once in a pipeline.
const PIPELINE: usize = 32;

/// Measures hand-overs, up to [`PIPELINE`] of which are under way at once. Returns the nanoseconds
/// per hand-over. They include the time to pass the request, and to create and drop the pair.
pub fn pipeline<O: OneShot>(count: usize) -> f64 {
    let (mut asks, mut answers) = Requests::<O>::new(PIPELINE);
    let rounds = Rounds { count: 1, each: false };
    let mut took = 0.0;
    ping_pong(
        rounds,
        move || {
            for _ in 0..count {
                let (tx, number) = asked::<O>(&mut answers);
                O::send(tx, number);
            }
        },
        |first| {
            let begin = std::time::Instant::now();
            let mut awaited = std::collections::VecDeque::with_capacity(PIPELINE);
            let mut next = first;
            for number in first..first + count as u64 {
                if awaited.len() == PIPELINE {
                    let rx = awaited.pop_front().expect("the pipeline is full");
                    assert_eq!(spin::<O>(rx), next, "a wrong answer");
                    next += 1;
                }
                let (tx, rx) = O::new();
                awaited.push_back(rx);
                ask::<O>(&mut asks, (tx, number));
            }
            for rx in awaited {
                assert_eq!(spin::<O>(rx), next, "a wrong answer");
                next += 1;
            }
            assert_eq!(next, first + count as u64, "answers are missing");
            took = per_event(begin, count as u64);
            first
        },
    );
    took
}

/// The library's promise.
pub struct Promise;

impl OneShot for Promise {
    type Tx = slipring::Promise<u64>;
    type Rx = slipring::Awaited<u64>;
    fn new() -> (Self::Tx, Self::Rx) {
        slipring::promise()
    }
    #[inline(always)]
    fn send(tx: Self::Tx, value: u64) {
        tx.fulfil(value).expect("the other end waits");
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<u64> {
        rx.try_take().expect("the promise is kept")
    }
    fn receive(mut rx: Self::Rx) -> u64 {
        rx.wait().expect("the promise is kept")
    }
}

/// A word in a box. The receiving end frees it. Neither end may be dropped, and the receiving end
/// waits only by polling.
pub struct Word;

/// Address of a word that is 0 until the value is there.
pub struct At(*const AtomicU64);

// SAFETY: the word is atomic, and is freed after the sending end's only store (I1).
unsafe impl Send for At {}

impl OneShot for Word {
    type Tx = At;
    type Rx = At;
    fn new() -> (At, At) {
        let at = Box::into_raw(Box::new(AtomicU64::new(0)));
        (At(at), At(at))
    }
    #[inline(always)]
    fn send(tx: At, value: u64) {
        // SAFETY: the receiving end frees the word only after this store (I1).
        unsafe { &*tx.0 }.store(value, Release);
    }
    #[inline(always)]
    fn try_receive(rx: &mut At) -> Option<u64> {
        // SAFETY: the word is freed only below, and the end is not used after that (I1).
        let value = unsafe { &*rx.0 }.load(Acquire);
        (value != 0).then(|| {
            // SAFETY: the word is a box that the sending end no longer uses (I1).
            drop(unsafe { Box::from_raw(rx.0.cast_mut()) });
            value
        })
    }
    fn receive(rx: At) -> u64 {
        spin::<Word>(rx)
    }
}

/// The `oneshot` crate.
pub struct OneshotCrate;

impl OneShot for OneshotCrate {
    type Tx = oneshot::Sender<u64>;
    type Rx = oneshot::Receiver<u64>;
    fn new() -> (Self::Tx, Self::Rx) {
        oneshot::channel()
    }
    #[inline(always)]
    fn send(tx: Self::Tx, value: u64) {
        tx.send(value).expect("the other end waits");
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<u64> {
        match rx.try_recv() {
            Ok(value) => Some(value),
            Err(oneshot::TryRecvError::Empty) => None,
            Err(error) => panic!("{error}"),
        }
    }
    fn receive(rx: Self::Rx) -> u64 {
        rx.recv().expect("the other end sends")
    }
}

/// `tokio::sync::oneshot`, without a runtime.
pub struct Tokio;

impl OneShot for Tokio {
    type Tx = tokio::sync::oneshot::Sender<u64>;
    type Rx = tokio::sync::oneshot::Receiver<u64>;
    fn new() -> (Self::Tx, Self::Rx) {
        tokio::sync::oneshot::channel()
    }
    #[inline(always)]
    fn send(tx: Self::Tx, value: u64) {
        tx.send(value).expect("the other end waits");
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<u64> {
        match rx.try_recv() {
            Ok(value) => Some(value),
            Err(tokio::sync::oneshot::error::TryRecvError::Empty) => None,
            Err(error) => panic!("{error}"),
        }
    }
    fn receive(rx: Self::Rx) -> u64 {
        rx.blocking_recv().expect("the other end sends")
    }
}

/// `crossfire::oneshot`.
pub struct Crossfire;

impl OneShot for Crossfire {
    type Tx = crossfire::oneshot::TxOneshot<u64>;
    type Rx = crossfire::oneshot::RxOneshot<u64>;
    fn new() -> (Self::Tx, Self::Rx) {
        crossfire::oneshot::oneshot()
    }
    #[inline(always)]
    fn send(tx: Self::Tx, value: u64) {
        tx.send(value);
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<u64> {
        match rx.try_recv() {
            Ok(value) => Some(value),
            Err(crossfire::TryRecvError::Empty) => None,
            Err(error) => panic!("{error}"),
        }
    }
    fn receive(rx: Self::Rx) -> u64 {
        rx.recv().expect("the other end sends")
    }
}

/// Implements [`OneShot`] for channels with room for one value.
macro_rules! channels {
    ($($(#[$about:meta])* $name:ident: $tx:ty, $rx:ty, $new:expr, $empty:path;)*) => {$(
        $(#[$about])*
        pub struct $name;

        impl OneShot for $name {
            type Tx = $tx;
            type Rx = $rx;
            fn new() -> (Self::Tx, Self::Rx) {
                $new
            }
            #[inline(always)]
            fn send(tx: Self::Tx, value: u64) {
                tx.send(value).expect("the other end waits");
            }
            #[inline(always)]
            fn try_receive(rx: &mut Self::Rx) -> Option<u64> {
                match rx.try_recv() {
                    Ok(value) => Some(value),
                    Err($empty) => None,
                    Err(error) => panic!("{error}"),
                }
            }
            fn receive(rx: Self::Rx) -> u64 {
                rx.recv().expect("the other end sends")
            }
        }
    )*};
}

channels! {
    /// `std::sync::mpsc::sync_channel(1)`.
    Std: mpsc::SyncSender<u64>, mpsc::Receiver<u64>, mpsc::sync_channel(1), mpsc::TryRecvError::Empty;
    /// `crossbeam_channel::bounded(1)`.
    Crossbeam: crossbeam_channel::Sender<u64>, crossbeam_channel::Receiver<u64>,
        crossbeam_channel::bounded(1), crossbeam_channel::TryRecvError::Empty;
    /// `flume::bounded(1)`.
    Flume: flume::Sender<u64>, flume::Receiver<u64>, flume::bounded(1), flume::TryRecvError::Empty;
}
