//! Contenders with one producer and one consumer, and the code that measures all of them in the
//! same way.

pub mod foreign;
pub mod gil;
pub mod one_shot;
pub mod ours;
pub mod queues;
pub mod rejected;
pub mod rings;

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use slipring_machine::pin;

use crate::work::{self, Check};

/// The parameters of a stream from a producer on core 0 to a consumer on core 1.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct StreamSpec {
    /// Capacity of the ring, in events.
    pub ring: usize,
    /// Number of timed events. A lap of the ring precedes them, so that no first access to memory
    /// is timed.
    pub events: u64,
    /// Number of events in a publication.
    pub batch: u64,
    /// Steps of work between two publications.
    pub steps: u32,
}

impl StreamSpec {
    /// Returns the number of events in the untimed lap before the timed events, rounded up to whole
    /// batches.
    fn warm_up(&self) -> u64 {
        (self.ring as u64).next_multiple_of(self.batch)
    }
    /// Returns the number of all events, including the untimed lap.
    pub fn all(&self) -> u64 {
        self.warm_up() + self.events
    }
}

/// Both sides of a stream. Each closure owns its state: two threads that write to the same cache
/// line of one stack would cost more than the measured queue.
pub struct Sides<S, C, R> {
    /// Publishes events, given their first number and their count.
    pub send: S,
    /// Runs after the last event.
    pub close: C,
    /// Receives and checks this number of events.
    pub receive: R,
}

/// Runs the producer's side of a stream. Returns the time at which the timed events began.
pub fn produce(spec: StreamSpec, mut send: impl FnMut(u64, u64)) -> Instant {
    let mut state = 1;
    let mut next = 1;
    let mut publish_to = |end: u64, steps: u32| {
        while next <= end {
            work::steps(steps, &mut state);
            let len = spec.batch.min(end - next + 1);
            send(next, len);
            next += len;
        }
    };
    publish_to(spec.warm_up(), 0);
    let begin = Instant::now();
    publish_to(spec.all(), spec.steps);
    black_box(state);
    begin
}

/// Runs a stream between two threads that have a core each. Returns the nanoseconds per timed
/// event. Panics if an event is lost, damaged or out of order.
#[inline(always)]
pub fn run_stream<S, C, R>(spec: StreamSpec, Sides { send, close, receive }: Sides<S, C, R>) -> f64
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
            receive(spec.all(), &mut check);
            let end = Instant::now();
            check.finish(spec.all());
            end
        });
        let producer = scope.spawn(move || {
            pin(0);
            while !ready.load(Ordering::Acquire) {
                spin_loop();
            }
            let begin = produce(spec, send);
            close();
            begin
        });
        let begin = producer.join().expect("the producer panicked");
        (begin, consumer.join().expect("the consumer panicked"))
    });
    end.duration_since(begin).as_nanos() as f64 / spec.events as f64
}

/// The number of round trips of a run, and the way they are timed.
#[derive(Clone, Copy)]
pub struct Rounds {
    /// Number of round trips.
    pub count: usize,
    /// Whether each round trip is timed by two readings of the clock. Otherwise the round trips
    /// follow each other without a reading of the clock, and are timed together.
    pub each: bool,
}

/// Runs round trips between two threads that have a core each. Returns the nanoseconds of each
/// round trip, or the mean of all.
///
/// `round` sends a number and returns the answer. `echo` runs on the other thread and answers all
/// rounds.
#[inline(always)]
pub fn ping_pong(
    rounds: Rounds,
    echo: impl FnOnce() + Send,
    mut round: impl FnMut(u64) -> u64 + Send,
) -> Vec<u64> {
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            echo();
        });
        let times = scope.spawn(move || {
            pin(0);
            let numbers = 1..=rounds.count as u64;
            if rounds.each {
                let time = |number| {
                    let begin = Instant::now();
                    let answer = round(number);
                    let took = begin.elapsed();
                    assert_eq!(answer, number, "a wrong answer");
                    took.as_nanos() as u64
                };
                return numbers.map(time).collect();
            }
            let begin = Instant::now();
            numbers.for_each(|number| assert_eq!(round(number), number, "a wrong answer"));
            vec![begin.elapsed().as_nanos() as u64 / rounds.count as u64]
        });
        times.join().expect("a round trip failed")
    })
}
