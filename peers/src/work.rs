//! What the parties of a measurement do besides handing over, and the events they hand over.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use crate::measure::per_event;

/// So many steps of a chain of multiplications that the compiler cannot shorten: about 2.5 ns each
/// at 2.5 GHz.
#[inline(always)]
pub fn steps(count: u32, state: &mut u64) {
    for _ in 0..count {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        black_box(&state);
    }
}

/// Steps of work that take about so long here; calibrated when first asked.
pub fn steps_for(nanos: u32) -> u32 {
    static PER_THOUSAND: OnceLock<u32> = OnceLock::new();
    let per_thousand = *PER_THOUSAND.get_or_init(|| {
        // The shortest of a few: an interrupt only ever makes one longer.
        let probes = (0..5).map(|_| {
            let (begin, mut state) = (Instant::now(), 1);
            steps(10_000, &mut state);
            black_box(state);
            begin.elapsed().as_nanos() as u32 / 10
        });
        probes.min().unwrap_or(0).max(1)
    });
    (nanos * 1000 + per_thousand / 2) / per_thousand
}

/// What the producer's work takes by itself, an event.
pub fn alone(nanos: u32, events: u64) -> Option<Box<dyn Fn() -> f64>> {
    let alone = move || {
        let (count, mut state) = (steps_for(nanos), 1);
        let begin = Instant::now();
        (0..events).for_each(|_| steps(count, &mut state));
        black_box(state);
        per_event(begin, events)
    };
    (nanos != 0).then(|| Box::new(alone) as Box<dyn Fn() -> f64>)
}

/// How the tables call an amount of work.
pub fn amount(nanos: u32) -> String {
    if nanos == 0 { "work 0".to_owned() } else { format!("work {nanos} ns") }
}

/// What is handed over: made from its number, and checked by it.
pub trait Event: Copy + Send + Sync + Default + 'static {
    /// The event with this number, every word of it written.
    fn make(number: u64) -> Self;
    /// The number it was made from, or a wrong one if any word of it is not what [`Event::make`]
    /// wrote.
    fn number(&self) -> u64;
}

impl Event for u64 {
    #[inline(always)]
    fn make(number: u64) -> Self {
        number
    }
    #[inline(always)]
    fn number(&self) -> u64 {
        *self
    }
}

/// An event of `WORDS` words of eight bytes.
#[derive(Clone, Copy)]
pub struct Words<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Default for Words<WORDS> {
    fn default() -> Self {
        Words([0; WORDS])
    }
}

impl<const WORDS: usize> Event for Words<WORDS> {
    #[inline(always)]
    fn make(number: u64) -> Self {
        Words([number; WORDS])
    }
    #[inline(always)]
    fn number(&self) -> u64 {
        // All words or-ed and and-ed are the number only if each is.
        let (any, all) = self.0.iter().fold((0, u64::MAX), |(any, all), word| (any | word, all & word));
        if any == all { any } else { u64::MAX }
    }
}

/// Checks a stream of events 1, 2, 3, ... as a consumer sees it: order and sum.
#[derive(Default)]
pub struct Check {
    seen: u64,
    sum: u64,
    wrong: u64,
}

impl Check {
    /// Sees the next event.
    #[inline(always)]
    pub fn see<E: Event>(&mut self, event: &E) {
        let number = event.number();
        self.seen += 1;
        self.sum = self.sum.wrapping_add(number);
        self.wrong += u64::from(number != self.seen);
    }
    /// How many events were seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }
    /// Panics unless exactly the events 1 to `events` were seen, in order: then the figure does not
    /// count.
    pub fn finish(&self, events: u64) {
        assert_eq!(self.seen, events, "events lost or doubled");
        assert_eq!(self.wrong, 0, "events out of order or damaged");
        assert_eq!(self.sum, events * (events + 1) / 2, "events damaged");
    }
}
