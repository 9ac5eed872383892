//! A busy consumer of events that arrive at random times (a Poisson process, an open loop). The
//! figures are the latencies from an event's scheduled time until its handler has finished. A
//! producer that comes late does not shift the schedule, so no wait is left out of the latencies.
//!
//! One event goes ahead of the schedule. The schedule begins once the consumer has handled that
//! event, so no latency includes the start of a thread.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use super::{Consumer, RINGS, Stream, contenders};
use crate::contenders::foreign::{Arrivals, Producers, Programs, Work};
use crate::measure::{Figure, Size, Values};
use crate::work::{Check, steps, steps_for};

/// The handler's work on an event and the mean time between two events, both in nanoseconds.
const LOADS: [(u32, u32); 3] = [(80, 320), (400, 1000), (750, 1000)];

/// A stream of events that arrive at random times.
#[derive(Clone, Copy)]
struct Open {
    ring: usize,
    /// Scheduled times of the events, in nanoseconds since the stream's begin.
    due: &'static [u64],
    /// Steps of the handler's work on an event.
    steps: u32,
    /// The begin of the schedule, as nanoseconds of [`now`]. The producer sets the begin before its
    /// first scheduled event.
    begin: &'static AtomicU64,
    /// Whether the consumer has handled the event ahead of the schedule. The producer resets it.
    running: &'static AtomicBool,
}

/// Returns the nanoseconds since the first call.
#[inline(always)]
fn now() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_nanos() as u64
}

impl Stream for Open {
    type Consumer = Timed;
    fn ring(&self) -> usize {
        self.ring
    }
    fn events(&self) -> u64 {
        1 + self.due.len() as u64
    }
    fn consumer(&self) -> Timed {
        let latencies = Vec::with_capacity(self.due.len());
        Timed { stream: *self, check: Check::default(), state: 1, latencies }
    }
    #[inline(always)]
    fn produce(&self, mut send: impl FnMut(u64)) {
        send(1);
        while !self.running.load(Ordering::Acquire) {
            spin_loop();
        }
        self.running.store(false, Ordering::Relaxed);
        let begin = now();
        self.begin.store(begin, Ordering::Relaxed); // the next event publishes it
        for (due, number) in self.due.iter().zip(2..) {
            while now() < begin + due {
                spin_loop();
            }
            send(number);
        }
    }
}

/// The consumer's side: checks each event, works on it, and notes its latency.
struct Timed {
    stream: Open,
    check: Check,
    state: u64,
    latencies: Vec<u64>,
}

impl Consumer for Timed {
    #[inline(always)]
    fn handle(&mut self, event: &u64) {
        let scheduled = self.check.seen() as usize;
        self.check.see(event);
        steps(self.stream.steps, &mut self.state);
        if scheduled == 0 {
            return self.stream.running.store(true, Ordering::Release);
        }
        let due = self.stream.begin.load(Ordering::Relaxed) + self.stream.due[scheduled - 1];
        self.latencies.push(now() - due);
    }
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.check.seen() < self.stream.events()
    }
    fn finish(&self) -> Values {
        black_box(self.state);
        self.check.finish(self.stream.events());
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize] as f64;
        vec![("p50", quantile(0.5)), ("p90", quantile(0.9)), ("p99", quantile(0.99))]
    }
}

/// Returns the figures of one busy stage in an open loop.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let figure = |ring, (nanos, gap)| {
        let full = 20_000_000 / gap as usize;
        let events = size.pick(500, full / 4, full);
        let (due, steps) = (schedule(gap, events), steps_for(nanos));
        // No two streams run at once.
        static BEGIN: AtomicU64 = AtomicU64::new(0);
        static RUNNING: AtomicBool = AtomicBool::new(false);
        let mut contenders =
            contenders(Open { ring, due, steps, begin: &BEGIN, running: &RUNNING });
        let arrivals = Arrivals { events, gap, until: due[events - 1] };
        let work = |_| Work::Open { ring, arrivals, steps };
        contenders.extend(programs.contenders(Producers::One, false, work));
        Figure {
            table: format!("busy consumer, events at random times, ring of {ring}"),
            column: format!("work {nanos} ns, one event in {gap} ns"),
            baseline: None,
            contenders,
        }
    };
    RINGS.into_iter().flat_map(|ring| LOADS.map(|load| figure(ring, load))).collect()
}

/// Returns the times of `events` events of a Poisson process with a mean gap of `gap` nanoseconds.
/// The times are the same in every call, and stay allocated.
fn schedule(gap: u32, events: usize) -> &'static [u64] {
    static KNOWN: Mutex<Vec<(u32, &'static [u64])>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().expect("no thread panics with the lock");
    if let Some((_, due)) = known.iter().find(|(other, due)| *other == gap && due.len() == events) {
        return due;
    }
    let (mut state, mut at) = (u64::from(gap), 0.0);
    let due = (0..events).map(|_| {
        // The high bits of a linear congruential sequence, as a number in (0, 1].
        steps(1, &mut state);
        let uniform = ((state >> 11) + 1) as f64 / (1u64 << 53) as f64;
        at -= f64::from(gap) * uniform.ln();
        at as u64
    });
    let due: &'static [u64] = Vec::leak(due.collect());
    known.push((gap, due));
    due
}
