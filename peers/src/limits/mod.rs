//! Hand-made lower bounds for one producer and one consumer, one for each way to publish. They
//! protect nothing, have no wait strategy, and cannot be closed.
//!
//! Invariants
//! - I1: the producer writes a slot after the consumer has released it and before the store that
//!   publishes it; the consumer reads it between that store and the release.
//! - I2: the number of slots is a power of two, each index is masked by that number minus one, and
//!   no run is longer than the ring.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};

use crate::contenders::{Rounds, Sides, StreamSpec, ping_pong, run_stream};
use crate::work::{Check, Event, spacing};

/// A word on cache lines of its own: 128 bytes, because the hardware fetches lines in pairs.
#[repr(align(128))]
struct CacheLine(AtomicU64);

/// A way to publish events. Each slot holds one event.
pub trait Publication<E: Event>: Sync {
    /// Whether one load finds all published events. A second load in the same poll would then only
    /// take the cache line from the producer again.
    const FINDS_ALL: bool = false;
    /// Makes slots for `capacity` events, a power of two.
    fn new(capacity: u64) -> Self;
    /// Writes `len` events from `seq` on, numbered from `first`.
    fn fill(&self, seq: u64, len: u64, first: u64);
    /// Publishes `len` events from `seq` on.
    fn publish(&self, seq: u64, len: u64);
    /// Returns how many events from `seq` on are known to be published.
    fn published(&self, seq: u64) -> u64;
    /// Reads `len` events from `seq` on.
    fn each(&self, seq: u64, len: u64, f: impl FnMut(&E));
}

/// An array of events.
struct Plain<E>(Box<[UnsafeCell<E>]>);

// SAFETY: no slot is written while the other thread reads it (I1).
unsafe impl<E: Event> Sync for Plain<E> {}

impl<E: Event> Plain<E> {
    fn new(capacity: u64) -> Self {
        Plain((0..capacity).map(|_| UnsafeCell::new(E::default())).collect())
    }
    /// Returns the `len` events from `seq` on as two slices. The first ends at the end of the array
    /// at the latest, and the second begins at the array's beginning.
    #[inline(always)]
    fn slices(&self, seq: u64, len: u64) -> [&[UnsafeCell<E>]; 2] {
        let (from, len) = (seq as usize & (self.0.len() - 1), len as usize);
        let straight = len.min(self.0.len() - from);
        // SAFETY: `from` is masked, and no run is longer than the ring, so both slices end within
        // the array (I2).
        unsafe {
            [self.0.get_unchecked(from..from + straight), self.0.get_unchecked(..len - straight)]
        }
    }
    #[inline(always)]
    fn fill(&self, seq: u64, len: u64, first: u64) {
        let mut number = first;
        for slice in self.slices(seq, len) {
            for event in slice {
                // SAFETY: this thread owns the slot now (I1).
                unsafe { (*event.get()).fill(number) }
                number += 1;
            }
        }
    }
    #[inline(always)]
    fn each(&self, seq: u64, len: u64, mut f: impl FnMut(&E)) {
        for slice in self.slices(seq, len) {
            for event in slice {
                // SAFETY: this thread owns the slot now (I1).
                f(unsafe { &*event.get() })
            }
        }
    }
}

/// One counter of all published events.
pub struct Cursor<E>(Plain<E>, CacheLine);

