//! Hand-made limits for one producer and one consumer: what a hand-over costs at best with each way
//! of publishing. They protect nothing, wait for nothing but each other, and cannot be closed.

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

use crate::contenders::{Both, Pair, both};
use crate::machine::spacing;
use crate::work::Event;

/// A word that shares its lines with nothing: two of them, because the hardware fetches in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

/// A way of publishing, over slots that hold one event each.
pub trait Way<E: Event>: Sync {
    /// Whether one look tells all that is published. Then a second look in the same poll would only
    /// take the line from the producer again.
    const TELLS_ALL: bool = false;
    /// Slots for `capacity` events, a power of two.
    fn new(capacity: u64) -> Self;
    /// Writes `len` events from `seq` on, numbered from `first`.
    fn fill(&self, seq: u64, len: u64, first: u64);
    /// Makes them visible.
    fn publish(&self, seq: u64, len: u64);
    /// How many are published from `seq` on, or of the run there.
    fn published(&self, seq: u64) -> u64;
    /// Reads `len` events from `seq` on.
    fn each(&self, seq: u64, len: u64, f: impl FnMut(&E));
}

/// Events side by side.
struct Plain<E>(Box<[UnsafeCell<E>]>);

// SAFETY: each slot is written before and read after the store that publishes it; the two threads
// of a measurement keep to that.
unsafe impl<E: Event> Sync for Plain<E> {}

impl<E: Event> Plain<E> {
    fn new(capacity: u64) -> Self {
        Plain((0..capacity).map(|_| UnsafeCell::new(E::default())).collect())
    }
    /// The two straight stretches that `len` events from `seq` on lie in.
    #[inline(always)]
    fn stretches(&self, seq: u64, len: u64) -> [&[UnsafeCell<E>]; 2] {
        let (from, len) = (seq as usize & (self.0.len() - 1), len as usize);
        let straight = len.min(self.0.len() - from);
        // SAFETY: masked by a power of two minus one, and no run is longer than the ring, so both
        // stretches end within it.
        unsafe { [self.0.get_unchecked(from..from + straight), self.0.get_unchecked(..len - straight)] }
    }
    #[inline(always)]
    fn fill(&self, seq: u64, len: u64, first: u64) {
        let mut number = first;
        for stretch in self.stretches(seq, len) {
            for event in stretch {
                // SAFETY: see `Plain`.
                unsafe { *event.get() = E::make(number) }
                number += 1;
            }
        }
    }
    #[inline(always)]
    fn each(&self, seq: u64, len: u64, mut f: impl FnMut(&E)) {
        for stretch in self.stretches(seq, len) {
            for event in stretch {
                // SAFETY: see `Plain`.
                f(unsafe { &*event.get() })
            }
        }
    }
}

/// One counter for all that is published.
pub struct Cursor<E>(Plain<E>, Line);

