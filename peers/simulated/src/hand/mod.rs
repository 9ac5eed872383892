//! Contenders that are written by hand after published algorithms.
//!
//! This module is compiled twice: over the simulator's atomics and over the machine's, which are
//! `super::sync`. Events are relaxed atomics, which cost what plain words cost, so no contender
//! needs unsafe code.
//!
//! - I1: Each word that several threads write has a pair of cache lines for itself, as in the
//!   algorithms' own implementations.

mod lmax;
mod queues;
mod single;

use std::sync::Arc;

use peers_unchanged::{Build, Ends, Host, Seen, Shape, Spec, Threads, threads};

use super::sync;
use sync::{AtomicU64, Ordering};

/// The contenders by name.
pub const CONTENDERS: [(&str, Build); 8] = [
    ("hand-written: LMAX 4's sequencer, fetch-and-add", lmax::fetch_and_add),
    ("hand-written: LMAX 3's sequencer, compare-and-swap", lmax::compare_and_swap),
    ("hand-written: LMAX's single producer", lmax::single_producer),
    ("hand-written: LMAX 3's worker pool", lmax::worker_pool),
    ("hand-written: Vyukov's queue", queues::vyukov),
    ("hand-written: lock with two conditions", queues::lock),
    ("hand-written: cached indices", single::cached_indices),
    ("hand-written: lap flags", single::lap_flags),
];

/// A value that has two cache lines for itself, since the hardware fetches lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

/// The events of a ring.
struct Slots(Box<[AtomicU64]>);

impl Slots {
    /// Makes slots for `capacity` events.
    ///
    /// # Panics
    ///
    /// If `capacity` is no power of two, by which all contenders mask their indices.
    fn new(capacity: usize) -> Slots {
        assert!(capacity.is_power_of_two(), "the capacity {capacity} is no power of two");
        Slots((0..capacity).map(|_| AtomicU64::new(0)).collect())
    }
    fn capacity(&self) -> u64 {
        self.0.len() as u64
    }
    fn at(&self, seq: u64) -> &AtomicU64 {
        &self.0[seq as usize & (self.0.len() - 1)]
    }
    fn write(&self, seq: u64, event: u64) {
        self.at(seq).store(event, Ordering::Relaxed);
    }
    fn read(&self, seq: u64) -> u64 {
        self.at(seq).load(Ordering::Relaxed)
    }
}

/// A queue of several producers and consumers.
trait Queue: Send + Sync + 'static {
    /// Enqueues an event. Returns whether there was room.
    fn push(&self, event: u64) -> bool;
    /// Dequeues an event, if there is one.
    fn pop(&self) -> Option<u64>;
}

/// Returns the threads of a queue, whose consumers share its events.
fn queue_threads(spec: Spec, host: Host, queue: impl Queue) -> Option<Threads> {
    if spec.shape == Shape::Multicast {
        return None;
    }
    let queue = Arc::new(queue);
    let producers = (0..spec.producers).map(|_| {
        let queue = queue.clone();
        move |event| queue.push(event)
    });
    let consumers = (0..spec.consumers).map(|_| {
        let queue = queue.clone();
        move |seen: &mut Seen| {
            seen.receive(|seen| queue.pop().map(|event| seen.see(event)).is_some());
        }
    });
    Some(threads(spec, host, Ends::ByEvents, producers, consumers))
}
