//! Hand-made limits for one producer and one consumer: what a hand-over can cost at best with each way of publishing. They protect
//! nothing, wait for nothing but each other, and cannot be closed.

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;
use std::time::Instant;

use crate::{pin, work};

/// Pauses that take about 200 ns on this machine: what a spaced consumer does after a poll that got something.
fn pauses() -> u32 {
    static PAUSES: OnceLock<u32> = OnceLock::new();
    *PAUSES.get_or_init(|| {
        let probe = (0..5).map(|_| {
            let begin = Instant::now();
            (0..1000).for_each(|_| spin_loop());
            begin.elapsed().as_nanos()
        });
        (200_000 / probe.min().unwrap_or(0).max(1)).clamp(1, 1000) as u32
    })
}

#[repr(align(128))]
struct Line(AtomicU64);

/// The way of publishing, over slots that hold one `u64` each.
pub trait Way: Sync {
    fn new(capacity: u64) -> Self;
    fn write(&self, seq: u64, value: u64);
    fn read(&self, seq: u64) -> u64;
    fn publish(&self, seq: u64, len: u64);
    /// How many are published from `seq` on, or of the run there.
    fn published(&self, seq: u64) -> u64;
}

struct Plain(Box<[UnsafeCell<u64>]>);

// SAFETY: each slot is written before and read after the store that publishes it; the benchmark's two threads keep to that.
unsafe impl Sync for Plain {}

impl Plain {
    fn new(capacity: u64) -> Plain {
        Plain((0..capacity).map(|_| UnsafeCell::new(0)).collect())
    }
    #[inline(always)]
    fn at(&self, seq: u64) -> *mut u64 {
        let index = seq as usize & (self.0.len() - 1);
        // SAFETY: masked by a power of two minus one.
        unsafe { self.0.get_unchecked(index) }.get()
    }
}

/// One counter for all that is published.
pub struct Cursor(Plain, Line);

