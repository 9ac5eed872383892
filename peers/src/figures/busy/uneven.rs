//! The ring is full, and its consumer is busy. The consumer's handler is slow now and then, like a
//! handler that writes a buffer to a file. Between slow events, it is faster than its average, so a
//! strategy that has learned the average lets the ring run empty. The figures are the overhead
//! above the handler's own work.

use std::hint::black_box;

use super::full::{Busy, Full};
use super::{Consumer, Stream, contenders};
use crate::measure::{Figure, Size, Values};
use crate::work::{steps, steps_for};

/// The handler's work on most events, in nanoseconds.
const WORK: u32 = 100;
/// Interval between slow events, in events, and the additional work on each slow event, in
/// microseconds.
const SLOW: [(u64, u32); 3] = [(1_000, 500), (1_024, 1_000), (3_000, 2_000)];
/// Capacities of the rings, in events.
const RINGS: [usize; 2] = [256, 1024];

/// A stream whose producer does no work between events, and whose handler is slow now and then.
#[derive(Clone, Copy)]
struct Uneven {
    full: Full,
    /// Interval between slow events, in events, and the steps of additional work on each slow
    /// event.
    slow: (u64, u32),
}

impl Stream for Uneven {
    type Consumer = Flushing;
    fn ring(&self) -> usize {
        self.full.ring()
    }
    fn events(&self) -> u64 {
        self.full.events()
    }
    fn consumer(&self) -> Flushing {
        Flushing { busy: self.full.consumer(), slow: self.slow, left: self.slow.0 }
    }
    #[inline(always)]
    fn produce(&self, send: impl FnMut(u64)) {
        self.full.produce(send);
    }
}

/// The consumer's side, which spends more time on some events.
struct Flushing {
    busy: Busy,
    slow: (u64, u32),
    /// Number of events up to the next slow one.
    left: u64,
}

impl Consumer for Flushing {
    #[inline(always)]
    fn handle(&mut self, event: &u64) {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.slow.0;
            steps(self.slow.1, &mut self.busy.state);
        }
        self.busy.handle(event);
    }
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.busy.is_open()
    }
    fn finish(&self) -> Values {
        self.busy.finish()
    }
}

/// Returns the figures of one busy stage whose handler is slow now and then.
pub fn figures(size: Size) -> Vec<Figure> {
    let figure = |ring, (every, micros): (u64, u32)| {
        let timed = size.pick(3_100, 60_000, 200_000);
        let slow = (every, steps_for(micros * 1_000));
        let stream = Uneven { full: Full { ring, timed, steps: steps_for(WORK) }, slow };
        Figure {
            table: format!("uneven handler of {WORK} ns, full ring of {ring}, overhead"),
            column: format!("one in {every} takes {micros} µs"),
            baseline: Some(Box::new(move || alone(stream))),
            contenders: contenders(stream),
        }
    };
    RINGS.into_iter().flat_map(|ring| SLOW.map(|slow| figure(ring, slow))).collect()
}

/// Does the handler's work on one thread, without a hand-over.
fn alone(stream: Uneven) -> f64 {
    let mut flushing = stream.consumer();
    (1..=stream.events()).for_each(|number| flushing.handle(&black_box(number)));
    flushing.busy.nanos()
}