impl<E: Event> Publication<E> for Cursor<E> {
    const FINDS_ALL: bool = true;
    fn new(capacity: u64) -> Self {
        Cursor(Plain::new(capacity), CacheLine(AtomicU64::new(0)))
    }
    #[inline(always)]
    fn fill(&self, seq: u64, len: u64, first: u64) {
        self.0.fill(seq, len, first)
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.1.0.store(seq + len, Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        self.1.0.load(Acquire) - seq
    }
    #[inline(always)]
    fn each(&self, seq: u64, len: u64, f: impl FnMut(&E)) {
        self.0.each(seq, len, f)
    }
}

/// Returns the stamp of a run of `len` events from `seq` on.
#[inline(always)]
fn stamp(seq: u64, len: u64) -> u64 {
    (seq + 1) << 16 | len
}

/// Returns the length of the run at `seq`, or 0 if the stamp belongs to another lap.
#[inline(always)]
fn run(word: u64, seq: u64) -> u64 {
    if word >> 16 == seq + 1 { word & 0xffff } else { 0 }
}

/// A stamp per run, in an array beside the events.
pub struct Beside<E>(Plain<E>, Box<[AtomicU64]>);

impl<E: Event> Publication<E> for Beside<E> {
    fn new(capacity: u64) -> Self {
        Beside(Plain::new(capacity), (0..capacity).map(|_| AtomicU64::new(0)).collect())
    }
    #[inline(always)]
    fn fill(&self, seq: u64, len: u64, first: u64) {
        self.0.fill(seq, len, first)
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        let index = seq as usize & (self.1.len() - 1);
        // SAFETY: the index is masked (I2).
        unsafe { self.1.get_unchecked(index) }.store(stamp(seq, len), Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        let index = seq as usize & (self.1.len() - 1);
        // SAFETY: the index is masked (I2).
        run(unsafe { self.1.get_unchecked(index) }.load(Acquire), seq)
    }
    #[inline(always)]
    fn each(&self, seq: u64, len: u64, f: impl FnMut(&E)) {
        self.0.each(seq, len, f)
    }
}

#[repr(C)]
struct Slot<E>(AtomicU64, UnsafeCell<E>);

/// A stamp per run, in the slot of its first event.
pub struct Interleaved<E>(Box<[Slot<E>]>);

// SAFETY: as for `Plain` (I1).
unsafe impl<E: Event> Sync for Interleaved<E> {}

impl<E: Event> Interleaved<E> {
    #[inline(always)]
    fn at(&self, seq: u64) -> &Slot<E> {
        let index = seq as usize & (self.0.len() - 1);
        // SAFETY: the index is masked (I2).
        unsafe { self.0.get_unchecked(index) }
    }
}

impl<E: Event> Publication<E> for Interleaved<E> {
    fn new(capacity: u64) -> Self {
        let slot = || Slot(AtomicU64::new(0), UnsafeCell::new(E::default()));
        Interleaved((0..capacity).map(|_| slot()).collect())
    }
    #[inline(always)]
    fn fill(&self, seq: u64, len: u64, first: u64) {
        for offset in 0..len {
            // SAFETY: this thread owns the slot now (I1).
            unsafe { (*self.at(seq + offset).1.get()).fill(first + offset) }
        }
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.at(seq).0.store(stamp(seq, len), Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        run(self.at(seq).0.load(Acquire), seq)
    }
    #[inline(always)]
    fn each(&self, seq: u64, len: u64, mut f: impl FnMut(&E)) {
        for seq in seq..seq + len {
            // SAFETY: this thread owns the slot now (I1).
            f(unsafe { &*self.at(seq).1.get() })
        }
    }
}

/// A ring of one producer and one consumer.
struct Ring<P> {
    publication: P,
    /// Number of events that the consumer has released.
    released: CacheLine,
    capacity: u64,
}

/// The producer's position: the next event, and the first position without a free slot.
struct Position {
    next: u64,
    limit: u64,
}

impl<P> Ring<P> {
    fn new<E: Event>(capacity: u64) -> Self
    where
        P: Publication<E>,
    {
        let released = CacheLine(AtomicU64::new(0));
        Ring { publication: P::new(capacity), released, capacity }
    }

    /// Publishes `len` events, numbered from `first`; spins while the ring is full.
    #[inline(always)]
    fn send<E: Event>(&self, at: &mut Position, first: u64, len: u64)
    where
        P: Publication<E>,
    {
        while at.next + len > at.limit {
            at.limit = self.released.0.load(Acquire) + self.capacity;
            if at.next + len > at.limit {
                spin_loop();
            }
        }
        self.publication.fill(at.next, len, first);
        self.publication.publish(at.next, len);
        at.next += len;
    }

