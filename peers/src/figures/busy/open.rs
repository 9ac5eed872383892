//! A busy consumer of events that arrive at random times (a Poisson process, an open loop). The
//! figures are the latencies from an event's scheduled time until its handler has finished. A
//! producer that is late does not shift the schedule, so the latencies include every wait.
//!
//! One event goes ahead of the schedule. The schedule begins once the consumer has handled that
//! event, so no latency includes the start of a thread.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Consumer, RINGS, Stream, contenders};
use crate::contenders::foreign::{Arrivals, Producers, Programs, Work};
use crate::figures::arrivals::{now, percentiles, schedule};
use crate::measure::{Figure, Size, Values};
use crate::work::{Check, steps, steps_for};

/// The handler's work on an event and the mean time between two events, both in nanoseconds.
const LOADS: [(u32, u32); 3] = [(80, 320), (400, 1000), (750, 1000)];

/// A stream of events that arrive at random times.
#[derive(Clone, Copy)]
struct Open {
    ring: usize,
    /// Scheduled times of the events, in nanoseconds since the schedule's start.
    due: &'static [u64],
    /// Steps of the handler's work on an event.
    steps: u32,
    /// Start of the schedule, in nanoseconds on the clock of [`now`]. The producer sets it before
    /// its first scheduled event.
    begin: &'static AtomicU64,
    /// Whether the consumer has handled the event that is published ahead of the schedule. The
    /// producer resets this flag.
    running: &'static AtomicBool,
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
        percentiles(self.latencies.clone())
    }
}

/// Returns the figures of one busy stage in an open loop.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let figure = |ring, (nanos, gap)| {
        let full = 20_000_000 / gap as usize;
        let events = size.pick(500, full / 4, full);
        let (due, steps) = (schedule(gap, events), steps_for(nanos));
        // All streams can share these variables, because no two streams run at once.
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
