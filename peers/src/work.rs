//! Artificial work of producers and consumers, and the events that they hand over.
//!
//! Invariants
//! - I1: the representation of [`Words`] is an array of its words.

use std::hint::{black_box, spin_loop};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Instant;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Does `count` dependent multiplications. Between two multiplications, a shift and an exclusive-or
/// keep the compiler from merging them. One step takes about 2 ns at 2.5 GHz.
///
/// The state stays in a register. If each step stored and loaded it, the work would depend on how
/// fast the processor forwards stores. It would also wait behind the stores of a hand-over that
/// wait for their cache lines.
#[inline(always)]
pub fn steps(count: u32, state: &mut u64) {
    let mut value = *state;
    for _ in 0..count {
        value = (value ^ (value >> 32)).wrapping_mul(6_364_136_223_846_793_005);
    }
    *state = value;
}

/// Returns the number of [`steps`] that take about `nanos` on this machine. The first call
/// calibrates.
pub fn steps_for(nanos: u32) -> u32 {
    static PER_THOUSAND: OnceLock<u32> = OnceLock::new();
    let per_thousand = *PER_THOUSAND.get_or_init(|| {
        // Takes the shortest of a few probes, because an interrupt can only make a probe longer.
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

/// Returns the number of spin hints that take about 200 ns on this machine: the pause of a spaced
/// consumer after a poll that found events. The first call calibrates.
pub fn spacing() -> u32 {
    static PAUSES: OnceLock<u32> = OnceLock::new();
    *PAUSES.get_or_init(|| {
        let probes = (0..5).map(|_| {
            let begin = Instant::now();
            (0..1000).for_each(|_| spin_loop());
            begin.elapsed().as_nanos()
        });
        (200_000 / probes.min().unwrap_or(0).max(1)).clamp(1, 1000) as u32
    })
}

/// Returns the nanoseconds per event since `begin`.
pub fn per_event(begin: Instant, events: u64) -> f64 {
    begin.elapsed().as_nanos() as f64 / events as f64
}

/// Returns a function that measures the producer's work without a hand-over, in nanoseconds per
/// event. Returns `None` if the producer does not work.
pub fn baseline(nanos: u32, events: u64) -> Option<Box<dyn Fn() -> f64>> {
    let baseline = move || {
        let (count, mut state) = (steps_for(nanos), 1);
        let begin = Instant::now();
        (0..events).for_each(|_| steps(count, &mut state));
        black_box(state);
        per_event(begin, events)
    };
    (nanos != 0).then(|| Box::new(baseline) as Box<dyn Fn() -> f64>)
}

/// Returns the name by which tables show an amount of work.
pub fn amount(nanos: u32) -> String {
    if nanos == 0 { "work 0".to_owned() } else { format!("work {nanos} ns") }
}

/// An event that is made from its number and contains it for checks.
pub trait Event:
    Copy + Send + Sync + Default + FromBytes + IntoBytes + Immutable + KnownLayout + 'static
{
    /// Makes the event with this number, and writes every word of it.
    fn make(number: u64) -> Self;
    /// Builds the event in place, because a large event that was built elsewhere would have to be
    /// copied.
    #[inline(always)]
    fn fill(&mut self, number: u64) {
        *self = Self::make(number);
    }
    /// Makes the event in an uninitialised slot.
    #[inline(always)]
    fn init(slot: &mut MaybeUninit<Self>, number: u64) {
        slot.write(Self::make(number));
    }
    /// Returns the number of the event, or a wrong number if any word is damaged.
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
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
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
    fn fill(&mut self, number: u64) {
        self.0.fill(number);
    }
    #[inline(always)]
    fn init(slot: &mut MaybeUninit<Self>, number: u64) {
        let words = slot.as_mut_ptr().cast::<u64>();
        for word in 0..WORDS {
            // SAFETY: the slot is an array of `WORDS` words (I1).
            unsafe { words.add(word).write(number) }
        }
    }
    #[inline(always)]
    fn number(&self) -> u64 {
        // The OR and the AND of all words are equal only if all words are equal.
        let (any, all) =
            self.0.iter().fold((0, u64::MAX), |(any, all), word| (any | word, all & word));
        if any == all { any } else { u64::MAX }
    }
}

/// Checks order and sum of a consumer's events, whose numbers are 1, 2, 3, ...
#[derive(Default)]
pub struct Check {
    seen: u64,
    sum: u64,
    wrong: u64,
}

impl Check {
    /// Checks the next event.
    #[inline(always)]
    pub fn see<E: Event>(&mut self, event: &E) {
        let number = event.number();
        self.seen += 1;
        self.sum = self.sum.wrapping_add(number);
        self.wrong += u64::from(number != self.seen);
    }
    /// Returns the number of events so far.
    pub fn seen(&self) -> u64 {
        self.seen
    }
    /// Panics unless the events were exactly 1 to `events`, in order.
    pub fn finish(&self, events: u64) {
        assert_eq!(self.seen, events, "events lost or doubled");
        assert_eq!(self.wrong, 0, "events out of order or damaged");
        assert_eq!(self.sum, events * (events + 1) / 2, "events damaged");
    }
}
