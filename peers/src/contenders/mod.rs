//! One producer and one consumer: the frame that every contender's hand-over is measured in, and
//! who contends.

pub mod ours;
pub mod queues;
pub mod rejected;
pub mod rings;

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::pin;
use crate::work::{self, Check};

/// A stream from a producer on core 0 to a consumer on core 1.
#[derive(Clone, Copy)]
pub struct Pair {
    /// Slots of the ring.
    pub ring: usize,
    /// Events that are timed; a lap of the ring goes ahead of them, so that no one's fresh memory
    /// is timed.
    pub events: u64,
    /// How many the producer publishes at a time.
    pub batch: u64,
    /// Steps of work between two publications.
    pub steps: u32,
}

impl Pair {
    /// The lap ahead: whole batches.
    fn warm_up(&self) -> u64 {
        (self.ring as u64).next_multiple_of(self.batch)
    }
    /// All events that are sent.
    pub fn all(&self) -> u64 {
        self.warm_up() + self.events
    }
}

/// Both sides of a hand-over. Each closure owns what it changes: handles that lay side by side on
/// one stack, written by two cores, would cost more than the queue that is measured.
pub struct Both<S, C, R> {
    /// Publishes so many events, numbered from the first number on.
    pub send: S,
    /// After the last one.
    pub close: C,
    /// Sees so many events, and comes back.
    pub receive: R,
}

/// The producer's side of a stream; comes back with the time at which the timed events began.
pub fn produce(pair: Pair, mut send: impl FnMut(u64, u64)) -> Instant {
    let mut state = 1;
    let mut next = 1;
    let mut publish_to = |end: u64, steps: u32| {
        while next <= end {
            work::steps(steps, &mut state);
            let len = pair.batch.min(end - next + 1);
            send(next, len);
            next += len;
        }
    };
    publish_to(pair.warm_up(), 0);
    let begin = Instant::now();
    publish_to(pair.all(), pair.steps);
    black_box(state);
    begin
}

/// Runs a stream between two threads, a core each; comes back with nanoseconds per event, from the
/// first event sent after the lap ahead to the last one seen. Panics if not every event came, in
/// order and undamaged.
#[inline(always)]
pub fn both<S, C, R>(pair: Pair, Both { send, close, receive }: Both<S, C, R>) -> f64
where
    S: FnMut(u64, u64) + Send,
    C: FnOnce() + Send,
    R: FnOnce(u64, &mut Check) + Send,
{
    let ready = AtomicBool::new(false);
    let (begin, end) = thread::scope(|scope| {
        let ready = &ready;
        let consumer = scope.spawn(move || {
            pin(1);
            let mut check = Check::default();
            ready.store(true, Ordering::Release);
            receive(pair.all(), &mut check);
            let end = Instant::now();
            check.finish(pair.all());
            end
        });
        let producer = scope.spawn(move || {
            pin(0);
            while !ready.load(Ordering::Acquire) {
                spin_loop();
            }
            let begin = produce(pair, send);
            close();
            begin
        });
        (producer.join().expect("the producer ends well"), consumer.join().expect("the consumer ends well"))
    });
    end.duration_since(begin).as_nanos() as f64 / pair.events as f64
}

/// So many round trips between two threads, a core each: `round` takes a number there and back, and
/// says how long it took and what came back; `echo` is the other side. Comes back with every
/// round's nanoseconds.
pub fn ping_pong(rounds: usize, echo: impl FnOnce() + Send, mut round: impl FnMut(u64) -> (Duration, u64) + Send) -> Vec<u64> {
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            echo();
        });
        let times = scope.spawn(move || {
            pin(0);
            let time = |number| {
                let (took, answer) = round(number);
                assert_eq!(answer, number, "a wrong answer");
                took.as_nanos() as u64
            };
            (1..=rounds as u64).map(time).collect()
        });
        times.join().expect("all rounds are played")
    })
}