impl Way for Cursor {
    fn new(capacity: u64) -> Self {
        Cursor(Plain::new(capacity), Line(AtomicU64::new(0)))
    }
    #[inline(always)]
    fn write(&self, seq: u64, value: u64) {
        // SAFETY: see `Plain`.
        unsafe { *self.0.at(seq) = value }
    }
    #[inline(always)]
    fn read(&self, seq: u64) -> u64 {
        // SAFETY: see `Plain`.
        unsafe { *self.0.at(seq) }
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.1.0.store(seq + len, Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        self.1.0.load(Acquire) - seq
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
pub struct Beside(Plain, Box<[AtomicU64]>);

impl Way for Beside {
    fn new(capacity: u64) -> Self {
        Beside(Plain::new(capacity), (0..capacity).map(|_| AtomicU64::new(0)).collect())
    }
    #[inline(always)]
    fn write(&self, seq: u64, value: u64) {
        // SAFETY: see `Plain`.
        unsafe { *self.0.at(seq) = value }
    }
    #[inline(always)]
    fn read(&self, seq: u64) -> u64 {
        // SAFETY: see `Plain`.
        unsafe { *self.0.at(seq) }
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.1[seq as usize & (self.1.len() - 1)].store(stamp(seq, len), Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        run(self.1[seq as usize & (self.1.len() - 1)].load(Acquire), seq)
    }
}

#[repr(C)]
struct Slot(AtomicU64, UnsafeCell<u64>);

/// A stamp per run, in the slot of its first event.
pub struct Inside(Box<[Slot]>);

// SAFETY: as for `Plain`.
unsafe impl Sync for Inside {}

impl Inside {
    #[inline(always)]
    fn at(&self, seq: u64) -> &Slot {
        let index = seq as usize & (self.0.len() - 1);
        // SAFETY: masked by a power of two minus one.
        unsafe { self.0.get_unchecked(index) }
    }
}

impl Way for Inside {
    fn new(capacity: u64) -> Self {
        Inside((0..capacity).map(|_| Slot(AtomicU64::new(0), UnsafeCell::new(0))).collect())
    }
    #[inline(always)]
    fn write(&self, seq: u64, value: u64) {
        // SAFETY: see `Plain`.
        unsafe { *self.at(seq).1.get() = value }
    }
    #[inline(always)]
    fn read(&self, seq: u64) -> u64 {
        // SAFETY: see `Plain`.
        unsafe { *self.at(seq).1.get() }
    }
    #[inline(always)]
    fn publish(&self, seq: u64, len: u64) {
        self.at(seq).0.store(stamp(seq, len), Release);
    }
    #[inline(always)]
    fn published(&self, seq: u64) -> u64 {
        run(self.at(seq).0.load(Acquire), seq)
    }
}

/// A ring: the way of publishing, and how far the consumer has come.
struct Ring<W> {
    way: W,
    released: Line,
    capacity: u64,
}

impl<W: Way> Ring<W> {
    fn new(capacity: u64) -> Self {
        Ring { way: W::new(capacity), released: Line(AtomicU64::new(0)), capacity }
    }

    #[inline(always)]
    fn wait_for_room(&self, next: u64, len: u64, limit: &mut u64) {
        while next + len > *limit {
            *limit = self.released.0.load(Acquire) + self.capacity;
            if next + len > *limit {
                spin_loop();
            }
        }
    }

    /// Hands what is there to `f`, releasing at an eighth of the ring and at the end.
    #[inline(always)]
    fn poll(&self, next: &mut u64, mut f: impl FnMut(u64, u64)) -> u64 {
        let (start, mut released) = (*next, *next);
        loop {
            let len = self.way.published(*next);
            if len == 0 {
                break;
            }
            for seq in *next..*next + len {
                f(self.way.read(seq), seq);
            }
            *next += len;
            if *next - released > self.capacity / 8 {
                released = *next;
                self.released.0.store(released, Release);
            }
        }
        if released != *next {
            self.released.0.store(*next, Release);
        }
        *next - start
    }
}

pub fn stream<W: Way, const SPACED: bool>(capacity: usize, events: u64, batch: u64, steps: u32) -> f64 {
    let spacing = if SPACED { pauses() } else { 0 };
    let ring = Ring::<W>::new(capacity as u64);
    let ready = AtomicU64::new(0);
    let (took, sum) = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            pin(1);
            let (mut next, mut sum, mut expected) = (0, 0u64, 0);
            ready.store(1, Release);
            while next < events {
                let had = ring.poll(&mut next, |value, seq| {
                    sum = sum.wrapping_add(value);
                    expected += u64::from(seq + 1 == value);
                });
                (0..if had == 0 { 1 } else { spacing }).for_each(|_| spin_loop());
            }
            assert_eq!(expected, events);
            sum
        });
        pin(0);
        while ready.load(Acquire) == 0 {
            spin_loop();
        }
        let (mut limit, mut state, mut next) = (capacity as u64, 1, 0);
        let begin = Instant::now();
        while next < events {
            work(steps, &mut state);
            let len = batch.min(events - next);
            ring.wait_for_room(next, len, &mut limit);
            for seq in next..next + len {
                ring.way.write(seq, seq + 1);
            }
            ring.way.publish(next, len);
            next += len;
        }
        black_box(state);
        let sum = consumer.join().expect("the consumer ends");
        (begin.elapsed(), sum)
    });
    assert_eq!(sum, events * (events + 1) / 2);
    took.as_nanos() as f64 / events as f64
}

pub fn round_trip<W: Way, const SPACED: bool>(rounds: usize) -> Vec<u64> {
    let spacing = if SPACED { pauses() } else { 0 };
    let (there, back) = (Ring::<W>::new(1024), Ring::<W>::new(1024));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let (mut next, mut limit, mut out) = (0, 1024, 0);
            while next < rounds as u64 {
                let mut value = 0;
                if there.poll(&mut next, |v, _| value = v) == 0 {
                    spin_loop();
                    continue;
                }
                back.wait_for_room(out, 1, &mut limit);
                back.way.write(out, value);
                back.way.publish(out, 1);
                out += 1;
                (0..spacing).for_each(|_| spin_loop());
            }
        });
        pin(0);
        let (mut next, mut limit) = (0, 1024);
        (1..=rounds as u64)
            .map(|i| {
                let begin = Instant::now();
                there.wait_for_room(i - 1, 1, &mut limit);
                there.way.write(i - 1, i);
                there.way.publish(i - 1, 1);
                let mut value = 0;
                while back.poll(&mut next, |v, _| value = v) == 0 {
                    spin_loop();
                }
                let took = begin.elapsed();
                assert_eq!(value, i);
                (0..spacing).for_each(|_| spin_loop());
                took.as_nanos() as u64
            })
            .collect()
    })
}

/// Two words on two lines, and nothing else: no data, no ring.
pub fn raw_round_trip(rounds: usize) -> Vec<u64> {
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for i in 1..=rounds as u64 {
                while there.0.load(Acquire) != i {}
                back.0.store(i, Release);
            }
        });
        pin(0);
        (1..=rounds as u64)
            .map(|i| {
                let begin = Instant::now();
                there.0.store(i, Release);
                while back.0.load(Acquire) != i {}
                begin.elapsed().as_nanos() as u64
            })
            .collect()
    })
}