    /// Calls `f` with all published events; releases them after each eighth of the ring and at the
    /// end. Returns their number.
    #[inline(always)]
    fn poll<E: Event>(&self, next: &mut u64, mut f: impl FnMut(&E)) -> u64
    where
        P: Publication<E>,
    {
        let (start, mut released) = (*next, *next);
        loop {
            let len = self.publication.published(*next);
            if len == 0 {
                break;
            }
            self.publication.each(*next, len, &mut f);
            *next += len;
            if *next - released > self.capacity / 8 {
                released = *next;
                self.released.0.store(released, Release);
            }
            if P::FINDS_ALL {
                break;
            }
        }
        if released != *next {
            self.released.0.store(*next, Release);
        }
        *next - start
    }
}

/// Measures a stream. If `SPACED` is set, the consumer pauses after each poll that found events.
pub fn stream<E: Event, P: Publication<E>, const SPACED: bool>(spec: StreamSpec) -> f64 {
    let ring = &Ring::<P>::new(spec.ring as u64);
    let spacing = if SPACED { spacing() } else { 0 };
    let mut at = Position { next: 0, limit: spec.ring as u64 };
    run_stream(
        spec,
        Sides {
            send: move |first, len| ring.send(&mut at, first, len),
            close: || (),
            receive: move |events, check: &mut Check| {
                let mut next = 0;
                while next < events {
                    let had = ring.poll(&mut next, |event| check.see(event));
                    (0..if had == 0 { 1 } else { spacing }).for_each(|_| spin_loop());
                }
            },
        },
    )
}

/// Measures round trips through two rings with stamps inside the slots.
pub fn round_trip(rounds: Rounds) -> Vec<u64> {
    let (there, back) = (Ring::<Interleaved<u64>>::new(1024), Ring::<Interleaved<u64>>::new(1024));
    fn receive(ring: &Ring<Interleaved<u64>>, next: &mut u64) -> u64 {
        let mut number = 0;
        while ring.poll(next, |event| number = *event) == 0 {
            spin_loop();
        }
        number
    }
    ping_pong(
        rounds,
        || {
            let (mut next, mut at) = (0, Position { next: 0, limit: 1024 });
            while next < rounds.count as u64 {
                let number = receive(&there, &mut next);
                back.send(&mut at, number, 1);
            }
        },
        {
            let (there, back) = (&there, &back);
            let (mut next, mut at) = (0, Position { next: 0, limit: 1024 });
            move |number| {
                there.send(&mut at, number, 1);
                receive(back, &mut next)
            }
        },
    )
}

/// Measures round trips through two words on two cache lines, without data and without a ring. If
/// `HINTED` is true, a spin hint follows each poll, as in every ring. A poll takes the line from
/// the thread that is about to write it, and the hint makes polls rarer. In return, a poll may come
/// late by the length of the hint.
pub fn raw_round_trip<const HINTED: bool>(rounds: Rounds) -> Vec<u64> {
    raw_round_trip_over::<HINTED>(1, rounds)
}

/// Measures round trips through atomic words on as many cache lines as the slots of two rings
/// occupy. Each round uses other lines than the previous one, because the time that a line takes to
/// the other core depends on its address.
pub fn raw_round_trip_over_lines(rounds: Rounds) -> Vec<u64> {
    raw_round_trip_over::<true>(256, rounds)
}

fn raw_round_trip_over<const HINTED: bool>(lines: usize, rounds: Rounds) -> Vec<u64> {
    let wait_for = |word: &CacheLine, number| {
        while word.0.load(Acquire) != number {
            if HINTED {
                spin_loop();
            }
        }
    };
    let words = || (0..lines).map(|_| CacheLine(AtomicU64::new(0))).collect::<Box<[_]>>();
    let (there, back) = (words(), words());
    let line = |number: u64| number as usize & (lines - 1);
    ping_pong(
        rounds,
        || {
            for number in 1..=rounds.count as u64 {
                wait_for(&there[line(number)], number);
                back[line(number)].0.store(number, Release);
            }
        },
        |number| {
            there[line(number)].0.store(number, Release);
            wait_for(&back[line(number)], number);
            number
        },
    )
}
