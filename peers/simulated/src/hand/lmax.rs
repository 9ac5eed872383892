//! Rings after the sources of the LMAX Disruptor: `MultiProducerSequencer` of versions 3 and 4,
//! `SingleProducerSequencer`, `BatchEventProcessor` with a busy spin, and `WorkProcessor`.
//!
//! A producer of theirs that waits for room parks for a nanosecond. Here it spins once.
//!
//! - I1: A position is one more than the sequence of theirs, so that 0 stands for their -1.
//! - I2: A producer owns a slot from its claim until it stores the slot's flag or, if it is the
//!   only one, the cursor. It writes the slot after each gating sequence has passed the last lap.

use std::sync::Arc;

use peers_unchanged::{Ends, Host, Seen, Shape, Spec, Threads, threads};

use super::super::sync::{AtomicU32, AtomicU64, Ordering::*};
use super::parts::{Padded, Slots};

/// A ring. `cursor`, `gate` and `done` are numbers of events.
struct Ring {
    /// Claimed by several producers, or published by one.
    cursor: Padded<AtomicU64>,
    /// A lower bound of `done`, which the producers share.
    gate: Padded<AtomicU64>,
    /// The lap in which each slot was published last.
    available: Box<[AtomicU32]>,
    slots: Slots,
    /// How far each consumer is.
    done: Box<[Padded<AtomicU64>]>,
    /// The next event that a worker of a pool takes.
    work: Padded<AtomicU64>,
}

impl Ring {
    fn new(spec: Spec) -> Arc<Ring> {
        let word = || Padded(AtomicU64::new(0));
        Arc::new(Ring {
            cursor: word(),
            gate: word(),
            available: (0..spec.capacity).map(|_| AtomicU32::new(0)).collect(),
            slots: Slots::new(spec.capacity),
            done: (0..spec.consumers).map(|_| word()).collect(),
            work: word(),
        })
    }
    /// Returns how far the last consumer is, or `known` if that is less.
    fn least_done(&self, known: u64) -> u64 {
        self.done.iter().map(|done| done.0.load(Acquire)).fold(known, u64::min)
    }
    /// Returns the word with the lap of an event's slot, and the lap of the event.
    fn flag(&self, seq: u64) -> (&AtomicU32, u32) {
        let capacity = self.available.len();
        let lap = (seq / capacity as u64) as u32 + 1;
        (&self.available[seq as usize & (capacity - 1)], lap)
    }
    fn publish(&self, seq: u64, event: u64) {
        self.slots.write(seq, event);
        let (flag, lap) = self.flag(seq);
        flag.store(lap, Release);
    }
    /// Returns the end of the events from `seq` to `end` that are published without a gap.
    fn published(&self, seq: u64, end: u64) -> u64 {
        let is_published = |seq| {
            let (flag, lap) = self.flag(seq);
            flag.load(Acquire) == lap
        };
        (seq..end).find(|seq| !is_published(*seq)).unwrap_or(end)
    }
    /// Returns what a consumer of all events does: it handles what is published, and then says how
    /// far it is. `flags` tells whether events have flags or the cursor alone.
    fn consume(self: &Arc<Ring>, number: usize, flags: bool) -> impl FnOnce(&mut Seen) + use<> {
        let ring = self.clone();
        move |seen| {
            let mut next = 0;
            seen.receive(|seen| {
                let mut end = ring.cursor.0.load(Acquire);
                if flags {
                    end = ring.published(next, end);
                }
                if end <= next {
                    return false;
                }
                (next..end).for_each(|seq| seen.see(ring.slots.read(seq)));
                next = end;
                ring.done[number].0.store(next, Release);
                true
            });
        }
    }
}

