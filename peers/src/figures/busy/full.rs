//! A busy consumer behind a full ring. The figures are the overhead above the handler's own work.

use std::hint::black_box;
use std::time::Instant;

use super::{Consumer, RINGS, Stream, contenders};
use crate::contenders::foreign::{Producers, Programs, Work};
use crate::measure::{Figure, Size, Values};
use crate::work::{Check, amount, steps, steps_for};

/// The handler's work on an event, in nanoseconds.
pub const WORK: [u32; 6] = [0, 10, 50, 170, 440, 700];

/// A stream whose producer only publishes, without other work between two events.
#[derive(Clone, Copy)]
pub(super) struct Full {
    pub(super) ring: usize,
    /// Number of timed events, behind a lap of the ring that is not timed.
    pub(super) timed: u64,
    /// Steps of the handler's work on an event.
    pub(super) steps: u32,
}

impl Stream for Full {
    type Consumer = Busy;
    fn ring(&self) -> usize {
        self.ring
    }
    fn events(&self) -> u64 {
        self.ring as u64 + self.timed
    }
    fn consumer(&self) -> Busy {
        Busy { stream: *self, check: Check::default(), state: 1, begin: None, end: None }
    }
    #[inline(always)]
    fn produce(&self, send: impl FnMut(u64)) {
        (1..=self.events()).for_each(send);
    }
}

/// The consumer's side: checks each event, works on it, and times the events after the first lap.
pub(super) struct Busy {
    stream: Full,
    check: Check,
    pub(super) state: u64,
    begin: Option<Instant>,
    end: Option<Instant>,
}

impl Consumer for Busy {
    #[inline(always)]
    fn handle(&mut self, event: &u64) {
        self.check.see(event);
        steps(self.stream.steps, &mut self.state);
        let seen = self.check.seen();
        if seen == self.stream.ring as u64 {
            self.begin = Some(Instant::now());
        } else if seen == self.stream.events() {
            self.end = Some(Instant::now());
        }
    }
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.check.seen() < self.stream.events()
    }
    fn finish(&self) -> Values {
        vec![("ns", self.nanos())]
    }
}

impl Busy {
    /// Returns the nanoseconds per timed event.
    pub(super) fn nanos(&self) -> f64 {
        black_box(self.state);
        self.check.finish(self.stream.events());
        let (Some(begin), Some(end)) = (self.begin, self.end) else { panic!("events were lost") };
        end.duration_since(begin).as_nanos() as f64 / self.stream.timed as f64
    }
}

/// Returns the figures of one busy stage.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let figure = |ring, nanos| {
        let full = 8_000_000 / u64::from(nanos + 10) + ring as u64;
        let stream = Full { ring, timed: size.pick(500, full / 3, full), steps: steps_for(nanos) };
        let Full { timed: events, steps, .. } = stream;
        let mut contenders = contenders(stream);
        let work = |_| Work::Busy { ring, events, steps };
        contenders.extend(programs.contenders(Producers::One, true, work));
        Figure {
            table: format!("busy consumer, full ring of {ring}, overhead"),
            column: amount(nanos),
            baseline: Some(Box::new(move || alone(stream))),
            contenders,
        }
    };
    RINGS.into_iter().flat_map(|ring| WORK.map(|nanos| figure(ring, nanos))).collect()
}

/// Does the handler's work on one thread, without a hand-over.
fn alone(stream: Full) -> f64 {
    let mut busy = stream.consumer();
    (1..=stream.events()).for_each(|number| busy.handle(&black_box(number)));
    busy.nanos()
}
