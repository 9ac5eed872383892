//! Parts of the contenders: padded words, slots, and the threads of a queue.
//!
//! - I1: Each word that several threads write has a pair of cache lines for itself, as in the
//!   algorithms' own implementations.

use std::sync::Arc;

use peers_unchanged::{Ends, Host, Seen, Shape, Spec, Threads, threads};

use super::super::sync::{AtomicU64, Ordering};

/// A value that has two cache lines for itself, since the hardware fetches lines in pairs.
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// The events of a ring.
pub struct Slots(Box<[AtomicU64]>);

impl Slots {
    /// Makes slots for `capacity` events.
    ///
    /// # Panics
    ///
    /// If `capacity` is no power of two, by which all contenders mask their indices.
    pub fn new(capacity: usize) -> Slots {
        assert!(capacity.is_power_of_two(), "the capacity {capacity} is no power of two");
        Slots((0..capacity).map(|_| AtomicU64::new(0)).collect())
    }
    pub fn capacity(&self) -> u64 {
        self.0.len() as u64
    }
    fn at(&self, seq: u64) -> &AtomicU64 {
        &self.0[seq as usize & (self.0.len() - 1)]
    }
    pub fn write(&self, seq: u64, event: u64) {
        self.at(seq).store(event, Ordering::Relaxed);
    }
    pub fn read(&self, seq: u64) -> u64 {
        self.at(seq).load(Ordering::Relaxed)
    }
}

/// A queue of several producers and consumers.
pub trait Queue: Send + Sync + 'static {
    /// Enqueues an event. Returns whether there was room.
    fn push(&self, event: u64) -> bool;
    /// Dequeues an event, if there is one.
    fn pop(&self) -> Option<u64>;
}

/// Returns the threads of a queue, whose consumers share its events.
pub fn queue_threads(spec: Spec, host: Host, queue: impl Queue) -> Option<Threads> {
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