impl<E: Event> Way<E> for Cursor<E> {
    const TELLS_ALL: bool = true;
    fn new(capacity: u64) -> Self {
        Cursor(Plain::new(capacity), Line(AtomicU64::new(0)))
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

#[inline(always)]
fn stamp(seq: u64, len: u64) -> u64 {
    (seq + 1) << 16 | len
}

#[inline(always)]
fn run(word: u64, seq: u64) -> u64 {
    if word >> 16 == seq + 1 { word & 0xffff } else { 0 }
}

/// A stamp per run, in an array beside the events.
pub struct Beside<E>(Plain<E>, Box<[AtomicU64]>);

impl<E: Event> Way<E> for Beside<E> {
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
        // SAFETY: masked by a power of two minus one.
        unsafe { self.1.get_unchecked(index) }.store(stamp(seq, len), Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        let index = seq as usize & (self.1.len() - 1);
        // SAFETY: masked by a power of two minus one.
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

// SAFETY: as for `Plain`.
unsafe impl<E: Event> Sync for Interleaved<E> {}

impl<E: Event> Interleaved<E> {
    #[inline(always)]
    fn at(&self, seq: u64) -> &Slot<E> {
        let index = seq as usize & (self.0.len() - 1);
        // SAFETY: masked by a power of two minus one.
        unsafe { self.0.get_unchecked(index) }
    }
}

impl<E: Event> Way<E> for Interleaved<E> {
    fn new(capacity: u64) -> Self {
        Interleaved((0..capacity).map(|_| Slot(AtomicU64::new(0), UnsafeCell::new(E::default()))).collect())
    }
    #[inline(always)]
    fn fill(&self, seq: u64, len: u64, first: u64) {
        for offset in 0..len {
            // SAFETY: see `Plain`.
            unsafe { *self.at(seq + offset).1.get() = E::make(first + offset) }
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
            // SAFETY: see `Plain`.
            f(unsafe { &*self.at(seq).1.get() })
        }
    }
}

/// A ring: the way of publishing, and how far the consumer has come.
struct Ring<W> {
    way: W,
    released: Line,
    capacity: u64,
}

/// Where the producer stands: the next position, and up to where there is room.
struct Filled {
    next: u64,
    limit: u64,
}

impl<W> Ring<W> {
    fn new<E: Event>(capacity: u64) -> Self
    where
        W: Way<E>,
    {
        Ring { way: W::new(capacity), released: Line(AtomicU64::new(0)), capacity }
    }

    #[inline(always)]
    fn send<E: Event>(&self, at: &mut Filled, first: u64, len: u64)
    where
        W: Way<E>,
    {
        while at.next + len > at.limit {
            at.limit = self.released.0.load(Acquire) + self.capacity;
            if at.next + len > at.limit {
                spin_loop();
            }
        }
        self.way.fill(at.next, len, first);
        self.way.publish(at.next, len);
        at.next += len;
    }

    /// Hands what is there to `f`, releasing at an eighth of the ring and at the end.
    #[inline(always)]
    fn poll<E: Event>(&self, next: &mut u64, mut f: impl FnMut(&E)) -> u64
    where
        W: Way<E>,
    {
        let (start, mut released) = (*next, *next);
        loop {
            let len = self.way.published(*next);
            if len == 0 {
                break;
            }
            self.way.each(*next, len, &mut f);
            *next += len;
            if *next - released > self.capacity / 8 {
                released = *next;
                self.released.0.store(released, Release);
            }
            if W::TELLS_ALL {
                break;
            }
        }
        if released != *next {
            self.released.0.store(*next, Release);
        }
        *next - start
    }
}

/// See [`Pair`]; the consumer pauses after a look that found something if `SPACED`.
pub fn stream<E: Event, W: Way<E>, const SPACED: bool>(pair: Pair) -> f64 {
    let ring = &Ring::<W>::new(pair.ring as u64);
    let spacing = if SPACED { spacing() } else { 0 };
    let mut at = Filled { next: 0, limit: pair.ring as u64 };
    both(
        pair,
        Both {
            send: move |first, len| ring.send(&mut at, first, len),
            close: || (),
            receive: move |events, check: &mut crate::work::Check| {
                let mut next = 0;
                while next < events {
                    let had = ring.poll(&mut next, |event| check.see(event));
                    (0..if had == 0 { 1 } else { spacing }).for_each(|_| spin_loop());
                }
            },
        },
    )
}

/// There and back through two rings with stamps inside the slots; both sides pause after what they
/// got, outside of the time taken.
pub fn round_trip(rounds: usize) -> Vec<u64> {
    let (there, back) = (Ring::<Interleaved<u64>>::new(1024), Ring::<Interleaved<u64>>::new(1024));
    let spacing = spacing();
    crate::contenders::ping_pong(
        rounds,
        || {
            let (mut next, mut at) = (0, Filled { next: 0, limit: 1024 });
            while next < rounds as u64 {
                let mut number = 0;
                if there.poll(&mut next, |event| number = *event) == 0 {
                    spin_loop();
                    continue;
                }
                back.send(&mut at, number, 1);
                (0..spacing).for_each(|_| spin_loop());
            }
        },
        {
            let (there, back) = (&there, &back);
            let (mut next, mut at) = (0, Filled { next: 0, limit: 1024 });
            move |number| {
                let begin = Instant::now();
                there.send(&mut at, number, 1);
                let mut answer = 0;
                while back.poll(&mut next, |event| answer = *event) == 0 {
                    spin_loop();
                }
                let took = begin.elapsed();
                (0..spacing).for_each(|_| spin_loop());
                (took, answer)
            }
        },
    )
}

/// Two words on two lines, and nothing else: no data, no ring.
pub fn raw_round_trip(rounds: usize) -> Vec<u64> {
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    crate::contenders::ping_pong(
        rounds,
        || {
            for number in 1..=rounds as u64 {
                while there.0.load(Acquire) != number {}
                back.0.store(number, Release);
            }
        },
        |number| {
            let begin = Instant::now();
            there.0.store(number, Release);
            while back.0.load(Acquire) != number {}
            (begin.elapsed(), number)
        },
    )
}