/// Returns the threads of a ring whose producers claim by fetch-and-add (version 4).
pub fn fetch_and_add(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape == Shape::Pool {
        return None;
    }
    let ring = Ring::new(spec);
    let producers = (0..spec.producers).map(|_| {
        let ring = ring.clone();
        // The claimed position, while the producer waits for room.
        let mut claimed = None;
        move |event| {
            let (current, fresh) = match claimed {
                Some(current) => (current, false),
                None => (ring.cursor.0.fetch_add(1, AcqRel), true),
            };
            claimed = Some(current);
            let wrap = (current + 1).saturating_sub(ring.slots.capacity());
            let gate = if fresh { ring.gate.0.load(Acquire) } else { 0 };
            if wrap > gate || gate > current {
                let done = ring.least_done(current);
                if wrap > done {
                    return false;
                }
                ring.gate.0.store(done, Release);
            }
            ring.publish(current, event);
            claimed = None;
            true
        }
    });
    let consumers = (0..spec.consumers).map(|number| ring.consume(number, true));
    Some(threads(spec, host, Ends::ByEvents, producers, consumers))
}

/// Returns the threads of a ring whose producers claim by compare-and-swap (version 3).
pub fn compare_and_swap(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape == Shape::Pool {
        return None;
    }
    let ring = Ring::new(spec);
    let producers = (0..spec.producers).map(|_| {
        let ring = ring.clone();
        move |event| {
            loop {
                let current = ring.cursor.0.load(Acquire);
                let wrap = (current + 1).saturating_sub(ring.slots.capacity());
                let gate = ring.gate.0.load(Acquire);
                if wrap > gate || gate > current {
                    let done = ring.least_done(current);
                    if wrap > done {
                        return false;
                    }
                    ring.gate.0.store(done, Release);
                } else if ring
                    .cursor
                    .0
                    .compare_exchange(current, current + 1, AcqRel, Relaxed)
                    .is_ok()
                {
                    ring.publish(current, event);
                    return true;
                }
            }
        }
    });
    let consumers = (0..spec.consumers).map(|number| ring.consume(number, true));
    Some(threads(spec, host, Ends::ByEvents, producers, consumers))
}

/// Returns what the only producer of a ring does: it publishes by the cursor, and keeps what it
/// knows of the consumers.
fn alone(ring: Arc<Ring>) -> impl FnMut(u64) -> bool {
    let (mut next, mut gate) = (0, 0);
    move |event| {
        let wrap = (next + 1u64).saturating_sub(ring.slots.capacity());
        if wrap > gate {
            gate = ring.least_done(next);
            if wrap > gate {
                return false;
            }
        }
        ring.slots.write(next, event);
        next += 1;
        ring.cursor.0.store(next, Release);
        true
    }
}

/// Returns the threads of a ring with one producer, each of whose consumers sees all events.
pub fn single_producer(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape == Shape::Pool || spec.producers > 1 {
        return None;
    }
    let ring = Ring::new(spec);
    let consumers = (0..spec.consumers).map(|number| ring.consume(number, false));
    Some(threads(spec, host, Ends::ByEvents, [alone(ring.clone())], consumers))
}

/// Returns the threads of a pool (version 3): a worker takes the next position, and then waits
/// until the producer has published it.
pub fn worker_pool(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape != Shape::Pool {
        return None;
    }
    let ring = Ring::new(spec);
    let consumers = (0..spec.consumers).map(|number| {
        let ring = ring.clone();
        move |seen: &mut Seen| {
            let (mut taken, mut cursor) = (None, 0);
            seen.receive(|seen| {
                let at = *taken.get_or_insert_with(|| {
                    loop {
                        let next = ring.work.0.load(Acquire);
                        ring.done[number].0.store(next, Release);
                        let swap = ring.work.0.compare_exchange(next, next + 1, AcqRel, Relaxed);
                        if swap.is_ok() {
                            return next;
                        }
                    }
                });
                if cursor <= at {
                    cursor = ring.cursor.0.load(Acquire);
                    if cursor <= at {
                        return false;
                    }
                }
                seen.see(ring.slots.read(at));
                taken = None;
                true
            });
            // A worker that has ended does not gate.
            ring.done[number].0.store(u64::MAX, Release);
        }
    });
    Some(threads(spec, host, Ends::ByEvents, [alone(ring.clone())], consumers))
}
