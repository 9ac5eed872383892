//! Queues of one producer and one consumer.
//!
//! - I1: The producer writes a slot after it has seen that the consumer has read it, and the
//!   consumer reads a slot after it has seen that the producer has written it. Each sees it by an
//!   acquiring load of what the other has stored with release.

use std::sync::Arc;

use peers_unchanged::{Ends, Host, Seen, Shape, Spec, Threads, threads};

use super::super::sync::{AtomicU64, Ordering::*};
use super::parts::{Padded, Slots};

/// Head and tail, of which each side keeps a copy of the other's, and looks again when the copy
/// says that there is no room or no event.
struct Indices {
    head: Padded<AtomicU64>,
    tail: Padded<AtomicU64>,
    slots: Slots,
}

/// Returns the threads of a ring with cached indices, as in Rigtorp's and FastForward's successors.
pub fn cached_indices(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape != Shape::Stream || spec.producers > 1 {
        return None;
    }
    let slots = Slots::new(spec.capacity);
    let word = || Padded(AtomicU64::new(0));
    let ring = Arc::new(Indices { head: word(), tail: word(), slots });
    let (tx, rx) = (ring.clone(), ring);
    let (mut tail, mut head_seen) = (0, 0);
    let push = move |event| {
        if tail - head_seen == tx.slots.capacity() {
            head_seen = tx.head.0.load(Acquire);
            if tail - head_seen == tx.slots.capacity() {
                return false;
            }
        }
        tx.slots.write(tail, event);
        tail += 1;
        tx.tail.0.store(tail, Release);
        true
    };
    let receive = move |seen: &mut Seen| {
        let (mut head, mut tail_seen) = (0, 0);
        seen.receive(|seen| {
            if head == tail_seen {
                tail_seen = rx.tail.0.load(Acquire);
                if head == tail_seen {
                    return false;
                }
            }
            let event = rx.slots.read(head);
            head += 1;
            rx.head.0.store(head, Release);
            seen.see(event);
            true
        });
    };
    Some(threads(spec, host, Ends::ByEvents, [push], [receive]))
}

/// A slot with the number of the event that may be written, or plus one, be read.
struct Flagged {
    flag: AtomicU64,
    event: AtomicU64,
}

/// Returns the threads of a ring whose slots hold flags of their laps. The consumer gives a slot
/// back by the same flag, so no word is shared by all slots.
pub fn lap_flags(spec: Spec, host: Host) -> Option<Threads> {
    if spec.shape != Shape::Stream || spec.producers > 1 {
        return None;
    }
    let slot = |seq| Flagged { flag: AtomicU64::new(seq), event: AtomicU64::new(0) };
    let slots: Arc<[Flagged]> = (0..spec.capacity as u64).map(slot).collect();
    let (tx, rx) = (slots.clone(), slots);
    let mut tail = 0;
    let push = move |event| {
        let slot = &tx[tail as usize & (tx.len() - 1)];
        if slot.flag.load(Acquire) != tail {
            return false;
        }
        slot.event.store(event, Relaxed);
        tail += 1;
        slot.flag.store(tail, Release);
        true
    };
    let receive = move |seen: &mut Seen| {
        let mut head = 0;
        seen.receive(|seen| {
            let slot = &rx[head as usize & (rx.len() - 1)];
            if slot.flag.load(Acquire) != head + 1 {
                return false;
            }
            let event = slot.event.load(Relaxed);
            slot.flag.store(head + rx.len() as u64, Release);
            head += 1;
            seen.see(event);
            true
        });
    };
    Some(threads(spec, host, Ends::ByEvents, [push], [receive]))
}
