//! One producer and one consumer through the library, by leases.

use std::hint::spin_loop;
use std::time::Instant;

use slipring::{Contiguous, Graph, Interleaved, Layout, Producer, Reader, Wait};

use super::{Both, Pair, both, ping_pong};
use crate::work::{Check, Event};

/// A layout that a graph can be switched to.
pub trait Chosen: Layout {
    /// A ring with one reader.
    fn unicast<E: Event>(capacity: usize) -> (Producer<E, Self>, Reader<E, Self>);
}

impl Chosen for Interleaved {
    fn unicast<E: Event>(capacity: usize) -> (Producer<E>, Reader<E>) {
        let graph = Graph::new(capacity, E::default).wait(Wait::BusySpin);
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    }
}

impl Chosen for Contiguous {
    fn unicast<E: Event>(capacity: usize) -> (Producer<E, Contiguous>, Reader<E, Contiguous>) {
        let graph = Graph::new(capacity, E::default).wait(Wait::BusySpin).contiguous();
        let reader = graph.reader("reader");
        let ring = graph.build().expect("the graph is sound");
        (ring.producer(), ring.reader(reader))
    }
}

#[inline(always)]
fn send_batch<E: Event, L: Layout>(tx: &mut Producer<E, L>, first: u64, len: u64) {
    let mut slots = tx.claim_n(len as usize).expect("the ring is open");
    for (slot, number) in slots.iter_mut().zip(first..) {
        *slot = E::make(number);
    }
    slots.publish();
}

/// See [`Pair`].
pub fn stream<E: Event, L: Chosen>(pair: Pair) -> f64 {
    let (mut tx, mut rx) = L::unicast::<E>(pair.ring);
    let receive = move |_, check: &mut Check| {
        rx.for_each(|event, _| check.see(event)).expect("the stream ends well");
    };
    // The producer is moved into its thread, and closes the ring when it is dropped there.
    if pair.batch == 1 {
        let send = move |number, _| {
            tx.publish(|slot| *slot = E::make(number)).expect("the ring is open");
        };
        return both(pair, Both { send, close: || (), receive });
    }
    let send = move |first, len| send_batch(&mut tx, first, len);
    both(pair, Both { send, close: || (), receive })
}

/// As [`stream`] one by one, through a handle of a ring that several producers may share.
pub fn shared_stream(pair: Pair) -> f64 {
    let graph = Graph::new(pair.ring, || 0u64).wait(Wait::BusySpin).shared();
    let reader = graph.reader("reader");
    let ring = graph.build().expect("the graph is sound");
    let (mut tx, mut rx) = (ring.producer(), ring.reader(reader));
    drop(ring);
    let receive = move |_, check: &mut Check| {
        rx.for_each(|event, _| check.see(event)).expect("the stream ends well");
    };
    let send = move |number, _| {
        tx.publish(|slot| *slot = number).expect("the ring is open");
    };
    both(pair, Both { send, close: || (), receive })
}

/// As [`stream`] in batches, the consumer taking what is there as a batch, for sums that need no
/// closure per event.
pub fn batches<L: Chosen>(pair: Pair) -> f64 {
    let (mut tx, mut rx) = L::unicast::<u64>(pair.ring);
    let receive = move |events, check: &mut Check| {
        while check.seen() < events {
            match rx.try_batch(pair.ring / 8) {
                Ok(batch) => {
                    batch.iter().for_each(|event| check.see(event));
                    batch.release();
                }
                Err(_) => spin_loop(),
            }
        }
    };
    let send = move |first, len| send_batch(&mut tx, first, len);
    both(pair, Both { send, close: || (), receive })
}

/// There and back through two rings.
pub fn round_trip<L: Chosen>(rounds: usize) -> Vec<u64> {
    let ((mut tx, mut rx), (mut tx_back, mut rx_back)) = (L::unicast::<u64>(1024), L::unicast::<u64>(1024));
    ping_pong(
        rounds,
        move || {
            let mut left = rounds;
            rx.for_each(|number, _| {
                tx_back.publish(|slot| *slot = *number).expect("the ring is open");
                left -= 1;
            })
            .expect("the stream ends well");
            assert_eq!(left, 0);
        },
        move |number| {
            let begin = Instant::now();
            tx.publish(|slot| *slot = number).expect("the ring is open");
            let mut answer = 0;
            while rx_back.poll(1, |number, _| answer = *number).expect("the ring is open") == 0 {
                spin_loop();
            }
            (begin.elapsed(), answer)
        },
    )
}
